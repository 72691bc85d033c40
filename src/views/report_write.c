/* SPDX-License-Identifier: MIT */
/*
 * The report as a text table or as JSON; the numbers come from report.c.
 * JSON is written one function at a time: a trace can have 200,000.
 */
#include "views/filter.h"
#include "views/pattern.h"
#include "views/report.h"

#include "base/json.h"
#include "base/sized.h"
#include "views/process_tree.h"
#include "views/warnings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
  TIMES = 6, /* min, avg, p50, p95, p99, max */
  NAME_COLUMNS_WANTED = 22,
  MODULE_COLUMNS_MAX = 24,
  NAME_COLUMNS_MIN = 16,
};

/* ---- JSON ---- */

int
ct_report_put_json(FILE *out, json_t *json)
{
  if (json == NULL) {
    return CT_ENOMEM;
  }
  int code = json_dumpf(json, out, JSON_COMPACT | JSON_ENCODE_ANY) == 0 ? 0 : CT_EIO;
  json_decref(json);
  return code;
}

void
ct_report_put_end(FILE *out, uint64_t events, uint64_t dropped)
{
  fprintf(out, "],\n\"events\":%llu,\"dropped\":%llu}\n", (unsigned long long)events, (unsigned long long)dropped);
}

static json_t *
time_or_null(bool known, uint64_t ns)
{
  return known ? json_integer((json_int_t)ns) : json_null();
}

/* Frames that ended without a return: {"exception": 12, ...}. */
static json_t *
left_json(const uint64_t *unwound)
{
  json_t *json = json_object();
  for (int end = 0; json != NULL && unwound != NULL && end < CT_SPAN_ENDS; end++) {
    const char *text = ct_span_end_text((enum ct_span_end)end); /* some have the same */
    json_int_t sum = (json_int_t)unwound[end] + json_integer_value(json_object_get(json, text));
    if (unwound[end] != 0 && json_object_set_new(json, text, json_integer(sum)) != 0) {
      json_decref(json);
      return NULL;
    }
  }
  return json;
}

static json_t *
row_json(const struct ct_report_row *row)
{
  bool has_time = row->calls > row->points || row->before != 0 || row->is_gap;
  bool timed = row->timed != 0;
  json_t *json = json_pack(
      "{s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:I, s:I, s:I, s:I, s:o, s:b, s:I, s:I, s:b}",
      "name", ct_json_string(row->name), "module", ct_json_string(row->module), "calls", (json_int_t)row->calls,
      "total_ns", time_or_null(has_time, row->total_ns), "self_ns", time_or_null(has_time, row->self_ns), "off_ns",
      time_or_null(has_time && !row->off_is_bound, row->off_ns), "min_ns", time_or_null(timed, row->min_ns), "max_ns",
      time_or_null(timed || row->partial != 0, row->max_ns), "avg_ns", time_or_null(timed, row->avg_ns), "p50_ns",
      time_or_null(timed, row->p50_ns), "p95_ns", time_or_null(timed, row->p95_ns), "p99_ns",
      time_or_null(timed, row->p99_ns), "enter_only", (int)row->enter_only, "uncertain", (json_int_t)row->uncertain,
      "unfinished", (json_int_t)row->unfinished, "entered_before", (json_int_t)row->before, "orphans",
      (json_int_t)row->orphans, "left", left_json(row->unwound), "sampled", (int)(row->passed_over != 0), "recorded",
      (json_int_t)(row->calls - row->passed_over - row->counted), "counted", (json_int_t)row->counted, "was_out",
      (int)row->was_out);
  if (json != NULL && has_time && row->off_is_bound) {
    json_object_set_new(json, "off_at_most_ns", json_integer((json_int_t)row->off_ns));
  }
  if (json != NULL && row->file != NULL) {
    json_object_set_new(json, "file", ct_json_string(row->file));
    json_object_set_new(json, "line", row->line != 0 ? json_integer(row->line) : json_null());
  }
  return json;
}

