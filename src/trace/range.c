/* SPDX-License-Identifier: MIT */
/*
 * A piece of a trace: cursors give the events from one time to another. They begin with the first block that reaches
 * into it, pass over what is too early there, and enter the frames that are open then, as a trace of the last stretch
 * has them at its begin.
 */
#include "trace/cursor_internal.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>

int
ct_trace_set_range(struct ct_trace *trace, uint64_t from_tsc, uint64_t to_tsc)
{
  bool *goes_on = calloc((size_t)trace->thread_count + 1, sizeof(*goes_on));
  if (goes_on == NULL) {
    return CT_ENOMEM;
  }
  if (trace->pasts_are_full) { /* cursors are of one range */
    ct_range_free_pasts(trace);
  }
  free(trace->goes_on);
  trace->goes_on = goes_on;
  trace->has_range = true;
  trace->range_from = from_tsc;
  trace->range_to = to_tsc;
  trace->end_tsc = trace->end_tsc < to_tsc ? trace->end_tsc : to_tsc;
  for (uint32_t i = 0; i < trace->thread_count; i++) {
    struct ct_trace_thread *thread = &trace->threads[i];
    goes_on[i] = thread->end_tsc > to_tsc;
    thread->end_tsc = thread->end_tsc < to_tsc ? thread->end_tsc : to_tsc;
  }
  return CT_OK;
}

void
ct_trace_skip_begun(struct ct_trace *trace)
{
  trace->skips_begun = true;
}

bool
ct_trace_has_range(const struct ct_trace *trace)
{
  return trace->has_range;
}

bool
ct_trace_range(const struct ct_trace *trace, uint64_t *from_tsc, uint64_t *to_tsc)
{
  if (trace->has_range) {
    *from_tsc = trace->range_from;
    *to_tsc = trace->range_to;
  }
  return trace->has_range;
}

int
ct_trace_set_same_range(struct ct_trace *trace, const struct ct_trace *other)
{
  uint64_t from, to;
  if (!ct_trace_range(other, &from, &to)) {
    return CT_OK;
  }
  return ct_trace_set_range(trace, from == 0 ? 0 : ct_trace_tsc(trace, ct_trace_ns(other, from)),
                            to == UINT64_MAX ? to : ct_trace_tsc(trace, ct_trace_ns(other, to)));
}

bool
ct_trace_is_cut(const struct ct_trace *trace, uint32_t thread)
{
  return thread < trace->thread_count &&
         (trace->threads[thread].goes_on != 0 || (trace->has_range && trace->goes_on[thread]));
}

bool
ct_trace_in_range(const struct ct_trace *trace, uint64_t tsc)
{
  return !trace->has_range || (tsc >= trace->range_from && tsc <= trace->range_to);
}

/* ---- windows ---- */

size_t
ct_trace_window_count(const struct ct_trace *trace)
{
  return json_array_size(json_object_get(trace->manifest, "windows"));
}

bool
ct_trace_window(const struct ct_trace *trace, size_t n, struct ct_trace_window *window)
{
  const json_t *item = json_array_get(json_object_get(trace->manifest, "windows"), n);
  *window = (struct ct_trace_window){.begin_tsc = ct_json_get(item, "begin_tsc"),
                                     .end_tsc = ct_json_get(item, "end_tsc"),
                                     .marks = ct_json_get(item, "marks")};
  const json_t *reason = json_array_get(json_object_get(item, "reasons"), 0);
  window->reason = json_string_value(json_object_get(reason, "rule"));
  window->reason_tsc = ct_json_get(reason, "tsc");
  return window->begin_tsc != 0 && window->begin_tsc <= window->end_tsc;
}

