/* SPDX-License-Identifier: MIT */
/* See reading.h. */
#include "views/reading.h"

#include "base/json.h"
#include "index/index.h"
#include "trace/batch.h"
#include "views/filter.h"
#include "views/process_tree.h"
#include "views/select.h"
#include "views/span_filter.h"
#include "views/warnings.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t
ct_view_calls_of(const struct ct_span *span)
{
  switch (span->end) {
  case CT_SPAN_ORPHAN:
    return 0;
  case CT_SPAN_POINT:
    return span->calls;
  case CT_SPAN_COUNTED:
    return span->duration_ticks;
  default:
    return (span->uncertain & CT_SPAN_BEFORE) == 0;
  }
}

/* ---- one thread ---- */

enum { MAX_WORKERS = 16, AHEAD_BYTES = 32 << 20 };

/* A thread of the trace at hand, and what came of it. */
struct thread_read {
  uint32_t index;
  uint64_t bytes; /* of its file */
  uint64_t events, gap_ticks;
  bool is_read, is_damaged;
  void *part; /* NULL: not read yet, or merged */
};

/* The threads of a trace, which workers take one after the other. */
struct trace_read {
  struct ct_view_reading *reading;
  struct ct_trace *trace;
  const struct ct_index *index; /* NULL: there is none that could tell */
  struct ct_index *whole; /* under the lock: the same with all its lists, opened when they are needed; NULL: not yet */
  bool has_no_whole;      /* likewise: it cannot be had */
  struct thread_read *threads; /* the longest first */
  size_t count;
  _Atomic size_t next;       /* relaxed: a plain counter */
  _Atomic bool stop;         /* relaxed: likewise */
  _Atomic bool is_cancelled; /* relaxed: likewise */
  /* Under the lock: */
  pthread_mutex_t lock;
  pthread_cond_t is_merged;
  size_t merged;        /* the parts of the threads before this one are */
  size_t waiting_bytes; /* of parts that are not */
  int code;
  struct ct_diag diag; /* of the first failure */
};

struct reader {
  struct trace_read *job;
  bool puts_progress;
  pthread_t thread;
};

/* 0, or CT_ECANCELED. */
static int
put_progress(const struct reader *reader, uint64_t moved)
{
  struct ct_view_reading *reading = reader->job->reading;
  uint64_t done = atomic_fetch_add_explicit(&reading->done_bytes, moved, memory_order_relaxed) + moved;
  if (reader->puts_progress && reading->progress != NULL && reading->progress->update != NULL &&
      reading->progress->update(reading->progress->arg, done, reading->total_bytes) != 0) {
    atomic_store_explicit(&reader->job->is_cancelled, true, memory_order_relaxed);
  }
  return atomic_load_explicit(&reader->job->is_cancelled, memory_order_relaxed) ? CT_ECANCELED : 0;
}

/* To the end of the stream, or to where the builder stops. *reported: the offset that progress has. */
static int
read_spans(const struct reader *reader, struct ct_spans *spans, void *part, uint64_t *reported)
{
  const struct ct_view_reading *reading = reader->job->reading;
  struct ct_span_filter filter;
  const struct ct_span *batch;
  size_t count;
  int code;
  ct_span_filter_init(&filter, reader->job->trace, reading->filter);
  while ((code = ct_spans_next(spans, &batch, &count)) == 0 && count != 0) {
    if (reading->observer == NULL) {
      code = ct_span_filter_run(&filter, &batch, &count);
      code = code == 0 ? reading->add(part, batch, count) : code;
    }
    if (code != 0) {
      break;
    }
    uint64_t offset = ct_spans_offset(spans);
    if (offset != *reported && (code = put_progress(reader, offset - *reported)) != 0) {
      break;
    }
    *reported = offset;
  }
  ct_span_filter_destroy(&filter);
  return code;
}

/* What the index has of the thread: its tree, or the sums of one. CT_ENOENT: neither. */
struct indexed {
  struct ct_span_tree tree;
  struct ct_tree_sums sums;
  bool is_sums;
};

static int
open_indexed(const struct trace_read *job, uint32_t thread, struct indexed *indexed)
{
  *indexed = (struct indexed){0};
  int code = job->index != NULL ? ct_index_tree(job->index, thread, &indexed->tree) : CT_ENOENT;
  if (code == CT_ENOENT && job->index != NULL && job->reading->take_sums != NULL) {
    code = ct_index_tree_sums(job->index, thread, &indexed->sums);
    indexed->is_sums = code == 0;
  }
  return code;
}

