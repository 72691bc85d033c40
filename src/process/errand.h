/* SPDX-License-Identifier: MIT */
/*
 * System calls in the name of a thread that ptrace holds, so that the process is unharmed whenever the tracer dies: see
 * errand.c. Inside process/ only; the thread that attached does all of it (a rule of ptrace).
 */
#ifndef CT_PROCESS_ERRAND_H
#define CT_PROCESS_ERRAND_H

#include "process/process.h"

#include <signal.h>
#include <sys/user.h>

#define CT_ERRAND_BYTES   256u /* of code that an errand puts into the process */
#define CT_ERRAND_NAME_AT (CT_ERRAND_BYTES - 40)

struct ct_errand {
  struct ct_process *process;
  pid_t tid;
  uint64_t area;
  uint64_t mask; /* the thread's own signal mask */
  struct user_regs_struct saved;
  uint8_t under[CT_ERRAND_BYTES]; /* what the area held */
  siginfo_t signal;               /* that the thread was about to get; si_signo 0: none */
  bool gone;                      /* the thread is on its way: not where it stopped */
  bool stop_again;                /* a SIGSTOP came meanwhile */
};

/* CT_ERRAND_BYTES of executable memory that nothing uses, for an errand's code; 0 when there are none. */
uint64_t ct_errand_area(const struct ct_process *process);
/*
 * Takes out the code that errands of dead tracers left behind, where none of those addresses (where threads stand, and
 * where handlers return to) is in it.
 */
int ct_errand_sweep(const struct ct_process *process, const uint64_t *pcs, size_t count);
/*
 * Makes ready. The thread is stopped, in a stop for that signal if it is not 0. mask: its own one when it is already
 * replaced, else NULL.
 */
int ct_errand_begin(struct ct_errand *errand, struct ct_process *process, pid_t tid, uint64_t area, int signal,
                    const uint64_t *mask);
/* CT_ESRCH when the thread died over it. */
int ct_errand_syscall(struct ct_errand *errand, long number, const uint64_t args[6], int64_t *result);
/* The thread stands again where it stopped; *signal is what it is about to get. */
int ct_errand_end(struct ct_errand *errand, int *signal);

#endif
