/* SPDX-License-Identifier: MIT */
/*
 * The processed profile of the Firefox Profiler (profiler.firefox.com), version 48 of its format. Each stretch of time
 * in which the running stack of a thread does not change is a sample with its length as weight ("tracing-ms"): so the
 * sums of its call tree are times on top of the stack, and its stack chart shows each call. What is to be known of
 * single calls (open at the end, uncertain, from before the begin, points, lost events) is a marker.
 *
 * The format is columns. Those of a thread are collected in files without a name, and copied one after the other when
 * the thread ends. Of stacks so many are kept (STACKS_MAX); time in further ones is their caller's, and said.
 */
#include "export/frames.h"
#include "export/json.h"
#include "export/running.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STACKS_MAX = 1 << 20, NO_STACK = UINT32_MAX };

/* What is collected of a thread. */
enum column {
  SAMPLE_TIME,
  SAMPLE_WEIGHT,
  SAMPLE_STACK,
  MARKER_DATA,
  MARKER_NAME,
  MARKER_START,
  MARKER_END,
  MARKER_PHASE,
  COLUMNS
};
/* The strings of each thread begin with these; then three for each of its frames: name, module, file. */
enum string { LOST_EVENTS, FIXED_STRINGS };

struct column_file {
  struct ct_sink out;
  int fd;
  bool is_open;
};

struct node {
  uint32_t prefix, frame; /* of the thread's frames */
};

struct firefox {
  struct ct_sink *out;
  struct ct_diag *diag;
  struct ct_export_frames frames;
  struct ct_running running;
  struct column_file columns[COLUMNS];
  uint64_t samples, markers;
  /* Of the thread: its frames, of all frames; and those by their number. */
  uint32_t *local, *used;
  uint32_t local_capacity, used_count;
  /* Its stacks as a tree, and a table of steps in it: node + 1, 0 free. */
  struct node *nodes;
  uint32_t *table;
  uint32_t node_count, node_capacity, table_capacity;
  uint32_t *open; /* nodes of the frames that are open on the running stack */
  uint32_t open_count, open_capacity;
  uint64_t last_ns, cut;
  uint32_t threads;
};

/* ---- columns ---- */

static int
open_columns(struct firefox *firefox)
{
  int code = CT_OK;
  for (int i = 0; i < COLUMNS && code == CT_OK; i++) {
    struct column_file *column = &firefox->columns[i];
    code = ct_out_temporary(&column->fd, firefox->diag);
    if (code == CT_OK) {
      code = ct_out_open(&column->out, NULL, column->fd, CT_OUT_PLAIN, firefox->diag);
      column->is_open = code == CT_OK;
      if (code != CT_OK) {
        close(column->fd);
      }
    }
  }
  return code;
}

/* Writes a column as an array, and gives its file back. */
static int
put_column(struct firefox *firefox, enum column number, const char *name)
{
  struct column_file *column = &firefox->columns[number];
  int code = ct_out_close(&column->out, CT_OK, NULL, NULL);
  if (code != CT_OK) {
    ct_fail(firefox->diag, code, "cannot write a temporary file: %s", ct_err_text(code));
  }
  column->is_open = false;
  ct_out_byte(firefox->out, '"');
  ct_out_text(firefox->out, name);
  ct_out_literal(firefox->out, "\":[");
  code = code == CT_OK ? ct_out_put_file(firefox->out, column->fd) : code;
  ct_out_literal(firefox->out, "],\n");
  close(column->fd);
  return code;
}

static void
drop_columns(struct firefox *firefox)
{
  for (int i = 0; i < COLUMNS; i++) {
    if (firefox->columns[i].is_open) {
      ct_out_close(&firefox->columns[i].out, CT_EIO, NULL, NULL);
      close(firefox->columns[i].fd);
      firefox->columns[i].is_open = false;
    }
  }
}

static struct ct_sink *
next_item(struct firefox *firefox, enum column column, bool is_first)
{
  struct ct_sink *out = &firefox->columns[column].out;
  ct_out_put(out, ",", !is_first);
  return out;
}

