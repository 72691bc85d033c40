/* SPDX-License-Identifier: MIT */
/* What the recorder's time is for an event: record/budget_drain.c. */
#include "record/budget_drain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define EVENT_NS 12.0
#define FIXED_NS 1e6 /* of the drain's thread a tick, whatever there is to do */

static void
tick(struct ct_budget_drain *drain, double events, double process_ns)
{
  ct_budget_drain_add(drain, events, FIXED_NS + EVENT_NS * events, 1e5, process_ns, 0.1);
}

/* Time that is no event's does not make events dear, however few there are: else none would ever come back. */
static void
test_few_events(void **state)
{
  struct ct_budget_drain drain;
  ct_budget_drain_begin(&drain);
  assert_true(ct_budget_drain_event_ns(&drain) == 15);
  assert_true(ct_budget_drain_rest(&drain) == 0);
  tick(&drain, 500000, 2e7);
  for (int i = 0; i < 100; i++) {
    tick(&drain, 5000 + 100 * (i % 7), 5e7);
    assert_true(ct_budget_drain_event_ns(&drain) < 16);
  }
  /* 1.1 ms for 50 */
  assert_true(ct_budget_drain_rest(&drain) > 0.020e9 && ct_budget_drain_rest(&drain) < 0.024e9);
  (void)state;
}

/* Where ticks differ the price is found. */
static void
test_price(void **state)
{
  struct ct_budget_drain drain;
  ct_budget_drain_begin(&drain);
  for (int i = 0; i < 100; i++) {
    double events = 20000 * (i % 5 + 1);
    ct_budget_drain_add(&drain, events, FIXED_NS + 33 * events, 0, 1e8, 0.1);
  }
  assert_true(ct_budget_drain_event_ns(&drain) > 32 && ct_budget_drain_event_ns(&drain) < 33.1);
  assert_true(ct_budget_drain_rest(&drain) > 0.009e9 && ct_budget_drain_rest(&drain) < 0.012e9);
  (void)state;
}

/* A process that had no processor for a while: as soon as it has, the recorder's part is what it is. */
static void
test_idle(void **state)
{
  struct ct_budget_drain drain;
  ct_budget_drain_begin(&drain);
  for (int i = 0; i < 20; i++) {
    tick(&drain, 5000, 5e7);
  }
  ct_budget_drain_add(&drain, 0, FIXED_NS, 0, 1, 1.0);
  for (int i = 0; i < 5; i++) {
    tick(&drain, 5000, 5e7);
  }
  assert_true(ct_budget_drain_rest(&drain) < 0.03e9);
  (void)state;
}

/* Numbers that cannot be: a process without time, no time between two ticks. */
static void
test_odd(void **state)
{
  struct ct_budget_drain drain;
  ct_budget_drain_begin(&drain);
  for (int i = 0; i < 50; i++) {
    ct_budget_drain_add(&drain, 0, 0, 0, 0, 0);
    assert_true(ct_budget_drain_rest(&drain) >= 0 && ct_budget_drain_event_ns(&drain) == 15);
  }
  (void)state;
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_few_events), cmocka_unit_test(test_price),
                                     cmocka_unit_test(test_idle), cmocka_unit_test(test_odd)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
