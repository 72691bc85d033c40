/* SPDX-License-Identifier: MIT */
/*
 * The report's numbers; see report.h. Threads of the trace are independent, so several
 * workers take them from a list, the longest first, each into a table of its own;
 * the tables are merged at the end. The calling thread is the first worker and
 * the only one that reports progress.
 */
#include "views/report.h"

#include "index/index.h"
#include "views/filter.h"
#include "views/pattern.h"
#include "views/select.h"
#include "views/span_filter.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORKERS = 16 };

struct collection {
  struct ct_trace *trace;
  struct ct_report_thread *threads;
  size_t count;
  uint64_t total_bytes;
  const struct ct_report_options *options;
  /* Relaxed: plain counters; the results are handed over by pthread_join. */
  _Atomic size_t next;
  _Atomic uint64_t done_bytes;
  _Atomic bool stop;
  _Atomic bool is_cancelled; /* relaxed: all workers end */
};

struct worker {
  struct collection *job;
  struct ct_stats *stats;
  struct ct_stats own; /* of all workers but the first */
  bool reports_progress;
  pthread_t thread;
  int code;
  struct ct_diag diag;
};

int
ct_report_choose_threads(struct ct_trace *trace, const struct ct_report_options *options,
                         struct ct_report_thread **threads, size_t *count, struct ct_diag *diag)
{
  uint32_t *indexes;
  size_t n;
  int code = ct_choose_threads(trace, options->filter->tids, options->filter->tid_count, &indexes, &n, diag);
  if (code != 0) {
    return code;
  }
  struct ct_report_thread *selected = calloc(n + 1, sizeof(*selected));
  if (selected == NULL) {
    free(indexes);
    return ct_fail(diag, CT_ENOMEM, "out of memory for the list of threads");
  }
  for (size_t i = 0; i < n; i++) {
    selected[i].index = indexes[i];
  }
  free(indexes);
  *threads = selected;
  *count = n;
  return 0;
}

struct reported {
  int (*moved)(void *arg, uint64_t bytes);
  void *arg;
  struct ct_spans *spans;
  uint64_t offset;
  int code; /* of moved: nobody wants the rest */
};

static void
report_offset(void *arg, uint64_t offset)
{
  struct reported *reported = arg;
  if (reported->moved != NULL) {
    reported->code = reported->moved(reported->arg, offset - reported->offset);
  }
  if (reported->code != 0) {
    ct_spans_pause(reported->spans);
  }
  reported->offset = offset;
}

/* Only the calls that pass. */
static int
sum_filtered(struct ct_spans *spans, struct ct_trace *trace, const struct ct_filter *wanted, struct ct_stats *stats,
             struct reported *reported)
{
  struct ct_span_filter filter;
  const struct ct_span *batch;
  size_t count;
  int code;
  ct_span_filter_init(&filter, trace, wanted);
  while ((code = ct_spans_next(spans, &batch, &count)) == 0 && count != 0) {
    code = ct_span_filter_run(&filter, &batch, &count);
    code = code == 0 ? ct_stats_add(stats, batch, count) : code;
    if (code != 0) {
      break;
    }
    if (ct_spans_offset(spans) != reported->offset) {
      report_offset(reported, ct_spans_offset(spans));
    }
    if (reported->code != 0) {
      break;
    }
  }
  ct_span_filter_destroy(&filter);
  return code;
}

