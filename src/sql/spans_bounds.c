/* SPDX-License-Identifier: MIT */
/* What a bound of a query is in whole nanoseconds, and what these are in a trace's ticks: exactly, so that no row comes
 * that SQLite would drop, and the index alone can say which rows come first. */
#include "sql/sql_internal.h"

#include <math.h>

bool
ct_sql_whole(sqlite3_value *value, int64_t *number)
{
  static const double past = 9223372036854775808.0; /* INT64_MAX and 1 */
  int type = sqlite3_value_numeric_type(value);
  if (type == SQLITE_FLOAT) {
    double real = sqlite3_value_double(value);
    if (!(real >= -past && real < past) || floor(real) != real) {
      return false;
    }
    *number = (int64_t)real;
    return true;
  }
  *number = sqlite3_value_int64(value);
  return type == SQLITE_INTEGER;
}

bool
ct_sql_bound(sqlite3_value *value, bool is_upper, bool is_strict, int64_t *bound)
{
  static const double past = 9223372036854775808.0; /* INT64_MAX and 1 */
  int type = sqlite3_value_numeric_type(value);
  int64_t number = sqlite3_value_int64(value);
  if (type != SQLITE_INTEGER && type != SQLITE_FLOAT) { /* each number is less than any text */
    *bound = INT64_MAX;
    return type != SQLITE_NULL && is_upper;
  }
  if (type == SQLITE_FLOAT) {
    double real = sqlite3_value_double(value), whole = is_upper ? floor(real) : ceil(real);
    if (!(real > -past && real < past)) {
      *bound = is_upper ? INT64_MAX : INT64_MIN;
      return (real > 0) == is_upper;
    }
    number = (int64_t)whole;
    is_strict = is_strict && whole == real;
  }
  if (is_strict && number == (is_upper ? INT64_MIN : INT64_MAX)) {
    return false;
  }
  *bound = !is_strict ? number : is_upper ? number - 1 : number + 1;
  return true;
}

uint64_t
ct_sql_first_tsc(const struct ct_sql_source *source, int64_t time)
{
  int64_t ns;
  if (__builtin_add_overflow((int64_t)source->start_ns, time, &ns)) {
    return time > 0 ? UINT64_MAX : 0;
  }
  uint64_t low = ct_trace_tsc(source->trace, ns > 0 ? (uint64_t)ns : 0), high = low;
  for (uint64_t step = 16; low > 0 && ct_sql_time(source, low) >= time; step *= 2) {
    high = low;
    low = low > step ? low - step : 0;
  }
  for (uint64_t step = 16; high < UINT64_MAX && ct_sql_time(source, high) < time; step *= 2) {
    low = high;
    high = high < UINT64_MAX - step ? high + step : UINT64_MAX;
  }
  if (ct_sql_time(source, low) >= time) {
    return low;
  }
  while (high - low > 1) {
    uint64_t middle = low + (high - low) / 2;
    *(ct_sql_time(source, middle) < time ? &low : &high) = middle;
  }
  return high;
}

uint64_t
ct_sql_least_ticks(const struct ct_sql_source *source, int64_t ns)
{
  if (ns <= 0) {
    return 0;
  }
  uint64_t low = 0, high = 1;
  while (ct_trace_ticks_ns(source->trace, high) < (uint64_t)ns && high < UINT64_MAX / 4) {
    high *= 2;
  }
  while (high - low > 1) {
    uint64_t middle = low + (high - low) / 2;
    *(ct_trace_ticks_ns(source->trace, middle) < (uint64_t)ns ? &low : &high) = middle;
  }
  return high;
}
