/* SPDX-License-Identifier: MIT */
/* Lanes: a thread's events one by one with their values, and which lane is due; see replay_internal.h. */
#include "views/replay_internal.h"

#include "views/select.h"
#include "views/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEEP_OPEN_LANES = 16 };

void
replay_note_next(const struct replay *r, struct lane *lane)
{
  if (lane->count != 0) {
    lane->event_tsc = lane->events[lane->pos].tsc;
  }
  lane->next_tsc = lane->event_tsc;
  if (lane->capture != NO_CAPTURE && r->captures.items[lane->capture].tsc < lane->next_tsc) {
    lane->next_tsc = r->captures.items[lane->capture].tsc;
  }
  if (lane->crash_tsc != 0 && lane->crash_tsc < lane->next_tsc) {
    lane->next_tsc = lane->crash_tsc;
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
  r->is_cancelled |= r->options->progress.update(r->options->progress.arg, r->done_bytes, r->total_bytes) != 0;
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
  if (r->is_live) { /* what may come is not before what is due now */
    lane->event_tsc = UINT64_MAX;
    return;
  }
  struct ct_span_clock then = lane->clock;
  lane->is_read = true;
  lane->event_tsc = ct_span_clock_end(&then, r->trace, lane->thread, ct_cursor_state(lane->cursor), lane->last_tsc);
  close_cursor(r, lane);
}

/* Of a trace that grows: names of functions may have been written after we looked for them. */
static bool
names_unknown(const struct replay *r, const struct lane *lane)
{
  uint32_t known = ct_trace_function_count(r->trace);
  for (size_t i = 0; i < lane->count; i++) {
    if (lane->events[i].fn >= known && lane->events[i].fn != UINT32_MAX) {
      return true;
    }
  }
  return false;
}

void
replay_refill(struct replay *r, struct lane *lane)
{
  lane->pos = 0;
  lane->count = ct_cursor_next(lane->cursor, &lane->events);
  if (lane->wanted != NULL) {
    replay_pass_over(r, lane);
  }
  report_progress(r, lane);
  uint64_t ordinal = ct_cursor_ordinal(lane->cursor);
  lane->before = ordinal & CT_ORDINAL_BEFORE ? ordinal : 0;
  lane->next_ordinal = lane->before == 0 ? ordinal : lane->next_ordinal;
  if (r->is_live && names_unknown(r, lane)) {
    lane->held = lane->count;
    lane->count = 0;
    lane->event_tsc = UINT64_MAX;
  } else if (lane->count == 0) {
    end_of_stream(r, lane);
  }
  replay_note_next(r, lane);
}

int
replay_open_lane(struct replay *r, struct lane *lane, struct ct_diag *diag)
{
  int code = ct_cursor_open(r->trace, lane->thread, 0, &lane->cursor, diag);
  if (code == 0) {
    replay_index_begin(r, lane);
    int of_details = lane->details == NULL ? ct_details_open(r->trace, lane->thread, &lane->details, NULL) : 0;
    if (of_details != 0) {
      lane->details = NULL; /* most have none */
      r->notes->damaged_details += of_details == CT_EFORMAT;
    }
    replay_refill(r, lane);
  }
  return code;
}

static void
step(struct replay *r, struct lane *lane)
{
  if (++lane->pos == lane->count) {
    replay_refill(r, lane);
  } else {
    replay_note_next(r, lane);
  }
}

const struct result *
replay_result_at(const struct lane *lane, uint32_t depth)
{
  for (uint32_t i = lane->result_count; i-- > 0;) {
    if (lane->results[i].context == lane->context && lane->results[i].depth == depth) {
      return &lane->results[i];
    }
  }
  return NULL;
}

/* The registers of the event taken last, to be added to. */
static struct ct_value_registers *
known_registers(struct lane *lane)
{
  if (!lane->has_detail) {
    memset(&lane->detail, 0, sizeof(lane->detail));
    lane->has_detail = true;
  }
  return &lane->detail;
}

void
replay_add_result(struct lane *lane, const struct result *result)
{
  for (uint32_t i = 0; i < result->count; i++) {
    ct_registers_add_value(known_registers(lane), &result->values[i]);
  }
}

/* What a frame that ends leaves behind: its own result, which is the event's when it returns, and those further in. */
static void
take_result(struct lane *lane, const struct ct_event *event)
{
  const struct result *result = replay_result_at(lane, event->depth);
  if (result != NULL && event->kind == CT_EV_RETURN) {
    replay_add_result(lane, result);
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
  struct result *result = (struct result *)replay_result_at(lane, value->depth);
  if (result == NULL) {
    if (lane->result_count == RESULTS_MAX) {
      memmove(lane->results, lane->results + 1, --lane->result_count * sizeof(lane->results[0]));
    }
    result = &lane->results[lane->result_count++];
    *result = (struct result){.context = lane->context, .depth = value->depth};
  }
  if (result->count < RESULT_VALUES_MAX) {
    result->values[result->count++] = *value;
  }
}

void
replay_take_late_results(struct replay *r, struct lane *lane)
{
  while (lane->count != 0 && lane->events[lane->pos].kind == CT_EV_VALUE &&
         ct_value_is_result(lane->events[lane->pos].reason)) {
    keep_result(lane, &lane->events[lane->pos]);
    ct_span_clock_event(&lane->clock, &lane->events[lane->pos]);
    step(r, lane);
  }
}

static void
take_detail(struct lane *lane, const struct ct_event *event)
{
  lane->has_detail = false;
  lane->raw = NULL;
  const struct ct_detail *detail = lane->details != NULL ? ct_details_of(lane->details, event) : NULL;
  if (detail != NULL) {
    lane->raw = detail;
    memset(&lane->detail, 0, sizeof(lane->detail));
    ct_registers_add(&lane->detail, detail, lane->detail_stack, sizeof(lane->detail_stack));
    lane->has_detail = true;
  }
}

void
replay_add_result_detail(struct lane *lane, const struct ct_event *event)
{
  const struct ct_detail *detail =
      lane->details != NULL && event->kind == CT_EV_RETURN ? ct_details_of(lane->details, event) : NULL;
  if (detail != NULL) {
    ct_registers_add(known_registers(lane), detail, NULL, 0);
  }
}

/* The ordinal of an event that is a call. */
static uint64_t
take_ordinal(struct lane *lane, const struct ct_event *event)
{
  if (event->kind != CT_EV_ENTER && event->kind != CT_EV_TAIL && event->kind != CT_EV_POINT) {
    return CT_NO_ORDINAL;
  }
  return lane->before != 0 ? lane->before | event->depth : lane->next_ordinal++;
}

void
replay_take(struct replay *r, struct lane *lane, struct ct_event *event)
{
  *event = lane->events[lane->pos];
  lane->ordinal = take_ordinal(lane, event);
  lane->last_tsc = event->tsc;
  ct_span_clock_event(&lane->clock, event);
  step(r, lane);
  take_detail(lane, event);
  lane->is_before = false;
  if (event->kind == CT_EV_SWITCH || event->kind == CT_EV_EXEC) {
    lane->context = event->kind == CT_EV_SWITCH ? event->value : 0;
  }
  if (event->kind == CT_EV_RETURN || event->kind == CT_EV_UNWOUND) {
    take_result(lane, event);
  }
  bool opens = event->kind == CT_EV_ENTER || event->kind == CT_EV_TAIL;
  while (lane->count != 0 && !lane->lands && lane->events[lane->pos].kind == CT_EV_VALUE) {
    const struct ct_event *value = &lane->events[lane->pos];
    if (ct_value_is_result(value->reason)) {
      keep_result(lane, value);
    } else if (value->reason != CT_VALUE_BEFORE && opens && value->depth == event->depth) {
      ct_registers_add_value(known_registers(lane), value);
    } else if (value->reason == CT_VALUE_BEFORE && opens) {
      lane->is_before = true;
    } else {
      break;
    }
    ct_span_clock_event(&lane->clock, value);
    step(r, lane);
  }
  if (lane->is_before) { /* a trace of the last stretch may begin between two arguments */
    lane->has_detail = false;
    lane->raw = NULL;
  }
}

void
replay_put_values(const struct lane *lane, struct ct_line *line)
{
  if (lane->has_detail) {
    line->detail = &lane->detail;
    line->raw = lane->raw;
  }
}

void
replay_close_lane(struct replay *r, struct lane *lane)
{
  close_cursor(r, lane);
  r->notes->damaged_details += lane->details != NULL && ct_details_state(lane->details) == CT_CURSOR_DAMAGED;
  ct_details_close(lane->details);
  lane->details = NULL;
  ct_span_stacks_destroy(&lane->stacks);
}

void
replay_sift_down(struct replay *r, size_t i)
{
  for (;;) {
    size_t child = 2 * i + 1;
    if (child >= r->heap_count) {
      return;
    }
    if (child + 1 < r->heap_count && replay_earlier(r->heap[child + 1], r->heap[child])) {
      child++;
    }
    if (!replay_earlier(r->heap[child], r->heap[i])) {
      return;
    }
    struct lane *lane = r->heap[i];
    r->heap[i] = r->heap[child];
    r->heap[child] = lane;
    i = child;
  }
}

int
replay_load_captures(struct replay *r)
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

size_t
replay_first_capture(const struct replay *r, uint32_t tid)
{
  for (size_t i = 0; r->next_capture != NULL && i < r->captures.count; i++) {
    if (r->captures.items[i].tid == tid) {
      return i;
    }
  }
  return NO_CAPTURE;
}

/* The thread column: name/tid in text, the tid in JSON. */
void
replay_name_lane(const struct replay *r, struct lane *lane)
{
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
}

void
replay_pad_lane(struct lane *lane, size_t columns)
{
  size_t used = ct_text_columns(lane->column), bytes = strlen(lane->column);
  while (used++ < columns && bytes + 1 < COLUMN_CHARS) {
    lane->column[bytes++] = ' ';
  }
  lane->column[bytes] = '\0';
}

void
replay_name_lanes(struct replay *r, size_t *columns)
{
  *columns = strlen("thread");
  for (size_t i = 0; i < r->lane_count; i++) {
    replay_name_lane(r, &r->lanes[i]);
    size_t length = ct_text_columns(r->lanes[i].column);
    *columns = length > *columns ? length : *columns;
  }
  for (size_t i = 0; i < r->lane_count && !r->options->json; i++) {
    replay_pad_lane(&r->lanes[i], *columns);
  }
}

int
replay_make_lanes(struct replay *r, struct ct_diag *diag)
{
  uint32_t *threads;
  int code = ct_choose_threads(r->trace, r->options->filter->tids, r->options->filter->tid_count, &threads,
                               &r->lane_count, diag);
  if (code != 0) {
    return code;
  }
  r->lanes = calloc(r->lane_count + 1, sizeof(*r->lanes));
  r->heap = malloc((r->lane_count + 1) * sizeof(struct lane *));
  if (r->lanes == NULL || r->heap == NULL) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the threads of the trace");
  }
  for (size_t i = 0; i < r->lane_count && code == 0; i++) {
    struct lane *lane = &r->lanes[i];
    lane->thread = threads[i];
    ct_span_lane_init(&lane->ids, r->trace, threads[i]);
    ct_span_clock_init(&lane->clock, r->trace, r->options->time);
    lane->capture = replay_first_capture(r, ct_trace_thread(r->trace, lane->thread)->tid);
    lane->crash_tsc = replay_crash_of(r, ct_trace_thread(r->trace, lane->thread)->tid);
    r->total_bytes += ct_trace_thread(r->trace, lane->thread)->file_bytes;
    code = replay_index_lane(r, lane, diag);
    code = code == 0 ? replay_open_lane(r, lane, diag) : code;
    if (code != 0) {
      break;
    }
    if (lane->count == 0 && lane->capture == NO_CAPTURE && lane->crash_tsc == 0) {
      replay_close_lane(r, lane);
      continue;
    }
    r->heap[r->heap_count++] = lane;
    if (r->heap_count > KEEP_OPEN_LANES) {
      ct_cursor_close(lane->cursor);
      ct_details_close(lane->details);
      lane->cursor = NULL;
      lane->details = NULL;
    }
  }
  free(threads);
  for (size_t i = r->heap_count; i-- > 0;) {
    replay_sift_down(r, i);
  }
  return code;
}
