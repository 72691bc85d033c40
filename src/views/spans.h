/* SPDX-License-Identifier: MIT */
/*
 * Spans: one call of one function on one thread, from enter to its end, built from the
 * thread's events in one pass. A span comes out when it ends, so callees come before
 * their callers; what is still open at the end of the stream comes last, innermost first.
 *
 * Times, in ticks of the recording's clock:
 *   duration  end_tsc - enter_tsc
 *   self      duration less the durations of the frames directly below, and less the time
 *             that the thread spent on another stack (coroutine, signal stack) while this frame was
 *             innermost. A tail call ends one span and starts the next at the same depth; both
 *             count as children of the frame above.
 *   fresh     what this span adds to the time in which its function was on the thread's stacks at
 *             all: the duration for the outermost frame of a function, 0 for those of a recursion
 *             inside it. The sum over a function's spans counts no moment twice.
 *
 * Memory: 16 bytes per function of the trace and the open frames.
 */
#ifndef CT_VIEWS_SPANS_H
#define CT_VIEWS_SPANS_H

#include "trace/batch.h"

enum ct_span_end {
  CT_SPAN_RETURNED = 0,
  CT_SPAN_TAIL = 1,    /* ended by a tail call */
  CT_SPAN_UNWOUND = 2, /* by one of the next five: which is not known; see leaving.h */
  CT_SPAN_LONGJMP = 3,
  CT_SPAN_SETCONTEXT = 4,
  CT_SPAN_EXCEPTION = 5,
  CT_SPAN_CANCELLED = 6,
  CT_SPAN_PTHREAD_EXIT = 7,
  CT_SPAN_EXEC = 8,
  CT_SPAN_THREAD_EXIT = 9,
  /* from here on the duration is not certain */
  CT_SPAN_LOST = 10,   /* its end is among lost events */
  CT_SPAN_EXIT = 11,   /* open when the program exited */
  CT_SPAN_KILLED = 12, /* open when a signal ended the program */
  CT_SPAN_OPEN = 13,   /* still open where the trace ends */
  CT_SPAN_ORPHAN = 14, /* a return whose enter is not in the trace: enter_tsc == end_tsc */
  CT_SPAN_POINT = 15,  /* enter-only function: a call without an end */
  CT_SPAN_ENDS = 16,
};

struct ct_span {
  uint64_t enter_tsc;
  uint64_t end_tsc;
  uint64_t self_ticks;
  uint64_t fresh_ticks;
  uint32_t fn;
  uint32_t depth;
  uint32_t thread;   /* index of the thread in the trace */
  uint8_t end;       /* enum ct_span_end */
  uint8_t uncertain; /* events were lost while it was open: its end may belong to another call */
  uint16_t calls;    /* POINT: for how many calls it stands; more than 1 when it is sampled */
};

struct ct_spans; /* opaque, one per thread stream */

int ct_spans_open(struct ct_trace *trace, uint32_t thread, struct ct_spans **out, struct ct_diag *diag);
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
uint64_t ct_spans_offset(const struct ct_spans *spans); /* bytes of the thread's file */

/* "returned", "tail call", ... Never NULL. */
const char *ct_span_end_text(enum ct_span_end end);

#endif
