/* SPDX-License-Identifier: MIT */
/* Threads that come and go, for a sanitizer: its marks at a thread's end, a stack for handlers, signals, what is freed.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, BLOCKS = 100 };

static _Thread_local volatile sig_atomic_t handled;

static void
handle(int signal)
{
  (void)signal;
  handled++;
}

static void *
work(void *argument)
{
  long sum = 0;
  for (int i = 0; i < BLOCKS; i++) {
    char *bytes = malloc(100 + (size_t)i);
    memset(bytes, i, 100);
    sum += bytes[50];
    free(bytes);
  }
  raise(SIGUSR1);
  return (void *)(sum + handled + *(int *)argument);
}

int
main(int argc, char **argv)
{
  int rounds = argc > 1 ? atoi(argv[1]) : 3;
  long sum = 0;
  signal(SIGUSR1, handle);
  for (int round = 0; round < rounds; round++) {
    pthread_t threads[THREADS];
    void *result;
    for (int i = 0; i < THREADS; i++) {
      pthread_create(&threads[i], NULL, work, &round);
    }
    for (int i = 0; i < THREADS; i++) {
      pthread_join(threads[i], &result);
      sum += (long)result;
    }
  }
  printf("%ld\n", sum);
  fflush(stdout);
  if (argc > 2) { /* what AddressSanitizer finds */
    volatile char *bytes = malloc(10);
    free((void *)bytes);
    return bytes[argc];
  }
  return 0;
}
