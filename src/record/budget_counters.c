/* SPDX-License-Identifier: MIT */
/* Which counters are free, of those that functions get when they need one; see budget_moved.c. */
#include "record/budget_counters.h"

#define FEW (CT_BUDGET_COUNTERS / 4)

void
ct_budget_counters_begin(struct ct_budget_counters *counters)
{
  counters->used = counters->free_count = counters->resting = 0;
}

bool
ct_budget_counters_take(struct ct_budget_counters *counters, uint32_t fn, uint32_t *at)
{
  uint32_t n;
  if (counters->free_count != 0) {
    n = counters->free[--counters->free_count];
  } else if (counters->used != CT_BUDGET_COUNTERS) {
    n = counters->used++;
  } else {
    return false;
  }
  counters->of[n].fn = fn;
  counters->of[n].rests_ns = 0;
  *at = n;
  return true;
}

bool
ct_budget_counters_are_few(const struct ct_budget_counters *counters)
{
  return CT_BUDGET_COUNTERS - counters->used + counters->free_count < FEW;
}

void
ct_budget_counters_rest(struct ct_budget_counters *counters, uint32_t at, uint64_t now_ns)
{
  counters->of[at].rests_ns = now_ns;
  counters->resting++;
}

size_t
ct_budget_counters_settle(struct ct_budget_counters *counters, uint64_t read_ns,
                          void (*release)(void *context, uint32_t at), void *context)
{
  size_t count = 0;
  for (uint32_t n = 0; n < counters->used && counters->resting != 0; n++) {
    uint64_t rests_ns = counters->of[n].rests_ns;
    if (rests_ns != 0 && rests_ns != UINT64_MAX && rests_ns < read_ns) {
      counters->of[n].rests_ns = UINT64_MAX; /* it is free */
      counters->free[counters->free_count++] = (uint16_t)n;
      counters->resting--;
      release(context, n);
      count++;
    }
  }
  return count;
}
