/* SPDX-License-Identifier: MIT */
/* What a budget was spent on: record/budget_spent.c, and base/cost.c, which tells it. */
#include "base/cost.h"
#include "record/budget_spent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What the begin took is forgotten in some seconds. */
static void
test_begin(void **state)
{
  struct ct_budget_spent spent = {0};
  for (int i = 0; i < 10; i++) {
    ct_budget_spent_add(&spent, &(struct ct_budget_spent){.hooks = 4e7, .recorder = 1e7, .own = 1e8}, 0.1);
  }
  assert_true(ct_budget_spent_share(&spent) > 0.499 && ct_budget_spent_share(&spent) < 0.501);
  for (int i = 0; i < 50; i++) {
    ct_budget_spent_add(&spent, &(struct ct_budget_spent){.hooks = 1e6, .recorder = 2e6, .own = 1e8}, 0.1);
  }
  assert_true(ct_budget_spent_share(&spent) > 0.03 && ct_budget_spent_share(&spent) < 0.06);
  (void)state;
}

static char *
told(const struct ct_budget_status *budget)
{
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  assert_non_null(out);
  ct_budget_put(out, budget);
  fclose(out);
  return text;
}

/* The parts are told, and add up to the whole as it is told. */
static void
test_told(void **state)
{
  struct ct_budget_status budget = {
      .limit = 0.1, .spent = 0.0716, .hooks = 0.0194, .recorder = 0.0474, .switches = 0.0047, .full = 3, .steps = 2};
  char *text = told(&budget);
  assert_non_null(
      strstr(text, "10 %, of late 7.2 % spent (hooks 1.9, the recorder 4.8, reports of switches 0.5); fun"));
  free(text);
  budget.switches = 0;
  budget.spent = 0.0669;
  text = told(&budget);
  assert_non_null(strstr(text, "of late 6.7 % spent (hooks 1.9, the recorder 4.8); functions: 3 in full"));
  free(text);
  struct ct_budget_status earlier = {.limit = 0.1, .spent = 0.05, .full = 3};
  text = told(&earlier);
  assert_non_null(strstr(text, "of late 5.0 % spent; functions"));
  free(text);
  (void)state;
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_begin), cmocka_unit_test(test_told)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
