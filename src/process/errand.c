/* SPDX-License-Identifier: MIT */
/*
 * An errand: a stopped thread is sent to make system calls of ours, and comes back to where it stood.
 *
 * The tracer may be killed at any moment; then the kernel lets the thread go as it is. So the code that the thread is
 * sent to brings it back by itself:
 *
 *   syscall                      here it is sent, number and arguments in registers
 *   rt_sigprocmask(SETMASK)      its own signal mask
 *   popfq, registers, jmp        as they were when it stopped; a system call it was in is made again
 *
 * With a living tracer the thread stops (PTRACE_SYSCALL) in front of and behind its system call and goes no further:
 * its registers and mask are put back by ptrace. No single step: a tracer that dies would leave the trap flag behind,
 * and SIGTRAP with it. All signals are blocked on the way, so that no handler runs while other threads stand still.
 */
#include "process/errand.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SYSCALL_STOP (SIGTRAP | 0x80)
#define STOPS_MAX    64

/* What the kernel keeps in rax of a thread that is stopped in a system call (linux/errno.h). */
enum { RESTART_SYS = -512, RESTART_NO_INTR = -513, RESTART_NO_HAND = -514, RESTART_BLOCK = -516 };

struct way_back {
  uint8_t code[CT_ERRAND_BYTES];
  size_t length;
};

static void
put(struct way_back *way, const char *bytes, size_t count)
{
  memcpy(way->code + way->length, bytes, count);
  way->length += count;
}

static void
put_u64(struct way_back *way, const char *opcode, size_t count, uint64_t value)
{
  put(way, opcode, count);
  memcpy(way->code + way->length, &value, sizeof(value));
  way->length += sizeof(value);
}

static bool
is_in_syscall(const struct user_regs_struct *regs)
{
  int64_t rax = (int64_t)regs->rax;
  return (int64_t)regs->orig_rax >= 0 && (rax == RESTART_BLOCK || (rax <= RESTART_SYS && rax >= RESTART_NO_HAND));
}

static void
make_way_back(const struct ct_errand *errand, struct way_back *way)
{
  struct user_regs_struct to = errand->saved;
  if (is_in_syscall(&to)) {
    to.rax = (int64_t)to.rax == RESTART_BLOCK ? SYS_restart_syscall : to.orig_rax;
    to.rip -= 2;
  }
  uint64_t data = errand->area + CT_ERRAND_BYTES - 24; /* mask, flags, rip */
  memset(way, 0, sizeof(*way));
  put(way, "\x0f\x05", 2);                            /* syscall */
  put(way, "\xb8\x0e\0\0\0\xbf\x02\0\0\0", 10);       /* mov $SYS_rt_sigprocmask, %eax; mov $SIG_SETMASK, %edi */
  put_u64(way, "\x48\xbe", 2, data);                  /* mov $data, %rsi */
  put(way, "\x31\xd2\x41\xba\x08\0\0\0\x0f\x05", 10); /* xor %edx, %edx; mov $8, %r10d; syscall */
  put_u64(way, "\x48\xbc", 2, data + 8);              /* mov $flags, %rsp */
  put(way, "\x9d", 1);                                /* popfq */
  put_u64(way, "\x48\xb8", 2, to.rax);
  put_u64(way, "\x48\xb9", 2, to.rcx);
  put_u64(way, "\x48\xba", 2, to.rdx);
  put_u64(way, "\x48\xbe", 2, to.rsi);
  put_u64(way, "\x48\xbf", 2, to.rdi);
  put_u64(way, "\x48\xbc", 2, to.rsp);
  put_u64(way, "\x49\xb8", 2, to.r8);
  put_u64(way, "\x49\xb9", 2, to.r9);
  put_u64(way, "\x49\xba", 2, to.r10);
  put_u64(way, "\x49\xbb", 2, to.r11);
  put(way, "\xff\x25", 2); /* jmp *rip(%rip) */
  int32_t distance = (int32_t)(CT_ERRAND_BYTES - 8 - (way->length + 4));
  put(way, (const char *)&distance, sizeof(distance));
  way->length = CT_ERRAND_NAME_AT;
  put(way, "contrail\0\0\0\0\0\0\0", 16);
  uint64_t words[3] = {errand->mask, to.eflags, to.rip};
  put(way, (const char *)words, sizeof(words));
}

