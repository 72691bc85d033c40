/* SPDX-License-Identifier: MIT */
/*
 * Replay: which lines, in which order; see replay.h. How a line looks is in replay_lines.c.
 *
 * Each thread is a lane: a cursor and the stacks of its open frames. A heap gives the
 * lane whose next event is the earliest; it goes on until another one is earlier. A lane's cursor
 * is opened when its first event is due and closed at its end, so that a trace of thousands of
 * short threads needs the memory of those alive at one time.
 *
 * A call is a leaf when the next event of its lane ends it: one event of look-ahead. Its
 * line is written at the enter and the end writes nothing. Values stand beside the event whose they are and are taken
 * with it: arguments after it, a result before it.
 */
#include <contrail/replay.h>

#include "base/sized.h"
#include "trace/batch.h"
#include "views/labels.h"
#include "views/unwind_reason.h"
#include "views/replay_lines.h"
#include "views/select.h"
#include "views/spans.h"
#include "views/stacks.h"
#include "views/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum frame_flags {
  SHOWN = 1,    /* has a line */
  SELECTED = 2, /* the function filter lets it and what is below it through */
  WRITTEN = 4,  /* a leaf whose line is out */
  BEFORE = 8,   /* open when the recording began */
};

enum { KEEP_OPEN_LANES = 16, COLUMN_CHARS = 64, RESULTS_MAX = 8 };
#define NO_CAPTURE SIZE_MAX

/* The result of a call, reported before its return. In between there may be a handler's calls. */
struct result {
  uint64_t value;
  uint64_t context;
  uint32_t depth;
};

struct lane {
  struct ct_cursor *cursor; /* NULL before its first event is due */
  const struct ct_event *events;
  size_t count;               /* 0: no more */
  size_t pos;                 /* of the next event */
  uint64_t next_tsc;          /* of the next event or what the thread wrote, whichever comes first */
  uint64_t event_tsc;         /* of the next event; after the last one of the end; UINT64_MAX: that has been too */
  uint64_t last_tsc;          /* of the event taken last, or of the end */
  bool is_read;               /* to the end of the stream; the cursor is closed */
  bool has_ended;             /* and what was open has been shown */
  struct ct_view_clock clock; /* at the event taken last */
  size_t capture;             /* position of the next thing that the thread wrote, NO_CAPTURE: none */
  uint64_t published_bytes;   /* to the progress line */
  uint32_t thread;
  uint64_t numbers[CT_VALUE_RESULT + 1]; /* of the event taken last ... */
  uint8_t values;                        /* ... bit enum ct_value: which of them are known */
  bool is_before;                        /* ... and it was open when the recording began */
  struct result results[RESULTS_MAX];    /* whose returns are to come, the innermost last */
  uint32_t result_count;
  uint64_t context; /* after that event */
  struct ct_view_stacks stacks;
  char column[COLUMN_CHARS];
};

struct replay {
  struct ct_trace *trace;
  const struct ct_replay_options *options;
  struct ct_view_notes *notes;
  struct ct_labels labels;
  struct ct_unwind_reason unwind_reason;
  struct ct_line_writer lines;
  struct ct_captures captures;
  size_t *next_capture; /* of each, the next one of the same thread */
  struct lane *lanes;
  size_t lane_count;
  struct lane **heap;
  size_t heap_count;
  uint64_t line_count;
  uint64_t done_bytes;
  uint64_t total_bytes;
};

/* ---- Lanes ---- */

static void
note_next(const struct replay *r, struct lane *lane)
{
  if (lane->count != 0) {
    lane->event_tsc = lane->events[lane->pos].tsc;
  }
  lane->next_tsc = lane->event_tsc;
  if (lane->capture != NO_CAPTURE && r->captures.items[lane->capture].tsc < lane->next_tsc) {
    lane->next_tsc = r->captures.items[lane->capture].tsc;
  }
}

static void
report_progress(struct replay *r, struct lane *lane)
{
  uint64_t offset = ct_cursor_offset(lane->cursor);
  if (offset == lane->published_bytes || r->options->progress.update == NULL) {
    return;
  }
  r->done_bytes += offset - lane->published_bytes;
  lane->published_bytes = offset;
  r->options->progress.update(r->options->progress.arg, r->done_bytes, r->total_bytes);
}