static void
put_ms(struct ct_sink *out, uint64_t ns)
{
  char rest[8];
  ct_out_decimal(out, ns / 1000000);
  snprintf(rest, sizeof(rest), ".%06u", (unsigned)(ns % 1000000));
  ct_out_text(out, rest);
}

/* ---- stacks ---- */

static uint32_t *
find(const struct firefox *firefox, uint32_t *table, uint32_t capacity, uint32_t prefix, uint32_t frame)
{
  uint64_t key = ((uint64_t)prefix << 32 | frame) * UINT64_C(0x9E3779B97F4A7C15);
  uint32_t at = (uint32_t)(key >> 32) & (capacity - 1);
  while (table[at] != 0 &&
         (firefox->nodes[table[at] - 1].prefix != prefix || firefox->nodes[table[at] - 1].frame != frame)) {
    at = (at + 1) & (capacity - 1);
  }
  return &table[at];
}

static int
grow_stacks(struct firefox *firefox)
{
  uint32_t capacity = firefox->node_capacity != 0 ? 2 * firefox->node_capacity : 1024;
  struct node *nodes = reallocarray(firefox->nodes, capacity, sizeof(*nodes));
  uint32_t *table = calloc((size_t)2 * capacity, sizeof(*table));
  firefox->nodes = nodes != NULL ? nodes : firefox->nodes;
  if (nodes == NULL || table == NULL) {
    free(table);
    return CT_ENOMEM;
  }
  for (uint32_t i = 0; i < firefox->node_count; i++) {
    *find(firefox, table, 2 * capacity, nodes[i].prefix, nodes[i].frame) = i + 1;
  }
  free(firefox->table);
  firefox->table = table;
  firefox->node_capacity = capacity;
  firefox->table_capacity = 2 * capacity;
  return CT_OK;
}

/* The stack of a frame on another one; beyond the limit that one itself. */
static int
step(struct firefox *firefox, uint32_t prefix, uint32_t frame, uint32_t *node)
{
  if (firefox->node_count == firefox->node_capacity && grow_stacks(firefox) != CT_OK) {
    return CT_ENOMEM;
  }
  uint32_t *slot = find(firefox, firefox->table, firefox->table_capacity, prefix, frame);
  if (*slot == 0 && firefox->node_count >= STACKS_MAX) {
    firefox->cut++;
    *node = prefix;
    return CT_OK;
  }
  if (*slot == 0) {
    firefox->nodes[firefox->node_count] = (struct node){prefix, frame};
    *slot = ++firefox->node_count;
  }
  *node = *slot - 1;
  return CT_OK;
}

/* The thread's number of a frame; CT_FRAMES_NONE: out of memory. */
static uint32_t
local_of(struct firefox *firefox, uint32_t frame)
{
  if (frame >= firefox->local_capacity) {
    uint32_t capacity = 2 * frame + 256;
    uint32_t *local = reallocarray(firefox->local, capacity, sizeof(*local));
    firefox->local = local != NULL ? local : firefox->local;
    uint32_t *used = local != NULL ? reallocarray(firefox->used, capacity, sizeof(*used)) : NULL;
    if (used == NULL) {
      return CT_FRAMES_NONE;
    }
    memset(local + firefox->local_capacity, 0, (capacity - firefox->local_capacity) * sizeof(*local));
    firefox->used = used;
    firefox->local_capacity = capacity;
  }
  if (firefox->local[frame] == 0) {
    firefox->used[firefox->used_count] = frame;
    firefox->local[frame] = ++firefox->used_count;
  }
  return firefox->local[frame] - 1;
}

/* ---- samples ---- */

/* The time since the last change was the stack's that was open then. */
static void
put_sample(struct firefox *firefox, uint64_t ns)
{
  uint64_t weight = ns > firefox->last_ns ? ns - firefox->last_ns : 0;
  if (weight != 0 && firefox->open_count != 0 && firefox->open[firefox->open_count - 1] != NO_STACK) {
    bool is_first = firefox->samples++ == 0;
    put_ms(next_item(firefox, SAMPLE_TIME, is_first), firefox->last_ns);
    put_ms(next_item(firefox, SAMPLE_WEIGHT, is_first), weight);
    ct_out_decimal(next_item(firefox, SAMPLE_STACK, is_first), firefox->open[firefox->open_count - 1]);
  }
  firefox->last_ns = ns > firefox->last_ns ? ns : firefox->last_ns;
}

