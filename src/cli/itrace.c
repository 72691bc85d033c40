/* SPDX-License-Identifier: MIT */
/* contrail itrace: a thread, instruction by instruction. */
#include "cli/command.h"
#include "cli/quantity.h"
#include "cli/signals.h"

#include <contrail/itrace.h>
#include <contrail/text.h>

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { EXIT_TRACER = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

struct itrace {
  pid_t tid, pid; /* 0: a program */
  double seconds; /* 0: until it ends or is interrupted */
  bool verbose;
};

static int
apply_thread(const struct ct_applied *applied)
{
  return ct_parse_pid(applied->command, applied->value, applied->member);
}

static int
apply_for(const struct ct_applied *applied)
{
  return ct_parse_duration(applied->value, true, applied->member)
             ? CT_EXIT_OK
             : ct_usage_error(applied->command, "--for takes a time such as 10s, 500ms or 2m, not '%s'",
                              applied->value);
}

static const struct ct_option options[] = {
    {.name = "thread",
     .letter = 't',
     .argument = "TID",
     .help = "this thread of PID (default: its first one)",
     .apply = apply_thread,
     .offset = offsetof(struct itrace, tid)},
    {.name = "for",
     .argument = "TIME",
     .help = "let the thread go after that time: 10s, 500ms, 2m (default: on Ctrl-C or SIGTERM, or when it ends)",
     .apply = apply_for,
     .offset = offsetof(struct itrace, seconds)},
    {.name = "verbose",
     .letter = 'v',
     .help = "say at the end what was translated",
     .apply = ct_apply_flag,
     .offset = offsetof(struct itrace, verbose)},
    CT_OPTIONS_END,
};

static void
tell(const struct ct_itrace_summary *summary)
{
  char units[CT_COUNT_CHARS], insns[CT_COUNT_CHARS], requests[CT_COUNT_CHARS], steps[CT_COUNT_CHARS];
  char code[CT_DURATION_CHARS], from[CT_DURATION_CHARS];
  fprintf(stderr, "contrail: %s blocks, %s instructions, %s of code made of %s; %s requests, %s single steps\n",
          ct_format_count(units, summary->units), ct_format_count(insns, summary->instructions),
          ct_format_bytes(code, summary->code_bytes), ct_format_bytes(from, summary->source_bytes),
          ct_format_count(requests, summary->requests), ct_format_count(steps, summary->steps));
}

static int
failure(int exec_errno, const struct ct_diag *diag)
{
  fprintf(stderr, "contrail: %s\n", diag->text);
  return exec_errno == 0                                   ? EXIT_TRACER
         : exec_errno == ENOENT || exec_errno == ENOTDIR ? EXIT_NOT_FOUND
                                                           : EXIT_NOT_EXECUTABLE;
}

/* Until the tracer is done or the time is over. */
static void
await_end(struct ct_itrace *tracer, double seconds, const sigset_t *stops)
{
  struct pollfd done = {.fd = ct_itrace_fd(tracer), .events = POLLIN};
  enum { STEP_MS = 20 };
  for (double left = seconds; poll(&done, 1, STEP_MS) == 0 && (seconds == 0 || (left -= STEP_MS / 1e3) > 0);) {
    struct timespec none = {0, 0};
    if (stops != NULL && sigtimedwait(stops, NULL, &none) > 0) {
      return;
    }
  }
}

static int
trace_thread(const struct itrace *itrace)
{
  struct ct_itrace_options begin = {.struct_size = sizeof(begin), .pid = itrace->pid, .tid = itrace->tid};
  struct ct_itrace_summary summary = {.struct_size = sizeof(summary)};
  struct ct_itrace *tracer;
  struct ct_diag diag = {""};
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGINT);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGHUP);
  sigprocmask(SIG_BLOCK, &stops, NULL);
  if (ct_itrace_begin(&begin, &tracer, NULL, &diag) != 0) {
    return failure(0, &diag);
  }
  await_end(tracer, itrace->seconds, &stops);
  if (ct_itrace_end(tracer, &summary, &diag) != 0) {
    return failure(0, &diag);
  }
  if (itrace->verbose) {
    tell(&summary);
  }
  return CT_EXIT_OK;
}

static int
trace_program(const struct itrace *itrace, char **argv)
{
  struct ct_signals *signals = ct_signals_create();
  struct ct_itrace_summary summary = {.struct_size = sizeof(summary)};
  struct ct_itrace *tracer;
  struct ct_diag diag = {""};
  int exec_errno = 0;
  if (signals == NULL) {
    snprintf(diag.text, sizeof(diag.text), "out of memory");
    return failure(0, &diag);
  }
  struct ct_itrace_options begin = {
      .struct_size = sizeof(begin), .argv = argv, .mask = ct_signals_mask(signals)};
  if (ct_itrace_begin(&begin, &tracer, &exec_errno, &diag) != 0) {
    return failure(exec_errno, &diag);
  }
  ct_signals_serve(signals, ct_itrace_pid(tracer), NULL, NULL);
  await_end(tracer, 0, NULL);
  ct_signals_forget_program(signals);
  int code = ct_itrace_end(tracer, &summary, &diag);
  ct_signals_stop(signals);
  if (code != 0) {
    return failure(0, &diag);
  }
  if (itrace->verbose) {
    tell(&summary);
  }
  if (WIFSIGNALED(summary.wait_status)) {
    ct_signals_die_of(signals, WTERMSIG(summary.wait_status));
    return 128 + WTERMSIG(summary.wait_status);
  }
  return WEXITSTATUS(summary.wait_status);
}

static int
run(int argc, char **argv)
{
  struct itrace itrace = {.seconds = 0};
  int code = ct_parse(&ct_command_itrace, argc, argv, &itrace);
  if (code != -1) {
    return code;
  }
  if (optind < argc && strcmp(argv[optind - 1], "--") == 0) {
    return trace_program(&itrace, argv + optind);
  }
  if (optind != argc - 1) {
    return ct_usage_error(&ct_command_itrace, "which process, or which program (-- PROGRAM)?");
  }
  code = ct_parse_pid(&ct_command_itrace, argv[optind], &itrace.pid);
  itrace.tid = itrace.tid != 0 ? itrace.tid : itrace.pid;
  return code != CT_EXIT_OK ? code : trace_thread(&itrace);
}

const struct ct_command ct_command_itrace = {
    .name = "itrace",
    .summary = "run a thread by translated code",
    .synopsis = "[OPTION]... PID\n[OPTION]... -- PROGRAM [ARG]...",
    .about = "Runs a thread of the process PID, or the first thread of a program, by translated copies of its code.\n",
    .options = options,
    .stops_at_operand = true,
    .run = run,
};
