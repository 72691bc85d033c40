/* SPDX-License-Identifier: MIT */
/* See test_point.h. */
#include "base/test_point.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define MS_MAX 3600000 /* an hour */

void
ct_test_point(const char *name)
{
  const char *wanted = secure_getenv("CONTRAIL_TEST_POINT");
  if (wanted != NULL && strcmp(wanted, name) == 0) {
    raise(SIGSTOP); /* to this thread, so that it goes no further */
  }
}

uint64_t
ct_test_number(const char *name, uint64_t otherwise)
{
  const char *value = secure_getenv(name);
  char *end = NULL;
  unsigned long long number = value != NULL ? strtoull(value, &end, 10) : 0;
  return value != NULL && end != value && *end == '\0' ? number : otherwise;
}

uint64_t
ct_test_duration_ns(const char *name, uint64_t otherwise)
{
  const char *value = secure_getenv(name);
  char *end = NULL;
  unsigned long ms = value != NULL ? strtoul(value, &end, 10) : 0;
  return value != NULL && end != value && *end == '\0' && ms <= MS_MAX ? (uint64_t)ms * 1000000 : otherwise;
}
