// SPDX-License-Identifier: MIT
// 200 threads, one after the other, each with 50 calls of leaf; some 2 seconds.
#include <pthread.h>
#include <unistd.h>
static volatile int seen;
__attribute__((noinline)) void
leaf(int i)
{
  seen = i;
}
static void *
body(void *unused)
{
  for (int i = 0; i < 50; i++) {
    leaf(i);
  }
  return unused;
}
int
main(void)
{
  for (int i = 0; i < 200; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, NULL) != 0) {
      return 1;
    }
    pthread_join(thread, NULL);
    usleep(10000);
  }
  return 0;
}
