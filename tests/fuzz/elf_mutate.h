/* SPDX-License-Identifier: MIT */
/*
 * A mutator that knows where the numbers of an ELF file are: it takes one field of one header or table entry and gives
 * it another value, often one that stands somewhere else in the file. Every second time libFuzzer's own one is asked.
 */
#ifndef CT_TESTS_ELF_MUTATE_H
#define CT_TESTS_ELF_MUTATE_H

#include "fuzz.h"

#include <elf.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

struct field {
  uint16_t offset, bytes;
};

#define FIELD(type, member)                                                                                            \
  {                                                                                                                    \
    offsetof(type, member), sizeof(((type *)0)->member)                                                                \
  }

static const struct field header_fields[] = {
    FIELD(Elf64_Ehdr, e_type),  FIELD(Elf64_Ehdr, e_entry), FIELD(Elf64_Ehdr, e_phoff),    FIELD(Elf64_Ehdr, e_shoff),
    FIELD(Elf64_Ehdr, e_phnum), FIELD(Elf64_Ehdr, e_shnum), FIELD(Elf64_Ehdr, e_shstrndx),
};
static const struct field segment_fields[] = {
    FIELD(Elf64_Phdr, p_type),   FIELD(Elf64_Phdr, p_flags), FIELD(Elf64_Phdr, p_offset), FIELD(Elf64_Phdr, p_vaddr),
    FIELD(Elf64_Phdr, p_filesz), FIELD(Elf64_Phdr, p_memsz), FIELD(Elf64_Phdr, p_align),
};
static const struct field section_fields[] = {
    FIELD(Elf64_Shdr, sh_name), FIELD(Elf64_Shdr, sh_type),   FIELD(Elf64_Shdr, sh_flags),
    FIELD(Elf64_Shdr, sh_addr), FIELD(Elf64_Shdr, sh_offset), FIELD(Elf64_Shdr, sh_size),
    FIELD(Elf64_Shdr, sh_link), FIELD(Elf64_Shdr, sh_info),   FIELD(Elf64_Shdr, sh_addralign),
};
static const struct field symbol_fields[] = {
    FIELD(Elf64_Sym, st_name),  FIELD(Elf64_Sym, st_info), FIELD(Elf64_Sym, st_shndx),
    FIELD(Elf64_Sym, st_value), FIELD(Elf64_Sym, st_size),
};
static const struct field dynamic_fields[] = {FIELD(Elf64_Dyn, d_tag), FIELD(Elf64_Dyn, d_un)};

static uint32_t
elf_random(uint32_t *state)
{
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

static uint64_t
elf_value(uint8_t *data, size_t size, const struct field *field, uint8_t *at, uint32_t *state)
{
  uint64_t value = 0, other = 0;
  memcpy(&value, at, field->bytes);
  memcpy(&other, data + elf_random(state) % (size - 7), field->bytes);
  switch (elf_random(state) % 10) {
  case 0:
    return 0;
  case 1:
    return ~0ull;
  case 2:
    return 1ull << (elf_random(state) % 64);
  case 3:
    return size;
  case 4:
    return value + 1;
  case 5:
    return value - 1;
  case 6:
    return value ^ 1ull << (elf_random(state) % (8 * field->bytes));
  case 7:
    return value + (1ull << (elf_random(state) % 64));
  case 8:
    return elf_random(state) % 32;
  default:
    return other;
  }
}

static void
elf_change(uint8_t *data, size_t size, uint64_t table, uint64_t entry_bytes, uint64_t count, const struct field *fields,
           size_t field_count, uint32_t *state)
{
  if (count == 0 || table > size || entry_bytes > size) {
    return;
  }
  uint64_t at = table + entry_bytes * (elf_random(state) % count);
  const struct field *field = &fields[elf_random(state) % field_count];
  at += field->offset;
  if (at > size || field->bytes > size - at) {
    return;
  }
  uint64_t value = elf_value(data, size, field, data + at, state);
  memcpy(data + at, &value, field->bytes);
}

#define CHANGE(table, type, count, fields)                                                                             \
  elf_change(data, size, table, sizeof(type), count, fields, sizeof(fields) / sizeof(fields[0]), state)

static void
elf_change_section_content(uint8_t *data, size_t size, const Elf64_Ehdr *header, uint32_t *state)
{
  Elf64_Shdr section;
  if (header->e_shnum == 0 || header->e_shoff > size || size - header->e_shoff < header->e_shnum * sizeof(section)) {
    return;
  }
  for (int attempt = 0; attempt < 16; attempt++) {
    uint32_t i = elf_random(state) % header->e_shnum;
    memcpy(&section, data + header->e_shoff + i * sizeof(section), sizeof(section));
    if (section.sh_offset >= size || section.sh_size == 0 || section.sh_type == SHT_NOBITS) {
      continue;
    }
    uint64_t left = size - section.sh_offset, bytes = section.sh_size < left ? section.sh_size : left;
    switch (section.sh_type) {
    case SHT_SYMTAB:
    case SHT_DYNSYM:
      CHANGE(section.sh_offset, Elf64_Sym, bytes / sizeof(Elf64_Sym), symbol_fields);
      return;
    case SHT_DYNAMIC:
      CHANGE(section.sh_offset, Elf64_Dyn, bytes / sizeof(Elf64_Dyn), dynamic_fields);
      return;
    default:
      LLVMFuzzerMutate(data + section.sh_offset, bytes, bytes); /* the same size, or the rest is as it was */
      return;
    }
  }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
  uint32_t random = seed, *state = &random;
  Elf64_Ehdr header;
  if (size < sizeof(header) || elf_random(state) % 4 == 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  unsigned changes = 1 + elf_random(state) % 3;
  for (unsigned i = 0; i < changes; i++) {
    memcpy(&header, data, sizeof(header));
    switch (elf_random(state) % 8) {
    case 0:
      CHANGE(0, Elf64_Ehdr, 1, header_fields);
      break;
    case 1:
    case 2:
      CHANGE(header.e_phoff, Elf64_Phdr, header.e_phnum, segment_fields);
      break;
    case 3:
    case 4:
      CHANGE(header.e_shoff, Elf64_Shdr, header.e_shnum, section_fields);
      break;
    default:
      elf_change_section_content(data, size, &header, state);
    }
  }
  return size;
}

#endif
