/* SPDX-License-Identifier: MIT */
/* The rows of a statement: as a table, CSV (RFC 4180), or a JSON array of objects. */
#include "sql/sql_internal.h"

#include "base/error.h"

#include <contrail/text.h>

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 500, CELL_MAX = 60 }; /* rows that the widths of a table's columns are made from */

struct printer {
  struct ct_sql *sql;
  sqlite3_stmt *statement;
  FILE *out;
  int columns;
  uint64_t rows;
  char ***kept; /* TABLE: rows until their widths are known; a cell NULL: none */
  size_t kept_count;
  char **names; /* JSON: of the columns, each another one */
  int *widths;
  bool *numbers;
  bool failed; /* no memory */
};

static bool
is_number(const struct printer *p, int column)
{
  int type = sqlite3_column_type(p->statement, column);
  return type == SQLITE_INTEGER || type == SQLITE_FLOAT;
}

/* The cell's text, in which a zero byte hides nothing: '?' for each; to be freed. NULL: it has none. */
static char *
column_text(const struct printer *p, int column)
{
  const char *text = (const char *)sqlite3_column_text(p->statement, column);
  size_t bytes = text != NULL ? (size_t)sqlite3_column_bytes(p->statement, column) : 0;
  char *copy = text != NULL ? malloc(bytes + 1) : NULL;
  for (size_t i = 0; i < bytes && copy != NULL; i++) {
    copy[i] = text[i] == '\0' ? '?' : text[i];
  }
  if (copy != NULL) {
    copy[bytes] = '\0';
  }
  return copy;
}

/* ---- CSV, JSON ---- */

static void
put_csv(FILE *out, const char *text)
{
  if (text == NULL) {
    return;
  }
  if (strpbrk(text, ",\"\r\n") == NULL) {
    fputs(text, out);
    return;
  }
  putc('"', out);
  for (; *text != '\0'; text++) {
    if (*text == '"') {
      putc('"', out);
    }
    putc(*text, out);
  }
  putc('"', out);
}

static void
put_csv_row(const struct printer *p, bool names)
{
  for (int i = 0; i < p->columns; i++) {
    char *text = names ? NULL : column_text(p, i);
    fputs(i == 0 ? "" : ",", p->out);
    put_csv(p->out, names ? sqlite3_column_name(p->statement, i) : text);
    free(text);
  }
  fputs("\r\n", p->out);
}

static json_t *
json_cell(const struct printer *p, int column)
{
  sqlite3_int64 number = sqlite3_column_int64(p->statement, column);
  switch (sqlite3_column_type(p->statement, column)) {
  case SQLITE_NULL:
    return json_null();
  case SQLITE_FLOAT:
    /* JSON has no infinity: it becomes a text. */
    if (isfinite(sqlite3_column_double(p->statement, column))) {
      return json_real(sqlite3_column_double(p->statement, column));
    }
    break;
  case SQLITE_INTEGER:
    if (number < 1ll << 53 && number > -(1ll << 53)) {
      return json_integer(number);
    }
    break;
  default:
    break;
  }
  char *bytes = column_text(p, column), *text = bytes != NULL ? ct_utf8_copy(bytes) : NULL;
  json_t *string = text != NULL ? json_string(text) : NULL;
  free(text);
  free(bytes);
  return string;
}

/* Adds the name to those that are there, unless it is one of them. */
static bool
take_name(struct printer *p, json_t *names, const char *name)
{
  bool is_new = json_object_get(names, name) == NULL;
  p->failed |= is_new && json_object_set_new(names, name, json_integer(1)) != 0;
  return is_new;
}

/* A name with the first number that makes it another one. */
static char *
make_numbered(struct printer *p, json_t *names, const char *name)
{
  char *numbered = NULL;
  json_int_t n = json_integer_value(json_object_get(names, name)); /* up to there its numbers are taken */
  do {
    free(numbered);
    if (asprintf(&numbered, "%s_%" JSON_INTEGER_FORMAT, name, n++) < 0) {
      p->failed = true;
      return NULL;
    }
  } while (!take_name(p, names, numbered));
  p->failed |= json_object_set_new(names, name, json_integer(n)) != 0;
  return numbered;
}

