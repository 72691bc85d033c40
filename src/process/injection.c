/* SPDX-License-Identifier: MIT */
/*
 * Injected system calls: a stopped thread is sent to make system calls of ours, and comes back to where it stood.
 *
 * The tracer may be killed at any moment; then the kernel releases the thread as it is. So the code that the thread is
 * sent to brings it back by itself:
 *
 *   syscall                      here it is sent, number and arguments in registers
 *   rt_sigprocmask(SETMASK)      its own signal mask
 *   popfq, registers, jmp        as they were when it stopped; a system call it was in is made again
 *
 * With a living tracer the thread stops (PTRACE_SYSCALL) before and after its system call and goes no further:
 * its registers and mask are put back by ptrace. No single step: a tracer that dies would leave the trap flag behind,
 * and SIGTRAP with it. All signals are blocked meanwhile, so that no handler runs while other threads stand still.
 *
 * A seccomp filter may end the process for a call of ours. With CAP_SYS_ADMIN it is suspended for the thread meanwhile;
 * else no call is made. When the tracer dies the filter is there again at once. Syscall User Dispatch is off meanwhile:
 * with it our call would come to the program as a SIGSYS. It stays off when the tracer dies just then.
 */
#include "process/injection.h"

#include "base/clock.h"
#include "process/wait.h"
#include "x86/emit.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SYSCALL_STOP (SIGTRAP | 0x80)
#define STOPS_MAX    64
#ifndef PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG
#define PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG 0x4210
#define PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG 0x4211
#endif
#define CALL_NS      20000000000ull /* for a call, which may wait for somebody (userfaultfd, seccomp) ... */
#define CALL_SOON_NS 2000000000ull  /* ... when somebody wants an end to it ... */
#define LEAVE_NS     1000000000ull  /* ... and to leave it when it is interrupted */

/* What the kernel keeps in rax of a thread that is stopped in a system call (linux/errno.h). */
enum { RESTART_SYS = -512, RESTART_NO_INTR = -513, RESTART_NO_HAND = -514, RESTART_BLOCK = -516 };

struct restore_stub {
  uint8_t code[CT_INJECTION_BYTES];
};

static bool
is_in_syscall(const struct user_regs_struct *regs)
{
  int64_t rax = (int64_t)regs->rax;
  return (int64_t)regs->orig_rax >= 0 && (rax == RESTART_BLOCK || (rax <= RESTART_SYS && rax >= RESTART_NO_HAND));
}

static void
make_restore_stub(const struct ct_injection *injection, struct restore_stub *stub)
{
  struct user_regs_struct to = injection->saved;
  if (is_in_syscall(&to)) {
    to.rax = (int64_t)to.rax == RESTART_BLOCK ? SYS_restart_syscall : to.orig_rax;
    to.rip -= 2;
  }
  uint64_t data = injection->area + CT_INJECTION_BYTES - 24; /* mask, flags, rip */
  memset(stub, 0, sizeof(*stub));
  struct ct_code code = {.bytes = stub->code, .capacity = sizeof(stub->code), .address = injection->area};
  ct_emit_syscall(&code);
  ct_emit_mov32_imm(&code, CT_RAX, SYS_rt_sigprocmask);
  ct_emit_mov32_imm(&code, CT_RDI, SIG_SETMASK);
  ct_emit_movabs(&code, CT_RSI, data);
  ct_emit_xor32(&code, CT_RDX, CT_RDX);
  ct_emit_mov32_imm(&code, CT_R10, sizeof(injection->mask));
  ct_emit_syscall(&code);
  ct_emit_movabs(&code, CT_RSP, data + 8); /* of the flags */
  ct_emit_popfq(&code);
  ct_emit_movabs(&code, CT_RAX, to.rax);
  ct_emit_movabs(&code, CT_RCX, to.rcx);
  ct_emit_movabs(&code, CT_RDX, to.rdx);
  ct_emit_movabs(&code, CT_RSI, to.rsi);
  ct_emit_movabs(&code, CT_RDI, to.rdi);
  ct_emit_movabs(&code, CT_RSP, to.rsp);
  ct_emit_movabs(&code, CT_R8, to.r8);
  ct_emit_movabs(&code, CT_R9, to.r9);
  ct_emit_movabs(&code, CT_R10, to.r10);
  ct_emit_movabs(&code, CT_R11, to.r11);
  ct_emit_jmp_load(&code, ct_mem_rip(data + 16));
  uint64_t words[3] = {injection->mask, to.eflags, to.rip};
  memcpy(stub->code + CT_INJECTION_NAME_AT, "contrail", sizeof("contrail"));
  memcpy(stub->code + CT_INJECTION_BYTES - sizeof(words), words, sizeof(words));
}

