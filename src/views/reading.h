/* SPDX-License-Identifier: MIT */
/*
 * One pass over the spans of a trace, or of all processes of its family, one thread after the other: for views that
 * need more of them than the report's table of functions.
 */
#ifndef CT_VIEWS_READING_H
#define CT_VIEWS_READING_H

#include <contrail/filter.h>
#include <contrail/view.h>

#include "span/spans.h"
#include "views/names.h"

#include <jansson.h>

/* What is to be read; which functions are chosen is kept in names. */
struct ct_view_reading {
  struct ct_trace *trace;         /* the first process's */
  const struct ct_filter *filter; /* threads, processes of a family, functions */
  bool family;                    /* the processes that were followed too */
  enum ct_view_time time;
  const struct ct_view_progress *progress;
  struct ct_view_names *names;

  /* Who gets it; each may be NULL and returns 0 or an error. */
  void *arg;
  int (*begin_thread)(void *arg, struct ct_trace *trace, uint32_t thread);
  const struct ct_span_observer *observer; /* of calls with their stacks ... */
  /* ... or spans alone, which is faster: those that pass the filter of calls. */
  int (*add)(void *arg, const struct ct_span *spans, size_t count);
  int (*end_thread)(void *arg, struct ct_spans *spans);

  /* While it is read. */
  struct ct_filter_compiled *chooses;
  uint64_t done_bytes, total_bytes;
  uint64_t all_dropped; /* also by threads that are not asked for, or have no stream */

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

/* The number of a function of the trace at hand; CT_NO_NAME: out of memory. */
static inline uint32_t
ct_view_reading_name(const struct ct_view_reading *reading, uint32_t fn)
{
  return ct_view_names_of(reading->names, fn, reading->chooses);
}

/* A call of the trace, as the report counts them: not what is none, and not what was open before. */
uint64_t ct_view_calls_of(const struct ct_span *span);

#endif
