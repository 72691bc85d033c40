/* SPDX-License-Identifier: MIT */
/*
 * Rebuilding calls from (kind, function, ra_slot). A frame's ra_slot is the low half of the address of its
 * return-address slot, so frames further in have lower ones; halves compare by their signed difference, which
 * is right for stacks below 2 GiB.
 *
 *   enter at S:   frames at or below S were unwound (longjmp, exception) without a return; then open the frame.
 *   tail at S:    frames below S were unwound; the frame at S ends by the tail call, the new one takes its place
 *                 and will be closed by the frame's one return, which names the function first entered (root_fn).
 *   return at S:  frames below S were unwound; the frame at S returns. No frame at S: the trace lacks its enter.
 *   point at S:   like enter, but opens no frame. Of a stackless hook (CT_HOOK_STACKLESS) ra_slot says nothing.
 *   sampled at S: an event of CT_HOOK_SAMPLED: frames below S were unwound. The frame at S, if there is one, may
 *                 have gone on here by a tail jump; then its return is still to come.
 *   value at S:   of the frame at S, by its enter or before its return; it says no time of its own.
 *   away: an interval that was contrail's own, until the event's time; ra_slot is its length.
 *   tail out at S: frames below S were unwound; the frame at S ends by a tail call to an excluded function.
 *
 * An ra_slot that is not on the stack of the last switch is on one of those before: a signal handler that ran on its
 * own stack interrupted the hook between its look at the stack and the event. The event counts for the stack it is on.
 * Where ra_slots of both would look alike, each call on the handlers' stack is a point after a switch, and all else is
 * not theirs.
 *
 * copy: a part of the stack is copied away or left, and the frames in it have their true return addresses from here
 * on; or another part comes back in its place. What happens to the frames is not seen any more: they end as "stack
 * switched", as soon as none is further in. If then no frame is open the flow that has come is a context of its own
 * (flows.h). With open frames further out it is one that they have called.
 *
 * Frames that were open when the recording began have a return-address slot like others, but return unseen: they end,
 * as that, before the first event further out.
 *
 * unseen at S: the frame at S has its true return address back, and ends like those.
 *
 * A call that would be deeper than max_depth opens no frame, and what it calls neither. Its return finds no frame at
 * its return-address slot, which lies further in than the innermost frame, and is left out too.
 */
#include "drain/thread.h"

#include "drain/runs.h"

#include "trace/batch.h"

#include <contrail/trace.h> /* enum ct_unwound_reason, enum ct_away */

#include <string.h>

static inline bool
is_outside_or_at(uint32_t ra_slot, uint32_t top_ra_slot)
{
  return (int32_t)(ra_slot - top_ra_slot) >= 0;
}

static inline bool
is_outside(uint32_t ra_slot, uint32_t top_ra_slot)
{
  return (int32_t)(ra_slot - top_ra_slot) > 0;
}

/* No room for another frame. */
static inline bool
is_full(const struct ct_encoder *encoder, uint32_t max_depth)
{
  return (size_t)((const char *)encoder->columns.top - (const char *)encoder->columns.frames) >=
         (size_t)max_depth * sizeof(struct ct_frame);
}

/* The frame's call ends, by whatever way, if rules are about that. */
static inline void
end_call(struct drain_thread *thread, struct ct_frame *frame, uint64_t tsc)
{
  uint32_t mask = rules_about(thread->rules, thread->rules->times, frame->fn);
  if (CT_UNLIKELY(mask != 0)) {
    rules_end(thread, frame, mask, tsc);
  }
}

/* Which call of the function it is; 0: that is not known. */
static inline uint64_t
begin_call(struct drain_thread *thread, uint64_t tsc, uint32_t fn, uint64_t calls)
{
  uint32_t mask = rules_mask(thread->rules, fn);
  return CT_UNLIKELY(mask != 0) ? rules_call(thread, mask, tsc, fn, calls) : 0;
}

/* The frame's call is that one of its function; 0: that is not known. */
static inline void
number_frame(struct ct_frame *frame, uint64_t call)
{
  frame->call = call;
  frame->flags = call != 0 ? frame->flags | DRAIN_FRAME_NUMBERED : frame->flags & ~DRAIN_FRAME_NUMBERED;
}

static inline bool
has_rules(const struct drain_thread *thread)
{
  return thread->rules != NULL && thread->rules->any;
}

