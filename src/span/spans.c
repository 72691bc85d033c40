/* SPDX-License-Identifier: MIT */
/*
 * The span builder; see spans.h. The hot loop is that of plain.c; build() turns
 * events into spans until the output batch (small enough for the first-level cache) is full. What an event says
 * about the frame that it closes (function, enter time) is taken from the event; the
 * stack kept here adds the children's time and is what remains at the end of the stream.
 *
 * Invariants: the current stack's frames have the depths base .. base + count - 1, and an
 * event that opens a frame at depth d makes count = d - base + 1. When an event's depth does not
 * fit (only after damage) the frames it contradicts end as lost.
 */
#include "span/spans_internal.h"

#include "base/branch.h"
#include "span/direct.h"

#include <stdlib.h>

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
      [CT_SPAN_SWITCHED] = "stack switched",
      [CT_SPAN_LOST] = "lost",
      [CT_SPAN_EXIT] = "exit",
      [CT_SPAN_EXITED] = "exit",
      [CT_SPAN_UNSEEN] = "return not seen",
      [CT_SPAN_KILLED] = "killed",
      [CT_SPAN_OPEN] = "still open",
      [CT_SPAN_ORPHAN] = "orphan",
      [CT_SPAN_POINT] = "enter only",
      [CT_SPAN_COUNTED] = "counted",
  };
  return (size_t)end < sizeof(texts) / sizeof(texts[0]) ? texts[end] : "unknown";
}

int
ct_spans_open(struct ct_trace *trace, uint32_t thread, enum ct_view_time time, struct ct_spans **out,
              struct ct_diag *diag)
{
  struct ct_spans *spans = calloc(1, sizeof(*spans));
  if (spans == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the spans of a thread");
  }
  int code = CT_ENOMEM;
  spans->trace = trace;
  spans->thread = thread;
  ct_span_clock_init(&spans->clock, trace, time);
  spans->fn_count = ct_trace_function_count(trace);
  spans->present = calloc((size_t)spans->fn_count + 1, sizeof(*spans->present));
  spans->stop_offset = spans->end_offset = UINT64_MAX;
  spans->batch_capacity = CT_SPANS_BATCH;
  spans->batch = malloc(CT_SPANS_BATCH * sizeof(*spans->batch));
  if (ct_trace_has_bounds(trace)) {
    spans->bounds.at_most = calloc((size_t)spans->fn_count + 1, sizeof(*spans->bounds.at_most));
    spans->bounds.before = calloc((size_t)spans->fn_count + 1, sizeof(*spans->bounds.before));
    spans->bounds.touched = calloc((size_t)spans->fn_count + 1, sizeof(*spans->bounds.touched));
    spans->bounds.marks = calloc((size_t)spans->fn_count + 1, sizeof(*spans->bounds.marks));
    spans->bounds.inside = calloc((size_t)spans->fn_count + 1, sizeof(*spans->bounds.inside));
    if (spans->bounds.at_most == NULL || spans->bounds.touched == NULL || spans->bounds.marks == NULL ||
        spans->bounds.inside == NULL || spans->bounds.before == NULL) {
      ct_fail(diag, code, "out of memory for the spans of a thread");
      goto close_spans;
    }
  }
  if (spans->present == NULL || spans->batch == NULL || ct_span_stacks_init(&spans->stacks) != 0 ||
      ct_unwind_reason_init(&spans->unwind_reason, trace) != 0) {
    ct_fail(diag, code, "out of memory for the spans of a thread");
    goto close_spans;
  }
  code = ct_cursor_open(trace, thread, 0, &spans->cursor, diag);
  if (code != 0) {
    goto close_spans;
  }
  *out = spans;
  return 0;
close_spans:
  ct_spans_close(spans);
  return code;
}

void
ct_spans_close(struct ct_spans *spans)
{
  if (spans == NULL) {
    return;
  }
  free(spans->bounds.inside);
  free(spans->bounds.before);
  free(spans->bounds.at_most);
  free(spans->bounds.touched);
  free(spans->bounds.marks);
  ct_cursor_close(spans->cursor);
  ct_span_stacks_destroy(&spans->stacks);
  ct_unwind_reason_destroy(&spans->unwind_reason);
  free(spans->present);
  free(spans->edges);
  free(spans->batch);
  free(spans);
}

