/* SPDX-License-Identifier: MIT */
/* Frames that are open for a long time and deep, some of them in signal handlers, one of these on its own stack. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static volatile unsigned long ticks;
static char handler_stack[65536];

__attribute__((noinline)) static long
down(long depth, long (*at_end)(void))
{
  volatile char local[64];
  local[depth % 64] = (char)depth;
  long result = depth == 0 ? at_end() : 1 + down(depth - 1, at_end);
  return local[depth % 64] == (char)depth ? result : -1000000;
}

static long
doze(void)
{
  struct timespec wait = {0, 30 * 1000 * 1000};
  while (nanosleep(&wait, &wait) != 0) {
  }
  return 0;
}

static long
nothing(void)
{
  return 0;
}

static void
on_alarm(int signal)
{
  (void)signal;
  ticks++;
  if (down(20, nothing) != 20) {
    abort();
  }
  if (ticks % 50 == 0) {
    struct timespec wait = {0, 5 * 1000 * 1000};
    nanosleep(&wait, NULL);
  }
}

int
main(void)
{
  stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof(handler_stack)};
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART | SA_ONSTACK};
  struct itimerval every = {{0, 1000}, {0, 1000}};
  sigaltstack(&stack, NULL);
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &every, NULL);
  for (int n = 1;; n++) {
    if (down(5000, doze) != 5000 || down(300, nothing) != 300) {
      fprintf(stderr, "wrong\n");
      abort();
    }
    printf("%d\n", n);
    fflush(stdout);
  }
}
