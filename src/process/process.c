/* SPDX-License-Identifier: MIT */
/* Spawning and following a process with ptrace; see process.h. */
#include "base/clock.h"
#include "base/worker.h"
#include "process/injection.h"
#include "process/ids.h"
#include "process/wait.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRACE_OPTIONS  (PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD)
#define OTHER_PROC     "/proc is not mounted, or is that of another pid namespace: mount one (unshare --mount-proc)"
#define SYSCALL_STOP   (SIGTRAP | 0x80)
#define EXEC_NS        20000000000ull /* for a thread on its way to exec, to make its next system call */
#define SOON_NS        2000000000ull  /* ... when somebody wants something else */
#define LEAVE_NS       1000000000ull  /* to stop when it is interrupted */
#define PARENT_LOOK_MS 500            /* between two looks of a child that has not begun whether we are there */

static int
open_memory(struct ct_process *process, struct ct_diag *diag)
{
  char path[64];
  ct_process_path(process->pid, "mem", path, sizeof(path));
  if (process->mem_fd >= 0) {
    close(process->mem_fd);
  }
  process->injection_area = 0;
  process->mem_fd = open(path, O_RDWR | O_CLOEXEC);
  if (process->mem_fd < 0) {
    return ct_fail(diag, CT_EPERM_PTRACE, "cannot open the memory of process %d: %s", (int)process->pid,
                   strerror(errno));
  }
  return 0;
}

void
ct_process_note_end(struct ct_process *process, pid_t waited, int status)
{
  if (waited == process->pid && (WIFEXITED(status) || WIFSIGNALED(status))) {
    process->dead = true;
    process->stopped = false;
    process->wait_status = status;
  }
}

uint64_t
ct_process_injection_area(struct ct_process *process)
{
  if (process->injection_area == 0) {
    process->injection_area = ct_injection_area(process);
  }
  return process->injection_area;
}

uint64_t
ct_process_injection_name(const struct ct_process *process)
{
  return (process->injection_area != 0 ? process->injection_area : ct_injection_area(process)) + CT_INJECTION_NAME_AT;
}

/* waitpid that keeps the end of the process for whoever asks later. */
static pid_t
wait_for(struct ct_process *process, pid_t pid, int *status)
{
  pid_t got;
  do {
    got = waitpid(pid, status, __WALL | __WNOTHREAD); /* other threads may trace other processes */
  } while (got < 0 && errno == EINTR);
  ct_process_note_end(process, got, *status);
  return got;
}

static bool
pidfd_says_ended(const struct ct_process *process)
{
  struct pollfd wait = {.fd = process->pidfd, .events = POLLIN};
  return process->pidfd >= 0 && poll(&wait, 1, 0) == 1;
}

bool
ct_process_reap(struct ct_process *process)
{
  for (int i = 0; i < 10 && !process->dead; i++) {
    int status;
    pid_t got = waitpid(process->pid, &status, WNOHANG | __WALL);
    ct_process_note_end(process, got, status);
    if (!process->dead) {
      struct timespec wait = {0, 5 * 1000 * 1000};
      nanosleep(&wait, NULL);
    }
  }
  return process->dead;
}

bool
ct_process_has_died(const struct ct_process *process)
{
  return process->dead || pidfd_says_ended(process);
}

/* struct pidfd_info as of Linux 6.15, which has the status of a process that was waited for. */
struct pidfd_info_exit {
  uint64_t mask, cgroup;
  uint32_t pid, tgid, ppid, ids[8];
  int32_t exit_code;
};
#define PIDFD_INFO_EXIT_MASK (1u << 3)
#define PIDFD_GET_INFO_EXIT  _IOWR(0xFF, 11, struct pidfd_info_exit)

bool
ct_process_end_status(const struct ct_process *process, int *status)
{
  struct pidfd_info_exit info = {.mask = PIDFD_INFO_EXIT_MASK};
  static_assert(sizeof(info) == 64, "PIDFD_INFO_SIZE_VER0");
  if (ct_process_exit_status(process->pid, status)) {
    return true;
  }
  if (process->pidfd < 0 || ioctl(process->pidfd, PIDFD_GET_INFO_EXIT, &info) != 0 ||
      (info.mask & PIDFD_INFO_EXIT_MASK) == 0) {
    return false;
  }
  *status = info.exit_code;
  return true;
}

