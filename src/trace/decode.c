/* SPDX-License-Identifier: MIT */
/*
 * Ops to events. Enter and return, nearly all of the ops, come in an order that no branch
 * predictor knows, so they share one path without a branch: both outcomes are computed, the
 * stores that one of them does not want go where nobody reads (above the top of the stack, after
 * the prediction table). The other ops take a branch; that of tail calls is in the same loop.
 *
 * Bounds: unpacking has made sure that the block has as many deltas and ids as its ops need, and
 * ct_decode_batch that the stack has room for a batch of enters. Checked here: returns need a
 * frame, predictions an entry, the extra column its bytes.
 */
#include "trace/cursor_internal.h"
#include "trace/ops.h"

#include "base/branch.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXTS_MAX (1u << 22) /* more than that at one time is no program's doing */

bool
ct_frame_stack_reserve(struct ct_frame_stack *stack, uint64_t count)
{
  if (count <= stack->capacity) {
    return true;
  }
  uint64_t capacity = stack->capacity < 128 ? 256 : (uint64_t)stack->capacity * 2;
  if (capacity < count) {
    capacity = count;
  }
  if (count > CT_DEPTH_MAX + CT_BATCH_EVENTS) {
    return false;
  }
  struct ct_open_frame *old = stack->frames == NULL ? NULL : stack->frames - 1;
  struct ct_open_frame *frames = realloc(old, (capacity + 1) * sizeof(*frames));
  if (frames == NULL) {
    return false;
  }
  frames[0] = (struct ct_open_frame){.fn = CT_FUNCTION_NONE};
  stack->frames = frames + 1;
  stack->capacity = (uint32_t)capacity;
  return true;
}

/* The uncertain frames are always the outermost ones, so the walk ends at the first. */
static void
mark_uncertain(struct ct_frame_stack *stack)
{
  for (uint32_t i = stack->count; i-- > 0 && !stack->frames[i].uncertain;) {
    stack->frames[i].uncertain = 1;
  }
}

/* Removes the top frame; one that is not known when the stack of known ones is empty. */
static bool
pop(struct ct_frame_stack *stack, struct ct_open_frame *out)
{
  if (stack->count > 0) {
    *out = stack->frames[--stack->count];
    return true;
  }
  *out = (struct ct_open_frame){.fn = CT_FUNCTION_NONE, .uncertain = 1};
  if (stack->base == 0) {
    return false;
  }
  stack->base--;
  return true;
}

/* Puts a copy of the current stack away; its own memory goes on to serve the next context. */
static bool
save_stack(struct ct_cursor *c)
{
  struct ct_frame_stack *stack = &c->stack;
  struct ct_saved_stack saved = {
      .context = c->context, .count = stack->count, .floor = stack->base, .losses = c->losses};
  if (stack->count == 0) {
    return true;
  }
  if (c->contexts.count >= CONTEXTS_MAX) {
    return false;
  }
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
  struct ct_frame_stack *stack = &c->stack;
  struct ct_saved_stack saved;
  if (!save_stack(c)) {
    return false;
  }
  c->context = context;
  stack->count = 0;
  stack->base = depth;
  if (ct_contexts_take(&c->contexts, context, &saved)) {
    bool same = (uint64_t)saved.floor + saved.count == depth; /* else the frames are of another past */
    bool room = same && ct_frame_stack_reserve(stack, (uint64_t)saved.count + CT_BATCH_EVENTS);
    if (room) {
      memcpy(stack->frames, saved.frames, saved.count * sizeof(*stack->frames));
      stack->count = saved.count;
      stack->base = saved.floor;
      if (saved.losses != c->losses) {
        mark_uncertain(stack);
      }
    }
    free(saved.frames);
    return room || !same;
  }
  return ct_frame_stack_reserve(stack, CT_BATCH_EVENTS);
}

