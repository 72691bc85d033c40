/* SPDX-License-Identifier: MIT */
/* Many calls over three seconds, numbered, in two threads; one that matters in the middle; ends as it is told. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALONE __attribute__((noinline, noclone))

enum { ROUNDS = 300, CALLS = 20 };

static volatile long sum;

ALONE long
work(long number)
{
  sum += number;
  return number;
}

ALONE void
matters(long number)
{
  sum += number;
}

static void *
run(void *argument)
{
  for (long i = 0; i < ROUNDS; i++) {
    for (long k = 0; k < CALLS; k++) {
      work(i * CALLS + k);
    }
    if (i == ROUNDS / 2 && argument != NULL) {
      matters(i * CALLS + CALLS - 1);
    }
    usleep(8000);
  }
  return NULL;
}

int
main(int argc, char **argv)
{
  pthread_t thread;
  const char *how = argc > 1 ? argv[1] : "";
  pthread_create(&thread, NULL, run, NULL);
  run(strcmp(how, "matters") == 0 ? (void *)how : NULL);
  pthread_join(thread, NULL);
  printf("%d calls\n", 2 * ROUNDS * CALLS);
  fflush(stdout);
  if (strcmp(how, "crash") == 0) {
    *(volatile int *)16 = 1;
  }
  return 0;
}
