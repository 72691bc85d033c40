/* SPDX-License-Identifier: MIT */
/* The table of events, as the trace has them: thread after thread, read from its begin each time. */
#include "sql/sql_internal.h"

#include <stdlib.h>

enum { C_THREAD, C_TID, C_PROCESS, C_TIME, C_TYPE, C_FUNCTION, C_FUNCTION_ID, C_ID, C_DEPTH, C_VALUE, C_REASON };
const char *const ct_sql_events_columns =
    "thread INTEGER, tid INTEGER, process INTEGER, time INTEGER, type TEXT, function TEXT, function_id INTEGER, id "
    "INTEGER, depth INTEGER, value INTEGER, reason INTEGER";

struct events_cursor {
  sqlite3_vtab_cursor base;
  struct ct_sql *sql;
  size_t source;
  uint32_t thread;
  int64_t wanted_thread; /* of the database; -1: all */
  struct ct_cursor *cursor;
  const struct ct_event *events;
  size_t count, at;
  uint64_t ordinal, before; /* of the next call; CT_ORDINAL_BEFORE and the block */
  uint64_t call;            /* ordinal of the event in hand, CT_NO_ORDINAL: it is no call */
  int64_t row;              /* of the thread */
};

static int
events_connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out, char **error)
{
  (void)db;
  (void)argc;
  (void)argv;
  (void)error;
  return ct_sql_connect(aux, ct_sql_events_columns, sizeof(struct ct_sql_table), out);
}

static int
events_best(sqlite3_vtab *base, sqlite3_index_info *info)
{
  (void)base;
  info->estimatedCost = 1e9;
  info->estimatedRows = 100000000;
  for (int i = 0; i < info->nConstraint; i++) {
    if (info->aConstraint[i].usable && info->aConstraint[i].op == SQLITE_INDEX_CONSTRAINT_EQ &&
        info->aConstraint[i].iColumn == C_THREAD) {
      info->aConstraintUsage[i].argvIndex = 1;
      info->estimatedCost = 1e8;
      info->idxNum = 1;
      break;
    }
  }
  return SQLITE_OK;
}

static int
events_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
  struct events_cursor *cursor = calloc(1, sizeof(*cursor));
  if (cursor == NULL) {
    return SQLITE_NOMEM;
  }
  cursor->sql = ((struct ct_sql_table *)base)->sql;
  *out = &cursor->base;
  return SQLITE_OK;
}

static int
events_close(sqlite3_vtab_cursor *base)
{
  ct_cursor_close(((struct events_cursor *)base)->cursor);
  free(base);
  return SQLITE_OK;
}

static void
note_call(struct events_cursor *c)
{
  const struct ct_event *event = &c->events[c->at];
  c->call = CT_NO_ORDINAL;
  if (event->kind == CT_EV_ENTER || event->kind == CT_EV_TAIL || event->kind == CT_EV_POINT) {
    c->call = c->before != 0 ? c->before | event->depth : c->ordinal++;
  }
}

/* At an event, or past the last one: source is source_count. */
static int
find_event(struct events_cursor *c)
{
  while (c->source < c->sql->source_count) {
    struct ct_sql_source *source = &c->sql->sources[c->source];
    if (c->thread >= ct_trace_thread_count(source->trace)) {
      c->source++;
      c->thread = 0;
      continue;
    }
    if (!ct_sql_has_thread(source, c->thread) ||
        (c->wanted_thread >= 0 && (uint64_t)c->wanted_thread != source->thread_base + c->thread)) {
      c->thread++;
      continue;
    }
    if (c->cursor == NULL && ct_cursor_open(source->trace, c->thread, 0, &c->cursor, NULL) != 0) {
      return SQLITE_NOMEM;
    }
    c->at = 0;
    c->count = ct_cursor_next(c->cursor, &c->events);
    if (c->count != 0) {
      uint64_t ordinal = ct_cursor_ordinal(c->cursor);
      c->before = ordinal & CT_ORDINAL_BEFORE ? ordinal : 0;
      c->ordinal = c->before == 0 ? ordinal : c->ordinal;
      note_call(c);
      return SQLITE_OK;
    }
    ct_cursor_close(c->cursor);
    c->cursor = NULL;
    c->row = 0;
    c->thread++;
  }
  return SQLITE_OK;
}

static int
events_filter(sqlite3_vtab_cursor *base, int plan, const char *text, int argc, sqlite3_value **argv)
{
  (void)text;
  struct events_cursor *c = (struct events_cursor *)base;
  ct_cursor_close(c->cursor);
  *c = (struct events_cursor){.base = c->base, .sql = c->sql, .wanted_thread = -1};
  if (plan == 1 && argc == 1) {
    if (!ct_sql_whole(argv[0], &c->wanted_thread) || c->wanted_thread < 0) {
      c->source = c->sql->source_count;
      return SQLITE_OK;
    }
  }
  return find_event(c);
}

