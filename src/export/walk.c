/* SPDX-License-Identifier: MIT */
/* See walk.h. */
#include "export/walk.h"

#include "export/passes.h"
#include "views/reading.h"
#include "views/select.h"
#include "views/span_filter.h"
#include "views/warnings.h"

#include <contrail/filter.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct walk {
  const struct ct_export_job *job;
  const struct ct_walk_handler *handler;
  void *arg;
  struct ct_walk_sums *sums;
  struct ct_walk_place place;
  struct ct_filter filter;              /* with the threads that are the trace's */
  struct ct_filter_compiled *functions; /* of the trace at hand */
  bool about_functions, about_calls;
  struct ct_passes *passes; /* of the thread at hand: which calls pass; NULL: not asked */
  uint64_t left;            /* of the limit */
  uint64_t done;            /* bytes */
  uint64_t total;           /* of all files */
  uint64_t said_lost, said_gap;
  uint64_t end_tsc;         /* of the edges and gaps that have come of the thread at hand */
  struct ct_span *selected; /* room for a batch */
  size_t capacity;
};

/* ---- calls ---- */

static void
count(struct ct_walk_sums *sums, const struct ct_span *span)
{
  sums->spans++;
  sums->calls += ct_view_calls_of(span);
  sums->open += ct_span_is_unfinished(span->end);
  sums->uncertain += span->uncertain & CT_SPAN_UNCERTAIN;
  sums->before += (span->uncertain & CT_SPAN_BEFORE) != 0;
  sums->points += span->end == CT_SPAN_POINT;
  sums->orphans += span->end == CT_SPAN_ORPHAN;
  sums->counted += span->end == CT_SPAN_COUNTED ? span->duration_ticks : 0;
}

/* Events were lost since this was called last, until tsc. */
static int
report_lost(void *arg, const struct ct_spans *spans, uint64_t tsc)
{
  struct walk *walk = arg;
  uint64_t more = ct_spans_lost(spans) - walk->said_lost, gap = ct_spans_gap_ticks(spans) - walk->said_gap;
  if (more == 0 && gap == 0) {
    return 0;
  }
  walk->said_lost += more;
  walk->said_gap += gap;
  walk->sums->lost += more;
  walk->end_tsc = tsc > walk->end_tsc ? tsc : walk->end_tsc;
  walk->place.gap_ticks = gap < tsc ? gap : 0;
  return walk->handler->lost != NULL ? walk->handler->lost(walk->arg, &walk->place, more, tsc) : 0;
}

static bool
has_time(const struct ct_span *span)
{
  return span->end < CT_SPAN_ORPHAN;
}

/* Those of the batch whose functions are selected. 0 or CT_ENOMEM. */
static int
choose(struct walk *walk, const struct ct_span **batch, size_t *count)
{
  if (!walk->about_functions) {
    return 0;
  }
  if (*count > walk->capacity) {
    struct ct_span *selected = reallocarray(walk->selected, *count, sizeof(*selected));
    if (selected == NULL) {
      return CT_ENOMEM;
    }
    walk->selected = selected;
    walk->capacity = *count;
  }
  size_t n = 0;
  for (const struct ct_span *span = *batch; span < *batch + *count; span++) {
    if (ct_filter_has_function(walk->functions, span->fn)) {
      walk->selected[n++] = *span;
    }
  }
  *batch = walk->selected;
  *count = n;
  return 0;
}

/* 0, or CT_ECANCELED. */
static int
put_progress(const struct walk *walk, const struct ct_spans *spans)
{
  const struct ct_view_progress *progress = &walk->job->options->progress;
  bool is_wanted = progress->update == NULL ||
                   progress->update(progress->arg, walk->done + ct_spans_offset(spans), walk->total) == 0;
  return is_wanted ? 0 : CT_ECANCELED;
}

/* What the filter leaves of a batch, as far as there is a limit. */
static int
give_batch(struct walk *walk, struct ct_span_filter *filter, const struct ct_span *batch, size_t n)
{
  int code = ct_span_filter_run(filter, &batch, &n);
  if (code != 0) {
    return code;
  }
  code = choose(walk, &batch, &n);
  if (code != 0) {
    return code;
  }
  n = n < walk->left ? n : (size_t)walk->left;
  for (size_t i = 0; i < n; i++) {
    count(walk->sums, &batch[i]);
  }
  walk->left -= n;
  return n != 0 ? walk->handler->spans(walk->arg, &walk->place, batch, n) : 0;
}

