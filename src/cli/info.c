/* SPDX-License-Identifier: MIT */
/* contrail info: what a trace is and how its recording went. */
#include "cli/command.h"

#include <contrail/info.h>

#include <stdio.h>

static int
run(int argc, char **argv)
{
  static const struct option options[] = {
      {"json", no_argument, NULL, 'j'}, {"raw", no_argument, NULL, 'R'}, {"help", no_argument, NULL, 'h'}, {0}};
  struct ct_info_options info = {.struct_size = sizeof(info)};
  int c;
  while ((c = ct_next_option(argc, argv, ":h", options)) != -1) {
    switch (c) {
    case 'j':
      info.json = true;
      break;
    case 'R':
      info.time = CT_TIME_RAW;
      break;
    case 'h':
      return ct_show_usage(&ct_command_info);
    default:
      return ct_bad_option(&ct_command_info, argv, c);
    }
  }
  const char *dir = ct_trace_argument(&ct_command_info, argc, argv);
  if (dir == NULL) {
    return CT_EXIT_USAGE;
  }
  struct ct_trace *trace = ct_open_trace(&ct_command_info, dir);
  if (trace == NULL) {
    return CT_EXIT_FAILED;
  }
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_diag diag = {""};
  int rc = ct_info_write(trace, &info, stdout, &diag);
  rc = ct_finish_view(&ct_command_info, rc, &notes, &diag);
  ct_trace_close(trace);
  return rc;
}

const struct ct_command ct_command_info = {
    .name = "info",
    .summary = "show what a trace is: exit, events, drops, modules, threads",
    .usage = "usage: contrail info [--json] [--raw] [DIR]\n"
             "\n"
             "Shows how the recording in DIR (default " CT_DEFAULT_TRACE ") went.\n"
             "\n"
             "  --json   as one JSON object, with all modules and threads\n"
             "  --raw    durations as the clock gave them, with what hooks and contrail took\n",
    .run = run,
};
