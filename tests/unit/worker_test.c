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

#define HOGS    4
#define RUN_MS  600
#define MOST_MS 60000 /* a machine may be busy; without help this would give a worker a few ms */
#define STEP_NS 5000000L

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

static void *
spin_as_worker(void *unused)
{
  int last = 19;
  (void)unused;
  return spin(&last);
}

static void
pass(long ns)
{
  struct timespec wait = {ns / 1000000000, ns % 1000000000};
  nanosleep(&wait, NULL);
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

/* All on one processor, of which the worker's share would be 1 of 20,000 (sched(7), setpriority(2)): what it has run,
 * in ns, after a while, or as soon as it has run so much. */
static uint64_t
starved_worker(bool guarded, uint64_t enough_ns, uint64_t *took_ns)
{
  pthread_t hogs[HOGS], worker;
  clockid_t clock;
  int first = -20;
  uint64_t ran_ns = 0, begin_ns = ct_now_ns();
  __atomic_store_n(&over, 0, __ATOMIC_RELAXED);
  for (int i = 0; i < HOGS; i++) {
    assert_int_equal(pthread_create(&hogs[i], NULL, spin, &first), 0);
  }
  if (guarded) {
    ct_workers_guard();
  }
  assert_int_equal(ct_worker_create(&worker, NULL, spin_as_worker, NULL), 0);
  assert_int_equal(pthread_getcpuclockid(worker, &clock), 0);
  do {
    pass(guarded ? STEP_NS : RUN_MS * 1000000L);
    ran_ns = ct_clock_ns(clock);
    *took_ns = ct_now_ns() - begin_ns;
  } while (guarded && ran_ns < enough_ns && *took_ns < MOST_MS * 1000000ull);
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
  uint64_t alone_ns, helped_ns;
  uint64_t alone = starved_worker(false, 0, &alone_ns);
  uint64_t enough = 4 * alone > 50000000 ? 4 * alone : 50000000;
  uint64_t helped = starved_worker(true, enough, &helped_ns);
  print_message("%.1f ms of %.0f, %.1f of %.0f while guarded\n", (double)alone / 1e6, (double)alone_ns / 1e6,
                (double)helped / 1e6, (double)helped_ns / 1e6);
  assert_true(helped >= enough);
}

static void *
class_of_mine(void *policy)
{
  *(int *)policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
  return NULL;
}

/* One that is guarded and has no processor is raised at once, on a machine that is busy enough. */
static void
assert_class_at_begin(int policy, bool guarded)
{
  assert_true(policy == SCHED_OTHER || (guarded && policy == SCHED_RR));
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
    assert_class_at_begin(policy, guarded != 0);
    /* One that is of another class by somebody's probe stays in it, and so do those that it creates. */
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
  int begun, raised; /* atomic; it has been raised, at some time */
};

static void *
watch_own_class(void *context)
{
  struct watched *watched = context;
  setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
  if (watched->held) {
    ct_priority_hold();
  }
  __atomic_store_n(&watched->begun, 1, __ATOMIC_RELAXED);
  while (__atomic_load_n(&over, __ATOMIC_RELAXED) == 0) {
    if ((sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) != SCHED_OTHER) {
      __atomic_store_n(&watched->raised, 1, __ATOMIC_RELAXED);
    }
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
    while (__atomic_load_n(&watched.begun, __ATOMIC_RELAXED) == 0) {
      pass(STEP_NS);
    }
    for (int i = 0; i < HOGS; i++) {
      assert_int_equal(pthread_create(&hogs[i], NULL, spin, &first), 0);
    }
    uint64_t begin_ns = ct_now_ns();
    do { /* what is to happen is waited for, what is not for a while */
      pass(held != 0 ? RUN_MS * 1000000L : STEP_NS);
    } while (held == 0 && __atomic_load_n(&watched.raised, __ATOMIC_RELAXED) == 0 &&
             ct_now_ns() - begin_ns < MOST_MS * 1000000ull);
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
    assert_class_at_begin(policies[i], true);
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
