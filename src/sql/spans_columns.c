/* SPDX-License-Identifier: MIT */
/* The columns of a row of spans. */
#include "sql/spans_grouped.h"

#include <stdio.h>

static void
result_id(sqlite3_context *out, const struct ct_sql_source *source, uint32_t thread, uint64_t ordinal)
{
  uint64_t id = ct_span_id_in(source->trace, thread, ordinal);
  if (id != 0) {
    sqlite3_result_int64(out, (sqlite3_int64)id);
  }
}

const char *
ct_sql_span_name(const struct ct_sql_source *source, uint32_t fn, bool module)
{
  const struct ct_trace_function *function = ct_trace_function(source->trace, fn);
  return function == NULL ? "?" : module ? ct_trace_module_name(source->trace, function->module) : function->name;
}

static void
result_name(sqlite3_context *out, const struct ct_sql_source *source, uint32_t fn, bool module)
{
  if (fn != UINT32_MAX) {
    sqlite3_result_text(out, ct_sql_span_name(source, fn, module), -1, SQLITE_STATIC);
  }
}

/* Words, one after the other. */
static void
result_flags(sqlite3_context *out, const struct ct_span *span)
{
  char text[64] = "";
  bool is_before = span->uncertain & CT_SPAN_BEFORE;
  bool is_uncounted = span->ordinal != CT_NO_ORDINAL && (span->ordinal & CT_ORDINAL_BEFORE) != 0;
  int length =
      snprintf(text, sizeof(text), "%s%s%s%s%s", ct_span_is_unfinished(span->end) ? " unfinished" : "",
               span->uncertain & CT_SPAN_UNCERTAIN ? " uncertain" : "", is_before ? " before" : "",
               is_uncounted ? " uncounted" : "", span->end == CT_SPAN_POINT && span->calls > 1 ? " sampled" : "");
  if (length > 0) {
    sqlite3_result_text(out, text + 1, length - 1, SQLITE_TRANSIENT);
  }
}

/* Points have no duration; where there are only bounds of it nobody knows when a call was off the processor. */
static void
result_time(sqlite3_context *out, const struct ct_sql_source *source, const struct ct_span *span, int column)
{
  uint64_t ticks = column == C_SELF ? span->self_ticks : column == C_OFF ? span->off_ticks : span->duration_ticks;
  if (span->end != CT_SPAN_POINT && (column != C_OFF || !ct_trace_has_bounds(source->trace))) {
    sqlite3_result_int64(out, (sqlite3_int64)ct_trace_ticks_ns(source->trace, ticks));
  }
}

void
ct_sql_span_column(const struct ct_sql_source *source, const struct ct_span *s, int column, sqlite3_context *out)
{
  switch (column) {
  case C_ID:
    result_id(out, source, s->thread, s->ordinal);
    break;
  case C_PARENT:
    result_id(out, source, s->thread, s->parent_ordinal);
    break;
  case C_THREAD:
    sqlite3_result_int64(out, (sqlite3_int64)(source->thread_base + s->thread));
    break;
  case C_TID:
    sqlite3_result_int64(out, ct_trace_thread(source->trace, s->thread)->tid);
    break;
  case C_PROCESS:
    sqlite3_result_int64(out, source->pid);
    break;
  case C_FUNCTION:
    result_name(out, source, s->fn, false);
    break;
  case C_FUNCTION_ID:
    sqlite3_result_int64(out, (sqlite3_int64)(source->function_base + s->fn));
    break;
  case C_MODULE:
    result_name(out, source, s->fn, true);
    break;
  case C_CALLER:
    result_name(out, source, s->caller_fn, false);
    break;
  case C_START:
  case C_END:
    sqlite3_result_int64(out, ct_sql_time(source, column == C_START ? s->enter_tsc : s->end_tsc));
    break;
  case C_DURATION:
  case C_SELF:
  case C_OFF:
    result_time(out, source, s, column);
    break;
  case C_DEPTH:
    sqlite3_result_int64(out, s->depth);
    break;
  case C_REASON:
    sqlite3_result_text(out, ct_span_end_text(s->end), -1, SQLITE_STATIC);
    break;
  case C_STACK:
    sqlite3_result_int64(out, s->context);
    break;
  case C_CALLS:
    sqlite3_result_int64(out, s->end == CT_SPAN_POINT ? s->calls : 1);
    break;
  case C_FLAGS:
    if (s->uncertain != 0 || s->calls > 1 || s->end > CT_SPAN_RETURNED || (s->ordinal & CT_ORDINAL_BEFORE) != 0) {
      result_flags(out, s);
    }
    break;
  default:
    break;
  }
}