/* From the index, if it has what is asked for: *done. */
static int
take_indexed(const struct trace_read *job, struct thread_read *thread, bool *done)
{
  const struct ct_view_reading *reading = job->reading;
  struct ct_index_thread_sums sums;
  struct indexed indexed;
  *done = false;
  int code = open_indexed(job, thread->index, &indexed);
  if (code != 0) {
    return code == CT_ENOMEM ? code : 0;
  }
  ct_index_thread_sums(job->index, thread->index, &sums);
  if (sums.events != 0) { /* else there is nothing, or the first block is damaged: of that the index does not tell */
    code = reading->begin_thread(reading->arg, job->trace, thread->index, &thread->part);
    code = code != 0         ? code
           : indexed.is_sums ? reading->take_sums(thread->part, &indexed.sums)
                             : reading->take_tree(thread->part, &indexed.tree);
    *done = code == 0;
  }
  thread->events = sums.events;
  thread->gap_ticks = indexed.is_sums ? indexed.sums.gap_ticks : indexed.tree.gap_ticks;
  ct_span_tree_destroy(&indexed.tree);
  ct_tree_sums_destroy(&indexed.sums);
  if (code != 0 && thread->part != NULL) {
    reading->free_part(thread->part);
    thread->part = NULL;
  }
  return code == CT_ENOENT ? 0 : code;
}

/* No two functions of the trace have the same number. */
static bool
are_different(const struct ct_tree_sums *sums, const uint32_t *functions, uint32_t *fn_of)
{
  for (uint32_t i = 0; i < sums->edge_count; i++) {
    uint32_t *fn = &fn_of[functions[i]], edge_fn = sums->edges[i].fn;
    if (*fn != 0 && *fn != edge_fn + 1) {
      return false;
    }
    *fn = edge_fn + 1;
  }
  return true;
}

int
ct_view_reading_paths(const struct ct_view_reading *reading, const struct ct_span_tree *tree)
{
  uint32_t *names = calloc(tree->count, sizeof(*names)); /* of functions, by node */
  int code = names != NULL ? 0 : CT_ENOMEM;
  for (uint32_t i = CT_TREE_FIRST; code == 0 && i < tree->count; i++) {
    const struct ct_tree_node *node = &tree->nodes[i];
    names[i] = node->fn != CT_FN_OTHER ? ct_view_reading_name(reading, node->fn) : CT_NO_NAME;
    code = names[i] == CT_NO_NAME && node->fn != CT_FN_OTHER ? CT_ENOMEM : 0;
    for (uint32_t at = node->parent; code == 0 && at >= CT_TREE_FIRST; at = tree->nodes[at].parent) {
      code = names[at] == names[i] ? CT_ENOENT : 0;
    }
  }
  free(names);
  return code;
}

int
ct_view_reading_edges(const struct ct_view_reading *reading, const struct ct_tree_sums *sums, uint32_t **functions,
                      uint32_t **callers)
{
  uint32_t *of = calloc((size_t)sums->edge_count + 1, sizeof(*of));
  uint32_t *by = calloc((size_t)sums->edge_count + 1, sizeof(*by));
  uint32_t *fn_of = calloc(reading->names->capacity, sizeof(*fn_of));
  int code = of != NULL && by != NULL && fn_of != NULL ? 0 : CT_ENOMEM;
  for (uint32_t i = 0; i < sums->edge_count && code == 0; i++) {
    const struct ct_tree_edge *edge = &sums->edges[i];
    of[i] = ct_view_reading_name(reading, edge->fn);
    by[i] = edge->caller < CT_CALLER_COUNTED ? ct_view_reading_name(reading, edge->caller) : 0;
    code = of[i] == CT_NO_NAME || by[i] == CT_NO_NAME ? CT_ENOMEM : 0;
  }
  code = code == 0 && !are_different(sums, of, fn_of) ? CT_ENOENT : code;
  free(fn_of);
  if (code != 0) {
    free(of);
    free(by);
    return code;
  }
  *functions = of;
  *callers = by;
  return 0;
}

/* ---- what need not be read ---- */

