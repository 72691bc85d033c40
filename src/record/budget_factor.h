/* SPDX-License-Identifier: MIT */
/* By how much hooks are dearer in this program than they were when they were measured; see budget_factor.c. */
#ifndef CT_RECORD_BUDGET_FACTOR_H
#define CT_RECORD_BUDGET_FACTOR_H

#include "record/budget_policy.h"

struct ct_budget_factor {
  double products, squares; /* of predicted and measured shares */
  double predicted;         /* of the experiment that goes on: what is saved, as a share of the rest */
  uint64_t next_ns;
  uint32_t done;
  uint8_t phase; /* enum ct_budget_phase */
};
enum ct_budget_phase {
  CT_BUDGET_NO_EXPERIMENT = 0,
  CT_BUDGET_APART = 1, /* what costs most is only counted meanwhile */
  CT_BUDGET_AGAIN = 2, /* it is seen as before */
};

void ct_budget_factor_begin(struct ct_budget_factor *factor, uint64_t now_ns);
double ct_budget_factor(const struct ct_budget_factor *factor);

/*
 * An experiment begins: of all functions how often they were called in cpu_ns of processor time just now (calls), and
 * which are only counted until the next tick (is_apart). costs: without the factor, full without the drain. False: it
 * would tell nothing, none is to be counted.
 */
bool ct_budget_factor_apart(struct ct_budget_factor *factor, struct ct_budget_function **functions, size_t count,
                            const struct ct_budget_costs *costs, double cpu_ns);
/* The next tick, and the one after that, which ends the experiment. */
void ct_budget_factor_again(struct ct_budget_factor *factor, struct ct_budget_function **functions, size_t count,
                            double cpu_ns);
/* room: for twice count numbers. */
void ct_budget_factor_end(struct ct_budget_factor *factor, struct ct_budget_function **functions, size_t count,
                          double cpu_ns, uint64_t now_ns, double *room);
/* The tick does not count: the process has waited. */
void ct_budget_factor_give_up(struct ct_budget_factor *factor, uint64_t now_ns);

#endif
