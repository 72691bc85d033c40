/* SPDX-License-Identifier: MIT */
/* A library that is loaded before a program's own: its timer goes off again and again, after times by lot. The handler,
 * on a stack of its own, leaves errno, and all else that the program has, as it was. */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>

static volatile uint64_t rounds;
static uint64_t chance = 88172645463325252ull;
static double values[32];
static char room[1 << 16];

static void
begin_timer(void)
{
  enum { LONGEST_US = 600 };
  chance ^= chance << 13;
  chance ^= chance >> 7;
  chance ^= chance << 17;
  struct itimerval timer = {{0, 0}, {0, 1 + (suseconds_t)(chance % LONGEST_US)}};
  setitimer(ITIMER_REAL, &timer, NULL);
}

static void
on_alarm(int number, siginfo_t *info, void *context)
{
  int kept = errno;
  for (int i = 0; i < 32; i++) {
    values[i] = values[(i + 7) % 32] * 1.25 + (double)rounds;
  }
  rounds++;
  begin_timer();
  errno = kept;
}

__attribute__((constructor)) static void
begin(void)
{
  stack_t stack = {.ss_sp = room, .ss_size = sizeof(room)};
  struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
  sigaltstack(&stack, NULL);
  sigaction(SIGALRM, &action, NULL);
  begin_timer();
}
