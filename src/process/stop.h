/* SPDX-License-Identifier: MIT */
/* Stops all threads of a running process for a moment. Same rule as in process.h: one thread does all of it. */
#ifndef CT_PROCESS_STOP_H
#define CT_PROCESS_STOP_H

#include "process/process.h"

struct ct_injection; /* injection.h */

struct ct_stopped_thread {
  pid_t tid;
  int signal; /* that it was about to get, given back when it goes on */
  /* Since ct_stopped_find_pcs. */
  uint64_t pc, sp, gs_base;
  bool in_syscall;
};

struct ct_stopped {
  struct ct_process *process;
  uint64_t since_ns;                      /* when the first thread was stopped, CLOCK_MONOTONIC */
  struct ct_pause_request *pause_request; /* asked for; NULL: not */
  bool priority_is_raised;                /* the caller's thread has a raised priority, until they go on */
  struct ct_stopped_thread *threads;
  size_t thread_count;
  uint64_t *pcs; /* where the threads stand, and where those in signal handlers were interrupted; sorted: there may be
                    thousands for each thread, and each function that is hooked asks for them */
  size_t pc_count;
  struct ct_mappings mappings;    /* as they were when pcs were found, for ct_stopped_sweep; no items: not known */
  struct ct_injection *injection; /* a thread is being used for system calls; NULL: none */
  size_t lender;                  /* which */
  bool is_lost;                   /* it has not come back: no further system calls */
};

/*
 * Stops every thread. CT_ETIMEOUT when one cannot be stopped within deadline_ms: then all run again. While one waits
 * for a child that it made by vfork, which is such a case, nobody is stopped yet. The process is unharmed if we die
 * meanwhile: all threads go on.
 */
int ct_process_stop(struct ct_process *process, int deadline_ms, struct ct_stopped *stopped, struct ct_diag *diag);
/*
 * Stacks of stride bytes each that threads change to and back from: the stack pointer that they had is in the stack's
 * last word, and in rsi until it has been put there.
 */
struct ct_inner_stacks {
  uint64_t start, bytes, stride;
  int64_t store_delta; /* a return address that is replaced is kept so far from its place; 0: none is */
};
/*
 * Fills in pcs. restorers (count of them): addresses at which signal handlers return to the kernel, by which
 * interrupted places are found, also by threads that are on an inner stack. CT_ETIMEOUT: there is so much on their
 * stacks that it takes too long.
 */
int ct_stopped_find_pcs(struct ct_stopped *stopped, const uint64_t *restorers, size_t count,
                        struct ct_inner_stacks inner);
/* Takes out what earlier tracers left that were killed, where no thread is; after ct_stopped_find_pcs. */
int ct_stopped_sweep(struct ct_stopped *stopped);
/*
 * A system call in the name of one of the threads; a call that it was in is restarted when it goes on. CT_EUNSUPPORTED:
 * none may be made, as all are under a seccomp filter that we may not suspend (ct_stopped_may_call), or there is no
 * room for the code.
 */
int ct_stopped_syscall(struct ct_stopped *stopped, long number, const uint64_t args[6], int64_t *result);
bool ct_stopped_may_call(struct ct_stopped *stopped);
/*
 * A process that has the memory of this one and is no thread of it (clone with CLONE_VM), which nobody has stopped; 0:
 * there is none, or none that we may know of. A child of vfork is none: its parent would not stop.
 */
pid_t ct_stopped_sharer(const struct ct_stopped *stopped);
/* A thread whose system calls come to the program itself (Syscall User Dispatch); 0: there is none. */
pid_t ct_stopped_dispatched(const struct ct_stopped *stopped);
/* The base of gs of all threads: any that is not 0, or 0. */
int ct_stopped_gs_base(struct ct_stopped *stopped, uint64_t *base);
int ct_stopped_set_gs_base(struct ct_stopped *stopped, uint64_t base);
/* 0 for those whose base is in one of the ranges, [start, bytes]: what is somebody else's stays. */
int ct_stopped_clear_gs_base(struct ct_stopped *stopped, const uint64_t (*ranges)[2], size_t count);
/* The stack pointer of the main thread; CT_ESRCH when that has ended before the others. */
int ct_stopped_stack_pointer(struct ct_stopped *stopped, uint64_t *sp);

/* The general registers by DWARF's numbers (System V ABI for x86-64, 3.6.2): rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8
 * to r15, rip. */
enum {
  CT_REGISTER_RDX = 1,
  CT_REGISTER_RBX = 3,
  CT_REGISTER_RBP = 6,
  CT_REGISTER_RSP = 7,
  CT_REGISTER_R15 = 15,
  CT_REGISTER_RIP = 16,
  CT_REGISTER_COUNT = 17
};
struct ct_registers {
  uint64_t values[CT_REGISTER_COUNT];
};
/* Of the stopped thread with this position; *number: the system call that it is in, -1: none. 0 or CT_ESRCH. */
int ct_stopped_registers(const struct ct_stopped *stopped, size_t thread, struct ct_registers *registers,
                         int64_t *number);
/* Has the stopped thread go on with these; a system call that it was in is not restarted. 0 or CT_ESRCH. */
int ct_stopped_send(struct ct_stopped *stopped, size_t thread, const struct ct_registers *registers);
/*
 * Resumes one thread that is known to end the process, and waits until it has, for at most
 * timeout_ms. The others stay stopped meanwhile. True when the process has ended (but for the thread that was resumed,
 * if that is its first one, which is still to be waited for); ct_process_resume afterwards in either case.
 */
bool ct_stopped_await_end(struct ct_stopped *stopped, pid_t tid, int timeout_ms);
/* All go on. The ns from when the first one was stopped until the last one was resumed. */
uint64_t ct_process_resume(struct ct_stopped *stopped);

#endif
