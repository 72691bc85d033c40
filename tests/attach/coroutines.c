/* SPDX-License-Identifier: MIT */
/* Coroutines on stacks from malloc, most of them asleep in the middle of calls at any time. */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

enum { COUNT = 20, STACK = 65536 };
static ucontext_t scheduler, routines[COUNT];
static long sums[COUNT];

__attribute__((noinline)) static long
inner(int who, int depth)
{
  if (depth == 0) {
    swapcontext(&routines[who], &scheduler);
    return 1;
  }
  return 1 + inner(who, depth - 1);
}

static void
routine(int who)
{
  for (;;) {
    sums[who] += inner(who, 5 + who);
  }
}

int
main(void)
{
  for (int i = 0; i < COUNT; i++) {
    getcontext(&routines[i]);
    routines[i].uc_stack.ss_sp = malloc(STACK);
    routines[i].uc_stack.ss_size = STACK;
    makecontext(&routines[i], (void (*)(void))routine, 1, i);
  }
  for (int n = 1;; n++) {
    for (int i = 0; i < COUNT; i++) {
      swapcontext(&scheduler, &routines[i]);
      if (sums[i] != (long)(n - 1) * (6 + i)) {
        fprintf(stderr, "%ld\n", sums[i]);
        abort();
      }
    }
    usleep(1000);
    if (n % 100 == 0) {
      printf("%d\n", n / 100);
      fflush(stdout);
    }
  }
}
