/* SPDX-License-Identifier: MIT */
/*
 * See budget_policy.h. First a threshold of the own time of a call: what takes longer is recorded. Of the others three
 * thresholds of the rate are found, as if nothing had been decided before: up to the first
 * functions are recorded, up to the second sampled, up to the third counted. Then what is seen already stays as it is,
 * unless the limit would be passed (then the thresholds count), or there is room for clearly more: functions are not to
 * go to and fro.
 */
#include "record/budget_policy.h"

#include <math.h>

#define AIM        0.85 /* of the limit: what a decision is made for */
#define TOO_MUCH   0.95 /* of the limit: from there on a decision is due */
#define LONG_MOST  0.6  /* of what is aimed at: for functions with long own times, ... */
#define LONG_TIMES 3.0  /* ... so much longer than recording a call takes */
#define SEEN_MOST  1.5  /* of the process's time: what own times of calls that are seen may come to, or they are wrong \
                         */
#define LONG_STEPS    24  /* to find from where on, up to 2^LONG_STEPS times that */
#define COUNTED_MOST  0.5 /* of the rest: for counting */
#define SAMPLED_MOST  0.5 /* of the rest: for samples */
#define PROMOTE_RATE  1.3 /* a function is seen better when one that is called so much more would be too ... */
#define PROMOTE_NS    1000000000ull /* ... and so long after its last step */
#define SETTLED_NS    10000000000ull
#define RETRY_NS      4000000000ull /* the first time; each time in a row that it fails twice as long */
#define OUT_NS        300000000ull  /* so long a function is only counted before it may go out, ... */
#define DEAR_SHARE    0.05          /* ... but not one that takes so much of the limit from its begin on, ... */
#define HOTTEST       64            /* ... and is one of so many, the most called ones */
#define STOP_SOON_NS  150000000ull  /* between two stops where much is to be saved: */
#define SOON_SHARE    0.3           /* of the limit */
#define UNPATCH_SHARE 0.02          /* of the limit: what patches of functions that are out must cost for a stop */
#define PROBES_SHARE  0.1           /* of the limit: for functions that were out, to see how they are called now ... */
#define PROBE_SECONDS 1.5           /* ... which takes so long, from one change of patches to the next */

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

static double
spent(const struct ct_budget_costs *costs, const struct ct_budget_function *function, uint8_t seen)
{
  if (seen == CT_SEEN_OUT && function->is_unpatched) {
    return 0;
  }
  bool is_recorded = function->is_point; /* as long as it is patched */
  return function->rate * ((is_recorded ? costs->full : ct_budget_call_cost(costs, seen)) + function->cold);
}

struct thresholds {
  double own_ns;                 /* of a call: what takes so long is recorded, and the next ones are of the others */
  double own_ns_stale;           /* the same, of functions that nobody sees now */
  size_t full, sampled, counted; /* of the sorted functions the first one that is not seen so well */
};

/* Nobody sees how it is called now: its rate is what it was. */
static bool
is_stale(const struct ct_budget_function *function)
{
  return function->seen == CT_SEEN_OUT && function->is_unpatched;
}

/*
 * How much of what functions cost that nobody sees is to be kept for them. All own times together are at most the
 * process's time. Where a program does one thing after another, what was called a minute ago and went out then would
 * keep for ever what it took then: beside redis these were two and a half times the process's time.
 */
static double
stale_part(struct ct_budget_function *const *functions, size_t count)
{
  double seen = 0, stale = 0;
  for (size_t i = 0; i < count; i++) {
    double share = functions[i]->rate * functions[i]->own_ns / 1e9;
    *(is_stale(functions[i]) ? &stale : &seen) += share;
  }
  double rest = seen < 1 ? 1 - seen : 0;
  return stale > rest && seen < SEEN_MOST ? rest / stale : 1;
}

struct long_ones {
  struct ct_budget_function *const *functions;
  size_t count;
  const struct ct_budget_costs *costs;
  double stale_part;
};

