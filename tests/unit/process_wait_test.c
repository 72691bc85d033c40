/* SPDX-License-Identifier: MIT */
/* A tracer that dies when it has seen a thread stop for a signal: the thread gets the signal. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "process/wait.h"

/* What the three processes share. */
struct shared {
  int ready, traced, stopped, got;
};

static struct shared *shared;

static void
rest(void)
{
  struct timespec wait = {0, 1000 * 1000};
  nanosleep(&wait, NULL);
}

static bool
becomes(const int *word, int value)
{
  for (int i = 0; i < 30000 && __atomic_load_n(word, __ATOMIC_ACQUIRE) != value; i++) {
    rest();
  }
  return __atomic_load_n(word, __ATOMIC_ACQUIRE) == value;
}

static void
set(int *word, int value)
{
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static void
on_signal(int number)
{
  set(&shared->got, number);
}

static void
be_target(void)
{
  signal(SIGUSR1, on_signal);
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  set(&shared->ready, 1);
  for (;;) {
    rest();
  }
}

static bool
never(void *context)
{
  (void)context;
  return false;
}

/* Looks at the stop for the signal, in one of the two ways that there are, and is killed. */
static void
be_tracer(pid_t target, bool late)
{
  int status;
  if (ptrace(PTRACE_SEIZE, target, NULL, NULL) != 0) {
    _exit(1);
  }
  set(&shared->traced, 1);
  if (ct_wait_until(target, &status, never, NULL) != target || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGUSR1) {
    _exit(2);
  }
  if (late) { /* as a thread that is asked for again */
    status = 0;
    if (ct_wait_until(target, &status, never, NULL) != target || WSTOPSIG(status) != SIGUSR1) {
      _exit(3);
    }
  }
  set(&shared->stopped, 1);
  kill(getpid(), SIGKILL);
}

static void
check_killed(bool late)
{
  int status;
  memset(shared, 0, sizeof(*shared));
  pid_t target = fork();
  if (target == 0) {
    be_target();
  }
  bool ready = becomes(&shared->ready, 1);
  pid_t tracer = fork();
  if (tracer == 0) {
    be_tracer(target, late);
  }
  bool traced = ready && becomes(&shared->traced, 1);
  kill(target, SIGUSR1);
  waitpid(tracer, &status, 0);
  bool got = becomes(&shared->got, SIGUSR1);
  kill(target, SIGKILL);
  waitpid(target, NULL, 0);
  assert_true(ready && traced);
  assert_true(WIFSIGNALED(status));
  assert_true(shared->stopped);
  assert_true(got);
}

static void
signal_outlives_the_tracer(void **state)
{
  (void)state;
  check_killed(false);
  check_killed(true);
}

static void
ends_are_taken(void **state)
{
  (void)state;
  int status = 0;
  pid_t child = fork();
  if (child == 0) {
    _exit(7);
  }
  assert_int_equal(ct_wait_until(child, &status, never, NULL), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  assert_int_equal(waitpid(child, &status, WNOHANG), -1); /* it is nobody's any more */
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(signal_outlives_the_tracer),
      cmocka_unit_test(ends_are_taken),
  };
  void *memory = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return 1;
  }
  shared = memory;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