static int
put_rows_json(FILE *out, const struct ct_report_row *rows, size_t count)
{
  fputs("[", out);
  for (size_t i = 0; i < count; i++) {
    fputs(i == 0 ? "\n" : ",\n", out);
    int code = ct_report_put_json(out, row_json(&rows[i]));
    if (code != 0) {
      return code;
    }
  }
  fputs("]", out);
  return 0;
}

/* One thread, without its closing brace. */
static int
put_thread_json(FILE *out, struct ct_trace *trace, const struct ct_report_thread *thread)
{
  const struct ct_trace_thread *info = ct_trace_thread(trace, thread->index);
  fprintf(out, "{\"index\":%u,\"tid\":%u,\"name\":", info->index, info->tid);
  int code = ct_report_put_json(out, ct_json_string(info->name));
  fprintf(out, ",\"events\":%llu,\"dropped\":%llu,\"damaged\":%s", (unsigned long long)thread->events,
          (unsigned long long)info->dropped, thread->damaged ? "true" : "false");
  return code;
}

/* ---- Text ---- */

static bool
any_uncertain(const struct ct_report_row *rows, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    if (rows[i].uncertain != 0) {
      return true;
    }
  }
  return false;
}

static bool
any_unfinished(const struct ct_report_row *rows, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    if (rows[i].unfinished != 0) {
      return true;
    }
  }
  return false;
}

static bool
any_off(const struct ct_report_row *rows, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    if (rows[i].off_ns != 0) {
      return true;
    }
  }
  return false;
}

/* Columns that are not in every table, and what a share is of. */
struct extra {
  bool off, uncertain, unfinished;
  bool share;        /* of what is shown and not: only where all functions are in the rows */
  bool times[TIMES]; /* as time_names has them */
  bool module;
  char dropped[96]; /* names of columns, for want of room */
  uint64_t self_ns; /* of all rows */
};

static const char *const time_names[TIMES] = {"min", "avg", "p50", "p95", "p99", "max"};

/* What is before the name, in columns. */
static size_t
columns_before_name(const struct extra *extra, size_t module_columns)
{
  size_t times = 2u + extra->off + extra->uncertain + extra->unfinished; /* total, self */
  for (size_t i = 0; i < TIMES; i++) {
    times += extra->times[i];
  }
  return times * 11u + extra->share * 7u + 13 + 1 + (extra->module ? module_columns + 2 : 0);
}

/* Drops columns, from the least useful on, until the names have room; dropped: which. */
static void
fit(struct extra *extra, size_t module_columns, unsigned width)
{
  struct {
    bool *shown;
    const char *name;
  } least_useful[] = {{&extra->times[0], "min"}, {&extra->times[1], "avg"}, {&extra->times[2], "p50"},
                      {&extra->times[3], "p95"}, {&extra->times[5], "max"}, {&extra->times[4], "p99"},
                      {&extra->share, "self %"}, {&extra->off, "off"},      {&extra->module, "module"}};
  for (size_t i = 0; i < sizeof(least_useful) / sizeof(least_useful[0]) &&
                     width < columns_before_name(extra, module_columns) + NAME_COLUMNS_WANTED;
       i++) {
    size_t used = strlen(extra->dropped);
    if (*least_useful[i].shown) {
      *least_useful[i].shown = false;
      snprintf(extra->dropped + used, sizeof(extra->dropped) - used, "%s%s", used != 0 ? ", " : "",
               least_useful[i].name);
    }
  }
}

void
ct_report_put_time(FILE *out, bool known, uint64_t ns)
{
  char buf[CT_DURATION_CHARS];
  fprintf(out, "%10s ", known ? ct_format_duration(buf, ns) : "-");
}

void
ct_report_put_share(FILE *out, bool known, uint64_t part, uint64_t whole)
{
  if (known && whole != 0) {
    fprintf(out, "%6.1f ", 100.0 * (double)part / (double)whole);
  } else {
    fprintf(out, "%6s ", "-");
  }
}