/* The index with what it has of places; NULL: it has none, or not of all of the trace. Or CT_ENOMEM. */
static int
whole_index(struct trace_read *job, const struct ct_index **whole)
{
  struct ct_diag diag;
  int code = 0;
  pthread_mutex_lock(&job->lock);
  if (job->whole == NULL && !job->has_no_whole) {
    code = ct_index_open_whole(job->trace, &job->whole, &diag);
    job->has_no_whole = code != 0;
  }
  *whole = job->whole;
  pthread_mutex_unlock(&job->lock);
  return code == CT_ENOENT ? 0 : code;
}

/* By granule, whether it has to be read; *wanted NULL: all of the thread has to be. To be freed. */
static int
find_wanted(struct trace_read *job, uint32_t thread, const struct ct_index **whole, uint8_t **wanted, size_t *count)
{
  struct ct_view_reading *reading = job->reading;
  struct ct_index_thread_sums sums;
  *wanted = NULL;
  if (!reading->passes_over || job->index == NULL || !ct_trace_is_complete(job->trace) ||
      ct_trace_missing_events(job->trace) != 0) {
    return 0;
  }
  int code = whole_index(job, whole);
  if (code != 0 || *whole == NULL) {
    return code;
  }
  ct_index_thread_sums(*whole, thread, &sums);
  if (sums.is_damaged || sums.events == 0) {
    return 0;
  }
  uint32_t fn_count = ct_index_stats(*whole)->fn_count;
  uint8_t *functions = calloc((size_t)fn_count + 1, 1);
  for (uint32_t fn = 0; functions != NULL && fn < fn_count; fn++) {
    functions[fn] = ct_filter_has_function(reading->chooses, fn);
  }
  code = functions != NULL ? ct_index_granules_of(*whole, thread, functions, wanted, count) : CT_ENOMEM;
  free(functions);
  return code == CT_EFORMAT ? 0 : code;
}

/*
 * Only these granules. Where one is read and the one before was not, no call of a selected function is open, so no
 * frame is in a part, and what is open there needs no notes.
 */
static int
read_wanted(const struct reader *reader, struct ct_spans *spans, void *part, const struct ct_index *index,
            uint32_t thread, const uint8_t *wanted, size_t count)
{
  uint64_t reported = 0;
  int code = 0;
  for (size_t first = 0, end; first < count && code == 0; first = end) {
    for (end = first + 1; end < count && wanted[end] == wanted[first]; end++) {
    }
    if (!wanted[first]) {
      continue;
    }
    struct ct_index_place begin, after = {.offset = UINT64_MAX};
    ct_index_place(index, thread, first, &begin);
    if (end < count) {
      ct_index_place(index, thread, end, &after);
    }
    code = ct_spans_restore(spans, begin.offset, begin.state, begin.state_bytes);
    ct_spans_stop_at(spans, after.offset);
    code = code == 0 ? read_spans(reader, spans, part, &reported) : code;
  }
  return code;
}

/* ---- a thread ---- */

/* All of its spans, or those that are wanted of them. The part is there. */
static int
read_stream(const struct reader *reader, struct thread_read *thread, struct ct_spans *spans)
{
  const struct ct_index *whole = NULL;
  uint8_t *wanted;
  size_t count = 0;
  uint64_t reported = 0;
  int code = find_wanted(reader->job, thread->index, &whole, &wanted, &count);
  if (code == 0 && wanted != NULL) {
    struct ct_index_thread_sums sums;
    ct_index_thread_sums(whole, thread->index, &sums);
    thread->events = sums.events; /* gap_ticks: as its tree or sums have them */
    code = read_wanted(reader, spans, thread->part, whole, thread->index, wanted, count);
    free(wanted);
    return code;
  }
  code = code == 0 ? read_spans(reader, spans, thread->part, &reported) : code;
  thread->events = ct_spans_events(spans);
  thread->gap_ticks = ct_spans_gap_ticks(spans);
  thread->is_damaged = ct_spans_state(spans) == CT_CURSOR_DAMAGED;
  return code;
}

