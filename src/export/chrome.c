/* SPDX-License-Identifier: MIT */
/*
 * The JSON of Chrome's tracing: an array of events, which the DevTools, Perfetto's page and others read. A call is a
 * complete event (X) at its place on the clock, in microseconds with three decimals; what it took of the thread's own
 * time is in its arguments: ns and self_ns, as report has them. A call without an end, a return without a call and lost
 * events are instants (i). What is on another stack than the thread's own is shown as another thread, for it does not
 * nest.
 */
#include "export/json.h"
#include "export/lanes.h"
#include "export/microseconds.h"

#include <inttypes.h>
#include <stdio.h>

enum { FIRST_LANE_TID = 1 << 30, LEVELS = 256 }; /* threads of the kernel are below 2^22; deep calls are short */

/* Of the calls of a depth on the thread's own stack, since the one around them was entered: UINT64_MAX, none. */
struct level {
  uint64_t first_begin, last_end;
};

struct chrome {
  struct ct_sink *out;
  struct ct_walk_texts texts;
  struct ct_export_lanes lanes; /* of the thread */
  uint32_t lanes_before;        /* those of earlier threads */
  char head[64];                /* "pid":P,"tid":T,"ts": of the thread */
  size_t head_bytes;
  bool has_one;                /* an event was written */
  struct level levels[LEVELS]; /* of the thread */
  struct ct_microseconds_moved moved;
};

static void
begin_event(struct chrome *chrome, char phase)
{
  static const char begin[] = ",\n{\"ph\":\"";
  size_t skipped = chrome->has_one ? 0 : 1;
  ct_out_put(chrome->out, begin + skipped, sizeof(begin) - 1 - skipped);
  ct_out_byte(chrome->out, (uint8_t)phase);
  ct_out_literal(chrome->out, "\",");
  chrome->has_one = true;
}

/* The name of a process or thread; lane: of what is on another stack. */
static void
put_meta(struct chrome *chrome, const struct ct_walk_place *place, const char *what, uint32_t tid, uint32_t lane)
{
  struct ct_sink *out = chrome->out;
  char text[200];
  const char *name = what[0] == 'p' ? ct_export_program(place->trace) : ct_export_thread_name(place);
  snprintf(text, sizeof(text), lane != 0 ? "%.150s (stack %" PRIu32 ")" : "%.150s", name, lane);
  begin_event(chrome, 'M');
  ct_out_literal(out, "\"pid\":");
  ct_out_decimal(out, place->pid);
  ct_out_literal(out, ",\"tid\":");
  ct_out_decimal(out, tid);
  ct_out_literal(out, ",\"name\":\"");
  ct_out_text(out, what);
  ct_out_literal(out, "\",\"args\":{\"name\":");
  ct_out_json(out, text);
  if (lane != 0) {
    ct_out_literal(out, ",\"of_tid\":");
    ct_out_decimal(out, place->thread->tid);
  }
  ct_out_literal(out, "}}");
}

static size_t
make_head(char *head, size_t size, uint32_t pid, uint32_t tid)
{
  return (size_t)snprintf(head, size, "\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"ts\":", pid, tid);
}

static int
begin_process(void *arg, const struct ct_walk_place *place)
{
  struct chrome *chrome = arg;
  put_meta(chrome, place, "process_name", 0, 0);
  return ct_walk_texts_begin(&chrome->texts, place->trace);
}

static int
begin_thread(void *arg, const struct ct_walk_place *place)
{
  struct chrome *chrome = arg;
  for (int i = 0; i < LEVELS; i++) {
    chrome->levels[i] = (struct level){UINT64_MAX, UINT64_MAX};
  }
  chrome->moved.count = 0;
  chrome->head_bytes = make_head(chrome->head, sizeof(chrome->head), place->pid, place->thread->tid);
  put_meta(chrome, place, "thread_name", place->thread->tid, 0);
  return 0;
}

/* Takes note of a call; whether its begin had better be later than earlier, if it has to move: one ends there, and none
 * in it begins there. */
static bool
pass_level(struct chrome *chrome, uint32_t depth, uint64_t begin, uint64_t end)
{
  if (depth >= LEVELS - 1) {
    return false;
  }
  struct level *level = &chrome->levels[depth], *below = level + 1;
  bool is_later = level->last_end == begin && below->first_begin != begin;
  level->first_begin = level->first_begin == UINT64_MAX ? begin : level->first_begin;
  level->last_end = end;
  *below = (struct level){UINT64_MAX, UINT64_MAX};
  return is_later;
}

/* ,"dur": after the begin of what is a call */
static void
put_times(struct chrome *chrome, uint64_t begin, uint64_t end, bool is_later)
{
  struct ct_sink *out = chrome->out;
  struct ct_microseconds exact;
  bool is_plain = ct_microseconds_add_up(begin, end, is_later, &chrome->moved, &exact);
  if (is_plain || exact.begin[0] == '\0') {
    ct_out_microseconds(out, begin);
  } else {
    ct_out_text(out, exact.begin);
  }
  ct_out_literal(out, ",\"dur\":");
  if (is_plain) {
    ct_out_microseconds(out, end - begin);
  } else {
    ct_out_text(out, exact.duration);
  }
}

