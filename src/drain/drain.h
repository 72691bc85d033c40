/* SPDX-License-Identifier: MIT */
/*
 * From the ring to the trace: takes segments over from the target's threads, turns events into calls and returns
 * with depth, and hands them to the encoders. See drain.c.
 */
#ifndef CT_DRAIN_DRAIN_H
#define CT_DRAIN_DRAIN_H

#include "base/pause_request.h"
#include "ring/layout.h"
#include "trace/writer.h"

#include <contrail/trace.h>

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
  uint64_t waited_ticks;        /* for room */
  uint64_t swaps, detail_swaps; /* segments that it has taken, of events and of the detail lane */
  uint64_t skipped;             /* hooks that came while it was in the agent */
  uint64_t cpu_ns, delay_ns;    /* on the processor, and ready to run without one: as last seen in schedstat */
  uint64_t end_tsc;             /* until when it lived, as far as is known; 0: to the end of the recording */
  bool end_is_exact;            /* the kernel has reported it */
  bool exited;                  /* others have made calls since then: the program did not end with it */
};

/* Where it is known from when threads were off the processor. */
enum ct_switches_source {
  CT_SWITCHES_NONE = 0,       /* it was not looked for */
  CT_SWITCHES_THREADS = 1,    /* perf events of each thread */
  CT_SWITCHES_PROCESSORS = 2, /* ... of whole processors */
  CT_SWITCHES_TOTALS = 3,     /* there may be none: only sums are known */
};
struct ct_switch_stats {
  enum ct_switches_source source;
  int error;        /* of TOTALS: errno */
  bool is_given_up; /* they were known before, but that cost too much */
  uint64_t switches, lost;
};

/* Threads that have ended, and of which nothing is kept, where only the last stretch is: they are in no list. */
struct ct_drain_retired {
  uint64_t threads, events, waited_ticks;
};

/* What hooks have written, by what it cost them; of sampled hooks also the calls that they did not record. */
enum ct_hook_event {
  CT_HOOK_EVENT_HALF = 0,  /* an enter, tail call or return of a full hook */
  CT_HOOK_EVENT_POINT = 1, /* of an enter-only hook */
  CT_HOOK_EVENT_SAMPLED = 2,
  CT_HOOK_EVENT_PASSED_OVER = 3,
  CT_HOOK_EVENT_VALUE = 4,
  CT_HOOK_EVENT_DETAIL = 5, /* where a detail record is */
  CT_HOOK_EVENT_OTHER = 6,
  CT_HOOK_EVENT_COUNTED = 7, /* a call that has no event */
  CT_HOOK_EVENT_COUNT = 8,
};

/* Under a budget: calls of a function so far, since the drain was made. */
struct ct_drain_tally {
  _Atomic uint64_t recorded, counted;
};
/* While ct_drain_measure_own says so: calls, and what of their time was certainly the function's own, in ticks. Of
 * calls that were seen whole: how many, the sum of their own times, and of the squares of these. */
struct ct_drain_own {
  _Atomic uint64_t calls, ticks;
  _Atomic uint64_t whole, whole_ticks, squares;
};
#define CT_DRAIN_TALLIES   262144u /* functions with a greater id have none */
#define CT_DRAIN_TALLY_RUN 8u      /* a divisor of that; so many bits has a byte */

struct ct_drain_stats {
  struct ct_drain_retired retired; /* a part of the others */
  uint64_t events;
  uint64_t dropped; /* the sum of the next ones */
  uint64_t dropped_by[CT_DROP_COUNT];
  uint64_t waited_ticks;        /* of all threads together */
  uint64_t segments;            /* that the threads have handed over */
  uint32_t segments_full_most;  /* at a time ... */
  uint32_t segments_high_times; /* how often that rose over three quarters of all; again after it was below a half */
  bool segments_are_high;
  uint64_t hook_events[CT_HOOK_EVENT_COUNT];
};

/* Of the calls of sampled hooks one of 2^log2 is recorded, fixed or as a beginning; see drain/sampling.h. */
struct ct_sampling_options {
  bool adapts;
  uint32_t log2;     /* at most CT_SAMPLE_LOG2_MAX */
  int mem_fd;        /* /proc/PID/mem of the process, open for writing; -1: threads keep what they begin with */
  uint64_t controls; /* address of the control pages in it */
};

