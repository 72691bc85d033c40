/* SPDX-License-Identifier: MIT */
/*
 * What the program writes to its standard output and error, from the runs of pieces in the ring (struct ct_print_pool)
 * to the trace. What is there at a time is put in order of time; between threads one may still come a little late.
 */
#include "drain/internal.h"

#include "trace/format.h"
#include "trace/writer.h"

#include <stdlib.h>

static struct ct_print *
run_at(const struct ct_drain *drain, size_t index)
{
  return (struct ct_print *)((uint8_t *)drain->prints + CT_PAGE_BYTES + index * CT_PRINT_BYTES);
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
put(struct ct_drain *drain, const struct ct_print *print, uint32_t pieces)
{
  struct ct_print_record record = {.tsc = print->tsc, .tid = print->tid, .fd = print->fd, .given = print->given};
  struct ct_print_stats *stats = &drain->print_stats;
  uint32_t bytes = print->bytes;
  if (bytes > pieces * CT_PRINT_BYTES - sizeof(*print)) {
    return;
  }
  if (stats->recorded + bytes > drain->print_limit) {
    __atomic_store_n(&drain->prints->mode, CT_PRINT_COUNT, __ATOMIC_RELAXED);
    return;
  }
  if (ct_trace_writer_print(drain->writer, &record, print->data, bytes) == 0) {
    stats->recorded += bytes;
  }
}

bool
drain_take_prints(struct ct_drain *drain)
{
  struct run runs[CT_PRINT_PIECES];
  size_t count = 0;
  for (uint32_t w = 0; drain->prints != NULL && w < CT_PRINT_MAP_WORDS; w++) {
    if (__atomic_load_n(&drain->prints->full_map[w], __ATOMIC_RELAXED) == 0) {
      continue;
    }
    /* acquire: pairs with the agent's release of the bit, behind the run */
    uint64_t bits = __atomic_exchange_n(&drain->prints->full_map[w], 0, __ATOMIC_ACQUIRE);
    for (; bits != 0; bits &= bits - 1) {
      uint32_t index = w * 64 + (uint32_t)__builtin_ctzll(bits);
      runs[count++] = (struct run){run_at(drain, index)->tsc, index};
    }
  }
  qsort(runs, count, sizeof(runs[0]), compare);
  for (size_t i = 0; i < count; i++) {
    const struct ct_print *print = run_at(drain, runs[i].index);
    uint32_t bit = runs[i].index % 64, pieces = print->pieces;
    if (pieces == 0 || pieces > CT_PRINT_RUN_MAX || pieces > 64 - bit) {
      continue; /* the program has written over it */
    }
    put(drain, print, pieces);
    /* release: pairs with the agent's acquire when it takes the pieces */
    __atomic_fetch_or(&drain->prints->free_map[runs[i].index / 64], ((1ull << pieces) - 1) << bit, __ATOMIC_RELEASE);
  }
  if (count != 0) {
    ct_trace_writer_flush_prints(drain->writer);
  }
  return count != 0;
}

void
ct_drain_print(struct ct_drain *drain, uint64_t limit)
{
  drain->print_limit = limit;
}

void
drain_begin_prints(struct ct_drain *drain)
{
  drain->prints = NULL;
  if (drain->ring->print_offset == 0) {
    return;
  }
  drain->prints = (struct ct_print_pool *)((uint8_t *)drain->ring + drain->ring->print_offset);
  for (uint32_t w = 0; w < CT_PRINT_MAP_WORDS; w++) {
    drain->prints->free_map[w] = ~0ull;
  }
  enum ct_print_mode mode = drain->print_limit == 0                             ? CT_PRINT_OFF
                            : drain->print_stats.recorded >= drain->print_limit ? CT_PRINT_COUNT
                                                                                : CT_PRINT_ON;
  __atomic_store_n(&drain->prints->mode, mode, __ATOMIC_RELEASE);
}

struct ct_print_stats
ct_drain_print_stats(const struct ct_drain *drain)
{
  struct ct_print_stats stats = drain->print_stats;
  stats.limit = drain->print_limit;
  if (drain->prints != NULL) {
    for (int i = 0; i < 2; i++) {
      stats.given[i] += __atomic_load_n(&drain->prints->given[i], __ATOMIC_RELAXED);
    }
    stats.dropped += __atomic_load_n(&drain->prints->dropped, __ATOMIC_RELAXED);
  }
  return stats;
}

void
drain_end_prints(struct ct_drain *drain)
{
  drain_take_prints(drain);
  drain->print_stats = ct_drain_print_stats(drain);
  drain->prints = NULL;
}
