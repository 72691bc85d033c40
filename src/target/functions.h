/* SPDX-License-Identifier: MIT */
/*
 * The functions of a ct_elf: the union of .symtab, .dynsym, the separate debug file, .gnu_debugdata, DWARF and Go's
 * table (only without any .symtab) and FDE starts, one entry per address.
 *
 * A symbol counts when it is STT_FUNC or STT_GNU_IFUNC, or STT_NOTYPE with an FDE beginning exactly there, is defined,
 * and lies in the file part of an executable segment. Aliases are merged; the name kept is exported before local, then
 * with fewer leading underscores, then without a version ('@'), then global before weak, then the shorter. (Exported
 * names compare by underscores before binding so that libc's weak `read` wins over its global `__read`.) Two symbols at
 * different addresses are both listed, even when one lies inside the other. Names with control characters are dropped.
 */
#ifndef CT_TARGET_FUNCTIONS_H
#define CT_TARGET_FUNCTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "target/cfi.h"
#include "target/elf.h"

enum ct_function_flag {
  CT_FN_IFUNC = 1 << 0,  /* a resolver: returns the address of the function to use */
  CT_FN_PART = 1 << 1,   /* named as a part split off by the compiler (.cold, .warm) */
  CT_FN_PLT = 1 << 2,    /* inside a PLT section */
  CT_FN_INSIDE = 1 << 3, /* begins inside the range of an earlier function */
  CT_FN_NOTYPE = 1 << 4, /* known only from STT_NOTYPE symbols and FDEs */
  CT_FN_GUESS = 1 << 5,  /* size is only the distance to the next function */
};

struct ct_function {
  uint64_t address; /* ELF vaddr */
  uint64_t size;    /* symbol size, else FDE range, else up to the next function or the end of the section */
  const char *name; /* raw (mangled); NULL when nothing is known */
  uint16_t sources; /* enum ct_source bits */
  uint8_t entry;    /* enum ct_entry_state */
  uint8_t flags;    /* enum ct_function_flag bits */
  uint32_t fde;     /* the FDE around address, or CT_FDE_NONE */
};

/* Sorted by address. Computed at the first call and kept. 0 or CT_ENOMEM. */
int ct_elf_functions(struct ct_elf *elf, const struct ct_function **functions, size_t *count, struct ct_diag *diag);

/* The function that begins at address, or NULL; NULL before ct_elf_functions. */
const struct ct_function *ct_elf_function_at(const struct ct_elf *elf, uint64_t address);
/* The innermost function whose range contains address, or NULL; NULL before ct_elf_functions. */
const struct ct_function *ct_elf_function_around(const struct ct_elf *elf, uint64_t address);

/* The other names of a function (aliases that lost), for selecting by name. `n` counts from 0; NULL ends. */
const char *ct_function_alias(const struct ct_elf *elf, const struct ct_function *function, size_t n);
/* The same, one after the other, for functions in the order of their addresses: *next is 0 at the first. */
const char *ct_function_next_alias(const struct ct_elf *elf, const struct ct_function *function, size_t *next);

/* The raw name, or `module+0x1234` with the last part of the module's path. Returns buf. */
char *ct_function_label(char *buf, size_t size, const char *module_path, const struct ct_function *function);

#endif
