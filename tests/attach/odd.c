/* SPDX-License-Identifier: MIT */
/* A process in the state that its argument names; it writes a line when it is in it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void
step(int i)
{
  __asm__ volatile("" ::"r"(i) : "memory");
}

static void
ready(void)
{
  printf("%d\n", (int)getpid());
  fflush(stdout);
}

static void
steps(int count)
{
  for (int i = 0; i < count; i++) {
    step(i);
    usleep(1000);
  }
}

static void *
forever(void *unused)
{
  for (;;) {
    steps(1000);
  }
  return unused;
}

static int
shares(void *unused)
{
  (void)unused;
  steps(1000);
  _exit(3);
}

/* A process with our memory, which is no thread of ours, works; ends with its status. */
static int
with_sharer(void)
{
  int status = 0;
  char *stack = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pid_t child = clone(shares, stack + (1 << 18), CLONE_VM | SIGCHLD, NULL);
  ready();
  while (waitpid(child, &status, WNOHANG) == 0) {
    steps(10);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static volatile char selector;
static volatile int dispatched;

static void
on_dispatch(int signal)
{
  (void)signal;
  selector = 0;
  dispatched++;
}

/* Its system calls come to itself nearly all the time; each round makes one. Ends with 3, or when one came that was not
 * its. */
static int
with_dispatch(void)
{
  signal(SIGSYS, on_dispatch);
  if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector) != 0) {
    return 77;
  }
  ready();
  for (int round = 1; round <= 500; round++) {
    selector = 1;
    for (int i = 0; i < 1000000; i++) {
      step(i);
    }
    if (selector == 0) {
      return 4;
    }
    syscall(SYS_getppid);
    if (dispatched != round) {
      return 5;
    }
  }
  return 3;
}

/* While its main thread has ended, and after so many ms: calls, and a library that comes. */
static void *
heir(void *ms)
{
  usleep((useconds_t)atoi(ms) * 1000);
  void *library = dlopen("libz.so.1", RTLD_NOW);
  const char *(*version)(void) = library == NULL ? NULL : (const char *(*)(void))dlsym(library, "zlibVersion");
  for (int i = 0; i < 100; i++) {
    step(i);
    if (version != NULL) {
      version();
    }
  }
  exit(5);
  return NULL;
}

/* Under a filter that kills for whatever the thread does not do itself. */
static int
forbid(void)
{
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_nanosleep, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0;
}

static void *
forbidden(void *unused)
{
  char line[32];
  int length = snprintf(line, sizeof(line), "%d\n", (int)getpid());
  if (forbid() || write(1, line, (size_t)length) != length) {
    exit(1);
  }
  return forever(unused);
}

int
main(int argc, char **argv)
{
  const char *kind = argc > 1 ? argv[1] : "";
  pthread_t thread;
  if (strcmp(kind, "work") == 0) {
    ready();
    forever(NULL);
  } else if (strcmp(kind, "vfork") == 0) { /* a thread that works, and one that waits in vfork for argv[2] seconds */
    char line[32];
    int length = snprintf(line, sizeof(line), "%d\n", (int)getpid());
    unsigned seconds = (unsigned)atoi(argv[2]);
    pthread_create(&thread, NULL, forever, NULL);
    if (vfork() == 0) {
      if (write(1, line, (size_t)length) != length) {
        _exit(1);
      }
      sleep(seconds);
      _exit(3);
    }
    int status;
    wait(&status);
    steps(500);
    return WEXITSTATUS(status) + 4;
  } else if (strcmp(kind, "heir") == 0) {
    pthread_create(&thread, NULL, heir, argv[2]);
    ready();
    pthread_exit(NULL);
  } else if (strcmp(kind, "zombie") == 0) { /* its child is one */
    pid_t child = fork();
    if (child == 0) {
      _exit(0);
    }
    siginfo_t end;
    waitid(P_PID, (id_t)child, &end, WEXITED | WNOWAIT);
    printf("%d\n", (int)child);
    fflush(stdout);
    pause();
  } else if (strcmp(kind, "sharer") == 0) {
    return with_sharer();
  } else if (strcmp(kind, "dispatch") == 0) {
    return with_dispatch();
  } else if (strcmp(kind, "seccomp") == 0) {
    struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, allow};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      return 1;
    }
    ready();
    forever(NULL);
  } else if (strcmp(kind, "seccomp-thread") == 0) { /* the first thread has none */
    pthread_create(&thread, NULL, forbidden, NULL);
    forever(NULL);
  }
  return 2;
}
