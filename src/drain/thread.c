/* SPDX-License-Identifier: MIT */
/*
 * Rebuilding calls from (kind, function, slot). The slot of a frame is the low half of the address of its
 * return address, so frames further in have lower slots; halves compare by their signed difference, which
 * is right for stacks below 2 GiB.
 *
 *   enter at S:   frames with slot <= S were left (longjmp, exception) without a return; then open the frame.
 *   tail at S:    frames with slot < S were left; the frame at S ends by the tail call, the new one takes its place
 *                 and will be closed by the frame's one return, which names the function first entered (root_fn).
 *   return at S:  frames with slot < S were left; the frame at S returns. No frame at S: its enter is not in the trace.
 *   point at S:   like enter, but opens no frame. Of a loose hook (CT_HOOK_LOOSE) the slot says nothing.
 *   light at S:   an event of CT_HOOK_LIGHT: frames with slot < S were left. The frame at S, if there is one, may have
 *                 gone on here by a tail jump; then its return is still to come.
 *   value at S:   of the frame at S, by its enter or before its return; it says no time of its own.
 *   tail out at S: frames with slot < S were left; the frame at S ends by a tail call to an excluded function.
 *
 * A slot that is not on the stack of the last switch is on one of those before: a signal handler that ran on its own
 * stack interrupted the hook between its look at the stack and the event. The event counts for the stack it is on.
 * Where slots of both would look alike, each call on the handlers' stack is a point behind a switch, and all else is
 * not theirs.
 *
 * A call that would be deeper than max_depth opens no frame, and what it calls neither. Its return finds no frame at
 * its slot, which lies further in than the innermost frame, and is left out too.
 */
#include "drain/thread.h"

#include <contrail/trace.h> /* enum ct_left_reason */

#include <string.h>

static inline bool
is_outside_or_at(uint32_t slot, uint32_t top_slot)
{
  return (int32_t)(slot - top_slot) >= 0;
}

static inline bool
is_outside(uint32_t slot, uint32_t top_slot)
{
  return (int32_t)(slot - top_slot) > 0;
}

/* No room for another frame. */
static inline bool
is_full(const struct ct_encoder *encoder, uint32_t max_depth)
{
  return (size_t)((const char *)encoder->top - (const char *)encoder->frames) >=
         (size_t)max_depth * sizeof(struct ct_frame);
}

__attribute__((cold, noinline)) static void
leave(struct ct_encoder *encoder, uint64_t tsc)
{
  const struct ct_frame *top = ct_encoder_top(encoder);
  ct_encode_left(encoder, tsc, (top->flags & CT_FRAME_UNCERTAIN) != 0 ? CT_LEFT_LOST : CT_LEFT_UNWOUND);
}

static inline void
leave_inside(struct ct_encoder *encoder, uint64_t tsc, uint32_t slot)
{
  const struct ct_frame *top;
  while ((top = ct_encoder_top(encoder)) != NULL && CT_UNLIKELY(is_outside(slot, top->slot))) {
    leave(encoder, tsc);
  }
}

static inline void
leave_inside_or_at(struct ct_encoder *encoder, uint64_t tsc, uint32_t slot)
{
  const struct ct_frame *top;
  while ((top = ct_encoder_top(encoder)) != NULL && CT_UNLIKELY(is_outside_or_at(slot, top->slot))) {
    leave(encoder, tsc);
  }
}

static void
tail(struct drain_thread *thread, uint64_t tsc, uint32_t fn, uint32_t slot, bool enter_only)
{
  struct ct_encoder *encoder = thread->encoder;
  leave_inside(encoder, tsc, slot);
  struct ct_frame *top = ct_encoder_top(encoder);
  bool replaces = top != NULL && top->slot == slot;
  if (enter_only) {
    if (replaces) {
      ct_encode_left(encoder, tsc, CT_LEFT_TAIL);
    }
    if (!is_full(encoder, thread->max_depth)) {
      ct_encode_point(encoder, tsc, fn);
    }
  } else if (replaces) {
    ct_encode_tail(encoder, tsc, fn);
  } else if (!is_full(encoder, thread->max_depth)) {
    ct_encode_enter(encoder, tsc, fn);
    ct_encoder_top(encoder)->slot = slot;
    ct_encoder_top(encoder)->root_fn = UINT32_MAX; /* the frame that jumped here is not in the trace */
  }
}

