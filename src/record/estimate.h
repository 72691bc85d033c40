/* SPDX-License-Identifier: MIT */
/* What a recording costs the program; see estimate.c. */
#ifndef CT_RECORD_ESTIMATE_H
#define CT_RECORD_ESTIMATE_H

#include "drain/drain.h"
#include "record/costs.h"

#include <contrail/cost.h>

/* What the processes have used of processors: readings of their clocks. */
struct ct_cpu_times {
  bool begun;            /* the process is recorded */
  uint64_t begin_ns;     /* its own when that began ... */
  uint64_t program_ns;   /* ... and since then, when last looked at; 0: not known */
  uint64_t recorder0_ns; /* of this process, when the trace was opened */
};

/* What hooks took, from the events that the drain got and those of them that were lost: a pure function. */
struct ct_cost ct_estimate_cost(const struct ct_hook_costs *costs, const uint64_t events[CT_HOOK_EVENT_COUNT],
                                const uint64_t dropped_by[CT_DROP_COUNT], double ns_per_tick, uint64_t program_cpu_ns);

/* Processor time of this process. */
uint64_t ct_recorder_cpu_ns(void);
/* Of another one, all its threads, those that have ended too; also once it is a zombie. False: it is not to be had. */
bool ct_program_cpu_ns(int pid, int pidfd, uint64_t *ns);

#endif
