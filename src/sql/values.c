/* SPDX-License-Identifier: MIT */
/*
 * The table of values: what was recorded of calls' arguments, results and registers, a row each. Arguments and results
 * by their types are those that replay --json has, made by the same code. A call's rows are made when it is met.
 */
#include "sql/sql_internal.h"

#include "views/call_values.h"

#include <stdlib.h>
#include <string.h>

enum {
  C_ID,
  C_THREAD,
  C_TID,
  C_PROCESS,
  C_TIME,
  C_FUNCTION,
  C_FUNCTION_ID,
  C_DEPTH,
  C_KIND,
  C_NUMBER,
  C_NAME,
  C_TYPE,
  C_RAW,
  C_VALUE,
  C_TEXT,
};
static const char *const columns =
    "id INTEGER, thread INTEGER, tid INTEGER, process INTEGER, time INTEGER, function TEXT, function_id INTEGER, depth "
    "INTEGER, kind TEXT, number INTEGER, name TEXT, type TEXT, raw INTEGER, value, text TEXT";

enum kind { ARGUMENT, RESULT, FILLED, REGISTER, STACK };
static const char *const kind_names[] = {"argument", "result", "filled", "register", "stack"};

struct row {
  enum kind kind;
  uint32_t number;  /* of an argument, from 1; 0: none */
  const char *name; /* NULL: it has none */
  const json_t *typed;
  bool has_raw;
  uint64_t raw;
};

struct values_cursor {
  sqlite3_vtab_cursor base;
  struct ct_sql *sql;
  size_t source;
  uint32_t thread;
  int64_t wanted_thread, wanted_id, wanted_function; /* -1: all */
  char *wanted_name;                                 /* of a function, or of a kind: NULL: all */
  char *wanted_kind;
  struct ct_call_values_reader *reader;
  struct ct_view_prototypes prototypes; /* of the source */
  bool has_prototypes;
  const struct ct_call_values *call;
  json_t *arguments, *result; /* by their types; NULL: not known */
  struct row *rows;
  size_t row_count, row_capacity, at;
  bool failed; /* out of memory */
};

static int
values_connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out, char **error)
{
  (void)db;
  (void)argc;
  (void)argv;
  (void)error;
  return ct_sql_connect(aux, columns, sizeof(struct ct_sql_table), out);
}

static int
values_best(sqlite3_vtab *base, sqlite3_index_info *info)
{
  (void)base;
  static const struct {
    int column;
    char letter;
    double share;
  } pushed[] = {
      {C_ID, 'i', 1e-3}, {C_THREAD, 't', 0.1}, {C_FUNCTION, 'n', 0.05}, {C_FUNCTION_ID, 'f', 0.05}, {C_KIND, 'k', 0.2}};
  enum { PUSHED = sizeof(pushed) / sizeof(pushed[0]) };
  char letters[PUSHED + 1] = "";
  int count = 0;
  double cost = 1e9;
  for (int i = 0; i < info->nConstraint; i++) {
    const struct sqlite3_index_constraint *constraint = &info->aConstraint[i];
    bool may_push = constraint->usable && constraint->op == SQLITE_INDEX_CONSTRAINT_EQ && ct_sql_is_binary(info, i);
    for (int k = 0; k < PUSHED && may_push; k++) {
      if (pushed[k].column == constraint->iColumn && strchr(letters, pushed[k].letter) == NULL) {
        letters[count++] = pushed[k].letter;
        info->aConstraintUsage[i].argvIndex = count;
        cost *= pushed[k].share;
      }
    }
  }
  info->estimatedCost = cost;
  info->estimatedRows = (sqlite3_int64)(cost / 10);
  info->idxStr = sqlite3_mprintf("%s", letters);
  info->needToFreeIdxStr = 1;
  return info->idxStr != NULL ? SQLITE_OK : SQLITE_NOMEM;
}

