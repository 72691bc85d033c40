/* SPDX-License-Identifier: MIT */
/*
 * Spans in batches, and from places in the middle of a stream: beyond what <contrail/span.h> gives to everybody.
 *
 * Memory: 24 bytes per function of the trace and the open frames.
 *
 * An observer is notified of each call when it begins and when it ends, in the order of events, with the stack that it
 * is on: what depends on who called whom further out cannot be had of spans alone, which come when they end. It costs
 * half of the speed. An observer that takes no notice of stacks and notes can be notified of the plain calls many at a
 * time (edges), which costs next to nothing.
 */
#ifndef CT_SPAN_SPANS_H
#define CT_SPAN_SPANS_H

#include <contrail/span.h>

#include "span/clock.h"

struct ct_span_stack;
struct ct_span_stacks;
struct ct_span_note;

/* A call that has ended, or is none: a point, an orphan, counted ones. */
struct ct_span_call {
  const struct ct_span *span;
  const struct ct_span_note *note; /* of its frame, which is off the stack; NULL: it had none, and began unseen */
  uint64_t here_ticks; /* its self and those of all calls inside, on this stack: never what went on on other stacks */
  uint64_t here_off_ticks;
  uint64_t self_off_ticks;
};

/* A call begins, or ends as nearly all do. */
enum { CT_SPAN_EDGE_BEGIN = CT_SPAN_ENDS };
struct ct_span_edge {
  uint64_t tsc;
  uint32_t fn;
  uint32_t what; /* CT_SPAN_EDGE_BEGIN, CT_SPAN_RETURNED or CT_SPAN_TAIL */
};

/* All return 0, or what ct_spans_next is to return. */
struct ct_span_observer {
  /* The innermost frame is new, its note zeroed. */
  int (*entered)(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack);
  int (*ended)(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack, const struct ct_span_call *call);
  /* From tsc on the thread is on this stack, whether or not it has frames yet. May be NULL. */
  int (*switched)(void *arg, const struct ct_spans *spans, const struct ct_span_stack *stack, uint64_t tsc);
  /*
   * Unless NULL: begins and ends on the stack with that context, in their order. Those that come so are reported to
   * nobody else, and are in no batch. Frames have no notes then: that of a call that has ended is zeroed, and its
   * here_ticks, here_off_ticks and self_off_ticks are not to be looked at.
   */
  int (*edges)(void *arg, const struct ct_spans *spans, uint64_t context, const struct ct_span_edge *edges,
               size_t count);
  void *arg;
};
/* Before the first span. The observer is the caller's. */
void ct_spans_observe(struct ct_spans *spans, const struct ct_span_observer *observer);
/* For an observer: the thread's own time, and how much of it off the processor. */
uint64_t ct_spans_now(const struct ct_spans *spans);
uint64_t ct_spans_off_now(const struct ct_spans *spans);

static inline bool
ct_span_is_unfinished(unsigned end)
{
  return end >= CT_SPAN_EXITED && end <= CT_SPAN_OPEN;
}

/*
 * The next spans, as a batch in the builder's storage, valid until the next call; *count is 0 at the
 * end of the stream (whole or damaged, see ct_spans_state) and only there.
 */
int ct_spans_next(struct ct_spans *spans, const struct ct_span **batch, size_t *count);

/*
 * For who wants sums and few of the spans themselves. Calls that end as nearly all do are added to the statistics (with
 * self times, where these keep them), to the builder's tree and to what is here. Of these spans only some are in the
 * batch: those of long_from ticks or more, and those that began before the call of first_ordinal. They have
 * CT_SPAN_GATHERED in reserved, and a batch has none but these, or none of these. All others are in batches and in
 * nothing else, in their order. Without a tree nothing is gathered.
 *
 * *more is false at the end of the stream and where it stops; there may be no spans before that. After at most
 * CT_SPANS_GATHERS ops it returns.
 */
enum { CT_SPANS_GATHERS = 1 << 15 };
#define CT_SPAN_GATHERED UINT32_MAX
struct ct_stats;
struct ct_span_gather {
  struct ct_stats *stats;
  uint64_t long_from, first_ordinal;
  /* Of calls that were gathered, added by who has them: */
  uint64_t count;
  uint32_t least_depth, most_depth;
  uint64_t *longest; /* of each function, and one for all other ids: ticks + 1; 0: none */
  uint32_t *touched; /* those that are not 0 */
  uint32_t touched_count;
};
int ct_spans_gather(struct ct_spans *spans, struct ct_span_gather *gather, const struct ct_span **batch, size_t *count,
                    bool *more);

/*
 * Adds what is left of the stream to stats, which has the trace's functions: what ct_spans_next and ct_stats_add would
 * make of it, faster. at, which may be NULL, is called with ct_spans_offset when that has moved. 0 or CT_ENOMEM.
 */
int ct_spans_sum(struct ct_spans *spans, struct ct_stats *stats, void (*at)(void *arg, uint64_t offset), void *arg);

/*
 * Of a recording that goes on. While a builder follows, ct_spans_next and ct_spans_sum give what there is, and go on at
 * the next call with what came since; bounds are not kept. Without it, what is open at the end ends there. Either may
 * be said at any time before the end was given.
 */
void ct_spans_follow(struct ct_spans *spans, bool follows);
/* After ct_trace_refresh: takes in the functions that came. 0 or CT_ENOMEM. */
int ct_spans_grow(struct ct_spans *spans);
/* For `at`: ct_spans_sum returns before the next events, although there are more. */
void ct_spans_pause(struct ct_spans *spans);
/* It has returned for that, and has not been called since. */
bool ct_spans_is_paused(const struct ct_spans *spans);