static int
reserve(struct ct_spans *spans, size_t more)
{
  size_t need = spans->count + more + CT_SPANS_SLACK;
  if (need <= spans->batch_capacity) {
    return 0;
  }
  if (need < spans->batch_capacity * 2) {
    need = spans->batch_capacity * 2;
  }
  struct ct_span *batch = reallocarray(spans->batch, need, sizeof(*batch));
  if (batch == NULL) {
    return CT_ENOMEM;
  }
  spans->batch = batch;
  spans->batch_capacity = need;
  return 0;
}

/* Of a call at this depth. */
static inline uint64_t
next_ordinal(struct ct_spans *spans, uint32_t depth)
{
  return CT_LIKELY(spans->before == 0) ? spans->ordinal++ : spans->before | depth;
}

static __attribute__((noinline)) uint32_t
node_of_instant(const struct ct_spans *spans, uint32_t fn, uint8_t end)
{
  return end == CT_SPAN_COUNTED ? ct_span_tree_child(spans->tree, CT_TREE_COUNTED, fn)
         : end == CT_SPAN_POINT ? ct_spans_tree_node(spans, spans->stacks.current, fn)
                                : CT_TREE_NONE;
}

/* A span without time: a point or an orphan. */
static inline void
emit_instant(struct ct_spans *spans, const struct ct_event *ev, uint8_t end)
{
  struct ct_span_stack *stack = spans->stacks.current;
  const struct ct_span_frame *top = ct_span_stack_top(stack);
  spans->batch[spans->count++] = (struct ct_span){
      .ordinal = end == CT_SPAN_POINT ? next_ordinal(spans, ev->depth) : CT_NO_ORDINAL,
      .parent_ordinal = top != NULL ? top->ordinal : CT_NO_ORDINAL,
      .caller_fn = top != NULL ? top->fn : UINT32_MAX,
      .context = (uint32_t)stack->context,
      .enter_tsc = ev->tsc,
      .end_tsc = ev->tsc,
      .fn = ev->fn,
      .depth = ev->depth,
      .thread = spans->thread,
      .end = end,
      .uncertain = ev->uncertain,
      .calls = end == CT_SPAN_POINT ? (uint16_t)ev->value : 0,
      .reserved = CT_UNLIKELY(spans->tree != NULL) ? node_of_instant(spans, ev->fn, end) : CT_TREE_NONE,
  };
}

/* The frame, of which fn is the function now and which is off its stack, ended at tsc, the clock's present. */
static inline void
emit(struct ct_spans *spans, const struct ct_span_stack *stack, const struct ct_span_frame *frame, uint32_t fn,
     uint32_t depth, uint64_t tsc, uint8_t end, uint8_t uncertain)
{
  const struct ct_span_frame *below = stack->count != 0 ? &stack->frames[stack->count - 1] : NULL;

  struct ct_span_presence *present = ct_spans_presence(spans, fn);
  uint64_t now = spans->clock.now;
  uint64_t duration = now - frame->began;
  struct ct_span *span = &spans->batch[spans->count++];
  span->enter_tsc = frame->enter_tsc;
  span->end_tsc = tsc > frame->enter_tsc ? tsc : frame->enter_tsc;
  span->duration_ticks = duration;
  span->self_ticks = duration > frame->child_ticks ? duration - frame->child_ticks : 0;
  span->off_ticks = spans->clock.off - frame->off;
  span->fresh_ticks = 0;
  span->fresh_off_ticks = 0;
  if (present->frames <= 1) {
    /* A frame that was open before the stream began was never counted in. */
    bool is_first = present->frames == 0 || present->since > frame->began;
    span->fresh_ticks = now - (is_first ? frame->began : present->since);
    span->fresh_off_ticks = spans->clock.off - (is_first ? frame->off : present->off_since);
  }
  present->frames -= present->frames != 0;
  span->ordinal = frame->ordinal;
  span->parent_ordinal = below != NULL ? below->ordinal : CT_NO_ORDINAL;
  span->caller_fn = below != NULL ? below->fn : UINT32_MAX;
  span->context = (uint32_t)stack->context;
  span->recursion = (uint32_t)present->frames;
  span->fn = fn;
  span->depth = depth;
  span->thread = spans->thread;
  span->end = end;
  span->uncertain = (uint8_t)(uncertain | (frame->flags & CT_SPAN_BEFORE));
  span->reserved = frame->node;
}

