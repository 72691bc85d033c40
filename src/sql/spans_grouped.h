/* SPDX-License-Identifier: MIT */
/*
 * Spans in the order of their functions or modules, as a GROUP BY, DISTINCT or ORDER BY of these asks for them: SQLite
 * then need not sort the rows, which takes four times as long as reading them.
 *
 * What a scan gives is put, by function, into lists of bytes: of each span what the query uses, a few bytes. When they
 * are too many, those of the last functions are forgotten, and the trace is read again for these when the others have
 * been given. A function whose spans alone are too many is given as it is read.
 *
 * Example, with room for three spans: g f g h f f. After g f g the fourth one is too much: h and g, the last two of
 * f g h, are forgotten, and f f f is given. Then g and h are read: g g h.
 */
#ifndef CT_SQL_SPANS_GROUPED_H
#define CT_SQL_SPANS_GROUPED_H

#include "span/spans.h"
#include "sql/sql_internal.h"

/* In the order of the columns of the table. */
enum ct_sql_spans_column {
  C_ID,
  C_PARENT,
  C_THREAD,
  C_TID,
  C_PROCESS,
  C_FUNCTION,
  C_FUNCTION_ID,
  C_MODULE,
  C_CALLER,
  C_START,
  C_END,
  C_DURATION,
  C_SELF,
  C_OFF,
  C_DEPTH,
  C_REASON,
  C_STACK,
  C_CALLS,
  C_FLAGS,
  C_COUNT,
};

/* spans_columns.c: of a span of the source. */
void ct_sql_span_column(const struct ct_sql_source *source, const struct ct_span *span, int column,
                        sqlite3_context *out);
const char *ct_sql_span_name(const struct ct_sql_source *source, uint32_t fn, bool module); /* "?": it has none */

/* What the spans come from: a scan, which can begin anew. */
struct ct_sql_span_stream {
  /* The next one, of sources[*source]; NULL: there are no more. An SQLite result code. */
  int (*next)(void *arg, const struct ct_span **span, uint32_t *source);
  /* From the first one on; of each source the functions that have a byte that is not 0, NULL: none. */
  void (*again)(void *arg, uint8_t *const *functions);
  void *arg;
};

enum { CT_SQL_KEYS = 3 }; /* columns of the order */
struct ct_sql_grouping;   /* opaque */
/*
 * Reads what it can. used: the columns that are asked for, a bit each; keys: those of the order, count of them. NULL
 * and *code: an SQLite result code. It goes to ct_sql_grouping_end.
 */
struct ct_sql_grouping *ct_sql_grouping_begin(struct ct_sql *sql, const struct ct_sql_span_stream *stream,
                                              uint64_t used, const int *keys, int count, int *code);
void ct_sql_grouping_end(struct ct_sql_grouping *grouping); /* accepts NULL */
/* The next one, with what is used of it; NULL: there are no more. An SQLite result code. */
int ct_sql_grouping_next(struct ct_sql_grouping *grouping, const struct ct_span **span, uint32_t *source);

#endif
