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
#include "views/replay_internal.h"

#include "base/sized.h"
#include "views/filter.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Lines ---- */

static bool
full(const struct replay *r)
{
  return r->lines.failed || r->is_cancelled || r->sink_code != 0 ||
         (r->sink != NULL && r->sink->is_done(r->sink->arg)) ||
         (r->options->filter->limit != 0 && r->line_count >= r->options->filter->limit);
}

bool
replay_is_about_ends(const struct replay *r)
{
  const struct ct_filter *o = r->options->filter;
  return o->min_ns != 0 || o->max_ns != 0 || o->reasons != 0;
}

/* What is said of types, durations and reasons; CT_SPAN_ENDS: the line describes no end. */
static bool
passes(const struct replay *r, const struct ct_line *line)
{
  static const struct {
    uint8_t type, end;
  } kinds[] = {
      [CT_LINE_OPEN] = {CT_FILTER_CALL, CT_SPAN_ENDS},        [CT_LINE_LEAF] = {CT_FILTER_CALL, CT_SPAN_RETURNED},
      [CT_LINE_CLOSE] = {CT_FILTER_CALL, CT_SPAN_RETURNED},   [CT_LINE_TAIL] = {CT_FILTER_CALL, CT_SPAN_TAIL},
      [CT_LINE_POINT] = {CT_FILTER_POINT, CT_SPAN_POINT},     [CT_LINE_ORPHAN] = {CT_FILTER_CALL, CT_SPAN_ORPHAN},
      [CT_LINE_COUNTED] = {CT_FILTER_POINT, CT_SPAN_COUNTED}, [CT_LINE_LOST] = {CT_FILTER_LOST, CT_SPAN_ENDS},
      [CT_LINE_SWITCH] = {CT_FILTER_SWITCH, CT_SPAN_ENDS},    [CT_LINE_EXEC] = {CT_FILTER_SWITCH, CT_SPAN_ENDS},
      [CT_LINE_CAPTURE] = {CT_FILTER_OUTPUT, CT_SPAN_ENDS},   [CT_LINE_INTERVAL] = {CT_FILTER_POINT, CT_SPAN_ENDS},
      [CT_LINE_AWAY] = {CT_FILTER_SWITCH, CT_SPAN_ENDS},      [CT_LINE_VALUE] = {CT_FILTER_CALL, CT_SPAN_ENDS},
      [CT_LINE_CRASH] = {CT_FILTER_CRASH, CT_SPAN_ENDS},
  };
  const struct ct_filter *o = r->options->filter;
  unsigned end = kinds[line->kind].end;
  if (o->types != 0 && (o->types & kinds[line->kind].type) == 0) {
    return false;
  }
  if (!replay_is_about_ends(r)) {
    return true;
  }
  if (end == CT_SPAN_ENDS || (line->kind == CT_LINE_TAIL && line->other == NULL)) {
    return false;
  }
  end = end == CT_SPAN_RETURNED ? line->end : end;
  struct ct_filter ends = {.min_ns = o->min_ns, .max_ns = o->max_ns, .reasons = o->reasons};
  return ct_filter_call_passes(&ends, ct_trace_ticks_ns(r->trace, line->ticks), line->depth, end);
}

static void
write_line(struct replay *r, const struct lane *lane, struct ct_line *line)
{
  if (full(r) || (r->is_filtered && !passes(r, line))) {
    return;
  }
  if (r->is_before_after) {
    r->is_before_after = line->id != r->options->filter->after; /* the first line of that call is the last not shown */
    return;
  }
  if (!line->on_other_stack) {
    line->context = lane->context;
  }
  if (r->sink != NULL) {
    r->sink_code = r->sink->line(r->sink->arg, lane, line);
    return;
  }
  ct_lines_put(&r->lines, lane->column, line);
  r->line_count++;
}

