/* SPDX-License-Identifier: MIT */
/* contrail mark: a mark by hand in a live session. */
#include "cli/ask.h"

#include <contrail/control.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wanted {
  bool json;
};

static const struct ct_option options[] = {
    CT_OPTION_JSON(struct wanted, json, "print the session's status as one JSON object"),
    CT_OPTIONS_END,
};

static int
run(int argc, char **argv)
{
  struct wanted wanted = {false};
  char id[CT_CONTROL_ID_BYTES];
  json_t *answer = NULL;
  int code = ct_parse(&ct_command_mark, argc, argv, &wanted);
  if (code != -1) {
    return code;
  }
  int count = argc - optind;
  const char *session = count > 0 ? argv[optind] : NULL, *name = count > 1 ? argv[optind + 1] : NULL;
  if (count > 2) {
    return ct_usage_error(&ct_command_mark, "'%s' is too much", argv[optind + 2]);
  }
  if (count == 1 && ct_control_find(session, id, NULL) == CT_ENOENT) { /* a name, then, for the only session */
    name = session;
    session = NULL;
  }
  char *params = name != NULL ? ct_params_of("name", name) : strdup("{}");
  if (params == NULL) {
    return ct_usage_error(&ct_command_mark, "the name is not UTF-8");
  }
  code = ct_ask_named(&ct_command_mark, session, "mark", params, CT_CHANGE_MS, &answer);
  free(params);
  if (answer != NULL && wanted.json) {
    code = ct_print_json(answer);
  } else if (answer != NULL) {
    uint64_t marks = ct_number_of(answer, "marks"), windows = ct_number_of(answer, "windows");
    printf("%s: marked; %" PRIu64 " mark%s in %" PRIu64 " window%s\n", ct_text_of(answer, "id"), marks,
           marks == 1 ? "" : "s", windows, windows == 1 ? "" : "s");
  }
  json_decref(answer);
  return code == CT_EXIT_OK && fflush(stdout) != 0 ? CT_EXIT_FAILED : code;
}

const struct ct_command ct_command_mark = {
    .name = "mark",
    .summary = "mark this moment in a recording that runs",
    .synopsis = "[--json] [SESSION] [NAME]",
    .about = "Makes a mark by hand: a window around now, as a rule does (record --on). NAME says what it is for.\n"
             "A single word is a session if there is one of that name, else a name.\n"
             "\n" CT_WHICH_SESSION,
    .options = options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION,
    .run = run,
};
