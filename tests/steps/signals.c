/* SPDX-License-Identifier: MIT */
/* Signals that come from a timer, from faults and from itself, with work in between: for tests/steps.py. */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile uint64_t sum;
static volatile int alarms, users;
static sigjmp_buf back;

static void
on_alarm(int number)
{
  alarms++;
  for (volatile int i = 0; i < 20; i++) {
    sum += (uint64_t)i * 7;
  }
}

static void
on_user(int number, siginfo_t *info, void *context)
{
  double x = users + 0.5;
  users++;
  sum += (uint64_t)(x * 3.25);
  if (users < 3) {
    raise(SIGUSR1);
  }
}

static void
on_fault(int number)
{
  siglongjmp(back, 1);
}

static char text[4096], copy[4096];

int
main(void)
{
  struct sigaction user = {.sa_sigaction = on_user, .sa_flags = SA_SIGINFO | SA_NODEFER};
  struct itimerval timer = {{0, 2000}, {0, 2000}};
  int faults = 0;
  signal(SIGALRM, on_alarm);
  signal(SIGSEGV, on_fault);
  signal(SIGFPE, on_fault);
  signal(SIGWINCH, SIG_DFL);
  sigaction(SIGUSR1, &user, NULL);
  setitimer(ITIMER_REAL, &timer, NULL);
  volatile int zero = 0;
  int *volatile nowhere = NULL;
  for (int i = 0; i < 8; i++) {
    if (sigsetjmp(back, 1) == 0) {
      if (i % 2 == 0) {
        sum += (uint64_t)*nowhere;
      } else {
        sum += (uint64_t)(100 / zero);
      }
    } else {
      faults++;
    }
    raise(SIGUSR1);
    raise(SIGWINCH);
    memset(text, i + 'a', sizeof(text) - 1);
    memcpy(copy, text, sizeof(copy));
    __asm__ volatile("cld; rep movsb" : : "S"(text), "D"(copy), "c"(300UL) : "memory");
    sum += strlen(copy) + (uint64_t)strcmp(text, copy);
    double d = (double)sum;
    for (int k = 0; k < 50; k++) {
      d = d / 1.5 + 3;
    }
    sum += (uint64_t)d;
  }
  printf("%d faults, %d by itself\n", faults, users);
  return alarms > 0 ? 3 : 4;
}
