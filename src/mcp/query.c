/* SPDX-License-Identifier: MIT */
/* query: SQL, and calls by filters. */
#include "mcp/held.h"

#include <contrail/replay.h>
#include <contrail/text.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 400, ANSWER_BYTES_MAX = 32 << 20, BUFFER_BYTES = 64 << 10 };

static void
interrupt(void *sql)
{
  ct_sql_interrupt(sql);
}

/* ---- a stream into memory that has an end ---- */

struct bounded {
  char *text;
  size_t size;
};

static ssize_t
write_bounded(void *context, const char *bytes, size_t count)
{
  struct bounded *bounded = context;
  char *text = bounded->size + count <= ANSWER_BYTES_MAX ? realloc(bounded->text, bounded->size + count) : NULL;
  if (text == NULL) {
    errno = EFBIG;
    return 0; /* an error, as fopencookie has it */
  }
  memcpy(text + bounded->size, bytes, count);
  bounded->text = text;
  bounded->size += count;
  return (ssize_t)count;
}

static FILE *
open_bounded(struct bounded *bounded)
{
  static const cookie_io_functions_t functions = {.write = write_bounded};
  FILE *out = fopencookie(bounded, "w", functions);
  if (out != NULL) {
    setvbuf(out, NULL, _IOFBF, BUFFER_BYTES);
  }
  return out;
}

/* Lines that an answer has: those after them are not kept. */
static ssize_t
write_lines(void *context, const char *bytes, size_t count)
{
  struct mcp_lines *lines = context;
  size_t room = ANSWER_BYTES_MAX - lines->size, kept = lines->is_cut ? 0 : count < room ? count : room;
  char *text = kept != 0 ? realloc(lines->text, lines->size + kept) : NULL;
  if (text == NULL) {
    lines->is_cut = true;
    return (ssize_t)count;
  }
  memcpy(text + lines->size, bytes, kept);
  for (size_t i = 0; i < kept; i++) {
    lines->count += bytes[i] == '\n';
  }
  lines->text = text;
  lines->size += kept;
  lines->is_cut = kept != count || lines->count > MCP_ROWS_MAX;
  return (ssize_t)count;
}

FILE *
mcp_lines_open(struct mcp_lines *lines)
{
  static const cookie_io_functions_t functions = {.write = write_lines};
  FILE *out = fopencookie(lines, "w", functions);
  if (out != NULL) {
    setvbuf(out, NULL, _IOFBF, BUFFER_BYTES);
  }
  return out;
}

/* ---- rows ---- */

static void
clean_row(json_t *row, bool shortens)
{
  size_t i;
  json_t *cell;
  json_array_foreach(row, i, cell)
  {
    if (json_is_string(cell)) {
      json_array_set_new(row, i, mcp_string(cell, shortens));
    }
  }
}

/* One that is longer than an answer may be has its cells shortened, although they were to be whole. */
static void
clean_rows(struct mcp_call *call, json_t *rows, bool shortens)
{
  size_t i;
  json_t *row;
  json_array_foreach(rows, i, row)
  {
    clean_row(row, shortens);
    if (!shortens && json_dumpb(row, NULL, 0, JSON_COMPACT) > MCP_ANSWER_BYTES) {
      clean_row(row, true);
      mcp_doubt(call, "rows of more than %d bytes have their texts shortened: to_file: true has them whole",
                MCP_ANSWER_BYTES);
    }
  }
}

/* The last statement's rows; the text has a line for each. */
static json_t *
last_rows(const char *text, size_t size)
{
  while (size != 0 && text[size - 1] == '\n') {
    size--;
  }
  size_t begin = size;
  while (begin != 0 && text[begin - 1] != '\n') {
    begin--;
  }
  return json_loadb(text + begin, size - begin, JSON_ALLOW_NUL, NULL);
}