/* The line is about the call with this ordinal, or about none, above the frame below. */
static void
identify(const struct replay *r, const struct lane *lane, struct ct_line *line, uint64_t ordinal,
         const struct ct_span_frame *below)
{
  if (r->options->json || r->is_before_after) {
    line->id = ct_span_lane_id(&lane->ids, ordinal);
    line->parent = below != NULL ? ct_span_lane_id(&lane->ids, below->ordinal) : 0;
  }
}

static uint64_t
duration(uint64_t from, uint64_t to)
{
  return to > from ? to - from : 0;
}

void
replay_classify(const struct replay *r, const struct lane *lane, struct ct_span_frame *frame,
                const struct ct_span_frame *above, const struct ct_label *label, uint32_t depth)
{
  const struct ct_filter *o = r->options->filter;
  bool inside = above != NULL && (above->flags & REPLAY_SELECTED) != 0;
  bool matches = r->sink != NULL ? r->sink->wants(r->sink->arg, lane->thread, frame->ordinal) : label->function_matches;
  bool selected = inside || matches;
  if (o->function == NULL) {
    frame->below = depth;
  } else {
    frame->below = inside ? above->below + 1 : 0;
  }
  frame->level = above != NULL ? above->level + (above->flags & REPLAY_SHOWN) : 0;
  frame->flags = selected ? REPLAY_SELECTED : 0;
  if (selected && label->place_matches && (o->levels == 0 || frame->below < o->levels) &&
      (!o->has_depths || (depth >= o->first_depth && depth <= o->last_depth))) {
    frame->flags |= REPLAY_SHOWN;
  }
}

static void
write_close(struct replay *r, const struct lane *lane, const struct ct_span_frame *frame, struct ct_line *line)
{
  if ((frame->flags & REPLAY_SHOWN) == 0 || (!r->options->json && (frame->flags & REPLAY_WRITTEN) != 0)) {
    return;
  }
  line->level = frame->level;
  write_line(r, lane, line);
}

/* Ends the innermost frames, down to `keep`, without an event of their own. */
static int
end_frames(struct replay *r, struct lane *lane, struct ct_span_stack *stack, uint32_t keep, uint8_t end)
{
  while (stack->count > keep) {
    struct ct_span_frame *frame = &stack->frames[--stack->count];
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
                           .uncertain = (frame->flags & REPLAY_UNCERTAIN) != 0,
                           .before_trace = (frame->flags & REPLAY_BEFORE) != 0};
    identify(r, lane, &line, frame->ordinal, ct_span_stack_top(stack));
    write_close(r, lane, frame, &line);
  }
  return 0;
}

/* Makes `depth` the number of open frames; only after damage is it not that already. */
static int
fit_depth(struct replay *r, struct lane *lane, uint32_t depth)
{
  struct ct_span_stack *stack = lane->stacks.current;
  if (stack->base + stack->count == depth) {
    return 0;
  }
  int code = end_frames(r, lane, stack, ct_span_stack_fit(stack, depth), CT_SPAN_LOST);
  if (stack->count == 0) {
    stack->base = depth;
  }
  return code;
}

struct lane_end {
  struct replay *replay;
  struct lane *lane;
  uint8_t end; /* CT_SPAN_OPEN: what unwind_reason.h says */
};

static int
end_stack(struct ct_span_stack *stack, void *arg)
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
  return ct_span_stacks_each(&lane->stacks, end_stack, &a);
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
  if (next->kind == CT_EV_RETURN || next->kind == CT_EV_UNWOUND) {
    return next->fn == event->fn;
  }
  return next->kind == CT_EV_TAIL && next->closed_fn == event->fn;
}

/* ---- Events ---- */

