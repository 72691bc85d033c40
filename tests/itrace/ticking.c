/* SPDX-License-Identifier: MIT */
/*
 * A program that works while a timer's signals come each 3 ms: it never waits as long as a tenth of a second without
 * one. It says "ready", works until somebody closes its input, or for ROUNDS if they are given, and says what has come
 * of a number of rounds.
 */
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

enum { REPORTED = 20, NUMBERS = 2000, PERIOD_US = 3000 };

static volatile sig_atomic_t ticks;

static void
handle(int signal)
{
  (void)signal;
  ticks++;
}

static int
compare(const void *a, const void *b)
{
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

int
main(int argc, char **argv)
{
  static uint32_t numbers[NUMBERS];
  uint64_t x = 88172645463325252ull, sum = 0, reported = 0;
  int rounds = argc > 1 ? atoi(argv[1]) : 0;
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  struct itimerval often = {{0, PERIOD_US}, {0, PERIOD_US}}, never = {{0, 0}, {0, 0}};
  struct pollfd input = {.fd = 0, .events = POLLIN};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  puts("ready");
  fflush(stdout);
  for (int round = 0; rounds != 0 ? round < rounds : round < REPORTED || poll(&input, 1, 0) != 1; round++) {
    for (int i = 0; i < NUMBERS; i++) {
      x ^= x << 13;
      x ^= x >> 7;
      x ^= x << 17;
      numbers[i] = (uint32_t)x;
    }
    qsort(numbers, NUMBERS, sizeof(numbers[0]), compare);
    sum += numbers[7] ^ numbers[NUMBERS - 1];
    reported = round < REPORTED ? sum : reported;
  }
  setitimer(ITIMER_REAL, &never, NULL);
  printf("%llu\n", (unsigned long long)reported);
  return ticks > 0 ? 7 : 8;
}
