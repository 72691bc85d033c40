/* SPDX-License-Identifier: MIT */
/* See quantity.h. */
#include "cli/quantity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool
ct_is_decimal(const char *text)
{
  return text[0] >= '0' && text[0] <= '9' && text[1] != 'x' && text[1] != 'X';
}

bool
ct_parse_duration(const char *text, bool bare, double *seconds)
{
  static const struct {
    const char *unit;
    double seconds;
  } units[] = {{"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}, {"d", 86400}, {"", 1}};
  size_t count = sizeof(units) / sizeof(units[0]) - (bare ? 0 : 1);
  char *end;
  if (!ct_is_decimal(text)) {
    return false;
  }
  double number = strtod(text, &end);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(end, units[i].unit) == 0 && isfinite(number) && number > 0) {
      *seconds = number * units[i].seconds;
      return true;
    }
  }
  return false;
}

bool
ct_parse_size(const char *text, uint64_t *bytes)
{
  static const char units[] = "KMGT";
  char *end;
  if (!ct_is_decimal(text)) {
    return false;
  }
  double number = strtod(text, &end);
  const char *unit = end[0] != '\0' ? strchr(units, end[0]) : NULL;
  if (unit == NULL || end[1] != '\0' || !(number > 0) || number > 1 << 20) {
    return false;
  }
  *bytes = (uint64_t)(number * (double)(1ull << (10 * (unit - units + 1))));
  return *bytes != 0;
}
