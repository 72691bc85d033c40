/* SPDX-License-Identifier: MIT */
/* Two threads of tiny calls, a number of rounds; prints how many calls there were. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long rounds;

__attribute__((noinline, noclone)) void
leaf(void)
{
  __asm__ volatile("");
}

__attribute__((noinline, noclone)) void
pair(void)
{
  leaf();
  leaf();
  __asm__ volatile("");
}

static void *
run(void *unused)
{
  (void)unused;
  for (long i = 0; i < rounds; i++) {
    pair();
  }
  return NULL;
}

int
main(int argc, char **argv)
{
  pthread_t threads[2];
  rounds = argc > 1 ? atol(argv[1]) : 1000;
  for (int i = 0; i < 2; i++) {
    pthread_create(&threads[i], NULL, run, NULL);
  }
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
  }
  printf("%ld %ld\n", 4 * rounds, 2 * rounds);
  return 0;
}