int
ct_report_read_thread(struct ct_trace *trace, struct ct_report_thread *thread, const struct ct_report_options *options,
                      struct ct_stats *stats, int (*moved)(void *arg, uint64_t bytes), void *arg, struct ct_diag *diag)
{
  struct ct_spans *spans;
  struct reported reported = {.moved = moved, .arg = arg};
  int code = ct_spans_open(trace, thread->index, options->time, &spans, diag);
  if (code != 0) {
    return code;
  }
  reported.spans = spans;
  code = ct_filter_limits_calls(options->filter) ? sum_filtered(spans, trace, options->filter, stats, &reported)
                                                 : ct_spans_sum(spans, stats, report_offset, &reported);
  code = code == 0 ? reported.code : code;
  if (code != 0) {
    ct_fail(diag, code, "out of memory for the statistics of the functions");
  }
  thread->events = ct_spans_events(spans);
  for (uint32_t i = 0; i < stats->touched_count && ct_trace_has_bounds(trace); i++) {
    stats->off[stats->touched[i]] += ct_spans_off_at_most(spans, stats->touched[i]);
  }
  stats->gap_ticks += ct_spans_gap_ticks(spans);
  stats->lost += ct_spans_lost(spans);
  thread->damaged = ct_spans_state(spans) == CT_CURSOR_DAMAGED;
  ct_spans_close(spans);
  return code;
}

static int
worker_moved(void *arg, uint64_t bytes)
{
  struct worker *worker = arg;
  struct collection *job = worker->job;
  uint64_t done = atomic_fetch_add_explicit(&job->done_bytes, bytes, memory_order_relaxed) + bytes;
  if (worker->reports_progress && job->options->progress.update != NULL) {
    int code = job->options->progress.update(job->options->progress.arg, done, job->total_bytes);
    if (code != 0) {
      atomic_store_explicit(&job->is_cancelled, true, memory_order_relaxed);
    }
  }
  return atomic_load_explicit(&job->is_cancelled, memory_order_relaxed) ? CT_ECANCELED : 0;
}

static void *
work(void *arg)
{
  struct worker *worker = arg;
  struct collection *job = worker->job;
  while (!atomic_load_explicit(&job->stop, memory_order_relaxed)) {
    size_t i = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
    if (i >= job->count) {
      break;
    }
    worker->code = ct_report_read_thread(job->trace, &job->threads[i], job->options, worker->stats, worker_moved,
                                         worker, &worker->diag);
    if (worker->code != 0) {
      atomic_store_explicit(&job->stop, true, memory_order_relaxed);
    }
  }
  return NULL;
}

struct sized_thread {
  uint64_t bytes;
  struct ct_report_thread thread;
};

static int
compare_bytes(const void *a, const void *b)
{
  const struct sized_thread *x = a, *y = b;
  if (x->bytes != y->bytes) {
    return x->bytes < y->bytes ? 1 : -1;
  }
  return x->thread.index < y->thread.index ? -1 : 1;
}

static int
compare_index(const void *a, const void *b)
{
  const struct ct_report_thread *x = a, *y = b;
  return x->index < y->index ? -1 : 1;
}

/* The longest thread first, so that no worker begins it when the others are done. */
static int
order_by_size(struct collection *job)
{
  struct sized_thread *sized = malloc((job->count + 1) * sizeof(*sized));
  if (sized == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < job->count; i++) {
    sized[i].thread = job->threads[i];
    sized[i].bytes = ct_trace_thread(job->trace, job->threads[i].index)->file_bytes;
    job->total_bytes += sized[i].bytes;
  }
  qsort(sized, job->count, sizeof(*sized), compare_bytes);
  for (size_t i = 0; i < job->count; i++) {
    job->threads[i] = sized[i].thread;
  }
  free(sized);
  return 0;
}

/* Runs the job on `count` workers; fewer when threads or memory are short. */
static int
run_workers(struct collection *job, struct ct_stats *stats, unsigned count, struct ct_diag *diag)
{
  struct worker workers[MAX_WORKERS] = {0};
  unsigned started = 1;
  workers[0] = (struct worker){.job = job, .stats = stats, .reports_progress = true};
  for (; started < count; started++) {
    struct worker *w = &workers[started];
    w->job = job;
    w->stats = &w->own;
    if (ct_stats_init(&w->own, stats->fn_count) != 0) {
      break;
    }
    if (pthread_create(&w->thread, NULL, work, w) != 0) {
      ct_stats_destroy(&w->own);
      break;
    }
  }
  work(&workers[0]);
  int code = workers[0].code;
  if (code != 0) {
    ct_fail(diag, code, "%s", workers[0].diag.text);
  }
  for (unsigned i = 1; i < started; i++) {
    struct worker *w = &workers[i];
    pthread_join(w->thread, NULL);
    if (code == 0 && w->code != 0) {
      code = ct_fail(diag, w->code, "%s", w->diag.text);
    }
    if (code == 0 && ct_stats_merge(stats, &w->own) != 0) {
      code = ct_fail(diag, CT_ENOMEM, "out of memory for the statistics of the functions");
    }
    ct_stats_destroy(&w->own);
  }
  return code;
}