/* "spans has id, parent_id ..." of each table that the query names, as a doubt of the error's. */
static void
list_columns(struct ct_sql *sql, const char *asked, char *list, size_t size)
{
  char query[100];
  list[0] = '\0';
  for (size_t t = 0; mcp_tables[t] != NULL; t++) {
    struct bounded bounded = {NULL};
    const char *found = strcasestr(asked, mcp_tables[t]);
    char after = found != NULL ? found[strlen(mcp_tables[t])] : 'x';
    FILE *out = isalnum((unsigned char)after) == 0 && after != '_' ? open_bounded(&bounded) : NULL;
    if (out == NULL) {
      continue;
    }
    snprintf(query, sizeof(query), "PRAGMA table_info('%s')", mcp_tables[t]);
    int code = ct_sql_run(sql, query, out, NULL, NULL);
    fclose(out);
    json_t *columns = code == 0 ? last_rows(bounded.text, bounded.size) : NULL, *row;
    size_t i;
    json_array_foreach(json_object_get(columns, "rows"), i, row)
    {
      size_t at = strlen(list);
      snprintf(list + at, size - at, "%s%s", i == 0 ? (at == 0 ? "" : "; ") : ", ",
               i == 0 ? mcp_tables[t] : json_string_value(json_array_get(row, 1)));
      at = strlen(list);
      snprintf(list + at, size - at, "%s%s", i == 0 ? " has " : "",
               i == 0 ? json_string_value(json_array_get(row, 1)) : "");
    }
    json_decref(columns);
    free(bounded.text);
  }
}

static bool
explain_wrong(struct mcp_call *call, struct ct_sql *sql, const char *text)
{
  const char *missing = strstr(text, "no such "), *name = missing != NULL ? strrchr(missing, ' ') : NULL;
  enum { WORDS_MAX = 128 };
  const char *words[WORDS_MAX] = {NULL}, *closest = NULL;
  for (size_t i = 0; name != NULL && i < WORDS_MAX - 1 && (words[i] = ct_sql_word(i)) != NULL; i++) {
  }
  if (name != NULL) {
    const char *dot = strrchr(name, '.');
    const char *missed = dot != NULL ? dot + 1 : name + 1;
    closest = ct_closest_word(missed, words);
    closest = closest != NULL && strcmp(closest, missed) == 0 ? NULL : closest; /* of another table */
  }
  char columns[900] = "";
  if (strstr(text, "not authorized") != NULL || strstr(text, "authorization denied") != NULL) {
    return mcp_fail(call, "%s: a query only reads (SELECT, WITH, EXPLAIN), the tables of the trace", text);
  }
  if (strstr(text, "no such column") != NULL) {
    list_columns(sql, mcp_get_text(call->arguments, "sql"), columns, sizeof(columns));
  }
  return mcp_fail(call, "%s%s%s; %s", text, closest != NULL ? "; perhaps " : "", closest != NULL ? closest : "",
                  columns[0] != '\0' ? columns : "explain term=spans (or another table) has the columns");
}

/* What the traces do not have, those of followed processes too. Of one that grows it is known that it is not whole. */
static void
report_warnings(struct mcp_call *call, const struct ct_sql *sql, bool is_live)
{
  enum { SHOWN = 6 };
  size_t shown = 0, more = 0;
  const char *warning;
  for (size_t i = 0; (warning = ct_sql_warning(sql, i)) != NULL; i++) {
    bool is_known = is_live && (strstr(warning, "INCOMPLETE") != NULL || strstr(warning, "damaged or cut") != NULL);
    if (!is_known && shown < SHOWN) {
      mcp_doubt(call, "%s", warning);
      shown++;
    } else if (!is_known) {
      more++;
    }
  }
  if (more != 0) {
    mcp_doubt(call, "%zu warnings more: analyze view=info has them", more);
  }
}

/* Runs it, its output to out. The database is locked by us. */
static bool
run_sql(struct mcp_call *call, struct ct_sql *sql, FILE *out, uint64_t limit, struct ct_sql_result *result)
{
  struct ct_diag diag = {""};
  double seconds = mcp_get_number(call->arguments, "timeout_s", 60);
  *result = (struct ct_sql_result){.struct_size = sizeof(*result)};
  ct_sql_set_limits(sql, limit, (uint64_t)(seconds * 1000) + 1);
  mcp_on_cancel(call->request, interrupt, sql);
  int code = ct_sql_run(sql, mcp_get_text(call->arguments, "sql"), out, result, &diag);
  mcp_on_cancel(call->request, NULL, NULL);
  ct_sql_forget_interrupt(sql); /* that of a cancel which came too late: the next query is another call's */
  if (code == 0) {
    return true;
  }
  if (code == CT_ERANGE) {
    return mcp_fail(call, "sql is one statement: ask for each by a call of its own");
  }
  if (code == CT_EIO) {
    return mcp_fail(call, "%s; select less%s", diag.text,
                    mcp_get_flag(call->arguments, "to_file") ? "" : ", or give to_file: true");
  }
  return result->interrupted || strstr(diag.text, "--timeout") != NULL
             ? mcp_fail(call,
                        "the query was ended: it took longer than timeout_s (%g), or was cancelled; narrow it down, or "
                        "ask `functions` in place of `spans`",
                        seconds)
             : explain_wrong(call, sql, diag.text);
}

