/* SPDX-License-Identifier: MIT */
/*
 * Per-function totals of spans: a table indexed by function id, filled by ct_stats_add.
 * Several tables (one per thread or worker) can be merged into one.
 *
 * What counts to what:
 *   calls      every span but orphan returns and those that were open when the recording began; points too, a sampled
 * one as often as the calls that it stands for total      the fresh time of all spans with an enter, uncertain ones too
 *   self       their self time
 *   min, avg and percentiles: the durations of spans that are known from their begin to their end; max: also what is
 *              known of those that were still open where the trace ends
 *   uncertain  spans whose end is not known: open when events were lost, or their end is among these
 *   partial    spans of which the trace certainly has only a part: still open where it ends, or open where it begins
 *   untimed    uncertain or partial
 */
#ifndef CT_SPAN_STATS_H
#define CT_SPAN_STATS_H

#include "span/selves.h"
#include "span/spans.h"

struct ct_fn_stats {
  uint64_t points; /* calls */
  uint64_t total_ticks;
  uint64_t self_ticks;
  uint64_t min_ticks; /* of the histogram's values */
  uint64_t max_ticks;
  uint64_t untimed;
  uint64_t orphans;
  struct ct_histogram *histogram; /* of the timed calls; NULL: the function has not been seen */
};

/* With those that were open when the recording began. */
static inline uint64_t
ct_fn_stats_spans(const struct ct_fn_stats *fn)
{
  return fn->points + fn->untimed + fn->histogram->count;
}

struct ct_stats {
  struct ct_fn_stats *fns;   /* fn_count + 1; the last one stands for ids outside the table */
  void *fns_memory;          /* where they lie, from a cache line's begin on */
  uint64_t *passed_over;     /* as many: calls among the points that sampling passed over, so no exact number */
  uint64_t *counted;         /* as many: calls among the points that were counted, and have no event */
  uint64_t *off;             /* as many: ticks off the processor, of the fresh time; with bounds: at most */
  uint64_t *partial;         /* as many: of the untimed ones ... */
  uint64_t *before;          /* ... and of those, or uncertain: open when the recording began */
  uint64_t **unwound;        /* as many; NULL, or CT_SPAN_ENDS numbers: frames without a return, by how they ended */
  struct ct_selves **selves; /* NULL: not kept; as many, NULL of those without timed calls */
  uint64_t gap_ticks, lost;  /* time in which events were lost, and how many */
  uint32_t fn_count;
  uint32_t touched_count;
  uint32_t *touched; /* functions seen, in order of appearance */
};

/* A frame without a return of its own: of a function's calls these, the points and the returned ones make all. */
static inline bool
ct_span_is_left(enum ct_span_end end)
{
  return end >= CT_SPAN_TAIL && end < CT_SPAN_ORPHAN;
}

/* Its duration is known from its begin to its end. */
static inline bool
ct_span_is_timed(const struct ct_span *span)
{
  return !span->uncertain &&
         (span->end < CT_SPAN_SWITCHED || span->end == CT_SPAN_EXITED || span->end == CT_SPAN_KILLED);
}

int ct_stats_init(struct ct_stats *stats, uint32_t fn_count); /* 0 or CT_ENOMEM */
void ct_stats_destroy(struct ct_stats *stats);                /* accepts a zeroed or destroyed one */
void ct_stats_clear(struct ct_stats *stats);
/*
 * From here on ct_stats_add (not ct_spans_sum) keeps self times too, and what is merged into it has them. The spans of
 * a thread come after one another, and before each thread ct_stats_begin_thread is called. 0 or CT_ENOMEM.
 */
int ct_stats_keep_selves(struct ct_stats *stats);
void ct_stats_begin_thread(struct ct_stats *stats);
/* Those of a function, NULL when memory is exhausted. */
struct ct_selves *ct_stats_selves(struct ct_stats *stats, uint32_t fn);
int ct_stats_add(struct ct_stats *stats, const struct ct_span *spans, size_t count);
/* The statistics of a function, which is among the touched ones then; NULL when memory is exhausted. */
struct ct_fn_stats *ct_stats_touch(struct ct_stats *stats, uint32_t fn);
/* Its frames without a return, CT_SPAN_ENDS numbers; NULL likewise. */
uint64_t *ct_stats_unwound(struct ct_stats *stats, uint32_t fn);
int ct_stats_merge(struct ct_stats *into, const struct ct_stats *from);
/* Of one function, which has another id in `into`. */
int ct_stats_merge_one(struct ct_stats *into, uint32_t to, const struct ct_stats *from, uint32_t id);

#endif
