/* SPDX-License-Identifier: MIT */
/* By how much hooks are dearer in a program: record/budget_factor.c. */
#include "record/budget_factor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define COUNT  40
#define CPU_NS 2e7
#define CALLS  1000.0

static const struct ct_budget_costs costs = {.full = 30, .counted = 3, .out = 2};

/* One, in which calls of all functions come so much more often for the same processor time as usual: before, while some
 * are only counted, and after that. recorded: how many are in full before it. */
static void
experiment(struct ct_budget_factor *factor, int recorded, double before, double apart, double after)
{
  struct ct_budget_function functions[COUNT] = {0}, *all[COUNT];
  double room[2 * COUNT];
  for (int i = 0; i < COUNT; i++) {
    functions[i] = (struct ct_budget_function){
        .seen = i < recorded ? CT_SEEN_FULL : CT_SEEN_COUNTED, .has_counter = true, .calls = CALLS * before};
    all[i] = &functions[i];
  }
  assert_true(ct_budget_factor_apart(factor, all, COUNT, &costs, CPU_NS));
  for (int i = 0; i < COUNT; i++) {
    functions[i].calls = CALLS * apart;
  }
  ct_budget_factor_again(factor, all, COUNT, CPU_NS);
  for (int i = 0; i < COUNT; i++) {
    functions[i].calls = CALLS * after;
  }
  ct_budget_factor_end(factor, all, COUNT, CPU_NS, 1, room);
}

/* 40 functions in full take 5 % as measured; without them the program is 15 % faster: it is found. */
static void
test_found(void **state)
{
  struct ct_budget_factor factor;
  ct_budget_factor_begin(&factor, 0);
  for (int i = 0; i < 6; i++) {
    experiment(&factor, COUNT, 1, 1.15, 1);
  }
  assert_true(ct_budget_factor(&factor) > 2.3 && ct_budget_factor(&factor) < 3.1);
  (void)state;
}

/* Where next to nothing is to be saved, and the machine is at one moment twice as fast as at another, nothing is told.
 */
static void
test_noise(void **state)
{
  struct ct_budget_factor factor;
  ct_budget_factor_begin(&factor, 0);
  experiment(&factor, 6, 1, 1.5, 1.3);
  assert_true(ct_budget_factor(&factor) > 1.2 && ct_budget_factor(&factor) < 1.5);
  experiment(&factor, 6, 1.4, 1.2, 0.8);
  experiment(&factor, 6, 0.7, 1.6, 1.2);
  assert_true(ct_budget_factor(&factor) > 1.1 && ct_budget_factor(&factor) < 1.6);
  /* Not even where it comes back to where it was: hooks are not hundred times as dear. */
  ct_budget_factor_begin(&factor, 0);
  experiment(&factor, 6, 1, 1.8, 1);
  assert_true(ct_budget_factor(&factor) < 2.5);
  (void)state;
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_found), cmocka_unit_test(test_noise)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