/* Reads a number of the extra column. */
static bool
get_extra(struct ct_cursor *c, uint64_t max, uint64_t *value)
{
  const uint8_t *p = ct_varint_get(c->extra, c->extra_end, value);
  if (p == NULL || *value > max) {
    return false;
  }
  c->extra = p;
  return true;
}

/* The function of a call, from the ids or predicted. */
static bool
decode_call(struct ct_cursor *c, bool with_id, struct ct_event *event)
{
  uint32_t *slot = &c->prediction[ct_prediction_slot(c->last)];
  event->fn = with_id ? *c->id++ : *slot;
  *slot = event->fn;
  c->last = event->fn * 2;
  return event->fn != CT_FUNCTION_NONE;
}

/* UNWOUND and RETURN_ID: the top frame ends. */
static bool
decode_end(struct ct_cursor *c, uint8_t op, struct ct_event *event)
{
  struct ct_open_frame frame;
  if (op == CT_TRACE_OP_UNWOUND) {
    if (c->extra == c->extra_end || !pop(&c->stack, &frame)) {
      return false;
    }
    event->kind = CT_EV_UNWOUND;
    event->reason = *c->extra++;
    event->fn = frame.fn;
  } else {
    event->kind = CT_EV_RETURN;
    event->fn = *c->id++;
    if (!pop(&c->stack, &frame) || (frame.fn != event->fn && frame.fn != CT_FUNCTION_NONE)) {
      return false;
    }
    c->last = event->fn * 2 + 1;
  }
  event->enter_tsc = frame.enter_tsc;
  event->uncertain = frame.uncertain != 0;
  return true;
}

/* Of the top frame, whose depth it has. */
static bool
decode_value(struct ct_cursor *c, struct ct_event *event)
{
  bool known = c->stack.count > 0;
  if (c->extra == c->extra_end || (!known && c->stack.base == 0)) {
    return false;
  }
  event->kind = CT_EV_VALUE;
  event->reason = *c->extra++;
  if (!get_extra(c, UINT64_MAX, &event->value)) {
    return false;
  }
  event->fn = known ? c->stack.frames[c->stack.count - 1].fn : CT_FUNCTION_NONE;
  event->depth = c->stack.base + c->stack.count - 1;
  return true;
}

/* The same, by its difference from an earlier one: of a frame that the block knows. */
static bool
decode_near(struct ct_cursor *c, uint8_t op, struct ct_event *event)
{
  uint64_t near;
  if ((op == CT_TRACE_OP_NEAR && c->extra == c->extra_end) || c->stack.count == 0) {
    return false;
  }
  event->kind = CT_EV_VALUE;
  event->reason = op == CT_TRACE_OP_NEAR ? *c->extra++ : (uint8_t)(op - CT_TRACE_OP_NEAR);
  if (!get_extra(c, UINT64_MAX, &near)) {
    return false;
  }
  event->fn = c->stack.frames[c->stack.count - 1].fn;
  event->depth = c->stack.base + c->stack.count - 1;
  uint64_t *before = &c->near[ct_near_place(event->fn, event->reason)];
  event->value = *before = ct_near_value(near, *before);
  c->has_near = true;
  return true;
}

static bool
decode_away(struct ct_cursor *c, struct ct_event *event)
{
  uint64_t age;
  if (c->extra == c->extra_end) {
    return false;
  }
  event->kind = CT_EV_AWAY;
  event->reason = *c->extra++;
  if (!get_extra(c, event->tsc, &age) || !get_extra(c, event->tsc - age, &event->value)) {
    return false;
  }
  event->enter_tsc = event->tsc - age - event->value;
  event->fn = c->stack.count > 0 ? c->stack.frames[c->stack.count - 1].fn : CT_FUNCTION_NONE;
  return true;
}

static bool
decode_switch(struct ct_cursor *c, struct ct_event *event)
{
  uint64_t context, depth;
  if (!get_extra(c, UINT32_MAX, &context) || !get_extra(c, CT_DEPTH_MAX, &depth) ||
      !switch_stack(c, (uint32_t)context, (uint32_t)depth)) {
    return false;
  }
  event->kind = CT_EV_SWITCH;
  event->value = context;
  return true;
}

