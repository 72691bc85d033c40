/* SPDX-License-Identifier: MIT */
/* Which counters functions get when they need one: record/budget_counters.c. */
#include "record/budget_counters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define LAST (CT_COUNTERS_BY_NEED - 1)

static uint32_t released;

static void
release(void *context, uint32_t at)
{
  assert_ptr_equal(context, &released);
  released = at;
}

/* Each has one of its own, the last is nobody's, and there are no more. */
static void
test_taken(void **state)
{
  static struct ct_budget_counters counters;
  uint32_t at = 0;
  ct_budget_counters_begin(&counters);
  for (uint32_t n = 0; n < CT_BUDGET_COUNTERS; n++) {
    assert_int_equal(ct_budget_counters_are_few(&counters), n > 3 * CT_BUDGET_COUNTERS / 4 + 1);
    assert_true(ct_budget_counters_take(&counters, 50000 + n, &at));
    assert_int_equal(at, n);
  }
  assert_int_equal(at, LAST - 1);
  assert_false(ct_budget_counters_take(&counters, 7, &at));
  assert_int_equal(at, LAST - 1);
  (void)state;
}

/* One that nobody counts in any more is somebody else's only when what was counted before has been read. */
static void
test_given_back(void **state)
{
  static struct ct_budget_counters counters;
  uint32_t at;
  ct_budget_counters_begin(&counters);
  for (uint32_t n = 0; n < CT_BUDGET_COUNTERS; n++) {
    assert_true(ct_budget_counters_take(&counters, 50000 + n, &at));
  }
  ct_budget_counters_rest(&counters, 100u, 1000);
  assert_int_equal(ct_budget_counters_settle(&counters, 1000, release, &released), 0); /* it began before */
  assert_false(ct_budget_counters_take(&counters, 7, &at));
  assert_int_equal(ct_budget_counters_settle(&counters, 1001, release, &released), 1);
  assert_int_equal(released, 100u);
  assert_int_equal(ct_budget_counters_settle(&counters, 2000, release, &released), 0); /* once */
  assert_true(ct_budget_counters_take(&counters, 7, &at));
  assert_int_equal(at, 100u);
  assert_int_equal(ct_budget_counters_settle(&counters, 3000, release, &released), 0);
  assert_false(ct_budget_counters_take(&counters, 8, &at));
  (void)state;
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_taken),
      cmocka_unit_test(test_given_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