__attribute__((noinline)) static void
light(struct drain_thread *thread, uint64_t tsc, uint32_t fn, uint32_t slot)
{
  uint32_t log2 = CT_FN_WEIGHT(fn) - 1;
  leave_inside(thread->encoder, tsc, slot);
  if (log2 <= CT_SAMPLE_LOG2_MAX && !is_full(thread->encoder, thread->max_depth)) {
    thread->lights++;
    ct_encode_sampled(thread->encoder, tsc, fn & CT_FN_MAX, log2);
  }
}

static void
give_back(struct drain_thread *thread, uint64_t tsc, uint32_t fn, uint32_t slot)
{
  struct ct_encoder *encoder = thread->encoder;
  leave_inside(encoder, tsc, slot);
  const struct ct_frame *top = ct_encoder_top(encoder);
  if (CT_LIKELY(top != NULL && top->slot == slot && (top->root_fn == fn || top->root_fn == UINT32_MAX))) {
    ct_encode_return(encoder, tsc);
  } else if (top == NULL || top->slot == slot || !is_full(encoder, thread->max_depth)) {
    ct_encode_orphan_return(encoder, tsc, fn);
  }
}

__attribute__((cold, noinline)) static void
tail_out(struct ct_encoder *encoder, uint64_t tsc, uint32_t slot)
{
  leave_inside(encoder, tsc, slot);
  const struct ct_frame *top = ct_encoder_top(encoder);
  if (top != NULL && top->slot == slot) {
    ct_encode_left(encoder, tsc, CT_LEFT_TAIL);
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

/* Goes to the stack that the slot is on, if it is one of those known. */
__attribute__((cold, noinline)) static void
find_stack(struct drain_thread *thread, uint64_t tsc, uint32_t slot)
{
  for (uint32_t i = 0; i < thread->stack_count; i++) {
    struct drain_stack stack = thread->stacks[i];
    if (slot - stack.low < stack.length) {
      thread->stack_low = stack.low;
      thread->stack_length = stack.length;
      remember_stack(thread, stack);
      ct_encode_switch(thread->encoder, tsc, stack.context);
      return;
    }
  }
}

static inline bool
is_on_stack(const struct drain_thread *thread, uint32_t slot)
{
  return slot - thread->stack_low < thread->stack_length || thread->stack_length == UINT32_MAX;
}

static inline bool
is_value(uint32_t fn)
{
  return (fn & 0xf) >= CT_OTHER_ARG_1 && (fn & 0xf) <= CT_OTHER_RESULT && (fn & CT_FN_POINT_BIT) == 0;
}

/* An argument or the result of the call at the slot, if that has a frame. */
static void
value(struct drain_thread *thread, uint64_t number, uint32_t fn, uint32_t slot)
{
  struct ct_encoder *encoder = thread->encoder;
  if ((fn & 0xf) == CT_OTHER_RESULT) {
    leave_inside(encoder, encoder->last_tsc, slot);
  }
  const struct ct_frame *top = ct_encoder_top(encoder);
  if (top != NULL && top->slot == slot) {
    ct_encode_value(encoder, (uint8_t)((fn & 0xf) - CT_OTHER_ARG_1 + CT_VALUE_ARG_1), number);
  }
}

__attribute__((cold, noinline)) static void
other(struct drain_thread *thread, uint64_t tsc, uint32_t fn, uint32_t slot)
{
  if (is_value(fn)) {
    value(thread, tsc, fn, slot);
    return;
  }
  if ((fn & 0xf) == CT_OTHER_TAIL_OUT) {
    tail_out(thread->encoder, tsc, slot);
    return;
  }
  if ((fn & 0xf) == CT_OTHER_UNWIND) {
    if (is_on_stack(thread, slot)) {
      leave_inside(thread->encoder, tsc, slot);
    }
    return;
  }
  uint32_t value = fn >> 4;
  if ((fn & 0xf) == CT_OTHER_STACK) {
    uint64_t length = (uint64_t)value * CT_PAGE_BYTES;
    thread->stack_low = slot;
    thread->stack_length = length < UINT32_MAX ? (uint32_t)length : UINT32_MAX;
    thread->own_point = length == 0;
    remember_stack(thread, (struct drain_stack){slot, thread->stack_length, ct_encoder_context(thread->encoder)});
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
  ct_encode_switch(thread->encoder, tsc, value == thread->base_context ? 0 : value + 1);
}

/* The point that was announced with the stack that it is on. */
static bool
is_own_point(struct drain_thread *thread)
{
  bool is = thread->stack_length == 0 && thread->own_point;
  thread->own_point = false;
  return is;
}

/* The events whose slot says nothing about the stack that the thread is on. */
static bool
has_no_slot(struct drain_thread *thread, uint32_t fn, const uint8_t *modes)
{
  return (fn & CT_FN_POINT_BIT) != 0
             ? modes[fn & CT_FN_MAX] == CT_HOOK_LOOSE || is_own_point(thread)
             : (fn & 0xf) != CT_OTHER_TAIL_OUT && (fn & 0xf) != CT_OTHER_UNWIND && !is_value(fn);
}

void
drain_thread_events(struct drain_thread *thread, const struct ct_ring_event *events, size_t count, const uint8_t *modes,
                    uint32_t function_count)
{
  struct ct_encoder *encoder = thread->encoder;
  for (size_t i = 0; i < count; i++) {
    uint64_t word = events[i].word;
    uint64_t tsc = events[i].tsc;
    uint32_t slot = (uint32_t)(word >> 32);
    uint32_t fn = (uint32_t)word >> CT_WORD_FN_SHIFT;
    unsigned kind = (unsigned)word >> CT_WORD_KIND_SHIFT & 3;
    if (CT_UNLIKELY(fn >= function_count) &&
        (kind != CT_KIND_OTHER || ((fn & CT_FN_POINT_BIT) != 0 && (fn & CT_FN_MAX) >= function_count))) {
      continue; /* scribbled over by the target */
    }
    if (CT_UNLIKELY(!is_on_stack(thread, slot)) && !(kind == CT_KIND_OTHER && has_no_slot(thread, fn, modes))) {
      find_stack(thread, kind == CT_KIND_OTHER && is_value(fn) ? encoder->last_tsc : tsc, slot);
    }
    switch (kind) {
    case CT_KIND_ENTER:
      leave_inside_or_at(encoder, tsc, slot);
      if (CT_LIKELY(!is_full(encoder, thread->max_depth))) {
        ct_encode_enter(encoder, tsc, fn);
        encoder->top[-1].slot = slot;
      }
      break;
    case CT_KIND_RETURN:
      give_back(thread, tsc, fn, slot);
      break;
    case CT_KIND_TAIL:
      tail(thread, tsc, fn, slot, modes[fn] != CT_HOOK_FULL);
      break;
    default:
      if ((fn & CT_FN_POINT_BIT) != 0 && CT_FN_WEIGHT(fn) != 0) {
        light(thread, tsc, fn, slot);
      } else if ((fn & CT_FN_POINT_BIT) != 0) {
        if (modes[fn & CT_FN_MAX] != CT_HOOK_LOOSE) {
          leave_inside_or_at(encoder, tsc, slot);
        }
        if (!is_full(encoder, thread->max_depth)) {
          ct_encode_point(encoder, tsc, fn & CT_FN_MAX);
        }
      } else {
        other(thread, tsc, fn, slot);
      }
      break;
    }
  }
}
