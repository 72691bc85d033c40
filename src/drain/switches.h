/* SPDX-License-Identifier: MIT */
/*
 * Time in which a thread of the target did not run its own code: off the processor, as the kernel reports it by
 * perf_event_open, and held by contrail. See switches.c.
 */
#ifndef CT_DRAIN_SWITCHES_H
#define CT_DRAIN_SWITCHES_H

#include "drain/thread.h"

struct drain_switches; /* opaque */

/* The process may not run meanwhile. NULL when memory is exhausted. */
struct drain_switches *drain_switches_open(int pid);
void drain_switches_close(struct drain_switches *switches);                         /* accepts NULL */
struct ct_switch_stats drain_switches_stats(const struct drain_switches *switches); /* accepts NULL */

/* Takes what the kernel has reported, so that the statistics are those of now. */
void drain_switches_read(struct drain_switches *switches);
/* The kernel reports nothing more. */
void drain_switches_give_up(struct drain_switches *switches);

/*
 * Encodes count events of the thread, and before each the intervals that ended before it. The events were copied before
 * the call: what the kernel reported before the first of them is there by then.
 */
void drain_switches_encode(struct drain_switches *switches, struct drain_thread *thread,
                           const struct ct_ring_event *events, size_t count, const uint8_t *modes,
                           uint32_t function_count);
/* The thread was stopped from one reading of the clock to another, until now. */
void drain_switches_add_stop(struct drain_switches *switches, const struct drain_thread *thread, uint64_t since,
                             uint64_t until);
/*
 * Where nothing else is known: the thread has been on the processor for cpu_ns in all: read after asked_ns (ct_now_ns)
 * and before now, since whoever reads may have been off the processor in between too. The bound that follows for the
 * time since the last call goes into its stream.
 */
void drain_switches_total(struct drain_switches *switches, const struct drain_thread *thread, uint64_t cpu_ns,
                          uint64_t asked_ns);
/*
 * The thread's stream ends: encodes what is left, up to a reading, and if the thread lives the interval that it is in.
 * Returns when it ended, 0: that is not known.
 */
uint64_t drain_switches_end(struct drain_switches *switches, struct drain_thread *thread, uint64_t until, bool lives);

#endif