/*
 * The same from the trace's index, where there is one and it has all that is asked. With bounds of the time off the
 * processor it has not: those of a stretch are not the sum of its parts'.
 */
static bool
collect_indexed(struct collection *job, struct ct_stats *stats)
{
  const struct ct_report_options *options = job->options;
  struct ct_index *index;
  if (options->time != CT_TIME_WALL || job->count != ct_trace_thread_count(job->trace) ||
      ct_filter_limits_calls(options->filter) || ct_trace_has_range(job->trace) || ct_trace_has_bounds(job->trace) ||
      ct_index_open_sums(job->trace, options->workers, &options->progress, &index, NULL) != 0) {
    return false;
  }
  bool is_good = true;
  for (size_t i = 0; i < job->count; i++) {
    struct ct_index_thread_sums sums;
    ct_index_thread_sums(index, job->threads[i].index, &sums);
    job->threads[i].events = sums.events;
    is_good = is_good && !sums.is_damaged;
  }
  is_good = is_good && ct_stats_init(stats, ct_trace_function_count(job->trace)) == 0;
  if (is_good && ct_stats_merge(stats, ct_index_stats(index)) != 0) {
    ct_stats_destroy(stats);
    is_good = false;
  }
  ct_index_close(index);
  return is_good;
}

int
ct_report_collect(struct ct_trace *trace, const struct ct_report_options *options, struct ct_stats *stats,
                  struct ct_report_thread **threads, size_t *thread_count, struct ct_diag *diag)
{
  struct collection job = {.trace = trace, .options = options};
  int code = ct_report_choose_threads(trace, options, &job.threads, &job.count, diag);
  if (code != 0) {
    return code;
  }
  if (collect_indexed(&job, stats)) {
    *threads = job.threads;
    *thread_count = job.count;
    return 0;
  }
  if (order_by_size(&job) != 0 || ct_stats_init(stats, ct_trace_function_count(trace)) != 0) {
    free(job.threads);
    return ct_fail(diag, CT_ENOMEM, "out of memory for the statistics of the functions");
  }
  unsigned workers = options->workers < MAX_WORKERS ? options->workers : MAX_WORKERS;
  code = run_workers(&job, stats, workers < job.count ? workers : (unsigned)job.count, diag);
  if (code != 0) {
    ct_stats_destroy(stats);
    free(job.threads);
    return code;
  }
  qsort(job.threads, job.count, sizeof(*job.threads), compare_index);
  *threads = job.threads;
  *thread_count = job.count;
  return 0;
}

/* A quantile's bucket middle may lie outside of what was seen. */
static uint64_t
quantile_ns(const struct ct_trace *trace, const struct ct_fn_stats *fn, uint32_t permille)
{
  uint64_t ticks = ct_histogram_quantile(fn->histogram, permille);
  if (ticks < fn->min_ticks) {
    ticks = fn->min_ticks;
  }
  if (ticks > fn->max_ticks) {
    ticks = fn->max_ticks;
  }
  return ct_trace_ticks_ns(trace, ticks);
}

