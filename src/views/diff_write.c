/* SPDX-License-Identifier: MIT */
/* The difference as text or JSON; the rows come from diff.c. */
#include "views/diff.h"

#include "base/json.h"

#include <contrail/text.h>

#include <errno.h>
#include <math.h>
#include <string.h>

static const char *const side_names[] = {"before", "after"};
static const char *const state_names[] = {
    [CT_DIFF_CHANGED] = "changed",           [CT_DIFF_NEW] = "new",   [CT_DIFF_VANISHED] = "vanished",
    [CT_DIFF_WITHIN_NOISE] = "within noise", [CT_DIFF_SAME] = "same", [CT_DIFF_NOT_KNOWN] = "not known",
};

/* ---- JSON ---- */

static json_t *
known(bool is_known, uint64_t ns)
{
  return is_known ? json_integer((json_int_t)ns) : json_null();
}

static json_t *
numbers_json(const struct ct_profile_function *function, const struct ct_report_row *row)
{
  if (function == NULL) {
    return json_null();
  }
  bool has_time = row->calls > row->points || row->before != 0, timed = row->timed != 0;
  return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:I, s:b}", "calls", (json_int_t)row->calls, "self_ns",
                   known(has_time, row->self_ns), "total_ns", known(has_time, row->total_ns), "avg_ns",
                   known(timed, row->avg_ns), "p50_ns", known(timed, row->p50_ns), "p95_ns", known(timed, row->p95_ns),
                   "p99_ns", known(timed, row->p99_ns), "sampled", (int)(row->passed_over != 0), "counted",
                   (json_int_t)row->counted, "was_out", (int)row->was_out);
}

static json_t *
row_json(const struct ct_diff_row *row)
{
  const struct ct_noise_pair *pair = &row->pair;
  bool both = row->functions[0] != NULL && row->functions[1] != NULL;
  return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:o, s:o}", "name",
                   ct_json_string(ct_diff_function(row)->name), "module", ct_json_string(ct_diff_function(row)->module),
                   "state", state_names[row->state], "before", numbers_json(row->functions[0], &row->numbers[0]),
                   "after", numbers_json(row->functions[1], &row->numbers[1]), "self_change_ns",
                   pair->has_times || !both ? json_integer((json_int_t)pair->self_change) : json_null(),
                   "self_noise_ns", pair->has_times ? json_integer((json_int_t)pair->self_noise) : json_null(),
                   "calls_change",
                   pair->has_calls || !both ? json_integer((json_int_t)pair->calls_change) : json_null(), "calls_noise",
                   pair->has_calls ? json_integer((json_int_t)pair->calls_noise) : json_null(), "self_changed",
                   (int)pair->is_self_changed, "calls_changed", (int)pair->is_calls_changed, "typical_changed",
                   (int)pair->is_typical_changed, "typical_factor",
                   pair->typical_noise > 0 ? json_real(exp(pair->typical_change)) : json_null(), "typical_noise_factor",
                   pair->typical_noise > 0 ? json_real(exp(pair->typical_noise)) : json_null());
}

static json_t *
side_json(const struct ct_profile *profile)
{
  return json_pack("{s:o, s:O, s:I, s:I, s:I, s:I, s:I}", "directory", ct_json_string(ct_trace_path(profile->trace)),
                   "warnings", profile->warnings, "events", (json_int_t)profile->events, "dropped",
                   (json_int_t)profile->dropped, "threads", (json_int_t)profile->threads, "processes",
                   (json_int_t)profile->processes, "duration_ns", (json_int_t)profile->duration_ns);
}

static int
put_json(const struct ct_profile profiles[2], const struct ct_diff *diff, size_t shown,
         const struct ct_diff_options *options, FILE *out)
{
  const struct ct_report_options counted = {.filter = options->calls, .json = true};
  int code = 0;
  for (int i = 0; i < 2 && code == 0; i++) {
    fprintf(out, "%s\"%s\":", i == 0 ? "{" : ",\n", side_names[i]);
    code = ct_report_put_json(out, side_json(&profiles[i]));
  }
  fputs(",\n", out);
  ct_report_put_counted(out, &counted);
  fprintf(out,
          "\"noise\":{\"common_factor\":%.6f,\"spread\":%.6f,\"call_ns\":%.1f,\"overdispersion\":%.3f,\"disturbance_"
          "ns\":%.0f,\"hooks_ns\":%.1f,\"hooks_in_caller_ns\":%.1f},\n",
          diff->noise.common, diff->noise.spread, diff->noise.call, diff->noise.overdispersion, diff->noise.disturbance,
          diff->noise.hooks.own, diff->noise.hooks.child[CT_CHILDREN_CALLS]);
  fputs("\"functions\":[", out);
  for (size_t i = 0; i < shown && code == 0; i++) {
    fputs(i == 0 ? "\n" : ",\n", out);
    code = ct_report_put_json(out, row_json(&diff->rows[i]));
  }
  fputs("],\n\"counts\":{", out);
  for (size_t i = 0; i < CT_DIFF_STATES; i++) {
    fprintf(out, "%s\"%s\":%zu", i == 0 ? "" : ",", state_names[i], diff->states[i]);
  }
  fputs("}}\n", out);
  return code;
}

