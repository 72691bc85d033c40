/* SPDX-License-Identifier: MIT */
/*
 * The self times of a function's calls, of those whose times are known from begin to end: a histogram, and up to 32
 * batches of calls in their order, by which one can tell how they spread in the course of a run.
 *
 * The calls of a thread are numbered from 0 on; batch n has those whose number >> shift is n, of all threads. So the
 * batches of several threads, or of several workers, make the same in whatever order they are put together.
 */
#ifndef CT_SPAN_SELVES_H
#define CT_SPAN_SELVES_H

#include "base/branch.h"
#include "span/histogram.h"

#include <stdint.h>

enum { CT_BATCHES = 32 };

struct ct_batch {
  uint64_t calls, ticks;
};

/* Zeroed: none. */
struct ct_batches {
  uint32_t shift;
  uint32_t count; /* up to the last one that has calls */
  struct ct_batch list[CT_BATCHES];
};

/* Two become one, until there is one for the call of this number. */
void ct_batches_make_room(struct ct_batches *batches, uint64_t number);
void ct_batches_merge(struct ct_batches *into, const struct ct_batches *from);

/* A call that is the one of this number of its thread. */
static inline void
ct_batches_add(struct ct_batches *batches, uint64_t number, uint64_t ticks)
{
  if (CT_UNLIKELY(number >> batches->shift >= CT_BATCHES)) {
    ct_batches_make_room(batches, number);
  }
  uint32_t n = (uint32_t)(number >> batches->shift);
  batches->count = n >= batches->count ? n + 1 : batches->count;
  batches->list[n].calls++;
  batches->list[n].ticks += ticks;
}

struct ct_selves {
  struct ct_batches batches;
  struct ct_histogram histogram;
  uint64_t next; /* number of the next call, of the thread that is read */
};

/* 0 or CT_ENOMEM. */
static inline int
ct_selves_add(struct ct_selves *selves, uint64_t ticks)
{
  ct_batches_add(&selves->batches, selves->next++, ticks);
  return ct_histogram_add(&selves->histogram, ticks);
}

#endif
