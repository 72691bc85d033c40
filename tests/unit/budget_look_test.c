/* SPDX-License-Identifier: MIT */
/* Functions that are out are looked at: record/budget_look.c. */
#include "record/budget_look.h"

#include "record/budget_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define SECOND  1000000000ull
#define ALLOWED 2e7 /* 2 % */
#define MANY    400u

static const struct ct_budget_costs costs = {.full = 60, .counted = 4, .out = 3};

static struct ct_budget_function
out_function(double rate)
{
  return (struct ct_budget_function){.rate = rate,
                                     .seen = CT_SEEN_OUT,
                                     .is_unpatched = true,
                                     .has_gate = true,
                                     .has_counter = true,
                                     .since_ns = SECOND,
                                     .retry_ns = UINT64_MAX,
                                     .own_ns = 20};
}

/* What the session does with one function that is called at `rate` now; the ns that the look took from the program. */
static double
look(struct ct_budget_looks *looks, struct ct_budget_function *function, double rate, uint64_t now)
{
  struct ct_budget_function *all[] = {function};
  ct_budget_looks_add(looks, ALLOWED, 1e8);
  if (ct_budget_looks_choose(looks, all, 1, &costs, ALLOWED, 1, now) == 0) {
    return 0;
  }
  function->is_unpatched = false;
  function->calls = rate / 100;
  ct_budget_looks_read(function, 1e7, now + CT_BUDGET_LOOK_NS);
  bool stays = ct_budget_looks_end(looks, all, 1, &costs, ALLOWED, 1e7, now + CT_BUDGET_LOOK_NS) != 0;
  function->is_looked = false;
  function->is_unpatched = stays;
  function->seen = function->wanted;
  return rate / 100 * costs.counted;
}

/* One that takes a multiple of the limit costs a tenth of it at most; when it is called less it is back within two
 * seconds. */
static void
test_lone(void **state)
{
  static const double times[] = {1.5, 5, 20};
  for (size_t t = 0; t < sizeof(times) / sizeof(times[0]); t++) {
    struct ct_budget_looks looks;
    double rate = times[t] * ALLOWED / costs.counted, taken = 0;
    struct ct_budget_function function = out_function(rate);
    uint64_t now = 2 * SECOND;
    ct_budget_looks_begin(&looks);
    for (unsigned tick = 0; tick < 600; tick++, now += SECOND / 10) {
      taken += look(&looks, &function, rate, now);
    }
    assert_int_equal(function.seen, CT_SEEN_OUT);
    assert_true(taken > 0 && taken <= 0.1 * ALLOWED * 60);
    unsigned ticks = 0;
    for (; function.seen == CT_SEEN_OUT && ticks < 100; ticks++, now += SECOND / 10) {
      look(&looks, &function, 1e5, now);
    }
    assert_true(times[t] > 10 || ticks < 20);
    assert_int_equal(function.seen, CT_SEEN_COUNTED);
    assert_int_equal(function.because, CT_BUDGET_BECAUSE_LOOK);
  }
  (void)state;
}

/* All of many get their turn, and together take no more than that. */
static void
test_turns(void **state)
{
  struct ct_budget_function functions[MANY], *all[MANY];
  bool was_seen[MANY] = {false};
  struct ct_budget_looks looks;
  double taken = 0;
  size_t seen = 0;
  ct_budget_looks_begin(&looks);
  for (size_t i = 0; i < MANY; i++) {
    functions[i] = out_function(5e5 + 1e4 * (double)i); /* 10 to 90 % of the limit each */
    all[i] = &functions[i];
  }
  for (unsigned tick = 0; tick < 1200; tick++) {
    uint64_t now = 2 * SECOND + tick * SECOND / 10;
    ct_budget_looks_add(&looks, ALLOWED, 1e8);
    if (ct_budget_looks_choose(&looks, all, MANY, &costs, ALLOWED, 1, now) == 0) {
      continue;
    }
    for (size_t i = 0; i < MANY; i++) {
      if (functions[i].is_looked) {
        taken += functions[i].rate / 100 * costs.counted;
        seen += !was_seen[i];
        was_seen[i] = true;
        functions[i].calls = functions[i].rate / 100;
        functions[i].is_unpatched = false;
        ct_budget_looks_read(&functions[i], 1e7, now);
      }
    }
    ct_budget_looks_end(&looks, all, MANY, &costs, ALLOWED / 1000, 1e7, now);
    for (size_t i = 0; i < MANY; i++) {
      functions[i].is_looked = false;
      functions[i].is_unpatched = true;
    }
  }
  assert_int_equal(seen, MANY);
  assert_true(taken <= 0.1 * ALLOWED * 120 * 1.01);
  (void)state;
}

static uint64_t
paced(struct ct_budget_look_cost cost, double processors)
{
  struct ct_budget_looks looks;
  ct_budget_looks_begin(&looks);
  ct_budget_looks_pace(&looks, &cost, 0.02, processors);
  return looks.every_ns;
}

/* Where stops are long, take the recorder's time beside a program that uses little, or end calls of it, looks are rare.
 */
static void
test_stops(void **state)
{
  assert_int_equal(paced((struct ct_budget_look_cost){.pause_ns = 600000, .recorder_ns = 500000}, 1), SECOND);
  assert_in_range(paced((struct ct_budget_look_cost){.pause_ns = 10000000}, 1), 5 * SECOND - 1000, 5 * SECOND + 1000);
  assert_in_range(paced((struct ct_budget_look_cost){.recorder_ns = 500000}, 0.1), 5 * SECOND - 1000,
                  5 * SECOND + 1000);
  struct ct_budget_looks looks;
  ct_budget_looks_begin(&looks);
  for (int i = 0; i < 20; i++) {
    ct_budget_looks_pace(&looks, &(struct ct_budget_look_cost){.ended_calls = 1}, 0.02, 1);
    assert_true(looks.every_ns >= 8 * SECOND && looks.every_ns <= 128 * SECOND);
  }
  assert_int_equal(looks.every_ns, 128 * SECOND);
  (void)state;
}

/* A look in which the process had no time, or that could not be, says nothing. */
static void
test_nothing_seen(void **state)
{
  struct ct_budget_function function = out_function(1e7);
  ct_budget_looks_read(&function, 1e7, 5 * SECOND);
  assert_true(function.rate == 1e7 && function.looked_ns == 0);
  function.is_unpatched = false;
  ct_budget_looks_read(&function, 1e5, 5 * SECOND);
  assert_true(function.rate == 1e7 && function.looked_ns == 0);
  ct_budget_looks_read(&function, 1e7, 5 * SECOND);
  assert_true(function.rate == 100 && function.looked_ns == 5 * SECOND);
  (void)state;
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lone), cmocka_unit_test(test_turns),
                                     cmocka_unit_test(test_stops), cmocka_unit_test(test_nothing_seen)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
