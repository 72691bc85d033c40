/* SPDX-License-Identifier: MIT */
/*
 * A directory of Parquet files, for DuckDB, ClickHouse, pandas and others: spans.parquet has a row for each call,
 * functions.parquet and threads.parquet what the numbers in it are, edges.parquet sums of who called whom. Times are as
 * in CSV.
 */
#include "export/parquet.h"

#include "export/frames.h"
#include "export/json.h"
#include "span/id.h"
#include "trace/tree.h"
#include "trace/writer.h"

#include <contrail/text.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum span_column {
  PID,
  TID,
  ID,
  PARENT,
  FUNCTION,
  START,
  END,
  DURATION,
  SELF,
  OFF,
  DEPTH,
  CALLS,
  HOW,
  OPEN,
  UNCERTAIN,
  BEFORE,
  STACK,
  LOST,
  SPAN_COLUMNS
};
static const struct ct_parquet_column span_columns[SPAN_COLUMNS] = {
    [PID] = {"pid", CT_PARQUET_INT32},
    [TID] = {"tid", CT_PARQUET_INT32},
    [ID] = {"id", CT_PARQUET_INT64, .is_various = true},
    [PARENT] = {"parent", CT_PARQUET_INT64, .is_various = true},
    [FUNCTION] = {"function", CT_PARQUET_INT32},
    [START] = {"start_ns", CT_PARQUET_INT64, .is_various = true},
    [END] = {"end_ns", CT_PARQUET_INT64, .is_various = true},
    [DURATION] = {"duration_ns", CT_PARQUET_INT64},
    [SELF] = {"self_ns", CT_PARQUET_INT64},
    [OFF] = {"off_ns", CT_PARQUET_INT64},
    [DEPTH] = {"depth", CT_PARQUET_INT32},
    [CALLS] = {"calls", CT_PARQUET_INT64},
    [HOW] = {"end", CT_PARQUET_TEXT},
    [OPEN] = {"open", CT_PARQUET_INT32},
    [UNCERTAIN] = {"uncertain", CT_PARQUET_INT32},
    [BEFORE] = {"before", CT_PARQUET_INT32},
    [STACK] = {"stack", CT_PARQUET_INT64},
    [LOST] = {"lost", CT_PARQUET_INT64},
};
static const struct ct_parquet_column function_columns[] = {{"id", CT_PARQUET_INT32},
                                                            {"name", CT_PARQUET_TEXT},
                                                            {"module", CT_PARQUET_TEXT},
                                                            {"file", CT_PARQUET_TEXT},
                                                            {"line", CT_PARQUET_INT32}};
static const struct ct_parquet_column thread_columns[] = {
    {"pid", CT_PARQUET_INT32}, {"tid", CT_PARQUET_INT32}, {"name", CT_PARQUET_TEXT}, {"program", CT_PARQUET_TEXT}};
static const struct ct_parquet_column edge_columns[] = {{"caller", CT_PARQUET_INT32},
                                                        {"callee", CT_PARQUET_INT32},
                                                        {"calls", CT_PARQUET_INT64},
                                                        {"duration_ns", CT_PARQUET_INT64},
                                                        {"self_ns", CT_PARQUET_INT64}};

enum { NO_CALLER = -1 };

struct edge {
  uint32_t caller, callee; /* frames + 1; callee 0: free */
  uint64_t calls, duration_ns, self_ns;
};

struct parquet {
  const struct ct_export_job *job;
  struct ct_diag *diag;
  struct ct_parquet_column columns[SPAN_COLUMNS]; /* of spans */
  const char *ends[CT_SPAN_ENDS];
  struct ct_parquet *spans, *threads;
  struct ct_span_lane lane; /* of the thread */
  struct ct_export_frames frames;
  struct edge *edges;
  uint32_t edge_count, edge_capacity;
  bool has_bounds;
  uint64_t bytes;
};

/* ---- texts ---- */

static void
put_string(struct ct_parquet *file, unsigned column, const char *text)
{
  char *clean = ct_utf8_copy(text);
  const char *shown = clean != NULL ? clean : "?";
  ct_parquet_text(file, column, shown, strlen(shown));
  free(clean);
}

/* ---- edges ---- */

static struct edge *
find_edge(struct edge *edges, uint32_t capacity, uint32_t caller, uint32_t callee)
{
  uint64_t key = ((uint64_t)caller << 32 | callee) * UINT64_C(0x9E3779B97F4A7C15);
  uint32_t at = (uint32_t)(key >> 32) & (capacity - 1);
  while (edges[at].callee != 0 && (edges[at].caller != caller || edges[at].callee != callee)) {
    at = (at + 1) & (capacity - 1);
  }
  return &edges[at];
}

static int
grow_edges(struct parquet *parquet)
{
  uint32_t capacity = parquet->edge_capacity != 0 ? 2 * parquet->edge_capacity : 1024;
  struct edge *edges = calloc(capacity, sizeof(*edges));
  if (edges == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t i = 0; i < parquet->edge_capacity; i++) {
    const struct edge *edge = &parquet->edges[i];
    if (edge->callee != 0) {
      *find_edge(edges, capacity, edge->caller, edge->callee) = *edge;
    }
  }
  free(parquet->edges);
  parquet->edges = edges;
  parquet->edge_capacity = capacity;
  return CT_OK;
}

