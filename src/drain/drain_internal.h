/* SPDX-License-Identifier: MIT */
/* Inside the drain: what its thread works on. drain.c is the thread and the target's threads, segments.c the ring. */
#ifndef CT_DRAIN_INTERNAL_H
#define CT_DRAIN_INTERNAL_H

#include "drain/counts.h"
#include "drain/sampling.h"
#include "drain/switches.h"
#include "drain/thread.h"
#include "process/ids.h"
#include "ring/layout.h"

#include <pthread.h>
#include <stdatomic.h>

#define RETIRED_MAX    64
#define NO_SEGMENT_SEQ UINT64_MAX
#define BLOCK_AGE_NS   (40 * 1000 * 1000) /* a block in progress is written when it is older */
#define NAMES_NS       (500 * 1000 * 1000)
#define DRAIN_WOKEN    4 /* for a segment that is free: one can take it, some may wait for another kind */
#define SLOT_DROPS     (CT_DROP_NO_STACK + 1) /* the reasons that the target counts for each slot */

/* A segment that is given back late, and which of its entries have been given up. */
struct retired {
  uint32_t index, info;
  uint64_t holes[CT_SEGMENT_EVENTS / 64];
};

/* late.c */
enum { DRAIN_LATE_REASONS = 2 }; /* overwritten, no segment */
struct drain_late {
  uint64_t seen_ns;                                  /* when time was looked at */
  uint64_t used_at_ns, used_ns;                      /* the drain's processor time at that moment, not long before */
  uint64_t until[CT_SLOT_COUNT][DRAIN_LATE_REASONS]; /* the slots' counters at the end of the last gap */
};

struct ct_drain {
  struct ct_trace_writer *writer;
  pthread_mutex_t *lock;
  const struct ct_pause_request *pause_request;
  uint32_t max_depth;
  struct ct_ring_header *ring;
  uint32_t *tids;
  struct ct_slot *slots;
  struct ct_segment_entry *entries;
  uint8_t *segments;
  uint32_t segment_count;
  struct ct_capture_pool *pool; /* as the ring has it */
  int pid;
  struct ct_thread_ids ids; /* the slots have the threads' own ones */
  pthread_t thread;
  pthread_t liveness; /* counts the ring's controller_liveness up */
  bool running;
  _Atomic uint32_t stopping;
  struct drain_thread *threads[CT_SLOT_COUNT];
  uint64_t slot_reported[CT_SLOT_COUNT]
                        [SLOT_DROPS]; /* of each slot's counters of lost events, what has been reported */
  struct drain_late late;             /* what was lost while the drain did not run */
  struct drain_thread *kept;          /* the thread that went on through exec */
  uint8_t *modes;                     /* one byte per possible function id, reserved address space */
  _Atomic uint32_t function_count;
  struct ct_drain_thread_info *infos;
  struct ct_encoder **encoders; /* of each info; the writer's, readable when closed */
  size_t info_count, info_capacity;
  size_t retire_at;       /* when there are so many, those of which nothing is kept go */
  uint32_t next_index;    /* of a thread's stream */
  enum ct_drop no_thread; /* why the last thread that has no stream has none */
  struct ct_drain_retired retired_threads;
  struct ct_drain_stats stats;
  struct drain_sampling sampling;
  struct drain_counts counts;
  struct drain_switches *switches;        /* of this image; NULL: none */
  struct ct_switch_stats switches_before; /* of those before */
  struct drain_details details;           /* of this image; count 0: none */
  struct ct_detail_stats details_before;  /* of those before */
  struct ct_drain_lane detail_lane;
  struct ct_capture_pool *captures;      /* of this image; NULL: none */
  uint64_t capture_limit;                /* bytes of it that the trace takes, 0: it takes none */
  struct ct_capture_stats capture_stats; /* without what this image's pool counts */
  struct ct_rules *rules;                /* the session's; NULL: none */
  uint64_t unknown_since;                /* when a change of a handler was seen that they do not know yet; 0: none */
  bool waits_for_rules;                  /* this round; rule_rounds.c */
  uint64_t samples;                      /* events of sampled hooks encoded */
  size_t full_count;                     /* segments, when this round began */
  uint64_t now;                          /* when this round began */
  struct ct_drain_stacks stacks;         /* count 0: none */
  struct early {                         /* of each of these threads */
    struct drain_thread
        *thread; /* its stream, when it has been begun without events; NULL: not yet, or it is a slot's */
    bool taken;  /* its frames are in a stream */
  } *early;
  bool early_begun;    /* so are those of threads without events */
  uint64_t alive_tsc;  /* all threads that have not been reaped were alive then */
  uint64_t last_clock; /* of the last event of all threads that have ended */
  struct {             /* for those who ask without the lock */
    _Atomic uint64_t events, changes, dropped_by[CT_DROP_COUNT], hook_events[CT_HOOK_EVENT_COUNT];
    _Atomic uint32_t interval;
    _Atomic uint64_t switches;
  } published;
  uint32_t idle_rounds; /* in a row, that have found nothing */
  uint32_t warm;        /* so many of the first segments have their pages */
  uint32_t totals_open; /* of threads' files, see drain_read_totals */
  struct {
    uint64_t at_ns, took_ns; /* when it was last looked which threads have died, and how long that took; 0: some had */
  } reap;
  size_t poll_next; /* among the active segments */
  /* When each segment was first seen to be full, and in which activation. */
  struct {
    uint64_t seq, since;
  } full[CT_SEGMENT_MAX];
  struct retired retired[RETIRED_MAX]; /* the oldest first */
  uint32_t retired_count;
  struct ct_ring_event copy[CT_SEGMENT_EVENTS];
};