/* What a restore stub looks like, wherever it returns to: a byte counts where it is the same for all registers. */
static bool
is_restore_stub(const uint8_t *code, uint64_t area)
{
  struct ct_injection injection = {.area = area};
  struct restore_stub low, high;
  make_restore_stub(&injection, &low);
  memset(&injection.saved, 0xff, sizeof(injection.saved));
  injection.mask = ~0ull;
  make_restore_stub(&injection, &high);
  for (size_t i = 0; i < CT_INJECTION_BYTES; i++) {
    if (low.code[i] == high.code[i] && code[i] != low.code[i]) {
      return false;
    }
  }
  return true;
}

/* The zeros at the end of an executable mapping's last page, as linkers and the vdso leave them there. */
static uint64_t
zeros_at_end(const struct ct_process *process, const struct ct_mapping *mapping)
{
  uint8_t bytes[CT_INJECTION_BYTES + 64];
  uint64_t at = mapping->end - sizeof(bytes);
  if (!mapping->readable || mapping->end - mapping->start < sizeof(bytes) ||
      ct_process_read(process, at, bytes, sizeof(bytes)) != 0) {
    return 0;
  }
  for (size_t i = 0; i < sizeof(bytes); i++) {
    if (bytes[i] != 0) {
      return 0;
    }
  }
  return mapping->end - CT_INJECTION_BYTES;
}

uint64_t
ct_injection_area(const struct ct_process *process)
{
  struct ct_mappings mappings;
  uint64_t area = 0;
  if (ct_process_mappings(process->pid, &mappings) != 0) {
    return 0;
  }
  for (size_t i = 0; i < mappings.count && area == 0; i++) {
    if (strcmp(mappings.items[i].path, "[vdso]") == 0) {
      area = zeros_at_end(process, &mappings.items[i]);
    }
  }
  for (size_t i = 0; i < mappings.count && area == 0; i++) {
    const struct ct_mapping *mapping = &mappings.items[i];
    if (mapping->executable && !mapping->shared && mapping->path[0] == '/') {
      area = zeros_at_end(process, mapping);
    }
  }
  ct_mappings_free(&mappings);
  return area;
}

static bool
anybody_in(uint64_t area, const uint64_t *pcs, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    if (pcs[i] >= area && pcs[i] < area + CT_INJECTION_BYTES) {
      return true;
    }
  }
  return false;
}

int
ct_injection_sweep(const struct ct_process *process, const struct ct_mappings *mappings, const uint64_t *pcs,
                   size_t count)
{
  static const uint8_t zeros[CT_INJECTION_BYTES];
  int code = 0;
  for (size_t i = 0; i < mappings->count && code == 0; i++) {
    const struct ct_mapping *mapping = &mappings->items[i];
    uint8_t bytes[CT_INJECTION_BYTES];
    uint64_t area = mapping->end - CT_INJECTION_BYTES;
    if (mapping->executable && mapping->readable && ct_process_read(process, area, bytes, sizeof(bytes)) == 0 &&
        is_restore_stub(bytes, area) && !anybody_in(area, pcs, count)) {
      code = ct_process_write(process, area, zeros, sizeof(zeros));
    }
  }
  return code;
}

struct ct_dispatch
ct_injection_dispatch(pid_t tid)
{
  struct ct_dispatch dispatch = {0};
  long code = ptrace(PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, tid, (void *)sizeof(dispatch), &dispatch);
  return code == 0 ? dispatch : (struct ct_dispatch){0};
}

static bool
set_dispatch(const struct ct_injection *injection, const struct ct_dispatch *dispatch)
{
  return ptrace(PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG, injection->tid, (void *)sizeof(*dispatch), dispatch) == 0;
}

/* What the thread has forbidden itself it is not forbidden from here on. */
static int
suspend_filter(struct ct_injection *injection)
{
  static const struct ct_dispatch off;
  injection->dispatch = ct_injection_dispatch(injection->tid);
  if (injection->dispatch.mode != 0 && !set_dispatch(injection, &off)) {
    injection->dispatch.mode = 0;
    return errno == ESRCH ? CT_ESRCH : CT_EUNSUPPORTED;
  }
  if (ct_process_seccomp(injection->tid) == 0) {
    return 0;
  }
  if (ptrace(PTRACE_SETOPTIONS, injection->tid, NULL, (void *)(injection->options | PTRACE_O_SUSPEND_SECCOMP)) != 0) {
    return errno == ESRCH ? CT_ESRCH : CT_EUNSUPPORTED;
  }
  injection->is_suspended = true;
  return 0;
}

