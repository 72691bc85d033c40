/* SPDX-License-Identifier: MIT */
/* The tables whose rows are numbered: functions, threads, processes, modules, edges, histogram, blocks, windows,
 * output, crash. Their first column is the number. */
#include "sql/span_sums.h"
#include "sql/sql_internal.h"

#include "base/json.h"
#include "export/atf.h"
#include "views/report.h"

#include <stdlib.h>
#include <string.h>

static void
put_number(sqlite3_context *out, uint64_t number)
{
  sqlite3_result_int64(out, number > INT64_MAX ? INT64_MAX : (sqlite3_int64)number);
}

static void
put_text(sqlite3_context *out, const char *text)
{
  if (text != NULL) {
    sqlite3_result_text(out, text, -1, SQLITE_TRANSIENT);
  }
}

static void
put_ticks(sqlite3_context *out, const struct ct_sql_source *source, uint64_t ticks)
{
  put_number(out, ct_trace_ticks_ns(source->trace, ticks));
}

/* ---- functions ---- */

static int64_t
count_functions(struct ct_sql *sql, struct ct_sql_source *source)
{
  (void)sql;
  return ct_trace_function_count(source->trace);
}

static uint64_t
external_id(struct ct_sql_source *source, uint32_t fn)
{
  if (source->function_ids == NULL) {
    struct ct_atf_ids ids;
    uint32_t count = ct_trace_function_count(source->trace);
    source->function_ids = calloc((size_t)count + 1, sizeof(*source->function_ids));
    if (source->function_ids != NULL && ct_atf_ids_create(source->trace, &ids) == 0) {
      memcpy(source->function_ids, ids.of, count * sizeof(*ids.of));
      ct_atf_ids_destroy(&ids);
    }
  }
  return source->function_ids != NULL ? source->function_ids[fn] : 0;
}

static bool
was_out(struct ct_sql_source *source, uint32_t fn)
{
  if (!source->has_were_out) {
    source->were_out = ct_report_were_out(source->trace, ct_trace_function_count(source->trace));
    source->has_were_out = true;
  }
  return source->were_out != NULL && source->were_out[fn] != 0;
}

/* calls .. p99, counted: what the statistics have. */
static void
function_sum(const struct ct_index *index, struct ct_sql_source *source, uint32_t fn, int column, sqlite3_context *out)
{
  const struct ct_stats *stats = ct_index_stats(index);
  const struct ct_fn_stats *sums = &stats->fns[fn];
  static const uint32_t permilles[] = {500, 950, 990};
  if (column == 17 || sums->histogram == NULL) {
    if (column == 17 || column == 7) {
      put_number(out, column == 17 ? stats->counted[fn] : 0);
    }
    return;
  }
  uint64_t quantile = column >= 12 ? ct_histogram_quantile(sums->histogram, permilles[column - 12]) : 0;
  bool is_timed = sums->histogram->count != 0, has_spans = ct_fn_stats_spans(sums) > sums->points;
  switch (column) {
  case 7:
    put_number(out, ct_fn_stats_spans(sums) - stats->before[fn]);
    break;
  case 8:
  case 9:
    if (has_spans) {
      put_ticks(out, source, column == 8 ? sums->total_ticks : sums->self_ticks);
    }
    break;
  case 10:
    if (is_timed) {
      put_ticks(out, source, sums->min_ticks);
    }
    break;
  case 11:
    if (is_timed || sums->max_ticks != 0) {
      put_ticks(out, source, sums->max_ticks);
    }
    break;
  default:
    if (is_timed) {
      quantile = quantile < sums->min_ticks ? sums->min_ticks : quantile;
      put_ticks(out, source, quantile > sums->max_ticks ? sums->max_ticks : quantile);
    }
    break;
  }
}

static void
column_functions(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column, sqlite3_context *out)
{
  uint32_t id = (uint32_t)row, line = 0;
  const struct ct_trace_function *fn = ct_trace_function(source->trace, id);
  if ((column >= 7 && column <= 14) || column == 17) {
    if (ct_sql_sums(sql, source) != NULL) {
      function_sum(ct_sql_sums(sql, source), source, id, column, out);
    }
    return;
  }
  if (fn == NULL) {
    return;
  }
  const char *file = column == 5 || column == 6 ? ct_trace_function_source(source->trace, id, &line) : NULL;
  switch (column) {
  case 1:
    put_text(out, fn->name);
    break;
  case 2:
    put_text(out, fn->raw_name);
    break;
  case 3:
    put_number(out, source->function_base + id);
    break;
  case 4:
    put_text(out, ct_trace_module_name(source->trace, fn->module));
    break;
  case 5:
    put_text(out, file);
    break;
  case 6:
    if (file != NULL && line != 0) {
      put_number(out, line);
    }
    break;
  case 15:
    put_number(out, source->pid);
    break;
  case 18:
    put_number(out, was_out(source, id));
    break;
  default:
    put_number(out, external_id(source, id));
    break;
  }
}

