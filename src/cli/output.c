/* SPDX-License-Identifier: MIT */
/* contrail output: what the program wrote, with time and thread. */
#include "cli/command.h"

#include <contrail/output.h>

#include <stdio.h>
#include <stdlib.h>

static int
show(const char *dir, const struct ct_output_options *options)
{
  struct ct_trace *trace = ct_open_trace(&ct_command_output, dir);
  if (trace == NULL) {
    return CT_EXIT_FAILED;
  }
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_diag diag = {""};
  for (uint32_t n = 0; options->raw && n < ct_trace_damage_count(trace); n++) {
    ct_command_failed(&ct_command_output, "DAMAGED: %s", ct_trace_damage(trace, n));
  }
  int rc = ct_output_write(trace, options, stdout, &diag);
  rc = ct_finish_view(&ct_command_output, rc, &notes, &diag);
  ct_trace_close(trace);
  return rc;
}

static int
run(int argc, char **argv)
{
  static const struct option longs[] = {
      {"thread", required_argument, NULL, 't'},
      {"stdout", no_argument, NULL, '1'},
      {"stderr", no_argument, NULL, '2'},
      {"raw", no_argument, NULL, 'r'},
      {"json", no_argument, NULL, 'j'},
      {"help", no_argument, NULL, 'h'},
      {0},
  };
  struct ct_output_options options = {.struct_size = sizeof(options)};
  struct ct_tid_list tids = {0};
  int c, rc = -1;
  while (rc == -1 && (c = ct_next_option(argc, argv, ":t:h", longs)) != -1) {
    switch (c) {
    case 't':
      if (!ct_tid_list_add(&tids, optarg)) {
        rc = ct_usage_error(&ct_command_output, "'%s' is not a thread id", optarg);
      }
      break;
    case '1':
    case '2':
      options.fd = (uint32_t)(c - '0');
      break;
    case 'r':
      options.raw = true;
      break;
    case 'j':
      options.json = true;
      break;
    case 'h':
      rc = ct_show_usage(&ct_command_output);
      break;
    default:
      rc = ct_bad_option(&ct_command_output, argv, c);
      break;
    }
  }
  const char *dir = rc == -1 ? ct_trace_argument(&ct_command_output, argc, argv) : NULL;
  if (rc == -1 && dir == NULL) {
    rc = CT_EXIT_USAGE;
  }
  options.tids = tids.tids;
  options.tid_count = tids.count;
  if (rc == -1) {
    rc = show(dir, &options);
  }
  free(tids.tids);
  return rc;
}

const struct ct_command ct_command_output = {
    .name = "output",
    .summary = "what the program wrote to its standard output and error",
    .usage = "usage: contrail output [OPTION]... [DIR]\n"
             "\n"
             "Shows what the program recorded in DIR (default " CT_DEFAULT_TRACE ") wrote to its standard\n"
             "output and error, with time and thread, in order of time.\n"
             "\n"
             "  -t, --thread TID      only this thread; may be given several times\n"
             "      --stdout          only standard output\n"
             "      --stderr          only standard error\n"
             "      --raw             the bytes as they were, and nothing else\n"
             "      --json            one JSON object for each call of write\n",
    .run = run,
};
