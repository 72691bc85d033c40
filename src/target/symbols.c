/* SPDX-License-Identifier: MIT */
/* Looks one symbol up by name; see ct_elf_symbol, ct_elf_links. */
#include <string.h>

#include "target/target_internal.h"

enum {
  RANK_NONE,
  RANK_OLD_VERSION, /* foo@VER, or hidden in .gnu.version */
  RANK_LOCAL,
  RANK_WEAK,
  RANK_GLOBAL,
};

/* How well entry i answers to the name. */
static int
rank(const struct ct_symbols *table, size_t i, const Elf64_Sym *symbol, const char *name, size_t name_bytes)
{
  const char *have = ct_symbol_name(table, symbol);
  if (have[0] != name[0] || strncmp(have, name, name_bytes) != 0) {
    return RANK_NONE;
  }
  const char *rest = have + name_bytes;
  if (rest[0] == '@' && rest[1] != '@') {
    return RANK_OLD_VERSION;
  }
  if (rest[0] != 0 && rest[0] != '@') {
    return RANK_NONE;
  }
  if (i < table->version_count && (table->versions[2 * i + 1] & 0x80) != 0) {
    return RANK_OLD_VERSION;
  }
  switch (ELF64_ST_BIND(symbol->st_info)) {
  case STB_LOCAL:
    return RANK_LOCAL;
  case STB_WEAK:
    return RANK_WEAK;
  default:
    return RANK_GLOBAL;
  }
}

static bool
find_in_table(const struct ct_symbols *table, const char *name, size_t name_bytes, uint64_t *address)
{
  int best = RANK_NONE;

  for (size_t i = 0; i < table->count && best < RANK_GLOBAL; i++) {
    Elf64_Sym symbol = ct_symbol_at(table, i);
    unsigned type = ELF64_ST_TYPE(symbol.st_info);
    if (!ct_symbol_is_defined(&symbol) || type == STT_TLS || type == STT_SECTION || type == STT_FILE) {
      continue;
    }
    int found = rank(table, i, &symbol, name, name_bytes);
    if (found > best) {
      best = found;
      *address = symbol.st_value;
    }
  }
  return best != RANK_NONE;
}

int
ct_elf_symbol(const struct ct_elf *elf, const char *name, uint64_t *address)
{
  const struct ct_symbols *tables[] = {&elf->dynsym, &elf->symtab, &elf->debug_symtab, &elf->mini_symtab};
  size_t name_bytes = strlen(name);
  uint64_t found;

  if (name_bytes == 0) {
    return CT_ENOENT;
  }
  for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
    if (find_in_table(tables[i], name, name_bytes, &found)) {
      *address = found;
      return CT_OK;
    }
  }
  return CT_ENOENT;
}

bool
ct_elf_links(const struct ct_elf *elf, const char *name)
{
  for (size_t i = 0; i < elf->dynsym.count; i++) {
    Elf64_Sym symbol = ct_symbol_at(&elf->dynsym, i);
    if (strcmp(ct_symbol_name(&elf->dynsym, &symbol), name) == 0) {
      return true;
    }
  }
  return false;
}
