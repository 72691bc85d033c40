/* SPDX-License-Identifier: MIT */
/*
 * Checks against a trace; see <contrail/check.h>. The trace is read once, into the statistics of the report; then each
 * check goes through the functions that its pattern matches, and keeps the answer for all of them:
 *
 *   one fails                    it fails, whatever else cannot be answered
 *   one cannot be answered       it cannot be
 *   all hold, and there is one   it holds
 *
 * What a number of the report is worth where the trace does not know everything:
 *
 *                      calls      open       total, self    min       avg, percentiles   max
 *   events lost        at least   at least   nothing        nothing   nothing            nothing
 *   was out (budget)   at least   at least   at least       at most   nothing            at least
 *   counted (budget)   exact      exact      at least       at most   nothing            at least
 *   sampled, light     nothing / exact       no times at all
 *   open at the end    exact      exact      at least       at most   exact: of those that ended   at least
 *
 * Where events were lost the durations of the calls that were seen are still those, but which calls they belong to may
 * be wrong.
 */
#include "views/check.h"

#include "base/glob.h"
#include "base/json.h"
#include "base/scopes.h"
#include "base/sized.h"
#include "target/inlined.h"
#include "trace/batch.h"
#include "views/check_tree.h"
#include "views/filter.h"
#include "views/pattern.h"
#include "views/report.h"
#include "views/warnings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LIKELY = 3, WHY_CHARS = 400, NAME_SHOWN = 200 };

/* What a check came to. */
struct answer {
  enum ct_check_result result;
  bool has_value;
  double value; /* of the worst function, ns or a count */
  enum ct_check_bound bound;
  uint32_t fn;          /* whose it is; UINT32_MAX: it is of none */
  size_t matched, left; /* functions; of these left out, since they were never called */
  char why[WHY_CHARS];  /* it cannot be answered, or what the value is when it is no number */
  bool is_text;
  const char *likely[LIKELY];
};

struct checking {
  struct ct_trace *trace; /* the first process's */
  const struct ct_check_options *options;
  struct ct_stats stats;
  uint8_t *were_out;
  struct ct_check_losses losses;
  const struct ct_check_tree *tree; /* in place of stats and were_out; NULL: one process */
};

/* ---- the values of functions ---- */

static enum ct_check_bound
bound_of(const struct checking *checking, enum ct_check_field field, const struct ct_report_row *row)
{
  bool has_lost = checking->losses.dropped != 0 || checking->losses.is_cut;
  bool has_earlier = checking->losses.not_kept != 0, is_seen_in_part = row->was_out || row->counted != 0 || has_earlier;
  if (field == CT_FIELD_CALLS) {
    return row->passed_over != 0                     ? CT_BOUND_NONE
           : has_lost || has_earlier || row->was_out ? CT_BOUND_AT_LEAST
                                                     : CT_BOUND_EXACT;
  }
  if (field == CT_FIELD_OPEN) {
    return row->enter_only ? CT_BOUND_NONE : has_lost || row->was_out ? CT_BOUND_AT_LEAST : CT_BOUND_EXACT;
  }
  if (has_lost || row->enter_only) {
    return CT_BOUND_NONE;
  }
  bool is_partial = row->partial != 0;
  switch (field) {
  case CT_FIELD_TOTAL:
  case CT_FIELD_SELF:
  case CT_FIELD_MAX:
    return is_seen_in_part || is_partial ? CT_BOUND_AT_LEAST : CT_BOUND_EXACT;
  case CT_FIELD_MIN:
    return is_seen_in_part || is_partial ? CT_BOUND_AT_MOST : CT_BOUND_EXACT;
  default:
    return is_seen_in_part ? CT_BOUND_NONE : CT_BOUND_EXACT;
  }
}