static int
add_edge(struct parquet *parquet, uint32_t caller, uint32_t callee, uint64_t calls, uint64_t duration_ns,
         uint64_t self_ns)
{
  if (2 * (parquet->edge_count + 1) > parquet->edge_capacity && grow_edges(parquet) != CT_OK) {
    return CT_ENOMEM;
  }
  struct edge *edge = find_edge(parquet->edges, parquet->edge_capacity, caller, callee + 1);
  parquet->edge_count += edge->callee == 0;
  edge->caller = caller;
  edge->callee = callee + 1;
  edge->calls += calls;
  edge->duration_ns += duration_ns;
  edge->self_ns += self_ns;
  return CT_OK;
}

/* ---- rows ---- */

static int
put_span(struct parquet *parquet, const struct ct_walk_place *place, const struct ct_span *span)
{
  struct ct_parquet *file = parquet->spans;
  bool has_time = span->end < CT_SPAN_ORPHAN;
  uint32_t function = ct_export_frame(&parquet->frames, span->fn);
  uint32_t caller = span->caller_fn != UINT32_MAX ? ct_export_frame(&parquet->frames, span->caller_fn) + 1 : 0;
  uint64_t duration = has_time ? ct_trace_ticks_ns(place->trace, span->duration_ticks) : 0;
  uint64_t self = has_time ? ct_trace_ticks_ns(place->trace, span->self_ticks) : 0, calls = ct_walk_calls(span);
  uint64_t off = parquet->has_bounds || span->off_ticks == 0 ? 0 : ct_trace_ticks_ns(place->trace, span->off_ticks);
  if (function == CT_FRAMES_NONE || add_edge(parquet, caller, function, calls, duration, self) != CT_OK) {
    return CT_ENOMEM;
  }
  ct_parquet_number(file, PID, place->pid);
  ct_parquet_number(file, TID, place->thread->tid);
  ct_parquet_number(file, ID, ct_span_lane_id(&parquet->lane, span->ordinal));
  ct_parquet_number(file, PARENT, ct_span_lane_id(&parquet->lane, span->parent_ordinal));
  ct_parquet_number(file, FUNCTION, function);
  ct_parquet_number(file, START, ct_walk_ns(place, span->enter_tsc));
  ct_parquet_number(file, END, ct_walk_ns(place, span->end_tsc));
  ct_parquet_number(file, DURATION, duration);
  ct_parquet_number(file, SELF, self);
  ct_parquet_number(file, OFF, off);
  ct_parquet_number(file, DEPTH, span->depth);
  ct_parquet_number(file, CALLS, calls);
  ct_parquet_number(file, HOW, span->end < CT_SPAN_ENDS ? span->end : CT_SPAN_UNWOUND);
  ct_parquet_number(file, OPEN, ct_span_is_unfinished(span->end));
  ct_parquet_number(file, UNCERTAIN, (span->uncertain & CT_SPAN_UNCERTAIN) != 0);
  ct_parquet_number(file, BEFORE, (span->uncertain & CT_SPAN_BEFORE) != 0);
  ct_parquet_number(file, STACK, span->context);
  ct_parquet_number(file, LOST, 0);
  return ct_parquet_end_row(file);
}

static int
put_spans(void *arg, const struct ct_walk_place *place, const struct ct_span *spans, size_t count)
{
  int code = 0;
  for (size_t i = 0; i < count && code == 0; i++) {
    code = put_span(arg, place, &spans[i]);
  }
  return code;
}

static int
put_lost(void *arg, const struct ct_walk_place *place, uint64_t events, uint64_t tsc)
{
  struct parquet *parquet = arg;
  struct ct_parquet *file = parquet->spans;
  uint32_t function = ct_export_frames_lost(&parquet->frames);
  if (function == CT_FRAMES_NONE) {
    return CT_ENOMEM;
  }
  for (unsigned i = 0; i < SPAN_COLUMNS; i++) {
    ct_parquet_number(file, i, 0);
  }
  ct_parquet_number(file, PID, place->pid);
  ct_parquet_number(file, TID, place->thread->tid);
  ct_parquet_number(file, FUNCTION, function);
  ct_parquet_number(file, START, ct_walk_ns(place, tsc - place->gap_ticks));
  ct_parquet_number(file, END, ct_walk_ns(place, tsc));
  ct_parquet_number(file, DURATION, ct_trace_ticks_ns(place->trace, place->gap_ticks));
  ct_parquet_number(file, SELF, ct_trace_ticks_ns(place->trace, place->gap_ticks));
  ct_parquet_number(file, HOW, CT_SPAN_LOST);
  ct_parquet_number(file, LOST, events);
  return ct_parquet_end_row(file);
}

static int
begin_process(void *arg, const struct ct_walk_place *place)
{
  struct parquet *parquet = arg;
  parquet->has_bounds = ct_trace_has_bounds(place->trace);
  return ct_export_frames_begin(&parquet->frames, place->trace);
}

