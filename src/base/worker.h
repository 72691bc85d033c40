/* SPDX-License-Identifier: MIT */
/*
 * Threads of ours that a recording waits for, and which the program that is recorded must not starve. A program with
 * many threads can keep the processors from everybody else for seconds (seen with Linux 6.18: between sessions, so that
 * no nice value helps): the recording could neither take its events nor be ended.
 */
#ifndef CT_BASE_WORKER_H
#define CT_BASE_WORKER_H

#include <pthread.h>
#include <stdbool.h>

/*
 * As pthread_create; the attributes may be NULL and are as before afterwards, but that the class is inherited. While
 * somebody guards the workers, the thread gets a processor when it has waited for long.
 */
int ct_worker_create(pthread_t *thread, pthread_attr_t *attributes, void *(*run)(void *), void *context);

/* The caller is a worker from now on, unless there are too many, until ct_worker_leave or its end. */
void ct_worker_enter(void);
void ct_worker_leave(void);

/*
 * From now on a thread looks after all workers, at their begin and while they run: one that is runnable and has not
 * run since the last poll is put into the real-time class until it has. A worker ends in that class, since somebody
 * waits for its end. Where we may not do that (CAP_SYS_NICE,
 * RLIMIT_RTPRIO) nothing is done. Each call is taken back by one of ct_workers_unguard.
 */
void ct_workers_guard(void);
void ct_workers_unguard(void);
/* There is such a thread. */
bool ct_workers_are_guarded(void);

/*
 * Puts the caller, if it is of the normal class, into the real-time class until ct_priority_restore; false: it is in
 * another one, or we may not. What it starts meanwhile does not inherit that.
 */
bool ct_priority_raise(void);
void ct_priority_restore(void);

/* Between the two the caller keeps the class that it was started with: a process that it forks has it too. */
void ct_priority_hold(void);
void ct_priority_release(void);

#endif
