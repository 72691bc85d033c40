/* SPDX-License-Identifier: MIT */
/*
 * A call-bound workload with a known number of calls, for the same measurement untraced, under contrail and under other
 * tracers. It measures itself, so that start-up and installation do not count.
 *
 *   workload leaf N [THREADS]     N calls of an empty function from a loop
 *   workload pair N [THREADS]     N times a function that calls another one twice: 3 N calls
 *   workload fib N [THREADS]      fibonacci(N) by recursion: about 3.24 * 1.618^N calls
 *   workload work N [THREADS]     N calls with about 50 ns of work in each
 *
 * Prints one JSON object: {"mode", "threads", "calls" (of one thread), "ns_per_call" (median of 5 rounds; the best
 * thread), "rdtsc_ns", "loop_ns" (a turn of the loop without a call)}.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#define CALLED __attribute__((noinline))
/* For what compiled-in hooks must not measure: the timing itself. */
#define UNSEEN __attribute__((noinline, no_instrument_function))
#if defined(PATCHABLE)
#define BARE UNSEEN __attribute__((patchable_function_entry(0, 0)))
#else
#define BARE UNSEEN
#endif

enum { ROUNDS = 5, MAX_THREADS = 64 };

CALLED long
leaf(long x)
{
  __asm__ volatile("" : "+r"(x)::"memory");
  return x + 1;
}
CALLED long
pair(long x)
{
  long y = leaf(x);
  __asm__ volatile("" : "+r"(y)::"memory");
  return leaf(y) + 1;
}
CALLED long
fib(long n)
{
  __asm__ volatile("" : "+r"(n)::"memory");
  if (n < 2) {
    return n;
  }
  long sum = fib(n - 1);
  sum += fib(n - 2);
  __asm__ volatile("" : "+r"(sum)::"memory"); /* or the second call becomes a loop */
  return sum;
}
CALLED long
work(long x)
{
  for (int i = 0; i < 40; i++) {
    __asm__ volatile("imul $5, %0, %0" : "+r"(x));
  }
  return x;
}

static long
fib_calls(long n)
{
  return n < 2 ? 1 : 1 + fib_calls(n - 1) + fib_calls(n - 2);
}

static uint64_t
clock_ns(clockid_t clock)
{
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t
now_ns(void)
{
  return clock_ns(CLOCK_MONOTONIC);
}

struct cost {
  double ns, cpu_ns; /* wall and processor time; medians of the rounds */
};

static const char *mode;
static long turns;
static pthread_barrier_t barrier;
static volatile long sink;

BARE static void
one_round(void)
{
  long x = 0;
  if (!strcmp(mode, "leaf")) {
    for (long i = 0; i < turns; i++) {
      x = leaf(x);
    }
  } else if (!strcmp(mode, "pair")) {
    for (long i = 0; i < turns; i++) {
      x = pair(x);
    }
  } else if (!strcmp(mode, "fib")) {
    x = fib(turns);
  } else {
    for (long i = 0; i < turns; i++) {
      x = work(x);
    }
  }
  sink = x;
}

static int
compare_costs(const void *a, const void *b)
{
  const struct cost *x = a, *y = b;
  return (x->ns > y->ns) - (x->ns < y->ns);
}
static int
compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static double
median(double *values, int count)
{
  qsort(values, count, sizeof *values, compare);
  return values[count / 2];
}

BARE static void *
thread_main(void *result)
{
  double ns[ROUNDS], cpu_ns[ROUNDS];
  struct cost *cost = result;
  for (int round = 0; round < ROUNDS; round++) {
    pthread_barrier_wait(&barrier);
    uint64_t begin = now_ns(), cpu_begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    one_round();
    cpu_ns[round] = (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_begin);
    ns[round] = (double)(now_ns() - begin);
  }
  cost->ns = median(ns, ROUNDS);
  cost->cpu_ns = median(cpu_ns, ROUNDS);
  return NULL;
}

BARE static double
rdtsc_cost(void)
{
  enum { TURNS = 2000000 };
  double ns[ROUNDS];
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t begin = now_ns(), sum = 0;
    for (int i = 0; i < TURNS; i++) {
      sum += __rdtsc();
    }
    sink = (long)sum;
    ns[round] = (double)(now_ns() - begin) / TURNS;
  }
  return median(ns, ROUNDS);
}
BARE static double
loop_cost(void)
{
  enum { TURNS = 20000000 };
  uint64_t begin = now_ns();
  for (int i = 0; i < TURNS; i++) {
    __asm__ volatile("" ::: "memory");
  }
  return (double)(now_ns() - begin) / TURNS;
}

int
main(int count, char **words)
{
  mode = count > 1 ? words[1] : "pair";
  turns = count > 2 ? atol(words[2]) : 1000000;
  int threads = count > 3 ? atoi(words[3]) : 1;
  if (threads < 1 || threads > MAX_THREADS) {
    return 2;
  }
  long calls = !strcmp(mode, "fib") ? fib_calls(turns) : !strcmp(mode, "pair") ? 3 * turns : turns;
  double rdtsc_ns = rdtsc_cost(), loop_ns = loop_cost();
  struct cost costs[MAX_THREADS];
  pthread_t thread[MAX_THREADS];
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  for (int i = 1; i < threads; i++) {
    pthread_create(&thread[i], NULL, thread_main, &costs[i]);
  }
  thread_main(&costs[0]);
  for (int i = 1; i < threads; i++) {
    pthread_join(thread[i], NULL);
  }
  qsort(costs, (size_t)threads, sizeof *costs, compare_costs);
  printf("{\"mode\": \"%s\", \"threads\": %d, \"calls\": %ld, \"rounds\": %d, \"ns_per_call\": %.3f, "
         "\"cpu_ns_per_call\": %.3f, \"rdtsc_ns\": %.3f, \"loop_ns\": %.3f}\n",
         mode, threads, calls, ROUNDS, costs[0].ns / (double)calls, costs[0].cpu_ns / (double)calls, rdtsc_ns, loop_ns);
  return 0;
}
