/* SPDX-License-Identifier: MIT */
/*
 * A hook that is used all the time costs what was measured in a loop. Where a request runs through thousands of
 * functions once, each call waits: for the lines of its trampoline, for its counter, and for jumps that the processor
 * has forgotten. A counted call waits about as long as a recorded one, and a call of a function that is out and still
 * has its patch as long again: only taking patches out helps.
 *
 * How much of a hook is still there is a matter of what ran in between. Between two calls of a function that is called
 * r times a second, a function that is called s times comes by with probability min(1, s / r); the sum of these is the
 * number of functions, N. What a call waits is taken as MOST_NS N / (N + HALF): next to nothing for a hot function,
 * nearly MOST_NS for one that comes once in a long request. Functions that are out belong to it too: their own code
 * takes the caches.
 *
 * That is right but for a factor, which is the program's and the machine's own. It is found when patches are taken out
 * or put back, which is done anyway (an experiment costs nothing more, and no call is missing for it): by the functions
 * that are seen before and after in the same way one sees how much more often they are called in a second of processor
 * time, that is how much faster the program goes. The factor is what fits all experiments best, with one in favour of
 * what is usual, as in budget_factor.c.
 */
#include "record/budget_cold.h"

#define MOST_NS     60.0   /* measured with 4,000 functions of 300 bytes, each called once in a round */
#define HALF        1000.0 /* functions */
#define PRIOR       1.8    /* as it was in postgres */
#define PRIOR_SHARE 0.2    /* what an experiment in favour of it would have saved */
#define FORGET      0.9
#define LEAST       0.8
#define MOST        6.0
#define CALLS_LEAST 200.0 /* of all witnesses, before and after, or the experiment says nothing */
#define SHARE_LEAST 0.01  /* to be saved, or to be lost */

void
ct_budget_cold_begin(struct ct_budget_cold *cold)
{
  *cold = (struct ct_budget_cold){.products = PRIOR * PRIOR_SHARE * PRIOR_SHARE, .squares = PRIOR_SHARE * PRIOR_SHARE};
}

double
ct_budget_cold_factor(const struct ct_budget_cold *cold)
{
  double value = cold->products / cold->squares;
  return value < LEAST ? LEAST : value > MOST ? MOST : value;
}

void
ct_budget_cold_costs(const struct ct_budget_cold *cold, struct ct_budget_function **functions, size_t count)
{
  double rarer = 0, most = MOST_NS * ct_budget_cold_factor(cold); /* rarer: calls of those that are called less */
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = functions[i];
    double between = (double)(count - i - 1) + (function->rate > 0 ? rarer / function->rate : 0);
    function->cold = most * between / (between + HALF);
    rarer += function->rate;
  }
}

/* Its patch is not as it should be. */
static bool
changes(const struct ct_budget_function *function)
{
  return function->is_unpatched != (function->seen == CT_SEEN_OUT && !function->keeps_patch);
}

void
ct_budget_cold_before(struct ct_budget_cold *cold, struct ct_budget_function **functions, size_t count,
                      const struct ct_budget_costs *costs, double others, double cpu_ns)
{
  double factor = ct_budget_cold_factor(cold);
  cold->cold = cold->warm = 0;
  cold->before = others;
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = functions[i];
    function->is_witness = !changes(function) && !function->is_unpatched;
    cold->before += function->is_witness ? function->calls : 0;
    if (changes(function)) { /* rates are calls in a second of processor time */
      double share = (function->is_unpatched ? -1e-9 : 1e-9) * function->rate;
      cold->cold += share * function->cold / factor;
      cold->warm += share * ct_budget_call_cost(costs, function->is_unpatched ? function->seen : CT_SEEN_OUT);
    }
  }
  double all = cold->cold + cold->warm;
  cold->goes_on = (all > SHARE_LEAST || all < -SHARE_LEAST) && cold->before >= CALLS_LEAST;
  cold->before /= cpu_ns;
}

void
ct_budget_cold_after(struct ct_budget_cold *cold, struct ct_budget_function *const *functions, size_t count,
                     double others, double cpu_ns)
{
  double after = others;
  for (size_t i = 0; i < count; i++) {
    after += functions[i]->is_witness ? functions[i]->calls : 0;
  }
  cold->goes_on = false;
  if (after < CALLS_LEAST) {
    return;
  }
  double saved = 1 - cold->before * cpu_ns / after; /* of the processor time before */
  if ((saved > 0) != (cold->cold > 0)) {            /* that is the machine */
    saved = 0;
  }
  saved = saved < -2 ? -2 : saved;
  cold->products = FORGET * cold->products + cold->cold * (saved - cold->warm);
  cold->squares = FORGET * cold->squares + cold->cold * cold->cold;
  cold->done++;
}
