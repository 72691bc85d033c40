/* SPDX-License-Identifier: MIT */
/*
 * The list of functions: every source adds candidates (address, size, name), the candidates are sorted by address, and
 * each run of equal addresses becomes one function. What counts and which name wins is said in functions.h.
 *
 * Example: libc's read is a weak `read` and a global `__read` in .dynsym, a local `__GI___read` in the debug file, and
 * an FDE start; it becomes one function `read` with the sources DYNSYM, DEBUGFILE and EHFRAME and the aliases `__read`
 * and `__GI___read`.
 */
#include "target/functions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/target_internal.h"
#include "target/sort.h"

enum {
  NAME_BYTES_MAX = 16384, /* longer names are dropped */
  ALIASES_MAX = 64,       /* per function; libc's most aliased one has 13 */
  AROUND_STEPS = 64,      /* how many functions back one may begin that contains an address */

  /*
   * How often the same bytes may be part of something else, so that no small file makes much work: names share their
   * ends, functions overlap. In 2,366 files of a Debian system names were at most twice as long as their strings, and
   * functions together as large as twice the code.
   */
  SHARED_MAX = 4,
  SHARED_FREE = 1 << 20,
};

struct candidate {
  uint64_t address;
  uint64_t size; /* 0: not known */
  const char *name;
  uint16_t source;
  uint8_t type;    /* STT_* */
  uint8_t binding; /* STB_* */
};

struct candidates {
  const struct ct_elf *elf;
  uint64_t dwarf_budget, go_budget; /* bytes of names */
  struct candidate *items;
  size_t count;
  size_t size;
  bool out_of_memory;
};

static void
add(struct candidates *all, struct candidate candidate)
{
  if (all->count == all->size) {
    size_t size = all->size == 0 ? 4096 : 2 * all->size;
    struct candidate *items = realloc(all->items, size * sizeof(*items));
    if (items == NULL) {
      all->out_of_memory = true;
      return;
    }
    all->items = items;
    all->size = size;
  }
  all->items[all->count++] = candidate;
}

/* A name that a line of text can carry, else NULL. Its bytes are taken off *budget. */
static const char *
usable_name(const char *name, uint64_t *budget)
{
  const char *at = name, *end = name + (*budget < NAME_BYTES_MAX ? *budget : NAME_BYTES_MAX);
  for (; at < end && (unsigned char)*at > ' ' && *at != 0x7f; at++)
    ;
  if (*at == ' ') {
    for (; at < end && (unsigned char)*at >= ' ' && *at != 0x7f; at++)
      ;
  }
  *budget -= (uint64_t)(at - name);
  return at != name && *at == 0 ? name : NULL;
}

static bool
fde_begins_at(const struct ct_elf *elf, uint64_t address)
{
  uint32_t fde = ct_cfi_find(elf, address);
  return fde != CT_FDE_NONE && elf->cfi.fdes[fde].start == address;
}

static void
add_symbols(struct candidates *all, const struct ct_symbols *table, uint16_t source)
{
  const struct ct_elf *elf = all->elf;
  uint64_t budget = SHARED_MAX * (uint64_t)table->strings_bytes + SHARED_FREE;

  for (size_t i = 0; i < table->count; i++) {
    Elf64_Sym symbol = ct_symbol_at(table, i);
    unsigned type = ELF64_ST_TYPE(symbol.st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) || !ct_symbol_is_defined(&symbol) ||
        !ct_elf_is_code(elf, symbol.st_value)) {
      continue;
    }
    if (type == STT_NOTYPE &&
        (!fde_begins_at(elf, symbol.st_value) ||
         (elf->exec_section_count != 0 && ct_elf_exec_section_at(elf, symbol.st_value) == NULL))) {
      continue;
    }
    add(all, (struct candidate){
                 .address = symbol.st_value,
                 .size = symbol.st_size,
                 .name = usable_name(ct_symbol_name(table, &symbol), &budget),
                 .source = source,
                 .type = (uint8_t)type,
                 .binding = ELF64_ST_BIND(symbol.st_info),
             });
  }
}

static void
add_fdes(struct candidates *all)
{
  const struct ct_cfi *cfi = &all->elf->cfi;

  for (uint32_t i = 0; i < cfi->fde_count; i++) {
    add(all, (struct candidate){.address = cfi->fdes[i].start, .source = CT_SRC_EHFRAME, .type = STT_NOTYPE});
  }
}

