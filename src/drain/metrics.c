/* SPDX-License-Identifier: MIT */
/* What is counted of the lanes and of threads beside their events. All of it under the writer's lock. */
#include "drain/drain_internal.h"
#include "trace/detail.h"

static uint32_t
free_count(const uint64_t *map, uint32_t words)
{
  uint32_t count = 0;
  for (uint32_t w = 0; w < words; w++) {
    count += (uint32_t)__builtin_popcountll(__atomic_load_n(&map[w], __ATOMIC_RELAXED));
  }
  return count;
}

/* What the target says is only bounded. */
static uint32_t
in_use(uint32_t segments, uint32_t free_segments)
{
  return free_segments < segments ? segments - free_segments : 0;
}

void
ct_drain_lanes(const struct ct_drain *drain, struct ct_drain_lane *events, struct ct_drain_lane *detail)
{
  const struct drain_details *details = &drain->details;
  *events = (struct ct_drain_lane){.segments = drain->segment_count,
                                   .most = drain->stats.segments_full_most,
                                   .high_times = drain->stats.segments_high_times,
                                   .handed_over = drain->stats.segments};
  *detail = drain->detail_lane;
  if (drain->running) {
    events->in_use = in_use(drain->segment_count, free_count(drain->ring->free_map, CT_SEGMENT_MAX / 64));
  }
  if (drain->running && details->count != 0) {
    detail->in_use = in_use(details->count, free_count(drain->ring->detail_free_map, CT_DETAIL_SEGMENT_MAX / 64));
  }
}

/*
 * Where nobody waits for room, the drain's packing is what takes records: it reads a million a second of its time
 * packed, and more than twice as many not.
 */
static void
note_behind(struct ct_drain *drain, uint32_t full)
{
  struct drain_details *details = &drain->details;
  bool may_lose = details->count != 0 && (drain->ring->lossless == 0 || drain->ring->detail_waits == 0);
  if (!may_lose || full < details->count / 4) {
    details->is_behind = false;
  } else if (full > details->count / 2) {
    details->is_behind = true;
  }
  ct_trace_writer_set_behind(drain->writer, details->is_behind);
}

void
drain_serve_detail(struct ct_drain *drain)
{
  struct ct_drain_lane *lane = &drain->detail_lane;
  uint32_t freed = 0, full = drain->details.count != 0 ? drain_detail_free(&drain->details, drain->threads, &freed) : 0;
  lane->handed_over += freed;
  lane->segments = drain->details.count != 0 ? drain->details.count : lane->segments;
  lane->most = full > lane->most ? full : lane->most;
  if (!lane->is_high && full > lane->segments / 4 * 3) {
    lane->is_high = true;
    lane->high_times++;
  } else if (full < lane->segments / 2) {
    lane->is_high = false;
  }
  note_behind(drain, full);
}

void
drain_read_slot(struct ct_drain *drain, uint32_t slot, const struct drain_thread *thread)
{
  const struct ct_slot *at = &drain->slots[slot];
  struct ct_drain_thread_info *info = &drain->infos[thread->info];
  uint32_t swaps = __atomic_load_n(&at->thread_seq, __ATOMIC_RELAXED);
  uint32_t detail_swaps = __atomic_load_n(&at->detail_seq, __ATOMIC_RELAXED);
  uint64_t skipped = __atomic_load_n(&at->skipped_busy, __ATOMIC_RELAXED);
  if (__atomic_load_n(&at->generation, __ATOMIC_ACQUIRE) == thread->generation) { /* else it is another's by now */
    info->swaps = swaps > thread->next_seq ? swaps : thread->next_seq;
    info->detail_swaps = detail_swaps;
    info->skipped = skipped;
  } else if (info->swaps < thread->next_seq) {
    info->swaps = thread->next_seq;
  }
}

uint64_t
drain_detail_skipped(const struct ct_drain *drain, uint64_t *overwritten)
{
  uint64_t skipped = 0;
  *overwritten = 0;
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT && drain->details.count != 0; slot++) {
    skipped += __atomic_load_n(&drain->slots[slot].detail_skipped, __ATOMIC_RELAXED);
    *overwritten += __atomic_load_n(&drain->slots[slot].detail_overwritten, __ATOMIC_RELAXED);
  }
  return skipped;
}

/* Who ends the program ends all threads, and none makes a call then: one that others have outlived has ended itself. */
size_t
ct_drain_threads(struct ct_drain *drain, const struct ct_drain_thread_info **threads)
{
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT && drain->running; slot++) {
    if (drain->threads[slot] != NULL) {
      drain_read_slot(drain, slot, drain->threads[slot]);
    }
  }
  for (size_t i = 0; i < drain->info_count; i++) {
    drain->infos[i].events = ct_encoder_events(drain->encoders[i]);
    drain->infos[i].exited = drain->infos[i].end_is_exact && drain->infos[i].end_tsc < drain->last_clock;
  }
  *threads = drain->infos;
  return drain->info_count;
}

void
ct_drain_stats(const struct ct_drain *drain, struct ct_drain_stats *stats)
{
  *stats = drain->stats;
  stats->retired = drain->retired_threads;
  stats->events = drain->retired_threads.events;
  stats->waited_ticks = drain->retired_threads.waited_ticks;
  stats->dropped = 0;
  for (unsigned reason = 0; reason < CT_DROP_COUNT; reason++) {
    stats->dropped += stats->dropped_by[reason];
  }
  for (size_t i = 0; i < drain->info_count; i++) {
    stats->waited_ticks += drain->infos[i].waited_ticks;
    stats->events += ct_encoder_events(drain->encoders[i]);
  }
}