__attribute__((cold, noinline)) static void
leave(struct drain_thread *thread, uint64_t tsc)
{
  struct ct_encoder *encoder = thread->encoder;
  if (has_rules(thread)) {
    end_call(thread, ct_encoder_top(encoder), tsc);
  }
  uint32_t flags = ct_encoder_top(encoder)->flags;
  bool is_lost = (flags & CT_FRAME_UNCERTAIN) != 0, is_before = (flags & DRAIN_FRAME_BEFORE) != 0;
  ct_encode_unwound(encoder, tsc, is_lost ? CT_UNWOUND_LOST : is_before ? CT_UNWOUND_UNSEEN : CT_UNWOUND_JUMP);
}

static inline void
leave_inside(struct drain_thread *thread, uint64_t tsc, uint32_t ra_slot)
{
  struct ct_encoder *encoder = thread->encoder;
  const struct ct_frame *top;
  while ((top = ct_encoder_top(encoder)) != NULL && CT_UNLIKELY(is_outside(ra_slot, top->ra_slot))) {
    leave(thread, tsc);
  }
}

static inline void
leave_inside_or_at(struct drain_thread *thread, uint64_t tsc, uint32_t ra_slot)
{
  struct ct_encoder *encoder = thread->encoder;
  const struct ct_frame *top;
  while ((top = ct_encoder_top(encoder)) != NULL && CT_UNLIKELY(is_outside_or_at(ra_slot, top->ra_slot))) {
    leave(thread, tsc);
  }
}

static void
tail(struct drain_thread *thread, uint64_t tsc, uint32_t fn, uint32_t ra_slot, bool enter_only)
{
  struct ct_encoder *encoder = thread->encoder;
  leave_inside(thread, tsc, ra_slot);
  struct ct_frame *top = ct_encoder_top(encoder);
  bool replaces = top != NULL && top->ra_slot == ra_slot;
  uint64_t call = 0;
  if (CT_UNLIKELY(has_rules(thread))) {
    if (replaces) {
      end_call(thread, top, tsc);
      top->flags &= (1u << RULES_FRAME_SHIFT) - 1; /* the next call is another one */
    }
    call = begin_call(thread, tsc, fn, 1);
  }
  if (enter_only) {
    thread->hook_events[CT_HOOK_EVENT_POINT]++;
    if (replaces) {
      ct_encode_unwound(encoder, tsc, CT_UNWOUND_TAIL);
    }
    if (!is_full(encoder, thread->max_depth)) {
      ct_encode_point(encoder, tsc, fn);
    }
  } else if (replaces) {
    struct ct_frame *frame = ct_encode_tail(encoder, tsc, fn);
    frame->flags &= ~DRAIN_FRAME_VALUES;
    number_frame(frame, call);
  } else if (!is_full(encoder, thread->max_depth)) {
    struct ct_frame *frame = ct_encode_enter(encoder, tsc, fn, ra_slot);
    frame->root_fn = UINT32_MAX; /* what jumped here is not in the trace */
    number_frame(frame, call);
  }
}

__attribute__((noinline)) static void
sampled(struct drain_thread *thread, uint64_t tsc, uint32_t fn, uint32_t ra_slot)
{
  uint32_t log2 = CT_FN_WEIGHT(fn) - 1;
  thread->hook_events[CT_HOOK_EVENT_SAMPLED]++;
  thread->hook_events[CT_HOOK_EVENT_PASSED_OVER] += log2 <= CT_SAMPLE_LOG2_MAX ? (1u << log2) - 1 : 0;
  leave_inside(thread, tsc, ra_slot);
  if (CT_UNLIKELY(has_rules(thread)) && log2 <= CT_SAMPLE_LOG2_MAX) {
    begin_call(thread, tsc, fn & CT_FN_MAX, 1ull << log2);
  }
  if (log2 <= CT_SAMPLE_LOG2_MAX && !is_full(thread->encoder, thread->max_depth)) {
    thread->samples++;
    ct_encode_sampled(thread->encoder, tsc, fn & CT_FN_MAX, log2);
  }
}

