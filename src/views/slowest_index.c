/* SPDX-License-Identifier: MIT */
/* See slowest_index.h. */
#include "views/slowest_index.h"

#include "index/index.h"
#include "views/filter.h"
#include "views/select.h"

#include <stdlib.h>

/* Of all chosen functions' calls it is known how long they took. */
static bool
has_all_durations(const struct ct_index *index, const uint8_t *functions)
{
  const struct ct_stats *stats = ct_index_stats(index);
  bool has_all = stats->lost == 0;
  for (uint32_t i = 0; i < stats->touched_count && has_all; i++) {
    uint32_t fn = stats->touched[i];
    const uint64_t *unwound = stats->unwound[fn];
    bool is_unknown =
        stats->fns[fn].untimed != stats->partial[fn] ||
        (unwound != NULL && (unwound[CT_SPAN_SWITCHED] | unwound[CT_SPAN_LOST] | unwound[CT_SPAN_UNSEEN]) != 0);
    has_all = functions[fn] == 0 || (!is_unknown && stats->before[fn] == 0);
  }
  return has_all;
}

struct wanted {
  uint8_t *functions, *threads;
};

static bool
choose(struct ct_trace *trace, const struct ct_filter *filter, struct wanted *wanted)
{
  uint32_t fn_count = ct_trace_function_count(trace), *threads = NULL;
  struct ct_filter_compiled *compiled = NULL;
  size_t count = 0;
  wanted->functions = calloc((size_t)fn_count + 1, 1);
  wanted->threads = calloc((size_t)ct_trace_thread_count(trace) + 1, 1);
  bool ok = wanted->functions != NULL && wanted->threads != NULL &&
            ct_choose_threads(trace, filter->tids, filter->tid_count, &threads, &count, NULL) == CT_OK &&
            ct_filter_compile(filter, trace, &compiled, NULL) == CT_OK;
  for (uint32_t fn = 0; ok && fn <= fn_count; fn++) {
    wanted->functions[fn] = ct_filter_has_function(compiled, fn);
  }
  for (size_t i = 0; ok && i < count; i++) {
    wanted->threads[threads[i]] = 1;
  }
  ct_filter_free_compiled(compiled);
  free(threads);
  return ok;
}

static bool
scan(struct ct_index *index, const struct wanted *wanted, size_t limit, struct ct_slow_call *calls, size_t *count)
{
  struct ct_scan_filter filter = CT_SCAN_FILTER_ALL;
  const struct ct_span *span = NULL;
  struct ct_scan *scan;
  size_t found = 0;
  filter.functions = wanted->functions;
  filter.threads = wanted->threads;
  filter.longest = limit;
  filter.no_points = true;
  if (ct_scan_open(index, &filter, &scan, NULL) != 0) {
    return false;
  }
  bool ok = true;
  while (ok && (ok = ct_scan_next(scan, &span) == 0) && span != NULL) {
    ok = span->uncertain == 0 && span->ordinal < CT_ORDINAL_BEFORE;
    calls[found++] = (struct ct_slow_call){.key = span->duration_ticks,
                                           .ordinal = span->ordinal,
                                           .enter_tsc = span->enter_tsc,
                                           .thread = span->thread,
                                           .fn = span->fn};
  }
  ct_scan_close(scan);
  *count = ok ? found : 0;
  return ok;
}

bool
ct_slowest_from_index(struct ct_trace *trace, const struct ct_slowest_options *options, size_t limit,
                      struct ct_slow_call *calls, size_t *count)
{
  struct ct_index *index;
  struct wanted wanted = {0};
  if (options->by_off || options->family || options->time != CT_TIME_WALL || ct_trace_has_range(trace) ||
      ct_filter_limits_calls(options->filter) || !ct_trace_is_complete(trace) || ct_trace_is_recovered(trace) ||
      ct_trace_missing_events(trace) != 0 ||
      ct_index_open_present(trace, options->workers, &options->progress, &index, NULL) != 0) {
    return false;
  }
  bool ok = true;
  for (uint32_t i = 0; i < ct_trace_thread_count(trace) && ok; i++) {
    struct ct_index_thread_sums sums;
    ct_index_thread_sums(index, i, &sums);
    ok = !sums.is_damaged;
  }
  ok = ok && choose(trace, options->filter, &wanted) && has_all_durations(index, wanted.functions) &&
       scan(index, &wanted, limit, calls, count);
  free(wanted.functions);
  free(wanted.threads);
  ct_index_close(index);
  return ok;
}