static int
values_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
  struct values_cursor *cursor = calloc(1, sizeof(*cursor));
  if (cursor == NULL) {
    return SQLITE_NOMEM;
  }
  cursor->sql = ((struct ct_sql_table *)base)->sql;
  *out = &cursor->base;
  return SQLITE_OK;
}

static void
forget_rows(struct values_cursor *c)
{
  json_decref(c->arguments);
  json_decref(c->result);
  c->arguments = c->result = NULL;
  c->row_count = c->at = 0;
}

static void
forget_query(struct values_cursor *c)
{
  forget_rows(c);
  ct_call_values_close(c->reader);
  if (c->has_prototypes) {
    ct_view_prototypes_destroy(&c->prototypes);
  }
  free(c->rows);
  free(c->wanted_name);
  free(c->wanted_kind);
  sqlite3_vtab_cursor base = c->base;
  struct ct_sql *sql = c->sql;
  memset(c, 0, sizeof(*c));
  c->base = base;
  c->sql = sql;
  c->wanted_thread = c->wanted_id = c->wanted_function = -1;
}

static int
values_close(sqlite3_vtab_cursor *base)
{
  forget_query((struct values_cursor *)base);
  free(base);
  return SQLITE_OK;
}

/* ---- the rows of a call ---- */

static bool
is_wanted(const struct values_cursor *c, enum kind kind)
{
  return c->wanted_kind == NULL || strcmp(c->wanted_kind, kind_names[kind]) == 0;
}

static void
add_row(struct values_cursor *c, const struct row *row)
{
  if (!is_wanted(c, row->kind)) {
    return;
  }
  if (c->row_count == c->row_capacity) {
    size_t capacity = c->row_capacity == 0 ? 64 : c->row_capacity * 2;
    struct row *rows = reallocarray(c->rows, capacity, sizeof(*rows));
    if (rows == NULL) {
      c->failed = true;
      return;
    }
    c->rows = rows;
    c->row_capacity = capacity;
  }
  c->rows[c->row_count++] = *row;
}

static void
add_number(struct values_cursor *c, enum kind kind, uint32_t number, const char *name, uint64_t value)
{
  add_row(c, &(struct row){.kind = kind, .number = number, .name = name, .has_raw = true, .raw = value});
}

/* Of what replay --json has, an object with name, type, raw, value and text, as far as these are known. */
static void
add_typed(struct values_cursor *c, enum kind kind, uint32_t number, const json_t *typed)
{
  const json_t *raw = json_object_get(typed, "raw"), *name = json_object_get(typed, "name");
  const char *first = json_string_value(json_is_array(raw) ? json_array_get(raw, 0) : raw);
  bool is_named = json_is_string(name) && json_string_value(name)[0] != '\0';
  struct row row = {.kind = kind, .number = number, .typed = typed, .name = is_named ? json_string_value(name) : NULL};
  if (first != NULL) {
    row.has_raw = true;
    row.raw = strtoull(first, NULL, 16);
  }
  if (row.has_raw || kind == FILLED) {
    add_row(c, &row);
  }
}

static size_t
read_memory(void *arg, uint64_t address, void *out, size_t bytes)
{
  const struct values_cursor *c = arg;
  return ct_registers_memory(&c->call->registers, address, out, bytes);
}

static const char *
find_symbol(void *arg, uint64_t address, uint64_t *offset)
{
  struct values_cursor *c = arg;
  return ct_view_prototypes_symbol(&c->prototypes, address, offset);
}

static void
add_arguments(struct values_cursor *c, const struct ct_prototype *prototype, const struct ct_value_context *context)
{
  const struct ct_value_registers *registers = &c->call->registers;
  if (prototype == NULL) {
    for (uint32_t i = 0; i < 2; i++) {
      if ((registers->integers_known >> i & 1) != 0) {
        add_number(c, ARGUMENT, i + 1, NULL, registers->integers[i]);
      }
    }
    return;
  }
  c->arguments = ct_values_json_arguments(prototype, registers, context);
  c->failed |= c->arguments == NULL;
  const json_t *argument;
  size_t i;
  json_array_foreach(c->arguments, i, argument)
  {
    add_typed(c, ARGUMENT, (uint32_t)i + 1, argument);
  }
}

