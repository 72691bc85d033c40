/* SPDX-License-Identifier: MIT */
/* SQL functions of ours: duration_text(ns), demangle(name), percentile(x, p). */
#include "sql/sql_internal.h"

#include "base/demangle.h"

#include <contrail/text.h>

#include <math.h>
#include <stdlib.h>

static void
duration_text(sqlite3_context *out, int argc, sqlite3_value **argv)
{
  (void)argc;
  char text[CT_DURATION_CHARS];
  sqlite3_int64 ns = sqlite3_value_int64(argv[0]);
  if (sqlite3_value_type(argv[0]) != SQLITE_NULL && ns >= 0) {
    sqlite3_result_text(out, ct_format_duration(text, (uint64_t)ns), -1, SQLITE_TRANSIENT);
  }
}

static void
demangle(sqlite3_context *out, int argc, sqlite3_value **argv)
{
  (void)argc;
  const char *name = (const char *)sqlite3_value_text(argv[0]);
  char *text = name != NULL ? ct_demangle(name) : NULL;
  if (name != NULL) {
    sqlite3_result_text(out, text != NULL ? text : name, -1, SQLITE_TRANSIENT);
  }
  free(text);
}

struct sample {
  double *values;
  size_t count, capacity;
  double percent;
  bool failed;
};

static void
percentile_step(sqlite3_context *out, int argc, sqlite3_value **argv)
{
  (void)argc;
  struct sample *sample = sqlite3_aggregate_context(out, sizeof(*sample));
  if (sample == NULL || sqlite3_value_type(argv[0]) == SQLITE_NULL) {
    return;
  }
  if (sample->count == sample->capacity) {
    size_t capacity = sample->capacity == 0 ? 256 : sample->capacity * 2;
    double *values = reallocarray(sample->values, capacity, sizeof(*values));
    if (values == NULL) {
      sample->failed = true;
      return;
    }
    sample->values = values;
    sample->capacity = capacity;
  }
  sample->percent = sqlite3_value_double(argv[1]);
  sample->values[sample->count++] = sqlite3_value_double(argv[0]);
}

static int
compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Nearest rank. */
static void
percentile_final(sqlite3_context *out)
{
  struct sample *sample = sqlite3_aggregate_context(out, 0);
  if (sample == NULL) {
    return;
  }
  if (sample->failed) {
    sqlite3_result_error_nomem(out);
  } else if (sample->percent < 0 || sample->percent > 100) {
    sqlite3_result_error(out, "percentile(x, p): p is from 0 to 100", -1);
  } else if (sample->count != 0) {
    qsort(sample->values, sample->count, sizeof(*sample->values), compare);
    double rank = ceil(sample->percent / 100 * (double)sample->count);
    sqlite3_result_double(out, sample->values[rank < 1 ? 0 : (size_t)rank - 1]);
  }
  free(sample->values);
}

int
ct_sql_functions_register(sqlite3 *db)
{
  int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC;
  return sqlite3_create_function(db, "duration_text", 1, flags, NULL, duration_text, NULL, NULL) == SQLITE_OK &&
                 sqlite3_create_function(db, "demangle", 1, flags, NULL, demangle, NULL, NULL) == SQLITE_OK &&
                 sqlite3_create_function(db, "percentile", 2, SQLITE_UTF8, NULL, NULL, percentile_step,
                                         percentile_final) == SQLITE_OK
             ? 0
             : CT_ENOMEM;
}