void
ct_trace_block_places(const struct ct_trace *trace, uint32_t thread, uint64_t offset, struct ct_block_place *places,
                      size_t most, size_t *count)
{
  static_assert(CT_FIRST_BLOCK_OFFSET == sizeof(struct ct_file_header), "the blocks come after that");
  struct ct_block_file *file = ct_trace_open_thread_file(trace, trace->threads[thread].index);
  struct ct_block_header header;
  *count = 0;
  uint64_t last = ct_trace_end_offset(trace, thread, file);
  while (*count < most && file != NULL && ct_block_file_read(file, &header, sizeof(header), offset) == sizeof(header) &&
         ct_block_header_ok(&header)) {
    uint64_t end = offset + sizeof(header) + header.payload_bytes;
    if (end > last) {
      break;
    }
    places[(*count)++] = (struct ct_block_place){offset, end, header.header_crc, header.number};
    offset = end;
  }
  while (*count != 0 && !ct_block_file_reaches(file, places[*count - 1].end_offset)) {
    (*count)--; /* it is not all there, yet or any more */
  }
  ct_block_file_close(file);
}

/* ---- for cursors ---- */

uint64_t
ct_range_first_block(struct ct_cursor *c, const struct ct_block_file *file)
{
  struct ct_block_header header;
  uint64_t offset = ct_range_place_before(c, c->trace->range_from), before = offset;
  c->passed_count = 0;
  if (offset != sizeof(struct ct_file_header) &&
      (file == NULL || ct_block_file_read(file, &header, sizeof(header), offset) != sizeof(header) ||
       !ct_block_header_ok(&header))) {
    offset = before = sizeof(struct ct_file_header); /* the trace is not what it was */
  }
  c->passed_from = offset;
  while (file != NULL && ct_block_file_read(file, &header, sizeof(header), offset) == sizeof(header) &&
         ct_block_header_ok(&header)) {
    before = offset;
    ct_range_pass_block(c, offset, &header); /* without memory calls are not found */
    if (header.last_tsc >= c->trace->range_from) {
      break;
    }
    offset += sizeof(header) + header.payload_bytes;
  }
  return before;
}

uint32_t
ct_range_ops_before(const struct ct_cursor *c, uint64_t tsc)
{
  const uint8_t *at = c->delta;
  uint64_t now = c->tsc;
  for (uint32_t op = c->op; op < c->header.ops; op++) {
    uint64_t delta = 0;
    for (unsigned shift = 0; at < c->deltas_end && ct_op_has_time(c->ops[op]); shift += 7) {
      delta |= shift < 64 ? (uint64_t)(*at & 0x7f) << shift : 0;
      if ((*at++ & 0x80) == 0) {
        break;
      }
    }
    now += delta;
    if (now >= tsc) {
      return op - c->op;
    }
  }
  return c->header.ops - c->op;
}

size_t
ct_range_events_inside(const struct ct_trace *trace, const struct ct_event *events, size_t count)
{
  while (count > 0 && events[count - 1].tsc > trace->range_to) {
    count--;
  }
  return count;
}

/* ---- the begin ---- */

/* The frames that were open before the first event: they are entered where it begins, as those that an attach finds. */
bool
ct_range_begin(struct ct_cursor *c, const struct ct_frame_stack *now, uint32_t context, uint64_t tsc)
{
  struct ct_event event = {.tsc = tsc, .closed_fn = CT_FUNCTION_NONE};
  if (context != 0) {
    event.kind = CT_EV_SWITCH;
    event.value = context;
    event.depth = now->base;
    if (!ct_cursor_add_pending(c, &event)) {
      return false;
    }
    event.value = 0;
  }
  for (uint32_t i = 0; i < now->count; i++) {
    event.kind = CT_EV_ENTER;
    event.value = 0;
    event.enter_tsc = c->enters_range ? now->frames[i].enter_tsc : 0; /* for ct_range_find_calls */
    event.fn = now->frames[i].fn;
    event.depth = now->base + i;
    event.uncertain = now->frames[i].uncertain != 0;
    event.reason = 0;
    if (!ct_cursor_add_pending(c, &event)) {
      return false;
    }
    event.kind = CT_EV_VALUE;
    event.enter_tsc = 0;
    event.reason = CT_VALUE_BEFORE;
    event.uncertain = 0;
    if (!ct_cursor_add_pending(c, &event)) {
      return false;
    }
  }
  return true;
}