/* What it takes to record those that take so long. */
static double
price_of_long(const struct long_ones *of, double own_ns)
{
  double sum = 0;
  for (size_t i = 0; i < of->count; i++) {
    const struct ct_budget_function *function = of->functions[i];
    double price = function->own_ns >= own_ns ? function->rate * (of->costs->full + function->cold) : 0;
    sum += price * (is_stale(function) ? of->stale_part : 1);
  }
  return sum;
}

/* The least one that leaves it within what is allowed for that, to a few per cent. */
static double
find_long(const struct long_ones *of, double most)
{
  double low = LONG_TIMES * of->costs->full, high = low;
  int step = 0;
  while (price_of_long(of, high) > most) {
    low = high;
    high *= 2;
    if (++step == LONG_STEPS) {
      return HUGE_VAL;
    }
  }
  for (step = 0; step < 6 && high > low; step++) {
    double middle = (low + high) / 2;
    if (price_of_long(of, middle) > most) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return high;
}

static double
long_from(const struct ct_budget_function *function, const struct thresholds *to)
{
  return is_stale(function) ? to->own_ns_stale : to->own_ns;
}

static bool
is_long(const struct ct_budget_function *function, const struct thresholds *to)
{
  return function->own_ns >= long_from(function, to);
}

/* A function without a counter is recorded, or out. */
static struct thresholds
find_thresholds(struct ct_budget_function *const *functions, size_t count, const struct ct_budget_costs *costs,
                double aim)
{
  double counting = 0, extra, rest;
  const struct long_ones of = {functions, count, costs, stale_part(functions, count)};
  const struct long_ones all = {functions, count, costs, 1};
  struct thresholds to = {.own_ns = find_long(&of, aim * LONG_MOST), .own_ns_stale = find_long(&all, aim * LONG_MOST)};
  aim -= price_of_long(&of, to.own_ns);
  while (to.counted < count) {
    const struct ct_budget_function *function = functions[to.counted];
    if (is_long(function, &to)) {
      to.counted++;
      continue;
    }
    extra = function->has_counter ? function->rate * (costs->counted + function->cold) : 0;
    if (counting + extra > aim * COUNTED_MOST) {
      break;
    }
    counting += extra;
    to.counted++;
  }
  rest = aim - counting;
  double sampling = 0;
  while (to.sampled < to.counted) {
    bool is_sampled = functions[to.sampled]->has_counter && !is_long(functions[to.sampled], &to);
    extra = is_sampled ? functions[to.sampled]->rate * (costs->full / CT_SEEN_SAMPLED_CALLS) : 0;
    if (sampling + extra > rest * SAMPLED_MOST) {
      break;
    }
    sampling += extra;
    to.sampled++;
  }
  double recording = 0;
  while (to.full < to.counted) {
    const struct ct_budget_function *function = functions[to.full];
    double instead = !function->has_counter ? -function->cold
                     : to.full < to.sampled ? ct_budget_call_cost(costs, CT_SEEN_SAMPLED)
                                            : costs->counted;
    extra = is_long(function, &to) ? 0 : function->rate * (costs->full - instead);
    if (recording + extra > rest - sampling) {
      break;
    }
    recording += extra;
    to.full++;
  }
  to.sampled = to.sampled > to.full ? to.sampled : to.full;
  return to;
}

static uint8_t
by_thresholds(const struct ct_budget_function *function, size_t at, const struct thresholds *to)
{
  if (at < to->full || is_long(function, to)) {
    return CT_SEEN_FULL;
  }
  return !function->has_counter || at >= to->counted ? CT_SEEN_OUT
         : at < to->sampled                          ? CT_SEEN_SAMPLED
                                                     : CT_SEEN_COUNTED;
}

/* Would it still be seen so if it were called more often? Then its place may be another one soon, but not yet. */
static bool
has_room(struct ct_budget_function *const *functions, size_t count, size_t at, uint8_t seen,
         const struct thresholds *to, const struct ct_budget_costs *costs)
{
  if (is_long(functions[at], to)) {
    double from = long_from(functions[at], to);
    return functions[at]->own_ns >= from * PROMOTE_RATE || from <= LONG_TIMES * costs->full;
  }
  size_t end = seen == CT_SEEN_FULL ? to->full : seen == CT_SEEN_SAMPLED ? to->sampled : to->counted;
  return end == count || functions[at]->rate * PROMOTE_RATE <= functions[end]->rate;
}

/* Functions that are out come back, for a moment at least, to see how they are called now. */
static void
choose_probes(struct ct_budget_function **functions, size_t count, const struct ct_budget_costs *costs, double allowed,
              uint64_t now)
{
  double probes = 0;
  bool any = false;
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = functions[i];
    double price = spent(costs, function, function->has_counter ? CT_SEEN_COUNTED : CT_SEEN_FULL);
    double seconds = (double)(now - function->since_ns) / 1e9; /* that it was out */
    bool is_worth_it = seconds * PROBES_SHARE * allowed >= PROBE_SECONDS * price;
    if (function->wanted != CT_SEEN_OUT || function->seen != CT_SEEN_OUT || now < function->retry_ns || !is_worth_it ||
        (any && probes + price > PROBES_SHARE * allowed)) {
      continue;
    }
    any = true;
    probes += price;
    function->wanted = function->has_counter ? CT_SEEN_COUNTED : CT_SEEN_FULL;
    function->backoff += function->backoff < CT_BUDGET_BACKOFF_MAX;
    function->retry_ns = now + (RETRY_NS << function->backoff);
  }
}

