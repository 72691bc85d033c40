/* SPDX-License-Identifier: MIT */
/* contrail record: run a program and record it. */
#include "cli/command.h"
#include "hook/exclude.h"
#include "record/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { EXIT_OWN_FAILURE = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static int
failure(const struct ct_record_result *result, const struct ct_diag *diag)
{
  fprintf(stderr, "contrail: %s\n", diag->text);
  if (result->exec_errno == 0) {
    return EXIT_OWN_FAILURE;
  }
  return result->exec_errno == ENOENT || result->exec_errno == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

enum { GO_ON = -1, MAX_DEPTH = 1000000 };

/* GO_ON with the program at argv[optind], or an exit code. */
static int
parse(int argc, char **argv, struct ct_record_options *record)
{
  static const struct option options[] = {
      {"output", required_argument, NULL, 'o'},
      {"ring-size", required_argument, NULL, 'r'},
      {"lossless", no_argument, NULL, 'l'},
      {"max-depth", required_argument, NULL, 'd'},
      {"int3", no_argument, NULL, '3'},
      {"no-cache", no_argument, NULL, 'n'},
      CT_EXCLUDE_OPTIONS,
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  uint64_t number;
  int got, code;
  while ((got = getopt_long(argc, argv, "+:o:h", options, NULL)) != -1) {
    switch (got) {
    case 'o':
      record->directory = optarg;
      break;
    case 'r':
      if (!ct_parse_number(optarg, 256, &number) || number < 1) {
        return ct_usage_error(&ct_command_record, "--ring-size takes 1 to 256 (MiB), not '%s'", optarg);
      }
      record->ring_mib = (uint32_t)number;
      break;
    case 'd':
      if (!ct_parse_number(optarg, MAX_DEPTH, &number) || number < 1) {
        return ct_usage_error(&ct_command_record, "--max-depth takes 1 to %u, not '%s'", MAX_DEPTH, optarg);
      }
      record->max_depth = (uint32_t)number;
      break;
    case 'l':
      record->lossless = true;
      break;
    case CT_OPTION_EXCLUDE:
    case CT_OPTION_EXCLUDE_FROM:
    case CT_OPTION_EXCLUDE_HOT:
      code = ct_exclude_option(&ct_command_record, got, optarg, &record->exclude);
      if (code != CT_EXIT_OK) {
        return code;
      }
      break;
    case '3':
      record->int3 = true;
      break;
    case 'n':
      record->no_cache = true;
      break;
    case 'h':
      return ct_show_usage(&ct_command_record);
    default:
      return ct_bad_option(&ct_command_record, argv, got);
    }
  }
  if (optind >= argc) {
    return ct_usage_error(&ct_command_record, "which program?");
  }
  return GO_ON;
}

static int
record_it(const struct ct_record_options *record)
{
  struct ct_record_result result;
  struct ct_diag diag = {""};
  int code = ct_record(record, &result, &diag);
  if (code != 0) {
    return failure(&result, &diag);
  }
  ct_exclude_warn(record->exclude);
  if (result.note[0] != '\0') {
    fprintf(stderr, "contrail: note: %s\n", result.note);
  }
  if (result.dropped != 0) {
    fprintf(stderr,
            "contrail: %" PRIu64 " events were dropped (%" PRIu64
            " recorded); --lossless or a larger --ring-size keeps them\n",
            result.dropped, result.events);
  } else if (result.events == 0 && ct_exclude_is_empty(record->exclude)) {
    fprintf(stderr, "contrail: nothing was recorded: no function of the program is known (stripped, and without call "
                    "frame information?); contrail plan FILE lists those of a file\n");
  }
  if (WIFSIGNALED(result.wait_status)) {
    return 128 + WTERMSIG(result.wait_status);
  }
  return WEXITSTATUS(result.wait_status);
}

static int
run_record(int argc, char **argv)
{
  struct ct_record_options record = {.directory = CT_DEFAULT_TRACE, .ring_mib = CT_RING_MIB_DEFAULT};
  int code = parse(argc, argv, &record);
  if (code == GO_ON) {
    record.argv = argv + optind;
    code = record_it(&record);
  }
  ct_exclude_free(record.exclude);
  return code;
}

const struct ct_command ct_command_record = {
    .name = "record",
    .summary = "run a program and record every function call",
    .usage = "usage: contrail record [OPTION]... [--] PROGRAM [ARG]...\n"
             "\n"
             "  -o, --output DIR         where the trace goes (default " CT_DEFAULT_TRACE "); must not exist yet\n"
             "      --ring-size M        shared memory for events on their way, 1 to 256 MiB\n"
             "                           (default 80)\n"
             "      --lossless           let the program wait, bounded, when the disk cannot keep up\n"
             "      --int3               hook by a trap what no jump fits; the program must leave\n"
             "                           SIGTRAP alone\n"
             "      --no-cache           analyse all files anew, and keep nothing (see contrail help\n"
             "                           cache)\n"
             "      --exclude PATTERN    leave these functions alone: FUNCTION, MODULE!FUNCTION or\n"
             "                           MODULE!, exact or globs (* ? [a-z]); may be given several times\n"
             "      --exclude-from FILE  the same for each line of FILE (# begins a comment)\n"
             "      --exclude-hot        leave out known functions that are called all the time and do\n"
             "                           little (contrail exclude-list shows them)\n"
             "      --max-depth N        leave calls that are deeper out of the trace (outermost: 1)\n"
             "\n"
             "Exits with the program's own status, 128+n when signal n ended it, 125 when\n"
             "recording failed, 126 or 127 when the program cannot be executed or found.\n",
    .run = run_record,
};
