/* SPDX-License-Identifier: MIT */
/* See profile.h. Traces of a family are read one after the other, as report_tree.c does. */
#include "views/profile.h"

#include "base/json.h"
#include "views/filter.h"
#include "views/pattern.h"
#include "views/process_tree.h"
#include "views/warnings.h"

#include <limits.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

/* The self times of a function's calls. */
struct selves {
  struct ct_batches batches;
  struct ct_histogram histogram;
};

/* What is read of one trace. */
struct reading {
  struct ct_trace *trace;
  const struct ct_profile_wanted *wanted;
  struct ct_profile *profile;
  struct ct_stats stats;
  struct selves **selves; /* by function id, as stats->fns; NULL: none */
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
  ct_histogram_destroy(&function->selves);
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
      ct_stats_init(&function->stats, 0) != 0) {
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
  const struct ct_stats *stats = &reading->stats;
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
  const struct selves *selves = reading->selves[id];
  if (selves != NULL) {
    ct_batches_merge(&function->batches, &selves->batches);
  }
  if (selves != NULL && ct_histogram_merge(&function->selves, &selves->histogram) != 0) {
    return CT_ENOMEM;
  }
  return ct_stats_merge_one(&function->stats, 0, stats, id);
}

/* ---- one trace ---- */

/* The calls whose times are known from begin to end, as in stats.c. */
static int
add_selves(struct reading *reading, const struct ct_span *spans, size_t count)
{
  for (const struct ct_span *span = spans; span != spans + count; span++) {
    bool is_timed = !span->uncertain &&
                    (span->end < CT_SPAN_SWITCHED || span->end == CT_SPAN_EXITED || span->end == CT_SPAN_KILLED);
    uint32_t id = span->fn < reading->stats.fn_count ? span->fn : reading->stats.fn_count;
    if (!is_timed) {
      continue;
    }
    struct selves **selves = &reading->selves[id];
    if (*selves == NULL && (*selves = calloc(1, sizeof(**selves))) == NULL) {
      return CT_ENOMEM;
    }
    ct_batches_add(&(*selves)->batches, span->self_ticks);
    if (ct_histogram_add(&(*selves)->histogram, span->self_ticks) != 0) {
      return CT_ENOMEM;
    }
  }
  return 0;
}

static int
read_thread(struct reading *reading, uint32_t index, struct ct_diag *diag)
{
  struct ct_profile *profile = reading->profile;
  struct ct_spans *spans;
  const struct ct_span *batch;
  size_t count;
  uint64_t reported = 0;
  int rc = ct_spans_open(reading->trace, index, reading->wanted->options->time, &spans, diag);
  if (rc != 0) {
    return rc;
  }
  while ((rc = ct_spans_next(spans, &batch, &count)) == 0 && count != 0) {
    rc = ct_stats_add(&reading->stats, batch, count);
    rc = rc == 0 ? add_selves(reading, batch, count) : rc;
    if (rc != 0) {
      break;
    }
    uint64_t offset = ct_spans_offset(spans);
    if (offset != reported && reading->wanted->moved != NULL) {
      rc = reading->wanted->moved(reading->wanted->arg, offset - reported);
    }
    if (rc != 0) {
      break;
    }
    reported = offset;
  }
  if (rc != 0) {
    ct_fail(diag, rc, "out of memory for the statistics of the functions");
  }
  profile->preempted_ns += ct_trace_ticks_ns(reading->trace, ct_spans_preempted(spans));
  profile->events += ct_spans_events(spans);
  reading->stats.lost += ct_spans_lost(spans);
  if (ct_spans_state(spans) == CT_CURSOR_DAMAGED && profile->damaged_threads++ == 0) {
    profile->first_damaged_tid = ct_trace_thread(reading->trace, index)->tid;
  }
  ct_spans_close(spans);
  return rc;
}

static int
read_threads(struct reading *reading, struct ct_diag *diag)
{
  const struct ct_filter wanted = {
      .struct_size = sizeof(wanted), .tids = reading->wanted->tids, .tid_count = reading->wanted->tid_count};
  struct ct_filter filter;
  int rc = ct_filter_take(&wanted, &filter, diag);
  if (rc != 0) {
    return rc;
  }
  const struct ct_report_options report = {
      .struct_size = sizeof(report), .filter = &filter, .time = reading->wanted->options->time};
  struct ct_report_thread *threads = NULL;
  size_t count = 0;
  rc = ct_report_choose_threads(reading->trace, &report, &threads, &count, diag);
  for (size_t i = 0; rc == 0 && i < count; i++) {
    rc = read_thread(reading, threads[i].index, diag);
    reading->profile->threads++;
  }
  free(threads);
  return rc;
}