/* Pops the innermost frame of the stack as a span that ended at tsc, the clock's present. */
static inline void
pop_frame(struct ct_spans *spans, struct ct_span_stack *stack, uint64_t tsc, uint8_t end)
{
  struct ct_span_frame *frame = &stack->frames[--stack->count];
  if (stack->count != 0) {
    frame[-1].child_ticks += spans->clock.now - frame->began;
  }
  emit(spans, stack, frame, frame->fn, stack->base + stack->count, tsc, end, frame->flags & CT_SPAN_UNCERTAIN);
  if (spans->observer != NULL) {
    ct_spans_report_end(spans, stack, true);
  }
}

/* ---- Bounds ---- */

static uint32_t
touch_bounds(struct ct_span_bounds *bounds, uint32_t fn)
{
  if (!bounds->marks[fn]) {
    bounds->marks[fn] = 1;
    bounds->touched[bounds->count++] = fn;
  }
  return fn;
}

/* Spans that have come out: what of them is in the present interval. */
static void
note_bounds(struct ct_spans *spans, size_t from)
{
  struct ct_span_bounds *bounds = &spans->bounds;
  for (size_t i = from; bounds->inside != NULL && i < spans->count; i++) {
    const struct ct_span *span = &spans->batch[i];
    uint32_t fn = span->fn < spans->fn_count ? span->fn : spans->fn_count;
    if (span->fresh_ticks > bounds->before[fn]) {
      bounds->inside[touch_bounds(bounds, fn)] += span->fresh_ticks - bounds->before[fn];
    }
    if (span->fresh_ticks != 0) {
      bounds->before[fn] = 0;
    }
  }
}

static int
touch_stack(struct ct_span_stack *stack, void *arg)
{
  struct ct_spans *spans = arg;
  for (uint32_t i = 0; i < stack->count; i++) {
    touch_bounds(&spans->bounds, stack->frames[i].fn < spans->fn_count ? stack->frames[i].fn : spans->fn_count);
  }
  return 0;
}

/* Since the last one, the thread was off the processor for at most so many ticks. */
static void
end_bounds(struct ct_spans *spans, uint64_t off)
{
  struct ct_span_bounds *bounds = &spans->bounds;
  uint64_t now = spans->clock.now;
  if (bounds->inside == NULL) {
    return;
  }
  ct_span_stacks_each(&spans->stacks, touch_stack, spans);
  for (uint32_t i = 0; i < bounds->count; i++) {
    uint32_t fn = bounds->touched[i];
    const struct ct_span_presence *present = &spans->present[fn];
    uint64_t open = present->frames != 0 && now > present->since ? now - present->since : 0;
    uint64_t time = bounds->inside[fn] + (open > bounds->before[fn] ? open - bounds->before[fn] : 0);
    bounds->at_most[fn] += time < off ? time : off;
    bounds->inside[fn] = 0;
    bounds->before[fn] = open;
    bounds->marks[fn] = 0;
  }
  bounds->count = 0;
}

uint64_t
ct_spans_off_at_most(const struct ct_spans *spans, uint32_t fn)
{
  return spans->bounds.at_most != NULL && fn <= spans->fn_count ? spans->bounds.at_most[fn] : 0;
}

/* Makes `depth` the number of open frames, whatever was open. Cold: only damage brings us here. */
static __attribute__((noinline, cold)) int
resync(struct ct_spans *spans, uint32_t depth, uint64_t tsc)
{
  struct ct_span_stack *stack = spans->stacks.current;
  if (reserve(spans, stack->count) != 0) {
    return CT_ENOMEM;
  }
  uint32_t keep = ct_span_stack_fit(stack, depth);
  while (stack->count > keep) {
    pop_frame(spans, stack, tsc, CT_SPAN_LOST);
  }
  if (stack->count == 0) {
    stack->base = depth;
  }
  return 0;
}

