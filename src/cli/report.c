/* SPDX-License-Identifier: MIT */
/* contrail report: calls and times per function. */
#include "cli/command.h"
#include "cli/progress.h"

#include <contrail/report.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEFAULT_ROWS = 30, WORKERS = 2 };

static const char *const sort_names[] = {
    [CT_SORT_TOTAL] = "total", [CT_SORT_SELF] = "self", [CT_SORT_CALLS] = "calls", [CT_SORT_MIN] = "min",
    [CT_SORT_MAX] = "max",     [CT_SORT_AVG] = "avg",   [CT_SORT_P50] = "p50",     [CT_SORT_P95] = "p95",
    [CT_SORT_P99] = "p99",     [CT_SORT_NAME] = "name", [CT_SORT_OFF] = "off",
};

static bool
parse_sort(const char *text, enum ct_report_sort *sort)
{
  for (size_t i = 0; i < sizeof(sort_names) / sizeof(sort_names[0]); i++) {
    if (strcmp(text, sort_names[i]) == 0) {
      *sort = (enum ct_report_sort)i;
      return true;
    }
  }
  return false;
}

/* Columns of the terminal that stdout is, 0 when it is none. */
static unsigned
terminal_columns(void)
{
  struct winsize size;
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) {
    return 0;
  }
  return size.ws_col;
}

static int
show(const char *dir, struct ct_report_options *options, bool quiet)
{
  FILE *out = quiet ? ct_view_nowhere(&ct_command_report) : stdout;
  if (out == NULL) {
    return CT_EXIT_FAILED;
  }
  struct ct_trace *trace = ct_open_trace(&ct_command_report, dir);
  if (trace == NULL) {
    return CT_EXIT_FAILED;
  }
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_diag diag = {""};
  struct ct_progress progress;
  ct_progress_start(&progress, "reading the trace");
  if (!options->per_thread || isatty(STDOUT_FILENO) != 1) {
    options->progress = (struct ct_view_progress){ct_progress_update, ct_progress_end, &progress};
  }
  options->width = terminal_columns();
  options->workers = WORKERS;
  int rc = ct_report_write(trace, options, out, &notes, &diag);
  ct_progress_end(&progress);
  rc = ct_finish_view(&ct_command_report, rc, &notes, &diag);
  struct ct_view_filter filter = {options->function_glob, options->module_glob, quiet || options->json};
  rc = ct_report_unmatched(&ct_command_report, trace, &filter, &notes, rc);
  if (quiet) {
    fclose(out);
  }
  if (options->source) {
    ct_warn_sources(trace);
  }
  ct_trace_close(trace);
  return rc;
}

static int
set_quiet(bool *quiet)
{
  *quiet = true;
  return -1;
}

/* One option; -1, or the exit code when it is wrong. */
static int
take_option(int c, char **argv, struct ct_report_options *options, struct ct_tid_list *tids, bool *limited)
{
  switch (c) {
  case 's':
    if (!parse_sort(optarg, &options->sort)) {
      return ct_usage_error(&ct_command_report, "cannot sort by '%s'", optarg);
    }
    return -1;
  case 't':
    if (!ct_tid_list_add(tids, optarg)) {
      return ct_usage_error(&ct_command_report, "'%s' is not a thread id", optarg);
    }
    return -1;
  case 'n':
    *limited = true;
    if (!ct_parse_number(optarg, UINT64_MAX, &options->limit)) {
      return ct_usage_error(&ct_command_report, "'%s' is not a number of rows", optarg);
    }
    return -1;
  case 'p':
    options->per_thread = true;
    return -1;
  case 'f':
    ct_old_short_option(&ct_command_report, 'f', 'F', "function");
    __attribute__((fallthrough));
  case 'F':
    options->function_glob = optarg;
    return -1;
  case 'm':
    options->module_glob = optarg;
    return -1;
  case 'j':
    options->json = true;
    return -1;
  case 'S':
    options->source = true;
    return -1;
  case 'A':
    options->family = true;
    return -1;
  case 'R':
    options->time = CT_TIME_RAW;
    return -1;
  case 'T':
    if (!ct_parse_time(optarg, &options->time)) {
      return ct_usage_error(&ct_command_report, "'%s' is neither wall nor cpu", optarg);
    }
    return -1;
  case 'h':
    return ct_show_usage(&ct_command_report);
  default:
    return ct_bad_option(&ct_command_report, argv, c);
  }
}

static int
run(int argc, char **argv)
{
  static const struct option longs[] = {
      {"sort", required_argument, NULL, 's'},     {"thread", required_argument, NULL, 't'},
      {"limit", required_argument, NULL, 'n'},    {"per-thread", no_argument, NULL, 'p'},
      {"function", required_argument, NULL, 'F'}, {"module", required_argument, NULL, 'm'},
      {"source", no_argument, NULL, 'S'},         {"json", no_argument, NULL, 'j'},
      {"family", no_argument, NULL, 'A'},         {"raw", no_argument, NULL, 'R'},
      {"time", required_argument, NULL, 'T'},     {"quiet", no_argument, NULL, 'q'},
      {"help", no_argument, NULL, 'h'},           {0},
  };
  struct ct_report_options options = {.struct_size = sizeof(options)};
  struct ct_tid_list tids = {0};
  bool limited = false;
  bool quiet = false;
  int c, rc = -1;
  while (rc == -1 && (c = ct_next_option(argc, argv, ":s:t:n:f:F:m:qh", longs)) != -1) {
    rc = c == 'q' ? set_quiet(&quiet) : take_option(c, argv, &options, &tids, &limited);
  }
  const char *dir = rc == -1 ? ct_trace_argument(&ct_command_report, argc, argv) : NULL;
  if (rc == -1 && dir == NULL) {
    rc = CT_EXIT_USAGE;
  }
  if (rc == -1 && options.family && (options.per_thread || tids.count != 0)) {
    rc = ct_usage_error(&ct_command_report, "--family is of all threads of all processes");
  }
  if (!limited && !options.json) {
    options.limit = DEFAULT_ROWS;
  }
  options.tids = tids.tids;
  options.tid_count = tids.count;
  if (rc == -1) {
    rc = show(dir, &options, quiet);
  }
  free(tids.tids);
  return rc;
}

const struct ct_command ct_command_report = {
    .name = "report",
    .summary = "calls and times per function",
    .usage = "usage: contrail report [OPTION]... [DIR]\n"
             "\n"
             "Shows calls and times per function of the trace in DIR (default " CT_DEFAULT_TRACE ").\n"
             "\n"
             "  -s, --sort KEY        total (default), self, off, calls, min, max, avg, p50, p95, p99 or name\n"
             "  -n, --limit N         at most N rows, 0 for all (default 30; all with --json)\n"
             "  -F, --function GLOB   only functions whose name matches\n"
             "  -m, --module GLOB     only functions of modules whose path or file name matches\n"
             "  -t, --thread TID      only this thread; may be given several times\n"
             "      --per-thread      a table for each thread too\n"
             "      --family          of the processes that were followed (record --follow) too, all in one table\n"
             "      --time cpu|wall   times without the time off the processor, or with it (default)\n"
             "      --raw             times as the clock gave them, with what hooks and contrail took\n"
             "      --source          where each function is written, if the trace says (record --source)\n"
             "      --json            as one JSON object; status 1 when nothing matches\n"
             "  -q, --quiet           show nothing: the status tells whether anything matches\n",
    .run = run,
};
