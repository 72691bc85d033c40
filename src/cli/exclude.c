/* SPDX-License-Identifier: MIT */
/* The options about exclusion, and contrail exclude-list: the built-in list of --exclude-hot. */
#include "hook/exclude.h"

#include "cli/command.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { LINES_MAX = 8 };

int
ct_exclude_option(const struct ct_command *command, int option, const char *argument, struct ct_exclude **exclude)
{
  struct ct_diag diag = {""};
  if (*exclude == NULL && (*exclude = ct_exclude_create()) == NULL)
    return ct_command_failed(command, "out of memory");
  int rc = 0;
  if (option == CT_OPTION_EXCLUDE_HOT)
    rc = ct_exclude_add_hot(*exclude, &diag);
  else if (option == CT_OPTION_EXCLUDE_FROM)
    rc = ct_exclude_add_file(*exclude, argument, &diag);
  else
    rc = ct_exclude_add(*exclude, argument, &diag);
  if (rc == 0)
    return CT_EXIT_OK;
  if (option == CT_OPTION_EXCLUDE)
    return ct_usage_error(command, "--exclude '%.200s': %s", argument, diag.text);
  return ct_usage_error(command, "%s", diag.text);
}

void
ct_exclude_warn(const struct ct_exclude *exclude)
{
  const char *pattern;
  size_t unmatched = 0;
  for (size_t n = 0; (pattern = ct_exclude_pattern(exclude, n)) != NULL; n++) {
    if (!ct_exclude_has_matched(exclude, n) && unmatched++ < LINES_MAX)
      fprintf(stderr, "contrail: --exclude '%s' matched no function\n", pattern);
  }
  if (unmatched > LINES_MAX)
    fprintf(stderr, "contrail: ... nor did %zu more patterns\n", unmatched - LINES_MAX);
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
  if (*last != group)
    printf("%s# %s\n", *last == NULL ? "" : "\n", group->what);
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
run(int argc, char **argv)
{
  static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
  bool json = false;
  int c;
  while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
    switch (c) {
    case 'j':
      json = true;
      break;
    case 'h':
      return ct_show_usage(&ct_command_exclude_list);
    default:
      return ct_bad_option(&ct_command_exclude_list, argv, c);
    }
  }
  if (optind < argc)
    return ct_usage_error(&ct_command_exclude_list, "it takes no argument, '%s' is too much", argv[optind]);
  int failed = json ? print_json() : print_text();
  return failed != 0 || fflush(stdout) != 0 ? CT_EXIT_FAILED : CT_EXIT_OK;
}

const struct ct_command ct_command_exclude_list = {
    .name = "exclude-list",
    .summary = "show the built-in list of record --exclude-hot",
    .usage = "usage: contrail exclude-list [--json]\n"
             "\n"
             "Shows the functions that record --exclude-hot leaves out, in the form that\n"
             "--exclude-from reads.\n",
    .run = run,
};
