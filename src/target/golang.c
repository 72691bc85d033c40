/* SPDX-License-Identifier: MIT */
/*
 * Go's function table, .gopclntab, which is there in stripped files too, for the runtime needs it. Header of versions
 * 1.18 and 1.20 (all fields little endian):
 *
 *    0  u32  magic, 0xfffffff0 or 0xfffffff1
 *    6  u8   least instruction size, 1
 *    7  u8   pointer size, 8
 *    8  u64  functions
 *   16  u64  files
 *   24  u64  address of the text that offsets count from; 0 where a relocation fills it in
 *   32  u64  offset of the names, each ended by a NUL
 *   40  u64  of the compilation units; 48 of the files; 56 of the pc tables
 *   64  u64  of the functions: pairs of u32, the entry's offset in the text and that of a record from here; a
 *            last entry without a record ends the text
 *
 * A record begins with u32 entry, i32 offset of the name. Older tables (1.2, 1.16) are not read: such programs have
 * names when they are not stripped.
 */
#include "target/golang.h"

#include <string.h>

#include "target/private.h"

enum {
  HEADER_BYTES = 72,
  MAGIC_1_18 = 0xfffffff0,
  MAGIC_1_20 = 0xfffffff1,
};

struct table {
  const uint8_t *bytes;
  size_t size;
  uint64_t count;
  uint64_t text;
  uint64_t names, entries; /* offsets */
};

static uint64_t
read_u64(const uint8_t *at)
{
  uint64_t value;
  memcpy(&value, at, sizeof(value));
  return value;
}

static uint32_t
read_u32(const uint8_t *at)
{
  uint32_t value;
  memcpy(&value, at, sizeof(value));
  return value;
}

/* The section by its name; one that is relocated has .data.rel.ro in front of it. */
static const uint8_t *
find_section(const struct ct_elf *elf, const char *name, size_t *size)
{
  size_t name_bytes = strlen(name);
  for (uint32_t i = 0; i < elf->main.section_count; i++) {
    const char *have = ct_image_section_name(&elf->main, &elf->main.sections[i]);
    size_t have_bytes = strlen(have);
    if (have_bytes >= name_bytes && strcmp(have + have_bytes - name_bytes, name) == 0) {
      return ct_image_section_bytes(&elf->main, &elf->main.sections[i], size);
    }
  }
  return NULL;
}

bool
ct_elf_is_go(const struct ct_elf *elf)
{
  size_t size;
  return find_section(elf, ".go.buildinfo", &size) != NULL || find_section(elf, ".gopclntab", &size) != NULL ||
         find_section(elf, ".note.go.buildid", &size) != NULL;
}

static bool
open_table(const struct ct_elf *elf, struct table *table)
{
  memset(table, 0, sizeof(*table));
  table->bytes = find_section(elf, ".gopclntab", &table->size);
  if (table->bytes == NULL || table->size < HEADER_BYTES) {
    return false;
  }
  uint32_t magic = read_u32(table->bytes);
  if ((magic != MAGIC_1_18 && magic != MAGIC_1_20) || table->bytes[6] != 1 || table->bytes[7] != 8) {
    return false;
  }
  table->count = read_u64(table->bytes + 8);
  table->text = read_u64(table->bytes + 24);
  table->names = read_u64(table->bytes + 32);
  table->entries = read_u64(table->bytes + 64);
  return table->text != 0 && table->names < table->size && table->entries < table->size &&
         table->count <= (table->size - table->entries) / 8;
}

/* The name of the record at this offset from the entries, or NULL. */
static const char *
name_at(const struct table *table, uint32_t record)
{
  if (record > table->size - table->entries || table->size - table->entries - record < 8) {
    return NULL;
  }
  uint64_t at = table->names + read_u32(table->bytes + table->entries + record + 4);
  if (at >= table->size || memchr(table->bytes + at, 0, table->size - at) == NULL) {
    return NULL;
  }
  return (const char *)table->bytes + at;
}

void
ct_golang_functions(const struct ct_elf *elf, ct_golang_found *found, void *arg)
{
  struct table table;
  if (!open_table(elf, &table)) {
    return;
  }
  const uint8_t *entry = table.bytes + table.entries;
  for (uint64_t i = 0; i < table.count; i++, entry += 8) {
    uint32_t offset = read_u32(entry);
    bool last = (uint64_t)(entry - table.bytes) + 12 > table.size;
    uint32_t next = last ? offset : read_u32(entry + 8);
    const char *name = name_at(&table, read_u32(entry + 4));
    if (next > offset) {
      found(arg, table.text + offset, next - offset, name);
    }
  }
}