static int
open_frame(void *arg, uint32_t frame, uint64_t ns)
{
  struct firefox *firefox = arg;
  put_sample(firefox, ns);
  if (firefox->open_count == firefox->open_capacity) {
    uint32_t capacity = 2 * firefox->open_capacity + 256;
    uint32_t *open = reallocarray(firefox->open, capacity, sizeof(*open));
    if (open == NULL) {
      return CT_ENOMEM;
    }
    firefox->open = open;
    firefox->open_capacity = capacity;
  }
  uint32_t prefix = firefox->open_count != 0 ? firefox->open[firefox->open_count - 1] : NO_STACK;
  uint32_t local = local_of(firefox, frame);
  return local == CT_FRAMES_NONE ? CT_ENOMEM : step(firefox, prefix, local, &firefox->open[firefox->open_count++]);
}

static int
close_frame(void *arg, uint32_t frame, uint64_t ns)
{
  struct firefox *firefox = arg;
  put_sample(firefox, ns);
  firefox->open_count -= firefox->open_count != 0;
  return 0;
}

/* ---- markers ---- */

static void
begin_marker(struct firefox *firefox, uint32_t string, uint64_t begin, uint64_t end, bool is_interval)
{
  bool is_first = firefox->markers++ == 0;
  ct_out_decimal(next_item(firefox, MARKER_NAME, is_first), string);
  put_ms(next_item(firefox, MARKER_START, is_first), begin);
  if (is_interval) {
    put_ms(next_item(firefox, MARKER_END, is_first), end);
  } else {
    ct_out_literal(next_item(firefox, MARKER_END, is_first), "null");
  }
  ct_out_byte(next_item(firefox, MARKER_PHASE, is_first), is_interval ? '1' : '0');
  ct_out_literal(next_item(firefox, MARKER_DATA, is_first), "{\"type\":\"call\"");
}

static int
put_call_marker(struct firefox *firefox, const struct ct_walk_place *place, const struct ct_span *span, uint32_t frame)
{
  uint32_t local = local_of(firefox, frame);
  if (local == CT_FRAMES_NONE) {
    return CT_ENOMEM;
  }
  begin_marker(firefox, FIXED_STRINGS + 3 * local, ct_walk_ns(place, span->enter_tsc), ct_walk_ns(place, span->end_tsc),
               span->end < CT_SPAN_ORPHAN);
  ct_json_attributes(&firefox->columns[MARKER_DATA].out, span);
  ct_out_byte(&firefox->columns[MARKER_DATA].out, '}');
  return 0;
}

static int
put_lost(void *arg, const struct ct_walk_place *place, uint64_t events, uint64_t tsc)
{
  struct firefox *firefox = arg;
  struct ct_sink *out = &firefox->columns[MARKER_DATA].out;
  uint64_t begin = ct_walk_ns(place, tsc - place->gap_ticks), end = ct_walk_ns(place, tsc);
  uint32_t frame = ct_export_frames_lost(&firefox->frames);
  int code = frame == CT_FRAMES_NONE ? CT_ENOMEM : ct_running_gap(&firefox->running, frame, begin, end);
  if (code != 0) {
    return code;
  }
  begin_marker(firefox, LOST_EVENTS, begin, end, true);
  ct_out_literal(out, ",\"events\":");
  ct_out_decimal(out, events);
  ct_out_byte(out, '}');
  return 0;
}

/* ---- calls ---- */

static int
entered(void *arg, const struct ct_walk_place *place, const struct ct_span_frame *frame, uint64_t context)
{
  struct firefox *firefox = arg;
  return ct_running_entered(&firefox->running, &firefox->frames, place, frame, context);
}

static int
switched(void *arg, const struct ct_walk_place *place, uint64_t context, uint64_t tsc)
{
  struct firefox *firefox = arg;
  return ct_running_switch(&firefox->running, (uint32_t)context, ct_walk_ns(place, tsc));
}

