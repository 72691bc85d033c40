/* SPDX-License-Identifier: MIT */
/*
 * For each byte of its input a child, which goes under a filter that kills for all but a few system calls, writes its
 * id as a line, sleeps for a second, waits for a byte more and ends with status 7; then its wait status as a line.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int
forbid(void)
{
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOW(SYS_read),
      ALLOW(SYS_write),
      ALLOW(SYS_exit_group),
      ALLOW(SYS_clock_nanosleep),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0;
}

__attribute__((noinline)) int
work(int n)
{
  __asm__ volatile("");
  return n + 1;
}

int
main(void)
{
  char byte, line[32];
  int status, n = 0;
  while (read(0, &byte, 1) == 1) {
    pid_t pid = fork();
    if (pid == 0) {
      int length = snprintf(line, sizeof(line), "%d\n", (int)getpid());
      if (forbid()) {
        _exit(9);
      }
      while (n < 100) {
        n = work(n);
      }
      if (write(1, line, (size_t)length) != length) {
        _exit(8);
      }
      for (int i = 0; i < 50; i++) {
        usleep(20000); /* which the kernel goes on with by another call, when somebody has stopped it */
      }
      if (read(0, &byte, 1) != 1) {
        _exit(8);
      }
      _exit(work(6));
    }
    waitpid(pid, &status, 0);
    printf("%d\n", status);
    fflush(stdout);
  }
  return 0;
}
