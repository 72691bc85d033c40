/* SPDX-License-Identifier: MIT */
/* Checks: the parser, from the right end of a line, and what a bound answers. */
#include "views/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct ct_check
parsed(const char *text)
{
  struct ct_check check;
  struct ct_diag diag = {""};
  if (ct_check_parse(text, &check, &diag) != 0) {
    fail_msg("'%s' is refused: %s", text, diag.text);
  }
  return check;
}

static void
expect_field(const char *text, const char *pattern, enum ct_check_field field, enum ct_check_op op, double number)
{
  struct ct_check check = parsed(text);
  assert_int_equal(check.kind, CT_CHECK_FIELD);
  assert_string_equal(check.pattern, pattern);
  assert_int_equal(check.field, field);
  assert_int_equal(check.op, op);
  assert_true(check.number == number);
  ct_check_destroy(&check);
}

static void
test_fields(void **state)
{
  expect_field("f.calls <= 3", "f", CT_FIELD_CALLS, CT_CHECK_LESS_EQUAL, 3);
  expect_field("f.calls<3k", "f", CT_FIELD_CALLS, CT_CHECK_LESS, 3000);
  expect_field("f.open==2M", "f", CT_FIELD_OPEN, CT_CHECK_EQUAL, 2e6);
  expect_field("f.calls != 1G", "f", CT_FIELD_CALLS, CT_CHECK_NOT_EQUAL, 1e9);
  expect_field("  setCommand.p99 < 1ms\t", "setCommand", CT_FIELD_P99, CT_CHECK_LESS, 1e6);
  expect_field("f.total > 1.5 s", "f", CT_FIELD_TOTAL, CT_CHECK_MORE, 1.5e9);
  expect_field("f.self >= 10us", "f", CT_FIELD_SELF, CT_CHECK_MORE_EQUAL, 1e4);
  expect_field("f.min>7ns", "f", CT_FIELD_MIN, CT_CHECK_MORE, 7);
  expect_field("f.avg<1us", "f", CT_FIELD_AVG, CT_CHECK_LESS, 1000);
  expect_field("f.p50<1us", "f", CT_FIELD_P50, CT_CHECK_LESS, 1000);
  expect_field("f.p95<1us", "f", CT_FIELD_P95, CT_CHECK_LESS, 1000);
  expect_field("f.max == 0", "f", CT_FIELD_MAX, CT_CHECK_EQUAL, 0);
}

/* What stands before the last field is the pattern, whatever it is. */
static void
test_patterns(void **state)
{
  expect_field("Text::operator<.calls < 3", "Text::operator<", CT_FIELD_CALLS, CT_CHECK_LESS, 3);
  expect_field("Text::operator<=.calls<=3", "Text::operator<=", CT_FIELD_CALLS, CT_CHECK_LESS_EQUAL, 3);
  expect_field("Text::operator==.max==3ms", "Text::operator==", CT_FIELD_MAX, CT_CHECK_EQUAL, 3e6);
  expect_field("f(int, char const*).calls < 3", "f(int, char const*)", CT_FIELD_CALLS, CT_CHECK_LESS, 3);
  expect_field("libc.so.6!mem*.p99 < 1us", "libc.so.6!mem*", CT_FIELD_P99, CT_CHECK_LESS, 1000);
  expect_field("@file:a.c.total < 1s", "@file:a.c", CT_FIELD_TOTAL, CT_CHECK_LESS, 1e9);
  expect_field("f.isra.0.calls > 0", "f.isra.0", CT_FIELD_CALLS, CT_CHECK_MORE, 0);
  expect_field("x.calls < 3.calls < 4", "x.calls < 3", CT_FIELD_CALLS, CT_CHECK_LESS, 4);
  expect_field("no.calls < 4", "no", CT_FIELD_CALLS, CT_CHECK_LESS, 4);
  expect_field("exit.calls < 4", "exit", CT_FIELD_CALLS, CT_CHECK_LESS, 4);
  expect_field("no  open  a b* ", "a b*", CT_FIELD_OPEN, CT_CHECK_EQUAL, 0);
}

static void
test_of_the_whole(void **state)
{
  struct ct_check check = parsed(" no losses ");
  assert_int_equal(check.kind, CT_CHECK_NO_LOSSES);
  assert_string_equal(check.text, "no losses");
  ct_check_destroy(&check);
  check = parsed("no\tcrash");
  assert_int_equal(check.kind, CT_CHECK_NO_CRASH);
  ct_check_destroy(&check);
  check = parsed("exit != 3");
  assert_int_equal(check.kind, CT_CHECK_EXIT);
  assert_int_equal(check.op, CT_CHECK_NOT_EQUAL);
  assert_true(check.number == 3);
  ct_check_destroy(&check);
}

