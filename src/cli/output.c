/* SPDX-License-Identifier: MIT */
/* contrail output: what the program wrote, with time and thread. */
#include "cli/view.h"

#include <contrail/output.h>

#include <stdio.h>
#include <unistd.h>

/* What the options choose. */
struct wanted {
  struct ct_view_selection selected;
  bool only_stdout, only_stderr, raw;
};

static const struct ct_option options[] = {
    CT_OPTION_GROUP(ct_thread_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_process_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_range_options, struct wanted, selected),
    CT_OPTION_LIMIT(struct wanted, selected, "show what the program wrote with its first N calls of write, 0 for all"),
    {.name = "stdout",
     .help = "show only standard output",
     .against = "stderr",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, only_stdout)},
    {.name = "stderr",
     .help = "show only standard error",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, only_stderr)},
    {.name = "raw",
     .help = "print the bytes as they were, and nothing else",
     .against = "json",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, raw)},
    CT_OPTION_JSON(struct wanted, selected.json, "print one JSON object for each call of write"),
    CT_OPTION_GROUP(ct_look_options, struct wanted, selected.look),
    CT_OPTIONS_END,
};

static int
write_output(void *context, struct ct_trace *trace, const struct ct_filter *filter,
             const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes, struct ct_diag *diag)
{
  (void)progress;
  (void)notes;
  const struct wanted *wanted = context;
  struct ct_output_options output = {
      .struct_size = sizeof(output),
      .filter = filter,
      .fd = wanted->only_stdout   ? STDOUT_FILENO
            : wanted->only_stderr ? STDERR_FILENO
                                  : 0,
      .json = wanted->selected.json,
      .raw = wanted->raw,
  };
  for (uint32_t n = 0; wanted->raw && n < ct_trace_damage_count(trace); n++) {
    ct_command_failed(&ct_command_output, "DAMAGED: %s", ct_trace_damage(trace, n));
  }
  return ct_output_write(trace, &output, out, diag);
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.raw = false};
  int code = ct_parse(&ct_command_output, argc, argv, &wanted);
  const char *dir = code == -1 ? ct_trace_argument(&ct_command_output, argc, argv) : NULL;
  wanted.selected.is_read = !wanted.raw;
  if (dir != NULL) {
    code = ct_show_view(&ct_command_output, dir, &wanted.selected, false, write_output, &wanted);
  }
  ct_view_selection_free(&wanted.selected);
  return code == -1 ? CT_EXIT_USAGE : code;
}

const struct ct_command ct_command_output = {
    .name = "output",
    .summary = "what the program wrote to its standard output and error",
    .synopsis = "[OPTION]... [DIR]",
    .about = "Shows what the program recorded in DIR (default " CT_DEFAULT_TRACE ") wrote to its standard\n"
             "output and error, with time and thread, in order of time.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
