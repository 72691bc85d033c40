/* SPDX-License-Identifier: MIT */
/* The options about exclusion, and contrail exclude-list: what is not worth recording. */
#include "cli/command.h"
#include "cli/progress.h"

#include <contrail/hot_functions.h>
#include <contrail/exclude.h>
#include <contrail/text.h>
#include <contrail/trace.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { LINES_MAX = 8, WORKERS = 2, SHARE = 80 };

int
ct_exclude_option(const struct ct_command *command, int option, const char *argument, struct ct_exclude **exclude)
{
  struct ct_diag diag = {""};
  if (*exclude == NULL && (*exclude = ct_exclude_create()) == NULL) {
    return ct_command_failed(command, "out of memory");
  }
  int rc = 0;
  if (option == CT_OPTION_EXCLUDE_HOT) {
    rc = ct_exclude_add_hot(*exclude, &diag);
  } else if (option == CT_OPTION_EXCLUDE_FROM) {
    rc = ct_exclude_add_file(*exclude, argument, &diag);
  } else {
    rc = ct_exclude_add(*exclude, argument, &diag);
  }
  if (rc == 0) {
    return CT_EXIT_OK;
  }
  if (option == CT_OPTION_EXCLUDE) {
    return ct_usage_error(command, "--exclude '%.200s': %s", argument, diag.text);
  }
  return ct_usage_error(command, "%s", diag.text);
}

void
ct_exclude_warn(const struct ct_exclude *exclude)
{
  const char *pattern;
  size_t unmatched = 0;
  for (size_t n = 0; (pattern = ct_exclude_pattern(exclude, n)) != NULL; n++) {
    if (ct_exclude_has_matched(exclude, n) || unmatched++ >= LINES_MAX) {
      continue;
    }
    const char *likely = ct_exclude_likely(exclude, n);
    fprintf(stderr, "contrail: --exclude '%s' matched no function%s", pattern, likely[0] != '\0' ? ": " : "");
    ct_put_printable(stderr, likely, SIZE_MAX);
    fputc('\n', stderr);
  }
  if (unmatched > LINES_MAX) {
    fprintf(stderr, "contrail: ... nor did %zu more patterns\n", unmatched - LINES_MAX);
  }
}

static int
add_json(void *context, const struct ct_hot *group, const char *pattern)
{
  return json_array_append_new(context, json_pack("{s:s, s:s}", "pattern", pattern, "what", group->what));
}

static int
print_json(void)
{
  json_t *list = json_array();
  json_t *json = json_pack("{s:o}", "hot", list);
  int failed = ct_hot_each(add_json, list);
  failed = failed != 0 || json_dumpf(json, stdout, JSON_INDENT(1)) != 0;
  putchar('\n');
  json_decref(json);
  return failed;
}

static int
add_line(void *context, const struct ct_hot *group, const char *pattern)
{
  const struct ct_hot **last = context;
  if (*last != group) {
    printf("%s# %s\n", *last == NULL ? "" : "\n", group->what);
  }
  *last = group;
  puts(pattern);
  return 0;
}

static int
print_text(void)
{
  const struct ct_hot *last = NULL;
  return ct_hot_each(add_line, &last);
}

static int
show_hot_functions(const char *dir, struct ct_hot_functions_options *options)
{
  struct ct_trace *trace = ct_open_trace(&ct_command_exclude_list, dir);
  if (trace == NULL) {
    return CT_EXIT_FAILED;
  }
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_diag diag = {""};
  struct ct_progress progress;
  ct_progress_start(&progress, "reading the trace");
  options->progress = (struct ct_view_progress){ct_progress_update, ct_progress_end, &progress};
  options->workers = WORKERS;
  int rc = ct_hot_functions_write(trace, options, stdout, &notes, &diag);
  ct_progress_end(&progress);
  rc = ct_finish_view(&ct_command_exclude_list, rc, &notes, &diag);
  ct_trace_close(trace);
  return rc;
}

static int
run(int argc, char **argv)
{
  static const struct option options[] = {
      {"json", no_argument, NULL, 'j'}, {"share", required_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'}, {0}};
  struct ct_hot_functions_options hot = {.struct_size = sizeof(hot), .percent = SHARE};
  uint64_t percent;
  int c;
  while ((c = ct_next_option(argc, argv, ":h", options)) != -1) {
    switch (c) {
    case 'j':
      hot.json = true;
      break;
    case 's':
      if (!ct_parse_number(optarg, 100, &percent) || percent == 0) {
        return ct_usage_error(&ct_command_exclude_list, "--share takes 1 to 100 (percent), not '%s'", optarg);
      }
      hot.percent = (unsigned)percent;
      break;
    case 'h':
      return ct_show_usage(&ct_command_exclude_list);
    default:
      return ct_bad_option(&ct_command_exclude_list, argv, c);
    }
  }
  if (optind < argc) {
    const char *dir = ct_trace_argument(&ct_command_exclude_list, argc, argv);
    return dir == NULL ? CT_EXIT_USAGE : show_hot_functions(dir, &hot);
  }
  int failed = hot.json ? print_json() : print_text();
  return failed != 0 || fflush(stdout) != 0 ? CT_EXIT_FAILED : CT_EXIT_OK;
}

const struct ct_command ct_command_exclude_list = {
    .name = "exclude-list",
    .summary = "show functions not worth recording: a built-in list, or those of a trace",
    .usage = "usage: contrail exclude-list [--json] [[--share PERCENT] DIR]\n"
             "\n"
             "Shows functions that are called all the time and do little in each call, in the form\n"
             "that record --exclude-from reads.\n"
             "\n"
             "Without DIR those that record --exclude-hot leaves out.\n"
             "With DIR those of the recording in it: the most often called ones that take less\n"
             "than a microsecond each, until they make up PERCENT of all calls.\n"
             "\n"
             "  --share PERCENT  (default 80)\n"
             "  --json           as one JSON object\n",
    .run = run,
};
