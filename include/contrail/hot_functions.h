/* SPDX-License-Identifier: MIT */
/*
 * The functions that most of a trace's calls are of and that do little in each, as patterns for record --exclude-from:
 * the most often called first, until together they have the share asked for. Those that take long are worth recording
 * and are passed over.
 */
#ifndef CONTRAIL_HOT_FUNCTIONS_H
#define CONTRAIL_HOT_FUNCTIONS_H

#include <contrail/error.h>
#include <contrail/filter.h>
#include <contrail/trace.h>
#include <contrail/view.h>

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CT_HOT_FUNCTIONS_SELF_NS 1000 /* average self time, hook included, above which a function is passed over */

struct ct_hot_functions_options {
  size_t struct_size;
  unsigned percent; /* of all calls, 1 to 100 */
  unsigned workers; /* threads to read with; 0: one */
  bool json;
  struct ct_view_progress progress;
  const struct ct_filter *filter; /* of which calls; NULL: of all */
};

int ct_hot_functions_write(struct ct_trace *trace, const struct ct_hot_functions_options *options, FILE *out,
                           struct ct_view_notes *notes, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