/* ---- threads, processes, modules ---- */

static int64_t
count_threads(struct ct_sql *sql, struct ct_sql_source *source)
{
  bool is_known = !ct_trace_has_range(source->trace) || ct_sql_index(sql, source) != NULL;
  return is_known ? (int64_t)ct_trace_thread_count(source->trace) : -1;
}

static bool
has_thread(struct ct_sql_source *source, uint64_t row)
{
  return ct_sql_has_thread(source, (uint32_t)row);
}

/* In a piece of time, what is in it. */
static void
count_events(struct ct_sql *sql, struct ct_sql_source *source, uint32_t number, uint64_t *events, uint64_t *lost)
{
  const struct ct_trace_thread *thread = ct_trace_thread(source->trace, number);
  *events = thread->events;
  *lost = thread->dropped;
  const struct ct_index *index = ct_trace_has_range(source->trace) ? ct_sql_index(sql, source) : NULL;
  if (index != NULL) {
    struct ct_index_thread_sums sums;
    ct_index_thread_sums(index, number, &sums);
    *events = sums.events;
    *lost = sums.lost;
  }
}

static void
column_threads(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column, sqlite3_context *out)
{
  const struct ct_trace_thread *thread = ct_trace_thread(source->trace, (uint32_t)row);
  uint64_t numbers[] = {0, thread->tid, 0, source->pid, 0, 0};
  count_events(sql, source, (uint32_t)row, &numbers[4], &numbers[5]);
  if (column == 2) {
    put_text(out, thread->name);
  } else {
    put_number(out, numbers[column]);
  }
}

static int64_t
count_processes(struct ct_sql *sql, struct ct_sql_source *source)
{
  return count_threads(sql, source) >= 0 ? 1 : -1;
}

/* Of a piece: what its threads lost in it. */
static uint64_t
lost_in_piece(struct ct_sql *sql, struct ct_sql_source *source)
{
  uint64_t all = 0, events, lost;
  for (uint32_t i = 0; i < ct_trace_thread_count(source->trace); i++) {
    count_events(sql, source, i, &events, &lost);
    all += ct_sql_has_thread(source, i) ? lost : 0;
  }
  return all;
}

static void
put_command(sqlite3_context *out, const json_t *command)
{
  char text[4096];
  size_t used = 0, i;
  const json_t *word;
  json_array_foreach((json_t *)command, i, word)
  {
    int n = snprintf(text + used, sizeof(text) - used, "%s%s", i == 0 ? "" : " ", json_string_value(word));
    if (n < 0 || (size_t)n >= sizeof(text) - used) {
      used = sizeof(text) - 1;
      break;
    }
    used += (size_t)n;
  }
  sqlite3_result_text(out, text, (int)used, SQLITE_TRANSIENT);
}

static void
column_processes(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column, sqlite3_context *out)
{
  (void)row;
  const json_t *manifest = ct_trace_manifest(source->trace), *end = json_object_get(manifest, "exit");
  const char *keys[] = {NULL, NULL, "parent", NULL, NULL, NULL, "status", "signal", "dropped_total"};
  switch (column) {
  case 1:
    put_number(out, source->pid);
    break;
  case 2:
  case 8:
    if (column == 8 && ct_sql_is_piece(source)) {
      put_number(out, lost_in_piece(sql, source));
    } else if (json_is_integer(json_object_get(manifest, keys[column]))) {
      put_number(out, ct_json_get(manifest, keys[column]));
    }
    break;
  case 3:
    put_command(out, json_object_get(manifest, "command"));
    break;
  case 4:
    put_number(out, source->number);
    break;
  case 5:
    put_text(out, ct_trace_path(source->trace));
    break;
  default:
    if (json_is_integer(json_object_get(end, keys[column]))) {
      put_number(out, ct_json_get(end, keys[column]));
    }
    break;
  }
}

static int64_t
count_modules(struct ct_sql *sql, struct ct_sql_source *source)
{
  (void)sql;
  return ct_trace_module_count(source->trace);
}