static int
give_batches(struct walk *walk, struct ct_spans *spans, uint64_t *end_tsc)
{
  struct ct_span_filter filter;
  const struct ct_span *batch;
  size_t n;
  int code = 0;
  ct_span_filter_init(&filter, walk->place.trace, &walk->filter);
  while (walk->left != 0) {
    code = ct_spans_next(spans, &batch, &n);
    if (code != 0 || n == 0) {
      break;
    }
    *end_tsc = batch[n - 1].end_tsc > *end_tsc ? batch[n - 1].end_tsc : *end_tsc;
    code = give_batch(walk, &filter, batch, n);
    if (code != 0) {
      break;
    }
    code = put_progress(walk, spans);
    if (code != 0) {
      break;
    }
  }
  ct_span_filter_destroy(&filter);
  return walk->left != 0 ? code : 0;
}

/* ---- in the order of time ---- */

/* Both find out anew of each call whether it passes, by the same numbers: the n-th that was entered. */
static int
entered(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack)
{
  struct walk *walk = arg;
  (void)spans;
  const struct ct_span_frame *frame = &stack->frames[stack->count - 1];
  struct ct_span_note *note = &stack->notes[stack->count - 1];
  bool passes = walk->left != 0 && (!walk->about_functions || ct_filter_has_function(walk->functions, frame->fn));
  if (walk->passes != NULL) {
    passes = ct_passes_next(walk->passes) && passes;
  }
  note->node = passes;
  if (!passes) {
    return 0;
  }
  walk->left--;
  return walk->handler->entered(walk->arg, &walk->place, frame, stack->context);
}

static int
ended(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack, const struct ct_span_call *call)
{
  struct walk *walk = arg;
  const struct ct_span *span = call->span;
  bool was_entered = call->note != NULL;
  (void)spans;
  (void)stack;
  if (was_entered
          ? call->note->node == 0
          : walk->left == 0 || !ct_filter_has_function(walk->functions, span->fn) ||
                !ct_filter_has_call(walk->functions,
                                    has_time(span) ? ct_trace_ticks_ns(walk->place.trace, span->duration_ticks) : 0,
                                    span->depth, span->end)) {
    return 0;
  }
  walk->left -= !was_entered;
  count(walk->sums, span);
  return walk->handler->ended(walk->arg, &walk->place, span, was_entered);
}

static int
switched(void *arg, const struct ct_spans *spans, const struct ct_span_stack *stack, uint64_t tsc)
{
  struct walk *walk = arg;
  (void)spans;
  return walk->left != 0 && walk->handler->switched != NULL
             ? walk->handler->switched(walk->arg, &walk->place, stack->context, tsc)
             : 0;
}

/* No filter: all pass. */
static int
entered_all(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack)
{
  struct walk *walk = arg;
  (void)spans;
  const struct ct_span_frame *frame = &stack->frames[stack->count - 1];
  return walk->handler->entered(walk->arg, &walk->place, frame, stack->context);
}

static int
ended_all(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack, const struct ct_span_call *call)
{
  struct walk *walk = arg;
  (void)spans;
  (void)stack;
  count(walk->sums, call->span);
  return walk->handler->ended(walk->arg, &walk->place, call->span, call->note != NULL);
}

static int
edges_all(void *arg, const struct ct_spans *spans, uint64_t context, const struct ct_span_edge *edges, size_t count)
{
  struct walk *walk = arg;
  uint64_t ends = 0, end_tsc = 0;
  for (size_t i = 0; i < count; i++) {
    bool is_end = edges[i].what != CT_SPAN_EDGE_BEGIN;
    ends += is_end;
    end_tsc = is_end ? edges[i].tsc : end_tsc;
  }
  walk->sums->spans += ends;
  walk->sums->calls += ends;
  walk->end_tsc = end_tsc > walk->end_tsc ? end_tsc : walk->end_tsc;
  int code = walk->handler->edges(walk->arg, &walk->place, context, edges, count);
  return code == 0 ? put_progress(walk, spans) : code;
}

