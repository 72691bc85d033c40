/* SPDX-License-Identifier: MIT */
/*
 * Functions that can be counted, beyond those with a counter by their id. A large program has a hundred thousand
 * functions and calls some thousands of them. The first ones of an image, as many as ct_counters_by_id says, have one
 * from the begin on, which their trampolines know as a constant. The others begin in full. One that turns out to be
 * called so often that this may have to change gets a counter; where that is, its gates say (CT_GATE_COUNTER), so no
 * instruction changes.
 *
 * When few are left, functions give theirs back: those that are out, or that nobody calls any more. A thread may have
 * been on its way to the counter for any time. So that is done in a stop that is made anyway, where no thread stands in
 * the function's trampolines, nor has been interrupted there by a handler. What was counted before still belongs to the
 * function: until the drain has read all counters once more, nobody else gets it.
 */
#include "base/clock.h"
#include "hook/install.h"
#include "record/budget_internal.h"
#include "x86/trampoline.h"

#define NEED_SHARE 0.0001        /* of the limit: what calls cost in full, or a counter would be of no use */
#define REST_NS    2000000000ull /* without a step: a function that is out may come back in a look before */

/* ---- functions get one ---- */

bool
ct_budget_write_counters(struct ct_session *session, const struct ct_budget_function *function)
{
  struct session_budget *budget = session->budget;
  uint64_t offset = ct_counter_calls_offset(function->counter - 1u);
  bool ok = true;
  for (uint32_t n = budget->first_gate[function - budget->functions]; n != 0 && ok; n = budget->gates[n - 1].next) {
    ok = ct_process_write(&session->target.process, budget->gates[n - 1].at - CT_GATE_COUNTER, &offset,
                          sizeof(offset)) == 0;
  }
  budget->failed |= !ok;
  return ok;
}

static void
release(void *context, uint32_t at)
{
  ct_drain_give_counter(context, at, CT_COUNTER_OF_NOBODY);
}

void
ct_budget_give_counters(struct ct_session *session, const struct ct_budget_costs *costs, double allowed_ns,
                        size_t count)
{
  struct session_budget *budget = session->budget;
  struct ct_drain *drain = session->recording.drain;
  ct_budget_counters_settle(&budget->counters, ct_drain_counts_read_ns(drain), release, drain);
  bool few = ct_budget_counters_are_few(&budget->counters);
  for (size_t i = count; i-- > 0;) { /* the most called ones first */
    struct ct_budget_function *function = budget->sorted[i];
    uint32_t fn = (uint32_t)(function - budget->functions), at;
    bool needs = function->takes_counter && function->counter == 0 && !function->is_looked &&
                 !(few && function->seen == CT_SEEN_OUT) &&
                 function->rate * (costs->full + function->cold) > NEED_SHARE * allowed_ns;
    if (needs && !budget->failed) {
      if (!ct_budget_counters_take(&budget->counters, fn, &at)) {
        return;
      }
      function->counter = at + 1;
      ct_drain_give_counter(drain, at, fn);
      function->has_counter = ct_budget_write_counters(session, function);
    }
  }
}

/* ---- and give it back ---- */

/* Is no thread in its trampolines, or will come back there? */
static bool
is_left(const struct session_budget *budget, const struct ct_remote *remote, uint32_t fn)
{
  for (uint32_t n = budget->first_gate[fn]; n != 0; n = budget->gates[n - 1].next) {
    if (ct_install_is_occupied(remote, budget->gates[n - 1].at, CT_TRAMPOLINE_BYTES_MAX)) {
      return false;
    }
  }
  return true;
}

void
ct_budget_take_counters_back(struct ct_session *session, const struct ct_remote *remote)
{
  struct session_budget *budget = session->budget;
  struct ct_budget_counters *counters = &budget->counters;
  uint64_t now = ct_now_ns();
  if (!ct_budget_counters_are_few(counters)) {
    return;
  }
  for (uint32_t n = 0; n < counters->used; n++) {
    struct ct_budget_function *function = &budget->functions[counters->of[n].fn];
    bool is_idle = function->seen == CT_SEEN_OUT || (function->seen == CT_SEEN_FULL && function->rate == 0);
    bool is_apart = function->is_looked || function->is_apart || now - function->since_ns < REST_NS;
    if (counters->of[n].rests_ns == 0 && is_idle && !is_apart && is_left(budget, remote, counters->of[n].fn)) {
      function->has_counter = false;
      function->counter = 0;
      ct_budget_counters_rest(counters, n, now);
    }
  }
}
