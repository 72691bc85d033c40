/* SPDX-License-Identifier: MIT */
/*
 * The span builder; see spans.h. The hot loop is build_plain(); build() turns
 * events into spans until the output batch (small enough for the first-level cache) is full. What an event says
 * about the frame that it closes (function, enter time) is taken from the event; the
 * stack kept here adds the children's time and is what remains at the end of the stream.
 *
 * Invariants: the current stack's frames have the depths base .. base + count - 1, and an
 * event that opens a frame at depth d makes count = d - base + 1. When an event's depth does not
 * fit (only after damage) the frames it contradicts end as lost.
 */
#include "views/spans.h"

#include "views/leaving.h"
#include "views/stacks.h"

#include <stdlib.h>

enum {
  BATCH = 512,
  SLACK = 4, /* spans that one event can give without a check */
  UNCERTAIN = 1,
};

/* How often a function is on the thread's stacks, and since when. */
struct presence {
  uint64_t since;
  uint64_t frames;
};

struct ct_spans {
  struct ct_cursor *cursor;
  const struct ct_event *events;
  size_t event_count;
  size_t event_pos;
  struct ct_view_stacks stacks;
  struct ct_leaving leaving;
  struct presence *present; /* fn_count + 1: the last one stands for ids outside the table */
  uint32_t fn_count;
  uint32_t thread;
  uint64_t last_tsc;
  uint64_t total_events;
  uint64_t lost;
  bool ended;   /* the cursor gave its last event */
  bool drained; /* and the open frames are out */
  size_t count; /* spans in the batch */
  struct ct_span *batch;
  size_t batch_capacity;
};

const char *
ct_span_end_text(enum ct_span_end end)
{
  static const char *const texts[] = {
      [CT_SPAN_RETURNED] = "returned",
      [CT_SPAN_TAIL] = "tail call",
      [CT_SPAN_UNWOUND] = "unwound",
      [CT_SPAN_LONGJMP] = "longjmp",
      [CT_SPAN_SETCONTEXT] = "setcontext",
      [CT_SPAN_EXCEPTION] = "exception",
      [CT_SPAN_CANCELLED] = "cancellation",
      [CT_SPAN_PTHREAD_EXIT] = "pthread_exit",
      [CT_SPAN_EXEC] = "exec",
      [CT_SPAN_THREAD_EXIT] = "thread exit",
      [CT_SPAN_LOST] = "lost",
      [CT_SPAN_EXIT] = "exit",
      [CT_SPAN_KILLED] = "killed",
      [CT_SPAN_OPEN] = "still open",
      [CT_SPAN_ORPHAN] = "orphan",
      [CT_SPAN_POINT] = "enter only",
  };
  return (size_t)end < sizeof(texts) / sizeof(texts[0]) ? texts[end] : "unknown";
}

int
ct_spans_open(struct ct_trace *trace, uint32_t thread, struct ct_spans **out, struct ct_diag *diag)
{
  struct ct_spans *spans = calloc(1, sizeof(*spans));
  if (spans == NULL)
    return ct_fail(diag, CT_ENOMEM, "out of memory for the spans of a thread");
  int rc = CT_ENOMEM;
  spans->thread = thread;
  spans->fn_count = ct_trace_function_count(trace);
  spans->present = calloc((size_t)spans->fn_count + 1, sizeof(*spans->present));
  spans->batch_capacity = BATCH;
  spans->batch = malloc(BATCH * sizeof(*spans->batch));
  if (spans->present == NULL || spans->batch == NULL || ct_view_stacks_init(&spans->stacks) != 0 ||
      ct_leaving_init(&spans->leaving, trace) != 0) {
    ct_fail(diag, rc, "out of memory for the spans of a thread");
    goto fail;
  }
  rc = ct_cursor_open(trace, thread, 0, &spans->cursor, diag);
  if (rc != 0)
    goto fail;
  *out = spans;
  return 0;
fail:
  ct_spans_close(spans);
  return rc;
}

void
ct_spans_close(struct ct_spans *spans)
{
  if (spans == NULL)
    return;
  ct_cursor_close(spans->cursor);
  ct_view_stacks_destroy(&spans->stacks);
  ct_leaving_destroy(&spans->leaving);
  free(spans->present);
  free(spans->batch);
  free(spans);
}

static inline struct presence *
presence_of(struct ct_spans *spans, uint32_t fn)
{
  return &spans->present[fn < spans->fn_count ? fn : spans->fn_count];
}

