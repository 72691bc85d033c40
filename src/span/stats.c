/* SPDX-License-Identifier: MIT */
/* Per-function totals; see stats.h. ct_stats_add is the hot loop of the report. */
#include "span/stats.h"

#include "base/branch.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

static_assert(sizeof(struct ct_fn_stats) == 64, "one cache line per function");

static void
free_arrays(struct ct_stats *stats)
{
  free(stats->touched);
  free(stats->fns_memory);
  free(stats->unwound);
  free(stats->passed_over);
  free(stats->counted);
  free(stats->off);
  free(stats->partial);
  free(stats->before);
  free(stats->selves);
  *stats = (struct ct_stats){0};
}

int
ct_stats_init(struct ct_stats *stats, uint32_t fn_count)
{
  size_t slots = (size_t)fn_count + 1;
  *stats = (struct ct_stats){.fn_count = fn_count};
  stats->touched = malloc(slots * sizeof(*stats->touched));
  /* As zero pages, which cost nothing where no function is seen: a damaged table may have an id of millions. */
  stats->fns_memory = calloc(slots + 1, sizeof(*stats->fns));
  stats->unwound = calloc(slots, sizeof(*stats->unwound));
  stats->passed_over = calloc(slots, sizeof(*stats->passed_over));
  stats->counted = calloc(slots, sizeof(*stats->counted));
  stats->off = calloc(slots, sizeof(*stats->off));
  stats->partial = calloc(slots, sizeof(*stats->partial));
  stats->before = calloc(slots, sizeof(*stats->before));
  if (stats->touched == NULL || stats->fns_memory == NULL || stats->unwound == NULL || stats->passed_over == NULL ||
      stats->counted == NULL || stats->off == NULL || stats->partial == NULL || stats->before == NULL) {
    free_arrays(stats);
    return CT_ENOMEM;
  }
  stats->fns = (void *)(((uintptr_t)stats->fns_memory + 63) & ~(uintptr_t)63);
  return 0;
}

void
ct_stats_clear(struct ct_stats *stats)
{
  for (uint32_t i = 0; i < stats->touched_count; i++) {
    struct ct_fn_stats *fn = &stats->fns[stats->touched[i]];
    ct_histogram_destroy(fn->histogram);
    free(fn->histogram);
    *fn = (struct ct_fn_stats){0};
    if (stats->selves != NULL && stats->selves[stats->touched[i]] != NULL) {
      ct_histogram_destroy(&stats->selves[stats->touched[i]]->histogram);
      free(stats->selves[stats->touched[i]]);
      stats->selves[stats->touched[i]] = NULL;
    }
    free(stats->unwound[stats->touched[i]]);
    stats->unwound[stats->touched[i]] = NULL;
    stats->passed_over[stats->touched[i]] = 0;
    stats->counted[stats->touched[i]] = 0;
    stats->off[stats->touched[i]] = 0;
    stats->partial[stats->touched[i]] = stats->before[stats->touched[i]] = 0;
  }
  stats->touched_count = 0;
  stats->gap_ticks = stats->lost = 0;
}

void
ct_stats_destroy(struct ct_stats *stats)
{
  ct_stats_clear(stats);
  free_arrays(stats);
}

int
ct_stats_keep_selves(struct ct_stats *stats)
{
  if (stats->selves == NULL) {
    stats->selves = calloc((size_t)stats->fn_count + 1, sizeof(*stats->selves));
  }
  return stats->selves != NULL ? 0 : CT_ENOMEM;
}

void
ct_stats_begin_thread(struct ct_stats *stats)
{
  for (uint32_t i = 0; stats->selves != NULL && i < stats->touched_count; i++) {
    struct ct_selves *selves = stats->selves[stats->touched[i]];
    if (selves != NULL) {
      selves->next = 0;
    }
  }
}

struct ct_selves *
ct_stats_selves(struct ct_stats *stats, uint32_t id)
{
  struct ct_selves **selves = &stats->selves[id < stats->fn_count ? id : stats->fn_count];
  if (*selves == NULL) {
    *selves = calloc(1, sizeof(**selves));
  }
  return *selves;
}

static __attribute__((noinline, cold)) int
touch(struct ct_stats *stats, struct ct_fn_stats *fn)
{
  fn->histogram = calloc(1, sizeof(*fn->histogram));
  if (fn->histogram == NULL) {
    return CT_ENOMEM;
  }
  fn->min_ticks = UINT64_MAX;
  stats->touched[stats->touched_count++] = (uint32_t)(fn - stats->fns);
  return 0;
}

/* The counts of a function's frames that were unwound; NULL when memory is exhausted. */
static __attribute__((noinline)) uint64_t *
unwound_of(struct ct_stats *stats, const struct ct_fn_stats *fn)
{
  uint64_t **unwound = &stats->unwound[fn - stats->fns];
  if (*unwound == NULL) {
    *unwound = calloc(CT_SPAN_ENDS, sizeof(**unwound));
  }
  return *unwound;
}

struct ct_fn_stats *
ct_stats_touch(struct ct_stats *stats, uint32_t id)
{
  struct ct_fn_stats *fn = &stats->fns[id < stats->fn_count ? id : stats->fn_count];
  return fn->histogram != NULL || touch(stats, fn) == 0 ? fn : NULL;
}

uint64_t *
ct_stats_unwound(struct ct_stats *stats, uint32_t id)
{
  return unwound_of(stats, &stats->fns[id < stats->fn_count ? id : stats->fn_count]);
}