static inline int
open_frame(struct ct_spans *spans, uint32_t fn, uint32_t depth, uint64_t tsc, uint8_t uncertain)
{
  struct ct_span_stack *stack = spans->stacks.current;
  if (CT_UNLIKELY(stack->base + stack->count != depth) && resync(spans, depth, tsc) != 0) {
    return CT_ENOMEM;
  }
  uint32_t node = ct_spans_tree_node(spans, stack, fn);
  struct ct_span_frame *frame = ct_span_stack_push(stack);
  if (frame == NULL) {
    return CT_ENOMEM;
  }
  frame->node = node;
  frame->last = CT_TREE_NONE;
  frame->enter_tsc = tsc;
  frame->began = spans->clock.now;
  frame->off = spans->clock.off;
  frame->child_ticks = 0;
  frame->fn = fn;
  frame->flags = uncertain;
  frame->ordinal = next_ordinal(spans, depth);
  struct ct_span_presence *present = ct_spans_presence(spans, fn);
  if (present->frames++ == 0) {
    present->since = frame->began;
    present->off_since = frame->off;
  }
  return CT_UNLIKELY(spans->observer != NULL) ? ct_spans_report_enter(spans, stack) : 0;
}

static inline int
close_frame(struct ct_spans *spans, const struct ct_event *ev, uint32_t fn, uint8_t end)
{
  struct ct_span_stack *stack = spans->stacks.current;
  if (CT_UNLIKELY(stack->base + stack->count != ev->depth + 1) && resync(spans, ev->depth + 1, ev->tsc) != 0) {
    return CT_ENOMEM;
  }
  if (CT_LIKELY(stack->count != 0)) {
    struct ct_span_frame *frame = &stack->frames[--stack->count];
    if (stack->count != 0) {
      frame[-1].child_ticks += spans->clock.now - frame->began;
    }
    /* A cursor that began in the middle does not know all frames that are here. */
    uint8_t uncertain = ev->enter_tsc == frame->enter_tsc ? ev->uncertain : frame->flags & CT_SPAN_UNCERTAIN;
    emit(spans, stack, frame, fn != UINT32_MAX ? fn : frame->fn, ev->depth, ev->tsc, end, uncertain);
    if (CT_UNLIKELY(spans->observer != NULL)) {
      ct_spans_report_end(spans, stack, true);
    }
    return 0;
  }
  stack->base = ev->depth; /* a frame that was open before the stream began */
  uint64_t before = ev->tsc > ev->enter_tsc ? ev->tsc - ev->enter_tsc : 0;
  struct ct_span_frame frame = {
      .enter_tsc = ev->tsc - before, .began = spans->clock.now, .off = spans->clock.off, .ordinal = CT_NO_ORDINAL};
  frame.node = ct_spans_tree_node(spans, stack, fn);
  frame.began -= before < frame.began ? before : frame.began;
  emit(spans, stack, &frame, fn, ev->depth, ev->tsc, end, ev->uncertain);
  if (spans->observer != NULL) {
    ct_spans_report_end(spans, stack, false);
  }
  return 0;
}

static int
mark_uncertain(struct ct_span_stack *stack, void *arg)
{
  (void)arg;
  for (uint32_t i = 0; i < stack->count; i++) {
    stack->frames[i].flags |= CT_SPAN_UNCERTAIN;
  }
  return 0;
}

static int
switch_stack(struct ct_spans *spans, const struct ct_event *ev)
{
  uint64_t now = spans->clock.now;
  spans->stacks.current->away_off = spans->clock.off;
  int code = ct_unwind_reason_switch(&spans->unwind_reason, &spans->stacks, ev->value, now);
  if (code != 0) {
    return code;
  }
  struct ct_span_stack *stack = spans->stacks.current;
  struct ct_span_frame *top = ct_span_stack_top(stack);
  if (top != NULL && stack->away_since != 0 && now > stack->away_since) {
    top->child_ticks += now - stack->away_since;
    ct_spans_note_away(spans, stack);
  }
  stack->away_since = 0;
  const struct ct_span_observer *observer = spans->observer;
  return observer != NULL && observer->switched != NULL ? observer->switched(observer->arg, spans, stack, ev->tsc) : 0;
}