static void
close_cursor(struct replay *r, struct lane *lane)
{
  if (lane->cursor != NULL && ct_cursor_state(lane->cursor) == CT_CURSOR_DAMAGED) {
    if (r->notes->damaged_threads++ == 0) {
      r->notes->first_damaged_tid = ct_trace_thread(r->trace, lane->thread)->tid;
    }
  }
  ct_cursor_close(lane->cursor);
  lane->cursor = NULL;
}

/* Where the calls end that are open after the last event: other threads' events may come before. */
static void
end_of_stream(struct replay *r, struct lane *lane)
{
  struct ct_view_clock then = lane->clock;
  lane->is_read = true;
  lane->event_tsc = ct_view_clock_end(&then, r->trace, lane->thread, ct_cursor_state(lane->cursor), lane->last_tsc);
  close_cursor(r, lane);
}

static void
refill(struct replay *r, struct lane *lane)
{
  lane->pos = 0;
  lane->count = ct_cursor_next(lane->cursor, &lane->events);
  report_progress(r, lane);
  if (lane->count == 0) {
    end_of_stream(r, lane);
  }
  note_next(r, lane);
}

static int
open_lane(struct replay *r, struct lane *lane, struct ct_diag *diag)
{
  int rc = ct_cursor_open(r->trace, lane->thread, 0, &lane->cursor, diag);
  if (rc == 0) {
    refill(r, lane);
  }
  return rc;
}

static void
step(struct replay *r, struct lane *lane)
{
  if (++lane->pos == lane->count) {
    refill(r, lane);
  } else {
    note_next(r, lane);
  }
}

/* The result that is known of a frame at this depth of the current stack; NULL when none is. */
static const struct result *
result_at(const struct lane *lane, uint32_t depth)
{
  for (uint32_t i = lane->result_count; i-- > 0;) {
    if (lane->results[i].context == lane->context && lane->results[i].depth == depth) {
      return &lane->results[i];
    }
  }
  return NULL;
}

/* What a frame that ends leaves behind: its own result, which is the event's when it returns, and those further in. */
static void
take_result(struct lane *lane, const struct ct_event *event)
{
  const struct result *result = result_at(lane, event->depth);
  if (result != NULL && event->kind == CT_EV_RETURN) {
    lane->numbers[CT_VALUE_RESULT] = result->value;
    lane->values = 1u << CT_VALUE_RESULT;
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i < lane->result_count; i++) {
    if (lane->results[i].context != lane->context || lane->results[i].depth < event->depth) {
      lane->results[kept++] = lane->results[i];
    }
  }
  lane->result_count = kept;
}

static void
keep_result(struct lane *lane, const struct ct_event *value)
{
  if (lane->result_count == RESULTS_MAX) {
    memmove(lane->results, lane->results + 1, --lane->result_count * sizeof(lane->results[0]));
  }
  lane->results[lane->result_count++] = (struct result){value->value, lane->context, value->depth};
}

/* Takes the next event and its values; the one after it can be looked at then, without the first being lost. */
static void
take(struct replay *r, struct lane *lane, struct ct_event *event)
{
  *event = lane->events[lane->pos];
  lane->last_tsc = event->tsc;
  ct_view_clock_event(&lane->clock, event);
  step(r, lane);
  lane->values = 0;
  lane->is_before = false;
  if (event->kind == CT_EV_SWITCH || event->kind == CT_EV_EXEC) {
    lane->context = event->kind == CT_EV_SWITCH ? event->value : 0;
  }
  if (event->kind == CT_EV_RETURN || event->kind == CT_EV_LEFT) {
    take_result(lane, event);
  }
  bool opens = event->kind == CT_EV_ENTER || event->kind == CT_EV_TAIL;
  while (lane->count != 0 && lane->events[lane->pos].kind == CT_EV_VALUE) {
    const struct ct_event *value = &lane->events[lane->pos];
    bool is_argument = value->reason == CT_VALUE_ARG_1 || value->reason == CT_VALUE_ARG_2;
    if (value->reason == CT_VALUE_RESULT) {
      keep_result(lane, value);
    } else if (is_argument && opens && value->depth == event->depth) {
      lane->numbers[value->reason] = value->value;
      lane->values |= (uint8_t)(1u << value->reason);
    } else if (value->reason == CT_VALUE_BEFORE && opens) {
      lane->is_before = true;
    } else {
      break;
    }
    ct_view_clock_event(&lane->clock, value);
    step(r, lane);
  }
}