static int
reserve(struct ct_spans *spans, size_t more)
{
  size_t need = spans->count + more + SLACK;
  if (need <= spans->batch_capacity)
    return 0;
  if (need < spans->batch_capacity * 2)
    need = spans->batch_capacity * 2;
  struct ct_span *batch = reallocarray(spans->batch, need, sizeof(*batch));
  if (batch == NULL)
    return CT_ENOMEM;
  spans->batch = batch;
  spans->batch_capacity = need;
  return 0;
}

/* A span without time: a point or an orphan. */
static inline void
emit_instant(struct ct_spans *spans, const struct ct_event *ev, uint8_t end)
{
  spans->batch[spans->count++] = (struct ct_span){
      .enter_tsc = ev->tsc,
      .end_tsc = ev->tsc,
      .fn = ev->fn,
      .depth = ev->depth,
      .thread = spans->thread,
      .end = end,
      .uncertain = ev->uncertain,
      .calls = end == CT_SPAN_POINT ? (uint16_t)ev->value : 0,
  };
}

static inline void
emit(struct ct_spans *spans, uint32_t fn, uint32_t depth, uint64_t enter, uint64_t tsc, uint64_t self, uint8_t end,
     uint8_t uncertain)
{
  struct presence *present = presence_of(spans, fn);
  uint64_t fresh = 0;
  /* A frame that was open before the stream began was never counted in. */
  if (present->frames <= 1)
    fresh = tsc - (present->frames == 0 || present->since > enter ? enter : present->since);
  present->frames -= present->frames != 0;
  struct ct_span *span = &spans->batch[spans->count++];
  span->enter_tsc = enter;
  span->end_tsc = tsc;
  span->self_ticks = self;
  span->fresh_ticks = fresh;
  span->fn = fn;
  span->depth = depth;
  span->thread = spans->thread;
  span->end = end;
  span->uncertain = uncertain;
}

/* Pops the innermost frame of the stack as a span that ended at tsc. */
static inline void
pop_frame(struct ct_spans *spans, struct ct_view_stack *stack, uint64_t tsc, uint8_t end)
{
  struct ct_view_frame *frame = &stack->frames[--stack->count];
  uint64_t duration = tsc > frame->enter_tsc ? tsc - frame->enter_tsc : 0;
  uint64_t self = duration > frame->child_ticks ? duration - frame->child_ticks : 0;
  if (stack->count != 0)
    frame[-1].child_ticks += duration;
  emit(spans, frame->fn, stack->base + stack->count, frame->enter_tsc, frame->enter_tsc + duration, self, end,
       (frame->flags & UNCERTAIN) != 0);
}

/* Makes `depth` the number of open frames, whatever was open. Cold: only damage brings us here. */
static __attribute__((noinline, cold)) int
resync(struct ct_spans *spans, uint32_t depth, uint64_t tsc)
{
  struct ct_view_stack *stack = spans->stacks.current;
  if (reserve(spans, stack->count) != 0)
    return CT_ENOMEM;
  uint32_t keep = ct_view_stack_fit(stack, depth);
  while (stack->count > keep)
    pop_frame(spans, stack, tsc, CT_SPAN_LOST);
  if (stack->count == 0)
    stack->base = depth;
  return 0;
}

static inline int
open_frame(struct ct_spans *spans, uint32_t fn, uint32_t depth, uint64_t tsc)
{
  struct ct_view_stack *stack = spans->stacks.current;
  if (__builtin_expect(stack->base + stack->count != depth, 0) && resync(spans, depth, tsc) != 0)
    return CT_ENOMEM;
  struct ct_view_frame *frame = ct_view_stack_push(stack);
  if (frame == NULL)
    return CT_ENOMEM;
  frame->enter_tsc = tsc;
  frame->child_ticks = 0;
  frame->fn = fn;
  frame->flags = 0;
  struct presence *present = presence_of(spans, fn);
  if (present->frames++ == 0)
    present->since = tsc;
  return 0;
}

static inline int
close_frame(struct ct_spans *spans, const struct ct_event *ev, uint32_t fn, uint8_t end)
{
  struct ct_view_stack *stack = spans->stacks.current;
  if (__builtin_expect(stack->base + stack->count != ev->depth + 1, 0) && resync(spans, ev->depth + 1, ev->tsc) != 0)
    return CT_ENOMEM;
  uint64_t duration = ev->tsc - ev->enter_tsc;
  if (__builtin_expect(ev->tsc < ev->enter_tsc, 0))
    duration = 0;
  uint64_t self = duration;
  if (__builtin_expect(stack->count != 0, 1)) {
    struct ct_view_frame *frame = &stack->frames[--stack->count];
    self = duration > frame->child_ticks ? duration - frame->child_ticks : 0;
    if (stack->count != 0)
      frame[-1].child_ticks += duration;
  } else {
    stack->base = ev->depth; /* a frame that was open before the stream began */
  }
  emit(spans, fn, ev->depth, ev->tsc - duration, ev->tsc, self, end, ev->uncertain);
  return 0;
}

