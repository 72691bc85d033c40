/* SPDX-License-Identifier: MIT */
/* The report: calls and times per function, over all threads or some, as a text table or JSON. */
#ifndef CONTRAIL_REPORT_H
#define CONTRAIL_REPORT_H

#include <contrail/error.h>
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

struct ct_report_options {
  size_t struct_size;
  enum ct_report_sort sort;
  const uint32_t *tids; /* only these threads; all when tid_count is 0 */
  size_t tid_count;
  const char *function_glob; /* only functions that this pattern (select.h) matches; NULL: all */
  const char *module_glob;   /* only functions of modules whose path or its last part matches; NULL: all */
  uint64_t limit;            /* rows; 0: all */
  unsigned width;            /* cut lines to so many columns; 0: never */
  unsigned workers;          /* threads to read with; 0: one */
  bool per_thread;           /* a table for each thread too */
  bool json;
  struct ct_view_progress progress;
  bool source; /* text: where each function is written, after its name (JSON has it always) */
  bool family; /* of all processes that were followed too; tids and per_thread are to be 0 then */
  enum ct_view_time time;
};

int ct_report_write(struct ct_trace *trace, const struct ct_report_options *options, FILE *out,
                    struct ct_view_notes *notes, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
