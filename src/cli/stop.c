/* SPDX-License-Identifier: MIT */
/* contrail stop: ends a recording. */
#include "cli/request.h"

#include <contrail/text.h>

#include <stdio.h>

static void
show_stopped(const json_t *status)
{
  char events[CT_COUNT_CHARS];
  ct_format_count(events, ct_number_of(status, "events"));
  ct_session_put_lost(status);
  if (json_is_true(json_object_get(status, "ended"))) {
    printf("%s is over, its process has ended: %s events in ", ct_text_of(status, "id"), events);
  } else if (json_is_true(json_object_get(status, "detached"))) {
    printf("%s is stopped, its process runs on: %s events in ", ct_text_of(status, "id"), events);
  } else {
    printf("%s: its process was told to end", ct_text_of(status, "id"));
  }
  if (json_is_true(json_object_get(status, "ended")) || json_is_true(json_object_get(status, "detached"))) {
    ct_put_printable(stdout, ct_text_of(status, "trace"), SIZE_MAX);
  }
  putchar('\n');
}

static int
run(int argc, char **argv)
{
  static const struct ct_session_request request = {&ct_command_stop, "stop", CT_CHANGE_MS, show_stopped};
  return ct_session_request(&request, argc, argv);
}

static const struct ct_option options[] = {
    {.name = "end",
     .help = "ask the process to end (SIGTERM) instead. It is recorded up to there",
     .apply = ct_apply_flag,
     .offset = offsetof(struct ct_session_wanted, end)},
    CT_OPTION_JSON(struct ct_session_wanted, json, "print the session's status as one JSON object"),
    CT_OPTIONS_END,
};

const struct ct_command ct_command_stop = {
    .name = "stop",
    .summary = "end a recording, and leave its process running",
    .synopsis = "[--end] [--json] [SESSION]",
    .about = "Takes the hooks out of the process, which runs on; the trace is complete then.\n"
             "\n" CT_WHICH_SESSION,
    .options = options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION,
    .run = run,
};
