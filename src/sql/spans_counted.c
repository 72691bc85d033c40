/* SPDX-License-Identifier: MIT */
/*
 * Rows of spans of which nothing is asked but their function: the statistics of the index say how many there are of
 * each. So no block is read for them, and they come in the order of the names, which SQLite then need not sort.
 */
#include "sql/span_sums.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static const char *
text_of(const struct ct_sql_counted *counted, bool module)
{
  struct ct_trace *trace = counted->source->trace;
  const struct ct_trace_function *function = ct_trace_function(trace, counted->fn);
  return function == NULL ? "?" : module ? ct_trace_module_name(trace, function->module) : function->name;
}

static int
compare_counted(const void *a, const void *b)
{
  const struct ct_sql_counted *x = a, *y = b;
  int order = strcmp(text_of(x, false), text_of(y, false));
  if (order == 0 && x->source != y->source) {
    order = x->source < y->source ? -1 : 1;
  }
  return order != 0 ? order : (x->fn > y->fn) - (x->fn < y->fn);
}

bool
ct_sql_can_count(const struct ct_sql *sql)
{
  for (size_t i = 0; i < sql->source_count; i++) {
    if (ct_sql_is_piece(&sql->sources[i])) {
      return false;
    }
  }
  return true;
}

static int
add_source(struct ct_sql_counting *counting, struct ct_sql *sql, struct ct_sql_source *source)
{
  struct ct_index *index = ct_sql_sums(sql, source);
  if (index == NULL) {
    return CT_EIO;
  }
  const struct ct_stats *stats = ct_index_stats(index);
  size_t room = counting->count + stats->touched_count + 1;
  struct ct_sql_counted *list = reallocarray(counting->list, room, sizeof(*list));
  if (list == NULL) {
    return ct_fail(&sql->diag, CT_ENOMEM, "out of memory for the functions of the trace");
  }
  counting->list = list;
  for (uint32_t i = 0; i < stats->touched_count; i++) {
    uint64_t rows = ct_sql_rows_of(stats, stats->touched[i]);
    if (rows != 0) {
      list[counting->count++] = (struct ct_sql_counted){source, rows, stats->touched[i]};
    }
  }
  return 0;
}

int
ct_sql_counting_begin(struct ct_sql_counting *counting, struct ct_sql *sql)
{
  *counting = (struct ct_sql_counting){.is_on = true};
  for (size_t i = 0; i < sql->source_count; i++) {
    int code = add_source(counting, sql, &sql->sources[i]);
    if (code != 0) {
      return code;
    }
  }
  if (counting->count != 0) {
    qsort(counting->list, counting->count, sizeof(*counting->list), compare_counted);
  }
  return 0;
}

void
ct_sql_counting_end(struct ct_sql_counting *counting)
{
  free(counting->list);
  *counting = (struct ct_sql_counting){0};
}

void
ct_sql_counting_result(const struct ct_sql_counting *counting, bool module, sqlite3_context *out)
{
  sqlite3_result_text(out, text_of(&counting->list[counting->at], module), -1, SQLITE_STATIC);
}