static double
value_of(enum ct_check_field field, const struct ct_report_row *row)
{
  const uint64_t values[] = {
      [CT_FIELD_CALLS] = row->calls,  [CT_FIELD_OPEN] = row->unfinished, [CT_FIELD_TOTAL] = row->total_ns,
      [CT_FIELD_SELF] = row->self_ns, [CT_FIELD_MIN] = row->min_ns,      [CT_FIELD_AVG] = row->avg_ns,
      [CT_FIELD_P50] = row->p50_ns,   [CT_FIELD_P95] = row->p95_ns,      [CT_FIELD_P99] = row->p99_ns,
      [CT_FIELD_MAX] = row->max_ns,
  };
  return (double)values[field];
}

/* Whether the function has such a value at all. */
static bool
has_value(enum ct_check_field field, const struct ct_report_row *row)
{
  return field <= CT_FIELD_SELF || row->timed != 0 || (field == CT_FIELD_MAX && row->partial != 0);
}

#define NOT_KEPT "events before the last stretch were not kept (a piece of it, TRACE@FROM..TO, can be asked)"

/* Why a value of the row is not known well enough. */
static const char *
doubt_of(const struct checking *checking, enum ct_check_field field, const struct ct_report_row *row)
{
  return checking->losses.dropped != 0                      ? "events were lost"
         : checking->losses.is_cut                          ? "the trace is not whole"
         : checking->losses.not_kept != 0                   ? NOT_KEPT
         : field == CT_FIELD_CALLS && row->passed_over != 0 ? "its calls were sampled"
         : row->enter_only && field != CT_FIELD_CALLS       ? "it was recorded without times (a light hook)"
         : row->was_out                                     ? "for some time its calls were not seen (--budget)"
         : row->counted != 0                                ? "some of its calls were counted only (--budget)"
         : row->partial != 0                                ? "a call of it was open when the trace began or ended"
                                                            : "no call of it was seen from begin to end";
}

static void
fill_row(const struct checking *checking, uint32_t id, bool enter_only, struct ct_report_row *row)
{
  const struct ct_stats *stats = &checking->stats;
  *row = (struct ct_report_row){.fn = id};
  row->was_out = checking->were_out != NULL && checking->were_out[id] != 0;
  if (stats->fns[id].histogram != NULL) {
    row->passed_over = stats->passed_over[id];
    row->counted = stats->counted[id];
    ct_report_fill_row(checking->trace, stats, id, enter_only, CT_SORT_TOTAL, row);
  }
}

/* ---- all functions of a pattern ---- */

static int
rank(enum ct_check_result result)
{
  return result == CT_CHECK_FAILS ? 2 : result == CT_CHECK_UNANSWERED ? 1 : 0;
}

static void
take(const struct checking *checking, const struct ct_check *check, const struct ct_report_row *row,
     struct answer *answer)
{
  bool known = has_value(check->field, row);
  double value = known ? value_of(check->field, row) : 0;
  enum ct_check_bound bound = known ? bound_of(checking, check->field, row) : CT_BOUND_NONE;
  enum ct_check_result result = ct_check_answer(check, value, bound);
  bool is_first = answer->fn == UINT32_MAX;
  bool is_worse = rank(result) > rank(answer->result) ||
                  (result == answer->result && ct_check_badness(check, value) > ct_check_badness(check, answer->value));
  if (!is_first && !is_worse) {
    return;
  }
  answer->result = result;
  answer->has_value = known && !(bound == CT_BOUND_NONE && row->enter_only);
  answer->value = value;
  answer->bound = bound;
  answer->fn = row->fn;
  answer->why[0] = '\0';
  if (result == CT_CHECK_UNANSWERED) {
    snprintf(answer->why, sizeof(answer->why), "%s", doubt_of(checking, check->field, row));
  }
}

/* ---- a pattern that matches nothing ---- */

struct inlined_pattern {
  struct ct_glob *glob;
  struct ct_scope_marks marks;
};

static bool
matches_inlined(void *arg, const char *name)
{
  struct inlined_pattern *pattern = arg;
  size_t length = strlen(name);
  return ct_scope_marks_make(&pattern->marks, name, length) &&
         ct_glob_matches_scopes(pattern->glob, name, length, pattern->marks.bytes);
}

