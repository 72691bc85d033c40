/* SPDX-License-Identifier: MIT */
/* Inside the drain: events that need little but their op are taken many at a time. */
#ifndef CT_DRAIN_RUNS_H
#define CT_DRAIN_RUNS_H

#include "drain/thread.h"

/* So many events of a full segment are read before the next are; those come into the cache meanwhile. */
#define DRAIN_PIECE 256u

/*
 * Takes events from the first on, as long as they are enters and returns, with values of the frame at hand or without,
 * or calls of sampled hooks: on the stack at hand, no frame is left without a return, time does not run backwards, and
 * there is room. Returns how many; what comes then is for the caller, or begins another run. There are no rules about
 * the thread.
 */
size_t drain_take_run(struct drain_thread *thread, const struct ct_ring_event *events, size_t count,
                      uint32_t function_count);

#endif
