/* SPDX-License-Identifier: MIT */
#include "base/quiet.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint32_t asked;

void
ct_quiet_begin(void)
{
  __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
}

void
ct_quiet_end(void)
{
  if (__atomic_sub_fetch(&asked, 1, __ATOMIC_RELAXED) == 0) {
    syscall(SYS_futex, &asked, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  }
}

bool
ct_quiet_asked(void)
{
  return __atomic_load_n(&asked, __ATOMIC_RELAXED) != 0;
}

void
ct_quiet_give_way(void)
{
  uint32_t seen;
  while ((seen = __atomic_load_n(&asked, __ATOMIC_RELAXED)) != 0) {
    syscall(SYS_futex, &asked, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
  }
}
