/* SPDX-License-Identifier: MIT */
/*
 * The table step_calls: the calls that instructions make (steps/calls.h), with how many instructions each took. A
 * thread's are all read when the first query comes to them, and kept: some 60 bytes a call.
 */
#include "sql/sql_internal.h"
#include "sql/sql_steps.h"

#include "base/demangle.h"
#include "base/error.h"
#include "steps/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
static const char columns[] =
    "id INTEGER, parent_id INTEGER, tid INTEGER, process INTEGER, function TEXT, module TEXT, caller TEXT, first_step "
    "INTEGER, instructions INTEGER, self_instructions INTEGER, start INTEGER, duration INTEGER, depth INTEGER, stack "
    "INTEGER, reason TEXT, flags TEXT";
enum { C_ID, C_PARENT, C_TID, C_PROCESS, C_FUNCTION, C_MODULE, C_CALLER, C_STEP, C_INSTRUCTIONS, C_SELF, C_START };
enum { C_DURATION = C_START + 1, C_DEPTH, C_STACK, C_REASON, C_FLAGS };

struct call {
  uint64_t step;  /* its first one */
  uint64_t ran;   /* steps that its stack had made before; when it has ended, it itself, with its callees */
  uint64_t inner; /* steps of calls that it made */
  uint64_t tsc, end_tsc;
  uint32_t parent, fn, depth, stack;
  uint8_t end; /* enum ct_steps_call_kind; CT_STEPS_CALL_ENTER: it is open */
  bool before;
};

struct function {
  char *name, *module; /* NULL: not known */
};

/* Those of a thread. */
struct ct_sql_step_calls {
  struct ct_sql *sql;
  struct call *calls;
  size_t count, capacity;
  struct function *functions;
  size_t function_count, function_capacity;
  struct stack {
    uint64_t ran; /* steps on it, up to when it was left last */
    uint32_t top; /* its innermost call, or NONE */
  } *stacks;
  size_t stack_count;
  uint32_t current;
  uint64_t since; /* the step at which the current stack was entered */
  struct ct_steps_calls_facts facts;
  bool is_read;
};

/* ---- reading ---- */

static int
take_function(void *context, const struct ct_steps_call_function *function)
{
  struct ct_sql_step_calls *c = context;
  char place[64];
  if (function->id >= c->function_capacity) {
    size_t capacity = 2 * ((size_t)function->id + 128);
    struct function *grown = reallocarray(c->functions, capacity, sizeof(*grown));
    if (grown == NULL) {
      return CT_ENOMEM;
    }
    c->functions = grown;
    c->function_capacity = capacity;
  }
  const char *slash = function->module != NULL ? strrchr(function->module, '/') : NULL;
  const char *module = slash != NULL ? slash + 1 : function->module;
  snprintf(place, sizeof(place), "%.32s+0x%llx", module != NULL ? module : "", (unsigned long long)function->address);
  char *readable = function->raw != NULL ? ct_demangle_name(function->raw) : NULL;
  struct function *made = &c->functions[function->id];
  *made = (struct function){.name = readable != NULL ? strndup(readable, ct_demangled_name_length(readable))
                                                     : strdup(function->raw != NULL ? function->raw : place),
                            .module = module != NULL ? strdup(module) : NULL};
  free(readable);
  c->function_count = function->id + 1u;
  return made->name != NULL ? 0 : CT_ENOMEM;
}

static bool
reach_stack(struct ct_sql_step_calls *c, uint32_t stack)
{
  if (stack < c->stack_count) {
    return true;
  }
  struct stack *grown = reallocarray(c->stacks, (size_t)stack + 1, sizeof(*grown));
  if (grown == NULL) {
    return false;
  }
  c->stacks = grown;
  while (c->stack_count <= stack) {
    grown[c->stack_count++] = (struct stack){.top = NONE};
  }
  return true;
}

/* Steps that were made on the stack before that one. */
static uint64_t
ran_before(const struct ct_sql_step_calls *c, uint32_t stack, uint64_t step)
{
  return c->stacks[stack].ran + (stack == c->current ? step - c->since : 0);
}

static void
go_to_stack(struct ct_sql_step_calls *c, uint32_t stack, uint64_t step)
{
  c->stacks[c->current].ran = ran_before(c, c->current, step);
  c->current = stack;
  c->since = step;
}

