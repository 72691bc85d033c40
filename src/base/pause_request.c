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
    atomic_fetch_add_explicit(&pause_request->asked, 1, memory_order_relaxed);
  }
}

void
ct_pause_request_end(struct ct_pause_request *pause_request)
{
  if (pause_request != NULL && atomic_fetch_sub_explicit(&pause_request->asked, 1, memory_order_relaxed) == 1) {
    syscall(SYS_futex, &pause_request->asked, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  }
}

bool
ct_pause_requested(const struct ct_pause_request *pause_request)
{
  return atomic_load_explicit(&pause_request->asked, memory_order_relaxed) != 0;
}

void
ct_pause_request_yield(const struct ct_pause_request *pause_request)
{
  uint32_t seen;
  while ((seen = atomic_load_explicit(&pause_request->asked, memory_order_relaxed)) != 0) {
    syscall(SYS_futex, &pause_request->asked, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
  }
}
