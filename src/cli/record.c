/* SPDX-License-Identifier: MIT */
/* contrail record: run a program and record it. */
#include "cli/command.h"
#include "cli/detail.h"
#include "cli/select.h"

#include <contrail/control.h>
#include <contrail/exclude.h>
#include <contrail/session.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { EXIT_OWN_FAILURE = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static int
failure(int exec_errno, const struct ct_diag *diag)
{
  fprintf(stderr, "contrail: %s\n", diag->text);
  if (exec_errno == 0) {
    return EXIT_OWN_FAILURE;
  }
  return exec_errno == ENOENT || exec_errno == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

enum { GO_ON = -1, MAX_DEPTH = 1000000, OUTPUT_MIB_MAX = 4096, STEP_MS = 50 };

/* GO_ON with the program at argv[optind], or an exit code. */
static int
parse(int argc, char **argv, struct ct_session_options *record, bool *verbose)
{
  static const struct option options[] = {
      {"output", required_argument, NULL, 'o'},
      {"ring-size", required_argument, NULL, 'r'},
      {"lossless", no_argument, NULL, 'l'},
      {"max-depth", required_argument, NULL, 'd'},
      {"int3", no_argument, NULL, '3'},
      {"no-cache", no_argument, NULL, 'n'},
      {"no-output", no_argument, NULL, 'O'},
      {"max-output", required_argument, NULL, 'M'},
      {"verbose", no_argument, NULL, 'v'},
      {"follow", no_argument, NULL, 'f'},
      {"wait-for-all", no_argument, NULL, 'w'},
      {"child-ring-size", required_argument, NULL, 'c'},
      CT_EXCLUDE_OPTIONS,
      CT_SELECT_OPTIONS,
      {"source", no_argument, NULL, CT_OPTION_SOURCE},
      CT_DETAIL_OPTIONS,
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  uint64_t number;
  int got, code;
  while ((got = getopt_long(argc, argv, "+:o:vfh", options, NULL)) != -1) {
    switch (got) {
    case 'o':
      record->directory = optarg;
      break;
    case 'r':
      if (!ct_parse_number(optarg, 256, &number) || number < 1) {
        return ct_usage_error(&ct_command_record, "--ring-size takes 1 to 256 (MiB), not '%s'", optarg);
      }
      record->ring_mib = (uint32_t)number;
      break;
    case 'd':
      if (!ct_parse_number(optarg, MAX_DEPTH, &number) || number < 1) {
        return ct_usage_error(&ct_command_record, "--max-depth takes 1 to %u, not '%s'", MAX_DEPTH, optarg);
      }
      record->max_depth = (uint32_t)number;
      break;
    case 'l':
      record->lossless = true;
      break;
    case CT_OPTION_EXCLUDE:
    case CT_OPTION_EXCLUDE_FROM:
    case CT_OPTION_EXCLUDE_HOT:
      code = ct_exclude_option(&ct_command_record, got, optarg, &record->exclude);
      if (code != CT_EXIT_OK) {
        return code;
      }
      break;
    case CT_OPTION_SOURCE:
      record->sources = true;
      break;
    case CT_OPTION_ARGS:
    case CT_OPTION_NO_ARGS:
    case CT_OPTION_SAMPLE:
    case CT_OPTION_NO_SAMPLING:
      code = ct_detail_option(&ct_command_record, got, optarg, record);
      if (code != CT_EXIT_OK) {
        return code;
      }
      break;
    case CT_OPTION_TRACE:
    case CT_OPTION_MODE:
    case CT_OPTION_ROOT:
      code = ct_select_option(&ct_command_record, got, optarg, &record->selection);
      if (code != CT_EXIT_OK) {
        return code;
      }
      break;
    case 'O':
      record->no_output = true;
      break;
    case 'M':
      if (!ct_parse_number(optarg, OUTPUT_MIB_MAX, &number) || number < 1) {
        return ct_usage_error(&ct_command_record, "--max-output takes 1 to %u (MiB), not '%s'", OUTPUT_MIB_MAX, optarg);
      }
      record->output_mib = (uint32_t)number;
      break;
    case 'v':
      *verbose = true;
      break;
    case 'f':
      record->follow = true;
      break;
    case 'w':
      record->follow = record->wait_for_all = true;
      break;
    case 'c':
      if (!ct_parse_number(optarg, 256, &number) || number < 1) {
        return ct_usage_error(&ct_command_record, "--child-ring-size takes 1 to 256 (MiB), not '%s'", optarg);
      }
      record->child_ring_mib = (uint32_t)number;
      break;
    case '3':
      record->int3 = true;
      break;
    case 'n':
      record->no_cache = true;
      break;
    case 'h':
      return ct_show_usage(&ct_command_record);
    default:
      return ct_bad_option(&ct_command_record, argv, got);
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
  ct_exclude_warn(record->exclude);
  ct_select_warn(record->selection);
  if (status->note[0] != '\0') {
    fprintf(stderr, "contrail: note: %s\n", status->note);
  }
  if (verbose) {
    fprintf(stderr, "contrail: light hooks: the interval of sampling changed %" PRIu64 " times and is %" PRIu32 "\n",
            status->sample_changes, status->sample_interval);
  }
  if (record->follow && verbose) {
    fprintf(stderr, "contrail: %zu children were followed, %" PRIu64 " events in them\n", status->children,
            status->child_events);
  }
  if (status->child_dropped != 0) {
    fprintf(stderr,
            "contrail: %" PRIu64 " events of children were dropped (%" PRIu64
            " recorded); --lossless or a larger --child-ring-size keeps them\n",
            status->child_dropped, status->child_events);
  }
  if (status->dropped != 0) {
    fprintf(stderr,
            "contrail: %" PRIu64 " events were dropped (%" PRIu64
            " recorded); --lossless or a larger --ring-size keeps them\n",
            status->dropped, status->events);
  } else if (status->events == 0 && ct_exclude_is_empty(record->exclude) &&
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
    } while (waited == CT_ETIMEOUT && !status.ended && !status.detached);
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
  ct_exclude_free(record.exclude);
  ct_selection_free(record.selection);
  return code;
}

const struct ct_command ct_command_record = {
    .name = "record",
    .summary = "run a program and record every function call",
    .usage = "usage: contrail record [OPTION]... [--] PROGRAM [ARG]...\n"
             "\n"
             "  -o, --output DIR         where the trace goes (default " CT_DEFAULT_TRACE "); must not exist yet\n"
             "      --ring-size M        shared memory for events on their way, 1 to 256 MiB\n"
             "                           (default 80)\n"
             "      --lossless           let the program wait, bounded, when the disk cannot keep up\n"
             "      --no-output          do not record what the program writes to its standard output and\n"
             "                           error\n"
             "      --max-output M       record at most M MiB of that (default 64)\n"
             "  -f, --follow             record the program's children too, and theirs: each in a directory\n"
             "                           process-PID of its own in DIR. Those that outlive the program\n"
             "                           are let go when it ends\n"
             "      --wait-for-all       the same, and go on until the last of them has ended, or until\n"
             "                           SIGINT, SIGTERM or SIGHUP when the program has (for daemons)\n"
             "      --child-ring-size M  as --ring-size, for each child (default 16)\n"
             "      --int3               hook by a trap what no jump fits; the program must leave\n"
             "                           SIGTRAP alone\n"
             "      --no-cache           analyse all files anew, and keep nothing (see contrail help\n"
             "                           cache)\n"
             "      --trace PATTERN      hook only what a pattern matches: foo::bar, foo::* (one level),\n"
             "                           foo::** (deep), @file:FILE, @usercode, MODULE!PATTERN; may be\n"
             "                           given several times\n"
             "      --mode MODE          full (enter and return), light (enter only), or auto: light for\n"
             "                           **, @file: and @usercode that match more than ten functions,\n"
             "                           else full (the default)\n"
             "      --project-root DIR   where @usercode looks (default: the current directory)\n"
             "      --source             write source files and lines into the trace, where debug\n"
             "                           information tells, for report --source\n"
             "      --exclude PATTERN    leave these functions alone: FUNCTION, MODULE!FUNCTION or\n"
             "                           MODULE!, exact or globs (* ? [a-z]); may be given several times\n"
             "      --exclude-from FILE  the same for each line of FILE (# begins a comment)\n"
             "      --exclude-hot        leave out known functions that are called all the time and do\n"
             "                           little (contrail exclude-list shows them)\n"
             "      --max-depth N        leave calls that are deeper out of the trace (outermost: 1)\n" CT_DETAIL_USAGE
             "  -v, --verbose            say at the end what sampling did\n"
             "\n"
             "Exits with the program's own status, 128+n when signal n ended it, 125 when\n"
             "recording failed, 126 or 127 when the program cannot be executed or found.\n",
    .run = run_record,
};
