/* SPDX-License-Identifier: MIT */
/* A bit for each call of a thread in the order of their begin: a file without a name, of which a window is mapped. */
#ifndef CT_EXPORT_PASSES_H
#define CT_EXPORT_PASSES_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_passes;                                                   /* opaque */
int ct_passes_create(struct ct_passes **out, struct ct_diag *diag); /* 0, CT_ENOMEM, CT_EIO, CT_ENOSPC */
void ct_passes_destroy(struct ct_passes *passes);                   /* accepts NULL */
uint64_t ct_passes_count(const struct ct_passes *passes);
int ct_passes_add(struct ct_passes *passes); /* one more, that does not pass; 0, CT_ENOSPC, CT_EIO */
void ct_passes_set(struct ct_passes *passes, uint64_t number);
/* Back to the first; ct_passes_next describes each in turn. */
void ct_passes_rewind(struct ct_passes *passes);
bool ct_passes_next(struct ct_passes *passes);

#endif
