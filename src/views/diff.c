/* SPDX-License-Identifier: MIT */
/*
 * The difference of two traces. Both are read at the same time, each by a thread; then the functions are matched,
 * judged (noise.h), and sorted.
 */
#include "views/diff.h"

#include "base/sized.h"
#include "views/filter.h"
#include "views/pattern.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- matching ---- */

typedef const struct ct_profile_function *function_ref;

static int
compare_stems(function_ref a, function_ref b)
{
  int order = strcmp(a->key, b->key);
  if (order != 0) {
    return order;
  }
  size_t x = ct_profile_stem_length(a->name), y = ct_profile_stem_length(b->name);
  order = memcmp(a->name, b->name, x < y ? x : y);
  return order != 0 ? order : (x > y) - (x < y);
}

static int
compare_by_stem(const void *a, const void *b)
{
  return compare_stems(*(const function_ref *)a, *(const function_ref *)b);
}

/* How many from here on have the same stem. */
static size_t
alike(const function_ref *list, size_t count)
{
  size_t n = count != 0;
  while (n < count && compare_stems(list[0], list[n]) == 0) {
    n++;
  }
  return n;
}

static void
add_row(struct ct_diff *diff, function_ref before, function_ref after)
{
  diff->rows[diff->count++] = (struct ct_diff_row){.functions = {before, after}};
}

/* What is left of both, by what the compiler has not appended; where one name could be several they stay apart. */
static void
match_stems(struct ct_diff *diff, function_ref *before, size_t before_count, function_ref *after, size_t after_count)
{
  if (before_count != 0) {
    qsort(before, before_count, sizeof(*before), compare_by_stem);
  }
  if (after_count != 0) {
    qsort(after, after_count, sizeof(*after), compare_by_stem);
  }
  while (before_count != 0 || after_count != 0) {
    int order = before_count == 0 ? 1 : after_count == 0 ? -1 : compare_stems(before[0], after[0]);
    size_t x = order <= 0 ? alike(before, before_count) : 0, y = order >= 0 ? alike(after, after_count) : 0;
    if (x == 1 && y == 1) {
      add_row(diff, before[0], after[0]);
    }
    for (size_t i = 0; i < x && !(x == 1 && y == 1); i++) {
      add_row(diff, before[i], NULL);
    }
    for (size_t i = 0; i < y && !(x == 1 && y == 1); i++) {
      add_row(diff, NULL, after[i]);
    }
    before += x;
    before_count -= x;
    after += y;
    after_count -= y;
  }
}

static int
match(const struct ct_profile profiles[2], struct ct_diff *diff)
{
  const struct ct_profile *b = &profiles[0], *a = &profiles[1];
  function_ref *left = calloc(b->count + a->count + 1, sizeof(*left)), *before = left, *after = left + b->count;
  diff->rows = calloc(b->count + a->count + 1, sizeof(*diff->rows));
  if (left == NULL || diff->rows == NULL) {
    free(left);
    free(diff->rows);
    diff->rows = NULL;
    return CT_ENOMEM;
  }
  size_t i = 0, j = 0, before_count = 0, after_count = 0;
  while (i < b->count || j < a->count) {
    int order = i == b->count ? 1 : j == a->count ? -1 : ct_profile_compare(b->list[i], a->list[j]);
    if (order == 0) {
      add_row(diff, b->list[i++], a->list[j++]);
    } else if (order < 0) {
      before[before_count++] = b->list[i++];
    } else {
      after[after_count++] = a->list[j++];
    }
  }
  match_stems(diff, before, before_count, after, after_count);
  free(left);
  return 0;
}

/* ---- numbers ---- */

