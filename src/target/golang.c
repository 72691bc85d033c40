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
 *   24  u64  address of the text that offsets count from; 0 where a relocation fills it in, and always as Go 1.26
 *            writes it
 *   32  u64  offset of the names, each ended by a NUL
 *   40  u64  of the compilation units; 48 of the files; 56 of the pc tables
 *   64  u64  of the functions: pairs of u32, the entry's offset in the text and that of a record from here; a
 *            last entry without a record ends the text
 *
 * Where the header has no address of the text, the runtime's moduledata has it, which lies in .go.module or in data,
 * and in a file that is not relocated begins (all fields u64):
 *
 *    0  address of the header         128  address of the functions
 *  160  lowest address of a function  168  end of the last one   176  address of the text
 *
 * In one that is relocated there is only the section: if the table covers .text from its beginning to its end.
 *
 * A record begins with u32 entry, i32 offset of the name. Older tables (1.2, 1.16) are not read: such programs have
 * names when they are not stripped.
 */
#include "target/golang.h"

#include <string.h>

#include "target/target_internal.h"

enum {
  HEADER_BYTES = 72,
  MAGIC_1_18 = 0xfffffff0,
  MAGIC_1_20 = 0xfffffff1,
  MODULE_BYTES = 184,
  TEXT_PADDING = 32, /* at most, after the last function; the _start of C is longer */
};

struct table {
  const uint8_t *bytes;
  size_t size;
  uint64_t address;
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
static const Elf64_Shdr *
find_header(const struct ct_elf *elf, const char *name)
{
  size_t name_bytes = strlen(name);
  for (uint32_t i = 0; i < elf->main.section_count; i++) {
    const char *have = ct_image_section_name(&elf->main, &elf->main.sections[i]);
    size_t have_bytes = strlen(have);
    if (have_bytes >= name_bytes && strcmp(have + have_bytes - name_bytes, name) == 0) {
      return &elf->main.sections[i];
    }
  }
  return NULL;
}

static const uint8_t *
find_section(const struct ct_elf *elf, const char *name, size_t *size)
{
  const Elf64_Shdr *header = find_header(elf, name);
  return header != NULL ? ct_image_section_bytes(&elf->main, header, size) : NULL;
}

bool
ct_elf_is_go(const struct ct_elf *elf)
{
  size_t size;
  return find_section(elf, ".go.buildinfo", &size) != NULL || find_section(elf, ".gopclntab", &size) != NULL ||
         find_section(elf, ".note.go.buildid", &size) != NULL;
}

/* Where the functions begin and end, in bytes from the text: by the first and the last entry. */
static void
bounds_of(const struct table *table, uint64_t *first, uint64_t *end)
{
  const uint8_t *entries = table->bytes + table->entries;
  bool cut = (table->count + 1) * 8 > table->size - table->entries;
  *first = read_u32(entries);
  *end = cut ? 0 : read_u32(entries + table->count * 8);
}

/* The text's address by the moduledata among these bytes; 0: it is not there. */
static uint64_t
text_of_module(const struct table *table, const uint8_t *bytes, size_t size)
{
  uint64_t first, end;
  bounds_of(table, &first, &end);
  for (size_t at = 0; at + MODULE_BYTES <= size; at += 8) {
    uint64_t text = read_u64(bytes + at + 176);
    if (read_u64(bytes + at) == table->address && text != 0 &&
        read_u64(bytes + at + 128) == table->address + table->entries && read_u64(bytes + at + 160) == text + first &&
        read_u64(bytes + at + 168) == text + end) {
      return text;
    }
  }
  return 0;
}

static uint64_t
find_text(const struct ct_elf *elf, const struct table *table)
{
  uint64_t first, end, text = 0;
  for (uint32_t i = 0; i < elf->main.section_count && text == 0; i++) {
    const Elf64_Shdr *section = &elf->main.sections[i];
    size_t size = 0;
    const uint8_t *bytes =
        section->sh_type == SHT_PROGBITS && (section->sh_flags & (SHF_ALLOC | SHF_WRITE)) == (SHF_ALLOC | SHF_WRITE)
            ? ct_image_section_bytes(&elf->main, section, &size)
            : NULL;
    text = bytes != NULL ? text_of_module(table, bytes, size) : 0;
  }
  bounds_of(table, &first, &end);
  const Elf64_Shdr *section = ct_image_section(&elf->main, ".text");
  if (text == 0 && section != NULL && end != 0 && end <= section->sh_size && section->sh_size - end <= TEXT_PADDING) {
    text = section->sh_addr;
  }
  return text;
}

static bool
open_table(const struct ct_elf *elf, struct table *table)
{
  memset(table, 0, sizeof(*table));
  const Elf64_Shdr *header = find_header(elf, ".gopclntab");
  table->bytes = header != NULL ? ct_image_section_bytes(&elf->main, header, &table->size) : NULL;
  if (table->bytes == NULL || table->size < HEADER_BYTES) {
    return false;
  }
  uint32_t magic = read_u32(table->bytes);
  if ((magic != MAGIC_1_18 && magic != MAGIC_1_20) || table->bytes[6] != 1 || table->bytes[7] != 8) {
    return false;
  }
  table->address = header->sh_addr;
  table->count = read_u64(table->bytes + 8);
  table->text = read_u64(table->bytes + 24);
  table->names = read_u64(table->bytes + 32);
  table->entries = read_u64(table->bytes + 64);
  if (table->names >= table->size || table->entries >= table->size || table->count == 0 ||
      table->count > (table->size - table->entries) / 8) {
    return false;
  }
  if (table->text == 0) {
    table->text = find_text(elf, table);
  }
  return table->text != 0;
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