/* What is not a symbol's: a table of its own says where it is; its name, or NULL, is copied from there. */
static void
add_listed(struct candidates *all, struct candidate candidate, uint64_t *budget)
{
  if (ct_elf_is_code(all->elf, candidate.address)) {
    candidate.name = candidate.name != NULL ? usable_name(candidate.name, budget) : NULL;
    candidate.type = STT_FUNC;
    add(all, candidate);
  }
}

static void
add_subprogram(void *arg, uint64_t address, uint64_t size, const char *name, bool external)
{
  struct candidates *all = arg;
  add_listed(all,
             (struct candidate){.address = address,
                                .size = size,
                                .name = name,
                                .source = CT_SRC_DWARF,
                                .binding = external ? STB_GLOBAL : STB_LOCAL},
             &all->dwarf_budget);
}

static void
add_go_function(void *arg, uint64_t address, uint64_t size, const char *name)
{
  struct candidates *all = arg;
  add_listed(
      all,
      (struct candidate){.address = address, .size = size, .name = name, .source = CT_SRC_GO, .binding = STB_LOCAL},
      &all->go_budget);
}

static void
collect(struct candidates *all, struct ct_elf *elf)
{
  add_symbols(all, &elf->symtab, CT_SRC_SYMTAB);
  add_symbols(all, &elf->dynsym, CT_SRC_DYNSYM);
  add_symbols(all, &elf->debug_symtab, CT_SRC_DEBUGFILE);
  add_symbols(all, &elf->mini_symtab, CT_SRC_MINIDEBUG);
  if ((elf->sources & CT_SRC_EHFRAME) != 0) {
    add_fdes(all);
  }
  all->go_budget = SHARED_MAX * (uint64_t)elf->main.size + SHARED_FREE;
  if ((elf->sources & CT_SRC_GO) != 0 && elf->symtab.count == 0) {
    ct_golang_functions(elf, add_go_function, all);
  }
  if ((elf->sources & CT_SRC_DWARF) == 0 || elf->symtab.count != 0 || elf->debug_symtab.count != 0) {
    return;
  }
  all->dwarf_budget = SHARED_MAX * (uint64_t)(elf->debug.size + elf->main.size) + SHARED_FREE;
  elf->dwarf = ct_dwarf_read(&elf->debug, add_subprogram, all);
  if (elf->dwarf == NULL) {
    elf->dwarf = ct_dwarf_read(&elf->main, add_subprogram, all);
  }
}

/* What decides between names, computed once for each. */
struct standing {
  const struct candidate *candidate;
  size_t underscores, bytes;
  bool version;
};

static struct standing
standing_of(const struct candidate *candidate)
{
  const char *name = candidate->name;
  return (struct standing){candidate, strspn(name, "_"), strlen(name), strchr(name, '@') != NULL};
}

/* Whether a is the better name for the address they share. */
static bool
is_better(const struct standing *x, const struct standing *y)
{
  const struct candidate *a = x->candidate, *b = y->candidate;
  if ((a->type == STT_NOTYPE) != (b->type == STT_NOTYPE)) {
    return b->type == STT_NOTYPE;
  }
  if ((a->binding == STB_LOCAL) != (b->binding == STB_LOCAL)) {
    return b->binding == STB_LOCAL;
  }
  if (x->underscores != y->underscores) {
    return x->underscores < y->underscores;
  }
  if (x->version != y->version) {
    return y->version;
  }
  if ((a->binding == STB_WEAK) != (b->binding == STB_WEAK)) {
    return b->binding == STB_WEAK;
  }
  if (x->bytes != y->bytes) {
    return x->bytes < y->bytes;
  }
  return strcmp(a->name, b->name) < 0;
}

/* .cold of compilers and BOLT, .warm of BOLT. */
static bool
has_part_suffix(const char *name)
{
  for (const char *at = name; (at = strchr(at, '.')) != NULL; at++) {
    if (at != name && (strncmp(at, ".cold", 5) == 0 || strncmp(at, ".warm", 5) == 0) && (at[5] == 0 || at[5] == '.')) {
      return true;
    }
  }
  return false;
}

