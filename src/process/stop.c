/* SPDX-License-Identifier: MIT */
/*
 * Stop the world: each thread is seized and interrupted, again until a look at /proc/PID/task shows no other one. A
 * thread may stop for a signal of its own first; it gets it when it goes on. Seized threads that were stopped by a
 * signal (SIGSTOP) stay stopped.
 */
#include "process/stop.h"

#include "base/clock.h"
#include "base/pause_request.h"
#include "base/test_point.h"
#include "base/worker.h"
#include "process/again.h"
#include "process/injection.h"
#include "process/interrupted.h"
#include "process/wait.h"

#include <dirent.h>
#include <errno.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRACE_OPTIONS PTRACE_O_TRACESYSGOOD
#define ROUNDS_MAX    64
#define LATE_MS       2000  /* for threads that did not stop in time, before others see to them */
#define REST_SHARE    8     /* of the time that a stop has taken so far, between two looks ... */
#define REST_MIN_NS   50000 /* ... within these */
#define REST_MAX_NS   4000000
#define SLICE_MS      100   /* of the first attempt to stop all threads; further ones take twice as long ... */
#define SLICE_MAX_MS  400   /* ... up to that */
#define FIND_MS       10000 /* to look at all stacks ... */
#define FIND_SOON_MS  2000  /* ... when somebody wants an end to it */

static uint64_t
now_ms(void)
{
  return ct_now_ns() / 1000000u;
}

/*
 * The thread that stops the others must not wait for a processor itself: threads that were resumed take it away from
 * those that are still to be, which amounts to some 200 ms with a hundred busy ones on two processors. The real-time
 * class does that, where we may use it (CAP_SYS_NICE, RLIMIT_RTPRIO); threads that begin meanwhile do not inherit it.
 */
static void
raise_priority(struct ct_stopped *stopped)
{
  stopped->priority_is_raised = ct_priority_raise();
}

static void
restore_priority(struct ct_stopped *stopped)
{
  if (stopped->priority_is_raised) {
    ct_priority_restore();
  }
  stopped->priority_is_raised = false;
}

static bool
is_stopped(const struct ct_stopped *stopped, pid_t tid)
{
  for (size_t i = 0; i < stopped->thread_count; i++) {
    if (stopped->threads[i].tid == tid) {
      return true;
    }
  }
  return false;
}

static int
add_thread(struct ct_stopped *stopped, pid_t tid)
{
  struct ct_stopped_thread *grown = realloc(stopped->threads, (stopped->thread_count + 1) * sizeof(*grown));
  if (grown == NULL) {
    return CT_ENOMEM;
  }
  stopped->threads = grown;
  stopped->threads[stopped->thread_count++] = (struct ct_stopped_thread){.tid = tid};
  return 0;
}

/* A thread that runs stops within microseconds; one that waits for a processor is not looked at 10,000 times a second
 * meanwhile. */
static void
rest_since(uint64_t since_ns)
{
  uint64_t rest = (ct_now_ns() - since_ns) / REST_SHARE;
  struct timespec wait = {0, rest < REST_MIN_NS ? REST_MIN_NS : rest > REST_MAX_NS ? REST_MAX_NS : (long)rest};
  nanosleep(&wait, NULL);
}

/*
 * Waits until the thread has stopped. CT_ESRCH: it has ended, which is as good. A stop is looked at and not taken: what
 * the thread gets when we are killed is what nobody has taken (current->exit_code), and so it gets its signal.
 */
static int
await_stop(struct ct_stopped *stopped, struct ct_stopped_thread *thread, uint64_t deadline)
{
  for (uint64_t since = ct_now_ns();;) {
    int status;
    siginfo_t info = {0};
    int failed = waitid(P_PID, (id_t)thread->tid, &info, __WALL | WSTOPPED | WEXITED | WNOHANG | WNOWAIT);
    if (failed == 0 && info.si_pid == thread->tid && (info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED)) {
      thread->signal = info.si_status >> 8 == 0 ? info.si_status & 0x7f : 0;
      return 0;
    }
    if ((failed == 0 && info.si_pid == thread->tid) || (failed != 0 && errno == ECHILD)) {
      pid_t got = waitpid(thread->tid, &status, __WALL | WNOHANG);
      ct_process_note_end(stopped->process, got, status);
      return CT_ESRCH;
    }
    if (now_ms() >= deadline) {
      return CT_ETIMEOUT;
    }
    rest_since(since);
  }
}

