/* SPDX-License-Identifier: MIT */
/*
 * A replay of a recording that goes on. Twenty times a second it looks for what is new (threads, functions, events,
 * what the program wrote) and shows what is older than LATE_NS: blocks are written when they are 40 ms old, so by then
 * what all threads did is there, and lines come in order of time. What comes later than that (that a thread was off the
 * processor is reported with its next event; a recorder that gets no processor) is shown when it is there, after later
 * lines of other threads; none is left out.
 *
 * A lane is as in replay.c, but stays open at its end. When the recording has ended it is played to the end as one that
 * had ended before: what is open then ends as that says.
 */
#include "views/replay_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LATE_NS  200000000u
#define ROUND_NS 50000000u

enum {
  COLUMNS = 20,       /* of a thread's name; those to come are not known */
  SILENT_ROUNDS = 100 /* the manifest may say that a thread has exited before its last block is written */
};

/* ---- what is new ---- */

static bool
is_wanted(const struct replay *r, uint32_t tid)
{
  const struct ct_filter *o = r->options->filter;
  bool wanted = o->tid_count == 0;
  for (size_t i = 0; i < o->tid_count; i++) {
    wanted = wanted || o->tids[i] == tid;
  }
  return wanted;
}

static int
add_lane(struct replay *r, uint32_t thread, struct ct_diag *diag)
{
  struct lane **live = reallocarray(r->live, r->lane_count + 1, sizeof(struct lane *));
  if (live != NULL) {
    r->live = live;
  }
  struct lane **heap = reallocarray(r->heap, r->lane_count + 2, sizeof(struct lane *));
  if (heap != NULL) {
    r->heap = heap;
  }
  struct lane *lane = calloc(1, sizeof(*lane));
  if (live == NULL || heap == NULL || lane == NULL) {
    free(lane);
    return ct_fail(diag, CT_ENOMEM, "out of memory for the threads of the trace");
  }
  r->live[r->lane_count++] = lane;
  lane->thread = thread;
  lane->capture = NO_CAPTURE;
  /* Threads are numbered without gaps: in the whole trace its number is its position, though it comes later here. */
  ct_span_lane_init(&lane->ids, r->trace, ct_trace_thread(r->trace, thread)->index);
  ct_span_clock_init(&lane->clock, r->trace, r->options->time);
  replay_name_lane(r, lane);
  if (!r->options->json) {
    replay_pad_lane(lane, COLUMNS);
  }
  return replay_open_lane(r, lane, diag);
}

static int
add_lanes(struct replay *r, uint32_t from, struct ct_diag *diag)
{
  int code = 0;
  for (uint32_t i = from; code == 0 && i < ct_trace_thread_count(r->trace); i++) {
    code = is_wanted(r, ct_trace_thread(r->trace, i)->tid) ? add_lane(r, i, diag) : 0;
  }
  return code;
}

/* What knows all functions is made anew for more of them. */
static int
take_functions(struct replay *r, struct ct_diag *diag)
{
  const struct ct_filter *o = r->options->filter;
  ct_labels_destroy(&r->labels);
  ct_view_pattern_destroy(r->pattern);
  ct_unwind_reason_destroy(&r->unwind_reason);
  ct_view_prototypes_destroy(&r->lines.prototypes);
  ct_view_prototypes_init(&r->lines.prototypes, r->trace);
  int code = ct_view_pattern_init(r->pattern, r->trace, o->function, o->module, o->file, diag);
  if (code == 0 && (ct_labels_init(&r->labels, r->trace, r->pattern) != 0 ||
                    ct_unwind_reason_init(&r->unwind_reason, r->trace) != 0)) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the names of the functions");
  }
  r->labels.source = r->options->source;
  r->labels.short_names = r->options->short_names;
  return code;
}

/* The file is read as a whole, so only when it has grown. What was shown is not shown again. */
static int
take_captures(struct replay *r)
{
  uint64_t bytes = ct_trace_captures_bytes(r->trace);
  if (bytes == r->captures_bytes || r->options->no_output) {
    return 0;
  }
  ct_captures_free(&r->captures);
  free(r->next_capture);
  r->next_capture = NULL;
  r->captures_bytes = bytes;
  int code = replay_load_captures(r);
  for (size_t i = 0; code == 0 && i < r->lane_count; i++) {
    struct lane *lane = r->live[i];
    lane->capture = replay_first_capture(r, ct_trace_thread(r->trace, lane->thread)->tid);
    while (lane->capture != NO_CAPTURE && r->captures.items[lane->capture].tsc <= lane->capture_tsc) {
      lane->capture = r->next_capture[lane->capture];
    }
  }
  return code;
}

