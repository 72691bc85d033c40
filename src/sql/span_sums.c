/* SPDX-License-Identifier: MIT */
/*
 * The tables function_sums and thread_sums: of the spans of each function, or thread, how many rows they are and what
 * of their columns adds up. A query that asks spans for no more is answered from here (answers.c).
 *
 * What the index knows exactly is not read: how many rows, calls and durations a function has, its shortest and longest
 * call if all of them are timed, a thread's longest call and depths. Durations and self times are summed as rows have
 * them, each in whole nanoseconds, so no sum of ticks will do: for these all spans are read, once, without making rows
 * of them.
 */
#include "sql/span_sums.h"

#include "base/error.h"

#include <stdlib.h>

enum { SPANS_AT_ONCE = 4096, CANNOT = -1 };

/* Of a function's or a thread's rows. Times are ns. */
struct ct_sql_tally {
  uint64_t rows, calls, timed; /* timed: with a duration */
  uint64_t untimed;            /* those of these that statistics have no shortest and longest of */
  uint64_t durations, selves;  /* sums */
  uint64_t longest, shortest;
  uint32_t least_depth, most_depth;
};

/* In ns it is as long as the row says. */
static void
add_span(struct ct_sql_tally *tally, const struct ct_trace *trace, const struct ct_span *span)
{
  bool is_first = tally->rows++ == 0;
  tally->calls += span->end == CT_SPAN_POINT ? span->calls : 1;
  tally->least_depth = is_first || span->depth < tally->least_depth ? span->depth : tally->least_depth;
  tally->most_depth = span->depth > tally->most_depth ? span->depth : tally->most_depth;
  if (span->end == CT_SPAN_POINT) {
    return;
  }
  uint64_t ns = ct_trace_ticks_ns(trace, span->duration_ticks);
  tally->shortest = tally->timed++ == 0 || ns < tally->shortest ? ns : tally->shortest;
  tally->longest = ns > tally->longest ? ns : tally->longest;
  tally->untimed += !ct_span_is_timed(span);
  tally->durations += ns;
  tally->selves += ct_trace_ticks_ns(trace, span->self_ticks);
}

/* Adds all spans of the filter, each to that of its thread or function. An SQLite result code. */
static int
add_spans(struct ct_sql *sql, struct ct_sql_source *source, const struct ct_scan_filter *filter, bool by_thread,
          struct ct_sql_tally *tallies)
{
  struct ct_index *index = ct_sql_index(sql, source);
  struct ct_index_scan *scan;
  if (index == NULL || ct_scan_open(index, filter, &scan, &sql->diag) != 0) {
    return SQLITE_ERROR;
  }
  uint32_t functions = ct_trace_function_count(source->trace);
  const struct ct_span *span;
  int code = SQLITE_OK;
  sql->scans++;
  for (uint64_t n = 0; code == SQLITE_OK; n++) {
    int failed = ct_scan_next(scan, &span);
    if (failed != 0) {
      ct_fail(&sql->diag, failed, "the trace or its index cannot be read: %s", ct_err_text(failed));
      code = SQLITE_ERROR;
    } else if (span == NULL) {
      break;
    } else {
      uint32_t fn = span->fn < functions ? span->fn : functions;
      add_span(&tallies[by_thread ? span->thread : fn], source->trace, span);
      code = n % SPANS_AT_ONCE == 0 && ct_sql_is_over(sql) ? SQLITE_INTERRUPT : SQLITE_OK;
    }
  }
  ct_scan_close(scan);
  sql->scans--;
  return code;
}

static int
tally_all(struct ct_sql *sql, struct ct_sql_source *source, bool by_thread)
{
  struct ct_sql_tally **tallies = by_thread ? &source->thread_tallies : &source->function_tallies;
  uint32_t count = by_thread ? ct_trace_thread_count(source->trace) : ct_trace_function_count(source->trace) + 1;
  if (*tallies != NULL) {
    return SQLITE_OK;
  }
  struct ct_scan_filter filter = CT_SCAN_FILTER_ALL;
  struct ct_sql_tally *made = calloc((size_t)count + 1, sizeof(*made));
  filter.threads = source->threads;
  int code = made != NULL ? add_spans(sql, source, &filter, by_thread, made) : SQLITE_NOMEM;
  if (code != SQLITE_OK) {
    free(made);
    return code;
  }
  *tallies = made;
  return SQLITE_OK;
}