static void
add_result(struct values_cursor *c, const struct ct_prototype *prototype, const struct ct_value_context *context)
{
  if (prototype == NULL) {
    if ((c->call->registers.results_known & 1) != 0) { /* a floating point result alone is in xmm0 */
      add_number(c, RESULT, 0, NULL, c->call->registers.results[0]);
    }
    return;
  }
  c->result = ct_values_json_result(prototype, &c->call->registers, context);
  c->failed |= c->result == NULL;
  add_typed(c, RESULT, 0, c->result);
  const json_t *filled;
  size_t i;
  json_array_foreach(json_object_get(c->result, "filled"), i, filled)
  {
    add_typed(c, FILLED, 0, filled);
  }
}

static void
add_registers(struct values_cursor *c, const struct ct_detail *raw)
{
  static const char *const registers[] = {"rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax", "r10"};
  static const char *const vectors[] = {"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7"};
  if (raw->is_return) {
    add_number(c, REGISTER, 0, "rax", raw->rax);
    add_number(c, REGISTER, 0, "rdx", raw->rdx);
    add_number(c, REGISTER, 0, "xmm0", raw->xmm0);
    add_number(c, REGISTER, 0, "xmm1", raw->xmm1);
    if (raw->has_error) {
      add_number(c, REGISTER, 0, "errno", (uint64_t)(int64_t)raw->error);
    }
    return;
  }
  for (int i = 0; i < 8; i++) {
    add_number(c, REGISTER, 0, registers[i], raw->registers[i]);
  }
  add_number(c, REGISTER, 0, "rsp", raw->sp);
  add_number(c, REGISTER, 0, "rbp", raw->bp);
  add_number(c, REGISTER, 0, "return_address", raw->return_address);
  for (int i = 0; i < 8 && raw->has_vectors; i++) {
    add_number(c, REGISTER, 0, vectors[i], raw->vectors[i]);
  }
  if (raw->stack_bytes != 0) {
    add_row(c, &(struct row){.kind = STACK});
  }
}

static bool
has_function(struct values_cursor *c, const struct ct_sql_source *source)
{
  if (c->wanted_function >= 0 && (uint64_t)c->wanted_function != source->function_base + c->call->fn) {
    return false;
  }
  const struct ct_trace_function *fn = c->wanted_name != NULL ? ct_trace_function(source->trace, c->call->fn) : NULL;
  return c->wanted_name == NULL || (fn != NULL && strcmp(fn->name, c->wanted_name) == 0);
}

static void
make_rows(struct values_cursor *c, const struct ct_sql_source *source)
{
  const struct ct_call_values *call = c->call;
  const struct ct_value_registers *registers = &call->registers;
  struct ct_value_context context = {c, find_symbol, read_memory};
  forget_rows(c);
  if (!has_function(c, source) ||
      (c->wanted_id >= 0 && ct_span_id_in(source->trace, c->thread, call->ordinal) != (uint64_t)c->wanted_id)) {
    return;
  }
  if (is_wanted(c, ARGUMENT) || is_wanted(c, RESULT) || is_wanted(c, FILLED)) {
    const struct ct_prototype *prototype = ct_view_prototype(&c->prototypes, call->fn);
    if (ct_registers_have_arguments(registers)) {
      add_arguments(c, prototype, &context);
    }
    if (ct_registers_have_result(registers)) {
      add_result(c, prototype, &context);
    }
  }
  if (call->raw != NULL) {
    add_registers(c, call->raw);
  }
}

/* ---- the query ---- */

/* The thread is asked about. */
static bool
has_thread(const struct values_cursor *c, const struct ct_sql_source *source)
{
  struct ct_span_place place;
  if (!ct_sql_has_thread(source, c->thread) ||
      (c->wanted_thread >= 0 && (uint64_t)c->wanted_thread != source->thread_base + c->thread)) {
    return false;
  }
  return c->wanted_id < 0 || (ct_span_id_split((uint64_t)c->wanted_id, &place) && place.trace == source->number &&
                              place.process == source->process && place.thread == c->thread);
}

