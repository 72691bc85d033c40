/* SPDX-License-Identifier: MIT */
/* contrail replay: the calls in time order. */
#include "cli/view.h"

#include <contrail/replay.h>

#include <stdio.h>
#include <unistd.h>

/* What the options choose. */
struct wanted {
  struct ct_view_selection selected;
  bool no_output;
};

static int
apply_after(const struct ct_applied *applied)
{
  struct ct_view_selection *selected = applied->member;
  struct ct_span_place place;
  if (!ct_parse_number(applied->value, UINT64_MAX, &selected->filter.after) ||
      !ct_span_id_split(selected->filter.after, &place)) {
    return ct_usage_error(applied->command, "--after takes the id of a call, not '%s'", applied->value);
  }
  return CT_EXIT_OK;
}

static const struct ct_option options[] = {
    CT_OPTION_GROUP(ct_thread_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_process_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_range_options, struct wanted, selected),
    CT_OPTION_FUNCTION(struct wanted, selected,
                       "only calls of functions that a pattern of record --trace matches (foo*, foo::**, @file:FILE, "
                       "MODULE!PATTERN), with what is called inside"),
    CT_OPTION_GROUP(ct_module_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_call_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_type_options, struct wanted, selected),
    CT_OPTION_LIMIT(struct wanted, selected, "stop after N lines"),
    {.name = "after",
     .argument = "ID",
     .help = "only what comes after the first line of the call with that id (--json has them): with --limit, page by "
             "page from the last call that a page begins",
     .apply = apply_after,
     .offset = offsetof(struct wanted, selected)},
    {.name = "no-output",
     .help = "without what the program wrote to its standard output and error",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, no_output)},
    CT_OPTION_GROUP(ct_time_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_source_options, struct wanted, selected),
    CT_OPTION_JSON(struct wanted, selected.json, "one JSON object a line; status 1 when nothing matches"),
    CT_OPTION_GROUP(ct_quiet_options, struct wanted, selected),
    CT_OPTIONS_END,
};

static int
write_replay(void *context, struct ct_trace *trace, const struct ct_filter *filter,
             const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes, struct ct_diag *diag)
{
  const struct wanted *wanted = context;
  const struct ct_view_selection *selected = &wanted->selected;
  struct ct_replay_options replay = {
      .struct_size = sizeof(replay),
      .filter = filter,
      .json = selected->json,
      .progress = *progress,
      .no_output = wanted->no_output,
      .source = selected->source,
      .time = selected->time,
  };
  return ct_replay_write(trace, &replay, out, notes, diag);
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.no_output = false};
  int code = ct_parse(&ct_command_replay, argc, argv, &wanted);
  const char *dir = code == -1 ? ct_trace_argument(&ct_command_replay, argc, argv) : NULL;
  if (dir != NULL) {
    code = ct_show_view(&ct_command_replay, dir, &wanted.selected, isatty(STDOUT_FILENO) != 1, write_replay, &wanted);
  }
  ct_view_selection_free(&wanted.selected);
  return code == -1 ? CT_EXIT_USAGE : code;
}

const struct ct_command ct_command_replay = {
    .name = "replay",
    .summary = "the calls in time order, indented",
    .synopsis = "[OPTION]... [DIR]",
    .about = "Shows the calls of the trace in DIR (default " CT_DEFAULT_TRACE ") in time order, of all\n"
             "threads together.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
