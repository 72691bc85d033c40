/* SPDX-License-Identifier: MIT */
/*
 * Where only the last stretch is kept, a recording may see any number of threads: those that have ended, and of which
 * nothing is kept, become a sum.
 */
#include "drain/drain_internal.h"

#include <stdlib.h>

/* In the numbering after some have gone. */
static void
renumber(struct ct_drain *drain, const uint32_t *numbers)
{
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
    if (drain->threads[slot] != NULL) {
      drain->threads[slot]->info = numbers[drain->threads[slot]->info];
    }
  }
  for (size_t n = 0; n < drain->stacks.count; n++) {
    if (drain->early[n].thread != NULL) {
      drain->early[n].thread->info = numbers[drain->early[n].thread->info];
    }
  }
  if (drain->kept != NULL) {
    drain->kept->info = numbers[drain->kept->info];
  }
  for (uint32_t i = 0; i < drain->retired_count; i++) {
    drain->retired[i].info = numbers[drain->retired[i].info];
  }
}

void
ct_drain_retire_threads(struct ct_drain *drain)
{
  uint32_t *numbers = malloc(drain->info_count * sizeof(*numbers)), left = 0;
  if (numbers == NULL) {
    return;
  }
  for (uint32_t i = 0; i < drain->info_count; i++) {
    const struct ct_drain_thread_info *info = &drain->infos[i];
    bool is_used = false; /* a segment of it comes late */
    for (uint32_t n = 0; n < drain->retired_count; n++) {
      is_used |= drain->retired[n].info == i;
    }
    uint64_t events = ct_encoder_events(drain->encoders[i]);
    if (!is_used && ct_trace_writer_retire(drain->writer, drain->encoders[i])) {
      drain->retired_threads.threads++;
      drain->retired_threads.events += events;
      drain->retired_threads.waited_ticks += info->waited_ticks;
      numbers[i] = UINT32_MAX;
      continue;
    }
    numbers[i] = left;
    drain->encoders[left] = drain->encoders[i];
    drain->infos[left++] = *info;
  }
  drain->info_count = left;
  drain->retire_at = left + left / 4 + DRAIN_RETIRE_AT;
  renumber(drain, numbers);
  free(numbers);
}