static int
begin_thread(void *arg, const struct ct_walk_place *place)
{
  struct parquet *parquet = arg;
  struct ct_parquet *file = parquet->threads;
  ct_span_lane_init(&parquet->lane, place->trace, place->thread->index);
  ct_parquet_number(file, 0, place->pid);
  ct_parquet_number(file, 1, place->thread->tid);
  put_string(file, 2, ct_export_thread_name(place));
  put_string(file, 3, ct_export_program(place->trace));
  return ct_parquet_end_row(file);
}

/* ---- tables that are known at the end ---- */

static int
open_file(struct parquet *parquet, const char *name, const struct ct_parquet_column *columns, unsigned count, int by,
          struct ct_parquet **out)
{
  char path[PATH_MAX];
  if (snprintf(path, sizeof(path), "%s/%s.parquet", parquet->job->options->path, name) >= (int)sizeof(path)) {
    return ct_fail(parquet->diag, CT_EINVAL, "the name %.100s is too long", parquet->job->options->path);
  }
  return ct_parquet_open(path, columns, count, by, out, parquet->diag);
}

static int
put_functions(struct parquet *parquet)
{
  struct ct_parquet *file = NULL;
  int code = open_file(parquet, "functions", function_columns, 5, CT_PARQUET_AS_THEY_COME, &file);
  for (uint32_t i = 0; i < parquet->frames.count && code == CT_OK; i++) {
    const struct ct_export_frame *frame = &parquet->frames.list[i];
    ct_parquet_number(file, 0, i);
    put_string(file, 1, frame->name);
    put_string(file, 2, frame->module);
    put_string(file, 3, frame->file != NULL ? frame->file : "");
    ct_parquet_number(file, 4, frame->line);
    code = ct_parquet_end_row(file);
  }
  return ct_parquet_close(file, code, &parquet->bytes, parquet->diag);
}

static int
put_edges(struct parquet *parquet)
{
  struct ct_parquet *file = NULL;
  int code = open_file(parquet, "edges", edge_columns, 5, CT_PARQUET_AS_THEY_COME, &file);
  for (uint32_t i = 0; i < parquet->edge_capacity && code == CT_OK; i++) {
    const struct edge *edge = &parquet->edges[i];
    if (edge->callee != 0) {
      ct_parquet_number(file, 0, edge->caller != 0 ? edge->caller - 1 : (uint64_t)NO_CALLER);
      ct_parquet_number(file, 1, edge->callee - 1);
      ct_parquet_number(file, 2, edge->calls);
      ct_parquet_number(file, 3, edge->duration_ns);
      ct_parquet_number(file, 4, edge->self_ns);
      code = ct_parquet_end_row(file);
    }
  }
  return ct_parquet_close(file, code, &parquet->bytes, parquet->diag);
}

static int
write_files(const struct ct_export_job *job, struct ct_diag *diag)
{
  const struct ct_walk_handler handler = {
      .begin_process = begin_process, .begin_thread = begin_thread, .spans = put_spans, .lost = put_lost};
  struct parquet parquet = {.job = job, .diag = diag};
  struct ct_walk_sums sums = {0};
  memcpy(parquet.columns, span_columns, sizeof(parquet.columns));
  parquet.columns[HOW].texts = parquet.ends;
  for (int end = 0; end < CT_SPAN_ENDS; end++) {
    parquet.ends[end] = ct_span_end_text((enum ct_span_end)end);
  }
  int code = open_file(&parquet, "spans", parquet.columns, SPAN_COLUMNS, ID, &parquet.spans);
  code = code == CT_OK ? open_file(&parquet, "threads", thread_columns, 4, CT_PARQUET_AS_THEY_COME, &parquet.threads)
                       : code;
  int walked = code == CT_OK ? ct_walk(job, &handler, &parquet, &sums, diag) : code;
  code = walked == CT_EIO ? CT_OK : walked; /* the file that could not be written says why */
  code = ct_parquet_close(parquet.spans, code, &parquet.bytes, diag);
  code = ct_parquet_close(parquet.threads, code, &parquet.bytes, diag);
  code = code == CT_OK && walked != CT_OK ? walked : code;
  code = code == CT_OK ? put_functions(&parquet) : code;
  code = code == CT_OK ? put_edges(&parquet) : code;
  ct_export_frames_destroy(&parquet.frames);
  free(parquet.edges);
  job->summary->bytes = parquet.bytes;
  return code;
}

static int
write_format(const struct ct_export_job *job, struct ct_diag *diag)
{
  int fd;
  bool made = false;
  int code = ct_trace_directory_create(job->options->path, &fd, &made, diag);
  if (code != CT_OK) {
    return code;
  }
  code = write_files(job, diag);
  if (code == CT_OK) {
    ct_export_warn(job);
  } else {
    ct_trace_empty(fd);
    if (made) {
      rmdir(job->options->path);
    }
  }
  close(fd);
  return code;
}

const struct ct_export_writer ct_export_parquet = {
    .format = {.name = "parquet",
               .summary = "a directory of Parquet files: spans, functions, threads, edges",
               .is_directory = true,
               .takes_filters = true},
    .write = write_format,
};