/* At a row, or past the last one: source is source_count. */
static int
find_row(struct values_cursor *c)
{
  while (c->at >= c->row_count && c->source < c->sql->source_count) {
    struct ct_sql_source *source = &c->sql->sources[c->source];
    if (c->thread >= ct_trace_thread_count(source->trace)) {
      if (c->has_prototypes) {
        ct_view_prototypes_destroy(&c->prototypes);
      }
      c->has_prototypes = false;
      c->thread = 0;
      c->source++;
      continue;
    }
    if (!has_thread(c, source)) {
      c->thread++;
      continue;
    }
    if (!c->has_prototypes) {
      ct_view_prototypes_init(&c->prototypes, source->trace);
      c->has_prototypes = true;
    }
    if ((c->reader == NULL && ct_call_values_open(source->trace, c->thread, &c->reader, NULL) != 0) ||
        ct_call_values_next(c->reader, &c->call) != 0) {
      return SQLITE_NOMEM;
    }
    if (c->call != NULL) {
      make_rows(c, source);
    } else {
      ct_call_values_close(c->reader);
      c->reader = NULL;
      c->thread++;
    }
    if (c->failed) {
      return SQLITE_NOMEM;
    }
  }
  return SQLITE_OK;
}

/* A number that is compared with a column of integers; false: none of them is equal. */
static bool
take_number(sqlite3_value *value, int64_t *number)
{
  return ct_sql_whole(value, number) && *number >= 0;
}

static bool
take_text(sqlite3_value *value, char **text)
{
  const char *given = sqlite3_value_type(value) == SQLITE_TEXT ? (const char *)sqlite3_value_text(value) : NULL;
  *text = given != NULL ? strdup(given) : NULL;
  return *text != NULL;
}

static int
values_filter(sqlite3_vtab_cursor *base, int plan, const char *letters, int argc, sqlite3_value **argv)
{
  (void)plan;
  struct values_cursor *c = (struct values_cursor *)base;
  forget_query(c);
  for (int i = 0; i < argc; i++) {
    bool ok = letters[i] == 'i'   ? take_number(argv[i], &c->wanted_id)
              : letters[i] == 't' ? take_number(argv[i], &c->wanted_thread)
              : letters[i] == 'f' ? take_number(argv[i], &c->wanted_function)
              : letters[i] == 'n' ? take_text(argv[i], &c->wanted_name)
                                  : take_text(argv[i], &c->wanted_kind);
    if (!ok) {
      c->source = c->sql->source_count;
      return SQLITE_OK;
    }
  }
  return find_row(c);
}

static int
values_next(sqlite3_vtab_cursor *base)
{
  struct values_cursor *c = (struct values_cursor *)base;
  c->at++;
  return find_row(c);
}

static int
values_eof(sqlite3_vtab_cursor *base)
{
  const struct values_cursor *c = (const struct values_cursor *)base;
  return c->source >= c->sql->source_count;
}

/* ---- columns ---- */

static void
put_json(sqlite3_context *out, const json_t *value)
{
  if (json_is_string(value)) {
    sqlite3_result_text(out, json_string_value(value), -1, SQLITE_TRANSIENT);
  } else if (json_is_integer(value)) {
    sqlite3_result_int64(out, json_integer_value(value));
  } else if (json_is_real(value)) {
    sqlite3_result_double(out, json_real_value(value));
  } else if (json_is_boolean(value)) {
    sqlite3_result_int64(out, json_is_true(value));
  } else if (!json_is_null(value)) {
    char *text = json_dumps(value, JSON_COMPACT);
    sqlite3_result_text(out, text, -1, SQLITE_TRANSIENT);
    free(text);
  }
}

