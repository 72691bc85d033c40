/* SPDX-License-Identifier: MIT */
/*
 * What the builder of spans knows between two blocks, as bytes, and a builder that goes on from there. All numbers are
 * varints:
 *
 *   clock     now, off, taken, off since, off until, own until, in gap, gap since, gap ticks
 *   stream    tsc of the last event, ordinal of the next call, events, lost
 *   stacks    how many, context of the current one; for each: context, depth of the first frame, away since, if it is
 *             how long the thread has been off the processor since then, what unwind_reason.h knows, how many frames,
 *             and for each frame, relative to the one before it:
 *             function, flags, ordinal, enter, began, off, child ticks, and how long before it its function was on the
 *             thread's stacks at all, in own time and off the processor
 *
 * Differences are modulo 2^64, so nothing has to be ordered for them to come back as they were; what is nearly ordered
 * is short.
 */
#include "span/spans_internal.h"

#include "trace/format.h"
#include "trace/ops.h"

#include <stdlib.h>

enum { VARINT_MAX = 10 };

int
ct_span_bytes_reserve(struct ct_span_bytes *bytes, size_t more)
{
  if (bytes->capacity - bytes->size >= more) {
    return 0;
  }
  size_t capacity = bytes->capacity < 512 ? 1024 : bytes->capacity * 2;
  capacity = capacity - bytes->size < more ? bytes->size + more : capacity;
  uint8_t *data = realloc(bytes->data, capacity);
  if (data == NULL) {
    return CT_ENOMEM;
  }
  bytes->data = data;
  bytes->capacity = capacity;
  return 0;
}

int
ct_span_bytes_put(struct ct_span_bytes *bytes, uint64_t value)
{
  if (ct_span_bytes_reserve(bytes, VARINT_MAX) != 0) {
    return CT_ENOMEM;
  }
  bytes->size = (size_t)(ct_varint_put(bytes->data + bytes->size, value) - bytes->data);
  return 0;
}

/* ---- saving ---- */

struct saving {
  struct ct_spans *spans;
  struct ct_span_bytes *bytes;
  uint64_t stacks;
  bool failed;
};

static void
put(struct saving *s, uint64_t value)
{
  s->failed |= ct_span_bytes_put(s->bytes, value) != 0;
}

/* A difference that is small either way. */
static void
put_signed(struct saving *s, uint64_t difference)
{
  put(s, difference << 1 ^ (uint64_t)((int64_t)difference >> 63));
}

static void
put_landing(struct saving *s, const struct ct_span_landing *landing)
{
  put(s, landing->reason);
  if (landing->reason != 0) {
    put(s, landing->depth);
    put(s, landing->identity);
  }
}

static void
put_frames(struct saving *s, const struct ct_span_stack *stack)
{
  struct ct_span_frame before = {0};
  for (uint32_t i = 0; i < stack->count; i++) {
    const struct ct_span_frame *frame = &stack->frames[i];
    const struct ct_span_presence *present = ct_spans_presence(s->spans, frame->fn);
    put(s, frame->fn);
    put(s, frame->flags);
    put_signed(s, frame->ordinal - before.ordinal);
    put_signed(s, frame->enter_tsc - before.enter_tsc);
    put_signed(s, frame->began - before.began);
    put_signed(s, frame->off - before.off);
    put(s, frame->child_ticks);
    put(s, frame->began - present->since);
    put(s, frame->off - present->off_since);
    before = *frame;
  }
}

static bool
is_worth_keeping(const struct ct_span_stack *stack)
{
  return stack->count != 0 || stack->base != 0 || stack->away_since != 0 || stack->unwind_reason != 0 ||
         stack->arrived_by != 0 || stack->landing_count != 0 || stack->pending.reason != 0;
}

static int
count_stack(struct ct_span_stack *stack, void *arg)
{
  struct saving *s = arg;
  s->stacks += is_worth_keeping(stack);
  return 0;
}

static int
put_stack(struct ct_span_stack *stack, void *arg)
{
  struct saving *s = arg;
  if (!is_worth_keeping(stack)) {
    return 0;
  }
  put(s, stack->context);
  put(s, stack->base);
  put(s, stack->away_since);
  if (stack->away_since != 0) {
    put(s, s->spans->clock.off - stack->away_off);
  }
  put(s, stack->unwind_reason);
  if (stack->unwind_reason != 0) {
    put(s, stack->unwound_tsc);
    put(s, stack->unwound_depth);
  }
  put(s, stack->arrived_by);
  if (stack->arrived_by != 0) {
    put(s, stack->arrived_depth);
  }
  put_landing(s, &stack->pending);
  put(s, stack->landing_count);
  for (uint32_t i = 0; i < stack->landing_count; i++) {
    put_landing(s, &stack->landings[i]);
  }
  put(s, stack->count);
  put_frames(s, stack);
  return 0;
}

