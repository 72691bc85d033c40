/* SPDX-License-Identifier: MIT */
/*
 * Functions that rules are about (`--on 'unlink returns < 0'`) are seen in full from the first call on, as long as they
 * fit (budget_choice.c): a call that is only counted has no time and no result. That is for rules that name what they
 * are about: one about all functions (`'* > 1ms'`) does not say which of them matter more than others.
 */
#include "record/budget_internal.h"

uint32_t
ct_budget_rules_of(const struct ct_modules *modules, const struct ct_module *module)
{
  const struct ct_rules *rules = modules->rules;
  uint32_t counts[CT_RULES_MAX] = {0}, few = 0, first = module->installed.first_fn;
  if (rules == NULL || rules->masks == NULL) {
    return 0;
  }
  for (size_t n = 0; n < module->plan->hooked && first + n <= rules->last_fn; n++) {
    for (uint32_t mask = rules_mask(rules, first + (uint32_t)n); mask != 0; mask &= mask - 1) {
      counts[__builtin_ctz(mask)]++;
    }
  }
  for (uint32_t slot = 0; slot < CT_RULES_MAX; slot++) {
    few |= counts[slot] != 0 && counts[slot] <= CT_RULED_MOST ? 1u << slot : 0;
  }
  return few;
}

uint64_t
ct_budget_rules_sign(const struct ct_modules *modules)
{
  uint64_t sum = 0;
  for (uint32_t slot = 0; modules->rules != NULL && slot < CT_RULES_MAX; slot++) {
    const struct drain_rule *at = &modules->rules->list[slot];
    sum = sum * 31 + (at->used ? at->number + 1 + modules->watched[slot] * 1009 : 0);
  }
  return sum;
}

size_t
session_budget_count_out(const struct ct_session *session, uint32_t slot)
{
  const struct session_budget *budget = session->budget;
  const struct ct_rules *rules = session->triggers.rules;
  size_t count = 0;
  if (budget == NULL || rules == NULL || rules->masks == NULL) {
    return 0;
  }
  for (uint32_t fn = 0; fn < budget->function_count && fn <= rules->last_fn; fn++) {
    count += budget->was_out[fn] != 0 && (rules_mask(rules, fn) >> slot & 1) != 0;
  }
  return count;
}
