/* SPDX-License-Identifier: MIT */
/* What the files of src/sql share: the sources of a database, and its tables. Nothing outside includes this. */
#ifndef CT_SQL_SQL_INTERNAL_H
#define CT_SQL_SQL_INTERNAL_H

#include <contrail/sql.h>

#include "index/index.h"
#include "sql/sql_steps.h"
#include "trace/batch.h"

#include <signal.h>
#include <sqlite3.h>

/* Calls of one function with durations of one bucket (span/histogram.h). */
struct ct_sql_bucket {
  uint64_t calls;
  uint32_t fn;
  unsigned number;
};

struct ct_sql_tally; /* span_sums.c */

struct ct_sql_block {
  uint32_t thread;
  struct ct_block_info info;
};

/*
 * One process of one trace. Rows of a table stand source after source: those of a source have the numbers from its base
 * on. So an id of a function or thread is its number in the trace plus the base, which is 0 for the first source.
 */
struct ct_sql_source {
  struct ct_trace *trace;
  uint8_t *threads;       /* a byte for each thread, 0: not asked about (TRACE#TID); NULL: all are */
  struct ct_index *index; /* of the spans; NULL: not needed yet */
  struct ct_index
      *sums;         /* of the sums, where these are of some threads only; NULL: not needed yet, or index has them */
  uint64_t used;     /* when one of them was asked for, by the number of such questions */
  uint32_t pins;     /* by scans under way, and tables at one of its rows */
  uint32_t *by_name; /* functions by their names, for many questions; likewise */
  uint32_t name_questions;
  uint32_t number; /* of the trace, and of the process in it: as in ids of spans */
  uint32_t process;
  uint32_t pid;
  uint64_t start_ns; /* times are relative to this: of the trace's first process */
  uint64_t function_base, thread_base, module_base;
  uint64_t *function_ids;        /* module << 32 | symbol; NULL: not needed yet */
  uint8_t *were_out;             /* by function: a budget had it out; NULL: none */
  bool has_were_out;             /* that was looked for */
  struct ct_sql_bucket *buckets; /* NULL: not needed yet */
  uint64_t bucket_count;
  struct ct_sql_block *blocks;
  size_t block_count;
  bool has_blocks;
  struct ct_sql_tally *function_tallies, *thread_tallies; /* span_sums.c; NULL: not needed yet */
  bool has_captures;                                      /* captures was looked for */
  struct ct_captures captures;
  bool has_itraced; /* likewise */
  struct ct_itraced itraced;
};

struct ct_sql_step_calls; /* step_calls.c */

struct ct_sql {
  sqlite3 *db;
  struct ct_sql_options options;
  struct ct_sql_source *sources;
  size_t source_count, source_capacity;
  uint32_t trace_count;
  uint64_t index_questions;
  size_t open_indexes, scans;        /* scans of spans under way, which use the cache */
  char damage[200];                  /* what an index that is closed has met; "": nothing */
  struct ct_scan_cache *cache;       /* of the sources' indexes, for joins by id; NULL: not needed yet */
  struct ct_sql_recorded **recorded; /* threads of recordings of instructions */
  size_t recorded_count;
  struct ct_sql_followed followed;
  struct ct_sql_step_calls *step_calls; /* of each of them, or of fewer: those that are asked for need them */
  size_t step_calls_count;
  uint64_t deadline_ns; /* 0: none */
  bool timed_out;
  volatile sig_atomic_t interrupted; /* for what SQLite does not look at meanwhile */
  bool index_rebuilt;
  json_t *warnings;    /* lines; NULL: none yet */
  struct ct_diag diag; /* of a table that failed */
};

/*
 * The index of a source's spans, made when it is not there; NULL: sql->diag says why. Asked for threads only that
 * ct_sql_has_thread has. It is there until the next one is asked for, or as long as source->pins is not 0: of many
 * sources only some have one at a time.
 */
struct ct_index *ct_sql_index(struct ct_sql *sql, struct ct_sql_source *source);
/* Likewise that of its sums: of functions, of who called whom. */
struct ct_index *ct_sql_sums(struct ct_sql *sql, struct ct_sql_source *source);
bool ct_sql_has_thread(const struct ct_sql_source *source, uint32_t thread);
bool ct_sql_is_piece(const struct ct_sql_source *source);              /* not the whole trace is asked about */
int64_t ct_sql_time(const struct ct_sql_source *source, uint64_t tsc); /* ns since the start */

/* table.c: what all virtual tables begin with. */
struct ct_sql_table {
  sqlite3_vtab base;
  struct ct_sql *sql;
};
/* An SQLite result code; the table, of `bytes` that begin as above and are zero else, goes to ct_sql_disconnect. */
int ct_sql_connect(struct ct_sql *sql, const char *columns, size_t bytes, sqlite3_vtab **out);
/* The module of a table that is only read: NAME_module, of the functions NAME_connect, NAME_best and so on. */
#define CT_SQL_MODULE(name)                                                                                            \
  static const sqlite3_module name##_module = {                                                                        \
      .iVersion = 1,                                                                                                   \
      .xConnect = name##_connect,                                                                                      \
      .xBestIndex = name##_best,                                                                                       \
      .xDisconnect = ct_sql_disconnect,                                                                                \
      .xOpen = name##_open,                                                                                            \
      .xClose = name##_close,                                                                                          \
      .xFilter = name##_filter,                                                                                        \
      .xNext = name##_next,                                                                                            \
      .xEof = name##_eof,                                                                                              \
      .xColumn = name##_column,                                                                                        \
      .xRowid = name##_rowid,                                                                                          \
  }
