/* SPDX-License-Identifier: MIT */
/* contrail record: run a program and record it. */
#include "cli/closing.h"
#include "cli/live_view.h"
#include "cli/recording.h"
#include "cli/sending.h"
#include "cli/signals.h"

#include <contrail/control.h>
#include <contrail/exclude.h>
#include <contrail/session.h>
#include <contrail/text.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static int
failure(int exec_errno, const struct ct_diag *diag, const char *taken)
{
  fprintf(stderr, "contrail: %s", diag->text);
  if (exec_errno == 0) {
    fputs("\n", stderr);
    return CT_EXIT_RECORDING;
  }
  if (taken != NULL) {
    fputs(" ('", stderr);
    ct_put_printable(stderr, taken, SIZE_MAX);
    fputs("' is the pattern of --detail: --detail -- PROGRAM)", stderr);
  }
  fputs("\n", stderr);
  return exec_errno == ENOENT || exec_errno == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

enum { STEP_MS = 50 };

/* A recording under way, and what the options choose. */
struct run {
  struct ct_session_options options;
  struct ct_session *session;
  struct ct_signals *signals;
  const char *format; /* NULL: our own */
  struct ct_sending sending;
  bool verbose, quiet, live;
  pid_t view;        /* of --live; 0: none */
  const char *taken; /* see taken_by_detail */
};

static int
apply_wait_for_all(const struct ct_applied *applied)
{
  struct ct_session_options *session = applied->member;
  session->follow = session->wait_for_all = true;
  return CT_EXIT_OK;
}

static int
refuse_pid(const struct ct_applied *applied)
{
  return ct_usage_error(applied->command, "a process that runs already is recorded by: contrail attach PID");
}

static const struct ct_option options[] = {
    CT_OPTION_OUTPUT(struct run, options),
    CT_OPTION_FORMAT(struct run, format),
    {.name = "follow",
     .letter = 'f',
     .help = "record the program's children too, and theirs, each in a directory process-PID in DIR. Children "
             "that outlive the program are detached when it ends",
     .apply = ct_apply_flag,
     .offset = offsetof(struct run, options.follow)},
    {.name = "wait-for-all",
     .help = "as --follow, and record until the last child has ended (for daemons). Once the program has "
             "ended, SIGINT, SIGTERM or SIGHUP ends the recording",
     .apply = apply_wait_for_all,
     .offset = offsetof(struct run, options)},
    {.name = "int3",
     .help = "hook functions that no jump fits by a trap. The program must leave SIGTRAP alone",
     .apply = ct_apply_flag,
     .offset = offsetof(struct run, options.int3)},
    CT_OPTION_GROUP(ct_sending_options, struct run, sending),
    {.name = "live",
     .help = "show a table of the program's functions each second, as contrail top does, on standard error. "
             "That must be a terminal, and the program's standard output must be none",
     .against = "last max-size",
     .apply = ct_apply_flag,
     .offset = offsetof(struct run, live)},
    CT_OPTION_GROUP(ct_recording_options, struct run, options),
    {.name = "verbose",
     .letter = 'v',
     .help = "say at the end what is in the trace, as on a terminal, and what sampling did",
     .apply = ct_apply_flag,
     .offset = offsetof(struct run, verbose)},
    {.name = "quiet",
     .letter = 'q',
     .help = "say nothing but errors",
     .apply = ct_apply_flag,
     .offset = offsetof(struct run, quiet)},
    {.letter = 'p', .apply = refuse_pid},
    CT_OPTIONS_END,
};

/* The program has had SIGTERM from us some seconds ago: it goes on, and the recording ends. */
static void
on_unheard(void *context)
{
  struct run *run = context;
  struct ct_session_status status = {.struct_size = sizeof(status)};
  ct_session_get_status(run->session, &status);
  if (!status.ended && ct_session_detach(run->session, NULL) == 0) {
    fprintf(stderr, "contrail: process %d goes on after SIGTERM; it is recorded no longer\n", (int)status.pid);
  }
}

/* The program has ended, children of its are recorded on. */
static void
wait_for_children(const struct run *run)
{
  ct_signals_forget_program(run->signals);
  while (!ct_signals_enough(run->signals) && ct_session_wait(run->session, STEP_MS) == CT_ETIMEOUT) {
  }
}

/* What the user should know after a recording that is good. */
static void
warn(const struct ct_session_options *record, const struct ct_session_status *status, bool verbose)
{
  ct_recording_warn(record, status);
  if (verbose && (status->sample_changes != 0 || status->sample_interval > 1)) {
    fprintf(stderr, "contrail: light hooks: the sampling interval changed %" PRIu64 " times and is %" PRIu32 "\n",
            status->sample_changes, status->sample_interval);
  }
  if (record->follow && verbose) {
    char children[CT_COUNT_CHARS], events[CT_COUNT_CHARS];
    fprintf(stderr, "contrail: %s %s followed, %s events in %s\n", ct_format_count(children, status->children),
            status->children == 1 ? "child was" : "children were", ct_format_count(events, status->child_events),
            status->children == 1 ? "it" : "them");
  }
  ct_report_gaps(record, status);
}

/* Runs the program to its end. */
static int
run_program(struct run *run, char **argv, int *exec_errno, struct ct_diag *diag)
{
  struct ct_session *session = run->session;
  struct ct_session_status status = {.struct_size = sizeof(status)};
  struct ct_control *control = NULL;
  int code = ct_session_spawn(session, argv, exec_errno, diag);
  if (code != 0) {
    return code;
  }
  ct_session_get_status(session, &status);
  if (!ct_signals_serve(run->signals, status.pid, on_unheard, run)) {
    snprintf(diag->text, sizeof(diag->text),
             "cannot start a thread: out of memory, or the user's limit of processes (ulimit -u) is reached");
    return CT_ENOMEM;
  }
  code = run->sending.sender != NULL ? ct_sender_follow(run->sending.sender, run->options.directory, diag) : CT_OK;
  if (code != CT_OK) {
    return code;
  }
  code = ct_session_install(session, diag);
  ct_session_get_status(session, &status);
  if (code == 0 && !status.ended) {
    control = ct_open_control(session);
    run->view = run->live ? ct_live_view_start(control, true) : 0;
    code = ct_session_resume(session, diag);
  }
  if (code == 0 || code == CT_ETIMEOUT) {
    int waited;
    do {
      waited = ct_session_wait(session, run->options.wait_for_all ? STEP_MS : -1);
      ct_session_get_status(session, &status);
    } while (waited == CT_ETIMEOUT && !status.ended);
    if (waited == CT_ETIMEOUT) {
      wait_for_children(run);
      waited = 0;
    }
    if (waited != 0 && code == 0) {
      code = waited;
      snprintf(diag->text, sizeof(diag->text), "lost the program: somebody else has waited for it");
    }
  }
  ct_signals_forget_program(run->signals);
  ct_control_close(control);
  return code;
}

/* What --detail, which may stand without a pattern, has taken for one, if that is the word before the program. */
static const char *
taken_by_detail(char **argv, int program)
{
  bool taken = program > 2 && strcmp(argv[program - 2], "--detail") == 0 && strcmp(argv[program - 1], "--") != 0;
  return taken ? argv[program - 1] : NULL;
}

static int
record_it(struct run *run, char **argv)
{
  struct ct_session_status status = {.struct_size = sizeof(status)};
  struct ct_diag diag = {""}, closing = {""};
  int exec_errno = 0;
  run->options.signal_mask = ct_signals_mask(run->signals);
  int code = ct_sending_connect(&run->sending, NULL, &diag);
  code = code == CT_OK ? ct_session_create(&run->options, &run->session, &diag) : code;
  if (code == 0) {
    code = run_program(run, argv, &exec_errno, &diag);
    ct_signals_stop(run->signals);
    int closed = ct_session_close(run->session, &status, &closing);
    ct_live_view_end(run->view);
    if (code == 0 && closed != 0) {
      code = closed;
      diag = closing;
    }
  }
  if (code != 0) {
    ct_sending_finish(&run->sending, run->options.directory, run->verbose, run->quiet); /* what there is of it */
    return failure(exec_errno, &diag, run->taken);
  }
  if (!run->quiet) {
    warn(&run->options, &status, run->verbose);
    if (run->verbose || isatty(STDERR_FILENO) == 1) {
      ct_report_trace(run->options.directory);
    }
  }
  int sent = ct_sending_finish(&run->sending, run->options.directory, run->verbose, run->quiet);
  int converted = ct_convert_trace(&run->options, run->format, run->quiet);
  if (converted != CT_EXIT_OK) {
    return converted;
  }
  if (sent != CT_EXIT_OK) {
    return CT_EXIT_RECORDING;
  }
  if (WIFSIGNALED(status.wait_status)) {
    ct_signals_die_of(run->signals, WTERMSIG(status.wait_status));
    return 128 + WTERMSIG(status.wait_status);
  }
  return WEXITSTATUS(status.wait_status);
}

static int
run_record(int argc, char **argv)
{
  struct run run = {.options = {.struct_size = sizeof(run.options), .lossless = true}};
  int code = ct_parse(&ct_command_record, argc, argv, &run);
  if (code == -1 && optind >= argc) {
    const char *taken = taken_by_detail(argv, argc);
    code = taken != NULL ? ct_usage_error(&ct_command_record,
                                          "which program? '%s' is the pattern of --detail (--detail -- PROGRAM)", taken)
                         : ct_usage_error(&ct_command_record, "which program?");
  }
  if (code == -1 && ct_sending_check(&ct_command_record, &run.sending) != CT_EXIT_OK) {
    code = CT_EXIT_USAGE;
  }
  if (code == -1 && run.live) {
    code = ct_live_view_check(&ct_command_record);
    code = code == CT_EXIT_OK ? -1 : code;
  }
  if (code == -1 && ct_check_format(&ct_command_record, &run.options, run.format) != CT_EXIT_OK) {
    code = CT_EXIT_USAGE;
  }
  ct_place_trace(&run.options);
  if (code == -1) {
    run.taken = taken_by_detail(argv, optind);
    run.signals = ct_signals_create();
    code =
        run.signals != NULL ? record_it(&run, argv + optind) : ct_command_failed(&ct_command_record, "out of memory");
    ct_sender_destroy(run.sending.sender);
    ct_signals_destroy(run.signals);
  }
  ct_recording_options_free(&run.options);
  return code;
}

const struct ct_command ct_command_record = {
    .name = "record",
    .summary = "run a program and record every function call",
    .synopsis = "[OPTION]... [--] PROGRAM [ARG]...",
    .options = options,
    .closing = "Exits with the program's own status, 128+n when signal n ended it, 125 when\n"
               "recording failed, 126 or 127 when the program cannot be executed or found, 2 for\n"
               "wrong usage.\n",
    .operands = CT_COMPLETE_PROGRAM,
    .stops_at_operand = true,
    .run = run_record,
};
