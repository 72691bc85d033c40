/* SPDX-License-Identifier: MIT */
/*
 * Ops to events. Enter and return, nearly all of the ops, come in an order that no branch
 * predictor knows, so they share one path without a branch: both outcomes are computed, the
 * stores that one of them does not want go where nobody reads (above the top of the stack, behind
 * the prediction table). The other ops take a branch.
 *
 * Bounds: unpacking has made sure that the block has as many deltas and ids as its ops need, and
 * ct_decode_batch that the stack has room for a batch of enters. Checked here: returns need a
 * frame, predictions an entry, the extra column its bytes.
 */
#include "trace/cursor_internal.h"

#include <stdlib.h>
#include <string.h>

#define UNLIKELY(x)  __builtin_expect(!!(x), 0)
#define CONTEXTS_MAX (1u << 22) /* more than that at one time is no program's doing */

bool
ct_stack_reserve(struct ct_stack *stack, uint64_t count)
{
  if (count <= stack->capacity)
    return true;
  uint64_t capacity = stack->capacity < 128 ? 256 : (uint64_t)stack->capacity * 2;
  if (capacity < count)
    capacity = count;
  if (count > CT_DEPTH_MAX + CT_BATCH_EVENTS)
    return false;
  struct ct_open_frame *old = stack->frames == NULL ? NULL : stack->frames - 1;
  struct ct_open_frame *frames = realloc(old, (capacity + 1) * sizeof(*frames));
  if (frames == NULL)
    return false;
  frames[0] = (struct ct_open_frame){.fn = CT_FUNCTION_NONE};
  stack->frames = frames + 1;
  stack->capacity = (uint32_t)capacity;
  return true;
}

/* The uncertain frames are always the outermost ones, so the walk ends at the first. */
static void
mark_uncertain(struct ct_stack *stack)
{
  for (uint32_t i = stack->count; i-- > 0 && !stack->frames[i].uncertain;)
    stack->frames[i].uncertain = 1;
}

/* Removes the top frame; one that is not known when the stack of known ones is empty. */
static bool
pop(struct ct_stack *stack, struct ct_open_frame *out)
{
  if (stack->count > 0) {
    *out = stack->frames[--stack->count];
    return true;
  }
  *out = (struct ct_open_frame){.fn = CT_FUNCTION_NONE, .uncertain = 1};
  if (stack->base == 0)
    return false;
  stack->base--;
  return true;
}

/* Puts a copy of the current stack away; its own memory goes on to serve the next context. */
static bool
save_stack(struct ct_cursor *c)
{
  struct ct_stack *stack = &c->stack;
  struct ct_saved_stack saved = {
      .context = c->context, .count = stack->count, .floor = stack->base, .losses = c->losses};
  if (stack->count == 0)
    return true;
  if (c->contexts.count >= CONTEXTS_MAX)
    return false;
  saved.frames = malloc(stack->count * sizeof(*stack->frames));
  if (saved.frames == NULL || ct_contexts_put(&c->contexts, &saved) != CT_OK) {
    free(saved.frames);
    return false;
  }
  memcpy(saved.frames, stack->frames, stack->count * sizeof(*stack->frames));
  return true;
}

/* depth: what the writer had in that context. */
static bool
switch_stack(struct ct_cursor *c, uint32_t context, uint32_t depth)
{
  struct ct_stack *stack = &c->stack;
  struct ct_saved_stack saved;
  if (!save_stack(c))
    return false;
  c->context = context;
  stack->count = 0;
  stack->base = depth;
  if (ct_contexts_take(&c->contexts, context, &saved)) {
    bool same = (uint64_t)saved.floor + saved.count == depth; /* else the frames are of another past */
    bool room = same && ct_stack_reserve(stack, (uint64_t)saved.count + CT_BATCH_EVENTS);
    if (room) {
      memcpy(stack->frames, saved.frames, saved.count * sizeof(*stack->frames));
      stack->count = saved.count;
      stack->base = saved.floor;
      if (saved.losses != c->losses)
        mark_uncertain(stack);
    }
    free(saved.frames);
    return room || !same;
  }
  return ct_stack_reserve(stack, CT_BATCH_EVENTS);
}