int ct_sql_disconnect(sqlite3_vtab *table);
/* SQLITE_ERROR, with what sql->diag says as the reason. */
int ct_sql_table_failed(sqlite3_vtab *table);

/* rows.c: tables whose rows are numbered. */
struct ct_sql_rows {
  const char *name;
  const char *columns; /* as in CREATE TABLE x(...) */
  /* Rows of one source, -1: sql->diag says why there are none. */
  int64_t (*count)(struct ct_sql *sql, struct ct_sql_source *source);
  void (*column)(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column, sqlite3_context *out);
  /* NULL: all rows are shown; else those for which it holds, with the numbers that they have among all. */
  bool (*has)(struct ct_sql_source *source, uint64_t row);
  int same; /* a column that has the row's number once more; 0: none */
};
extern const struct ct_sql_rows ct_sql_rows_tables[]; /* tables.c; name NULL ends */
int ct_sql_rows_register(struct ct_sql *sql);

/* spans_counted.c: spans as rows of which only the function is asked: so many of each, in the order of their names. */
struct ct_sql_counted {
  const struct ct_sql_source *source;
  uint64_t rows;
  uint32_t fn;
};
struct ct_sql_counting {
  bool is_on;
  struct ct_sql_counted *list;
  size_t count, at; /* at: of the row at hand */
  uint64_t before;  /* rows of that function that came before it */
};
bool ct_sql_can_count(const struct ct_sql *sql); /* all of the traces is asked about */
/* 0, or sql->diag says what is the matter. It goes to ct_sql_counting_end, which accepts a zeroed one. */
int ct_sql_counting_begin(struct ct_sql_counting *counting, struct ct_sql *sql);
void ct_sql_counting_end(struct ct_sql_counting *counting);
void ct_sql_counting_result(const struct ct_sql_counting *counting, bool module, sqlite3_context *out);
static inline void
ct_sql_counting_next(struct ct_sql_counting *counting)
{
  if (++counting->before == counting->list[counting->at].rows) {
    counting->at++;
    counting->before = 0;
  }
}

/*
 * spans_bounds.c: what a column of whole numbers is compared with, as SQLite compares it with a column of its own
 * tables: text that is a number is that number. The one that it is equal to; false: none is.
 */
bool ct_sql_whole(sqlite3_value *value, int64_t *number);
/* Whether the condition compares text byte by byte, and not without case (COLLATE): what is pushed down does that. */
static inline bool
ct_sql_is_binary(sqlite3_index_info *info, int constraint)
{
  return sqlite3_stricmp(sqlite3_vtab_collation(info, constraint), "BINARY") == 0;
}
/* The least whole number that fulfils a bound, or the greatest one. False: none does. */
bool ct_sql_bound(sqlite3_value *value, bool is_upper, bool is_strict, int64_t *bound);
/* The first clock reading that is shown as that time or a later one; UINT64_MAX: there is none. */
uint64_t ct_sql_first_tsc(const struct ct_sql_source *source, int64_t time);
/* The least duration that is shown as at least so many ns. */
uint64_t ct_sql_least_ticks(const struct ct_sql_source *source, int64_t ns);

/* spans.c, events.c: what is read out of blocks. */
int ct_sql_spans_register(struct ct_sql *sql);
extern const char *const ct_sql_spans_columns;
int ct_sql_events_register(struct ct_sql *sql);
extern const char *const ct_sql_events_columns;
/* blocks.c: of struct ct_sql_rows */
int64_t ct_sql_count_blocks(struct ct_sql *sql, struct ct_sql_source *source);
void ct_sql_column_blocks(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column,
                          sqlite3_context *out);
/* itraced.c: likewise */
int64_t ct_sql_count_itraced(struct ct_sql *sql, struct ct_sql_source *source);
bool ct_sql_has_itraced(struct ct_sql_source *source, uint64_t row);
void ct_sql_column_itraced(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column,
                           sqlite3_context *out);
/* steps.c */
int ct_sql_steps_register(struct ct_sql *sql);
/* step_calls.c */
int ct_sql_step_calls_register(struct ct_sql *sql);
void ct_sql_step_calls_free(struct ct_sql *sql);
const char *ct_sql_step_calls_damage(const struct ct_sql *sql); /* a line; "": none so far */
/* Whether the query is to end. Asked by what takes long between two rows. */
bool ct_sql_is_over(struct ct_sql *sql);
/* values.c */
int ct_sql_values_register(struct ct_sql *sql);

/* functions.c: SQL functions duration(ns), demangle(name), percentile(x, p). */
int ct_sql_functions_register(sqlite3 *db);

/* output.c */
int ct_sql_print(struct ct_sql *sql, sqlite3_stmt *statement, FILE *out, struct ct_sql_result *result,
                 struct ct_diag *diag);

/*
 * A row's number, made of what it is: SQLite reads a table once for each side of an OR, and takes rows with one number
 * for the same row, whichever way they were found.
 */
static inline int64_t
ct_sql_row_number(uint64_t a, uint64_t b, uint64_t c)
{
  uint64_t hash = a * UINT64_C(0x9E3779B97F4A7C15);
  hash = ((hash ^ hash >> 32) + b) * UINT64_C(0xBF58476D1CE4E5B9);
  hash = ((hash ^ hash >> 29) + c) * UINT64_C(0x94D049BB133111EB);
  return (int64_t)(hash ^ hash >> 32);
}

#endif
