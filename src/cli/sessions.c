/* SPDX-License-Identifier: MIT */
/* contrail sessions: those that processes of this user hold. */
#include "cli/request.h"

#include <contrail/control.h>
#include <contrail/text.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *
last_part(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

static void
print_line(const json_t *status)
{
  char since[32], events[CT_COUNT_CHARS], dropped[CT_COUNT_CHARS], program[64];
  ct_session_format_since(since, sizeof(since), status);
  snprintf(program, sizeof(program), "%s", last_part(ct_text_of(status, "program")));
  ct_make_printable(program);
  ct_session_put_lost(status);
  printf("%-24s %8" PRIu64 "  %-16.16s %-10s %19s %15s %12s %8" PRIu64 "\n", ct_text_of(status, "id"),
         ct_number_of(status, "pid"), program, ct_text_of(status, "state"), since,
         ct_format_count(events, ct_number_of(status, "events")),
         ct_format_count(dropped, ct_number_of(status, "dropped")), ct_number_of(status, "interval"));
}

static void
add_session(void *context, const char *id)
{
  struct ct_diag diag = {""};
  int code;
  json_t *status = ct_ask(id, "status", NULL, CT_PEEK_MS, &code, &diag);
  if (code == CT_ENOENT) {
    return; /* it has just ended */
  }
  if (status == NULL) {
    status = json_pack("{s:s, s:s}", "id", id, "error", diag.text);
  }
  json_array_append_new(context, status);
}

static const struct ct_option options[] = {
    CT_OPTION_JSON(struct ct_session_wanted, json, "print one JSON object"),
    CT_OPTIONS_END,
};

static int
run_sessions(int argc, char **argv)
{
  struct ct_session_wanted wanted = {false};
  int code = ct_parse(&ct_command_sessions, argc, argv, &wanted);
  if (code != -1 || (code = ct_no_operands(&ct_command_sessions, argc, argv)) != CT_EXIT_OK) {
    return code;
  }
  json_t *sessions = json_array();
  struct ct_diag diag = {""};
  code = ct_control_list(add_session, sessions, &diag);
  if (code != CT_OK) {
    json_decref(sessions);
    return ct_command_failed(&ct_command_sessions, "%s", diag.text);
  }
  json_t *all = json_pack("{s:o}", "sessions", sessions), *status;
  size_t i;
  if (wanted.json) {
    code = ct_print_json(all);
  } else {
    if (json_array_size(sessions) != 0) {
      printf("%-24s %8s  %-16s %-10s %19s %15s %12s %8s\n", "session", "pid", "program", "state", "since", "events",
             "dropped", "interval");
    }
    json_array_foreach(sessions, i, status)
    {
      if (json_object_get(status, "error") == NULL) {
        print_line(status);
      } else {
        printf("%-24s %s\n", ct_text_of(status, "id"), ct_text_of(status, "error")); /* a ct_diag, made printable */
      }
    }
    code = fflush(stdout) != 0 ? CT_EXIT_FAILED : CT_EXIT_OK;
  }
  json_decref(all);
  return code;
}

const struct ct_command ct_command_sessions = {
    .name = "sessions",
    .summary = "show the recordings that are under way",
    .synopsis = "[--json]",
    .about = "Shows all live sessions of this user: each contrail record and contrail attach is one.\n",
    .options = options,
    .closing = "interval: of so many calls of light hooks one is recorded (the sampling interval).\n",
    .run = run_sessions,
};