static int
begin_call(struct ct_sql_step_calls *c, const struct ct_steps_call *event)
{
  if (c->count == c->capacity) {
    size_t capacity = c->capacity == 0 ? 4096 : 2 * c->capacity;
    struct call *grown = capacity < NONE ? reallocarray(c->calls, capacity, sizeof(*grown)) : NULL;
    if (grown == NULL) {
      return CT_ENOMEM;
    }
    c->calls = grown;
    c->capacity = capacity;
  }
  uint32_t parent = c->stacks[event->stack].top;
  c->calls[c->count] = (struct call){.step = event->step,
                                     .ran = ran_before(c, event->stack, event->step),
                                     .tsc = event->tsc,
                                     .parent = parent,
                                     .fn = event->fn,
                                     .depth = parent != NONE ? c->calls[parent].depth + 1 : 0,
                                     .stack = event->stack,
                                     .before = event->before};
  c->stacks[event->stack].top = (uint32_t)c->count++;
  return 0;
}

static void
end_call(struct ct_sql_step_calls *c, uint32_t stack, uint8_t kind, uint64_t step, uint64_t tsc)
{
  uint32_t top = c->stacks[stack].top;
  if (top == NONE) {
    return;
  }
  struct call *call = &c->calls[top];
  call->end = kind;
  call->ran = ran_before(c, stack, step) - call->ran;
  call->end_tsc = tsc;
  c->stacks[stack].top = call->parent;
  if (call->parent != NONE) {
    c->calls[call->parent].inner += call->ran;
  }
}

/* All that are open. */
static void
end_all(struct ct_sql_step_calls *c, uint8_t kind, uint64_t step, uint64_t tsc)
{
  for (uint32_t i = 0; i < c->stack_count; i++) {
    while (c->stacks[i].top != NONE) {
      end_call(c, i, kind, step, tsc);
    }
  }
}

static int
take_event(void *context, const struct ct_steps_call *event)
{
  struct ct_sql_step_calls *c = context;
  if (!reach_stack(c, event->stack) || !reach_stack(c, c->current)) {
    return CT_ENOMEM;
  }
  switch (event->kind) {
  case CT_STEPS_CALL_TAIL:
    end_call(c, event->stack, CT_STEPS_CALL_TAIL, event->step, event->tsc);
    return begin_call(c, event);
  case CT_STEPS_CALL_ENTER:
    return (c->count & 0xffff) == 0xffff && ct_sql_is_over(c->sql) ? CT_ETIMEOUT : begin_call(c, event);
  case CT_STEPS_CALL_RETURN:
  case CT_STEPS_CALL_UNWOUND:
  case CT_STEPS_CALL_GONE:
    end_call(c, event->stack, event->kind, event->step, event->tsc);
    return 0;
  case CT_STEPS_CALL_SWITCH:
    go_to_stack(c, event->stack, event->step);
    return 0;
  case CT_STEPS_CALL_EXEC:
    end_all(c, CT_STEPS_CALL_EXEC, event->step, event->tsc);
    go_to_stack(c, 0, event->step);
    return 0;
  default:
    return 0;
  }
}

static void
empty(struct ct_sql_step_calls *c)
{
  for (size_t i = 0; i < c->function_count; i++) {
    free(c->functions[i].name);
    free(c->functions[i].module);
  }
  free(c->functions);
  free(c->calls);
  free(c->stacks);
  *c = (struct ct_sql_step_calls){.sql = c->sql};
}

static int
read_calls(struct ct_sql_step_calls *c, const char *path)
{
  struct ct_steps_calls_callbacks callbacks = {take_function, take_event, c};
  int code = c->is_read ? 0 : ct_steps_calls_read(path, &callbacks, &c->facts, &c->sql->diag);
  if (code != 0) {
    empty(c);
  } else if (!c->is_read) {
    end_all(c, CT_STEPS_CALL_ENTER, c->facts.steps, c->facts.last_tsc);
    c->is_read = true;
  }
  return code;
}

const char *
ct_sql_step_calls_damage(const struct ct_sql *sql)
{
  const char *damage = "";
  for (size_t i = 0; i < sql->step_calls_count && damage[0] == '\0'; i++) {
    damage = sql->step_calls[i].facts.damage;
  }
  return damage;
}

