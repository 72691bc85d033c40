/* SPDX-License-Identifier: MIT */
/* When it is told to (a line), many threads at once, as many as the first argument says, each with so many calls.
 * Prints how many calls there were in all.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 200, CALLS = 500, STACK_BYTES = 1 << 16 };

static pthread_barrier_t all;

__attribute__((noinline)) void
step(void)
{
  __asm__ volatile("" ::: "memory");
}
static void *
run(void *unused)
{
  for (int i = 0; i < CALLS; i++) {
    step();
  }
  pthread_barrier_wait(&all);
  return unused;
}

int
main(int argc, char **argv)
{
  int count = argc > 1 ? atoi(argv[1]) : THREADS;
  pthread_t *threads = calloc((size_t)count, sizeof(*threads));
  pthread_attr_t attributes;
  if (threads == NULL || pthread_attr_init(&attributes) != 0 ||
      pthread_attr_setstacksize(&attributes, STACK_BYTES) != 0) {
    return 2;
  }
  step();
  puts("ready");
  fflush(stdout);
  getchar();
  pthread_barrier_init(&all, NULL, (unsigned)count);
  for (int i = 0; i < count; i++) {
    if (pthread_create(&threads[i], &attributes, run, NULL) != 0) {
      return 3;
    }
  }
  for (int i = 0; i < count; i++) {
    pthread_join(threads[i], NULL);
  }
  printf("%d\n", 1 + count * CALLS);
  return 0;
}
