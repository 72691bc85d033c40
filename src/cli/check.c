/* SPDX-License-Identifier: MIT */
/* contrail check: what a script wants to be true of a trace. */
#include "cli/view.h"

#include <contrail/check.h>
#include <contrail/trace.h>

#include "cli/progress.h"

#include <string.h>
#include <unistd.h>

enum { EXIT_UNANSWERED = 2, EXIT_CANNOT_RUN = 125 };

/* What the options choose. */
struct wanted {
  struct ct_view_selection selected;
  struct ct_checks *checks;
  bool family;
};

static int
apply_file(const struct ct_applied *applied)
{
  struct wanted *wanted = applied->member;
  struct ct_diag diag = {""};
  int code = ct_checks_add_file(wanted->checks, applied->value, &diag);
  return code == 0           ? CT_EXIT_OK
         : code == CT_EINVAL ? ct_usage_error(applied->command, "%s", diag.text)
                             : ct_command_failed(applied->command, "%s", diag.text);
}

static const struct ct_option options[] = {
    {.name = "from-file",
     .old_letter = 'f',
     .argument = "FILE",
     .help = "take checks from FILE too, one a line; # begins a comment. May be given several times",
     .values = CT_COMPLETE_FILE,
     .adds_up = true,
     .apply = apply_file},
    {.name = "family",
     .help = "count the processes that were followed (record --follow) too, all as one",
     .against = "thread process",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, family)},
    CT_OPTION_GROUP(ct_thread_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_process_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_range_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_time_options, struct wanted, selected),
    CT_OPTION_JSON(struct wanted, selected.json, "print one JSON object"),
    CT_OPTION_GROUP(ct_quiet_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_look_options, struct wanted, selected.look),
    CT_OPTIONS_END,
};

struct view {
  const struct wanted *wanted;
  enum ct_check_result result;
  bool is_done;
};

static int
write_checks(void *context, struct ct_trace *trace, const struct ct_filter *filter,
             const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct view *view = context;
  const struct ct_view_selection *selected = &view->wanted->selected;
  if (view->wanted->family && ct_check_tree_is_whole(trace, filter, diag) != CT_OK) {
    return CT_EINVAL;
  }
  struct ct_check_options check = {
      .struct_size = sizeof(check),
      .tids = filter->tids,
      .tid_count = filter->tid_count,
      .workers = ct_reading_workers(),
      .json = selected->json,
      .time = selected->time,
      .progress = *progress,
      .family = view->wanted->family,
  };
  int code = ct_checks_write(trace, view->wanted->checks, &check, out, &view->result, notes, diag);
  view->is_done = code == 0;
  return code;
}

/* The trace and the checks after it; CT_EXIT_OK, or the exit code after a message. */
static int
take_operands(int argc, char **argv, struct wanted *wanted)
{
  struct ct_diag diag = {""};
  if (optind == argc) {
    return ct_usage_error(&ct_command_check, "no trace is given");
  }
  for (int i = optind + 1; i < argc; i++) {
    if (ct_checks_add(wanted->checks, argv[i], &diag) != 0) {
      return ct_usage_error(&ct_command_check, "%s", diag.text);
    }
  }
  if (ct_checks_count(wanted->checks) == 0) {
    return ct_usage_error(&ct_command_check, "no check is given; example: contrail check %s 'main.total < 1s'",
                          argv[optind]);
  }
  return CT_EXIT_OK;
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.selected.is_read = true, .checks = ct_checks_create()};
  struct view view = {.wanted = &wanted};
  if (wanted.checks == NULL) {
    ct_command_failed(&ct_command_check, "out of memory");
    return EXIT_CANNOT_RUN;
  }
  int code = ct_parse(&ct_command_check, argc, argv, &wanted);
  bool is_help = code == CT_EXIT_OK;
  if (code == -1) {
    code = take_operands(argc, argv, &wanted);
  }
  if (code == CT_EXIT_OK && !is_help) {
    code = ct_show_view(&ct_command_check, argv[optind], &wanted.selected, true, write_checks, &view);
  }
  ct_view_selection_free(&wanted.selected);
  ct_checks_free(wanted.checks);
  if (is_help) {
    return CT_EXIT_OK;
  }
  if (!view.is_done || code != CT_EXIT_OK) {
    return EXIT_CANNOT_RUN;
  }
  return view.result == CT_CHECK_HOLDS ? CT_EXIT_OK : view.result == CT_CHECK_FAILS ? CT_EXIT_FAILED : EXIT_UNANSWERED;
}

const struct ct_command ct_command_check = {
    .name = "check",
    .summary = "whether what a script expects of a trace is true",
    .synopsis = "[OPTION]... DIR CHECK...",
    .about = "Says of each CHECK whether it holds for the trace in DIR, with the value there. CHECK is one of\n"
             "  PATTERN.FIELD OP NUMBER[UNIT]   'setCommand.p99 < 1ms', 'f*.calls <= 3': of every function that\n"
             "                                  matches (a pattern of record --trace)\n"
             "  no losses                       no event was lost\n"
             "  no crash                        no signal ended the program\n"
             "  no open PATTERN                 no call was open at the end\n"
             "  exit == NUMBER                  the program's exit status\n"
             "FIELD: calls, open, total, self, min, avg, p50, p95, p99, max. OP: < <= > >= == !=.\n"
             "UNIT: ns, us, ms, s for times; none, k, M, G for calls and open.\n",
    .options = options,
    .closing = "status: 0 all hold; 1 one fails; 2 none fails, but one cannot be answered (no such function,\n"
               "events lost, sampled); 125 the checks could not be made (usage, unreadable trace)\n",
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