void
ct_sql_step_calls_free(struct ct_sql *sql)
{
  for (size_t i = 0; i < sql->step_calls_count; i++) {
    empty(&sql->step_calls[i]);
  }
  free(sql->step_calls);
}

/* ---- the table ---- */

enum { THREAD_SHIFT = 40 }; /* of an id */

struct calls_cursor {
  sqlite3_vtab_cursor base;
  struct ct_sql *sql;
  bool has_tid, is_single;
  sqlite3_int64 tid, only;
  size_t thread, at;
};

static int
calls_connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out, char **error)
{
  (void)db;
  (void)argc;
  (void)argv;
  (void)error;
  return ct_sql_connect(aux, columns, sizeof(struct ct_sql_table), out);
}

/* = of tid (1) leaves threads unread, = of id (2) is one row. */
static int
calls_best(sqlite3_vtab *base, sqlite3_index_info *info)
{
  (void)base;
  int count = 0;
  info->estimatedCost = 1e7;
  info->estimatedRows = 10000000;
  for (int i = 0; i < info->nConstraint; i++) {
    const struct sqlite3_index_constraint *constraint = &info->aConstraint[i];
    int bit = constraint->iColumn == C_TID ? 1 : constraint->iColumn == C_ID ? 2 : 0;
    if (constraint->usable && constraint->op == SQLITE_INDEX_CONSTRAINT_EQ && bit != 0 && info->idxNum == 0) {
      info->idxNum = bit;
      info->aConstraintUsage[i].argvIndex = ++count;
      info->estimatedRows = bit == 2 ? 1 : 1000000;
      info->estimatedCost = bit == 2 ? 10 : 1e6;
    }
  }
  return SQLITE_OK;
}

static int
calls_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
  struct calls_cursor *cursor = calloc(1, sizeof(*cursor));
  if (cursor == NULL) {
    return SQLITE_NOMEM;
  }
  cursor->sql = ((struct ct_sql_table *)base)->sql;
  *out = &cursor->base;
  return SQLITE_OK;
}

static int
calls_close(sqlite3_vtab_cursor *base)
{
  free(base);
  return SQLITE_OK;
}

/* Of the thread's first call, and so on: the same whichever threads are asked for, so these alone are read. */
static int64_t
first_id(const struct calls_cursor *c)
{
  return (int64_t)((uint64_t)c->thread << THREAD_SHIFT);
}

/* At a call of the thread, or of the next one that has any. */
static int
find(struct calls_cursor *c)
{
  struct ct_sql *sql = c->sql;
  for (; c->thread < sql->recorded_count; c->thread++, c->at = 0) {
    if ((c->has_tid && (sqlite3_int64)ct_sql_recorded_tid(sql->recorded[c->thread]) != c->tid) ||
        (c->is_single && c->only >> THREAD_SHIFT != (int64_t)c->thread)) {
      continue;
    }
    struct ct_sql_step_calls *calls = &sql->step_calls[c->thread];
    int code = read_calls(calls, ct_sql_recorded_path(sql->recorded[c->thread]));
    if (code != 0) {
      return code == CT_ENOMEM     ? SQLITE_NOMEM
             : code == CT_ETIMEOUT ? SQLITE_INTERRUPT
                                   : ct_sql_table_failed(c->base.pVtab);
    }
    c->at = c->is_single ? (size_t)(c->only - first_id(c)) : c->at;
    if (c->at < calls->count) {
      return SQLITE_OK;
    }
  }
  return SQLITE_OK;
}

static bool
reach_threads(struct ct_sql *sql)
{
  size_t count = sql->recorded_count;
  if (sql->step_calls_count >= count) {
    return true;
  }
  struct ct_sql_step_calls *grown = reallocarray(sql->step_calls, count, sizeof(*grown));
  if (grown == NULL) {
    return false;
  }
  sql->step_calls = grown;
  while (sql->step_calls_count < count) {
    grown[sql->step_calls_count++] = (struct ct_sql_step_calls){.sql = sql};
  }
  return true;
}