/* Keeps the names of a run that differ from the best one and from each other. */
static void
keep_aliases(struct ct_elf *elf, const struct candidates *all, const struct ct_sort_key *keys, size_t run,
             const char *best)
{
  size_t first = elf->alias_count;

  for (size_t i = 0; i < run; i++) {
    const char *name = all->items[keys[i].index].name;
    bool known = name == NULL || name == best || strcmp(name, best) == 0;
    for (size_t j = first; j < elf->alias_count && !known; j++) {
      known = strcmp(elf->aliases[j].name, name) == 0;
    }
    if (!known && elf->alias_count - first < ALIASES_MAX) {
      elf->aliases[elf->alias_count++] = (struct ct_alias){keys[i].key, name};
    }
  }
}

/* One run of candidates at the same address to one function. Its size is 0 when no candidate knows it. */
static void
merge_run(struct ct_elf *elf, const struct candidates *all, const struct ct_sort_key *keys, size_t run,
          struct ct_function *out)
{
  struct standing best = {NULL};
  uint64_t largest = 0;
  bool typed = false;

  *out = (struct ct_function){.address = keys[0].key};
  for (size_t i = 0; i < run; i++) {
    const struct candidate *candidate = &all->items[keys[i].index];
    out->sources |= candidate->source;
    typed |= candidate->type != STT_NOTYPE;
    if (candidate->type == STT_GNU_IFUNC) {
      out->flags |= CT_FN_IFUNC;
    }
    if (candidate->size > largest) {
      largest = candidate->size;
    }
    if (candidate->name == NULL) {
      continue;
    }
    struct standing standing = standing_of(candidate);
    if (best.candidate == NULL || is_better(&standing, &best)) {
      best = standing;
    }
  }
  out->size = best.candidate != NULL && best.candidate->size != 0 ? best.candidate->size : largest;
  if (!typed) {
    out->flags |= CT_FN_NOTYPE;
  }
  if (best.candidate == NULL) {
    return;
  }
  out->name = best.candidate->name;
  if (has_part_suffix(out->name)) {
    out->flags |= CT_FN_PART;
  }
  if (run > 1) {
    keep_aliases(elf, all, keys, run, out->name);
  }
}

/* Where code that contains address must end: the section's end, or the segment's without section headers. */
static uint64_t
code_limit(const struct ct_elf *elf, uint64_t address, const struct ct_elf_section *section)
{
  uint64_t limit = address + ct_elf_code_left(elf, address);
  if (section != NULL && section->address + section->size < limit) {
    limit = section->address + section->size;
  }
  return limit;
}

/* Sizes, FDEs and the flags that follow from the neighbours. */
static void
finish_functions(struct ct_elf *elf)
{
  uint64_t known_end = 0, budget = SHARED_MAX * (uint64_t)elf->main.size + SHARED_FREE;
  uint32_t fde = 0;

  for (size_t i = 0; i < elf->function_count; i++) {
    struct ct_function *f = &elf->functions[i];
    while (fde + 1 < elf->cfi.fde_count && elf->cfi.fdes[fde + 1].start <= f->address) {
      fde++;
    }
    bool covered =
        fde < elf->cfi.fde_count && elf->cfi.fdes[fde].start <= f->address && f->address < elf->cfi.fdes[fde].end;
    f->fde = covered ? fde : CT_FDE_NONE;

    const struct ct_elf_section *section = ct_elf_exec_section_at(elf, f->address);
    uint64_t limit = code_limit(elf, f->address, section);
    if (section != NULL && section->is_plt) {
      f->flags |= CT_FN_PLT;
    }
    if (f->size == 0 && covered) {
      f->size = elf->cfi.fdes[fde].end - f->address;
    }
    if (f->size == 0) {
      bool last = i + 1 == elf->function_count || elf->functions[i + 1].address >= limit;
      f->size = (last ? limit : elf->functions[i + 1].address) - f->address;
      f->flags |= CT_FN_GUESS;
    }
    if (f->size > limit - f->address) {
      f->size = limit - f->address;
    }
    if (f->size > budget) {
      f->size = budget;
    }
    budget -= f->size;
    if (f->address < known_end) {
      f->flags |= CT_FN_INSIDE;
    }
    if ((f->flags & CT_FN_GUESS) == 0 && f->address + f->size > known_end) {
      known_end = f->address + f->size;
    }
  }
  ct_cfi_enter_functions(elf, elf->functions, elf->function_count);
}

