/* SPDX-License-Identifier: MIT */
/*
 * What a recording costs the program: the sum over all kinds of events of how many there were times what the hook
 * costs, as record/costs.c has measured it in a loop, against the processor time of the process by its own clock (user
 * and system, without children).
 *
 * The drain counts events as they come out of the ring, so those that --max-depth and --last do not keep count too.
 * Enters, tail calls and returns are halves of full hooks: nearly as many are first ones as second ones, so each counts
 * as the mean of both. Events that were written over had been written: they are taken to be of the same kinds as the
 * others. What was never measured is left out, and the estimate says so.
 *
 * It is too low where a program's hooks find less in the caches than those of a loop do, see docs/overhead.md.
 */
#include "record/estimate.h"

#include "base/clock.h"

#include <errno.h>

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* In ticks. */
static double
events_cost(const struct ct_hook_costs *c, const uint64_t events[CT_HOOK_EVENT_COUNT])
{
  double half = (c->enter_before + c->enter_after + c->return_before + c->return_after) / 2;
  return (double)events[CT_HOOK_EVENT_HALF] * half + (double)events[CT_HOOK_EVENT_POINT] * c->point +
         (double)events[CT_HOOK_EVENT_SAMPLED] * c->sampled +
         (double)events[CT_HOOK_EVENT_PASSED_OVER] * c->passed_over + (double)events[CT_HOOK_EVENT_VALUE] * c->value +
         (double)events[CT_HOOK_EVENT_COUNTED] * c->counted;
}

struct ct_cost
ct_estimate_cost(const struct ct_hook_costs *costs, const uint64_t events[CT_HOOK_EVENT_COUNT],
                 const uint64_t dropped_by[CT_DROP_COUNT], double ns_per_tick, uint64_t program_cpu_ns)
{
  struct ct_cost cost = {.is_known = costs->known, .program_cpu_ns = program_cpu_ns};
  uint64_t all = 0, lost = 0,
           overwritten = dropped_by[CT_DROP_OVERWRITTEN] + dropped_by[CT_DROP_DISK_SLOW] + dropped_by[CT_DROP_LATE];
  for (int kind = 0; kind < CT_HOOK_EVENT_COUNT; kind++) {
    all += kind != CT_HOOK_EVENT_PASSED_OVER && kind != CT_HOOK_EVENT_COUNTED ? events[kind] : 0;
  }
  for (int reason = 0; reason < CT_DROP_COUNT; reason++) {
    lost += dropped_by[reason];
  }
  lost -= overwritten; /* they were written, and cost what the others do */
  cost.left_out |= events[CT_HOOK_EVENT_DETAIL] != 0 ? 1u << CT_COST_DETAIL : 0;
  cost.left_out |= events[CT_HOOK_EVENT_OTHER] > all / 100 ? 1u << CT_COST_OTHER : 0;
  cost.left_out |= lost != 0 || (overwritten != 0 && all == 0) ? 1u << CT_COST_LOST : 0;
  if (!costs->known) {
    return cost;
  }
  double ns = events_cost(costs, events) * ns_per_tick;
  ns *= all != 0 ? 1 + (double)overwritten / (double)all : 1;
  /* Not ns <= 0: what is no number is 0 too. */
  cost.hooks_ns = !(ns > 0) ? 0 : ns < (double)INT64_MAX ? (uint64_t)ns : INT64_MAX;
  if (program_cpu_ns != 0 && cost.hooks_ns > program_cpu_ns) {
    cost.hooks_ns = program_cpu_ns;
  }
  return cost;
}

uint64_t
ct_recorder_cpu_ns(void)
{
  return ct_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

bool
ct_program_cpu_ns(int pid, int pidfd, uint64_t *ns)
{
  clockid_t clock;
  struct timespec t;
  if (pid <= 0 || pidfd < 0 || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) {
    return false;
  }
  /* Was it that process, or one that has its pid since? The signal is none, and is refused last of all. */
  if (syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) != 0 && errno != EPERM) {
    return false;
  }
  *ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
  return true;
}
