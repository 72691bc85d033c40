/* SPDX-License-Identifier: MIT */
/* See check_tree.h. One trace after the other is opened, read and closed. */
#include "views/check_tree.h"

#include "base/json.h"
#include "views/pattern.h"
#include "views/process_tree.h"
#include "views/warnings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for all functions of the trace at hand. */
static int
widen(struct ct_check_tree *tree)
{
  size_t capacity = tree->names.capacity, old = tree->capacity;
  if (capacity == old) {
    return 0;
  }
  struct ct_check_function *functions = reallocarray(tree->functions, capacity, sizeof(*functions));
  if (functions == NULL) {
    return CT_ENOMEM;
  }
  memset(functions + old, 0, (capacity - old) * sizeof(*functions));
  tree->functions = functions;
  for (size_t i = 0; i < tree->check_count; i++) {
    uint8_t *matched = realloc(tree->matched[i], capacity);
    if (matched == NULL) {
      return CT_ENOMEM;
    }
    memset(matched + old, 0, capacity - old);
    tree->matched[i] = matched;
  }
  tree->capacity = capacity;
  return 0;
}

/* A function that a check matches, when it is met the first time in a trace. */
static int
add_function(struct ct_check_function *function, struct ct_trace *trace, const struct ct_stats *stats, uint32_t id,
             bool was_out)
{
  function->enter_only |= ct_trace_function(trace, id)->enter_only != 0;
  function->was_out |= was_out;
  if (stats->fns[id].histogram == NULL) {
    return 0;
  }
  if (!function->is_called && ct_stats_init(&function->stats, 0) != 0) {
    return CT_ENOMEM;
  }
  function->is_called = true;
  return ct_stats_merge_one(&function->stats, 0, stats, id);
}

struct matching {
  struct ct_check_tree *tree;
  struct ct_trace *trace;
  const struct ct_stats *stats;
  const uint8_t *were_out;
  uint8_t *is_added; /* by id */
};

static int
match_function(const struct matching *m, uint32_t id, uint8_t *matched)
{
  uint32_t number = ct_view_names_of(&m->tree->names, id, NULL);
  if (number == CT_NO_NAME) {
    return CT_ENOMEM;
  }
  if (m->is_added[id] == 0) {
    bool was_out = m->were_out != NULL && m->were_out[id] != 0;
    int code = add_function(&m->tree->functions[number], m->trace, m->stats, id, was_out);
    m->is_added[id] = 1;
    if (code != 0) {
      return code;
    }
  }
  matched[number] = 1;
  return 0;
}

static int
match(const struct matching *m, const struct ct_check *check, uint8_t **matched, struct ct_diag *diag)
{
  struct ct_view_pattern pattern;
  int code = ct_view_pattern_init(&pattern, m->trace, check->pattern, NULL, NULL, diag);
  if (code != 0) {
    return code;
  }
  for (uint32_t id = 0; id < m->stats->fn_count && code == 0; id++) {
    const struct ct_trace_function *fn = ct_trace_function(m->trace, id);
    if (fn != NULL && ct_view_pattern_has_function(&pattern, fn)) {
      code = match_function(m, id, *matched);
    }
  }
  ct_view_pattern_destroy(&pattern);
  return code == 0 ? 0 : ct_fail(diag, code, "out of memory for the functions of all processes");
}

static int
match_all(const struct matching *m, const struct ct_checks *checks, struct ct_diag *diag)
{
  int code = ct_view_names_begin(&m->tree->names, m->trace) == 0 ? widen(m->tree) : CT_ENOMEM;
  if (code != 0 || m->is_added == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the functions of all processes");
  }
  for (size_t i = 0; i < checks->count && code == 0; i++) {
    if (checks->list[i].kind == CT_CHECK_FIELD) {
      code = match(m, &checks->list[i], &m->tree->matched[i], diag);
    }
  }
  return code;
}

