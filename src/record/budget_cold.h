/* SPDX-License-Identifier: MIT */
/* What a hook costs more where little of it is in the caches; see budget_cold.c. */
#ifndef CT_RECORD_BUDGET_COLD_H
#define CT_RECORD_BUDGET_COLD_H

#include "record/budget_policy.h"

struct ct_budget_cold {
  double products, squares; /* of predicted and measured shares */
  double cold, warm;        /* of the experiment that goes on: predicted, as shares of the processor time before; cold:
                               as if the factor were 1 */
  double before;            /* calls of its witnesses a ns, before */
  uint32_t done;
  bool goes_on;
};

void ct_budget_cold_begin(struct ct_budget_cold *cold);
double ct_budget_cold_factor(const struct ct_budget_cold *cold);

/* What a call of each function costs more: ->cold. They are sorted by rate, the least first. */
void ct_budget_cold_costs(const struct ct_budget_cold *cold, struct ct_budget_function **functions, size_t count);

/*
 * Patches are about to be taken out, of functions that are out, or to be put back: an experiment begins. calls, and
 * others of functions that are always seen in the same way, are those in cpu_ns of processor time just now.
 */
void ct_budget_cold_before(struct ct_budget_cold *cold, struct ct_budget_function **functions, size_t count,
                           const struct ct_budget_costs *costs, double others, double cpu_ns);
/* That is done; calls are those in cpu_ns since then. */
void ct_budget_cold_after(struct ct_budget_cold *cold, struct ct_budget_function *const *functions, size_t count,
                          double others, double cpu_ns);

#endif
