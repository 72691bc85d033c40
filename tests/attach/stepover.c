/* SPDX-License-Identifier: MIT */
/*
 * Threads of which most stand in handlers, or before one, that step over a function's first instruction: the place
 * where they go on is known to nobody but the handler. Writes 1, 2, 3 ... and fails when a result is wrong.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

enum { THREADS = 3 };

int undefined(int x);
int halts(int x);
__asm__("  .text\n  .p2align 4\n  .type undefined, @function\nundefined:\n  .cfi_startproc\n  ud2\n  lea 2(%rdi), "
        "%eax\n  ret\n"
        "  .cfi_endproc\n  .size undefined, . - undefined\n"
        "  .p2align 4\n  .type halts, @function\nhalts:\n  .cfi_startproc\n  hlt\n  hlt\n  lea 5(%rdi), %eax\n  ret\n"
        "  .cfi_endproc\n  .size halts, . - halts\n");

static __attribute__((noinline, noclone)) int
depth(int n)
{
  return n > 0 ? depth(n - 1) + 1 : 0;
}

static void
step_over(int number, siginfo_t *info, void *context)
{
  (void)info;
  depth(3);
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += number == SIGILL ? 2 : 1;
}

static void *
work(void *arg)
{
  for (int i = 0;; i++) {
    if (undefined(i) != i + 2 || halts(i) != i + 5 || depth(i % 20) != i % 20) {
      puts("a result is wrong");
      fflush(stdout);
      abort();
    }
  }
  return arg;
}

int
main(void)
{
  pthread_t thread;
  struct sigaction action = {.sa_sigaction = step_over, .sa_flags = SA_SIGINFO};
  sigaction(SIGILL, &action, NULL);
  sigaction(SIGSEGV, &action, NULL);
  for (int i = 0; i < THREADS; i++) {
    pthread_create(&thread, NULL, work, NULL);
  }
  for (int n = 1;; n++) {
    printf("%d\n", n);
    fflush(stdout);
    usleep(10000);
  }
}
