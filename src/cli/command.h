/* SPDX-License-Identifier: MIT */
/*
 * A command of `contrail`: one source file each, ending in its entry; main.c has the table. And the
 * few things that commands share. Exit codes of the commands that read a trace: 0 done, 1 the trace
 * cannot be read or the output cannot be written, 2 wrong usage.
 */
#ifndef CT_CLI_COMMAND_H
#define CT_CLI_COMMAND_H

#include "cli/option.h"

#include <contrail/error.h>
#include <contrail/version.h>
#include <contrail/view.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Where record writes and the others read when no directory is given. */
#define CT_DEFAULT_TRACE "contrail.out"

enum { CT_EXIT_OK = 0, CT_EXIT_FAILED = 1, CT_EXIT_USAGE = 2 };

struct ct_command {
  const char *name;
  const char *summary;               /* one line of `contrail help` */
  const char *synopsis;              /* what follows the name; several forms stand on lines of their own */
  const char *about;                 /* lines between synopsis and options, or NULL; ends with a newline */
  const struct ct_option *options;   /* NULL: none but --help */
  const char *closing;               /* lines below the options, or NULL; ends with a newline */
  const char *operands;              /* kinds of operands, for completions: see option.h; NULL: there are none */
  bool stops_at_operand;             /* what follows the first operand is not ours */
  int (*run)(int argc, char **argv); /* argv[0] is the command's name; gives the exit code */
};

extern const struct ct_command ct_command_record;
extern const struct ct_command ct_command_attach;
extern const struct ct_command ct_command_receive;
extern const struct ct_command ct_command_send;
extern const struct ct_command ct_command_clean;
extern const struct ct_command ct_command_plan;
extern const struct ct_command ct_command_cache;
extern const struct ct_command ct_command_info;
extern const struct ct_command ct_command_report;
extern const struct ct_command ct_command_graph;
extern const struct ct_command ct_command_slowest;
extern const struct ct_command ct_command_replay;
extern const struct ct_command ct_command_check;
extern const struct ct_command ct_command_diff;
extern const struct ct_command ct_command_sql;
extern const struct ct_command ct_command_itrace;
extern const struct ct_command ct_command_debug;
extern const struct ct_command ct_command_steps;
extern const struct ct_command ct_command_mcp;
extern const struct ct_command ct_command_output;
extern const struct ct_command ct_command_exclude_list;
extern const struct ct_command ct_command_sessions;
extern const struct ct_command ct_command_status;
extern const struct ct_command ct_command_top;
extern const struct ct_command ct_command_tui;
extern const struct ct_command ct_command_pause;
extern const struct ct_command ct_command_resume;
extern const struct ct_command ct_command_stop;
extern const struct ct_command ct_command_dump;
extern const struct ct_command ct_command_mark;
extern const struct ct_command ct_command_trigger;
extern const struct ct_command ct_command_recover;
extern const struct ct_command ct_command_trace;
extern const struct ct_command ct_command_exclude;
extern const struct ct_command ct_command_export;
extern const struct ct_command ct_command_html;
extern const struct ct_command ct_command_cut;
extern const struct ct_command ct_command_help;
extern const struct ct_command ct_command_version;

/* All commands, ended by NULL, and the one of that name or NULL. */
extern const struct ct_command *const ct_commands[];
const struct ct_command *ct_command_find(const char *name);
/* What contrail does without a command, on stdout, and with a word that is none, on stderr. Give the exit code. */
int ct_print_overview(void);
int ct_unknown_command(const char *name);

/* "contrail NAME: text" and where to find help, on stderr; returns CT_EXIT_USAGE. */
int ct_usage_error(const struct ct_command *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "contrail NAME: text" on stderr; returns CT_EXIT_FAILED. */
int ct_command_failed(const struct ct_command *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A whole decimal number up to max; false for anything else. */
bool ct_parse_number(const char *text, uint64_t max, uint64_t *value);
/* CT_EXIT_OK, or the exit code after a message. */
int ct_parse_pid(const struct ct_command *command, const char *text, pid_t *pid);
/* --for of attach and itrace. Member: double, seconds. */
int ct_apply_for(const struct ct_applied *applied);

struct ct_exclude;
/* The options --exclude, --exclude-from and --exclude-hot. Member: struct ct_exclude *, made when there is none. */
extern const struct ct_option ct_exclude_options[];
/* The lines about patterns that matched nothing, on stderr. */
void ct_exclude_warn(const struct ct_exclude *exclude);

struct json_t;
/* A JSON string; bytes that are not UTF-8 become U+FFFD. NULL when memory is exhausted. */
struct json_t *ct_json_text(const char *text);

struct ct_session;
struct ct_control;
/* The session's socket, for contrail sessions and the like; NULL, with a note on stderr, when it cannot be had. */
struct ct_control *ct_open_control(struct ct_session *session);

/* CT_EXIT_OK, or the exit code after a message: there are operands. */
int ct_no_operands(const struct ct_command *command, int argc, char **argv);

struct ct_trace;
/* The only non-option argument, or the default; NULL after a usage error (two of them). */
const char *ct_trace_argument(const struct ct_command *command, int argc, char **argv);
/* Opens the trace for a reading command and makes a closed pipe an error instead of a signal; NULL after a message. */
struct ct_trace *ct_open_trace(const struct ct_command *command, const char *dir);
/*
 * The exit code for what a view returned: prints its diag, or nothing when the reader of
 * our output has gone away; then what notes has to tell.
 */
int ct_finish_view(const struct ct_command *command, int code, const struct ct_view_notes *notes,
                   const struct ct_diag *diag);

#endif
