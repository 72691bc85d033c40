/* SPDX-License-Identifier: MIT */
/* See traced.h. */
#include "process/traced.h"

#include "process/again.h"
#include "process/injection.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTIONS                                                                                                        \
  (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |       \
   PTRACE_O_TRACEEXIT)

/* What the kernel keeps in rax of a thread that is stopped in a system call (linux/errno.h). */
enum { RESTART_SYS = -512, RESTART_NO_HAND = -514, RESTART_BLOCK = -516 };

/* A thread that has ended, and has not been waited for yet, is refused like one that may not be traced. */
static bool
has_ended(pid_t tid)
{
  char path[64], line[256], state = 'X';
  ct_process_path(tid, "status", path, sizeof(path));
  FILE *file = fopen(path, "re");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL && sscanf(line, "State: %c", &state) != 1) {
  }
  if (file != NULL) {
    fclose(file);
  }
  return state == 'X' || state == 'Z';
}

int
ct_traced_seize(pid_t tid, struct ct_diag *diag)
{
  if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)(long)OPTIONS) != 0) {
    int why = errno;
    bool is_gone = why == ESRCH || (why == EPERM && has_ended(tid));
    return ct_fail(diag, is_gone ? CT_ESRCH : CT_EPERM_PTRACE, "cannot trace thread %d (ptrace: %s)", (int)tid,
                   strerror(is_gone ? ESRCH : why));
  }
  return ct_traced_interrupt(tid);
}

int
ct_traced_adopt(struct ct_process *process, struct ct_diag *diag)
{
  if (ptrace(PTRACE_SETOPTIONS, process->pid, NULL, (void *)(long)OPTIONS) != 0 ||
      ptrace(PTRACE_SETSIGMASK, process->pid, (void *)sizeof(process->signal_mask), &process->signal_mask) != 0) {
    return ct_fail(diag, CT_ESRCH, "the program died while it was being started");
  }
  process->stopped = false;
  return 0;
}

int
ct_traced_interrupt(pid_t tid)
{
  return ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) == 0 ? 0 : CT_ESRCH;
}

static void
classify_signal(pid_t tid, struct ct_traced_event *event)
{
  event->stop = CT_TRACED_SIGNAL;
  if (ptrace(PTRACE_GETSIGINFO, tid, NULL, &event->info) != 0) {
    event->stop = CT_TRACED_OTHER;
    event->signal = 0;
  } else if (event->signal == SIGTRAP && (event->info.si_code == TRAP_TRACE || event->info.si_code == TRAP_BRKPT ||
                                          event->info.si_code == SIGTRAP)) {
    event->stop = CT_TRACED_STEPPED; /* of int3 si_code is SI_KERNEL */
  }
}

static void
classify(pid_t tid, int status, struct ct_traced_event *event)
{
  event->status = status;
  if (!WIFSTOPPED(status)) {
    event->stop = CT_TRACED_GONE;
    event->is_reaped = true;
    return;
  }
  event->signal = WSTOPSIG(status);
  switch (status >> 16) {
  case 0:
    if (event->signal == (SIGTRAP | 0x80)) {
      event->stop = CT_TRACED_CALL;
      event->signal = 0;
    } else {
      classify_signal(tid, event);
    }
    return;
  case PTRACE_EVENT_STOP:
    event->stop = event->signal == SIGTRAP ? CT_TRACED_INTERRUPTED : CT_TRACED_GROUP_STOP;
    if (event->stop == CT_TRACED_INTERRUPTED) {
      ct_make_again(tid);
    }
    return;
  case PTRACE_EVENT_CLONE:
  case PTRACE_EVENT_FORK:
  case PTRACE_EVENT_VFORK:
    event->stop = CT_TRACED_CHILD;
    break;
  case PTRACE_EVENT_EXEC:
    event->stop = CT_TRACED_EXEC;
    break;
  case PTRACE_EVENT_EXIT:
    event->stop = CT_TRACED_ENDS;
    break;
  default:
    event->stop = CT_TRACED_OTHER;
    event->signal = 0;
    return;
  }
  event->signal = 0;
  ptrace(PTRACE_GETEVENTMSG, tid, NULL, &event->message);
}

static pid_t
tracer_of(pid_t tid)
{
  char path[64], line[256];
  int tracer = 0;
  ct_process_path(tid, "status", path, sizeof(path));
  FILE *file = fopen(path, "re");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL && sscanf(line, "TracerPid: %d", &tracer) != 1) {
  }
  if (file != NULL) {
    fclose(file);
  }
  return tracer;
}

bool
ct_traced_is_ours(pid_t tid)
{
  return tracer_of(tid) == gettid();
}

