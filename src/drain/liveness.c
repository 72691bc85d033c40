/* SPDX-License-Identifier: MIT */
/* What others see of the drain without its lock: that there is a controller, and how much has been recorded. */
#include "drain/drain.h"

#include "base/worker.h"
#include "drain/drain_internal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LIVENESS_NS 50000000  /* who waits for an answer looks every 100 ms, ten times, before it has doubts ... */
#define THRIFTY_NS  200000000 /* ... so under a budget, where the recorder's time counts, less will do */

/*
 * A thread that does nothing else, so that a thread of the target that waits for an answer can tell a controller that
 * is busy (a large library to install, a slow disk, no processor to be had) from one that is gone.
 */
static void *
liveness_main(void *context)
{
  struct ct_drain *drain = context;
  while (atomic_load_explicit(&drain->stopping, memory_order_acquire) == 0) {
    struct timespec wait = {0, drain->counts.counters != NULL ? THRIFTY_NS : LIVENESS_NS};
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
  atomic_store_explicit(&drain->stopping, 1, memory_order_release);
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
  atomic_store_explicit(&drain->published.events, stats.events, memory_order_relaxed);
  for (unsigned reason = 0; reason < CT_DROP_COUNT; reason++) {
    atomic_store_explicit(&drain->published.dropped_by[reason], stats.dropped_by[reason], memory_order_relaxed);
  }
  for (unsigned kind = 0; kind < CT_HOOK_EVENT_COUNT; kind++) {
    atomic_store_explicit(&drain->published.hook_events[kind], stats.hook_events[kind], memory_order_relaxed);
  }
  atomic_store_explicit(&drain->published.changes, sampling.changes, memory_order_relaxed);
  atomic_store_explicit(&drain->published.interval, sampling.interval, memory_order_relaxed);
}

void
ct_drain_numbers(const struct ct_drain *drain, struct ct_drain_numbers *numbers)
{
  numbers->events = atomic_load_explicit(&drain->published.events, memory_order_relaxed);
  numbers->dropped = 0;
  for (unsigned reason = 0; reason < CT_DROP_COUNT; reason++) {
    numbers->dropped_by[reason] = atomic_load_explicit(&drain->published.dropped_by[reason], memory_order_relaxed);
    numbers->dropped += numbers->dropped_by[reason];
  }
  for (unsigned kind = 0; kind < CT_HOOK_EVENT_COUNT; kind++) {
    numbers->hook_events[kind] = atomic_load_explicit(&drain->published.hook_events[kind], memory_order_relaxed);
  }
  numbers->changes = atomic_load_explicit(&drain->published.changes, memory_order_relaxed);
  numbers->switches = atomic_load_explicit(&drain->published.switches, memory_order_relaxed);
  numbers->interval = atomic_load_explicit(&drain->published.interval, memory_order_relaxed);
}