static void
column_modules(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column, sqlite3_context *out)
{
  (void)sql;
  const struct ct_trace_module *module = ct_trace_module(source->trace, (uint32_t)row);
  switch (column) {
  case 1:
    put_text(out, ct_trace_module_name(source->trace, (uint32_t)row));
    break;
  case 2:
    put_text(out, module->path);
    break;
  case 3:
    put_text(out, module->build_id);
    break;
  case 4:
    put_number(out, module->base);
    break;
  default:
    put_number(out, source->pid);
    break;
  }
}

/* ---- edges, histogram ---- */

static int64_t
count_edges(struct ct_sql *sql, struct ct_sql_source *source)
{
  const struct ct_index_edge *edges;
  struct ct_index *sums = ct_sql_sums(sql, source);
  int64_t count = sums != NULL ? ct_index_edges(sums, &edges) : -1;
  if (sums != NULL && count < 0) {
    ct_fail(&sql->diag, CT_EFORMAT, "no edges: out of memory, or spans.cti is damaged: remove it");
  }
  return count;
}

static void
column_edges(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column, sqlite3_context *out)
{
  const struct ct_index_edge *edges;
  ct_index_edges(ct_sql_sums(sql, source), &edges); /* count_edges has it */
  const struct ct_index_edge *edge = &edges[row];
  uint32_t id = column == 1 || column == 3 ? edge->caller : edge->fn;
  const struct ct_trace_function *fn = ct_trace_function(source->trace, id);
  switch (column) {
  case 1:
  case 2:
    if (id != UINT32_MAX) {
      put_text(out, fn != NULL ? fn->name : "?");
    }
    break;
  case 3:
  case 4:
    if (id != UINT32_MAX) {
      put_number(out, source->function_base + id);
    }
    break;
  case 5:
    put_number(out, edge->calls);
    break;
  case 6:
    put_ticks(out, source, edge->total_ticks);
    break;
  case 7:
    put_ticks(out, source, edge->self_ticks);
    break;
  default:
    put_number(out, source->pid);
    break;
  }
}

struct filling {
  struct ct_sql_source *source;
  uint32_t fn;
};

static void
count_bucket(void *arg, unsigned bucket, uint64_t count)
{
  (void)bucket;
  (void)count;
  ++*(uint64_t *)arg;
}

/* Buckets are of ticks, of which a nanosecond may have several: such buckets are one row. */
static bool
is_same_range(const struct ct_trace *trace, unsigned one, unsigned other)
{
  uint64_t width, other_width;
  uint64_t least = ct_histogram_bucket_least(one, &width), other_least = ct_histogram_bucket_least(other, &other_width);
  return ct_trace_ticks_ns(trace, least) == ct_trace_ticks_ns(trace, other_least) &&
         ct_trace_ticks_ns(trace, least + width - 1) == ct_trace_ticks_ns(trace, other_least + other_width - 1);
}

static void
add_bucket(void *arg, unsigned number, uint64_t count)
{
  struct filling *filling = arg;
  struct ct_sql_source *source = filling->source;
  struct ct_sql_bucket *before = source->bucket_count == 0 ? NULL : &source->buckets[source->bucket_count - 1];
  if (before != NULL && before->fn == filling->fn && is_same_range(source->trace, before->number, number)) {
    before->calls += count;
    return;
  }
  source->buckets[source->bucket_count++] = (struct ct_sql_bucket){count, filling->fn, number};
}

static int64_t
count_buckets(struct ct_sql *sql, struct ct_sql_source *source)
{
  const struct ct_index *sums = ct_sql_sums(sql, source);
  if (sums == NULL) {
    return -1;
  }
  const struct ct_stats *stats = ct_index_stats(sums);
  uint64_t count = 0;
  for (uint32_t i = 0; i < stats->touched_count && source->buckets == NULL; i++) {
    ct_histogram_each(stats->fns[stats->touched[i]].histogram, count_bucket, &count);
  }
  if (source->buckets == NULL && (source->buckets = calloc(count + 1, sizeof(*source->buckets))) != NULL) {
    for (uint32_t i = 0; i < stats->touched_count; i++) {
      struct filling filling = {source, stats->touched[i]};
      ct_histogram_each(stats->fns[filling.fn].histogram, add_bucket, &filling);
    }
  }
  if (source->buckets == NULL) {
    ct_fail(&sql->diag, CT_ENOMEM, "out of memory for the histograms");
    return -1;
  }
  return (int64_t)source->bucket_count;
}

