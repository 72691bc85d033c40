/* SPDX-License-Identifier: MIT */
/* The texts of rules: what they mean, and what is wrong with those that mean nothing. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "select/rule.h"

static struct ct_rule
parse(const char *text)
{
  struct ct_rule rule;
  struct ct_diag diag = {""};
  if (ct_rule_parse(text, &rule, &diag) != 0) {
    fail_msg("%s: %s", text, diag.text);
  }
  return rule;
}

static void
expect(const char *text, enum ct_rule_kind kind, const char *pattern, enum ct_rule_op op, uint64_t ns, int64_t number)
{
  struct ct_rule rule = parse(text);
  assert_int_equal(rule.kind, kind);
  assert_string_equal(rule.pattern, pattern);
  assert_int_equal(rule.op, op);
  assert_int_equal(rule.ns, ns);
  assert_int_equal(rule.number, number);
}

static void
test_conditions(void **state)
{
  (void)state;
  expect("call f", CT_RULE_CALL, "f", 0, 0, 0);
  expect("call  operator>", CT_RULE_CALL, "operator>", 0, 0, 0);
  expect("call foo::operator new(unsigned long)", CT_RULE_CALL, "foo::operator new(unsigned long)", 0, 0, 0);
  expect("f > 1ms", CT_RULE_TIME, "f", CT_OP_MORE, 1000000, 0);
  expect(" f  <\t1us ", CT_RULE_TIME, "f", CT_OP_LESS, 1000, 0);
  expect("libc.so.6!mall* >= 2.5s", CT_RULE_TIME, "libc.so.6!mall*", CT_OP_MORE_EQUAL, 2500000000, 0);
  expect("std::vector<int, A >::f() <= 7ns", CT_RULE_TIME, "std::vector<int, A >::f()", CT_OP_LESS_EQUAL, 7, 0);
  expect("signal > 1m", CT_RULE_TIME, "signal", CT_OP_MORE, 60000000000, 0);
  expect("returns > 1h", CT_RULE_TIME, "returns", CT_OP_MORE, 3600000000000, 0);
  expect("f returns < 0", CT_RULE_RETURNS, "f", CT_OP_LESS, 0, 0);
  expect("f(int, char) returns == -1", CT_RULE_RETURNS, "f(int, char)", CT_OP_EQUAL, 0, -1);
  expect("f returns != 0x10", CT_RULE_RETURNS, "f", CT_OP_NOT_EQUAL, 0, 16);
  expect("f returns == 0xffffffffffffffff", CT_RULE_RETURNS, "f", CT_OP_EQUAL, 0, -1);
  expect("off-cpu @file:net.c > 10ms", CT_RULE_OFF_CPU, "@file:net.c", CT_OP_MORE, 10000000, 0);
  expect("rate foo::** > 1000/s", CT_RULE_RATE, "foo::**", CT_OP_MORE, 0, 1000);
  expect("rate > 1ms", CT_RULE_TIME, "rate", CT_OP_MORE, 1000000, 0);
  expect("crash", CT_RULE_CRASH, "", 0, 0, 0);
  expect("every 10s", CT_RULE_EVERY, "", 0, 10000000000, 0);
  expect("signal", CT_RULE_SIGNAL, "", 0, 0, 0);
  assert_int_equal(parse("signal").signal, 0);
  assert_int_equal(parse("signal SIGSEGV").signal, SIGSEGV);
  assert_int_equal(parse("signal USR1: dump").signal, SIGUSR1);
  assert_int_equal(parse("signal 34").signal, 34);
}

static void
test_actions(void **state)
{
  (void)state;
  assert_int_equal(parse("call a::b").action, CT_ACTION_MARK);
  assert_int_equal(parse("call a::b: mark").action, CT_ACTION_MARK);
  assert_int_equal(parse("a::b > 1ms: dump").action, CT_ACTION_DUMP);
  assert_int_equal(parse("crash:  stop").action, CT_ACTION_STOP);
  assert_string_equal(parse("a::b > 1ms:  dump").text, "a::b > 1ms: dump");
  assert_string_equal(parse("a::b > 1ms: dump").pattern, "a::b");
  assert_string_equal(parse("call a::*: stop").pattern, "a::*");
  assert_int_equal(parse("f > 1ms: detail g").action, CT_ACTION_DETAIL);
  assert_string_equal(parse("f > 1ms:  detail  foo::bar(int, char)").detail, "foo::bar(int, char)");
  assert_string_equal(parse("every 1s: detail @file:net.c").detail, "@file:net.c");
}

static void
test_wrong(void **state)
{
  (void)state;
  static const struct {
    const char *text, *part;
  } wrong[] = {
      {"", "no condition"},
      {": dump", "no condition"},
      {"f", "no operator"},
      {"f >1ms", "no operator"},
      {"f > 1", "'1' is no time"},
      {"f > -1ms", "'-1ms' is no time"},
      {"f > 0ms", "'0ms' is no time"},
      {"f == 1ms", "compared with"},
      {"f returns < x", "'x' is no whole number"},
      {"f returns < 99999999999999999999", "no whole number"},
      {"f returns", "no operator"},
      {"call", "no function"},
      {"call f > 1ms", "takes no operator"},
      {"call [a", "pattern '[a'"},
      {"off-cpu f < 1ms", "compared with > or >="},
      {"rate f < 1/s", "compared with > or >="},
      {"rate f > 10", "'10' is no rate"},
      {"rate f > -1/s", "no rate"},
      {"every x", "'x' is no time"},
      {"every 10ns", "1ms or more"},
      {"signal SIGNOTHING", "no signal 'SIGNOTHING'"},
      {"signal 0", "no signal '0'"},
      {"crash now", "no operator"},
      {"call f:", "no such action"},
      {"call f: burn", "no such action: 'burn'"},
      {"call f: detail", "detail of which functions"},
      {"call f: detail [g", "pattern '[g'"},
      {"call f: details", "no such action: 'details'"},
  };
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    struct ct_rule rule = {.number = 4711};
    struct ct_diag diag = {""};
    if (ct_rule_parse(wrong[i].text, &rule, &diag) != CT_EINVAL || strstr(diag.text, wrong[i].part) == NULL ||
        strchr(diag.text, '\n') != NULL || rule.number != 4711) {
      fail_msg("'%s': '%s'", wrong[i].text, diag.text);
    }
  }
  char text[CT_RULE_CHARS + 10];
  struct ct_rule rule;
  memset(text, 'a', sizeof(text));
  text[sizeof(text) - 1] = '\0';
  assert_int_equal(ct_rule_parse(text, &rule, NULL), CT_EINVAL);
  for (size_t i = 1; i < sizeof(text); i += 2) {
    text[i] = ' ';
  }
  text[CT_RULE_CHARS - 1] = '\0';
  assert_int_equal(ct_rule_parse(text, &rule, NULL), CT_EINVAL);
}

static void
test_compare(void **state)
{
  (void)state;
  for (int64_t value = -1; value <= 1; value++) {
    assert_int_equal(ct_rule_compare(CT_OP_LESS, value, 0), value < 0);
    assert_int_equal(ct_rule_compare(CT_OP_LESS_EQUAL, value, 0), value <= 0);
    assert_int_equal(ct_rule_compare(CT_OP_MORE, value, 0), value > 0);
    assert_int_equal(ct_rule_compare(CT_OP_MORE_EQUAL, value, 0), value >= 0);
    assert_int_equal(ct_rule_compare(CT_OP_EQUAL, value, 0), value == 0);
    assert_int_equal(ct_rule_compare(CT_OP_NOT_EQUAL, value, 0), value != 0);
  }
}

/* Words at random: refused with a reason, or what the rule says of itself is the same rule. */
static void
test_random(void **state)
{
  (void)state;
  static const char *const words[] = {
      "call",   "f",     "foo::bar", ">",       "<",  ">=",  "==",      "1ms",  "0",     "-1",       "rate", "returns",
      "1000/s", "every", "signal",   "SIGUSR1", ":",  "f:",  "dump",    "stop", "mark",  "[a",       "*",    "::",
      ": ",     "  ",    "\t",       "detail",  "x:", "10s", "off-cpu", "0x1",  "crash", "@file:a.c"};
  unsigned seed = 1, good = 0;
  for (int round = 0; round < 200000; round++) {
    char text[256] = "";
    seed = seed * 1103515245u + 12345u;
    for (unsigned i = 0, count = seed >> 16 & 7; i < count; i++) {
      seed = seed * 1103515245u + 12345u;
      strcat(text, words[(seed >> 16) % (sizeof(words) / sizeof(words[0]))]);
      strcat(text, (seed >> 13 & 7) != 0 ? " " : "");
    }
    struct ct_rule rule, again;
    struct ct_diag diag = {""};
    if (ct_rule_parse(text, &rule, &diag) != 0) {
      assert_true(diag.text[0] != '\0');
      continue;
    }
    good++;
    if (ct_rule_parse(rule.text, &again, &diag) != 0 || strcmp(again.text, rule.text) != 0 ||
        strcmp(again.pattern, rule.pattern) != 0 || again.kind != rule.kind || again.op != rule.op ||
        again.ns != rule.ns || again.number != rule.number || again.action != rule.action) {
      fail_msg("'%s' became '%s'", text, rule.text);
    }
  }
  assert_true(good > 1000);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_conditions), cmocka_unit_test(test_actions), cmocka_unit_test(test_wrong),
      cmocka_unit_test(test_compare),    cmocka_unit_test(test_random),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
