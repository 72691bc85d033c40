/* SPDX-License-Identifier: MIT */
/*
 * How many calls of sampled hooks are recorded: of each interval of them one. The interval is a power of two from 1 to
 * 256, the same for all threads, and fixed or adapted to how full the ring is.
 *
 * A cycle is 10 ms or, when the drain takes longer for a round, that. Its fill is the largest share of the segments,
 * the active ones not counted, that was full at the beginning of a round. The interval doubles after 2 cycles in a row
 * with more than 50 %, if sampled hooks had part in it, and halves after 5 in a row with less than 10 %.
 *
 * A new interval is published to the target's threads in their control pages, by /proc/PID/mem; each takes it over
 * after its next event, so that no call is counted twice or not at all. New threads find it in the ring's header.
 */
#ifndef CT_DRAIN_SAMPLING_H
#define CT_DRAIN_SAMPLING_H

#include "drain/drain.h"

struct drain_sampling {
  struct ct_sampling_options options;
  uint32_t log2;      /* of the interval in force */
  uint64_t cycle_ns;  /* when the cycle began */
  uint32_t full;      /* most full segments in it so far */
  uint64_t samples;   /* sampled events encoded before it */
  uint32_t high, low; /* cycles in a row */
  uint64_t changes;
  struct ct_sampling_change history[CT_SAMPLING_HISTORY]; /* the last ones; number n at n % CT_SAMPLING_HISTORY */
};

/* What a cycle's end makes of the interval: its log2. A pure function of the earlier cycles and this one. */
uint32_t drain_sampling_decide(struct drain_sampling *sampling, uint32_t fill_permille, bool has_samples);
/* The ring of a new image: nothing of the target runs in it yet, or on the interval 1. */
void drain_sampling_start(struct ct_drain *drain);
/* At the beginning of a round that finds so many full segments. */
void drain_sampling_round(struct ct_drain *drain, size_t full);

#endif