/* Reads a number of the extra column. */
static bool
get_extra(struct ct_cursor *c, uint64_t max, uint64_t *value)
{
  const uint8_t *p = ct_varint_get(c->extra, c->extra_end, value);
  if (p == NULL || *value > max)
    return false;
  c->extra = p;
  return true;
}

/* The ops without a fast path, with the cursor's fields up to date. False: damaged. */
static bool
decode_rare(struct ct_cursor *c, uint8_t op, struct ct_event *event)
{
  struct ct_open_frame frame;
  uint64_t context, depth;
  switch (op) {
  case CT_OP_LEFT:
    if (c->extra == c->extra_end || !pop(&c->stack, &frame))
      return false;
    event->kind = CT_EV_LEFT;
    event->reason = *c->extra++;
    event->fn = frame.fn;
    event->enter_tsc = frame.enter_tsc;
    event->uncertain = frame.uncertain != 0;
    break;
  case CT_OP_RETURN_ID:
    event->kind = CT_EV_RETURN;
    event->fn = *c->id++;
    if (!pop(&c->stack, &frame) || (frame.fn != event->fn && frame.fn != CT_FUNCTION_NONE))
      return false;
    event->enter_tsc = frame.enter_tsc;
    event->uncertain = frame.uncertain != 0;
    c->last = event->fn * 2 + 1;
    break;
  case CT_OP_RETURN_ORPHAN:
    event->kind = CT_EV_ORPHAN_RETURN;
    event->fn = *c->id++;
    c->last = event->fn * 2 + 1;
    break;
  case CT_OP_LOST:
    event->kind = CT_EV_LOST;
    if (!get_extra(c, UINT64_MAX, &event->value))
      return false;
    c->losses++;
    mark_uncertain(&c->stack);
    break;
  case CT_OP_SWITCH:
    event->kind = CT_EV_SWITCH;
    if (!get_extra(c, UINT32_MAX, &context) || !get_extra(c, CT_DEPTH_MAX, &depth) ||
        !switch_stack(c, (uint32_t)context, (uint32_t)depth))
      return false;
    event->value = context;
    break;
  case CT_OP_EXEC:
    event->kind = CT_EV_EXEC;
    c->stack.count = c->stack.base = 0;
    c->context = 0;
    ct_contexts_clear(&c->contexts);
    break;
  default:
    return false;
  }
  event->depth = c->stack.base + c->stack.count;
  return true;
}

/* TAIL and POINT of fn. */
static void
decode_tail_or_point(struct ct_stack *stack, bool point, struct ct_event *event)
{
  if (point) {
    event->kind = CT_EV_POINT;
    event->depth = stack->base + stack->count;
    return;
  }
  struct ct_open_frame old = {.fn = CT_FUNCTION_NONE};
  bool closed = pop(stack, &old);
  event->kind = CT_EV_TAIL;
  event->closed_fn = old.fn;
  event->enter_tsc = old.enter_tsc;
  event->uncertain = closed && old.uncertain;
  event->depth = stack->base + stack->count;
  stack->frames[stack->count++] = (struct ct_open_frame){.fn = event->fn, .enter_tsc = event->tsc};
}

/* A delta of three bytes or more; it ends within the column, which ends with a byte below 0x80. */
static const uint8_t *
get_long_delta(const uint8_t *p, uint64_t *delta)
{
  uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    uint8_t byte = *p++;
    if (shift < 64)
      value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80)
      break;
  }
  *delta = value;
  return p;
}

/* The last four bytes of an event in one store; reason is 0. */
static inline void
put_kind(struct ct_event *event, uint32_t kind, uint32_t uncertain)
{
  static_assert(offsetof(struct ct_event, kind) == 36 && sizeof(struct ct_event) == 40, "event");
  static_assert(offsetof(struct ct_event, uncertain) == 38, "event");
  uint32_t word = kind | uncertain << 16;
  memcpy((char *)event + offsetof(struct ct_event, kind), &word, sizeof(word));
}

/* What the loop keeps in registers; the cursor has it between batches and for the rare ops. */
struct decoder {
  const uint8_t *delta;
  const uint32_t *id;
  struct ct_open_frame *top; /* one past the innermost frame */
  uint64_t tsc;
  uint32_t last;
};