static void
fill_side(const struct ct_profile *profile, const struct ct_profile_function *function, double ns_per_tick,
          struct ct_report_row *numbers, struct ct_noise_side *side)
{
  static const struct ct_batches none;
  *side = (struct ct_noise_side){.batches = &none, .ns_per_tick = ns_per_tick};
  if (function == NULL) {
    return;
  }
  numbers->passed_over = function->stats.passed_over[0];
  numbers->counted = function->stats.counted[0];
  numbers->was_out = function->was_out;
  ct_report_fill_row(profile->trace, &function->stats, 0, function->enter_only, CT_SORT_TOTAL, numbers);
  const struct ct_selves *selves = function->stats.selves[0];
  if (selves != NULL) {
    side->batches = &selves->batches;
    side->typical = ct_typical_of(&selves->histogram);
  }
  side->self = (double)numbers->self_ns;
  side->calls = numbers->calls;
  memcpy(side->children, function->children, sizeof(side->children));
}

static bool
has_calls(const struct ct_report_row *row)
{
  return row->passed_over == 0 && !row->was_out;
}

static bool
has_times(const struct ct_report_row *row)
{
  return has_calls(row) && row->counted == 0 && !row->enter_only && row->timed != 0;
}

static void
fill(const struct ct_profile profiles[2], struct ct_diff_row *row)
{
  struct ct_noise_side *const sides[] = {&row->pair.before, &row->pair.after};
  for (int i = 0; i < 2; i++) {
    double ns_per_tick = (double)ct_trace_ticks_ns(profiles[i].trace, 1000000000) / 1e9;
    fill_side(&profiles[i], row->functions[i], ns_per_tick, &row->numbers[i], sides[i]);
  }
  bool both = row->functions[0] != NULL && row->functions[1] != NULL;
  row->pair.has_calls = both && has_calls(&row->numbers[0]) && has_calls(&row->numbers[1]);
  row->pair.has_times = both && has_times(&row->numbers[0]) && has_times(&row->numbers[1]);
}

static enum ct_diff_state
state_of(const struct ct_diff_row *row)
{
  const struct ct_noise_pair *pair = &row->pair;
  const struct ct_report_row *b = &row->numbers[0], *a = &row->numbers[1];
  return row->functions[0] == NULL                                                        ? CT_DIFF_NEW
         : row->functions[1] == NULL                                                      ? CT_DIFF_VANISHED
         : pair->is_self_changed || pair->is_typical_changed || pair->is_calls_changed    ? CT_DIFF_CHANGED
         : !pair->has_calls                                                               ? CT_DIFF_NOT_KNOWN
         : b->calls == a->calls && b->self_ns == a->self_ns && b->total_ns == a->total_ns ? CT_DIFF_SAME
                                                                                          : CT_DIFF_WITHIN_NOISE;
}

static int
judge(struct ct_diff *diff)
{
  struct ct_noise_pair *pairs = calloc(diff->count + 1, sizeof(*pairs));
  size_t n = 0;
  if (pairs == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < diff->count; i++) {
    if (diff->rows[i].functions[0] != NULL && diff->rows[i].functions[1] != NULL) {
      pairs[n++] = diff->rows[i].pair;
    }
  }
  int code = ct_noise_judge(&diff->noise, pairs, n);
  n = 0;
  for (size_t i = 0; i < diff->count && code == 0; i++) {
    struct ct_diff_row *row = &diff->rows[i];
    if (row->functions[0] != NULL && row->functions[1] != NULL) {
      row->pair = pairs[n++];
    } else {
      row->pair.self_change = (double)row->numbers[1].self_ns - (double)row->numbers[0].self_ns;
      row->pair.calls_change = (double)row->numbers[1].calls - (double)row->numbers[0].calls;
    }
  }
  free(pairs);
  return code;
}

/* ---- order ---- */

static double
change_of(uint64_t before, uint64_t after)
{
  return fabs((double)after - (double)before);
}