void
ct_report_put_padded(FILE *out, const char *text, size_t columns)
{
  size_t bytes = ct_text_bytes_of_columns(text, columns);
  ct_put_printable(out, text, bytes);
  for (size_t used = ct_text_columns(text); used < columns; used++) {
    putc_unlocked(' ', out);
  }
}

static void
put_row_text(FILE *out, const struct ct_report_row *row, const struct extra *extra,
             const struct ct_report_options *options, size_t module_columns, size_t name_columns)
{
  bool has_time = row->calls > row->points || row->before != 0 || row->is_gap;
  bool timed = row->timed != 0;
  char calls[CT_COUNT_CHARS + 1] = "~", odd[CT_COUNT_CHARS];
  ct_report_put_time(out, has_time, row->total_ns);
  ct_report_put_time(out, has_time, row->self_ns);
  if (extra->share) {
    ct_report_put_share(out, has_time, row->self_ns, extra->self_ns);
  }
  if (extra->off) {
    ct_report_put_time(out, has_time, row->off_ns);
  }
  ct_format_count(calls + 1, row->calls);
  calls[0] = row->was_out ? '>' : row->passed_over != 0 ? '~' : '+';
  fprintf(out, "%12s ", row->was_out || row->passed_over != 0 || row->counted != 0 ? calls : calls + 1);
  const uint64_t times[] = {row->min_ns, row->avg_ns, row->p50_ns, row->p95_ns, row->p99_ns, row->max_ns};
  for (size_t i = 0; i < TIMES; i++) {
    if (extra->times[i]) {
      ct_report_put_time(out, timed || (i + 1 == TIMES && row->partial != 0), times[i]);
    }
  }
  if (extra->uncertain) {
    fprintf(out, "%10s ", ct_format_count(odd, row->uncertain));
  }
  if (extra->unfinished) {
    fprintf(out, "%10s ", ct_format_count(odd, row->unfinished));
  }
  putc_unlocked(' ', out);
  if (extra->module) {
    ct_report_put_padded(out, row->module, module_columns);
    fputs("  ", out);
  }
  ct_text_put_name(out, row->name, options->short_names, name_columns);
  if (options->source && row->file != NULL) {
    fputs("  ", out);
    ct_put_printable(out, row->file, SIZE_MAX);
    if (row->line != 0) {
      fprintf(out, ":%u", row->line);
    }
  }
  putc_unlocked('\n', out);
}

static void
put_titles(FILE *out, const struct extra *extra, bool off_is_bound, size_t module_columns)
{
  fprintf(out, "%10s %10s ", "total", "self");
  if (extra->share) {
    fprintf(out, "%6s ", "self %");
  }
  if (extra->off) {
    fprintf(out, "%10s ", off_is_bound ? "off <=" : "off");
  }
  fprintf(out, "%12s ", "calls");
  for (size_t i = 0; i < TIMES; i++) {
    if (extra->times[i]) {
      fprintf(out, "%10s ", time_names[i]);
    }
  }
  if (extra->uncertain) {
    fprintf(out, "%10s ", "uncertain");
  }
  if (extra->unfinished) {
    fprintf(out, "%10s ", "unfinished");
  }
  if (extra->module) {
    fprintf(out, " %-*s  function\n", (int)module_columns, "module");
  } else {
    fputs(" function\n", out);
  }
}