static bool
merge(struct ct_elf *elf, const struct candidates *all)
{
  struct ct_sort_key *keys = malloc((all->count + 1) * sizeof(*keys));
  size_t distinct = 0;
  bool good = false;

  if (keys == NULL) {
    return false;
  }
  for (size_t i = 0; i < all->count; i++) {
    keys[i] = (struct ct_sort_key){all->items[i].address, i};
  }
  if (!ct_sort_keys(keys, all->count)) {
    goto free_keys;
  }
  for (size_t i = 0; i < all->count; i++) {
    distinct += i == 0 || keys[i].key != keys[i - 1].key;
  }
  elf->functions = malloc((distinct + 1) * sizeof(*elf->functions));
  elf->aliases = malloc((all->count - distinct + 1) * sizeof(*elf->aliases));
  if (elf->functions == NULL || elf->aliases == NULL) {
    goto free_keys;
  }
  for (size_t i = 0, run; i < all->count; i += run) {
    for (run = 1; i + run < all->count && keys[i + run].key == keys[i].key; run++)
      ;
    merge_run(elf, all, keys + i, run, &elf->functions[elf->function_count++]);
  }
  finish_functions(elf);
  good = true;
free_keys:
  free(keys);
  return good;
}

int
ct_elf_functions(struct ct_elf *elf, const struct ct_function **functions, size_t *count, struct ct_diag *diag)
{
  if (elf->functions == NULL) {
    struct candidates all = {.elf = elf};
    collect(&all, elf);
    bool good = !all.out_of_memory && merge(elf, &all);
    free(all.items);
    if (!good) {
      ct_dwarf_close(elf->dwarf);
      free(elf->functions);
      free(elf->aliases);
      elf->dwarf = NULL;
      elf->functions = NULL;
      elf->aliases = NULL;
      elf->function_count = elf->alias_count = 0;
      return ct_fail(diag, CT_ENOMEM, "%s: out of memory", elf->path);
    }
  }
  *functions = elf->functions;
  *count = elf->function_count;
  return CT_OK;
}

/* The number of functions that begin at or below address. */
static size_t
functions_up_to(const struct ct_elf *elf, uint64_t address)
{
  size_t low = 0, high = elf->function_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (elf->functions[middle].address <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

const struct ct_function *
ct_elf_function_at(const struct ct_elf *elf, uint64_t address)
{
  size_t n = functions_up_to(elf, address);
  return n != 0 && elf->functions[n - 1].address == address ? &elf->functions[n - 1] : NULL;
}

const struct ct_function *
ct_elf_function_around(const struct ct_elf *elf, uint64_t address)
{
  size_t n = functions_up_to(elf, address);
  for (size_t i = n; i > 0 && n - i < AROUND_STEPS; i--) {
    if (address - elf->functions[i - 1].address < elf->functions[i - 1].size) {
      return &elf->functions[i - 1];
    }
  }
  return NULL;
}

/* The first alias from `low` on that is of this address or a higher one. */
static size_t
aliases_below(const struct ct_elf *elf, uint64_t address, size_t low)
{
  size_t high = elf->alias_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (elf->aliases[middle].address < address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

const char *
ct_function_alias(const struct ct_elf *elf, const struct ct_function *function, size_t n)
{
  size_t low = aliases_below(elf, function->address, 0);
  return n < elf->alias_count - low && elf->aliases[low + n].address == function->address ? elf->aliases[low + n].name
                                                                                          : NULL;
}

const char *
ct_function_next_alias(const struct ct_elf *elf, const struct ct_function *function, size_t *next)
{
  /* Mostly it is there already, or one step away. */
  for (int steps = 0; steps < 4 && *next < elf->alias_count; steps++) {
    if (elf->aliases[*next].address >= function->address) {
      return elf->aliases[*next].address == function->address ? elf->aliases[(*next)++].name : NULL;
    }
    (*next)++;
  }
  *next = aliases_below(elf, function->address, *next);
  return *next < elf->alias_count && elf->aliases[*next].address == function->address ? elf->aliases[(*next)++].name
                                                                                      : NULL;
}

char *
ct_function_label(char *buf, size_t size, const char *module_path, const struct ct_function *function)
{
  const char *slash = strrchr(module_path, '/');

  if (function->name != NULL) {
    snprintf(buf, size, "%s", function->name);
  } else {
    snprintf(buf, size, "%s+0x%llx", slash != NULL ? slash + 1 : module_path, (unsigned long long)function->address);
  }
  return buf;
}
