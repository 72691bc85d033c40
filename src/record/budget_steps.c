/* SPDX-License-Identifier: MIT */
/* A step of a budget: a function is seen in another way from now on; see budget_tick.c. */
#include "base/clock.h"
#include "record/budget_internal.h"

void
ct_budget_note_return(struct ct_budget_function *function)
{
  if (function->out_until_ns == UINT64_MAX && function->seen != CT_SEEN_OUT && !function->is_unpatched) {
    function->out_until_ns = ct_now_ns();
  }
}

void
ct_budget_take_step(struct session_budget *budget, struct ct_budget_function *function, uint64_t now)
{
  uint32_t fn = (uint32_t)(function - budget->functions);
  if (budget->has_raised || function->wanted > function->seen) { /* the begin of all others is none */
    struct budget_step step = {
        now, function->rate, function->own_ns, fn, function->seen, function->wanted, function->because};
    budget->kept[budget->steps++ % BUDGET_STEPS_KEPT] = step;
    function->since_ns = now;
  }
  if (function->wanted == CT_SEEN_OUT) {
    budget->was_out[fn] = 1;
    function->out_from_ns = function->out_from_ns != 0 ? function->out_from_ns : now;
    function->out_until_ns = UINT64_MAX;
  }
  budget->seen[function->seen]--;
  budget->seen[function->wanted]++;
  function->seen = function->wanted;
  ct_budget_note_return(function);
}
