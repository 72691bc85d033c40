/* SPDX-License-Identifier: MIT */
/* Rules held against calls: ring events as the target's hooks write them, and the marks that come of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "drain/thread.h"
#include "ring/layout.h"
#include "trace_model.h"

enum { FUNCTIONS = 16, ENTER_ONLY = 8, SECOND = 1000000 /* ticks */, FEW = 100 };

/* All that a thread of the drain needs, with windows that never touch: each mark is one. */
struct scene {
  struct ct_trace_writer *writer;
  struct drain_thread thread;
  struct ct_windows *windows;
  struct ct_rules *rules;
  uint8_t modes[FUNCTIONS];
};

static void
begin(struct scene *scene, void **state)
{
  const struct ct_windows_limits limits = {.minute = UINT64_MAX, .per_minute = FEW};
  memset(scene, 0, sizeof(*scene));
  scene->writer = create_writer(state, 0);
  scene->thread.max_depth = UINT32_MAX;
  scene->thread.index = 5;
  assert_int_equal(ct_trace_writer_thread(scene->writer, 0, 1, 1, &scene->thread.encoder), CT_OK);
  for (uint32_t fn = 0; fn < FUNCTIONS; fn++) {
    scene->modes[fn] = fn < ENTER_ONLY ? CT_HOOK_FULL : CT_HOOK_ENTER;
  }
  assert_int_equal(ct_windows_create(&limits, &scene->windows), CT_OK);
  assert_int_equal(ct_rules_create(scene->windows, SECOND, &scene->rules), CT_OK);
  scene->thread.rules = scene->rules;
}

static void
end(struct scene *scene)
{
  assert_int_equal(ct_trace_writer_close(scene->writer, NULL), CT_OK);
  ct_rules_free(scene->rules);
  ct_windows_destroy(scene->windows);
}

/* A rule about function fn; its slot. */
static uint32_t
add(struct scene *scene, const char *text, uint32_t fn)
{
  struct ct_rule rule;
  assert_int_equal(ct_rule_parse(text, &rule, NULL), 0);
  int slot = ct_rules_add(scene->rules, &rule, 40, 1000);
  assert_true(slot >= 0);
  if (rule.pattern[0] != '\0') {
    ct_rules_watch(scene->rules, (uint32_t)slot, fn);
  }
  return (uint32_t)slot;
}

static void
feed(struct scene *scene, uint64_t tsc, enum ct_kind kind, uint32_t fn, uint32_t ra_slot)
{
  struct ct_ring_event event = {
      .tsc = tsc, .word = (uint64_t)ra_slot << 32 | fn << CT_WORD_FN_SHIFT | (uint32_t)kind << CT_WORD_KIND_SHIFT | 1};
  drain_thread_events(&scene->thread, &event, 1, scene->modes, FUNCTIONS);
}

static void
enter(struct scene *scene, uint64_t tsc, uint32_t fn, uint32_t ra_slot)
{
  feed(scene, tsc, CT_KIND_ENTER, fn, ra_slot);
}

static void
back(struct scene *scene, uint64_t tsc, uint32_t fn, uint32_t ra_slot)
{
  feed(scene, tsc, CT_KIND_RETURN, fn, ra_slot);
}

static void
result(struct scene *scene, uint64_t value, uint32_t ra_slot)
{
  feed(scene, value, CT_KIND_OTHER, CT_OTHER_RESULT, ra_slot);
}

/* The times of all marks, in their order: no more and no less. */
static void
expect(struct scene *scene, size_t count, ...)
{
  struct ct_marked_window windows[FEW];
  size_t found = ct_windows_get(scene->windows, 0, windows, FEW);
  va_list times;
  assert_int_equal(found, count);
  va_start(times, count);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(windows[i].reasons[0].tsc, va_arg(times, int));
  }
  va_end(times);
}

static void
calls(void **state)
{
  struct scene s;
  begin(&s, state);
  add(&s, "call f", 2);
  uint32_t slot = add(&s, "call g", 9); /* enter only */
  enter(&s, 100, 1, 1000);
  enter(&s, 200, 2, 900);
  back(&s, 300, 2, 900);
  feed(&s, 400, CT_KIND_TAIL, 2, 1000);
  feed(&s, 500, CT_KIND_OTHER, CT_FN_POINT_BIT | 9, 900);
  back(&s, 600, 1, 1000);
  expect(&s, 3, 200, 400, 500);
  struct ct_marked_window window;
  assert_int_equal(ct_windows_get(s.windows, 2, &window, 1), 1);
  assert_int_equal(window.reasons[0].thread, 5);
  assert_int_equal(window.reasons[0].rule, 40);
  assert_int_equal(window.reasons[0].function, 9);
  ct_rules_remove(s.rules, slot);
  feed(&s, 700, CT_KIND_OTHER, CT_FN_POINT_BIT | 9, 900);
  enter(&s, 800, 2, 900);
  expect(&s, 4, 200, 400, 500, 800);
  end(&s);
}

