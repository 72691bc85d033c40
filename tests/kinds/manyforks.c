/* SPDX-License-Identifier: MIT */
/* 5,000 children of fork: from the main thread, and from four threads at once; each works and ends. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noipa)) int
counted_work(int x)
{
  __asm__ volatile("" ::: "memory");
  return x + 1;
}
__attribute__((noipa)) int
counted_fork(int code)
{
  pid_t child = fork();
  if (child == 0) {
    int x = code;
    for (int i = 0; i < 50; i++) {
      x = counted_work(x);
    }
    _exit(x == code + 50 ? code : 255);
  }
  int status;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == code;
}
static void *
forks(void *count)
{
  long good = 0;
  for (long i = 0; i < (long)count; i++) {
    good += counted_fork((int)(i % 100)) && counted_work(1) == 2;
  }
  return (void *)good;
}

int
main(void)
{
  pthread_t threads[4];
  long good = (long)forks((void *)2500);
  for (int i = 0; i < 4; i++) {
    pthread_create(&threads[i], NULL, forks, (void *)625);
  }
  for (int i = 0; i < 4; i++) {
    void *result;
    pthread_join(threads[i], &result);
    good += (long)result;
  }
  printf("%ld\n", good);
  return 0;
}
