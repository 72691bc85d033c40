/* SPDX-License-Identifier: MIT */
/*
 * The drain that did not run: contrail was stopped (SIGSTOP, a debugger, a suspended machine), or had no processor for
 * long. What threads lost meanwhile is no fault of the ring's size. Time is looked at once a round and whenever
 * something was lost; where more of it has gone than the drain has used and may have slept, all that the slots'
 * counters have by then was lost in that gap.
 */
#include "drain/drain_internal.h"

#include <string.h>
#include <time.h>

#define LATE_NS 300000000ull /* many times what the drain sleeps at most */
/* So old may its processor time be, which takes a system call: what was used is counted rather twice than not. */
#define USED_NS 50000000ull

uint64_t
drain_used_ns(void)
{
  struct timespec at;
  return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at) == 0 ? (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec : 0;
}

void
drain_see_late(struct ct_drain *drain)
{
  struct drain_late *late = &drain->late;
  uint64_t now = drain_now_ns(), gap = late->seen_ns != 0 ? now - late->seen_ns : 0;
  late->seen_ns = now;
  if (late->used_at_ns != 0 && now - late->used_at_ns < USED_NS) {
    return;
  }
  uint64_t used = drain_used_ns(), own = used > late->used_ns ? used - late->used_ns : 0;
  for (uint32_t slot = 0; gap > own + LATE_NS && slot < CT_SLOT_COUNT; slot++) {
    late->until[slot][CT_DROP_OVERWRITTEN] = drain_lost_count(&drain->slots[slot].dropped_overwritten);
    late->until[slot][CT_DROP_NO_SEGMENT] = drain_lost_count(&drain->slots[slot].dropped_no_segment);
  }
  late->used_at_ns = now;
  late->used_ns = used;
}

void
drain_late_end(struct ct_drain *drain)
{
  memset(&drain->late, 0, sizeof(drain->late));
}

uint64_t
drain_late_of(const struct ct_drain *drain, uint32_t slot, unsigned reason, uint64_t from, uint64_t to)
{
  uint64_t until = reason < DRAIN_LATE_REASONS ? drain->late.until[slot][reason] : 0;
  until = until < to ? until : to;
  return until > from ? until - from : 0;
}
