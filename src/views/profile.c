/* SPDX-License-Identifier: MIT */
/* See profile.h. Traces of a process tree are read one after the other, as report_tree.c does. */
#include "views/profile.h"

#include "base/json.h"
#include "index/index.h"
#include "trace/batch.h"
#include "views/filter.h"
#include "views/pattern.h"
#include "views/process_tree.h"
#include "views/span_filter.h"
#include "views/warnings.h"

#include <limits.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

/* What is read of one trace. */
struct reading {
  struct ct_trace *trace;
  const struct ct_profile_wanted *wanted;
  struct ct_profile *profile;
  const struct ct_stats *stats; /* own, or the index's */
  struct ct_stats own;
  uint64_t (*children)[CT_CHILDREN]; /* of each function, and of all other ids */
};

/* ---- names ---- */

size_t
ct_profile_module_length(const char *name)
{
  const char *version = strstr(name, ".so.");
  return version != NULL ? (size_t)(version - name) + strlen(".so") : strlen(name);
}

size_t
ct_profile_stem_length(const char *name)
{
  const char *clone = strstr(name, " [clone ");
  if (clone != NULL) {
    return (size_t)(clone - name);
  }
  size_t length = strcspn(name, ".");
  bool is_plain = strpbrk(name, " (<:+") == NULL; /* of C; "module+0x10" has no name */
  return is_plain && length != 0 ? length : strlen(name);
}

int
ct_profile_compare(const struct ct_profile_function *a, const struct ct_profile_function *b)
{
  int order = strcmp(a->key, b->key);
  return order != 0 ? order : strcmp(a->name, b->name);
}

static int
compare_entries(const void *a, const void *b)
{
  return ct_profile_compare(a, b);
}

static int
compare_list(const void *a, const void *b)
{
  return ct_profile_compare(*(struct ct_profile_function *const *)a, *(struct ct_profile_function *const *)b);
}

/* ---- entries ---- */

static void
free_function(struct ct_profile_function *function)
{
  free(function->key);
  free(function->module);
  free(function->name);
  ct_stats_destroy(&function->stats);
  free(function);
}

static struct ct_profile_function *
new_function(const struct ct_profile_function *key)
{
  struct ct_profile_function *function = calloc(1, sizeof(*function));
  if (function == NULL) {
    return NULL;
  }
  function->key = strdup(key->key);
  function->module = strdup(key->module);
  function->name = strdup(key->name);
  if (function->key == NULL || function->module == NULL || function->name == NULL ||
      ct_stats_init(&function->stats, 0) != 0 || ct_stats_keep_selves(&function->stats) != 0) {
    free_function(function);
    return NULL;
  }
  return function;
}

static struct ct_profile_function *
function_of(struct ct_profile *profile, const struct ct_profile_function *key)
{
  struct ct_profile_function *const *found = tfind(key, &profile->tree, compare_entries);
  if (found != NULL) {
    return *found;
  }
  if (profile->count == profile->capacity) {
    size_t grown = profile->capacity == 0 ? 1024 : profile->capacity * 2;
    struct ct_profile_function **list = reallocarray(profile->list, grown, sizeof(*list));
    if (list == NULL) {
      return NULL;
    }
    profile->list = list;
    profile->capacity = grown;
  }
  struct ct_profile_function *function = new_function(key);
  if (function != NULL && tsearch(function, &profile->tree, compare_entries) == NULL) {
    free_function(function);
    return NULL;
  }
  if (function != NULL) {
    profile->list[profile->count++] = function;
  }
  return function;
}

/* Of the program that was recorded, also where a child runs it. */
static bool
is_of_program(const struct reading *reading, uint32_t index)
{
  const struct ct_trace_module *first = ct_trace_module(reading->profile->trace, 0);
  const struct ct_trace_module *module = ct_trace_module(reading->trace, index);
  return first != NULL && module != NULL && first->path != NULL && module->path != NULL &&
         strcmp(first->path, module->path) == 0;
}