static inline void
give_back(struct drain_thread *thread, uint64_t tsc, uint32_t fn, uint32_t ra_slot, bool ruled)
{
  struct ct_encoder *encoder = thread->encoder;
  leave_inside(thread, tsc, ra_slot);
  struct ct_frame *top = ct_encoder_top(encoder);
  if (CT_LIKELY(top != NULL && top->ra_slot == ra_slot && (top->root_fn == fn || top->root_fn == UINT32_MAX))) {
    if (ruled) {
      end_call(thread, top, tsc);
    }
    ct_encode_return(encoder, tsc);
  } else if (top == NULL || top->ra_slot == ra_slot || !is_full(encoder, thread->max_depth)) {
    ct_encode_orphan_return(encoder, tsc, fn);
  }
}

__attribute__((cold, noinline)) static void
tail_out(struct drain_thread *thread, uint64_t tsc, uint32_t ra_slot)
{
  struct ct_encoder *encoder = thread->encoder;
  leave_inside(thread, tsc, ra_slot);
  struct ct_frame *top = ct_encoder_top(encoder);
  if (top != NULL && top->ra_slot == ra_slot) {
    if (has_rules(thread)) {
      end_call(thread, top, tsc);
    }
    ct_encode_unwound(encoder, tsc, CT_UNWOUND_TAIL);
  }
}

/* Puts a stack first among those known; the one used longest ago is forgotten. */
static void
remember_stack(struct drain_thread *thread, struct drain_stack stack)
{
  uint32_t at = 0;
  while (at < thread->stack_count && thread->stacks[at].context != stack.context) {
    at++;
  }
  if (at == thread->stack_count && at < DRAIN_STACKS) {
    thread->stack_count++;
  }
  at = at < DRAIN_STACKS ? at : DRAIN_STACKS - 1;
  memmove(thread->stacks + 1, thread->stacks, at * sizeof(stack));
  thread->stacks[0] = stack;
}

/* Goes to the stack that the return-address slot is on, if it is one of those known. */
__attribute__((cold, noinline)) static void
find_stack(struct drain_thread *thread, uint64_t tsc, uint32_t ra_slot)
{
  for (uint32_t i = 0; i < thread->stack_count; i++) {
    struct drain_stack stack = thread->stacks[i];
    if (ra_slot - stack.low < stack.length) {
      thread->stack_low = stack.low;
      thread->stack_length = stack.length;
      remember_stack(thread, stack);
      ct_encode_switch(thread->encoder, tsc, stack.context);
      return;
    }
  }
}

/* The functions that copied have returned: on to the flow whose copy has come back, or that begins. */
static void
go_to_flow(struct drain_thread *thread, uint64_t tsc)
{
  struct ct_encoder *encoder = thread->encoder;
  uint32_t before = ct_encoder_context(encoder);
  if (thread->flows == NULL || before != thread->flows->current) {
    return;
  }
  uint32_t context = drain_flows_reconcile(thread->flows, ct_encoder_top(encoder) == NULL);
  if (context != before) {
    for (uint32_t i = 0; i < thread->stack_count; i++) {
      thread->stacks[i].context = thread->stacks[i].context == before ? context : thread->stacks[i].context;
    }
    ct_encode_switch(encoder, tsc, context);
  }
}

/* Ends the frames that are gone, before an event at ra_slot. */
__attribute__((cold, noinline)) static void
reconcile_gone(struct drain_thread *thread, uint64_t tsc, uint32_t ra_slot)
{
  struct ct_encoder *encoder = thread->encoder;
  if (ct_encoder_context(encoder) != thread->gone_context) {
    return; /* a signal handler on a stack of its own */
  }
  if (is_outside_or_at(ra_slot, thread->gone_lo)) {
    leave_inside(thread, tsc, thread->gone_lo);
  }
  const struct ct_frame *top;
  while ((top = ct_encoder_top(encoder)) != NULL &&
         top->ra_slot - thread->gone_lo < thread->gone_hi - thread->gone_lo) {
    ct_encode_unwound(encoder, encoder->columns.last_tsc, CT_UNWOUND_SWITCHED);
  }
  thread->has_gone = top != NULL && is_outside(thread->gone_lo, top->ra_slot);
  if (!thread->has_gone) {
    go_to_flow(thread, tsc);
  }
}