static int
put_span(struct chrome *chrome, const struct ct_walk_place *place, const struct ct_span *span)
{
  struct ct_sink *out = chrome->out;
  const struct ct_walk_text *function = ct_json_function(&chrome->texts, span->fn, "cat");
  bool is_call = span->end < CT_SPAN_ORPHAN, is_new;
  uint64_t begin = ct_walk_ns(place, span->enter_tsc);
  uint32_t lane;
  if (function == NULL || ct_export_lane(&chrome->lanes, span->context, &lane, &is_new) != 0) {
    return CT_ENOMEM;
  }
  uint32_t tid = FIRST_LANE_TID + chrome->lanes_before + lane;
  if (is_new) {
    put_meta(chrome, place, "thread_name", tid, lane);
  }
  begin_event(chrome, is_call ? 'X' : 'i');
  if (lane == 0) {
    ct_out_put(out, chrome->head, chrome->head_bytes);
  } else {
    char head[64];
    ct_out_put(out, head, make_head(head, sizeof(head), place->pid, tid));
  }
  if (is_call) {
    uint64_t end = ct_walk_ns(place, span->end_tsc);
    end = end > begin ? end : begin; /* a file may have it otherwise */
    put_times(chrome, begin, end, lane == 0 && pass_level(chrome, span->depth, begin, end));
  } else {
    ct_out_microseconds(out, begin);
    ct_out_literal(out, ",\"s\":\"t\"");
  }
  ct_out_byte(out, ',');
  ct_out_put(out, function->text, function->bytes);
  ct_out_literal(out, ",\"args\":{\"ns\":");
  ct_out_decimal(out, is_call ? ct_trace_ticks_ns(place->trace, span->duration_ticks) : 0);
  ct_out_literal(out, ",\"self_ns\":");
  ct_out_decimal(out, is_call ? ct_trace_ticks_ns(place->trace, span->self_ticks) : 0);
  if (span->off_ticks != 0 && !ct_trace_has_bounds(place->trace)) {
    ct_out_literal(out, ",\"off_ns\":");
    ct_out_decimal(out, ct_trace_ticks_ns(place->trace, span->off_ticks));
  }
  if (ct_json_has_attributes(span)) {
    ct_json_attributes(out, span);
  }
  ct_out_literal(out, "}}");
  return 0;
}

static int
put_spans(void *arg, const struct ct_walk_place *place, const struct ct_span *spans, size_t count)
{
  struct chrome *chrome = arg;
  int code = 0;
  for (size_t i = 0; i < count && code == 0; i++) {
    code = put_span(chrome, place, &spans[i]);
  }
  return code != 0 ? code : ct_out_failed(chrome->out) ? CT_EIO : 0;
}

static int
put_lost(void *arg, const struct ct_walk_place *place, uint64_t events, uint64_t tsc)
{
  struct chrome *chrome = arg;
  begin_event(chrome, 'i');
  ct_out_put(chrome->out, chrome->head, chrome->head_bytes);
  ct_out_microseconds(chrome->out, ct_walk_ns(place, tsc));
  ct_out_literal(chrome->out, ",\"s\":\"t\",\"name\":\"events lost\",\"cat\":\"contrail\",\"args\":{\"events\":");
  ct_out_decimal(chrome->out, events);
  ct_out_literal(chrome->out, "}}");
  return 0;
}

static int
end_thread(void *arg, const struct ct_walk_place *place, uint64_t end_tsc)
{
  struct chrome *chrome = arg;
  chrome->lanes_before += chrome->lanes.count;
  ct_export_lanes_clear(&chrome->lanes);
  return 0;
}

static int
write_chrome(const struct ct_export_job *job, struct ct_sink *out, struct ct_diag *diag)
{
  const struct ct_walk_handler handler = {.begin_process = begin_process,
                                          .begin_thread = begin_thread,
                                          .spans = put_spans,
                                          .lost = put_lost,
                                          .end_thread = end_thread};
  struct chrome chrome = {.out = out};
  struct ct_walk_sums sums = {0};
  ct_out_literal(out, "{\"traceEvents\":[\n");
  int err = ct_walk(job, &handler, &chrome, &sums, diag);
  ct_out_literal(out, "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{");
  ct_json_about(out, job, sums.lost);
  ct_out_literal(out, "}}\n");
  ct_walk_texts_destroy(&chrome.texts);
  ct_export_lanes_clear(&chrome.lanes);
  return err;
}

static int
write_format(const struct ct_export_job *job, struct ct_diag *diag)
{
  return ct_export_file(job, CT_OUT_PLAIN, write_chrome, diag);
}

const struct ct_export_writer ct_export_chrome = {
    .format = {.name = "chrome", .summary = "JSON of Chrome's tracing", .takes_filters = true},
    .write = write_format,
};
