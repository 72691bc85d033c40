/* SPDX-License-Identifier: MIT */
/*
 * A database of traces: SQLite in memory, with nothing in it but tables that are read out of the traces and views of
 * these. Whoever asks may only read: an authorizer refuses all that writes, opens files or loads code.
 */
#include "sql/span_sums.h"
#include "sql/sql_internal.h"
#include "sql/sql_steps.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/sized.h"
#include "base/test_point.h"
#include "views/warnings.h"

#include <contrail/filter.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The longest text or blob of a query: longer ones take gigabytes, and their making cannot be interrupted. */
enum { PROGRESS_STEPS = 10000, TRACES_MAX = 64, VALUE_BYTES_MAX = 64 << 20, INDEXES_MOST = 32 };

static const char *const views[] = {
    "CREATE TEMP VIEW long_spans AS SELECT * FROM spans WHERE duration >= 10000",
    "CREATE TEMP VIEW open_frames AS SELECT * FROM spans WHERE flags LIKE 'unfinished%'",
    "CREATE TEMP VIEW lost AS SELECT thread, tid, process, time, value AS events FROM events WHERE type = 'lost'",
    /* for those who come from Perfetto */
    "CREATE TEMP VIEW slice AS SELECT id, start AS ts, duration AS dur, thread AS track_id, function AS name, depth, "
    "parent_id, off AS off_dur FROM spans",
    "CREATE TEMP VIEW thread AS SELECT id AS utid, tid, name, process AS upid FROM threads",
    "CREATE TEMP VIEW track AS SELECT id, name, id AS utid FROM threads",
    "CREATE TEMP VIEW process AS SELECT pid AS upid, pid, command AS name, parent AS parent_upid FROM processes",
    "CREATE TEMP VIEW itrace_calls AS SELECT i.*, (SELECT s.id FROM spans s WHERE s.thread = i.thread AND s.start = "
    "i.start AND s.function_id = i.function_id) AS span_id FROM itraced i",
    "CREATE TEMP VIEW blocks AS SELECT *, NULL AS first_step, NULL AS steps FROM event_blocks UNION ALL SELECT id + "
    "(SELECT count(*) FROM event_blocks), NULL, tid, process, number, NULL, NULL, NULL, start, \"end\", bytes, file, "
    "first_step, steps FROM step_blocks",
};

/* ---- sources ---- */

int64_t
ct_sql_time(const struct ct_sql_source *source, uint64_t tsc)
{
  return (int64_t)(ct_trace_ns(source->trace, tsc) - source->start_ns);
}

/* A thread of which an index has met damage. */
static void
note_damage(const struct ct_sql_source *source, char *out, size_t bytes)
{
  const struct ct_index *index = source->index != NULL ? source->index : source->sums;
  for (uint32_t n = 0; index != NULL && n < ct_trace_thread_count(source->trace) && out[0] == '\0'; n++) {
    struct ct_index_thread_sums sums = {0};
    if (ct_sql_has_thread(source, n)) {
      ct_index_thread_sums(index, n, &sums);
    }
    if (sums.is_damaged) {
      snprintf(out, bytes, "the file of thread %u is damaged or cut; what comes before that place is in the tables",
               ct_trace_thread(source->trace, n)->tid);
    }
  }
}

static void
close_indexes(struct ct_sql *sql, struct ct_sql_source *source)
{
  note_damage(source, sql->damage, sizeof(sql->damage));
  sql->open_indexes -= (size_t)(source->index != NULL) + (size_t)(source->sums != NULL);
  ct_index_close(source->index);
  ct_index_close(source->sums);
  source->index = source->sums = NULL;
}

/* Closes what was asked for longest ago. The cache has places of any of them, and scans use it. */
static void
make_room(struct ct_sql *sql)
{
  struct ct_sql_source *oldest = NULL;
  for (size_t i = 0; i < sql->source_count; i++) {
    struct ct_sql_source *source = &sql->sources[i];
    if (source->pins == 0 && (source->index != NULL || source->sums != NULL) &&
        (oldest == NULL || source->used < oldest->used)) {
      oldest = source;
    }
  }
  if (oldest != NULL && (sql->cache == NULL || sql->scans == 0)) {
    ct_scan_cache_destroy(sql->cache);
    sql->cache = NULL;
    close_indexes(sql, oldest);
  }
}

