/* SPDX-License-Identifier: MIT */
/* Workers: their class at their begin, and what they get of a processor that others would not let them have. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/worker.h"

#define HOGS   4
#define RUN_MS 600

static int over; /* atomic */

static void
pin_to_first(void)
{
  cpu_set_t may, one;
  assert_int_equal(sched_getaffinity(0, sizeof(may), &may), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &may)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

static void *
spin(void *nice)
{
  setpriority(PRIO_PROCESS, (id_t)gettid(), *(int *)nice);
  while (__atomic_load_n(&over, __ATOMIC_RELAXED) == 0) {
  }
  return NULL;
}

/* What it has run, in ns, when it stops. */
static void *
spin_as_worker(void *ran_ns)
{
  int last = 19;
  spin(&last);
  *(uint64_t *)ran_ns = ct_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  return NULL;
}

static bool
may_raise(void)
{
  bool may = ct_priority_raise();
  if (may) {
    ct_priority_restore();
  }
  return may;
}

/* All on one processor, of which the worker's share would be 1 of 20,000 (sched(7), setpriority(2)). */
static uint64_t
starved_worker(bool guarded)
{
  pthread_t hogs[HOGS], worker;
  int first = -20;
  uint64_t ran_ns = 0;
  __atomic_store_n(&over, 0, __ATOMIC_RELAXED);
  for (int i = 0; i < HOGS; i++) {
    assert_int_equal(pthread_create(&hogs[i], NULL, spin, &first), 0);
  }
  if (guarded) {
    ct_workers_guard();
  }
  assert_int_equal(ct_worker_create(&worker, NULL, spin_as_worker, &ran_ns), 0);
  struct timespec wait = {0, RUN_MS * 1000000L};
  nanosleep(&wait, NULL);
  __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
  pthread_join(worker, NULL);
  if (guarded) {
    ct_workers_unguard();
  }
  for (int i = 0; i < HOGS; i++) {
    pthread_join(hogs[i], NULL);
  }
  return ran_ns;
}

static void
a_starved_worker_is_helped(void **state)
{
  (void)state;
  if (!may_raise() || setpriority(PRIO_PROCESS, 0, -1) != 0) {
    skip();
  }
  setpriority(PRIO_PROCESS, 0, 0);
  uint64_t alone = starved_worker(false), helped = starved_worker(true);
  print_message("%.1f ms of %d, %.1f while guarded\n", (double)alone / 1e6, RUN_MS, (double)helped / 1e6);
  assert_true(helped > 50 * 1000000u);
  assert_true(helped > 4 * alone);
}

static void *
class_of_mine(void *policy)
{
  *(int *)policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
  return NULL;
}

static void
classes(void **state)
{
  (void)state;
  for (int guarded = 0; guarded < 2; guarded++) {
    pthread_t thread;
    int policy = -1;
    if (guarded != 0) {
      ct_workers_guard();
    }
    assert_int_equal(ct_worker_create(&thread, NULL, class_of_mine, &policy), 0);
    pthread_join(thread, NULL);
    assert_int_equal(policy, SCHED_OTHER);
    /* One that is of another class by somebody's wish stays in it, and so do those that it creates. */
    struct sched_param none = {0};
    assert_int_equal(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    assert_false(ct_priority_raise());
    assert_int_equal(ct_worker_create(&thread, NULL, class_of_mine, &policy), 0);
    pthread_join(thread, NULL);
    assert_int_equal(policy, SCHED_BATCH);
    assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
    if (guarded != 0) {
      ct_workers_unguard();
    }
  }
}

static void
raised_and_restored(void **state)
{
  (void)state;
  ct_worker_enter();
  if (ct_priority_raise()) {
    assert_int_equal(sched_getscheduler(0) & ~SCHED_RESET_ON_FORK, SCHED_RR);
    ct_priority_restore();
  }
  ct_worker_leave();
  assert_int_equal(sched_getscheduler(0) & ~SCHED_RESET_ON_FORK, SCHED_OTHER);
}

static void
note_class(void *policy)
{
  class_of_mine(policy);
}

static pthread_key_t at_end;

static void *
set_at_end(void *policy)
{
  pthread_setspecific(at_end, policy);
  return NULL;
}

/* Nobody looks after a worker that has left, and somebody waits for its last steps. */
static void
an_end_is_not_starved(void **state)
{
  (void)state;
  pthread_t thread;
  int policy = -1;
  assert_int_equal(pthread_key_create(&at_end, note_class), 0);
  assert_int_equal(ct_worker_create(&thread, NULL, set_at_end, &policy), 0);
  pthread_join(thread, NULL);
  assert_int_equal(policy, SCHED_OTHER);
  ct_workers_guard();
  assert_int_equal(ct_worker_create(&thread, NULL, set_at_end, &policy), 0);
  pthread_join(thread, NULL);
  ct_workers_unguard();
  assert_int_equal(policy, may_raise() ? SCHED_RR : SCHED_OTHER);
  pthread_key_delete(at_end);
}

struct watched {
  bool held;
  bool raised; /* it has been, at some time */
};

static void *
watch_own_class(void *context)
{
  struct watched *watched = context;
  setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
  if (watched->held) {
    ct_priority_hold();
  }
  while (__atomic_load_n(&over, __ATOMIC_RELAXED) == 0) {
    watched->raised |= (sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) != SCHED_OTHER;
  }
  ct_priority_release();
  return NULL;
}

static void
a_held_worker_keeps_its_class(void **state)
{
  (void)state;
  if (!may_raise() || setpriority(PRIO_PROCESS, 0, -1) != 0) {
    skip();
  }
  setpriority(PRIO_PROCESS, 0, 0);
  for (int held = 0; held < 2; held++) {
    pthread_t hogs[HOGS], worker;
    int first = -20;
    struct watched watched = {.held = held != 0};
    __atomic_store_n(&over, 0, __ATOMIC_RELAXED);
    ct_workers_guard();
    assert_int_equal(ct_worker_create(&worker, NULL, watch_own_class, &watched), 0);
    struct timespec begin = {0, 50 * 1000000L}, wait = {0, RUN_MS * 1000000L};
    nanosleep(&begin, NULL); /* it is held by now */
    for (int i = 0; i < HOGS; i++) {
      assert_int_equal(pthread_create(&hogs[i], NULL, spin, &first), 0);
    }
    nanosleep(&wait, NULL);
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < HOGS; i++) {
      pthread_join(hogs[i], NULL);
    }
    pthread_join(worker, NULL);
    ct_workers_unguard();
    assert_int_equal(watched.raised, held == 0);
  }
}

/* More than are looked after: the others work as well. */
static void
many(void **state)
{
  (void)state;
  pthread_t threads[200];
  int policies[200];
  ct_workers_guard();
  for (int i = 0; i < 200; i++) {
    assert_int_equal(ct_worker_create(&threads[i], NULL, class_of_mine, &policies[i]), 0);
  }
  for (int i = 0; i < 200; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(policies[i], SCHED_OTHER);
  }
  ct_workers_unguard();
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(classes),
      cmocka_unit_test(raised_and_restored),
      cmocka_unit_test(many),
      cmocka_unit_test(an_end_is_not_starved),
      cmocka_unit_test(a_held_worker_keeps_its_class),
      cmocka_unit_test(a_starved_worker_is_helped),
  };
  pin_to_first();
  return cmocka_run_group_tests_name("worker", tests, NULL, NULL);
}