/* The first reading of a thread: which calls pass. The number of a call is in its note. */
static int
entered_first(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack)
{
  struct walk *walk = arg;
  struct ct_span_note *note = &stack->notes[stack->count - 1];
  (void)spans;
  uint64_t number = ct_passes_count(walk->passes);
  note->node = (uint32_t)number;
  note->outer = (uint32_t)(number >> 32);
  return ct_passes_add(walk->passes);
}

static int
ended_first(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack, const struct ct_span_call *call)
{
  struct walk *walk = arg;
  const struct ct_span *span = call->span;
  (void)spans;
  (void)stack;
  if (call->note != NULL &&
      ct_filter_has_call(walk->functions, ct_trace_ticks_ns(walk->place.trace, span->duration_ticks), span->depth,
                         span->end)) {
    ct_passes_set(walk->passes, call->note->node | (uint64_t)call->note->outer << 32);
  }
  return 0;
}

static int
read_through(struct walk *walk, struct ct_spans *spans, const struct ct_span_observer *observer, uint64_t *end_tsc)
{
  const struct ct_span *batch;
  size_t n;
  int code;
  ct_spans_observe(spans, observer);
  while ((code = ct_spans_next(spans, &batch, &n)) == 0 && n != 0) {
    *end_tsc = batch[n - 1].end_tsc > *end_tsc ? batch[n - 1].end_tsc : *end_tsc;
    if ((code = put_progress(walk, spans)) != 0) {
      break;
    }
  }
  return code;
}

/* Which calls there are: a passage through the thread of its own. */
static int
read_ahead(struct walk *walk, uint64_t *end_tsc, struct ct_diag *diag)
{
  const struct ct_span_observer first = {.entered = entered_first, .ended = ended_first, .arg = walk};
  struct ct_spans *before;
  int code = ct_passes_create(&walk->passes, diag);
  if (code != 0) {
    return code;
  }
  code = ct_spans_open(walk->place.trace, walk->place.thread->index, walk->job->options->time, &before, diag);
  if (code != 0) {
    return code;
  }
  code = read_through(walk, before, &first, end_tsc);
  ct_spans_close(before);
  if (code == CT_ENOSPC || code == CT_EIO) {
    ct_fail(diag, code, "cannot write a temporary file for the filter: %s", ct_err_text(code));
  }
  if (code == 0) {
    ct_passes_rewind(walk->passes);
  }
  return code;
}

static int
give_in_order(struct walk *walk, struct ct_spans *spans, uint64_t *end_tsc, struct ct_diag *diag)
{
  const struct ct_span_observer observer = {.entered = entered, .ended = ended, .switched = switched, .arg = walk};
  const struct ct_span_observer all = {
      .entered = entered_all, .ended = ended_all, .switched = switched, .edges = edges_all, .arg = walk};
  bool is_all = walk->handler->edges != NULL && !walk->about_functions && !walk->about_calls &&
                walk->left == UINT64_MAX; /* no limit either */
  int code = walk->about_calls ? read_ahead(walk, end_tsc, diag) : 0;
  if (code == 0) {
    code = read_through(walk, spans, is_all ? &all : &observer, end_tsc);
  }
  ct_passes_destroy(walk->passes);
  walk->passes = NULL;
  return code;
}

/* ---- threads ---- */

/* All of a thread, from its begin to its end. */
static int
give_thread(struct walk *walk, struct ct_spans *spans, struct ct_diag *diag)
{
  const struct ct_walk_handler *handler = walk->handler;
  uint64_t end_tsc = 0;
  int code = handler->begin_thread != NULL ? handler->begin_thread(walk->arg, &walk->place) : 0;
  if (code != 0) {
    return code;
  }
  code = handler->spans != NULL ? give_batches(walk, spans, &end_tsc) : give_in_order(walk, spans, &end_tsc, diag);
  if (code != 0) {
    return code;
  }
  end_tsc = walk->end_tsc > end_tsc ? walk->end_tsc : end_tsc;
  code = report_lost(walk, spans, end_tsc); /* where the limit is, its end may not have come */
  return code == 0 && handler->end_thread != NULL ? handler->end_thread(walk->arg, &walk->place, end_tsc) : code;
}