/* ---- text ---- */

static void
put_head(const struct ct_profile profiles[2], FILE *out)
{
  char events[CT_COUNT_CHARS], time[CT_DURATION_CHARS];
  for (int i = 0; i < 2; i++) {
    const struct ct_profile *profile = &profiles[i];
    fprintf(out, "%-6s  ", side_names[i]);
    ct_put_printable(out, ct_trace_path(profile->trace), SIZE_MAX);
    fprintf(out, ": %s events in %zu thread%s", ct_format_count(events, profile->events), profile->threads,
            profile->threads == 1 ? "" : "s");
    if (profile->processes > 1) {
      fprintf(out, " of %zu processes", profile->processes);
    }
    fprintf(out, ", recorded for %s\n", ct_format_duration(time, profile->duration_ns));
    const json_t *line;
    size_t n;
    json_array_foreach(profile->warnings, n, line)
    {
      fprintf(out, "%-6s  ", side_names[i]);
      ct_put_printable(out, json_string_value(line), SIZE_MAX);
      putc('\n', out);
    }
  }
}

#define HOOKS_SAID_NS 2.0 /* a call */

static double
ns_of(const struct ct_noise_hooks *hooks)
{
  return hooks->own + hooks->child[CT_CHILDREN_CALLS];
}

static void
put_noise(const struct ct_profile profiles[2], const struct ct_diff *diff, const struct ct_diff_options *options,
          FILE *out)
{
  double b = (double)profiles[0].duration_ns, a = (double)profiles[1].duration_ns;
  char time[CT_DURATION_CHARS];
  double common = 100 * (diff->noise.common - 1);
  if (b > 1.25 * a || a > 1.25 * b) {
    fputs("the recordings are of different lengths: calls and times are as recorded, not per second\n", out);
  }
  if (fabs(common) >= 0.5) {
    fprintf(out, "most functions took %.1f %% %s, which is taken as the machine's\n", fabs(common),
            common > 0 ? "longer" : "less");
  }
  if (ns_of(&diff->noise.hooks) >= HOOKS_SAID_NS) {
    fprintf(
        out,
        "hooks took %.0f ns a call before, %.0f after: by that difference times of calls, and of what makes many, are "
        "not known\n",
        ns_of(&profiles[0].hooks), ns_of(&profiles[1].hooks));
  }
  fprintf(out, "noise: times of functions that have not changed differ by %.1f %%", 100 * diff->noise.spread);
  uint64_t preempted =
      profiles[0].preempted_ns > profiles[1].preempted_ns ? profiles[0].preempted_ns : profiles[1].preempted_ns;
  if (preempted != 0) {
    fprintf(out, "; threads were kept off the processor for %s in all%s", ct_format_duration(time, preempted),
            options->time == CT_TIME_CPU ? "" : " (--time cpu leaves that out)");
  }
  fputs("\n\n", out);
}

static void
put_time(FILE *out, bool is_known, uint64_t ns)
{
  char text[CT_DURATION_CHARS];
  fprintf(out, " %10s", is_known ? ct_format_duration(text, ns) : "-");
}

static void
put_numbers(FILE *out, const char *label, const struct ct_report_row *row)
{
  char calls[CT_COUNT_CHARS + 1] = "~";
  bool has_time = row->calls > row->points || row->before != 0, timed = row->timed != 0;
  bool is_marked = row->was_out || row->passed_over != 0 || row->counted != 0;
  ct_format_count(calls + 1, row->calls);
  calls[0] = row->was_out ? '>' : row->passed_over != 0 ? '~' : '+';
  fprintf(out, "%-8s %12s", label, is_marked ? calls : calls + 1);
  put_time(out, has_time, row->self_ns);
  put_time(out, has_time, row->total_ns);
  put_time(out, timed, row->p50_ns);
  put_time(out, timed, row->p95_ns);
  put_time(out, timed, row->p99_ns);
  fputs("  ", out);
}

