/* SPDX-License-Identifier: MIT */
/*
 * The difference of two traces, or of two pieces of one: per function calls, self time, total and percentiles in both,
 * what has changed beyond what chance makes of it, and which functions are new or have vanished.
 *
 * Functions are those of the same module and name. A module is known by its file name, without the version after
 * ".so"; the program itself by being that, whatever its file is called. A name without its counterpart is taken for
 * that of the same function where only what the compiler appended differs (f, f.constprop.0) and that is unambiguous.
 *
 * What is noise is measured in the two traces (the method: src/views/noise.h, and the manual page): a change of self
 * time or of the number of calls is shown only beyond it, at a level of 1 % for all functions together. Functions that
 * were sampled, recorded without times, or counted or not seen under a budget are compared by what is known of both.
 */
#ifndef CONTRAIL_DIFF_H
#define CONTRAIL_DIFF_H

#include <contrail/error.h>
#include <contrail/filter.h>
#include <contrail/trace.h>
#include <contrail/view.h>

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* By what changed most, in either direction. */
enum ct_diff_sort {
  CT_DIFF_SELF = 0,
  CT_DIFF_TOTAL,
  CT_DIFF_CALLS,
  CT_DIFF_P50,
  CT_DIFF_P95,
  CT_DIFF_P99,
  CT_DIFF_NAME, /* ascending */
};

struct ct_diff_options {
  size_t struct_size;
  enum ct_diff_sort sort;
  const uint32_t *before_tids, *after_tids; /* only these threads; all when the count is 0 */
  size_t before_tid_count, after_tid_count;
  const char *function_glob, *module_glob; /* as for the report */
  uint64_t limit;                          /* functions; 0: all */
  bool all;                                /* those within noise too */
  bool family;                             /* of all processes that were followed too */
  bool json;
  enum ct_view_time time;
  struct ct_view_progress progress;
  bool short_names; /* text: long names shortened (ct_shorten_name) */
  const char *file; /* functions written there, as for the report; a trace that does not say where has none */
  /*
   * Which calls count: what it says of durations, depths, levels, reasons, and types (calls with an end or without
   * one); the rest of it is not looked at. NULL: all.
   */
  const struct ct_filter *calls;
  unsigned workers; /* threads to read each trace with; 0: one */
};

/* notes->shown: functions that are shown, new and vanished ones among them. */
int ct_diff_write(struct ct_trace *before, struct ct_trace *after, const struct ct_diff_options *options, FILE *out,
                  struct ct_view_notes *notes, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