static bool
query_rows(struct mcp_call *call, struct mcp_held *held)
{
  struct bounded bounded = {NULL};
  struct ct_sql_result result;
  struct ct_sql *sql = mcp_sql_take(call, held);
  if (sql == NULL) {
    return false;
  }
  FILE *out = open_bounded(&bounded);
  bool good = out != NULL && run_sql(call, sql, out, MCP_ROWS_MAX, &result), is_live = held->is_of_live;
  if (good) {
    report_warnings(call, sql, held->is_of_live);
  }
  mcp_sql_give(held);
  if (out != NULL) {
    fclose(out);
  }
  json_t *found = good ? last_rows(bounded.text, bounded.size) : NULL;
  free(bounded.text);
  json_t *rows = json_object_get(found, "rows"), *columns = json_object_get(found, "columns");
  if (good && rows == NULL) {
    good = mcp_fail(call, "the query has no rows: which SELECT?");
  } else if (good && json_array_size(columns) > MCP_COLUMNS_MAX) {
    good = mcp_fail(call, "the query has %zu columns, and an answer at most %d: select those that matter",
                    json_array_size(columns), MCP_COLUMNS_MAX);
  } else if (good) {
    clean_row(columns, true);
    clean_rows(call, rows, !mcp_get_flag(call->arguments, "full_names"));
    mcp_put_page(call, "rows", json_incref(columns), json_incref(rows), mcp_get_count(call->arguments, "limit", 0),
                 result.more);
    if (result.index_rebuilt) {
      mcp_doubt(call, "the index did not fit the trace, or was damaged: it was made again");
    }
    if (result.damage[0] != '\0' && !is_live) { /* of one that grows the rest comes yet */
      mcp_doubt(call, "%s", result.damage);
    }
  }
  json_decref(found);
  return good;
}

/* All rows, into a file: JSON, as in an answer. */
static bool
query_file(struct mcp_call *call, struct mcp_held *held)
{
  char path[PATH_MAX];
  struct ct_sql_result result;
  FILE *out = mcp_answer_file(call, ".json", path);
  struct ct_sql *sql = out != NULL ? mcp_sql_take(call, held) : NULL;
  bool good = sql != NULL && run_sql(call, sql, out, 0, &result), is_live = sql != NULL && held->is_of_live;
  if (good) {
    report_warnings(call, sql, is_live);
  }
  if (sql != NULL) {
    mcp_sql_give(held);
  }
  if (out != NULL && fclose(out) != 0 && good) {
    good = mcp_fail(call, "the file cannot be written: %s", strerror(errno));
  }
  if (good) {
    mcp_put(call, "file", mcp_text(path));
    mcp_put(call, "shown", json_integer(0));
    mcp_put(call, "more", mcp_textf("%llu rows in the file", (unsigned long long)result.rows));
    if (result.damage[0] != '\0' && !is_live) {
      mcp_doubt(call, "%s", result.damage);
    }
  } else if (out != NULL) {
    unlink(path);
  }
  return good;
}

/* ---- lines ---- */

json_t *
mcp_split_lines(const char *text, size_t size, size_t most, bool *has_more)
{
  json_t *lines = json_array();
  const char *end = size != 0 ? text + size : text;
  *has_more = false;
  while (text < end) {
    const char *newline = memchr(text, '\n', (size_t)(end - text));
    const char *stop = newline != NULL ? newline : end;
    if (json_array_size(lines) == most) {
      *has_more = true;
      break;
    }
    size_t length = (size_t)(stop - text), kept = length < LINE_BYTES ? length : LINE_BYTES;
    while (kept != length && kept > 0 && ((unsigned char)text[kept] & 0xc0) == 0x80) {
      kept--;
    }
    char *line = strndup(text, kept);
    if (line != NULL) {
      ct_make_printable(line);
    }
    json_array_append_new(lines, length == kept || line == NULL ? mcp_text(line) : mcp_textf("%s...", line));
    free(line);
    text = stop + 1;
  }
  return lines;
}