bool
ct_traced_is_ours_too(pid_t tid)
{
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/task/%d", (int)tracer_of(tid));
  return access(path, F_OK) == 0;
}

pid_t
ct_traced_stray(pid_t leader)
{
  siginfo_t info = {.si_pid = 0};
  if (ct_process_state(leader) != 'Z' ||
      waitid(P_ALL, 0, &info, WSTOPPED | WNOWAIT | WNOHANG | __WALL | __WNOTHREAD) != 0 || info.si_pid == leader) {
    return 0;
  }
  return info.si_pid;
}

/* Has it stopped, or ended? Leaves that to be waited for; *status as waitpid has it, of a stop. */
static bool
peek(pid_t tid, bool *has_stopped, int *status)
{
  siginfo_t info = {.si_pid = 0};
  if (waitid(P_PID, (id_t)tid, &info, WSTOPPED | WEXITED | WNOWAIT | WNOHANG | __WALL | __WNOTHREAD) != 0 ||
      info.si_pid == 0) {
    return false;
  }
  *has_stopped = info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED;
  *status = info.si_status << 8 | 0x7f;
  return true;
}

/*
 * It has stopped: for us? The thread of ours that has started a process can wait for its stops, too, when another one
 * traces it; that comes about when a thread of that process, which the other one traces, execs, and is the first one.
 */
static bool
is_stop_of_another(pid_t tid)
{
  errno = 0;
  ptrace(PTRACE_PEEKUSER, tid, NULL, NULL);
  return errno == ESRCH && !ct_traced_is_ours(tid);
}

/*
 * A stop for a signal is left to be waited for: should this process be killed before the thread goes on, the kernel
 * delivers the signal of such a stop, and forgets that of one that was waited for. SIGTRAP, which steps make, it shall
 * forget.
 */
static bool
is_signal_to_keep(int status)
{
  return status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != (SIGTRAP | 0x80);
}

void
ct_traced_poll(pid_t tid, struct ct_traced_event *event)
{
  int status;
  bool has_stopped = false;
  *event = (struct ct_traced_event){.stop = CT_TRACED_RUNS};
  if (peek(tid, &has_stopped, &status) && has_stopped) {
    if (is_stop_of_another(tid)) {
      event->stop = CT_TRACED_GONE;
      return;
    }
    if (is_signal_to_keep(status)) {
      classify(tid, status, event);
      return;
    }
  }
  pid_t got = waitpid(tid, &status, __WALL | __WNOTHREAD | WNOHANG);
  if (got == tid) {
    classify(tid, status, event);
  } else if (got < 0 && errno == ECHILD) {
    event->stop = CT_TRACED_GONE;
  }
}

static bool
await(pid_t tid, int how)
{
  siginfo_t info;
  int got;
  do {
    got = waitid(tid > 0 ? P_PID : P_ALL, (id_t)tid, &info, WEXITED | WSTOPPED | WNOWAIT | __WALL | how);
  } while (got != 0 && errno == EINTR);
  return got == 0;
}

bool
ct_traced_await(pid_t tid)
{
  return await(tid, 0);
}

bool
ct_traced_await_own(pid_t tid)
{
  return await(tid, __WNOTHREAD);
}

int
ct_traced_regs(pid_t tid, struct user_regs_struct *regs)
{
  return ptrace(PTRACE_GETREGS, tid, NULL, regs) == 0 ? 0 : CT_ESRCH;
}

int
ct_traced_set_regs(pid_t tid, const struct user_regs_struct *regs)
{
  return ptrace(PTRACE_SETREGS, tid, NULL, regs) == 0 ? 0 : CT_ESRCH;
}

int
ct_traced_extended(pid_t tid, void *state, size_t size)
{
  struct iovec all = {state, size};
  return ptrace(PTRACE_GETREGSET, tid, NT_X86_XSTATE, &all) == 0 ? 0 : CT_ESRCH;
}

int
ct_traced_mask(pid_t tid, uint64_t *mask)
{
  return ptrace(PTRACE_GETSIGMASK, tid, (void *)sizeof(*mask), mask) == 0 ? 0 : CT_ESRCH;
}

int
ct_traced_set_mask(pid_t tid, uint64_t mask)
{
  return ptrace(PTRACE_SETSIGMASK, tid, (void *)sizeof(mask), &mask) == 0 ? 0 : CT_ESRCH;
}

bool
ct_traced_rseq(pid_t tid, uint64_t *address, uint32_t *signature)
{
  struct {
    uint64_t address;
    uint32_t size, signature, flags, unused;
  } configuration = {.address = 0};
  const enum __ptrace_request ask = (enum __ptrace_request)0x420f; /* PTRACE_GET_RSEQ_CONFIGURATION */
  if (ptrace(ask, tid, (void *)sizeof(configuration), &configuration) != sizeof(configuration)) {
    return false;
  }
  *address = configuration.address;
  *signature = configuration.signature;
  return configuration.address != 0;
}