int
ct_spans_save(struct ct_spans *spans, struct ct_span_bytes *bytes)
{
  struct saving s = {.spans = spans, .bytes = bytes};
  const struct ct_span_clock *clock = &spans->clock;
  const uint64_t head[] = {clock->now,       clock->off,          clock->taken,     clock->off_since, clock->off_until,
                           clock->own_until, clock->in_gap,       clock->gap_since, clock->gap_ticks, spans->last_tsc,
                           spans->ordinal,   spans->total_events, spans->lost};
  for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++) {
    put(&s, head[i]);
  }
  ct_span_stacks_each(&spans->stacks, count_stack, &s);
  put(&s, s.stacks);
  put(&s, spans->stacks.current->context);
  ct_span_stacks_each(&spans->stacks, put_stack, &s);
  return s.failed ? CT_ENOMEM : 0;
}

/* ---- restoring ---- */

struct restoring {
  struct ct_spans *spans; /* NULL: somebody else's stacks and clock */
  struct ct_span_stacks *stacks;
  struct ct_span_clock *clock;
  uint64_t last_tsc, ordinal, events, lost;
  const uint8_t *at, *end;
  int code; /* CT_EFORMAT or CT_ENOMEM once something was wrong; numbers are 0 from there on */
};

static uint64_t
take(struct restoring *r)
{
  uint64_t value = 0;
  const uint8_t *next = r->code == 0 ? ct_varint_get(r->at, r->end, &value) : NULL;
  if (next == NULL) {
    r->code = r->code != 0 ? r->code : CT_EFORMAT;
    return 0;
  }
  r->at = next;
  return value;
}

static uint64_t
take_signed(struct restoring *r)
{
  uint64_t value = take(r);
  return value >> 1 ^ (0 - (value & 1));
}

static uint64_t
take_at_most(struct restoring *r, uint64_t most)
{
  uint64_t value = take(r);
  if (value > most) {
    r->code = CT_EFORMAT;
    return 0;
  }
  return value;
}

static struct ct_span_landing
take_landing(struct restoring *r)
{
  struct ct_span_landing landing = {.reason = (uint8_t)take_at_most(r, CT_SPAN_ENDS)};
  if (landing.reason != 0) {
    landing.depth = (uint32_t)take_at_most(r, UINT32_MAX);
    landing.identity = take(r);
  }
  return landing;
}

static void
take_frames(struct restoring *r, struct ct_span_stack *stack)
{
  struct ct_span_frame before = {0};
  for (uint64_t count = take_at_most(r, UINT32_MAX); count > 0 && r->code == 0; count--) {
    struct ct_span_frame *frame = ct_span_stack_push(stack);
    if (frame == NULL) {
      r->code = CT_ENOMEM;
      return;
    }
    frame->node = frame->last = CT_TREE_NONE;
    frame->fn = (uint32_t)take_at_most(r, UINT32_MAX);
    frame->flags = (uint32_t)take_at_most(r, UINT32_MAX);
    frame->ordinal = before.ordinal + take_signed(r);
    frame->enter_tsc = before.enter_tsc + take_signed(r);
    frame->began = before.began + take_signed(r);
    frame->off = before.off + take_signed(r);
    frame->child_ticks = take(r);
    uint64_t earlier = take(r), off_earlier = take(r);
    if (r->spans != NULL) {
      struct ct_span_presence *present = ct_spans_presence(r->spans, frame->fn);
      present->frames++;
      present->since = frame->began - earlier;
      present->off_since = frame->off - off_earlier;
    }
    before = *frame;
  }
}

static void
take_stack(struct restoring *r)
{
  struct ct_span_stacks *stacks = r->stacks;
  uint64_t context = take(r);
  if (r->code == 0 && ct_span_stacks_switch(stacks, context, 0) != 0) {
    r->code = CT_ENOMEM;
    return;
  }
  struct ct_span_stack *stack = stacks->current;
  if (stack->count != 0) { /* it was there already */
    r->code = CT_EFORMAT;
    return;
  }
  stack->base = (uint32_t)take_at_most(r, UINT32_MAX);
  uint64_t away_since = take(r), away_off = away_since != 0 ? take(r) : 0;
  stack->away_off = r->clock->off - away_off;
  stack->unwind_reason = (uint8_t)take_at_most(r, CT_SPAN_ENDS);
  if (stack->unwind_reason != 0) {
    stack->unwound_tsc = take(r);
    stack->unwound_depth = (uint32_t)take_at_most(r, UINT32_MAX);
  }
  stack->arrived_by = (uint8_t)take_at_most(r, CT_SPAN_ENDS);
  if (stack->arrived_by != 0) {
    stack->arrived_depth = (uint32_t)take_at_most(r, UINT32_MAX);
  }
  stack->pending = take_landing(r);
  stack->landing_count = (uint8_t)take_at_most(r, CT_SPAN_LANDINGS);
  for (uint32_t i = 0; i < stack->landing_count; i++) {
    stack->landings[i] = take_landing(r);
  }
  take_frames(r, stack);
  stack->away_since = away_since;
}

