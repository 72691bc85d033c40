/* SPDX-License-Identifier: MIT */
/*
 * Threads that stay under ptrace for long, one call for each thing that is done with them. Same rule as in process.h:
 * one thread does all of it.
 */
#ifndef CT_PROCESS_TRACED_H
#define CT_PROCESS_TRACED_H

#include "process/process.h"

#include <signal.h>
#include <sys/user.h>

enum ct_traced_stop {
  CT_TRACED_RUNS,    /* it has not stopped */
  CT_TRACED_GONE,    /* it has ended: status as of waitpid */
  CT_TRACED_SIGNAL,  /* it is about to get that signal */
  CT_TRACED_STEPPED, /* a single step is over, or it is at the first instruction of a handler */
  CT_TRACED_CALL,    /* before or after a system call */
  CT_TRACED_INTERRUPTED,
  CT_TRACED_GROUP_STOP, /* its process is stopped, as by SIGSTOP */
  CT_TRACED_CHILD,      /* it has made a thread or a process (message), which is stopped, too, or about to */
  CT_TRACED_EXEC,       /* message: the id that it had before */
  CT_TRACED_ENDS,       /* it is about to end; its registers are still there */
  CT_TRACED_OTHER,      /* let it go on as it was */
};

struct ct_traced_event {
  enum ct_traced_stop stop;
  int signal;
  int status;
  bool is_reaped; /* CT_TRACED_GONE, and status says how; false: there is no such thread of ours any more */
  unsigned long message;
  siginfo_t info; /* CT_TRACED_SIGNAL */
};

/* How a stopped thread goes on. */
enum ct_traced_way {
  CT_TRACED_RUN,
  CT_TRACED_STEP,
  CT_TRACED_TO_CALL, /* up to the next CT_TRACED_CALL */
  CT_TRACED_LISTEN,  /* stays stopped with its process */
};

/* Seizes a thread and asks it to stop. 0 or an error. */
int ct_traced_seize(pid_t tid, struct ct_diag *diag);
/* The same for a thread that ct_process_spawn has stopped: it keeps its place, and the process its signal mask. */
int ct_traced_adopt(struct ct_process *process, struct ct_diag *diag);
int ct_traced_interrupt(pid_t tid);
/* Has it stopped? Does not wait. */
void ct_traced_poll(pid_t tid, struct ct_traced_event *event);
/*
 * Waits until something is to be had from ct_traced_poll, by whichever thread of this process traces it, and leaves it
 * there. tid 0: of any. False: there is nothing to wait for.
 */
bool ct_traced_await(pid_t tid);
/* The same, if the calling thread traces it. */
bool ct_traced_await_own(pid_t tid);
/* 0 or CT_ESRCH. */
int ct_traced_regs(pid_t tid, struct user_regs_struct *regs);
int ct_traced_set_regs(pid_t tid, const struct user_regs_struct *regs);
/* Its extended state (vector registers), as XSAVE's standard form has it: as much as there is, and fits. */
int ct_traced_extended(pid_t tid, void *state, size_t size);
/* Which signals it has blocked, bit 0 for signal 1. 0 or CT_ESRCH. */
int ct_traced_mask(pid_t tid, uint64_t *mask);
/* Where its struct rseq is, if it has registered one. */
bool ct_traced_rseq(pid_t tid, uint64_t *address, uint32_t *signature);
int ct_traced_set_mask(pid_t tid, uint64_t mask);
/*
 * The first thread of a process, which this thread traces, is dead, and waits for others to end. Is there one among
 * those that this thread traces, too, and has stopped? A clone whose maker was killed before it could report it is
 * unknown until then, and stays for ever where it stops on its end. 0: there is none.
 */
pid_t ct_traced_stray(pid_t leader);
/* Does the calling thread trace it? Does any thread of this process? */
bool ct_traced_is_ours(pid_t tid);
bool ct_traced_is_ours_too(pid_t tid);
int ct_traced_set_info(pid_t tid, const siginfo_t *info);
int ct_traced_go(pid_t tid, enum ct_traced_way way, int signal);
/*
 * Is SIGTRAP blocked? Sets whether it is. Where it is blocked, the kernel makes the end of a single step unblock it and
 * forget the program's handler of it.
 */
bool ct_traced_block_trap(pid_t tid, bool is_blocked);
int ct_traced_detach(pid_t tid, int signal);
/*
 * Is the thread, which has stopped, in a system call that the kernel makes again when it goes on? Then its registers
 * are changed to what they are at the system call's instruction, before it.
 */
bool ct_traced_before_syscall(struct user_regs_struct *regs);

/* System calls in its name, between the two. The thread has stopped, and not for a signal. CT_EUNSUPPORTED: it is under
 * a seccomp filter that we may not suspend, or code of ours is_to_stay in it, which the filter may end it for. */
int ct_traced_borrow(struct ct_process *process, pid_t tid, bool is_to_stay, struct ct_diag *diag);
int ct_traced_syscall(struct ct_process *process, long number, const uint64_t args[6], int64_t *result);
int ct_traced_return(struct ct_process *process);

/* What the process does with a signal. */
enum ct_disposition { CT_DISPOSITION_DEFAULT, CT_DISPOSITION_IGNORED, CT_DISPOSITION_CAUGHT };
enum ct_disposition ct_traced_disposition(pid_t pid, int signal);

#endif
