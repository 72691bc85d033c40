/* SPDX-License-Identifier: MIT */
/* Virtual tables whose rows have numbers: what a query asks of them is the row with a number, or all. */
#include "sql/sql_internal.h"

#include <stdlib.h>
#include <string.h>

struct rows_table {
  struct ct_sql_table base;
  const struct ct_sql_rows *rows;
};

struct rows_cursor {
  sqlite3_vtab_cursor base;
  size_t source;
  uint64_t row, count; /* of the source */
  int64_t rowid;
  bool single;
  struct ct_sql_source *pinned; /* its index stays, so that rows have the same numbers; NULL: none */
};

static struct rows_table *
table_of(sqlite3_vtab_cursor *cursor)
{
  return (struct rows_table *)cursor->pVtab;
}

struct registration {
  struct ct_sql *sql;
  const struct ct_sql_rows *rows;
};

static int
rows_connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out, char **error)
{
  (void)db;
  (void)argc;
  (void)argv;
  (void)error;
  const struct registration *registration = aux;
  int code = ct_sql_connect(registration->sql, registration->rows->columns, sizeof(struct rows_table), out);
  if (code == SQLITE_OK) {
    ((struct rows_table *)*out)->rows = registration->rows;
  }
  return code;
}

/* The first column is the row's number. */
static int
rows_best(sqlite3_vtab *table, sqlite3_index_info *info)
{
  int same = ((const struct rows_table *)table)->rows->same;
  info->estimatedCost = 100000;
  info->estimatedRows = 10000;
  for (int i = 0; i < info->nConstraint; i++) {
    if (info->aConstraint[i].usable && info->aConstraint[i].op == SQLITE_INDEX_CONSTRAINT_EQ &&
        (info->aConstraint[i].iColumn <= 0 || info->aConstraint[i].iColumn == same)) {
      info->aConstraintUsage[i].argvIndex = 1;
      info->idxNum = 1;
      info->estimatedCost = 1;
      info->estimatedRows = 1;
      info->idxFlags = SQLITE_INDEX_SCAN_UNIQUE;
      break;
    }
  }
  return SQLITE_OK;
}

static int
rows_open(sqlite3_vtab *table, sqlite3_vtab_cursor **out)
{
  (void)table;
  struct rows_cursor *cursor = calloc(1, sizeof(*cursor));
  *out = cursor != NULL ? &cursor->base : NULL;
  return cursor != NULL ? SQLITE_OK : SQLITE_NOMEM;
}

static void
pin(struct rows_cursor *cursor, struct ct_sql_source *source)
{
  if (cursor->pinned != NULL) {
    cursor->pinned->pins--;
  }
  if (source != NULL) {
    source->pins++;
  }
  cursor->pinned = source;
}

static int
rows_close(sqlite3_vtab_cursor *base)
{
  struct rows_cursor *cursor = (struct rows_cursor *)base;
  pin(cursor, NULL);
  free(cursor);
  return SQLITE_OK;
}

/* Passes over rows that are not shown. */
static void
find_row(struct rows_cursor *cursor)
{
  struct rows_table *table = table_of(&cursor->base);
  struct ct_sql_source *source = &table->base.sql->sources[cursor->source];
  while (table->rows->has != NULL && cursor->row < cursor->count && !table->rows->has(source, cursor->row)) {
    cursor->row++;
    cursor->rowid++;
  }
}

/* At the first row of the next source that has any, from cursor->source on; of all of them for one that is selected. */
static int
find_source(struct rows_cursor *cursor)
{
  struct rows_table *table = table_of(&cursor->base);
  pin(cursor, NULL);
  for (; cursor->source < table->base.sql->source_count; cursor->source++) {
    int64_t count = table->rows->count(table->base.sql, &table->base.sql->sources[cursor->source]);
    if (count < 0) {
      return ct_sql_table_failed(&table->base.base);
    }
    cursor->count = (uint64_t)count;
    cursor->row = 0;
    if (!cursor->single) {
      find_row(cursor);
    }
    if (cursor->row < cursor->count) {
      pin(cursor, &table->base.sql->sources[cursor->source]);
      return SQLITE_OK;
    }
  }
  return SQLITE_OK;
}

static int
rows_filter(sqlite3_vtab_cursor *base, int plan, const char *text, int argc, sqlite3_value **argv)
{
  (void)text;
  struct rows_cursor *cursor = (struct rows_cursor *)base;
  struct ct_sql *sql = table_of(base)->base.sql;
  cursor->source = 0;
  cursor->rowid = 0;
  cursor->single = plan == 1 && argc == 1;
  int code = find_source(cursor);
  if (code != SQLITE_OK || !cursor->single) {
    return code;
  }
  int64_t wanted;
  if (!ct_sql_whole(argv[0], &wanted) || wanted < 0) {
    cursor->source = sql->source_count;
    return SQLITE_OK;
  }
  cursor->rowid = wanted;
  uint64_t rest = (uint64_t)wanted;
  while (cursor->source < sql->source_count && rest >= cursor->count) {
    rest -= cursor->count;
    cursor->source++;
    if ((code = find_source(cursor)) != SQLITE_OK) {
      return code;
    }
  }
  cursor->row = rest;
  const struct ct_sql_rows *rows = table_of(base)->rows;
  if (cursor->source < sql->source_count && rows->has != NULL && !rows->has(&sql->sources[cursor->source], rest)) {
    cursor->source = sql->source_count;
  }
  return SQLITE_OK;
}

static int
rows_next(sqlite3_vtab_cursor *base)
{
  struct rows_cursor *cursor = (struct rows_cursor *)base;
  cursor->rowid++;
  if (cursor->single) {
    cursor->source = table_of(base)->base.sql->source_count;
    return SQLITE_OK;
  }
  cursor->row++;
  find_row(cursor);
  if (cursor->row < cursor->count) {
    return SQLITE_OK;
  }
  cursor->source++;
  return find_source(cursor);
}

static int
rows_eof(sqlite3_vtab_cursor *base)
{
  return ((struct rows_cursor *)base)->source >= table_of(base)->base.sql->source_count;
}

static int
rows_column(sqlite3_vtab_cursor *base, sqlite3_context *out, int column)
{
  struct rows_cursor *cursor = (struct rows_cursor *)base;
  struct rows_table *table = table_of(base);
  if (column == 0) {
    sqlite3_result_int64(out, cursor->rowid);
  } else {
    table->rows->column(table->base.sql, &table->base.sql->sources[cursor->source], cursor->row, column, out);
  }
  return SQLITE_OK;
}

static int
rows_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid)
{
  *rowid = ((struct rows_cursor *)base)->rowid;
  return SQLITE_OK;
}

CT_SQL_MODULE(rows);

int
ct_sql_rows_register(struct ct_sql *sql)
{
  for (const struct ct_sql_rows *rows = ct_sql_rows_tables; rows->name != NULL; rows++) {
    struct registration *registration = malloc(sizeof(*registration));
    if (registration == NULL) {
      return CT_ENOMEM;
    }
    *registration = (struct registration){sql, rows};
    if (sqlite3_create_module_v2(sql->db, rows->name, &rows_module, registration, free) != SQLITE_OK) {
      return CT_ENOMEM;
    }
  }
  return 0;
}