/* The debug information has a function's own name, without what it is a member of. */
static const char *
last_name(const char *pattern)
{
  const char *separator = ct_glob_separator(pattern), *name = separator != NULL ? separator + 1 : pattern, *scope;
  while ((scope = strstr(name, "::")) != NULL) {
    name = scope + 2;
  }
  return name;
}

/* Whether a module's file says that it was inlined; the file may be gone, or another one by now. */
static bool
find_inlined(const struct checking *checking, const char *text, struct answer *answer)
{
  struct inlined_pattern pattern = {0};
  const char *name = last_name(text);
  if (name[0] == '\0' || name[0] == '@' || ct_glob_compile_scopes(name, strlen(name), &pattern.glob, NULL) != 0) {
    return false;
  }
  bool is_found = false;
  struct ct_view_pattern modules;
  if (ct_view_pattern_init(&modules, checking->trace, text, NULL, NULL, NULL) != 0) {
    ct_glob_free(pattern.glob);
    return false;
  }
  for (uint32_t i = 0; i < ct_trace_module_count(checking->trace) && !is_found; i++) {
    const struct ct_trace_module *module = ct_trace_module(checking->trace, i);
    char *found = NULL;
    if (ct_view_pattern_owns_module(&modules, i) && module != NULL && module->path != NULL && module->path[0] == '/' &&
        ct_inlined_find(module->path, matches_inlined, &pattern, &found, NULL) == 0 && found != NULL) {
      is_found = true;
      snprintf(answer->why, sizeof(answer->why), "%.100s was inlined into its callers (debug information of %.150s)",
               found, ct_trace_module_name(checking->trace, i));
    }
    free(found);
  }
  ct_view_pattern_destroy(&modules);
  ct_glob_free(pattern.glob);
  free(pattern.marks.bytes);
  return is_found;
}

static void
say_unmatched(const struct checking *checking, const struct ct_check *check, struct answer *answer)
{
  answer->result = CT_CHECK_UNANSWERED;
  if (!find_inlined(checking, check->pattern, answer)) {
    snprintf(answer->why, sizeof(answer->why), "no function of the trace matches");
    struct ct_filter filter = {.struct_size = sizeof(filter), .function = check->pattern};
    ct_view_matches(checking->trace, &filter, answer->likely, LIKELY);
  }
}

/* A function that matches. */
static void
answer_function(const struct checking *checking, const struct ct_check *check, const struct ct_report_row *row,
                bool is_called, struct answer *answer)
{
  answer->matched++;
  if (check->field > CT_FIELD_SELF && !is_called && !row->was_out) {
    answer->left++; /* never called: nothing that could be too long */
    return;
  }
  take(checking, check, row, answer);
}

static int
answer_trace(const struct checking *checking, const struct ct_check *check, struct answer *answer, struct ct_diag *diag)
{
  struct ct_view_pattern pattern;
  struct ct_report_row row;
  int code = ct_view_pattern_init(&pattern, checking->trace, check->pattern, NULL, NULL, diag);
  if (code != 0) {
    return code;
  }
  for (uint32_t id = 0; id < checking->stats.fn_count; id++) {
    const struct ct_trace_function *fn = ct_trace_function(checking->trace, id);
    if (fn != NULL && ct_view_pattern_has_function(&pattern, fn)) {
      fill_row(checking, id, fn->enter_only != 0, &row);
      answer_function(checking, check, &row, checking->stats.fns[id].histogram != NULL, answer);
    }
  }
  ct_view_pattern_destroy(&pattern);
  return 0;
}

static void
answer_tree(const struct checking *checking, const struct ct_check *check, const uint8_t *matched,
            struct answer *answer)
{
  const struct ct_check_tree *tree = checking->tree;
  for (uint32_t i = 0; i < tree->names.count; i++) {
    const struct ct_check_function *function = &tree->functions[i];
    struct ct_report_row row = {.fn = i, .was_out = function->was_out};
    if (matched[i] == 0) {
      continue;
    }
    if (function->is_called) {
      row.passed_over = function->stats.passed_over[0];
      row.counted = function->stats.counted[0];
      ct_report_fill_row(checking->trace, &function->stats, 0, function->enter_only, CT_SORT_TOTAL, &row);
    }
    answer_function(checking, check, &row, function->is_called, answer);
  }
}

