/* SPDX-License-Identifier: MIT */
/*
 * The calls of a time line as the page has them (html.c): of each lane (a thread's stack) a row of columns, so many
 * calls to a piece. Calls come when they end. What is shorter than a bound is no entry of its own:
 *
 *   depth d    [ call of its own                                              ]
 *   depth d+1   [own    ] [17 calls, together] [own] [own    ] [3 calls ]
 *
 * Neighbours that are short become one run, as long as the gap between two is at most GAP times the bound; what is
 * called in them is counted in the run of the outermost one. A run is closed when a long call or a long gap follows; so
 * the frame below has been open for longer than the bound by then and is an entry of its own, and no closed run is ever
 * inside another one.
 */
#ifndef CT_EXPORT_HTML_SPANS_H
#define CT_EXPORT_HTML_SPANS_H

#include "export/html_stream.h"
#include "export/walk.h"

enum {
  CT_HTML_DEPTH_MAX = 1 << 14, /* deeper ones are counted only */
  CT_HTML_COLUMNS = 9,
};

struct ct_html_run; /* html_spans.c */
struct ct_html_lane {
  uint32_t thread, number;                           /* of the thread in the export; of its stacks: 0 is its own */
  struct ct_html_bytes columns[CT_HTML_COLUMNS + 1]; /* after the head */
  uint32_t count;                                    /* in the columns */
  uint64_t end_ns, ordinal;                          /* of the entry before */
  uint32_t depth;
  struct ct_html_run *runs; /* by depth; none has calls that is deeper than `deepest` */
  uint64_t *inside;         /* by depth: own time of the entries there since the last one that is less deep */
  uint32_t depths, deepest;
};

struct ct_html_spans {
  struct ct_html_stream *stream;
  uint64_t bound_ns; /* calls that are shorter are in runs; 0: none is */
  uint64_t single, runs, in_runs, too_deep;
};

/* One more. function: its number in the page. 0 or CT_ENOMEM. */
int ct_html_add(struct ct_html_spans *spans, struct ct_html_lane *lane, const struct ct_walk_place *place,
                const struct ct_span *span, uint32_t function);
void ct_html_lane_finish(struct ct_html_spans *spans, struct ct_html_lane *lane); /* writes the rest, and frees */

#endif
