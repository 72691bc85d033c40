/* SPDX-License-Identifier: MIT */
/*
 * The graph: the tree of call paths from the outermost calls down, or from the functions that are selected, with calls,
 * total, self and share, as text or as nested JSON.
 *
 * A function that is on a path already goes on from there: a recursion is one node, whose calls say how many of them
 * were recursive. The total of a node is the self time of its calls and of all that hangs below it, so that no moment
 * counts twice and the outermost nodes are 100 %. What was called on other stacks (of coroutines and signal
 * handlers) hangs below "(other stacks)".
 *
 * Filters of single calls (durations, depths, reasons): calls that do not pass count to no path, and their self time
 * goes to the total of the innermost call around them that does. So a call that passes has all of its time, and what is
 * in no such call is left out. Paths with no call that passes are not there.
 */
#ifndef CONTRAIL_GRAPH_H
#define CONTRAIL_GRAPH_H

#include <contrail/error.h>
#include <contrail/filter.h>
#include <contrail/trace.h>
#include <contrail/view.h>

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_graph_options {
  size_t struct_size;
  const struct ct_filter *filter; /* functions to begin with, threads, calls, ...; limit: the so many heaviest paths */
  unsigned width;                 /* cut lines to so many columns; 0: never */
  double min_percent;             /* paths with less of the whole are shown as a number of them */
  uint32_t depth;                 /* so many levels; 0: all */
  uint32_t paths;                 /* keep so many, fold the thinnest beyond that; 0: 250,000 */
  bool per_thread;                /* a tree for each thread */
  bool family;                    /* of all processes that were followed too */
  bool json;
  bool source; /* text: where each function is written, after its name (JSON has it always) */
  struct ct_view_progress progress;
  enum ct_view_time time;
  unsigned workers; /* threads to read with; 0: one */
  bool short_names; /* text: long names shortened (ct_shorten_name) */
};

/* As ct_report_write. CT_EINVAL: types or levels in the filter. */
int ct_graph_write(struct ct_trace *trace, const struct ct_graph_options *options, FILE *out,
                   struct ct_view_notes *notes, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
