/* SPDX-License-Identifier: MIT */
/* contrail exclude: which functions a live session leaves out. */
#include "cli/hooked.h"

static const struct ct_option options[] = {
    CT_OPTION_JSON(struct ct_hooked_wanted, json, "print one JSON object"),
    CT_OPTIONS_END,
};

static int
run(int argc, char **argv)
{
  return ct_hooked_run(&ct_command_exclude, "nothing is excluded", argc, argv);
}

const struct ct_command ct_command_exclude = {
    .name = "exclude",
    .summary = "change which functions a recording leaves out while it runs",
    .synopsis = "[SESSION] add PATTERN...\n"
                "[SESSION] remove PATTERN...\n"
                "[SESSION] list",
    .about = "Patterns are those of record --exclude, which differ from those of contrail trace.\n"
             "\n" CT_WHICH_SESSION,
    .options = options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION " " CT_COMPLETE_VERB,
    .run = run,
};
