/* SPDX-License-Identifier: MIT */
/*
 * Under a budget: what a thread has of each function that may be counted, by the function's id less the image's first
 * one. Both count on from one thread that has the slot to the next. The numbers of calls come first, then, apart, those
 * of calls that are recorded too: only these are few. They are read ten times a second, but a recorder may stand still
 * for any time, and 32 bits of calls are some ten seconds.
 *
 *   0                      uint64_t calls[CT_COUNTERS]
 *   CT_COUNTERS_RECORDED   uint32_t recorded[CT_COUNTERS]
 */
#ifndef CT_RING_COUNTERS_H
#define CT_RING_COUNTERS_H

#include <stdint.h>

#define CT_COUNTERS          16384u /* functions after these are not counted */
#define CT_COUNTERS_RECORDED (CT_COUNTERS * (uint32_t)sizeof(uint64_t))
#define CT_COUNTERS_BYTES    (CT_COUNTERS_RECORDED + CT_COUNTERS * (uint32_t)sizeof(uint32_t)) /* of a slot */

#endif
