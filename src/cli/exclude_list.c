/* SPDX-License-Identifier: MIT */
/* The options about exclusion, and contrail exclude-list: what is not worth recording. */
#include "cli/view.h"

#include <contrail/hot_functions.h>
#include <contrail/exclude.h>
#include <contrail/text.h>

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { LINES_MAX = 8, SHARE = 80 };

static int
apply_exclude(const struct ct_applied *applied)
{
  struct ct_exclude **exclude = applied->member;
  const char *name = applied->option->name;
  struct ct_diag diag = {""};
  if (*exclude == NULL && (*exclude = ct_exclude_create()) == NULL) {
    return ct_command_failed(applied->command, "out of memory");
  }
  if (applied->value == NULL) {
    return ct_exclude_add_hot(*exclude, &diag) == 0 ? CT_EXIT_OK : ct_usage_error(applied->command, "%s", diag.text);
  }
  if (strcmp(name, "exclude-from") == 0) {
    return ct_exclude_add_file(*exclude, applied->value, &diag) == 0
               ? CT_EXIT_OK
               : ct_usage_error(applied->command, "%s", diag.text);
  }
  return ct_exclude_add(*exclude, applied->value, &diag) == 0
             ? CT_EXIT_OK
             : ct_usage_error(applied->command, "--exclude '%.200s': %s", applied->value, diag.text);
}

const struct ct_option ct_exclude_options[] = {
    {.name = "exclude",
     .argument = "PATTERN",
     .help = "do not hook these functions: FUNCTION, MODULE!FUNCTION or MODULE!, exact or globs (* ? [a-z]). "
             "May be given several times",
     .adds_up = true,
     .apply = apply_exclude},
    {.name = "exclude-from",
     .argument = "FILE",
     .help = "as --exclude, for each line of FILE (# begins a comment)",
     .values = CT_COMPLETE_FILE,
     .adds_up = true,
     .apply = apply_exclude},
    {.name = "exclude-hot",
     .help = "leave out a built-in list of functions that are called all the time and do little (contrail "
             "exclude-list shows it)",
     .apply = apply_exclude},
    CT_OPTIONS_END,
};

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

/* What the options choose. */
struct wanted {
  struct ct_view_selection selected;
  uint32_t percent;
};

static int
write_hot_functions(void *context, struct ct_trace *trace, const struct ct_filter *filter,
                    const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes,
                    struct ct_diag *diag)
{
  const struct wanted *wanted = context;
  struct ct_hot_functions_options hot = {
      .struct_size = sizeof(hot),
      .percent = wanted->percent,
      .workers = ct_reading_workers(),
      .json = wanted->selected.json,
      .progress = *progress,
      .filter = filter,
  };
  return ct_hot_functions_write(trace, &hot, out, notes, diag);
}

static const struct ct_option options[] = {
    {.name = "share",
     .argument = "PERCENT",
     .help = "list functions until they make up PERCENT of all calls (default 80)",
     .least = 1,
     .most = 100,
     .unit = " (percent)",
     .apply = ct_apply_count32,
     .offset = offsetof(struct wanted, percent)},
    CT_OPTION_GROUP(ct_range_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_thread_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_process_options, struct wanted, selected),
    CT_OPTION_JSON(struct wanted, selected.json, "print one JSON object"),
    CT_OPTIONS_END,
};

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.percent = SHARE};
  int code = ct_parse(&ct_command_exclude_list, argc, argv, &wanted);
  if (code == -1 && optind < argc) {
    const char *dir = ct_trace_argument(&ct_command_exclude_list, argc, argv);
    code = dir == NULL
               ? CT_EXIT_USAGE
               : ct_show_view(&ct_command_exclude_list, dir, &wanted.selected, true, write_hot_functions, &wanted);
  } else if (code == -1) {
    int failed = wanted.selected.json ? print_json() : print_text();
    code = failed != 0 || fflush(stdout) != 0 ? CT_EXIT_FAILED : CT_EXIT_OK;
  }
  ct_view_selection_free(&wanted.selected);
  return code;
}

const struct ct_command ct_command_exclude_list = {
    .name = "exclude-list",
    .summary = "show functions not worth recording: a built-in list, or those of a trace",
    .synopsis = "[--json] [[--share PERCENT] DIR]",
    .about = "Shows functions that are called all the time and do little in each call, in the form that record\n"
             "--exclude-from reads.\n"
             "\n"
             "Without DIR these are the ones that record --exclude-hot leaves out. With DIR they are those of\n"
             "the recording in it: the most often called ones that take less than a microsecond each, until they\n"
             "make up PERCENT of all calls.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
