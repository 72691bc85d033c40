/* SPDX-License-Identifier: MIT */
/* What the commands that read traces share: the options that choose what is shown, and the course of a view. */
#ifndef CT_CLI_VIEW_H
#define CT_CLI_VIEW_H

#include "cli/command.h"
#include "cli/shown.h"

#include <contrail/filter.h>

/* A growing list of ids of threads or processes. */
struct ct_id_list {
  uint32_t *ids;
  size_t count;
};

/* What these options choose. Zeroed before; free with ct_view_selection_free. */
struct ct_view_selection {
  struct ct_filter filter; /* what needs no trace to be understood; what it is in the end: ct_open_trace_form */
  struct ct_id_list tids, pids;
  const char *from, *to; /* NULL: not given */
  uint64_t window;       /* from 1 on; 0: not given */
  bool has_limit;        /* filter.limit was given, perhaps as 0 */
  bool many_processes;   /* set by a command that takes several of --process, and opens their traces itself */
  enum ct_view_time time;
  bool json, quiet, source;
  bool is_read, is_live; /* set by a command whose text people read (ct_look_options); as it comes, without a pager */
  struct ct_look look;
};

/*
 * Tables for the commands' own, each an option of all that read traces: a command offers those that mean something to
 * it. Member: struct ct_view_selection.
 */
extern const struct ct_option ct_thread_options[];   /* --thread */
extern const struct ct_option ct_process_options[];  /* --process */
extern const struct ct_option ct_range_options[];    /* --window, --from, --to */
extern const struct ct_option ct_from_to_options[];  /* --from, --to */
extern const struct ct_option ct_function_options[]; /* --function */
extern const struct ct_option ct_module_options[];   /* --module, --file */
extern const struct ct_option ct_call_options[];     /* the next three, and --depth */
extern const struct ct_option ct_min_duration_options[];
extern const struct ct_option ct_max_duration_options[];
extern const struct ct_option ct_reason_options[];
extern const struct ct_option ct_type_options[];   /* --type */
extern const struct ct_option ct_limit_options[];  /* --limit */
extern const struct ct_option ct_filter_options[]; /* all of these */
extern const struct ct_option ct_time_options[];   /* --time, --raw */
extern const struct ct_option ct_source_options[]; /* --source */
extern const struct ct_option ct_quiet_options[];  /* --quiet */

/* --function and --limit where a command has more to say of them than ct_function_options and ct_limit_options. */
#define CT_OPTION_FUNCTION(type, where, text)                                                                          \
  {                                                                                                                    \
    .name = "function", .letter = 'F', .old_letter = 'f', .argument = "PATTERN", .help = (text),                       \
    .values = CT_COMPLETE_PATTERN, .apply = ct_apply_text, .offset = offsetof(type, where.filter.function)             \
  }
#define CT_OPTION_LIMIT(type, where, text)                                                                             \
  {                                                                                                                    \
    .name = "limit", .letter = 'n', .argument = "N", .help = (text), .apply = ct_apply_limit,                          \
    .offset = offsetof(type, where)                                                                                    \
  }
int ct_apply_limit(const struct ct_applied *applied);
int ct_apply_type(const struct ct_applied *applied); /* member: filter.types */
/* --depth of a tree: so many levels of it (3), or the depths of the calls that count (2..5), into the filter. */
int ct_apply_levels(const struct ct_applied *applied, struct ct_filter *filter, uint32_t *levels);

void ct_view_selection_free(struct ct_view_selection *selected);

/* A trace that was named, and all filters about it. Stays where it is: the filter points into it. */
struct ct_trace_view {
  struct ct_trace *trace;
  struct ct_filter filter;
  uint32_t tid; /* of the name */
};
/*
 * Opens a trace by its name, DIR, DIR@FROM..TO, DIR#TID or both, with the window, the range and the process that the
 * selection describes; closes with ct_trace_close. CT_EXIT_OK, or the exit code after a message.
 */
int ct_open_trace_form(const struct ct_command *command, const char *name, const struct ct_view_selection *selected,
                       struct ct_trace_view *view);

/* Columns of the terminal that stdout is, 0 when it is none. */
unsigned ct_terminal_columns(void);
/* How many threads are to read: one for each processor that the command may use. */
unsigned ct_reading_workers(void);
/* 0, or CT_EINVAL with a line: a process tree is shown as whole traces. */
int ct_check_tree_is_whole(const struct ct_trace *trace, const struct ct_filter *filter, struct ct_diag *diag);

/* Writes the view of what passes the filter to out; context is the caller's. As ct_report_write and the like return. */
typedef int ct_write_view(void *context, struct ct_trace *trace, const struct ct_filter *filter,
                          const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes,
                          struct ct_diag *diag);

/*
 * Opens the trace of that name, writes the view to standard output (nowhere with --quiet), with a line of progress on a
 * terminal where shows_progress is set, and says what is wrong: damage, sources that the trace does not have, filters
 * that nothing matches. The exit code: CT_EXIT_FAILED too when nothing is shown with --json or --quiet.
 */
int ct_show_view(const struct ct_command *command, const char *name, const struct ct_view_selection *selected,
                 bool shows_progress, ct_write_view *write, void *context);

/* Lines of an export about the trace, each after "contrail NAME: ", on stderr. */
void ct_put_warnings(const struct ct_command *command, const char *lines);

#endif