static struct ct_index *
open_index(struct ct_sql *sql, struct ct_sql_source *source, const uint8_t *threads, struct ct_index **index)
{
  source->used = ++sql->index_questions;
  if (*index != NULL) {
    return *index;
  }
  if (sql->open_indexes >= ct_test_number("CONTRAIL_TEST_SQL_INDEXES", INDEXES_MOST)) {
    make_room(sql);
  }
  if (ct_index_open_piece(source->trace, threads, sql->options.workers, &sql->options.progress, index, &sql->diag) !=
      0) {
    *index = NULL;
  }
  sql->open_indexes += *index != NULL;
  sql->index_rebuilt |= *index != NULL && ct_index_origin(*index) == CT_INDEX_REBUILT;
  return *index;
}

/* That of the trace's file has all threads, and those that are not asked about are left out when it is read. */
struct ct_index *
ct_sql_index(struct ct_sql *sql, struct ct_sql_source *source)
{
  return open_index(sql, source, ct_trace_has_range(source->trace) ? source->threads : NULL, &source->index);
}

struct ct_index *
ct_sql_sums(struct ct_sql *sql, struct ct_sql_source *source)
{
  return source->threads == NULL || ct_trace_has_range(source->trace)
             ? ct_sql_index(sql, source)
             : open_index(sql, source, source->threads, &source->sums);
}

bool
ct_sql_has_thread(const struct ct_sql_source *source, uint32_t thread)
{
  return source->threads == NULL || source->threads[thread] != 0;
}

bool
ct_sql_is_piece(const struct ct_sql_source *source)
{
  return source->threads != NULL || ct_trace_has_range(source->trace);
}

/* Of DIR#TID: only threads with that number. found: one of the traces' has one. */
static int
choose_threads(struct ct_sql_source *source, const struct ct_trace_form *form, bool *found)
{
  uint32_t count = ct_trace_thread_count(source->trace);
  if (form->has_tid) {
    source->threads = calloc((size_t)count + 1, 1);
    if (source->threads == NULL) {
      return CT_ENOMEM;
    }
  }
  for (uint32_t i = 0; i < count && form->has_tid; i++) {
    source->threads[i] = ct_trace_thread(source->trace, i)->tid == form->tid;
    *found |= source->threads[i] != 0;
  }
  return 0;
}

static int
add_source(struct ct_sql *sql, struct ct_trace *trace, uint32_t process, uint64_t start_ns, struct ct_diag *diag)
{
  if (sql->source_count == sql->source_capacity) {
    size_t capacity = sql->source_capacity == 0 ? 4 : sql->source_capacity * 2;
    struct ct_sql_source *sources = reallocarray(sql->sources, capacity, sizeof(*sources));
    if (sources == NULL) {
      ct_trace_close(trace);
      return ct_fail(diag, CT_ENOMEM, "out of memory for the list of traces");
    }
    sql->sources = sources;
    sql->source_capacity = capacity;
  }
  struct ct_sql_source *source = &sql->sources[sql->source_count++];
  const json_t *pid = json_object_get(ct_trace_manifest(trace), "pid");
  *source = (struct ct_sql_source){.trace = trace,
                                   .number = sql->trace_count,
                                   .process = process,
                                   .pid = (uint32_t)json_integer_value(pid),
                                   .start_ns = start_ns};
  if (sql->source_count > 1) {
    const struct ct_sql_source *before = source - 1;
    source->function_base = before->function_base + ct_trace_function_count(before->trace);
    source->thread_base = before->thread_base + ct_trace_thread_count(before->trace);
    source->module_base = before->module_base + ct_trace_module_count(before->trace);
  }
  ct_trace_set_place(trace, sql->trace_count, process);
  return 0;
}

