/* SPDX-License-Identifier: MIT */
/*
 * The stacks that the threads of a process have when it is attached to. Registers and stacks are copied while the
 * threads are stopped, and looked at when they run again: by a thread of its own, or by the drain, which wants the
 * frames of a thread before its first event. stacks.json is written when all are known.
 */
#ifndef CT_RECORD_STACKS_H
#define CT_RECORD_STACKS_H

#include "process/stop.h"
#include "record/modules.h"

struct ct_stacks; /* opaque */

/* Before the process is stopped: opens the files of its modules. NULL: nothing can be looked at. */
struct ct_stacks *ct_stacks_create(const struct ct_process *process, struct ct_trace_writer *writer);
/* While it is stopped, and has nothing of ours in it. */
void ct_stacks_copy(struct ct_stacks *stacks, const struct ct_stopped *stopped);
/* While it is stopped, when its modules have been hooked: which functions have ids, and events. */
void ct_stacks_know(struct ct_stacks *stacks, const struct ct_modules *modules);
/* The process is about to run. The drain gets the frames. */
void ct_stacks_begin(struct ct_stacks *stacks, struct ct_drain *drain);
/* Waits until stacks.json is written. Accepts NULL. */
void ct_stacks_free(struct ct_stacks *stacks);

#endif
