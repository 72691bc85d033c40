/* SPDX-License-Identifier: MIT */
/* Makes children in one way or another. Each calls work() 100 times and as often as its exit status says. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *self;

__attribute__((noinline)) long
work(long x)
{
  __asm__ volatile("" : "+r"(x));
  return x + 1;
}

static int
work_for(int status)
{
  long done = 0;
  for (int i = 0; i < 100 + status; i++)
    done = work(done);
  return done == 100 + status ? status : 255;
}

static int failures;

static void
expect(pid_t child, int status)
{
  int got = -1;
  if (waitpid(child, &got, 0) != child || !WIFEXITED(got) || WEXITSTATUS(got) != status)
    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
}

static void
fork_one(int status, int depth)
{
  pid_t child = fork();
  if (child == 0) {
    if (depth > 0) {
      failures = 0;
      fork_one(status + 1, depth - 1);
      status = failures ? 254 : status;
    }
    _exit(work_for(status));
  }
  expect(child, status);
}

static void *
fork_many(void *argument)
{
  for (int i = 0; i < (int)(long)argument; i++)
    fork_one(i, 0);
  return NULL;
}

static void
in_threads(int count)
{
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    pthread_create(&threads[i], NULL, fork_many, (void *)(long)count);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
}

static void
execute(const char *way, int status)
{
  char text[16];
  char *words[] = {self, "work", text, NULL};
  pid_t child = -1;
  snprintf(text, sizeof(text), "%d", status);
  if (strcmp(way, "spawn") == 0) {
    if (posix_spawn(&child, "/nonexistent", NULL, NULL, words, environ) != ENOENT ||
        posix_spawn(&child, self, NULL, NULL, words, environ) != 0)
      failures++;
  } else if (strcmp(way, "vfork") == 0) {
    child = vfork();
    if (child == 0) {
      execv("/nonexistent", words);
      execv(self, words);
      _exit(253);
    }
  } else {
    child = fork();
    if (child == 0) {
      execv("/nonexistent", words);
      execv(self, words);
      _exit(253);
    }
  }
  expect(child, status);
}

int
main(int count, char **words)
{
  const char *way = words[1];
  self = words[0];
  if (strcmp(way, "work") == 0)
    return work_for(atoi(words[2]));
  if (strcmp(way, "fork") == 0) {
    for (int i = 0; i < 12; i++)
      fork_one(i, 0);
  } else if (strcmp(way, "nested") == 0) {
    for (int i = 0; i < 6; i++)
      fork_one(i, 2);
  } else if (strcmp(way, "threads") == 0) {
    in_threads(5);
  } else if (strcmp(way, "storm") == 0) {
    in_threads(50);
  } else if (strcmp(way, "daemon") == 0) {
    if (fork() == 0) {
      usleep(200000);
      _exit(work_for(7));
    }
  } else if (strcmp(way, "linger") == 0) {
    FILE *out = fopen(words[2], "w");
    pid_t child = fork();
    if (child == 0) {
      for (;;) {
        work_for(1);
        usleep(1000);
      }
    }
    fprintf(out, "%d\n", (int)child);
    fclose(out);
    sleep(1);
  } else {
    for (int i = 0; i < 10; i++)
      execute(way, i);
  }
  printf("%d failures\n", failures);
  return failures != 0;
}
