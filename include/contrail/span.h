/* SPDX-License-Identifier: MIT */
/*
 * Spans: one call of one function on one thread each, from enter to end. What is read out of a trace beyond its events
 * is made of them.
 *
 *   struct ct_spans *spans;
 *   const struct ct_span *span;
 *   if (ct_spans_open(trace, 0, CT_TIME_WALL, &spans, &diag) == 0)
 *     while ((span = ct_spans_next_span(spans)) != NULL)
 *       ...
 *
 * A span comes out when it ends, so callees come before their callers; what is still open at the end of the stream
 * comes last, innermost first. Times are ticks of the recording's clock (ct_trace_ticks_ns).
 *
 * Identity. A call is known by its ordinal: its position among the calls of its thread, which the blocks of the file
 * state; so it is the same whatever else of the trace is gone, while the recording goes on, and after it. The id of a
 * span has that and the thread, the process and the trace in it, in a number below 2^63:
 *
 *   lowest bits first   width
 *   - trace             1 bit; 0: the first; 1: 6 bits more, its number among the traces that are asked together
 *   - process           3 bits, the width of the number that follows: 0 2 4 6 8 12 16 20; the number 0: the first
 *                       process, N: the N-th of its children in the manifest
 *   - thread            2 bits, the width of the index that follows: 4 8 12 17
 *   - kind              1 bit; 0: ordinal + 1 in all the bits that are left; 1: a frame that was open where the stream
 *                       begins, whose call nobody counted: 1 bit, the width of its depth, 8 or 28; the depth; and the
 *                       number of the block + 1
 *
 * A frame is open where the stream begins when its enter is among what is not kept (record --last, --max-size), or is
 * damaged. Its id is stable as long as the same blocks are there. A piece of a trace (ct_trace_set_range) has no such
 * frames of its own: those that are open where it begins have the ordinals of their calls.
 *
 * So 16 threads of one process have 52 bits for their calls: two years at 50 million calls a second.
 */
#ifndef CONTRAIL_SPAN_H
#define CONTRAIL_SPAN_H

#include <contrail/error.h>
#include <contrail/trace.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What durations are made of. WALL: a thread's own time, without what the hooks in it took (as measured when the
 * recording began) and without the time in which contrail had the thread stopped or waiting. CPU: of that, without the
 * time off the processor. RAW: differences of the clock's readings, with everything in it.
 */
enum ct_view_time { CT_TIME_WALL = 0, CT_TIME_CPU = 1, CT_TIME_RAW = 2 };

/*
 * How far an operation is; both functions may be NULL. update is called now and then, from the calling thread
 * only; when it gives anything but 0 the operation ends soon with CT_ECANCELED. finish is called before the output
 * begins that follows the reading, if the two are apart. The structure does not grow.
 */
struct ct_view_progress {
  int (*update)(void *arg, uint64_t done, uint64_t total); /* in a unit of the view's own; total 0: not known */
  void (*finish)(void *arg);
  void *arg;
};

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
  CT_SPAN_EXITED = 14,  /* open when the program exited */
  CT_SPAN_KILLED = 15,  /* open when a signal ended the program */
  CT_SPAN_OPEN = 16,    /* still open where the trace ends: it may have lasted longer */
  CT_SPAN_ORPHAN = 17,  /* a return whose enter is not in the trace: enter_tsc == end_tsc */
  CT_SPAN_POINT = 18,   /* enter-only function: a call without an end */
  CT_SPAN_COUNTED = 19, /* no span: duration_ticks calls that were counted and are not in the trace otherwise */
  CT_SPAN_ENDS = 20,
};

/* "returned", "tail call", ... Never NULL. */
const char *ct_span_end_text(enum ct_span_end end);

enum ct_span_doubt {
  CT_SPAN_UNCERTAIN = 1, /* events were lost while it was open: its end may belong to another call */
  CT_SPAN_BEFORE = 2,    /* it was open when the recording began: no call of the trace, and longer than it seems */
};

#define CT_NO_ORDINAL UINT64_MAX

/*
 *   enter_tsc, end_tsc  the clock's readings
 *   duration  from the one to the other, in the time that was asked for (enum ct_view_time), as the next ones
 *   off       how much of it the thread was off the processor
 *   self      duration less the durations of the frames directly below, and less the time that the thread spent on
 *             another stack (coroutine, signal stack) while this frame was innermost. A tail call ends one span and
 *             starts the next at the same depth; both count as children of the frame above
 *   fresh     what this span adds to the time in which its function was on the thread's stacks at all: the duration for
 *             the outermost frame of a function, 0 for those of a recursion inside it. The sum over a function's spans
 *             counts no moment twice. Likewise fresh_off
 */
struct ct_span {
  uint64_t ordinal;        /* CT_NO_ORDINAL: it is no call (ORPHAN, COUNTED) */
  uint64_t parent_ordinal; /* of the frame that it lies on, on the same stack; CT_NO_ORDINAL: none */
  uint64_t enter_tsc;
  uint64_t end_tsc;
  uint64_t duration_ticks;
  uint64_t self_ticks;
  uint64_t off_ticks;
  uint64_t fresh_ticks;
  uint64_t fresh_off_ticks;
  uint32_t fn;
  uint32_t caller_fn; /* of that frame; UINT32_MAX: none */
  uint32_t depth;
  uint32_t thread;    /* index of the thread in the trace */
  uint32_t context;   /* the stack that it is on: 0 the thread's own */
  uint32_t recursion; /* of those with a duration: frames of the function that are still open on the thread */
  uint8_t end;        /* enum ct_span_end */
  uint8_t uncertain;  /* enum ct_span_doubt, together */
  uint16_t calls;     /* POINT: for how many calls it stands; more than 1 when it is sampled */
  uint32_t reserved;  /* of no meaning outside of the library */
};

/* Where a span is. */
struct ct_span_place {
  uint32_t trace;   /* number among the traces that are asked together, 0 .. 63 */
  uint32_t process; /* 0: the first; N: the N-th of its children */
  uint32_t thread;  /* index of the thread in the trace */
  uint64_t ordinal;
};
/* 0: none, as of CT_NO_ORDINAL; or the numbers are larger than an id has room for. */
uint64_t ct_span_id(const struct ct_span_place *place);
/* Of a call of the trace, by its thread's index and its ordinal. */
uint64_t ct_span_id_in(const struct ct_trace *trace, uint32_t thread, uint64_t ordinal);
/* False: it is none. */
bool ct_span_id_split(uint64_t id, struct ct_span_place *place);

struct ct_spans; /* opaque, one per thread stream */
/* thread: as of ct_cursor_open. *out goes to ct_spans_close. CT_ERANGE, CT_ENOMEM. */
int ct_spans_open(struct ct_trace *trace, uint32_t thread, enum ct_view_time time, struct ct_spans **out,
                  struct ct_diag *diag);
void ct_spans_close(struct ct_spans *spans); /* accepts NULL */
/* The next one, or NULL at the end; see ct_spans_state. It lives until the next call. */
const struct ct_span *ct_spans_next_span(struct ct_spans *spans);
enum ct_cursor_state ct_spans_state(const struct ct_spans *spans);

#ifdef __cplusplus
}
#endif

#endif
