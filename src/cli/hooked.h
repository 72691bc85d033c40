/* SPDX-License-Identifier: MIT */
/* What contrail trace and contrail exclude share: which functions a live session hooks, changed while it runs. */
#ifndef CT_CLI_HOOKED_H
#define CT_CLI_HOOKED_H

#include "cli/ask.h"

#include <stddef.h>

/* What the words of such a command want. */
struct ct_hooked_wanted {
  const struct ct_command *command;
  const char *session; /* NULL: the only one */
  const char *verb;    /* add, remove, list */
  const char *mode;    /* NULL: not given */
  char **patterns;
  size_t pattern_count;
  bool json;
};

/* All of the command; nothing: what it says where there are no patterns. Gives the exit code. */
int ct_hooked_run(const struct ct_command *command, const char *nothing, int argc, char **argv);

#endif