static int
add_function(const struct reading *reading, struct ct_view_pattern *pattern, uint32_t id, bool was_out)
{
  const struct ct_stats *stats = reading->stats;
  const struct ct_trace_function *fn = id < stats->fn_count ? ct_trace_function(reading->trace, id) : NULL;
  uint32_t index = fn != NULL ? fn->module : UINT32_MAX;
  if (!ct_view_pattern_has_function(pattern, fn) || !ct_view_pattern_has_place(pattern, fn)) {
    return 0;
  }
  char key_text[NAME_MAX + 1];
  const char *module = fn != NULL ? ct_trace_module_name(reading->trace, index) : "?";
  bool is_program = is_of_program(reading, index);
  snprintf(key_text, sizeof(key_text), "%.*s", (int)(is_program ? 0 : ct_profile_module_length(module)), module);
  const struct ct_profile_function key = {
      .key = key_text, .module = (char *)module, .name = (char *)(fn != NULL ? fn->name : "?")};
  struct ct_profile_function *function = function_of(reading->profile, &key);
  if (function == NULL) {
    return CT_ENOMEM;
  }
  function->enter_only |= fn != NULL && fn->enter_only != 0;
  function->was_out |= was_out;
  for (int i = 0; i < CT_CHILDREN; i++) {
    function->children[i] += reading->children[id][i];
  }
  return ct_stats_merge_one(&function->stats, 0, stats, id);
}

/* ---- one trace ---- */

/* Calls that a function made, of the same one. */
static void
add_children(struct reading *reading, uint32_t caller, uint32_t fn, uint64_t calls)
{
  const struct ct_trace_function *callee = ct_trace_function(reading->trace, fn);
  uint32_t functions = ct_trace_function_count(reading->trace);
  if (caller != UINT32_MAX) {
    reading->children[caller < functions ? caller : functions]
                     [callee != NULL && callee->enter_only ? CT_CHILDREN_POINTS : CT_CHILDREN_CALLS] += calls;
  }
}

static void
count_children(struct reading *reading, const struct ct_span *spans, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    if (spans[i].end != CT_SPAN_COUNTED && spans[i].end != CT_SPAN_ORPHAN) {
      add_children(reading, spans[i].caller_fn, spans[i].fn, spans[i].end == CT_SPAN_POINT ? spans[i].calls : 1);
    }
  }
}

static int
read_thread(struct reading *reading, uint32_t index, struct ct_diag *diag)
{
  struct ct_profile *profile = reading->profile;
  struct ct_spans *spans;
  const struct ct_span *batch;
  size_t count;
  uint64_t reported = 0;
  struct ct_span_filter filter;
  int code = ct_spans_open(reading->trace, index, reading->wanted->options->time, &spans, diag);
  if (code != 0) {
    return code;
  }
  ct_stats_begin_thread(&reading->own);
  ct_span_filter_init(&filter, reading->trace, &reading->wanted->filter);
  while ((code = ct_spans_next(spans, &batch, &count)) == 0 && count != 0) {
    count_children(reading, batch, count);
    code = ct_span_filter_run(&filter, &batch, &count);
    code = code == 0 ? ct_stats_add(&reading->own, batch, count) : code;
    if (code != 0) {
      break;
    }
    uint64_t offset = ct_spans_offset(spans);
    if (offset != reported && reading->wanted->moved != NULL) {
      code = reading->wanted->moved(reading->wanted->arg, offset - reported);
    }
    if (code != 0) {
      break;
    }
    reported = offset;
  }
  ct_span_filter_destroy(&filter);
  if (code != 0) {
    ct_fail(diag, code, "out of memory for the statistics of the functions");
  }
  profile->preempted_ns += ct_trace_ticks_ns(reading->trace, ct_spans_preempted(spans));
  profile->events += ct_spans_events(spans);
  if (ct_spans_state(spans) == CT_CURSOR_DAMAGED && profile->damaged_threads++ == 0) {
    profile->first_damaged_tid = ct_trace_thread(reading->trace, index)->tid;
  }
  ct_spans_close(spans);
  return code;
}

static int
read_threads(struct reading *reading, const struct ct_report_thread *threads, size_t count, struct ct_diag *diag)
{
  int code = ct_stats_init(&reading->own, ct_trace_function_count(reading->trace));
  code = code == 0 ? ct_stats_keep_selves(&reading->own) : code;
  if (code != 0) {
    return ct_fail(diag, code, "out of memory for the statistics of the functions");
  }
  for (size_t i = 0; code == 0 && i < count; i++) {
    code = read_thread(reading, threads[i].index, diag);
  }
  reading->stats = &reading->own;
  return code;
}

/* ---- the same from the index ---- */

struct moving {
  const struct ct_profile_wanted *wanted;
  uint64_t done;
};

