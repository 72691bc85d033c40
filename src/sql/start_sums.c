/* SPDX-License-Identifier: MIT */
/*
 * The table start_sums: how many spans began in a time, of all threads or of one. A query that counts spans and asks
 * for no more is answered from here (answers.c): its conditions come whole to the table, which has a row for each
 * source.
 */
#include "sql/span_sums.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { C_START, C_THREAD, C_ROWS };

struct start_cursor {
  sqlite3_vtab_cursor base;
  struct ct_sql *sql;
  int64_t from, to; /* ns, both among them */
  int64_t thread;   /* of the database; -1: any */
  bool is_empty;
  size_t source;
  uint64_t rows;
};

static const struct {
  int column;
  unsigned char op;
  char letter;
} pushed[] = {
    {C_START, SQLITE_INDEX_CONSTRAINT_GE, 's'},  {C_START, SQLITE_INDEX_CONSTRAINT_GT, 'v'},
    {C_START, SQLITE_INDEX_CONSTRAINT_LE, 'S'},  {C_START, SQLITE_INDEX_CONSTRAINT_LT, 'V'},
    {C_THREAD, SQLITE_INDEX_CONSTRAINT_EQ, 't'},
};
enum { PUSHED = sizeof(pushed) / sizeof(pushed[0]) };

static int
start_sums_connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out, char **error)
{
  (void)db;
  (void)argc;
  (void)argv;
  (void)error;
  return ct_sql_connect(aux, "start INTEGER, thread INTEGER, of_rows INTEGER", sizeof(struct ct_sql_table), out);
}

static int
start_sums_best(sqlite3_vtab *base, sqlite3_index_info *info)
{
  (void)base;
  char *letters = sqlite3_malloc(info->nConstraint + 1);
  int count = 0;
  if (letters == NULL) {
    return SQLITE_NOMEM;
  }
  for (int i = 0; i < info->nConstraint; i++) {
    int at = 0;
    while (at < PUSHED &&
           (pushed[at].column != info->aConstraint[i].iColumn || pushed[at].op != info->aConstraint[i].op)) {
      at++;
    }
    if (at == PUSHED || !info->aConstraint[i].usable) {
      sqlite3_free(letters);
      return SQLITE_CONSTRAINT; /* a sum of some rows says nothing of each */
    }
    letters[count++] = pushed[at].letter;
    info->aConstraintUsage[i].argvIndex = count;
    info->aConstraintUsage[i].omit = 1;
  }
  letters[count] = '\0';
  info->idxStr = letters;
  info->needToFreeIdxStr = 1;
  info->estimatedRows = 1;
  info->estimatedCost = 1000;
  return SQLITE_OK;
}

static int
start_sums_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
  struct start_cursor *cursor = calloc(1, sizeof(*cursor));
  if (cursor == NULL) {
    return SQLITE_NOMEM;
  }
  cursor->sql = ((struct ct_sql_table *)base)->sql;
  *out = &cursor->base;
  return SQLITE_OK;
}

static int
start_sums_close(sqlite3_vtab_cursor *base)
{
  free(base);
  return SQLITE_OK;
}

/* As in the table of spans. */
static void
take_argument(struct start_cursor *c, char letter, sqlite3_value *value)
{
  bool is_upper = letter == 'S' || letter == 'V';
  int64_t number;
  if (letter == 't') {
    c->is_empty |= !ct_sql_whole(value, &number) || number < 0 || (c->thread >= 0 && c->thread != number);
    c->thread = number;
  } else if (!ct_sql_bound(value, is_upper, letter == 'v' || letter == 'V', &number)) {
    c->is_empty = true;
  } else if (is_upper) {
    c->to = number < c->to ? number : c->to;
  } else {
    c->from = number > c->from ? number : c->from;
  }
}

static bool
is_over(void *sql)
{
  return ct_sql_is_over(sql);
}

/* Of the source at hand. An SQLite result code. */
static int
count_source(struct start_cursor *c)
{
  struct ct_sql_source *source = &c->sql->sources[c->source];
  struct ct_index *index = ct_sql_index(c->sql, source);
  uint64_t from = c->from != INT64_MIN ? ct_sql_first_tsc(source, c->from) : 0, to = UINT64_MAX;
  c->rows = 0;
  if (index == NULL) {
    return ct_sql_table_failed(c->base.pVtab);
  }
  if (c->to != INT64_MAX) {
    to = ct_sql_first_tsc(source, c->to + 1);
    if (to-- == 0) {
      return SQLITE_OK;
    }
  }
  bool is_exact = ct_sql_counts_are_exact(source);
  int code = 0;
  for (uint32_t i = 0; i < ct_trace_thread_count(source->trace) && code == 0; i++) {
    uint64_t count = 0;
    if (c->thread < 0 || (uint64_t)c->thread == source->thread_base + i) {
      code = ct_index_count_begun(index, i, from, to, is_exact, is_over, c->sql, &count);
    }
    c->rows += count;
  }
  if (code == CT_ECANCELED) {
    return SQLITE_INTERRUPT;
  }
  if (code != 0) {
    ct_fail(&c->sql->diag, code, "the trace or its index cannot be read: %s", ct_err_text(code));
    return ct_sql_table_failed(c->base.pVtab);
  }
  return SQLITE_OK;
}

static int
start_sums_filter(sqlite3_vtab_cursor *base, int plan, const char *letters, int argc, sqlite3_value **argv)
{
  (void)plan;
  struct start_cursor *c = (struct start_cursor *)base;
  *c = (struct start_cursor){.base = c->base, .sql = c->sql, .from = INT64_MIN, .to = INT64_MAX, .thread = -1};
  for (int i = 0; i < argc; i++) {
    take_argument(c, letters[i], argv[i]);
  }
  if (c->is_empty || c->from > c->to) {
    c->source = c->sql->source_count;
  }
  return c->source < c->sql->source_count ? count_source(c) : SQLITE_OK;
}

static int
start_sums_next(sqlite3_vtab_cursor *base)
{
  struct start_cursor *c = (struct start_cursor *)base;
  return ++c->source < c->sql->source_count ? count_source(c) : SQLITE_OK;
}

static int
start_sums_eof(sqlite3_vtab_cursor *base)
{
  const struct start_cursor *c = (const struct start_cursor *)base;
  return c->source >= c->sql->source_count;
}

static int
start_sums_column(sqlite3_vtab_cursor *base, sqlite3_context *out, int column)
{
  if (column == C_ROWS) {
    sqlite3_result_int64(out, (sqlite3_int64)((const struct start_cursor *)base)->rows);
  }
  return SQLITE_OK;
}

static int
start_sums_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid)
{
  *rowid = (sqlite3_int64)((const struct start_cursor *)base)->source;
  return SQLITE_OK;
}

CT_SQL_MODULE(start_sums);

int
ct_sql_start_sums_register(struct ct_sql *sql)
{
  return sqlite3_create_module(sql->db, "start_sums", &start_sums_module, sql) == SQLITE_OK ? 0 : CT_ENOMEM;
}