static double
key_of(const struct ct_diff_row *row, enum ct_diff_sort sort)
{
  const struct ct_report_row *b = &row->numbers[0], *a = &row->numbers[1];
  switch (sort) {
  case CT_DIFF_TOTAL:
    return change_of(b->total_ns, a->total_ns);
  case CT_DIFF_CALLS:
    return change_of(b->calls, a->calls);
  case CT_DIFF_P50:
    return change_of(b->p50_ns, a->p50_ns);
  case CT_DIFF_P95:
    return change_of(b->p95_ns, a->p95_ns);
  case CT_DIFF_P99:
    return change_of(b->p99_ns, a->p99_ns);
  case CT_DIFF_NAME:
    return 0;
  default: /* where that of the whole is noise, what typical calls make of it */
    return row->pair.is_typical_changed && !row->pair.is_self_changed
               ? fabs(row->pair.after.typical.mean * row->pair.after.ns_per_tick -
                      row->pair.before.typical.mean * row->pair.before.ns_per_tick) *
                     ((double)b->calls + (double)a->calls) / 2
               : change_of(b->self_ns, a->self_ns);
  }
}

/* Those within noise come last. */
static int
compare_rows(const void *a, const void *b)
{
  const struct ct_diff_row *x = a, *y = b;
  bool x_last = x->state > CT_DIFF_VANISHED, y_last = y->state > CT_DIFF_VANISHED;
  if (x_last != y_last) {
    return x_last ? 1 : -1;
  }
  if (x->key != y->key) {
    return x->key < y->key ? 1 : -1;
  }
  int order = strcmp(ct_diff_function(x)->name, ct_diff_function(y)->name);
  return order != 0 ? order : strcmp(ct_diff_function(x)->module, ct_diff_function(y)->module);
}

static struct ct_noise_hooks
hooks_differ(const struct ct_noise_hooks *b, const struct ct_noise_hooks *a)
{
  struct ct_noise_hooks by = {.own = fabs(a->own - b->own)};
  for (int i = 0; i < CT_CHILDREN; i++) {
    by.child[i] = fabs(a->child[i] - b->child[i]);
  }
  return by;
}

int
ct_diff_make(const struct ct_profile profiles[2], const struct ct_diff_options *options, struct ct_diff *diff)
{
  uint64_t b = profiles[0].preempted_ns, a = profiles[1].preempted_ns;
  *diff = (struct ct_diff){.noise = {.disturbance = (double)(b > a ? b : a) / (options->time == CT_TIME_CPU ? 100 : 1),
                                     .hooks = hooks_differ(&profiles[0].hooks, &profiles[1].hooks)}};
  int code = match(profiles, diff);
  for (size_t i = 0; i < diff->count; i++) {
    fill(profiles, &diff->rows[i]);
  }
  code = code == 0 ? judge(diff) : code;
  if (code != 0) {
    free(diff->rows);
    diff->rows = NULL;
    return code;
  }
  for (size_t i = 0; i < diff->count; i++) {
    diff->rows[i].state = state_of(&diff->rows[i]);
    diff->rows[i].key = key_of(&diff->rows[i], options->sort);
    diff->states[diff->rows[i].state]++;
  }
  qsort(diff->rows, diff->count, sizeof(*diff->rows), compare_rows);
  diff->shown = options->all
                    ? diff->count
                    : diff->states[CT_DIFF_CHANGED] + diff->states[CT_DIFF_NEW] + diff->states[CT_DIFF_VANISHED];
  return 0;
}

/* ---- reading both ---- */

struct side {
  struct ct_trace *trace;
  struct ct_profile_wanted wanted;
  struct ct_profile *profile;
  const struct ct_view_progress *progress;
  pthread_mutex_t *reporting; /* one side at a time: one may be done long before the other */
  _Atomic uint64_t *done;     /* relaxed: for the line of progress only */
  _Atomic bool *is_cancelled; /* relaxed: the other side ends too */
  uint64_t total;
  int code;
  struct ct_diag diag;
};

static int
side_moved(void *arg, uint64_t bytes)
{
  struct side *side = arg;
  uint64_t done = atomic_fetch_add_explicit(side->done, bytes, memory_order_relaxed) + bytes;
  pthread_mutex_lock(side->reporting);
  if (side->progress->update != NULL &&
      side->progress->update(side->progress->arg, done < side->total ? done : side->total, side->total) != 0) {
    atomic_store_explicit(side->is_cancelled, true, memory_order_relaxed);
  }
  pthread_mutex_unlock(side->reporting);
  return atomic_load_explicit(side->is_cancelled, memory_order_relaxed) ? CT_ECANCELED : 0;
}