/* An object has a name once: of two columns with one the second gets a number, name_1. */
static void
make_names(struct printer *p)
{
  json_t *names = json_object();
  p->names = calloc((size_t)p->columns + 1, sizeof(*p->names));
  p->failed = p->names == NULL || names == NULL;
  for (int i = 0; i < p->columns && !p->failed; i++) {
    char *name = ct_utf8_copy(sqlite3_column_name(p->statement, i));
    if (name == NULL) {
      p->failed = true;
    } else if (take_name(p, names, name)) {
      p->names[i] = name;
    } else {
      p->names[i] = make_numbered(p, names, name);
      free(name);
    }
  }
  json_decref(names);
}

static void
free_names(struct printer *p)
{
  for (int i = 0; p->names != NULL && i < p->columns; i++) {
    free(p->names[i]);
  }
  free(p->names);
}

static void
put_json_row(struct printer *p)
{
  json_t *object = json_object();
  for (int i = 0; i < p->columns; i++) {
    p->failed |= json_object_set_new(object, p->names[i], json_cell(p, i)) != 0;
  }
  fputs(p->rows == 0 ? "\n" : ",\n", p->out);
  json_dumpf(object, p->out, JSON_COMPACT);
  json_decref(object);
}

/* Columns, and the begin of the rows. */
static void
begin_json_rows(struct printer *p)
{
  json_t *names = json_array();
  for (int i = 0; i < p->columns; i++) {
    char *name = ct_utf8_copy(sqlite3_column_name(p->statement, i));
    p->failed |= name == NULL || json_array_append_new(names, json_string(name)) != 0;
    free(name);
  }
  fputs("{\"columns\":", p->out);
  json_dumpf(names, p->out, JSON_COMPACT);
  fputs(",\"rows\":[", p->out);
  json_decref(names);
}

static void
put_json_values(struct printer *p)
{
  json_t *values = json_array();
  for (int i = 0; i < p->columns; i++) {
    p->failed |= json_array_append_new(values, json_cell(p, i)) != 0;
  }
  fputs(p->rows == 0 ? "" : ",", p->out);
  json_dumpf(values, p->out, JSON_COMPACT);
  json_decref(values);
}

/* ---- table ---- */

/* So many columns of a terminal, nearly: a character each. */
static int
width_of(const char *text)
{
  int width = 0;
  for (; *text != '\0'; text++) {
    width += ((unsigned char)*text & 0xc0) != 0x80;
  }
  return width;
}

/* Integers that are counts are easier to read in groups; ids are not to be changed. */
static char *
cell_text(const struct printer *p, int column)
{
  char *copy = column_text(p, column);
  if (copy != NULL) {
    ct_make_printable(copy);
  }
  return copy;
}

static void
put_cell(const struct printer *p, int column, const char *text)
{
  bool is_last = column + 1 == p->columns;
  int room = p->widths[column], width = width_of(text);
  int padding = room > width ? room - width : 0;
  if (p->numbers[column]) {
    fprintf(p->out, "%*s", padding, "");
  }
  if (width > CELL_MAX && !is_last) {
    int bytes = 0;
    for (int seen = 0; text[bytes] != '\0' && seen < CELL_MAX - 3; bytes++) {
      seen += ((unsigned char)text[bytes] & 0xc0) != 0x80;
    }
    fprintf(p->out, "%.*s...", bytes, text);
  } else {
    fputs(text, p->out);
  }
  if (!is_last) {
    fprintf(p->out, "%*s", p->numbers[column] ? 2 : padding + 2, "");
  }
}

static void
put_table_line(const struct printer *p, char *const *cells)
{
  for (int i = 0; i < p->columns; i++) {
    put_cell(p, i, cells[i] != NULL ? cells[i] : "");
  }
  putc('\n', p->out);
}

static void
free_cells(char **cells, int columns)
{
  for (int i = 0; cells != NULL && i < columns; i++) {
    free(cells[i]);
  }
  free(cells);
}