/* What a way back looks like there, wherever it goes: a byte counts where it is the same for all registers. */
static bool
is_way_back(const uint8_t *code, uint64_t area)
{
  struct ct_errand errand = {.area = area};
  struct way_back low, high;
  make_way_back(&errand, &low);
  memset(&errand.saved, 0xff, sizeof(errand.saved));
  errand.mask = ~0ull;
  make_way_back(&errand, &high);
  for (size_t i = 0; i < CT_ERRAND_BYTES; i++) {
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
  uint8_t bytes[CT_ERRAND_BYTES + 64];
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
  return mapping->end - CT_ERRAND_BYTES;
}

uint64_t
ct_errand_area(const struct ct_process *process)
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
    if (pcs[i] >= area && pcs[i] < area + CT_ERRAND_BYTES) {
      return true;
    }
  }
  return false;
}

int
ct_errand_sweep(const struct ct_process *process, const uint64_t *pcs, size_t count)
{
  static const uint8_t zeros[CT_ERRAND_BYTES];
  struct ct_mappings mappings;
  int code = ct_process_mappings(process->pid, &mappings);
  for (size_t i = 0; i < mappings.count && code == 0; i++) {
    const struct ct_mapping *mapping = &mappings.items[i];
    uint8_t bytes[CT_ERRAND_BYTES];
    uint64_t area = mapping->end - CT_ERRAND_BYTES;
    if (mapping->executable && mapping->readable && ct_process_read(process, area, bytes, sizeof(bytes)) == 0 &&
        is_way_back(bytes, area) && !anybody_in(area, pcs, count)) {
      code = ct_process_write(process, area, zeros, sizeof(zeros));
    }
  }
  ct_mappings_free(&mappings);
  return code;
}

int
ct_errand_begin(struct ct_errand *errand, struct ct_process *process, pid_t tid, uint64_t area, int signal,
                const uint64_t *mask)
{
  struct way_back way;
  memset(errand, 0, sizeof(*errand));
  errand->process = process;
  errand->tid = tid;
  errand->area = area;
  if (area == 0) {
    return CT_EUNSUPPORTED;
  }
  if (ptrace(PTRACE_GETREGS, tid, NULL, &errand->saved) != 0 ||
      ptrace(PTRACE_GETSIGMASK, tid, (void *)sizeof(errand->mask), &errand->mask) != 0 ||
      (signal != 0 && ptrace(PTRACE_GETSIGINFO, tid, NULL, &errand->signal) != 0)) {
    return errno == ESRCH ? CT_ESRCH : CT_EIO;
  }
  errand->mask = mask != NULL ? *mask : errand->mask;
  make_way_back(errand, &way);
  int code = ct_process_read(process, area, errand->under, sizeof(errand->under));
  return code != 0 ? code : ct_process_write(process, area, way.code, sizeof(way.code));
}

/* Lets the thread run to its next stop for a system call (request: PTRACE_SYSCALL) or for an interruption. */
static int
run_to_stop(struct ct_errand *errand, int request)
{
  for (int stops = 0; stops < STOPS_MAX; stops++) {
    int status;
    pid_t got;
    if (ptrace(request, errand->tid, NULL, NULL) != 0) {
      return CT_ESRCH;
    }
    do {
      got = waitpid(errand->tid, &status, __WALL);
    } while (got < 0 && errno == EINTR);
    if (got != errand->tid || !WIFSTOPPED(status)) {
      ct_process_note_end(errand->process, got, status);
      return CT_ESRCH;
    }
    bool is_event = status >> 16 != 0;
    if (request == PTRACE_SYSCALL ? WSTOPSIG(status) == SYSCALL_STOP : is_event) {
      return 0;
    }
    errand->stop_again |= !is_event && WSTOPSIG(status) == SIGSTOP; /* no other one can come */
  }
  return CT_EIO;
}

