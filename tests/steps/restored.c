/* SPDX-License-Identifier: MIT */
/*
 * xrstor, as lazy binding has it, with values in vector registers, under a timer's signals: for tests/equal.py. The
 * tracer has the thread wait after each, which is when most signals come.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

enum { ROUNDS = 1500 };

static uint8_t area[8192] __attribute__((aligned(64)));
static uint8_t values[16] = "0123456789abcdef", got[16];
static volatile int alarms;

static void
on_alarm(int number)
{
  alarms++;
}

int
main(void)
{
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  struct itimerval timer = {{0, 1500}, {0, 1500}};
  int same = 0;
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &timer, NULL);
  for (int i = 0; i < ROUNDS; i++) {
    values[0] = (uint8_t)i;
    __asm__ volatile("movups %2, %%xmm0\n\t"
                     "movaps %%xmm0, %%xmm15\n\t"
                     "xsave %0\n\t"
                     "pxor %%xmm0, %%xmm0\n\t"
                     "pxor %%xmm15, %%xmm15\n\t"
                     "xrstor %0\n\t"
                     "pxor %%xmm15, %%xmm0\n\t"
                     "por %%xmm15, %%xmm0\n\t"
                     "movups %%xmm0, %1"
                     : "+m"(area), "=m"(got)
                     : "m"(values), "a"(7), "d"(0)
                     : "xmm0", "xmm15", "memory");
    same += memcmp(got, values, sizeof(got)) == 0;
  }
  printf("%d the same\n", same);
  return same == ROUNDS && alarms > 0 ? 0 : 1;
}