static int
ended(void *arg, const struct ct_walk_place *place, const struct ct_span *span, bool was_entered)
{
  struct firefox *firefox = arg;
  uint32_t number = ct_export_frame(&firefox->frames, span->fn);
  if (number == CT_FRAMES_NONE) {
    return CT_ENOMEM;
  }
  bool is_marked = !was_entered || span->uncertain != 0 || ct_span_is_unfinished(span->end);
  int code = is_marked ? put_call_marker(firefox, place, span, number) : 0;
  uint64_t ns = ct_walk_ns(place, span->end_tsc);
  if (code == 0 && was_entered) {
    code = ct_running_leave(&firefox->running, span->context, ns);
  } else if (code == 0 && span->end == CT_SPAN_POINT) {
    code =
        ct_running_point(&firefox->running, span->context, number, ns); /* which stack runs is to be seen by it too */
  }
  return code;
}

/* ---- tables ---- */

static void
put_list(struct firefox *firefox, const char *name, uint32_t count, const char *item)
{
  struct ct_sink *out = firefox->out;
  ct_out_byte(out, '"');
  ct_out_text(out, name);
  ct_out_literal(out, "\":[");
  for (uint32_t i = 0; i < count; i++) {
    ct_out_put(out, ",", i != 0);
    ct_out_text(out, item);
  }
  ct_out_literal(out, "],");
}

/* Numbers first, first + step ... */
static void
put_series(struct firefox *firefox, const char *name, uint32_t count, uint32_t first, uint32_t step_by)
{
  struct ct_sink *out = firefox->out;
  ct_out_byte(out, '"');
  ct_out_text(out, name);
  ct_out_literal(out, "\":[");
  for (uint32_t i = 0; i < count; i++) {
    ct_out_put(out, ",", i != 0);
    ct_out_decimal(out, first + i * step_by);
  }
  ct_out_literal(out, "],");
}

static void
put_length(struct firefox *firefox, uint64_t length)
{
  ct_out_literal(firefox->out, "\"length\":");
  ct_out_decimal(firefox->out, length);
  ct_out_literal(firefox->out, "},\n");
}

static void
put_stack_table(struct firefox *firefox)
{
  struct ct_sink *out = firefox->out;
  uint32_t count = firefox->node_count;
  ct_out_literal(out, "\"stackTable\":{\"frame\":[");
  for (uint32_t i = 0; i < count; i++) {
    ct_out_put(out, ",", i != 0);
    ct_out_decimal(out, firefox->nodes[i].frame);
  }
  ct_out_literal(out, "],\"prefix\":[");
  for (uint32_t i = 0; i < count; i++) {
    ct_out_put(out, ",", i != 0);
    if (firefox->nodes[i].prefix == NO_STACK) {
      ct_out_literal(out, "null");
    } else {
      ct_out_decimal(out, firefox->nodes[i].prefix);
    }
  }
  ct_out_literal(out, "],");
  put_list(firefox, "category", count, "0");
  put_list(firefox, "subcategory", count, "0");
  put_length(firefox, count);
}

static void
put_frame_tables(struct firefox *firefox)
{
  struct ct_sink *out = firefox->out;
  uint32_t count = firefox->used_count;
  ct_out_literal(out, "\"frameTable\":{");
  put_list(firefox, "address", count, "-1");
  put_list(firefox, "inlineDepth", count, "0");
  put_list(firefox, "category", count, "0");
  put_list(firefox, "subcategory", count, "0");
  put_series(firefox, "func", count, 0, 1);
  put_list(firefox, "nativeSymbol", count, "null");
  put_list(firefox, "innerWindowID", count, "0");
  put_list(firefox, "implementation", count, "null");
  put_list(firefox, "line", count, "null");
  put_list(firefox, "column", count, "null");
  put_length(firefox, count);
  ct_out_literal(out, "\"funcTable\":{");
  put_series(firefox, "name", count, FIXED_STRINGS, 3);
  put_list(firefox, "isJS", count, "false");
  put_list(firefox, "relevantForJS", count, "false");
  put_series(firefox, "resource", count, 0, 1);
  put_series(firefox, "fileName", count, FIXED_STRINGS + 2, 3);
  ct_out_literal(out, "\"lineNumber\":[");
  for (uint32_t i = 0; i < count; i++) {
    uint32_t line = firefox->frames.list[firefox->used[i]].line;
    ct_out_put(out, ",", i != 0);
    if (line != 0) {
      ct_out_decimal(out, line);
    } else {
      ct_out_literal(out, "null");
    }
  }
  ct_out_literal(out, "],");
  put_list(firefox, "columnNumber", count, "null");
  put_length(firefox, count);
  /* A resource for each function: the name of its module. */
  ct_out_literal(out, "\"resourceTable\":{");
  put_list(firefox, "lib", count, "null");
  put_series(firefox, "name", count, FIXED_STRINGS + 1, 3);
  put_list(firefox, "host", count, "null");
  put_list(firefox, "type", count, "0");
  put_length(firefox, count);
  ct_out_literal(out,
                 "\"nativeSymbols\":{\"libIndex\":[],\"address\":[],\"name\":[],\"functionSize\":[],\"length\":0},\n");
}

