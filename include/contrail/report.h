/* SPDX-License-Identifier: MIT */
/*
 * The report: calls and times per function, over all threads or some, as a text table or JSON.
 *
 * Filters of calls (duration, depth, reason, type) choose which calls count: their number, total, self and the rest are
 * those of the calls that pass. `levels` counts from the outermost call; total is the time in which such a call was on
 * the stack, no moment twice. A line above the table says it, and the member "counted" of the JSON.
 */
#ifndef CONTRAIL_REPORT_H
#define CONTRAIL_REPORT_H

#include <contrail/error.h>
#include <contrail/filter.h>
#include <contrail/trace.h>
#include <contrail/view.h>

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ct_report_sort {
  CT_SORT_TOTAL = 0,
  CT_SORT_SELF,
  CT_SORT_CALLS,
  CT_SORT_MIN,
  CT_SORT_MAX,
  CT_SORT_AVG,
  CT_SORT_P50,
  CT_SORT_P95,
  CT_SORT_P99,
  CT_SORT_NAME, /* ascending; all others descending */
  CT_SORT_OFF,
};

/*
 * What the rows are of. CALLERS, CALLEES: for each function that the filter chooses, who calls it, what it calls
 * directly. Others: groups of functions, threads, processes; the total of a group is the time in which any of its
 * functions was on a thread's stacks, so that no moment of a thread counts twice; the selves of all sum up to 100 %.
 * They are sorted by total, self, off, calls or name alone.
 */
enum ct_report_rows {
  CT_ROWS_FUNCTIONS = 0,
  CT_ROWS_CALLERS = 1,
  CT_ROWS_CALLEES = 2,
  CT_ROWS_MODULES = 3,
  CT_ROWS_FILES = 4, /* that functions are written in */
  CT_ROWS_THREADS = 5,
  CT_ROWS_PROCESSES = 6,
  CT_ROWS_CLASSES = 7, /* names up to their last ::, a class or a namespace */
};

struct ct_report_options {
  size_t struct_size;
  enum ct_report_sort sort;
  const struct ct_filter *filter; /* which functions and calls; NULL: all */
  unsigned width;                 /* cut lines to so many columns; 0: never */
  unsigned workers;               /* threads to read with; 0: one */
  bool per_thread;                /* a table for each thread too */
  bool json;
  struct ct_view_progress progress;
  bool source; /* text: where each function is written, after its name (JSON has it always) */
  bool family; /* of all processes that were followed too; no tids in the filter, and not per_thread */
  enum ct_view_time time;
  enum ct_report_rows rows; /* others than functions: not per_thread */
  bool short_names;         /* text: long names shortened (ct_shorten_name) */
};

int ct_report_write(struct ct_trace *trace, const struct ct_report_options *options, FILE *out,
                    struct ct_view_notes *notes, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
