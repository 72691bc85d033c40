/* SPDX-License-Identifier: MIT */
/*
 * Who calls the selected functions, or what these call: sums per pair of functions, in one pass.
 *
 * Callers. The total of a row is the fresh time of its calls (<contrail/span.h>), so that the rows of a function sum up
 * to its total in the report: the time of a recursion is with whoever made the outermost call.
 *
 * Callees. Each moment that the function is on the stack belongs to its innermost frame: to the call that this
 * frame has made, or to its self. So time of g in f is what is in g without what g spends in f again, and rows and
 * self sum up to the function's total; what is missing is the time in which its frame stood on a stack that the
 * thread had left (a coroutine's, a signal handler's).
 *
 *   f 0..10 { g 1..9 { f 2..5 { h 3..4 } } }      f: total 10; self 2 + 2, g 5, h 1
 */
#ifndef CT_VIEWS_EDGES_H
#define CT_VIEWS_EDGES_H

#include "views/reading.h"

/* In place of the number of a function, what is on the other side. */
enum ct_edge_other {
  CT_EDGE_ROOT = -1,    /* nobody: the outermost of the thread's own stack */
  CT_EDGE_STACK = -2,   /* nobody: the outermost of another stack */
  CT_EDGE_COUNTED = -3, /* not known: the calls were counted only */
  CT_EDGE_SELF = -4,    /* the function itself */
  CT_EDGE_AWAY = -5,    /* what went on on other stacks meanwhile */
};

struct ct_edge_sums {
  uint64_t calls, total_ticks, self_ticks, off_ticks;
  bool has_time; /* of some of the calls a time is known */
};

struct ct_edge {
  uint32_t function; /* the one that is asked about: number in names */
  int32_t other;     /* number in names, or enum ct_edge_other */
  struct ct_edge_sums sums;
};

/* Also the part of a thread (reading.h), which uses the names of all. */
struct ct_edges {
  struct ct_view_names names;
  const struct ct_view_name *known; /* of the reading's names */
  struct ct_edge *edges;
  size_t count, capacity;
  uint32_t *buckets; /* position + 1, 0: free */
  size_t bucket_count;
  uint64_t hash_key;              /* base/hash_key.h */
  struct ct_edge_sums *functions; /* as names; of the selected ones: all their calls */
  uint32_t *open;                 /* as names: of a part: frames on the thread's stacks */
  size_t function_capacity;
  struct ct_view_reading *reading;
};

/* Fills a zeroed one. The reading says what is read, and is completed here; it lives as long. 0 or as ct_view_read. */
int ct_edges_collect_callers(struct ct_edges *edges, struct ct_view_reading *reading, struct ct_diag *diag);
int ct_edges_collect_callees(struct ct_edges *edges, struct ct_view_reading *reading, struct ct_diag *diag);
void ct_edges_destroy(struct ct_edges *edges); /* accepts a zeroed one */

#endif
