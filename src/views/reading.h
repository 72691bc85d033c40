/* SPDX-License-Identifier: MIT */
/*
 * One pass over the spans of a trace, or of all processes of its tree, for views that need more of them than the
 * report's table of functions.
 *
 * Several threads of a trace are read at a time. What a view keeps of one is in a part of its own, which is merged into
 * what it keeps of all when the thread has been read: one part after the other, the longest thread's first, so that
 * what comes of it does not depend on how many read. Who is far ahead with parts that need much memory waits.
 *
 *   begin_thread ---- observer or add ... ----+
 *   begin_thread ---- observer or add ... ----+-- merge, free_part; merge, free_part
 *   begin_thread ---- take_tree --------------+
 */
#ifndef CT_VIEWS_READING_H
#define CT_VIEWS_READING_H

#include <contrail/filter.h>
#include <contrail/view.h>

#include "span/spans.h"
#include "span/tree_sums.h"
#include "views/names.h"

#include <jansson.h>

/* What is to be read; which functions are selected is kept in names. */
struct ct_view_reading {
  struct ct_trace *trace;         /* the first process's */
  const struct ct_filter *filter; /* threads, processes of a tree, functions */
  bool family;                    /* the processes that were followed too */
  enum ct_view_time time;
  const struct ct_view_progress *progress;
  struct ct_view_names *names;
  unsigned workers; /* threads to read with; 0: one */

  /* Who gets it; functions return 0 or an error. */
  void *arg;
  int (*begin_thread)(void *arg, struct ct_trace *trace, uint32_t thread, void **part); /* by any of the workers */
  const struct ct_span_observer
      *observer; /* of calls with their stacks, its arg being the part; or, if it is NULL, ... */
  /* ... spans alone, which is faster: those that pass the filter of calls. */
  int (*add)(void *part, const struct ct_span *spans, size_t count);
  /*
   * The same of the thread's calling context tree, where an index has that: what is kept in the part is what the calls
   * would have made of it. NULL: that cannot be; CT_ENOENT: not of this one, and the part is as it was.
   */
  int (*take_tree)(void *part, const struct ct_span_tree *tree);
  /* The same of the sums of a tree that was too large. */
  int (*take_sums)(void *part, const struct ct_tree_sums *sums);
  bool makes_index; /* where there is none, and it would have the answer */
  /* Parts have calls of selected functions and what is inside of them, no others: what an index says has none of these
   * need not be read. */
  bool passes_over;
  int (*merge)(void *arg, void *part);
  void (*free_part)(void *part);
  size_t (*part_bytes)(const void *part); /* about; NULL: few */

  /* While it is read. */
  struct ct_filter_compiled *chooses;
  uint64_t total_bytes;
  _Atomic uint64_t done_bytes; /* relaxed: a plain counter */
  uint64_t all_dropped;        /* also by threads that are not asked for, or have no stream */

  /* What came of it. */
  uint64_t events, dropped, gap_ticks;
  size_t threads, processes;
  bool off_is_bound; /* time off the processor is known per function only, as what it was at most */
  json_t *warnings;  /* a list of lines */
  struct ct_view_notes notes;
};

/* 0, CT_ENOMEM, CT_ERANGE, CT_EINVAL, or what the functions have returned. Results go to ct_view_reading_destroy. */
int ct_view_read(struct ct_view_reading *reading, struct ct_diag *diag);
void ct_view_reading_destroy(struct ct_view_reading *reading);

/* Is the process of a tree one of those that are asked for? */
bool ct_view_wants_process(const struct ct_filter *filter, json_int_t pid);

/* The number of a function of the trace at hand; CT_NO_NAME: out of memory. */
static inline uint32_t
ct_view_reading_name(const struct ct_view_reading *reading, uint32_t fn)
{
  return ct_view_names_of(reading->names, fn, reading->chooses);
}

/*
 * CT_ENOENT: on a path there are two functions of the trace that have one number, so that the second one is a recursion
 * of the first. Side by side they are no more than one path.
 */
int ct_view_reading_paths(const struct ct_view_reading *reading, const struct ct_span_tree *tree);

/*
 * By edge of sums, the number of its function; *callers likewise (0 where that is none). Both are to be freed.
 * CT_ENOENT: functions that are two in the trace have the same number, so what is summed up for each is not what it is
 * for both.
 */
int ct_view_reading_edges(const struct ct_view_reading *reading, const struct ct_tree_sums *sums, uint32_t **functions,
                          uint32_t **callers);

/* A call of the trace, as the report counts them: not what is none, and not what was open before. */
uint64_t ct_view_calls_of(const struct ct_span *span);

#endif
