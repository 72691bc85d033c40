/* SPDX-License-Identifier: MIT */
#include "base/precedence.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void
ct_precedence_begin(struct ct_precedence *precedence)
{
  if (precedence != NULL) {
    __atomic_fetch_add(&precedence->asked, 1, __ATOMIC_RELAXED);
  }
}

void
ct_precedence_end(struct ct_precedence *precedence)
{
  if (precedence != NULL && __atomic_sub_fetch(&precedence->asked, 1, __ATOMIC_RELAXED) == 0) {
    syscall(SYS_futex, &precedence->asked, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  }
}

bool
ct_precedence_asked(const struct ct_precedence *precedence)
{
  return __atomic_load_n(&precedence->asked, __ATOMIC_RELAXED) != 0;
}

void
ct_precedence_give_way(const struct ct_precedence *precedence)
{
  uint32_t seen;
  while ((seen = __atomic_load_n(&precedence->asked, __ATOMIC_RELAXED)) != 0) {
    syscall(SYS_futex, &precedence->asked, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
  }
}
