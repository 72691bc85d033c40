/* SPDX-License-Identifier: MIT */
/*
 * See budget_policy.h. What would be best if nothing had been decided before is known (budget_choice.c). What is seen
 * already stays as it is, unless the limit would be passed (then the best choice counts), or there is room for clearly
 * more: functions are not to go to and fro. Where what is better does not fit beside what is there, both are exchanged.
 */
#include "record/budget_policy.h"

#define TOO_MUCH      0.95          /* of the limit: from there on a decision is due */
#define PROMOTE_NS    1000000000ull /* a function is seen better so long after its last step */
#define SETTLED_NS    10000000000ull
#define RETRY_NS      4000000000ull /* the first time; each time in a row that it fails twice as long */
#define OUT_NS        300000000ull  /* so long a function is only counted before it may go out, ... */
#define DEAR_SHARE    0.05          /* ... but not one that takes so much of the limit from its begin on, ... */
#define HOTTEST       64            /* ... and is one of so many, the most called ones, ... */
#define FAR           2.0           /* ... nor, of those called most, as many as make the rest cost so many limits */
#define STOP_SOON_NS  150000000ull  /* between two stops where much is to be saved: */
#define SOON_SHARE    0.3           /* of the limit */
#define UNPATCH_SHARE 0.02          /* of the limit: what patches of functions that are out must cost for a stop */
#define PROBES_SHARE  0.1           /* of the limit: for functions that were out, to see how they are called now ... */
#define PROBE_SECONDS 1.5           /* ... which takes so long, from one change of patches to the next */
#define LOOKED_NS     5000000000ull /* so long what a look has shown needs no probe (budget_look.c) */

static double
spent(const struct ct_budget_costs *costs, const struct ct_budget_function *function, uint8_t seen)
{
  if (seen == CT_SEEN_OUT && function->is_unpatched) {
    return 0;
  }
  bool is_recorded = function->is_point; /* as long as it is patched */
  return function->rate * ((is_recorded ? costs->full : ct_budget_call_cost(costs, seen)) + function->cold);
}

void
ct_budget_note_look(struct ct_budget_function *function, uint64_t now_ns)
{
  function->backoff += function->backoff < CT_BUDGET_BACKOFF_MAX;
  function->retry_ns = now_ns + (RETRY_NS << function->backoff);
}

struct probes {
  double allowed, sum;
  uint64_t now;
  bool any;
};

static void
choose_probe(struct ct_budget_function *function, const struct ct_budget_costs *costs, struct probes *probes)
{
  double most = PROBES_SHARE * probes->allowed;
  double price = spent(costs, function, ct_budget_seen_to_look(function));
  double seconds = (double)(probes->now - function->since_ns) / 1e9; /* that it was out */
  bool is_out = function->wanted == CT_SEEN_OUT && function->seen == CT_SEEN_OUT && probes->now >= function->retry_ns;
  bool is_known = function->own_ns != 0 && function->looked_ns != 0 && probes->now - function->looked_ns < LOOKED_NS;
  if (is_out && !is_known && seconds * most >= PROBE_SECONDS * price && (!probes->any || probes->sum + price <= most)) {
    probes->any = true;
    probes->sum += price;
    function->wanted = ct_budget_seen_to_look(function);
    function->because = CT_BUDGET_BECAUSE_LOOK;
    ct_budget_note_look(function, probes->now);
  }
}

/* Functions that are out come back, for a moment at least, to see how they are called now: those first of which it is
 * not known what they take. */
static void
choose_probes(struct ct_budget_function **functions, size_t count, const struct ct_budget_costs *costs, double allowed,
              uint64_t now)
{
  struct probes probes = {.allowed = allowed, .now = now};
  for (unsigned is_known = 0; is_known < 2; is_known++) {
    for (size_t i = 0; i < count; i++) {
      if ((functions[i]->own_ns != 0) == (is_known != 0)) {
        choose_probe(functions[i], costs, &probes);
      }
    }
  }
}

/* Of a function that is to be seen worse: what is to go out is counted first. */
static uint8_t
worse(const struct ct_budget_function *function, bool is_hottest, const struct ct_budget_costs *costs, double allowed,
      uint64_t now)
{
  bool is_dear = function->since_ns == 0 && function->seen == CT_SEEN_SAMPLED && is_hottest &&
                 spent(costs, function, CT_SEEN_COUNTED) > DEAR_SHARE * allowed;
  bool has_counted = function->seen == CT_SEEN_COUNTED && now - function->since_ns >= OUT_NS;
  bool counts_first = function->best == CT_SEEN_OUT && function->has_counter && !is_dear && !has_counted;
  return counts_first ? CT_SEEN_COUNTED : function->best;
}

