/* SPDX-License-Identifier: MIT */
/*
 * Rounds of known calls, one for each line on standard input: in each round function k of group g is called
 * round % 7 + k + 3 * g + 1 times, by each of four threads. Between two rounds nothing of it is called; other threads
 * keep calling functions of their own all the time. Answers a line when the round is over.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static volatile long sink;

#define LEAF(group, k)                                                                                                 \
  __attribute__((noinline)) long group##_leaf_##k(long x)                                                              \
  {                                                                                                                    \
    sink += x;                                                                                                         \
    return x + k;                                                                                                      \
  }
#define GROUP(group)                                                                                                   \
  LEAF(group, 0)                                                                                                       \
  LEAF(group, 1)                                                                                                       \
  LEAF(group, 2)                                                                                                       \
  LEAF(group, 3)                                                                                                       \
  LEAF(group, 4)                                                                                                       \
  static long (*const group[])(long) = {group##_leaf_0, group##_leaf_1, group##_leaf_2, group##_leaf_3, group##_leaf_4};

GROUP(red)
GROUP(green)
GROUP(blue)
GROUP(black)

static long (*const *const groups[])(long) = {red, green, blue, black};
static pthread_barrier_t begin, end;
static atomic_long rounds;

__attribute__((noinline)) long
noise_inner(long x)
{
  sink += x;
  return x + 1;
}

static void *
noise(void *unused)
{
  for (long x = 0;; x = noise_inner(x)) {
  }
  return unused;
}

static void *
worker(void *unused)
{
  for (;;) {
    pthread_barrier_wait(&begin);
    for (int g = 0; g < 4; g++) {
      for (int k = 0; k < 5; k++) {
        for (long n = rounds % 7 + k + 3 * g + 1; n > 0; n--) {
          if (groups[g][k](n) != n + k) {
            abort();
          }
        }
      }
    }
    pthread_barrier_wait(&end);
  }
  return unused;
}

int
main(void)
{
  pthread_t thread;
  pthread_barrier_init(&begin, NULL, 5);
  pthread_barrier_init(&end, NULL, 5);
  for (int i = 0; i < 4; i++) {
    pthread_create(&thread, NULL, worker, NULL);
  }
  for (int i = 0; i < 2; i++) {
    pthread_create(&thread, NULL, noise, NULL);
  }
  char line[64];
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof(line), stdin) != NULL) {
    rounds++;
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    printf("%ld\n", rounds);
    fflush(stdout);
  }
  return 0;
}