/* Functions that were on the stacks are so no more. */
static int
forget_frames(struct ct_span_stack *stack, void *arg)
{
  for (uint32_t i = 0; i < stack->count; i++) {
    *ct_spans_presence(arg, stack->frames[i].fn) = (struct ct_span_presence){0};
  }
  return 0;
}

static void
reset(struct ct_spans *spans)
{
  ct_span_stacks_each(&spans->stacks, forget_frames, spans);
  ct_span_stacks_clear(&spans->stacks);
  ct_span_clock_init(&spans->clock, spans->trace, spans->clock.time);
  spans->event_count = spans->event_pos = spans->count = spans->single_count = 0;
  spans->last_tsc = spans->total_events = spans->lost = spans->marks = spans->ordinal = spans->before = 0;
  spans->ended = spans->drained = spans->stopped = false;
  spans->stop_offset = spans->end_offset = UINT64_MAX;
}

static int
take_state(struct restoring *r)
{
  struct ct_span_clock *clock = r->clock;
  clock->now = take(r);
  clock->off = take(r);
  clock->taken = take(r);
  clock->off_since = take(r);
  clock->off_until = take(r);
  clock->own_until = take(r);
  clock->in_gap = take_at_most(r, 1) != 0;
  clock->gap_since = take(r);
  clock->gap_ticks = take(r);
  r->last_tsc = take(r);
  r->ordinal = take(r);
  r->events = take(r);
  r->lost = take(r);
  uint64_t stacks = take(r), current = take(r);
  for (uint64_t i = 0; i < stacks && r->code == 0; i++) {
    struct ct_span_stack *left = r->stacks->current;
    uint64_t away_since = left->away_since;
    take_stack(r);
    if (left != r->stacks->current && left->count != 0) {
      left->away_since = away_since; /* it is not left now: that was when it was said to be */
    }
  }
  if (r->code == 0 && r->at != r->end) {
    r->code = CT_EFORMAT;
  }
  struct ct_span_stack *left = r->stacks->current;
  uint64_t away_since = left->away_since;
  if (r->code == 0 && ct_span_stacks_switch(r->stacks, current, 0) != 0) {
    r->code = CT_ENOMEM;
  }
  if (left != r->stacks->current && left->count != 0) {
    left->away_since = away_since;
  }
  return r->code;
}

static int
restore_state(struct ct_spans *spans, const uint8_t *bytes, size_t size)
{
  struct restoring r = {
      .spans = spans, .stacks = &spans->stacks, .clock = &spans->clock, .at = bytes, .end = bytes + size};
  int code = take_state(&r);
  spans->last_tsc = r.last_tsc;
  spans->ordinal = r.ordinal;
  spans->total_events = r.events;
  spans->lost = r.lost;
  return code;
}

int
ct_span_state_take(const uint8_t *bytes, size_t size, struct ct_span_stacks *stacks, struct ct_span_clock *clock)
{
  struct restoring r = {.stacks = stacks, .clock = clock, .at = bytes, .end = bytes + size};
  ct_span_stacks_clear(stacks);
  return take_state(&r);
}

int
ct_spans_restore(struct ct_spans *spans, uint64_t offset, const uint8_t *bytes, size_t size)
{
  reset(spans);
  free(spans->bounds.inside);
  spans->bounds.inside = NULL;
  int code = size != 0 ? restore_state(spans, bytes, size) : 0;
  if (code != 0) {
    goto reset_spans;
  }
  code = ct_spans_observe_restored(spans);
  if (code != 0) {
    goto reset_spans;
  }
  if (size == 0) {
    code = ct_cursor_rewind(spans->cursor);
  } else {
    code = ct_cursor_seek(spans->cursor, offset);
    ct_cursor_set_ordinal(spans->cursor, spans->ordinal);
  }
  if (code == 0) {
    return 0;
  }
reset_spans:
  reset(spans);
  spans->ended = spans->drained = true;
  return code;
}