/* A part of the stack is copied, or left. */
__attribute__((cold, noinline)) static void
copy(struct drain_thread *thread, uint64_t tsc, uint32_t lo, uint32_t hi, uint32_t key)
{
  uint32_t context = ct_encoder_context(thread->encoder);
  if (thread->copy_what != CT_COPY_NONE && thread->flows == NULL) {
    thread->flows = drain_flows_create(context);
  }
  if (thread->flows != NULL && thread->flows->current == context && thread->copy_what == CT_COPY_OUT) {
    drain_flows_out(thread->flows, key, lo, hi);
  } else if (thread->flows != NULL && thread->flows->current == context && thread->copy_what == CT_COPY_IN) {
    drain_flows_in(thread->flows, key, hi);
  }
  thread->has_gone = thread->has_gone && thread->gone_context == context;
  thread->gone_context = context;
  thread->gone_hi = !thread->has_gone || is_outside(hi, thread->gone_hi) ? hi : thread->gone_hi;
  thread->gone_lo = !thread->has_gone || is_outside(thread->gone_lo, lo) ? lo : thread->gone_lo;
  reconcile_gone(thread, tsc, lo - 1);
}

static inline bool
is_on_stack(const struct drain_thread *thread, uint32_t ra_slot)
{
  return ra_slot - thread->stack_low < thread->stack_length || thread->stack_length == UINT32_MAX;
}

static_assert(CT_RING_VALUE_INTEGER == (int)CT_VALUE_INTEGER && CT_RING_VALUE_VECTOR == (int)CT_VALUE_VECTOR &&
                  CT_RING_VALUE_STACK == (int)CT_VALUE_STACK && CT_RING_VALUE_RESULT_2 == (int)CT_VALUE_RESULT_2 &&
                  CT_RING_VALUE_XMM0 == (int)CT_VALUE_RESULT_XMM0 && CT_RING_VALUE_XMM1 == (int)CT_VALUE_RESULT_XMM1 &&
                  CT_RING_VALUE_ERROR == (int)CT_VALUE_ERROR,
              "the trace has the ring's numbers");

/* An argument or the result of the call at the return-address slot, if that has a frame; or where its detail is. */
static void
value(struct drain_thread *thread, uint64_t number, uint32_t fn, uint32_t ra_slot)
{
  struct ct_encoder *encoder = thread->encoder;
  if ((fn & 0xf) == CT_OTHER_DETAIL) {
    thread->hook_events[CT_HOOK_EVENT_DETAIL]++;
    if (thread->details != NULL) {
      drain_detail_announce(thread, number, ra_slot);
    }
    return;
  }
  thread->hook_events[CT_HOOK_EVENT_VALUE]++;
  uint32_t which = drain_value_which(fn);
  if (ct_value_is_result(which)) {
    leave_inside(thread, encoder->columns.last_tsc, ra_slot);
  }
  const struct ct_frame *top = ct_encoder_top(encoder);
  if (which != 0 && top != NULL && top->ra_slot == ra_slot) {
    if (CT_UNLIKELY(has_rules(thread)) && which == CT_VALUE_RESULT) {
      rules_result(thread, top, number);
    }
    ct_encode_value(encoder, (uint8_t)which, number);
  }
}

__attribute__((cold, noinline)) static void
expect_no_return(struct ct_encoder *encoder, uint32_t ra_slot)
{
  for (struct ct_frame *frame = ct_encoder_top(encoder); frame != NULL && frame >= encoder->columns.frames; frame--) {
    if (is_outside_or_at(frame->ra_slot, ra_slot)) {
      frame->flags |= frame->ra_slot == ra_slot ? DRAIN_FRAME_BEFORE : 0;
      return;
    }
  }
}