struct drain {
  struct ct_spans *spans;
  uint64_t tsc;
  uint8_t end; /* CT_SPAN_OPEN: what unwind_reason.h says */
};

/* Ends all the frames of one stack. */
static int
drain_stack(struct ct_span_stack *stack, void *arg)
{
  const struct drain *drain = arg;
  if (reserve(drain->spans, stack->count) != 0) {
    return CT_ENOMEM;
  }
  struct ct_span_frame *top = ct_span_stack_top(stack);
  uint64_t tsc = drain->tsc;
  uint8_t end = drain->end;
  if (end == CT_SPAN_OPEN) {
    end = ct_unwind_reason_at_end(&drain->spans->unwind_reason, drain->spans->thread, &drain->spans->stacks, stack);
  }
  uint64_t now = drain->spans->clock.now;
  if (top != NULL && stack->away_since != 0 && now > stack->away_since) {
    top->child_ticks += now - stack->away_since;
    ct_spans_note_away(drain->spans, stack);
  }
  while (stack->count != 0) {
    pop_frame(drain->spans, stack, tsc, end);
  }
  return 0;
}

static int
drain_all(struct ct_spans *spans, uint64_t tsc, uint8_t end)
{
  struct drain drain = {spans, tsc, end};
  return ct_span_stacks_each(&spans->stacks, drain_stack, &drain);
}

static int
leave(struct ct_spans *spans, const struct ct_event *ev)
{
  struct ct_span_stack *stack = spans->stacks.current;
  uint8_t end = ct_unwind_reason_of(&spans->unwind_reason, stack, ev);
  int code = close_frame(spans, ev, ev->fn, end);
  ct_unwind_reason_applied(stack, ev->tsc, end);
  return code;
}

/* The innermost frame has that depth. */
static bool
has_frame_at(const struct ct_span_stack *stack, uint32_t depth)
{
  return stack->count != 0 && stack->base + stack->count == depth + 1;
}

static int
report_instant(struct ct_spans *spans)
{
  if (spans->observer != NULL) {
    ct_spans_report_end(spans, spans->stacks.current, false);
  }
  return 0;
}

/* The kinds that are neither enter nor return. */
static __attribute__((noinline)) int
build_other(struct ct_spans *spans, const struct ct_event *ev)
{
  int code;
  ct_span_clock_event(&spans->clock, ev);
  switch (ev->kind) {
  case CT_EV_TAIL:
    spans->total_events++;
    if ((ev->closed_fn != UINT32_MAX || has_frame_at(spans->stacks.current, ev->depth)) &&
        (code = close_frame(spans, ev, ev->closed_fn, CT_SPAN_TAIL)) != 0) {
      return code;
    }
    return open_frame(spans, ev->fn, ev->depth, ev->tsc, 0);
  case CT_EV_POINT:
    spans->total_events++;
    ct_unwind_reason_point(&spans->unwind_reason, spans->stacks.current, ev->fn);
    emit_instant(spans, ev, CT_SPAN_POINT);
    return report_instant(spans);
  case CT_EV_COUNTED:
    emit_instant(spans, ev, CT_SPAN_COUNTED);
    spans->batch[spans->count - 1].duration_ticks = ev->value;
    return report_instant(spans);
  case CT_EV_ORPHAN_RETURN:
    spans->total_events++;
    emit_instant(spans, ev, CT_SPAN_ORPHAN);
    return report_instant(spans);
  case CT_EV_UNWOUND:
    return leave(spans, ev);
  case CT_EV_AWAY:
    if (ev->reason == CT_AWAY_SOME) {
      ct_span_clock_read(&spans->clock, ev->tsc);
      end_bounds(spans, ev->value);
    }
    return 0;
  case CT_EV_VALUE:
    if (ev->reason == CT_VALUE_BEFORE && ct_span_stack_top(spans->stacks.current) != NULL) {
      ct_span_stack_top(spans->stacks.current)->flags |= CT_SPAN_BEFORE;
    }
    return 0;
  case CT_EV_LOST:
    spans->marks++;
    spans->lost += ev->value;
    return ct_span_stacks_each(&spans->stacks, mark_uncertain, NULL);
  case CT_EV_SWITCH:
    return switch_stack(spans, ev);
  case CT_EV_INTERVAL:
    spans->marks++;
    return 0;
  case CT_EV_EXEC: /* takes all stacks of the thread with it */
    spans->marks++;
    code = drain_all(spans, ev->tsc, CT_SPAN_EXEC);
    code = code == 0 ? ct_span_stacks_switch(&spans->stacks, 0, spans->clock.now) : code;
    spans->stacks.current->away_since = 0;
    return code;
  default:
    return 0;
  }
}

