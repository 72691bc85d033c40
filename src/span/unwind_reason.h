/* SPDX-License-Identifier: MIT */
/*
 * Why frames ended without a return. The trace says only that they did, at the next event further
 * out; but the functions by which frames are unwound are hooked like all others, and what was innermost just then
 * shows:
 *
 *   longjmp, setcontext       among the innermost frames that were unwound
 *   _Unwind_RaiseException    the thread's last event of its kind, and the frame that called it is among those unwound:
 *                             an exception. Landing pads that only clean up end with _Unwind_Resume, which goes on with
 *                             what brought the thread to that very frame; so each landing is kept until its frame is
 *                             gone.
 *   _Unwind_ForcedUnwind      below pthread_exit: that; else cancellation. It ends with a longjmp to the thread's
 * start.
 *
 * The unwinder's functions touch their own return address, so most have an enter event only (POINT). Frames on an
 * alternate signal stack that are unwound together with those of the thread's own stack hand their reason over at the
 * switch.
 *
 * When none of these functions is seen (excluded, __builtin_longjmp, a runtime with an unwinder of its own) the reason
 * is not known: CT_SPAN_UNWOUND.
 *
 * Frames still open when a thread's events end: exit() among them, or the program exited, or was killed, or the thread
 * has nothing open but where it began and ended by itself.
 */
#ifndef CT_SPAN_UNWIND_REASON_H
#define CT_SPAN_UNWIND_REASON_H

#include "span/spans.h"
#include "span/stacks.h"

struct ct_unwind_reason {
  struct ct_trace *trace;
  uint8_t *kinds; /* of each function, 0: not looked at yet */
  uint32_t fn_count;
  uint8_t at_end; /* enum ct_span_end of frames that nothing else is known about */
};

/* A point of that function was seen before, and it says nothing of how frames end. */
enum { CT_UNWIND_REASON_NONE = 1 };
static inline bool
ct_unwind_reason_is_none(const struct ct_unwind_reason *unwind_reason, uint32_t fn)
{
  return fn < unwind_reason->fn_count && unwind_reason->kinds[fn] == CT_UNWIND_REASON_NONE;
}

int ct_unwind_reason_init(struct ct_unwind_reason *unwind_reason, struct ct_trace *trace); /* 0 or CT_ENOMEM */
void ct_unwind_reason_destroy(struct ct_unwind_reason *unwind_reason);                     /* accepts a zeroed one */

/* A POINT of fn, on the stack as it is. */
void ct_unwind_reason_point(struct ct_unwind_reason *unwind_reason, struct ct_span_stack *stack, uint32_t fn);
/* How the innermost frame of the stack ends by event, a UNWOUND that has not been applied yet. Changes nothing. */
uint8_t ct_unwind_reason_of(struct ct_unwind_reason *unwind_reason, const struct ct_span_stack *stack,
                            const struct ct_event *event);
/* It has ended so and is off the stack. */
void ct_unwind_reason_applied(struct ct_span_stack *stack, uint64_t tsc, uint8_t end);
/* ct_span_stacks_switch. */
int ct_unwind_reason_switch(struct ct_unwind_reason *unwind_reason, struct ct_span_stacks *stacks, uint64_t context,
                            uint64_t tsc);
/* How the frames of one of the stacks end that are still open after the thread's last event. When: see clock.h. */
uint8_t ct_unwind_reason_at_end(struct ct_unwind_reason *unwind_reason, uint32_t thread,
                                const struct ct_span_stacks *stacks, const struct ct_span_stack *ended);

#endif