static int
open_pidfd(struct ct_process *process, struct ct_diag *diag)
{
  process->pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
  return process->pidfd >= 0 ? 0
                             : ct_fail(diag, ct_err_from_errno(errno), "cannot watch process %d: %s", (int)process->pid,
                                       strerror(errno));
}

int
ct_process_open(pid_t pid, struct ct_process *process, struct ct_diag *diag)
{
  *process = (struct ct_process){.pid = pid, .mem_fd = -1, .pidfd = -1};
  if (!ct_proc_is_ours()) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s", OTHER_PROC);
  }
  int code = open_pidfd(process, diag);
  if (code != 0) {
    goto close;
  }
  process->own_pid = ct_process_own_id(pid, NULL);
  if (process->own_pid == 0) {
    code = ct_fail(diag, CT_ESRCH, "there is no process %d", (int)pid);
    goto close;
  }
  code = open_memory(process, diag);
  if (code != 0) {
    goto close;
  }
  return 0;
close:
  ct_process_close(process, false);
  return code;
}

/* In the child, whose other threads are gone: system calls only. The descriptors may be among those they become. */
static bool
set_up_child(const struct ct_process_setup *setup)
{
  int high[3];
  if ((setup->own_group && setsid() < 0) || (setup->directory != NULL && chdir(setup->directory) != 0)) {
    return false;
  }
  for (int i = 0; setup->streams != NULL && i < 3; i++) {
    high[i] = fcntl(setup->streams[i], F_DUPFD_CLOEXEC, 3);
    if (high[i] < 0) {
      return false;
    }
  }
  for (int i = 0; setup->streams != NULL && i < 3; i++) {
    if (dup2(high[i], i) < 0) {
      return false;
    }
  }
  return true;
}

/*
 * A child that another thread of ours makes at the same time holds the other end of our pipe too: where we are killed,
 * two of them would wait for each other's end for ever.
 */
static void
child_main(char *const argv[], const struct ct_process_setup *setup, pid_t parent, int go_fd, int error_fd)
{
  char byte;
  ssize_t got;
  struct pollfd wait = {.fd = go_fd, .events = POLLIN};
  while (poll(&wait, 1, PARENT_LOOK_MS) <= 0) {
    if (getppid() != parent) {
      _exit(127);
    }
  }
  do {
    got = read(go_fd, &byte, 1);
  } while (got < 0 && errno == EINTR);
  sigprocmask(SIG_SETMASK, &setup->mask, NULL);
  if (got == 1) {
    if (set_up_child(setup)) {
      execvpe(argv[0], argv, setup->environment != NULL ? setup->environment : environ);
    }
    int err = errno;
    if (write(error_fd, &err, sizeof(err)) < 0) {
      _exit(127);
    }
  }
  _exit(127);
}

/* From PTRACE_EVENT_EXEC on to the return from execve, where registers can be set. */
static int
run_to_exec_return(struct ct_process *process, struct ct_diag *diag)
{
  int status;
  int signal = 0;
  for (;;) {
    if (ptrace(PTRACE_SYSCALL, process->pid, NULL, (void *)(long)signal) != 0 ||
        wait_for(process, process->pid, &status) != process->pid || !WIFSTOPPED(status)) {
      return ct_fail(diag, CT_ESRCH, "the program died while it was being started");
    }
    if (WSTOPSIG(status) == SYSCALL_STOP) {
      break;
    }
    signal = status >> 16 == 0 ? WSTOPSIG(status) : 0;
  }
  process->stopped = true;
  /* A signal must not come between the system calls we make in its name: it waits until the process is resumed. */
  uint64_t blocked = ~(1ull << (SIGTRAP - 1)); /* single steps are reported by SIGTRAP */
  if (ptrace(PTRACE_GETSIGMASK, process->pid, (void *)sizeof(blocked), &process->signal_mask) != 0 ||
      ptrace(PTRACE_SETSIGMASK, process->pid, (void *)sizeof(blocked), &blocked) != 0) {
    return ct_fail(diag, CT_EPERM_PTRACE, "cannot hold back the signals of the program: %s", strerror(errno));
  }
  return open_memory(process, diag);
}

/* It has not run yet: what it is not allowed to be, it never was. */
static int
check_file(struct ct_process *process, const struct ct_process_setup *setup, struct ct_diag *diag)
{
  char link[64];
  struct stat info;
  int status;
  snprintf(link, sizeof(link), "/proc/%d/exe", (int)process->pid);
  if (setup->inode == 0 || (stat(link, &info) == 0 && info.st_dev == setup->device && info.st_ino == setup->inode)) {
    return 0;
  }
  kill(process->pid, SIGKILL);
  while (wait_for(process, process->pid, &status) == process->pid && !WIFEXITED(status) && !WIFSIGNALED(status)) {
  }
  process->dead = false;
  return ct_fail(diag, CT_EACCES, "the program's path leads to another file than before: it was not started");
}

