/* SPDX-License-Identifier: MIT */
/*
 * Functions that are called at very different rates by several threads, for some seconds, and at the end how often each
 * was called: name and number in a line each. In the second half of the time one of them is called ten times as often.
 * SIGTERM ends the time.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALLED(name)                                                                                                   \
  static _Thread_local uint64_t n_##name;                                                                              \
  static _Atomic uint64_t sum_##name;                                                                                  \
  __attribute__((noinline)) uint64_t name(uint64_t x)                                                                  \
  {                                                                                                                    \
    n_##name++;                                                                                                        \
    __asm__ volatile("" : "+r"(x));                                                                                    \
    return x * 6364136223846793005u + 1442695040888963407u;                                                            \
  }

CALLED(hottest)
CALLED(hot)
CALLED(warm)
CALLED(cool)
CALLED(jumps)
CALLED(rare)

static double seconds = 3;
static volatile sig_atomic_t is_over;

static void
end(int number)
{
  (void)number;
  is_over = 1;
}

static double
now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

__attribute__((noinline)) uint64_t
busy(uint64_t x, unsigned rounds)
{
  for (unsigned i = 0; i < rounds; i++) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    __asm__ volatile("" : "+r"(x));
  }
  return x;
}

/* One of them begins afresh again and again: threads come and go. */
static void *
worker(void *context)
{
  uint64_t x = (uint64_t)(uintptr_t)context, rounds = 0;
  double begin = now(), length = x == 1 ? 0.05 : seconds, t;
  static double start;
  if (start == 0) {
    start = begin;
  }
  while ((t = now()) - begin < length && !is_over) {
    for (unsigned i = 0; i < 2000; i++) {
      x = hottest(x);
      if (i % 10 == 0) {
        x = hot(x);
      }
      if (i % 200 == 0) {
        x = warm(x);
      }
    }
    for (unsigned i = t - start > seconds / 2 ? 0 : 9; i < 10; i++) {
      x = jumps(x);
    }
    x = cool(x);
    x = busy(x, 20000);
    if (++rounds % 100 == 0) {
      x = rare(x);
    }
  }
  sum_hottest += n_hottest;
  sum_hot += n_hot;
  sum_warm += n_warm;
  sum_cool += n_cool;
  sum_jumps += n_jumps;
  sum_rare += n_rare;
  return (void *)(uintptr_t)(x | 1);
}

int
main(int argc, char **argv)
{
  pthread_t steady, coming;
  seconds = argc > 1 ? atof(argv[1]) : seconds;
  double begin = now();
  pthread_create(&steady, NULL, worker, (void *)2);
  signal(SIGTERM, end);
  while (now() - begin < seconds && !is_over) {
    pthread_create(&coming, NULL, worker, (void *)1);
    pthread_join(coming, NULL);
  }
  pthread_join(steady, NULL);
  printf("hottest %lu\nhot %lu\nwarm %lu\ncool %lu\njumps %lu\nrare %lu\n", sum_hottest, sum_hot, sum_warm, sum_cool,
         sum_jumps, sum_rare);
  return argc > 2 ? atoi(argv[2]) : 0;
}
