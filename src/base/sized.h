/* SPDX-License-Identifier: MIT */
/*
 * Public structures that may grow begin with `size_t struct_size`, which the caller sets to its own sizeof. A program
 * may have been built with an older or a newer header than the library.
 *
 *   taken: what the caller's is too short for is zero, the default; what is too long for us must be zero
 *   given: what the caller has room for
 */
#ifndef CT_BASE_SIZED_H
#define CT_BASE_SIZED_H

#include "base/error.h"

#include <stddef.h>

/* Fills *own, of own_size bytes, from *given. 0, CT_EINVAL or CT_EUNSUPPORTED, with *own untouched. */
int ct_sized_take(void *own, size_t own_size, const void *given, struct ct_diag *diag);
/* Fills *wanted, whose struct_size is set, from *own. What we do not have becomes zero. 0 or CT_EINVAL. */
int ct_sized_give(void *wanted, const void *own, size_t own_size, struct ct_diag *diag);

#endif
