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
  /* What became of records: written; written over by the target before they were read; found no room; make no sense. */
  uint64_t recorded, overwritten, skipped, refused;
};

/*
 * The thread has put a record at this address in the target, for its call at ra_slot, the top frame of its encoder:
 * takes it into the trace.
 */
void drain_detail_take(struct drain_details *details, struct drain_thread *thread, uint64_t address, uint32_t ra_slot);
/* Gives segments back that are done with: threads have gone on to others, or have ended. threads: of each slot. */
void drain_detail_free(struct drain_details *details, struct drain_thread *const *threads);

#endif
