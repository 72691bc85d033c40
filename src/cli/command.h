/* SPDX-License-Identifier: MIT */
/*
 * A command of `contrail`: one source file each, ending in its entry; main.c has the table. And the
 * few things that commands share. Exit codes of the commands that read a trace: 0 done, 1 the trace
 * cannot be read or the output cannot be written, 2 wrong usage.
 */
#ifndef CT_CLI_COMMAND_H
#define CT_CLI_COMMAND_H

#include <contrail/error.h>
#include <contrail/version.h>
#include <contrail/view.h>

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Where record writes and the others read when no directory is given. */
#define CT_DEFAULT_TRACE "contrail.out"

enum { CT_EXIT_OK = 0, CT_EXIT_FAILED = 1, CT_EXIT_USAGE = 2 };

struct ct_command {
  const char *name;
  const char *summary;               /* one line of `contrail help` */
  const char *usage;                 /* all of `contrail help NAME`, ends with a newline */
  int (*run)(int argc, char **argv); /* argv[0] is the command's name; gives the exit code */
};

extern const struct ct_command ct_command_record;
extern const struct ct_command ct_command_attach;
extern const struct ct_command ct_command_clean;
extern const struct ct_command ct_command_plan;
extern const struct ct_command ct_command_cache;
extern const struct ct_command ct_command_info;
extern const struct ct_command ct_command_report;
extern const struct ct_command ct_command_replay;
extern const struct ct_command ct_command_output;
extern const struct ct_command ct_command_exclude_list;
extern const struct ct_command ct_command_sessions;
extern const struct ct_command ct_command_status;
extern const struct ct_command ct_command_pause;
extern const struct ct_command ct_command_resume;
extern const struct ct_command ct_command_stop;
extern const struct ct_command ct_command_trace;
extern const struct ct_command ct_command_exclude;
extern const struct ct_command ct_command_help;
extern const struct ct_command ct_command_version;

/* All commands, ended by NULL, and the one of that name or NULL. */
extern const struct ct_command *const ct_commands[];
const struct ct_command *ct_command_find(const char *name);

/* "contrail NAME: text" and where to find help, on stderr; returns CT_EXIT_USAGE. */
int ct_usage_error(const struct ct_command *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "contrail NAME: text" on stderr; returns CT_EXIT_FAILED. */
int ct_command_failed(const struct ct_command *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/*
 * As getopt_long with these (short_options has a ':' in front). An option that takes a value and is given a second time
 * is refused too, unless it is one that adds up: nothing is replaced silently.
 */
int ct_next_option(int argc, char **argv, const char *short_options, const struct option *options);
/* The usage error for what ct_next_option has just refused (it returned '?' or ':'). */
int ct_bad_option(const struct ct_command *command, char **argv, int result);
/* A short option that means something else in other commands is another one now: a line that says so, on stderr. */
void ct_old_short_option(const struct ct_command *command, int old, int now, const char *name);
int ct_show_usage(const struct ct_command *command); /* on stdout; CT_EXIT_OK */

/* "wall" or "cpu". */
bool ct_parse_time(const char *text, enum ct_view_time *time);
/* A whole decimal number up to max; false for anything else. */
bool ct_parse_number(const char *text, uint64_t max, uint64_t *value);

/* A growing list of --thread arguments. */
struct ct_tid_list {
  uint32_t *tids;
  size_t count;
};
bool ct_tid_list_add(struct ct_tid_list *list, const char *text); /* false: not a thread id */

/*
 * The options --exclude, --exclude-from and --exclude-hot, which record and plan share: the entries for getopt_long,
 * what to do with one (*exclude is made when there is none; an exit code, CT_EXIT_OK to go on), and the lines about
 * patterns that matched nothing, on stderr.
 */
#define CT_EXCLUDE_OPTIONS                                                                                             \
  {"exclude", required_argument, NULL, CT_OPTION_EXCLUDE},                                                             \
      {"exclude-from", required_argument, NULL, CT_OPTION_EXCLUDE_FROM},                                               \
  {                                                                                                                    \
    "exclude-hot", no_argument, NULL, CT_OPTION_EXCLUDE_HOT                                                            \
  }
enum { CT_OPTION_EXCLUDE = 256, CT_OPTION_EXCLUDE_FROM, CT_OPTION_EXCLUDE_HOT, CT_OPTION_MAX = 512 };
struct ct_exclude;
int ct_exclude_option(const struct ct_command *command, int option, const char *argument, struct ct_exclude **exclude);
void ct_exclude_warn(const struct ct_exclude *exclude);

struct json_t;
/* A JSON string; bytes that are not UTF-8 become U+FFFD. NULL when memory is exhausted. */
struct json_t *ct_json_text(const char *text);

struct ct_session;
struct ct_control;
/* The session's socket, for contrail sessions and the like; NULL, with a note on stderr, when it cannot be had. */
struct ct_control *ct_open_control(struct ct_session *session);

struct ct_trace;
/* The only non-option argument, or the default; NULL after a usage error (two of them). */
const char *ct_trace_argument(const struct ct_command *command, int argc, char **argv);
/* Opens the trace for a reading command and makes a closed pipe an error instead of a signal; NULL after a message. */
struct ct_trace *ct_open_trace(const struct ct_command *command, const char *dir);
/* For --source, on stderr: the trace does not say where functions are written, if that is so. */
void ct_warn_sources(struct ct_trace *trace);
struct ct_view_filter {
  const char *function, *module; /* globs, NULL: none */
  bool strict;                   /* --json or -q: nothing that matches is a failure */
};
/*
 * After a view with these filters: when it has shown nothing says so on stderr, with names that may be meant. rc, or
 * CT_EXIT_FAILED for nothing with a strict filter.
 */
int ct_report_unmatched(const struct ct_command *command, struct ct_trace *trace, const struct ct_view_filter *filter,
                        const struct ct_view_notes *notes, int rc);
/* For -q: where a view writes then; NULL after a message. */
FILE *ct_view_nowhere(const struct ct_command *command);
/*
 * The exit code for what a view returned: prints its diag, or nothing when the reader of
 * our output has gone away; then what notes has to tell.
 */
int ct_finish_view(const struct ct_command *command, int rc, const struct ct_view_notes *notes,
                   const struct ct_diag *diag);

#endif
