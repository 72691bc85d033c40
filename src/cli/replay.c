/* SPDX-License-Identifier: MIT */
/* contrail replay: the calls in time order. */
#include "cli/command.h"
#include "cli/progress.h"

#include <contrail/replay.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int
show(const char *dir, struct ct_replay_options *options, bool quiet)
{
  FILE *out = quiet ? ct_view_nowhere(&ct_command_replay) : stdout;
  if (out == NULL) {
    return CT_EXIT_FAILED;
  }
  struct ct_trace *trace = ct_open_trace(&ct_command_replay, dir);
  if (trace == NULL) {
    return CT_EXIT_FAILED;
  }
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_diag diag = {""};
  struct ct_progress progress;
  ct_progress_start(&progress, "reading the trace");
  if (isatty(STDOUT_FILENO) != 1) {
    options->progress = (struct ct_view_progress){ct_progress_update, ct_progress_end, &progress};
  }
  int rc = ct_replay_write(trace, options, out, &notes, &diag);
  ct_progress_end(&progress);
  rc = ct_finish_view(&ct_command_replay, rc, &notes, &diag);
  struct ct_view_filter filter = {options->function_glob, options->module_glob, quiet || options->json};
  rc = ct_report_unmatched(&ct_command_replay, trace, &filter, &notes, rc);
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
take_option(int c, char **argv, struct ct_replay_options *options, struct ct_tid_list *tids)
{
  uint64_t number;
  switch (c) {
  case 't':
    if (!ct_tid_list_add(tids, optarg)) {
      return ct_usage_error(&ct_command_replay, "'%s' is not a thread id", optarg);
    }
    return -1;
  case 'n':
    if (!ct_parse_number(optarg, UINT64_MAX, &options->limit)) {
      return ct_usage_error(&ct_command_replay, "'%s' is not a number of lines", optarg);
    }
    return -1;
  case 'd':
    if (!ct_parse_number(optarg, UINT32_MAX, &number)) {
      return ct_usage_error(&ct_command_replay, "'%s' is not a depth", optarg);
    }
    options->depth = (uint32_t)number;
    return -1;
  case 'f':
    ct_old_short_option(&ct_command_replay, 'f', 'F', "function");
    __attribute__((fallthrough));
  case 'F':
    options->function_glob = optarg;
    return -1;
  case 'm':
    options->module_glob = optarg;
    return -1;
  case 'O':
    options->no_output = true;
    return -1;
  case 'j':
    options->json = true;
    return -1;
  case 'S':
    options->source = true;
    return -1;
  case 'R':
    options->time = CT_TIME_RAW;
    return -1;
  case 'T':
    if (!ct_parse_time(optarg, &options->time)) {
      return ct_usage_error(&ct_command_replay, "'%s' is neither wall nor cpu", optarg);
    }
    return -1;
  case 'h':
    return ct_show_usage(&ct_command_replay);
  default:
    return ct_bad_option(&ct_command_replay, argv, c);
  }
}

static int
run(int argc, char **argv)
{
  static const struct option longs[] = {
      {"thread", required_argument, NULL, 't'},
      {"limit", required_argument, NULL, 'n'},
      {"depth", required_argument, NULL, 'd'},
      {"function", required_argument, NULL, 'F'},
      {"module", required_argument, NULL, 'm'},
      {"json", no_argument, NULL, 'j'},
      {"no-output", no_argument, NULL, 'O'},
      {"source", no_argument, NULL, 'S'},
      {"raw", no_argument, NULL, 'R'},
      {"time", required_argument, NULL, 'T'},
      {"quiet", no_argument, NULL, 'q'},
      {"help", no_argument, NULL, 'h'},
      {0},
  };
  struct ct_replay_options options = {.struct_size = sizeof(options)};
  struct ct_tid_list tids = {0};
  bool quiet = false;
  int c, rc = -1;
  while (rc == -1 && (c = ct_next_option(argc, argv, ":t:n:d:f:F:m:qh", longs)) != -1) {
    rc = c == 'q' ? set_quiet(&quiet) : take_option(c, argv, &options, &tids);
  }
  const char *dir = rc == -1 ? ct_trace_argument(&ct_command_replay, argc, argv) : NULL;
  if (rc == -1 && dir == NULL) {
    rc = CT_EXIT_USAGE;
  }
  options.tids = tids.tids;
  options.tid_count = tids.count;
  if (rc == -1) {
    rc = show(dir, &options, quiet);
  }
  free(tids.tids);
  return rc;
}

const struct ct_command ct_command_replay = {
    .name = "replay",
    .summary = "the calls in time order, indented",
    .usage = "usage: contrail replay [OPTION]... [DIR]\n"
             "\n"
             "Shows the calls of the trace in DIR (default " CT_DEFAULT_TRACE ") in time order, of all\n"
             "threads together.\n"
             "\n"
             "  -t, --thread TID      only this thread; may be given several times\n"
             "  -F, --function GLOB   only calls of functions whose name matches, with what is called inside\n"
             "  -m, --module GLOB     only calls of functions in modules whose path or file name matches\n"
             "  -d, --depth N         only N levels (counted from the calls selected by --function)\n"
             "  -n, --limit N         stop after N lines\n"
             "      --no-output       without what the program wrote to its standard output and error\n"
             "      --time cpu|wall   durations without the time off the processor, or with it (default)\n"
             "      --raw             durations as the clock gave them, with what hooks and contrail took\n"
             "      --source          where each function is written, if the trace says (record --source)\n"
             "      --json            one JSON object a line; status 1 when nothing matches\n"
             "  -q, --quiet           show nothing: the status tells whether anything matches\n",
    .run = run,
};