static int
events_next(sqlite3_vtab_cursor *base)
{
  struct events_cursor *c = (struct events_cursor *)base;
  c->row++;
  if (++c->at < c->count) {
    note_call(c);
    return SQLITE_OK;
  }
  return find_event(c);
}

static int
events_eof(sqlite3_vtab_cursor *base)
{
  const struct events_cursor *c = (const struct events_cursor *)base;
  return c->source >= c->sql->source_count;
}

static const char *
type_name(unsigned kind)
{
  static const char *const names[] = {
      [CT_EV_RETURN] = "return",        [CT_EV_ENTER] = "enter",       [CT_EV_TAIL] = "tail",
      [CT_EV_POINT] = "point",          [CT_EV_UNWOUND] = "left",      [CT_EV_LOST] = "lost",
      [CT_EV_ORPHAN_RETURN] = "orphan", [CT_EV_SWITCH] = "switch",     [CT_EV_EXEC] = "exec",
      [CT_EV_VALUE] = "value",          [CT_EV_INTERVAL] = "interval", [CT_EV_AWAY] = "away",
      [CT_EV_COUNTED] = "counted"};
  return kind < sizeof(names) / sizeof(names[0]) && names[kind] != NULL ? names[kind] : "?";
}

static bool
has_function(const struct ct_event *event)
{
  return event->kind != CT_EV_LOST && event->kind != CT_EV_SWITCH && event->kind != CT_EV_EXEC &&
         event->kind != CT_EV_INTERVAL && event->fn != UINT32_MAX;
}

static int
events_column(sqlite3_vtab_cursor *base, sqlite3_context *out, int column)
{
  const struct events_cursor *c = (const struct events_cursor *)base;
  const struct ct_sql_source *source = &c->sql->sources[c->source];
  const struct ct_event *event = &c->events[c->at];
  const struct ct_trace_function *fn = has_function(event) ? ct_trace_function(source->trace, event->fn) : NULL;
  uint64_t id;
  switch (column) {
  case C_THREAD:
    sqlite3_result_int64(out, (sqlite3_int64)(source->thread_base + c->thread));
    break;
  case C_TID:
    sqlite3_result_int64(out, ct_trace_thread(source->trace, c->thread)->tid);
    break;
  case C_PROCESS:
    sqlite3_result_int64(out, source->pid);
    break;
  case C_TIME:
    sqlite3_result_int64(out, ct_sql_time(source, event->tsc));
    break;
  case C_TYPE:
    sqlite3_result_text(out, type_name(event->kind), -1, SQLITE_STATIC);
    break;
  case C_FUNCTION:
    if (has_function(event)) {
      sqlite3_result_text(out, fn != NULL ? fn->name : "?", -1, SQLITE_STATIC);
    }
    break;
  case C_FUNCTION_ID:
    if (has_function(event)) {
      sqlite3_result_int64(out, (sqlite3_int64)(source->function_base + event->fn));
    }
    break;
  case C_ID:
    id = ct_span_id_in(source->trace, c->thread, c->call);
    if (id != 0) {
      sqlite3_result_int64(out, (sqlite3_int64)id);
    }
    break;
  case C_DEPTH:
    sqlite3_result_int64(out, event->depth);
    break;
  case C_VALUE:
    if (event->kind == CT_EV_AWAY) {
      sqlite3_result_int64(out, (sqlite3_int64)ct_trace_ticks_ns(source->trace, event->value));
    } else if (event->kind != CT_EV_RETURN && event->kind != CT_EV_ENTER && event->kind != CT_EV_TAIL) {
      sqlite3_result_int64(out, (sqlite3_int64)event->value);
    }
    break;
  case C_REASON:
    if (event->reason != 0) {
      sqlite3_result_int64(out, event->reason);
    }
    break;
  default:
    break;
  }
  return SQLITE_OK;
}

static int
events_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid)
{
  const struct events_cursor *c = (const struct events_cursor *)base;
  *rowid = (int64_t)((c->sql->sources[c->source].thread_base + c->thread) << 40) + c->row;
  return SQLITE_OK;
}

CT_SQL_MODULE(events);

int
ct_sql_events_register(struct ct_sql *sql)
{
  return sqlite3_create_module(sql->db, "events", &events_module, sql) == SQLITE_OK ? 0 : CT_ENOMEM;
}