/* The letter of a thread's state, 0: there is none. */
static char
task_state(pid_t pid, const char *tid)
{
  char path[320], text[256];
  snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid, tid);
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return 0;
  }
  size_t size = fread(text, 1, sizeof(text) - 1, file);
  fclose(file);
  text[size] = '\0';
  const char *state = strrchr(text, ')'); /* "tid (name) state ..." */
  return state != NULL && state[1] == ' ' ? state[2] : 0;
}

/* A leader that has ended before its threads cannot be stopped, and need not. */
static bool
is_dead(const struct ct_stopped *stopped, pid_t tid)
{
  char name[16];
  snprintf(name, sizeof(name), "%d", (int)tid);
  char state = task_state(stopped->process->pid, name);
  return state == 0 || state == 'Z' || state == 'X';
}

/* Stops the threads that are not stopped yet; *fresh is their number. */
static int
stop_new_threads(struct ct_stopped *stopped, size_t *fresh)
{
  char path[64];
  int code = 0;
  *fresh = 0;
  snprintf(path, sizeof(path), "/proc/%d/task", (int)stopped->process->pid);
  DIR *tasks = opendir(path);
  if (tasks == NULL) {
    return CT_ESRCH;
  }
  const struct dirent *task;
  while (code == 0 && (task = readdir(tasks)) != NULL) {
    pid_t tid = (pid_t)strtol(task->d_name, NULL, 10);
    if (tid <= 0 || is_stopped(stopped, tid)) {
      continue;
    }
    if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)(long)TRACE_OPTIONS) != 0) {
      code = errno == ESRCH || is_dead(stopped, tid) ? 0 : CT_EPERM_PTRACE;
      continue;
    }
    ct_test_point("thread-seized");
    code = add_thread(stopped, tid);
    if (code != 0) {
      ptrace(PTRACE_DETACH, tid, NULL, NULL);
      break;
    }
    ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
    (*fresh)++;
  }
  closedir(tasks);
  return code;
}

static void
forget_thread(struct ct_stopped *stopped, size_t index)
{
  stopped->threads[index] = stopped->threads[--stopped->thread_count];
}