/* The thread is stopped. One that is lost has its filter again when it is resumed. */
static void
resume_filter(struct ct_injection *injection)
{
  if (injection->dispatch.mode != 0) {
    set_dispatch(injection, &injection->dispatch);
    injection->dispatch.mode = 0;
  }
  if (injection->is_suspended) {
    ptrace(PTRACE_SETOPTIONS, injection->tid, NULL, (void *)injection->options);
    injection->is_suspended = false;
  }
}

int
ct_injection_begin(struct ct_injection *injection, struct ct_process *process, pid_t tid, long options, uint64_t area,
                   int signal, const uint64_t *mask)
{
  struct restore_stub stub;
  memset(injection, 0, sizeof(*injection));
  injection->process = process;
  injection->tid = tid;
  injection->options = options;
  injection->area = area;
  if (area == 0) {
    return CT_EUNSUPPORTED;
  }
  if (ptrace(PTRACE_GETREGS, tid, NULL, &injection->saved) != 0 ||
      ptrace(PTRACE_GETSIGMASK, tid, (void *)sizeof(injection->mask), &injection->mask) != 0 ||
      (signal != 0 && ptrace(PTRACE_GETSIGINFO, tid, NULL, &injection->signal) != 0)) {
    return errno == ESRCH ? CT_ESRCH : CT_EIO;
  }
  injection->mask = mask != NULL ? *mask : injection->mask;
  make_restore_stub(injection, &stub);
  int code = ct_process_read(process, area, injection->under, sizeof(injection->under));
  code = code == 0 ? suspend_filter(injection) : code;
  code = code == 0 ? ct_process_write(process, area, stub.code, sizeof(stub.code)) : code;
  if (code != 0) {
    resume_filter(injection);
  }
  return code;
}

struct patience {
  const struct ct_injection *injection;
  uint64_t since;
  bool interrupted;
};

static bool
is_enough(void *context)
{
  const struct patience *patience = context;
  uint64_t most = patience->interrupted                                   ? LEAVE_NS
                  : ct_process_is_expedited(patience->injection->process) ? CALL_SOON_NS
                                                                          : CALL_NS;
  return ct_now_ns() - patience->since > most;
}

/*
 * Waits for the thread's next stop, or its end. A call that waits for something is interrupted; what cannot be
 * interrupted is not waited for: the restore stub brings the thread back.
 */
static pid_t
wait_for(struct ct_injection *injection, int *status)
{
  struct patience patience = {injection, ct_now_ns(), false};
  pid_t got = ct_wait_until(injection->tid, status, is_enough, &patience);
  if (got == 0) {
    patience = (struct patience){injection, ct_now_ns(), true};
    ptrace(PTRACE_INTERRUPT, injection->tid, NULL, NULL);
    got = ct_wait_until(injection->tid, status, is_enough, &patience);
  }
  if (got == 0) {
    injection->lost = true;
    injection->process->injection_area = 0; /* it is in there */
  }
  return got;
}

/* Lets the thread run to its next stop for a system call (request: PTRACE_SYSCALL) or for an interruption. */
static int
run_to_stop(struct ct_injection *injection, int request)
{
  for (int stops = 0; stops < STOPS_MAX; stops++) {
    int status;
    if (ptrace(request, injection->tid, NULL, NULL) != 0) {
      return CT_ESRCH;
    }
    pid_t got = wait_for(injection, &status);
    if (injection->lost) {
      return CT_ETIMEOUT;
    }
    if (got != injection->tid || !WIFSTOPPED(status)) {
      ct_process_note_end(injection->process, got, status);
      return CT_ESRCH;
    }
    bool is_event = status >> 16 != 0;
    if (request == PTRACE_SYSCALL ? WSTOPSIG(status) == SYSCALL_STOP : is_event) {
      return 0;
    }
    injection->stop_again |= !is_event && WSTOPSIG(status) == SIGSTOP; /* no other one can come */
  }
  return CT_EIO;
}