static void
put_values(const struct lane *lane, struct ct_line *line)
{
  line->values = lane->values;
  memcpy(line->numbers, lane->numbers, sizeof(line->numbers));
}

static const struct ct_event *
peek(const struct lane *lane)
{
  return lane->count != 0 ? &lane->events[lane->pos] : NULL;
}

static void
close_lane(struct replay *r, struct lane *lane)
{
  close_cursor(r, lane);
  ct_view_stacks_destroy(&lane->stacks);
}

static bool
earlier(const struct lane *a, const struct lane *b)
{
  if (a->next_tsc != b->next_tsc) {
    return a->next_tsc < b->next_tsc;
  }
  return a->thread < b->thread;
}

static void
sift_down(struct replay *r, size_t i)
{
  for (;;) {
    size_t child = 2 * i + 1;
    if (child >= r->heap_count) {
      return;
    }
    if (child + 1 < r->heap_count && earlier(r->heap[child + 1], r->heap[child])) {
      child++;
    }
    if (!earlier(r->heap[child], r->heap[i])) {
      return;
    }
    struct lane *lane = r->heap[i];
    r->heap[i] = r->heap[child];
    r->heap[child] = lane;
    i = child;
  }
}

/* The lane that comes after the first one; NULL when there is one lane only. */
static const struct lane *
second(const struct replay *r)
{
  if (r->heap_count < 2) {
    return NULL;
  }
  if (r->heap_count == 2 || earlier(r->heap[1], r->heap[2])) {
    return r->heap[1];
  }
  return r->heap[2];
}

/* ---- Lines ---- */

static bool
full(const struct replay *r)
{
  return r->lines.failed || (r->options->limit != 0 && r->line_count >= r->options->limit);
}

static void
write_line(struct replay *r, const struct lane *lane, struct ct_line *line)
{
  if (full(r)) {
    return;
  }
  if (!line->on_other_stack) {
    line->context = lane->context;
  }
  ct_lines_put(&r->lines, lane->column, line);
  r->line_count++;
}

static uint64_t
duration(uint64_t from, uint64_t to)
{
  return to > from ? to - from : 0;
}

/* Decides about a frame from the one above it (NULL: none) and the filters. */
static void
classify(const struct replay *r, struct ct_view_frame *frame, const struct ct_view_frame *above,
         const struct ct_label *label, uint32_t depth)
{
  const struct ct_replay_options *o = r->options;
  bool inside = above != NULL && (above->flags & SELECTED) != 0;
  bool selected = inside || label->function_matches;
  if (o->function_glob == NULL) {
    frame->below = depth;
  } else {
    frame->below = inside ? above->below + 1 : 0;
  }
  frame->level = above != NULL ? above->level + (above->flags & SHOWN) : 0;
  frame->flags = selected ? SELECTED : 0;
  if (selected && label->module_matches && (o->depth == 0 || frame->below < o->depth)) {
    frame->flags |= SHOWN;
  }
}

static void
write_close(struct replay *r, const struct lane *lane, const struct ct_view_frame *frame, struct ct_line *line)
{
  if ((frame->flags & SHOWN) == 0 || (!r->options->json && (frame->flags & WRITTEN) != 0)) {
    return;
  }
  line->level = frame->level;
  write_line(r, lane, line);
}

/* Ends the innermost frames, down to `keep`, without an event of their own. */
static int
end_frames(struct replay *r, struct lane *lane, struct ct_view_stack *stack, uint32_t keep, uint8_t end)
{
  while (stack->count > keep) {
    struct ct_view_frame *frame = &stack->frames[--stack->count];
    const struct ct_label *label = ct_label_of(&r->labels, frame->fn);
    if (label == NULL) {
      return CT_ENOMEM;
    }
    struct ct_line line = {.kind = CT_LINE_CLOSE,
                           .tsc = lane->last_tsc,
                           .ticks = lane->clock.now - frame->began,
                           .depth = stack->base + stack->count,
                           .context = stack->context,
                           .on_other_stack = true,
                           .label = label,
                           .end = end,
                           .before_trace = (frame->flags & BEFORE) != 0};
    write_close(r, lane, frame, &line);
  }
  return 0;
}

/* Makes `depth` the number of open frames; only after damage is it not that already. */
static int
fit_depth(struct replay *r, struct lane *lane, uint32_t depth)
{
  struct ct_view_stack *stack = lane->stacks.current;
  if (stack->base + stack->count == depth) {
    return 0;
  }
  int rc = end_frames(r, lane, stack, ct_view_stack_fit(stack, depth), CT_SPAN_LOST);
  if (stack->count == 0) {
    stack->base = depth;
  }
  return rc;
}

