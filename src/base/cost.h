/* SPDX-License-Identifier: MIT */
/* A cost as JSON has it: "cost" of the manifest, of info and of a session's status. */
#ifndef CT_BASE_COST_H
#define CT_BASE_COST_H

#include <contrail/cost.h>

#include <jansson.h>

json_t *ct_budget_json(const struct ct_budget_status *budget);
/* False: there is no budget. */
bool ct_budget_of_json(const json_t *json, struct ct_budget_status *budget);
json_t *ct_cost_json(const struct ct_cost *cost);
/* False: there is none. What is not a number is 0, and the hooks' part is not more than all. */
bool ct_cost_of_json(const json_t *json, struct ct_cost *cost);

#endif