static int
walk_thread(struct walk *walk, uint32_t index, struct ct_diag *diag)
{
  struct ct_walk_place *place = &walk->place;
  struct ct_view_notes *notes = walk->job->notes;
  struct ct_spans *spans;
  place->thread = ct_trace_thread(place->trace, index);
  walk->said_lost = walk->said_gap = walk->end_tsc = 0;
  int code = ct_spans_open(place->trace, index, walk->job->options->time, &spans, diag);
  if (code != 0) {
    return code;
  }
  ct_spans_on_gap(spans, report_lost, walk);
  code = give_thread(walk, spans, diag);
  if (code == CT_ENOMEM) {
    ct_fail(diag, code, "out of memory for the calls of the trace");
  }
  if (ct_spans_state(spans) == CT_CURSOR_DAMAGED) {
    notes->first_damaged_tid = notes->damaged_threads++ == 0 ? place->thread->tid : notes->first_damaged_tid;
  }
  ct_spans_close(spans);
  walk->done += place->thread->file_bytes;
  walk->job->summary->threads++;
  place->number++;
  return code;
}

/* ---- processes ---- */

static int
walk_threads(struct walk *walk, struct ct_diag *diag)
{
  struct ct_walk_place *place = &walk->place;
  uint32_t *threads;
  size_t n;
  int code = ct_choose_threads(place->trace, walk->filter.tids, walk->filter.tid_count, &threads, &n, diag);
  if (code != 0) {
    return code;
  }
  code = ct_filter_compile(&walk->filter, place->trace, &walk->functions, diag);
  if (code == 0 && walk->handler->begin_process != NULL) {
    code = walk->handler->begin_process(walk->arg, place);
  }
  for (size_t i = 0; i < n && code == 0 && walk->left != 0; i++) {
    code = walk_thread(walk, threads[i], diag);
  }
  ct_filter_free_compiled(walk->functions);
  walk->functions = NULL;
  free(threads);
  walk->job->summary->processes++;
  return code;
}

static int
walk_process(struct walk *walk, struct ct_trace *trace, uint32_t process, struct ct_diag *diag)
{
  const struct ct_filter *all = walk->job->options->filter;
  uint32_t *tids = NULL;
  size_t tid_count = 0;
  int code = ct_own_threads(trace, all->tids, all->tid_count, &tids, &tid_count);
  walk->place.trace = trace;
  walk->place.process = process;
  walk->place.pid = (uint32_t)json_integer_value(json_object_get(ct_trace_manifest(trace), "pid"));
  walk->filter = *all;
  walk->filter.tids = tids;
  walk->filter.tid_count = tid_count;
  ct_trace_set_place(trace, 0, process);
  if (code == 0 && (all->tid_count == 0 || tid_count != 0)) {
    code = walk_threads(walk, diag);
  }
  free(tids);
  return code;
}

static int
walk_children(struct walk *walk, struct ct_diag *diag)
{
  const struct ct_export_job *job = walk->job;
  const json_t *children = json_object_get(ct_trace_manifest(job->trace), "children"), *child;
  size_t i;
  int code = 0;
  json_array_foreach(children, i, child)
  {
    struct ct_trace *trace;
    if (code != 0 || !ct_view_wants_process(job->options->filter, json_integer_value(json_object_get(child, "pid")))) {
      continue;
    }
    code = ct_export_open_child(job->trace, child, &trace);
    if (code == CT_OK) {
      walk->total += ct_trace_bytes(trace);
      code = walk_process(walk, trace, (uint32_t)i + 1, diag);
      ct_trace_close(trace);
    } else if (code == CT_ENOENT) {
      code = CT_OK; /* it was not recorded, or cannot be read: info says which */
    }
  }
  return code;
}

/* What was asked for by its number and is not there. */
static int
check_found(const struct ct_export_job *job, struct ct_diag *diag)
{
  const struct ct_filter *filter = job->options->filter;
  if (job->summary->processes == 0 && filter->pid_count != 0) {
    return ct_fail(diag, CT_ERANGE, "no process %u in the trace; `contrail info` lists those that were followed",
                   filter->pids[0]);
  }
  if (job->summary->threads == 0 && filter->tid_count != 0) {
    return ct_fail(diag, CT_ERANGE, "%s has no thread %u", ct_trace_path(job->trace), filter->tids[0]);
  }
  return CT_OK;
}