static void
put_change(FILE *out, const struct ct_diff_row *row)
{
  const struct ct_noise_pair *pair = &row->pair;
  char change[CT_DURATION_CHARS], noise[CT_DURATION_CHARS], count[CT_COUNT_CHARS];
  bool has_self = pair->has_times && (pair->is_self_changed || !(pair->is_calls_changed || pair->is_typical_changed));
  if (has_self) {
    fprintf(out, "self %c%s", pair->self_change < 0 ? '-' : '+',
            ct_format_duration(change, (uint64_t)fabs(pair->self_change)));
    if (pair->before.self > 0) {
      fprintf(out, " (%+.1f %%)", 100 * pair->self_change / pair->before.self);
    }
    fprintf(out, ", noise %s", ct_format_duration(noise, (uint64_t)pair->self_noise));
  }
  if (pair->is_typical_changed) {
    fprintf(out, "%sa typical call's self %+.1f %%, noise %.1f %%", has_self ? "; " : "",
            100 * (exp(pair->typical_change) - 1), 100 * (exp(pair->typical_noise) - 1));
    has_self = true;
  }
  if (pair->is_calls_changed) {
    fprintf(out, "%scalls %c%s, noise ", has_self ? "; " : "", pair->calls_change < 0 ? '-' : '+',
            ct_format_count(count, (uint64_t)fabs(pair->calls_change)));
    fputs(ct_format_count(count, (uint64_t)pair->calls_noise), out);
  }
  if (!has_self && !pair->is_calls_changed) {
    fputs("cannot be compared", out);
  }
}

static void
put_row(FILE *out, const struct ct_diff_row *row, bool short_names)
{
  const struct ct_profile_function *function = ct_diff_function(row);
  bool is_one = row->state == CT_DIFF_NEW || row->state == CT_DIFF_VANISHED;
  put_numbers(out, is_one ? state_names[row->state] : side_names[0], &row->numbers[row->functions[0] == NULL]);
  ct_put_printable(out, function->module, 24);
  fputs("  ", out);
  ct_text_put_name(out, function->name, short_names, 0);
  putc('\n', out);
  if (!is_one) {
    put_numbers(out, side_names[1], &row->numbers[1]);
    put_change(out, row);
    putc('\n', out);
  }
}

static void
put_rest(FILE *out, const struct ct_diff *diff, size_t shown, const struct ct_diff_options *options)
{
  static const struct {
    enum ct_diff_state state;
    const char *one, *many;
  } lines[] = {
      {CT_DIFF_WITHIN_NOISE, "function differs by no more than noise", "functions differ by no more than noise"},
      {CT_DIFF_SAME, "function has not changed at all", "functions have not changed at all"},
      {CT_DIFF_NOT_KNOWN, "function cannot be compared: it was sampled, or not seen for some time",
       "functions cannot be compared: they were sampled, or not seen for some time"},
  };
  char number[CT_COUNT_CHARS];
  if (shown < diff->shown) {
    fprintf(out, "... and %s more; --limit 0 shows all\n", ct_format_count(number, diff->shown - shown));
  }
  if (diff->states[CT_DIFF_CHANGED] + diff->states[CT_DIFF_NEW] + diff->states[CT_DIFF_VANISHED] == 0) {
    fputs(diff->count == 0 ? "no calls\n" : "nothing has changed beyond noise\n", out);
  }
  for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
    size_t count = diff->states[lines[i].state];
    if (count != 0) {
      fprintf(out, "%s %s%s\n", ct_format_count(number, count), count == 1 ? lines[i].one : lines[i].many,
              options->all ? "" : "; --all shows them");
    }
  }
}

int
ct_diff_put(const struct ct_profile profiles[2], const struct ct_diff *diff, const struct ct_diff_options *options,
            FILE *out)
{
  size_t shown = options->limit != 0 && options->limit < diff->shown ? (size_t)options->limit : diff->shown;
  int code = 0;
  if (options->json) {
    code = put_json(profiles, diff, shown, options, out);
  } else {
    const struct ct_report_options counted = {.filter = options->calls};
    put_head(profiles, out);
    ct_report_put_counted(out, &counted);
    put_noise(profiles, diff, options, out);
    if (shown != 0) {
      fprintf(out, "%-8s %12s %10s %10s %10s %10s %10s  %s\n", "", "calls", "self", "total", "p50", "p95", "p99",
              "module  function");
    }
    for (size_t i = 0; i < shown; i++) {
      put_row(out, &diff->rows[i], options->short_names);
    }
    put_rest(out, diff, shown, options);
  }
  return code == 0 && (fflush(out) != 0 || ferror(out)) ? CT_EIO : code;
}
