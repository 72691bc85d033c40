/* SPDX-License-Identifier: MIT */
/* See span_filter.h. */
#include "views/span_filter.h"

#include "views/filter.h"

#include <stdlib.h>
#include <string.h>

void
ct_span_filter_init(struct ct_span_filter *filter, struct ct_trace *trace, const struct ct_filter *wanted)
{
  *filter = (struct ct_span_filter){.trace = trace, .fn_count = ct_trace_function_count(trace)};
  filter->filter = ct_filter_limits_calls(wanted) ? wanted : NULL;
}

void
ct_span_filter_destroy(struct ct_span_filter *filter)
{
  for (size_t i = 0; filter->covered != NULL && i <= filter->fn_count; i++) {
    free(filter->covered[i].times);
  }
  free(filter->covered);
  free(filter->passed);
}

/* Room for the numbers of levels up to this one of the function; NULL: out of memory. */
static struct ct_covered *
covered_of(struct ct_span_filter *filter, uint32_t fn, uint32_t level)
{
  if (filter->covered == NULL) {
    filter->covered = calloc((size_t)filter->fn_count + 1, sizeof(*filter->covered));
    if (filter->covered == NULL) {
      return NULL;
    }
  }
  struct ct_covered *covered = &filter->covered[fn < filter->fn_count ? fn : filter->fn_count];
  if (level >= covered->levels) {
    uint32_t levels = 2 * level + 8;
    struct ct_covered_time *times = reallocarray(covered->times, levels, sizeof(*times));
    if (times == NULL) {
      return NULL;
    }
    memset(times + covered->levels, 0, (levels - covered->levels) * sizeof(*times));
    covered->times = times;
    covered->levels = levels;
  }
  return covered;
}

/*
 * A span that ends `level` frames of its function inside the outermost one, and passes or does not. What frames further
 * in have covered of it stands one level below; what it covers itself, or they, is that of the frame further out.
 */
static int
reconcile(struct ct_span_filter *filter, struct ct_span *span, bool passes)
{
  uint32_t level = span->recursion;
  if (level == 0 && filter->covered == NULL) {
    span->fresh_ticks = span->duration_ticks;
    span->fresh_off_ticks = span->off_ticks;
    return CT_OK;
  }
  struct ct_covered *covered = covered_of(filter, span->fn, level + 1);
  if (covered == NULL) {
    return CT_ENOMEM;
  }
  struct ct_covered_time inside = covered->times[level + 1];
  covered->times[level + 1] = (struct ct_covered_time){0};
  span->fresh_ticks = span->duration_ticks > inside.ticks ? span->duration_ticks - inside.ticks : 0;
  span->fresh_off_ticks = span->off_ticks > inside.off_ticks ? span->off_ticks - inside.off_ticks : 0;
  if (level != 0) {
    covered->times[level].ticks += inside.ticks + (passes ? span->fresh_ticks : 0);
    covered->times[level].off_ticks += inside.off_ticks + (passes ? span->fresh_off_ticks : 0);
  }
  return CT_OK;
}

int
ct_span_filter_run(struct ct_span_filter *filter, const struct ct_span **batch, size_t *count)
{
  if (filter->filter == NULL) {
    return CT_OK;
  }
  if (*count > filter->capacity) {
    struct ct_span *passed = reallocarray(filter->passed, *count, sizeof(*passed));
    if (passed == NULL) {
      return CT_ENOMEM;
    }
    filter->passed = passed;
    filter->capacity = *count;
  }
  size_t passed = 0;
  for (const struct ct_span *span = *batch; span != *batch + *count; span++) {
    struct ct_span *own = &filter->passed[passed];
    *own = *span;
    bool has_time = span->end < CT_SPAN_ORPHAN;
    uint64_t ns = has_time ? ct_trace_ticks_ns(filter->trace, span->duration_ticks) : 0;
    bool passes = ct_filter_call_passes(filter->filter, ns, span->depth, span->end);
    if (has_time && reconcile(filter, own, passes) != CT_OK) {
      return CT_ENOMEM;
    }
    passed += passes;
  }
  *batch = filter->passed;
  *count = passed;
  return CT_OK;
}
