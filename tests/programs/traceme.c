/* SPDX-License-Identifier: MIT */
/* Asks its parent to trace it, gets a signal, and becomes another program. */
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <unistd.h>
static void
on_signal(int number)
{
  (void)number;
}
int
main(void)
{
  signal(SIGUSR1, on_signal);
  if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) {
    return 3;
  }
  raise(SIGUSR1);
  execl("/bin/echo", "echo", "went on", NULL);
  return 4;
}
