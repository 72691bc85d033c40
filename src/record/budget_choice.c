/* SPDX-License-Identifier: MIT */
/*
 * A knapsack. What is packed are steps: of a function from one level to a better one. A step costs what the function's
 * calls cost more then, and tells a part (TOLD) of what the function is worth:
 *
 *   worth = its share of the program's time + an equal part of WORTH_OF_ALL
 *
 * The share is its rate times its own time of a call. Where that is not known yet, it is a part of the time that is
 * left: half of that goes to such functions alike, half to their calls alike, so that one that is called often, and
 * went out before it was known, comes back to be measured. The second part is there since a function that takes no time
 * is worth something, too: that it is called, by whom, and how often.
 *
 * Steps are taken in the order of what they tell for their cost, as long as they fit; one that does not is passed over,
 * and cheaper ones that tell less may still fit. So a long function that does not fit in full is counted before all
 * that are shorter; what goes down first is called often, short, and always takes as long (`steady`). A function whose
 * every level costs alike, as where code is cold, has but one step, from out to full: none ends at a level that tells
 * less for its cost than the next one.
 *
 * Worked example, costs 4 and 60 ns, limit 1 %: 10 ms a second. `write`, 100,000 calls a second of 4.5 us, is 45 % of
 * the time: counted it costs 0.4 ms and tells half of that, in full 5.6 ms more and the other half. `hash`, 10 million
 * of 20 ns: counted 40 ms for 10 %, which never fits. `find`, 500,000 of 200 ns: counted 2 ms for 5 %. By what a ms
 * tells: write counted (56 %), write in full (4.0), find counted (2.5), hash counted (0.25). The first three fit: 8 ms.
 *
 * Before all that, what a rule is about is taken in full, the rarest first, as long as it fits into a part of the
 * limit: of a call that is only counted nobody knows whether it took long or failed, and finding the one that did is
 * what the rule is for.
 *
 * For the order a step's place is found at once, by the first bits of the number: eight for each factor of two are
 * enough, and a program has thousands of functions ten times a second.
 */
#include "record/budget_choice.h"

#include <string.h>

#define WORTH_OF_ALL 0.2  /* beside the program's time, which is 1 */
#define UNKNOWN_PART 0.8  /* of the time that no known function takes: for those whose own times are not known */
#define SURE         1.3  /* see ct_budget_best */
#define STAY_MOST    0.5  /* of what may be spent: for patches that stay; or nothing would be left */
#define STEADY_LESS  0.25 /* of what a function tells: in full it tells so much less when it always takes as long */
#define COST_LEAST   0.1  /* ns, of a step */
/* Of the process's time: what own times of calls that are seen may come to, or they are wrong. */
#define SEEN_MOST  1.5
#define PLACE_BITS 3
#define LEAST_LOG2 16 /* the first place is for what tells 2^-16 and less */
#define PLACES     512u
#define BETTER     CT_SEEN_OUT /* so many levels are better than out */

/* Of what a function is worth: counted, it tells how often it is called at what time; sampled, of some calls how long
 * they took and who made them. */
static const double TOLD[CT_SEEN_LEVELS] = {
    [CT_SEEN_FULL] = 1, [CT_SEEN_SAMPLED] = 0.55, [CT_SEEN_COUNTED] = 0.5, [CT_SEEN_OUT] = 0};

uint8_t
ct_budget_seen_to_look(const struct ct_budget_function *function)
{
  return function->has_counter ? CT_SEEN_COUNTED : CT_SEEN_FULL;
}

double
ct_budget_call_cost(const struct ct_budget_costs *costs, uint8_t seen)
{
  switch (seen) {
  case CT_SEEN_FULL:
    return costs->full;
  case CT_SEEN_SAMPLED:
    return costs->counted + costs->full / CT_SEEN_SAMPLED_CALLS;
  case CT_SEEN_COUNTED:
    return costs->counted;
  default:
    return costs->out;
  }
}

struct bag {
  struct ct_budget_function *const *functions;
  size_t count;
  const struct ct_budget_costs *costs;
  double worth;           /* of any function */
  double unknown;         /* more, of one whose own time is not known, ... */
  double unknown_call;    /* ... and for each of its calls a second */
  double stale_part;      /* of what functions cost that are stale */
  uint32_t first[PLACES]; /* a step is BETTER times the function's number and the level, and 1 */
};

bool
ct_budget_is_stale(const struct ct_budget_function *function)
{
  return function->seen == CT_SEEN_OUT && function->is_unpatched;
}

static double
own_share(const struct ct_budget_function *function)
{
  double share = function->rate * function->own_ns / 1e9;
  return share < 1 ? share : 1;
}

/*
 * What is known of all. All own times together are at most the process's time. Where a program does one thing after
 * another, what was called a minute ago and went out then would keep for ever what it took then: beside redis these
 * were two and a half times the process's time. So of what they cost only a part is to be kept.
 */
static void
look_at_all(struct bag *bag)
{
  double seen = 0, stale = 0, calls = 0;
  size_t unknown = 0;
  for (size_t i = 0; i < bag->count; i++) {
    *(ct_budget_is_stale(bag->functions[i]) ? &stale : &seen) += own_share(bag->functions[i]);
    if (bag->functions[i]->own_ns == 0) {
      unknown++;
      calls += bag->functions[i]->rate;
    }
  }
  double rest = seen < 1 ? 1 - seen : 0;
  bag->worth = WORTH_OF_ALL / (double)(bag->count + 1);
  double left = rest > stale ? UNKNOWN_PART * (rest - stale) : 0;
  bag->unknown = unknown != 0 ? left / 2 / (double)unknown : 0;
  bag->unknown_call = calls > 0 ? left / 2 / calls : 0;
  bag->stale_part = stale > rest && seen < SEEN_MOST ? rest / stale : 1;
}