static int
by_context(const void *a, const void *b)
{
  uint32_t x = ((const struct ct_saved_stack *)a)->context, y = ((const struct ct_saved_stack *)b)->context;
  return (x > y) - (x < y);
}

/* The frames of the stacks that the thread is not on, in the order of these, then back to the one it is on. */
bool
ct_range_enter_others(struct ct_cursor *c, uint64_t tsc)
{
  const struct ct_contexts *contexts = &c->contexts;
  struct ct_saved_stack *others = calloc((size_t)contexts->count + 1, sizeof(*others));
  uint32_t count = 0;
  bool ok = others != NULL;
  for (uint32_t i = 0; ok && i < contexts->capacity; i++) {
    if (contexts->slots[i].frames != NULL && count < contexts->count) {
      others[count++] = contexts->slots[i];
    }
  }
  if (count > 0) {
    qsort(others, count, sizeof(*others), by_context);
  }
  for (uint32_t i = 0; ok && i < count; i++) {
    struct ct_frame_stack stack = {.frames = others[i].frames, .count = others[i].count, .base = others[i].floor};
    for (uint32_t n = 0; others[i].losses != c->losses && n < stack.count; n++) {
      stack.frames[n].uncertain = 1;
    }
    ok = ct_range_begin(c, &stack, others[i].context, tsc); /* context 0, on which a thread begins, is the first */
  }
  if (ok && count > 0 && c->context == 0) {
    struct ct_event back = {.kind = CT_EV_SWITCH, .tsc = tsc, .depth = c->stack.base, .closed_fn = CT_FUNCTION_NONE};
    ok = ct_cursor_add_pending(c, &back);
  }
  free(others);
  return ok;
}

/* Of the time that a thread was away only what is in the piece counts there: the frames are entered at its begin. */
size_t
ct_range_clip_away(const struct ct_trace *trace, struct ct_event *events, size_t count)
{
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    struct ct_event *event = &events[i];
    if (event->kind == CT_EV_AWAY && event->enter_tsc < trace->range_from) {
      uint64_t before = trace->range_from - event->enter_tsc;
      if (before >= event->value) {
        continue;
      }
      event->value -= before;
      event->enter_tsc = trace->range_from;
    }
    events[kept++] = *event;
  }
  return kept;
}

size_t
ct_range_take_away(struct ct_cursor *c, size_t from, size_t count)
{
  size_t kept = from;
  uint64_t end = c->trace->range_to;
  for (size_t i = from; i < count; i++) {
    struct ct_event event = c->batch[i];
    if (event.kind == CT_EV_AWAY && event.enter_tsc < end) {
      event.value = event.value < end - event.enter_tsc ? event.value : end - event.enter_tsc;
      event.tsc = end;
      c->batch[kept++] = event;
    }
  }
  return kept - from;
}

/* What says that a thread was away comes at the end of that time, or some events later. */
size_t
ct_range_look_on(struct ct_cursor *c, const struct ct_event **events)
{
  c->looks_on = false;
  *events = c->batch;
  size_t count = ct_cursor_read(c, events);
  c->state = CT_CURSOR_END;
  if (*events != c->batch) {
    return 0;
  }
  return ct_range_clip_away(c->trace, c->batch, ct_range_take_away(c, 0, count));
}

/*
 * In a range a frame of which the trace does not say there when it was entered (a stack that the thread was not on at
 * the begin of the first block, the outer ones of a deep recursion) ends as one whose call was not seen.
 */
size_t
ct_range_drop_unknown(struct ct_event *events, size_t count)
{
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    bool is_unknown = (events[i].kind == CT_EV_RETURN || events[i].kind == CT_EV_UNWOUND) && events[i].enter_tsc == 0;
    if (is_unknown && events[i].kind == CT_EV_UNWOUND) {
      continue;
    }
    events[kept] = events[i];
    if (is_unknown) {
      events[kept].kind = CT_EV_ORPHAN_RETURN;
      events[kept].uncertain = 0;
    }
    kept++;
  }
  return kept;
}