static int
await_exec(struct ct_process *process, const struct ct_process_setup *setup, int error_fd, int *exec_errno,
           struct ct_diag *diag)
{
  int status;
  for (;;) {
    if (wait_for(process, process->pid, &status) != process->pid) {
      return ct_fail(diag, CT_ESRCH, "lost the program while it was being started");
    }
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      int err = 0;
      if (read(error_fd, &err, sizeof(err)) == (ssize_t)sizeof(err) && err != 0) {
        *exec_errno = err;
        process->dead = false; /* it never was the program */
        return ct_fail(diag, ct_err_from_errno(err), "%s", strerror(err));
      }
      process->dead = false;
      return ct_fail(diag, CT_ESRCH, "the program was killed before it began");
    }
    if (WIFSTOPPED(status) && status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8)) {
      int code = check_file(process, setup, diag);
      return code != 0 ? code : run_to_exec_return(process, diag);
    }
    int signal = status >> 16 == 0 ? WSTOPSIG(status) : 0;
    ptrace(PTRACE_CONT, process->pid, NULL, (void *)(long)signal);
  }
}

int
ct_process_spawn(char *const argv[], const struct ct_process_setup *setup, struct ct_process *process, int *exec_errno,
                 struct ct_diag *diag)
{
  int go[2], report[2];
  *exec_errno = 0;
  if (!ct_proc_is_ours()) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s", OTHER_PROC);
  }
  *process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
  if (pipe2(go, O_CLOEXEC) != 0) {
    return ct_fail(diag, CT_EIO, "cannot make a pipe: %s", strerror(errno));
  }
  if (pipe2(report, O_CLOEXEC) != 0) {
    close(go[0]);
    close(go[1]);
    return ct_fail(diag, CT_EIO, "cannot make a pipe: %s", strerror(errno));
  }
  ct_priority_hold();
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    close(go[1]);
    child_main(argv, setup, parent, go[0], report[1]);
  }
  ct_priority_release();
  int result = 0;
  close(go[0]);
  close(report[1]);
  if (pid < 0) {
    result = ct_fail(diag, CT_EIO, "cannot start a process: %s", strerror(errno));
  } else if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)(long)TRACE_OPTIONS) != 0) {
    result = ct_fail(diag, CT_EPERM_PTRACE,
                     "cannot trace a child process (ptrace: %s); check seccomp and container settings%s",
                     strerror(errno), geteuid() != 0 ? ", or run as root" : "");
    close(go[1]);
    go[1] = -1;
    int status;
    waitpid(pid, &status, __WALL);
  } else {
    process->pid = pid;
    process->own_pid = ct_process_own_id(pid, NULL);
    result = open_pidfd(process, diag);
    if (result == 0 && write(go[1], "g", 1) != 1) {
      result = ct_fail(diag, CT_EIO, "cannot start the child process: %s", strerror(errno));
    } else if (result == 0) {
      result = await_exec(process, setup, report[0], exec_errno, diag);
    }
    if (result != 0 && process->pidfd >= 0) {
      close(process->pidfd);
      process->pidfd = -1;
    }
  }
  if (go[1] >= 0) {
    close(go[1]);
  }
  close(report[0]);
  return result;
}

/* At a stop for a system call: still the agent's own calls on the way out, or an execve that has not failed. */
static bool
leads_to_exec(const struct user_regs_struct *regs)
{
  if (regs->orig_rax == SYS_execve || regs->orig_rax == SYS_execveat) {
    return (int64_t)regs->rax >= 0 || (int64_t)regs->rax == -ENOSYS; /* -ENOSYS: the stop before the call */
  }
  return regs->orig_rax == SYS_arch_prctl || regs->orig_rax == SYS_futex || regs->orig_rax == SYS_rt_sigprocmask ||
         regs->orig_rax == SYS_restart_syscall;
}

/* How long a thread is waited for that is to go through exec. */
struct exec_wait {
  const struct ct_process *process;
  uint64_t until;
  bool in_exec; /* which may take long: until somebody wants something else */
  bool asked;   /* somebody does */
};