static void
test_refused(void **state)
{
  static const char *const lines[] = {
      "",
      " ",
      "f",
      "f.calls",
      "f.calls <",
      "f.calls < x",
      "f.calls = 3",
      "f.calls 3",
      "f.calls < 3x",
      "f.calls < 3ms",
      "f.p99 < 1",
      "f.p99 < 1k",
      "f.p98 < 1ms",
      ".p99 < 1ms",
      "p99 < 1ms",
      "f.p99 < .5ms",
      "f.p99 < 1..5ms",
      "no",
      "no ",
      "no loss",
      "no open",
      "no open ",
      "no openf",
      "exit == 3ms",
      "f. < 3",
      "< 3",
      "f.calls << -3",
      "no losses f",
      "f.p99 < 1e3ms",
      "no crash now",
  };
  for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
    struct ct_check check = {.number = 77};
    struct ct_diag diag = {""};
    if (ct_check_parse(lines[i], &check, &diag) != CT_EINVAL) {
      fail_msg("'%s' is taken", lines[i]);
    }
    assert_true(diag.text[0] != '\0' && check.number == 77 && check.text == NULL);
  }
}

/* With a check of every operator against 10, and every bound: what all values that the bound allows answer. */
static void
test_answers(void **state)
{
  static const char *const lines[] = {"f.calls < 10",  "f.calls <= 10", "f.calls > 10",
                                      "f.calls >= 10", "f.calls == 10", "f.calls != 10"};
  for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
    struct ct_check check = parsed(lines[i]);
    for (int value = 8; value <= 12; value++) {
      for (enum ct_check_bound bound = CT_BOUND_EXACT; bound <= CT_BOUND_NONE; bound++) {
        bool may_hold = false, may_fail = false;
        for (int real = 0; real <= 20; real++) {
          bool is_allowed = bound == CT_BOUND_EXACT      ? real == value
                            : bound == CT_BOUND_AT_LEAST ? real >= value
                            : bound == CT_BOUND_AT_MOST  ? real <= value
                                                         : true;
          bool holds[] = {real<10, real <= 10, real> 10, real >= 10, real == 10, real != 10};
          may_hold = may_hold || (is_allowed && holds[i]);
          may_fail = may_fail || (is_allowed && !holds[i]);
        }
        enum ct_check_result expected = may_hold && may_fail ? CT_CHECK_UNANSWERED
                                        : may_hold           ? CT_CHECK_HOLDS
                                                             : CT_CHECK_FAILS;
        assert_int_equal(ct_check_answer(&check, value, bound), expected);
      }
    }
    ct_check_destroy(&check);
  }
}

static void
test_worst(void **state)
{
  struct ct_check less = parsed("f.calls < 10"), more = parsed("f.calls > 10"), equal = parsed("f.calls == 10");
  assert_true(ct_check_badness(&less, 12) > ct_check_badness(&less, 11));
  assert_true(ct_check_badness(&more, 8) > ct_check_badness(&more, 9));
  assert_true(ct_check_badness(&equal, 5) > ct_check_badness(&equal, 14));
  ct_check_destroy(&less);
  ct_check_destroy(&more);
  ct_check_destroy(&equal);
}

static void
test_file(void **state)
{
  char path[] = "/tmp/views_check_test.XXXXXX";
  int fd = mkstemp(path);
  static const char text[] = "# all of it\n\n  f.calls < 3   # a comment\nf::{lambda()#1}.calls < 3\nno losses\n";
  static const char bad[] = "\nf.calls\n";
  assert_true(fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
  struct ct_checks *checks = ct_checks_create();
  struct ct_diag diag = {""};
  assert_int_equal(ct_checks_add_file(checks, path, &diag), 0);
  assert_int_equal(ct_checks_count(checks), 3);
  assert_string_equal(checks->list[0].text, "f.calls < 3");
  assert_string_equal(checks->list[1].pattern, "f::{lambda()#1}");
  assert_true(write(fd, bad, sizeof(bad) - 1) == (ssize_t)sizeof(bad) - 1);
  assert_int_equal(ct_checks_add_file(checks, path, &diag), CT_EINVAL);
  assert_non_null(strstr(diag.text, "line 7"));
  close(fd);
  unlink(path);
  assert_int_equal(ct_checks_add_file(checks, path, &diag), CT_ENOENT);
  ct_checks_free(checks);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fields),  cmocka_unit_test(test_patterns), cmocka_unit_test(test_of_the_whole),
      cmocka_unit_test(test_refused), cmocka_unit_test(test_answers),  cmocka_unit_test(test_worst),
      cmocka_unit_test(test_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
