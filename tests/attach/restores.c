/* SPDX-License-Identifier: MIT */
/*
 * A handler steps over a function's first instruction, and has returned: the thread waits in the code that it returned
 * to, just before the system call by which it goes on in the function's second instruction. It does so when a byte is
 * read.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

int undefined(int x);
void restores(void);
volatile int waiting, go_on, in_handler;
__asm__("  .text\n  .p2align 4\n  .globl undefined\n  .type undefined, @function\nundefined:\n  .cfi_startproc\n  ud2\n"
        "  lea 2(%rdi), %eax\n  ret\n  .cfi_endproc\n  .size undefined, . - undefined\n"
        "  .p2align 4\n  .globl restores\n  .type restores, @function\n  nop\nrestores:\n  .cfi_startproc\n  "
        ".cfi_signal_frame\n"
        "  movl $1, waiting(%rip)\n1:  pause\n  cmpl $0, go_on(%rip)\n  je 1b\n  mov $15, %eax\n  syscall\n"
        "  .cfi_endproc\n  .size restores, . - restores\n");

struct kernel_action {
  void (*handler)(int, siginfo_t *, void *);
  unsigned long flags;
  void (*restorer)(void);
  unsigned long mask;
};

static void
step_over(int number, siginfo_t *info, void *context)
{
  volatile unsigned long words[32];
  (void)number;
  (void)info;
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2 * !in_handler;
  for (int i = 0; in_handler && i < 32; i++) {
    words[i] = i < 8 ? (unsigned long)restores : 0; /* as an older signal may have left it there */
  }
  waiting = in_handler;
  while (in_handler && !go_on) {
    usleep(1000);
  }
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2 * in_handler;
}

static void *
work(void *arg)
{
  *(int *)arg = undefined(40);
  return arg;
}

int
main(int argc, char **argv)
{
  (void)argv;
  struct kernel_action action = {step_over, SA_SIGINFO | 0x04000000 /* SA_RESTORER */, restores, 0};
  pthread_t thread;
  char byte;
  int result = 0;
  in_handler = argc > 1;
  if (argc > 2) {
    puts("ready");
    fflush(stdout);
    (void)!read(0, &byte, 1);
  }
  if (syscall(SYS_rt_sigaction, SIGILL, &action, NULL, sizeof(action.mask)) != 0 ||
      pthread_create(&thread, NULL, work, &result) != 0) {
    return 1;
  }
  while (!waiting) {
    usleep(1000);
  }
  puts(argc > 2 ? "waits" : "ready");
  fflush(stdout);
  long got = read(0, &byte, 1);
  go_on = 1;
  pthread_join(thread, NULL);
  printf("%d\n", result);
  return got == 1 && result == 42 ? 0 : 1;
}