/* What has no function, and no frame of its own. */
static bool
decode_state(struct ct_cursor *c, uint8_t op, struct ct_event *event)
{
  if (op == CT_TRACE_OP_INTERVAL) {
    if (c->extra == c->extra_end || *c->extra > CT_INTERVAL_LOG2_MAX) {
      return false;
    }
    event->kind = CT_EV_INTERVAL;
    c->interval_log2 = *c->extra++;
    event->value = 1ull << c->interval_log2;
  } else if (op == CT_TRACE_OP_LOST) {
    if (!get_extra(c, UINT64_MAX, &event->value)) {
      return false;
    }
    event->kind = CT_EV_LOST;
    c->losses++;
    mark_uncertain(&c->stack);
  } else {
    event->kind = CT_EV_EXEC;
    c->stack.count = c->stack.base = 0;
    c->context = 0;
    ct_contexts_clear(&c->contexts);
  }
  return true;
}

static bool
decode_counted(struct ct_cursor *c, struct ct_event *event)
{
  uint64_t fn;
  if (!get_extra(c, CT_FUNCTION_ID_MAX, &fn) || !get_extra(c, INT64_MAX, &event->value)) {
    return false;
  }
  event->kind = CT_EV_COUNTED;
  event->fn = (uint32_t)fn;
  return true;
}

/* The ops without a fast path, with the cursor's fields up to date. False: damaged. */
static bool
decode_rare(struct ct_cursor *c, uint8_t op, struct ct_event *event)
{
  bool good = true;
  switch (op) {
  case CT_TRACE_OP_UNWOUND:
  case CT_TRACE_OP_RETURN_ID:
    good = decode_end(c, op, event);
    break;
  case CT_TRACE_OP_RETURN_ORPHAN:
    event->kind = CT_EV_ORPHAN_RETURN;
    event->fn = *c->id++;
    c->last = event->fn * 2 + 1;
    break;
  case CT_TRACE_OP_SAMPLED_PREDICTED:
  case CT_TRACE_OP_SAMPLED:
    event->kind = CT_EV_POINT;
    event->value = 1ull << c->interval_log2;
    good = decode_call(c, op == CT_TRACE_OP_SAMPLED, event);
    break;
  case CT_TRACE_OP_VALUE:
    return decode_value(c, event);
  case CT_TRACE_OP_NEAR:
  case CT_TRACE_OP_NEAR_1:
  case CT_TRACE_OP_NEAR_1 + 1:
  case CT_TRACE_OP_NEAR_3:
    return decode_near(c, op, event);
  case CT_TRACE_OP_AWAY:
    good = decode_away(c, event);
    break;
  case CT_TRACE_OP_COUNTED:
    good = decode_counted(c, event);
    break;
  case CT_TRACE_OP_SWITCH:
    good = decode_switch(c, event);
    break;
  case CT_TRACE_OP_INTERVAL:
  case CT_TRACE_OP_LOST:
  case CT_TRACE_OP_EXEC:
    good = decode_state(c, op, event);
    break;
  default:
    return false;
  }
  event->depth = c->stack.base + c->stack.count;
  return good;
}

