/* SPDX-License-Identifier: MIT */
/* A seccomp filter, then calls on a stack that contrail may not look for any more, each by the agent's slow path, which
 * a handler interrupts. Prints how often `in_handler` and `step` were called. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <ucontext.h>

enum { HANDLED = 3000, STACK = 1 << 20 };

static volatile long handled, steps;
static ucontext_t first, other;

__attribute__((noinline)) void
in_handler(void)
{
  handled = handled + 1;
}
__attribute__((noinline)) void
step(void)
{
  steps = steps + 1;
}
static void
on_alarm(int number)
{
  (void)number;
  in_handler();
}
static void
elsewhere(void)
{
  while (handled < HANDLED) {
    step();
  }
}

int
main(void)
{
  stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
  sigaltstack(&stack, NULL);
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_ONSTACK | SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  step();
  raise(SIGALRM);
  struct sock_filter everything[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  struct sock_fprog filter = {1, everything};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    return 3;
  }
  getcontext(&other);
  other.uc_stack.ss_size = STACK;
  other.uc_stack.ss_sp = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  other.uc_link = &first;
  makecontext(&other, elsewhere, 0);
  struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  swapcontext(&first, &other);
  setitimer(ITIMER_REAL, &never, NULL);
  step();
  printf("%ld %ld\n", handled, steps);
  return 0;
}