static int
add_functions(struct reading *reading, struct ct_diag *diag)
{
  const struct ct_diff_options *options = reading->wanted->options;
  struct ct_view_pattern pattern;
  int rc =
      ct_view_pattern_init(&pattern, reading->trace, options->function_glob, options->module_glob, options->file, diag);
  if (rc != 0) {
    return rc;
  }
  uint8_t *were_out = ct_report_were_out(reading->trace, reading->stats.fn_count);
  for (uint32_t i = 0; i < reading->stats.touched_count && rc == 0; i++) {
    uint32_t id = reading->stats.touched[i];
    rc = add_function(reading, &pattern, id, were_out != NULL && were_out[id] != 0);
  }
  free(were_out);
  ct_view_pattern_destroy(&pattern);
  return rc == 0 ? 0 : ct_fail(diag, rc, "out of memory for the functions");
}

static int
add_trace(struct ct_trace *trace, const struct ct_profile_wanted *wanted, struct ct_profile *profile,
          struct ct_diag *diag)
{
  struct reading reading = {.trace = trace, .wanted = wanted, .profile = profile};
  uint32_t fn_count = ct_trace_function_count(trace);
  uint64_t events, dropped;
  reading.selves = calloc((size_t)fn_count + 1, sizeof(*reading.selves));
  if (reading.selves == NULL || ct_stats_init(&reading.stats, fn_count) != 0) {
    free(reading.selves);
    return ct_fail(diag, CT_ENOMEM, "out of memory for the statistics of the functions");
  }
  int rc = read_threads(&reading, diag);
  rc = rc == 0 ? add_functions(&reading, diag) : rc;
  ct_view_event_sums(trace, &events, &dropped);
  profile->dropped += dropped;
  profile->processes++;
  for (uint32_t i = 0; i <= fn_count; i++) {
    if (reading.selves[i] != NULL) {
      ct_histogram_destroy(&reading.selves[i]->histogram);
    }
    free(reading.selves[i]);
  }
  free(reading.selves);
  ct_stats_destroy(&reading.stats);
  return rc;
}

/* ---- a family ---- */

static void
warn_of(struct ct_profile *profile, json_int_t pid, const json_t *warnings, const char *why_not)
{
  char text[800];
  const json_t *line;
  size_t i;
  if (why_not != NULL) {
    snprintf(text, sizeof(text), "process %lld is not in it: %s", (long long)pid, why_not);
    json_array_append_new(profile->warnings, ct_json_string(text));
  }
  json_array_foreach((json_t *)warnings, i, line)
  {
    snprintf(text, sizeof(text), "process %lld: %s", (long long)pid, json_string_value(line));
    json_array_append_new(profile->warnings, ct_json_string(text));
  }
}

static int
add_child(const json_t *child, const struct ct_profile_wanted *wanted, struct ct_profile *profile, struct ct_diag *diag)
{
  const char *directory = ct_process_tree_directory(child);
  json_int_t pid = json_integer_value(json_object_get(child, "pid"));
  struct ct_diag why = {""};
  struct ct_trace *trace;
  char path[PATH_MAX];
  if (directory == NULL) {
    return 0; /* it was not recorded, which info shows */
  }
  int length = snprintf(path, sizeof(path), "%s/%s", ct_trace_path(profile->trace), directory);
  if (length >= (int)sizeof(path) || ct_trace_open(path, &trace, &why) != 0) {
    warn_of(profile, pid, NULL, length >= (int)sizeof(path) ? "its path is too long" : why.text);
    return 0;
  }
  json_t *warnings = ct_view_warnings(trace);
  warn_of(profile, pid, warnings, NULL);
  json_decref(warnings);
  int rc = add_trace(trace, wanted, profile, diag);
  ct_trace_close(trace);
  return rc;
}

int
ct_profile_read(struct ct_trace *trace, const struct ct_profile_wanted *wanted, struct ct_profile *profile,
                struct ct_diag *diag)
{
  *profile = (struct ct_profile){.trace = trace, .warnings = ct_view_warnings(trace)};
  uint64_t begin = ct_trace_start_ns(trace), end = ct_trace_ns(trace, ct_trace_end_tsc(trace));
  profile->duration_ns = end > begin ? end - begin : 0;
  int rc = add_trace(trace, wanted, profile, diag);
  const json_t *children = json_object_get(ct_trace_manifest(trace), "children");
  for (size_t i = 0; i < json_array_size(children) && rc == 0 && wanted->options->family; i++) {
    rc = add_child(json_array_get(children, i), wanted, profile, diag);
  }
  if (profile->count != 0) {
    qsort(profile->list, profile->count, sizeof(struct ct_profile_function *), compare_list);
  }
  return rc;
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
