/* SPDX-License-Identifier: MIT */
/* The options that record and attach share about what is recorded of a call, and of how many calls. */
#ifndef CT_CLI_DETAIL_H
#define CT_CLI_DETAIL_H

#include "cli/command.h"

#include <contrail/session.h>

#define CT_DETAIL_OPTIONS                                                                                              \
  {"args", no_argument, NULL, CT_OPTION_ARGS}, {"no-args", no_argument, NULL, CT_OPTION_NO_ARGS},                      \
      {"sample", required_argument, NULL, CT_OPTION_SAMPLE},                                                           \
  {                                                                                                                    \
    "no-sampling", no_argument, NULL, CT_OPTION_NO_SAMPLING                                                            \
  }
enum { CT_OPTION_ARGS = 320, CT_OPTION_NO_ARGS, CT_OPTION_SAMPLE, CT_OPTION_NO_SAMPLING };

/* What they are described as, in the usage. */
#define CT_DETAIL_USAGE                                                                                                \
  "      --args               record the first two arguments and the result of all functions that\n"                   \
  "                           are hooked in full; default: of those that --trace chose exactly or\n"                   \
  "                           by one level\n"                                                                          \
  "      --no-args            of none\n"                                                                               \
  "      --sample N           record one of N calls of light hooks, N = 1, 2, 4 to 256;\n"                             \
  "                           default: all, fewer while the recorder cannot keep up\n"                                 \
  "      --no-sampling        all in any case\n"

/* What to do with one of them. An exit code, CT_EXIT_OK to go on. */
int ct_detail_option(const struct ct_command *command, int option, const char *argument,
                     struct ct_session_options *session);

#endif