static void
decoder_load(struct decoder *d, const struct ct_cursor *c)
{
  *d = (struct decoder){c->delta, c->id, c->stack.frames + c->stack.count, c->tsc, c->last};
}

static void
decoder_store(const struct decoder *d, struct ct_cursor *c)
{
  c->delta = d->delta;
  c->id = d->id;
  c->stack.count = (uint32_t)(d->top - c->stack.frames);
  c->tsc = d->tsc;
  c->last = d->last;
}

/* An op that is neither enter nor return; d is up to date but for the op. */
static __attribute__((noinline)) bool
decode_other(struct ct_cursor *c, struct decoder *d, uint8_t op, struct ct_event *event)
{
  *event = (struct ct_event){.tsc = d->tsc, .closed_fn = CT_FUNCTION_NONE};
  decoder_store(d, c);
  bool ok = true;
  if (op <= CT_OP_POINT) {
    uint32_t *slot = &c->prediction[ct_prediction_slot(c->last)];
    event->fn = op == CT_OP_TAIL || op == CT_OP_POINT ? *c->id++ : *slot - 1;
    *slot = event->fn + 1;
    c->last = event->fn * 2;
    ok = event->fn != CT_FUNCTION_NONE;
    if (ok)
      decode_tail_or_point(&c->stack, op >= CT_OP_POINT_PREDICTED, event);
  } else {
    ok = decode_rare(c, op, event);
  }
  decoder_load(d, c);
  return ok;
}

size_t
ct_decode_batch(struct ct_cursor *c, bool *damaged)
{
  uint32_t count = c->header.ops - c->op < CT_BATCH_EVENTS ? c->header.ops - c->op : CT_BATCH_EVENTS;
  struct decoder d;
  struct ct_event *event = c->batch;
  const uint8_t *op_at = c->ops + c->op, *op_end = op_at + count;
  *damaged = !ct_stack_reserve(&c->stack, (uint64_t)c->stack.count + count);
  if (*damaged)
    return 0;
  decoder_load(&d, c);
  const struct ct_open_frame *bottom = c->stack.frames;
  uint32_t base = c->stack.base;
  for (; op_at < op_end; op_at++, event++) {
    uint32_t op = *op_at;
    uint16_t word;
    memcpy(&word, d.delta, sizeof(word)); /* the column has slack behind it */
    if (UNLIKELY((word & 0x8080) == 0x8080)) {
      uint64_t delta;
      d.delta = get_long_delta(d.delta, &delta);
      d.tsc += delta;
    } else {
      uint32_t more = (word >> 7) & 1;
      d.tsc += (word & 0x7f) | (((uint32_t)word >> 1) & (0u - more) & 0x3f80);
      d.delta += 1 + more;
    }
    if (UNLIKELY(op > CT_OP_ENTER)) {
      if (!decode_other(c, &d, (uint8_t)op, event)) {
        *damaged = true;
        break;
      }
      bottom = c->stack.frames;
      base = c->stack.base;
      continue;
    }
    uint32_t is_return = op == CT_OP_RETURN, has_id = op >> 1;
    const struct ct_open_frame *frame = d.top - 1;
    uint32_t slot = ct_prediction_slot(d.last);
    uint32_t entered = has_id ? *d.id : c->prediction[slot] - 1;
    uint32_t fn = is_return ? frame->fn : entered;
    if (UNLIKELY(fn == CT_FUNCTION_NONE)) { /* no prediction, or the entry below the bottom of the stack */
      *damaged = true;
      break;
    }
    d.id += has_id;
    event->tsc = d.tsc;
    event->enter_tsc = is_return ? frame->enter_tsc : 0;
    event->value = 0;
    event->fn = fn;
    event->closed_fn = CT_FUNCTION_NONE;
    event->depth = base + (uint32_t)(d.top - bottom) - is_return;
    put_kind(event, is_return ^ 1, frame->uncertain & (0u - is_return));
    c->prediction[is_return ? CT_PREDICTION_ENTRIES : slot] = fn + 1;
    *d.top = (struct ct_open_frame){.fn = fn, .enter_tsc = d.tsc};
    d.top += 1 - 2 * (int64_t)is_return;
    d.last = fn * 2 + is_return;
  }
  decoder_store(&d, c);
  c->op += (uint32_t)(event - c->batch);
  return (size_t)(event - c->batch);
}