struct lane_end {
  struct replay *replay;
  struct lane *lane;
  uint8_t end; /* CT_SPAN_OPEN: what unwind_reason.h says */
};

static int
end_stack(struct ct_view_stack *stack, void *arg)
{
  struct lane_end *a = arg;
  uint8_t end = a->end == CT_SPAN_OPEN
                    ? ct_unwind_reason_at_end(&a->replay->unwind_reason, a->lane->thread, &a->lane->stacks, stack)
                    : a->end;
  return end_frames(a->replay, a->lane, stack, 0, end);
}

/* Ends the frames of all stacks. */
static int
end_stacks(struct replay *r, struct lane *lane, uint8_t end)
{
  struct lane_end a = {r, lane, end};
  return ct_view_stacks_each(&lane->stacks, end_stack, &a);
}

/* How the innermost frame ends by event, which has not been applied yet. */
static uint8_t
end_of(struct replay *r, const struct lane *lane, const struct ct_event *event)
{
  if (event->kind == CT_EV_RETURN) {
    return CT_SPAN_RETURNED;
  }
  if (event->kind == CT_EV_TAIL) {
    return CT_SPAN_TAIL;
  }
  return ct_unwind_reason_of(&r->unwind_reason, lane->stacks.current, event);
}

/* Does `next` end the frame that `event` opened? */
static bool
ends_leaf(const struct ct_event *event, const struct ct_event *next)
{
  if (next == NULL || next->depth != event->depth) {
    return false;
  }
  if (next->kind == CT_EV_RETURN || next->kind == CT_EV_LEFT) {
    return next->fn == event->fn;
  }
  return next->kind == CT_EV_TAIL && next->closed_fn == event->fn;
}

/* ---- Events ---- */

/* An ENTER or the opening half of a TAIL (replaced: the frame that ended). */
static int
open_frame(struct replay *r, struct lane *lane, const struct ct_event *event, const struct ct_view_frame *replaced)
{
  struct ct_view_stack *stack = lane->stacks.current;
  int rc = fit_depth(r, lane, event->depth);
  if (rc != 0) {
    return rc;
  }
  const struct ct_label *label = ct_label_of(&r->labels, event->fn);
  struct ct_view_frame *frame = ct_view_stack_push(stack);
  if (label == NULL || frame == NULL) {
    return CT_ENOMEM;
  }
  frame->enter_tsc = event->tsc;
  frame->began = lane->clock.now;
  frame->fn = event->fn;
  classify(r, frame, stack->count > 1 ? frame - 1 : NULL, label, event->depth);
  if (replaced != NULL && (replaced->flags & SELECTED) != 0 && (frame->flags & SELECTED) == 0) {
    /* What a selected function tail-calls goes on in its place. */
    struct ct_view_frame above = {.flags = SELECTED, .below = replaced->below - 1, .level = replaced->level};
    classify(r, frame, &above, label, event->depth);
  }
  frame->flags |= lane->is_before ? BEFORE : 0;
  if ((frame->flags & SHOWN) == 0 || (r->options->json && event->kind == CT_EV_TAIL)) {
    return 0;
  }
  struct ct_line line = {.kind = CT_LINE_OPEN,
                         .tsc = event->tsc,
                         .level = frame->level,
                         .depth = event->depth,
                         .label = label,
                         .before_trace = lane->is_before};
  put_values(lane, &line);
  const struct ct_event *next = peek(lane);
  if (!r->options->json && ends_leaf(event, next)) {
    const struct result *result = next->kind == CT_EV_RETURN ? result_at(lane, event->depth) : NULL;
    if (result != NULL) {
      line.numbers[CT_VALUE_RESULT] = result->value;
      line.values |= 1u << CT_VALUE_RESULT;
    }
    line.kind = CT_LINE_LEAF;
    struct ct_view_clock then = lane->clock;
    line.ticks = ct_view_clock_event(&then, next) - frame->began;
    line.end = end_of(r, lane, next);
    line.uncertain = next->uncertain;
    if (next->kind == CT_EV_TAIL && (line.other = ct_label_of(&r->labels, next->fn)) == NULL) {
      return CT_ENOMEM;
    }
    frame->flags |= WRITTEN;
  }
  write_line(r, lane, &line);
  return 0;
}

