/* SPDX-License-Identifier: MIT */
/* Counting bytes of a kind, 16 at a time, for the columns of a block. */
#ifndef CT_TRACE_LANES_H
#define CT_TRACE_LANES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A comparison of lanes gives 255 where it holds, so subtracting it counts; 255 times before a lane is full. */
typedef uint8_t ct_lanes __attribute__((vector_size(16)));

#define CT_LANES_FULL (255 * sizeof(ct_lanes))

static inline ct_lanes
ct_lanes_load(const uint8_t *p)
{
  ct_lanes lanes;
  memcpy(&lanes, p, sizeof(lanes));
  return lanes;
}

static inline uint32_t
ct_lanes_sum(ct_lanes lanes)
{
  uint32_t sum = 0;
  for (size_t i = 0; i < sizeof(lanes); i++) {
    sum += lanes[i];
  }
  return sum;
}

/* How many of `size` bytes to take in lanes before the next ct_lanes_sum. */
static inline size_t
ct_lanes_run(size_t size)
{
  size_t run = size < CT_LANES_FULL ? size : CT_LANES_FULL;
  return run - run % sizeof(ct_lanes);
}

#endif