static void
column_histogram(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column, sqlite3_context *out)
{
  (void)sql;
  const struct ct_sql_bucket *bucket = &source->buckets[row];
  const struct ct_trace_function *function = ct_trace_function(source->trace, bucket->fn);
  uint64_t width, least = ct_histogram_bucket_least(bucket->number, &width);
  switch (column) {
  case 1:
    put_text(out, function != NULL ? function->name : "?");
    break;
  case 2:
    put_number(out, source->function_base + bucket->fn);
    break;
  case 3:
    put_ticks(out, source, least);
    break;
  case 4:
    put_ticks(out, source, least + width - 1);
    break;
  default:
    put_number(out, bucket->calls);
    break;
  }
}

/* ---- windows, output, crash ---- */

static int64_t
count_windows(struct ct_sql *sql, struct ct_sql_source *source)
{
  (void)sql;
  return (int64_t)ct_trace_window_count(source->trace);
}

/* Those that reach into the piece. */
static bool
has_window(struct ct_sql_source *source, uint64_t row)
{
  struct ct_trace_window window;
  uint64_t from, to;
  return !ct_trace_range(source->trace, &from, &to) || !ct_trace_window(source->trace, row, &window) ||
         (window.begin_tsc <= to && window.end_tsc >= from);
}

/* Which call of its function the first mark of window n is about, or (is) what that number is. */
static void
put_call(struct ct_sql_source *source, uint64_t n, bool is, sqlite3_context *out)
{
  const json_t *window = json_array_get(json_object_get(ct_trace_manifest(source->trace), "windows"), n);
  const json_t *reason = json_array_get(json_object_get(window, "reasons"), 0);
  if (is) {
    put_text(out, json_string_value(json_object_get(reason, "call_is")));
  } else if (json_object_get(reason, "call") != NULL) {
    put_number(out, ct_json_get(reason, "call"));
  }
}

static void
column_windows(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column, sqlite3_context *out)
{
  (void)sql;
  struct ct_trace_window window;
  if (!ct_trace_window(source->trace, row, &window)) {
    return;
  }
  switch (column) {
  case 1:
    put_number(out, row + 1);
    break;
  case 2:
    sqlite3_result_int64(out, ct_sql_time(source, window.begin_tsc));
    break;
  case 3:
    sqlite3_result_int64(out, ct_sql_time(source, window.end_tsc));
    break;
  case 4:
    put_number(out, window.marks);
    break;
  case 5:
    put_text(out, window.reason);
    break;
  case 7:
  case 8:
    put_call(source, row, column == 8, out);
    break;
  default:
    put_number(out, source->pid);
    break;
  }
}

static const struct ct_captures *
captures_of(struct ct_sql_source *source)
{
  if (!source->has_captures) {
    source->has_captures = true;
    if (ct_trace_captures(source->trace, &source->captures) != 0) {
      source->captures = (struct ct_captures){0};
    }
  }
  return &source->captures;
}

static int64_t
count_output(struct ct_sql *sql, struct ct_sql_source *source)
{
  (void)sql;
  return (int64_t)captures_of(source)->count;
}

/* A thread with this tid is asked about. */
static bool
has_tid(const struct ct_sql_source *source, uint32_t tid)
{
  bool has = source->threads == NULL;
  for (uint32_t i = 0; !has && i < ct_trace_thread_count(source->trace); i++) {
    has = source->threads[i] != 0 && ct_trace_thread(source->trace, i)->tid == tid;
  }
  return has;
}

static bool
has_output(struct ct_sql_source *source, uint64_t row)
{
  return has_tid(source, source->captures.items[row].tid);
}

/* A zero byte would end the text for LIKE, length() and whoever prints it: '?', as in the view of the output. */
static void
put_written(sqlite3_context *out, const struct ct_captured *item)
{
  char *text = malloc((size_t)item->bytes + 1);
  if (text == NULL) {
    sqlite3_result_error_nomem(out);
    return;
  }
  for (size_t i = 0; i < item->bytes; i++) {
    text[i] = item->data[i] == '\0' ? '?' : item->data[i];
  }
  sqlite3_result_text(out, text, (int)item->bytes, free);
}

static void
column_output(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column, sqlite3_context *out)
{
  (void)sql;
  const struct ct_captured *item = &captures_of(source)->items[row];
  switch (column) {
  case 1:
    sqlite3_result_int64(out, ct_sql_time(source, item->tsc));
    break;
  case 2:
    put_number(out, item->tid);
    break;
  case 3:
    put_number(out, source->pid);
    break;
  case 4:
    put_number(out, item->fd);
    break;
  case 5:
    put_number(out, item->given);
    break;
  default:
    put_written(out, item);
    break;
  }
}