static int
calls_filter(sqlite3_vtab_cursor *base, int plan, const char *text, int argc, sqlite3_value **argv)
{
  struct calls_cursor *c = (struct calls_cursor *)base;
  (void)text;
  if (!reach_threads(c->sql)) {
    return SQLITE_NOMEM;
  }
  c->thread = c->at = 0;
  c->has_tid = plan == 1 && argc == 1 && sqlite3_value_type(argv[0]) == SQLITE_INTEGER;
  c->is_single = plan == 2 && argc == 1 && sqlite3_value_type(argv[0]) == SQLITE_INTEGER;
  c->tid = c->has_tid ? sqlite3_value_int64(argv[0]) : 0;
  c->only = c->is_single ? sqlite3_value_int64(argv[0]) : 0;
  return find(c);
}

static int
calls_next(sqlite3_vtab_cursor *base)
{
  struct calls_cursor *c = (struct calls_cursor *)base;
  if (c->is_single) {
    c->thread = c->sql->recorded_count;
    return SQLITE_OK;
  }
  c->at++;
  return find(c);
}

static int
calls_eof(sqlite3_vtab_cursor *base)
{
  const struct calls_cursor *c = (struct calls_cursor *)base;
  return c->thread >= c->sql->recorded_count;
}

static void
put_text(sqlite3_context *out, const char *text)
{
  if (text != NULL && text[0] != '\0') {
    sqlite3_result_text(out, text, -1, SQLITE_TRANSIENT);
  }
}

static const char *
reason_of(const struct call *call)
{
  switch (call->end) {
  case CT_STEPS_CALL_RETURN:
    return "returned";
  case CT_STEPS_CALL_TAIL:
    return "tail call";
  case CT_STEPS_CALL_UNWOUND:
    return "unwound";
  case CT_STEPS_CALL_GONE:
    return "lost";
  case CT_STEPS_CALL_EXEC:
    return "exec";
  default:
    return "open";
  }
}

static void
put_texts(const struct ct_sql_step_calls *calls, const struct call *call, int column, sqlite3_context *out)
{
  switch (column) {
  case C_FUNCTION:
    put_text(out, calls->functions[call->fn].name);
    break;
  case C_MODULE:
    put_text(out, calls->functions[call->fn].module);
    break;
  case C_CALLER:
    put_text(out, call->parent != NONE ? calls->functions[calls->calls[call->parent].fn].name : NULL);
    break;
  case C_REASON:
    put_text(out, reason_of(call));
    break;
  default:
    put_text(out, call->before ? "before" : NULL);
    break;
  }
}

static int
calls_column(sqlite3_vtab_cursor *base, sqlite3_context *out, int column)
{
  const struct calls_cursor *c = (struct calls_cursor *)base;
  const struct ct_sql_step_calls *calls = &c->sql->step_calls[c->thread];
  const struct ct_sql_recorded *recorded = c->sql->recorded[c->thread];
  const struct call *call = &calls->calls[c->at];
  int64_t start = ct_sql_recorded_time(recorded, call->tsc);
  bool has_time = calls->facts.tsc_hz != 0 && call->tsc != 0;
  const int64_t numbers[] = {[C_ID] = first_id(c) + (int64_t)c->at,
                             [C_PARENT] = call->parent != NONE ? first_id(c) + call->parent : -1,
                             [C_TID] = calls->facts.tid,
                             [C_PROCESS] = calls->facts.pid,
                             [C_STEP] = (int64_t)call->step,
                             [C_INSTRUCTIONS] = (int64_t)call->ran,
                             [C_SELF] = (int64_t)(call->ran - call->inner),
                             [C_START] = has_time ? start : -1,
                             [C_DURATION] = has_time ? ct_sql_recorded_time(recorded, call->end_tsc) - start : -1,
                             [C_DEPTH] = call->depth,
                             [C_STACK] = call->stack};
  if (column == C_FUNCTION || column == C_MODULE || column == C_CALLER || column >= C_REASON) {
    put_texts(calls, call, column, out);
  } else if (numbers[column] >= 0) {
    sqlite3_result_int64(out, numbers[column]);
  }
  return SQLITE_OK;
}

static int
calls_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *row)
{
  const struct calls_cursor *c = (struct calls_cursor *)base;
  *row = first_id(c) + (int64_t)c->at;
  return SQLITE_OK;
}

CT_SQL_MODULE(calls);

int
ct_sql_step_calls_register(struct ct_sql *sql)
{
  return sqlite3_create_module_v2(sql->db, "step_calls", &calls_module, sql, NULL) == SQLITE_OK ? 0 : CT_ENOMEM;
}
