/* SPDX-License-Identifier: MIT */
/* contrail record: run a program and record it. */
#include "cli/recording.h"

#include <contrail/control.h>
#include <contrail/exclude.h>
#include <contrail/session.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static int
failure(int exec_errno, const struct ct_diag *diag)
{
  fprintf(stderr, "contrail: %s\n", diag->text);
  if (exec_errno == 0) {
    return CT_EXIT_RECORDING;
  }
  return exec_errno == ENOENT || exec_errno == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

enum { GO_ON = -1, STEP_MS = 50 };

/* GO_ON with the program at argv[optind], or an exit code. */
static int
parse(int argc, char **argv, struct ct_session_options *record, bool *verbose)
{
  static const struct option options[] = {
      CT_RECORDING_OPTIONS,
      {"int3", no_argument, NULL, '3'},
      {"verbose", no_argument, NULL, 'v'},
      {"wait-for-all", no_argument, NULL, 'w'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  int got, code;
  while ((got = getopt_long(argc, argv, "+:o:vfh", options, NULL)) != -1) {
    switch (got) {
    case 'v':
      *verbose = true;
      break;
    case 'w':
      record->follow = record->wait_for_all = true;
      break;
    case '3':
      record->int3 = true;
      break;
    case 'h':
      return ct_show_usage(&ct_command_record);
    default:
      code = ct_recording_option(&ct_command_record, got, argv, record);
      if (code != CT_EXIT_OK) {
        return code;
      }
    }
  }
  if (optind >= argc) {
    return ct_usage_error(&ct_command_record, "which program?");
  }
  return GO_ON;
}

static volatile pid_t program;       /* for the signal handler; 0: none */
static volatile sig_atomic_t enough; /* somebody wants the recording to end */

static void
on_forward(int signal)
{
  int saved = errno;
  if (program > 0) {
    kill(program, signal);
  } else {
    enough = 1;
  }
  errno = saved;
}

/* The program has ended, children of its are recorded on. */
static void
wait_for_children(struct ct_session *session)
{
  struct sigaction action = {.sa_handler = on_forward};
  program = 0;
  sigaction(SIGINT, &action, NULL);
  while (!enough && ct_session_wait(session, STEP_MS) == CT_ETIMEOUT) {
  }
}

/* Once the program is there, which has the dispositions that we were started with. */
static void
take_signals(pid_t pid)
{
  struct sigaction action = {.sa_handler = SIG_IGN}; /* the terminal sends these to the program too: it decides */
  program = pid;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGQUIT, &action, NULL);
  sigaction(SIGXFSZ, &action, NULL);
  action.sa_handler = on_forward;
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGHUP, &action, NULL);
}

/* What the user should know behind a recording that is good. */
static void
remark(const struct ct_session_options *record, const struct ct_session_status *status, bool verbose)
{
  ct_recording_remark(record, status);
  if (verbose) {
    fprintf(stderr, "contrail: light hooks: the interval of sampling changed %" PRIu64 " times and is %" PRIu32 "\n",
            status->sample_changes, status->sample_interval);
  }
  if (record->follow && verbose) {
    fprintf(stderr, "contrail: %zu children were followed, %" PRIu64 " events in them\n", status->children,
            status->child_events);
  }
  if (status->events == 0 && status->dropped == 0 && ct_exclude_is_empty(record->exclude) &&
      ct_selection_is_everything(record->selection)) {
    fprintf(stderr, "contrail: nothing was recorded: no function of the program is known (stripped, and without call "
                    "frame information?); contrail plan FILE lists those of a file\n");
  }
}

/* Runs the program to its end. */
static int
run_program(struct ct_session *session, const struct ct_session_options *record, char **argv, int *exec_errno,
            struct ct_diag *diag)
{
  struct ct_session_status status = {.struct_size = sizeof(status)};
  struct ct_control *control = NULL;
  int code = ct_session_spawn(session, argv, exec_errno, diag);
  if (code != 0) {
    return code;
  }
  ct_session_get_status(session, &status);
  take_signals(status.pid);
  code = ct_session_install(session, diag);
  ct_session_get_status(session, &status);
  if (code == 0 && !status.ended) {
    control = ct_open_control(session);
    code = ct_session_resume(session, diag);
  }
  if (code == 0 || code == CT_ETIMEOUT) {
    int waited;
    do {
      waited = ct_session_wait(session, record->wait_for_all ? STEP_MS : -1);
      ct_session_get_status(session, &status);
    } while (waited == CT_ETIMEOUT && !status.ended);
    if (waited == CT_ETIMEOUT) {
      wait_for_children(session);
      waited = 0;
    }
    if (waited != 0 && code == 0) {
      code = waited;
      snprintf(diag->text, sizeof(diag->text), "lost the program: somebody else has waited for it");
    }
  }
  program = 0;
  ct_control_close(control);
  return code;
}

static int
record_it(const struct ct_session_options *record, char **argv, bool verbose)
{
  struct ct_session *session;
  struct ct_session_status status = {.struct_size = sizeof(status)};
  struct ct_diag diag = {""}, closing = {""};
  int exec_errno = 0;
  int code = ct_session_create(record, &session, &diag);
  if (code == 0) {
    code = run_program(session, record, argv, &exec_errno, &diag);
    int closed = ct_session_close(session, &status, &closing);
    if (code == 0 && closed != 0) {
      code = closed;
      diag = closing;
    }
  }
  if (code != 0) {
    return failure(exec_errno, &diag);
  }
  remark(record, &status, verbose);
  if (WIFSIGNALED(status.wait_status)) {
    return 128 + WTERMSIG(status.wait_status);
  }
  return WEXITSTATUS(status.wait_status);
}

static int
run_record(int argc, char **argv)
{
  struct ct_session_options record = {.struct_size = sizeof(record), .directory = CT_DEFAULT_TRACE};
  bool verbose = false;
  int code = parse(argc, argv, &record, &verbose);
  if (code == GO_ON) {
    code = record_it(&record, argv + optind, verbose);
  }
  ct_recording_options_free(&record);
  return code;
}

const struct ct_command ct_command_record = {
    .name = "record",
    .summary = "run a program and record every function call",
    .usage = "usage: contrail record [OPTION]... [--] PROGRAM [ARG]...\n"
             "\n"
             "  -o, --output DIR         where the trace goes (default " CT_DEFAULT_TRACE "); must not exist yet\n"
             "  -f, --follow             record the program's children too, and theirs: each in a directory\n"
             "                           process-PID of its own in DIR. Those that outlive the program\n"
             "                           are let go when it ends\n"
             "      --wait-for-all       the same, and go on until the last of them has ended, or until\n"
             "                           SIGINT, SIGTERM or SIGHUP when the program has (for daemons)\n"
             "      --int3               hook by a trap what no jump fits; the program must leave\n"
             "                           SIGTRAP alone\n" CT_RECORDING_USAGE
             "  -v, --verbose            say at the end what sampling did\n"
             "\n"
             "Exits with the program's own status, 128+n when signal n ended it, 125 when\n"
             "recording failed, 126 or 127 when the program cannot be executed or found.\n",
    .run = run_record,
};
