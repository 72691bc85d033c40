/* SPDX-License-Identifier: MIT */
/*
 * What hooks cost is measured in a loop, where all is in the caches. In a program they cost more, by a factor that is
 * the program's own: some 1.2 where few functions are hot, 3 and more where a request runs through thousands once. So
 * it is measured there: for a tenth of a second the functions that cost most are only counted. All others go on as they
 * were, and how often they, and the counted ones, are called in a second of the process's processor time says how much
 * faster the program goes: the median of these ratios over all functions, against the tenths before and after. Nothing
 * is missing for that: calls are counted throughout.
 *
 * The factor is what fits all experiments best (least squares through zero), with one in favour of the usual: so those
 * in which little was saved, which are mostly noise, have little weight. So have those around which the program went
 * faster or slower by itself. (One in which 0.5 % were to be saved, on a machine with other work, once said that hooks
 * were 5.3 times as dear, and all that was seen in full went out.)
 */
#include "record/budget_factor.h"

#include <stdlib.h>

#define USUAL       1.3
#define USUAL_SHARE 0.03 /* what an experiment in favour of the usual would have saved */
#define FORGET      0.9  /* the weight of what is older */
#define LEAST       0.8
#define MOST        10.0
#define CALLS_LEAST 30.0  /* in each of the three ticks: of a function that counts */
#define RATIOS      10    /* so many functions, or the experiment says nothing */
#define SHARE_LEAST 0.002 /* to be saved */
#define NOISE_LEAST 0.01  /* of such a ratio, where the machine has nothing else to do */
#define FIRST_NS    700000000ull
#define SOON_NS     500000000ull /* between the first ones ... */
#define SOON        6u
#define LATER_NS    20000000000ull /* ... and then */

void
ct_budget_factor_begin(struct ct_budget_factor *factor, uint64_t now_ns)
{
  *factor = (struct ct_budget_factor){.products = USUAL * USUAL_SHARE * USUAL_SHARE,
                                      .squares = USUAL_SHARE * USUAL_SHARE,
                                      .next_ns = now_ns + FIRST_NS};
}

double
ct_budget_factor(const struct ct_budget_factor *factor)
{
  double value = factor->products / factor->squares;
  return value < LEAST ? LEAST : value > MOST ? MOST : value;
}

static void
schedule(struct ct_budget_factor *factor, uint64_t now)
{
  factor->phase = CT_BUDGET_NO_EXPERIMENT;
  factor->next_ns = now + (factor->done < SOON ? SOON_NS : LATER_NS);
}

bool
ct_budget_factor_apart(struct ct_budget_factor *factor, struct ct_budget_function **functions, size_t count,
                       const struct ct_budget_costs *costs, double cpu_ns)
{
  double saved = 0;
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = functions[i];
    function->before = function->calls / cpu_ns;
    bool may_be = function->has_counter && !function->is_ruled;
    function->is_apart = may_be && function->calls > 0 && function->seen <= CT_SEEN_SAMPLED;
    if (function->is_apart) {
      saved += function->calls * (ct_budget_call_cost(costs, function->seen) - costs->counted);
    }
  }
  double rest = cpu_ns - saved * ct_budget_factor(factor);
  factor->predicted = rest > cpu_ns / 10 ? saved / rest : saved / (cpu_ns / 10);
  if (factor->predicted < SHARE_LEAST) {
    return false;
  }
  factor->phase = CT_BUDGET_APART;
  return true;
}

void
ct_budget_factor_again(struct ct_budget_factor *factor, struct ct_budget_function **functions, size_t count,
                       double cpu_ns)
{
  for (size_t i = 0; i < count; i++) {
    functions[i]->apart = functions[i]->calls / cpu_ns;
    functions[i]->is_apart = false;
  }
  factor->phase = CT_BUDGET_AGAIN;
}

static int
compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/*
 * Of a program that goes faster by so much while the functions are only counted, when it went faster by `drift` by
 * itself meanwhile (the tenth after against the one before). Where that is much against what was to be saved, it is the
 * machine, or the program's work, that is seen, and has little weight.
 */
static void
learn(struct ct_budget_factor *factor, double faster, double drift)
{
  double predicted = factor->predicted, most = MOST * predicted, noise = drift * drift + NOISE_LEAST * NOISE_LEAST;
  double weight = predicted * predicted / (predicted * predicted + noise);
  faster = faster < -most ? -most : faster > most ? most : faster;
  factor->products = FORGET * factor->products + weight * predicted * faster;
  factor->squares = FORGET * factor->squares + weight * predicted * predicted;
}

void
ct_budget_factor_end(struct ct_budget_factor *factor, struct ct_budget_function **functions, size_t count,
                     double cpu_ns, uint64_t now_ns, double *room)
{
  size_t ratios = 0;
  double least = CALLS_LEAST / cpu_ns, *drifts = room + count;
  for (size_t i = 0; i < count; i++) {
    const struct ct_budget_function *function = functions[i];
    double after = function->calls / cpu_ns;
    if (function->seen != CT_SEEN_OUT && function->before > least && function->apart > least && after > least) {
      drifts[ratios] = 2 * (after - function->before) / (function->before + after);
      room[ratios++] = 2 * function->apart / (function->before + after);
    }
  }
  if (ratios >= RATIOS) {
    qsort(room, ratios, sizeof(*room), compare);
    qsort(drifts, ratios, sizeof(*drifts), compare);
    learn(factor, room[ratios / 2] - 1, drifts[ratios / 2]);
    factor->done++;
  }
  schedule(factor, now_ns);
}

void
ct_budget_factor_give_up(struct ct_budget_factor *factor, uint64_t now_ns)
{
  schedule(factor, now_ns);
}
