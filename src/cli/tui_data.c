/* SPDX-License-Identifier: MIT */
/* contrail tui: what is asked by SQL. */
#include "cli/tui.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 20000, FIRST_STRETCH_NS = 1000000, MANY_FUNCTIONS = 12 };

int64_t
tui_number(const json_t *row, size_t column)
{
  const json_t *value = json_array_get(row, column);
  return json_is_integer(value)  ? json_integer_value(value)
         : json_is_string(value) ? strtoll(json_string_value(value), NULL, 10)
                                 : TUI_NOT_KNOWN;
}

/* The answer's text; NULL after an error. */
static char *
ask_text(struct tui_data *data, const char *query, struct ct_diag *diag)
{
  struct ct_sql_result result = {.struct_size = sizeof(result)};
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (out == NULL) {
    snprintf(diag->text, sizeof(diag->text), "out of memory");
    return NULL;
  }
  int code = ct_sql_run(data->sql, query, out, &result, diag);
  if (fclose(out) != 0 && code == CT_OK) {
    snprintf(diag->text, sizeof(diag->text), "out of memory");
    code = CT_ENOMEM;
  }
  data->index_rebuilt |= result.index_rebuilt;
  if (code == CT_OK && result.interrupted) {
    snprintf(diag->text, sizeof(diag->text), "given up");
    code = CT_EINVAL;
  }
  if (code != CT_OK) {
    free(text);
    return NULL;
  }
  return text;
}

json_t *
tui_data_ask(struct tui_data *data, struct ct_diag *diag, const char *format, ...)
{
  char *query = NULL;
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&query, format, arguments);
  va_end(arguments);
  char *text = length >= 0 ? ask_text(data, query, diag) : NULL;
  json_t *answer = text != NULL ? json_loads(text, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
  json_t *rows = json_incref(json_object_get(answer, "rows"));
  if (rows == NULL && diag->text[0] == '\0') {
    snprintf(diag->text, sizeof(diag->text), "out of memory");
  }
  json_decref(answer);
  if (length >= 0) {
    free(query);
  }
  free(text);
  return rows;
}

/* ---- functions ---- */

static int
by_id(const void *a, const void *b)
{
  const struct tui_function *x = a, *y = b;
  return x->id < y->id ? -1 : x->id > y->id;
}

static int
read_functions(struct tui_data *data, uint32_t limit, struct ct_diag *diag)
{
  data->rows = tui_data_ask(data, diag,
                            "SELECT id, name, module, file, line, calls, total, self, p50, p99, max FROM functions "
                            "WHERE (calls > 0 OR total > 0) AND id < %u",
                            limit);
  if (data->rows == NULL) {
    return CT_EINVAL;
  }
  size_t count = json_array_size(data->rows), i;
  data->functions = calloc(count + 1, sizeof(*data->functions));
  if (data->functions == NULL) {
    return CT_ENOMEM;
  }
  const json_t *row;
  json_array_foreach(data->rows, i, row)
  {
    const char *name = json_string_value(json_array_get(row, 1)), *module = json_string_value(json_array_get(row, 2));
    int64_t line = tui_number(row, 4);
    data->functions[i] = (struct tui_function){.id = tui_number(row, 0),
                                               .name = name != NULL ? name : "?",
                                               .module = module != NULL ? module : "?",
                                               .file = json_string_value(json_array_get(row, 3)),
                                               .line = line > 0 && line < UINT32_MAX ? (uint32_t)line : 0,
                                               .calls = tui_number(row, 5),
                                               .total = tui_number(row, 6),
                                               .self = tui_number(row, 7),
                                               .p50 = tui_number(row, 8),
                                               .p99 = tui_number(row, 9),
                                               .max = tui_number(row, 10)};
  }
  data->function_count = count;
  qsort(data->functions, count, sizeof(*data->functions), by_id);
  return CT_OK;
}

const struct tui_function *
tui_data_function(const struct tui_data *data, int64_t id)
{
  struct tui_function wanted = {.id = id};
  return data->function_count != 0 ? bsearch(&wanted, data->functions, data->function_count, sizeof(wanted), by_id)
                                   : NULL;
}

const struct tui_function *
tui_data_named(const struct tui_data *data, const char *name, const char *module)
{
  for (size_t i = 0; i < data->function_count && name != NULL; i++) {
    const struct tui_function *function = &data->functions[i];
    if (strcmp(function->name, name) == 0 && (module == NULL || strcmp(function->module, module) == 0)) {
      return function;
    }
  }
  return NULL;
}

