/* SPDX-License-Identifier: MIT */
/* Signals at the same instructions in every run: raised, sent to itself while blocked, faults; handlers on a stack of
 * their own, nested, with vector registers and string instructions at work in them, and left by siglongjmp. */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { ROUNDS = 36, DEPTH = 4 };

static volatile uint64_t sum;
static volatile int depth, faults, skipped;
static sigjmp_buf back;
static char text[700], copy[700];
static double numbers[64];

static void
work(unsigned seed)
{
  memset(text, (int)(seed % 26 + 'a'), sizeof(text) - 1);
  memcpy(copy, text, sizeof(copy));
  __asm__ volatile("std; rep movsb; cld" : : "S"(text + 99), "D"(copy + 199), "c"(100UL) : "memory", "cc");
  for (int i = 0; i < 64; i++) {
    numbers[i] = numbers[(i + 1) % 64] * 0.75 + seed;
  }
  sum += strlen(copy) + (uint64_t)numbers[seed % 64] + (uint64_t)__builtin_popcountll(seed * 0x9e3779b97f4a7c15ull);
}

static void
on_user(int number, siginfo_t *info, void *context)
{
  const ucontext_t *from = context;
  work((unsigned)depth * 31 + (unsigned)number);
  sum += (uint64_t)from->uc_mcontext.gregs[REG_RBX] + (uint64_t)info->si_code;
  if (++depth < DEPTH) {
    raise(depth % 2 == 0 ? SIGUSR1 : SIGRTMIN + 3);
  }
  depth--;
  work((unsigned)number);
}

/* An instruction that faults is passed over: its length is in rdx. */
static void
on_trap(int number, siginfo_t *info, void *context)
{
  ucontext_t *from = context;
  sum += (uint64_t)info->si_addr + (uint64_t)from->uc_mcontext.gregs[REG_ERR];
  from->uc_mcontext.gregs[REG_RIP] += from->uc_mcontext.gregs[REG_RDX];
  from->uc_mcontext.gregs[REG_RAX] = number;
  skipped++;
}

static void
on_fault(int number)
{
  faults++;
  work((unsigned)number);
  siglongjmp(back, number);
}

static void
handle(int number, void (*handler)(int, siginfo_t *, void *), int flags)
{
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
  sigaction(number, &action, NULL);
}

int
main(void)
{
  static char room[1 << 16], small[1 << 16];
  stack_t stack = {.ss_sp = room, .ss_size = sizeof(room)};
  int *volatile nowhere = (int *)8;
  volatile int zero = 0;
  sigset_t blocked, before;
  memset(small, 1, sizeof(small));
  sigaltstack(&stack, NULL);
  handle(SIGUSR1, on_user, SA_ONSTACK | SA_NODEFER);
  handle(SIGRTMIN + 3, on_user, SA_ONSTACK | SA_NODEFER);
  handle(SIGUSR2, on_user, SA_RESETHAND);
  handle(SIGILL, on_trap, SA_ONSTACK);
  handle(SIGTRAP, on_trap, SA_NODEFER); /* or the steps of who follows are its end */
  signal(SIGSEGV, on_fault);
  signal(SIGFPE, on_fault);
  signal(SIGWINCH, SIG_IGN);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  sigaddset(&blocked, SIGRTMIN + 3);
  for (unsigned round = 0; round < ROUNDS; round++) {
    raise(SIGUSR1);
    raise(SIGWINCH);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    kill(getpid(), SIGUSR1);
    raise(SIGRTMIN + 3);
    work(round);
    sigprocmask(SIG_SETMASK, &before, NULL); /* both of them, one on top of the other */
    if (sigsetjmp(back, 1) == 0) {
      if (round % 3 == 2) { /* which the tracer lets be executed where it is */
        __asm__ volatile("fxrstor (%0)" : : "r"((char *)nowhere + 1) : "memory");
      }
      sum += round % 3 == 0 ? (uint64_t)*nowhere : (uint64_t)(100 / zero);
    }
    uint64_t result = 0, length = 2;
    __asm__ volatile("ud2" : "+a"(result) : "d"(length) : "memory");
    sum += result;
    handle(SIGUSR2, on_user, SA_RESETHAND);
    raise(SIGUSR2);
    length = 0;
    /* rcx and r11 as a system call leaves them that was made by a single step: the trap flag in r11 is the program's
     * own. */
    __asm__ volatile("lea 1f(%%rip), %%rcx\n\tmov $0x3d0, %%r11d\n\tint3\n1:\tadd %%r11, %%rax"
                     : "+a"(result)
                     : "d"(length)
                     : "rcx", "r11", "memory", "cc");
    sum += result;
  }
  printf("%d faults, %d passed over, %d\n", faults, skipped, depth);
  return faults == ROUNDS && skipped == 2 * ROUNDS ? 0 : 1;
}
