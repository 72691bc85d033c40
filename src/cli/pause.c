/* SPDX-License-Identifier: MIT */
/* contrail pause: stops the threads of a session's process. */
#include "cli/request.h"

static int
run(int argc, char **argv)
{
  static const struct ct_session_request request = {&ct_command_pause, "pause", CT_CHANGE_MS, ct_session_show_state};
  return ct_session_request(&request, argc, argv);
}

const struct ct_command ct_command_pause = {
    .name = "pause",
    .summary = "pause the process of a recording",
    .synopsis = "[--json] [SESSION]",
    .about = "Stops all threads of the process until contrail resume.\n"
             "\n" CT_WHICH_SESSION,
    .options = ct_session_change_options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION,
    .run = run,
};
