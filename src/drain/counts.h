/* SPDX-License-Identifier: MIT */
/*
 * Under a budget: calls that were counted in place of being recorded. Each thread has counters in the ring; what they
 * have grown by goes into the thread's stream. And, for who sets the levels, how many calls of each function there were
 * of both kinds.
 */
#ifndef CT_DRAIN_COUNTS_H
#define CT_DRAIN_COUNTS_H

#include "drain/drain.h"
#include "ring/counters.h"
#include "ring/layout.h"

/* A slot's counters as they were when last read. */
struct drain_counted {
  uint64_t known[CT_COUNTERS_BYTES / CT_PAGE_BYTES / 64]; /* a bit for each of its pages in the ring that has memory */
  uint8_t counters[];
};
_Static_assert(CT_COUNTERS_BLOCK_BYTES % CT_PAGE_BYTES == 0 && CT_COUNTERS_BYTES / CT_PAGE_BYTES % 64 == 0, "pages");

struct drain_counts {
  uint8_t *counters; /* of the ring, slot_bytes for each slot; NULL: there are none */
  size_t slot_bytes;
  uint32_t by_id;                               /* so many functions have one by their ids */
  int fd;                                       /* the ring's file, -1: not known, ... */
  uint64_t offset;                              /* ... and where in it they are */
  struct drain_counted *seen[CT_SLOT_COUNT];    /* NULL: all zero */
  struct ct_drain_tally *tallies;               /* CT_DRAIN_TALLIES; NULL: there is no budget */
  _Atomic(struct ct_drain_own *) own;           /* as many; NULL: it was never asked for */
  _Atomic bool measures_own;                    /* it is wanted now */
  _Atomic uint8_t *touched;                     /* a byte for CT_DRAIN_TALLY_RUN of them, as ct_drain_touched says */
  uint32_t first;                               /* the function that the first counter is of */
  _Atomic uint32_t owners[CT_COUNTERS_BY_NEED]; /* functions whose counters the last ones are */
  _Atomic uint32_t owned;                       /* so many of these, from the first on, were somebody's */
  _Atomic uint64_t read_ns;                     /* when the last reading of all counters began that is done */
  _Atomic uint32_t asked, taken;                /* numbers of readings: the last one that was asked for, and done */
  _Atomic uint64_t asked_for_ns;                /* when that is to be done; 0: at once */
  bool is_answer;                               /* one that was asked for is done: who has asked is to be woken */
  uint64_t taken_ns, took_ns;                   /* when they were read last, and how long that took */
  _Atomic uint64_t cpu_ns;                      /* of the process, when the counts that were asked for were read */
  uint64_t whole_ns;                            /* when all of them were, also those that nothing counts in */
  _Atomic uint8_t counting[CT_COUNTERS / CT_DRAIN_COUNTING_RUN]; /* as ct_drain_counting says */
  uint16_t marked[CT_COUNTERS / CT_DRAIN_COUNTING_RUN];          /* those that are set, in this reading */
  uint32_t marked_count;
  _Atomic bool no_switches; /* somebody wants them not to be reported any more */
  bool no_memory;           /* for some of this */
};

/* For the ring of a new image. */
void drain_counts_begin(struct ct_drain *drain, const struct ct_ring_parts *parts);
void drain_counts_end(struct ct_drain *drain);
/* The tallies. */
void drain_counts_free(struct drain_counts *counts);
/* Of all threads that have a stream. is_last: nothing counts any more. */
void drain_counts_take(struct ct_drain *drain, bool is_last);
/* It is time for that. */
bool drain_counts_due(const struct ct_drain *drain, uint64_t now);
/* How long it is until somebody wants one, at most most_ns. */
uint64_t drain_counts_wait_ns(const struct drain_counts *counts, uint64_t now, uint64_t most_ns);
/* A function's hook is about to be put in: it counts at first. */
void drain_counts_hooked(struct drain_counts *counts, uint32_t fn);
/* Of one, which is about to end. */
void drain_counts_take_slot(struct ct_drain *drain, uint32_t slot);
/* Events that go to the trace. */
void drain_counts_tally(struct drain_counts *counts, const struct ct_ring_event *events, size_t count);

#endif
