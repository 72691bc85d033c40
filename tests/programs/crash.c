/* SPDX-License-Identifier: MIT */
/* Ends in the way that its argument says; tests/crash.py runs it. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __clang__
#define KEPT __attribute__((noinline, optnone))
#else
#define KEPT __attribute__((noipa))
#endif

static volatile int zero;
static int *volatile nowhere = (int *)0x10;
static void (*volatile no_function)(void);
static sigjmp_buf back;

KEPT void
store_wild(void)
{
  *nowhere = 1;
}
KEPT int
middle(int x)
{
  store_wild();
  return x + 1;
}
KEPT int
outer(int x)
{
  return middle(x) + 1;
}
KEPT int
divide(int x)
{
  return x / zero;
}
KEPT void
call_nothing(void)
{
  no_function();
  __asm__ volatile("");
}
/* Its first instruction faults: a displaced one, in the trampoline. */
KEPT void load_first(const void *address);
__asm__(".text\n.globl load_first\n.type load_first, @function\nload_first:\n .cfi_startproc\n mov (%rdi), %rax\n"
        " add $1, %rax\n nop\n nop\n ret\n .cfi_endproc\n.size load_first, . - load_first\n");
KEPT int
call_first(int x)
{
  load_first((const void *)0x20);
  return x + 1;
}
#pragma GCC diagnostic ignored "-Winfinite-recursion"
KEPT int
recurse(int n)
{
  volatile char block[512];
  block[n % 512] = 1;
  return recurse(n + 1) + block[0];
}
KEPT void
breakpoint(void)
{
  __asm__ volatile("int3");
}
KEPT void
illegal(void)
{
  __asm__ volatile("ud2");
}
KEPT int
beyond_file(int x)
{
  FILE *file = tmpfile();
  volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
  return page[x];
}
KEPT void
jump_to_noncanonical(void)
{
  __asm__ volatile("mov $0x1234567812345678, %%rax\n jmp *%%rax" ::: "rax");
}
/* The frame of the first is found by rbx, and the second says nothing of rbx; as _dl_runtime_resolve_xsavec and
 * _dl_fixup. */
int found_by_rbx(void);
__asm__(".text\n"
        ".type found_by_rbx, @function\n"
        "found_by_rbx:\n"
        ".cfi_startproc\n"
        "push %rbx\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %rbx, -16\n"
        "mov %rsp, %rbx\n"
        ".cfi_def_cfa_register %rbx\n"
        "sub $200, %rsp\n"
        "and $-64, %rsp\n"
        "call says_nothing\n"
        "mov %rbx, %rsp\n"
        ".cfi_def_cfa_register %rsp\n"
        "pop %rbx\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size found_by_rbx, . - found_by_rbx\n"
        ".type says_nothing, @function\n"
        "says_nothing:\n"
        ".cfi_startproc\n"
        "xor %eax, %eax\n"
        "mov 16(%rax), %eax\n"
        "add $1, %eax\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size says_nothing, . - says_nothing\n");
KEPT int
keeps_rbx(int x)
{
  return found_by_rbx() + x;
}

static void
crashing_handler(int number)
{
  (void)number;
  outer(1);
}
static void
unwinding_handler(int number)
{
  siglongjmp(back, number);
}
static void
chaining_handler(int number)
{
  signal(number, SIG_DFL);
}
static void
returning_handler(int number)
{
  (void)number;
}

static int
is_default(int number)
{
  struct sigaction action;
  memset(&action, 0x55, sizeof(action));
  return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_DFL && action.sa_flags == 0 &&
         action.sa_restorer == NULL && sigismember(&action.sa_mask, SIGINT) == 0;
}

static pthread_barrier_t barrier;

static void *
sleeper(void *argument)
{
  pthread_barrier_wait(&barrier);
  for (;;) {
    pause();
  }
  return argument;
}
static void *
crasher(void *argument)
{
  pthread_barrier_wait(&barrier);
  outer(1);
  return argument;
}
static void *
both(void *argument)
{
  pthread_barrier_wait(&barrier);
  outer(1);
  return argument;
}

static int
among_threads(void *(*last)(void *))
{
  pthread_t thread;
  pthread_barrier_init(&barrier, NULL, 10);
  for (int i = 0; i < 9; i++) {
    pthread_create(&thread, NULL, i == 8 ? last : last == both ? both : sleeper, (void *)(intptr_t)(i % 2));
  }
  pthread_barrier_wait(&barrier);
  pthread_join(thread, NULL);
  return 0;
}

static void
use_alternate_stack(void)
{
  stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
  sigaltstack(&stack, NULL);
}

