/* SPDX-License-Identifier: MIT */
/* contrail dump: have a recording that keeps the last stretch only write it now. */
#include "cli/ask.h"

#include <contrail/text.h>

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct wanted {
  const char *directory;
  bool json;
};

static const struct ct_option options[] = {
    {.name = "output",
     .letter = 'o',
     .argument = "DIR",
     .help = "write to DIR, a new or empty directory (default: beside the recording's own TRACE, the first of "
             "TRACE.dump-1, TRACE.dump-2 ... that does not exist)",
     .values = CT_COMPLETE_DIRECTORY,
     .apply = ct_apply_text,
     .offset = offsetof(struct wanted, directory)},
    CT_OPTION_JSON(struct wanted, json, "print the session's status, and what was written, as one JSON object"),
    CT_OPTIONS_END,
};

/* The parameters of the call; the session has another working directory. NULL: out of memory, or there is none. */
static char *
parameters(const char *directory)
{
  char here[PATH_MAX] = "", path[2 * PATH_MAX];
  if (directory[0] != '/' && getcwd(here, sizeof(here)) == NULL) {
    return NULL;
  }
  snprintf(path, sizeof(path), "%s%s%s", here, here[0] != '\0' ? "/" : "", directory);
  json_t *json = json_pack("{s:s}", "directory", path);
  char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
  json_decref(json);
  return text;
}

static int
run_dump(int argc, char **argv)
{
  struct wanted wanted = {NULL};
  json_t *answer = NULL;
  int code = ct_parse(&ct_command_dump, argc, argv, &wanted);
  if (code != -1) {
    return code;
  }
  if (argc - optind > 1) {
    return ct_usage_error(&ct_command_dump, "one session at a time, '%s' is too much", argv[optind + 1]);
  }
  char *params = wanted.directory != NULL ? parameters(wanted.directory) : NULL;
  if (wanted.directory != NULL && params == NULL) {
    return ct_command_failed(&ct_command_dump, "'%s' cannot be made a path that others know", wanted.directory);
  }
  code = ct_ask_named(&ct_command_dump, argc > optind ? argv[optind] : NULL, "dump", params, CT_CHANGE_MS, &answer);
  free(params);
  if (answer != NULL && wanted.json) {
    code = ct_print_json(answer);
  } else if (answer != NULL) {
    const json_t *dump = json_object_get(answer, "dump");
    char events[CT_COUNT_CHARS], time[CT_DURATION_CHARS], size[CT_DURATION_CHARS];
    printf("%s: the last %s, %s events, %s in ", ct_text_of(answer, "id"),
           ct_format_duration(time, ct_number_of(dump, "ns")), ct_format_count(events, ct_number_of(dump, "events")),
           ct_format_bytes(size, ct_number_of(dump, "bytes")));
    ct_put_printable(stdout, ct_text_of(dump, "directory"), SIZE_MAX);
    putchar('\n');
  }
  json_decref(answer);
  return code == CT_EXIT_OK && fflush(stdout) != 0 ? CT_EXIT_FAILED : code;
}

const struct ct_command ct_command_dump = {
    .name = "dump",
    .summary = "write what a recording with --last holds",
    .synopsis = "[-o DIR] [--json] [SESSION]",
    .about = "Writes what the recording holds now as a trace of its own, while the recording goes on. It is for\n"
             "recordings that keep only the last stretch (contrail record --last).\n"
             "\n" CT_WHICH_SESSION,
    .options = options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION,
    .run = run_dump,
};
