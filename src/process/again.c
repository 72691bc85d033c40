/* SPDX-License-Identifier: MIT */
/*
 * Most system calls that a stop interrupts the kernel makes again by itself. Not these:
 *
 * - What returns EINTR whenever a signal, or a stop, has woken it: epoll_wait, semop and others. Waiting without a time
 *   it is made again, and nobody notices. With a time it would wait all of it again, at each stop, so a program whose
 *   stops come often would never see it pass: it gets the EINTR, as after SIGSTOP and SIGCONT.
 * - What the kernel goes on with by restart_syscall, in a thread that is under a seccomp filter, which may kill for
 *   that. It makes its own system call once more, and waits all of its time.
 *
 * Both are given the result of poll: when the thread goes on, the kernel makes the call again if there is nothing to
 * handle, a signal that is ignored included, or runs the handler, and the call ends with EINTR.
 */
#include "process/again.h"

#include "process/process.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>

enum { RESTART_NO_HANDLER = -514, RESTART_BLOCK = -516 }; /* linux/errno.h */

/* By ptrace, where that may tell (CAP_SYS_ADMIN): a file of /proc takes ten times as long. */
static bool
is_filtered(pid_t tid)
{
  struct __ptrace_seccomp_metadata unused = {0};
  long got = ptrace(PTRACE_SECCOMP_GET_METADATA, tid, (void *)sizeof(unused), &unused);
  return got >= 0 || (errno != EINVAL && errno != ENOENT && ct_process_seccomp(tid) != 0);
}

/* It waits until something comes, however long that takes. */
static bool
has_no_time(const struct user_regs_struct *regs)
{
  switch (regs->orig_rax) {
  case SYS_epoll_wait:
  case SYS_epoll_pwait:
    return (int32_t)regs->r10 < 0;
  case SYS_epoll_pwait2:
  case SYS_semtimedop:
    return regs->r10 == 0;
  case SYS_rt_sigtimedwait:
    return regs->rdx == 0;
  case SYS_io_getevents:
  case SYS_io_pgetevents:
    return regs->r8 == 0;
  case SYS_io_uring_enter: /* what it has submitted it would have returned */
    return (regs->r10 & IORING_ENTER_EXT_ARG) == 0 && regs->r8 == 0;
  case SYS_semop:
    return true;
  default:
    return false;
  }
}

bool
ct_make_again(pid_t tid)
{
  struct user_regs_struct regs;
  if (ptrace(PTRACE_GETREGS, tid, NULL, &regs) != 0 || (int64_t)regs.orig_rax < 0) {
    return false;
  }
  int64_t rax = (int64_t)regs.rax;
  if ((rax == RESTART_BLOCK && is_filtered(tid)) || (rax == -EINTR && has_no_time(&regs))) {
    regs.rax = (uint64_t)RESTART_NO_HANDLER;
    ptrace(PTRACE_SETREGS, tid, NULL, &regs);
    return false;
  }
  return rax == -EINTR;
}