/* The bytes in hexadecimal, as replay --json has them. */
static void
put_stack(sqlite3_context *out, const struct ct_detail *raw)
{
  static const char digits[] = "0123456789abcdef";
  char *text = malloc(2 * (size_t)raw->stack_bytes + 1);
  if (text == NULL) {
    sqlite3_result_error_nomem(out);
    return;
  }
  for (uint32_t i = 0; i < raw->stack_bytes; i++) {
    text[2 * i] = digits[raw->stack[i] >> 4];
    text[2 * i + 1] = digits[raw->stack[i] & 15];
  }
  sqlite3_result_text(out, text, (int)(2 * raw->stack_bytes), free);
}

static void
put_value(sqlite3_context *out, const struct values_cursor *c, const struct row *row, int column)
{
  const json_t *typed = column == C_TYPE    ? json_object_get(row->typed, "type")
                        : column == C_VALUE ? json_object_get(row->typed, "value")
                                            : json_object_get(row->typed, "text");
  if (column == C_TEXT && json_object_get(row->typed, "error") != NULL) {
    typed = json_object_get(row->typed, "error");
  }
  if (typed != NULL) {
    put_json(out, typed);
  } else if (column == C_VALUE && row->has_raw) {
    sqlite3_result_int64(out, (sqlite3_int64)row->raw);
  } else if (column == C_TEXT && row->kind == STACK) {
    put_stack(out, c->call->raw);
  }
}

static int
values_column(sqlite3_vtab_cursor *base, sqlite3_context *out, int column)
{
  const struct values_cursor *c = (const struct values_cursor *)base;
  const struct ct_sql_source *source = &c->sql->sources[c->source];
  const struct ct_call_values *call = c->call;
  const struct row *row = &c->rows[c->at];
  const struct ct_trace_function *fn = column == C_FUNCTION ? ct_trace_function(source->trace, call->fn) : NULL;
  const uint64_t numbers[] = {[C_ID] = ct_span_id_in(source->trace, c->thread, call->ordinal),
                              [C_THREAD] = source->thread_base + c->thread,
                              [C_TID] = ct_trace_thread(source->trace, c->thread)->tid,
                              [C_PROCESS] = source->pid,
                              [C_FUNCTION_ID] = source->function_base + call->fn,
                              [C_DEPTH] = call->depth,
                              [C_NUMBER] = row->number,
                              [C_RAW] = row->raw};
  switch (column) {
  case C_TIME:
    sqlite3_result_int64(out, ct_sql_time(source, call->tsc));
    break;
  case C_FUNCTION:
    sqlite3_result_text(out, fn != NULL ? fn->name : "?", -1, SQLITE_STATIC);
    break;
  case C_KIND:
    sqlite3_result_text(out, kind_names[row->kind], -1, SQLITE_STATIC);
    break;
  case C_NAME:
    if (row->name != NULL) {
      sqlite3_result_text(out, row->name, -1, SQLITE_TRANSIENT);
    }
    break;
  case C_TYPE:
  case C_VALUE:
  case C_TEXT:
    put_value(out, c, row, column);
    break;
  default:
    if ((column != C_ID && column != C_NUMBER && column != C_RAW) ||
        (column == C_RAW ? row->has_raw : numbers[column] != 0)) {
      sqlite3_result_int64(out, (sqlite3_int64)numbers[column]);
    }
    break;
  }
  return SQLITE_OK;
}

static int
values_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid)
{
  const struct values_cursor *c = (const struct values_cursor *)base;
  uint64_t id = ct_span_id_in(c->sql->sources[c->source].trace, c->thread, c->call->ordinal);
  *rowid = ct_sql_row_number(id, c->rows[c->at].kind, c->rows[c->at].number);
  return SQLITE_OK;
}

CT_SQL_MODULE(values);

int
ct_sql_values_register(struct ct_sql *sql)
{
  return sqlite3_create_module(sql->db, "values", &values_module, sql) == SQLITE_OK ? 0 : CT_ENOMEM;
}