/* What the program wrote to its standard output and error, in bytes. */
struct ct_capture_stats {
  uint64_t given[2]; /* to calls for descriptor 1 and 2 */
  uint64_t recorded;
  uint64_t dropped; /* there was no room in the ring, or calls were given more than is taken of one */
  uint64_t limit;   /* the most that is recorded */
};

/* Records of the detail lane: in the trace; written over before they were read; without room; scribbled over. */
struct ct_detail_stats {
  uint64_t recorded, overwritten, skipped, refused;
  uint64_t outside;   /* of the recorded ones those that are in no window, and so not in the trace ... */
  uint64_t no_memory; /* ... those that did not fit into memory until that was known ... */
  uint64_t no_disk;   /* ... and those in windows when these had all that they may have on disk */
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
 * deeper than max_depth are left out, on each stack; UINT32_MAX: none. The drain pauses while
 * pause_request is set.
 */
int ct_drain_create(struct ct_trace_writer *writer, pthread_mutex_t *lock, uint32_t max_depth,
                    const struct ct_pause_request *pause_request, struct ct_drain **out);

/*
 * Begins with the ring of a new image of process pid, which has it at ring_at; parts are copied. Between two images the
 * drain must be stopped. The mode of function id is given with ct_drain_function_mode before any of its events can
 * arrive.
 */
int ct_drain_start(struct ct_drain *drain, const struct ct_ring_parts *parts, uint64_t ring_at, int pid);
/* Before ct_drain_start, for each image; the interval in force stays from one to the next. */
void ct_drain_sample(struct ct_drain *drain, const struct ct_sampling_options *options);
/* Once, before the first ct_drain_start: what its calls are held against. They stay the caller's. */
struct ct_rules;
void ct_drain_rules(struct ct_drain *drain, struct ct_rules *rules);
/* Those of a thread, by its index in the trace, as long as it lives; under the lock. NULL: none. */
struct drain_rolls;
struct drain_rolls *ct_drain_rolls(struct ct_drain *drain, uint32_t index);
/* Before ct_drain_start: detail is written around marks only. Until that is known it is held, max_bytes at most. */
void ct_drain_mark_detail(struct ct_drain *drain, size_t max_bytes);
/* Before ct_drain_start, for each image with counters: the function that its first ones are of. */
void ct_drain_first_counted(struct ct_drain *drain, uint32_t fn);
void ct_drain_function_mode(struct ct_drain *drain, uint32_t fn, uint8_t mode);
/* Before ct_drain_start, for each image: limit bytes of what the program writes are recorded in all, 0: nothing. */
void ct_drain_capture(struct ct_drain *drain, uint64_t limit);
/* Before ct_drain_start, for each image: what the records of its detail lane hold, if it has one. */
void ct_drain_detail(struct ct_drain *drain, struct ct_detail_form form);
/* Segments of a lane, of this image: how many there are and in use, and at most waited for the drain (of detail: were
 * in use) at a time; how often that rose over three quarters of all, again after it was below a half. */
struct ct_drain_lane {
  uint32_t segments, in_use, most, high_times;
  uint64_t handed_over; /* by threads, so far ... */
  uint64_t overwritten; /* ... and those of detail that threads took again before */
  bool is_high;
};
/* Under the lock. */
void ct_drain_lanes(const struct ct_drain *drain, struct ct_drain_lane *events, struct ct_drain_lane *detail);
/* Under the lock. */
struct ct_detail_stats ct_drain_detail_stats(const struct ct_drain *drain);
/* Under the lock. */
struct ct_capture_stats ct_drain_capture_stats(const struct ct_drain *drain);
/* Takes everything that is left, ends the drain's thread. exec_tid: the thread that went on to a new image, 0: the
 * process has ended, or runs on without us. until: a reading of the clock after which there are no calls. When it
 * does not run, it ends that thread, if the new image has not begun. */
void ct_drain_stop(struct ct_drain *drain, int exec_tid, uint64_t until);

/* A frame that was open when the recording began. */
struct ct_drain_frame {
  uint32_t fn;
  uint32_t ra_slot; /* low half of the address of its return address */
};
/*
 * The stacks that threads have when a process that ran is about to run again: at tsc each thread's stream begins with
 * its frames. frames: those of the nth thread, outermost first; it may take milliseconds. A thread without events gets
 * a stream too.
 */
struct ct_drain_stacks {
  uint64_t tsc;
  const uint32_t *tids; /* as the threads call themselves */
  size_t count;
  size_t (*frames)(void *context, size_t n, struct ct_drain_frame *frames, size_t max);
  void *context;
};
/* After ct_drain_start; all of it is used until the drain is stopped. */
void ct_drain_stacks(struct ct_drain *drain, const struct ct_drain_stacks *stacks);

/*
 * All threads have been stopped from one reading of the clock to another, and are about to be resumed. Takes the lock.
 */
void ct_drain_add_stop(struct ct_drain *drain, uint64_t since, uint64_t until);
struct ct_switch_stats ct_drain_switches(const struct ct_drain *drain);

size_t ct_drain_threads(struct ct_drain *drain, const struct ct_drain_thread_info **threads);
/*
 * Threads that have ended, and of which nothing is kept, become a sum (retire.c). The drain does it by itself as they
 * get many; others once it is stopped, with the writer's lock.
 */
void ct_drain_retire_threads(struct ct_drain *drain);
void ct_drain_stats(const struct ct_drain *drain, struct ct_drain_stats *stats);
uint32_t ct_drain_segment_count(const struct ct_drain *drain); /* of the ring */
/* What there was at most some 100 ms ago, without the lock, which a slow disk may keep taken. */
struct ct_drain_numbers {
  uint64_t events, changes;           /* changes: of the interval */
  uint64_t dropped_by[CT_DROP_COUNT]; /* dropped: their sum */
  uint64_t dropped;
  uint64_t hook_events[CT_HOOK_EVENT_COUNT];
  uint32_t interval; /* of sampled hooks */
  uint64_t switches; /* of threads, as far as the kernel has reported them */
};
void ct_drain_numbers(const struct ct_drain *drain, struct ct_drain_numbers *numbers);
/* By function id, CT_DRAIN_TALLIES of them; any thread may read them. NULL: the image's ring has no counters. */
const struct ct_drain_tally *ct_drain_tallies(const struct ct_drain *drain);
/* A byte for each CT_DRAIN_TALLY_RUN tallies, with a bit for each: set where it may have grown since somebody set it to
 * 0. Who reads the tallies sets it to 0 first (acquire). */
_Atomic uint8_t *ct_drain_touched(const struct ct_drain *drain);
/*
 * A byte for each CT_DRAIN_COUNTING_RUN counters, CT_COUNTERS of them. Where it is 0 these counters of threads are
 * looked at once a second in place of ten times. Hooks that are put in set it; who sets levels sets it before one of
 * their functions counts, and to 0 when none does.
 */
#define CT_DRAIN_COUNTING_RUN 16u
_Atomic uint8_t *ct_drain_counting(struct ct_drain *drain);
/* One of the first CT_COUNTERS_BY_NEED counters is the function's from now on, or, at first, nobody's. */
#define CT_COUNTER_OF_NOBODY UINT32_MAX
void ct_drain_give_counter(struct ct_drain *drain, uint32_t at, uint32_t fn);
/* What the process had had of a processor when the counts were read that were asked for last; 0: not known. Only after
 * ct_drain_has_counts. */
uint64_t ct_drain_counts_cpu_ns(const struct ct_drain *drain);
/* When the last reading of all counters began that is done. */
uint64_t ct_drain_counts_read_ns(const struct ct_drain *drain);
/* As many, from the time of the first ct_drain_measure_own on; NULL: there are none. */
const struct ct_drain_own *ct_drain_own(const struct ct_drain *drain);
void ct_drain_measure_own(struct ct_drain *drain, bool on);
/* Asks for them to be brought up to date, and then the second one is true. at_ns: 0, which takes milliseconds, or by
 * CLOCK_MONOTONIC, in the first of its rounds after that; it is not woken for it. */
void ct_drain_ask_counts(struct ct_drain *drain, uint64_t at_ns);
/* From then on the kernel is not to report switches of threads, which costs them time: only sums are known. Not where a
 * rule is about them. */
void ct_drain_end_switches(struct ct_drain *drain);
bool ct_drain_has_counts(struct ct_drain *drain);
/* Processor time that the drain's thread has used; 0: not known. By who starts and stops it. */
uint64_t ct_drain_cpu_ns(const struct ct_drain *drain);
uint64_t ct_drain_liveness_cpu_ns(const struct ct_drain *drain); /* of the thread that says that it lives */
/* Under the lock. */
void ct_drain_sampling(const struct ct_drain *drain, struct ct_sampling_state *state);
void ct_drain_free(struct ct_drain *drain); /* accepts NULL; the drain must be stopped */

#endif
