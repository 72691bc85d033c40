/* SPDX-License-Identifier: MIT */
/*
 * SQL over traces: SQLite, whose tables are read out of the traces by their index. docs/sql.md has the tables.
 *
 *   struct ct_sql *sql;
 *   if (ct_sql_open(&options, &sql, &diag) == 0 && ct_sql_add(sql, "contrail.out", &diag) == 0)
 *     ct_sql_run(sql, "SELECT name, calls FROM functions ORDER BY calls DESC LIMIT 5", stdout, &result, &diag);
 *
 * Nothing is written, and no other file is opened. One thread at a time, but for ct_sql_interrupt.
 */
#ifndef CONTRAIL_SQL_H
#define CONTRAIL_SQL_H

#include <contrail/error.h>
#include <contrail/span.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ct_sql_format {
  CT_SQL_TABLE = 0,
  CT_SQL_CSV = 1,
  CT_SQL_JSON = 2, /* an array of objects; integers beyond 2^53 as text */
  /* Of each statement an object in a line of its own: "columns", an array of names, and "rows", arrays of values as of
   * JSON, in their order. So columns may have the same name, and are given where there is no row. */
  CT_SQL_JSON_ROWS = 3,
};

struct ct_sql_options {
  size_t struct_size;
  enum ct_sql_format format;
  uint64_t limit;      /* rows shown; 0: all */
  uint64_t timeout_ms; /* of one query; 0: none */
  unsigned width;      /* TABLE: lines are cut to so many columns; 0: never */
  unsigned workers;    /* threads to make an index with; 0: one */
  struct ct_view_progress progress;
  void (*heading)(void *arg,
                  FILE *out); /* TABLE: what is written next to out is a heading's line; NULL: nothing is written */
  void *heading_arg;
  bool one_statement; /* a text with more than one is refused, before anything is read */
};

struct ct_sql; /* opaque */
/* *out goes to ct_sql_close. */
int ct_sql_open(const struct ct_sql_options *options, struct ct_sql **out, struct ct_diag *diag);
void ct_sql_close(struct ct_sql *sql); /* accepts NULL */
/*
 * One more trace, with the processes that were followed from its own; at most 64. DIR, or a piece or a thread of it as
 * of struct ct_trace_form (filter.h): what is not in it is in no table. CT_EINVAL: the piece makes no sense; CT_ERANGE:
 * there is no such thread; and as ct_trace_open. After an error the database is to be closed.
 */
int ct_sql_add(struct ct_sql *sql, const char *name, struct ct_diag *diag);
/* The nth line on what the traces do not have: recordings that were cut short, what is gone of files, events that were
 * lost. Of those that were added so far; borrowed. NULL: there are no more. */
const char *ct_sql_warning(const struct ct_sql *sql, size_t n);

struct ct_sql_result {
  size_t struct_size;
  uint64_t rows;      /* shown */
  bool more;          /* there are more than the limit */
  bool index_rebuilt; /* there was one that was damaged, or of another trace */
  bool interrupted;   /* by ct_sql_interrupt or the timeout */
  char damage[256];   /* the first thing that could not be read so far; "": none */
};
/* All statements of the text, their rows to out. CT_EINVAL: the query is wrong, CT_ERANGE: there is more than one
 * statement, and is not to be; CT_EIO: out cannot be written, CT_ENOMEM. */
int ct_sql_run(struct ct_sql *sql, const char *text, FILE *out, struct ct_sql_result *result, struct ct_diag *diag);
/* In place of those of the options, for the queries that follow. 0: none. */
void ct_sql_set_limits(struct ct_sql *sql, uint64_t rows, uint64_t timeout_ms);
/* True when the text ends with a whole statement. */
bool ct_sql_is_whole(const char *text);
/* Ends the query that runs, or the next one if none does yet. From any thread or signal handler. */
void ct_sql_interrupt(struct ct_sql *sql);
/* The next query runs, although an interrupt came after the last one's end. */
void ct_sql_forget_interrupt(struct ct_sql *sql);
/* The nth name that a query may have, table or column, for completion; NULL: there are no more. */
const char *ct_sql_word(size_t n);

#ifdef __cplusplus
}
#endif

#endif
