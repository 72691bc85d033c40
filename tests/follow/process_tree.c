/* SPDX-License-Identifier: MIT */
/* Makes children in one way or another. Each calls work() 100 times and as often as its exit status says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
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
  for (int i = 0; i < 100 + status; i++) {
    done = work(done);
  }
  return done == 100 + status ? status : 255;
}

static int failures;

static void
expect(pid_t child, int status)
{
  int got = -1;
  if (waitpid(child, &got, 0) != child || !WIFEXITED(got) || WEXITSTATUS(got) != status) {
    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
  }
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
  for (int i = 0; i < (int)(long)argument; i++) {
    fork_one(i, 0);
  }
  return NULL;
}

static void
in_threads(int count)
{
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    pthread_create(&threads[i], NULL, fork_many, (void *)(long)count);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
  }
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
        posix_spawn(&child, self, NULL, NULL, words, environ) != 0) {
      failures++;
    }
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

__attribute__((noinline)) long
other(long x)
{
  __asm__ volatile("" : "+r"(x));
  return x + 2;
}

static bool
is_there(const char *folder, const char *name, int number)
{
  char path[300];
  snprintf(path, sizeof(path), "%s/%s-%d", folder, name, number);
  return access(path, F_OK) == 0;
}

static void
leave(const char *folder, const char *name, int number)
{
  char path[300];
  snprintf(path, sizeof(path), "%s/%s-%d", folder, name, number);
  int fd = open(path, O_CREAT | O_WRONLY, 0600);
  if (fd >= 0) {
    close(fd);
  }
}

/* In each phase, when it has begun, work() 1000 times more than in the one before. */
static void
work_in_phases(const char *folder, int phases)
{
  for (int phase = 1; phase <= phases; phase++) {
    char name[32];
    long done = 0;
    while (!is_there(folder, "begin", phase)) {
      usleep(500);
    }
    for (int i = 0; i < 1000 * phase; i++) {
      done = work(done);
    }
    for (int i = 0; i < 10 * phase; i++) {
      done = other(done);
    }
    if (done != 1020 * phase) {
      failures++;
    }
    snprintf(name, sizeof(name), "done-%d", phase);
    leave(folder, name, (int)getpid());
  }
}

/* The program itself, two children and a child's child by fork, and two by posix_spawn. */
static void
workers(const char *folder, const char *phases)
{
  pid_t children[4];
  char *words[] = {self, "phases", (char *)folder, (char *)phases, NULL};
  for (int i = 0; i < 4; i++) {
    if (i >= 2) {
      if (posix_spawn(&children[i], self, NULL, NULL, words, environ) != 0) {
        failures++;
      }
      continue;
    }
    children[i] = fork();
    if (children[i] == 0) {
      pid_t own = i == 0 ? fork() : -1;
      work_in_phases(folder, atoi(phases));
      if (own > 0) {
        expect(own, 0);
      }
      _exit(failures != 0);
    }
  }
  work_in_phases(folder, atoi(phases));
  for (int i = 0; i < 4; i++) {
    expect(children[i], 0);
  }
}

/* By a system call that nobody has hooked: the child comes to a hook when it calls work(), and not before. */
static pid_t
fork_unseen(void)
{
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_fork) : "rcx", "r11", "memory");
  return (pid_t)result;
}

static void
unseen(const char *folder)
{
  pid_t soon = fork_unseen();
  if (soon == 0) {
    work_in_phases(folder, 4);
    _exit(failures != 0);
  }
  pid_t late = fork_unseen();
  if (late == 0) {
    while (!is_there(folder, "late", 0)) {
      usleep(500);
    }
    _exit(work_for(3));
  }
  work_in_phases(folder, 4);
  expect(soon, 0);
  expect(late, 3);
}

/* Children that live on, one every millisecond, every other one unseen, and call work() all the time. */
static void
many(const char *folder)
{
  pid_t children[200];
  size_t count = 0;
  while (!is_there(folder, "stop", 0) && count < 200) {
    pid_t child = count % 2 ? fork() : fork_unseen();
    if (child == 0) {
      while (!is_there(folder, "end", 0)) {
        if (work(1) != 2 || other(1) != 3) {
          _exit(1);
        }
        usleep(20000); /* two hundred of them: less, and they have the machine to themselves */
      }
      _exit(0);
    }
    children[count++] = child;
    usleep(1000);
  }
  leave(folder, "ready", 0);
  while (count > 0) {
    expect(children[--count], 0);
  }
}

static const char *mark_folder;

static void execute(const char *way, int status);

/* Children one after the other, whose statuses tell which marks were there before they were made: way NULL by fork. */
static void *
make_marked(void *way)
{
  while (!is_there(mark_folder, "end", 0)) {
    int marks = 0;
    while (is_there(mark_folder, "mark", marks + 1)) {
      marks++;
    }
    if (way == NULL) {
      fork_one(marks, 0);
    } else {
      execute(way, marks);
    }
  }
  return NULL;
}

static void
stream(const char *folder)
{
  static char *ways[] = {NULL, NULL, "spawn"};
  pthread_t threads[3];
  mark_folder = folder;
  for (int i = 0; i < 3; i++) {
    pthread_create(&threads[i], NULL, make_marked, ways[i]);
  }
  for (int i = 0; i < 3; i++) {
    pthread_join(threads[i], NULL);
  }
}

/* More than there are pages to ask on, and all live for a while. */
static void
crowd(void)
{
  pid_t children[150];
  for (int i = 0; i < 150; i++) {
    children[i] = fork();
    if (children[i] == 0) {
      usleep(500000);
      _exit(work_for(i % 50));
    }
  }
  for (int i = 0; i < 150; i++) {
    expect(children[i], i % 50);
  }
}

static int
work_and_leave(void *status)
{
  _exit(work_for((int)(long)status));
}

/* Each is the first process of a pid namespace: they all have the same id by themselves. */
static void
newpids(void)
{
  static char stacks[8][65536] __attribute__((aligned(16)));
  pid_t children[8];
  for (int i = 0; i < 8; i++) {
    children[i] = clone(work_and_leave, stacks[i] + sizeof(stacks[i]), CLONE_NEWPID | SIGCHLD, (void *)(long)i);
    failures += children[i] < 0;
  }
  for (int i = 0; i < 8; i++) {
    expect(children[i], i);
  }
}

int
main(int count, char **words)
{
  const char *way = words[1];
  self = words[0];
  if (strcmp(way, "work") == 0) {
    return work_for(atoi(words[2]));
  }
  if (strcmp(way, "phases") == 0) {
    work_in_phases(words[2], atoi(words[3]));
    return failures != 0;
  }
  if (strcmp(way, "workers") == 0) {
    workers(words[2], words[3]);
  } else if (strcmp(way, "many") == 0) {
    many(words[2]);
  } else if (strcmp(way, "unseen") == 0) {
    unseen(words[2]);
  } else if (strcmp(way, "stream") == 0) {
    stream(words[2]);
  } else if (strcmp(way, "fork") == 0) {
    for (int i = 0; i < 12; i++) {
      fork_one(i, 0);
    }
  } else if (strcmp(way, "nested") == 0) {
    for (int i = 0; i < 6; i++) {
      fork_one(i, 2);
    }
  } else if (strcmp(way, "threads") == 0) {
    in_threads(5);
  } else if (strcmp(way, "crowd") == 0) {
    crowd();
  } else if (strcmp(way, "newpids") == 0) {
    newpids();
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
    for (int i = 0; i < 10; i++) {
      execute(way, i);
    }
  }
  printf("%d failures\n", failures);
  return failures != 0;
}
