/* SPDX-License-Identifier: MIT */
/*
 * The signals that reach contrail record, which stands between a program and whoever controls it: the terminal, a
 * shell with its jobs, a supervisor. See signals.c.
 */
#ifndef CT_CLI_SIGNALS_H
#define CT_CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct ct_signals;

/* The program has been sent SIGTERM by us and goes on all the same; called once, by another thread. */
typedef void ct_signals_unheard(void *context);

/* Blocks all signals, before there is any other thread. NULL: out of memory or descriptors. */
struct ct_signals *ct_signals_create(void);
/* What was blocked before: the program's mask. */
const sigset_t *ct_signals_mask(const struct ct_signals *signals);
/* From now on the program is there, still stopped: what comes is handed on to it. False: no thread can be started. */
bool ct_signals_serve(struct ct_signals *signals, pid_t program, ct_signals_unheard *unheard, void *context);
/* The program has ended: from now on signals that end programs set ct_signals_enough. */
void ct_signals_forget_program(struct ct_signals *signals);
bool ct_signals_enough(const struct ct_signals *signals);
/*
 * The program was ended by this signal. If that was sent to contrail too it ends contrail, so that who has sent it, a
 * shell say, sees what it would have seen of the program. Else this returns.
 */
void ct_signals_die_of(const struct ct_signals *signals, int signal);
/* The callback is called no more. Signals that come wait for ever. */
void ct_signals_stop(struct ct_signals *signals);
/* Signals stay blocked. NULL is allowed. */
void ct_signals_destroy(struct ct_signals *signals);

#endif