int
ct_spans_clock_in(struct ct_spans *spans, const struct ct_block_place *blocks, size_t count, uint64_t ordinal,
                  struct ct_span_clock *clock)
{
  struct ct_span_clock at = spans->clock;
  uint64_t next = spans->ordinal;
  spans->ended = spans->drained = true;
  for (size_t i = 0; i < count; i++) {
    struct ct_ops ops;
    if (ct_cursor_seek(spans->cursor, blocks[i].offset) != 0) {
      return CT_ENOENT;
    }
    ct_cursor_set_ordinal(spans->cursor, next);
    if (!ct_cursor_ops(spans->cursor, 0, &ops)) {
      return CT_ENOENT;
    }
    int code = ct_span_clock_ops(&at, &ops, ordinal);
    if (code == 0) {
      *clock = at;
    }
    if (code != CT_EFORMAT) {
      return code;
    }
    next = ops.ordinal;
  }
  return CT_ENOENT;
}

int
ct_spans_clock_at(struct ct_spans *spans, uint64_t ordinal, struct ct_span_clock *clock)
{
  const struct ct_event *events;
  size_t count;
  spans->ended = spans->drained = true;
  while ((count = ct_cursor_next(spans->cursor, &events)) != 0) {
    uint64_t next = ct_cursor_ordinal(spans->cursor);
    for (size_t i = 0; i < count; i++) {
      const struct ct_event *event = &events[i];
      bool is_call = event->kind == CT_EV_ENTER || event->kind == CT_EV_TAIL || event->kind == CT_EV_POINT;
      ct_span_clock_event(&spans->clock, event);
      if (is_call && (next & CT_ORDINAL_BEFORE) == 0 && next++ == ordinal) {
        *clock = spans->clock;
        return 0;
      }
    }
  }
  return CT_ENOENT;
}

/* ---- the tree ---- */

static int
number_stack(struct ct_span_stack *stack, void *arg)
{
  struct ct_spans *spans = arg;
  uint32_t node = ct_spans_tree_root(stack);
  for (uint32_t i = 0; i < stack->count; i++) {
    node = spans->tree != NULL ? ct_span_tree_child(spans->tree, node, stack->frames[i].fn) : CT_TREE_NONE;
    stack->frames[i].node = node;
    stack->frames[i].last = CT_TREE_NONE;
  }
  return 0;
}

void
ct_spans_set_tree(struct ct_spans *spans, struct ct_span_tree *tree)
{
  spans->tree = tree;
  ct_span_stacks_each(&spans->stacks, number_stack, spans);
}

/* ---- places ---- */

void
ct_spans_stop_at(struct ct_spans *spans, uint64_t offset)
{
  spans->stop_offset = offset;
}

uint64_t
ct_spans_next_ordinal(const struct ct_spans *spans)
{
  return spans->ordinal;
}

uint64_t
ct_spans_last_tsc(const struct ct_spans *spans)
{
  return spans->last_tsc;
}

void
ct_spans_end_at(struct ct_spans *spans, uint64_t offset)
{
  spans->end_offset = offset;
}

bool
ct_spans_stopped(const struct ct_spans *spans, uint64_t *offset)
{
  if (spans->stopped) {
    *offset = spans->events_offset;
  }
  return spans->stopped;
}

static int
add_frames(struct ct_span_stack *stack, void *arg)
{
  *(size_t *)arg += stack->count;
  return 0;
}

size_t
ct_spans_open_frames(const struct ct_spans *spans)
{
  size_t count = 0;
  struct ct_span_stacks stacks = spans->stacks;
  ct_span_stacks_each(&stacks, add_frames, &count);
  return count;
}

struct visiting {
  struct ct_spans *spans;
  int (*visit)(void *arg, const struct ct_span_open_frame *frame);
  void *arg;
};

static int
visit_stack(struct ct_span_stack *stack, void *arg)
{
  const struct visiting *v = arg;
  int code = 0;
  for (uint32_t i = 0; i < stack->count && code == 0; i++) {
    const struct ct_span_frame *frame = &stack->frames[i];
    struct ct_span_open_frame out = {.ordinal = frame->ordinal,
                                     .parent_ordinal = i > 0 ? frame[-1].ordinal : CT_NO_ORDINAL,
                                     .enter_tsc = frame->enter_tsc,
                                     .child_ticks = frame->child_ticks,
                                     .age_ticks = v->spans->clock.now - frame->began,
                                     .fn = frame->fn,
                                     .depth = stack->base + i,
                                     .context = (uint32_t)stack->context};
    code = v->visit(v->arg, &out);
  }
  return code;
}

int
ct_spans_each_open(struct ct_spans *spans, int (*visit)(void *arg, const struct ct_span_open_frame *frame), void *arg)
{
  struct visiting v = {spans, visit, arg};
  return ct_span_stacks_each(&spans->stacks, visit_stack, &v);
}
