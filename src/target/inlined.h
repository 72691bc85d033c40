/* SPDX-License-Identifier: MIT */
/* Functions that the compiler has put into their callers, so that nobody can record their calls: from the DWARF. */
#ifndef CT_TARGET_INLINED_H
#define CT_TARGET_INLINED_H

#include <stdbool.h>

#include "base/error.h"

/*
 * Whether the file has a function that `matches` says yes to, by one of its names, and that was inlined. *found is its
 * name, to be freed; NULL: there is none. 0, CT_ENOENT when the file has no debug information, those of ct_elf_open.
 */
int ct_inlined_find(const char *path, bool (*matches)(void *arg, const char *name), void *arg, char **found,
                    struct ct_diag *diag);

#endif