static void *
read_side(void *arg)
{
  struct side *side = arg;
  side->code = ct_profile_read(side->trace, &side->wanted, side->profile, &side->diag);
  return NULL;
}

static int
read_both(struct ct_trace *before, struct ct_trace *after, const struct ct_diff_options *options,
          const struct ct_filter *calls, struct ct_profile profiles[2], struct ct_diag *diag)
{
  _Atomic uint64_t done = 0;
  _Atomic bool is_cancelled = false;
  pthread_mutex_t reporting = PTHREAD_MUTEX_INITIALIZER;
  uint64_t total = ct_trace_bytes(before) + ct_trace_bytes(after);
  struct side sides[2] = {
      {.trace = before, .wanted = {.tids = options->before_tids, .tid_count = options->before_tid_count}},
      {.trace = after, .wanted = {.tids = options->after_tids, .tid_count = options->after_tid_count}},
  };
  for (int i = 0; i < 2; i++) {
    sides[i].profile = &profiles[i];
    sides[i].done = &done;
    sides[i].is_cancelled = &is_cancelled;
    sides[i].total = total;
    sides[i].progress = &options->progress;
    sides[i].reporting = &reporting;
    sides[i].wanted.options = options;
    sides[i].wanted.filter = *calls;
    sides[i].wanted.workers = options->workers != 0 ? options->workers : 1;
    sides[i].wanted.moved = side_moved;
    sides[i].wanted.arg = &sides[i];
  }
  pthread_t thread;
  bool is_apart = strcmp(ct_trace_path(before), ct_trace_path(after)) != 0 &&
                  pthread_create(&thread, NULL, read_side, &sides[1]) == 0;
  read_side(&sides[0]);
  if (is_apart) {
    pthread_join(thread, NULL);
  } else {
    read_side(&sides[1]);
  }
  if (options->progress.finish != NULL) {
    options->progress.finish(options->progress.arg);
  }
  const struct side *failed = sides[0].code != 0 ? &sides[0] : &sides[1];
  return failed->code != 0 ? ct_fail(diag, failed->code, "%s", failed->diag.text) : 0;
}

int
ct_diff_write(struct ct_trace *before, struct ct_trace *after, const struct ct_diff_options *given, FILE *out,
              struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct ct_diff_options options;
  struct ct_view_notes own = {0};
  struct ct_profile profiles[2] = {{0}, {0}};
  struct ct_diff diff = {0};
  struct ct_filter calls;
  int code = ct_filter_take_with(&options, sizeof(options), given, &options.calls, &calls, diag);
  if (code != 0) {
    return code;
  }
  if ((calls.types & ~(unsigned)(CT_FILTER_CALL | CT_FILTER_POINT)) != 0) {
    return ct_fail(diag, CT_EINVAL, "the difference is of calls (call) and points (point)");
  }
  code = read_both(before, after, &options, &calls, profiles, diag);
  if (code != 0) {
    goto free_profiles;
  }
  code = ct_diff_make(profiles, &options, &diff);
  if (code != 0) {
    ct_fail(diag, code, "out of memory for the difference");
    goto free_profiles;
  }
  code = ct_diff_put(profiles, &diff, &options, out);
  if (code != 0) {
    ct_fail(diag, code, "cannot write the difference: %s", strerror(errno));
  }
free_profiles:
  own.shown = diff.shown;
  for (int i = 0; i < 2; i++) {
    own.first_damaged_tid = own.damaged_threads == 0 ? profiles[i].first_damaged_tid : own.first_damaged_tid;
    own.damaged_threads += profiles[i].damaged_threads;
    ct_profile_destroy(&profiles[i]);
  }
  free(diff.rows);
  return code == 0 && notes != NULL ? ct_sized_give(notes, &own, sizeof(own), diag) : code;
}
