/* SPDX-License-Identifier: MIT */
/* contrail version. */
#include "cli/command.h"

#include <stdio.h>

static int
run(int argc, char **argv)
{
  int code = ct_parse(&ct_command_version, argc, argv, NULL);
  if (code != -1 || (code = ct_no_operands(&ct_command_version, argc, argv)) != CT_EXIT_OK) {
    return code;
  }
  printf("contrail %s\n", ct_version());
  return CT_EXIT_OK;
}

const struct ct_command ct_command_version = {
    .name = "version",
    .summary = "show the version",
    .synopsis = "",
    .run = run,
};
