/* SPDX-License-Identifier: MIT */
/* contrail resume: lets a process run on that contrail pause has stopped. */
#include "cli/request.h"

static int
run(int argc, char **argv)
{
  static const struct ct_session_request request = {&ct_command_resume, "resume", CT_CHANGE_MS, ct_session_show_state};
  return ct_session_request(&request, argc, argv);
}

const struct ct_command ct_command_resume = {
    .name = "resume",
    .summary = "resume the process of a recording",
    .synopsis = "[--json] [SESSION]",
    .about = "Resumes a process that contrail pause has stopped.\n"
             "\n" CT_WHICH_SESSION,
    .options = ct_session_change_options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION,
    .run = run,
};