/* The head, and the rows so far. */
static void
flush_table(struct printer *p)
{
  if (p->kept == NULL) {
    return;
  }
  for (int i = 0; i < p->columns; i++) {
    p->widths[i] = width_of(sqlite3_column_name(p->statement, i));
    for (size_t row = 0; row < p->kept_count; row++) {
      int width = p->kept[row][i] != NULL ? width_of(p->kept[row][i]) : 0;
      width = width > CELL_MAX ? CELL_MAX : width;
      p->widths[i] = width > p->widths[i] ? width : p->widths[i];
    }
  }
  if (p->sql->options.heading != NULL) {
    p->sql->options.heading(p->sql->options.heading_arg, p->out);
  }
  for (int i = 0; i < p->columns; i++) {
    put_cell(p, i, sqlite3_column_name(p->statement, i));
  }
  putc('\n', p->out);
  for (size_t row = 0; row < p->kept_count; row++) {
    put_table_line(p, p->kept[row]);
    free_cells(p->kept[row], p->columns);
  }
  free(p->kept);
  p->kept = NULL;
}

static void
put_table_row(struct printer *p)
{
  char **cells = calloc((size_t)p->columns + 1, sizeof(*cells));
  if (cells == NULL) {
    p->failed = true;
    return;
  }
  for (int i = 0; i < p->columns; i++) {
    cells[i] = cell_text(p, i);
    p->numbers[i] |= is_number(p, i);
  }
  if (p->kept != NULL && p->kept_count < SAMPLE) {
    p->kept[p->kept_count++] = cells;
    return;
  }
  flush_table(p);
  put_table_line(p, cells);
  free_cells(cells, p->columns);
}

/* ---- all ---- */

static void
begin(struct printer *p)
{
  enum ct_sql_format format = p->sql->options.format;
  p->columns = sqlite3_column_count(p->statement);
  if (format == CT_SQL_CSV && p->columns != 0) {
    put_csv_row(p, true);
  } else if (format == CT_SQL_JSON) {
    make_names(p);
    putc('[', p->out);
  } else if (format == CT_SQL_JSON_ROWS) {
    begin_json_rows(p);
  } else if (p->columns != 0) {
    p->widths = calloc((size_t)p->columns, sizeof(*p->widths));
    p->numbers = calloc((size_t)p->columns, sizeof(*p->numbers));
    p->kept = calloc(SAMPLE, sizeof(*p->kept));
    p->failed = p->widths == NULL || p->numbers == NULL || p->kept == NULL;
  }
}

static void
put_row(struct printer *p)
{
  switch (p->sql->options.format) {
  case CT_SQL_CSV:
    put_csv_row(p, false);
    break;
  case CT_SQL_JSON:
    put_json_row(p);
    break;
  case CT_SQL_JSON_ROWS:
    put_json_values(p);
    break;
  default:
    put_table_row(p);
    break;
  }
  p->rows++;
}

static void
end(struct printer *p)
{
  if (p->sql->options.format == CT_SQL_JSON) {
    fputs(p->rows == 0 ? "]\n" : "\n]\n", p->out);
  } else if (p->sql->options.format == CT_SQL_JSON_ROWS) {
    fputs("]}\n", p->out);
  } else if (p->sql->options.format == CT_SQL_TABLE && p->columns != 0 && !p->failed) {
    flush_table(p);
  }
  free_names(p);
  free(p->widths);
  free(p->numbers);
}

int
ct_sql_print(struct ct_sql *sql, sqlite3_stmt *statement, FILE *out, struct ct_sql_result *result, struct ct_diag *diag)
{
  struct printer p = {.sql = sql, .statement = statement, .out = out};
  int step = SQLITE_ROW;
  begin(&p);
  while (!p.failed && !ferror(out) && (step = sqlite3_step(statement)) == SQLITE_ROW) {
    if (sql->options.limit != 0 && p.rows == sql->options.limit) {
      result->more = true;
      break;
    }
    put_row(&p);
  }
  if (sql->options.progress.finish != NULL) {
    sql->options.progress.finish(sql->options.progress.arg);
  }
  end(&p);
  result->rows += p.rows;
  if (fflush(out) != 0 || ferror(out)) {
    return ct_fail(diag, CT_EIO, "cannot write the rows: %s", strerror(errno));
  }
  if (p.failed || step == SQLITE_NOMEM) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the rows");
  }
  if (step == SQLITE_INTERRUPT) {
    result->interrupted = true;
    return sql->timed_out ? ct_fail(diag, CT_EINVAL, "the query took longer than --timeout allows")
                          : ct_fail(diag, CT_EINVAL, "interrupted");
  }
  return step == SQLITE_ROW || step == SQLITE_DONE ? 0 : ct_fail(diag, CT_EINVAL, "%s", sqlite3_errmsg(sql->db));
}
