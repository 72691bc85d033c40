/* SPDX-License-Identifier: MIT */
/* The detail lane: records that threads have put into segments of their own, see ring/layout.h. */
#ifndef CT_DRAIN_DETAIL_H
#define CT_DRAIN_DETAIL_H

#include "ring/layout.h"

#include <stdbool.h>
#include <stdint.h>

struct drain_thread;

/* The lane of one image. */
struct drain_details {
  struct ct_ring_header *ring;
  const struct ct_slot *slots;
  const uint32_t *tids;             /* of each slot; 0: it is nobody's */
  struct ct_segment_entry *entries; /* of the lane's segments */
  const uint8_t *segments;
  uint64_t base; /* address of these in the target */
  uint32_t first, count;
  struct ct_detail_form form;
  bool is_behind; /* records are about to be written over */
  /* What became of records: written; written over by the target before they were read; make no sense. */
  uint64_t recorded, overwritten, refused;
};

/* Records that have been announced and whose events have not come, of one thread: one for each call in progress, since
 * a handler may come in between. */
#define DRAIN_DETAILS_WAITING 8u
struct drain_waiting_details {
  uint32_t count;
  struct {
    uint64_t address; /* in the target */
    uint32_t ra_slot;
  } items[DRAIN_DETAILS_WAITING];
};

/* The next event at ra_slot has a record there. */
void drain_detail_announce(struct drain_thread *thread, uint64_t address, uint32_t ra_slot);
/*
 * An event at ra_slot and tsc, about the top frame of the thread's encoder (of a return before it is encoded):
 * takes its record, if one has been announced, into the trace.
 */
void drain_detail_take(struct drain_thread *thread, uint64_t tsc, uint32_t ra_slot);
/* Gives segments back that are done with: threads have gone on to others, or have ended. threads: of each slot.
 * Returns how many were in use; *freed: how many are not any more. */
uint32_t drain_detail_free(struct drain_details *details, struct drain_thread *const *threads, uint32_t *freed);

#endif