/* Names come with the manifest, which may be later than the first events; ids with the thread's file. */
static void
take_names(struct replay *r)
{
  for (size_t i = 0; i < r->lane_count; i++) {
    struct lane *lane = r->live[i];
    const struct ct_trace_thread *thread = ct_trace_thread(r->trace, lane->thread);
    if (lane->is_named) {
      continue;
    }
    replay_name_lane(r, lane);
    if (!r->options->json) {
      replay_pad_lane(lane, COLUMNS);
    }
    lane->is_named = thread->tid != 0 && (r->options->json || thread->name[0] != '\0');
  }
}

static int
take_news(struct replay *r, struct ct_diag *diag)
{
  uint32_t threads = ct_trace_thread_count(r->trace);
  uint64_t functions = ct_trace_functions_bytes(r->trace);
  int code = ct_trace_refresh(r->trace, diag);
  if (code == 0 && (functions != ct_trace_functions_bytes(r->trace) || ct_trace_is_complete(r->trace))) {
    code = take_functions(r, diag);
  }
  if (code != 0) {
    take_names(r);
    return code;
  }
  code = add_lanes(r, threads, diag);
  take_names(r);
  if (code == 0 && take_captures(r) != 0) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for what the program wrote");
  }
  return code;
}

/* ---- rounds ---- */

/* A thread that has ended, with nothing open, is not looked at any more. */
static void
release(struct replay *r, struct lane *lane)
{
  bool is_silent = r->is_live && !lane->is_read && lane->count == 0 && lane->held == 0 &&
                   ct_trace_thread(r->trace, lane->thread)->exited &&
                   (lane->stacks.current == NULL || lane->stacks.current->count == 0);
  lane->silent = is_silent ? lane->silent + 1 : 0;
  if (lane->silent >= SILENT_ROUNDS) {
    replay_close_lane(r, lane);
    lane->is_read = lane->has_ended = true;
  }
}

/* All lanes, with what came since. */
static void
fill_heap(struct replay *r)
{
  r->heap_count = 0;
  for (size_t i = 0; i < r->lane_count; i++) {
    struct lane *lane = r->live[i];
    if (lane->held != 0) {
      lane->count = lane->held;
      lane->held = 0;
    } else if (lane->count == 0 && !lane->is_read) {
      replay_refill(r, lane);
    }
    if (lane->count != 0) {
      replay_take_late_results(r, lane);
    }
    release(r, lane);
    replay_note_next(r, lane);
    if (!lane->has_ended || lane->capture != NO_CAPTURE) {
      r->heap[r->heap_count++] = lane;
    }
  }
  for (size_t i = r->heap_count; i-- > 0;) {
    replay_sift_down(r, i);
  }
}

static int
show_until(struct replay *r, uint64_t tsc, struct ct_diag *diag)
{
  r->until = tsc;
  fill_heap(r);
  int code = replay_merge(r, diag);
  if (code == 0 && fflush(r->lines.out) != 0 && !r->lines.failed) {
    r->lines.failed = true;
    r->lines.failed_errno = errno;
  }
  return code;
}

static bool
is_full(const struct replay *r)
{
  return r->lines.failed || (r->options->filter->limit != 0 && r->line_count >= r->options->filter->limit);
}

/* The rest, of a trace that grows no more. */
static int
show_rest(struct replay *r, struct ct_diag *diag)
{
  r->is_live = false;
  int code = replay_load_crash(r);
  if (code != 0) {
    return ct_fail(diag, code, "out of memory for the crash");
  }
  for (size_t i = 0; i < r->lane_count; i++) {
    r->live[i]->crash_tsc = replay_crash_of(r, ct_trace_thread(r->trace, r->live[i]->thread)->tid);
  }
  if (!ct_trace_is_complete(r->trace)) {
    ct_lines_warnings(&r->lines);
  }
  return show_until(r, UINT64_MAX, diag);
}

static int
rounds(struct replay *r, struct ct_diag *diag)
{
  const struct timespec wait = {0, ROUND_NS};
  for (;;) {
    enum ct_replay_course course = r->options->follow(r->options->follow_arg);
    uint64_t now = ct_now_ns(); /* before the look: what is older than LATE_NS is there then */
    int code = course != CT_REPLAY_STOPS ? take_news(r, diag) : 0;
    if (code != 0 || course == CT_REPLAY_STOPS) {
      return code;
    }
    if (ct_trace_is_complete(r->trace) || course == CT_REPLAY_ENDS) {
      return show_rest(r, diag);
    }
    code = show_until(r, ct_trace_tsc(r->trace, now - LATE_NS), diag);
    if (code != 0 || is_full(r)) {
      return code;
    }
    nanosleep(&wait, NULL);
  }
}

int
replay_live(struct replay *r, struct ct_diag *diag)
{
  r->is_live = true;
  ct_lines_heading(&r->lines, COLUMNS);
  int code = add_lanes(r, 0, diag);
  code = code == 0 ? rounds(r, diag) : code;
  for (size_t i = 0; i < r->lane_count; i++) {
    replay_close_lane(r, r->live[i]);
    free(r->live[i]);
  }
  r->lane_count = 0;
  return code;
}