static void
fill_numbers(const struct ct_trace *trace, const struct ct_stats *stats, uint32_t id, struct ct_report_row *row)
{
  const struct ct_fn_stats *fn = &stats->fns[id];
  row->before = stats->before[id];
  row->calls = ct_fn_stats_spans(fn) - row->before;
  row->points = fn->points;
  row->timed = fn->histogram->count;
  row->partial = stats->partial[id];
  row->uncertain = fn->untimed - row->partial;
  for (int end = 0; stats->unwound[id] != NULL && end < CT_SPAN_ENDS; end++) {
    row->unfinished += ct_span_is_unfinished((unsigned)end) ? stats->unwound[id][end] : 0;
  }
  row->orphans = fn->orphans;
  row->total_ns = ct_trace_ticks_ns(trace, fn->total_ticks);
  row->self_ns = ct_trace_ticks_ns(trace, fn->self_ticks);
  row->off_ns = ct_trace_ticks_ns(trace, stats->off[id]);
  row->off_is_bound = ct_trace_has_bounds(trace);
  row->max_ns = ct_trace_ticks_ns(trace, fn->max_ticks);
  if (row->timed == 0) {
    return;
  }
  row->min_ns = ct_trace_ticks_ns(trace, fn->min_ticks);
  row->avg_ns = ct_trace_ticks_ns(trace, fn->histogram->sum / row->timed);
  row->p50_ns = quantile_ns(trace, fn, 500);
  row->p95_ns = quantile_ns(trace, fn, 950);
  row->p99_ns = quantile_ns(trace, fn, 990);
}

static uint64_t
sort_value(const struct ct_report_row *row, enum ct_report_sort sort)
{
  switch (sort) {
  case CT_SORT_SELF:
    return row->self_ns;
  case CT_SORT_CALLS:
    return row->calls;
  case CT_SORT_MIN:
    return row->min_ns;
  case CT_SORT_MAX:
    return row->max_ns;
  case CT_SORT_AVG:
    return row->avg_ns;
  case CT_SORT_P50:
    return row->p50_ns;
  case CT_SORT_P95:
    return row->p95_ns;
  case CT_SORT_P99:
    return row->p99_ns;
  case CT_SORT_OFF:
    return row->off_ns;
  case CT_SORT_NAME:
    return 0;
  case CT_SORT_TOTAL:
    break;
  }
  return row->total_ns;
}

static int
compare_by_name(const void *a, const void *b)
{
  const struct ct_report_row *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  order = order != 0 ? order : strcmp(x->module, y->module);
  return order != 0 ? order : (x->fn > y->fn) - (x->fn < y->fn);
}

static int
compare_by_key(const void *a, const void *b)
{
  const struct ct_report_row *x = a, *y = b;
  if (x->sort_key != y->sort_key) {
    return x->sort_key < y->sort_key ? 1 : -1;
  }
  if (x->calls != y->calls) {
    return x->calls < y->calls ? 1 : -1;
  }
  return compare_by_name(a, b);
}

void
ct_report_fill_row(const struct ct_trace *trace, const struct ct_stats *stats, uint32_t id, bool enter_only,
                   enum ct_report_sort sort, struct ct_report_row *row)
{
  fill_numbers(trace, stats, id, row);
  row->enter_only = enter_only || (row->points != 0 && row->points == row->calls && row->counted == 0);
  row->sort_key = sort_value(row, sort);
}

void
ct_report_sort_rows(struct ct_report_row *rows, size_t count, enum ct_report_sort sort)
{
  qsort(rows, count, sizeof(*rows), sort == CT_SORT_NAME ? compare_by_name : compare_by_key);
}

/* What was out is not all of the trace's time: of those that came back it is known when. Where a piece of time is shown
 * that lies outside of that, all of their calls in it were seen. */
