/* SPDX-License-Identifier: MIT */
/* Holding all threads of a running process still for a moment. Same rule as in process.h: one thread does all of it. */
#ifndef CT_PROCESS_FREEZE_H
#define CT_PROCESS_FREEZE_H

#include "process/process.h"

struct ct_errand; /* errand.h */

struct ct_frozen_thread {
  pid_t tid;
  int signal; /* that it was about to get, given back when it goes on */
  /* Since ct_frozen_find_pcs. */
  uint64_t pc, sp;
  bool in_syscall;
};

struct ct_frozen {
  struct ct_process *process;
  uint64_t since_ns;                /* when the first thread was stopped, CLOCK_MONOTONIC */
  struct ct_precedence *precedence; /* asked for; NULL: not */
  bool is_urgent;                   /* the caller's thread has been given precedence, until they go on */
  struct ct_frozen_thread *threads;
  size_t thread_count;
  uint64_t *pcs; /* where the threads stand, and where those in signal handlers were interrupted */
  size_t pc_count;
  struct ct_errand *errand; /* a thread is being used for system calls; NULL: none */
  size_t lender;            /* which */
};

/*
 * Stops every thread. CT_ETIMEOUT when one cannot be stopped within deadline_ms: then all run again. While one waits
 * for a child that it made by vfork, which is such a case, nobody is stopped yet. The process is unharmed if we die
 * meanwhile: all threads go on.
 */
int ct_process_freeze(struct ct_process *process, int deadline_ms, struct ct_frozen *frozen, struct ct_diag *diag);
/*
 * Stacks of stride bytes each that threads change to and back from: the stack pointer that they had is in the stack's
 * last word, and in rsi until it has been put there.
 */
struct ct_inner_stacks {
  uint64_t start, bytes, stride;
};
/*
 * Fills in pcs. restorers (count of them): addresses at which signal handlers return to the kernel, by which
 * interrupted places are found, also by threads that are on an inner stack.
 */
int ct_frozen_find_pcs(struct ct_frozen *frozen, const uint64_t *restorers, size_t count, struct ct_inner_stacks inner);
/* Takes out what earlier tracers left that were killed, where no thread is; after ct_frozen_find_pcs. */
int ct_frozen_sweep(struct ct_frozen *frozen);
/* A system call in the name of one of the threads; a call that it was in is restarted when it goes on. */
int ct_frozen_syscall(struct ct_frozen *frozen, long number, const uint64_t args[6], int64_t *result);
/* The base of gs of all threads: any that is not 0, or 0. */
int ct_frozen_gs_base(struct ct_frozen *frozen, uint64_t *base);
int ct_frozen_set_gs_base(struct ct_frozen *frozen, uint64_t base);
/* The stack pointer of the main thread; CT_ESRCH when that has ended before the others. */
int ct_frozen_stack_pointer(struct ct_frozen *frozen, uint64_t *sp);

/* The general registers by DWARF's numbers (System V ABI for x86-64, 3.6.2): rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8
 * to r15, rip. */
enum { CT_REGISTER_RDX = 1, CT_REGISTER_RSP = 7, CT_REGISTER_RIP = 16, CT_REGISTER_COUNT = 17 };
struct ct_registers {
  uint64_t values[CT_REGISTER_COUNT];
};
/* Of the held thread with this position in the list; *number is the system call that it is in, -1: none. 0 or CT_ESRCH.
 */
int ct_frozen_registers(const struct ct_frozen *frozen, size_t thread, struct ct_registers *registers, int64_t *number);
/*
 * Lets one thread go, of which it is known that it will end the process, and waits until it has, for at most
 * timeout_ms. The others stand still meanwhile. True when the process has ended (but for the thread that was let go, if
 * that is its first one, which is still to be waited for); ct_process_thaw afterwards in either case.
 */
bool ct_frozen_await_end(struct ct_frozen *frozen, pid_t tid, int timeout_ms);
/* All go on. The ns from when the first one was stopped until the last one was let go. */
uint64_t ct_process_thaw(struct ct_frozen *frozen);

#endif
