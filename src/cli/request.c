/* SPDX-License-Identifier: MIT */
/* See request.h. */
#include "cli/request.h"

#include <contrail/text.h>

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

const struct ct_option ct_session_change_options[] = {
    CT_OPTION_JSON(struct ct_session_wanted, json, "print the session's status as one JSON object"),
    CT_OPTIONS_END,
};

void
ct_session_format_since(char *buf, size_t size, const json_t *status)
{
  time_t seconds = (time_t)(ct_number_of(status, "since_wall_ns") / 1000000000);
  struct tm local;
  if (localtime_r(&seconds, &local) == NULL || strftime(buf, size, "%Y-%m-%d %H:%M:%S", &local) == 0) {
    snprintf(buf, size, "?");
  }
}

void
ct_session_put_lost(const json_t *status)
{
  uint64_t events = ct_number_of(status, "events") + ct_number_of(status, "child_events");
  uint64_t dropped = ct_number_of(status, "dropped") + ct_number_of(status, "child_dropped");
  double share = 100.0 * (double)dropped / ((double)events + (double)dropped);
  if (dropped != 0) {
    printf("%s: %.*f %% of events LOST, counts are too low\n", ct_text_of(status, "id"), share < 1 ? 3 : 1, share);
  }
}

void
ct_session_show_state(const json_t *status)
{
  printf("%s is %s\n", ct_text_of(status, "id"),
         strcmp(ct_text_of(status, "state"), "attached") == 0 ? "paused" : ct_text_of(status, "state"));
}

int
ct_session_request(const struct ct_session_request *request, int argc, char **argv)
{
  struct ct_session_wanted wanted = {false};
  json_t *answer = NULL;
  int code = ct_parse(request->command, argc, argv, &wanted);
  if (code != -1) {
    return code;
  }
  if (argc - optind > 1) {
    return ct_usage_error(request->command, "one session at a time, '%s' is too much", argv[optind + 1]);
  }
  code = ct_ask_named(request->command, argc > optind ? argv[optind] : NULL, request->method,
                      wanted.end ? "{\"end\": true}" : NULL, request->timeout_ms, &answer);
  if (answer != NULL && wanted.json) {
    code = ct_print_json(answer);
  } else if (answer != NULL) {
    request->show(answer);
  }
  json_decref(answer);
  return code == CT_EXIT_OK && fflush(stdout) != 0 ? CT_EXIT_FAILED : code;
}
