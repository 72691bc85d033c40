/* SPDX-License-Identifier: MIT */
/*
 * The index over .eh_frame. One pass over the records in the order of the file:
 *
 *   length u32 (0xffffffff: then u64) | id u32 | ...
 *   CIE, id == 0: version, augmentation string, code and data alignment, return register, augmentation data, code
 *   FDE, id = distance back to its CIE: start, range (both encoded as the CIE says), augmentation data, code
 *
 * Rules: an FDE counts only when its CIE was a record of this pass (so the work is linear in the size whatever the
 * file says), its range is not empty and it begins in code. Ranges that overlap are cut. The id is 4 bytes also after
 * a 64-bit length, as the LSB says. A record that cannot be read is passed over; a length that leaves the section ends
 * the pass.
 */
#include "target/cfi.h"

#include <stdlib.h>
#include <string.h>

#include "target/target_internal.h"
#include "target/sort.h"

enum { /* DW_EH_PE_*: the form in the low half, what it is relative to in the high one */
       PE_ABSPTR = 0x00,
       PE_ULEB128 = 0x01,
       PE_UDATA2 = 0x02,
       PE_UDATA4 = 0x03,
       PE_UDATA8 = 0x04,
       PE_SIGNED = 0x08,
       PE_SLEB128 = 0x09,
       PE_SDATA2 = 0x0a,
       PE_SDATA4 = 0x0b,
       PE_SDATA8 = 0x0c,
       PE_FORM = 0x0f,
       PE_PCREL = 0x10,
       PE_RELATIVE = 0x70,
       PE_ALIGNED = 0x50,
       PE_INDIRECT = 0x80,
       PE_OMIT = 0xff,
};

/* A number of seven bits a byte; what is above 64 bits is passed over. */
static bool
take_leb(const uint8_t **at, const uint8_t *end, bool is_signed, uint64_t *value)
{
  uint64_t result = 0;

  for (unsigned shift = 0; *at < end; shift += 7) {
    uint8_t byte = *(*at)++;
    if (shift < 64) {
      result |= (uint64_t)(byte & 0x7f) << shift;
    }
    if ((byte & 0x80) == 0) {
      if (is_signed && (byte & 0x40) != 0 && shift + 7 < 64) {
        result |= ~(uint64_t)0 << (shift + 7);
      }
      *value = result;
      return true;
    }
  }
  return false;
}

bool
ct_cfi_uleb(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
  return take_leb(at, end, false, value);
}

bool
ct_cfi_sleb(const uint8_t **at, const uint8_t *end, int64_t *value)
{
  uint64_t result;

  if (!take_leb(at, end, true, &result)) {
    return false;
  }
  *value = (int64_t)result;
  return true;
}

/* Little-endian, sign-extended on demand. */
static bool
read_fixed(const uint8_t **at, const uint8_t *end, unsigned bytes, bool is_signed, uint64_t *value)
{
  uint64_t result = 0;

  if ((size_t)(end - *at) < bytes) {
    return false;
  }
  memcpy(&result, *at, bytes);
  *at += bytes;
  if (is_signed && bytes < 8 && (result >> (8 * bytes - 1) & 1) != 0) {
    result |= ~(uint64_t)0 << (8 * bytes);
  }
  *value = result;
  return true;
}

bool
ct_cfi_pointer(const struct ct_cfi *cfi, const uint8_t **at, const uint8_t *end, uint8_t encoding, uint64_t *value)
{
  uint64_t field = cfi->address + (uint64_t)(*at - cfi->bytes);
  uint64_t result;
  bool good;

  if ((encoding & PE_RELATIVE) == PE_ALIGNED) {
    uint64_t pad = -field & 7;
    if ((uint64_t)(end - *at) < pad) {
      return false;
    }
    *at += pad;
    return read_fixed(at, end, 8, false, value);
  }
  switch (encoding & PE_FORM) {
  case PE_ULEB128:
    good = ct_cfi_uleb(at, end, &result);
    break;
  case PE_SLEB128:
    good = ct_cfi_sleb(at, end, (int64_t *)&result);
    break;
  case PE_UDATA2:
  case PE_SDATA2:
    good = read_fixed(at, end, 2, (encoding & PE_SIGNED) != 0, &result);
    break;
  case PE_UDATA4:
  case PE_SDATA4:
    good = read_fixed(at, end, 4, (encoding & PE_SIGNED) != 0, &result);
    break;
  case PE_ABSPTR:
  case PE_SIGNED:
  case PE_UDATA8:
  case PE_SDATA8:
    good = read_fixed(at, end, 8, false, &result);
    break;
  default:
    return false;
  }
  if (!good) {
    return false;
  }
  switch (encoding & PE_RELATIVE) {
  case 0:
    break;
  case PE_PCREL:
    result += result != 0 ? field : 0; /* zero stays zero: no pointer */
    break;
  default:
    return false; /* text, data and function relative are not used on x86-64 */
  }
  *value = result;
  return true;
}

