/* SPDX-License-Identifier: MIT */
/*
 * What functions take and give, and in which registers, from the DWARF of a file or of its separate debug file. Read
 * when somebody asks: it costs a walk over the units that have the functions; see prototypes.c.
 */
#ifndef CT_TARGET_PROTOTYPES_H
#define CT_TARGET_PROTOTYPES_H

#include "base/prototype.h"
#include "target/elf.h"

struct ct_prototype_wanted {
  uint64_t address;   /* ELF virtual address */
  const char *symbol; /* raw name, NULL: not known */
};

/* What is found goes there, and is valid during the call alone. */
struct ct_prototype_sink {
  void *arg;
  /* The enumerators of a type; gives constants_number of struct ct_type, 0 when it takes no more. */
  uint32_t (*constants)(void *arg, const struct ct_constant *list, uint32_t count);
  /* The members of a structure, as the fields of a line: likewise. */
  uint32_t (*members)(void *arg, const char *fields);
  /* Of wanted[index]. A later one of the same function is the better one. */
  void (*prototype)(void *arg, size_t index, const struct ct_prototype *prototype);
};

/* wanted is sorted by address. 0, CT_ENOENT when the file has no debug information, or CT_ENOMEM. */
int ct_prototypes_read(struct ct_elf *elf, const struct ct_prototype_wanted *wanted, size_t count,
                       const struct ct_prototype_sink *sink);

#endif
