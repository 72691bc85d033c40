/* SPDX-License-Identifier: MIT */
/*
 * Spans: one call of one function on one thread, from enter to its end, built from the
 * thread's events in one pass. A span comes out when it ends, so callees come before
 * their callers; what is still open at the end of the stream comes last, innermost first.
 *
 * Times, in ticks of the recording's clock. All but the first two are of the thread's own time (clock.h): without what
 * hooks and contrail took.
 *   enter_tsc, end_tsc  the clock's readings
 *   duration  from the one to the other
 *   off       how much of it the thread was off the processor; only what is new, as fresh
 *   self      duration less the durations of the frames directly below, and less the time
 *             that the thread spent on another stack (coroutine, signal stack) while this frame was
 *             innermost. A tail call ends one span and starts the next at the same depth; both
 *             count as children of the frame above.
 *   fresh     what this span adds to the time in which its function was on the thread's stacks at
 *             all: the duration for the outermost frame of a function, 0 for those of a recursion
 *             inside it. The sum over a function's spans counts no moment twice.
 *
 * Memory: 24 bytes per function of the trace and the open frames.
 */
#ifndef CT_VIEWS_SPANS_H
#define CT_VIEWS_SPANS_H

#include "views/clock.h"

enum ct_span_end {
  CT_SPAN_RETURNED = 0,
  CT_SPAN_TAIL = 1,    /* ended by a tail call */
  CT_SPAN_UNWOUND = 2, /* by one of the next five: which is not known; see unwind_reason.h */
  CT_SPAN_LONGJMP = 3,
  CT_SPAN_SETCONTEXT = 4,
  CT_SPAN_EXCEPTION = 5,
  CT_SPAN_CANCELLED = 6,
  CT_SPAN_PTHREAD_EXIT = 7,
  CT_SPAN_EXEC = 8,
  CT_SPAN_THREAD_EXIT = 9,
  CT_SPAN_EXIT = 10,     /* the thread called exit */
  CT_SPAN_UNSEEN = 11,   /* open when the recording began: it returned at some time before this */
  CT_SPAN_SWITCHED = 12, /* its part of the stack was copied or left: what became of it was not seen */
  CT_SPAN_LOST = 13,     /* its end is among lost events */
  /* unfinished: they lasted to the end of the thread */
  CT_SPAN_EXITED = 14, /* open when the program exited */
  CT_SPAN_KILLED = 15, /* open when a signal ended the program */
  CT_SPAN_OPEN = 16,   /* still open where the trace ends: it may have lasted longer */
  CT_SPAN_ORPHAN = 17, /* a return whose enter is not in the trace: enter_tsc == end_tsc */
  CT_SPAN_POINT = 18,  /* enter-only function: a call without an end */
  CT_SPAN_COUNTED = 19, /* no span: duration_ticks calls that were counted and are not in the trace otherwise */
  CT_SPAN_ENDS = 20,
};

static inline bool
ct_span_is_unfinished(unsigned end)
{
  return end >= CT_SPAN_EXITED && end <= CT_SPAN_OPEN;
}

enum ct_span_doubt {
  CT_SPAN_UNCERTAIN = 1, /* events were lost while it was open: its end may belong to another call */
  CT_SPAN_BEFORE = 2,    /* it was open when the recording began: no call of the trace, and longer than it seems */
};

struct ct_span {
  uint64_t enter_tsc;
  uint64_t end_tsc;
  uint64_t duration_ticks;
  uint64_t self_ticks;
  uint64_t fresh_ticks;
  uint64_t off_ticks;
  uint32_t fn;
  uint32_t depth;
  uint32_t thread;   /* index of the thread in the trace */
  uint8_t end;       /* enum ct_span_end */
  uint8_t uncertain; /* enum ct_span_doubt, together */
  uint16_t calls;    /* POINT: for how many calls it stands; more than 1 when it is sampled */
};

struct ct_spans; /* opaque, one per thread stream */

int ct_spans_open(struct ct_trace *trace, uint32_t thread, enum ct_view_time time, struct ct_spans **out,
                  struct ct_diag *diag);
void ct_spans_close(struct ct_spans *spans); /* accepts NULL */
/*
 * The next spans, as a batch in the builder's storage, valid until the next call; *count is 0 at the
 * end of the stream (whole or damaged, see ct_spans_state) and only there.
 */
int ct_spans_next(struct ct_spans *spans, const struct ct_span **batch, size_t *count);
enum ct_cursor_state ct_spans_state(const struct ct_spans *spans);

/* Of what was read so far: enters, returns, tail calls and points; events that the trace says were lost. */
uint64_t ct_spans_events(const struct ct_spans *spans);
uint64_t ct_spans_lost(const struct ct_spans *spans);
/*
 * At the end of the stream of a trace that has bounds (ct_trace_has_bounds): how long the function was off the
 * processor at most. fn: an id, or the number of functions for all other ids.
 */
uint64_t ct_spans_off_at_most(const struct ct_spans *spans, uint32_t fn);
uint64_t ct_spans_gap_ticks(const struct ct_spans *spans); /* in which events were lost */
uint64_t ct_spans_offset(const struct ct_spans *spans);    /* bytes of the thread's file */

/* "returned", "tail call", ... Never NULL. */
const char *ct_span_end_text(enum ct_span_end end);

#endif
