/* SPDX-License-Identifier: MIT */
/*
 * See wait.h. There is no wait for a traced thread that has an end, so it is looked for: soon at first, since most have
 * little to do, and then after an eighth of the time that it has taken so far.
 *
 * Only a stopped thread can be detached. It stops when what it is in, in the kernel, is over: a child of
 * vfork has gone on, a disk or a file server has answered. Nobody else shall wait for that.
 */
#include "process/wait.h"

#include "base/clock.h"
#include "process/again.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

#define REST_MIN_NS  5000u
#define REST_MAX_NS  1000000u
#define SYSCALL_STOP (SIGTRAP | 0x80)

pid_t
ct_wait_until(pid_t tid, int *status, bool (*is_enough)(void *context), void *context)
{
  pid_t got = waitpid(tid, status, __WALL | __WNOTHREAD | WNOHANG);
  if (got != 0) {
    return got;
  }
  uint64_t since = ct_now_ns();
  int slack = prctl(PR_GET_TIMERSLACK);
  prctl(PR_SET_TIMERSLACK, 1);
  while ((got = waitpid(tid, status, __WALL | __WNOTHREAD | WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
    uint64_t rest = (ct_now_ns() - since) / 8;
    rest = rest < REST_MIN_NS ? REST_MIN_NS : rest;
    if (rest > REST_MAX_NS) {
      rest = REST_MAX_NS;
      if (tid > 0 && ct_process_state(tid) == 'Z' && waitpid(tid, status, __WALL | __WNOTHREAD | WNOHANG) == 0) {
        got = -1;
        errno = ESRCH;
        break;
      }
      if (is_enough(context)) {
        got = 0;
        break;
      }
    }
    struct timespec wait = {0, (long)rest};
    nanosleep(&wait, NULL);
  }
  int saved = errno;
  prctl(PR_SET_TIMERSLACK, (unsigned long)(slack > 0 ? slack : 0));
  errno = saved;
  return got;
}

void
ct_process_leave_running(struct ct_process *process, pid_t tid)
{
  pid_t *grown = reallocarray(process->late, process->late_count + 1, sizeof(*grown));
  if (grown != NULL) { /* else the kernel resumes it when the calling thread ends */
    process->late = grown;
    process->late[process->late_count++] = tid;
  }
}

/* True when it is done with: resumed, or dead. */
static bool
release(struct ct_process *process, pid_t tid)
{
  int status = 0;
  pid_t got = waitpid(tid, &status, __WALL | WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) {
    return false;
  }
  if (got == tid && WIFSTOPPED(status)) {
    int signal = status >> 16 == 0 && WSTOPSIG(status) != SYSCALL_STOP ? WSTOPSIG(status) : 0;
    if (signal == 0) {
      ct_make_again(tid);
    }
    ptrace(PTRACE_DETACH, tid, NULL, (void *)(long)signal);
  } else {
    ct_process_note_end(process, got, status);
  }
  return true;
}

bool
ct_process_release_late(struct ct_process *process)
{
  size_t left = 0;
  for (size_t i = 0; i < process->late_count; i++) {
    if (!process->dead && !release(process, process->late[i])) {
      process->late[left++] = process->late[i];
    }
  }
  /* The kernel reports the end of a process after the ends of all its threads. Its own is for its parent. */
  if (left == 1 && process->late[0] == process->pid) {
    char state = ct_process_state(process->pid);
    left = state == 0 || state == 'Z' || state == 'X' ? 0 : left;
  }
  process->late_count = left;
  if (left == 0) {
    free(process->late);
    process->late = NULL;
  }
  return left == 0;
}

void
ct_process_decline_tracing(void)
{
  for (;;) {
    siginfo_t info = {0};
    if (waitid(P_ALL, 0, &info, __WALL | __WNOTHREAD | WSTOPPED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
      return;
    }
    /* The trap is what the kernel reports at an exec. A child that is stopped and has asked for nothing is none of
     * ours.
     */
    int signal = info.si_status >> 8 == 0 && info.si_status != SIGTRAP ? info.si_status & 0x7f : 0;
    if (ptrace(PTRACE_DETACH, info.si_pid, NULL, (void *)(long)signal) != 0) {
      return;
    }
  }
}
