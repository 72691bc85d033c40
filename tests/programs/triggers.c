// SPDX-License-Identifier: MIT
// Each line of its input is `WHAT N`: it does that, and answers with the line and what it has counted itself.
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile long seen;
static long slept;

static void
sleep_ms(long ms)
{
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&t, &t) != 0) {
  }
}

__attribute__((noinline)) void
step(long i)
{
  seen = i;
}
__attribute__((noinline)) void
other(long i)
{
  seen = i + 1;
}
__attribute__((noinline)) void
work(long i, long slow)
{
  seen = i;
  if (i == slow) {
    slept++;
    sleep_ms(700);
  }
}
__attribute__((noinline)) void
nap(long ms)
{
  sleep_ms(ms);
}
__attribute__((noinline)) int
may_fail(long i)
{
  return i % 1000 == 7 ? -5 : (int)(i & 3);
}
__attribute__((noinline)) long
may_fail_long(long i)
{
  return i % 1000 == 7 ? -5l : i;
}
/* By its type it gives nothing; rax says more. */
__attribute__((noinline)) void
fails_silently(long i)
{
  __asm__ volatile("mov %0, %%rax" ::"r"(i % 1000 == 7 ? -5l : i) : "rax");
}
__attribute__((noinline)) int
fall(int *at)
{
  return *at;
}

static void
on_signal(int number)
{
  seen = number;
}

static void
on_another(int number)
{
  seen = number + 1;
}

/* As a server that writes a report of its own, and ends by the same signal then. */
static void
on_fault(int number)
{
  seen = number;
  signal(number, SIG_DFL);
  raise(number);
}

int
main(int argc, char **argv)
{
  char what[32];
  long n, count = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  puts("ready");
  while (scanf("%31s %ld", what, &n) == 2) {
    count = 0;
    if (strcmp(what, "work") == 0) {
      slept = 0;
      for (long i = 0; i < n; i++) {
        work(i, n / 2);
      }
      count = slept;
    } else if (strcmp(what, "step") == 0) {
      for (; count < n; count++) {
        step(count);
      }
    } else if (strcmp(what, "steps") == 0) { /* 20 ms apart */
      for (; count < n; count++, sleep_ms(20)) {
        step(count);
      }
    } else if (strcmp(what, "other") == 0) {
      for (; count < n; count++) {
        other(count);
      }
    } else if (strcmp(what, "nap") == 0) {
      nap(n);
    } else if (strcmp(what, "fail") == 0) {
      for (long i = 0; i < n; i++) {
        count += may_fail(i) < 0;
      }
    } else if (strcmp(what, "fail_long") == 0) {
      for (long i = 0; i < n; i++) {
        count += may_fail_long(i) < 0;
      }
    } else if (strcmp(what, "fail_silently") == 0) {
      for (; count < n; count++) {
        fails_silently(count);
      }
    } else if (strcmp(what, "handle") == 0) {
      signal((int)n, on_signal);
    } else if (strcmp(what, "handle_too") == 0) {
      signal((int)n, on_another);
    } else if (strcmp(what, "handle_fault") == 0) {
      signal((int)n, on_fault);
    } else if (strcmp(what, "raise") == 0) {
      raise((int)n);
      count = seen;
    } else if (strcmp(what, "crash") == 0) {
      seen = fall((int *)n);
    } else if (strcmp(what, "late") == 0) {
      void *library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW);
      void (*late)(long) = library != NULL ? (void (*)(long))dlsym(library, "late") : NULL;
      for (; late != NULL && count < n; count++) {
        late(count);
      }
    }
    printf("%s %ld: %ld\n", what, n, count);
  }
  return 7;
}