static void
put_failure(struct ct_sql *sql, int code, sqlite3_context *out)
{
  if (code == SQLITE_ERROR) {
    sqlite3_result_error(out, sql->diag.text, -1);
  } else {
    sqlite3_result_error_code(out, code);
  }
}

static void
put(sqlite3_context *out, uint64_t number, bool is_there)
{
  if (is_there && number > INT64_MAX) {
    sqlite3_result_error(out, "integer overflow", -1); /* as of sum() */
  } else if (is_there) {
    sqlite3_result_int64(out, (sqlite3_int64)number);
  }
}

static void
put_of_tally(const struct ct_sql_tally *tally, enum ct_sql_sum sum, sqlite3_context *out)
{
  switch (sum) {
  case CT_SQL_SUM_ROWS:
    put(out, tally->rows, true);
    break;
  case CT_SQL_SUM_CALLS:
    put(out, tally->calls, true);
    break;
  case CT_SQL_SUM_TIMED:
    put(out, tally->timed, true);
    break;
  case CT_SQL_SUM_LONGEST:
    put(out, tally->longest, tally->timed != 0);
    break;
  case CT_SQL_SUM_SHORTEST:
    put(out, tally->shortest, tally->timed != 0);
    break;
  case CT_SQL_SUM_LEAST_DEPTH:
    put(out, tally->least_depth, tally->rows != 0);
    break;
  case CT_SQL_SUM_MOST_DEPTH:
    put(out, tally->most_depth, tally->rows != 0);
    break;
  case CT_SQL_SUM_SELVES:
  case CT_SQL_SUM_SELVES_READ:
    put(out, tally->selves, tally->timed != 0);
    break;
  default:
    put(out, tally->durations, tally->timed != 0);
    break;
  }
}

/* ---- functions ---- */

uint64_t
ct_sql_rows_of(const struct ct_stats *stats, uint32_t id)
{
  const struct ct_fn_stats *fn = &stats->fns[id];
  return fn->histogram != NULL ? ct_fn_stats_spans(fn) - stats->passed_over[id] - stats->counted[id] : 0;
}

int64_t
ct_sql_count_function_sums(struct ct_sql *sql, struct ct_sql_source *source)
{
  return ct_sql_index(sql, source) != NULL ? (int64_t)ct_trace_function_count(source->trace) + 1 : CANNOT;
}

bool
ct_sql_has_function_sums(struct ct_sql_source *source, uint64_t row)
{
  return source->index != NULL && ct_sql_rows_of(ct_index_stats(source->index), (uint32_t)row) != 0;
}

/* By reading that function's spans: all of them, or only those that are not over. */
static int
tally_one(struct ct_sql *sql, struct ct_sql_source *source, uint32_t fn, bool unfinished, struct ct_sql_tally *tally)
{
  uint32_t count = ct_trace_function_count(source->trace);
  uint8_t *flags = calloc((size_t)count + 1, 1);
  struct ct_sql_tally *tallies = calloc((size_t)count + 1, sizeof(*tallies));
  struct ct_scan_filter filter = CT_SCAN_FILTER_ALL;
  int code = SQLITE_NOMEM;
  if (flags != NULL && tallies != NULL) {
    flags[fn] = 1;
    filter.functions = flags;
    filter.unfinished = unfinished;
    code = add_spans(sql, source, &filter, false, tallies);
    *tally = tallies[fn];
  }
  free(flags);
  free(tallies);
  return code;
}