static int
build_one(struct ct_spans *spans, const struct ct_event *ev)
{
  if (ev->kind != CT_EV_ENTER && ev->kind != CT_EV_RETURN) {
    return build_other(spans, ev);
  }
  spans->total_events++;
  ct_span_clock_call(&spans->clock, ev->kind, ev->tsc);
  if (ev->kind == CT_EV_ENTER) {
    return open_frame(spans, ev->fn, ev->depth, ev->tsc, ev->uncertain);
  }
  return close_frame(spans, ev, ev->fn, CT_SPAN_RETURNED);
}

static int
build_noted(struct ct_spans *spans, const struct ct_event *ev)
{
  size_t from = spans->count;
  int code = build_one(spans, ev);
  note_bounds(spans, from);
  return code;
}

/* The thread's events are there again, or have ended, at tsc. */
static __attribute__((noinline, cold)) int
end_gap(struct ct_spans *spans, uint64_t tsc)
{
  ct_span_clock_end_gap(&spans->clock, tsc);
  return spans->gap_ended != NULL ? spans->gap_ended(spans->gap_arg, spans, tsc) : 0;
}

static int
build(struct ct_spans *spans)
{
  const struct ct_event *ev = spans->events + spans->event_pos;
  const struct ct_event *end = spans->events + spans->event_count;
  uint64_t events_before = spans->total_events;
  int code = 0;
  while (ev != end && spans->count + CT_SPANS_SLACK <= CT_SPANS_BATCH && code == 0) {
    if (CT_UNLIKELY(spans->clock.in_gap) && ct_span_clock_goes_on(ev)) {
      if (spans->gap_ended != NULL && spans->count != 0) {
        break; /* what ended before comes first */
      }
      code = end_gap(spans, ev->tsc);
      if (code != 0) {
        break;
      }
    }
    size_t from = spans->count;
    const struct ct_event *stop = ct_spans_plain(spans, ev, end);
    note_bounds(spans, from);
    spans->total_events += (uint64_t)(stop - ev);
    ev = stop;
    if (ev != end && spans->count + CT_SPANS_SLACK <= CT_SPANS_BATCH) {
      code = build_noted(spans, ev++);
    }
  }
  if (spans->before != 0) { /* frames that were open: they are no calls of what is read */
    spans->total_events = events_before;
  }
  if (ev != spans->events) {
    spans->last_tsc = ev[-1].tsc;
  }
  spans->event_pos = (size_t)(ev - spans->events);
  return code;
}

/* The next events; false: they are of the block at which to stop. */
static bool
read_events(struct ct_spans *spans)
{
  if (!spans->stopped) {
    spans->event_pos = 0;
    spans->event_count = ct_cursor_next(spans->cursor, &spans->events);
    spans->events_offset = ct_cursor_block_offset(spans->cursor);
    if (spans->event_count == 0 && spans->follows) {
      return false;
    }
    spans->ended = spans->event_count == 0 || spans->events_offset >= spans->end_offset;
    spans->event_count = spans->ended ? 0 : spans->event_count;
  }
  /* Frames that are entered before a block's own events belong to what was before it: whoever begins there has them. */
  uint64_t ordinal = ct_cursor_ordinal(spans->cursor);
  spans->stopped = !spans->ended && spans->events_offset >= spans->stop_offset && !(ordinal & CT_ORDINAL_BEFORE);
  if (spans->stopped) {
    return false;
  }
  spans->before = ordinal & CT_ORDINAL_BEFORE ? ordinal : 0;
  spans->ordinal = spans->before == 0 ? ordinal : spans->ordinal;
  return true;
}

