/* SPDX-License-Identifier: MIT */
/* contrail slowest: the trees of the slowest calls of a function. */
#include "cli/view.h"

#include <contrail/slowest.h>

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* What the options choose. */
struct wanted {
  struct ct_view_selection selected;
  uint32_t count, depth;
  uint64_t min_ns;
  bool by_off, family;
};

static int
apply_by(const struct ct_applied *applied)
{
  if (strcmp(applied->value, "duration") != 0 && strcmp(applied->value, "off") != 0) {
    return ct_usage_error(applied->command, "'%s' is neither duration nor off", applied->value);
  }
  *(bool *)applied->member = applied->value[0] == 'o';
  return CT_EXIT_OK;
}

static int
apply_duration(const struct ct_applied *applied)
{
  struct ct_diag diag = {""};
  int code = ct_filter_parse_duration(applied->value, applied->member, &diag);
  return code == CT_OK ? CT_EXIT_OK : ct_usage_error(applied->command, "%s", diag.text);
}

static int
apply_depth(const struct ct_applied *applied)
{
  struct wanted *wanted = applied->member;
  return ct_apply_levels(applied, &wanted->selected.filter, &wanted->depth);
}

static const struct ct_option options[] = {
    {.name = "limit",
     .letter = 'n',
     .argument = "N",
     .help = "show N calls (default 5)",
     .least = 1,
     .most = CT_SLOWEST_MAX,
     .unit = " of calls",
     .apply = ct_apply_count32,
     .offset = offsetof(struct wanted, count)},
    {.name = "by",
     .argument = "duration|off",
     .help = "show the slowest calls (duration), or those that were off the processor longest (off)",
     .values = "duration off",
     .apply = apply_by,
     .offset = offsetof(struct wanted, by_off)},
    {.name = "depth",
     .letter = 'd',
     .argument = "N",
     .help = "show N levels of each tree, or the slowest of the calls at these depths (2..5, 2.., ..5; the "
             "outermost is 0)",
     .most = UINT32_MAX,
     .unit = " of levels",
     .apply = apply_depth},
    {.name = "min-duration",
     .argument = "DURATION",
     .help = "only count calls inside that took less than TIME (1ms, 500us)",
     .apply = apply_duration,
     .offset = offsetof(struct wanted, min_ns)},
    {.name = "max-duration",
     .argument = "TIME",
     .help = "show the slowest of the calls that took at most TIME",
     .apply = apply_duration,
     .offset = offsetof(struct wanted, selected.filter.max_ns)},
    CT_OPTION_GROUP(ct_reason_options, struct wanted, selected),
    {.name = "family",
     .help = "count the processes that were followed (record --follow) too",
     .against = "thread",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, family)},
    CT_OPTION_GROUP(ct_module_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_thread_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_process_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_range_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_time_options, struct wanted, selected),
    CT_OPTION_JSON(struct wanted, selected.json, "print one JSON object; the status is 1 when nothing matches"),
    CT_OPTION_GROUP(ct_quiet_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_names_options, struct wanted, selected.look),
    CT_OPTION_GROUP(ct_look_options, struct wanted, selected.look),
    CT_OPTIONS_END,
};

static int
write_slowest(void *context, struct ct_trace *trace, const struct ct_filter *filter,
              const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes, struct ct_diag *diag)
{
  const struct wanted *wanted = context;
  if (wanted->family && ct_check_tree_is_whole(trace, filter, diag) != CT_OK) {
    return CT_EINVAL;
  }
  struct ct_slowest_options slowest = {
      .struct_size = sizeof(slowest),
      .short_names = ct_shown_short_names(&wanted->selected.look),
      .filter = filter,
      .count = wanted->count,
      .by_off = wanted->by_off,
      .depth = wanted->depth,
      .min_ns = wanted->min_ns,
      .json = wanted->selected.json,
      .progress = *progress,
      .time = wanted->selected.time,
      .workers = ct_reading_workers(),
      .family = wanted->family,
  };
  return ct_slowest_write(trace, &slowest, out, notes, diag);
}

static bool
is_directory(const char *name)
{
  struct stat file;
  return stat(name, &file) == 0 && S_ISDIR(file.st_mode);
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.selected.is_read = true, .count = CT_SLOWEST_DEFAULT};
  int code = ct_parse(&ct_command_slowest, argc, argv, &wanted);
  if (code == -1 && optind == argc) {
    code = ct_usage_error(&ct_command_slowest, "give a function: contrail slowest FUNCTION [DIR]");
  } else if (code == -1 && optind + 1 == argc && is_directory(argv[optind])) {
    code = ct_usage_error(&ct_command_slowest, "'%s' is a directory: give a function before it, or '*' for all",
                          argv[optind]);
  } else if (code == -1) {
    wanted.selected.filter.function = argv[optind++];
    wanted.selected.many_processes = wanted.family;
    const char *dir = ct_trace_argument(&ct_command_slowest, argc, argv);
    code = dir != NULL ? ct_show_view(&ct_command_slowest, dir, &wanted.selected, true, write_slowest, &wanted)
                       : CT_EXIT_USAGE;
  }
  ct_view_selection_free(&wanted.selected);
  return code;
}

const struct ct_command ct_command_slowest = {
    .name = "slowest",
    .summary = "the slowest calls of a function, with what they called",
    .synopsis = "[OPTION]... FUNCTION [DIR]",
    .about = "Shows the slowest calls of the functions that match in the trace in DIR (default\n" CT_DEFAULT_TRACE
             "), each with the tree of what it called.\n",
    .options = options,
    .operands = CT_COMPLETE_PATTERN " " CT_COMPLETE_TRACE,
    .run = run,
};
