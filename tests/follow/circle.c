/* SPDX-License-Identifier: MIT */
/*
 * A server as postgres is one: a first process that forks, a backend that has it fork workers and waits for each of
 * them, in a signal handler which most often interrupts a hook. So whoever detaches from the backend waits for the
 * worker, which is forked with hooks and asks at its first one what it is to do.
 *
 *     circle FOLDER      until FOLDER/end is there; FOLDER/ready: it runs; prints how many workers there were
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static int wanted[2], done[2];
static volatile int sum;

__attribute__((noinline)) static int
leaf(int x)
{
  __asm__ volatile("");
  return x + 1;
}

__attribute__((noinline)) static void
work(int n)
{
  for (int i = 0; i < n; i++) {
    sum = leaf(sum);
  }
}

static void
on_alarm(int signal)
{
  char byte = 'w';
  (void)signal;
  if (write(wanted[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1) {
    _exit(1);
  }
}

static void
backend(void)
{
  struct itimerval often = {{0, 20000}, {0, 20000}};
  signal(SIGALRM, on_alarm);
  setitimer(ITIMER_REAL, &often, NULL);
  for (;;) {
    work(1000);
  }
}

static void
worker(void)
{
  char byte = 'd';
  work(10);
  _exit(write(done[1], &byte, 1) == 1 ? 0 : 1);
}

int
main(int count, char **words)
{
  char end[4096], ready[4096], byte;
  int workers = 0, failed = 0, status;
  snprintf(end, sizeof(end), "%s/end", words[1]);
  snprintf(ready, sizeof(ready), "%s/ready", words[1]);
  if (count != 2 || pipe(wanted) != 0 || pipe(done) != 0) {
    return 1;
  }
  while (access(end, F_OK) != 0) { /* a new backend now and then: the first one was there before an attach */
    pid_t child = fork();
    if (child == 0) {
      backend();
    }
    for (int i = 0; i < 40 && access(end, F_OK) != 0; i++) {
      if (read(wanted[0], &byte, 1) != 1) {
        return 1;
      }
      pid_t pid = fork();
      if (pid == 0) {
        worker();
      }
      failed += waitpid(pid, &status, 0) != pid || status != 0;
      workers++;
      if (workers == 2) {
        fclose(fopen(ready, "w"));
      }
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  printf("%d failures, %s\n", failed, workers > 2 ? "many workers" : "few");
  return failed != 0;
}