static void
slow_calls(void **state)
{
  struct scene s;
  begin(&s, state);
  uint32_t slot = add(&s, "f > 1ms", 2); /* 1000 ticks */
  for (uint64_t i = 0; i < 1000; i++) {  /* none of them */
    enter(&s, 10000 + i * 2000, 2, 1000);
    back(&s, 11000 + i * 2000, 2, 1000);
  }
  expect(&s, 0);
  enter(&s, 3000000, 2, 1000); /* the one */
  enter(&s, 3000100, 3, 900);
  enter(&s, 3000200, 2, 800); /* itself again, and fast */
  back(&s, 3000300, 2, 800);
  back(&s, 3001002, 3, 900);
  back(&s, 3001003, 2, 1000);
  expect(&s, 1, 3001000);
  enter(&s, 4000000, 2, 1000); /* left by longjmp after that time */
  enter(&s, 4000500, 3, 900);
  enter(&s, 4005000, 4, 1100);
  expect(&s, 2, 3001000, 4001000);
  enter(&s, 5000000, 2, 1000);
  feed(&s, 5000900, CT_KIND_TAIL, 3, 1000); /* it ends there; 3 takes long */
  back(&s, 5009000, 2, 1000);
  expect(&s, 2, 3001000, 4001000);
  enter(&s, 6000000, 3, 1000);
  feed(&s, 6005000, CT_KIND_TAIL, 2, 1000); /* another call, by that time */
  back(&s, 6005100, 3, 1000);
  expect(&s, 2, 3001000, 4001000);
  assert_int_equal(s.rules->list[slot].marks, 2);
  end(&s);
}

/* Two limits on one function; a call is marked once for each, whether it has returned or not. */
static void
open_calls(void **state)
{
  struct scene s;
  begin(&s, state);
  add(&s, "f > 1ms", 2);
  add(&s, "f >= 5ms", 2);
  enter(&s, 9000, 1, 1100);
  enter(&s, 10000, 2, 1000);
  enter(&s, 10500, 3, 900);
  rules_open_calls(&s.thread, 10999);
  expect(&s, 0);
  rules_open_calls(&s.thread, 11001);
  rules_open_calls(&s.thread, 14000);
  expect(&s, 1, 11000);
  rules_open_calls(&s.thread, 15000);
  rules_open_calls(&s.thread, 90000);
  expect(&s, 2, 11000, 15000);
  back(&s, 95000, 3, 900);
  back(&s, 96000, 2, 1000);
  rules_open_calls(&s.thread, 97000);
  expect(&s, 2, 11000, 15000);
  enter(&s, 100000, 2, 1000); /* the same place, another call */
  rules_open_calls(&s.thread, 101500);
  expect(&s, 3, 11000, 15000, 101000);
  enter(&s, 102000, 2, 900); /* further in */
  rules_open_calls(&s.thread, 103500);
  expect(&s, 4, 11000, 15000, 101000, 103000);
  end(&s);
}

/* A recursion of which most is looked at later; what has been marked is not looked at again. */
static void
deep_recursion(void **state)
{
  enum { DEPTH = 100000 };
  struct scene s;
  begin(&s, state);
  uint32_t slot = add(&s, "f > 1ms", 2);
  for (uint32_t i = 0; i < DEPTH; i++) {
    enter(&s, 10000 + i, 2, 1000000000 - i * 16);
  }
  for (int turn = 0; turn < 20; turn++) {
    rules_open_calls(&s.thread, 10000000);
  }
  assert_int_equal(s.rules->list[slot].marks + s.rules->list[slot].refused, DEPTH);
  assert_int_equal(s.thread.rules_checked, DEPTH);
  for (uint32_t i = DEPTH; i-- > DEPTH / 2;) {
    back(&s, 20000000, 2, 1000000000 - i * 16);
  }
  assert_int_equal(s.rules->list[slot].marks + s.rules->list[slot].refused, DEPTH);
  end(&s);
}

