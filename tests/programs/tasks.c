/* SPDX-License-Identifier: MIT */
/*
 * tasks SET: needs ten of the user's processes and threads at a time, and no more: itself, eight threads, a child. It
 * tells what the limit of these is (RLIMIT_NPROC), and what of all that there was no place for. SET: it sets the limit
 * to ten itself; else it was started with it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, TASKS = THREADS + 2 };

static pthread_barrier_t all_are_there;

static void *
wait_for_all(void *unused)
{
  pthread_barrier_wait(&all_are_there);
  return unused;
}

static void
tell(const char *when)
{
  struct rlimit limit, again;
  getrlimit(RLIMIT_NPROC, &limit);
  prlimit(0, RLIMIT_NPROC, NULL, &again);
  printf("%s: %ld %ld, %ld %ld\n", when, (long)limit.rlim_cur, (long)limit.rlim_max, (long)again.rlim_cur,
         (long)again.rlim_max);
}

int
main(int count, char **words)
{
  pthread_t threads[THREADS];
  struct rlimit limit;
  int status = -1;
  tell("begin");
  if (count > 1 && strcmp(words[1], "set") == 0) {
    getrlimit(RLIMIT_NPROC, &limit);
    limit.rlim_cur = TASKS;
    printf("set: %d\n", setrlimit(RLIMIT_NPROC, &limit));
    tell("then");
  }
  pthread_barrier_init(&all_are_there, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++) {
    int error = pthread_create(&threads[i], NULL, wait_for_all, NULL);
    if (error != 0) {
      printf("thread %d: %s\n", i, strerror(error));
      fflush(stdout);
      _exit(1);
    }
  }
  pthread_t one_more;
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    printf("no more: %s\n", strerror(pthread_create(&one_more, NULL, wait_for_all, NULL)));
    fflush(stdout);
    execlp("prlimit", "prlimit", "--nproc", "--noheadings", "--raw", "--output=SOFT,HARD", NULL);
    _exit(2);
  }
  if (child < 0) {
    perror("fork");
  } else {
    waitpid(child, &status, 0);
  }
  pthread_barrier_wait(&all_are_there);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
  printf("child %x\n", (unsigned)status);
  fflush(stdout);
  /* The first directories of PATH do not have it. */
  setenv("PATH", "/nonexistent:/nowhere:/usr/bin:/bin", 1);
  execlp("prlimit", "prlimit", "--nproc", "--noheadings", "--raw", "--output=SOFT,HARD", NULL);
  return 3;
}
