/* SPDX-License-Identifier: MIT */
/* 2,000 threads alive at once, each with its calls, 20 or as many as it is told to before all meet and after; ends when
 * all have met. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 2000 };

static pthread_barrier_t barrier;
static int calls = 20;

__attribute__((noipa)) long
counted_work(long x)
{
  __asm__ volatile("" ::: "memory");
  return x + 1;
}
__attribute__((noipa)) void *
counted_thread(void *argument)
{
  long sum = 0;
  for (int i = 0; i < calls; i++) {
    sum = counted_work(sum);
  }
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < calls; i++) {
    sum = counted_work(sum);
  }
  return (void *)sum;
}

int
main(int argc, char **argv)
{
  static pthread_t threads[COUNT];
  pthread_attr_t small;
  long total = 0;
  if (argc > 1) {
    calls = atoi(argv[1]);
  }
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 << 10);
  pthread_barrier_init(&barrier, NULL, COUNT);
  for (int i = 0; i < COUNT; i++) {
    if (pthread_create(&threads[i], &small, counted_thread, NULL) != 0) {
      return 1;
    }
  }
  for (int i = 0; i < COUNT; i++) {
    void *sum;
    pthread_join(threads[i], &sum);
    total += (long)sum;
  }
  printf("%ld\n", total);
  return 0;
}