/* Goes on with the events at hand, reads more of them, or ends the stream. False: there is nothing to go on with. */
static bool
advance(struct ct_spans *spans, int *code)
{
  if (spans->event_pos != spans->event_count) {
    *code = build(spans);
    return true;
  }
  if (!spans->ended) {
    return ct_spans_direct(spans, code) || read_events(spans);
  }
  if (!spans->drained) {
    bool was_in_gap = spans->clock.in_gap;
    uint64_t tsc =
        ct_span_clock_end(&spans->clock, spans->trace, spans->thread, ct_cursor_state(spans->cursor), spans->last_tsc);
    end_bounds(spans, UINT64_MAX); /* of what is after the last of them nothing is known */
    *code = was_in_gap ? end_gap(spans, tsc) : 0;
    *code = *code == 0 ? drain_all(spans, tsc, CT_SPAN_OPEN) : *code;
    spans->drained = true;
    return true;
  }
  return false;
}

int
ct_spans_next(struct ct_spans *spans, const struct ct_span **batch, size_t *count)
{
  spans->count = 0;
  int code = 0;
  while (code == 0 && spans->count == 0 && advance(spans, &code)) {
  }
  *batch = spans->batch;
  *count = 0;
  if (code != 0 || spans->observer_code != 0) {
    return code != 0 ? code : spans->observer_code;
  }
  *count = spans->count;
  return 0;
}

int
ct_spans_gather(struct ct_spans *spans, struct ct_span_gather *gather, const struct ct_span **batch, size_t *count,
                bool *more)
{
  int code = 0;
  bool gathers = spans->bounds.inside == NULL && spans->observer == NULL && spans->tree != NULL;
  spans->count = 0;
  spans->gather = gathers ? gather : NULL;
  *more = advance(spans, &code);
  spans->gather = NULL;
  code = code == 0 ? spans->stats_code : code;
  *batch = spans->batch;
  *count = code == 0 ? spans->count : 0;
  return code;
}

int
ct_spans_sum(struct ct_spans *spans, struct ct_stats *stats, void (*at)(void *arg, uint64_t offset), void *arg)
{
  int code = 0;
  uint64_t offset = 0;
  spans->stats = spans->bounds.inside == NULL && spans->observer == NULL ? stats : NULL;
  spans->count = 0;
  spans->paused = false;
  while (!spans->paused && advance(spans, &code)) {
    if (code != 0) {
      break;
    }
    code = spans->stats_code != 0 ? spans->stats_code : ct_stats_add(stats, spans->batch, spans->count);
    spans->count = 0;
    if (code != 0) {
      break;
    }
    if (at != NULL && ct_spans_offset(spans) != offset) {
      offset = ct_spans_offset(spans);
      at(arg, offset);
    }
  }
  spans->stats = NULL;
  return ct_direct_sums_end(spans, stats, code);
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
ct_spans_marks(const struct ct_spans *spans)
{
  return spans->marks;
}

uint64_t
ct_spans_gap_ticks(const struct ct_spans *spans)
{
  return spans->clock.gap_ticks;
}

void
ct_spans_on_gap(struct ct_spans *spans, int (*ended)(void *arg, const struct ct_spans *spans, uint64_t tsc), void *arg)
{
  spans->gap_ended = ended;
  spans->gap_arg = arg;
}

uint64_t
ct_spans_preempted(const struct ct_spans *spans)
{
  return spans->clock.preempted;
}

uint64_t
ct_spans_offset(const struct ct_spans *spans)
{
  return ct_cursor_offset(spans->cursor);
}

const struct ct_span *
ct_spans_next_span(struct ct_spans *spans)
{
  if (spans->single_count == 0 && ct_spans_next(spans, &spans->single, &spans->single_count) != 0) {
    spans->single_count = 0;
  }
  if (spans->single_count == 0) {
    return NULL;
  }
  spans->single_count--;
  return spans->single++;
}