__attribute__((cold, noinline)) static void
other(struct drain_thread *thread, uint64_t tsc, uint32_t fn, uint32_t ra_slot)
{
  if (drain_is_value(fn)) {
    value(thread, tsc, fn, ra_slot);
    return;
  }
  thread->hook_events[CT_HOOK_EVENT_OTHER]++;
  if ((fn & 0xf) == CT_OTHER_AWAY) {
    uint64_t length = (uint64_t)ra_slot << CT_AWAY_SHIFT;
    if ((fn >> 4) == CT_RING_AWAY_ROOM || (fn >> 4) == CT_RING_AWAY_HELD) {
      thread->waited += (fn >> 4) == CT_RING_AWAY_ROOM ? length : 0;
      ct_encode_away(thread->encoder, tsc > length ? tsc - length : 0, tsc, (uint8_t)(fn >> 4));
    }
    return;
  }
  if ((fn & 0xf) == CT_OTHER_TAIL_OUT) {
    tail_out(thread, tsc, ra_slot);
    return;
  }
  if ((fn & 0xf) == CT_OTHER_UNWIND) {
    if (is_on_stack(thread, ra_slot)) {
      leave_inside(thread, tsc, ra_slot);
    }
    return;
  }
  if ((fn & 0xf) == CT_OTHER_UNSEEN) {
    expect_no_return(thread->encoder, ra_slot);
    return;
  }
  const struct ct_frame *top;
  uint32_t value = fn >> 4;
  if ((fn & 0xf) == CT_OTHER_COPY) {
    thread->has_copy = true;
    thread->copy_lo = ra_slot;
    thread->copy_what = (uint8_t)value;
    return;
  }
  if ((fn & 0xf) == CT_OTHER_COPY_END) {
    if (thread->has_copy) {
      copy(thread, tsc, thread->copy_lo, ra_slot, value);
    }
    thread->has_copy = false;
    return;
  }
  if ((fn & 0xf) == CT_OTHER_STACK) {
    uint64_t length = (uint64_t)value * CT_PAGE_BYTES;
    thread->stack_low = ra_slot;
    thread->stack_length = length < UINT32_MAX ? (uint32_t)length : UINT32_MAX;
    thread->own_point = length == 0;
    /* What the thread does first may be a handler's, on another stack: of the frames nothing is known then. */
    while (thread->has_before && (top = ct_encoder_top(thread->encoder)) != NULL &&
           !is_on_stack(thread, top->ra_slot)) {
      leave(thread, tsc);
    }
    thread->has_before = false;
    remember_stack(thread, (struct drain_stack){ra_slot, thread->stack_length, ct_encoder_context(thread->encoder)});
    return;
  }
  if ((fn & 0xf) != CT_OTHER_SWITCH) {
    return;
  }
  thread->stack_length = UINT32_MAX;
  if (!thread->has_base) {
    thread->has_base = true;
    thread->base_context = value;
    return;
  }
  uint32_t context = value == thread->base_context ? 0 : value + 1;
  bool has_flows = thread->flows != NULL && thread->flows->stack == context;
  ct_encode_switch(thread->encoder, tsc, has_flows ? thread->flows->current : context);
}

void
drain_thread_open(struct drain_thread *thread, uint64_t tsc, const struct ct_drain_frame *frames, size_t count)
{
  for (size_t i = 0; i < count && !is_full(thread->encoder, thread->max_depth); i++) {
    ct_encode_enter(thread->encoder, tsc, frames[i].fn, frames[i].ra_slot)->flags |= DRAIN_FRAME_BEFORE;
    ct_encode_value(thread->encoder, CT_VALUE_BEFORE, 0);
    thread->has_before = true;
  }
  thread->first_clock = thread->last_clock =
      tsc; /* what the thread is off the processor from now on is in these calls */
}

static inline void
take_detail(struct drain_thread *thread, uint64_t tsc, uint32_t ra_slot)
{
  if (CT_UNLIKELY(thread->waiting_details.count != 0)) {
    drain_detail_take(thread, tsc, ra_slot);
  }
}

/* The point that was announced with the stack that it is on. */
static bool
is_own_point(struct drain_thread *thread)
{
  bool is = thread->stack_length == 0 && thread->own_point;
  thread->own_point = false;
  return is;
}

/* The events whose ra_slot says nothing about the stack that the thread is on. */
static bool
has_no_ra_slot(struct drain_thread *thread, uint32_t fn, const uint8_t *modes)
{
  return (fn & CT_FN_POINT_BIT) != 0
             ? modes[fn & CT_FN_MAX] == CT_HOOK_STACKLESS || is_own_point(thread)
             : (fn & 0xf) != CT_OTHER_TAIL_OUT && (fn & 0xf) != CT_OTHER_UNWIND && (fn & 0xf) != CT_OTHER_COPY &&
                   (fn & 0xf) != CT_OTHER_UNSEEN && !drain_is_value(fn);
}

static inline size_t
take_runs(struct drain_thread *thread, const struct ct_ring_event *events, size_t count, uint32_t function_count)
{
  size_t i = 0, taken = count;
  while (i < count && taken != 0) {
    taken = drain_take_run(thread, events + i, count - i, function_count);
    i += taken;
  }
  return i;
}

