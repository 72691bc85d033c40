/* SPDX-License-Identifier: MIT */
/* What is asked of many spans at once, and what answers it. */
#ifndef CT_SQL_SPAN_SUMS_H
#define CT_SQL_SPAN_SUMS_H

#include "sql/sql_internal.h"

/* In the order of the tables' columns. */
enum ct_sql_sum {
  CT_SQL_SUM_ROWS,
  CT_SQL_SUM_CALLS,
  CT_SQL_SUM_TIMED, /* rows with a duration */
  CT_SQL_SUM_LONGEST,
  CT_SQL_SUM_SHORTEST,
  CT_SQL_SUM_DURATIONS,
  CT_SQL_SUM_SELVES,
  CT_SQL_SUM_DURATIONS_READ, /* the same, for who asks for few functions: of each its own spans are read */
  CT_SQL_SUM_SELVES_READ,
  CT_SQL_SUM_LEAST_DEPTH, /* of threads alone */
  CT_SQL_SUM_MOST_DEPTH,
};
#define CT_SQL_SUM_COLUMNS                                                                                             \
  "of_rows INTEGER, of_calls INTEGER, of_timed INTEGER, of_longest INTEGER, of_shortest INTEGER, of_durations "        \
  "INTEGER, of_selves INTEGER, of_durations_read INTEGER, of_selves_read INTEGER"

/* span_sums.c: of struct ct_sql_rows; of functions, and of threads. Those without rows are left out. */
int64_t ct_sql_count_function_sums(struct ct_sql *sql, struct ct_sql_source *source);
bool ct_sql_has_function_sums(struct ct_sql_source *source, uint64_t row);
void ct_sql_column_function_sums(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column,
                                 sqlite3_context *out);
int64_t ct_sql_count_thread_sums(struct ct_sql *sql, struct ct_sql_source *source);
bool ct_sql_has_thread_sums(struct ct_sql_source *source, uint64_t row);
void ct_sql_column_thread_sums(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column,
                               sqlite3_context *out);
uint64_t ct_sql_rows_of(const struct ct_stats *stats, uint32_t id); /* of a function: a row each in a scan */
/* No call is of a function that the trace does not have. Opens the indexes. */
bool ct_sql_knows_all_functions(struct ct_sql *sql);

/* The spans that the index has counted in each thread are rows, and nothing else. The source has an index. */
bool ct_sql_counts_are_exact(const struct ct_sql_source *source);
int ct_sql_start_sums_register(struct ct_sql *sql); /* start_sums.c */

/*
 * answers.c: a statement that gives what this one does, and is answered from these tables or by a scan that ends early;
 * NULL: there is none. *length: of the one statement that text begins with. It goes to sqlite3_free.
 */
char *ct_sql_answer(struct ct_sql *sql, const char *text, size_t *length);

#endif
