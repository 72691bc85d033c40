/* SPDX-License-Identifier: MIT */
/* contrail cut: a piece of a trace as a trace of its own. */
#include "cli/view.h"

#include <contrail/export.h>
#include <contrail/text.h>

#include <stdio.h>

struct wanted {
  struct ct_view_selection selected;
  const char *path;
};

static const struct ct_option options[] = {
    {.name = "output",
     .letter = 'o',
     .argument = "DIR",
     .help = "write to DIR, a new or empty directory",
     .values = CT_COMPLETE_DIRECTORY,
     .apply = ct_apply_text,
     .offset = offsetof(struct wanted, path)},
    CT_OPTION_GROUP(ct_range_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_thread_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_process_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_quiet_options, struct wanted, selected),
    CT_OPTIONS_END,
};

static int
write_cut(void *context, struct ct_trace *trace, const struct ct_filter *filter,
          const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes, struct ct_diag *diag)
{
  const struct wanted *wanted = context;
  const struct ct_filter selected = {.struct_size = sizeof(selected), /* the trace has its range already */
                                     .tids = filter->tids,
                                     .tid_count = filter->tid_count,
                                     .pids = filter->pids,
                                     .pid_count = filter->pid_count};
  struct ct_export_options export = {.struct_size = sizeof(export),
                                     .format = "contrail",
                                     .path = wanted->path,
                                     .filter = &selected,
                                     .progress = *progress};
  struct ct_export_summary summary = {.struct_size = sizeof(summary)};
  int code = ct_export_write(trace, &export, &summary, notes, diag);
  if (progress->finish != NULL) {
    progress->finish(progress->arg);
  }
  if (code == 0) {
    char events[CT_COUNT_CHARS], bytes[CT_DURATION_CHARS];
    fprintf(out, "%s events of %llu thread%s, %s\n", ct_format_count(events, summary.events),
            (unsigned long long)summary.threads, summary.threads == 1 ? "" : "s",
            ct_format_bytes(bytes, summary.bytes));
    fflush(out);
  }
  return code;
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.path = NULL};
  int code = ct_parse(&ct_command_cut, argc, argv, &wanted);
  const char *dir = code == -1 ? ct_trace_argument(&ct_command_cut, argc, argv) : NULL;
  if (dir != NULL && wanted.path == NULL) {
    code = ct_usage_error(&ct_command_cut, "where to? -o DIR");
  } else if (dir != NULL) {
    code = ct_show_view(&ct_command_cut, dir, &wanted.selected, true, write_cut, &wanted);
  }
  ct_view_selection_free(&wanted.selected);
  return code == -1 ? CT_EXIT_USAGE : code;
}

const struct ct_command ct_command_cut = {
    .name = "cut",
    .summary = "a piece of a trace as a trace of its own",
    .synopsis = "-o DIR [OPTION]... [DIR]",
    .about = "Writes a piece of the trace in DIR (default " CT_DEFAULT_TRACE ") as a trace of its own, for a bug\n"
             "report: its events, functions, details and output, and those of the processes that were followed.\n"
             "With --process only those of that process.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