int
ct_injection_deliver(struct ct_process *process, pid_t tid, int *signal)
{
  struct ct_injection injection = {.process = process, .tid = tid};
  int status;
  if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) != 0 || ptrace(PTRACE_CONT, tid, NULL, (void *)(long)*signal) != 0) {
    return CT_ESRCH;
  }
  pid_t got = wait_for(&injection, &status);
  if (injection.lost) {
    return CT_ETIMEOUT;
  }
  if (got != tid || !WIFSTOPPED(status)) {
    ct_process_note_end(process, got, status);
    return CT_ESRCH;
  }
  *signal = status >> 16 == 0 ? WSTOPSIG(status) : 0;
  return 0;
}

static bool
send(const struct ct_injection *injection, int signal)
{
  return syscall(SYS_tgkill, injection->process->pid, injection->tid, signal) == 0;
}

/* The signal that it was about to get waits for it meanwhile, so that it gets it when the tracer dies too. */
int
ct_injection_syscall(struct ct_injection *injection, long number, const uint64_t args[6], int64_t *result)
{
  struct user_regs_struct regs = injection->saved;
  uint64_t blocked = ~0ull;
  if (injection->lost) {
    return CT_ETIMEOUT;
  }
  regs.rip = injection->area;
  regs.rax = (unsigned long long)number;
  regs.orig_rax = ~0ull;
  regs.rdi = args[0];
  regs.rsi = args[1];
  regs.rdx = args[2];
  regs.r10 = args[3];
  regs.r8 = args[4];
  regs.r9 = args[5];
  if (ptrace(PTRACE_SETREGS, injection->tid, NULL, &regs) != 0) {
    return CT_ESRCH;
  }
  if (!injection->gone) {
    injection->gone = true;
    if (ptrace(PTRACE_SETSIGMASK, injection->tid, (void *)sizeof(blocked), &blocked) != 0 ||
        (injection->signal.si_signo != 0 && injection->signal.si_signo != SIGSTOP &&
         !send(injection, injection->signal.si_signo))) {
      return CT_ESRCH;
    }
  }
  int code;
  if ((code = run_to_stop(injection, PTRACE_SYSCALL)) != 0 || (code = run_to_stop(injection, PTRACE_SYSCALL)) != 0) {
    return code;
  }
  if (ptrace(PTRACE_GETREGS, injection->tid, NULL, &regs) != 0) {
    return CT_ESRCH;
  }
  *result = (int64_t)regs.rax;
  return 0;
}

/*
 * Back to a stop out of which the kernel makes a system call again, or ends it by a handler that is due; and, when the
 * thread was about to get a signal, to a stop for that one.
 */
static int
stop_as_before(struct ct_injection *injection, int *signal)
{
  *signal = 0;
  int code = ptrace(PTRACE_INTERRUPT, injection->tid, NULL, NULL) == 0 ? run_to_stop(injection, PTRACE_CONT) : CT_ESRCH;
  if (code != 0 || injection->signal.si_signo == 0) {
    return code;
  }
  uint64_t mask = ~(1ull << (injection->signal.si_signo - 1));
  int status;
  if (ptrace(PTRACE_SETSIGMASK, injection->tid, (void *)sizeof(mask), &mask) != 0 ||
      (injection->signal.si_signo == SIGSTOP && !send(injection, SIGSTOP)) ||
      ptrace(PTRACE_CONT, injection->tid, NULL, NULL) != 0 || wait_for(injection, &status) != injection->tid ||
      !WIFSTOPPED(status)) {
    return CT_ESRCH;
  }
  if (status >> 16 == 0 && ptrace(PTRACE_SETSIGINFO, injection->tid, NULL, &injection->signal) == 0) {
    *signal = injection->signal.si_signo;
  }
  return 0;
}

int
ct_injection_end(struct ct_injection *injection, int *signal)
{
  int code = 0;
  *signal = injection->signal.si_signo;
  if (injection->gone && !injection->lost) {
    code = is_in_syscall(&injection->saved) || injection->signal.si_signo != 0 ? stop_as_before(injection, signal) : 0;
    if (code == 0 &&
        (ptrace(PTRACE_SETSIGMASK, injection->tid, (void *)sizeof(injection->mask), &injection->mask) != 0 ||
         ptrace(PTRACE_SETREGS, injection->tid, NULL, &injection->saved) != 0)) {
      code = CT_ESRCH;
    }
  }
  if (injection->lost) { /* what it was about to get waits for it, and it needs what is in the area */
    *signal = 0;
    return CT_ETIMEOUT;
  }
  resume_filter(injection);
  int put_back = ct_process_write(injection->process, injection->area, injection->under, sizeof(injection->under));
  if (injection->stop_again) {
    send(injection, SIGSTOP);
  }
  return code != 0 ? code : put_back;
}