static void
note_end(struct ct_check_tree *tree, struct ct_trace *trace)
{
  json_int_t status, signal, pid = json_integer_value(json_object_get(ct_trace_manifest(trace), "pid"));
  char text[80];
  bool is_known = ct_check_exit_of(trace, &status, &signal);
  if (is_known && signal != 0) {
    snprintf(text, sizeof(text), "process %lld: signal %lld", (long long)pid, (long long)signal);
    json_array_append_new(tree->crashed, json_string(text));
  } else if (!is_known && ct_trace_crash(trace) != NULL) {
    snprintf(text, sizeof(text), "process %lld crashed", (long long)pid);
    json_array_append_new(tree->crashed, json_string(text));
  }
  tree->has_unended |= !is_known;
}

static int
add_trace(struct ct_check_tree *tree, struct ct_trace *trace, const struct ct_checks *checks,
          const struct ct_check_options *given, struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct ct_check_options options = *given;
  struct ct_stats stats = {0};
  options.progress = (struct ct_view_progress){0};
  int code = ct_check_collect(trace, &options, &stats, &tree->losses, notes, diag);
  if (code != 0) {
    return code;
  }
  uint8_t *were_out = ct_report_were_out(trace, stats.fn_count);
  struct matching m = {tree, trace, &stats, were_out, calloc((size_t)stats.fn_count + 1, 1)};
  code = match_all(&m, checks, diag);
  note_end(tree, trace);
  free(m.is_added);
  free(were_out);
  ct_stats_destroy(&stats);
  return code;
}

/* ---- the processes ---- */

/* One that was followed. A trace that cannot be read is reported; something of the tree is missing then. */
static int
add_child(struct ct_check_tree *tree, const struct ct_trace *first, const json_t *child, const struct ct_checks *checks,
          const struct ct_check_options *options, struct ct_view_notes *notes, struct ct_diag *diag)
{
  const char *directory = ct_process_tree_directory(child);
  json_int_t pid = json_integer_value(json_object_get(child, "pid"));
  struct ct_diag why = {""};
  struct ct_trace *trace;
  if (directory == NULL || ct_process_tree_open(first, directory, &trace, &why) != 0) {
    ct_process_tree_warn(tree->warnings, pid, " is not in it", directory == NULL ? "it was not recorded" : why.text);
    tree->losses.is_cut = true;
    return 0;
  }
  json_t *warnings = ct_view_warnings(trace);
  ct_process_tree_warn_each(tree->warnings, pid, warnings);
  json_decref(warnings);
  int code = add_trace(tree, trace, checks, options, notes, diag);
  ct_trace_close(trace);
  return code;
}

int
ct_check_tree_read(struct ct_trace *trace, const struct ct_checks *checks, const struct ct_check_options *options,
                   struct ct_check_tree *tree, struct ct_view_notes *notes, struct ct_diag *diag)
{
  const json_t *children = json_object_get(ct_trace_manifest(trace), "children");
  size_t total = json_array_size(children) + 1;
  tree->matched = calloc(checks->count + 1, sizeof(*tree->matched));
  tree->check_count = tree->matched != NULL ? checks->count : 0;
  tree->crashed = json_array();
  tree->warnings = ct_view_warnings(trace);
  if (tree->matched == NULL || tree->warnings == NULL || tree->crashed == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the functions of all processes");
  }
  int code = add_trace(tree, trace, checks, options, notes, diag);
  for (size_t i = 1; i < total && code == 0; i++) {
    if (options->progress.update != NULL && options->progress.update(options->progress.arg, i, total) != 0) {
      return ct_fail(diag, CT_ECANCELED, "cancelled");
    }
    code = add_child(tree, trace, json_array_get(children, i - 1), checks, options, notes, diag);
  }
  return code;
}

void
ct_check_tree_destroy(struct ct_check_tree *tree)
{
  for (size_t i = 0; i < tree->capacity; i++) {
    if (tree->functions[i].is_called) {
      ct_stats_destroy(&tree->functions[i].stats);
    }
  }
  for (size_t i = 0; i < tree->check_count; i++) {
    free(tree->matched[i]);
  }
  free(tree->functions);
  free(tree->matched);
  json_decref(tree->crashed);
  json_decref(tree->warnings);
  ct_view_names_destroy(&tree->names);
}