static int
read_thread(const struct reader *reader, struct thread_read *thread, struct ct_diag *diag)
{
  const struct ct_view_reading *reading = reader->job->reading;
  struct ct_span_observer observer;
  struct ct_spans *spans;
  bool done;
  int code = take_indexed(reader->job, thread, &done);
  if (code != 0) {
    return ct_fail(diag, code, "out of memory for the calls of the trace");
  }
  if (done) {
    return 0;
  }
  code = ct_spans_open(reader->job->trace, thread->index, reading->time, &spans, diag);
  if (code != 0) {
    return code;
  }
  code = reading->begin_thread(reading->arg, reader->job->trace, thread->index, &thread->part);
  if (code == 0 && reading->observer != NULL) {
    observer = *reading->observer;
    observer.arg = thread->part;
    ct_spans_observe(spans, &observer);
  }
  code = code == 0 ? read_stream(reader, thread, spans) : code;
  if (code != 0) {
    ct_fail(diag, code, "out of memory for the calls of the trace");
  }
  ct_spans_close(spans);
  return code;
}

/* ---- the threads of a trace ---- */

static size_t
part_bytes(const struct trace_read *job, const struct thread_read *thread)
{
  return job->reading->part_bytes != NULL ? job->reading->part_bytes(thread->part) : 0;
}

/* A thread has been read: all parts that are next are merged. The one whose turn it is never waits. */
static void
hand_over(struct trace_read *job, size_t at)
{
  struct ct_view_reading *reading = job->reading;
  pthread_mutex_lock(&job->lock);
  job->waiting_bytes += part_bytes(job, &job->threads[at]);
  job->threads[at].is_read = true;
  while (job->code == 0 && job->merged < job->count && job->threads[job->merged].is_read) {
    struct thread_read *thread = &job->threads[job->merged];
    job->waiting_bytes -= part_bytes(job, thread);
    job->code = reading->merge(reading->arg, thread->part);
    if (job->code != 0) {
      ct_fail(&job->diag, job->code, "out of memory for the calls of the trace");
    }
    reading->free_part(thread->part);
    thread->part = NULL;
    job->merged++;
  }
  pthread_cond_broadcast(&job->is_merged);
  if (job->code != 0) {
    atomic_store_explicit(&job->stop, true, memory_order_relaxed);
  }
  while (job->code == 0 && job->waiting_bytes > AHEAD_BYTES && job->merged <= at) {
    pthread_cond_wait(&job->is_merged, &job->lock);
  }
  pthread_mutex_unlock(&job->lock);
}

static void
fail(struct trace_read *job, int code, const struct ct_diag *diag)
{
  pthread_mutex_lock(&job->lock);
  if (job->code == 0) {
    job->code = code;
    job->diag = *diag;
  }
  pthread_cond_broadcast(&job->is_merged);
  pthread_mutex_unlock(&job->lock);
  atomic_store_explicit(&job->stop, true, memory_order_relaxed);
}

static void *
work(void *arg)
{
  const struct reader *reader = arg;
  struct trace_read *job = reader->job;
  while (!atomic_load_explicit(&job->stop, memory_order_relaxed)) {
    size_t at = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
    if (at >= job->count) {
      break;
    }
    struct ct_diag diag = {""};
    int code = read_thread(reader, &job->threads[at], &diag);
    if (code != 0) {
      fail(job, code, &diag);
      break;
    }
    hand_over(job, at);
  }
  return NULL;
}

static void
run_workers(struct trace_read *job)
{
  struct reader readers[MAX_WORKERS] = {0};
  unsigned count = job->reading->workers < MAX_WORKERS ? job->reading->workers : MAX_WORKERS, started = 1;
  count = count < job->count ? count : (unsigned)job->count;
  readers[0] = (struct reader){.job = job, .puts_progress = true};
  for (; started < count; started++) {
    readers[started].job = job;
    if (pthread_create(&readers[started].thread, NULL, work, &readers[started]) != 0) {
      break; /* fewer do it too */
    }
  }
  work(&readers[0]);
  for (unsigned i = 1; i < started; i++) {
    pthread_join(readers[i].thread, NULL);
  }
}

static int
compare_bytes(const void *a, const void *b)
{
  const struct thread_read *x = a, *y = b;
  if (x->bytes != y->bytes) {
    return x->bytes < y->bytes ? 1 : -1;
  }
  return (x->index > y->index) - (x->index < y->index);
}

