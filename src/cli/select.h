/* SPDX-License-Identifier: MIT */
/* The options --trace, --mode and --project-root, which record and plan share, and what is reported
 * about patterns. */
#ifndef CT_CLI_SELECT_H
#define CT_CLI_SELECT_H

#include "cli/command.h"

#include <contrail/select.h>

#include <jansson.h>

#define CT_SELECT_OPTIONS                                                                                              \
  {"trace", required_argument, NULL, CT_OPTION_TRACE}, {"mode", required_argument, NULL, CT_OPTION_MODE},              \
  {                                                                                                                    \
    "project-root", required_argument, NULL, CT_OPTION_ROOT                                                            \
  }
enum { CT_OPTION_TRACE = 300, CT_OPTION_MODE, CT_OPTION_ROOT, CT_OPTION_SOURCE };

/* What to do with one of them: *selection is made when there is none. An exit code, CT_EXIT_OK to go on. */
int ct_select_option(const struct ct_command *command, int option, const char *argument,
                     struct ct_selection **selection);
/* On stderr: patterns that matched nothing, and what @usercode stood for. */
void ct_select_warn(const struct ct_selection *selection);
/* The patterns with their numbers: as an array, and as a table on stdout. */
json_t *ct_select_json(const struct ct_selection *selection);
void ct_select_print(const struct ct_selection *selection);

#endif
