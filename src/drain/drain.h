/* SPDX-License-Identifier: MIT */
/*
 * From the ring to the trace: takes segments over from the target's threads, turns events into calls and returns
 * with depth, and hands them to the encoders. See drain.c.
 */
#ifndef CT_DRAIN_DRAIN_H
#define CT_DRAIN_DRAIN_H

#include "ring/layout.h"
#include "trace/writer.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct ct_drain; /* opaque */

/* What is known of a thread of the target, for the manifest. */
struct ct_drain_thread_info {
  uint32_t index;
  uint32_t tid;
  char name[32];
  uint64_t events;
  uint64_t dropped;
};

struct ct_drain_stats {
  uint64_t events;
  uint64_t dropped; /* all reasons */
  uint64_t dropped_overwritten, dropped_no_segment, dropped_holes, dropped_no_slot, dropped_no_stack;
  uint64_t segments;
};

/*
 * lock guards the writer: held while events are encoded; the caller takes it for its own calls of the writer. Calls
 * deeper than max_depth are left out, on each stack; UINT32_MAX: none.
 */
int ct_drain_create(struct ct_trace_writer *writer, pthread_mutex_t *lock, uint32_t max_depth, struct ct_drain **out);

/*
 * Begins with the ring of a new image of process pid. Between two images the drain must be stopped. The mode of
 * function id is told with ct_drain_function_mode before any of its events can arrive.
 */
int ct_drain_start(struct ct_drain *drain, struct ct_ring_header *ring, int pid);
void ct_drain_function_mode(struct ct_drain *drain, uint32_t fn, uint8_t mode);
/* Takes everything that is left, ends the drain's thread. exec_tid: the thread that went on to a new image, 0: the
 * process has ended. */
void ct_drain_stop(struct ct_drain *drain, int exec_tid);

size_t ct_drain_threads(const struct ct_drain *drain, const struct ct_drain_thread_info **threads);
void ct_drain_stats(const struct ct_drain *drain, struct ct_drain_stats *stats);
void ct_drain_free(struct ct_drain *drain); /* accepts NULL; the drain must be stopped */

#endif