static bool
send(const struct ct_errand *errand, int signal)
{
  return syscall(SYS_tgkill, errand->process->pid, errand->tid, signal) == 0;
}

/* The signal that it was about to get waits for it meanwhile, so that it gets it when the tracer dies too. */
int
ct_errand_syscall(struct ct_errand *errand, long number, const uint64_t args[6], int64_t *result)
{
  struct user_regs_struct regs = errand->saved;
  uint64_t blocked = ~0ull;
  regs.rip = errand->area;
  regs.rax = (unsigned long long)number;
  regs.orig_rax = ~0ull;
  regs.rdi = args[0];
  regs.rsi = args[1];
  regs.rdx = args[2];
  regs.r10 = args[3];
  regs.r8 = args[4];
  regs.r9 = args[5];
  if (ptrace(PTRACE_SETREGS, errand->tid, NULL, &regs) != 0) {
    return CT_ESRCH;
  }
  if (!errand->gone) {
    errand->gone = true;
    if (ptrace(PTRACE_SETSIGMASK, errand->tid, (void *)sizeof(blocked), &blocked) != 0 ||
        (errand->signal.si_signo != 0 && errand->signal.si_signo != SIGSTOP &&
         !send(errand, errand->signal.si_signo))) {
      return CT_ESRCH;
    }
  }
  int code = run_to_stop(errand, PTRACE_SYSCALL);
  if (code == 0) {
    code = run_to_stop(errand, PTRACE_SYSCALL);
  }
  if (code == 0 && ptrace(PTRACE_GETREGS, errand->tid, NULL, &regs) != 0) {
    code = CT_ESRCH;
  }
  if (code == 0) {
    *result = (int64_t)regs.rax;
  }
  return code;
}

/*
 * Back to a stop out of which the kernel makes a system call again, or ends it by a handler that is due; and, when the
 * thread was about to get a signal, to a stop for that one.
 */
static int
stop_as_before(struct ct_errand *errand, int *signal)
{
  *signal = 0;
  int code = ptrace(PTRACE_INTERRUPT, errand->tid, NULL, NULL) == 0 ? run_to_stop(errand, PTRACE_CONT) : CT_ESRCH;
  if (code != 0 || errand->signal.si_signo == 0) {
    return code;
  }
  uint64_t mask = ~(1ull << (errand->signal.si_signo - 1));
  int status;
  if (ptrace(PTRACE_SETSIGMASK, errand->tid, (void *)sizeof(mask), &mask) != 0 ||
      (errand->signal.si_signo == SIGSTOP && !send(errand, SIGSTOP)) ||
      ptrace(PTRACE_CONT, errand->tid, NULL, NULL) != 0 || waitpid(errand->tid, &status, __WALL) != errand->tid ||
      !WIFSTOPPED(status)) {
    return CT_ESRCH;
  }
  if (status >> 16 == 0 && ptrace(PTRACE_SETSIGINFO, errand->tid, NULL, &errand->signal) == 0) {
    *signal = errand->signal.si_signo;
  }
  return 0;
}

int
ct_errand_end(struct ct_errand *errand, int *signal)
{
  int code = 0;
  *signal = errand->signal.si_signo;
  if (errand->gone) {
    code = is_in_syscall(&errand->saved) || errand->signal.si_signo != 0 ? stop_as_before(errand, signal) : 0;
    if (code == 0 && (ptrace(PTRACE_SETSIGMASK, errand->tid, (void *)sizeof(errand->mask), &errand->mask) != 0 ||
                      ptrace(PTRACE_SETREGS, errand->tid, NULL, &errand->saved) != 0)) {
      code = CT_ESRCH;
    }
  }
  int put_back = ct_process_write(errand->process, errand->area, errand->under, sizeof(errand->under));
  if (errand->stop_again) {
    send(errand, SIGSTOP);
  }
  return code != 0 ? code : put_back;
}