static void
leave_out_others(const struct ct_trace *trace, uint8_t *map, uint32_t fn_count)
{
  const json_t *list = json_object_get(json_object_get(ct_trace_manifest(trace), "budget"), "out_during"), *item;
  uint64_t from_tsc, to_tsc;
  size_t i;
  if (!ct_trace_range(trace, &from_tsc, &to_tsc)) {
    return;
  }
  json_array_foreach((json_t *)list, i, item)
  {
    const json_t *id = json_array_get(item, 0), *from = json_array_get(item, 1), *until = json_array_get(item, 2);
    json_int_t fn = json_integer_value(id);
    if (json_is_integer(id) && json_is_integer(from) && json_is_integer(until) && fn >= 0 && fn < fn_count &&
        (ct_trace_tsc(trace, (uint64_t)json_integer_value(until)) < from_tsc ||
         ct_trace_tsc(trace, (uint64_t)json_integer_value(from)) > to_tsc)) {
      map[fn] = 0;
    }
  }
}

uint8_t *
ct_report_were_out(const struct ct_trace *trace, uint32_t fn_count)
{
  const json_t *ids = json_object_get(json_object_get(ct_trace_manifest(trace), "budget"), "were_out"), *id;
  uint8_t *map = json_array_size(ids) != 0 ? calloc((size_t)fn_count + 1, 1) : NULL;
  size_t i;
  json_array_foreach((json_t *)ids, i, id)
  {
    json_int_t fn = json_integer_value(id);
    if (map != NULL && json_is_integer(id) && fn >= 0 && fn < fn_count) {
      map[fn] = 1;
    }
  }
  if (map != NULL) {
    leave_out_others(trace, map, fn_count);
  }
  return map;
}

bool
ct_report_is_filtered(const struct ct_filter *filter)
{
  return filter->function != NULL || filter->module != NULL || filter->file != NULL || ct_filter_limits_calls(filter);
}

int
ct_report_rows(struct ct_trace *trace, const struct ct_stats *stats, const struct ct_report_options *options,
               struct ct_report_row **rows, size_t *count, struct ct_diag *diag)
{
  struct ct_report_row *list = calloc((size_t)stats->touched_count + 2, sizeof(*list));
  if (list == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the rows of the report");
  }
  struct ct_view_pattern pattern;
  int code = ct_view_pattern_init(&pattern, trace, options->filter->function, options->filter->module,
                                  options->filter->file, diag);
  if (code != 0) {
    free(list);
    return code;
  }
  uint8_t *were_out = ct_report_were_out(trace, stats->fn_count);
  size_t n = 0;
  for (uint32_t i = 0; i < stats->touched_count; i++) {
    uint32_t id = stats->touched[i];
    const struct ct_trace_function *fn = id < stats->fn_count ? ct_trace_function(trace, id) : NULL;
    if (!ct_view_pattern_has_place(&pattern, fn) || !ct_view_pattern_has_function(&pattern, fn)) {
      continue;
    }
    struct ct_report_row *row = &list[n++];
    row->unwound = stats->unwound[id];
    row->passed_over = stats->passed_over[id];
    row->counted = stats->counted[id];
    row->was_out = were_out != NULL && were_out[id < stats->fn_count ? id : stats->fn_count];
    row->fn = fn != NULL ? id : UINT32_MAX;
    row->name = fn != NULL ? fn->name : "?";
    row->file = fn != NULL ? ct_trace_function_source(trace, id, &row->line) : NULL;
    row->module = fn != NULL ? ct_trace_module_name(trace, fn->module) : "?";
    ct_report_fill_row(trace, stats, id, fn != NULL && fn->enter_only, options->sort, row);
  }
  free(were_out);
  ct_view_pattern_destroy(&pattern);
  if (stats->gap_ticks != 0 && !ct_report_is_filtered(options->filter)) {
    uint64_t ns = ct_trace_ticks_ns(trace, stats->gap_ticks);
    list[n] = (struct ct_report_row){
        .fn = UINT32_MAX, .name = "(events lost)", .module = "", .total_ns = ns, .self_ns = ns, .is_gap = true};
    list[n].sort_key = sort_value(&list[n], options->sort);
    n++;
  }
  ct_report_sort_rows(list, n, options->sort);
  *rows = list;
  *count = n;
  return 0;
}
