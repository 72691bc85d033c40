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
 * 1, as in budget_factor.c.
 */
#include "record/budget_cold.h"

#include <stdlib.h>

#define MOST_NS     60.0   /* measured with 4,000 functions of 300 bytes, each called once in a round */
#define HALF        1000.0 /* functions */
#define PRIOR       1.0
#define PRIOR_SHARE 0.05 /* what an experiment in favour of it would have saved */
#define FORGET      0.9
#define LEAST       0.3
#define MOST        8.0
#define CALLS_LEAST 20.0 /* before and after: of a function that counts */
#define RATIOS      5    /* so many functions, or the experiment says nothing */
#define SHARE_LEAST 0.01 /* to be saved, or to be lost */

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
  return function->is_unpatched != (function->seen == CT_SEEN_OUT);
}

void
ct_budget_cold_before(struct ct_budget_cold *cold, struct ct_budget_function **functions, size_t count,
                      const struct ct_budget_costs *costs, double cpu_ns)
{
  double factor = ct_budget_cold_factor(cold);
  cold->cold = cold->warm = 0;
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = functions[i];
    function->is_witness = !changes(function) && !function->is_unpatched && function->calls >= CALLS_LEAST;
    function->before = function->calls / cpu_ns;
    if (changes(function)) { /* rates are calls in a second of processor time */
      double share = (function->is_unpatched ? -1e-9 : 1e-9) * function->rate;
      cold->cold += share * function->cold / factor;
      cold->warm += share * ct_budget_call_cost(costs, function->is_unpatched ? function->seen : CT_SEEN_OUT);
    }
  }
  double all = cold->cold + cold->warm;
  cold->goes_on = all > SHARE_LEAST || all < -SHARE_LEAST;
}

static int
compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void
ct_budget_cold_after(struct ct_budget_cold *cold, struct ct_budget_function **functions, size_t count, double cpu_ns,
                     double *room)
{
  size_t ratios = 0;
  for (size_t i = 0; i < count; i++) {
    const struct ct_budget_function *function = functions[i];
    if (function->is_witness && function->calls >= CALLS_LEAST) {
      room[ratios++] = function->before * cpu_ns / function->calls;
    }
  }
  cold->goes_on = false;
  if (ratios < RATIOS) {
    return;
  }
  qsort(room, ratios, sizeof(*room), compare);
  double saved = 1 - room[ratios / 2]; /* of the processor time before */
  saved = saved < -2 ? -2 : saved;
  cold->products = FORGET * cold->products + cold->cold * (saved - cold->warm);
  cold->squares = FORGET * cold->squares + cold->cold * cold->cold;
  cold->done++;
}