static void
put_rows_text(FILE *out, const struct ct_report_row *rows, size_t count, size_t shown,
              const struct ct_report_options *options)
{
  struct extra extra = {.off = any_off(rows, shown),
                        .uncertain = any_uncertain(rows, shown),
                        .unfinished = any_unfinished(rows, shown),
                        .share = !ct_report_is_filtered(options->filter),
                        .times = {true, true, true, true, true, true},
                        .module = true};
  size_t module_columns = strlen("module"), name_columns = 0;
  unsigned width = options->width;
  for (size_t i = 0; i < count; i++) {
    extra.self_ns += rows[i].self_ns;
  }
  for (size_t i = 0; i < shown; i++) {
    size_t columns = ct_text_columns(rows[i].module);
    if (columns > module_columns) {
      module_columns = columns < MODULE_COLUMNS_MAX ? columns : MODULE_COLUMNS_MAX;
    }
  }
  if (width != 0) {
    fit(&extra, module_columns, width);
    size_t before_name = columns_before_name(&extra, module_columns);
    name_columns = width > before_name + NAME_COLUMNS_MIN ? width - before_name : NAME_COLUMNS_MIN;
  }
  put_titles(out, &extra, count != 0 && rows[0].off_is_bound, module_columns);
  for (size_t i = 0; i < shown; i++) {
    put_row_text(out, &rows[i], &extra, options, module_columns, name_columns);
  }
  char more[CT_COUNT_CHARS];
  if (shown < count) {
    fprintf(out, "... and %s more; --limit 0 shows all\n", ct_format_count(more, count - shown));
  } else if (count == 0) {
    fputs("no calls\n", out);
  }
  if (extra.dropped[0] != '\0') {
    fprintf(out, "not shown, for want of columns: %s\n", extra.dropped);
  }
}

static void
put_thread_heading(FILE *out, struct ct_trace *trace, const struct ct_report_thread *thread)
{
  const struct ct_trace_thread *info = ct_trace_thread(trace, thread->index);
  char events[CT_COUNT_CHARS], dropped[CT_COUNT_CHARS];
  fprintf(out, "thread %u", info->tid);
  if (info->name[0] != '\0') {
    putc_unlocked(' ', out);
    ct_put_printable(out, info->name, SIZE_MAX);
  }
  fprintf(out, ": %s events, %s dropped\n", ct_format_count(events, thread->events),
          ct_format_count(dropped, info->dropped));
}

static void
put_totals_text(FILE *out, const struct ct_report_totals *totals, const struct ct_report_row *rows, size_t count)
{
  char events[CT_COUNT_CHARS], dropped[CT_COUNT_CHARS], number[CT_COUNT_CHARS];
  uint64_t uncertain = 0, unfinished = 0, before = 0, passed_over = 0, counted = 0, were_out = 0;
  for (size_t i = 0; i < count; i++) {
    uncertain += rows[i].uncertain;
    unfinished += rows[i].unfinished;
    before += rows[i].before;
    passed_over += rows[i].passed_over;
    counted += rows[i].counted;
    were_out += rows[i].was_out;
  }
  fprintf(out, "\n%s events in %zu thread%s", ct_format_count(events, totals->events), totals->threads,
          totals->threads == 1 ? "" : "s");
  if (totals->processes != 0) {
    fprintf(out, " of %zu process%s", totals->processes, totals->processes == 1 ? "" : "es");
  }
  fprintf(out, ", %s dropped\n", ct_format_count(dropped, totals->dropped));
  if (uncertain != 0) {
    fprintf(out,
            "uncertain calls: %s (open when events were lost, or left on a stack that was switched), "
            "not in min, avg, max and percentiles\n",
            ct_format_count(number, uncertain));
  }
  if (unfinished != 0) {
    fprintf(out, "unfinished calls: %s (open when the program or the trace ended), with their time until then\n",
            ct_format_count(number, unfinished));
  }
  if (before != 0) {
    fprintf(out, "open when the recording began: %s, not among the calls, with their time since then\n",
            ct_format_count(number, before));
  }
  if (passed_over != 0) {
    fprintf(
        out,
        "calls with ~ are estimated: light hooks were sampled, the events stand for %s calls more than there are of "
        "them\n",
        ct_format_count(number, passed_over));
  }
  if (were_out != 0) {
    fprintf(out, "calls with > are not all: %s function%s seen for some time (--budget)\n",
            ct_format_count(number, were_out), were_out == 1 ? " was not" : "s were not");
  }
  if (counted != 0) {
    fprintf(
        out,
        "calls with + are exact, but their times are those of the recorded ones alone: %s were counted only, and what "
        "they took is in their callers' self time (--budget)\n",
        ct_format_count(number, counted));
  }
}

