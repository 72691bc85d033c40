/* SPDX-License-Identifier: MIT */
/*
 * What a budget leaves of programs whose rates, own times and costs are known, against the best that could be had for
 * the money: record/budget_policy.c and budget_choice.c, tick for tick as a session does it.
 */
#include "record/budget_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MOST      1200u
#define SECOND    1000000000ull
#define TICK      (SECOND / 10)
#define SETTLED   (2 * SECOND)  /* from then on what is seen counts */
#define END       (14 * SECOND) /* long enough for those that are out to be tried again */
#define AGAIN     7u            /* ticks between the first measurements of own times */
#define OF_BEST   0.85          /* it is to be at least that of the best */
#define OUT_WORTH 0.5           /* calls that are exact are half of what is told, all recorded ones the other half */

static const struct ct_budget_costs costs = {.full = 60, .counted = 4, .out = 3};

struct process {
  struct ct_budget_function functions[MOST], *sorted[MOST];
  double calls[MOST], own_ns[MOST]; /* in truth: calls in a second without hooks, and what one takes */
  bool was_out[MOST], was_less[MOST];
  size_t count;
  unsigned measured; /* the tick of the last measurement of own times */
  double spent;      /* now, of the program's own time */
};

static void
add(struct process *process, double share, double own_ns)
{
  assert_true(process->count < MOST);
  size_t i = process->count++;
  process->calls[i] = share * 1e9 / own_ns;
  process->own_ns[i] = own_ns;
  process->functions[i] =
      (struct ct_budget_function){.seen = CT_SEEN_SAMPLED, .has_gate = true, .has_counter = true, .rate = 0};
}

static double
share_of(const struct process *process, size_t i)
{
  return process->calls[i] * process->own_ns[i] / 1e9;
}

/* So many functions that take a share together, with own times between two. */
static void
add_many(struct process *process, size_t count, double share, double least_ns, double most_ns)
{
  uint64_t lot = 88172645463325252u;
  for (size_t i = 0; i < count; i++) {
    lot ^= lot << 13;
    lot ^= lot >> 7;
    lot ^= lot << 17;
    add(process, share / (double)count, least_ns + (most_ns - least_ns) * (double)(lot % 1000) / 1000);
  }
}

/* A server: few calls of the kernel take most of the time, and hundreds of short functions the rest. */
static void
make_server(struct process *process)
{
  add(process, 0.45, 5600);
  add(process, 0.15, 1900);
  add(process, 0.08, 2500);
  add_many(process, 250, 0.25, 20, 300);
}

/* Objects and strings: all of its time is in short calls. */
static void
make_service(struct process *process)
{
  add_many(process, 60, 0.6, 15, 60);
  add_many(process, 20, 0.2, 100, 800);
}

/* An interpreter: one function that runs all the time, some dozens of short helpers, many that are rare. */
static void
make_interpreter(struct process *process)
{
  add(process, 0.35, 150);
  add_many(process, 80, 0.35, 15, 120);
  add_many(process, 1000, 0.05, 30, 3000);
}

static int
compare(const void *a, const void *b)
{
  double x = (*(struct ct_budget_function *const *)a)->rate, y = (*(struct ct_budget_function *const *)b)->rate;
  return x < y ? -1 : x > y;
}

static double
cost_of(const struct process *process, size_t i)
{
  const struct ct_budget_function *function = &process->functions[i];
  return function->is_unpatched && function->seen == CT_SEEN_OUT
             ? 0
             : process->calls[i] * (ct_budget_call_cost(&costs, function->seen) + function->cold) / 1e9;
}

static void
run_tick(struct process *process)
{
  process->spent = 0;
  for (size_t i = 0; i < process->count; i++) {
    process->spent += cost_of(process, i);
  }
  for (size_t i = 0; i < process->count; i++) {
    struct ct_budget_function *function = &process->functions[i];
    double rate = process->calls[i] / (1 + process->spent);
    if (function->seen != CT_SEEN_OUT && !function->is_unpatched) {
      function->rate = rate > function->rate ? rate : 0.7 * function->rate + 0.3 * rate;
    }
  }
}

/* When that has become affordable, twice soon after, and when one that is not known is there again: of what still has
 * its patch. */
static void
measure(struct process *process, double limit, unsigned tick)
{
  unsigned first = (unsigned)(0.16 / limit + 0.5);
  bool is_wanted = tick == first || tick == first + AGAIN || tick == first + 2 * AGAIN;
  for (size_t i = 0; i < process->count && tick > first && tick - process->measured > 1.6 / limit; i++) {
    const struct ct_budget_function *function = &process->functions[i];
    is_wanted |= function->own_ns == 0 && function->seen != CT_SEEN_OUT && !function->is_unpatched;
  }
  process->measured = is_wanted ? tick : process->measured;
  for (size_t i = 0; i < process->count && is_wanted; i++) {
    struct ct_budget_function *function = &process->functions[i];
    function->own_ns = function->is_unpatched ? function->own_ns : process->own_ns[i];
  }
}

