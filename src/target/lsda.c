/* SPDX-License-Identifier: MIT */
/* See lsda.h. Every read is checked against the bytes that the file has. */
#include "target/lsda.h"

#include <string.h>

enum {
  DW_EH_PE_absptr = 0x00,
  DW_EH_PE_uleb128 = 0x01,
  DW_EH_PE_udata2 = 0x02,
  DW_EH_PE_udata4 = 0x03,
  DW_EH_PE_udata8 = 0x04,
  DW_EH_PE_sleb128 = 0x09,
  DW_EH_PE_sdata2 = 0x0a,
  DW_EH_PE_sdata4 = 0x0b,
  DW_EH_PE_sdata8 = 0x0c,
  DW_EH_PE_pcrel = 0x10,
  DW_EH_PE_omit = 0xff,
};

struct reader {
  const uint8_t *at, *end;
  uint64_t address; /* of at */
  int bad;
};

static uint64_t
fixed(struct reader *reader, size_t bytes, int is_signed)
{
  uint64_t value = 0;
  if ((size_t)(reader->end - reader->at) < bytes) {
    reader->bad = 1;
    return 0;
  }
  memcpy(&value, reader->at, bytes);
  reader->at += bytes;
  reader->address += bytes;
  if (is_signed && bytes < 8 && (value >> (bytes * 8 - 1) & 1) != 0) {
    value |= ~0ull << (bytes * 8);
  }
  return value;
}

static uint64_t
leb128(struct reader *reader, int is_signed)
{
  uint64_t value = 0;
  unsigned shift = 0;
  uint8_t byte;
  do {
    byte = (uint8_t)fixed(reader, 1, 0);
    if (shift < 64) {
      value |= (uint64_t)(byte & 0x7f) << shift;
    }
    shift += 7;
  } while ((byte & 0x80) != 0 && !reader->bad && shift < 70);
  if (is_signed && shift < 64 && (byte & 0x40) != 0) {
    value |= ~0ull << shift;
  }
  return value;
}

static uint64_t
encoded(struct reader *reader, uint8_t encoding)
{
  uint64_t base = (encoding & 0x70) == DW_EH_PE_pcrel ? reader->address : 0;
  switch (encoding & 0x0f) {
  case DW_EH_PE_absptr:
  case DW_EH_PE_udata8:
  case DW_EH_PE_sdata8:
    return base + fixed(reader, 8, 0);
  case DW_EH_PE_uleb128:
    return base + leb128(reader, 0);
  case DW_EH_PE_sleb128:
    return base + leb128(reader, 1);
  case DW_EH_PE_udata2:
    return base + fixed(reader, 2, 0);
  case DW_EH_PE_sdata2:
    return base + fixed(reader, 2, 1);
  case DW_EH_PE_udata4:
    return base + fixed(reader, 4, 0);
  case DW_EH_PE_sdata4:
    return base + fixed(reader, 4, 1);
  default:
    reader->bad = 1;
    return 0;
  }
}

size_t
ct_lsda_landing_pads(const struct ct_elf *elf, const struct ct_cfi_fde *fde,
                     void (*visit)(void *context, uint64_t address), void *context)
{
  size_t left = fde->lsda != 0 ? ct_elf_bytes_left(elf, fde->lsda) : 0;
  const uint8_t *bytes = left != 0 ? ct_elf_bytes(elf, fde->lsda, left) : NULL;
  if (bytes == NULL) {
    return 0;
  }
  struct reader reader = {bytes, bytes + left, fde->lsda, 0};
  uint64_t pads_start = fde->start;
  uint8_t encoding = (uint8_t)fixed(&reader, 1, 0);
  if (encoding != DW_EH_PE_omit) {
    pads_start = encoded(&reader, encoding);
  }
  if ((uint8_t)fixed(&reader, 1, 0) != DW_EH_PE_omit) {
    leb128(&reader, 0); /* distance to the types */
  }
  uint8_t site_encoding = (uint8_t)fixed(&reader, 1, 0);
  uint64_t table_bytes = leb128(&reader, 0);
  if (reader.bad || table_bytes > (uint64_t)(reader.end - reader.at)) {
    return 0;
  }
  const uint8_t *table_end = reader.at + table_bytes;
  size_t count = 0;
  /* Each site is at least a byte of the function: many functions that share one large table make no more work. */
  for (uint64_t sites = fde->end - fde->start; sites > 0 && reader.at < table_end && !reader.bad; sites--) {
    encoded(&reader, site_encoding); /* start and length of the calls */
    encoded(&reader, site_encoding);
    uint64_t pad = encoded(&reader, site_encoding);
    leb128(&reader, 0); /* action */
    if (!reader.bad && pad != 0) {
      visit(context, pads_start + pad);
      count++;
    }
  }
  return count;
}