static int
on_progress(void *request, uint64_t done, uint64_t total)
{
  mcp_progress(request, (double)done, (double)total, "reading the trace");
  return mcp_is_cancelled(request);
}

static bool
replay(struct mcp_call *call, struct mcp_view *view, FILE *out, uint64_t limit)
{
  struct ct_diag diag = {""};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  view->filter.limit = limit;
  struct ct_replay_options options = {
      .struct_size = sizeof(options), .filter = &view->filter, .progress = {on_progress, NULL, call->request}};
  int code = ct_replay_write(view->trace, &options, out, &notes, &diag);
  if (code == 0 && notes.shown == 0) {
    mcp_report_unmatched(call, view);
  }
  return code == 0 || mcp_fail(call, "%s", diag.text[0] != '\0' ? diag.text : ct_err_text(code));
}

static bool
query_lines(struct mcp_call *call, struct mcp_held *held)
{
  struct mcp_view view;
  struct mcp_lines found = {NULL};
  char path[PATH_MAX];
  bool to_file = mcp_get_flag(call->arguments, "to_file"), has_more;
  if (!mcp_view_open(call, held, json_object_get(call->arguments, "filter"), &view)) {
    return false;
  }
  FILE *out = to_file ? mcp_answer_file(call, ".txt", path) : mcp_lines_open(&found);
  bool good = out != NULL && replay(call, &view, out, to_file ? 0 : MCP_ROWS_MAX + 1);
  mcp_view_close(&view);
  bool is_written = out != NULL && ferror(out) == 0;
  is_written = out != NULL && fclose(out) == 0 && is_written;
  if (to_file && good && !is_written) {
    good = mcp_fail(call, "the file cannot be written: %s", strerror(errno));
  }
  if (to_file && out != NULL && !good) {
    unlink(path);
  }
  if (good && to_file) {
    mcp_put(call, "file", mcp_text(path));
  } else if (good) {
    json_t *lines = mcp_split_lines(found.text, found.size, MCP_ROWS_MAX, &has_more);
    mcp_put_page(call, "lines", NULL, lines, mcp_get_count(call->arguments, "limit", 0), has_more || found.is_cut);
  }
  free(found.text);
  return good;
}

/* ---- the tool ---- */

static double
now_ms(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

bool
mcp_tool_query(struct mcp_call *call)
{
  const json_t *arguments = call->arguments;
  const char *cursor = mcp_get_text(arguments, "cursor"), *sql = mcp_get_text(arguments, "sql");
  double begun = now_ms();
  if (cursor != NULL) {
    return mcp_put_next_page(call, cursor, mcp_get_count(arguments, "limit", 0));
  }
  struct mcp_held *held = mcp_held_get(call, mcp_get_text(arguments, "trace"));
  if (held == NULL) {
    return false;
  }
  if (sql != NULL && json_object_get(arguments, "filter") != NULL) {
    mcp_fail(call, "sql or filter, not both: put the filter's conditions into WHERE");
  }
  mcp_put(call, "trace", json_string(held->name));
  bool good = !call->failed && (sql == NULL                          ? query_lines(call, held)
                                : mcp_get_flag(arguments, "to_file") ? query_file(call, held)
                                                                     : query_rows(call, held));
  if (good) {
    mcp_put(call, "time", mcp_textf("%.1f ms", now_ms() - begun));
    mcp_doubts(call, held);
    call->has_target_text = true;
    if (json_object_get(call->body, "cursor") != NULL) {
      mcp_suggest(call, "query cursor=%s: the next page", mcp_get_text(call->body, "cursor"));
    }
    if (!mcp_suggest_dump(call, held)) {
      mcp_suggest(call,
                  sql != NULL ? "analyze view=callers, callees or slowest filter={function: NAME} trace=%s"
                              : "query trace=%s with sql: SELECT ... FROM spans",
                  held->name);
    }
  }
  mcp_held_put(held);
  return good;
}
