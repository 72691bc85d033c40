/* SPDX-License-Identifier: MIT */
/* See test_point.h. */
#include "base/test_point.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

void
ct_test_point(const char *name)
{
  const char *wanted = secure_getenv("CONTRAIL_TEST_POINT");
  if (wanted != NULL && strcmp(wanted, name) == 0) {
    raise(SIGSTOP); /* to this thread, so that it goes no further */
  }
}