static int
in_child(int how)
{
  int status;
  pid_t child = how == 0 ? fork() : vfork();
  if (child == 0) {
    outer(1);
    _exit(9);
  }
  waitpid(child, &status, 0);
  printf("child: signal %d core %d\n", WTERMSIG(status), WCOREDUMP(status) != 0);
  return 0;
}

/* One list of the ways, longer than others. */
static int
run(const char *how)
{
  if (strcmp(how, "main") == 0) {
    return outer(1);
  }
  if (strcmp(how, "thread") == 0) {
    return among_threads(crasher);
  }
  if (strcmp(how, "many") == 0) {
    return among_threads(both);
  }
  if (strcmp(how, "divide") == 0) {
    return divide(3);
  }
  if (strcmp(how, "null") == 0) {
    call_nothing();
  }
  if (strcmp(how, "noncanonical") == 0) {
    jump_to_noncanonical();
  }
  if (strcmp(how, "abort") == 0) {
    abort();
  }
  if (strcmp(how, "rbx") == 0) {
    return keeps_rbx(1);
  }
  if (strcmp(how, "first") == 0) {
    return call_first(1);
  }
  if (strcmp(how, "int3") == 0) {
    breakpoint();
  }
  if (strcmp(how, "ud2") == 0) {
    illegal();
  }
  if (strcmp(how, "bus") == 0) {
    return beyond_file(5);
  }
  if (strcmp(how, "overflow") == 0) {
    return recurse(1);
  }
  if (strcmp(how, "overflow-alternate") == 0) {
    use_alternate_stack();
    return recurse(1);
  }
  if (strcmp(how, "handler") == 0) {
    signal(SIGUSR1, crashing_handler);
    raise(SIGUSR1);
  }
  if (strcmp(how, "asks") == 0) {
    signal(SIGUSR1, crashing_handler);
    for (;;) {
      struct sigaction mine = {.sa_handler = SIG_DFL};
      if (!is_default(SIGSEGV) || !is_default(SIGBUS) || signal(SIGFPE, SIG_DFL) != SIG_DFL ||
          sigaction(SIGILL, &mine, NULL) != 0) {
        printf("not the default\n");
        return 1;
      }
    }
  }
  if (strcmp(how, "itself") == 0) {
    kill(getpid(), SIGBUS);
  }
  if (strcmp(how, "outside") == 0) {
    for (;;) {
      pause();
    }
  }
  if (strcmp(how, "own") == 0) {
    printf("was default: %d\n", signal(SIGSEGV, unwinding_handler) == SIG_DFL);
    if (sigsetjmp(back, 1) == 0) {
      outer(1);
    }
    printf("is own: %d\n", signal(SIGSEGV, SIG_DFL) == unwinding_handler);
    return 3;
  }
  if (strcmp(how, "chain") == 0) {
    signal(SIGSEGV, chaining_handler);
    return outer(1);
  }
  if (strcmp(how, "reset") == 0) {
    struct sigaction action = {.sa_handler = returning_handler, .sa_flags = SA_RESETHAND};
    sigaction(SIGSEGV, &action, NULL);
    return outer(1);
  }
  if (strcmp(how, "blocked") == 0) {
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return outer(1);
  }
  if (strcmp(how, "ignored") == 0) {
    signal(SIGSEGV, SIG_IGN);
    kill(getpid(), SIGSEGV);
    return outer(1);
  }
  if (strcmp(how, "fork") == 0) {
    return in_child(0);
  }
  if (strcmp(how, "vfork") == 0) {
    return in_child(1);
  }
  if (strcmp(how, "pipe") == 0) {
    int ends[2];
    if (pipe(ends) == 0) {
      close(ends[0]);
    }
    return (int)write(ends[1], "x", 1);
  }
  if (strcmp(how, "dispositions") == 0) {
    for (int i = 1; i < 65; i++) {
      if (!is_default(i) && i != SIGKILL && i != SIGSTOP && i != 32 && i != 33) {
        printf("%d is not at its default\n", i);
      }
    }
    struct sigaction mine = {.sa_handler = SIG_DFL, .sa_flags = SA_RESTART}, seen;
    sigaddset(&mine.sa_mask, SIGINT);
    sigaction(SIGABRT, &mine, NULL);
    sigaction(SIGABRT, &mine, &seen);
    printf("%d %x %d %d\n", seen.sa_handler == SIG_DFL, seen.sa_flags, seen.sa_restorer != NULL,
           sigismember(&seen.sa_mask, SIGINT));
    errno = 0;
    printf("%d ", sigaction(SIGKILL, &mine, NULL));
    printf("%d ", errno == EINVAL);
    printf("%d\n", sigaction(99, NULL, &seen));
    return 0;
  }
  return 0;
}

int
main(int argc, char **argv)
{
  printf("%s\n", argc > 1 ? argv[1] : "?");
  fflush(stdout);
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  return run(argc > 1 ? argv[1] : "");
}
