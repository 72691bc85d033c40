/* SPDX-License-Identifier: MIT */
/* See sampling.h. */
#include "drain/sampling.h"

#include "drain/drain_internal.h"

#include <unistd.h>

#define CYCLE_NS       10000000
#define FILL_HIGH      500 /* permille */
#define FILL_LOW       100
#define CYCLES_TO_RISE 2
#define CYCLES_TO_FALL 5

uint32_t
drain_sampling_decide(struct drain_sampling *sampling, uint32_t fill_permille, bool has_samples)
{
  sampling->high = fill_permille > FILL_HIGH && has_samples ? sampling->high + 1 : 0;
  sampling->low = fill_permille < FILL_LOW ? sampling->low + 1 : 0;
  uint32_t log2 = sampling->log2;
  if (sampling->high >= CYCLES_TO_RISE) {
    sampling->high = 0;
    log2 += log2 < CT_SAMPLE_LOG2_MAX;
  } else if (sampling->low >= CYCLES_TO_FALL) {
    sampling->low = 0;
    log2 -= log2 > 0;
  }
  return log2;
}

/* The header first: a thread that registers meanwhile looks there twice (begin_sampling in agent/agent.c). */
static void
publish(struct ct_drain *drain, uint32_t log2)
{
  const struct ct_sampling_options *options = &drain->sampling.options;
  __atomic_store_n(&drain->ring->sample_log2, log2, __ATOMIC_SEQ_CST);
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT && options->mem_fd >= 0; slot++) {
    uint32_t tid = __atomic_load_n(&drain->tids[slot], __ATOMIC_SEQ_CST);
    if (tid == 0 || tid == UINT32_MAX) {
      continue;
    }
    uint64_t at = options->controls + (uint64_t)slot * CT_CONTROL_STRIDE + CT_GS_SAMPLE;
    if (pwrite(options->mem_fd, &log2, sizeof(log2), (off_t)at) < 0) {
      return; /* the process has ended */
    }
  }
}

void
drain_sampling_start(struct ct_drain *drain)
{
  struct drain_sampling *sampling = &drain->sampling;
  sampling->cycle_ns = drain_now_ns();
  sampling->full = sampling->high = sampling->low = 0;
  publish(drain, sampling->log2);
}

/* The share of the segments that are not some thread's active one. */
static uint32_t
fill_permille(const struct ct_drain *drain)
{
  uint32_t usable = 0;
  for (uint32_t i = 0; i < drain->segment_count; i++) {
    uint64_t state = __atomic_load_n(&drain->entries[i].state, __ATOMIC_RELAXED);
    usable += CT_SEG_STATE(state) != CT_SEG_ACTIVE;
  }
  return drain->sampling.full * 1000 / (usable > drain->sampling.full ? usable : drain->sampling.full + 1);
}

/* So many segments wait for the drain. */
static void
note_level(struct ct_drain *drain, uint32_t full)
{
  struct ct_drain_stats *stats = &drain->stats;
  stats->segments_full_most = full > stats->segments_full_most ? full : stats->segments_full_most;
  if (!stats->segments_are_high && full > drain->segment_count / 4 * 3) {
    stats->segments_are_high = true;
    stats->segments_high_times++;
  } else if (full < drain->segment_count / 2) {
    stats->segments_are_high = false;
  }
}

void
drain_sampling_round(struct ct_drain *drain, size_t full)
{
  struct drain_sampling *sampling = &drain->sampling;
  sampling->full = full > sampling->full ? (uint32_t)full : sampling->full;
  note_level(drain, (uint32_t)full);
  if (drain->now - sampling->cycle_ns < CYCLE_NS || !sampling->options.adapts) {
    return;
  }
  uint32_t log2 = drain_sampling_decide(sampling, fill_permille(drain), drain->samples != sampling->samples);
  sampling->cycle_ns = drain->now;
  sampling->full = 0;
  sampling->samples = drain->samples;
  if (log2 != sampling->log2) {
    sampling->log2 = log2;
    sampling->history[sampling->changes++ % CT_SAMPLING_HISTORY] =
        (struct ct_sampling_change){.ns = drain->now, .interval = 1u << log2};
    publish(drain, log2);
  }
}

void
ct_drain_sample(struct ct_drain *drain, const struct ct_sampling_options *options)
{
  if (drain->ring == NULL) {
    drain->sampling.log2 = options->log2;
  }
  drain->sampling.options = *options;
}

void
ct_drain_sampling(const struct ct_drain *drain, struct ct_sampling_state *state)
{
  const struct drain_sampling *sampling = &drain->sampling;
  *state = (struct ct_sampling_state){
      .adapts = sampling->options.adapts, .interval = 1u << sampling->log2, .changes = sampling->changes};
  uint64_t first = sampling->changes > CT_SAMPLING_HISTORY ? sampling->changes - CT_SAMPLING_HISTORY : 0;
  for (uint64_t n = first; n < sampling->changes; n++) {
    state->last[state->last_count++] = sampling->history[n % CT_SAMPLING_HISTORY];
  }
}

uint32_t
ct_drain_segment_count(const struct ct_drain *drain)
{
  return drain->segment_count;
}