static int
mark_uncertain(struct ct_view_stack *stack, void *arg)
{
  (void)arg;
  for (uint32_t i = 0; i < stack->count; i++)
    stack->frames[i].flags |= UNCERTAIN;
  return 0;
}

static int
switch_stack(struct ct_spans *spans, const struct ct_event *ev)
{
  int rc = ct_leaving_switch(&spans->leaving, &spans->stacks, ev->value, ev->tsc);
  if (rc != 0)
    return rc;
  struct ct_view_stack *stack = spans->stacks.current;
  struct ct_view_frame *top = ct_view_stack_top(stack);
  if (top != NULL && stack->away_since != 0 && ev->tsc > stack->away_since)
    top->child_ticks += ev->tsc - stack->away_since;
  stack->away_since = 0;
  return 0;
}

struct drain {
  struct ct_spans *spans;
  uint64_t tsc;
  uint8_t end; /* CT_SPAN_OPEN: what leaving.h says */
};

/* Ends all the frames of one stack. */
static int
drain_stack(struct ct_view_stack *stack, void *arg)
{
  const struct drain *drain = arg;
  if (reserve(drain->spans, stack->count) != 0)
    return CT_ENOMEM;
  struct ct_view_frame *top = ct_view_stack_top(stack);
  if (top != NULL && stack->away_since != 0 && drain->tsc > stack->away_since)
    top->child_ticks += drain->tsc - stack->away_since;
  uint8_t end = drain->end;
  if (end == CT_SPAN_OPEN)
    end = ct_leaving_end(&drain->spans->leaving, &drain->spans->stacks, stack);
  while (stack->count != 0)
    pop_frame(drain->spans, stack, drain->tsc, end);
  return 0;
}

static int
drain_all(struct ct_spans *spans, uint64_t tsc, uint8_t end)
{
  struct drain drain = {spans, tsc, end};
  return ct_view_stacks_each(&spans->stacks, drain_stack, &drain);
}

static int
leave(struct ct_spans *spans, const struct ct_event *ev)
{
  struct ct_view_stack *stack = spans->stacks.current;
  uint8_t end = ct_leaving_end_of(&spans->leaving, stack, ev);
  int rc = close_frame(spans, ev, ev->fn, end);
  ct_leaving_left(stack, ev->tsc, end);
  return rc;
}

/* The kinds that are neither enter nor return. */
static __attribute__((noinline)) int
build_other(struct ct_spans *spans, const struct ct_event *ev)
{
  int rc;
  switch (ev->kind) {
  case CT_EV_TAIL:
    spans->total_events++;
    if (ev->closed_fn != UINT32_MAX && (rc = close_frame(spans, ev, ev->closed_fn, CT_SPAN_TAIL)) != 0)
      return rc;
    return open_frame(spans, ev->fn, ev->depth, ev->tsc);
  case CT_EV_POINT:
    spans->total_events++;
    ct_leaving_point(&spans->leaving, spans->stacks.current, ev->fn);
    emit_instant(spans, ev, CT_SPAN_POINT);
    return 0;
  case CT_EV_ORPHAN_RETURN:
    spans->total_events++;
    emit_instant(spans, ev, CT_SPAN_ORPHAN);
    return 0;
  case CT_EV_LEFT:
    return leave(spans, ev);
  case CT_EV_LOST:
    spans->lost += ev->value;
    return ct_view_stacks_each(&spans->stacks, mark_uncertain, NULL);
  case CT_EV_SWITCH:
    return switch_stack(spans, ev);
  case CT_EV_EXEC: /* takes all stacks of the thread with it */
    rc = drain_all(spans, ev->tsc, CT_SPAN_EXEC);
    return rc != 0 ? rc : ct_view_stacks_switch(&spans->stacks, 0, ev->tsc);
  default:
    return 0;
  }
}

/*
 * Enters and returns that fit the stack as it is, with everything in local variables; stops at
 * the first event that is anything else, which then takes the general way.
 */
