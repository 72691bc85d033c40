/* SPDX-License-Identifier: MIT */
/*
 * Under a budget: what a thread has of each function that may be counted. The first ones are those of the image's first
 * functions, in the order of their ids; the others belong to whom the controller gives them to. Both count on from one
 * thread that has the slot to the next. The numbers of calls come first, then, apart, those of calls that are recorded
 * too: only these are few. They are read ten times a second, but a recorder may stand still for any time, and 32 bits
 * of calls are some ten seconds.
 *
 *   0                      uint64_t calls[CT_COUNTERS]
 *   CT_COUNTERS_RECORDED   uint32_t recorded[CT_COUNTERS]
 */
#ifndef CT_RING_COUNTERS_H
#define CT_RING_COUNTERS_H

#include <stdint.h>

#define CT_COUNTERS          16384u
#define CT_COUNTERS_BY_ID    12288u
#define CT_COUNTERS_BY_NEED  (CT_COUNTERS - CT_COUNTERS_BY_ID)
#define CT_COUNTERS_RECORDED (CT_COUNTERS * (uint32_t)sizeof(uint64_t))
#define CT_COUNTERS_BYTES    (CT_COUNTERS_RECORDED + CT_COUNTERS * (uint32_t)sizeof(uint32_t)) /* of a slot */

/* Of the calls of a function that a thread counts, the first one is recorded too, and mostly each N-th after it. */
#define CT_COUNTERS_RECORDED_EACH 64u

/* So far before the gate of a function without a counter by its id: uint64_t, the offset of its number of calls. */
#define CT_GATE_COUNTER 8u

#endif