static void
take_result(struct ct_view_reading *reading, const struct trace_read *job, const struct thread_read *thread,
            uint32_t *first_damaged)
{
  const struct ct_trace_thread *info = ct_trace_thread(job->trace, thread->index);
  reading->threads++;
  reading->events += thread->events;
  reading->dropped += info->dropped;
  reading->gap_ticks += thread->gap_ticks;
  if (thread->is_damaged) {
    bool is_first = reading->notes.damaged_threads++ == 0 || thread->index < *first_damaged;
    *first_damaged = is_first ? thread->index : *first_damaged;
    reading->notes.first_damaged_tid = is_first ? info->tid : reading->notes.first_damaged_tid;
  }
}

/* An index that has the trees of the threads as they would be read; *index NULL: there is none. */
static int
open_index(const struct ct_view_reading *reading, struct ct_trace *trace, struct ct_index **index, struct ct_diag *diag)
{
  *index = NULL;
  if (reading->take_tree == NULL || reading->time != CT_TIME_WALL || ct_filter_limits_calls(reading->filter) ||
      ct_trace_has_range(trace) || ct_trace_is_atf(trace)) {
    return 0;
  }
  int code = ct_index_open_trees(trace, reading->makes_index, reading->workers, reading->progress, index, diag);
  return code == CT_ENOENT ? 0 : code;
}

static int
read_threads(struct ct_view_reading *reading, struct ct_trace *trace, const struct ct_index *index,
             const uint32_t *indexes, size_t count, struct ct_diag *diag)
{
  struct trace_read job = {.reading = reading, .trace = trace, .index = index, .count = count};
  uint32_t first_damaged = 0; /* of an earlier trace: what is said of that stays */
  job.threads = calloc(count + 1, sizeof(*job.threads));
  if (job.threads == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the list of threads");
  }
  for (size_t i = 0; i < count; i++) {
    job.threads[i] = (struct thread_read){.index = indexes[i], .bytes = ct_trace_thread(trace, indexes[i])->file_bytes};
    reading->total_bytes += job.threads[i].bytes;
  }
  qsort(job.threads, count, sizeof(*job.threads), compare_bytes);
  pthread_mutex_init(&job.lock, NULL);
  pthread_cond_init(&job.is_merged, NULL);
  run_workers(&job);
  pthread_mutex_destroy(&job.lock);
  pthread_cond_destroy(&job.is_merged);
  for (size_t i = 0; i < count; i++) {
    if (job.threads[i].part != NULL) {
      reading->free_part(job.threads[i].part);
    }
    take_result(reading, &job, &job.threads[i], &first_damaged);
  }
  free(job.threads);
  ct_index_close(job.whole);
  return job.code == 0 ? 0 : ct_fail(diag, job.code, "%s", job.diag.text);
}

static int
read_selected(struct ct_view_reading *reading, struct ct_trace *trace, const struct ct_filter *filter,
              struct ct_diag *diag)
{
  uint32_t *threads;
  size_t count;
  struct ct_index *index = NULL;
  int code = ct_choose_threads(trace, filter->tids, filter->tid_count, &threads, &count, diag);
  if (code != 0) {
    return code;
  }
  code = ct_filter_compile(filter, trace, &reading->chooses, diag);
  if (code == 0 && ct_view_names_begin(reading->names, trace) != 0) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the functions of the trace");
  }
  uint64_t events, dropped;
  ct_view_event_sums(trace, &events, &dropped);
  reading->all_dropped += dropped;
  reading->processes++;
  reading->off_is_bound |= ct_trace_has_bounds(trace);
  if (code != 0) {
    goto free_threads;
  }
  code = open_index(reading, trace, &index, diag);
  if (code != 0) {
    goto free_threads;
  }
  code = read_threads(reading, trace, index, threads, count, diag);
free_threads:
  ct_index_close(index);
  ct_filter_free_compiled(reading->chooses);
  reading->chooses = NULL;
  free(threads);
  return code;
}

/* The threads that are asked for may be of different processes of a tree: of each those that it has. */
static int
read_trace(struct ct_view_reading *reading, struct ct_trace *trace, struct ct_diag *diag)
{
  struct ct_filter filter = *reading->filter;
  uint32_t *tids;
  size_t count;
  if (!reading->family || filter.tid_count == 0) {
    return read_selected(reading, trace, &filter, diag);
  }
  if (ct_own_threads(trace, filter.tids, filter.tid_count, &tids, &count) != CT_OK) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the list of threads");
  }
  filter.tids = tids;
  filter.tid_count = count;
  int code = count != 0 ? read_selected(reading, trace, &filter, diag) : 0;
  free(tids);
  return code;
}

