/* SPDX-License-Identifier: MIT */
/* A piece of a trace as a trace of its own. */
#ifndef CT_TRACE_CUT_H
#define CT_TRACE_CUT_H

#include "trace/batch.h"

struct ct_cut_options {
  const uint32_t *tids; /* only these threads; all when tid_count is 0 */
  size_t tid_count;
  int (*update)(void *arg, uint64_t done, uint64_t total); /* not 0: it ends with CT_ECANCELED; NULL: nobody asks */
  void *arg;
};
struct ct_cut_sums {
  uint64_t threads, events, bytes;
  uint32_t damaged_threads, first_damaged_tid;
};
/*
 * Writes the trace, in its range if one is set, into dir, which is new or empty. children: what stands in the manifest
 * under that name; NULL: nothing. 0 or an error, after which what was written is still there.
 */
int ct_trace_cut(struct ct_trace *trace, const char *dir, const struct ct_cut_options *options, json_t *children,
                 struct ct_cut_sums *sums, struct ct_diag *diag);

#endif