static void
put_strings(struct firefox *firefox)
{
  struct ct_sink *out = firefox->out;
  ct_out_literal(out, "\"stringArray\":[\"events lost\"");
  for (uint32_t i = 0; i < firefox->used_count; i++) {
    const struct ct_export_frame *frame = &firefox->frames.list[firefox->used[i]];
    ct_out_literal(out, ",\n");
    ct_out_json(out, frame->name);
    ct_out_byte(out, ',');
    ct_out_json(out, frame->module);
    ct_out_byte(out, ',');
    ct_out_json(out, frame->file != NULL ? frame->file : "");
  }
  ct_out_literal(out, "]}");
}

/* ---- threads ---- */

static int
begin_process(void *arg, const struct ct_walk_place *place)
{
  return ct_export_frames_begin(&((struct firefox *)arg)->frames, place->trace);
}

static int
begin_thread(void *arg, const struct ct_walk_place *place)
{
  struct firefox *firefox = arg;
  struct ct_sink *out = firefox->out;
  char numbers[200];
  ct_out_put(out, ",\n", firefox->threads++ != 0 ? 2 : 0);
  ct_out_literal(out, "{\"name\":");
  ct_out_json(out, ct_export_thread_name(place));
  ct_out_literal(out, ",\"processName\":");
  ct_out_json(out, ct_export_program(place->trace));
  snprintf(numbers, sizeof(numbers),
           ",\"processType\":\"default\",\"pid\":\"%u\",\"tid\":%u,\"isMainThread\":%s,\"processStartupTime\":0,"
           "\"processShutdownTime\":null,\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[],\n",
           place->pid, place->thread->tid, place->pid == place->thread->tid ? "true" : "false");
  ct_out_text(out, numbers);
  firefox->samples = firefox->markers = firefox->last_ns = 0;
  firefox->node_count = firefox->open_count = firefox->used_count = 0;
  if (firefox->table != NULL) {
    memset(firefox->table, 0, firefox->table_capacity * sizeof(*firefox->table));
  }
  if (firefox->local != NULL) {
    memset(firefox->local, 0, firefox->local_capacity * sizeof(*firefox->local));
  }
  return open_columns(firefox);
}

static int
end_thread(void *arg, const struct ct_walk_place *place, uint64_t end_tsc)
{
  struct firefox *firefox = arg;
  struct ct_sink *out = firefox->out;
  ct_running_clear(&firefox->running);
  ct_out_literal(out, "\"samples\":{\"weightType\":\"tracing-ms\",\n");
  int code = put_column(firefox, SAMPLE_TIME, "time");
  code = code == CT_OK ? put_column(firefox, SAMPLE_WEIGHT, "weight") : code;
  code = code == CT_OK ? put_column(firefox, SAMPLE_STACK, "stack") : code;
  put_length(firefox, firefox->samples);
  ct_out_literal(out, "\"markers\":{");
  code = code == CT_OK ? put_column(firefox, MARKER_DATA, "data") : code;
  code = code == CT_OK ? put_column(firefox, MARKER_NAME, "name") : code;
  code = code == CT_OK ? put_column(firefox, MARKER_START, "startTime") : code;
  code = code == CT_OK ? put_column(firefox, MARKER_END, "endTime") : code;
  code = code == CT_OK ? put_column(firefox, MARKER_PHASE, "phase") : code;
  ct_out_literal(out, "\"category\":[");
  for (uint64_t i = 0; i < firefox->markers; i++) {
    ct_out_put(out, "0,", i + 1 < firefox->markers ? 2 : 1);
  }
  ct_out_literal(out, "],");
  put_length(firefox, firefox->markers);
  put_stack_table(firefox);
  put_frame_tables(firefox);
  put_strings(firefox);
  return code != CT_OK ? code : ct_out_failed(out) ? CT_EIO : CT_OK;
}