/* Of what was read so far: enters, returns, tail calls and points; events that the trace says were lost. */
uint64_t ct_spans_events(const struct ct_spans *spans);
uint64_t ct_spans_lost(const struct ct_spans *spans);
/* What of it replay shows whatever it is asked for: losses, execs, changes of the sampling. From where it was restored
 * on. */
uint64_t ct_spans_marks(const struct ct_spans *spans);
/*
 * At the end of the stream of a trace that has bounds (ct_trace_has_bounds): how long the function was off the
 * processor at most. fn: an id, or the number of functions for all other ids.
 */
uint64_t ct_spans_off_at_most(const struct ct_spans *spans, uint32_t fn);
uint64_t ct_spans_gap_ticks(const struct ct_spans *spans); /* in which events were lost */
/*
 * ended is called at the end of each stretch in which events were lost, at tsc: after all calls that ended before, and
 * before what comes next, in batches and for an observer. ct_spans_lost and ct_spans_gap_ticks have grown by what it
 * was. It returns as observers do. Before the first span.
 */
void ct_spans_on_gap(struct ct_spans *spans, int (*ended)(void *arg, const struct ct_spans *spans, uint64_t tsc),
                     void *arg);
/* How long the thread was kept off the processor although it could have run. */
uint64_t ct_spans_preempted(const struct ct_spans *spans);
uint64_t ct_spans_offset(const struct ct_spans *spans); /* bytes of the thread's file */

/*
 * Places in a stream: what the builder knows where a block begins, from which it goes on with the very same spans.
 *
 * ct_spans_stop_at: the spans end before the block at this offset of the file, or the first one after that (UINT64_MAX:
 * with the stream); ct_spans_next gives none then, and goes on when the place has been moved. ct_spans_stopped: it is
 * there, at the block of *offset.
 */
void ct_spans_stop_at(struct ct_spans *spans, uint64_t offset);
bool ct_spans_stopped(const struct ct_spans *spans, uint64_t *offset);
/* The stream ends before the block at this offset, for good: what is open there is open at its end. */
void ct_spans_end_at(struct ct_spans *spans, uint64_t offset);
uint64_t ct_spans_next_ordinal(const struct ct_spans *spans); /* of the next call */
uint64_t ct_spans_last_tsc(const struct ct_spans *spans);     /* of the last event, 0: none */
/* Frames that are open, on all stacks. */
size_t ct_spans_open_frames(const struct ct_spans *spans);
/* Calls visit for each, stack by stack, outermost first; below: the ordinal of the frame that it lies on. */
struct ct_span_open_frame {
  uint64_t ordinal, parent_ordinal;
  uint64_t enter_tsc, child_ticks;
  uint64_t age_ticks; /* own time since it was entered */
  uint32_t fn, depth, context;
};
int ct_spans_each_open(struct ct_spans *spans, int (*visit)(void *arg, const struct ct_span_open_frame *frame),
                       void *arg);

/*
 * From now on spans have, in reserved, their nodes in this tree, which is the caller's; NULL: they have none.
 * CT_TREE_NONE: the tree is broken. Not with an observer, and not while spans are added to statistics.
 */
struct ct_span_tree;
void ct_spans_set_tree(struct ct_spans *spans, struct ct_span_tree *tree);

/* What is known where the builder stopped, appended to bytes. 0 or CT_ENOMEM. */
struct ct_span_bytes {
  uint8_t *data; /* to be freed */
  size_t size, capacity;
};
int ct_spans_save(struct ct_spans *spans, struct ct_span_bytes *bytes);
/*
 * Goes on from the block at offset with what was known there; no bytes: from the begin of the stream. CT_EFORMAT: the
 * bytes make no sense, or there is no such block; the builder gives nothing then. Bounds (ct_spans_off_at_most) are not
 * kept. For an observer frames that are open there have zeroed notes, and sums of what was called in them before are
 * not known.
 */
int ct_spans_restore(struct ct_spans *spans, uint64_t offset, const uint8_t *bytes, size_t size);
/*
 * The same for who keeps stacks and clock of his own, as replay does: these become what they were there. The clock is
 * one of CT_TIME_WALL; frames have the flags that they have in spans. 0, CT_ENOMEM, CT_EFORMAT; stacks and clock are
 * undefined then, but can be destroyed.
 */
int ct_span_state_take(const uint8_t *bytes, size_t size, struct ct_span_stacks *stacks, struct ct_span_clock *clock);

/*
 * The clock right after the call with this ordinal was entered, which comes after where the builder was restored, in
 * one of these blocks, of which the first one begins there. The builder gives no spans any more. CT_ENOENT: it is not
 * known in this way. ct_spans_clock_at finds it in any block, by events, which takes longer.
 */
int ct_spans_clock_in(struct ct_spans *spans, const struct ct_block_place *blocks, size_t count, uint64_t ordinal,
                      struct ct_span_clock *clock);
int ct_spans_clock_at(struct ct_spans *spans, uint64_t ordinal, struct ct_span_clock *clock);

/* At the end of bytes: as many as are needed, or CT_ENOMEM. */
int ct_span_bytes_reserve(struct ct_span_bytes *bytes, size_t more);
int ct_span_bytes_put(struct ct_span_bytes *bytes, uint64_t value); /* as a varint (trace/format.h) */

#endif
