/* SPDX-License-Identifier: MIT */
/* The data of a ct_elf that have names: variables, tables, virtual tables, from its symbol tables. */
#ifndef CT_TARGET_OBJECTS_H
#define CT_TARGET_OBJECTS_H

#include <stddef.h>
#include <stdint.h>

#include "target/elf.h"

struct ct_object {
  uint64_t address; /* ELF vaddr */
  uint64_t size;    /* not 0 */
  const char *name; /* raw, perhaps with a version ('@'); in the ct_elf's memory */
};

/*
 * Sorted by address, one for each, without those that lie inside of another one; `max` of them at most. To be freed. 0,
 * or CT_ENOMEM.
 */
int ct_elf_objects(struct ct_elf *elf, size_t max, struct ct_object **objects, size_t *count);

#endif