/* ---- Both ---- */

static size_t
cut(size_t count, uint64_t limit)
{
  return limit != 0 && limit < count ? (size_t)limit : count;
}

void
ct_report_put_counted(FILE *out, const struct ct_report_options *options)
{
  char text[CT_FILTER_TEXT_CHARS];
  if (!ct_filter_limits_calls(options->filter)) {
    return;
  }
  ct_filter_describe_calls(options->filter, text);
  if (options->json) {
    fputs("\"counted\":", out);
    ct_report_put_json(out, json_string(text + strlen("counted: ")));
    fputs(",\n", out);
  } else {
    fprintf(out, "%s\n", text);
  }
}

int
ct_report_put_rows(FILE *out, const struct ct_report_row *rows, size_t count, const struct ct_report_options *options)
{
  size_t shown = cut(count, options->filter->limit);
  if (options->json) {
    return put_rows_json(out, rows, shown);
  }
  put_rows_text(out, rows, count, shown, options);
  return 0;
}

void
ct_report_put_totals(FILE *out, const struct ct_report_totals *totals, const struct ct_report_row *rows, size_t count,
                     const struct ct_report_options *options)
{
  if (options->json) {
    fprintf(out, ",\n\"events\":%llu,\"dropped\":%llu}\n", (unsigned long long)totals->events,
            (unsigned long long)totals->dropped);
  } else {
    put_totals_text(out, totals, rows, count);
  }
}

static int
put_rows(FILE *out, struct ct_trace *trace, const struct ct_stats *stats, const struct ct_report_options *options,
         struct ct_report_row **rows, size_t *count, struct ct_diag *diag)
{
  int code = ct_report_rows(trace, stats, options, rows, count, diag);
  if (code != 0) {
    return code;
  }
  code = ct_report_put_rows(out, *rows, *count, options);
  return code != 0 ? ct_fail(diag, code, "cannot write the report") : 0;
}

static int
put_one_thread(FILE *out, struct ct_trace *trace, const struct ct_report_options *options,
               struct ct_report_thread *thread, bool is_first, struct ct_stats *one, struct ct_diag *diag)
{
  int code = ct_report_read_thread(trace, thread, options, one, NULL, NULL, diag);
  if (code != 0) {
    return code;
  }
  struct ct_report_row *rows = NULL;
  size_t row_count;
  if (options->json) {
    fputs(is_first ? "" : ",\n", out);
    code = put_thread_json(out, trace, thread);
    fputs(",\"functions\":", out);
  } else {
    put_thread_heading(out, trace, thread);
  }
  if (code == 0) {
    code = put_rows(out, trace, one, options, &rows, &row_count, diag);
  }
  fputs(options->json ? "}" : "\n", out);
  free(rows);
  return code;
}

/* Threads one after another, each with its rows; leaves the sum of all in stats. */
static int
put_each_thread(FILE *out, struct ct_trace *trace, const struct ct_report_options *options, struct ct_stats *stats,
                struct ct_report_thread *threads, size_t count, struct ct_diag *diag)
{
  struct ct_stats one;
  int code = ct_stats_init(&one, stats->fn_count);
  if (code != 0) {
    return ct_fail(diag, code, "out of memory for the statistics of the functions");
  }
  for (size_t i = 0; i < count && !ferror(out); i++) {
    code = put_one_thread(out, trace, options, &threads[i], i == 0, &one, diag);
    if (code != 0) {
      break;
    }
    if (ct_stats_merge(stats, &one) != 0) {
      code = ct_fail(diag, CT_ENOMEM, "out of memory for the statistics of the functions");
      break;
    }
    ct_stats_clear(&one);
    if (options->progress.update != NULL && options->progress.update(options->progress.arg, i + 1, count) != 0) {
      code = ct_fail(diag, CT_ECANCELED, "cancelled");
      break;
    }
  }
  ct_stats_destroy(&one);
  return code;
}

