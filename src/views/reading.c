/* SPDX-License-Identifier: MIT */
/* See reading.h. */
#include "views/reading.h"

#include "base/json.h"
#include "views/filter.h"
#include "views/process_tree.h"
#include "views/select.h"
#include "views/span_filter.h"
#include "views/warnings.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t
ct_view_calls_of(const struct ct_span *span)
{
  switch (span->end) {
  case CT_SPAN_ORPHAN:
    return 0;
  case CT_SPAN_POINT:
    return span->calls;
  case CT_SPAN_COUNTED:
    return span->duration_ticks;
  default:
    return (span->uncertain & CT_SPAN_BEFORE) == 0;
  }
}

static void
put_progress(struct ct_view_reading *reading, uint64_t moved)
{
  reading->done_bytes += moved;
  if (reading->progress != NULL && reading->progress->update != NULL) {
    reading->progress->update(reading->progress->arg, reading->done_bytes, reading->total_bytes);
  }
}

static int
read_spans(struct ct_view_reading *reading, struct ct_trace *trace, struct ct_spans *spans)
{
  struct ct_span_filter filter;
  const struct ct_span *batch;
  size_t count;
  uint64_t reported = 0;
  int rc;
  ct_span_filter_init(&filter, trace, reading->filter);
  while ((rc = ct_spans_next(spans, &batch, &count)) == 0 && count != 0) {
    if (reading->add != NULL) {
      rc = ct_span_filter_run(&filter, &batch, &count);
      rc = rc == 0 ? reading->add(reading->arg, batch, count) : rc;
    }
    if (rc != 0) {
      break;
    }
    uint64_t offset = ct_spans_offset(spans);
    if (offset != reported) {
      put_progress(reading, offset - reported);
    }
    reported = offset;
  }
  ct_span_filter_destroy(&filter);
  return rc;
}

static int
read_thread(struct ct_view_reading *reading, struct ct_trace *trace, uint32_t index, struct ct_diag *diag)
{
  struct ct_spans *spans;
  const struct ct_trace_thread *thread = ct_trace_thread(trace, index);
  int rc = ct_spans_open(trace, index, reading->time, &spans, diag);
  if (rc != 0) {
    return rc;
  }
  if (reading->begin_thread != NULL) {
    rc = reading->begin_thread(reading->arg, trace, index);
  }
  if (rc == 0) {
    ct_spans_observe(spans, reading->observer);
    rc = read_spans(reading, trace, spans);
  }
  if (rc == 0 && reading->end_thread != NULL) {
    rc = reading->end_thread(reading->arg, spans);
  }
  if (rc != 0) {
    ct_fail(diag, rc, "out of memory for the calls of the trace");
  }
  reading->threads++;
  reading->events += ct_spans_events(spans);
  reading->dropped += thread->dropped;
  reading->gap_ticks += ct_spans_gap_ticks(spans);
  if (ct_spans_state(spans) == CT_CURSOR_DAMAGED && reading->notes.damaged_threads++ == 0) {
    reading->notes.first_damaged_tid = thread->tid;
  }
  ct_spans_close(spans);
  return rc;
}

static int
read_trace(struct ct_view_reading *reading, struct ct_trace *trace, struct ct_diag *diag)
{
  uint32_t *threads;
  size_t count;
  const struct ct_filter *filter = reading->filter;
  int rc = ct_choose_threads(trace, filter->tids, filter->tid_count, &threads, &count, diag);
  if (rc != 0) {
    return rc;
  }
  rc = ct_filter_compile(filter, trace, &reading->chooses, diag);
  if (rc == 0 && ct_view_names_begin(reading->names, trace) != 0) {
    rc = ct_fail(diag, CT_ENOMEM, "out of memory for the functions of the trace");
  }
  uint64_t events, dropped;
  ct_view_event_sums(trace, &events, &dropped);
  reading->all_dropped += dropped;
  reading->processes++;
  reading->off_is_bound |= ct_trace_has_bounds(trace);
  for (size_t i = 0; i < count; i++) {
    reading->total_bytes += ct_trace_thread(trace, threads[i])->file_bytes;
  }
  for (size_t i = 0; i < count && rc == 0; i++) {
    rc = read_thread(reading, trace, threads[i], diag);
  }
  ct_filter_free_compiled(reading->chooses);
  reading->chooses = NULL;
  free(threads);
  return rc;
}