/* Of a function with calls that are not timed, which the statistics' shortest and longest leave out. */
static int
extremes(struct ct_sql *sql, struct ct_sql_source *source, uint32_t fn, struct ct_sql_tally *tally)
{
  const struct ct_index *index = ct_sql_index(sql, source);
  if (index == NULL) {
    return SQLITE_ERROR;
  }
  const struct ct_stats *stats = ct_index_stats(index);
  const struct ct_fn_stats *sums = &stats->fns[fn];
  uint64_t count = sums->histogram->count;
  *tally = (struct ct_sql_tally){0};
  int code = sums->untimed != 0 ? tally_one(sql, source, fn, true, tally) : SQLITE_OK;
  if (code == SQLITE_OK && tally->untimed != sums->untimed) {
    return tally_one(sql, source, fn, false, tally);
  }
  if (code == SQLITE_OK && count != 0) {
    uint64_t least = ct_trace_ticks_ns(source->trace, sums->min_ticks);
    uint64_t most = ct_trace_ticks_ns(source->trace, sums->max_ticks);
    tally->shortest = tally->timed == 0 || least < tally->shortest ? least : tally->shortest;
    tally->longest = most > tally->longest ? most : tally->longest;
    tally->timed += count;
  }
  return code;
}

static void
put_function_sum(struct ct_sql *sql, struct ct_sql_source *source, uint32_t fn, enum ct_sql_sum sum,
                 sqlite3_context *out)
{
  struct ct_sql_tally tally = {0};
  const struct ct_index *index = ct_sql_index(sql, source);
  int code = index != NULL ? SQLITE_OK : SQLITE_ERROR;
  if (code == SQLITE_OK && sum <= CT_SQL_SUM_TIMED) {
    const struct ct_stats *stats = ct_index_stats(index);
    const struct ct_fn_stats *sums = &stats->fns[fn];
    tally.rows = ct_sql_rows_of(stats, fn);
    tally.calls = tally.rows + stats->passed_over[fn];
    tally.timed = sums->histogram != NULL ? sums->untimed + sums->histogram->count : 0;
  } else if (code == SQLITE_OK && sum <= CT_SQL_SUM_SHORTEST) {
    code = extremes(sql, source, fn, &tally);
  } else if (code == SQLITE_OK && (sum == CT_SQL_SUM_DURATIONS_READ || sum == CT_SQL_SUM_SELVES_READ)) {
    code = source->function_tallies == NULL ? tally_one(sql, source, fn, false, &tally) : SQLITE_OK;
    tally = source->function_tallies != NULL ? source->function_tallies[fn] : tally;
  } else if (code == SQLITE_OK) {
    code = tally_all(sql, source, false);
    tally = code == SQLITE_OK ? source->function_tallies[fn] : tally;
  }
  if (code == SQLITE_OK) {
    put_of_tally(&tally, sum, out);
  } else {
    put_failure(sql, code, out);
  }
}

enum { FUNCTION = 1, FUNCTION_ID, MODULE, PROCESS, FIRST_SUM };

void
ct_sql_column_function_sums(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column,
                            sqlite3_context *out)
{
  const struct ct_trace_function *fn = ct_trace_function(source->trace, (uint32_t)row);
  switch (column) {
  case FUNCTION:
    sqlite3_result_text(out, fn != NULL ? fn->name : "?", -1, SQLITE_STATIC);
    break;
  case FUNCTION_ID: /* those that the trace does not have are one row: nobody asks for it then */
    sqlite3_result_int64(out, (sqlite3_int64)(source->function_base + row));
    break;
  case MODULE:
    sqlite3_result_text(out, fn != NULL ? ct_trace_module_name(source->trace, fn->module) : "?", -1, SQLITE_STATIC);
    break;
  case PROCESS:
    sqlite3_result_int64(out, source->pid);
    break;
  default:
    put_function_sum(sql, source, (uint32_t)row, (enum ct_sql_sum)(column - FIRST_SUM), out);
    break;
  }
}

bool
ct_sql_knows_all_functions(struct ct_sql *sql)
{
  for (size_t i = 0; i < sql->source_count; i++) {
    struct ct_sql_source *source = &sql->sources[i];
    const struct ct_index *index = ct_sql_index(sql, source);
    if (index == NULL || ct_sql_rows_of(ct_index_stats(index), ct_trace_function_count(source->trace)) != 0) {
      return false;
    }
  }
  return true;
}

