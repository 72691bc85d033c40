/* SPDX-License-Identifier: MIT */
/* contrail graph: the tree of call paths. */
#include "cli/quantity.h"
#include "cli/view.h"

#include <contrail/graph.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What the options choose. */
struct wanted {
  struct ct_view_selection selected;
  double min_percent; /* less than 0: not given */
  uint32_t depth, paths;
  bool per_thread, family;
};

/* "1%", "0.5". */
static int
apply_share(const struct ct_applied *applied)
{
  char *end;
  double percent = strtod(applied->value, &end);
  end += *end == '%';
  if (!ct_is_decimal(applied->value) || *end != '\0' || !(percent >= 0 && percent <= 100)) {
    return ct_usage_error(applied->command, "'%s' is no share: 1%%, 0.5%%, from 0 to 100", applied->value);
  }
  *(double *)applied->member = percent;
  return CT_EXIT_OK;
}

static int
apply_depth(const struct ct_applied *applied)
{
  struct wanted *wanted = applied->member;
  return ct_apply_levels(applied, &wanted->selected.filter, &wanted->depth);
}

static const struct ct_option options[] = {
    {.name = "min-share",
     .argument = "PERCENT",
     .help = "put paths with a smaller share of the whole together in a line with their number (default 1%; 0 "
             "with --json)",
     .apply = apply_share,
     .offset = offsetof(struct wanted, min_percent)},
    {.name = "depth",
     .letter = 'd',
     .argument = "N",
     .help = "show N levels (0: all), or count only the calls at these depths (2..5, 2.., ..5; the outermost "
             "is 0)",
     .most = UINT32_MAX,
     .unit = " of levels",
     .apply = apply_depth},
    CT_OPTION_LIMIT(struct wanted, selected, "show at most N paths, the heaviest ones, 0 for all"),
    {.name = "paths",
     .argument = "N",
     .help = "keep N paths while reading, and fold the thinnest where there are more (default 250000)",
     .most = 10000000,
     .unit = " of paths",
     .apply = ct_apply_count32,
     .offset = offsetof(struct wanted, paths)},
    {.name = "per-thread",
     .help = "show a tree for each thread",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, per_thread)},
    {.name = "family",
     .help = "count the processes that were followed (record --follow) too",
     .against = "thread",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, family)},
    CT_OPTION_FUNCTION(struct wanted, selected,
                       "show the paths from these functions down, as with the operand FUNCTION"),
    CT_OPTION_GROUP(ct_module_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_min_duration_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_max_duration_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_reason_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_thread_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_process_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_range_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_time_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_source_options, struct wanted, selected),
    CT_OPTION_JSON(struct wanted, selected.json, "print one nested JSON object; the status is 1 when nothing matches"),
    CT_OPTION_GROUP(ct_quiet_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_names_options, struct wanted, selected.look),
    CT_OPTION_GROUP(ct_look_options, struct wanted, selected.look),
    CT_OPTIONS_END,
};

static int
write_graph(void *context, struct ct_trace *trace, const struct ct_filter *filter,
            const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes, struct ct_diag *diag)
{
  const struct wanted *wanted = context;
  const struct ct_view_selection *selected = &wanted->selected;
  if (wanted->family && ct_check_tree_is_whole(trace, filter, diag) != CT_OK) {
    return CT_EINVAL;
  }
  struct ct_graph_options graph = {
      .struct_size = sizeof(graph),
      .short_names = ct_shown_short_names(&selected->look),
      .filter = filter,
      .width = ct_terminal_columns(),
      .min_percent = wanted->min_percent >= 0 ? wanted->min_percent
                     : selected->json         ? 0
                                              : 1,
      .depth = wanted->depth,
      .paths = wanted->paths,
      .per_thread = wanted->per_thread,
      .family = wanted->family,
      .json = selected->json,
      .source = selected->source,
      .progress = *progress,
      .time = selected->time,
      .workers = ct_reading_workers(),
  };
  return ct_graph_write(trace, &graph, out, notes, diag);
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.selected.is_read = true, .min_percent = -1};
  int code = ct_parse(&ct_command_graph, argc, argv, &wanted);
  if (code == -1 && argc - optind == 2) {
    if (wanted.selected.filter.function != NULL) {
      code = ct_usage_error(&ct_command_graph, "give the function once: '%s' or --function", argv[optind]);
    }
    wanted.selected.filter.function = argv[optind++];
  }
  if (code == -1 && argc - optind == 1 && access(argv[optind], F_OK) != 0 && access(CT_DEFAULT_TRACE, F_OK) == 0) {
    code = ct_usage_error(&ct_command_graph, "there is no trace '%s'; a function: contrail graph %s %s", argv[optind],
                          argv[optind], CT_DEFAULT_TRACE);
  }
  const char *dir = code == -1 ? ct_trace_argument(&ct_command_graph, argc, argv) : NULL;
  wanted.selected.many_processes = wanted.family;
  if (dir != NULL) {
    code = ct_show_view(&ct_command_graph, dir, &wanted.selected, true, write_graph, &wanted);
  }
  ct_view_selection_free(&wanted.selected);
  return code == -1 ? CT_EXIT_USAGE : code;
}

const struct ct_command ct_command_graph = {
    .name = "graph",
    .summary = "the tree of call paths, with times",
    .synopsis = "[OPTION]... [[FUNCTION] DIR]",
    .about = "Shows the paths of calls of the trace in DIR (default " CT_DEFAULT_TRACE ") as a tree, from the\n"
             "outermost calls down, or from the functions that FUNCTION matches.\n",
    .options = options,
    .operands = CT_COMPLETE_PATTERN " " CT_COMPLETE_TRACE,
    .run = run,
};
