/* SPDX-License-Identifier: MIT */
/* Inside the drain: what its thread works on. drain.c is the thread and the target's threads, segments.c the ring. */
#ifndef CT_DRAIN_INTERNAL_H
#define CT_DRAIN_INTERNAL_H

#include "drain/sampling.h"
#include "drain/thread.h"
#include "ring/layout.h"

#include <pthread.h>

#define RETIRED_MAX    64
#define NO_SEGMENT_SEQ UINT64_MAX

/* A segment that is given back late, and which of its places have been given up. */
struct retired {
  uint32_t index, info;
  uint64_t holes[CT_SEGMENT_EVENTS / 64];
};

struct ct_drain {
  struct ct_trace_writer *writer;
  pthread_mutex_t *lock;
  const struct ct_precedence *precedence;
  uint32_t max_depth;
  struct ct_ring_header *ring;
  uint32_t *tids;
  struct ct_slot *slots;
  struct ct_segment_entry *entries;
  uint8_t *segments;
  int pid;
  pthread_t thread;
  pthread_t pulse; /* counts the ring's pulse up */
  bool running;
  uint32_t stopping; /* atomic */
  struct drain_thread *threads[CT_SLOT_COUNT];
  uint64_t slot_reported[CT_SLOT_COUNT]; /* of each slot's counters of lost events, what has been reported */
  struct drain_thread *kept;             /* the thread that went on through exec */
  uint8_t *modes;                        /* one byte per possible function id, reserved address space */
  uint32_t function_count;               /* atomic */
  struct ct_drain_thread_info *infos;
  struct ct_encoder **encoders; /* of each info; the writer's, readable when closed */
  size_t info_count, info_capacity;
  struct ct_drain_stats stats;
  struct drain_sampling sampling;
  struct ct_print_pool *prints;                 /* of this image; NULL: none */
  uint64_t print_limit;                         /* bytes of it that the trace takes, 0: it takes none */
  struct ct_print_stats print_stats;            /* without what this image's pool counts */
  uint64_t lights;                              /* events of light hooks encoded */
  uint64_t ended_overwritten, ended_no_segment; /* counters of earlier images */
  uint64_t round;                               /* how often the table has been looked at */
  uint64_t now;                                 /* when this round began */
  struct ct_drain_numbers told;                 /* each atomic */
  uint32_t idle_rounds;                         /* in a row, that have found nothing */
  size_t poll_next;                             /* among the active segments */
  uint64_t read_before_stolen;                  /* events counted as overwritten that had been read in time */
  /* When each segment was first seen to be full, and in which activation. */
  struct {
    uint64_t seq, since;
  } full[CT_SEGMENT_MAX];
  struct retired retired[RETIRED_MAX]; /* the oldest first */
  uint32_t retired_count;
  struct ct_ring_event copy[CT_SEGMENT_EVENTS];
};

/* prints.c: what the program has written goes to the trace. True when there was something. */
bool drain_take_prints(struct ct_drain *drain);
/* The ring is about to go, or to come. */
void drain_begin_prints(struct ct_drain *drain);
void drain_end_prints(struct ct_drain *drain);

/* A segment, and its activation when it was seen. */
struct candidate {
  uint64_t seq;
  uint32_t index;
};

uint64_t drain_now_ns(void); /* CLOCK_MONOTONIC */
/* The thread whose segment this is, made if it is new; NULL when the segment is of a generation that has passed. */
struct drain_thread *drain_thread_of(struct ct_drain *drain, uint32_t slot, uint32_t generation);
/* Tells the thread's trace how many of its events have been lost since this was last asked. */
void drain_report_lost(struct ct_drain *drain, struct drain_thread *thread, uint32_t slot, uint64_t tsc);

/* The segments in this state (enum ct_segment_state), the oldest activation first. Returns how many. */
size_t drain_collect(const struct ct_drain *drain, unsigned state, struct candidate *out);
/* The events of a full segment, if it is its turn, and the segment goes back. final: nothing will change any more. */
bool drain_take_full(struct ct_drain *drain, const struct candidate *candidate, bool final);
/* What an active segment holds so far. Returns the number of events. */
size_t drain_poll_active(struct ct_drain *drain, const struct candidate *candidate);
/* The rest of the active segment of a thread that is dead, up to the last whole event. */
void drain_take_dead(struct ct_drain *drain, const struct candidate *candidate);
/* True when threads, perhaps dead ones, hold so many segments that the next ones may find none. */
bool drain_is_short(const struct ct_drain *drain);

#endif
