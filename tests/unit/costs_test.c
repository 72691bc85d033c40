/* SPDX-License-Identifier: MIT */
/* What hooks cost is measured, wherever the caller's stack lies, and again; nothing of it stays behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "record/costs.h"
#include "record/injected.h"

static size_t
mappings(void)
{
  FILE *file = fopen("/proc/self/maps", "re");
  size_t lines = 0;
  assert_non_null(file);
  for (int c; (c = fgetc(file)) != EOF;) {
    lines += c == '\n';
  }
  fclose(file);
  return lines;
}

static void
measured(void **state)
{
  (void)state;
  struct ct_hook_costs costs = ct_measure_hook_costs(ct_injected_store_delta());
  size_t before = mappings();
  for (int i = 0; i < 4; i++) {
    costs = ct_measure_hook_costs(ct_injected_store_delta());
    assert_true(costs.known);
    double inside = costs.enter_after + costs.return_before, outside = costs.enter_before + costs.return_after;
    assert_true(inside > 1 && outside > 1 && costs.value >= 0);
    /* A reading of the clock and some stores: more than what a sampled hook does that records nothing. */
    assert_true(inside + outside > costs.passed_over && costs.point > costs.passed_over / 2);
    assert_true(inside + outside < 100000);
  }
  assert_in_range(mappings(), 0, before + 2); /* those of the C library's for its threads' stacks */
}

/* Where there is no room for a return store nothing is measured, and nothing breaks. */
static void
not_measured(void **state)
{
  (void)state;
  assert_false(ct_measure_hook_costs(INT64_MAX / 2).known);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(measured), cmocka_unit_test(not_measured)};
  return cmocka_run_group_tests_name("costs", tests, NULL, NULL);
}