/* RETURN, LEFT or the closing half of a TAIL. closed: how the frame was shown. */
static int
close_frame(struct replay *r, struct lane *lane, const struct ct_event *event, uint32_t fn,
            struct ct_view_frame *closed)
{
  struct ct_view_stack *stack = lane->stacks.current;
  const struct ct_label *label = ct_label_of(&r->labels, fn);
  int rc = fit_depth(r, lane, event->depth + 1);
  if (rc != 0 || label == NULL) {
    return CT_ENOMEM;
  }
  struct ct_line line = {.kind = CT_LINE_CLOSE,
                         .tsc = event->tsc,
                         .depth = event->depth,
                         .label = label,
                         .end = end_of(r, lane, event),
                         .uncertain = event->uncertain};
  if (event->kind == CT_EV_RETURN) {
    put_values(lane, &line);
  }
  if (stack->count != 0) {
    *closed = stack->frames[--stack->count];
    line.ticks = lane->clock.now - closed->began;
    line.before_trace = (closed->flags & BEFORE) != 0;
  } else {
    stack->base = event->depth;
    line.ticks = duration(event->enter_tsc, event->tsc);
    line.before_trace = true;
    classify(r, closed, NULL, label, event->depth);
  }
  if (event->kind == CT_EV_LEFT) {
    ct_unwind_reason_applied(stack, event->tsc, line.end);
  }
  if (r->options->json && event->kind == CT_EV_TAIL) {
    return 0; /* one object tells both halves */
  }
  if (event->kind == CT_EV_TAIL && (line.other = ct_label_of(&r->labels, event->fn)) == NULL) {
    return CT_ENOMEM;
  }
  write_close(r, lane, closed, &line);
  return 0;
}

static int
replay_tail(struct replay *r, struct lane *lane, const struct ct_event *event)
{
  struct ct_view_frame closed = {0};
  bool had_frame = event->closed_fn != UINT32_MAX;
  int rc = had_frame ? close_frame(r, lane, event, event->closed_fn, &closed) : 0;
  if (rc == 0) {
    rc = open_frame(r, lane, event, had_frame ? &closed : NULL);
  }
  if (rc != 0 || !r->options->json) {
    return rc;
  }
  const struct ct_view_frame *frame = ct_view_stack_top(lane->stacks.current);
  if (((frame->flags | closed.flags) & SHOWN) == 0) {
    return 0;
  }
  struct ct_line line = {.kind = CT_LINE_TAIL,
                         .tsc = event->tsc,
                         .ticks = had_frame ? lane->clock.now - closed.began : 0,
                         .depth = event->depth,
                         .label = ct_label_of(&r->labels, event->fn),
                         .other = had_frame ? ct_label_of(&r->labels, event->closed_fn) : NULL,
                         .uncertain = event->uncertain};
  put_values(lane, &line);
  write_line(r, lane, &line);
  return 0;
}

static int
replay_instant(struct replay *r, struct lane *lane, const struct ct_event *event)
{
  const struct ct_label *label = ct_label_of(&r->labels, event->fn);
  if (label == NULL) {
    return CT_ENOMEM;
  }
  struct ct_view_frame frame = {0};
  if (event->kind == CT_EV_POINT) {
    ct_unwind_reason_point(&r->unwind_reason, lane->stacks.current, event->fn);
  }
  classify(r, &frame, ct_view_stack_top(lane->stacks.current), label, event->depth);
  if ((frame.flags & SHOWN) == 0) {
    return 0;
  }
  struct ct_line line = {.kind = event->kind == CT_EV_POINT ? CT_LINE_POINT : CT_LINE_ORPHAN,
                         .tsc = event->tsc,
                         .value = event->kind == CT_EV_POINT ? event->value : 0,
                         .level = frame.level,
                         .depth = event->depth,
                         .label = label};
  write_line(r, lane, &line);
  return 0;
}

/* A value that does not stand beside its event. */
static int
replay_value(struct replay *r, struct lane *lane, const struct ct_event *event)
{
  const struct ct_view_frame *frame = ct_view_stack_top(lane->stacks.current);
  const struct ct_label *label = ct_label_of(&r->labels, event->fn);
  if (label == NULL) {
    return CT_ENOMEM;
  }
  if (frame == NULL || (frame->flags & SHOWN) == 0 || event->reason > CT_VALUE_RESULT) {
    return 0;
  }
  struct ct_line line = {.kind = CT_LINE_VALUE,
                         .tsc = event->tsc,
                         .value = event->value,
                         .level = frame->level + 1,
                         .depth = event->depth,
                         .label = label,
                         .values = (uint8_t)(1u << event->reason)};
  write_line(r, lane, &line);
  return 0;
}

