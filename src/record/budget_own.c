/* SPDX-License-Identifier: MIT */
/*
 * What calls take of their own, under a budget, from what the drain adds up while it is asked to (budget_tick.c).
 *
 * Functions without a counter are recorded from the first instruction on, and what is called often of these goes out at
 * the first tick, with its patch soon after. It would not be known then what its calls take: its callers seem to take
 * that, so that all of the program's time seems to be known, and it would hardly ever come back. In a large program the
 * C library's functions are among these, and in a server most of the time is in its system calls. So the drain adds up
 * from the begin on, and the first tick looks at these functions: the functions that they call have no counters either,
 * mostly, and are recorded as well.
 */
#include "record/budget_internal.h"

#define MEASURE_CALLS 8u /* or the time of one says little */

/* 1 where all calls take as long, one half where they differ by as much as their mean. */
static double
read_steady(const struct ct_drain_own *own)
{
  double calls = (double)atomic_load_explicit(&own->whole, memory_order_relaxed);
  double ticks = (double)atomic_load_explicit(&own->whole_ticks, memory_order_relaxed);
  double squares = (double)atomic_load_explicit(&own->squares, memory_order_relaxed);
  double steady = calls >= MEASURE_CALLS && squares > 0 ? ticks * ticks / (calls * squares) : 0;
  return steady < 1 ? steady : 1;
}

void
ct_budget_read_own(struct ct_budget_function *function, const struct ct_drain_own *own, double tick_ns)
{
  uint64_t calls = atomic_load_explicit(&own->calls, memory_order_relaxed) - function->own_calls;
  uint64_t ticks = atomic_load_explicit(&own->ticks, memory_order_relaxed);
  if (calls >= MEASURE_CALLS) {
    double own_ns = (double)(ticks - function->own_ticks) * tick_ns / (double)calls;
    function->own_ns = function->own_ns > 0 ? (function->own_ns + own_ns) / 2 : own_ns;
    function->own_calls += calls;
    function->own_ticks = ticks;
    function->steady = read_steady(own);
  }
}

void
ct_budget_first_look(struct ct_budget_function *function, const struct ct_drain_own *own, double tick_ns)
{
  if (function->seen == CT_SEEN_FULL && !function->has_counter && !function->is_point) {
    ct_budget_read_own(function, own, tick_ns);
    return;
  }
  function->own_calls = atomic_load_explicit(&own->calls, memory_order_relaxed);
  function->own_ticks = atomic_load_explicit(&own->ticks, memory_order_relaxed);
}