/* An ENTER or the opening half of a TAIL (replaced: the frame that ended). */
static int
open_frame(struct replay *r, struct lane *lane, const struct ct_event *event, const struct ct_span_frame *replaced)
{
  struct ct_span_stack *stack = lane->stacks.current;
  int code = fit_depth(r, lane, event->depth);
  if (code != 0) {
    return code;
  }
  const struct ct_label *label = ct_label_of(&r->labels, event->fn);
  struct ct_span_frame *frame = ct_span_stack_push(stack);
  if (label == NULL || frame == NULL) {
    return CT_ENOMEM;
  }
  if (r->sink != NULL && r->sink->set_clock != NULL) {
    r->sink->set_clock(r->sink->arg, lane->thread, lane->ordinal, &lane->clock);
  }
  frame->enter_tsc = event->tsc;
  frame->began = lane->clock.now;
  frame->fn = event->fn;
  frame->ordinal = lane->ordinal;
  replay_classify(r, lane, frame, stack->count > 1 ? frame - 1 : NULL, label, event->depth);
  if (replaced != NULL && r->sink == NULL && (replaced->flags & REPLAY_SELECTED) != 0 &&
      (frame->flags & REPLAY_SELECTED) == 0) {
    /* What a selected function tail-calls goes on in its place. */
    struct ct_span_frame above = {.flags = REPLAY_SELECTED, .below = replaced->below - 1, .level = replaced->level};
    replay_classify(r, lane, frame, &above, label, event->depth);
  }
  frame->flags |= (lane->is_before ? REPLAY_BEFORE : 0u) | (event->uncertain != 0 ? REPLAY_UNCERTAIN : 0u);
  if ((frame->flags & REPLAY_SHOWN) == 0 || (r->options->json && event->kind == CT_EV_TAIL)) {
    return 0;
  }
  struct ct_line line = {.kind = CT_LINE_OPEN,
                         .tsc = event->tsc,
                         .level = frame->level,
                         .depth = event->depth,
                         .label = label,
                         .before_trace = lane->is_before};
  identify(r, lane, &line, frame->ordinal, stack->count > 1 ? frame - 1 : NULL);
  replay_put_values(lane, &line);
  const struct ct_event *next = replay_peek(lane);
  if (!r->options->json && ends_leaf(event, next)) {
    const struct result *result = next->kind == CT_EV_RETURN ? replay_result_at(lane, event->depth) : NULL;
    if (result != NULL) {
      replay_add_result(lane, result);
    }
    replay_add_result_detail(lane, next);
    replay_put_values(lane, &line);
    line.kind = CT_LINE_LEAF;
    struct ct_span_clock then = lane->clock;
    line.ticks = ct_span_clock_event(&then, next) - frame->began;
    line.end = end_of(r, lane, next);
    line.uncertain = next->uncertain;
    if (next->kind == CT_EV_TAIL && (line.other = ct_label_of(&r->labels, next->fn)) == NULL) {
      return CT_ENOMEM;
    }
    frame->flags |= REPLAY_WRITTEN;
  }
  write_line(r, lane, &line);
  return 0;
}