static bool
is_filtered(const struct replay *r)
{
  return r->options->function_glob != NULL || r->options->module_glob != NULL || r->options->depth != 0;
}

static bool
top_is_shown(const struct lane *lane)
{
  const struct ct_view_frame *top = ct_view_stack_top(lane->stacks.current);
  return top != NULL && (top->flags & SHOWN) != 0;
}

/* LOST, SWITCH, EXEC, INTERVAL, AWAY. A stack switch is shown next to shown calls only when there are filters. */
static int
replay_mark(struct replay *r, struct lane *lane, const struct ct_event *event)
{
  bool wanted = true;
  struct ct_line line = {.kind = CT_LINE_LOST, .tsc = event->tsc, .value = event->value, .depth = event->depth};
  if (event->kind == CT_EV_EXEC) {
    line.kind = CT_LINE_EXEC;
    int rc = end_stacks(r, lane, CT_SPAN_EXEC);
    if (rc == 0) {
      rc = ct_view_stacks_switch(&lane->stacks, 0, event->tsc);
    }
    if (rc != 0) {
      return rc;
    }
  } else if (event->kind == CT_EV_INTERVAL) {
    line.kind = CT_LINE_INTERVAL;
  } else if (event->kind == CT_EV_AWAY) {
    line.kind = CT_LINE_AWAY;
    line.ticks = event->value;
    line.end = event->reason;
    wanted = !is_filtered(r) || top_is_shown(lane);
  } else if (event->kind == CT_EV_SWITCH) {
    line.kind = CT_LINE_SWITCH;
    wanted = !is_filtered(r) || top_is_shown(lane);
    int rc = ct_unwind_reason_switch(&r->unwind_reason, &lane->stacks, event->value, event->tsc);
    if (rc != 0) {
      return rc;
    }
    wanted = wanted || top_is_shown(lane);
  }
  const struct ct_view_frame *top = ct_view_stack_top(lane->stacks.current);
  line.level = top != NULL ? top->level + (top->flags & SHOWN) : 0;
  if (wanted) {
    write_line(r, lane, &line);
  }
  return 0;
}

static int
replay_event(struct replay *r, struct lane *lane, const struct ct_event *event)
{
  struct ct_view_frame closed = {0};
  switch (event->kind) {
  case CT_EV_ENTER:
    return open_frame(r, lane, event, NULL);
  case CT_EV_RETURN:
  case CT_EV_LEFT:
    return close_frame(r, lane, event, event->fn, &closed);
  case CT_EV_TAIL:
    return replay_tail(r, lane, event);
  case CT_EV_POINT:
  case CT_EV_ORPHAN_RETURN:
    return replay_instant(r, lane, event);
  case CT_EV_VALUE:
    return replay_value(r, lane, event);
  case CT_EV_LOST:
  case CT_EV_SWITCH:
  case CT_EV_EXEC:
  case CT_EV_INTERVAL:
  case CT_EV_AWAY:
    return replay_mark(r, lane, event);
  default:
    return 0;
  }
}

/* A piece of what the thread wrote, a line for each of its lines. It stands below the innermost call. */
static void
replay_capture(struct replay *r, struct lane *lane)
{
  const struct ct_captured *item = &r->captures.items[lane->capture];
  bool filtered = is_filtered(r);
  const struct ct_view_frame *top = ct_view_stack_top(lane->stacks.current);
  struct ct_line line = {.kind = CT_LINE_CAPTURE, .tsc = item->tsc, .fd = item->fd};
  line.level = top != NULL ? top->level + (top->flags & SHOWN) : 0;
  line.depth = lane->stacks.current->base + lane->stacks.current->count;
  for (size_t at = 0; at < item->bytes && (!filtered || top_is_shown(lane)) && !full(r);) {
    const char *text = item->data + at;
    const char *end = memchr(text, '\n', item->bytes - at);
    line.text = text;
    line.value = end != NULL ? (uint64_t)(end - text) : item->bytes - at;
    at += line.value + 1;
    write_line(r, lane, &line);
  }
  lane->capture = r->next_capture[lane->capture];
  note_next(r, lane);
}