static void
decide(struct process *process, double limit, unsigned tick, uint64_t now)
{
  for (size_t i = 0; i < process->count; i++) {
    process->sorted[i] = &process->functions[i];
  }
  qsort(process->sorted, process->count, sizeof(process->sorted[0]), compare);
  bool may_stop = tick % 10 == 9 && process->measured != 0;
  ct_budget_choose(process->sorted, process->count, &costs, limit * 1e9 / (1 + process->spent), now, tick == 0,
                   may_stop);
  for (size_t i = 0; i < process->count; i++) {
    struct ct_budget_function *function = &process->functions[i];
    bool is_step = function->wanted != function->seen;
    function->since_ns = is_step && tick != 0 ? now : function->since_ns;
    function->seen = function->wanted;
    function->is_unpatched = may_stop ? function->seen == CT_SEEN_OUT : function->is_unpatched;
    if (now >= 100 * SECOND + SETTLED) {
      process->was_out[i] |= function->seen == CT_SEEN_OUT || function->is_unpatched;
      process->was_less[i] |= function->seen != CT_SEEN_FULL || function->is_unpatched;
    }
  }
}

struct piece {
  double worth, cost; /* shares of the program's time */
};

static int
compare_pieces(const void *a, const void *b)
{
  const struct piece *left = a, *right = b;
  double x = left->worth / left->cost, y = right->worth / right->cost;
  return (x < y) - (x > y);
}

/* No choice tells more: as if functions could be seen in part. */
static double
best_of_all(const struct process *process, double limit)
{
  static struct piece pieces[2 * MOST];
  size_t count = 0;
  double told = 0;
  for (size_t i = 0; i < process->count; i++) {
    double share = share_of(process, i), calls = process->calls[i] / 1e9;
    pieces[count++] = (struct piece){OUT_WORTH * share, calls * costs.counted};
    pieces[count++] = (struct piece){(1 - OUT_WORTH) * share, calls * (costs.full - costs.counted)};
  }
  qsort(pieces, count, sizeof(pieces[0]), compare_pieces);
  for (size_t i = 0; i < count && limit > 0; i++) {
    double part = pieces[i].cost <= limit ? 1 : limit / pieces[i].cost;
    told += part * pieces[i].worth;
    limit -= part * pieces[i].cost;
  }
  return told;
}

static void
check(const char *name, void (*make)(struct process *process), double limit, bool is_long_in_full)
{
  struct process *process = calloc(1, sizeof(*process));
  double exact = 0, in_full = 0, spent = 0, ticks = 0, settled = 0;
  make(process);
  unsigned tick = 0;
  for (uint64_t now = 100 * SECOND; now < 100 * SECOND + END; now += TICK, tick++) {
    run_tick(process);
    measure(process, limit, tick);
    settled = process->spent > limit ? (double)(now + TICK - 100 * SECOND) / 1e9 : settled;
    spent += now >= 100 * SECOND + SETTLED ? process->spent : 0;
    ticks += now >= 100 * SECOND + SETTLED;
    decide(process, limit, tick, now);
  }
  for (size_t i = 0; i < process->count; i++) {
    exact += process->was_out[i] ? 0 : share_of(process, i);
    in_full += process->was_less[i] ? 0 : share_of(process, i);
  }
  double told = OUT_WORTH * exact + (1 - OUT_WORTH) * in_full, best = best_of_all(process, limit);
  print_message("%-12s %4.0f %%: %5.1f %% of the time exact, %5.1f %% in full: %3.0f %% of the best; %4.1f %% spent; "
                "over it until %.1f s\n",
                name, 100 * limit, 100 * exact, 100 * in_full, 100 * told / best, 100 * spent / ticks, settled);
  assert_true(spent / ticks <= limit);
  assert_true(told >= OF_BEST * best);
  assert_true(!is_long_in_full || !process->was_less[0]);
  free(process);
}

/* What takes 45 % of the time for 0.5 % of it is in full at each of them. */
static void
test_server(void **state)
{
  check("server", make_server, 0.02, true);
  check("server", make_server, 0.05, true);
  check("server", make_server, 0.10, true);
  (void)state;
}

static void
test_service(void **state)
{
  check("service", make_service, 0.02, false);
  check("service", make_service, 0.05, false);
  check("service", make_service, 0.10, false);
  (void)state;
}

static void
test_interpreter(void **state)
{
  check("interpreter", make_interpreter, 0.02, false);
  check("interpreter", make_interpreter, 0.05, false);
  check("interpreter", make_interpreter, 0.10, false);
  (void)state;
}

/* Where code is cold a counted call costs what a recorded one does: none is only counted, and the longest are in full.
 */
