/* SPDX-License-Identifier: MIT */
/*
 * A fatal signal: a thread waits in the agent's handler with its record (agent/crash.c). All threads are stopped, their
 * stacks are looked at, crash.json is written, and the thread goes on to its end while the others are still stopped.
 */
#ifndef CT_RECORD_CRASH_H
#define CT_RECORD_CRASH_H

#include "record/modules.h"

/* True when a thread waits. */
bool ct_crash_is_pending(const struct ct_ring_parts *ring);

/*
 * Serves it. process->dead is set when the process has been seen to end. On an error, of which diag has the line, the
 * process goes on to its end all the same.
 */
/* The thread goes on, and nothing is looked at. */
void ct_crash_dismiss(const struct ct_ring_parts *ring);
int ct_crash_serve(struct ct_process *process, const struct ct_ring_parts *ring, const struct ct_agent_layout *layout,
                   const struct ct_modules *modules, struct ct_trace_writer *writer, struct ct_drain *drain,
                   struct ct_diag *diag);

#endif