/* The augmentation data of a CIE, as its string names them after the 'z'. */
static bool
read_cie_augmentation(const struct ct_cfi *cfi, struct ct_cie *cie, const char *letters, const uint8_t *at,
                      const uint8_t *end)
{
  for (; *letters != 0; letters++) {
    switch (*letters) {
    case 'R':
      if (at == end) {
        return false;
      }
      cie->fde_encoding = *at++;
      break;
    case 'L':
      if (at == end) {
        return false;
      }
      cie->lsda_encoding = *at++;
      break;
    case 'P': {
      if (at == end) {
        return false;
      }
      uint8_t encoding = *at++;
      if (encoding == PE_OMIT) {
        break;
      }
      if (!ct_cfi_pointer(cfi, &at, end, encoding & ~PE_INDIRECT, &cie->personality)) {
        return false;
      }
      cie->personality_indirect = (encoding & PE_INDIRECT) != 0;
      break;
    }
    case 'S':
      cie->signal_frame = 1;
      break;
    case 'B': /* AArch64's pointer key: no data */
    case 'G':
      break;
    default:
      return true; /* unknown: the length of the data shows where the instructions begin */
    }
  }
  return true;
}

bool
ct_cfi_parse_cie(const struct ct_cfi *cfi, struct ct_cie *cie, const uint8_t *at, const uint8_t *end)
{
  cie->lsda_encoding = PE_OMIT;
  if (at == end) {
    return false;
  }
  uint8_t version = *at++;
  if (version != 1 && version != 3 && version != 4) {
    return false;
  }
  const char *letters = (const char *)at;
  const uint8_t *nul = memchr(at, 0, (size_t)(end - at));
  if (nul == NULL) {
    return false;
  }
  at = nul + 1;
  if (version == 4) {
    if (end - at < 2 || at[0] != 8 || at[1] != 0) { /* address and segment selector size */
      return false;
    }
    at += 2;
  }
  if (strncmp(letters, "eh", 2) == 0) { /* of gcc 2: a pointer to exception tables */
    if (end - at < 8) {
      return false;
    }
    at += 8;
    letters += 2;
  }
  uint64_t ra;
  if (!ct_cfi_uleb(&at, end, &cie->code_align) || !ct_cfi_sleb(&at, end, &cie->data_align)) {
    return false;
  }
  if (version == 1 ? !read_fixed(&at, end, 1, false, &ra) : !ct_cfi_uleb(&at, end, &ra)) {
    return false;
  }
  cie->ra_register = ra < UINT32_MAX ? (uint32_t)ra : UINT32_MAX;

  if (*letters == 'z') {
    uint64_t bytes;
    if (!ct_cfi_uleb(&at, end, &bytes) || bytes > (uint64_t)(end - at) ||
        !read_cie_augmentation(cfi, cie, letters + 1, at, at + bytes)) {
      return false;
    }
    at += bytes;
    cie->has_z = 1;
  } else if (*letters != 0) {
    return false; /* no telling where the instructions begin */
  }
  cie->code = (uint32_t)(at - cfi->bytes);
  cie->code_bytes = (uint32_t)(end - at);
  ct_cfi_run_initial(cfi, cie);
  return true;
}

