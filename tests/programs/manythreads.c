/* SPDX-License-Identifier: MIT */
/* When it is told to (a line), many threads at once, each with so many calls. Prints how many calls there were in all.
 */
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 200, CALLS = 500 };

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
main(void)
{
  pthread_t threads[THREADS];
  step();
  puts("ready");
  fflush(stdout);
  getchar();
  pthread_barrier_init(&all, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], NULL, run, NULL) != 0) {
      return 3;
    }
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
  printf("%d\n", 1 + THREADS * CALLS);
  return 0;
}