__attribute__((always_inline)) static inline void
take_events(struct drain_thread *thread, const struct ct_ring_event *events, size_t count, const uint8_t *modes,
            uint32_t function_count, const bool ruled)
{
  struct ct_encoder *encoder = thread->encoder;
  for (size_t i = 0; i < count; i++) {
    if (!ruled && !thread->has_gone && thread->waiting_details.count == 0) {
      i += take_runs(thread, events + i, count - i, function_count);
      if (i == count) {
        break;
      }
    }
    /* relaxed: each is read once, since the target can still write to it; what is checked is what is used */
    uint64_t word = __atomic_load_n(&events[i].word, __ATOMIC_RELAXED);
    uint64_t tsc = __atomic_load_n(&events[i].tsc, __ATOMIC_RELAXED);
    uint32_t ra_slot = (uint32_t)(word >> 32);
    uint32_t fn = (uint32_t)word >> CT_WORD_FN_SHIFT;
    unsigned kind = (unsigned)word >> CT_WORD_KIND_SHIFT & 3;
    uint64_t call;
    if (CT_UNLIKELY(fn >= function_count) &&
        (kind != CT_KIND_OTHER || ((fn & CT_FN_POINT_BIT) != 0 && (fn & CT_FN_MAX) >= function_count))) {
      continue; /* scribbled over by the target */
    }
    if (CT_UNLIKELY(!is_on_stack(thread, ra_slot)) && !(kind == CT_KIND_OTHER && has_no_ra_slot(thread, fn, modes))) {
      find_stack(thread, kind == CT_KIND_OTHER && drain_is_value(fn) ? encoder->columns.last_tsc : tsc, ra_slot);
    }
    if (CT_UNLIKELY(thread->has_gone) && (kind != CT_KIND_OTHER || (fn & CT_FN_POINT_BIT) != 0)) {
      reconcile_gone(thread, tsc, ra_slot);
    }
    switch (kind) {
    case CT_KIND_ENTER:
      leave_inside_or_at(thread, tsc, ra_slot);
      call = ruled ? begin_call(thread, tsc, fn, 1) : 0;
      if (CT_LIKELY(!is_full(encoder, thread->max_depth))) {
        struct ct_frame *frame = ct_encode_enter(encoder, tsc, fn, ra_slot);
        if (ruled) {
          number_frame(frame, call);
        }
      }
      take_detail(thread, tsc, ra_slot);
      break;
    case CT_KIND_RETURN:
      if (CT_UNLIKELY(thread->waiting_details.count != 0)) {
        leave_inside(thread, tsc, ra_slot);
        take_detail(thread, tsc, ra_slot);
      }
      give_back(thread, tsc, fn, ra_slot, ruled);
      break;
    case CT_KIND_TAIL:
      tail(thread, tsc, fn, ra_slot, modes[fn] != CT_HOOK_FULL);
      take_detail(thread, tsc, ra_slot);
      break;
    default:
      if ((fn & CT_FN_POINT_BIT) != 0 && CT_FN_WEIGHT(fn) != 0) {
        sampled(thread, tsc, fn, ra_slot);
      } else if ((fn & CT_FN_POINT_BIT) != 0) {
        thread->hook_events[CT_HOOK_EVENT_POINT]++;
        if (modes[fn & CT_FN_MAX] != CT_HOOK_STACKLESS) {
          leave_inside_or_at(thread, tsc, ra_slot);
        }
        if (ruled) {
          begin_call(thread, tsc, fn & CT_FN_MAX, 1);
        }
        if (!is_full(encoder, thread->max_depth)) {
          ct_encode_point(encoder, tsc, fn & CT_FN_MAX);
        }
      } else {
        other(thread, tsc, fn, ra_slot);
      }
      break;
    }
  }
}

void
drain_thread_events(struct drain_thread *thread, const struct ct_ring_event *events, size_t count, const uint8_t *modes,
                    uint32_t function_count)
{
  if (CT_UNLIKELY(has_rules(thread))) {
    const struct ct_windows_limits *limits = ct_windows_limits(thread->rules->windows);
    if (limits->pre_events != 0 || limits->post_events != 0) {
      (void)drain_rolls_take(&thread->rolls, limits, events, count);
    }
    take_events(thread, events, count, modes, function_count, true);
    drain_rolls_end(thread->rolls, thread->rules->windows, false);
  } else {
    take_events(thread, events, count, modes, function_count, false);
  }
}