int
ct_traced_set_info(pid_t tid, const siginfo_t *info)
{
  return ptrace(PTRACE_SETSIGINFO, tid, NULL, info) == 0 ? 0 : CT_ESRCH;
}

int
ct_traced_go(pid_t tid, enum ct_traced_way way, int signal)
{
  int code = way == CT_TRACED_STEP      ? (int)ptrace(PTRACE_SINGLESTEP, tid, NULL, (void *)(long)signal)
             : way == CT_TRACED_TO_CALL ? (int)ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(long)signal)
             : way == CT_TRACED_RUN     ? (int)ptrace(PTRACE_CONT, tid, NULL, (void *)(long)signal)
                                        : (int)ptrace(PTRACE_LISTEN, tid, NULL, NULL);
  return code == 0 ? 0 : CT_ESRCH;
}

bool
ct_traced_block_trap(pid_t tid, bool is_blocked)
{
  uint64_t mask, trap = 1ull << (SIGTRAP - 1);
  if (ptrace(PTRACE_GETSIGMASK, tid, (void *)sizeof(mask), &mask) != 0) {
    return is_blocked;
  }
  uint64_t other = is_blocked ? mask | trap : mask & ~trap;
  if (other != mask) {
    ptrace(PTRACE_SETSIGMASK, tid, (void *)sizeof(other), &other);
  }
  return (mask & trap) != 0;
}

int
ct_traced_detach(pid_t tid, int signal)
{
  return ptrace(PTRACE_DETACH, tid, NULL, (void *)(long)signal) == 0 ? 0 : CT_ESRCH;
}

bool
ct_traced_before_syscall(struct user_regs_struct *regs)
{
  int64_t rax = (int64_t)regs->rax;
  if ((int64_t)regs->orig_rax < 0 || (rax != RESTART_BLOCK && (rax > RESTART_SYS || rax < RESTART_NO_HAND))) {
    return false;
  }
  regs->rax = rax == RESTART_BLOCK ? SYS_restart_syscall : regs->orig_rax;
  regs->orig_rax = ~0ull;
  regs->rip -= 2;
  return true;
}

int
ct_traced_borrow(struct ct_process *process, pid_t tid, bool is_to_stay, struct ct_diag *diag)
{
  if (is_to_stay && ct_process_seccomp(tid) != 0) {
    return ct_fail(diag, CT_EUNSUPPORTED, "thread %d runs under seccomp, which may forbid what recording needs",
                   (int)tid);
  }
  if (is_to_stay && ct_injection_dispatch(tid).mode != 0) {
    return ct_fail(
        diag, CT_EUNSUPPORTED,
        "thread %d is under Syscall User Dispatch: system calls that recording needs would come to the program",
        (int)tid);
  }
  uint64_t area = ct_process_injection_area(process);
  process->injection = calloc(1, sizeof(*process->injection));
  if (process->injection == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  int code = ct_injection_begin(process->injection, process, tid, OPTIONS, area, 0, NULL);
  if (code != 0) {
    free(process->injection);
    process->injection = NULL;
    return ct_fail(diag, code, "no system calls can be made in the name of thread %d", (int)tid);
  }
  return 0;
}

int
ct_traced_syscall(struct ct_process *process, long number, const uint64_t args[6], int64_t *result)
{
  return ct_injection_syscall(process->injection, number, args, result);
}

int
ct_traced_return(struct ct_process *process)
{
  int signal;
  int code = ct_injection_end(process->injection, &signal);
  free(process->injection);
  process->injection = NULL;
  return code;
}

static bool
is_ignored_by_default(int signal)
{
  return signal == SIGCHLD || signal == SIGURG || signal == SIGWINCH || signal == SIGCONT;
}

enum ct_disposition
ct_traced_disposition(pid_t pid, int signal)
{
  char path[64], line[256];
  uint64_t ignored = 0, caught = 0, bit = 1ull << (signal - 1);
  ct_process_path(pid, "status", path, sizeof(path));
  FILE *file = fopen(path, "re");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    sscanf(line, "SigIgn: %" SCNx64, &ignored);
    sscanf(line, "SigCgt: %" SCNx64, &caught);
  }
  if (file != NULL) {
    fclose(file);
  }
  return (caught & bit) != 0                                     ? CT_DISPOSITION_CAUGHT
         : (ignored & bit) != 0 || is_ignored_by_default(signal) ? CT_DISPOSITION_IGNORED
                                                                 : CT_DISPOSITION_DEFAULT;
}