static int64_t
count_crash(struct ct_sql *sql, struct ct_sql_source *source)
{
  (void)sql;
  const json_t *crash = ct_trace_crash(source->trace);
  return crash != NULL && ct_trace_in_range(source->trace, ct_json_get(crash, "tsc")) &&
         has_tid(source, (uint32_t)ct_json_get(crash, "tid"));
}

static void
column_crash(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column, sqlite3_context *out)
{
  (void)sql;
  (void)row;
  static const char *const keys[] = {NULL, "tsc", "tid", NULL, "signal", "name", "meaning", "address"};
  const json_t *crash = ct_trace_crash(source->trace);
  const json_t *value = keys[column] != NULL ? json_object_get(crash, keys[column]) : NULL;
  if (column == 3) {
    put_number(out, source->pid);
  } else if (column == 1 && json_is_integer(value)) {
    sqlite3_result_int64(out, ct_sql_time(source, ct_json_get(crash, "tsc")));
  } else if (json_is_integer(value)) {
    put_number(out, ct_json_get(crash, keys[column]));
  } else {
    put_text(out, json_string_value(value));
  }
}

const struct ct_sql_rows ct_sql_rows_tables[] = {
    {"functions",
     "id INTEGER, name TEXT, raw_name TEXT, function_id INTEGER, module TEXT, file TEXT, line INTEGER, calls INTEGER, "
     "total INTEGER, self INTEGER, min INTEGER, max INTEGER, p50 INTEGER, p95 INTEGER, p99 INTEGER, process INTEGER, "
     "atf_id INTEGER, counted INTEGER, was_out INTEGER",
     count_functions, column_functions, NULL, 3},
    {"threads", "id INTEGER, tid INTEGER, name TEXT, process INTEGER, events INTEGER, lost INTEGER", count_threads,
     column_threads, has_thread},
    {"processes",
     "id INTEGER, pid INTEGER, parent INTEGER, command TEXT, trace INTEGER, path TEXT, status INTEGER, signal INTEGER, "
     "lost INTEGER",
     count_processes, column_processes},
    {"modules", "id INTEGER, name TEXT, path TEXT, build_id TEXT, base INTEGER, process INTEGER", count_modules,
     column_modules},
    {"edges",
     "id INTEGER, caller TEXT, callee TEXT, caller_id INTEGER, callee_id INTEGER, calls INTEGER, total INTEGER, self "
     "INTEGER, process INTEGER",
     count_edges, column_edges},
    {"histogram", "id INTEGER, function TEXT, function_id INTEGER, least INTEGER, most INTEGER, calls INTEGER",
     count_buckets, column_histogram},
    {"event_blocks",
     "id INTEGER, thread INTEGER, tid INTEGER, process INTEGER, number INTEGER, first_event INTEGER, events INTEGER, "
     "lost INTEGER, start INTEGER, \"end\" INTEGER, bytes INTEGER, file TEXT",
     ct_sql_count_blocks, ct_sql_column_blocks},
    {"windows",
     "id INTEGER, number INTEGER, start INTEGER, \"end\" INTEGER, marks INTEGER, reason TEXT, process INTEGER, call "
     "INTEGER, call_is TEXT",
     count_windows, column_windows, has_window},
    {"output", "id INTEGER, time INTEGER, tid INTEGER, process INTEGER, fd INTEGER, bytes INTEGER, text TEXT",
     count_output, column_output, has_output},
    {"crash",
     "id INTEGER, time INTEGER, tid INTEGER, process INTEGER, signal INTEGER, name TEXT, meaning TEXT, address TEXT",
     count_crash, column_crash},
    {"itraced",
     "id INTEGER, thread INTEGER, tid INTEGER, process INTEGER, function TEXT, function_id INTEGER, start INTEGER, "
     "first_step INTEGER, steps INTEGER, outcome TEXT",
     ct_sql_count_itraced, ct_sql_column_itraced, ct_sql_has_itraced},
    {"function_sums",
     "id INTEGER, function TEXT, function_id INTEGER, module TEXT, process INTEGER, " CT_SQL_SUM_COLUMNS,
     ct_sql_count_function_sums, ct_sql_column_function_sums, ct_sql_has_function_sums},
    {"thread_sums",
     "id INTEGER, thread INTEGER, tid INTEGER, process INTEGER, " CT_SQL_SUM_COLUMNS
     ", of_least_depth INTEGER, of_most_depth INTEGER",
     ct_sql_count_thread_sums, ct_sql_column_thread_sums, ct_sql_has_thread_sums},
    {0},
};
