/* SPDX-License-Identifier: MIT */
/*
 * A fatal signal: a thread waits in the agent's handler with its record (agent/crash.c). All threads are held, their
 * stacks are looked at, crash.json is written, and the thread goes on to its end while the others are still held.
 */
#ifndef CT_RECORD_CRASH_H
#define CT_RECORD_CRASH_H

#include "record/modules.h"

/* True when a thread waits. */
bool ct_crash_is_pending(const struct ct_ring_header *ring);

/*
 * Serves it. process->dead is set when the process has been seen to end. On an error, of which diag has the line, the
 * process goes on to its end all the same.
 */
int ct_crash_serve(struct ct_process *process, struct ct_ring_header *ring, const struct ct_agent_place *place,
                   const struct ct_modules *modules, struct ct_trace_writer *writer, struct ct_diag *diag);

#endif
