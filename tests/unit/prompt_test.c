/* SPDX-License-Identifier: MIT */
/* A prompt thread: of the real-time class while it works little, of its own while it works much, and as before at the
 * end. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/prompt.h"
#include "base/worker.h"

static int
own_class(void)
{
  return sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
}

static void
need_real_time(void)
{
  if (!ct_priority_raise()) {
    skip();
  }
  ct_priority_restore();
}

/* Works until it has had so much of a processor. */
static void
work(uint64_t ns)
{
  for (uint64_t begin = ct_clock_ns(CLOCK_THREAD_CPUTIME_ID); ct_clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin < ns;) {
  }
}

static void
it_is_before_others(void **state)
{
  (void)state;
  need_real_time();
  struct ct_prompt prompt;
  ct_prompt_begin(&prompt);
  for (int i = 0; i < 5; i++) {
    work(1000000);
    ct_prompt_turn(&prompt);
    assert_int_equal(own_class(), SCHED_RR);
  }
  ct_prompt_end(&prompt);
  assert_int_equal(own_class(), SCHED_OTHER);
  ct_prompt_end(&prompt);
  assert_int_equal(own_class(), SCHED_OTHER);
}

/* Turns after which it is not as it should be, whatever else the machine does. */
enum { TURNS_MAX = 400 };

static void
it_keeps_no_processor(void **state)
{
  (void)state;
  int turns = 0;
  need_real_time();
  struct ct_prompt prompt;
  ct_prompt_begin(&prompt);
  do { /* a window may begin anew on a machine that is busy */
    work(25000000);
    ct_prompt_turn(&prompt);
  } while (own_class() != SCHED_OTHER && ++turns < TURNS_MAX);
  assert_int_equal(own_class(), SCHED_OTHER);
  ct_prompt_turn(&prompt);
  for (turns = 0; own_class() == SCHED_OTHER && turns < TURNS_MAX; turns++) { /* and comes back */
    usleep(10000);
    ct_prompt_turn(&prompt);
  }
  assert_int_not_equal(own_class(), SCHED_OTHER);
  ct_prompt_end(&prompt);
  assert_int_equal(own_class(), SCHED_OTHER);
}

static void
another_class_stays(void **state)
{
  (void)state;
  struct sched_param none = {0};
  struct ct_prompt prompt;
  assert_int_equal(sched_setscheduler(0, SCHED_BATCH, &none), 0);
  ct_prompt_begin(&prompt);
  ct_prompt_turn(&prompt);
  assert_int_equal(own_class(), SCHED_BATCH);
  ct_prompt_end(&prompt);
  assert_int_equal(own_class(), SCHED_BATCH);
  sched_setscheduler(0, SCHED_OTHER, &none);
}

static void
one_that_was_never_begun_does_nothing(void **state)
{
  (void)state;
  struct ct_prompt prompt = {0};
  ct_prompt_turn(&prompt);
  assert_int_equal(own_class(), SCHED_OTHER);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_is_before_others),
      cmocka_unit_test(it_keeps_no_processor),
      cmocka_unit_test(another_class_stays),
      cmocka_unit_test(one_that_was_never_begun_does_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