static int
put_threads_json(FILE *out, struct ct_trace *trace, const struct ct_report_thread *threads, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    fputs(i == 0 ? "\n" : ",\n", out);
    int code = put_thread_json(out, trace, &threads[i]);
    if (code != 0) {
      return code;
    }
    fputs("}", out);
  }
  return 0;
}

static struct ct_report_totals
sum_threads(struct ct_trace *trace, const struct ct_report_thread *threads, size_t count, struct ct_view_notes *notes)
{
  struct ct_report_totals totals = {.threads = count};
  for (size_t i = 0; i < count; i++) {
    const struct ct_trace_thread *info = ct_trace_thread(trace, threads[i].index);
    totals.events += threads[i].events;
    totals.dropped += info->dropped;
    if (threads[i].damaged && notes->damaged_threads++ == 0) {
      notes->first_damaged_tid = info->tid;
    }
  }
  return totals;
}

/* Modules of which only enters are recorded, for the sake of their runtimes: no mode gives times. */
static void
put_enter_only(FILE *out, const json_t *modules)
{
  size_t i;
  json_t *module;
  json_array_foreach(modules, i, module)
  {
    const char *why = json_string_value(json_object_get(module, "enter_only_because"));
    const char *path = json_string_value(json_object_get(module, "path"));
    if (why != NULL && path != NULL) {
      fputs("functions of ", out);
      ct_put_printable(out, strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path, SIZE_MAX);
      fputs(" have no times: ", out);
      ct_put_printable(out, why, SIZE_MAX);
      putc('\n', out);
    }
  }
}

/* What the numbers do not say by themselves. */
static void
put_notices(FILE *out, struct ct_trace *trace, const struct ct_report_row *rows, size_t count)
{
  const json_t *manifest = ct_trace_manifest(trace), *pattern;
  const char *source = json_string_value(json_object_get(json_object_get(manifest, "switches"), "source"));
  bool is_light = false, any_timeless = false;
  size_t i;
  json_array_foreach(json_object_get(manifest, "patterns"), i, pattern)
  {
    const char *mode = json_string_value(json_object_get(pattern, "mode"));
    is_light = is_light || (mode != NULL && strcmp(mode, "light") == 0);
  }
  for (i = 0; i < count && !any_timeless; i++) {
    any_timeless = rows[i].points != 0 && rows[i].points == rows[i].calls;
  }
  if (any_timeless) {
    put_enter_only(out, json_object_get(manifest, "modules"));
  }
  if (any_timeless && is_light) {
    fputs("functions without times were recorded by light hooks, as patterns with many matches are; --mode full "
          "records their times\n",
          out);
  }
  if (source != NULL && strcmp(source, "totals") == 0) {
    fputs("time off the processor is not known for each call (contrail info says why), but how much it was at most, by "
          "the time on it between two readings of /proc, some 40 ms apart (125 with --budget)\n",
          out);
  }
}

static int
write_all(struct ct_trace *trace, const struct ct_report_options *options, FILE *out, struct ct_stats *stats,
          struct ct_report_thread *threads, size_t thread_count, struct ct_view_notes *notes, struct ct_diag *diag)
{
  int code = 0;
  if (options->json) {
    fputs("{\"warnings\":", out);
    code = ct_report_put_json(out, ct_view_warnings(trace));
    if (code != 0) {
      return code;
    }
    fputs(",\n\"threads\":[", out);
    code = options->per_thread ? put_each_thread(out, trace, options, stats, threads, thread_count, diag)
                               : put_threads_json(out, trace, threads, thread_count);
    fputs("],\n", out);
    ct_report_put_counted(out, options);
    fputs("\"functions\":", out);
  } else {
    ct_view_put_warnings(trace, "", out);
    ct_report_put_counted(out, options);
  }
  if (!options->json && options->per_thread) {
    code = put_each_thread(out, trace, options, stats, threads, thread_count, diag);
    fputs("all threads\n", out);
  }
  if (code != 0) {
    return code;
  }
  struct ct_report_row *rows;
  size_t count;
  code = put_rows(out, trace, stats, options, &rows, &count, diag);
  if (code != 0) {
    return code;
  }
  struct ct_report_totals totals = sum_threads(trace, threads, thread_count, notes);
  ct_report_put_totals(out, &totals, rows, count, options);
  notes->shown = count;
  if (!options->json) {
    put_notices(out, trace, rows, count);
  }
  size_t others = ct_process_tree_size(trace);
  if (others != 0 && !options->json) {
    fprintf(out, "%zu other process%s followed; --family counts %s too\n", others, others == 1 ? " was" : "es were",
            others == 1 ? "it" : "them");
  }
  free(rows);
  return 0;
}