/* RETURN, UNWOUND or the closing half of a TAIL. closed: how the frame was shown. */
static int
close_frame(struct replay *r, struct lane *lane, const struct ct_event *event, uint32_t fn,
            struct ct_span_frame *closed)
{
  struct ct_span_stack *stack = lane->stacks.current;
  const struct ct_label *label = ct_label_of(&r->labels, fn);
  int code = fit_depth(r, lane, event->depth + 1);
  if (code != 0 || label == NULL) {
    return CT_ENOMEM;
  }
  struct ct_line line = {.kind = CT_LINE_CLOSE,
                         .tsc = event->tsc,
                         .depth = event->depth,
                         .label = label,
                         .end = end_of(r, lane, event),
                         .uncertain = event->uncertain};
  if (event->kind == CT_EV_RETURN) {
    replay_put_values(lane, &line);
  }
  if (stack->count != 0) {
    *closed = stack->frames[--stack->count];
    line.ticks = lane->clock.now - closed->began;
    line.before_trace = (closed->flags & REPLAY_BEFORE) != 0;
    identify(r, lane, &line, closed->ordinal, ct_span_stack_top(stack));
  } else {
    stack->base = event->depth;
    line.ticks = duration(event->enter_tsc, event->tsc);
    line.before_trace = true;
    closed->ordinal = CT_NO_ORDINAL;
    replay_classify(r, lane, closed, NULL, label, event->depth);
  }
  if (event->kind == CT_EV_UNWOUND) {
    ct_unwind_reason_applied(stack, event->tsc, line.end);
  }
  if (r->options->json && event->kind == CT_EV_TAIL) {
    return 0; /* one object has both halves */
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
  struct ct_span_frame closed = {0};
  bool had_frame = event->closed_fn != UINT32_MAX;
  int code = had_frame ? close_frame(r, lane, event, event->closed_fn, &closed) : 0;
  if (code == 0) {
    code = open_frame(r, lane, event, had_frame ? &closed : NULL);
  }
  if (code != 0 || !r->options->json) {
    return code;
  }
  const struct ct_span_frame *frame = ct_span_stack_top(lane->stacks.current);
  if (((replay_is_about_ends(r) ? closed.flags : frame->flags | closed.flags) & REPLAY_SHOWN) == 0) {
    return 0;
  }
  struct ct_line line = {.kind = CT_LINE_TAIL,
                         .tsc = event->tsc,
                         .ticks = had_frame ? lane->clock.now - closed.began : 0,
                         .depth = event->depth,
                         .label = ct_label_of(&r->labels, event->fn),
                         .other = had_frame ? ct_label_of(&r->labels, event->closed_fn) : NULL,
                         .uncertain = event->uncertain};
  identify(r, lane, &line, frame->ordinal, lane->stacks.current->count > 1 ? frame - 1 : NULL);
  replay_put_values(lane, &line);
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
  const struct ct_filter *o = r->options->filter;
  if (event->kind == CT_EV_COUNTED && (o->levels != 0 || o->has_depths)) {
    return 0; /* these calls were at any depth */
  }
  struct ct_span_frame frame = {.ordinal = CT_NO_ORDINAL};
  if (event->kind == CT_EV_POINT) {
    ct_unwind_reason_point(&r->unwind_reason, lane->stacks.current, event->fn);
  }
  replay_classify(r, lane, &frame, ct_span_stack_top(lane->stacks.current), label, event->depth);
  if ((frame.flags & REPLAY_SHOWN) == 0) {
    return 0;
  }
  struct ct_line line = {.kind = event->kind == CT_EV_POINT     ? CT_LINE_POINT
                                 : event->kind == CT_EV_COUNTED ? CT_LINE_COUNTED
                                                                : CT_LINE_ORPHAN,
                         .tsc = event->tsc,
                         .value = event->kind != CT_EV_ORPHAN_RETURN ? event->value : 0,
                         .level = frame.level,
                         .depth = event->depth,
                         .label = label};
  identify(r, lane, &line, lane->ordinal, ct_span_stack_top(lane->stacks.current));
  write_line(r, lane, &line);
  return 0;
}

/* A value that does not stand beside its event. */
static int
replay_value(struct replay *r, struct lane *lane, const struct ct_event *event)
{
  const struct ct_span_frame *frame = ct_span_stack_top(lane->stacks.current);
  const struct ct_label *label = ct_label_of(&r->labels, event->fn);
  if (label == NULL) {
    return CT_ENOMEM;
  }
  if (frame == NULL || (frame->flags & REPLAY_SHOWN) == 0 || event->reason >= CT_VALUE_COUNT ||
      event->reason == CT_VALUE_BEFORE) {
    return 0;
  }
  struct ct_line line = {.kind = CT_LINE_VALUE,
                         .tsc = event->tsc,
                         .value = event->value,
                         .level = frame->level + 1,
                         .depth = event->depth,
                         .label = label,
                         .which = event->reason};
  identify(r, lane, &line, frame->ordinal, lane->stacks.current->count > 1 ? frame - 1 : NULL);
  write_line(r, lane, &line);
  return 0;
}

static bool
is_filtered(const struct replay *r)
{
  const struct ct_filter *o = r->options->filter;
  return r->sink != NULL || o->function != NULL || o->module != NULL || o->file != NULL || o->levels != 0 ||
         o->has_depths;
}

static bool
top_is_shown(const struct lane *lane)
{
  const struct ct_span_frame *top = ct_span_stack_top(lane->stacks.current);
  return top != NULL && (top->flags & REPLAY_SHOWN) != 0;
}

static int
mark_uncertain(struct ct_span_stack *stack, void *arg)
{
  (void)arg;
  for (uint32_t i = 0; i < stack->count; i++) {
    stack->frames[i].flags |= REPLAY_UNCERTAIN;
  }
  return 0;
}

/* LOST, SWITCH, EXEC, INTERVAL, AWAY. A stack switch is shown next to shown calls only when there are filters. */
static int
replay_mark(struct replay *r, struct lane *lane, const struct ct_event *event)
{
  bool wanted = true;
  struct ct_line line = {.kind = CT_LINE_LOST, .tsc = event->tsc, .value = event->value, .depth = event->depth};
  if (event->kind == CT_EV_EXEC) {
    line.kind = CT_LINE_EXEC;
    int code = end_stacks(r, lane, CT_SPAN_EXEC);
    if (code == 0) {
      code = ct_span_stacks_switch(&lane->stacks, 0, event->tsc);
    }
    if (code != 0) {
      return code;
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
    int code = ct_unwind_reason_switch(&r->unwind_reason, &lane->stacks, event->value, event->tsc);
    if (code != 0) {
      return code;
    }
    wanted = wanted || top_is_shown(lane);
  } else {
    ct_span_stacks_each(&lane->stacks, mark_uncertain, NULL);
  }
  const struct ct_span_frame *top = ct_span_stack_top(lane->stacks.current);
  line.level = top != NULL ? top->level + (top->flags & REPLAY_SHOWN) : 0;
  identify(r, lane, &line, CT_NO_ORDINAL, top);
  if (wanted) {
    write_line(r, lane, &line);
  }
  return 0;
}

static int
replay_event(struct replay *r, struct lane *lane, const struct ct_event *event)
{
  struct ct_span_frame closed = {0};
  switch (event->kind) {
  case CT_EV_ENTER:
    return open_frame(r, lane, event, NULL);
  case CT_EV_RETURN:
  case CT_EV_UNWOUND:
    return close_frame(r, lane, event, event->fn, &closed);
  case CT_EV_TAIL:
    return replay_tail(r, lane, event);
  case CT_EV_POINT:
  case CT_EV_COUNTED:
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
  const struct ct_span_frame *top = ct_span_stack_top(lane->stacks.current);
  struct ct_line line = {.kind = CT_LINE_CAPTURE, .tsc = item->tsc, .fd = item->fd};
  line.level = top != NULL ? top->level + (top->flags & REPLAY_SHOWN) : 0;
  line.depth = lane->stacks.current->base + lane->stacks.current->count;
  identify(r, lane, &line, CT_NO_ORDINAL, top);
  for (size_t at = 0; at < item->bytes && (!filtered || top_is_shown(lane)) && !full(r);) {
    const char *text = item->data + at;
    const char *end = memchr(text, '\n', item->bytes - at);
    line.text = text;
    line.value = end != NULL ? (uint64_t)(end - text) : item->bytes - at;
    at += line.value + 1;
    write_line(r, lane, &line);
  }
  lane->capture_tsc = item->tsc;
  lane->capture = r->next_capture[lane->capture];
  replay_note_next(r, lane);
}

/* The signal that ended the program. It came while the innermost call was open. */
static void
replay_crash(struct replay *r, struct lane *lane)
{
  const struct ct_span_frame *top = ct_span_stack_top(lane->stacks.current);
  struct ct_line line = {.kind = CT_LINE_CRASH, .tsc = lane->crash_tsc, .text = r->crash_text};
  line.level = top != NULL ? top->level + (top->flags & REPLAY_SHOWN) : 0;
  line.depth = lane->stacks.current->base + lane->stacks.current->count;
  identify(r, lane, &line, CT_NO_ORDINAL, top);
  if (!is_filtered(r) || top_is_shown(lane)) {
    write_line(r, lane, &line);
  }
  lane->crash_tsc = 0;
  replay_note_next(r, lane);
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
  ct_span_clock_end_gap(&lane->clock, lane->event_tsc);
  ct_span_clock_read(&lane->clock, lane->event_tsc);
  lane->last_tsc = lane->event_tsc;
  lane->has_ended = true;
  if (lane->crash_tsc != 0) {
    replay_crash(r, lane); /* nothing is later than that */
  }
  lane->event_tsc = UINT64_MAX;
  replay_note_next(r, lane);
  return end_stacks(r, lane, CT_SPAN_OPEN);
}

/* Replays the first lane while it is the earliest. */
static int
run_lane(struct replay *r, struct lane *lane, struct ct_diag *diag)
{
  int code = 0;
  if (lane->cursor == NULL && !lane->is_read && (code = replay_open_lane(r, lane, diag)) != 0) {
    return code;
  }
  if (lane->stacks.current == NULL) {
    code = ct_span_stacks_init(&lane->stacks);
  }
  const struct lane *other = replay_second(r);
  while (code == 0 && !is_over(lane) && !full(r) && lane->next_tsc <= r->until &&
         (other == NULL || !replay_earlier(other, lane))) {
    if (lane->next_tsc < lane->event_tsc && lane->next_tsc == lane->crash_tsc) {
      replay_crash(r, lane);
    } else if (lane->next_tsc < lane->event_tsc) {
      replay_capture(r, lane);
    } else if (lane->count == 0) {
      code = end_lane(r, lane);
    } else {
      struct ct_event event;
      if (lane->lands && (code = replay_land(r, lane)) != 0) {
        return ct_fail(diag, code, "the index of the trace makes no sense: remove %s/spans.cti",
                       ct_trace_path(r->trace));
      }
      replay_take(r, lane, &event);
      if (lane->has_landed) {
        replay_fill(lane, &event);
      }
      code = replay_event(r, lane, &event);
    }
  }
  return code != 0 ? ct_fail(diag, code, "out of memory for the open calls of a thread") : 0;
}

int
replay_merge(struct replay *r, struct ct_diag *diag)
{
  while (r->heap_count != 0 && !full(r) && r->heap[0]->next_tsc <= r->until) {
    struct lane *lane = r->heap[0];
    int code = run_lane(r, lane, diag);
    if (code != 0) {
      return code;
    }
    if (is_over(lane)) {
      replay_close_lane(r, lane);
      r->heap[0] = r->heap[--r->heap_count];
    }
    replay_sift_down(r, 0);
  }
  if (r->sink == NULL) {
    ct_lines_flush(&r->lines);
  }
  return 0;
}

/* All that it reads besides calls, and its lines. */
static int
open_replay(struct replay *r, struct ct_view_pattern *pattern, bool follows, FILE *out, struct ct_diag *diag)
{
  if (!follows) {
    int code = replay_load_captures(r);
    code = code == 0 ? replay_load_crash(r) : code;
    if (code != 0) {
      return ct_fail(diag, code, "out of memory for what the program wrote");
    }
    code = replay_index_open(r, pattern, diag);
    if (code != 0) {
      return code;
    }
    code = replay_make_lanes(r, diag);
    if (code != 0) {
      return code;
    }
  }
  if (ct_labels_init(&r->labels, r->trace, pattern) != 0 || ct_unwind_reason_init(&r->unwind_reason, r->trace) != 0 ||
      ct_lines_init(&r->lines, r->trace, out, r->options->json) != 0) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the names of the functions");
  }
  r->labels.source = r->options->source;
  r->labels.short_names = r->options->short_names;
  return 0;
}

static int
give_lines(struct replay *r, bool follows, struct ct_diag *diag)
{
  if (follows) {
    return replay_live(r, diag);
  }
  if (r->sink == NULL) {
    size_t columns;
    replay_name_lanes(r, &columns);
    ct_lines_warnings(&r->lines);
    ct_lines_heading(&r->lines, columns);
  }
  int code = replay_merge(r, diag);
  return code == 0 && r->sink_code != 0 ? ct_fail(diag, r->sink_code, "out of memory for the calls") : code;
}

/* Of one whose lines have been given: whether they are all that was asked for. */
static int
judge(const struct replay *r, struct ct_diag *diag)
{
  if (r->is_cancelled) {
    return ct_fail(diag, CT_ECANCELED, "cancelled");
  }
  if (r->lines.failed) {
    errno = r->lines.failed_errno;
    return ct_fail(diag, CT_EIO, "cannot write the replay: %s", strerror(errno));
  }
  if (r->is_before_after) {
    return ct_fail(diag, CT_ERANGE, "no line that is asked for is of a call with the id %" PRIu64,
                   r->options->filter->after);
  }
  return 0;
}

static int
write_replay(struct ct_trace *trace, const struct ct_replay_options *options, const struct replay_sink *sink, FILE *out,
             struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct replay r = {.trace = trace, .options = options, .notes = notes, .sink = sink, .until = UINT64_MAX};
  bool follows = options->follow != NULL && !ct_trace_is_complete(trace);
  r.is_filtered = options->filter->types != 0 || replay_is_about_ends(&r);
  r.is_before_after = options->filter->after != 0;
  struct ct_view_pattern pattern;
  int code = ct_view_pattern_init(&pattern, trace, options->filter->function, options->filter->module,
                                  options->filter->file, diag);
  if (code != 0) {
    return code;
  }
  r.pattern = &pattern;
  code = open_replay(&r, &pattern, follows, out, diag);
  if (code != 0) {
    goto close;
  }
  code = give_lines(&r, follows, diag);
close:
  notes->shown = r.line_count;
  for (size_t i = 0; r.lanes != NULL && i < r.lane_count; i++) {
    replay_close_lane(&r, &r.lanes[i]);
  }
  code = code == 0 ? judge(&r, diag) : code;
  replay_index_close(&r);
  ct_lines_destroy(&r.lines);
  ct_labels_destroy(&r.labels);
  ct_view_pattern_destroy(&pattern);
  ct_unwind_reason_destroy(&r.unwind_reason);
  ct_captures_free(&r.captures);
  free(r.crash_text);
  free(r.next_capture);
  free(r.lanes);
  free(r.live);
  free(r.heap);
  return code;
}

int
ct_replay_selected(struct ct_trace *trace, const struct ct_replay_options *options, const struct replay_sink *sink,
                   struct ct_view_notes *notes, struct ct_diag *diag)
{
  return write_replay(trace, options, sink, NULL, notes, diag);
}

int
ct_replay_write(struct ct_trace *trace, const struct ct_replay_options *given, FILE *out, struct ct_view_notes *notes,
                struct ct_diag *diag)
{
  struct ct_replay_options options;
  struct ct_view_notes own = {0};
  struct ct_filter filter;
  int code = ct_sized_take(&options, sizeof(options), given, diag);
  if (code != 0) {
    return code;
  }
  code = ct_filter_take_after(options.filter, &filter, diag);
  if (code != 0) {
    return code;
  }
  options.filter = &filter;
  code = write_replay(trace, &options, NULL, out, &own, diag);
  return code == 0 && notes != NULL ? ct_sized_give(notes, &own, sizeof(own), diag) : code;
}
