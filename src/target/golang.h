/* SPDX-License-Identifier: MIT */
/* Programs and libraries made by Go's compiler: are they, and the functions that their own table lists. */
#ifndef CT_TARGET_GOLANG_H
#define CT_TARGET_GOLANG_H

#include <stdbool.h>

#include "target/elf.h"

/* True when code of Go's compiler is in the file (with C code, perhaps). */
bool ct_elf_is_go(const struct ct_elf *elf);

#endif
