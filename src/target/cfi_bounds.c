/* SPDX-License-Identifier: MIT */
/*
 * Whether call frame information can be given to libdw, which runs what an address is said to have, however long that
 * is, keeps a copy of all registers for each state that is remembered, and has as many registers as are named: a file
 * of some megabytes could take all time and memory there is.
 *
 * It is as moderate as compilers write it when the records, one after the other, are short and end, when each of them
 * can be run here (cfi_rows.c), and when libdw finds no others: not by the table of .eh_frame_hdr, nor by where an FDE
 * says that its CIE is.
 */
#include "target/debuginfo.h"

#include "target/cfi.h"

#include <stdlib.h>
#include <string.h>

#define SECTION_BYTES_MAX (64u << 20)
#define RECORD_BYTES_MAX  (64u << 10)
#define TABLE_HEAD        12 /* version, three encodings, where .eh_frame is, how many entries */

enum { PE_PCREL_SDATA4 = 0x1b, PE_UDATA4 = 0x03, PE_DATAREL_SDATA4 = 0x3b, PE_OMIT = 0xff };

/* The records of one section. */
struct records {
  struct ct_cfi cfi;
  bool is_debug_frame; /* else .eh_frame */
  uint32_t *fdes;      /* their offsets, in the order of the file */
  uint32_t fde_count, fde_capacity, cie_capacity;
};

static void
records_free(struct records *r)
{
  free(r->cfi.cies);
  free(r->fdes);
}

static bool
reserve(void **array, uint32_t count, uint32_t *capacity, size_t bytes)
{
  if (count < *capacity) {
    return true;
  }
  uint32_t larger = *capacity != 0 ? *capacity * 2 : 256;
  void *grown = reallocarray(*array, larger, bytes);
  if (grown == NULL) {
    return false;
  }
  *array = grown;
  *capacity = larger;
  return true;
}

static bool
take_cie(struct records *r, uint32_t offset, const uint8_t *body, const uint8_t *end)
{
  struct ct_cie cie = {.offset = offset};
  if (!reserve((void **)&r->cfi.cies, r->cfi.cie_count, &r->cie_capacity, sizeof(cie)) ||
      !ct_cfi_parse_cie(&r->cfi, &cie, body, end) ||
      !ct_cfi_runs(&r->cfi, &cie, r->cfi.bytes + cie.code, cie.code_bytes)) {
    return false;
  }
  r->cfi.cies[r->cfi.cie_count++] = cie;
  return true;
}

static bool
take_fde(struct records *r, uint32_t offset, uint64_t cie_offset, const uint8_t *at, const uint8_t *end)
{
  uint32_t index = ct_cfi_find_cie(&r->cfi, cie_offset);
  uint64_t skipped, bytes = 0;
  if (index == UINT32_MAX || !reserve((void **)&r->fdes, r->fde_count, &r->fde_capacity, sizeof(*r->fdes))) {
    return false;
  }
  r->fdes[r->fde_count++] = offset;
  const struct ct_cie *cie = &r->cfi.cies[index];
  if (!ct_cfi_pointer(&r->cfi, &at, end, cie->fde_encoding & 0x7f, &skipped) ||
      !ct_cfi_pointer(&r->cfi, &at, end, cie->fde_encoding & 0x0f, &skipped) ||
      (cie->has_z && (!ct_cfi_uleb(&at, end, &bytes) || bytes > (uint64_t)(end - at)))) {
    return false;
  }
  at += bytes;
  return ct_cfi_runs(&r->cfi, cie, at, (size_t)(end - at));
}

/* until_zero: the size is only a bound. */
static bool
take_records(struct records *r, bool until_zero)
{
  const uint8_t *end = r->cfi.bytes + r->cfi.size;
  for (const uint8_t *at = r->cfi.bytes; end - at >= 4;) {
    uint32_t offset = (uint32_t)(at - r->cfi.bytes), length, id;
    memcpy(&length, at, sizeof(length));
    at += sizeof(length);
    if (length == 0 && until_zero) {
      return true;
    }
    if (length == 0) {
      continue;
    }
    if (length < sizeof(id) || length > RECORD_BYTES_MAX || length > (size_t)(end - at)) {
      return false; /* also one of 64 bits, which nobody writes */
    }
    memcpy(&id, at, sizeof(id));
    bool is_cie = id == (r->is_debug_frame ? UINT32_MAX : 0);
    uint64_t cie_offset = r->is_debug_frame ? id : (uint64_t)(at - r->cfi.bytes) - id;
    if (is_cie ? !take_cie(r, offset, at + sizeof(id), at + length)
               : !take_fde(r, offset, cie_offset, at + sizeof(id), at + length)) {
      return false;
    }
    at += length;
  }
  return true;
}