/* What becomes of a function that is seen somehow. */
static uint8_t
choose_one(struct ct_budget_function *const *functions, size_t count, size_t at, const struct thresholds *to,
           const struct ct_budget_costs *costs, double allowed, bool too_much, uint64_t now, bool is_first)
{
  const struct ct_budget_function *function = functions[at];
  uint8_t best = by_thresholds(function, at, to);
  uint64_t age = now - function->since_ns;
  if (best > function->seen) {
    bool is_dear = function->since_ns == 0 && function->seen == CT_SEEN_SAMPLED && at + HOTTEST >= count &&
                   spent(costs, function, CT_SEEN_COUNTED) > DEAR_SHARE * allowed;
    bool counts_first =
        best == CT_SEEN_OUT && function->has_counter && !is_dear && (function->seen != CT_SEEN_COUNTED || age < OUT_NS);
    return !too_much ? function->seen : counts_first ? CT_SEEN_COUNTED : best;
  }
  if (best == function->seen || too_much) {
    return function->seen;
  }
  if (function->seen == CT_SEEN_OUT) {
    bool is_time = age >= PROMOTE_NS << function->backoff && has_room(functions, count, at, best, to, costs);
    return !is_time ? CT_SEEN_OUT : function->has_counter ? CT_SEEN_COUNTED : best;
  }
  return is_first || (age >= PROMOTE_NS && has_room(functions, count, at, best, to, costs)) ? best : function->seen;
}

double
ct_budget_choose(struct ct_budget_function **functions, size_t count, const struct ct_budget_costs *costs,
                 double allowed_ns, uint64_t now_ns, bool is_first, bool may_try)
{
  struct thresholds to = find_thresholds(functions, count, costs, allowed_ns * AIM);
  double now_spent = 0, will_spend = 0;
  for (size_t i = 0; i < count; i++) {
    now_spent += spent(costs, functions[i], functions[i]->seen);
  }
  bool too_much = now_spent > allowed_ns * TOO_MUCH;
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = functions[i];
    function->wanted = choose_one(functions, count, i, &to, costs, allowed_ns, too_much, now_ns, is_first);
    if (function->wanted == CT_SEEN_OUT && function->seen != CT_SEEN_OUT) {
      function->retry_ns = now_ns + (RETRY_NS << function->backoff);
    } else if (function->seen != CT_SEEN_OUT && now_ns - function->since_ns > SETTLED_NS) {
      function->backoff = 0;
    }
  }
  if (!too_much && may_try) {
    choose_probes(functions, count, costs, allowed_ns, now_ns);
  }
  for (size_t i = 0; i < count; i++) {
    will_spend += spent(costs, functions[i], functions[i]->wanted);
  }
  return will_spend;
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
