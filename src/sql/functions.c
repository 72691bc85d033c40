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

/*
 * The values of a percentile, exactly, in memory that does not grow with their number: those that differ, in order,
 * each with how many there are of it, and the last ones as they came. Durations differ by whole ns, so that billions of
 * calls have some ten thousand. More than VALUES_MOST that differ are refused.
 */
enum { RECENT_FEWEST = 256, RECENT_USUAL = 1 << 18, VALUES_MOST = 4000000 };

struct counted {
  double value;
  uint64_t count;
};

struct sample {
  struct counted *values; /* in order, all different */
  double *recent;         /* as they came; among them and values there may be the same */
  size_t value_count, recent_count, recent_capacity;
  uint64_t count;
  double percent;
  const char *failure;
};

static int
compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* How many different ones are in a sorted list. */
static size_t
count_different(const double *values, size_t count)
{
  size_t different = count != 0;
  for (size_t i = 1; i < count; i++) {
    different += values[i] != values[i - 1];
  }
  return different;
}

/* The recent values into the others. From the end on, so that it needs no third list; then those of one value,
 * together.
 */
static bool
settle(struct sample *sample)
{
  qsort(sample->recent, sample->recent_count, sizeof(*sample->recent), compare);
  size_t more = count_different(sample->recent, sample->recent_count), old = sample->value_count, at = old + more;
  struct counted *values = reallocarray(sample->values, at + 1, sizeof(*values));
  if (values == NULL) {
    sample->failure = "out of memory";
    return false;
  }
  sample->values = values;
  for (size_t i = sample->recent_count; i > 0;) {
    double value = sample->recent[i - 1];
    while (old > 0 && values[old - 1].value > value) {
      values[--at] = values[--old];
    }
    uint64_t count = 0;
    for (; i > 0 && !(sample->recent[i - 1] < value); i--) {
      count++;
    }
    values[--at] = (struct counted){value, count};
  }
  size_t end = sample->value_count + more, kept = old;
  for (size_t i = at; i < end; i++) {
    if (kept > 0 && !(values[kept - 1].value < values[i].value)) {
      values[kept - 1].count += values[i].count;
    } else {
      values[kept++] = values[i];
    }
  }
  sample->value_count = kept;
  sample->recent_count = 0;
  if (kept > VALUES_MOST) {
    sample->failure = "percentile(x, p): x has more than 4,000,000 different values";
  }
  return sample->failure == NULL;
}

/* Room for one more: so many recent ones that settling them costs no more than sorting them. */
static bool
make_room(struct sample *sample)
{
  size_t capacity = sample->recent_capacity;
  if (capacity >= RECENT_USUAL && !settle(sample)) {
    return false;
  }
  size_t wanted = capacity == 0                                                   ? RECENT_FEWEST
                  : capacity < RECENT_USUAL || capacity < sample->value_count / 2 ? capacity * 2
                                                                                  : capacity;
  if (wanted != capacity) {
    double *recent = reallocarray(sample->recent, wanted, sizeof(*recent));
    if (recent == NULL) {
      sample->failure = "out of memory";
      return false;
    }
    sample->recent = recent;
    sample->recent_capacity = wanted;
  }
  return true;
}

static void
percentile_step(sqlite3_context *out, int argc, sqlite3_value **argv)
{
  (void)argc;
  struct sample *sample = sqlite3_aggregate_context(out, sizeof(*sample));
  if (sample == NULL || sample->failure != NULL || sqlite3_value_type(argv[0]) == SQLITE_NULL ||
      (sample->recent_count == sample->recent_capacity && !make_room(sample))) {
    return;
  }
  sample->percent = sqlite3_value_double(argv[1]);
  sample->recent[sample->recent_count++] = sqlite3_value_double(argv[0]);
  sample->count++;
}

/* Nearest rank. */
static void
percentile_final(sqlite3_context *out)
{
  struct sample *sample = sqlite3_aggregate_context(out, 0);
  if (sample == NULL) {
    return;
  }
  bool is_settled = sample->failure == NULL && settle(sample);
  if (!is_settled) {
    sqlite3_result_error(out, sample->failure, -1);
  } else if (sample->percent < 0 || sample->percent > 100) {
    sqlite3_result_error(out, "percentile(x, p): p is from 0 to 100", -1);
  } else if (sample->count != 0) {
    double rank = ceil(sample->percent / 100 * (double)sample->count);
    uint64_t wanted = rank < 1 ? 1 : (uint64_t)rank, passed = 0;
    size_t at = 0;
    for (; at + 1 < sample->value_count && passed + sample->values[at].count < wanted; at++) {
      passed += sample->values[at].count;
    }
    sqlite3_result_double(out, sample->values[at].value);
  }
  free(sample->values);
  free(sample->recent);
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
