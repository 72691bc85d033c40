/* SPDX-License-Identifier: MIT */
/* What the loader sees: PT_DYNAMIC. Gives the soname, and .dynsym where a file has no section headers. */
#include <string.h>

#include "target/target_internal.h"

struct dynamic {
  uint64_t strings;
  uint64_t strings_bytes;
  uint64_t symbols;
  uint64_t versions;
  uint64_t hash;
  uint64_t gnu_hash;
  uint64_t soname; /* offset into the strings, plus one */
};

static bool
read_entries(const struct ct_elf *elf, struct dynamic *out)
{
  const struct ct_image *image = &elf->main;
  const Elf64_Phdr *segment = NULL;

  for (uint32_t i = 0; i < image->segment_count; i++) {
    if (image->segments[i].p_type == PT_DYNAMIC) {
      segment = &image->segments[i];
    }
  }
  if (segment == NULL || segment->p_offset >= image->size) {
    return false;
  }

  uint64_t left = image->size - segment->p_offset;
  uint64_t count = (segment->p_filesz < left ? segment->p_filesz : left) / sizeof(Elf64_Dyn);
  for (uint64_t i = 0; i < count; i++) {
    Elf64_Dyn entry;
    memcpy(&entry, image->bytes + segment->p_offset + i * sizeof(entry), sizeof(entry));
    switch (entry.d_tag) {
    case DT_NULL:
      return true;
    case DT_STRTAB:
      out->strings = entry.d_un.d_ptr;
      break;
    case DT_STRSZ:
      out->strings_bytes = entry.d_un.d_val;
      break;
    case DT_SYMTAB:
      out->symbols = entry.d_un.d_ptr;
      break;
    case DT_VERSYM:
      out->versions = entry.d_un.d_ptr;
      break;
    case DT_HASH:
      out->hash = entry.d_un.d_ptr;
      break;
    case DT_GNU_HASH:
      out->gnu_hash = entry.d_un.d_ptr;
      break;
    case DT_SONAME:
      out->soname = entry.d_un.d_val + 1;
      break;
    }
  }
  return true;
}

/* The number of symbols is in no header: the old hash table says it, the new one ends with the last symbol. */
static uint64_t
count_symbols(const struct ct_elf *elf, const struct dynamic *dynamic)
{
  uint32_t words[4];

  const uint8_t *at = dynamic->hash != 0 ? ct_elf_bytes(elf, dynamic->hash, 8) : NULL;
  if (at != NULL) {
    memcpy(words, at, 8);
    return words[1];
  }
  at = dynamic->gnu_hash != 0 ? ct_elf_bytes(elf, dynamic->gnu_hash, sizeof(words)) : NULL;
  if (at == NULL) {
    return 0;
  }
  memcpy(words, at, sizeof(words));
  uint64_t buckets = dynamic->gnu_hash + sizeof(words) + 8 * (uint64_t)words[2];
  uint64_t chains = buckets + 4 * (uint64_t)words[0];
  const uint8_t *bucket = ct_elf_bytes(elf, buckets, 4 * (size_t)words[0]);
  uint32_t last = 0;
  for (uint32_t i = 0; bucket != NULL && i < words[0]; i++) {
    uint32_t first;
    memcpy(&first, bucket + 4 * (size_t)i, sizeof(first));
    last = first > last ? first : last;
  }
  if (last < words[1]) {
    return words[1];
  }

  uint64_t chain_bytes = ct_elf_bytes_left(elf, chains);
  const uint8_t *chain = ct_elf_bytes(elf, chains, chain_bytes);
  for (uint64_t i = last - words[1]; chain != NULL && i < chain_bytes / 4; i++) {
    uint32_t hash;
    memcpy(&hash, chain + 4 * i, sizeof(hash));
    if ((hash & 1) != 0) {
      return i + words[1] + 1;
    }
  }
  return 0;
}

void
ct_dynamic_read(struct ct_elf *elf)
{
  struct dynamic dynamic = {0};
  struct ct_symbols symbols = {0};

  if ((elf->sources & CT_SRC_DYNSYM) != 0) {
    ct_image_symbols(&elf->main, SHT_DYNSYM, &elf->dynsym);
  }
  if (!read_entries(elf, &dynamic) || dynamic.strings == 0) {
    return;
  }

  uint64_t left = ct_elf_bytes_left(elf, dynamic.strings);
  uint64_t bytes = dynamic.strings_bytes < left ? dynamic.strings_bytes : left;
  ct_symbols_set_strings(&symbols, (const char *)ct_elf_bytes(elf, dynamic.strings, bytes), bytes);
  if (dynamic.soname != 0 && dynamic.soname - 1 < symbols.strings_bytes) {
    elf->soname = symbols.strings + (dynamic.soname - 1);
  }
  if (elf->dynsym.count != 0 || dynamic.symbols == 0 || (elf->sources & CT_SRC_DYNSYM) == 0) {
    return;
  }

  left = ct_elf_bytes_left(elf, dynamic.symbols) / sizeof(Elf64_Sym);
  uint64_t count = count_symbols(elf, &dynamic);
  symbols.count = count < left ? count : left;
  symbols.entries = ct_elf_bytes(elf, dynamic.symbols, symbols.count * sizeof(Elf64_Sym));
  symbols.versions = dynamic.versions != 0 ? ct_elf_bytes(elf, dynamic.versions, symbols.count * 2) : NULL;
  symbols.version_count = symbols.versions != NULL ? symbols.count : 0;
  if (symbols.entries != NULL) {
    elf->dynsym = symbols;
  }
}
