/* SPDX-License-Identifier: MIT */
/* The options --trace, --mode and --project-root, which record and plan share, and what is reported
 * about patterns. */
#ifndef CT_CLI_SELECT_H
#define CT_CLI_SELECT_H

#include "cli/command.h"

#include <contrail/select.h>

#include <jansson.h>
#include <stdio.h>

/* Member: struct ct_selection *, made when there is none. */
extern const struct ct_option ct_select_options[];
/* One more pattern, as with --trace. An exit code, CT_EXIT_OK to go on. */
int ct_select_pattern(const struct ct_command *command, const char *pattern, struct ct_selection **selection);
/* On stderr: patterns that matched nothing, and what @usercode stood for. */
void ct_select_warn(const struct ct_selection *selection);
/* The patterns with their numbers: as an array, and as a table. */
json_t *ct_select_json(const struct ct_selection *selection);
void ct_select_print(const struct ct_selection *selection, FILE *out);

#endif
