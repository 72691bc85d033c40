/* SPDX-License-Identifier: MIT */
/* Waiting for threads that this thread traces, never without end. Inside process/ only. */
#ifndef CT_PROCESS_WAIT_H
#define CT_PROCESS_WAIT_H

#include "process/process.h"

/*
 * Waits for the next stop of a traced thread, or its end; as waitpid, but never for a zombie that the kernel does
 * not report: a leader that has been killed is reported only when all other threads have been waited for (-1, ESRCH).
 * tid -1: of any thread that this one traces. 0: is_enough has said so, which is asked again and again.
 */
pid_t ct_wait_until(pid_t tid, int *status, bool (*is_enough)(void *context), void *context);

/* A thread that has been seized and interrupted and does not stop: it is resumed when it does
 * (ct_process_release_late). */
void ct_process_leave_running(struct ct_process *process, pid_t tid);

#endif
