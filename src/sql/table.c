/* SPDX-License-Identifier: MIT */
/* What all virtual tables begin and end with. */
#include "sql/sql_internal.h"

#include <stdlib.h>

int
ct_sql_connect(struct ct_sql *sql, const char *columns, size_t bytes, sqlite3_vtab **out)
{
  char *text = sqlite3_mprintf("CREATE TABLE x(%s)", columns);
  struct ct_sql_table *table = calloc(1, bytes);
  int code = text == NULL || table == NULL ? SQLITE_NOMEM : sqlite3_declare_vtab(sql->db, text);
  sqlite3_free(text);
  if (code != SQLITE_OK) {
    free(table);
    return code;
  }
  table->sql = sql;
  *out = &table->base;
  return SQLITE_OK;
}

int
ct_sql_disconnect(sqlite3_vtab *table)
{
  free(table);
  return SQLITE_OK;
}

int
ct_sql_table_failed(sqlite3_vtab *table)
{
  sqlite3_free(table->zErrMsg);
  table->zErrMsg = sqlite3_mprintf("%s", ((struct ct_sql_table *)table)->sql->diag.text);
  return SQLITE_ERROR;
}
