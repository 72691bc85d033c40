/* SPDX-License-Identifier: MIT */
/* Marks become windows: merged, in order, within the limit; what they cover. Against a plain bitmap, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "drain/windows.h"

enum { PRE = 100, POST = 50, MINUTE = 60000 };

static struct ct_windows *
make(uint32_t per_minute)
{
  struct ct_windows *windows;
  const struct ct_windows_limits limits = {.pre = PRE, .post = POST, .minute = MINUTE, .per_minute = per_minute};
  assert_int_equal(ct_windows_create(&limits, &windows), 0);
  return windows;
}

static bool
mark(struct ct_windows *windows, uint64_t tsc)
{
  return ct_windows_mark(windows, &(struct ct_mark){.tsc = tsc, .thread = 3, .rule = 1, .function = 7});
}

static void
expect(struct ct_windows *windows, size_t at, uint64_t begin, uint64_t end, uint64_t marks)
{
  struct ct_marked_window window;
  assert_int_equal(ct_windows_get(windows, at, &window, 1), 1);
  assert_int_equal(window.begin, begin);
  assert_int_equal(window.end, end);
  assert_int_equal(window.marks, marks);
}

static void
test_open(void **state)
{
  (void)state;
  struct ct_windows *windows;
  const struct ct_windows_limits limits = {
      .pre = PRE, .post = POST, .pre_events = 3, .post_events = 3, .most = 5000, .minute = MINUTE, .per_minute = 60};
  assert_int_equal(ct_windows_create(&limits, &windows), 0);
  assert_true(ct_windows_mark(windows, &(struct ct_mark){.tsc = 10000, .begin_tsc = 9000, .is_open = true}));
  expect(windows, 0, 9000, 15000, 1);
  assert_int_equal(ct_windows_end_around(windows, 12000), 15000);
  assert_true(ct_windows_mark(windows, &(struct ct_mark){.tsc = 10100, .begin_tsc = 1, .is_open = true}));
  expect(windows, 0, 5100, 15100, 2);
  ct_windows_close(windows, 10100, 10500);
  expect(windows, 0, 5100, 15100, 2); /* the other one is open still */
  ct_windows_close(windows, 10000, 10300);
  expect(windows, 0, 5100, 10500, 2);
  ct_windows_close(windows, 10000, 10700); /* none is open */
  expect(windows, 0, 5100, 10500, 2);
  assert_int_equal(ct_windows_end_around(windows, 12000), 0);
  assert_true(mark(windows, 20000)); /* by time */
  expect(windows, 1, 19900, 20050, 1);
  assert_true(ct_windows_mark(windows, &(struct ct_mark){.tsc = 20010, .begin_tsc = 20005, .is_open = true}));
  ct_windows_close(windows, 20010, 20020);
  expect(windows, 1, 19900, 20050, 2); /* that mark's end stays */
  assert_true(ct_windows_may_cover(windows, 16000, 20000));
  assert_false(ct_windows_may_cover(windows, 14000, 20000));
  ct_windows_destroy(windows);
}

static void
test_merged(void **state)
{
  (void)state;
  struct ct_windows *windows = make(60);
  struct ct_marked_window all[8];
  assert_true(mark(windows, 1000));
  expect(windows, 0, 900, 1050, 1);
  assert_true(mark(windows, 1040));
  expect(windows, 0, 900, 1090, 2);
  assert_true(mark(windows, 1500));
  assert_true(mark(windows, 1200)); /* out of order */
  assert_int_equal(ct_windows_get(windows, 0, all, 8), 3);
  expect(windows, 0, 900, 1090, 2);
  expect(windows, 1, 1100, 1250, 1);
  expect(windows, 2, 1400, 1550, 1);
  assert_true(mark(windows, 1190)); /* begins where the first one ends */
  assert_int_equal(ct_windows_get(windows, 0, all, 8), 2);
  expect(windows, 0, 900, 1250, 4);
  assert_true(mark(windows, 1350));
  assert_int_equal(ct_windows_get(windows, 0, all, 8), 1);
  expect(windows, 0, 900, 1550, 6);
  assert_int_equal(all[0].reason_count, 6);
  assert_int_equal(all[0].reasons[0].tsc, 1000);
  assert_int_equal(all[0].reasons[0].thread, 3);
  assert_int_equal(all[0].reasons[0].rule, 1);
  assert_int_equal(all[0].reasons[0].function, 7);
  ct_windows_destroy(windows);
}

static void
test_edges(void **state)
{
  (void)state;
  struct ct_windows *windows = make(60);
  assert_true(mark(windows, 20)); /* before the clock's zero there is nothing */
  assert_true(mark(windows, UINT64_MAX - 10));
  expect(windows, 0, 0, 70, 1);
  expect(windows, 1, UINT64_MAX - 110, UINT64_MAX, 1);
  struct ct_marked_window window;
  assert_int_equal(ct_windows_get(windows, 2, &window, 1), 0);
  ct_windows_destroy(windows);
  ct_windows_destroy(NULL);
}

