/* SPDX-License-Identifier: MIT */
/*
 * See slowest_index.h. A call lies in the piece of the trace from its enter to its end: there is all that is reported
 * of the time in it. The thread's clock in the piece is not that of the whole, which goes on from what hooks took
 * before, so the index says what it is when the call is entered. Pieces of a thread that overlap are one, so that a
 * call inside of another one is seen there. They are read from the last one to the first: the range of a trace can be
 * made to end earlier, not later.
 */
#include "views/slowest_index.h"

#include "index/index.h"
#include "views/filter.h"
#include "views/select.h"

#include <stdlib.h>

/* Of all selected functions' calls it is known how long they took, but for those that have an enter only. */
static bool
has_all_durations(const struct ct_index *index, const uint8_t *functions, uint64_t *enter_only)
{
  const struct ct_stats *stats = ct_index_stats(index);
  bool has_all = stats->lost == 0;
  *enter_only = 0;
  for (uint32_t i = 0; i < stats->touched_count && has_all; i++) {
    uint32_t fn = stats->touched[i];
    const uint64_t *unwound = stats->unwound[fn];
    bool is_unknown =
        stats->fns[fn].untimed != stats->partial[fn] ||
        (unwound != NULL && (unwound[CT_SPAN_SWITCHED] | unwound[CT_SPAN_LOST] | unwound[CT_SPAN_UNSEEN]) != 0);
    has_all = functions[fn] == 0 || (!is_unknown && stats->before[fn] == 0);
    *enter_only += functions[fn] != 0 ? stats->fns[fn].points : 0;
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
  struct ct_index_scan *scan;
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
                                           .end_tsc = span->end_tsc,
                                           .thread = span->thread,
                                           .fn = span->fn};
  }
  ct_scan_close(scan);
  for (size_t i = 0; i < found && ok; i++) {
    struct ct_slow_call *call = &calls[i];
    ok = ct_index_clock_at(index, call->thread, call->ordinal, &call->clock) == 0;
  }
  *count = ok ? found : 0;
  return ok;
}

bool
ct_slowest_from_index(struct ct_trace *trace, const struct ct_slowest_options *options, size_t limit,
                      struct ct_slow_call *calls, size_t *count, uint64_t *enter_only)
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
  uint64_t points = 0;
  ok = ok && choose(trace, options->filter, &wanted) && has_all_durations(index, wanted.functions, &points) &&
       (points == 0 || options->filter->tid_count == 0) && /* they are those of all threads */
       scan(index, &wanted, limit, calls, count);
  *enter_only = ok ? points : 0;
  free(wanted.functions);
  free(wanted.threads);
  ct_index_close(index);
  return ok;
}

struct piece {
  uint64_t from, to;
  uint32_t thread;
};

static int
compare_begins(const void *a, const void *b)
{
  const struct piece *x = a, *y = b;
  if (x->thread != y->thread) {
    return x->thread < y->thread ? -1 : 1;
  }
  return (x->from > y->from) - (x->from < y->from);
}

static int
compare_ends(const void *a, const void *b)
{
  const struct piece *x = a, *y = b;
  if (x->to != y->to) {
    return x->to < y->to ? 1 : -1;
  }
  return (x->thread > y->thread) - (x->thread < y->thread);
}

/* Those that overlap become one; the number of what is left. */
static size_t
merge(struct piece *pieces, size_t count)
{
  size_t kept = 0;
  if (count == 0) {
    return 0;
  }
  qsort(pieces, count, sizeof(*pieces), compare_begins);
  for (size_t i = 0; i < count; i++) {
    struct piece *last = kept != 0 ? &pieces[kept - 1] : NULL;
    if (last != NULL && last->thread == pieces[i].thread && pieces[i].from <= last->to) {
      last->to = pieces[i].to > last->to ? pieces[i].to : last->to;
    } else {
      pieces[kept++] = pieces[i];
    }
  }
  qsort(pieces, kept, sizeof(*pieces), compare_ends);
  return kept;
}

static int
replay_piece(struct ct_trace *own, const struct piece *of, const struct ct_replay_options *options,
             const struct replay_sink *sink, struct ct_diag *diag)
{
  uint32_t tid = ct_trace_thread(own, of->thread)->tid;
  struct ct_filter filter = *options->filter;
  struct ct_replay_options piece = *options;
  struct ct_view_notes notes = {0};
  filter.tids = &tid;
  filter.tid_count = 1;
  piece.filter = &filter;
  return ct_trace_set_range(own, of->from, of->to) == 0
             ? ct_replay_selected(own, &piece, sink, &notes, diag)
             : ct_fail(diag, CT_ENOMEM, "out of memory for the slowest calls");
}

int
ct_slowest_replay_pieces(const struct ct_trace *trace, const struct ct_slow_call *calls, size_t count,
                         const struct ct_replay_options *options, const struct replay_sink *sink, struct ct_diag *diag)
{
  struct piece *pieces = calloc(count + 1, sizeof(*pieces));
  struct ct_trace *own = NULL;
  int code = pieces != NULL ? ct_trace_open(ct_trace_path(trace), &own, diag)
                            : ct_fail(diag, CT_ENOMEM, "out of memory for the slowest calls");
  if (code != 0) {
    goto free_pieces;
  }
  if (ct_index_give_places(own) != 0) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the slowest calls");
    goto free_pieces;
  }
  ct_trace_skip_begun(own); /* what is shown begins in a piece: nobody asks what is open around it */
  for (size_t i = 0; i < count; i++) {
    pieces[i] = (struct piece){calls[i].enter_tsc, calls[i].end_tsc, calls[i].thread};
  }
  count = merge(pieces, count);
  for (size_t i = 0; i < count && code == 0; i++) {
    code = replay_piece(own, &pieces[i], options, sink, diag);
  }
free_pieces:
  ct_trace_close(own);
  free(pieces);
  return code;
}
