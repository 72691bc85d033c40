/* SPDX-License-Identifier: MIT */
/* Which functions are seen how under a budget: a pure function of what calls cost and how many there are. */
#ifndef CT_RECORD_BUDGET_POLICY_H
#define CT_RECORD_BUDGET_POLICY_H

#include "record/budget_choice.h"

/*
 * Sets `wanted` of count functions, which are sorted by rate, the least first, and where it changes `because`: so that
 * all of them together cost at most allowed_ns a second of the process's time, and tell as much as they can for that
 * (budget_choice.c).
 * now_ns: by the clock of since_ns. is_first: nothing was decided before. may_try: functions that are out may come back
 * for a moment, to see how they are called now: patches can be changed at once. Returns what is expected to be spent,
 * ns a second.
 */
double ct_budget_choose(struct ct_budget_function **functions, size_t count, const struct ct_budget_costs *costs,
                        double allowed_ns, uint64_t now_ns, bool is_first, bool may_try);

#define CT_BUDGET_AIM 0.85 /* of the limit: what a decision is made for */

/* It comes back since somebody looked at it. Should that happen often in a row, it will take longer. */
void ct_budget_note_look(struct ct_budget_function *function, uint64_t now_ns);

/* Is there something that is worth a stop of the process, age_ns after the last one: patches that are to go and cost
 * something, or to come back? Patches that stay anyway are not. */
bool ct_budget_wants_stop(struct ct_budget_function *const *functions, size_t count,
                          const struct ct_budget_costs *costs, double allowed_ns, uint64_t age_ns);
#define CT_BUDGET_STOP_NS 1000000000ull /* between two stops, but where much is to be saved */

#endif