static int
answer_field(const struct checking *checking, const struct ct_check *check, const uint8_t *matched,
             struct answer *answer, struct ct_diag *diag)
{
  int code = 0;
  if (matched != NULL) {
    answer_tree(checking, check, matched, answer);
  } else {
    code = answer_trace(checking, check, answer, diag);
  }
  if (code == 0 && answer->matched == 0) {
    say_unmatched(checking, check, answer);
  } else if (code == 0 && answer->left == answer->matched) {
    answer->result = CT_CHECK_UNANSWERED;
    snprintf(answer->why, sizeof(answer->why), answer->matched == 1 ? "it was never called" : "none was ever called");
  }
  return code;
}

/* ---- checks of the whole ---- */

static void
say(struct answer *answer, enum ct_check_result result, const char *text)
{
  answer->result = result;
  answer->is_text = true;
  snprintf(answer->why, sizeof(answer->why), "%s", text);
}

static void
answer_losses(const struct checking *checking, struct answer *answer)
{
  answer->has_value = true;
  answer->value = (double)checking->losses.dropped;
  answer->bound = CT_BOUND_EXACT;
  answer->result = checking->losses.dropped != 0 ? CT_CHECK_FAILS : CT_CHECK_HOLDS;
  if (checking->losses.dropped == 0 && checking->losses.is_cut) {
    say(answer, CT_CHECK_FAILS, "the trace is not whole");
  } else if (checking->losses.dropped == 0 && checking->losses.not_kept != 0) {
    say(answer, CT_CHECK_FAILS, NOT_KEPT);
  }
}

bool
ct_check_exit_of(const struct ct_trace *trace, json_int_t *status, json_int_t *signal)
{
  const json_t *end = json_object_get(ct_trace_manifest(trace), "exit");
  const json_t *by_signal = json_object_get(end, "signal"), *by_itself = json_object_get(end, "status");
  *signal = json_integer_value(by_signal);
  *status = json_integer_value(by_itself);
  return json_is_integer(by_signal) || json_is_integer(by_itself);
}

/* Of all processes of a tree. */
static void
answer_no_crash(const struct ct_check_tree *tree, struct answer *answer)
{
  enum { SHOWN = 3 };
  size_t count = json_array_size(tree->crashed), length = 0;
  if (count == 0 && tree->has_unended) {
    say(answer, CT_CHECK_UNANSWERED, "the trace does not have the end of every process");
    return;
  }
  say(answer, count != 0 ? CT_CHECK_FAILS : CT_CHECK_HOLDS, count != 0 ? "" : "no process");
  for (size_t i = 0; i < count && i < SHOWN; i++) {
    length += (size_t)snprintf(answer->why + length, sizeof(answer->why) - length, "%s%s", i == 0 ? "" : ", ",
                               json_string_value(json_array_get(tree->crashed, i)));
  }
  if (count > SHOWN) {
    snprintf(answer->why + length, sizeof(answer->why) - length, ", and %zu more", count - SHOWN);
  }
}

static void
answer_exit(const struct checking *checking, const struct ct_check *check, struct answer *answer)
{
  json_int_t status, signal;
  char text[64];
  bool is_crash = check->kind == CT_CHECK_NO_CRASH;
  if (is_crash && ct_trace_crash(checking->trace) != NULL && !ct_check_exit_of(checking->trace, &status, &signal)) {
    say(answer, CT_CHECK_FAILS, "it crashed");
  } else if (!ct_check_exit_of(checking->trace, &status, &signal)) {
    say(answer, CT_CHECK_UNANSWERED, "the trace does not have the program's end");
  } else if (signal != 0) {
    snprintf(text, sizeof(text), "signal %lld", (long long)signal);
    say(answer, CT_CHECK_FAILS, text);
  } else {
    answer->has_value = true;
    answer->value = (double)status;
    answer->bound = CT_BOUND_EXACT;
    answer->result = is_crash ? CT_CHECK_HOLDS : ct_check_answer(check, (double)status, CT_BOUND_EXACT);
    if (is_crash) {
      snprintf(text, sizeof(text), "exit status %lld", (long long)status);
      say(answer, CT_CHECK_HOLDS, text);
    }
  }
}