/* ---- the processes of a tree ---- */

bool
ct_view_wants_process(const struct ct_filter *filter, json_int_t pid)
{
  bool wanted = filter->pid_count == 0;
  for (size_t i = 0; i < filter->pid_count; i++) {
    wanted |= filter->pids[i] == pid;
  }
  return wanted;
}

/* One that was followed. A trace that cannot be read is reported, and the others are shown. */
static int
read_child(struct ct_view_reading *reading, const json_t *child, uint32_t number, struct ct_diag *diag)
{
  const char *directory = ct_process_tree_directory(child);
  json_int_t pid = json_integer_value(json_object_get(child, "pid"));
  struct ct_trace *trace;
  struct ct_diag why = {""};
  if (directory == NULL || !ct_view_wants_process(reading->filter, pid)) {
    return 0; /* it was not recorded, which info shows; or it is not asked for */
  }
  if (ct_process_tree_open(reading->trace, directory, &trace, &why) != 0) {
    ct_process_tree_warn(reading->warnings, pid, " is not in it", why.text);
    return 0;
  }
  ct_trace_set_place(trace, 0, number);
  if (ct_trace_set_same_range(trace, reading->trace) != CT_OK) {
    ct_trace_close(trace);
    return ct_fail(diag, CT_ENOMEM, "out of memory for the range of the trace");
  }
  json_t *damage = ct_view_damage(trace);
  ct_process_tree_warn_each(reading->warnings, pid, damage);
  json_decref(damage);
  int code = read_trace(reading, trace, diag);
  ct_trace_close(trace);
  return code;
}

static int
check_processes(const struct ct_view_reading *reading, const json_t *manifest, struct ct_diag *diag)
{
  const struct ct_filter *filter = reading->filter;
  for (size_t i = 0; i < filter->pid_count; i++) {
    bool found = json_integer_value(json_object_get(manifest, "pid")) == filter->pids[i];
    const json_t *child;
    size_t n;
    json_array_foreach(json_object_get(manifest, "children"), n, child)
    {
      found |= json_integer_value(json_object_get(child, "pid")) == filter->pids[i] &&
               ct_process_tree_directory(child) != NULL;
    }
    if (!found) {
      return ct_fail(diag, CT_ERANGE, "no trace of a process %u; `contrail info` lists those that were followed",
                     filter->pids[i]);
    }
  }
  return 0;
}

static int
read_family(struct ct_view_reading *reading, const json_t *manifest, struct ct_diag *diag)
{
  const json_t *child;
  size_t i;
  if (ct_view_wants_process(reading->filter, json_integer_value(json_object_get(manifest, "pid")))) {
    int code = read_trace(reading, reading->trace, diag);
    if (code != 0) {
      return code;
    }
  }
  json_array_foreach(json_object_get(manifest, "children"), i, child)
  {
    int code = read_child(reading, child, (uint32_t)i + 1, diag);
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

int
ct_view_read(struct ct_view_reading *reading, struct ct_diag *diag)
{
  const json_t *manifest = ct_trace_manifest(reading->trace);
  int code = reading->family ? check_processes(reading, manifest, diag) : 0;
  reading->warnings = NULL;
  if (code != 0) {
    goto finish_progress;
  }
  reading->warnings = reading->family ? ct_view_damage(reading->trace) : ct_view_warnings(reading->trace);
  if (reading->warnings == NULL) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the calls of the trace");
    goto finish_progress;
  }
  code = reading->family ? read_family(reading, manifest, diag) : read_trace(reading, reading->trace, diag);
  if (code != 0) {
    goto finish_progress;
  }
  if (reading->threads == 0 && reading->filter->tid_count != 0) {
    code = ct_fail(diag, CT_ERANGE, "%s has no thread %u", ct_trace_path(reading->trace), reading->filter->tids[0]);
  } else if (reading->family) {
    ct_view_add_lost(reading->warnings, reading->events, reading->all_dropped);
  }
finish_progress:
  if (reading->progress != NULL && reading->progress->finish != NULL) {
    reading->progress->finish(reading->progress->arg);
  }
  return code;
}

void
ct_view_reading_destroy(struct ct_view_reading *reading)
{
  json_decref(reading->warnings);
  reading->warnings = NULL;
}