/* at: after the id. */
static bool
parse_fde(const struct ct_cfi *cfi, const struct ct_cie *cie, struct ct_fde *fde, const uint8_t *at, const uint8_t *end)
{
  uint64_t range, bytes;

  fde->body = (uint32_t)(at - cfi->bytes);
  fde->body_bytes = (uint32_t)(end - at);
  if (cie->fde_encoding == PE_OMIT || (cie->fde_encoding & PE_INDIRECT) != 0 ||
      !ct_cfi_pointer(cfi, &at, end, cie->fde_encoding, &fde->start) ||
      !ct_cfi_pointer(cfi, &at, end, cie->fde_encoding & PE_FORM, &range)) {
    return false;
  }
  if (range == 0 || range > UINT64_MAX - fde->start) {
    return false;
  }
  fde->end = fde->start + range;
  if (cie->has_z) {
    if (!ct_cfi_uleb(&at, end, &bytes) || bytes > (uint64_t)(end - at)) {
      return false;
    }
    at += bytes;
  }
  fde->code_bytes = (uint32_t)(end - at);
  return true;
}

uint32_t
ct_cfi_find_cie(const struct ct_cfi *cfi, uint64_t offset)
{
  uint32_t low = 0, high = cfi->cie_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (cfi->cies[middle].offset < offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < cfi->cie_count && cfi->cies[low].offset == offset ? low : UINT32_MAX;
}

static bool
reserve(void **array, uint32_t count, uint32_t *size, size_t element_bytes)
{
  if (count < *size) {
    return true;
  }
  uint32_t larger = *size == 0 ? 256 : 2 * *size;
  void *grown = realloc(*array, larger * element_bytes);
  if (grown == NULL) {
    return false;
  }
  *array = grown;
  *size = larger;
  return true;
}

/* Reads all records into the arrays, FDEs in the order of the file. */
static int
read_records(struct ct_elf *elf, bool until_zero)
{
  struct ct_cfi *cfi = &elf->cfi;
  uint32_t cie_size = 0, fde_size = 0, latest = UINT32_MAX;
  const uint8_t *end = cfi->bytes + cfi->size;

  for (const uint8_t *at = cfi->bytes; end - at >= 4;) {
    uint32_t offset = (uint32_t)(at - cfi->bytes), id;
    uint64_t length;
    (void)read_fixed(&at, end, 4, false, &length);
    if (length == 0 && until_zero) {
      break;
    }
    if (length == 0) {
      continue; /* an end mark: others may follow, as parts are concatenated by the linker */
    }
    if (length == 0xffffffff && !read_fixed(&at, end, 8, false, &length)) {
      break;
    }
    if (length > (uint64_t)(end - at)) {
      break;
    }
    const uint8_t *record = at, *next = at + length;
    at = next;
    if (length < 4) {
      continue;
    }
    memcpy(&id, record, sizeof(id));
    if (id == 0) {
      if (!reserve((void **)&cfi->cies, cfi->cie_count, &cie_size, sizeof(*cfi->cies))) {
        return CT_ENOMEM;
      }
      struct ct_cie cie = {.offset = offset};
      if (ct_cfi_parse_cie(cfi, &cie, record + 4, next)) {
        cfi->cies[cfi->cie_count++] = cie;
      }
      continue;
    }
    uint64_t cie_offset = (uint64_t)(record - cfi->bytes) - id;
    if (latest == UINT32_MAX || cfi->cies[latest].offset != cie_offset) {
      latest = ct_cfi_find_cie(cfi, cie_offset);
    }
    if (latest == UINT32_MAX) {
      continue;
    }
    if (!reserve((void **)&cfi->fdes, cfi->fde_count, &fde_size, sizeof(*cfi->fdes))) {
      return CT_ENOMEM;
    }
    struct ct_fde fde = {.cie = latest};
    if (parse_fde(cfi, &cfi->cies[latest], &fde, record + 4, next) && ct_elf_is_code(elf, fde.start)) {
      cfi->fdes[cfi->fde_count++] = fde;
    }
  }
  return CT_OK;
}

static int
sort_fdes(struct ct_cfi *cfi)
{
  uint32_t count = cfi->fde_count;
  bool sorted = true;
  for (uint32_t i = 1; i < count && sorted; i++) {
    sorted = cfi->fdes[i - 1].start <= cfi->fdes[i].start;
  }
  if (sorted) {
    return CT_OK;
  }

  struct ct_sort_key *keys = malloc(count * sizeof(*keys));
  struct ct_fde *fdes = malloc(count * sizeof(*fdes));
  bool good = keys != NULL && fdes != NULL;
  for (uint32_t i = 0; good && i < count; i++) {
    keys[i] = (struct ct_sort_key){cfi->fdes[i].start, i};
  }
  if (good) {
    good = ct_sort_keys(keys, count);
  }
  for (uint32_t i = 0; good && i < count; i++) {
    fdes[i] = cfi->fdes[keys[i].index];
  }
  free(keys);
  if (!good) {
    free(fdes);
    return CT_ENOMEM;
  }
  free(cfi->fdes);
  cfi->fdes = fdes;
  return CT_OK;
}

/* Each address belongs to the last FDE that begins at or before it, as unwinders search. */
static void
cut_overlaps(struct ct_cfi *cfi)
{
  uint32_t kept = 0;
  for (uint32_t i = 0; i < cfi->fde_count; i++) {
    struct ct_fde fde = cfi->fdes[i];
    uint64_t next = i + 1 < cfi->fde_count ? cfi->fdes[i + 1].start : fde.end;
    if (next == fde.start) {
      continue;
    }
    fde.end = next < fde.end ? next : fde.end;
    cfi->fdes[kept++] = fde;
  }
  cfi->fde_count = kept;
}

int
ct_cfi_build(struct ct_elf *elf, const uint8_t *bytes, size_t size, uint64_t address, bool until_zero)
{
  struct ct_cfi *cfi = &elf->cfi;

  cfi->bytes = bytes;
  cfi->size = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
  cfi->address = address;
  int err = read_records(elf, until_zero);
  if (err == CT_OK) {
    err = sort_fdes(cfi);
  }
  if (err == CT_OK) {
    cut_overlaps(cfi);
  }
  return err;
}

uint32_t
ct_cfi_count(const struct ct_elf *elf)
{
  return elf->cfi.fde_count;
}

uint32_t
ct_cfi_find(const struct ct_elf *elf, uint64_t address)
{
  const struct ct_cfi *cfi = &elf->cfi;
  uint32_t low = 0, high = cfi->fde_count;

  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (cfi->fdes[middle].start <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low != 0 && address < cfi->fdes[low - 1].end ? low - 1 : CT_FDE_NONE;
}

int
ct_cfi_get(const struct ct_elf *elf, uint32_t index, struct ct_cfi_fde *out)
{
  const struct ct_cfi *cfi = &elf->cfi;
  if (index >= cfi->fde_count) {
    return CT_ERANGE;
  }

  const struct ct_fde *fde = &cfi->fdes[index];
  const struct ct_cie *cie = &cfi->cies[fde->cie];
  const uint8_t *end = cfi->bytes + fde->body + fde->body_bytes;
  *out = (struct ct_cfi_fde){
      .start = fde->start,
      .end = fde->end,
      .personality = cie->personality,
      .personality_indirect = cie->personality_indirect,
      .lsda_encoding = PE_OMIT,
      .signal_frame = cie->signal_frame,
      .ra_register = cie->ra_register < UINT8_MAX ? (uint8_t)cie->ra_register : UINT8_MAX,
      .code_align = cie->code_align,
      .data_align = cie->data_align,
      .cie_code = cfi->bytes + cie->code,
      .cie_code_bytes = cie->code_bytes,
      .code = end - fde->code_bytes,
      .code_bytes = fde->code_bytes,
  };
  if (!cie->has_z || cie->lsda_encoding == PE_OMIT) {
    return CT_OK;
  }

  /* The augmentation data of the FDE, which parse_fde found well-formed, begin with the LSDA. */
  const uint8_t *at = cfi->bytes + fde->body;
  uint64_t skipped;
  if (ct_cfi_pointer(cfi, &at, end, cie->fde_encoding, &skipped) &&
      ct_cfi_pointer(cfi, &at, end, cie->fde_encoding & PE_FORM, &skipped) && ct_cfi_uleb(&at, end, &skipped) &&
      ct_cfi_pointer(cfi, &at, out->code, cie->lsda_encoding & ~PE_INDIRECT, &out->lsda) && out->lsda != 0) {
    out->lsda_encoding = cie->lsda_encoding;
  } else {
    out->lsda = 0;
  }
  return CT_OK;
}