/* ---- The merge ---- */

/* Everything that the lane had is shown. */
static bool
is_over(const struct lane *lane)
{
  return lane->has_ended && lane->capture == NO_CAPTURE;
}

/* After the last event: what is open there ends. */
static int
end_lane(struct replay *r, struct lane *lane)
{
  ct_view_clock_end_gap(&lane->clock, lane->event_tsc);
  ct_view_clock_read(&lane->clock, lane->event_tsc);
  lane->last_tsc = lane->event_tsc;
  lane->has_ended = true;
  lane->event_tsc = UINT64_MAX;
  note_next(r, lane);
  return end_stacks(r, lane, CT_SPAN_OPEN);
}

/* Replays the first lane while it is the earliest. */
static int
run_lane(struct replay *r, struct lane *lane, struct ct_diag *diag)
{
  int rc = 0;
  if (lane->cursor == NULL && !lane->is_read && (rc = open_lane(r, lane, diag)) != 0) {
    return rc;
  }
  if (lane->stacks.current == NULL) {
    rc = ct_view_stacks_init(&lane->stacks);
  }
  const struct lane *other = second(r);
  while (rc == 0 && !is_over(lane) && !full(r) && (other == NULL || !earlier(other, lane))) {
    if (lane->next_tsc < lane->event_tsc) {
      replay_capture(r, lane);
    } else if (lane->count == 0) {
      rc = end_lane(r, lane);
    } else {
      struct ct_event event;
      take(r, lane, &event);
      rc = replay_event(r, lane, &event);
    }
  }
  return rc != 0 ? ct_fail(diag, rc, "out of memory for the open calls of a thread") : 0;
}

static int
merge(struct replay *r, struct ct_diag *diag)
{
  while (r->heap_count != 0 && !full(r)) {
    struct lane *lane = r->heap[0];
    int rc = run_lane(r, lane, diag);
    if (rc != 0) {
      return rc;
    }
    if (is_over(lane)) {
      close_lane(r, lane);
      r->heap[0] = r->heap[--r->heap_count];
    }
    sift_down(r, 0);
  }
  ct_lines_flush(&r->lines);
  return 0;
}

/* The thread column: name/tid in text, the tid in JSON. */
static void
name_lanes(struct replay *r, size_t *columns)
{
  *columns = strlen("thread");
  for (size_t i = 0; i < r->lane_count; i++) {
    struct lane *lane = &r->lanes[i];
    const struct ct_trace_thread *thread = ct_trace_thread(r->trace, lane->thread);
    if (r->options->json || thread->name[0] == '\0') {
      snprintf(lane->column, sizeof(lane->column), "%u", thread->tid);
    } else {
      snprintf(lane->column, sizeof(lane->column), "%.32s/%u", thread->name, thread->tid);
    }
    for (char *p = lane->column; *p != '\0'; p++) {
      if ((unsigned char)*p < 0x20 || *p == 0x7f) {
        *p = '?';
      }
    }
    size_t length = ct_text_columns(lane->column);
    if (length > *columns) {
      *columns = length;
    }
  }
  for (size_t i = 0; i < r->lane_count && !r->options->json; i++) {
    char *column = r->lanes[i].column;
    size_t used = ct_text_columns(column), bytes = strlen(column);
    while (used++ < *columns && bytes + 1 < COLUMN_CHARS) {
      column[bytes++] = ' ';
    }
    column[bytes] = '\0';
  }
}

/* What was written, each piece with the next one of its thread. A file that cannot be read is as none. */
static int
load_captures(struct replay *r)
{
  if (r->options->no_output || ct_trace_captures(r->trace, &r->captures) != 0) {
    return 0;
  }
  r->next_capture = malloc((r->captures.count + 1) * sizeof(*r->next_capture));
  if (r->next_capture == NULL) {
    return CT_ENOMEM;
  }
  /* The last one of each thread so far, by tid; a table twice as large as there can be threads. */
  size_t size = 16;
  while (size < 2 * r->captures.count) {
    size *= 2;
  }
  size_t *latest = malloc(size * sizeof(*latest));
  if (latest == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < size; i++) {
    latest[i] = NO_CAPTURE;
  }
  for (size_t i = r->captures.count; i-- > 0;) {
    size_t at = r->captures.items[i].tid & (size - 1);
    while (latest[at] != NO_CAPTURE && r->captures.items[latest[at]].tid != r->captures.items[i].tid) {
      at = (at + 1) & (size - 1);
    }
    r->next_capture[i] = latest[at];
    latest[at] = i;
  }
  free(latest);
  return 0;
}

