/* SPDX-License-Identifier: MIT */
/* Clocks as one number of nanoseconds. */
#ifndef CT_BASE_CLOCK_H
#define CT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t
ct_clock_ns(clockid_t clock)
{
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* CLOCK_MONOTONIC, in which all times of a recording are. */
static inline uint64_t
ct_now_ns(void)
{
  return ct_clock_ns(CLOCK_MONOTONIC);
}

#endif
