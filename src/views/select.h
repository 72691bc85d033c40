/* SPDX-License-Identifier: MIT */
/* What a view shows: the selection of threads that its options make. */
#ifndef CT_VIEWS_SELECT_H
#define CT_VIEWS_SELECT_H

#include "trace/batch.h"

#include <stddef.h>

/*
 * The indexes of the threads with the given tids (all when tid_count is 0), ascending; a
 * tid that was used again gives several. *threads is to be freed. CT_ERANGE for a tid that the trace does
 * not have.
 */
int ct_choose_threads(const struct ct_trace *trace, const uint32_t *tids, size_t tid_count, uint32_t **threads,
                      size_t *count, struct ct_diag *diag);
/*
 * Of these tids the ones that the trace has, for a tree whose processes have different threads. *own is to be freed.
 * 0 or CT_ENOMEM.
 */
int ct_own_threads(const struct ct_trace *trace, const uint32_t *tids, size_t tid_count, uint32_t **own, size_t *count);

#endif
