/* SPDX-License-Identifier: MIT */
/* Functions that are out are looked at: which, and what is seen then; see budget_look.c. */
#ifndef CT_RECORD_BUDGET_LOOK_H
#define CT_RECORD_BUDGET_LOOK_H

#include "record/budget_choice.h"

#define CT_BUDGET_LOOK_NS    10000000ull   /* by the clock */
#define CT_BUDGET_LOOK_EVERY 1000000000ull /* at the soonest */

struct ct_budget_looks {
  double allowance;  /* ns that may be spent on looks */
  size_t at;         /* the place in the order by rate where the next look begins */
  uint64_t begun_ns; /* of the last look */
  uint64_t every_ns; /* until the next one */
};

void ct_budget_looks_begin(struct ct_budget_looks *looks);

/* Another tick, of so many ns of the process's time. */
void ct_budget_looks_add(struct ct_budget_looks *looks, double allowed_ns, double used_ns);

/*
 * Sets is_looked of those that are to be seen for a moment; how many. They are count functions sorted by rate.
 * processors: how many the process has used of late.
 */
size_t ct_budget_looks_choose(struct ct_budget_looks *looks, struct ct_budget_function *const *functions, size_t count,
                              const struct ct_budget_costs *costs, double allowed_ns, double processors,
                              uint64_t now_ns);

/* What was seen of it in used_ns of the process's time: the rate is that of now. */
void ct_budget_looks_read(struct ct_budget_function *function, double used_ns, uint64_t now_ns);

/* After that, sorted by rate again: `wanted` of those that were looked at. How many of them stay out. */
size_t ct_budget_looks_end(struct ct_budget_looks *looks, struct ct_budget_function *const *functions, size_t count,
                           const struct ct_budget_costs *costs, double allowed_ns, double used_ns, uint64_t now_ns);

/* What a look has cost besides calls. */
struct ct_budget_look_cost {
  uint64_t pause_ns;    /* the process was stopped so long, ... */
  uint64_t ended_calls; /* ... and so many of its system calls ended by that */
  uint64_t recorder_ns; /* of the recorder's time */
};

/* How long until the next look. limit: part of the process's time, of which it has used that of so many processors. */
void ct_budget_looks_pace(struct ct_budget_looks *looks, const struct ct_budget_look_cost *cost, double limit,
                          double processors);

#endif
