/* SPDX-License-Identifier: MIT */
/* Continuations that take turns on one stack, by setjmp and memcpy, on two threads. Writes a number now and then, and
 * ends with 3 when a sum is wrong. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 6, ROUNDS = 2000 };

static __thread jmp_buf scheduler, parked[COUNT];
static __thread char *copies[COUNT], *base;
static __thread size_t copy_bytes[COUNT];
static __thread volatile int started[COUNT], who;
static __thread volatile long sums[COUNT];

static __attribute__((noipa)) void
park(int me)
{
  if (_setjmp(parked[me]) == 0) {
    char *low = (char *)__builtin_frame_address(0) - 1024;
    copy_bytes[me] = (size_t)(base - low);
    copies[me] = realloc(copies[me], copy_bytes[me]);
    memcpy(copies[me], low, copy_bytes[me]);
    _longjmp(scheduler, 1);
  }
}

static __attribute__((noipa)) long
descend(int me, int depth)
{
  if (depth == 0) {
    park(me);
    return 1;
  }
  long below = descend(me, depth - 1);
  __asm__ volatile("" ::: "memory");
  return below + 1;
}

static __attribute__((noipa)) void
body(int me)
{
  for (volatile int round = 0;; round++) {
    sums[me] += descend(me, 2 + (me + round) % 9);
  }
}

static __attribute__((noipa)) void
bring_back(int me)
{
  char room[16384];
  __asm__ volatile("" ::"r"(room) : "memory");
  memcpy(base - copy_bytes[me], copies[me], copy_bytes[me]);
  _longjmp(parked[me], 1);
}

static void *
run(void *number)
{
  char room[2048];
  __asm__ volatile("" ::"r"(room) : "memory");
  static __thread volatile long turn, printed;
  base = (char *)__builtin_frame_address(0) - 512;
  for (turn = 1;; turn++) {
    for (who = 0; who < COUNT; who++) {
      if (_setjmp(scheduler) == 0) {
        if (started[who]) {
          bring_back(who);
        } else {
          started[who] = 1;
          body(who);
        }
      }
    }
    if (turn % ROUNDS != 0) {
      continue;
    }
    for (int i = 0; i < COUNT; i++) {
      long sum = 0;
      for (long round = 0; round < turn - 1; round++) {
        sum += 3 + (i + round) % 9;
      }
      if (sum != sums[i]) {
        _exit(3);
      }
    }
    if (number != NULL) {
      printf("%ld\n", ++printed);
      fflush(stdout);
    }
    turn = 0;
    for (who = 0; who < COUNT; who++) {
      sums[who] = started[who] = 0;
    }
  }
  return number;
}

int
main(void)
{
  pthread_t thread;
  pthread_create(&thread, NULL, run, NULL);
  run(&thread);
  return 0;
}
