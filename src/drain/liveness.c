/* SPDX-License-Identifier: MIT */
/* What others see of the drain without its lock: that there is a controller, and how much has been recorded. */
#include "drain/drain.h"

#include "base/worker.h"
#include "drain/drain_internal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LIVENESS_NS 50000000

/*
 * A thread that does nothing else, so that a thread of the target that waits for an answer can tell a controller that
 * is busy (a large library to install, a slow disk, no processor to be had) from one that is gone.
 */
static void *
liveness_main(void *context)
{
  struct ct_drain *drain = context;
  while (__atomic_load_n(&drain->stopping, __ATOMIC_ACQUIRE) == 0) {
    struct timespec wait = {0, LIVENESS_NS};
    __atomic_fetch_add(&drain->ring->controller_liveness, 1, __ATOMIC_RELAXED);
    syscall(SYS_futex, &drain->stopping, FUTEX_WAIT_PRIVATE, 0, &wait, NULL, 0);
  }
  return NULL;
}

int
drain_start_liveness(struct ct_drain *drain)
{
  return ct_worker_create(&drain->liveness, NULL, liveness_main, drain);
}

void
drain_stop_liveness(struct ct_drain *drain)
{
  __atomic_store_n(&drain->stopping, 1, __ATOMIC_RELEASE);
  syscall(SYS_futex, &drain->stopping, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  pthread_join(drain->liveness, NULL);
}

void
drain_publish_numbers(struct ct_drain *drain)
{
  struct ct_drain_stats stats;
  struct ct_sampling_state sampling;
  ct_drain_stats(drain, &stats);
  ct_drain_sampling(drain, &sampling);
  __atomic_store_n(&drain->told.events, stats.events, __ATOMIC_RELAXED);
  for (unsigned reason = 0; reason < CT_DROP_COUNT; reason++) {
    __atomic_store_n(&drain->told.dropped_by[reason], stats.dropped_by[reason], __ATOMIC_RELAXED);
  }
  __atomic_store_n(&drain->told.changes, sampling.changes, __ATOMIC_RELAXED);
  __atomic_store_n(&drain->told.interval, sampling.interval, __ATOMIC_RELAXED);
}

void
ct_drain_numbers(const struct ct_drain *drain, struct ct_drain_numbers *numbers)
{
  numbers->events = __atomic_load_n(&drain->told.events, __ATOMIC_RELAXED);
  numbers->dropped = 0;
  for (unsigned reason = 0; reason < CT_DROP_COUNT; reason++) {
    numbers->dropped_by[reason] = __atomic_load_n(&drain->told.dropped_by[reason], __ATOMIC_RELAXED);
    numbers->dropped += numbers->dropped_by[reason];
  }
  numbers->changes = __atomic_load_n(&drain->told.changes, __ATOMIC_RELAXED);
  numbers->interval = __atomic_load_n(&drain->told.interval, __ATOMIC_RELAXED);
}