static void
put_meta(struct firefox *firefox, const struct ct_export_job *job, uint64_t lost)
{
  struct ct_sink *out = firefox->out;
  uint64_t start = (uint64_t)json_integer_value(json_object_get(ct_trace_manifest(job->trace), "start_wall_ns"));
  ct_out_literal(
      out, "\n],\"libs\":[],\"pages\":[],\"counters\":[],\"meta\":{\"version\":30,\"preprocessedProfileVersion\":48,"
           "\"interval\":1,\"startTime\":");
  put_ms(out, start);
  ct_out_literal(
      out, ",\"processType\":0,\"stackwalk\":1,\"debug\":false,\"symbolicated\":true,\"importedFrom\":\"contrail\","
           "\"product\":");
  ct_out_json(out, ct_export_program(job->trace));
  ct_out_literal(
      out,
      ",\"categories\":[{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":[\"Other\"]}],\"markerSchema\":"
      "[{\"name\":\"call\",\"tooltipLabel\":\"{marker.name}\",\"display\":[\"marker-chart\",\"marker-table\"],"
      "\"data\":[{\"key\":\"end\",\"label\":\"End\",\"format\":\"string\"},{\"key\":\"open\",\"label\":\"Open\","
      "\"format\":\"string\"},{\"key\":\"uncertain\",\"label\":\"Uncertain\",\"format\":\"string\"},{\"key\":"
      "\"before\",\"label\":\"From before\",\"format\":\"string\"},{\"key\":\"calls\",\"label\":\"Calls\",\"format\":"
      "\"integer\"},{\"key\":\"events\",\"label\":\"Events lost\",\"format\":\"integer\"}]}],\"extra\":[]},"
      "\"contrail\":{");
  ct_json_about(out, job, lost);
  ct_out_literal(out, "}}\n");
}

static int
write_firefox(const struct ct_export_job *job, struct ct_sink *out, struct ct_diag *diag)
{
  const struct ct_walk_handler handler = {.begin_process = begin_process,
                                          .begin_thread = begin_thread,
                                          .entered = entered,
                                          .ended = ended,
                                          .switched = switched,
                                          .lost = put_lost,
                                          .end_thread = end_thread};
  struct firefox firefox = {.out = out, .diag = diag};
  struct ct_walk_sums sums = {0};
  firefox.running.open = open_frame;
  firefox.running.close = close_frame;
  firefox.running.arg = &firefox;
  ct_out_literal(out, "{\"threads\":[\n");
  int err = ct_walk(job, &handler, &firefox, &sums, diag);
  put_meta(&firefox, job, sums.lost);
  drop_columns(&firefox);
  ct_export_say(job->summary, "calls whose stack is one too many: their time is their caller's", firefox.cut);
  ct_export_frames_destroy(&firefox.frames);
  ct_running_clear(&firefox.running);
  free(firefox.local);
  free(firefox.used);
  free(firefox.nodes);
  free(firefox.table);
  free(firefox.open);
  return err;
}

static int
write_format(const struct ct_export_job *job, struct ct_diag *diag)
{
  return ct_export_file(job, CT_OUT_PLAIN, write_firefox, diag);
}

const struct ct_export_writer ct_export_firefox = {
    .format = {.name = "firefox", .summary = "a processed profile for profiler.firefox.com", .takes_filters = true},
    .write = write_format,
};