/* ---- the processes of a family ---- */

static bool
is_wanted(const struct ct_filter *filter, json_int_t pid)
{
  bool wanted = filter->pid_count == 0;
  for (size_t i = 0; i < filter->pid_count; i++) {
    wanted |= filter->pids[i] == pid;
  }
  return wanted;
}

static void
warn(json_t *list, json_int_t pid, const char *what, const char *text)
{
  enum { LINE_CHARS = 800 };
  char line[LINE_CHARS];
  snprintf(line, sizeof(line), "process %lld%s: %s", (long long)pid, what, text);
  json_array_append_new(list, ct_json_string(line));
}

/* One that was followed. A trace that cannot be read is reported, and the others are shown. */
static int
read_child(struct ct_view_reading *reading, const json_t *child, struct ct_diag *diag)
{
  const char *directory = ct_process_tree_directory(child);
  json_int_t pid = json_integer_value(json_object_get(child, "pid"));
  struct ct_trace *trace;
  struct ct_diag why = {""};
  char path[PATH_MAX];
  if (directory == NULL || !is_wanted(reading->filter, pid)) {
    return 0; /* it was not recorded, which info shows; or it is not asked for */
  }
  int length = snprintf(path, sizeof(path), "%s/%s", ct_trace_path(reading->trace), directory);
  if (length >= (int)sizeof(path) || ct_trace_open(path, &trace, &why) != 0) {
    warn(reading->warnings, pid, " is not in it", length >= (int)sizeof(path) ? "its path is too long" : why.text);
    return 0;
  }
  json_t *damage = ct_view_damage(trace), *item;
  size_t n;
  json_array_foreach(damage, n, item)
  {
    warn(reading->warnings, pid, "", json_string_value(item));
  }
  json_decref(damage);
  int rc = read_trace(reading, trace, diag);
  ct_trace_close(trace);
  return rc;
}

static int
check_processes(const struct ct_view_reading *reading, const json_t *manifest, struct ct_diag *diag)
{
  const struct ct_filter *filter = reading->filter;
  for (size_t i = 0; i < filter->pid_count; i++) {
    bool found = json_integer_value(json_object_get(manifest, "pid")) == filter->pids[i];
    const json_t *child;
    size_t n;
    json_array_foreach(json_object_get(manifest, "children"), n, child)
    {
      found |= json_integer_value(json_object_get(child, "pid")) == filter->pids[i] &&
               ct_process_tree_directory(child) != NULL;
    }
    if (!found) {
      return ct_fail(diag, CT_ERANGE, "no trace of a process %u; `contrail info` lists those that were followed",
                     filter->pids[i]);
    }
  }
  return 0;
}

int
ct_view_read(struct ct_view_reading *reading, struct ct_diag *diag)
{
  const json_t *manifest = ct_trace_manifest(reading->trace), *child;
  size_t i;
  int rc = reading->family ? check_processes(reading, manifest, diag) : 0;
  reading->warnings = rc != 0           ? NULL
                      : reading->family ? ct_view_damage(reading->trace)
                                        : ct_view_warnings(reading->trace);
  if (rc == 0 && reading->warnings == NULL) {
    rc = ct_fail(diag, CT_ENOMEM, "out of memory for the calls of the trace");
  }
  bool first = !reading->family || is_wanted(reading->filter, json_integer_value(json_object_get(manifest, "pid")));
  rc = rc == 0 && first ? read_trace(reading, reading->trace, diag) : rc;
  json_array_foreach(json_object_get(manifest, "children"), i, child)
  {
    rc = rc == 0 && reading->family ? read_child(reading, child, diag) : rc;
  }
  if (rc == 0 && reading->family) {
    ct_view_add_lost(reading->warnings, reading->events, reading->all_dropped);
  }
  if (reading->progress != NULL && reading->progress->finish != NULL) {
    reading->progress->finish(reading->progress->arg);
  }
  return rc;
}

void
ct_view_reading_destroy(struct ct_view_reading *reading)
{
  json_decref(reading->warnings);
  reading->warnings = NULL;
}
