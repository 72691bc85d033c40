/* SPDX-License-Identifier: MIT */
/* contrail report: calls and times per function. */
#include "cli/view.h"

#include <contrail/report.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_ROWS = 30 };

/* What the options choose. */
struct wanted {
  struct ct_view_selection selected;
  enum ct_report_sort sort;
  bool per_thread, family;
  const char *callers, *callees; /* NULL: not given */
  enum ct_report_rows by;
};

static const char *const sort_names[] = {
    [CT_SORT_TOTAL] = "total", [CT_SORT_SELF] = "self", [CT_SORT_CALLS] = "calls", [CT_SORT_MIN] = "min",
    [CT_SORT_MAX] = "max",     [CT_SORT_AVG] = "avg",   [CT_SORT_P50] = "p50",     [CT_SORT_P95] = "p95",
    [CT_SORT_P99] = "p99",     [CT_SORT_NAME] = "name", [CT_SORT_OFF] = "off",
};

static const char *const row_names[] = {
    [CT_ROWS_FUNCTIONS] = "function", [CT_ROWS_MODULES] = "module",    [CT_ROWS_FILES] = "file",
    [CT_ROWS_THREADS] = "thread",     [CT_ROWS_PROCESSES] = "process", [CT_ROWS_CLASSES] = "class",
};

static const struct ct_option options[] = {
    {.name = "by",
     .argument = "WHAT",
     .help = "sum up by function (default), module, file (record --source), thread, process or class (what is "
             "before the last :: of the name). total is the time in which any function of the group was on "
             "the stack",
     .values = "function module file thread process class",
     .against = "callers callees per-thread",
     CT_OPTION_NAMES(row_names),
     .offset = offsetof(struct wanted, by)},
    {.name = "callers",
     .argument = "PATTERN",
     .help = "show who calls the functions that match, with calls, total and self of these calls",
     .values = CT_COMPLETE_PATTERN,
     .against = "callees function per-thread",
     .apply = ct_apply_text,
     .offset = offsetof(struct wanted, callers)},
    {.name = "callees",
     .argument = "PATTERN",
     .help = "show what the functions that match call directly. With their own self time this sums up to "
             "their total",
     .values = CT_COMPLETE_PATTERN,
     .against = "function per-thread min-duration max-duration depth reason type",
     .apply = ct_apply_text,
     .offset = offsetof(struct wanted, callees)},
    {.name = "sort",
     .letter = 's',
     .argument = "KEY",
     .help = "sort by total (default), self, off, calls, min, max, avg, p50, p95, p99 or name",
     .values = "total self off calls min max avg p50 p95 p99 name",
     CT_OPTION_NAMES(sort_names),
     .offset = offsetof(struct wanted, sort)},
    CT_OPTION_LIMIT(struct wanted, selected, "show at most N rows, 0 for all (default 30; all with --json)"),
    CT_OPTION_FUNCTION(struct wanted, selected,
                       "only functions that match: foo*, foo::**, @file:FILE, MODULE!PATTERN, as in record --trace"),
    CT_OPTION_GROUP(ct_module_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_call_options, struct wanted, selected),
    {.name = "type",
     .argument = "TYPE",
     .help = "only call (calls with an end) or point (enter only, or counted only)",
     .values = "call point",
     .adds_up = true,
     .apply = ct_apply_type,
     .offset = offsetof(struct wanted, selected.filter.types)},
    CT_OPTION_GROUP(ct_thread_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_process_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_range_options, struct wanted, selected),
    {.name = "per-thread",
     .help = "show a table for each thread too",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, per_thread)},
    {.name = "family",
     .help = "count the processes that were followed (record --follow) too, all in one table",
     .against = "per-thread thread",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, family)},
    CT_OPTION_GROUP(ct_time_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_source_options, struct wanted, selected),
    CT_OPTION_JSON(struct wanted, selected.json, "print one JSON object; the status is 1 when nothing matches"),
    CT_OPTION_GROUP(ct_quiet_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_names_options, struct wanted, selected.look),
    CT_OPTION_GROUP(ct_look_options, struct wanted, selected.look),
    CT_OPTIONS_END,
};

static int
write_report(void *context, struct ct_trace *trace, const struct ct_filter *passed,
             const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes, struct ct_diag *diag)
{
  const struct wanted *wanted = context;
  const struct ct_view_selection *selected = &wanted->selected;
  if (wanted->family && ct_check_tree_is_whole(trace, passed, diag) != CT_OK) {
    return CT_EINVAL;
  }
  struct ct_filter filter = *passed;
  filter.limit = selected->has_limit || selected->json ? filter.limit : DEFAULT_ROWS;
  struct ct_report_options report = {
      .struct_size = sizeof(report),
      .short_names = ct_shown_short_names(&selected->look),
      .sort = wanted->sort,
      .filter = &filter,
      .width = ct_terminal_columns(),
      .workers = ct_reading_workers(),
      .per_thread = wanted->per_thread,
      .json = selected->json,
      .progress = *progress,
      .source = selected->source,
      .family = wanted->family,
      .time = selected->time,
      .rows = wanted->callers != NULL   ? CT_ROWS_CALLERS
              : wanted->callees != NULL ? CT_ROWS_CALLEES
                                        : wanted->by,
  };
  return ct_report_write(trace, &report, out, notes, diag);
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.selected.is_read = true, .sort = CT_SORT_TOTAL};
  int code = ct_parse(&ct_command_report, argc, argv, &wanted);
  const char *dir = code == -1 ? ct_trace_argument(&ct_command_report, argc, argv) : NULL;
  const char *pattern = wanted.callers != NULL ? wanted.callers : wanted.callees;
  wanted.selected.filter.function = pattern != NULL ? pattern : wanted.selected.filter.function;
  wanted.selected.many_processes = wanted.family;
  bool has_range = wanted.selected.window != 0 || wanted.selected.from != NULL || wanted.selected.to != NULL;
  if (dir != NULL && wanted.family && has_range) {
    code = ct_usage_error(&ct_command_report, "--family shows whole traces: leave out --window, --from and --to");
  } else if (dir != NULL) {
    code = ct_show_view(&ct_command_report, dir, &wanted.selected, !wanted.per_thread || isatty(STDOUT_FILENO) != 1,
                        write_report, &wanted);
  }
  ct_view_selection_free(&wanted.selected);
  return code == -1 ? CT_EXIT_USAGE : code;
}

const struct ct_command ct_command_report = {
    .name = "report",
    .summary = "calls and times per function",
    .synopsis = "[OPTION]... [DIR]",
    .about = "Shows calls and times per function of the trace in DIR (default " CT_DEFAULT_TRACE ").\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
