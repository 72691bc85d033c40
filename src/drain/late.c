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

static uint64_t
used_ns(void)
{
  struct timespec at;
  return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at) == 0 ? (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec : 0;
}

void
drain_see_late(struct ct_drain *drain)
{
  struct drain_late *late = &drain->late;
  uint64_t now = drain_now_ns(), used = used_ns();
  uint64_t gap = now - late->seen_ns, own = used > late->seen_used_ns ? used - late->seen_used_ns : 0;
  if (late->seen_ns != 0 && gap > own + LATE_NS) {
    for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
      late->until[slot][CT_DROP_OVERWRITTEN] = drain_lost_count(&drain->slots[slot].dropped_overwritten);
      late->until[slot][CT_DROP_NO_SEGMENT] = drain_lost_count(&drain->slots[slot].dropped_no_segment);
    }
  }
  late->seen_ns = now;
  late->seen_used_ns = used;
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