static void
test_limit(void **state)
{
  (void)state;
  struct ct_windows *windows = make(2);
  struct ct_windows_sums sums;
  assert_true(mark(windows, 10000));
  assert_true(mark(windows, 20000));
  assert_false(mark(windows, 30000));
  assert_true(mark(windows, 20040)); /* opens none */
  assert_false(mark(windows, 10000 + MINUTE - 1));
  assert_true(mark(windows, 10000 + MINUTE));
  ct_windows_sums(windows, &sums);
  assert_int_equal(sums.windows, 3);
  assert_int_equal(sums.marks, 4);
  assert_int_equal(sums.refused, 2);
  assert_false(ct_windows_covers(windows, 30000, 30000));
  ct_windows_destroy(windows);
  windows = make(0);
  assert_false(mark(windows, 10000));
  ct_windows_destroy(windows);
}

static void
test_reasons(void **state)
{
  (void)state;
  struct ct_windows *windows = make(60);
  for (uint64_t i = 0; i < 100; i++) {
    assert_true(mark(windows, 1000 + i));
  }
  struct ct_marked_window window;
  assert_int_equal(ct_windows_get(windows, 0, &window, 1), 1);
  assert_int_equal(window.marks, 100);
  assert_int_equal(window.reason_count, CT_WINDOW_REASONS);
  assert_int_equal(window.reasons[CT_WINDOW_REASONS - 1].tsc, 1000 + CT_WINDOW_REASONS - 1);
  /* A crash after a hundred marks of another rule is a reason, too. */
  for (uint32_t rule = 2; rule < CT_WINDOW_REASONS + 5; rule++) {
    assert_true(ct_windows_mark(windows, &(struct ct_mark){.tsc = 1100 + rule, .thread = 3, .rule = rule}));
  }
  assert_int_equal(ct_windows_get(windows, 0, &window, 1), 1);
  assert_int_equal(window.reason_count, CT_WINDOW_REASONS);
  for (uint32_t i = 0; i < CT_WINDOW_REASONS; i++) {
    assert_int_equal(window.reasons[i].rule, i + 1);
    assert_int_equal(window.reasons[i].tsc, i == 0 ? 1000 : 1101 + i);
  }
  ct_windows_destroy(windows);
}

static void
test_may_cover(void **state)
{
  (void)state;
  struct ct_windows *windows = make(60);
  assert_true(ct_windows_may_cover(windows, 1000, 1000 + PRE));
  assert_false(ct_windows_may_cover(windows, 1000, 1000 + PRE + 1));
  assert_true(ct_windows_may_cover(windows, 1000, 900));
  ct_windows_destroy(windows);
}

/* Marks at random: the same windows as a list of all moments that are near one. */
static void
test_random(void **state)
{
  (void)state;
  enum { SPAN = 20000, MARKS = 60 };
  static uint8_t covered[SPAN + POST + 2];
  unsigned seed = 12345;
  for (int round = 0; round < 50; round++) {
    struct ct_windows *windows = make(MARKS);
    memset(covered, 0, sizeof(covered));
    for (int i = 0; i < MARKS; i++) {
      seed = seed * 1103515245u + 12345u;
      uint64_t tsc = PRE + (seed >> 8) % (SPAN - PRE);
      assert_true(mark(windows, tsc));
      memset(covered + tsc - PRE, 1, PRE + POST + 1);
    }
    static struct ct_marked_window all[MARKS];
    size_t count = ct_windows_get(windows, 0, all, MARKS);
    uint64_t marks = 0;
    for (size_t i = 0; i < count; i++) {
      marks += all[i].marks;
      assert_true(i == 0 || all[i - 1].end < all[i].begin);
    }
    assert_int_equal(marks, MARKS);
    for (uint64_t at = 0; at < sizeof(covered); at++) {
      assert_int_equal(ct_windows_covers(windows, at, at), covered[at]);
    }
    for (size_t i = 1; i < count; i++) {
      bool is_apart = all[i].begin - all[i - 1].end > 1;
      assert_true(!is_apart || !ct_windows_covers(windows, all[i - 1].end + 1, all[i].begin - 1));
      assert_true(ct_windows_covers(windows, all[i - 1].end + 1, all[i].begin));
    }
    ct_windows_destroy(windows);
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_merged), cmocka_unit_test(test_open),    cmocka_unit_test(test_edges),
      cmocka_unit_test(test_limit),  cmocka_unit_test(test_reasons), cmocka_unit_test(test_may_cover),
      cmocka_unit_test(test_random),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
