/* SPDX-License-Identifier: MIT */
/*
 * Functions whose times the program measures itself, without a call: by the time stamp counter, which contrail goes by
 * too. Each mode prints what it has measured, in nanoseconds by CLOCK_MONOTONIC_RAW.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { PARENTS = 2000, CHILDREN = 100, ROUNDS = 20 };

static double ticks_per_ns;

static double
seconds(clockid_t clock)
{
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((noinline)) void
busy(unsigned long ticks)
{
  for (unsigned long end = __rdtsc() + ticks; __rdtsc() < end;)
    ;
}

__attribute__((noinline)) void
empty(void)
{
  __asm__ volatile("nop; nop; nop; nop; nop");
}

__attribute__((noinline)) void
parent(void)
{
  for (int i = 0; i < CHILDREN; i++) {
    empty();
  }
}

__attribute__((noinline)) void
parents(void)
{
  for (int i = 0; i < PARENTS; i++) {
    parent();
  }
}

/* 100 empty children, and in between 100 times some 200 ns of its own; returns these in ticks. */
__attribute__((noinline)) unsigned long
known_parent(unsigned long ticks)
{
  unsigned long own = 0;
  for (int i = 0; i < CHILDREN; i++) {
    empty();
    unsigned long begin = __rdtsc(), now;
    do {
      now = __rdtsc();
    } while (now - begin < ticks);
    own += now - begin < 2 * ticks ? now - begin : ticks; /* it was interrupted */
  }
  return own;
}

__attribute__((noinline)) void
work(double ms)
{
  for (double end = seconds(CLOCK_THREAD_CPUTIME_ID) + ms * 1e-3; seconds(CLOCK_THREAD_CPUTIME_ID) < end;)
    ;
}

__attribute__((noinline)) void
rest(void)
{
  usleep(3000);
}

/* Works and rests; what it measures is all of its time, and that on the processor. */
__attribute__((noinline)) void
turns(double *wall, double *cpu)
{
  *wall = seconds(CLOCK_MONOTONIC_RAW);
  *cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < ROUNDS; i++) {
    work(2);
    rest();
  }
  *wall = seconds(CLOCK_MONOTONIC_RAW) - *wall;
  *cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - *cpu;
}

/* Of this thread, by the scheduler's own count, in nanoseconds. */
static double
scheduled(void)
{
  unsigned long ns = 0;
  FILE *file = fopen("/proc/thread-self/schedstat", "re");
  if (file == NULL || fscanf(file, "%lu", &ns) != 1) {
    exit(1);
  }
  fclose(file);
  return (double)ns;
}

static void *
thread_main(void *unused)
{
  double wall, cpu, run = scheduled();
  (void)unused;
  turns(&wall, &cpu);
  run = scheduled() - run;
  printf("turns %.0f %.0f %.0f\n", wall * 1e9, cpu * 1e9, run);
  return NULL;
}

__attribute__((noinline)) void
load(const char *path)
{
  if (dlopen(path, RTLD_NOW) == NULL) {
    exit(1);
  }
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) void
waits(void)
{
  pthread_mutex_lock(&held);
  __asm__ volatile("");
}

/* Ends its thread unseen, in the middle of a call. */
__attribute__((noinline)) void
vanishes(void)
{
  usleep(100000);
  __asm__ volatile("syscall" ::"a"(SYS_exit), "D"(0));
}

static void *
waiter_main(void *unused)
{
  waits();
  return unused;
}

static void *
vanishing_main(void *unused)
{
  vanishes();
  return unused;
}

__attribute__((noinline)) void
open_calls(const char *how)
{
  pthread_t all[2];
  pthread_mutex_lock(&held);
  pthread_create(&all[0], NULL, waiter_main, NULL);
  pthread_create(&all[1], NULL, vanishing_main, NULL);
  usleep(1000000);
  if (strcmp(how, "exit") == 0) {
    exit(0);
  }
  if (strcmp(how, "abort") == 0) {
    abort();
  }
  raise(SIGKILL);
}

/* Returns while it is recorded, to one that goes on calling. */
__attribute__((noinline)) void
returns(void)
{
  usleep(3000000);
  __asm__ volatile("");
}

__attribute__((noinline)) void
goes_on(void)
{
  for (;;) {
    returns();
    empty();
    usleep(10000000);
  }
}

static void *
going_main(void *unused)
{
  goes_on();
  return unused;
}

/* One thread waits for ever, the other one for three seconds. */
__attribute__((noinline)) void
hang(void)
{
  pthread_t all[2];
  pthread_mutex_lock(&held);
  pthread_create(&all[0], NULL, waiter_main, NULL);
  pthread_create(&all[1], NULL, going_main, NULL);
  pthread_join(all[0], NULL);
}

int
main(int argc, char **argv)
{
  const char *mode = argc > 1 ? argv[1] : "";
  double begin = seconds(CLOCK_MONOTONIC_RAW);
  unsigned long ticks = __rdtsc();
  usleep(20000);
  ticks_per_ns = (double)(__rdtsc() - ticks) / ((seconds(CLOCK_MONOTONIC_RAW) - begin) * 1e9);
  if (strcmp(mode, "busy") == 0) {
    for (int i = 1; i <= ROUNDS; i++) {
      busy((unsigned long)(1e6 * ticks_per_ns));
    }
  } else if (strcmp(mode, "parents") == 0) {
    parents();
  } else if (strcmp(mode, "known_parents") == 0) {
    unsigned long own = 0;
    for (int i = 0; i < PARENTS; i++) {
      own += known_parent((unsigned long)(200 * ticks_per_ns));
    }
    printf("%.1f\n", (double)own / ticks_per_ns / PARENTS);
  } else if (strcmp(mode, "threads") == 0) {
    pthread_t all[3];
    for (int i = 0; i < 3; i++) {
      pthread_create(&all[i], NULL, thread_main, NULL);
    }
    for (int i = 0; i < 3; i++) {
      pthread_join(all[i], NULL);
    }
  } else if (strcmp(mode, "load") == 0) {
    load(argv[2]);
  } else if (strcmp(mode, "open") == 0) {
    open_calls(argv[2]);
  } else if (strcmp(mode, "hang") == 0) {
    hang();
  } else { /* to be attached to */
    double wall, cpu;
    for (;;) {
      turns(&wall, &cpu);
    }
  }
  return 0;
}
