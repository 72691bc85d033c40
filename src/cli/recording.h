/* SPDX-License-Identifier: MIT */
/* What record and attach share: the options about what is recorded and how, and what is reported at the end. */
#ifndef CT_CLI_RECORDING_H
#define CT_CLI_RECORDING_H

#include "cli/command.h"
#include "cli/select.h"

#include <contrail/session.h>

enum { CT_EXIT_RECORDING = 125 }; /* recording itself failed */

/* The entries for getopt_long. */
#define CT_RECORDING_OPTIONS                                                                                           \
  {"output", required_argument, NULL, 'o'}, {"ring-size", required_argument, NULL, CT_OPTION_RING_SIZE},               \
      {"child-ring-size", required_argument, NULL, CT_OPTION_CHILD_RING_SIZE},                                         \
      {"lossless", no_argument, NULL, CT_OPTION_LOSSLESS}, {"no-wait", no_argument, NULL, CT_OPTION_NO_WAIT},          \
      {"no-cache", no_argument, NULL, CT_OPTION_NO_CACHE}, {"follow", no_argument, NULL, 'f'},                         \
      {"no-output", no_argument, NULL, CT_OPTION_NO_OUTPUT},                                                           \
      {"max-output", required_argument, NULL, CT_OPTION_MAX_OUTPUT},                                                   \
      {"max-depth", required_argument, NULL, CT_OPTION_MAX_DEPTH}, CT_EXCLUDE_OPTIONS, CT_SELECT_OPTIONS,              \
      {"source", no_argument, NULL, CT_OPTION_SOURCE}, {"args", no_argument, NULL, CT_OPTION_ARGS},                    \
      {"no-args", no_argument, NULL, CT_OPTION_NO_ARGS}, {"sample", required_argument, NULL, CT_OPTION_SAMPLE},        \
  {                                                                                                                    \
    "no-sampling", no_argument, NULL, CT_OPTION_NO_SAMPLING                                                            \
  }
enum {
  CT_OPTION_ARGS = 320,
  CT_OPTION_NO_ARGS,
  CT_OPTION_SAMPLE,
  CT_OPTION_NO_SAMPLING,
  CT_OPTION_RING_SIZE,
  CT_OPTION_CHILD_RING_SIZE,
  CT_OPTION_LOSSLESS,
  CT_OPTION_NO_WAIT,
  CT_OPTION_NO_CACHE,
  CT_OPTION_NO_OUTPUT,
  CT_OPTION_MAX_OUTPUT,
  CT_OPTION_MAX_DEPTH
};

/* What they are described as in the usage, but for --output and --follow, which each command describes itself. */
#define CT_RECORDING_USAGE                                                                                             \
  "      --ring-size M        shared memory for events on their way, 1 to 256 MiB\n"                                   \
  "                           (default 80)\n"                                                                          \
  "      --lossless           let the process wait, bounded, where there is no room for its\n"                         \
  "                           events; record does, attach only when asked to\n"                                        \
  "      --no-wait            let it go on, and lose events\n"                                                         \
  "      --child-ring-size M  as --ring-size, for each child (default 16)\n"                                           \
  "      --no-cache           analyse all files anew, and keep nothing (see contrail help\n"                           \
  "                           cache)\n"                                                                                \
  "      --trace PATTERN      hook only what a pattern matches: foo::bar, foo::* (one level),\n"                       \
  "                           foo::** (deep), @file:FILE, @usercode, MODULE!PATTERN; may be\n"                         \
  "                           given several times. none: nothing, until contrail trace add\n"                          \
  "      --mode MODE          full (enter and return), light (enter only), or auto: light for\n"                       \
  "                           **, @file: and @usercode that match more than ten functions,\n"                          \
  "                           else full (the default)\n"                                                               \
  "      --project-root DIR   where @usercode looks (default: the current directory)\n"                                \
  "      --source             write source files and lines into the trace, where debug\n"                              \
  "                           information tells, for report --source\n"                                                \
  "      --exclude PATTERN    leave these functions alone: FUNCTION, MODULE!FUNCTION or\n"                             \
  "                           MODULE!, exact or globs (* ? [a-z]); may be given several times\n"                       \
  "      --exclude-from FILE  the same for each line of FILE (# begins a comment)\n"                                   \
  "      --exclude-hot        leave out known functions that are called all the time and do\n"                         \
  "                           little (contrail exclude-list shows them)\n"                                             \
  "      --no-output          do not record what the process writes to its standard output and\n"                      \
  "                           error\n"                                                                                 \
  "      --max-output M       record at most M MiB of that (default 64)\n"                                             \
  "      --max-depth N        leave calls that are deeper out of the trace (outermost: 1)\n"                           \
  "      --args               record the first two arguments and the result of all functions that\n"                   \
  "                           are hooked in full; default: of those that --trace selected exactly or\n"                \
  "                           by one level\n"                                                                          \
  "      --no-args            of none\n"                                                                               \
  "      --sample N           record one of N calls of light hooks, N = 1, 2, 4 to 256;\n"                             \
  "                           default: all, fewer while the recorder cannot keep up\n"                                 \
  "      --no-sampling        all in any case\n"

/* What to do with option, as getopt_long returned it. An exit code, CT_EXIT_OK to go on; also for one it refused. */
int ct_recording_option(const struct ct_command *command, int option, char **argv, struct ct_session_options *session);

/* On stderr, after a recording that is good: patterns that matched nothing, notes, and what was dropped. */
void ct_recording_warn(const struct ct_session_options *options, const struct ct_session_status *status);
/* Frees what the options have gathered. */
void ct_recording_options_free(struct ct_session_options *options);

#endif