static int
index_moved(void *arg, uint64_t done, uint64_t total)
{
  struct moving *moving = arg;
  (void)total;
  uint64_t more = done > moving->done ? done - moving->done : 0;
  moving->done += more;
  return moving->wanted->moved != NULL ? moving->wanted->moved(moving->wanted->arg, more) : 0;
}

/*
 * It has whole threads, by the clock on the wall. Where they are short, reading them takes no time, and of a recording
 * that goes on an index has no self times.
 */
static bool
is_for_index(const struct reading *reading, size_t threads)
{
  const struct ct_trace *trace = reading->trace;
  uint64_t events, dropped;
  ct_view_event_sums(trace, &events, &dropped);
  return reading->wanted->options->time == CT_TIME_WALL && !ct_filter_limits_calls(&reading->wanted->filter) &&
         threads == ct_trace_thread_count(trace) && ct_trace_is_complete(trace) && !ct_trace_has_range(trace) &&
         !ct_trace_is_atf(trace) && events >= CT_INDEX_FILE_EVENTS;
}

static int
count_edges(struct reading *reading, struct ct_index *index, struct ct_diag *diag)
{
  const struct ct_index_edge *edges;
  int64_t count = ct_index_edges(index, &edges);
  for (int64_t i = 0; i < count; i++) {
    add_children(reading, edges[i].caller, edges[i].fn, edges[i].calls);
  }
  return count >= 0 ? 0 : ct_fail(diag, CT_ENOMEM, "cannot read who called whom out of the index");
}

/* *index NULL: it does not tell all, the threads are to be read. */
static int
read_index(struct reading *reading, size_t count, struct ct_index **index, struct ct_diag *diag)
{
  struct ct_profile *profile = reading->profile;
  struct moving moving = {.wanted = reading->wanted};
  const struct ct_view_progress progress = {.update = index_moved, .arg = &moving};
  uint64_t preempted = 0, all = 0;
  *index = NULL;
  if (!is_for_index(reading, count)) {
    return 0;
  }
  int code = ct_index_open_selves(reading->trace, reading->wanted->workers, &progress, index, diag);
  for (uint32_t i = 0; code == 0 && *index != NULL && i < count; i++) {
    struct ct_index_thread_sums sums;
    ct_index_thread_sums(*index, i, &sums);
    preempted += ct_trace_ticks_ns(reading->trace, sums.preempted_ticks);
    all += sums.events;
    if (sums.is_damaged || sums.events == 0) { /* what of it is read says how damaged it is */
      ct_index_close(*index);
      *index = NULL;
    }
  }
  if (code == 0 && *index != NULL) {
    profile->preempted_ns += preempted;
    profile->events += all;
    code = count_edges(reading, *index, diag);
  }
  return code;
}

static int
choose_threads(const struct reading *reading, struct ct_report_thread **threads, size_t *count, struct ct_diag *diag)
{
  const struct ct_filter wanted = {
      .struct_size = sizeof(wanted), .tids = reading->wanted->tids, .tid_count = reading->wanted->tid_count};
  struct ct_filter filter;
  int code = ct_filter_take(&wanted, &filter, diag);
  const struct ct_report_options report = {
      .struct_size = sizeof(report), .filter = &filter, .time = reading->wanted->options->time};
  return code == 0 ? ct_report_choose_threads(reading->trace, &report, threads, count, diag) : code;
}

static int
add_functions(struct reading *reading, struct ct_diag *diag)
{
  const struct ct_diff_options *options = reading->wanted->options;
  struct ct_view_pattern pattern;
  int code =
      ct_view_pattern_init(&pattern, reading->trace, options->function_glob, options->module_glob, options->file, diag);
  if (code != 0) {
    return code;
  }
  const struct ct_stats *stats = reading->stats;
  uint8_t *were_out = ct_report_were_out(reading->trace, stats->fn_count);
  for (uint32_t id = 0; id <= stats->fn_count && code == 0; id++) { /* in an order that is always the same */
    if (stats->fns[id].histogram != NULL) {
      code = add_function(reading, &pattern, id, were_out != NULL && were_out[id] != 0);
    }
  }
  free(were_out);
  ct_view_pattern_destroy(&pattern);
  return code == 0 ? 0 : ct_fail(diag, code, "out of memory for the functions");
}

