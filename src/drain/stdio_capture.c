/* SPDX-License-Identifier: MIT */
/*
 * What the program writes to its standard output and error, from the runs of pieces in the ring (struct
 * ct_capture_pool) to the trace. What is there at a time is put in order of time; between threads one may still come a
 * little late.
 */
#include "drain/drain_internal.h"

#include "trace/format.h"
#include "trace/writer.h"

#include <stdlib.h>

static struct ct_capture *
run_at(const struct ct_drain *drain, size_t index)
{
  return (struct ct_capture *)((uint8_t *)drain->captures + CT_PAGE_BYTES + index * CT_CAPTURE_BYTES);
}

struct run {
  uint64_t tsc;
  uint32_t index;
};

static int
compare(const void *a, const void *b)
{
  const struct run *x = a, *y = b;
  return x->tsc != y->tsc ? (x->tsc < y->tsc ? -1 : 1) : (int)x->index - (int)y->index;
}

/* It lies in the program's memory too: nothing is believed. */
static void
put(struct ct_drain *drain, const struct ct_capture *capture, uint32_t pieces)
{
  struct ct_capture_record record = {
      .tsc = capture->tsc, .tid = capture->tid, .fd = capture->fd, .given = capture->given};
  struct ct_capture_stats *stats = &drain->capture_stats;
  uint32_t bytes = __atomic_load_n(&capture->bytes, __ATOMIC_RELAXED); /* once, see look_at in segments.c */
  if (bytes > pieces * CT_CAPTURE_BYTES - sizeof(*capture)) {
    return;
  }
  if (stats->recorded + bytes > drain->capture_limit) {
    __atomic_store_n(&drain->captures->mode, CT_CAPTURE_COUNT, __ATOMIC_RELAXED);
    return;
  }
  if (ct_trace_writer_capture(drain->writer, &record, capture->data, bytes) == 0) {
    stats->recorded += bytes;
  }
}

/*
 * All runs that began before then. With the time of its own begin that keeps each thread's in order: a thread may put a
 * run where we have looked already, and its next one where we have not; but that began after us, and so it stays.
 */
static bool
take_before(struct ct_drain *drain, uint64_t end_tsc)
{
  struct run runs[CT_CAPTURE_PIECES];
  size_t count = 0;
  for (uint32_t w = 0; drain->captures != NULL && w < CT_CAPTURE_MAP_WORDS; w++) {
    if (__atomic_load_n(&drain->captures->full_map[w], __ATOMIC_RELAXED) == 0) {
      continue;
    }
    /* acquire: pairs with the agent's release of the bit, after the run */
    uint64_t bits = __atomic_exchange_n(&drain->captures->full_map[w], 0, __ATOMIC_ACQUIRE);
    for (; bits != 0; bits &= bits - 1) {
      uint32_t index = w * 64 + (uint32_t)__builtin_ctzll(bits);
      uint64_t tsc = __atomic_load_n(&run_at(drain, index)->tsc, __ATOMIC_RELAXED);
      if (tsc <= end_tsc) {
        runs[count++] = (struct run){tsc, index};
      } else {
        /* release: as the agent's, for our next look */
        __atomic_fetch_or(&drain->captures->full_map[w], bits & -bits, __ATOMIC_RELEASE);
      }
    }
  }
  qsort(runs, count, sizeof(runs[0]), compare);
  for (size_t i = 0; i < count; i++) {
    const struct ct_capture *capture = run_at(drain, runs[i].index);
    uint32_t bit = runs[i].index % 64, pieces = __atomic_load_n(&capture->pieces, __ATOMIC_RELAXED);
    if (pieces == 0 || pieces > CT_CAPTURE_RUN_MAX || pieces > 64 - bit) {
      continue; /* the program has written over it */
    }
    put(drain, capture, pieces);
    /* release: pairs with the agent's acquire when it takes the pieces */
    __atomic_fetch_or(&drain->captures->free_map[runs[i].index / 64], ((1ull << pieces) - 1) << bit, __ATOMIC_RELEASE);
  }
  if (count != 0) {
    ct_trace_writer_flush_captures(drain->writer);
  }
  return count != 0;
}

bool
drain_take_captures(struct ct_drain *drain)
{
  return take_before(drain, __builtin_ia32_rdtsc());
}

void
ct_drain_capture(struct ct_drain *drain, uint64_t limit)
{
  drain->capture_limit = limit;
}

void
drain_begin_captures(struct ct_drain *drain)
{
  drain->captures = drain->pool;
  for (uint32_t w = 0; w < CT_CAPTURE_MAP_WORDS; w++) {
    drain->captures->free_map[w] = ~0ull;
  }
  enum ct_capture_mode mode = drain->capture_limit == 0                               ? CT_CAPTURE_OFF
                              : drain->capture_stats.recorded >= drain->capture_limit ? CT_CAPTURE_COUNT
                                                                                      : CT_CAPTURE_ON;
  __atomic_store_n(&drain->captures->mode, mode, __ATOMIC_RELEASE);
}

struct ct_capture_stats
ct_drain_capture_stats(const struct ct_drain *drain)
{
  struct ct_capture_stats stats = drain->capture_stats;
  stats.limit = drain->capture_limit;
  if (drain->captures != NULL) {
    for (int i = 0; i < 2; i++) {
      stats.given[i] += __atomic_load_n(&drain->captures->given[i], __ATOMIC_RELAXED);
    }
    stats.dropped += __atomic_load_n(&drain->captures->dropped, __ATOMIC_RELAXED);
  }
  return stats;
}

void
drain_end_captures(struct ct_drain *drain)
{
  drain_take_captures(drain);
  take_before(drain, UINT64_MAX); /* the rest, whatever its time: that is the program's word */
  drain->capture_stats = ct_drain_capture_stats(drain);
  drain->captures = NULL;
}