/* stdio_capture.c: what the program has written goes to the trace. True when there was something. */
bool drain_take_captures(struct ct_drain *drain);
/* The ring is about to go, or to come. */
void drain_begin_captures(struct ct_drain *drain);
void drain_end_captures(struct ct_drain *drain);

/* metrics.c */
/* Segments of the detail lane that are done with go back; how many are in use is noted. */
void drain_serve_detail(struct ct_drain *drain);
/* What the thread's slot, as long as it is the thread's, says of it. */
void drain_read_slot(struct ct_drain *drain, uint32_t slot, const struct drain_thread *thread);
/* Records of this image that found no room, and segments of them that were taken again too early. */
uint64_t drain_detail_skipped(const struct ct_drain *drain, uint64_t *overwritten);

/* drain.c: of events, as the target has counted them. */
uint64_t drain_lost_count(const uint64_t *count);

/* late.c */
/* Looks at the time. */
void drain_see_late(struct ct_drain *drain);
void drain_late_end(struct ct_drain *drain);
/* What the calling thread has had of processors. */
uint64_t drain_used_ns(void);
/* How many of those that a slot's counter has counted from `from` to `to` were lost while the drain did not run. */
uint64_t drain_late_of(const struct ct_drain *drain, uint32_t slot, unsigned reason, uint64_t from, uint64_t to);

#define DRAIN_RETIRE_AT 1024 /* threads */

/* rule_rounds.c: what rules say about calls that go on, and about the time. */
void drain_check_rules(struct ct_drain *drain, uint64_t now_tsc);
/* Detail that is held until it is known whether a window has it. */
void drain_reconcile_details(struct ct_drain *drain);
/*
 * True, and so for the rest of the round, when rules about signals do not know yet who handles them: what follows in
 * the rings may be calls of those handlers. Ask after the events, or that a segment is full, have been read.
 */
bool drain_waits_for_rules(struct ct_drain *drain);
/* Wakes who does what rules ask for, and who has asked for counts, without the lock. */
void drain_ring_for_session(struct ct_drain *drain);

/* pace.c */
/* Sleeps until the doorbell is no longer as it was, or until it is time to look all the same. */
void drain_wait_for_work(struct ct_drain *drain, uint32_t doorbell);
/* Its thread, if it sleeps. */
void drain_wake(struct ct_drain *drain);
/* Is it time to look which threads have died? */
bool drain_reap_is_due(const struct ct_drain *drain, uint64_t now);

/* task.c */
void drain_read_name(struct ct_drain *drain, struct drain_thread *thread);
/* How long the thread was on the processor, and how long it was ready without one, by the scheduler's own count. */
void drain_read_totals(struct ct_drain *drain, struct drain_thread *thread);
void drain_close_totals(struct ct_drain *drain, struct drain_thread *thread);
/* How often: at each block where nothing else is known. */
uint64_t drain_totals_ns(const struct ct_drain *drain);
/* It has not ended, as far as can be seen: a thread that has exited may be there as a zombie. */
bool drain_lives(const struct ct_drain *drain, const struct drain_thread *thread);
/* The slots that are dead; the thread with the oldest last event comes first: of a last stretch what comes last stays.
 */
uint32_t drain_sort_dead(struct ct_drain *drain, const bool *dead, uint32_t *out);

/* warm.c: so many more of the segments that are taken first get their pages. */
enum { DRAIN_WARM_FIRST = 8, DRAIN_WARM_MORE = 8 };
void drain_warm_up(struct ct_drain *drain, uint32_t count);

/* liveness.c. start: 0, or an error of pthread_create. */
int drain_start_liveness(struct ct_drain *drain);
void drain_stop_liveness(struct ct_drain *drain);
/* For ct_drain_numbers. */
void drain_publish_numbers(struct ct_drain *drain);

/* A segment, and its activation when it was seen. */
struct candidate {
  uint64_t seq;
  uint32_t index;
};

uint64_t drain_now_ns(void); /* CLOCK_MONOTONIC */
/* The thread whose segment this is, made if it is new; NULL when the segment is of a generation that has passed. */
struct drain_thread *drain_thread_of(struct ct_drain *drain, uint32_t slot, uint32_t generation);
/* The one place where losses are counted; thread: whose events they are, NULL when it has no stream. */
void drain_drop(struct ct_drain *drain, const struct drain_thread *thread, enum ct_drop reason, uint64_t count);
/* Informs the thread's trace how many of its events have been lost since this was last asked. */
void drain_report_lost(struct ct_drain *drain, struct drain_thread *thread, uint32_t slot, uint64_t tsc);

/*
 * By their activations, at most CT_SEGMENT_MAX. Threads take segments in turn, so in the order of the table these are a
 * few ascending runs, which are merged: in the time of a look at each where they are in order already.
 */
void drain_sort_candidates(struct candidate *all, size_t count);
/* The segments in this state (enum ct_segment_state), the oldest activation first. Returns how many. */
size_t drain_collect(const struct ct_drain *drain, unsigned state, struct candidate *out);
/* The events of a full segment, if it is its turn, and the segment goes back. final: nothing will change any more. */
bool drain_take_full(struct ct_drain *drain, const struct candidate *candidate, bool final);
/* What an active segment holds so far. Returns the number of events. */
size_t drain_poll_active(struct ct_drain *drain, const struct candidate *candidate);
/* The slot's thread has written events that have not been read. */
bool drain_has_unread(const struct ct_drain *drain, uint32_t slot);
/* The rest of the active segment of a thread that is dead, up to the last whole event. */
void drain_take_dead(struct ct_drain *drain, const struct candidate *candidate);
/* True when threads, perhaps dead ones, hold so many segments that the next ones may find none. */
bool drain_is_short(const struct ct_drain *drain);

#endif
