/* SPDX-License-Identifier: MIT */
/* Which call of its function a call is, where calls do not come in the order of their times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "drain/ordinals.h"

enum { F = 3, G = 4, RULE = 1 };

struct scene {
  struct drain_ordinals ordinals;
  struct ct_windows *windows;
};

static void
begin(struct scene *scene)
{
  const struct ct_windows_limits limits = {.minute = UINT64_MAX, .per_minute = 100};
  *scene = (struct scene){0};
  assert_int_equal(ct_windows_create(&limits, &scene->windows), 0);
  assert_true(drain_ordinals_begin(&scene->ordinals));
}

static void
end(struct scene *scene)
{
  drain_ordinals_end(&scene->ordinals);
  ct_windows_destroy(scene->windows);
}

static uint64_t
call(struct scene *scene, uint32_t thread, uint32_t fn, uint64_t tsc)
{
  return drain_ordinals_count(&scene->ordinals, scene->windows, thread, fn, tsc, 1);
}

/* A mark of the call, at its begin. */
static void
tell(struct scene *scene, uint32_t fn, uint64_t number, uint64_t tsc)
{
  const struct ct_mark mark = {.tsc = tsc, .thread = 0, .rule = RULE, .function = fn};
  assert_true(ct_windows_mark(scene->windows, &mark));
  drain_ordinals_tell(&scene->ordinals, scene->windows, &mark, number, tsc);
}

/* Of the window of that mark. */
static struct ct_mark
told(const struct scene *scene, uint64_t tsc)
{
  struct ct_marked_window window;
  for (size_t n = 0; ct_windows_get(scene->windows, n, &window, 1) == 1; n++) {
    if (window.reasons[0].tsc == tsc) {
      return window.reasons[0];
    }
  }
  fail_msg("no window at %d", (int)tsc);
  return (struct ct_mark){0};
}

static void
of_one_thread(void **state)
{
  struct scene s;
  (void)state;
  begin(&s);
  uint64_t first = call(&s, 5, F, 10), other = call(&s, 5, G, 10), second = call(&s, 5, F, 10);
  for (uint64_t i = 0; i < 1 << 20; i++) { /* more than are remembered */
    call(&s, 5, G, 100 + i);
  }
  tell(&s, F, second, 10);
  assert_int_equal(told(&s, 10).call, 2);
  assert_int_equal(told(&s, 10).call_is, CT_CALL_EXACT);
  assert_true(first == 1 && other == 1);
  tell(&s, F, 0, 2000000); /* not known */
  assert_int_equal(told(&s, 2000000).call, 0);
  end(&s);
}

/* The example of ordinals.c. */
static void
out_of_order(void **state)
{
  struct scene s;
  (void)state;
  begin(&s);
  call(&s, 1, F, 10);
  call(&s, 1, F, 50);
  uint64_t third = call(&s, 2, F, 20), fourth = call(&s, 2, F, 60);
  call(&s, 2, G, 15);
  tell(&s, F, fourth, 60);
  assert_int_equal(told(&s, 60).call, 4);
  uint64_t fifth = call(&s, 1, F, 30);
  tell(&s, F, third, 20);
  tell(&s, F, fifth, 30);
  assert_int_equal(told(&s, 20).call, 2);
  assert_int_equal(told(&s, 30).call, 3);
  assert_int_equal(told(&s, 60).call, 5);
  call(&s, 1, F, 70);
  call(&s, 1, G, 5);
  assert_int_equal(told(&s, 60).call, 5);
  assert_int_equal(told(&s, 60).call_is, CT_CALL_EXACT);
  end(&s);
}

static void
not_exact(void **state)
{
  struct scene s;
  (void)state;
  begin(&s);
  uint64_t early = call(&s, 1, F, 10);
  for (uint64_t i = 0; i < 1 << 20; i++) {
    call(&s, 2, G, 100 + i);
  }
  tell(&s, F, early, 10);
  assert_int_equal(told(&s, 10).call, 1);
  assert_int_equal(told(&s, 10).call_is, CT_CALL_ABOUT); /* what was before it may have been later */
  drain_ordinals_late(&s.ordinals, F);
  tell(&s, F, call(&s, 1, F, 3000000), 3000000);
  assert_int_equal(told(&s, 3000000).call, 2);
  assert_int_equal(told(&s, 3000000).call_is, CT_CALL_LEAST);
  drain_ordinals_counted(&s.ordinals, F, 40);
  tell(&s, F, call(&s, 1, F, 3000001), 3000001);
  assert_int_equal(told(&s, 3000001).call, 43);
  assert_int_equal(told(&s, 3000001).call_is, CT_CALL_ABOUT);
  end(&s);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_one_thread),
      cmocka_unit_test(out_of_order),
      cmocka_unit_test(not_exact),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
