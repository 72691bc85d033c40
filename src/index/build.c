/* SPDX-License-Identifier: MIT */
/* From the trace to its index: workers take threads from a list, the longest first, as the report's do. */
#include "index/building.h"

#include <stdlib.h>

enum { WORKERS_MAX = 16 };

int
ct_index_sums_init(struct ct_index_sums *sums, const struct ct_trace *trace)
{
  *sums = (struct ct_index_sums){0};
  return ct_stats_init(&sums->stats, ct_trace_function_count(trace));
}

void
ct_index_sums_free(struct ct_index_sums *sums)
{
  if (sums->stats.fns != NULL) {
    ct_stats_destroy(&sums->stats);
  }
  ct_edges_free(&sums->edges);
}

int
ct_index_job_groupings(struct ct_index_job *job, const struct ct_tree_groupings **groupings)
{
  int code = 0;
  pthread_mutex_lock(&job->lock);
  if (job->groupings.of[CT_TREE_MODULES] == NULL) {
    struct ct_trace *trace = job->index->trace;
    code = ct_tree_groupings_init(&job->groupings, trace, ct_trace_function_count(trace), (1u << CT_TREE_ALL) - 1);
  }
  pthread_mutex_unlock(&job->lock);
  *groupings = &job->groupings;
  return code;
}

static void *
work(void *arg)
{
  struct ct_index_worker *w = arg;
  struct ct_index_job *job = w->job;
  while (!atomic_load_explicit(&job->stop, memory_order_relaxed)) {
    uint32_t i = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
    if (i >= job->index->thread_count) {
      break;
    }
    w->code = ct_index_read_thread(w, job->order[i]);
    if (w->code != 0) {
      atomic_store_explicit(&job->stop, true, memory_order_relaxed);
    }
  }
  return NULL;
}

static int
worker_init(struct ct_index_worker *w, struct ct_index_job *job)
{
  size_t functions = (size_t)ct_trace_function_count(job->index->trace) + 1;
  *w = (struct ct_index_worker){.job = job};
  w->gather.longest = calloc(functions, sizeof(*w->gather.longest));
  w->gather.touched = malloc(functions * sizeof(*w->gather.touched));
  return w->gather.longest == NULL || w->gather.touched == NULL ||
                 ct_index_sums_init(&w->kept, job->index->trace) != 0 ||
                 ct_index_sums_init(&w->tail, job->index->trace) != 0 ||
                 (job->index->keeps_selves && ct_stats_keep_selves(&w->kept.stats) != 0)
             ? CT_ENOMEM
             : 0;
}

static void
worker_free(struct ct_index_worker *w)
{
  free(w->gather.longest);
  free(w->gather.touched);
  ct_index_sums_free(&w->kept);
  ct_index_sums_free(&w->tail);
}

static int
merge_sums(struct ct_index_sums *into, const struct ct_index_sums *from)
{
  int code = ct_stats_merge(&into->stats, &from->stats);
  return code != 0 ? code : ct_edges_merge(&into->edges, &from->edges);
}

static int
run_workers(struct ct_index_job *job, unsigned count, struct ct_index_sums *kept, struct ct_index_sums *tail,
            struct ct_diag *diag)
{
  struct ct_index_worker workers[WORKERS_MAX];
  unsigned begun = 0;
  int code = 0;
  for (; begun < count && begun < WORKERS_MAX; begun++) {
    struct ct_index_worker *w = &workers[begun];
    if (worker_init(w, job) != 0 || (begun != 0 && pthread_create(&w->thread, NULL, work, w) != 0)) {
      worker_free(w);
      break;
    }
  }
  if (begun == 0) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the index of the trace");
  }
  workers[0].reports_progress = true;
  work(&workers[0]);
  for (unsigned i = 0; i < begun; i++) {
    struct ct_index_worker *w = &workers[i];
    if (i != 0) {
      pthread_join(w->thread, NULL);
    }
    if (code == 0 && w->code != 0) {
      code = ct_fail(diag, w->code, "%s", w->diag.text);
    }
    if (code == 0 && (merge_sums(kept, &w->kept) != 0 || merge_sums(tail, &w->tail) != 0)) {
      code = ct_fail(diag, CT_ENOMEM, "out of memory for the index of the trace");
    }
    worker_free(w);
  }
  return code;
}

struct sized_thread {
  uint64_t bytes;
  uint32_t number;
};

static int
compare_sizes(const void *a, const void *b)
{
  const struct sized_thread *x = a, *y = b;
  if (x->bytes != y->bytes) {
    return x->bytes < y->bytes ? 1 : -1;
  }
  return (x->number > y->number) - (x->number < y->number);
}

int
ct_index_build(struct ct_index *index, unsigned workers, const struct ct_view_progress *progress,
               struct ct_index_sums *kept, struct ct_index_sums *tail, struct ct_diag *diag)
{
  static const struct ct_view_progress none;
  struct ct_index_job job = {.index = index,
                             .progress = progress != NULL ? progress : &none,
                             .is_complete = ct_trace_is_complete(index->trace)};
  struct sized_thread *sized = malloc(((size_t)index->thread_count + 1) * sizeof(*sized));
  job.order = malloc(((size_t)index->thread_count + 1) * sizeof(*job.order));
  if (sized == NULL || job.order == NULL) {
    free(sized);
    free(job.order);
    return ct_fail(diag, CT_ENOMEM, "out of memory for the index of the trace");
  }
  for (uint32_t i = 0; i < index->thread_count; i++) {
    uint64_t bytes = ct_trace_thread(index->trace, i)->file_bytes, have = index->threads[i].end_offset;
    bool is_done = index->threads[i].is_whole || index->threads[i].is_out;
    sized[i] = (struct sized_thread){is_done || bytes < have ? 0 : bytes - have, i};
    job.total_bytes += sized[i].bytes;
  }
  qsort(sized, index->thread_count, sizeof(*sized), compare_sizes);
  for (uint32_t i = 0; i < index->thread_count; i++) {
    job.order[i] = sized[i].number;
  }
  free(sized);
  unsigned count = workers < index->thread_count ? workers : index->thread_count;
  job.workers = count != 0 ? count : 1;
  pthread_mutex_init(&job.lock, NULL);
  int code = run_workers(&job, job.workers, kept, tail, diag);
  pthread_mutex_destroy(&job.lock);
  ct_tree_groupings_destroy(&job.groupings);
  free(job.order);
  if (job.progress->finish != NULL) {
    job.progress->finish(job.progress->arg);
  }
  return code;
}