/* ---- output ---- */

static const char *const result_names[] = {
    [CT_CHECK_HOLDS] = "holds", [CT_CHECK_FAILS] = "fails", [CT_CHECK_UNANSWERED] = "unanswered"};

static const char *
name_of(const struct checking *checking, uint32_t fn)
{
  if (checking->tree != NULL) {
    return checking->tree->names.names[fn].name;
  }
  const struct ct_trace_function *function = ct_trace_function(checking->trace, fn);
  return function != NULL ? function->name : "?";
}

static const char *
module_of(const struct checking *checking, uint32_t fn)
{
  if (checking->tree != NULL) {
    return checking->tree->names.names[fn].module;
  }
  const struct ct_trace_function *function = ct_trace_function(checking->trace, fn);
  return ct_trace_module_name(checking->trace, function != NULL ? function->module : UINT32_MAX);
}

static void
put_value(FILE *out, const struct ct_check *check, const struct answer *answer)
{
  char count[CT_COUNT_CHARS], duration[CT_DURATION_CHARS];
  uint64_t value = (uint64_t)answer->value;
  fputs(answer->bound == CT_BOUND_AT_LEAST ? ">= " : answer->bound == CT_BOUND_AT_MOST ? "<= " : "", out);
  fputs(answer->bound == CT_BOUND_NONE ? "~ " : "", out);
  fputs(ct_check_is_count(check) ? ct_format_count(count, value) : ct_format_duration(duration, value), out);
}

static void
put_text(FILE *out, const struct checking *checking, const struct ct_check *check, const struct answer *answer,
         size_t columns)
{
  static const char *const labels[] = {"holds ", "FAILS ", "?     "};
  fputs(labels[answer->result], out);
  ct_put_printable(out, check->text, SIZE_MAX);
  for (size_t used = ct_text_columns(check->text); used < columns; used++) {
    putc(' ', out);
  }
  fputs("  ", out);
  if (answer->has_value && !answer->is_text) {
    put_value(out, check, answer);
  }
  if (answer->why[0] != '\0') {
    fputs(answer->has_value && !answer->is_text ? ": " : "", out);
    fputs(answer->result == CT_CHECK_UNANSWERED ? "cannot be answered: " : "", out);
    ct_put_printable(out, answer->why, SIZE_MAX);
  }
  for (size_t i = 0; i < LIKELY && answer->likely[i] != NULL && answer->likely[i][0] != '\0'; i++) {
    fputs(i == 0 ? "; perhaps " : ", ", out);
    ct_put_printable(out, answer->likely[i], NAME_SHOWN);
  }
  if (answer->matched > 1 && answer->fn != UINT32_MAX) {
    fputs("  ", out);
    ct_put_printable(out, name_of(checking, answer->fn), NAME_SHOWN);
    fprintf(out, ", the worst of %zu functions", answer->matched - answer->left);
  }
  putc('\n', out);
}

static json_t *
answer_json(const struct checking *checking, const struct ct_check *check, const struct answer *answer)
{
  static const char *const bounds[] = {"exact", "at least", "at most", "none"};
  bool has_value = answer->has_value && !(answer->is_text && check->kind == CT_CHECK_NO_LOSSES);
  json_t *json =
      json_pack("{s:o, s:s, s:o, s:s}", "check", ct_json_string(check->text), "result", result_names[answer->result],
                "value", has_value ? json_integer((json_int_t)answer->value) : json_null(), "unit",
                check->kind == CT_CHECK_FIELD && !ct_check_is_count(check) ? "ns" : "");
  json_t *likely = answer->matched == 0 && check->kind == CT_CHECK_FIELD ? json_array() : NULL;
  if (json == NULL) {
    return NULL;
  }
  json_object_set_new(json, "bound", has_value ? json_string(bounds[answer->bound]) : json_null());
  if (check->kind == CT_CHECK_FIELD) {
    bool has_one = answer->fn != UINT32_MAX;
    json_object_set_new(json, "matched", json_integer((json_int_t)answer->matched));
    json_object_set_new(json, "function", has_one ? ct_json_string(name_of(checking, answer->fn)) : json_null());
    json_object_set_new(json, "module", has_one ? ct_json_string(module_of(checking, answer->fn)) : json_null());
  }
  json_object_set_new(json, "why", answer->why[0] != '\0' ? ct_json_string(answer->why) : json_null());
  for (size_t i = 0; likely != NULL && i < LIKELY && answer->likely[i] != NULL && answer->likely[i][0] != '\0'; i++) {
    json_array_append_new(likely, ct_json_string(answer->likely[i]));
  }
  if (likely != NULL) {
    json_object_set_new(json, "likely", likely);
  }
  return json;
}

