/* SPDX-License-Identifier: MIT */
/* contrail info: what a trace is and how its recording went. */
#include "cli/view.h"

#include <contrail/info.h>

#include <stdio.h>

/* What the options choose. */
struct wanted {
  struct ct_view_selection selected;
  bool raw;
};

static const struct ct_option options[] = {
    CT_OPTION_JSON(struct wanted, selected.json, "print one JSON object, with all modules and threads"),
    CT_OPTION_GROUP(ct_thread_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_process_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_range_options, struct wanted, selected),
    {.name = "raw",
     .help = "show durations as the clock gave them, with what hooks and contrail took",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, raw)},
    CT_OPTION_GROUP(ct_look_options, struct wanted, selected.look),
    CT_OPTIONS_END,
};

static int
write_info(void *context, struct ct_trace *trace, const struct ct_filter *filter,
           const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes, struct ct_diag *diag)
{
  (void)progress;
  (void)notes;
  const struct wanted *wanted = context;
  struct ct_info_options info = {.struct_size = sizeof(info),
                                 .json = wanted->selected.json,
                                 .time = wanted->raw ? CT_TIME_RAW : CT_TIME_WALL,
                                 .filter = filter};
  return ct_info_write(trace, &info, out, diag);
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.selected.is_read = true, .raw = false};
  int code = ct_parse(&ct_command_info, argc, argv, &wanted);
  const char *dir = code == -1 ? ct_trace_argument(&ct_command_info, argc, argv) : NULL;
  if (dir != NULL) {
    code = ct_show_view(&ct_command_info, dir, &wanted.selected, false, write_info, &wanted);
  }
  ct_view_selection_free(&wanted.selected);
  return code == -1 ? CT_EXIT_USAGE : code;
}

const struct ct_command ct_command_info = {
    .name = "info",
    .summary = "show what a trace is: exit, events, drops, modules, threads",
    .synopsis = "[OPTION]... [DIR]",
    .about = "Shows how the recording in DIR (default " CT_DEFAULT_TRACE ") went. Of a piece of it\n"
             "or of some threads it reports the events, the duration, the output and the threads of that piece.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