/* Frames come and go between looks: as many marks as a plain count of the calls that took long. */
static void
open_calls_at_random(void **state)
{
  enum { DEPTH = 12, STEPS = 3000 };
  struct scene s;
  begin(&s, state);
  uint32_t slot = add(&s, "f > 1ms", 2);
  struct {
    uint64_t since;
    uint32_t fn;
  } stack[DEPTH];
  unsigned depth = 0, seed = 4711;
  uint64_t now = 10000, slow = 0;
  for (int step = 0; step < STEPS; step++) {
    seed = seed * 1103515245u + 12345u;
    unsigned what = seed >> 16 & 7;
    now += (seed >> 20 & 255) + 1;
    if (what == 0) {
      rules_open_calls(&s.thread, now);
    } else if (depth < DEPTH && (depth == 0 || what < 5)) {
      stack[depth].since = now;
      stack[depth].fn = (seed >> 10 & 1) + 2;
      enter(&s, now, stack[depth].fn, 2000 - depth * 100);
      depth++;
    } else {
      depth--;
      slow += stack[depth].fn == 2 && now - stack[depth].since > 1000;
      back(&s, now, stack[depth].fn, 2000 - depth * 100);
    }
  }
  while (depth-- > 0) {
    slow += stack[depth].fn == 2 && now - stack[depth].since > 1000;
  }
  rules_open_calls(&s.thread, now);
  assert_true(slow > 20);
  assert_int_equal(s.rules->list[slot].marks + s.rules->list[slot].refused, slow);
  end(&s);
}

static void
fast_calls(void **state)
{
  struct scene s;
  begin(&s, state);
  add(&s, "f < 1us", 2); /* a tick */
  add(&s, "g <= 2us", 3);
  enter(&s, 100, 2, 1000);
  back(&s, 101, 2, 1000);
  enter(&s, 200, 2, 1000);
  back(&s, 200, 2, 1000);
  enter(&s, 300, 3, 1000);
  back(&s, 302, 3, 1000);
  enter(&s, 400, 3, 1000);
  back(&s, 403, 3, 1000);
  expect(&s, 2, 200, 302);
  end(&s);
}

/* Events were lost: the enter of what is open may be another call's. */
static void
doubtful_calls(void **state)
{
  struct scene s;
  begin(&s, state);
  add(&s, "f > 1ms", 2);
  add(&s, "f < 1s", 2);
  enter(&s, 10000, 2, 1000);
  ct_encode_lost(s.thread.encoder, 10001, 7);
  rules_open_calls(&s.thread, 20000);
  back(&s, 30000, 2, 1000);
  expect(&s, 0);
  end(&s);
}

static void
results(void **state)
{
  static const struct {
    uint64_t value;
    bool is_less, is_minus_one;
  } cases[] = {
      {0, false, false},          {1, false, false},         {0xffffffff, true, true},
      {UINT64_MAX, true, true},   {0x80000000, true, false}, {0x7fffffff, false, false},
      {1ull << 32, false, false}, {1ull << 63, true, false}, {0x1ffffffff, false, false},
  };
  struct scene s;
  begin(&s, state);
  uint32_t less = add(&s, "f returns < 0", 2), equal = add(&s, "f returns == -1", 2);
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    uint64_t at = 1000 * (i + 1), was_less = s.rules->list[less].marks, was_equal = s.rules->list[equal].marks;
    enter(&s, at, 3, 1100); /* whose result it is not */
    enter(&s, at + 10, 2, 1000);
    result(&s, cases[i].value, 1000);
    back(&s, at + 20, 2, 1000);
    result(&s, UINT64_MAX, 1100);
    back(&s, at + 30, 3, 1100);
    assert_int_equal(s.rules->list[less].marks - was_less, cases[i].is_less);
    assert_int_equal(s.rules->list[equal].marks - was_equal, cases[i].is_minus_one);
  }
  end(&s);
}

