/* SPDX-License-Identifier: MIT */
/*
 * A thread that stands in a handler above a buffer full of what earlier handlers have left: forty frames that look like
 * the one that counts, which says that a function goes on at its second instruction. Writes 1, 2, 3 ... and fails when
 * a result is wrong.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

enum { DEPTH = 40, EACH = 8 << 10, ROUND = 30 };

int faults(const int *number);
__asm__("  .text\n  .p2align 4\n  .type faults, @function\nfaults:\n  .cfi_startproc\n  nop\n  mov (%rdi), %eax\n"
        "  lea 3(%rax), %eax\n  ret\n  .cfi_endproc\n  .size faults, . - faults\n");

static int value, count, handled;

static void
fail(void)
{
  puts("a result is wrong");
  fflush(stdout);
  abort();
}

static void
say(void)
{
  printf("%d\n", ++count);
  fflush(stdout);
  usleep(10000);
}

static void
nothing(int number)
{
  (void)number;
}

/* The frames lie one below the other: each is made when the deeper ones are. */
static __attribute__((noinline, noclone)) int
leave_frames(int depth)
{
  volatile char room[EACH];
  room[0] = (char)depth;
  int sum = depth > 0 ? leave_frames(depth - 1) : 0;
  raise(SIGUSR1);
  return sum + room[0];
}

/* Its room is what was left there. */
static __attribute__((noinline, noclone)) int
stay(void)
{
  volatile char room[(DEPTH + 4) * EACH];
  room[0] = 1;
  for (int i = 0; i < ROUND; i++) {
    say();
  }
  return room[0];
}

static void
on_fault(int number, siginfo_t *info, void *context)
{
  (void)number;
  (void)info;
  if (handled == value) {
    fail(); /* it has not gone on where it was interrupted */
  }
  handled = value;
  stay();
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_RDI] = (greg_t)&value;
}

int
main(void)
{
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, NULL);
  signal(SIGUSR1, nothing);
  for (value = 1;; value++) {
    leave_frames(DEPTH);
    if (faults(NULL) != value + 3) {
      fail();
    }
    say();
  }
}