/* Those from `waited` on; a thread that has ended meanwhile is none. */
static int
await_all(struct ct_stopped *stopped, size_t *waited, uint64_t deadline, pid_t *stuck)
{
  while (*waited < stopped->thread_count) {
    int code = await_stop(stopped, &stopped->threads[*waited], deadline);
    if (code == CT_ESRCH && !stopped->process->dead) {
      forget_thread(stopped, *waited);
      continue;
    }
    *stuck = code == 0 ? 0 : stopped->threads[*waited].tid;
    (*waited)++;
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

/* *stuck: on CT_ETIMEOUT, the thread that has not stopped, 0: new ones came all the time. */
static int
stop_all(struct ct_stopped *stopped, uint64_t deadline, pid_t *stuck)
{
  size_t fresh = 1, waited = 0;
  for (int round = 0; round < ROUNDS_MAX && fresh != 0; round++) {
    int code = stop_new_threads(stopped, &fresh);
    if (code != 0) {
      return code;
    }
    code = await_all(stopped, &waited, deadline, stuck);
    if (code != 0) {
      return code;
    }
  }
  return fresh != 0 ? CT_ETIMEOUT : 0;
}

/* The thread that makes system calls: one that is not about to get a signal, if there is one. */
static size_t
choose_lender(const struct ct_stopped *stopped)
{
  for (size_t i = 0; i < stopped->thread_count; i++) {
    if (stopped->threads[i].signal == 0) {
      return i;
    }
  }
  return 0;
}

/*
 * A standard signal that it is about to get waits for that; a real-time one would come back behind others of its
 * number. So it gets it: it stops again before the first instruction of the handler.
 */
static int
deliver_real_time(struct ct_stopped *stopped)
{
  enum { REAL_TIME = 32 };
  struct ct_stopped_thread *lender = stopped->thread_count != 0 ? &stopped->threads[choose_lender(stopped)] : NULL;
  return lender == NULL || lender->signal < REAL_TIME
             ? 0
             : ct_injection_deliver(stopped->process, lender->tid, &lender->signal);
}

/* The thread that is used for system calls comes back. */
static void
end_injection(struct ct_stopped *stopped)
{
  if (stopped->injection != NULL) {
    stopped->is_lost |= stopped->injection->lost;
    ct_injection_end(stopped->injection, &stopped->threads[stopped->lender].signal);
    free(stopped->injection);
    stopped->injection = NULL;
  }
}

/* The thread's stack pointer on the program's own stack. */
static uint64_t
outer_sp(const struct ct_stopped *stopped, const struct user_regs_struct *regs, const struct ct_inner_stacks *inner)
{
  uint64_t offset = regs->rsp - inner->start, sp;
  if (regs->rsp < inner->start || offset > inner->bytes || inner->bytes == 0) {
    return regs->rsp;
  }
  if (offset % inner->stride == 0) {
    return regs->rsi;
  }
  uint64_t top = inner->start + (offset / inner->stride + 1) * inner->stride;
  return ct_process_read(stopped->process, top - sizeof(sp), &sp, sizeof(sp)) == 0 ? sp : regs->rsp;
}

static bool
is_fault(int signal)
{
  return signal == SIGILL || signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGTRAP;
}

/* The thread has a fault's signal before it, at the instruction where it stands. */
static bool
has_fault_pending(const struct ct_stopped_thread *thread)
{
  enum { PEEKED = 8 }; /* the kernel takes a fault's before others, and puts it first */
  siginfo_t pending[PEEKED];
  struct __ptrace_peeksiginfo_args which = {.nr = PEEKED};
  long count = ptrace(PTRACE_PEEKSIGINFO, thread->tid, &which, pending);
  bool has = is_fault(thread->signal);
  for (long i = 0; i < count && !has; i++) {
    has = is_fault(pending[i].si_signo);
  }
  return has;
}

static int
find_pcs_of(struct ct_stopped *stopped, struct ct_stopped_thread *thread, const struct ct_inner_stacks *inner,
            const struct ct_mappings *mappings, const struct ct_restorers *places)
{
  struct user_regs_struct regs;
  if (ptrace(PTRACE_GETREGS, thread->tid, NULL, &regs) != 0) {
    return 0; /* killed meanwhile */
  }
  uint64_t pc = regs.rip, sp = outer_sp(stopped, &regs, inner);
  thread->pc = pc;
  thread->sp = sp;
  thread->gs_base = regs.gs_base;
  thread->in_syscall = (int64_t)regs.orig_rax >= 0;
  int code = ct_stopped_add_pc(stopped, pc);
  if (code == 0 && has_fault_pending(thread)) {
    code = ct_stopped_add_pc(stopped, pc + 1); /* as where a handler has interrupted it, in a moment */
  }
  return code == 0 ? ct_stopped_find_interrupted(stopped, mappings, places, sp) : code;
}

static int
compare_places(const void *a, const void *b)
{
  uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return left < right ? -1 : left > right;
}

int
ct_stopped_find_pcs(struct ct_stopped *stopped, const uint64_t *restorers, size_t count, struct ct_inner_stacks inner)
{
  struct ct_restorers places = ct_restorers_of(restorers, count, inner.store_delta);
  end_injection(stopped);
  stopped->pc_count = 0;
  uint64_t begin = now_ms();
  ct_mappings_free(&stopped->mappings);
  int code = ct_process_mappings(stopped->process->pid, &stopped->mappings);
  for (size_t i = 0; i < stopped->thread_count && code == 0; i++) {
    code = find_pcs_of(stopped, &stopped->threads[i], &inner, &stopped->mappings, &places);
    if (code == 0 && now_ms() - begin > (ct_process_is_expedited(stopped->process) ? FIND_SOON_MS : FIND_MS)) {
      code = CT_ETIMEOUT;
    }
  }
  if (stopped->pc_count != 0) {
    qsort(stopped->pcs, stopped->pc_count, sizeof(*stopped->pcs), compare_places);
  }
  return code;
}

int
ct_stopped_sweep(struct ct_stopped *stopped)
{
  end_injection(stopped);
  int code = ct_injection_sweep(stopped->process, &stopped->mappings, stopped->pcs, stopped->pc_count);
  ct_mappings_free(&stopped->mappings);
  return code;
}

/* In vfork a thread waits for its child, and stops for nobody. */
static bool
waits_for_vfork(pid_t pid, const char *tid)
{
  char path[320], text[256];
  snprintf(path, sizeof(path), "/proc/%d/task/%s/syscall", (int)pid, tid);
  FILE *file = fopen(path, "re");
  size_t size = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
  if (file != NULL) {
    fclose(file);
  }
  text[size] = '\0';
  long number = size > 0 && text[0] >= '0' && text[0] <= '9' ? strtol(text, NULL, 10) : -1;
  return number == SYS_vfork || number == SYS_clone || number == SYS_clone3;
}

/* False when the process still has such a thread at the deadline. The others run meanwhile. */
static bool
await_vforks(const struct ct_process *process, uint64_t deadline)
{
  char path[64];
  bool waits;
  pid_t pid = process->pid;
  snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
  do {
    DIR *tasks = opendir(path);
    const struct dirent *task;
    waits = false;
    while (tasks != NULL && !waits && (task = readdir(tasks)) != NULL) {
      waits = task->d_name[0] != '.' && task_state(pid, task->d_name) == 'D' && waits_for_vfork(pid, task->d_name);
    }
    if (tasks != NULL) {
      closedir(tasks);
    }
    if (waits && (now_ms() >= deadline || ct_process_is_expedited(process))) {
      return false;
    }
    if (waits) {
      struct timespec wait = {0, 1000 * 1000};
      if (process->meanwhile != NULL) {
        process->meanwhile(process->meanwhile_context);
      }
      nanosleep(&wait, NULL);
    }
  } while (waits);
  return true;
}

/* False when threads that did not stop at an earlier attempt have not since. */
static bool
await_late(struct ct_process *process, uint64_t deadline)
{
  while (!ct_process_release_late(process)) {
    if (now_ms() >= deadline || ct_process_is_expedited(process)) {
      return false;
    }
    if (process->meanwhile != NULL) {
      process->meanwhile(process->meanwhile_context);
    }
    struct timespec wait = {0, 1000 * 1000};
    nanosleep(&wait, NULL);
  }
  return true;
}

/* One attempt. *late: it ended for a thread that did not stop by the deadline; all run again. */
static int
stop_until(struct ct_process *process, uint64_t deadline, struct ct_stopped *stopped, bool *late, struct ct_diag *diag)
{
  pid_t stuck = 0;
  memset(stopped, 0, sizeof(*stopped));
  stopped->process = process;
  stopped->since_ns = ct_now_ns();
  raise_priority(stopped);
  stopped->pause_request = process->pause_request;
  ct_pause_request_begin(stopped->pause_request);
  int code = stop_all(stopped, deadline, &stuck);
  code = code == 0 ? deliver_real_time(stopped) : code;
  if (code == 0 && stopped->thread_count == 0) {
    code = CT_ESRCH;
  }
  *late = code == CT_ETIMEOUT && stuck != 0;
  if (*late) {
    char name[16];
    snprintf(name, sizeof(name), "%d", (int)stuck);
    ct_fail(diag, code, "cannot stop the threads of process %d: thread %d does not stop (its state is %c)",
            (int)process->pid, (int)stuck, task_state(process->pid, name));
  } else if (code == CT_ESRCH) {
    ct_fail(diag, code, "process %d has ended", (int)process->pid);
  } else if (code != 0) {
    ct_fail(diag, code, "cannot stop the threads of process %d: %s", (int)process->pid, ct_err_text(code));
  }
  if (code != 0) {
    ct_process_resume(stopped);
  }
  return code;
}

/*
 * Some thread may wait for a disk, or find no processor, and does not stop before that is over: the others shall not
 * stand still for so long.
 */
int
ct_process_stop(struct ct_process *process, int deadline_ms, struct ct_stopped *stopped, struct ct_diag *diag)
{
  uint64_t deadline = now_ms() + (uint64_t)deadline_ms, slice = SLICE_MS;
  struct ct_diag why = {""};
  bool late;
  int code;
  memset(stopped, 0, sizeof(*stopped));
  ct_process_release_traced(process);
  do {
    if (!await_late(process, deadline)) {
      return ct_fail(diag, CT_ETIMEOUT, "cannot stop the threads of process %d: thread %d does not stop",
                     (int)process->pid, (int)process->late[0]);
    }
    if (!await_vforks(process, deadline)) {
      return ct_fail(diag, CT_ETIMEOUT,
                     "cannot stop the threads of process %d: one waits for the end of a child that it made by vfork",
                     (int)process->pid);
    }
    uint64_t until = now_ms() + slice;
    code = stop_until(process, until < deadline ? until : deadline, stopped, &late, &why);
    slice = slice * 2 < SLICE_MAX_MS ? slice * 2 : SLICE_MAX_MS;
    if (late) { /* they run for a while */
      struct timespec wait = {0, SLICE_MS * 1000000L};
      nanosleep(&wait, NULL);
    }
  } while (late && now_ms() < deadline && !ct_process_is_expedited(process));
  return code != 0 ? ct_fail(diag, code, "%s", why.text) : 0;
}

/* A thread that is to make system calls of ours; CT_EUNSUPPORTED: its filter may forbid them. */
static int
try_to_lend(struct ct_stopped *stopped, size_t index)
{
  stopped->injection = calloc(1, sizeof(*stopped->injection));
  if (stopped->injection == NULL) {
    return CT_ENOMEM;
  }
  const struct ct_stopped_thread *thread = &stopped->threads[index];
  stopped->lender = index;
  int code = ct_injection_begin(stopped->injection, stopped->process, thread->tid, TRACE_OPTIONS,
                                ct_process_injection_area(stopped->process), thread->signal, NULL);
  if (code != 0) {
    free(stopped->injection);
    stopped->injection = NULL;
  }
  return code;
}

/* One that is not about to get a signal, if there is one; but each has a seccomp filter of its own, or none. */
static int
lend_thread(struct ct_stopped *stopped)
{
  size_t first = choose_lender(stopped);
  int code = stopped->thread_count == 0 ? CT_ESRCH : try_to_lend(stopped, first);
  if (code == CT_EUNSUPPORTED && ct_process_injection_area(stopped->process) != 0) {
    for (size_t i = 0; i < stopped->thread_count && code == CT_EUNSUPPORTED; i++) {
      code = i != first ? try_to_lend(stopped, i) : code;
    }
  }
  return code;
}

pid_t
ct_stopped_sharer(const struct ct_stopped *stopped)
{
  /* By a thread that lives: the first one may have ended, which has as much memory as a thread of the kernel. */
  pid_t pid = stopped->process->pid, thread = stopped->thread_count != 0 ? stopped->threads[0].tid : 0, found = 0;
  const struct dirent *entry;
  DIR *processes = thread != 0 ? opendir("/proc") : NULL;
  while (found == 0 && processes != NULL && (entry = readdir(processes)) != NULL) {
    pid_t other = (pid_t)strtol(entry->d_name, NULL, 10);
    found = other > 0 && other != pid && syscall(SYS_kcmp, thread, other, KCMP_VM, 0, 0) == 0 ? other : 0;
  }
  if (processes != NULL) {
    closedir(processes);
  }
  return found;
}

pid_t
ct_stopped_dispatched(const struct ct_stopped *stopped)
{
  for (size_t i = 0; i < stopped->thread_count; i++) {
    if (ct_injection_dispatch(stopped->threads[i].tid).mode != 0) {
      return stopped->threads[i].tid;
    }
  }
  return 0;
}

bool
ct_stopped_may_call(struct ct_stopped *stopped)
{
  bool may = stopped->injection != NULL || lend_thread(stopped) != CT_EUNSUPPORTED;
  end_injection(stopped);
  return may;
}

int
ct_stopped_syscall(struct ct_stopped *stopped, long number, const uint64_t args[6], int64_t *result)
{
  int code = stopped->is_lost ? CT_ETIMEOUT : stopped->injection == NULL ? lend_thread(stopped) : 0;
  return code == 0 ? ct_injection_syscall(stopped->injection, number, args, result) : code;
}

int
ct_stopped_gs_base(struct ct_stopped *stopped, uint64_t *base)
{
  *base = 0;
  end_injection(stopped);
  for (size_t i = 0; i < stopped->thread_count; i++) {
    struct user_regs_struct regs;
    if (ptrace(PTRACE_GETREGS, stopped->threads[i].tid, NULL, &regs) == 0 && regs.gs_base != 0) {
      *base = regs.gs_base;
    }
  }
  return 0;
}

int
ct_stopped_set_gs_base(struct ct_stopped *stopped, uint64_t base)
{
  end_injection(stopped);
  for (size_t i = 0; i < stopped->thread_count; i++) {
    struct user_regs_struct regs;
    if (ptrace(PTRACE_GETREGS, stopped->threads[i].tid, NULL, &regs) != 0) {
      continue; /* killed meanwhile */
    }
    regs.gs_base = base;
    if (ptrace(PTRACE_SETREGS, stopped->threads[i].tid, NULL, &regs) != 0 && errno != ESRCH) {
      return CT_EIO;
    }
  }
  return 0;
}

int
ct_stopped_clear_gs_base(struct ct_stopped *stopped, const uint64_t (*ranges)[2], size_t count)
{
  end_injection(stopped);
  for (size_t i = 0; i < stopped->thread_count; i++) {
    struct user_regs_struct regs;
    bool ours = false;
    if (ptrace(PTRACE_GETREGS, stopped->threads[i].tid, NULL, &regs) != 0) {
      continue; /* killed meanwhile */
    }
    for (size_t r = 0; r < count; r++) {
      ours |= regs.gs_base - ranges[r][0] < ranges[r][1];
    }
    regs.gs_base = 0;
    if (ours && ptrace(PTRACE_SETREGS, stopped->threads[i].tid, NULL, &regs) != 0 && errno != ESRCH) {
      return CT_EIO;
    }
  }
  return 0;
}

int
ct_stopped_stack_pointer(struct ct_stopped *stopped, uint64_t *sp)
{
  struct user_regs_struct regs;
  end_injection(stopped);
  if (!is_stopped(stopped, stopped->process->pid) || ptrace(PTRACE_GETREGS, stopped->process->pid, NULL, &regs) != 0) {
    return CT_ESRCH;
  }
  *sp = regs.rsp;
  return 0;
}

int
ct_stopped_registers(const struct ct_stopped *stopped, size_t thread, struct ct_registers *registers, int64_t *number)
{
  struct user_regs_struct regs;
  if (ptrace(PTRACE_GETREGS, stopped->threads[thread].tid, NULL, &regs) != 0) {
    return CT_ESRCH;
  }
  *number = (int64_t)regs.orig_rax;
  *registers =
      (struct ct_registers){{regs.rax, regs.rdx, regs.rcx, regs.rbx, regs.rsi, regs.rdi, regs.rbp, regs.rsp, regs.r8,
                             regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15, regs.rip}};
  return 0;
}

int
ct_stopped_send(struct ct_stopped *stopped, size_t thread, const struct ct_registers *registers)
{
  struct user_regs_struct regs;
  const uint64_t *values = registers->values;
  end_injection(stopped);
  if (ptrace(PTRACE_GETREGS, stopped->threads[thread].tid, NULL, &regs) != 0) {
    return CT_ESRCH;
  }
  unsigned long long *const places[CT_REGISTER_COUNT] = {
      &regs.rax, &regs.rdx, &regs.rcx, &regs.rbx, &regs.rsi, &regs.rdi, &regs.rbp, &regs.rsp, &regs.r8,
      &regs.r9,  &regs.r10, &regs.r11, &regs.r12, &regs.r13, &regs.r14, &regs.r15, &regs.rip};
  for (size_t i = 0; i < CT_REGISTER_COUNT; i++) {
    *places[i] = values[i];
  }
  regs.orig_rax = (unsigned long long)-1;
  return ptrace(PTRACE_SETREGS, stopped->threads[thread].tid, NULL, &regs) == 0 ? 0 : CT_ESRCH;
}

bool
ct_stopped_await_end(struct ct_stopped *stopped, pid_t tid, int timeout_ms)
{
  end_injection(stopped);
  uint64_t deadline = now_ms() + (uint64_t)timeout_ms;
  for (size_t i = 0; i < stopped->thread_count; i++) {
    if (stopped->threads[i].tid == tid) {
      ptrace(PTRACE_DETACH, tid, NULL, (void *)(long)stopped->threads[i].signal);
      forget_thread(stopped, i);
      break;
    }
  }
  while (stopped->thread_count != 0 && now_ms() < deadline) {
    for (size_t i = 0; i < stopped->thread_count;) {
      int status;
      pid_t other = stopped->threads[i].tid;
      pid_t got = waitpid(other, &status, __WALL | WNOHANG);
      if (got == other && !WIFSTOPPED(status)) {
        ct_process_note_end(stopped->process, got, status);
      }
      if ((got == other && !WIFSTOPPED(status)) || (got < 0 && errno == ECHILD)) {
        forget_thread(stopped, i);
      } else {
        i++;
      }
    }
    struct timespec wait = {0, 200 * 1000};
    nanosleep(&wait, NULL);
  }
  return stopped->thread_count == 0;
}

uint64_t
ct_process_resume(struct ct_stopped *stopped)
{
  struct ct_process *process = stopped->process;
  end_injection(stopped);
  for (size_t i = 0; i < stopped->thread_count; i++) {
    const struct ct_stopped_thread thread = stopped->threads[i];
    if (thread.signal == 0) {
      process->ended_calls += ct_make_again(thread.tid);
    }
    if (ptrace(PTRACE_DETACH, thread.tid, NULL, (void *)(long)thread.signal) != 0 && errno == ESRCH) {
      ct_process_leave_running(process, thread.tid); /* it has not stopped, or is dead */
    }
  }
  uint64_t pause_ns = ct_now_ns() - stopped->since_ns; /* before others get the processors again */
  ct_pause_request_end(stopped->pause_request);
  restore_priority(stopped);
  uint64_t since = ct_now_ns(), deadline = now_ms() + LATE_MS;
  while (!ct_process_release_late(process) && now_ms() < deadline) {
    if (process->meanwhile != NULL) { /* it may wait for a vfork child that waits for the caller */
      process->meanwhile(process->meanwhile_context);
    }
    rest_since(since);
  }
  free(stopped->threads);
  free(stopped->pcs);
  ct_mappings_free(&stopped->mappings);
  memset(stopped, 0, sizeof(*stopped));
  return pause_ns;
}