/* Of a call. */
static double
price(const struct bag *bag, const struct ct_budget_function *function, unsigned level)
{
  if (level == CT_SEEN_OUT) {
    return function->keeps_patch ? bag->costs->out + function->cold : 0;
  }
  return function->cold + (function->is_point ? bag->costs->full : ct_budget_call_cost(bag->costs, (uint8_t)level));
}

static double
step_price(const struct bag *bag, const struct ct_budget_function *function, unsigned from, unsigned to)
{
  double more = price(bag, function, to) - price(bag, function, from);
  return more > COST_LEAST ? more : COST_LEAST;
}

static double
told(const struct ct_budget_function *function, unsigned level)
{
  return TOLD[level] - (level == CT_SEEN_FULL ? STEADY_LESS * function->steady : 0);
}

static unsigned
place_of(double told_for_a_ns)
{
  float value = (float)told_for_a_ns;
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  int32_t place = (int32_t)(bits >> (23 - PLACE_BITS)) - ((127 - LEAST_LOG2) << PLACE_BITS);
  return place < 0 ? 0 : place < (int32_t)PLACES ? (unsigned)place : PLACES - 1;
}

/* The next step from this level: the one that tells most for what it costs. */
static unsigned
best_step(const struct bag *bag, const struct ct_budget_function *function, unsigned from, double *best)
{
  unsigned to = CT_SEEN_FULL;
  *best = 0;
  for (unsigned level = from; level-- > CT_SEEN_FULL;) {
    bool is_possible = level == CT_SEEN_FULL || function->has_counter;
    double more = (told(function, level) - told(function, from)) / step_price(bag, function, from, level);
    if (is_possible && more >= *best) {
      *best = more;
      to = level;
    }
  }
  return to;
}

/* The last step first: of those at one place the first one is to come first. */
static void
put_steps(struct bag *bag, size_t at)
{
  struct ct_budget_function *function = bag->functions[at];
  double unknown = bag->unknown + bag->unknown_call * function->rate;
  double worth = bag->worth + (function->own_ns == 0 ? unknown : own_share(function));
  double for_a_call = 1e9 * worth / function->rate; /* of one that is not called: infinite */
  unsigned levels[BETTER], places[BETTER], count = 0;
  for (unsigned from = CT_SEEN_OUT; from != CT_SEEN_FULL; from = levels[count++]) {
    double best;
    levels[count] = best_step(bag, function, from, &best);
    places[count] = place_of(best * for_a_call);
  }
  while (count-- > 0) {
    function->next_step[levels[count]] = bag->first[places[count]];
    bag->first[places[count]] = (uint32_t)(at * BETTER + levels[count] + 1);
  }
}

/* What rules are about; the least called functions are the first. What that costs. */
static double
pack_ruled(const struct bag *bag, double most)
{
  double sum = 0;
  for (size_t i = 0; i < bag->count; i++) {
    struct ct_budget_function *function = bag->functions[i];
    double cost = function->is_ruled ? function->rate * step_price(bag, function, CT_SEEN_OUT, CT_SEEN_FULL) : 0;
    if (function->is_ruled && sum + cost <= most) {
      function->packed = CT_SEEN_FULL;
      function->packed_sure = sum + SURE * cost <= most ? CT_SEEN_FULL : CT_SEEN_OUT;
      sum += cost;
    }
  }
  return sum;
}

/* From the dearest place on, what fits. */
static void
pack(const struct bag *bag, double rest)
{
  for (size_t i = 0; i < bag->count; i++) {
    bag->functions[i]->packed = bag->functions[i]->packed_sure = CT_SEEN_OUT;
  }
  rest -= pack_ruled(bag, bag->costs->ruled);
  for (unsigned place = PLACES; place-- > 0;) {
    for (uint32_t step = bag->first[place]; step != 0;) {
      struct ct_budget_function *function = bag->functions[(step - 1) / BETTER];
      uint8_t to = (uint8_t)((step - 1) % BETTER);
      bool is_full = function->packed == CT_SEEN_FULL; /* for a rule */
      double cost = function->rate * step_price(bag, function, function->packed, to);
      cost *= ct_budget_is_stale(function) ? bag->stale_part : 1;
      if (!is_full && cost <= rest) {
        bool is_sure = function->packed_sure == function->packed && SURE * cost <= rest;
        function->packed_sure = is_sure ? to : function->packed_sure;
        function->packed = to;
        rest -= cost;
      }
      step = function->next_step[to];
    }
  }
}

static void
unpack(const struct bag *bag, bool only_stale)
{
  for (size_t i = 0; i < bag->count; i++) {
    struct ct_budget_function *function = bag->functions[i];
    if (!only_stale || ct_budget_is_stale(function)) {
      function->best = function->packed;
      function->sure = function->packed_sure;
    }
  }
}

void
ct_budget_best(struct ct_budget_function *const *functions, size_t count, const struct ct_budget_costs *costs,
               double aim_ns)
{
  struct bag bag = {.functions = functions, .count = count, .costs = costs};
  double stays = 0;
  look_at_all(&bag);
  for (size_t i = count; i-- > 0;) {
    put_steps(&bag, i);
    stays += functions[i]->rate * price(&bag, functions[i], CT_SEEN_OUT);
  }
  double rest = aim_ns - (stays < STAY_MOST * aim_ns ? stays : STAY_MOST * aim_ns);
  pack(&bag, rest);
  unpack(&bag, false);
  if (bag.stale_part < 1) { /* and who comes back has to fit as a whole */
    bag.stale_part = 1;
    pack(&bag, rest);
    unpack(&bag, true);
  }
}