int
ct_walk(const struct ct_export_job *job, const struct ct_walk_handler *handler, void *arg, struct ct_walk_sums *sums,
        struct ct_diag *diag)
{
  const struct ct_filter *filter = job->options->filter;
  struct walk walk = {.job = job,
                      .handler = handler,
                      .arg = arg,
                      .sums = sums,
                      .place = {.first = job->trace},
                      .about_functions = filter->function != NULL || filter->module != NULL || filter->file != NULL,
                      .left = filter->limit != 0 ? filter->limit : UINT64_MAX,
                      .total = ct_trace_bytes(job->trace)};
  walk.about_calls = filter->min_ns != 0 || filter->max_ns != 0 || filter->levels != 0 || filter->has_depths ||
                     filter->reasons != 0 || filter->types != 0;
  int code = 0;
  if (ct_view_wants_process(filter, json_integer_value(json_object_get(ct_trace_manifest(job->trace), "pid")))) {
    code = walk_process(&walk, job->trace, 0, diag);
  }
  code = code == 0 ? walk_children(&walk, diag) : code;
  code = code == 0 ? check_found(job, diag) : code;
  free(walk.selected);
  job->summary->events = sums->spans;
  job->summary->lost = sums->lost;
  job->notes->shown = sums->spans;
  return code;
}

/* ---- what is said ---- */

void
ct_export_say(struct ct_export_summary *summary, const char *what, uint64_t count)
{
  size_t length = strlen(summary->mapped);
  if (count != 0) {
    snprintf(summary->mapped + length, sizeof(summary->mapped) - length, "%s%llu %s", length != 0 ? ", " : "",
             (unsigned long long)count, what);
  }
}

void
ct_walk_report(const struct ct_walk_sums *sums, struct ct_export_summary *summary)
{
  ct_export_say(summary, "calls that were still open at the end, and are closed there", sums->open);
  ct_export_say(summary, "that were open before the start", sums->before);
  ct_export_say(summary, "whose end is uncertain", sums->uncertain);
  ct_export_say(summary, "points, calls without an end", sums->points);
  ct_export_say(summary, "returns without a call", sums->orphans);
  ct_export_say(summary, "calls that were only counted", sums->counted);
}

/* ---- texts ---- */

int
ct_walk_texts_begin(struct ct_walk_texts *texts, struct ct_trace *trace)
{
  ct_walk_texts_destroy(texts);
  texts->of = calloc((size_t)ct_trace_function_count(trace) + 1, sizeof(*texts->of));
  texts->count = texts->of != NULL ? ct_trace_function_count(trace) : 0;
  texts->trace = trace;
  return texts->of != NULL ? CT_OK : CT_ENOMEM;
}

void
ct_walk_texts_destroy(struct ct_walk_texts *texts)
{
  for (size_t i = 0; texts->of != NULL && i <= texts->count; i++) {
    free(texts->of[i].text);
  }
  free(texts->of);
  *texts = (struct ct_walk_texts){0};
}

const char *
ct_walk_name(struct ct_trace *trace, uint32_t fn)
{
  const struct ct_trace_function *function = ct_trace_function(trace, fn);
  return function != NULL ? function->name : "?";
}

const char *
ct_walk_module(struct ct_trace *trace, uint32_t fn)
{
  const struct ct_trace_function *function = ct_trace_function(trace, fn);
  return function != NULL ? ct_trace_module_name(trace, function->module) : "?";
}

json_t *
ct_export_warnings(struct ct_trace *first)
{
  const json_t *children = json_object_get(ct_trace_manifest(first), "children"), *child;
  json_t *all = ct_view_warnings(first);
  size_t i;
  json_array_foreach(children, i, child)
  {
    struct ct_trace *trace;
    if (all == NULL || ct_export_open_child(first, child, &trace) != CT_OK) {
      continue;
    }
    json_t *more = ct_view_warnings(trace), *line;
    size_t n;
    json_array_foreach(more, n, line)
    {
      char text[600];
      snprintf(text, sizeof(text), "process %lld: %s", (long long)json_integer_value(json_object_get(child, "pid")),
               json_string_value(line));
      json_array_append_new(all, json_string(text));
    }
    json_decref(more);
    ct_trace_close(trace);
  }
  return all;
}
