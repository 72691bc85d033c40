/* SPDX-License-Identifier: MIT */
/* A library that is loaded before a program's own: handlers for signals that come at any time, on a stack of their own.
 * The first one sends itself the second one, which is let in at once. They leave errno, and all else that the program
 * has, as it was. */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

static volatile uint64_t rounds;
static volatile double sum;
static char room[1 << 16];
static uint64_t from[32], to[32];

static void
on_signal(int number, siginfo_t *info, void *context)
{
  int kept = errno;
  for (int i = 0; i < 32; i++) {
    from[i] = from[(i + 7) % 32] * 3 + rounds;
    to[i] ^= from[i] >> 3;
  }
  sum = sum / 1.5 + (double)rounds++;
  if (number == SIGUSR1 && rounds % 4 == 0) {
    raise(SIGUSR2);
  }
  errno = kept;
}

__attribute__((constructor)) static void
begin(void)
{
  struct timespec moment = {0, 50000};
  stack_t stack = {.ss_sp = room, .ss_size = sizeof(room)};
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
  sigaltstack(&stack, NULL);
  sigaction(SIGUSR2, &action, NULL);
  sigaction(SIGUSR1, &action, NULL); /* the last one: from here on it may come */
  while (rounds == 0) {
    nanosleep(&moment, NULL);
  }
}
