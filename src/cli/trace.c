/* SPDX-License-Identifier: MIT */
/* contrail trace: which functions a live session hooks. */
#include "cli/hooked.h"

#include <contrail/select.h>

#include <string.h>

static bool
is_mode(const char *word)
{
  for (int mode = CT_SELECT_AUTO; mode <= CT_SELECT_LIGHT; mode++) {
    if (strcmp(ct_select_mode_name((enum ct_select_mode)mode), word) == 0) {
      return true;
    }
  }
  return false;
}

static int
apply_mode(const struct ct_applied *applied)
{
  if (!is_mode(applied->value)) {
    return ct_usage_error(applied->command, "--mode takes full, light or auto, not '%.200s'", applied->value);
  }
  return ct_apply_text(applied);
}

static const struct ct_option options[] = {
    {.name = "mode",
     .argument = "MODE",
     .help = "how functions are hooked: full (enter and return), light (enter only) or auto (by the pattern). "
             "add with a pattern that is there changes its mode",
     .values = "full light auto",
     .apply = apply_mode,
     .offset = offsetof(struct ct_hooked_wanted, mode)},
    CT_OPTION_JSON(struct ct_hooked_wanted, json, "print one JSON object"),
    CT_OPTIONS_END,
};

static int
run(int argc, char **argv)
{
  return ct_hooked_run(&ct_command_trace, "no patterns", argc, argv);
}

const struct ct_command ct_command_trace = {
    .name = "trace",
    .summary = "change which functions a recording hooks while it runs",
    .synopsis = "[SESSION] add [--mode MODE] PATTERN...\n"
                "[SESSION] remove PATTERN...\n"
                "[SESSION] list",
    .about = "Patterns are those of record --trace. For each: how many functions it matches, how many\n"
             "are hooked, and why the others are not. The process is stopped while hooks go in or out.\n"
             "The first pattern of a session that recorded everything narrows it down to what matches.\n"
             "\n" CT_WHICH_SESSION,
    .options = options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION " " CT_COMPLETE_VERB,
    .run = run,
};