static int
answer_one(const struct checking *checking, const struct ct_check *check, const uint8_t *matched, struct answer *answer,
           struct ct_diag *diag)
{
  *answer = (struct answer){.fn = UINT32_MAX};
  if (check->kind == CT_CHECK_FIELD) {
    return answer_field(checking, check, matched, answer, diag);
  }
  if (check->kind == CT_CHECK_NO_LOSSES) {
    answer_losses(checking, answer);
  } else if (check->kind == CT_CHECK_NO_CRASH && checking->tree != NULL) {
    answer_no_crash(checking->tree, answer);
  } else {
    answer_exit(checking, check, answer);
  }
  return 0;
}

static int
write_answers(const struct checking *checking, const struct ct_checks *checks, FILE *out, enum ct_check_result *result,
              struct ct_diag *diag)
{
  const struct ct_check_tree *tree = checking->tree;
  json_t *warnings = tree != NULL ? json_incref(tree->warnings) : ct_view_warnings(checking->trace);
  size_t counts[3] = {0}, columns = 0;
  int code = 0;
  for (size_t i = 0; i < checks->count; i++) {
    size_t used = ct_text_columns(checks->list[i].text);
    columns = used > columns && used <= 60 ? used : columns;
  }
  if (checking->options->json) {
    fputs("{\"warnings\":", out);
    code = ct_report_put_json(out, json_incref(warnings));
    fputs(",\n\"checks\":[", out);
  } else {
    ct_view_put_list(warnings, "", out);
  }
  json_decref(warnings);
  for (size_t i = 0; i < checks->count && code == 0; i++) {
    const struct ct_check *check = &checks->list[i];
    struct answer answer;
    code = answer_one(checking, check, tree != NULL ? tree->matched[i] : NULL, &answer, diag);
    if (code != 0) {
      return code;
    }
    counts[answer.result]++;
    if (checking->options->json) {
      fputs(i == 0 ? "\n" : ",\n", out);
      code = ct_report_put_json(out, answer_json(checking, check, &answer));
    } else {
      put_text(out, checking, check, &answer, columns);
    }
  }
  if (checking->options->json) {
    fprintf(out, "],\n\"holds\":%zu,\"fails\":%zu,\"unanswered\":%zu}\n", counts[CT_CHECK_HOLDS],
            counts[CT_CHECK_FAILS], counts[CT_CHECK_UNANSWERED]);
  }
  *result = counts[CT_CHECK_FAILS] != 0        ? CT_CHECK_FAILS
            : counts[CT_CHECK_UNANSWERED] != 0 ? CT_CHECK_UNANSWERED
                                               : CT_CHECK_HOLDS;
  if (code != 0 || fflush(out) != 0 || ferror(out)) {
    return ct_fail(diag, code != 0 ? code : CT_EIO, "cannot write the answers: %s", strerror(errno));
  }
  return 0;
}

/* ---- the trace ---- */

/* Of a piece that begins where everything is there nothing is missing. */
static uint64_t
not_kept(const struct ct_trace *trace)
{
  struct ct_trace_kept kept = {.struct_size = sizeof(kept)};
  uint64_t from, to;
  bool is_there = ct_trace_get_kept(trace, &kept) != 0 || !kept.is_kept ||
                  (ct_trace_range(trace, &from, &to) && from >= kept.begin_tsc);
  return is_there ? 0 : kept.not_kept;
}