/* Of one that may be seen better. */
static uint8_t
better(const struct ct_budget_function *function, uint64_t now, bool is_first)
{
  uint64_t age = now - function->since_ns;
  if (function->seen == CT_SEEN_OUT) {
    bool is_time = age >= PROMOTE_NS << function->backoff && function->sure != CT_SEEN_OUT;
    bool counts_first = function->has_counter && !function->is_ruled;
    return !is_time ? CT_SEEN_OUT : counts_first ? CT_SEEN_COUNTED : function->sure;
  }
  if (is_first) {
    return function->best;
  }
  return age >= PROMOTE_NS && function->sure < function->seen ? function->sure : function->seen;
}

static double
sum_up(struct ct_budget_function *const *functions, size_t count, const struct ct_budget_costs *costs, bool wanted)
{
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    sum += spent(costs, functions[i], wanted ? functions[i]->wanted : functions[i]->seen);
  }
  return sum;
}

/*
 * What is counted until it may go out costs too, more than anything else where hundreds of functions are new, and a
 * short program is over by then. So while that is far from what is allowed, the most called ones do not wait. The rest
 * does, so that what is called at the begin only keeps its exact numbers; and so does what rules are about, which count
 * its calls. What is out costs nothing soon: its patch goes.
 */
static void
go_at_once(struct ct_budget_function *const *functions, size_t count, const struct ct_budget_costs *costs,
           double allowed)
{
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    sum += functions[i]->wanted != CT_SEEN_OUT ? spent(costs, functions[i], functions[i]->wanted) : 0;
  }
  for (size_t i = count; i-- > 0 && sum > FAR * allowed;) {
    struct ct_budget_function *function = functions[i];
    if (function->best == CT_SEEN_OUT && function->wanted != CT_SEEN_OUT && !function->keeps_patch &&
        !function->is_ruled) {
      sum -= spent(costs, function, function->wanted);
      function->wanted = CT_SEEN_OUT;
    }
  }
}

static void
give_way(struct ct_budget_function *const *functions, size_t count, const struct ct_budget_costs *costs, double allowed,
         uint64_t now, uint8_t because)
{
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = functions[i];
    if (function->best > function->seen) {
      function->wanted = worse(function, i + HOTTEST >= count, costs, allowed, now);
      function->because = because;
    }
  }
  go_at_once(functions, count, costs, allowed);
}

static void
note_retries(struct ct_budget_function *const *functions, size_t count, uint64_t now)
{
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = functions[i];
    if (function->wanted == CT_SEEN_OUT && function->seen != CT_SEEN_OUT) {
      function->retry_ns = now + (RETRY_NS << function->backoff);
    } else if (function->seen != CT_SEEN_OUT && now - function->since_ns > SETTLED_NS) {
      function->backoff = 0;
    }
  }
}

double
ct_budget_choose(struct ct_budget_function **functions, size_t count, const struct ct_budget_costs *costs,
                 double allowed_ns, uint64_t now_ns, bool is_first, bool may_try)
{
  ct_budget_best(functions, count, costs, allowed_ns * CT_BUDGET_AIM);
  bool too_much = sum_up(functions, count, costs, false) > allowed_ns * TOO_MUCH;
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = functions[i];
    bool is_better = (!too_much || function->is_ruled) && function->best < function->seen;
    function->wanted = is_better ? better(function, now_ns, is_first) : function->seen;
    function->because = CT_BUDGET_BECAUSE_ROOM;
  }
  if (too_much) {
    give_way(functions, count, costs, allowed_ns, now_ns, CT_BUDGET_BECAUSE_LIMIT);
  } else if (sum_up(functions, count, costs, true) > allowed_ns * TOO_MUCH) {
    give_way(functions, count, costs, allowed_ns, now_ns, CT_BUDGET_BECAUSE_EXCHANGE);
  }
  note_retries(functions, count, now_ns);
  if (!too_much && may_try) {
    choose_probes(functions, count, costs, allowed_ns, now_ns);
  }
  return sum_up(functions, count, costs, true);
}

bool
ct_budget_wants_stop(struct ct_budget_function *const *functions, size_t count, const struct ct_budget_costs *costs,
                     double allowed_ns, uint64_t age_ns)
{
  double saved = 0;
  bool comes_back = false;
  for (size_t i = 0; i < count; i++) {
    const struct ct_budget_function *function = functions[i];
    comes_back |= function->is_unpatched && function->seen != CT_SEEN_OUT;
    if (function->seen == CT_SEEN_OUT && !function->is_unpatched && !function->keeps_patch) {
      saved += spent(costs, function, CT_SEEN_OUT);
    }
  }
  return age_ns >= CT_BUDGET_STOP_NS ? comes_back || saved > UNPATCH_SHARE * allowed_ns
                                     : age_ns >= STOP_SOON_NS && saved > SOON_SHARE * allowed_ns;
}