static int
collect_for(struct ct_trace *trace, const struct ct_report_options *options, struct ct_stats *stats,
            struct ct_report_thread **threads, size_t *count, struct ct_diag *diag)
{
  if (!options->per_thread) {
    int code = ct_report_collect(trace, options, stats, threads, count, diag);
    if (options->progress.finish != NULL) {
      options->progress.finish(options->progress.arg);
    }
    return code;
  }
  int code = ct_report_choose_threads(trace, options, threads, count, diag);
  if (code == 0 && ct_stats_init(stats, ct_trace_function_count(trace)) != 0) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the statistics of the functions");
  }
  return code;
}

static int
write_report(struct ct_trace *trace, const struct ct_report_options *options, FILE *out, struct ct_view_notes *notes,
             struct ct_diag *diag)
{
  struct ct_stats stats = {0};
  struct ct_report_thread *threads = NULL;
  size_t thread_count;
  int code = collect_for(trace, options, &stats, &threads, &thread_count, diag);
  if (code == 0) {
    code = write_all(trace, options, out, &stats, threads, thread_count, notes, diag);
  }
  if (code == 0 && (fflush(out) != 0 || ferror(out))) {
    code = ct_fail(diag, CT_EIO, "cannot write the report: %s", strerror(errno));
  }
  ct_stats_destroy(&stats);
  free(threads);
  return code;
}

int
ct_report_write(struct ct_trace *trace, const struct ct_report_options *given, FILE *out, struct ct_view_notes *notes,
                struct ct_diag *diag)
{
  struct ct_report_options options;
  struct ct_view_notes own = {0};
  struct ct_view_pattern pattern;
  struct ct_filter filter;
  int code = ct_filter_take_with(&options, sizeof(options), given, &options.filter, &filter, diag);
  if (code != 0) {
    return code;
  }
  code = ct_view_pattern_init(&pattern, trace, filter.function, filter.module, filter.file, diag);
  ct_view_pattern_destroy(&pattern);
  if (code != 0) { /* before all of the trace is read */
    return code;
  }
  if ((filter.types & ~(unsigned)(CT_FILTER_CALL | CT_FILTER_POINT)) != 0) {
    return ct_fail(diag, CT_EINVAL, "a report is of calls: its types are call and point");
  }
  if (options.rows > CT_ROWS_CALLERS && ct_filter_limits_calls(&filter)) {
    return ct_fail(diag, CT_EINVAL, "these rows are sums of all calls: leave out durations, depths, reasons and types");
  }
  if (options.rows > CT_ROWS_CALLEES) {
    code = ct_report_write_groups(trace, &options, out, &own, diag);
  } else if (options.rows != CT_ROWS_FUNCTIONS) {
    code = ct_report_write_edges(trace, &options, out, &own, diag);
  } else if (options.family) {
    code = ct_report_write_tree(trace, &options, out, &own, diag);
  } else {
    code = write_report(trace, &options, out, &own, diag);
  }
  return code == 0 && notes != NULL ? ct_sized_give(notes, &own, sizeof(own), diag) : code;
}