static int
compare_offsets(const void *a, const void *b)
{
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* The table leads to records that are known. */
static bool
is_table_true(const struct records *r, const uint8_t *table, size_t size, uint64_t address)
{
  uint32_t count, at;
  if (size < 4 || table[0] != 1 || table[2] == PE_OMIT || table[3] == PE_OMIT) {
    return true; /* there is none */
  }
  if (size < TABLE_HEAD || table[1] != PE_PCREL_SDATA4 || table[2] != PE_UDATA4 || table[3] != PE_DATAREL_SDATA4) {
    return false;
  }
  memcpy(&count, table + 8, sizeof(count));
  if (count > (size - TABLE_HEAD) / 8) {
    return false;
  }
  for (uint32_t i = 0; i < count; i++) {
    int32_t distance;
    memcpy(&distance, table + TABLE_HEAD + 8 * (size_t)i + 4, sizeof(distance));
    uint64_t offset = address + (uint64_t)(int64_t)distance - r->cfi.address;
    at = (uint32_t)offset;
    if (offset != at || r->fde_count == 0 ||
        bsearch(&at, r->fdes, r->fde_count, sizeof(*r->fdes), compare_offsets) == NULL) {
      return false;
    }
  }
  return true;
}

static bool
is_eh_frame_moderate(const uint8_t *bytes, size_t size, uint64_t address, bool until_zero, const uint8_t *table,
                     size_t table_size, uint64_t table_address)
{
  struct records r = {.cfi = {.bytes = bytes, .size = (uint32_t)size, .address = address}};
  bool is = (size <= SECTION_BYTES_MAX || until_zero) && take_records(&r, until_zero) &&
            is_table_true(&r, table, table_size, table_address);
  records_free(&r);
  return is;
}

/* Without section headers: as PT_GNU_EH_FRAME says, the first of them. */
static bool
is_segment_moderate(const struct ct_image *image)
{
  for (uint32_t i = 0; i < image->segment_count; i++) {
    const Elf64_Phdr *segment = &image->segments[i];
    if (segment->p_type != PT_GNU_EH_FRAME) {
      continue;
    }
    int32_t distance;
    if (segment->p_offset > image->size || segment->p_filesz > image->size - segment->p_offset ||
        segment->p_filesz < 8 || image->bytes[segment->p_offset + 1] != PE_PCREL_SDATA4) {
      return false;
    }
    const uint8_t *table = image->bytes + segment->p_offset;
    memcpy(&distance, table + 4, sizeof(distance));
    uint64_t offset = segment->p_offset + 4 + (uint64_t)(int64_t)distance;
    if (offset > image->size) {
      return false;
    }
    size_t size = image->size - offset < SECTION_BYTES_MAX ? image->size - offset : SECTION_BYTES_MAX;
    return is_eh_frame_moderate(image->bytes + offset, size, segment->p_vaddr + 4 + (uint64_t)(int64_t)distance, true,
                                table, segment->p_filesz, segment->p_vaddr);
  }
  return true;
}

static bool
is_debug_frame_moderate(const uint8_t *bytes, size_t size)
{
  struct records r = {.cfi = {.bytes = bytes, .size = (uint32_t)size}, .is_debug_frame = true};
  bool is = size <= SECTION_BYTES_MAX && take_records(&r, false);
  records_free(&r);
  return is;
}

/* As libdw unpacks it. How large that becomes has been looked at. */
static bool
is_packed_moderate(const struct ct_image *image, size_t index, bool is_old)
{
  char *bytes = ct_image_writable(image);
  elf_version(EV_CURRENT);
  Elf *elf = bytes != NULL ? elf_memory(bytes, image->size) : NULL;
  Elf_Scn *section = elf != NULL ? elf_getscn(elf, index) : NULL;
  Elf_Data *data = NULL;
  if (section != NULL && (is_old ? elf_compress_gnu(section, 0, 0) : elf_compress(section, 0, 0)) >= 0) {
    data = elf_getdata(section, NULL);
  }
  bool is = data != NULL && is_debug_frame_moderate(data->d_buf, data->d_size);
  elf_end(elf);
  ct_image_release_writable(image, bytes);
  return is;
}

bool
ct_cfi_is_moderate(const struct ct_image *image, bool is_debug_file)
{
  const Elf64_Shdr *frame = NULL, *table = NULL;
  for (uint32_t i = 0; i < image->section_count; i++) {
    const Elf64_Shdr *section = &image->sections[i];
    const char *name = ct_image_section_name(image, section);
    size_t length = strlen(name), size = 0;
    if (section->sh_type == SHT_NOBITS || section->sh_type == SHT_NULL) {
      continue;
    }
    if (strcmp(name, ".eh_frame") == 0 || strcmp(name, ".eh_frame_hdr") == 0) {
      const Elf64_Shdr **which = strlen(name) == strlen(".eh_frame") ? &frame : &table;
      if (*which != NULL) {
        return false; /* which of them libdw would take nobody need know */
      }
      *which = section;
    } else if (length >= 11 && strcmp(name + length - 11, "debug_frame") == 0) {
      const uint8_t *bytes = ct_image_section_bytes(image, section, &size);
      bool is_old = strncmp(name, ".z", 2) == 0, is_packed = is_old || (section->sh_flags & SHF_COMPRESSED) != 0;
      if (bytes != NULL && !(is_packed ? is_packed_moderate(image, i, is_old) : is_debug_frame_moderate(bytes, size))) {
        return false;
      }
    }
  }
  if (is_debug_file) {
    return true; /* .eh_frame is looked for in the other one, and what headers of segments say is of that one, too */
  }
  if (frame == NULL) {
    return is_segment_moderate(image);
  }
  size_t size = 0, table_size = 0;
  const uint8_t *bytes = ct_image_section_bytes(image, frame, &size);
  const uint8_t *entries = table != NULL ? ct_image_section_bytes(image, table, &table_size) : NULL;
  return bytes == NULL || is_eh_frame_moderate(bytes, size, frame->sh_addr, false, entries, table_size,
                                               table != NULL ? table->sh_addr : 0);
}