static int
add_trace(struct ct_trace *trace, const struct ct_profile_wanted *wanted, struct ct_profile *profile,
          struct ct_diag *diag)
{
  struct reading reading = {.trace = trace, .wanted = wanted, .profile = profile};
  struct ct_report_thread *threads = NULL;
  struct ct_index *index = NULL;
  uint64_t events, dropped;
  size_t count = 0;
  int code = choose_threads(&reading, &threads, &count, diag);
  if (code != 0) {
    goto free_threads;
  }
  reading.children = calloc((size_t)ct_trace_function_count(trace) + 1, sizeof(*reading.children));
  if (reading.children == NULL) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the functions");
    goto free_threads;
  }
  code = read_index(&reading, count, &index, diag);
  if (code != 0) {
    goto free_threads;
  }
  if (index != NULL) {
    reading.stats = ct_index_stats(index);
  } else {
    code = read_threads(&reading, threads, count, diag);
  }
  code = code == 0 ? add_functions(&reading, diag) : code;
free_threads:
  ct_view_event_sums(trace, &events, &dropped);
  profile->dropped += dropped;
  profile->threads += count;
  profile->processes++;
  free(threads);
  free(reading.children);
  ct_index_close(index);
  if (reading.own.fns != NULL) {
    ct_stats_destroy(&reading.own);
  }
  return code;
}

/* ---- a process tree ---- */

static int
add_child(const json_t *child, const struct ct_profile_wanted *wanted, struct ct_profile *profile, struct ct_diag *diag)
{
  const char *directory = ct_process_tree_directory(child);
  json_int_t pid = json_integer_value(json_object_get(child, "pid"));
  struct ct_diag why = {""};
  struct ct_trace *trace;
  if (directory == NULL) {
    return 0; /* it was not recorded, which info shows */
  }
  if (ct_process_tree_open(profile->trace, directory, &trace, &why) != 0) {
    ct_process_tree_warn(profile->warnings, pid, " is not in it", why.text);
    return 0;
  }
  json_t *warnings = ct_view_warnings(trace);
  ct_process_tree_warn_each(profile->warnings, pid, warnings);
  json_decref(warnings);
  int code = add_trace(trace, wanted, profile, diag);
  ct_trace_close(trace);
  return code;
}

static struct ct_noise_hooks
hooks_of(const struct ct_trace *trace)
{
  struct ct_trace_costs costs;
  ct_trace_costs(trace, &costs);
  double ns = (double)ct_trace_ticks_ns(trace, 1000000000) / 1e9 / CT_COST_UNIT;
  return (struct ct_noise_hooks){
      .own = ns * (double)(costs.enter_after + costs.return_before),
      .child = {[CT_CHILDREN_CALLS] = ns * (double)(costs.enter_before + costs.return_after),
                [CT_CHILDREN_POINTS] = ns * (double)costs.point},
  };
}

int
ct_profile_read(struct ct_trace *trace, const struct ct_profile_wanted *wanted, struct ct_profile *profile,
                struct ct_diag *diag)
{
  *profile = (struct ct_profile){.trace = trace, .warnings = ct_view_warnings(trace), .hooks = hooks_of(trace)};
  uint64_t begin = ct_trace_start_ns(trace), end = ct_trace_ns(trace, ct_trace_end_tsc(trace)), from = 0, to = 0;
  if (ct_trace_range(trace, &from, &to) && from != 0) {
    uint64_t first = ct_trace_ns(trace, from);
    begin = first > begin ? first : begin;
  }
  profile->duration_ns = end > begin ? end - begin : 0;
  int code = add_trace(trace, wanted, profile, diag);
  const json_t *children = json_object_get(ct_trace_manifest(trace), "children");
  for (size_t i = 0; i < json_array_size(children) && code == 0 && wanted->options->family; i++) {
    code = add_child(json_array_get(children, i), wanted, profile, diag);
  }
  if (profile->count != 0) {
    qsort(profile->list, profile->count, sizeof(struct ct_profile_function *), compare_list);
  }
  return code;
}

static void
keep_entry(void *entry)
{
  (void)entry; /* it is in the list too */
}

void
ct_profile_destroy(struct ct_profile *profile)
{
  tdestroy(profile->tree, keep_entry);
  for (size_t i = 0; i < profile->count; i++) {
    free_function(profile->list[i]);
  }
  free(profile->list);
  json_decref(profile->warnings);
  *profile = (struct ct_profile){0};
}