/* The processes that were followed from that of the trace; those without a trace of their own have no rows. */
static int
add_children(struct ct_sql *sql, const struct ct_trace *first, struct ct_diag *diag)
{
  const json_t *children = json_object_get(ct_trace_manifest(first), "children"), *child;
  uint64_t start_ns = ct_trace_start_ns(first);
  char path[PATH_MAX];
  size_t i;
  json_array_foreach((json_t *)children, i, child)
  {
    const char *name = json_string_value(json_object_get(child, "directory"));
    struct ct_trace *trace;
    if (name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL ||
        snprintf(path, sizeof(path), "%s/%s", ct_trace_path(first), name) >= (int)sizeof(path) ||
        ct_trace_open(path, &trace, NULL) != 0) {
      continue;
    }
    int code = add_source(sql, trace, (uint32_t)i + 1, start_ns, diag);
    if (code == 0 && ct_trace_set_same_range(trace, first) != 0) {
      code = ct_fail(diag, CT_ENOMEM, "out of memory for a piece of %s", path);
    }
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

/* The piece that the form describes; a moment that is 0 would be none. */
static int
set_range(struct ct_trace *trace, const struct ct_trace_form *form, struct ct_diag *diag)
{
  struct ct_filter filter = {.struct_size = sizeof(filter)};
  int code = form->window != 0 ? ct_filter_choose_window(&filter, trace, form->window, diag)
                               : ct_filter_parse_piece(trace, form->from, form->to, &filter, diag);
  if (code == CT_ERANGE && form->window == 0) {
    return ct_fail(diag, CT_EINVAL, "the piece ends before it begins: %.100s..%.100s", form->from, form->to);
  }
  if (code != 0) {
    return code;
  }
  return ct_filter_set_range(&filter, trace) == 0
             ? 0
             : ct_fail(diag, CT_ENOMEM, "out of memory for a piece of %s", form->directory);
}

/* What is said of the traces from that source on. Where there are several, each line begins with the trace. */
static int
add_warnings(struct ct_sql *sql, size_t first)
{
  sql->warnings = sql->warnings != NULL ? sql->warnings : json_array();
  for (size_t i = first; i < sql->source_count; i++) {
    const struct ct_trace *trace = sql->sources[i].trace;
    json_t *list = ct_view_warnings(trace), *line;
    size_t n;
    if (list == NULL) {
      return CT_ENOMEM;
    }
    json_array_foreach(list, n, line)
    {
      char text[PATH_MAX + 600];
      snprintf(text, sizeof(text), "%s%s%s", i == 0 ? "" : ct_trace_path(trace), i == 0 ? "" : ": ",
               json_string_value(line));
      json_array_append_new(sql->warnings, ct_json_string(text));
    }
    json_decref(list);
  }
  return sql->warnings != NULL ? 0 : CT_ENOMEM;
}

/* Of the sources from that one on: what the form asks for. */
static int
choose_pieces(struct ct_sql *sql, size_t first, const struct ct_trace_form *form, struct ct_diag *diag)
{
  bool found = !form->has_tid;
  for (size_t i = first; i < sql->source_count; i++) {
    if (choose_threads(&sql->sources[i], form, &found) != 0) {
      return ct_fail(diag, CT_ENOMEM, "out of memory for threads");
    }
  }
  if (!found) {
    return ct_fail(diag, CT_ERANGE, "no thread %u in the trace; `contrail info` lists its threads", form->tid);
  }
  return add_warnings(sql, first) == 0 ? 0 : ct_fail(diag, CT_ENOMEM, "out of memory for what is said of the traces");
}

static int
add_form(struct ct_sql *sql, const struct ct_trace_form *form, struct ct_diag *diag)
{
  struct ct_trace *trace;
  size_t first = sql->source_count;
  int code = ct_trace_open(form->directory, &trace, diag);
  if (code != 0) {
    return code;
  }
  code = add_source(sql, trace, 0, ct_trace_start_ns(trace), diag);
  if (code != 0) {
    goto count;
  }
  code = set_range(trace, form, diag);
  if (code != 0) {
    goto count;
  }
  code = add_children(sql, trace, diag);
  if (code != 0) {
    goto count;
  }
  code = choose_pieces(sql, first, form, diag);
count: /* its number is that of the sources there are by now */
  sql->trace_count++;
  return code;
}

const char *
ct_sql_warning(const struct ct_sql *sql, size_t n)
{
  return json_string_value(json_array_get(sql->warnings, n));
}

/* Instructions, calls, or both: what is in the directory. A file is one of instructions. */
static int
add_any(struct ct_sql *sql, const struct ct_trace_form *form, struct ct_diag *diag)
{
  char manifest[PATH_MAX];
  const char *path = form->directory;
  bool has_steps = ct_sql_recorded_is(path);
  size_t before = sql->recorded_count;
  if (has_steps && (form->from != NULL || form->to != NULL || form->window != 0)) {
    return ct_fail(diag, CT_EINVAL, "%s has instructions: a piece of it is WHERE step BETWEEN, or time", path);
  }
  int code = has_steps ? ct_sql_recorded_add(&sql->recorded, &sql->recorded_count, path, form->has_tid ? form->tid : 0,
                                             &sql->followed, diag)
                       : 0;
  bool has_calls = !has_steps || (snprintf(manifest, sizeof(manifest), "%s/manifest.json", path) < PATH_MAX &&
                                  access(manifest, F_OK) == 0);
  size_t source = sql->source_count;
  code = code == 0 && has_calls ? add_form(sql, form, diag) : code;
  for (size_t i = before; code == 0 && has_calls && i < sql->recorded_count; i++) { /* one time for both */
    const struct ct_sql_source *first = &sql->sources[source];
    ct_sql_recorded_start(sql->recorded[i], ct_trace_tsc(first->trace, first->start_ns));
  }
  return code;
}

int
ct_sql_add(struct ct_sql *sql, const char *name, struct ct_diag *diag)
{
  struct ct_trace_form form = {.struct_size = sizeof(form)};
  if (sql->trace_count == TRACES_MAX) {
    return ct_fail(diag, CT_ERANGE, "at most %d traces can be asked together", TRACES_MAX);
  }
  int code = ct_trace_form_parse(name, &form, diag);
  if (code == 0) {
    code = add_any(sql, &form, diag);
  }
  ct_trace_form_free(&form);
  return code;
}

/* ---- the database ---- */

/* Reading is all that is allowed, and looking at what there is. */
static int
authorize(void *arg, int action, const char *a, const char *b, const char *database, const char *trigger)
{
  (void)arg;
  (void)database;
  (void)trigger;
  static const char *const pragmas[] = {"table_info", "table_xinfo", "table_list", "function_list", "compile_options"};
  switch (action) {
  case SQLITE_SELECT:
  case SQLITE_READ:
  case SQLITE_RECURSIVE:
    return SQLITE_OK;
  case SQLITE_FUNCTION:
    return b != NULL && (strcmp(b, "load_extension") == 0 || strcmp(b, "fts3_tokenizer") == 0) ? SQLITE_DENY
                                                                                               : SQLITE_OK;
  case SQLITE_PRAGMA:
    for (size_t i = 0; i < sizeof(pragmas) / sizeof(pragmas[0]); i++) {
      if (a != NULL && strcmp(a, pragmas[i]) == 0) {
        return SQLITE_OK;
      }
    }
    return SQLITE_DENY;
  default:
    return SQLITE_DENY;
  }
}

static int
look_at_clock(void *arg)
{
  return ct_sql_is_over(arg);
}

/* Declares the tables, which the authorizer would not let anybody do later. */
static int
connect_tables(sqlite3 *db)
{
  static const char *const read_out[] = {"spans",       "events",     "values",         "steps",
                                         "writes",      "changes",    "vector_changes", "step_events",
                                         "step_blocks", "step_calls", "start_sums"};
  char text[64];
  int code = SQLITE_OK;
  size_t rows = 0, others = sizeof(read_out) / sizeof(read_out[0]);
  for (size_t i = 0; code == SQLITE_OK && (i < others || ct_sql_rows_tables[rows].name != NULL); i++) {
    sqlite3_stmt *statement = NULL;
    snprintf(text, sizeof(text), "SELECT * FROM \"%s\"", i < others ? read_out[i] : ct_sql_rows_tables[rows++].name);
    code = sqlite3_prepare_v2(db, text, -1, &statement, NULL);
    sqlite3_finalize(statement);
  }
  return code;
}

static int
set_up(struct ct_sql *sql)
{
  if (sqlite3_open_v2(":memory:", &sql->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL) !=
          SQLITE_OK ||
      ct_sql_rows_register(sql) != 0 || ct_sql_spans_register(sql) != 0 || ct_sql_events_register(sql) != 0 ||
      ct_sql_values_register(sql) != 0 || ct_sql_steps_register(sql) != 0 || ct_sql_step_calls_register(sql) != 0 ||
      ct_sql_start_sums_register(sql) != 0 || ct_sql_functions_register(sql->db) != 0 ||
      connect_tables(sql->db) != SQLITE_OK) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
    if (sqlite3_exec(sql->db, views[i], NULL, NULL, NULL) != SQLITE_OK) {
      return CT_ENOMEM;
    }
  }
  sqlite3_limit(sql->db, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(sql->db, SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX);
  sqlite3_set_authorizer(sql->db, authorize, sql);
  sqlite3_progress_handler(sql->db, PROGRESS_STEPS, look_at_clock, sql);
  return 0;
}

int
ct_sql_open(const struct ct_sql_options *given, struct ct_sql **out, struct ct_diag *diag)
{
  struct ct_sql *sql = calloc(1, sizeof(*sql));
  if (sql == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the database");
  }
  int code = ct_sized_take(&sql->options, sizeof(sql->options), given, diag);
  if (code == 0 && set_up(sql) != 0) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the database");
  }
  if (code != 0) {
    ct_sql_close(sql);
    return code;
  }
  sql->options.workers = sql->options.workers != 0 ? sql->options.workers : 1;
  *out = sql;
  return 0;
}

void
ct_sql_close(struct ct_sql *sql)
{
  if (sql == NULL) {
    return;
  }
  sqlite3_close(sql->db);
  ct_scan_cache_destroy(sql->cache);
  for (size_t i = 0; i < sql->source_count; i++) {
    struct ct_sql_source *source = &sql->sources[i];
    free(source->by_name);
    ct_index_close(source->index);
    ct_index_close(source->sums);
    ct_captures_free(&source->captures);
    ct_itraced_free(&source->itraced);
    ct_trace_close(source->trace);
    free(source->threads);
    free(source->blocks);
    free(source->function_ids);
    free(source->were_out);
    free(source->function_tallies);
    free(source->thread_tallies);
    free(source->buckets);
  }
  json_decref(sql->warnings);
  ct_sql_step_calls_free(sql);
  ct_sql_followed_close(&sql->followed);
  ct_sql_recorded_free(sql->recorded, sql->recorded_count);
  free(sql->sources);
  free(sql);
}

/* ---- queries ---- */

/* What is not empty or a comment, even if it makes no sense. */
static bool
has_statement(struct ct_sql *sql, const char *text)
{
  bool found = false;
  while (*text != '\0' && !found) {
    sqlite3_stmt *statement = NULL;
    found = sqlite3_prepare_v2(sql->db, text, -1, &statement, &text) != SQLITE_OK || statement != NULL;
    sqlite3_finalize(statement);
  }
  return found;
}

/* The first statement of the text, or what answers it sooner; *rest is behind it. An SQLite result code. */
static int
prepare(struct ct_sql *sql, const char *text, sqlite3_stmt **statement, const char **rest)
{
  size_t length = 0;
  char *answer = ct_sql_answer(sql, text, &length);
  int code = answer != NULL ? sqlite3_prepare_v2(sql->db, answer, -1, statement, NULL) : SQLITE_ERROR;
  sqlite3_free(answer);
  *rest = text + length;
  return code == SQLITE_OK ? code : sqlite3_prepare_v2(sql->db, text, -1, statement, rest);
}

static int
run_all(struct ct_sql *sql, const char *text, FILE *out, struct ct_sql_result *result, struct ct_diag *diag)
{
  while (*text != '\0') {
    sqlite3_stmt *statement;
    const char *rest;
    if (prepare(sql, text, &statement, &rest) != SQLITE_OK) {
      return ct_fail(diag, CT_EINVAL, "%s", sqlite3_errmsg(sql->db));
    }
    int code = 0;
    if (statement != NULL && sql->options.one_statement && has_statement(sql, rest)) {
      code = ct_fail(diag, CT_ERANGE, "more than one statement");
    } else if (statement != NULL) {
      code = ct_sql_print(sql, statement, out, result, diag);
    }
    sqlite3_finalize(statement);
    if (code != 0) {
      return code;
    }
    text = rest;
  }
  return 0;
}

/* Of all indexes that were needed so far. */
static void
report_damage(const struct ct_sql *sql, char *out, size_t bytes)
{
  for (size_t i = 0; i < sql->source_count && out[0] == '\0'; i++) {
    note_damage(&sql->sources[i], out, bytes);
  }
  if (out[0] == '\0') {
    snprintf(out, bytes, "%s", sql->damage);
  }
}

int
ct_sql_run(struct ct_sql *sql, const char *text, FILE *out, struct ct_sql_result *result, struct ct_diag *diag)
{
  struct ct_sql_result own = {0};
  sql->timed_out = false;
  sql->deadline_ns = sql->options.timeout_ms != 0 ? ct_now_ns() + sql->options.timeout_ms * 1000000 : 0;
  int code = run_all(sql, text, out, &own, diag);
  own.index_rebuilt = sql->index_rebuilt;
  snprintf(own.damage, sizeof(own.damage), "%s", ct_sql_step_calls_damage(sql));
  for (size_t i = 0; i < sql->recorded_count && own.damage[0] == '\0'; i++) {
    snprintf(own.damage, sizeof(own.damage), "%s", ct_sql_recorded_damage(sql->recorded[i]));
  }
  report_damage(sql, own.damage, sizeof(own.damage));
  sql->interrupted = 0;
  if (result != NULL) {
    int given = ct_sized_give(result, &own, sizeof(own), code == 0 ? diag : NULL);
    code = code != 0 ? code : given;
  }
  return code;
}

void
ct_sql_set_limits(struct ct_sql *sql, uint64_t rows, uint64_t timeout_ms)
{
  sql->options.limit = rows;
  sql->options.timeout_ms = timeout_ms;
}

bool
ct_sql_is_whole(const char *text)
{
  return sqlite3_complete(text) != 0;
}

void
ct_sql_interrupt(struct ct_sql *sql)
{
  sql->interrupted = 1; /* SQLite forgets one that comes while no statement is at work */
  sqlite3_interrupt(sql->db);
}

void
ct_sql_forget_interrupt(struct ct_sql *sql)
{
  sql->interrupted = 0;
}

static const char *const words[] = {"spans",       "events",       "functions",
                                    "threads",     "processes",    "modules",
                                    "edges",       "histogram",    "windows",
                                    "output",      "crash",        "long_spans",
                                    "lost",        "open_frames",  "values",
                                    "slice",       "thread",       "track",
                                    "process",     "id",           "parent_id",
                                    "tid",         "function",     "function_id",
                                    "module",      "caller",       "callee",
                                    "start",       "end",          "duration",
                                    "self",        "off",          "depth",
                                    "reason",      "stack",        "calls",
                                    "flags",       "name",         "raw_name",
                                    "file",        "line",         "total",
                                    "min",         "max",          "p50",
                                    "p95",         "p99",          "time",
                                    "type",        "value",        "text",
                                    "SELECT",      "FROM",         "WHERE",
                                    "GROUP",       "ORDER",        "LIMIT",
                                    "JOIN",        "percentile",   "duration_text",
                                    "demangle",    "blocks",       "atf_id",
                                    "kind",        "number",       "raw",
                                    "first_event", "bytes",        "steps",
                                    "writes",      "changes",      "step_events",
                                    "step_blocks", "step_calls",   "step",
                                    "address",     "code",         "register",
                                    "old_value",   "first_step",   "vector_changes",
                                    "itraced",     "itrace_calls", "span_id",
                                    "outcome",     "counted",      "was_out"};

const char *
ct_sql_word(size_t n)
{
  return n < sizeof(words) / sizeof(words[0]) ? words[n] : NULL;
}
