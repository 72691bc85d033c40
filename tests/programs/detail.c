/* SPDX-License-Identifier: MIT */
/*
 * Calls whose arguments and results are known: detail CALLS THREADS [signals]. Prints for each call of each thread, to
 * its own file counts.N in the current directory, what it was given and what it returned. With "signals" handlers come
 * in between, 5,000 a second, which make calls too (not printed).
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

struct pair {
  int64_t first, second;
};

__attribute__((noinline)) int64_t
mix(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f, int64_t g, int64_t h)
{
  return (a ^ b) + (c ^ d) + (e ^ f) + (g ^ h);
}

__attribute__((noinline)) double
weigh(double x, double y, int k)
{
  return x * k - y;
}

__attribute__((noinline)) struct pair
swap(int64_t a, int64_t b)
{
  __asm__ volatile("");
  return (struct pair){b, a};
}

__attribute__((noinline)) int64_t
last(int64_t a, int64_t b)
{
  __asm__ volatile("");
  return a - b;
}

__attribute__((noinline)) int64_t
first(int64_t a, int64_t b)
{
  __asm__ volatile("");
  return last(b, a); /* a tail call where the compiler makes one */
}

__attribute__((noinline)) int64_t
in_handler(int64_t a, int64_t b)
{
  __asm__ volatile("");
  return a * 3 + b;
}

static volatile int64_t handled;

static void
on_alarm(int number)
{
  handled += in_handler(handled, number) & 1;
}

static uint64_t
next(uint64_t *state)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 11;
}

static long calls;

static void *
work(void *context)
{
  long n = (long)(intptr_t)context;
  uint64_t s = (uint64_t)n + 1;
  char name[32];
  snprintf(name, sizeof(name), "counts.%ld", n);
  FILE *file = fopen(name, "w");
  for (long i = 0; i < calls && file != NULL; i++) {
    int64_t v[8];
    for (int j = 0; j < 8; j++) {
      v[j] = (int64_t)next(&s) - (j % 2 != 0 ? 1l << 52 : 0);
    }
    int64_t m = mix(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
    double x = (double)v[0] / 3, y = (double)v[1] / 7, w = weigh(x, y, (int)v[2]);
    struct pair p = swap(v[3], v[4]);
    int64_t t = first(v[5], v[6]);
    uint64_t xs[3];
    memcpy(&xs[0], &x, 8);
    memcpy(&xs[1], &y, 8);
    memcpy(&xs[2], &w, 8);
    fprintf(file, "mix %lx %lx %lx %lx %lx %lx %lx %lx = %lx\n", v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], m);
    fprintf(file, "weigh %lx %lx %x = %lx\n", xs[0], xs[1], (int)v[2], xs[2]);
    fprintf(file, "swap %lx %lx = %lx %lx\n", v[3], v[4], p.first, p.second);
    fprintf(file, "first %lx %lx = %lx\n", v[5], v[6], t);
  }
  return file == NULL || fclose(file) != 0 ? (void *)1 : NULL;
}

int
main(int argc, char **argv)
{
  long threads = argc > 2 ? atol(argv[2]) : 1;
  pthread_t ids[64];
  void *failed = NULL;
  calls = argc > 1 ? atol(argv[1]) : 100;
  if (argc > 3) {
    struct itimerval often = {{0, 200}, {0, 200}};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
  }
  for (long i = 1; i < threads; i++) {
    if (pthread_create(&ids[i], NULL, work, (void *)(intptr_t)i) != 0) {
      return 2;
    }
  }
  failed = work((void *)0);
  for (long i = 1; i < threads; i++) {
    void *one;
    pthread_join(ids[i], &one);
    failed = failed != NULL ? failed : one;
  }
  puts("done");
  return failed != NULL;
}
