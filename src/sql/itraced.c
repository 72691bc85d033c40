/* SPDX-License-Identifier: MIT */
/* The table of calls that were recorded as instructions: which steps are whose. */
#include "sql/sql_internal.h"

static const struct ct_itraced *
itraced_of(struct ct_sql_source *source)
{
  if (!source->has_itraced) {
    source->has_itraced = true;
    if (ct_trace_itraced(source->trace, &source->itraced) != 0) {
      source->itraced = (struct ct_itraced){.count = 0};
    }
  }
  return &source->itraced;
}

int64_t
ct_sql_count_itraced(struct ct_sql *sql, struct ct_sql_source *source)
{
  (void)sql;
  return (int64_t)itraced_of(source)->count;
}

/* UINT32_MAX: none. Of several threads that had the id it is the first one that ended later. */
static uint32_t
thread_of(const struct ct_sql_source *source, const struct ct_itraced_call *call)
{
  uint32_t found = UINT32_MAX;
  for (uint32_t i = 0; i < ct_trace_thread_count(source->trace); i++) {
    const struct ct_trace_thread *thread = ct_trace_thread(source->trace, i);
    if (thread->tid == call->tid) {
      found = i;
      if (thread->end_tsc == 0 || thread->end_tsc >= call->tsc) {
        break;
      }
    }
  }
  return found;
}

bool
ct_sql_has_itraced(struct ct_sql_source *source, uint64_t row)
{
  uint32_t thread = thread_of(source, &itraced_of(source)->calls[row]);
  return source->threads == NULL || (thread != UINT32_MAX && source->threads[thread] != 0);
}

void
ct_sql_column_itraced(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column, sqlite3_context *out)
{
  (void)sql;
  const struct ct_itraced_call *call = &itraced_of(source)->calls[row];
  const struct ct_trace_function *function = ct_trace_function(source->trace, call->fn);
  uint32_t thread = thread_of(source, call);
  switch (column) {
  case 1:
    if (thread != UINT32_MAX) {
      sqlite3_result_int64(out, (sqlite3_int64)(source->thread_base + thread));
    }
    break;
  case 2:
    sqlite3_result_int64(out, call->tid);
    break;
  case 3:
    sqlite3_result_int64(out, source->pid);
    break;
  case 4:
    if (function != NULL) {
      sqlite3_result_text(out, function->name, -1, SQLITE_TRANSIENT);
    }
    break;
  case 5:
    sqlite3_result_int64(out, (sqlite3_int64)(source->function_base + call->fn));
    break;
  case 6:
    if (call->tsc != 0) {
      sqlite3_result_int64(out, ct_sql_time(source, call->tsc));
    }
    break;
  case 7:
    sqlite3_result_int64(out, (sqlite3_int64)call->first_step);
    break;
  case 8:
    sqlite3_result_int64(out, (sqlite3_int64)call->steps);
    break;
  default:
    sqlite3_result_text(out, call->outcome, -1, SQLITE_STATIC);
    break;
  }
}
