/* SPDX-License-Identifier: MIT */
/* What report, replay and output share: the options that choose what is shown, and the course of a view. */
#ifndef CT_CLI_VIEW_H
#define CT_CLI_VIEW_H

#include "cli/command.h"

/* A growing list of thread ids. */
struct ct_tid_list {
  uint32_t *tids;
  size_t count;
};

/* What these options choose. */
struct ct_view_choice {
  struct ct_tid_list tids;       /* of --thread; free with ct_view_choice_free */
  const char *function, *module; /* a pattern as of record --trace, a glob; NULL: not given */
  enum ct_view_time time;
  bool json, quiet, source;
  uint64_t window;       /* from 1 on; 0: not given */
  const char *from, *to; /* seconds from the begin of the recording; NULL: not given */
};

/* Tables for the commands' own. Member: struct ct_view_choice. */
extern const struct ct_option ct_thread_options[]; /* --thread */
extern const struct ct_option ct_module_options[]; /* --module */
extern const struct ct_option ct_range_options[];  /* --window, --from, --to */
extern const struct ct_option ct_time_options[];   /* --time, --raw */
extern const struct ct_option ct_source_options[]; /* --source */
extern const struct ct_option ct_quiet_options[];  /* --quiet */

/* --function, of which each command says what it does. */
#define CT_OPTION_FUNCTION(type, where, text)                                                                          \
  {                                                                                                                    \
    .name = "function", .letter = 'F', .old_letter = 'f', .argument = "PATTERN", .help = (text),                       \
    .values = CT_COMPLETE_PATTERN, .apply = ct_apply_text, .offset = offsetof(type, where.function)                    \
  }

void ct_view_choice_free(struct ct_view_choice *choice);

struct ct_trace;
/* Writes the view of trace to out; context is the caller's. As ct_report_write and the like return. */
typedef int ct_write_view(void *context, struct ct_trace *trace, const struct ct_view_progress *progress, FILE *out,
                          struct ct_view_notes *notes, struct ct_diag *diag);

/*
 * Opens the trace, writes the view to standard output (nowhere with --quiet), with a line of progress on a terminal
 * where shows_progress is set, and tells what is wrong: damage, sources that the trace does not have, filters that
 * nothing matches. The exit code: CT_EXIT_FAILED too when nothing is shown with --json or --quiet.
 */
int ct_show_view(const struct ct_command *command, const char *dir, const struct ct_view_choice *choice,
                 bool shows_progress, ct_write_view *write, void *context);

#endif