static void
test_cold(void **state)
{
  struct process *process = calloc(1, sizeof(*process));
  add_many(process, 300, 0.9, 20, 400);
  for (size_t i = 0; i < process->count; i++) {
    struct ct_budget_function *function = &process->functions[i];
    function->own_ns = process->own_ns[i];
    function->rate = process->calls[i];
    function->cold = 100;
  }
  process->measured = 1;
  for (unsigned tick = 0; tick < 40; tick++) {
    run_tick(process);
    decide(process, 0.05, tick, 100 * SECOND + tick * TICK);
  }
  size_t full = 0;
  double least = 1e9, most_out = 0;
  for (size_t i = 0; i < process->count; i++) {
    const struct ct_budget_function *function = &process->functions[i];
    bool is_full = function->seen == CT_SEEN_FULL;
    full += is_full;
    least = is_full && function->own_ns < least ? function->own_ns : least;
    most_out = !is_full && function->own_ns > most_out ? function->own_ns : most_out;
  }
  assert_true(full > 10);
  assert_true(least > 0.9 * most_out);
  free(process);
  (void)state;
}

/* Of two that take alike and cost alike the one whose calls take always as long goes down first. */
static void
test_steady(void **state)
{
  struct ct_budget_function functions[2], *all[2];
  for (size_t i = 0; i < 2; i++) {
    functions[i] = (struct ct_budget_function){.rate = 1e6,
                                               .own_ns = 400,
                                               .steady = i == 0 ? 1 : 0,
                                               .seen = CT_SEEN_SAMPLED,
                                               .has_gate = true,
                                               .has_counter = true};
    all[i] = &functions[i];
  }
  ct_budget_choose(all, 2, &costs, 9e7, SECOND, true, false);
  assert_int_equal(functions[1].wanted, CT_SEEN_FULL);
  assert_true(functions[0].wanted == CT_SEEN_COUNTED || functions[0].wanted == CT_SEEN_SAMPLED);
  (void)state;
}

/* What tells more is exchanged for what tells less when both do not fit; and each step says why it is taken. */
static void
test_exchange(void **state)
{
  struct ct_budget_function functions[2], *all[2];
  for (size_t i = 0; i < 2; i++) {
    functions[i] = (struct ct_budget_function){.rate = 1e6,
                                               .own_ns = i == 0 ? 30 : 600,
                                               .seen = i == 0 ? CT_SEEN_FULL : CT_SEEN_COUNTED,
                                               .since_ns = SECOND,
                                               .has_gate = true,
                                               .has_counter = true};
    all[i] = &functions[i];
  }
  ct_budget_choose(all, 2, &costs, 1e8, 3 * SECOND, false, false);
  assert_int_equal(functions[1].wanted, CT_SEEN_FULL);
  assert_int_equal(functions[1].because, CT_BUDGET_BECAUSE_ROOM);
  assert_true(functions[0].wanted > CT_SEEN_FULL);
  assert_int_equal(functions[0].because, CT_BUDGET_BECAUSE_EXCHANGE);
  functions[0].seen = functions[1].seen = CT_SEEN_FULL;
  ct_budget_choose(all, 2, &costs, 1e8, 4 * SECOND, false, false);
  assert_int_equal(functions[0].because, CT_BUDGET_BECAUSE_LIMIT);
  (void)state;
}

/* What rules are about is in full first, the rarest first, out of their part of the limit, even when nothing else is.
 */
static void
test_ruled(void **state)
{
  struct ct_budget_costs with_rules = costs;
  struct ct_budget_function functions[4], *all[4];
  for (size_t i = 0; i < 4; i++) {
    functions[i] = (struct ct_budget_function){.rate = 1e5 * (double)(i + 1),
                                               .own_ns = 30,
                                               .steady = 1,
                                               .seen = CT_SEEN_COUNTED,
                                               .since_ns = SECOND,
                                               .has_gate = true,
                                               .has_counter = true,
                                               .is_ruled = i % 2 != 0};
    all[i] = &functions[i];
  }
  with_rules.ruled = 2e7; /* 2e5 calls of 60 ns fit, 4e5 more do not */
  ct_budget_choose(all, 4, &with_rules, 5e6, 3 * SECOND, false, false);
  assert_int_equal(functions[1].wanted, CT_SEEN_FULL);
  assert_true(functions[0].wanted >= CT_SEEN_COUNTED && functions[2].wanted >= CT_SEEN_COUNTED);
  assert_true(functions[3].wanted >= CT_SEEN_COUNTED);
  ct_budget_choose(all, 4, &with_rules, 1e6, 3 * SECOND, false, false); /* which all others exceed */
  assert_int_equal(functions[1].wanted, CT_SEEN_FULL);
  (void)state;
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_server),      cmocka_unit_test(test_service),
                                     cmocka_unit_test(test_interpreter), cmocka_unit_test(test_cold),
                                     cmocka_unit_test(test_steady),      cmocka_unit_test(test_exchange),
                                     cmocka_unit_test(test_ruled)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
