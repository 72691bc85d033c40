/* SPDX-License-Identifier: MIT */
/* Counters that functions get when they need one, under a budget; see budget_moved.c. */
#ifndef CT_RECORD_BUDGET_COUNTERS_H
#define CT_RECORD_BUDGET_COUNTERS_H

#include "ring/counters.h"

#include <stdbool.h>
#include <stddef.h>

/* The last one is nobody's: what is in a gate before it has one. */
#define CT_BUDGET_COUNTERS (CT_COUNTERS_BY_NEED - 1)

struct ct_budget_counters {
  struct {
    uint32_t fn;
    uint64_t rests_ns; /* nobody can count in it since then; 0: it is the function's */
  } of[CT_BUDGET_COUNTERS];
  uint32_t used;                     /* so many, from the first on, have been given */
  uint16_t free[CT_BUDGET_COUNTERS]; /* of these: those that may be given again */
  uint32_t free_count, resting;
};

/* All are free. */
void ct_budget_counters_begin(struct ct_budget_counters *counters);

/* One for the function; false when there is none. They count from 0 on. */
bool ct_budget_counters_take(struct ct_budget_counters *counters, uint32_t fn, uint32_t *at);

/* So few are left that functions should give theirs back. */
bool ct_budget_counters_are_few(const struct ct_budget_counters *counters);

/* Nobody counts in it any more, since now_ns. It stays the function's, for what was counted before ... */
void ct_budget_counters_rest(struct ct_budget_counters *counters, uint32_t at, uint64_t now_ns);

/* ... until a reading of all is done that began after that: in read_ns. Calls release for each. How many. */
size_t ct_budget_counters_settle(struct ct_budget_counters *counters, uint64_t read_ns,
                                 void (*release)(void *context, uint32_t at), void *context);

#endif
