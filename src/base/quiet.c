/* SPDX-License-Identifier: MIT */
#include "base/quiet.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void
ct_quiet_begin(struct ct_quiet *quiet)
{
  if (quiet != NULL) {
    __atomic_fetch_add(&quiet->asked, 1, __ATOMIC_RELAXED);
  }
}

void
ct_quiet_end(struct ct_quiet *quiet)
{
  if (quiet != NULL && __atomic_sub_fetch(&quiet->asked, 1, __ATOMIC_RELAXED) == 0) {
    syscall(SYS_futex, &quiet->asked, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  }
}

bool
ct_quiet_asked(const struct ct_quiet *quiet)
{
  return __atomic_load_n(&quiet->asked, __ATOMIC_RELAXED) != 0;
}

void
ct_quiet_give_way(const struct ct_quiet *quiet)
{
  uint32_t seen;
  while ((seen = __atomic_load_n(&quiet->asked, __ATOMIC_RELAXED)) != 0) {
    syscall(SYS_futex, &quiet->asked, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
  }
}