/* ---- edges ---- */

static int
by_caller(const void *a, const void *b)
{
  const struct tui_edge *x = a, *y = b;
  return x->caller != y->caller ? (x->caller < y->caller ? -1 : 1) : (x->callee > y->callee) - (x->callee < y->callee);
}

static int
by_callee(const void *a, const void *b, void *edges)
{
  const struct tui_edge *x = (const struct tui_edge *)edges + *(const size_t *)a,
                        *y = (const struct tui_edge *)edges + *(const size_t *)b;
  return x->callee != y->callee ? (x->callee < y->callee ? -1 : 1) : (x->caller > y->caller) - (x->caller < y->caller);
}

/* "[1,2,null,4,5]" from there on; where it ends, or NULL. */
static const char *
take_numbers(const char *text, int64_t *numbers, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    char *end;
    text += strspn(text, i == 0 ? " \n\t,[" : " ,\"");
    if (strncmp(text, "null", 4) == 0) {
      numbers[i] = TUI_NOT_KNOWN;
      text += 4;
      continue;
    }
    numbers[i] = strtoll(text, &end, 10);
    if (end == text) {
      return NULL;
    }
    text = end + (*end == '"');
  }
  return strchr(text, ']');
}

/* There may be a million: numbers alone, so the text is read as it is. */
static int
read_edges(struct tui_data *data, uint32_t limit, struct ct_diag *diag)
{
  char query[200];
  snprintf(query, sizeof(query), "SELECT caller_id, callee_id, calls, total, self FROM edges WHERE callee_id < %u",
           limit);
  char *text = ask_text(data, query, diag);
  const char *at = text != NULL ? strstr(text, "\"rows\":") : NULL;
  size_t capacity = 0;
  int64_t numbers[5];
  int code = text != NULL ? CT_OK : CT_EINVAL;
  at = at != NULL ? at + strlen("\"rows\":") : NULL;
  while (code == CT_OK && at != NULL && (at = take_numbers(at, numbers, 5)) != NULL) {
    if (data->edge_count == capacity) {
      capacity = capacity * 2 + 256;
      struct tui_edge *more = reallocarray(data->edges, capacity, sizeof(*more));
      if (more == NULL) {
        code = CT_ENOMEM;
        break;
      }
      data->edges = more;
    }
    data->edges[data->edge_count++] = (struct tui_edge){numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
    at++;
  }
  free(text);
  data->by_callee = code == CT_OK ? calloc(data->edge_count + 1, sizeof(*data->by_callee)) : NULL;
  if (data->by_callee == NULL) {
    return code != CT_OK ? code : CT_ENOMEM;
  }
  if (data->edge_count != 0) {
    qsort(data->edges, data->edge_count, sizeof(*data->edges), by_caller);
  }
  for (size_t i = 0; i < data->edge_count; i++) {
    data->by_callee[i] = i;
  }
  qsort_r(data->by_callee, data->edge_count, sizeof(*data->by_callee), by_callee, data->edges);
  return CT_OK;
}

size_t
tui_edges_of_caller(const struct tui_data *data, int64_t caller)
{
  size_t low = 0, high = data->edge_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (data->edges[middle].caller < caller) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

size_t
tui_edges_of_callee(const struct tui_data *data, int64_t callee)
{
  size_t low = 0, high = data->edge_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (data->edges[data->by_callee[middle]].callee < callee) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* ---- all ---- */

void
tui_data_free(struct tui_data *data)
{
  ct_sql_close(data->sql);
  json_decref(data->rows);
  free(data->functions);
  free(data->edges);
  free(data->by_callee);
  free(data->name);
  *data = (struct tui_data){0};
}

int
tui_data_read(struct tui_data *data, const char *name, uint32_t limit, const struct ct_view_progress *progress,
              struct ct_diag *diag)
{
  struct tui_data new = {.name = strdup(name)};
  struct ct_sql_options options = {.struct_size = sizeof(options),
                                   .format = CT_SQL_JSON_ROWS,
                                   .workers = ct_reading_workers(),
                                   .progress = progress != NULL ? *progress : (struct ct_view_progress){0}};
  int code = new.name != NULL ? ct_sql_open(&options, &new.sql, diag) : CT_ENOMEM;
  code = code == CT_OK ? ct_sql_add(new.sql, name, diag) : code;
  code = code == CT_OK ? read_functions(&new, limit, diag) : code;
  code = code == CT_OK ? read_edges(&new, limit, diag) : code;
  if (code != CT_OK) {
    if (diag->text[0] == '\0') {
      snprintf(diag->text, sizeof(diag->text), "%s", ct_err_text(code));
    }
    tui_data_free(&new);
    return code;
  }
  json_t *events = tui_data_ask(&new, diag, "SELECT sum(events) FROM threads");
  new.events = tui_number(json_array_get(events, 0), 0);
  json_decref(events);
  ct_sql_set_limits(new.sql, 0, TIMEOUT_MS);
  tui_data_free(data);
  *data = new;
  return CT_OK;
}

/* ---- single calls ---- */

static bool
take_call(json_t *rows, struct tui_call *call)
{
  const json_t *row = json_array_get(rows, 0);
  bool found = row != NULL;
  if (found) {
    *call = (struct tui_call){tui_number(row, 0), tui_number(row, 1), tui_number(row, 2)};
  }
  json_decref(rows);
  return found;
}

bool
tui_data_longest(struct tui_data *data, int64_t function, struct tui_call *call, struct ct_diag *diag)
{
  return take_call(tui_data_ask(data, diag,
                                "SELECT id, start, \"end\" FROM spans WHERE function_id = %lld ORDER BY duration DESC "
                                "LIMIT 1",
                                (long long)function),
                   call);
}

int64_t
tui_data_end_of(struct tui_data *data, int64_t id)
{
  struct ct_diag diag = {""};
  struct tui_call call;
  return take_call(tui_data_ask(data, &diag, "SELECT id, start, \"end\" FROM spans WHERE id = %lld", (long long)id),
                   &call)
             ? call.end
             : TUI_NOT_KNOWN;
}

/* In the stretch from..to, without its begin and with its end. */
static bool
find_in(struct tui_data *data, const char *which, int64_t from, int64_t to, bool forward, struct tui_call *call,
        struct ct_diag *diag)
{
  return take_call(tui_data_ask(data, diag,
                                "SELECT id, start, \"end\" FROM spans WHERE %s start > %lld AND start <= %lld ORDER BY "
                                "start%s LIMIT 1",
                                which, (long long)from, (long long)to, forward ? "" : " DESC"),
                   call);
}

/* Each function by itself, which lets the index pass over what has none of it; many of them in one look. */
static bool
find_any_in(struct tui_data *data, const int64_t *functions, size_t count, int64_t from, int64_t to, bool forward,
            struct tui_call *call, struct ct_diag *diag)
{
  bool found = false;
  struct tui_call one;
  char which[64];
  if (count > MANY_FUNCTIONS) {
    size_t size = count * 24 + 64, used = 0;
    char *list = malloc(size);
    if (list == NULL) {
      return false;
    }
    used += (size_t)snprintf(list, size, "function_id IN (");
    for (size_t i = 0; i < count; i++) {
      used += (size_t)snprintf(list + used, size - used, "%s%lld", i != 0 ? "," : "", (long long)functions[i]);
    }
    snprintf(list + used, size - used, ") AND");
    found = find_in(data, list, from, to, forward, call, diag);
    free(list);
    return found;
  }
  for (size_t i = 0; i < count && diag->text[0] == '\0'; i++) {
    snprintf(which, sizeof(which), "function_id = %lld AND", (long long)functions[i]);
    if (find_in(data, which, from, to, forward, &one, diag) &&
        (!found || (forward ? one.start < call->start : one.start > call->start))) {
      *call = one;
      found = true;
    }
  }
  return found;
}

bool
tui_data_find(struct tui_data *data, const int64_t *functions, size_t count, int64_t ns, int64_t until, bool forward,
              struct tui_call *call, struct ct_diag *diag)
{
  int64_t stretch = FIRST_STRETCH_NS;
  while (count != 0 && (forward ? ns < until : ns > until) && diag->text[0] == '\0') {
    int64_t left = forward ? until - ns : ns - until;
    stretch = stretch < left ? stretch : left;
    int64_t from = forward ? ns : ns - stretch, to = forward ? ns + stretch : ns;
    if (find_any_in(data, functions, count, from, forward ? to : to - 1, forward, call, diag)) {
      return true;
    }
    ns = forward ? to : from + 1; /* from itself was not in the stretch */
    if (!forward && from == until) {
      return false;
    }
    stretch = stretch < INT64_MAX / 8 ? stretch * 4 : stretch;
  }
  return false;
}
