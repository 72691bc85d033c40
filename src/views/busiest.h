/* SPDX-License-Identifier: MIT */
/*
 * The functions that most of a trace's calls are of and that do little in each, as patterns for record --exclude-from:
 * the most often called first, until together they have the share asked for. Those that take long are worth recording
 * and are passed over.
 */
#ifndef CT_VIEWS_BUSIEST_H
#define CT_VIEWS_BUSIEST_H

#include "trace/reader.h"
#include "views/text.h"

#define CT_BUSIEST_SELF_NS 1000 /* average self time, hook included, above which a function is passed over */

struct ct_busiest_options {
  unsigned percent; /* of all calls, 1 to 100 */
  unsigned workers; /* threads to read with, at least 1 */
  bool json;
  struct ct_view_progress progress;
};

/* The whole view. CT_EIO when out cannot be written (errno says why). */
int ct_busiest_write(struct ct_trace *trace, const struct ct_busiest_options *options, FILE *out,
                     struct ct_view_notes *notes, struct ct_diag *diag);

#endif