static void
rates(void **state)
{
  struct scene s;
  begin(&s, state);
  uint32_t slot = add(&s, "rate f > 100/s", 9);
  uint64_t at = SECOND;
  for (int i = 0; i < 300; i++, at += SECOND / 50) { /* 50 a second */
    feed(&s, at, CT_KIND_OTHER, CT_FN_POINT_BIT | 9, 900);
  }
  assert_int_equal(s.rules->list[slot].marks, 0);
  for (int turn = 1; turn <= 2; turn++) {
    for (int i = 0; i < 600; i++, at += SECOND / 200) {
      feed(&s, at, CT_KIND_OTHER, CT_FN_POINT_BIT | 9, 900);
    }
    assert_int_equal(s.rules->list[slot].marks, turn);
    for (int i = 0; i < 100; i++, at += SECOND / 50) {
      feed(&s, at, CT_KIND_OTHER, CT_FN_POINT_BIT | 9, 900);
    }
    assert_int_equal(s.rules->list[slot].marks, turn);
  }
  feed(&s, 1, CT_KIND_OTHER, CT_FN_POINT_BIT | 9, 900); /* a clock that makes no sense */
  assert_int_equal(s.rules->list[slot].marks, 2);
  end(&s);
}

static void
off_the_processor(void **state)
{
  struct scene s;
  begin(&s, state);
  add(&s, "off-cpu f > 10ms", 2);
  enter(&s, 100, 1, 1000);
  rules_off(&s.thread, 200, 50000); /* not in f */
  enter(&s, 60000, 2, 900);
  enter(&s, 61000, 2, 800);
  rules_off(&s.thread, 62000, 72000); /* not longer */
  expect(&s, 0);
  rules_off(&s.thread, 80000, 90001);
  expect(&s, 1, 90000);
  end(&s);
}

static void
by_the_clock(void **state)
{
  struct scene s;
  begin(&s, state);
  add(&s, "every 10ms", 0); /* from 1000 on */
  rules_time(s.rules, 10999);
  expect(&s, 0);
  rules_time(s.rules, 11000);
  rules_time(s.rules, 11001);
  expect(&s, 1, 11000);
  rules_time(s.rules, 35000);
  expect(&s, 3, 11000, 21000, 31000);
  end(&s);
}

/* Under a budget: what was only counted makes rules true that need no more, and counts as unseen of the others. */
static void
counted(void **state)
{
  struct scene s;
  begin(&s, state);
  uint32_t rate = add(&s, "rate f > 1000/s", 2), call = add(&s, "call g", 3), slow = add(&s, "f > 1ms", 2);
  rules_counted(&s.thread, rules_mask(s.rules, 2), 2, 1000);
  assert_int_equal(s.rules->list[rate].marks, 0);
  rules_counted(&s.thread, rules_mask(s.rules, 2), 2, 50);
  rules_counted(&s.thread, rules_mask(s.rules, 2), 2, 50);
  rules_counted(&s.thread, rules_mask(s.rules, 3), 3, 2);
  assert_int_equal(s.rules->list[rate].marks, 1); /* once, when it was passed */
  assert_int_equal(s.rules->list[call].marks, 1);
  assert_int_equal(s.rules->list[slow].marks, 0);
  assert_int_equal(s.rules->list[slow].unseen, 1100);
  assert_int_equal(s.rules->list[rate].unseen, 0);
  end(&s);
}

static void
actions_and_limits(void **state)
{
  struct scene s;
  begin(&s, state);
  uint32_t slot = add(&s, "call f: dump", 2);
  add(&s, "call g", 3);
  enter(&s, 100, 3, 1000);
  assert_int_equal(atomic_load(&s.rules->actions), 0);
  enter(&s, 200, 2, 900);
  assert_int_equal(atomic_load(&s.rules->actions), 1u << slot);
  ct_rules_remove(s.rules, slot);
  assert_int_equal(atomic_load(&s.rules->actions), 0);
  uint32_t count = 1;
  struct ct_rule rule;
  assert_int_equal(ct_rule_parse("call h", &rule, NULL), 0);
  while (ct_rules_add(s.rules, &rule, 0, 0) >= 0) {
    count++;
  }
  assert_int_equal(count, CT_RULES_MAX);
  assert_int_equal(ct_rules_add(s.rules, &rule, 0, 0), CT_ERANGE);
  for (uint32_t i = 0; i < CT_RULES_MAX; i++) {
    ct_rules_remove(s.rules, i);
  }
  assert_false(s.rules->any);
  enter(&s, 300, 3, 800);
  expect(&s, 2, 100, 200);
  end(&s);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, temporary_setup, temporary_teardown)
      TEST(calls),
      TEST(slow_calls),
      TEST(open_calls),
      TEST(deep_recursion),
      TEST(open_calls_at_random),
      TEST(fast_calls),
      TEST(doubtful_calls),
      TEST(results),
      TEST(rates),
      TEST(off_the_processor),
      TEST(by_the_clock),
      TEST(counted),
      TEST(actions_and_limits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