static bool
is_enough(void *context)
{
  struct exec_wait *wait = context;
  const struct ct_process *process = wait->process;
  if (!wait->asked &&
      (ct_process_is_expedited(process) || (process->asked != NULL && process->asked(process->asked_context)))) {
    uint64_t until = ct_now_ns() + (wait->in_exec ? EXEC_NS : SOON_NS);
    wait->until = wait->in_exec || until < wait->until ? until : wait->until;
    wait->in_exec = false;
    wait->asked = true;
  }
  return !wait->in_exec && ct_now_ns() > wait->until;
}

/* The thread does not do what was expected of it: detach from it now, or when it stops. */
static void
give_up_on(struct ct_process *process, pid_t tid)
{
  int status;
  struct exec_wait wait = {process, ct_now_ns() + LEAVE_NS, false, false};
  ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
  pid_t got = ct_wait_until(tid, &status, is_enough, &wait);
  if (got == tid && WIFSTOPPED(status)) {
    int signal = status >> 16 == 0 && WSTOPSIG(status) != SYSCALL_STOP ? WSTOPSIG(status) : 0;
    ptrace(PTRACE_DETACH, tid, NULL, (void *)(long)signal);
  } else if (got == 0) {
    ct_process_leave_running(process, tid);
  } else {
    ct_process_note_end(process, got, status);
  }
}

/* Runs the seized thread until its execve has succeeded or failed, or it turns out to do something else. */
static int
run_through_exec(struct ct_process *process, pid_t tid, struct ct_diag *diag)
{
  int signal = 0;
  pid_t stopped = tid;
  bool in_exec = false;
  for (int stops = 0; stops < 4096; stops++) {
    int status = 0;
    struct exec_wait wait = {process, ct_now_ns() + EXEC_NS, in_exec, false};
    pid_t last = stopped;
    if (ptrace(PTRACE_SYSCALL, stopped, NULL, (void *)(long)signal) != 0) {
      return ct_fail(diag, CT_ESRCH, "the thread died on its way to exec");
    }
    stopped = ct_wait_until(-1, &status, is_enough, &wait);
    if (stopped == 0) { /* it computes, or waits for something that does not come */
      give_up_on(process, last);
      return CT_ENOENT;
    }
    ct_process_note_end(process, stopped, status);
    if (stopped < 0 || !WIFSTOPPED(status)) {
      return ct_fail(diag, CT_ESRCH, "the process died on its way to exec");
    }
    signal = 0;
    if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8)) {
      return run_to_exec_return(process, diag);
    }
    if (WSTOPSIG(status) == SYSCALL_STOP) {
      struct user_regs_struct regs;
      if (ptrace(PTRACE_GETREGS, stopped, NULL, &regs) != 0 || !leads_to_exec(&regs)) {
        ptrace(PTRACE_DETACH, stopped, NULL, NULL);
        return CT_ENOENT;
      }
      in_exec = (int64_t)regs.rax == -ENOSYS && (regs.orig_rax == SYS_execve || regs.orig_rax == SYS_execveat);
    } else if (status >> 16 == 0) {
      signal = WSTOPSIG(status);
    }
  }
  ptrace(PTRACE_DETACH, stopped, NULL, NULL);
  return CT_ENOENT;
}

static bool
is_thread_of(pid_t pid, pid_t tid)
{
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)pid, (int)tid);
  return tid > 0 && access(path, F_OK) == 0;
}

int
ct_process_follow_exec(struct ct_process *process, pid_t tid, void (*answer)(void *), void *context,
                       struct ct_diag *diag)
{
  int status = 0;
  struct exec_wait wait = {process, ct_now_ns() + EXEC_NS, false, false};
  if (!is_thread_of(process->pid, tid)) { /* the number came from the program itself */
    answer(context);
    return ct_fail(diag, CT_ESRCH, "the thread that is about to exec is none of the program's");
  }
  ct_process_release_traced(process);
  if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)(long)TRACE_OPTIONS) != 0) {
    int err = errno;
    answer(context);
    return ct_fail(diag, CT_EPERM_PTRACE, "cannot follow the program through exec (ptrace: %s)", strerror(err));
  }
  pid_t got = ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) == 0 ? ct_wait_until(tid, &status, is_enough, &wait) : -1;
  if (got == 0) {
    ct_process_leave_running(process, tid);
    answer(context);
    return ct_fail(diag, CT_ETIMEOUT, "a thread was about to exec, and does not stop");
  }
  if (got != tid || !WIFSTOPPED(status)) {
    ct_process_note_end(process, got, status);
    answer(context);
    return ct_fail(diag, CT_ESRCH, "the thread died on its way to exec");
  }
  answer(context);
  return run_through_exec(process, tid, diag);
}