/* ---- threads ---- */

bool
ct_sql_counts_are_exact(const struct ct_sql_source *source)
{
  const struct ct_stats *stats = ct_index_stats(source->index);
  uint64_t rows = 0, spans = 0;
  for (uint32_t i = 0; i < stats->touched_count; i++) {
    rows += ct_sql_rows_of(stats, stats->touched[i]);
  }
  for (uint32_t i = 0; i < ct_trace_thread_count(source->trace); i++) {
    struct ct_index_thread_sums sums;
    ct_index_thread_sums(source->index, i, &sums);
    spans += sums.spans;
  }
  return rows == spans;
}

int64_t
ct_sql_count_thread_sums(struct ct_sql *sql, struct ct_sql_source *source)
{
  if (ct_sql_index(sql, source) == NULL) {
    return CANNOT;
  }
  int code = ct_sql_counts_are_exact(source) ? SQLITE_OK : tally_all(sql, source, true);
  if (code != SQLITE_OK && code != SQLITE_ERROR) {
    ct_fail(&sql->diag, CT_EINVAL, "%s",
            code == SQLITE_NOMEM ? "out of memory for the sums of the threads"
            : sql->timed_out     ? "the query took longer than --timeout allows"
                                 : "interrupted");
  }
  return code == SQLITE_OK ? (int64_t)ct_trace_thread_count(source->trace) : CANNOT;
}

static uint64_t
rows_of_thread(const struct ct_sql_source *source, uint32_t thread)
{
  struct ct_index_thread_sums sums;
  if (source->thread_tallies != NULL) {
    return source->thread_tallies[thread].rows;
  }
  ct_index_thread_sums(source->index, thread, &sums);
  return sums.spans;
}

bool
ct_sql_has_thread_sums(struct ct_sql_source *source, uint64_t row)
{
  return source->index != NULL && rows_of_thread(source, (uint32_t)row) != 0;
}

static void
put_thread_sum(struct ct_sql *sql, struct ct_sql_source *source, uint32_t thread, enum ct_sql_sum sum,
               sqlite3_context *out)
{
  struct ct_sql_tally tally = {0};
  struct ct_index_extent extent;
  const struct ct_index *index = ct_sql_index(sql, source);
  int code = index != NULL ? SQLITE_OK : SQLITE_ERROR;
  if (index != NULL) {
    ct_index_extent(index, thread, &extent);
    tally.rows = rows_of_thread(source, thread);
    tally.longest = ct_trace_ticks_ns(source->trace, extent.longest);
    tally.least_depth = extent.least_depth;
    tally.most_depth = extent.most_depth;
    tally.timed = extent.longest != 0; /* else it may have had points alone */
  }
  bool is_known =
      sum == CT_SQL_SUM_ROWS || sum >= CT_SQL_SUM_LEAST_DEPTH || (sum == CT_SQL_SUM_LONGEST && tally.timed != 0);
  if (code == SQLITE_OK && !is_known) {
    code = tally_all(sql, source, true);
    tally = code == SQLITE_OK ? source->thread_tallies[thread] : tally;
  }
  if (code == SQLITE_OK) {
    put_of_tally(&tally, sum, out);
  } else {
    put_failure(sql, code, out);
  }
}

void
ct_sql_column_thread_sums(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column,
                          sqlite3_context *out)
{
  enum { THREAD = 1, TID, OF_PROCESS, FIRST };
  switch (column) {
  case THREAD:
    sqlite3_result_int64(out, (sqlite3_int64)(source->thread_base + row));
    break;
  case TID:
    sqlite3_result_int64(out, ct_trace_thread(source->trace, (uint32_t)row)->tid);
    break;
  case OF_PROCESS:
    sqlite3_result_int64(out, source->pid);
    break;
  default:
    put_thread_sum(sql, source, (uint32_t)row, (enum ct_sql_sum)(column - FIRST), out);
    break;
  }
}