/* TAIL and POINT of fn. */
static void
decode_tail_or_point(struct ct_frame_stack *stack, bool point, struct ct_event *event)
{
  if (point) {
    event->kind = CT_EV_POINT;
    event->value = 1;
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
const uint8_t *
ct_ops_long_delta(const uint8_t *p, uint64_t *delta)
{
  uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    uint8_t byte = *p++;
    if (shift < 64) {
      value |= (uint64_t)(byte & 0x7f) << shift;
    }
    if (byte < 0x80) {
      break;
    }
  }
  *delta = value;
  return p;
}

/* Two fields of 32 bits in one store; the number of stores is what bounds the loop below. */
static inline void
put_pair(void *field, uint32_t low, uint32_t high)
{
  uint64_t word = low | (uint64_t)high << 32;
  memcpy(field, &word, sizeof(word));
}

static_assert(offsetof(struct ct_event, fn) == 24 && offsetof(struct ct_event, closed_fn) == 28, "one store");
static_assert(offsetof(struct ct_event, depth) == 32 && offsetof(struct ct_event, kind) == 36, "one store");
static_assert(offsetof(struct ct_event, uncertain) == 38 && sizeof(struct ct_event) == 40, "one store");
static_assert(offsetof(struct ct_open_frame, fn) == 0 && offsetof(struct ct_open_frame, uncertain) == 4, "one store");

/* An op that is neither enter nor return, with the cursor up to date but for the op. */
static __attribute__((noinline)) bool
decode_other(struct ct_cursor *c, uint8_t op, struct ct_event *event)
{
  *event = (struct ct_event){.tsc = c->tsc, .closed_fn = CT_FUNCTION_NONE};
  if (op > CT_TRACE_OP_POINT) {
    return decode_rare(c, op, event);
  }
  if (!decode_call(c, op == CT_TRACE_OP_TAIL || op == CT_TRACE_OP_POINT, event)) {
    return false;
  }
  decode_tail_or_point(&c->stack, op >= CT_TRACE_OP_POINT_PREDICTED, event);
  return true;
}

/* One function, longer than others: its state is in registers from the first event of the batch to the last. */
size_t
ct_decode_batch(struct ct_cursor *c, bool *damaged)
{
  uint32_t count = c->header.ops - c->op < c->limit ? c->header.ops - c->op : c->limit;
  *damaged = !ct_frame_stack_reserve(&c->stack, (uint64_t)c->stack.count + count);
  if (*damaged) {
    return 0;
  }
  struct ct_event *event = c->batch;
  const uint8_t *op_at = c->ops + c->op, *op_end = op_at + count;
  const uint8_t *delta_at = c->delta;
  const uint32_t *id = c->id;
  struct ct_open_frame *bottom = c->stack.frames, *top = bottom + c->stack.count;
  uint32_t *const prediction = c->prediction;
  uint32_t base = c->stack.base, last = c->last;
  uint64_t tsc = c->tsc;
  for (; op_at < op_end; op_at++, event++) {
    uint32_t op = *op_at;
    uint64_t delta;
    const uint8_t *delta_before = delta_at;
    delta_at = ct_ops_delta(delta_at, &delta);
    tsc += delta;
    if (op > CT_TRACE_OP_ENTER && op <= CT_TRACE_OP_TAIL && top != bottom) {
      uint32_t *slot = &prediction[ct_prediction_slot(last)];
      struct ct_open_frame *frame = top - 1;
      uint32_t with_id = op == CT_TRACE_OP_TAIL, if_id = 0u - with_id;
      uint32_t fn = (*id & if_id) | (*slot & ~if_id);
      if (CT_UNLIKELY(fn == CT_FUNCTION_NONE)) {
        *damaged = true;
        break;
      }
      id += with_id;
      event->tsc = tsc;
      event->enter_tsc = frame->enter_tsc;
      event->value = 0;
      put_pair((char *)event + offsetof(struct ct_event, fn), fn, frame->fn);
      put_pair((char *)event + offsetof(struct ct_event, depth), base + (uint32_t)(top - bottom) - 1,
               CT_EV_TAIL | frame->uncertain << 16);
      *slot = fn;
      put_pair(frame, fn, 0);
      frame->enter_tsc = tsc;
      last = fn * 2;
      continue;
    }
    if (CT_UNLIKELY(op > CT_TRACE_OP_ENTER)) {
      if (!ct_op_has_time((uint8_t)op)) {
        tsc -= delta;
        delta_at = delta_before;
      }
      c->delta = delta_at;
      c->id = id;
      c->stack.count = (uint32_t)(top - bottom);
      c->tsc = tsc;
      c->last = last;
      if (!decode_other(c, (uint8_t)op, event)) {
        *damaged = true;
        goto count_ops;
      }
      id = c->id;
      bottom = c->stack.frames;
      top = bottom + c->stack.count;
      base = c->stack.base;
      last = c->last;
      continue;
    }
    /* Masks and not conditions, which the compiler would turn into branches. */
    uint32_t is_return = (op - 1) >> 31, with_id = op >> 1;
    uint32_t if_return = 0u - is_return, if_id = 0u - with_id, if_predicted = 0u - (op & 1);
    const struct ct_open_frame *frame = top - 1;
    uint32_t slot = ct_prediction_slot(last);
    uint32_t fn = (frame->fn & if_return) | (*id & if_id) | (prediction[slot] & if_predicted);
    if (CT_UNLIKELY(fn == CT_FUNCTION_NONE)) { /* no prediction, or the entry below the bottom of the stack */
      *damaged = true;
      break;
    }
    id += with_id;
    event->tsc = tsc;
    event->enter_tsc = frame->enter_tsc & (0ull - is_return);
    event->value = 0;
    put_pair((char *)event + offsetof(struct ct_event, fn), fn, CT_FUNCTION_NONE);
    put_pair((char *)event + offsetof(struct ct_event, depth), base + (uint32_t)(top - bottom) - is_return,
             (is_return ^ 1) | (frame->uncertain & if_return) << 16);
    prediction[(slot & ~if_return) | (CT_PREDICTION_ENTRIES & if_return)] = fn;
    put_pair(top, fn, 0);
    top->enter_tsc = tsc;
    top += 1 - 2 * (int64_t)is_return;
    last = fn * 2 + is_return;
  }
  c->delta = delta_at;
  c->id = id;
  c->stack.count = (uint32_t)(top - bottom);
  c->tsc = tsc;
  c->last = last;
count_ops:
  c->op += (uint32_t)(event - c->batch);
  return (size_t)(event - c->batch);
}

/* ---- ops for others ---- */

bool
ct_cursor_ops(struct ct_cursor *c, uint32_t few, struct ct_ops *ops)
{
  if (c->atf != NULL || c->trace->has_range || c->pending_next < c->pending_count || c->single_count != 0 ||
      c->state != CT_CURSOR_OK) {
    return false;
  }
  if (c->op >= c->header.ops) { /* the next block begins with events, which need not be a third of it */
    c->few = few;
    return false;
  }
  *ops = (struct ct_ops){.op = c->ops + c->op,
                         .end = c->ops + c->header.ops,
                         .delta = c->delta,
                         .id = c->id,
                         .extra = c->extra,
                         .extra_end = c->extra_end,
                         .prediction = c->prediction,
                         .near = c->near,
                         .last = c->last,
                         .tsc = c->tsc,
                         .ordinal = c->next_ordinal,
                         .frames = c->stack.frames,
                         .count = c->stack.count,
                         .base = c->stack.base};
  return true;
}

void
ct_cursor_few(struct ct_cursor *c, uint32_t events)
{
  c->few = events;
}

int
ct_cursor_took(struct ct_cursor *c, const struct ct_ops *ops, uint32_t kept,
               struct ct_open_frame (*frame)(const void *arg, uint32_t depth), const void *arg)
{
  if (!ct_frame_stack_reserve(&c->stack, ops->count)) {
    return CT_ENOMEM;
  }
  for (uint32_t i = kept; i < ops->count; i++) {
    c->stack.frames[i] = frame(arg, c->stack.base + i);
  }
  c->stack.count = ops->count;
  c->op = (uint32_t)(ops->op - c->ops);
  c->delta = ops->delta;
  c->id = ops->id;
  c->extra = ops->extra;
  c->last = ops->last;
  c->has_near |= ops->has_near;
  c->tsc = ops->tsc;
  c->batch_ordinal = c->next_ordinal = ops->ordinal;
  return CT_OK;
}
