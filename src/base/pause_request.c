/* SPDX-License-Identifier: MIT */
#include "base/pause_request.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void
ct_pause_request_begin(struct ct_pause_request *pause_request)
{
  if (pause_request != NULL) {
    __atomic_fetch_add(&pause_request->asked, 1, __ATOMIC_RELAXED);
  }
}

void
ct_pause_request_end(struct ct_pause_request *pause_request)
{
  if (pause_request != NULL && __atomic_sub_fetch(&pause_request->asked, 1, __ATOMIC_RELAXED) == 0) {
    syscall(SYS_futex, &pause_request->asked, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  }
}

bool
ct_pause_requested(const struct ct_pause_request *pause_request)
{
  return __atomic_load_n(&pause_request->asked, __ATOMIC_RELAXED) != 0;
}

void
ct_pause_request_yield(const struct ct_pause_request *pause_request)
{
  uint32_t seen;
  while ((seen = __atomic_load_n(&pause_request->asked, __ATOMIC_RELAXED)) != 0) {
    syscall(SYS_futex, &pause_request->asked, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
  }
}
