/* SPDX-License-Identifier: MIT */
/*
 * Under a budget: what a thread has of each function that may be counted. The first block belongs to whom the
 * controller gives its counters to; the others are those of the image's first functions, in the order of their ids.
 * Both count on from one thread that has the slot to the next. They are read ten times a second, but a recorder may
 * stand still for any time, and 32 bits of calls are some ten seconds; calls that are recorded too are few.
 *
 * A block of CT_COUNTERS_BLOCK counters, and as many blocks for a slot as the image has (CT_COUNTERS_BLOCKS at most):
 *
 *   0                            uint64_t calls[CT_COUNTERS_BLOCK]
 *   CT_COUNTERS_BLOCK_RECORDED   uint32_t recorded[CT_COUNTERS_BLOCK]
 *
 * Nearly all of that is never touched, and takes no memory: who reads it looks first where there is any.
 */
#ifndef CT_RING_COUNTERS_H
#define CT_RING_COUNTERS_H

#include <stdint.h>

#define CT_COUNTERS_BLOCK          4096u
#define CT_COUNTERS_BLOCK_RECORDED (CT_COUNTERS_BLOCK * (uint32_t)sizeof(uint64_t))
#define CT_COUNTERS_BLOCK_BYTES    (CT_COUNTERS_BLOCK_RECORDED + CT_COUNTERS_BLOCK * (uint32_t)sizeof(uint32_t))
#define CT_COUNTERS_BLOCKS         32u
#define CT_COUNTERS_BLOCKS_FEW     4u /* where address space is limited */
#define CT_COUNTERS                (CT_COUNTERS_BLOCKS * CT_COUNTERS_BLOCK)
#define CT_COUNTERS_BY_NEED        CT_COUNTERS_BLOCK
#define CT_COUNTERS_BYTES          (CT_COUNTERS_BLOCKS * CT_COUNTERS_BLOCK_BYTES) /* of a slot, at most */

/* Of the calls of a function that a thread counts, the first one is recorded too, and mostly each N-th after it. */
#define CT_COUNTERS_RECORDED_EACH 64u

/* So far before the gate of a function without a counter by its id: uint64_t, the offset of its number of calls. */
#define CT_GATE_COUNTER 8u

/* Where a counter's two numbers are. In the first block the second one's offset within it is half of the first one's,
 * from CT_COUNTERS_BLOCK_RECORDED on. */
static inline uint32_t
ct_counter_calls_offset(uint32_t at)
{
  return at / CT_COUNTERS_BLOCK * CT_COUNTERS_BLOCK_BYTES + at % CT_COUNTERS_BLOCK * (uint32_t)sizeof(uint64_t);
}

static inline uint32_t
ct_counter_recorded_offset(uint32_t at)
{
  return at / CT_COUNTERS_BLOCK * CT_COUNTERS_BLOCK_BYTES + CT_COUNTERS_BLOCK_RECORDED +
         at % CT_COUNTERS_BLOCK * (uint32_t)sizeof(uint32_t);
}

/* How many functions of an image with so many blocks have a counter by their ids. */
static inline uint32_t
ct_counters_by_id(uint32_t blocks)
{
  return blocks > 1 ? (blocks - 1) * CT_COUNTERS_BLOCK : 0;
}

/* The one of the image's function with that number, counted from the first one that is counted. */
static inline uint32_t
ct_counter_by_id(uint32_t number)
{
  return CT_COUNTERS_BY_NEED + number;
}

#endif
