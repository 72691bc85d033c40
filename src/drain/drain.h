/* SPDX-License-Identifier: MIT */
/*
 * From the ring to the trace: takes segments over from the target's threads, turns events into calls and returns
 * with depth, and hands them to the encoders. See drain.c.
 */
#ifndef CT_DRAIN_DRAIN_H
#define CT_DRAIN_DRAIN_H

#include "base/precedence.h"
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

/* Of the calls of light hooks one of 2^log2 is recorded, fixed or as a beginning; see drain/sampling.h. */
struct ct_sampling_options {
  bool adapts;
  uint32_t log2;     /* at most CT_SAMPLE_LOG2_MAX */
  int mem_fd;        /* /proc/PID/mem of the process, open for writing; -1: threads keep what they begin with */
  uint64_t controls; /* address of the control pages in it */
};

/* What the program wrote to its standard output and error, in bytes. */
struct ct_print_stats {
  uint64_t given[2]; /* to calls for descriptor 1 and 2 */
  uint64_t recorded;
  uint64_t dropped; /* there was no room in the ring, or calls were given more than is taken of one */
  uint64_t limit;   /* the most that is recorded */
};

#define CT_SAMPLING_HISTORY 1000u
struct ct_sampling_change {
  uint64_t ns; /* CLOCK_MONOTONIC */
  uint32_t interval;
};

struct ct_sampling_state {
  bool adapts;
  uint32_t interval; /* in force */
  uint64_t changes;
  uint32_t last_count; /* of the changes, the last ones */
  struct ct_sampling_change last[CT_SAMPLING_HISTORY];
};

/*
 * lock guards the writer: held while events are encoded; the caller takes it for its own calls of the writer. Calls
 * deeper than max_depth are left out, on each stack; UINT32_MAX: none. The drain gives way to whoever asks for
 * precedence.
 */
int ct_drain_create(struct ct_trace_writer *writer, pthread_mutex_t *lock, uint32_t max_depth,
                    const struct ct_precedence *precedence, struct ct_drain **out);

/*
 * Begins with the ring of a new image of process pid. Between two images the drain must be stopped. The mode of
 * function id is told with ct_drain_function_mode before any of its events can arrive.
 */
int ct_drain_start(struct ct_drain *drain, struct ct_ring_header *ring, int pid);
/* Before ct_drain_start, for each image; the interval in force stays from one to the next. */
void ct_drain_sample(struct ct_drain *drain, const struct ct_sampling_options *options);
void ct_drain_function_mode(struct ct_drain *drain, uint32_t fn, uint8_t mode);
/* Before ct_drain_start, for each image: limit bytes of what the program writes are recorded in all, 0: nothing. */
void ct_drain_print(struct ct_drain *drain, uint64_t limit);
/* Under the lock. */
struct ct_print_stats ct_drain_print_stats(const struct ct_drain *drain);
/* Takes everything that is left, ends the drain's thread. exec_tid: the thread that went on to a new image, 0: the
 * process has ended. */
void ct_drain_stop(struct ct_drain *drain, int exec_tid);

size_t ct_drain_threads(const struct ct_drain *drain, const struct ct_drain_thread_info **threads);
void ct_drain_stats(const struct ct_drain *drain, struct ct_drain_stats *stats);
/* What there was at most some 100 ms ago, without the lock, which a slow disk may keep taken. */
struct ct_drain_numbers {
  uint64_t events, dropped, changes; /* changes: of the interval */
  uint32_t interval;                 /* of light hooks */
};
void ct_drain_numbers(const struct ct_drain *drain, struct ct_drain_numbers *numbers);
/* Under the lock. */
void ct_drain_sampling(const struct ct_drain *drain, struct ct_sampling_state *state);
void ct_drain_free(struct ct_drain *drain); /* accepts NULL; the drain must be stopped */

#endif
