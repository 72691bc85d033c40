/* SPDX-License-Identifier: MIT */
/* See objects.h. Of several names for one address that of the largest is taken, then the exported, then the plainer
 * one. */
#include "target/objects.h"

#include <stdlib.h>
#include <string.h>

#include "target/target_internal.h"

enum { NAME_BYTES_MAX = 4096 };

struct candidate {
  struct ct_object object;
  bool is_local;
};

struct candidates {
  struct candidate *items;
  size_t count, size;
};

static bool
add(struct candidates *all, struct candidate candidate)
{
  if (all->count == all->size) {
    size_t size = all->size != 0 ? 2 * all->size : 1024;
    struct candidate *items = reallocarray(all->items, size, sizeof(*items));
    if (items == NULL) {
      return false;
    }
    all->items = items;
    all->size = size;
  }
  all->items[all->count++] = candidate;
  return true;
}

/* A name that a line of text can carry. */
static bool
is_usable(const char *name)
{
  size_t bytes = strnlen(name, NAME_BYTES_MAX + 1);
  for (size_t i = 0; i < bytes; i++) {
    if ((unsigned char)name[i] <= ' ' || name[i] == 0x7f) {
      return false;
    }
  }
  return bytes != 0 && bytes <= NAME_BYTES_MAX;
}

static bool
add_table(struct candidates *all, const struct ct_symbols *table, size_t max)
{
  for (size_t i = 0; i < table->count && all->count < 2 * max; i++) {
    Elf64_Sym symbol = ct_symbol_at(table, i);
    if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || !ct_symbol_is_defined(&symbol) || symbol.st_shndx == SHN_ABS ||
        symbol.st_size == 0 || symbol.st_size > INT64_MAX || symbol.st_value > INT64_MAX) {
      continue;
    }
    const char *name = ct_symbol_name(table, &symbol);
    struct candidate candidate = {{symbol.st_value, symbol.st_size, name}, ELF64_ST_BIND(symbol.st_info) == STB_LOCAL};
    if (is_usable(name) && !add(all, candidate)) {
      return false;
    }
  }
  return true;
}

static int
by_address(const void *a, const void *b)
{
  const struct candidate *x = a, *y = b;
  if (x->object.address != y->object.address) {
    return x->object.address < y->object.address ? -1 : 1;
  }
  if (x->object.size != y->object.size) {
    return x->object.size > y->object.size ? -1 : 1;
  }
  if (x->is_local != y->is_local) {
    return x->is_local ? 1 : -1;
  }
  size_t of_x = strspn(x->object.name, "_"), of_y = strspn(y->object.name, "_");
  return of_x != of_y ? (of_x < of_y ? -1 : 1) : strcmp(x->object.name, y->object.name);
}

/* Of a file that was opened for less than its symbols (a plan that comes from the cache). */
static void
find_symbols(struct ct_elf *elf)
{
  if (elf->symtab.count == 0) {
    ct_image_symbols(&elf->main, SHT_SYMTAB, &elf->symtab);
  }
  if (elf->symtab.count == 0 && elf->debug.bytes == NULL) {
    (void)ct_debugfile_find(elf);
  }
  if (elf->debug.bytes != NULL && elf->debug_symtab.count == 0) {
    ct_image_symbols(&elf->debug, SHT_SYMTAB, &elf->debug_symtab);
  }
}

int
ct_elf_objects(struct ct_elf *elf, size_t max, struct ct_object **objects, size_t *count)
{
  const struct ct_symbols *tables[] = {&elf->dynsym, &elf->symtab, &elf->debug_symtab};
  find_symbols(elf);
  struct candidates all = {NULL, 0, 0};
  bool ok = true;
  for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && ok; i++) {
    ok = add_table(&all, tables[i], max);
  }
  struct ct_object *list = ok ? reallocarray(NULL, all.count + 1, sizeof(*list)) : NULL;
  if (list == NULL) {
    free(all.items);
    return CT_ENOMEM;
  }
  size_t n = 0;
  if (all.count != 0) {
    qsort(all.items, all.count, sizeof(*all.items), by_address);
  }
  for (size_t i = 0; i < all.count && n < max; i++) {
    const struct ct_object *object = &all.items[i].object;
    if (n == 0 || object->address >= list[n - 1].address + list[n - 1].size) {
      list[n++] = *object;
    }
  }
  free(all.items);
  *objects = list;
  *count = n;
  return CT_OK;
}