/* Spans without a known and certain duration. */
static __attribute__((noinline)) void
add_other(struct ct_stats *stats, struct ct_fn_stats *fn, const struct ct_span *span)
{
  if (span->end == CT_SPAN_ORPHAN) {
    fn->orphans++;
    return;
  }
  if (span->end == CT_SPAN_POINT) {
    fn->points += span->calls;
    stats->passed_over[fn - stats->fns] += span->calls - 1u;
    return;
  }
  if (span->end == CT_SPAN_COUNTED) {
    fn->points += span->duration_ticks;
    stats->counted[fn - stats->fns] += span->duration_ticks;
    return;
  }
  fn->total_ticks += span->fresh_ticks;
  fn->self_ticks += span->self_ticks;
  fn->untimed++;
  bool is_before = (span->uncertain & CT_SPAN_BEFORE) != 0;
  stats->before[fn - stats->fns] += is_before;
  if ((span->uncertain & CT_SPAN_UNCERTAIN) != 0 || !(is_before || span->end == CT_SPAN_OPEN) ||
      span->end == CT_SPAN_SWITCHED || span->end == CT_SPAN_LOST) {
    return;
  }
  stats->partial[fn - stats->fns]++;
  if (span->duration_ticks > fn->max_ticks) {
    fn->max_ticks = span->duration_ticks;
  }
}

static int
add_self(struct ct_stats *stats, const struct ct_span *span)
{
  struct ct_selves *selves = stats->selves[span->fn < stats->fn_count ? span->fn : stats->fn_count];
  if (CT_UNLIKELY(selves == NULL) && (selves = ct_stats_selves(stats, span->fn)) == NULL) {
    return CT_ENOMEM;
  }
  return ct_selves_add(selves, span->self_ticks);
}

static int
merge_selves(struct ct_stats *into, uint32_t to, const struct ct_selves *from)
{
  struct ct_selves *selves = ct_stats_selves(into, to);
  if (selves == NULL) {
    return CT_ENOMEM;
  }
  ct_batches_merge(&selves->batches, &from->batches);
  return ct_histogram_merge(&selves->histogram, &from->histogram);
}

int
ct_stats_add(struct ct_stats *stats, const struct ct_span *spans, size_t count)
{
  for (const struct ct_span *span = spans; span != spans + count; span++) {
    struct ct_fn_stats *fn = &stats->fns[span->fn < stats->fn_count ? span->fn : stats->fn_count];
    if (CT_UNLIKELY(fn->histogram == NULL) && touch(stats, fn) != 0) {
      return CT_ENOMEM;
    }
    if (CT_UNLIKELY(ct_span_is_left(span->end))) {
      uint64_t *unwound = unwound_of(stats, fn);
      if (unwound == NULL) {
        return CT_ENOMEM;
      }
      unwound[span->end]++;
    }
    if (CT_UNLIKELY(span->fresh_off_ticks != 0)) {
      stats->off[fn - stats->fns] += span->fresh_off_ticks;
    }
    if (CT_UNLIKELY(!ct_span_is_timed(span))) {
      add_other(stats, fn, span);
      continue;
    }
    uint64_t duration = span->duration_ticks;
    fn->total_ticks += span->fresh_ticks;
    fn->self_ticks += span->self_ticks;
    if (duration < fn->min_ticks) {
      fn->min_ticks = duration;
    }
    if (duration > fn->max_ticks) {
      fn->max_ticks = duration;
    }
    if (CT_UNLIKELY(ct_histogram_add(fn->histogram, duration) != 0)) {
      return CT_ENOMEM;
    }
    if (stats->selves != NULL && add_self(stats, span) != 0) {
      return CT_ENOMEM;
    }
  }
  return 0;
}

int
ct_stats_merge_one(struct ct_stats *into, uint32_t to, const struct ct_stats *from, uint32_t id)
{
  const struct ct_fn_stats *src = &from->fns[id];
  struct ct_fn_stats *dst = &into->fns[to < into->fn_count ? to : into->fn_count];
  if (dst->histogram == NULL && touch(into, dst) != 0) {
    return CT_ENOMEM;
  }
  dst->points += src->points;
  into->passed_over[dst - into->fns] += from->passed_over[id];
  into->counted[dst - into->fns] += from->counted[id];
  into->off[dst - into->fns] += from->off[id];
  into->partial[dst - into->fns] += from->partial[id];
  into->before[dst - into->fns] += from->before[id];
  dst->total_ticks += src->total_ticks;
  dst->self_ticks += src->self_ticks;
  dst->untimed += src->untimed;
  dst->orphans += src->orphans;
  if (from->unwound[id] != NULL) {
    uint64_t *unwound = unwound_of(into, dst);
    if (unwound == NULL) {
      return CT_ENOMEM;
    }
    for (int end = 0; end < CT_SPAN_ENDS; end++) {
      unwound[end] += from->unwound[id][end];
    }
  }
  if (src->min_ticks < dst->min_ticks) {
    dst->min_ticks = src->min_ticks;
  }
  if (src->max_ticks > dst->max_ticks) {
    dst->max_ticks = src->max_ticks;
  }
  bool has_selves = into->selves != NULL && from->selves != NULL && from->selves[id] != NULL;
  if (has_selves && merge_selves(into, to, from->selves[id]) != 0) {
    return CT_ENOMEM;
  }
  return ct_histogram_merge(dst->histogram, src->histogram);
}

int
ct_stats_merge(struct ct_stats *into, const struct ct_stats *from)
{
  int code = 0;
  into->gap_ticks += from->gap_ticks;
  into->lost += from->lost;
  for (uint32_t i = 0; i < from->touched_count && code == 0; i++) {
    code = ct_stats_merge_one(into, from->touched[i], from, from->touched[i]);
  }
  return code;
}
