/* SPDX-License-Identifier: MIT */
/* Threads, children and other programs; `threads CASE`, played by tests/itrace.py. */
#include "../fixtures/check.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;
static char *self;

static void *
add(void *sum)
{
  __atomic_fetch_add((int *)sum, 1, __ATOMIC_RELAXED);
  return sum;
}

static void
start_and_end(void)
{
  int sum = 0;
  for (int i = 0; i < 100; i++) {
    pthread_t threads[2];
    for (int t = 0; t < 2; t++) {
      CHECK(pthread_create(&threads[t], NULL, add, &sum) == 0);
    }
    for (int t = 0; t < 2; t++) {
      void *result;
      CHECK(pthread_join(threads[t], &result) == 0 && result == &sum);
    }
  }
  printf("sum %d\n", sum);
}

static int
child_main(void *argument)
{
  return *(int *)argument + 1;
}

static void
children(void)
{
  int status, sum = 0;
  char *const words[] = {self, "exit", "5", NULL};
  fflush(stdout);
  for (int i = 0; i < 20; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      _exit(i);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == i);
    pid = vfork();
    if (pid == 0) {
      sum++;
      _exit(i + 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == i + 1);
  }
  printf("vfork shares memory: %d\n", sum);
  for (int i = 0; i < 5; i++) {
    pid_t pid;
    CHECK(posix_spawn(&pid, self, NULL, NULL, words, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
    pid = vfork();
    if (pid == 0) {
      execv(self, words);
      _exit(1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
    CHECK(WEXITSTATUS(system("exit 3")) == 3);
  }
  char *stack = malloc(65536);
  int argument = 41;
  pid_t pid = clone(child_main, stack + 65536, CLONE_VM | SIGCHLD, &argument);
  CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 42);
  pid = clone(child_main, stack + 65536, SIGCHLD, &argument);
  CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 42);
  CHECK(posix_spawn(&pid, "/no/such/program", NULL, NULL, words, environ) == ENOENT);
  printf("children\n");
}

static char *chain[] = {"threads", "chain", NULL, NULL};
static char left[16];

static void *
exec_main(void *nothing)
{
  execv(self, chain);
  return nothing;
}

/* One program after another in the same process, by the main thread and by another in turn. */
static void
chain_of(int number)
{
  pthread_t thread;
  printf("%d left in %s\n", number, getpid() == (pid_t)syscall(SYS_gettid) ? "main" : "another");
  fflush(stdout);
  if (number == 0) {
    return;
  }
  snprintf(left, sizeof(left), "%d", number - 1);
  chain[2] = left;
  if (number % 2 == 0) {
    exec_main(NULL);
  } else if (pthread_create(&thread, NULL, exec_main, NULL) == 0) {
    for (volatile int i = 0;; i++) {
    }
  }
  CHECK(!"exec");
}

static void *
end_process(void *nothing)
{
  (void)nothing;
  usleep(20000);
  exit(7);
}

static void
ends(const char *way)
{
  pthread_t thread;
  if (strcmp(way, "thread") == 0) { /* another thread ends the program while this one computes */
    pthread_create(&thread, NULL, end_process, NULL);
    for (volatile int i = 0;; i++) {
    }
  } else if (strcmp(way, "main") == 0) { /* this one goes, the program does not */
    pthread_create(&thread, NULL, end_process, NULL);
    pthread_exit(NULL);
  } else if (strcmp(way, "fault") == 0) {
    volatile uintptr_t nowhere = 16;
    *(volatile int *)nowhere = 1;
  } else {
    abort();
  }
}

/* Nothing is free below 2 GiB. */
static void
low(void)
{
  for (size_t size = 1ull << 30; size >= 4096; size /= 2) {
    for (uint64_t at = 65536; at + size <= 1ull << 31; at += size) {
      mmap((void *)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
    }
  }
  printf("ready\n");
  fflush(stdout);
  getchar();
}

/* Until a line comes: computes, calls the system, gets signals; then tells what came of it. */
static volatile sig_atomic_t came;

static void
count(int signal)
{
  (void)signal;
  came++;
}

static uint64_t
compute(uint64_t value)
{
  static const uint64_t odd[4] = {0x9e3779b97f4a7c15ull, 0xbf58476d1ce4e5b9ull, 0x94d049bb133111ebull,
                                  0xd6e8feb86659fd93ull};
  char text[64];
  for (int i = 0; i < 200; i++) {
    value = (value ^ value >> 29) * odd[value & 3];
    if (value % 64 == 0) {
      snprintf(text, sizeof(text), "%llx", (unsigned long long)value);
      value += strtoull(text, NULL, 16) == value;
    }
  }
  return value;
}

static void
work(int rounds)
{
  struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, NULL);
  uint64_t value = 1;
  printf("ready\n");
  fflush(stdout);
  for (int i = 0; i < rounds; i++) {
    value = compute(value);
    if (i % 64 == 0) {
      raise(SIGUSR1);
      free(malloc(1 + value % 300000));
      CHECK(write(-1, "", 1) == -1 && errno == EBADF);
      if (i % 1024 == 0 && fork() == 0) {
        _exit(0);
      }
      while (waitpid(-1, NULL, WNOHANG) > 0) {
      }
    }
  }
  CHECK(came == (rounds + 63) / 64);
  printf("worked %llx\n", (unsigned long long)value);
}

int
main(int argc, char **argv)
{
  const char *name = argc > 1 ? argv[1] : "", *word = argc > 2 ? argv[2] : "0";
  self = realpath("/proc/self/exe", NULL);
  if (strcmp(name, "start_and_end") == 0) {
    start_and_end();
  } else if (strcmp(name, "children") == 0) {
    children();
  } else if (strcmp(name, "exit") == 0) {
    return atoi(word);
  } else if (strcmp(name, "chain") == 0) {
    chain_of(atoi(word));
  } else if (strcmp(name, "ends") == 0) {
    ends(word);
  } else if (strcmp(name, "low") == 0) {
    low();
  } else if (strcmp(name, "work") == 0) {
    work(atoi(word));
  } else {
    CHECK(!"a case");
  }
  return check_done(name);
}