static size_t
first_capture(const struct replay *r, uint32_t tid)
{
  for (size_t i = 0; r->next_capture != NULL && i < r->captures.count; i++) {
    if (r->captures.items[i].tid == tid) {
      return i;
    }
  }
  return NO_CAPTURE;
}

static int
make_lanes(struct replay *r, struct ct_diag *diag)
{
  uint32_t *threads;
  int rc = ct_choose_threads(r->trace, r->options->tids, r->options->tid_count, &threads, &r->lane_count, diag);
  if (rc != 0) {
    return rc;
  }
  r->lanes = calloc(r->lane_count + 1, sizeof(*r->lanes));
  r->heap = malloc((r->lane_count + 1) * sizeof(struct lane *));
  if (r->lanes == NULL || r->heap == NULL) {
    rc = ct_fail(diag, CT_ENOMEM, "out of memory for the threads of the trace");
  }
  for (size_t i = 0; i < r->lane_count && rc == 0; i++) {
    struct lane *lane = &r->lanes[i];
    lane->thread = threads[i];
    ct_view_clock_init(&lane->clock, r->trace, r->options->time);
    lane->capture = first_capture(r, ct_trace_thread(r->trace, lane->thread)->tid);
    r->total_bytes += ct_trace_thread(r->trace, lane->thread)->file_bytes;
    rc = open_lane(r, lane, diag);
    if (rc != 0) {
      break;
    }
    if (lane->count == 0 && lane->capture == NO_CAPTURE) {
      close_lane(r, lane);
      continue;
    }
    r->heap[r->heap_count++] = lane;
    if (r->heap_count > KEEP_OPEN_LANES) {
      ct_cursor_close(lane->cursor);
      lane->cursor = NULL;
    }
  }
  free(threads);
  for (size_t i = r->heap_count; i-- > 0;) {
    sift_down(r, i);
  }
  return rc;
}

static int
write_replay(struct ct_trace *trace, const struct ct_replay_options *options, FILE *out, struct ct_view_notes *notes,
             struct ct_diag *diag)
{
  struct replay r = {.trace = trace, .options = options, .notes = notes};
  int rc = load_captures(&r);
  rc = rc != 0 ? ct_fail(diag, rc, "out of memory for what the program wrote") : make_lanes(&r, diag);
  if (rc == 0 && (ct_labels_init(&r.labels, trace, options->function_glob, options->module_glob) != 0 ||
                  ct_unwind_reason_init(&r.unwind_reason, trace) != 0 ||
                  ct_lines_init(&r.lines, trace, out, options->json) != 0)) {
    rc = ct_fail(diag, CT_ENOMEM, "out of memory for the names of the functions");
  }
  r.labels.source = options->source;
  if (rc == 0) {
    size_t columns;
    name_lanes(&r, &columns);
    ct_lines_warnings(&r.lines);
    ct_lines_heading(&r.lines, columns);
    rc = merge(&r, diag);
  }
  notes->shown = r.line_count;
  for (size_t i = 0; r.lanes != NULL && i < r.lane_count; i++) {
    close_lane(&r, &r.lanes[i]);
  }
  if (rc == 0 && r.lines.failed) {
    errno = r.lines.failed_errno;
    rc = ct_fail(diag, CT_EIO, "cannot write the replay: %s", strerror(errno));
  }
  ct_lines_destroy(&r.lines);
  ct_labels_destroy(&r.labels);
  ct_unwind_reason_destroy(&r.unwind_reason);
  ct_captures_free(&r.captures);
  free(r.next_capture);
  free(r.lanes);
  free(r.heap);
  return rc;
}

int
ct_replay_write(struct ct_trace *trace, const struct ct_replay_options *given, FILE *out, struct ct_view_notes *notes,
                struct ct_diag *diag)
{
  struct ct_replay_options options;
  struct ct_view_notes own = {0};
  int rc = ct_sized_take(&options, sizeof(options), given, diag);
  if (rc == 0) {
    rc = write_replay(trace, &options, out, &own, diag);
  }
  return rc == 0 && notes != NULL ? ct_sized_give(notes, &own, sizeof(own), diag) : rc;
}
