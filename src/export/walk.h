/* SPDX-License-Identifier: MIT */
/*
 * The calls that an export writes: those that pass the filters, process by process and thread by thread, each thread
 * from its begin to its end. Memory does not grow with the trace.
 *
 * A format gets them in one of two ways:
 *   spans            in batches, when they end (callees before their callers): the fast one
 *   entered, ended   in the order of time; without filters the plain ones many at a time, as edges. Whether a call
 * passes a filter of its duration or end is known only then; so with such filters each thread is read twice, and a file
 * without a name has a bit for each call
 *
 * Times are nanoseconds since the begin of the first process's recording.
 */
#ifndef CT_EXPORT_WALK_H
#define CT_EXPORT_WALK_H

#include "export/export.h"
#include "span/spans.h"
#include "span/stacks.h"
#include "views/reading.h"

#include <jansson.h>

/* Where the walk is. */
struct ct_walk_place {
  struct ct_trace *trace;
  struct ct_trace *first; /* of the first process */
  const struct ct_trace_thread *thread;
  uint32_t process; /* 0: the first one; N: the N-th of its children */
  uint32_t pid;
  uint32_t number; /* of the thread among those that are written, from 0 on */
  /* For lost(): the time until then in which they were lost: nobody knows what the thread did in it. */
  uint64_t gap_ticks;
};

/* How many calls there are of what a reader of the export should know. */
struct ct_walk_sums {
  uint64_t spans, calls;
  uint64_t open;      /* still open at the end: closed there */
  uint64_t uncertain; /* their end is not known for sure */
  uint64_t before;    /* open when the recording, or the piece, began */
  uint64_t points, orphans, counted;
  uint64_t lost;
};

struct ct_walk_handler {
  int (*begin_process)(void *arg, const struct ct_walk_place *place); /* all may be NULL */
  int (*begin_thread)(void *arg, const struct ct_walk_place *place);
  int (*spans)(void *arg, const struct ct_walk_place *place, const struct ct_span *spans, size_t count);
  int (*entered)(void *arg, const struct ct_walk_place *place, const struct ct_span_frame *frame, uint64_t context);
  int (*ended)(void *arg, const struct ct_walk_place *place, const struct ct_span *span, bool was_entered);
  /* Both with entered and ended. */
  int (*edges)(void *arg, const struct ct_walk_place *place, uint64_t context, const struct ct_span_edge *edges,
               size_t count);
  int (*switched)(void *arg, const struct ct_walk_place *place, uint64_t context, uint64_t tsc);
  int (*lost)(void *arg, const struct ct_walk_place *place, uint64_t events, uint64_t tsc); /* until then */
  int (*end_thread)(void *arg, const struct ct_walk_place *place, uint64_t end_tsc);
};

/* 0, what a handler has returned, CT_ENOMEM, CT_ERANGE, CT_EINVAL. Fills the job's summary and notes. */
int ct_walk(const struct ct_export_job *job, const struct ct_walk_handler *handler, void *arg,
            struct ct_walk_sums *sums, struct ct_diag *diag);

/* For formats without attributes: how many calls have any, in the summary's line. */
void ct_walk_report(const struct ct_walk_sums *sums, struct ct_export_summary *summary);
/* Adds "count what" to that line, if there are any. */
void ct_export_say(struct ct_export_summary *summary, const char *what, uint64_t count);

/* Of the place's clock, in nanoseconds since the begin of the first recording; 0 for what is earlier. */
static inline uint64_t
ct_walk_ns(const struct ct_walk_place *place, uint64_t tsc)
{
  uint64_t ns = ct_trace_ns(place->trace, tsc), start = ct_trace_start_ns(place->first);
  return ns > start ? ns - start : 0;
}

/* How many calls it is, as report counts them. */
static inline uint64_t
ct_walk_calls(const struct ct_span *span)
{
  return CT_LIKELY(span->end < CT_SPAN_ORPHAN) ? (span->uncertain & CT_SPAN_BEFORE) == 0 : ct_view_calls_of(span);
}

/*
 * A text for each function of a trace, made when it is first asked for: what a format writes of one.
 * make: puts it into out, which it may change; fn UINT32_MAX stands for ids outside the table.
 */
struct ct_walk_text {
  char *text;
  uint32_t bytes;
};
struct ct_walk_texts {
  struct ct_trace *trace;
  struct ct_walk_text *of; /* count + 1 */
  uint32_t count;
};
int ct_walk_texts_begin(struct ct_walk_texts *texts, struct ct_trace *trace); /* anew; 0 or CT_ENOMEM */
void ct_walk_texts_destroy(struct ct_walk_texts *texts);                      /* accepts a zeroed one */
/* The name of a function, "?" for one that is not in the table; never NULL. */
const char *ct_walk_name(struct ct_trace *trace, uint32_t fn);
const char *ct_walk_module(struct ct_trace *trace, uint32_t fn);

static inline struct ct_walk_text *
ct_walk_text_of(struct ct_walk_texts *texts, uint32_t fn)
{
  return &texts->of[fn < texts->count ? fn : texts->count];
}

/* What is said of the traces (views/warnings.h), of the whole process tree: an array of lines; NULL: out of memory. */
json_t *ct_export_warnings(struct ct_trace *first);

#endif