static const struct ct_event *
build_plain(struct ct_spans *spans, const struct ct_event *ev, const struct ct_event *end)
{
  struct ct_view_stack *const stack = spans->stacks.current;
  if (stack->frames == NULL)
    return ev;
  struct ct_view_frame *const bottom = stack->frames, *const limit = bottom + stack->capacity;
  struct ct_view_frame *top = bottom + stack->count; /* one past the innermost */
  struct ct_span *out = spans->batch + spans->count, *const out_limit = spans->batch + BATCH;
  struct presence *const present = spans->present;
  const uint32_t fn_count = spans->fn_count, thread = spans->thread;
  uint32_t depth = stack->base + stack->count;
  for (; ev != end; ev++) {
    struct presence *p = &present[ev->fn < fn_count ? ev->fn : fn_count];
    if (ev->kind == CT_EV_ENTER) {
      if (ev->depth != depth || top == limit)
        break;
      *top++ = (struct ct_view_frame){.enter_tsc = ev->tsc, .fn = ev->fn};
      depth++;
      p->since = p->frames == 0 ? ev->tsc : p->since;
      p->frames++;
    } else if (ev->kind == CT_EV_RETURN) {
      if (ev->depth + 1 != depth || top == bottom || top[-1].fn != ev->fn || ev->tsc < ev->enter_tsc ||
          out == out_limit)
        break;
      top--;
      depth--;
      uint64_t duration = ev->tsc - ev->enter_tsc;
      if (top != bottom)
        top[-1].child_ticks += duration;
      p->frames--;
      out->enter_tsc = ev->enter_tsc;
      out->end_tsc = ev->tsc;
      out->self_ticks = duration > top->child_ticks ? duration - top->child_ticks : 0;
      out->fresh_ticks = p->frames == 0 ? ev->tsc - p->since : 0;
      out->fn = ev->fn;
      out->depth = depth;
      out->thread = thread;
      out->end = CT_SPAN_RETURNED;
      out->uncertain = ev->uncertain;
      out++;
    } else {
      break;
    }
  }
  stack->count = (uint32_t)(top - bottom);
  spans->count = (size_t)(out - spans->batch);
  return ev;
}

static int
build_one(struct ct_spans *spans, const struct ct_event *ev)
{
  if (ev->kind != CT_EV_ENTER && ev->kind != CT_EV_RETURN)
    return build_other(spans, ev);
  spans->total_events++;
  if (ev->kind == CT_EV_ENTER)
    return open_frame(spans, ev->fn, ev->depth, ev->tsc);
  return close_frame(spans, ev, ev->fn, CT_SPAN_RETURNED);
}

static int
build(struct ct_spans *spans)
{
  const struct ct_event *ev = spans->events + spans->event_pos;
  const struct ct_event *end = spans->events + spans->event_count;
  int rc = 0;
  while (ev != end && spans->count + SLACK <= BATCH && rc == 0) {
    const struct ct_event *stop = build_plain(spans, ev, end);
    spans->total_events += (uint64_t)(stop - ev);
    ev = stop;
    if (ev != end && spans->count + SLACK <= BATCH)
      rc = build_one(spans, ev++);
  }
  if (ev != spans->events)
    spans->last_tsc = ev[-1].tsc;
  spans->event_pos = (size_t)(ev - spans->events);
  return rc;
}

int
ct_spans_next(struct ct_spans *spans, const struct ct_span **batch, size_t *count)
{
  spans->count = 0;
  int rc = 0;
  while (rc == 0 && spans->count == 0 && !spans->drained) {
    if (spans->event_pos != spans->event_count) {
      rc = build(spans);
    } else if (!spans->ended) {
      spans->event_pos = 0;
      spans->event_count = ct_cursor_next(spans->cursor, &spans->events);
      spans->ended = spans->event_count == 0;
    } else {
      rc = drain_all(spans, spans->last_tsc, CT_SPAN_OPEN);
      spans->drained = true;
    }
  }
  *batch = spans->batch;
  *count = rc == 0 ? spans->count : 0;
  return rc;
}

enum ct_cursor_state
ct_spans_state(const struct ct_spans *spans)
{
  return ct_cursor_state(spans->cursor);
}

uint64_t
ct_spans_events(const struct ct_spans *spans)
{
  return spans->total_events;
}

uint64_t
ct_spans_lost(const struct ct_spans *spans)
{
  return spans->lost;
}

uint64_t
ct_spans_offset(const struct ct_spans *spans)
{
  return ct_cursor_offset(spans->cursor);
}