static void
add_losses(struct ct_trace *trace, const struct ct_stats *stats, struct ct_check_losses *losses)
{
  uint64_t events, dropped;
  ct_view_event_sums(trace, &events, &dropped);
  if (stats->lost > dropped || ct_trace_has_range(trace)) {
    dropped = stats->lost; /* of a range, only what was lost in it */
  }
  losses->dropped += dropped + ct_trace_missing_events(trace);
  losses->not_kept += not_kept(trace);
  losses->is_cut |= !ct_trace_is_complete(trace) || ct_trace_is_recovered(trace) || ct_trace_failure(trace) != NULL ||
                    ct_trace_damage_count(trace) != 0;
}

int
ct_check_collect(struct ct_trace *trace, const struct ct_check_options *options, struct ct_stats *stats,
                 struct ct_check_losses *losses, struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct ct_filter threads_of = {
      .struct_size = sizeof(threads_of), .tids = options->tids, .tid_count = options->tid_count};
  struct ct_report_thread *threads = NULL;
  struct ct_filter filter;
  size_t count;
  int code = ct_filter_take(&threads_of, &filter, diag);
  if (code != 0) {
    return code;
  }
  struct ct_report_options report = {
      .struct_size = sizeof(report),
      .filter = &filter,
      .workers = options->workers,
      .time = options->time,
      .progress = options->progress,
  };
  code = ct_report_collect(trace, &report, stats, &threads, &count, diag);
  if (code != 0) {
    return code;
  }
  add_losses(trace, stats, losses);
  for (size_t i = 0; i < count; i++) {
    losses->is_cut |= threads[i].damaged;
    if (threads[i].damaged && notes->damaged_threads++ == 0) {
      notes->first_damaged_tid = ct_trace_thread(trace, threads[i].index)->tid;
    }
  }
  free(threads);
  return 0;
}

static int
answer_all(struct checking *checking, const struct ct_checks *checks, FILE *out, enum ct_check_result *result,
           struct ct_view_notes *notes, struct ct_diag *diag)
{
  const struct ct_check_options *options = checking->options;
  struct ct_check_tree tree = {0};
  int code = options->family
                 ? ct_check_tree_read(checking->trace, checks, options, &tree, notes, diag)
                 : ct_check_collect(checking->trace, options, &checking->stats, &checking->losses, notes, diag);
  if (options->progress.finish != NULL) {
    options->progress.finish(options->progress.arg);
  }
  if (code != 0) {
    goto destroy_tree;
  }
  if (options->family) {
    checking->tree = &tree;
    checking->losses = tree.losses;
  } else {
    checking->were_out = ct_report_were_out(checking->trace, checking->stats.fn_count);
  }
  code = write_answers(checking, checks, out, result, diag);
destroy_tree:
  ct_check_tree_destroy(&tree);
  free(checking->were_out);
  ct_stats_destroy(&checking->stats);
  return code;
}

int
ct_checks_write(struct ct_trace *trace, const struct ct_checks *checks, const struct ct_check_options *given, FILE *out,
                enum ct_check_result *result, struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct ct_check_options options;
  struct ct_view_notes own = {0};
  enum ct_check_result all;
  int code = ct_sized_take(&options, sizeof(options), given, diag);
  if (code != 0) {
    return code;
  }
  if (options.family && (options.tid_count != 0 || ct_trace_has_range(trace))) {
    return ct_fail(diag, CT_EINVAL, "checks of a family are of whole traces: leave out threads and the piece");
  }
  struct checking checking = {.trace = trace, .options = &options};
  code = answer_all(&checking, checks, out, &all, &own, diag);
  if (code != 0) {
    return code;
  }
  own.shown = checks->count;
  code = notes != NULL ? ct_sized_give(notes, &own, sizeof(own), diag) : 0;
  if (code == 0) {
    *result = all;
  }
  return code;
}
