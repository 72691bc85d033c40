/* SPDX-License-Identifier: MIT */
/*
 * System calls in the name of a thread that ptrace has stopped, so that the process is unharmed whenever the tracer
 * dies: see injection.c. Inside process/ only; the thread that attached does all of it (a rule of ptrace).
 */
#ifndef CT_PROCESS_INJECTION_H
#define CT_PROCESS_INJECTION_H

#include "process/process.h"

#include <signal.h>
#include <sys/user.h>

#define CT_INJECTION_BYTES   256u /* of code that an injection puts into the process */
#define CT_INJECTION_NAME_AT (CT_INJECTION_BYTES - 40)

/*
 * Whose system calls come to the program itself (Syscall User Dispatch), as ptrace has it (Linux 6.4).
 *
 *   offset  0 8 mode      0: off, 1: on
 *           8 8 selector  address of the byte that says whether they do; 0: always
 *          16 8 offset    begin of the code whose system calls are let through
 *          24 8 length    of it
 */
struct ct_dispatch {
  uint64_t mode, selector, offset, length;
};

struct ct_injection {
  struct ct_process *process;
  pid_t tid;
  uint64_t area;
  uint64_t mask; /* the thread's own signal mask */
  struct user_regs_struct saved;
  uint8_t under[CT_INJECTION_BYTES]; /* what the area held */
  siginfo_t signal;                  /* that the thread was about to get; si_signo 0: none */
  long options;                      /* of ptrace, that the thread is traced with */
  struct ct_dispatch dispatch;       /* off until the end; mode 0: there is none */
  bool is_suspended;                 /* its seccomp filter is, until the end */
  bool gone;                         /* the thread is on its way: not where it stopped */
  bool stop_again;                   /* a SIGSTOP came meanwhile */
  bool lost;                         /* the thread did not come back from a system call in time: it does so by itself */
};

/* CT_INJECTION_BYTES of executable memory that nothing uses, for injected code; 0 when there are none. */
uint64_t ct_injection_area(const struct ct_process *process);
/*
 * Takes out the code that dead tracers left behind, where none of those addresses (where threads stand, and
 * where handlers return to) is in it.
 */
int ct_injection_sweep(const struct ct_process *process, const struct ct_mappings *mappings, const uint64_t *pcs,
                       size_t count);
/*
 * A thread that is in a stop for a signal gets it, and stops again before it does anything more; *signal: another one
 * that it is about to get, or 0. CT_ESRCH: it has ended. CT_ETIMEOUT: it does not stop.
 */
int ct_injection_deliver(struct ct_process *process, pid_t tid, int *signal);
/*
 * Makes ready. The thread is stopped, in a stop for that signal if it is not 0. options: of ptrace, that it is traced
 * with. mask: its own one when it is already replaced, else NULL. CT_EUNSUPPORTED: there is no area, or the thread is
 * under a seccomp filter, which may forbid the calls, and that we may not suspend.
 */
int ct_injection_begin(struct ct_injection *injection, struct ct_process *process, pid_t tid, long options,
                       uint64_t area, int signal, const uint64_t *mask);
/*
 * CT_ESRCH when the thread died over it. CT_ETIMEOUT: it waits in there for something that does not come; it is not
 * held any more, and goes on from where it stopped when it comes. No further call is made then.
 */
int ct_injection_syscall(struct ct_injection *injection, long number, const uint64_t args[6], int64_t *result);
/* The stopped thread's; mode 0 where there is none, or the kernel cannot tell. */
struct ct_dispatch ct_injection_dispatch(pid_t tid);
/* The thread stands again where it stopped; *signal is what it is about to get. */
int ct_injection_end(struct ct_injection *injection, int *signal);

#endif
