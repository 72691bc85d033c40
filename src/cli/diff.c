/* SPDX-License-Identifier: MIT */
/* contrail diff: what has changed between two traces, beyond noise. */
#include "cli/view.h"

#include <contrail/diff.h>
#include <contrail/trace.h>

#include "cli/progress.h"

#include <string.h>
#include <errno.h>
#include <unistd.h>

enum { DEFAULT_ROWS = 30 };

/* What the options choose. */
struct wanted {
  struct ct_view_selection selected;
  enum ct_diff_sort sort;
  bool all, family;
};

static const char *const sort_names[] = {
    [CT_DIFF_SELF] = "self", [CT_DIFF_TOTAL] = "total", [CT_DIFF_CALLS] = "calls", [CT_DIFF_P50] = "p50",
    [CT_DIFF_P95] = "p95",   [CT_DIFF_P99] = "p99",     [CT_DIFF_NAME] = "name",
};

static const struct ct_option options[] = {
    {.name = "sort",
     .letter = 's',
     .argument = "KEY",
     .help = "sort by the change of self (default), total, calls, p50, p95 or p99, or by name",
     .values = "self total calls p50 p95 p99 name",
     CT_OPTION_NAMES(sort_names),
     .offset = offsetof(struct wanted, sort)},
    CT_OPTION_LIMIT(struct wanted, selected, "show at most N functions, 0 for all (default 30; all with --json)"),
    {.name = "all",
     .help = "also show the functions that differ by no more than noise",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, all)},
    CT_OPTION_FUNCTION(struct wanted, selected, "only functions that match, as in record --trace"),
    CT_OPTION_GROUP(ct_module_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_call_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_type_options, struct wanted, selected),
    {.name = "family",
     .help = "count the processes that were followed (record --follow) too",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, family)},
    CT_OPTION_GROUP(ct_time_options, struct wanted, selected),
    CT_OPTION_JSON(struct wanted, selected.json, "print one JSON object"),
    CT_OPTION_GROUP(ct_names_options, struct wanted, selected.look),
    CT_OPTION_GROUP(ct_look_options, struct wanted, selected.look),
    CT_OPTIONS_END,
};

static int
show(const struct wanted *wanted, struct ct_trace_view traces[2])
{
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_diag diag = {""};
  struct ct_progress line;
  ct_progress_start(&line, "reading the traces");
  struct ct_diff_options diff = {
      .struct_size = sizeof(diff),
      .short_names = ct_shown_short_names(&wanted->selected.look),
      .sort = wanted->sort,
      .before_tids = traces[0].filter.tids,
      .after_tids = traces[1].filter.tids,
      .before_tid_count = traces[0].filter.tid_count,
      .after_tid_count = traces[1].filter.tid_count,
      .function_glob = wanted->selected.filter.function,
      .module_glob = wanted->selected.filter.module,
      .file = wanted->selected.filter.file,
      .limit = wanted->selected.has_limit || wanted->selected.json ? wanted->selected.filter.limit : DEFAULT_ROWS,
      .all = wanted->all,
      .family = wanted->family,
      .json = wanted->selected.json,
      .time = wanted->selected.time,
      .calls = &traces[0].filter,
      .workers = (ct_reading_workers() + 1) / 2, /* both are read at the same time */
      .progress = {ct_progress_update, ct_progress_end, &line},
  };
  FILE *out = wanted->selected.json ? stdout : ct_shown_open(&wanted->selected.look, true);
  if (out == NULL) {
    return ct_command_failed(&ct_command_diff, "out of memory");
  }
  int code = ct_diff_write(traces[0].trace, traces[1].trace, &diff, out, &notes, &diag);
  ct_progress_end(&line);
  int why = errno; /* of the writing, for ct_finish_view */
  ct_shown_close(out);
  errno = why;
  return ct_finish_view(&ct_command_diff, code, &notes, &diag);
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.sort = CT_DIFF_SELF};
  struct ct_trace_view traces[2] = {{0}, {0}};
  int code = ct_parse(&ct_command_diff, argc, argv, &wanted);
  if (code != -1) {
    return code;
  }
  if (argc - optind != 2) {
    return ct_usage_error(&ct_command_diff, "two traces are compared, and %d %s given", argc - optind,
                          argc - optind == 1 ? "is" : "are");
  }
  code = ct_open_trace_form(&ct_command_diff, argv[optind], &wanted.selected, &traces[0]);
  code =
      code == CT_EXIT_OK ? ct_open_trace_form(&ct_command_diff, argv[optind + 1], &wanted.selected, &traces[1]) : code;
  struct ct_diag diag = {""};
  for (int i = 0; i < 2 && code == CT_EXIT_OK && wanted.family; i++) {
    if (ct_check_tree_is_whole(traces[i].trace, &traces[i].filter, &diag) != CT_OK) {
      code = ct_usage_error(&ct_command_diff, "%s", diag.text);
    }
  }
  code = code == CT_EXIT_OK ? show(&wanted, traces) : code;
  ct_trace_close(traces[0].trace);
  ct_trace_close(traces[1].trace);
  return code;
}

const struct ct_command ct_command_diff = {
    .name = "diff",
    .summary = "what has changed between two traces, beyond noise",
    .synopsis = "[OPTION]... BEFORE AFTER",
    .about = "Compares calls and times per function of the traces in BEFORE and AFTER, and shows what differs by\n"
             "more than chance, and functions that are new or have vanished. For a picture of it, path by path:\n"
             "contrail export --to flamegraph BEFORE AFTER.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
