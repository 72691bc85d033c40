// SPDX-License-Identifier: MIT
// Until its input ends: 100 times a second 10 calls of quick and one of slow, which takes 2 ms; a second thread from
// the first line of its input on. It tells how often each was called.
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static volatile int seen, ends;
static unsigned long quicks, slows;
__attribute__((noinline)) void
quick(int i)
{
  seen = i;
}
__attribute__((noinline)) void
slow(void)
{
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < 2000000);
}
__attribute__((noinline)) void
second_thread_waits(void)
{
  usleep(20000);
}
static void *
second_thread(void *unused)
{
  while (!ends) {
    second_thread_waits();
  }
  return unused;
}
__attribute__((noinline)) static void *
work(void *unused)
{
  while (!ends) {
    for (int i = 0; i < 10; i++, quicks++) {
      quick(i);
    }
    slow();
    slows++;
    usleep(8000);
  }
  return unused;
}
int
main(void)
{
  pthread_t first, second;
  int has_second = 0, c;
  setvbuf(stdout, NULL, _IOLBF, 0);
  puts("ready");
  pthread_create(&first, NULL, work, NULL);
  while ((c = getchar()) != EOF) {
    if (c == '\n' && !has_second) {
      has_second = pthread_create(&second, NULL, second_thread, NULL) == 0;
    }
  }
  ends = 1;
  pthread_join(first, NULL);
  if (has_second) {
    pthread_join(second, NULL);
  }
  printf("quick %lu slow %lu\n", quicks, slows);
  return 0;
}