/* The process comes back from the system calls that were made in its name, if any. */
static void
end_injection(struct ct_process *process)
{
  int signal;
  if (process->injection != NULL) {
    if (!process->dead) {
      ct_injection_end(process->injection, &signal);
    }
    if (process->injection->lost) { /* the restore stub brings it back; it is not stopped any more */
      ct_process_leave_running(process, process->pid);
      process->stopped = false;
    }
    free(process->injection);
    process->injection = NULL;
  }
}

void
ct_process_release(struct ct_process *process)
{
  end_injection(process);
  if (process->stopped) {
    ptrace(PTRACE_SETSIGMASK, process->pid, (void *)sizeof(process->signal_mask), &process->signal_mask);
    ptrace(PTRACE_DETACH, process->pid, NULL, NULL);
    process->stopped = false;
  }
}

void
ct_process_close(struct ct_process *process, bool kill_it)
{
  end_injection(process);
  if (process->stopped && kill_it) {
    int status;
    kill(process->pid, SIGKILL);
    ptrace(PTRACE_DETACH, process->pid, NULL, NULL);
    waitpid(process->pid, &status, __WALL);
    process->stopped = false;
  }
  ct_process_release(process);
  ct_process_release_late(process);
  free(process->late); /* the others when this thread ends */
  process->late = NULL;
  process->late_count = 0;
  if (process->mem_fd >= 0) {
    close(process->mem_fd);
    process->mem_fd = -1;
  }
  if (process->pidfd >= 0) {
    close(process->pidfd);
    process->pidfd = -1;
  }
}

int
ct_process_read(const struct ct_process *process, uint64_t address, void *buffer, size_t size)
{
  uint8_t *at = buffer;
  while (size > 0) {
    ssize_t got = pread(process->mem_fd, at, size, (off_t)address);
    if (got <= 0) {
      if (got < 0 && errno == EINTR) {
        continue;
      }
      return CT_EIO;
    }
    at += got;
    address += (uint64_t)got;
    size -= (size_t)got;
  }
  return 0;
}

int
ct_process_write(const struct ct_process *process, uint64_t address, const void *buffer, size_t size)
{
  const uint8_t *at = buffer;
  while (size > 0) {
    ssize_t put = pwrite(process->mem_fd, at, size, (off_t)address);
    if (put <= 0) {
      if (put < 0 && errno == EINTR) {
        continue;
      }
      return CT_EIO;
    }
    at += put;
    address += (uint64_t)put;
    size -= (size_t)put;
  }
  return 0;
}

int
ct_process_syscall(struct ct_process *process, long number, const uint64_t args[6], int64_t *result)
{
  if (process->injection == NULL) {
    process->injection = calloc(1, sizeof(*process->injection));
    if (process->injection == NULL) {
      return CT_ENOMEM;
    }
    int code = ct_injection_begin(process->injection, process, process->pid, TRACE_OPTIONS,
                                  ct_process_injection_area(process), 0, &process->signal_mask);
    if (code != 0) {
      free(process->injection);
      process->injection = NULL;
      return code;
    }
  }
  return ct_injection_syscall(process->injection, number, args, result);
}

int
ct_process_set_gs_base(struct ct_process *process, uint64_t base)
{
  struct user_regs_struct regs;
  end_injection(process);
  if (ptrace(PTRACE_GETREGS, process->pid, NULL, &regs) != 0) {
    return CT_EIO;
  }
  regs.gs_base = base;
  return ptrace(PTRACE_SETREGS, process->pid, NULL, &regs) == 0 ? 0 : CT_EIO;
}

int
ct_process_gs_base(struct ct_process *process, uint64_t *base)
{
  struct user_regs_struct regs;
  end_injection(process);
  if (ptrace(PTRACE_GETREGS, process->pid, NULL, &regs) != 0) {
    return CT_EIO;
  }
  *base = regs.gs_base;
  return 0;
}

int
ct_process_stack_pointer(struct ct_process *process, uint64_t *sp)
{
  struct user_regs_struct regs;
  end_injection(process);
  if (ptrace(PTRACE_GETREGS, process->pid, NULL, &regs) != 0) {
    return CT_EIO;
  }
  *sp = regs.rsp;
  return 0;
}
