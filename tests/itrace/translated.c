/* SPDX-License-Identifier: MIT */
/*
 * Runs a thread by translated code, for the tests: what a program does must not change by that.
 *
 *   translated [-v] -- PROGRAM [ARG]...             its first thread from its first instruction on; ends as the program
 * does translated [-v] [-t TID] [-s SECONDS] PID       a thread of a process that runs, until then or a line comes on
 * stdin -v: what was translated, on stderr
 *   -o DIR     records its steps in DIR/steps.TID; -l: without loss, -g: without vector registers
 *   -a         all threads; also by CONTRAIL_TEST_ALL_THREADS
 */
#include "cli/signals.h"
#include <contrail/itrace.h>

#include <contrail/text.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_TRACER = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static bool is_verbose, is_lossless, no_vectors, all_threads;
static const char *records;

static void
report(const struct ct_itrace_summary *s)
{
  if (is_verbose) {
    fprintf(stderr,
            "translated: %" PRIu64 " units, %" PRIu64 " instructions, %" PRIu64 " bytes made of %" PRIu64 ", %" PRIu64
            " requests, %" PRIu64 " steps, %" PRIu64 " signals, %" PRIu64 " flushes, %" PRIu64 " shared\n",
            s->units, s->instructions, s->code_bytes, s->source_bytes, s->requests, s->steps, s->signals, s->flushes,
            s->shared_units);
  }
  if (is_verbose && records != NULL) {
    fprintf(stderr, "records: %" PRIu64 " instructions, %" PRIu64 " bytes, lost %" PRIu64 ", file %" PRIu64 "\n",
            s->recorded, s->record_bytes, s->lost_bytes, s->file_bytes);
  }
}

static int
failure(int exec_errno, const struct ct_diag *diag)
{
  fprintf(stderr, "contrail: %s\n", diag->text);
  return exec_errno == 0                                 ? EXIT_TRACER
         : exec_errno == ENOENT || exec_errno == ENOTDIR ? EXIT_NOT_FOUND
                                                         : EXIT_NOT_EXECUTABLE;
}

static int
run_thread(pid_t pid, pid_t tid, double seconds)
{
  struct ct_itrace_options begin = {.struct_size = sizeof(begin),
                                    .pid = pid,
                                    .tid = tid,
                                    .directory = records,
                                    .is_lossless = is_lossless,
                                    .no_vectors = no_vectors,
                                    .all_threads = all_threads};
  struct ct_itrace_summary summary = {.struct_size = sizeof(summary)};
  struct ct_itrace *tracer;
  struct ct_diag diag = {""};
  if (ct_itrace_begin(&begin, &tracer, NULL, &diag) != 0) {
    return failure(0, &diag);
  }
  struct pollfd waits[2] = {{.fd = ct_itrace_fd(tracer), .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
  poll(waits, seconds > 0 ? 1 : 2, seconds > 0 ? (int)(seconds * 1000) : -1);
  if (ct_itrace_end(tracer, &summary, &diag) != 0) {
    return failure(0, &diag);
  }
  report(&summary);
  return 0;
}

static int
run_program(char **argv)
{
  struct ct_signals *signals = ct_signals_create();
  struct ct_itrace_options begin = {.struct_size = sizeof(begin),
                                    .argv = argv,
                                    .signal_mask = ct_signals_mask(signals),
                                    .directory = records,
                                    .is_lossless = is_lossless,
                                    .no_vectors = no_vectors,
                                    .all_threads = all_threads};
  struct ct_itrace_summary summary = {.struct_size = sizeof(summary)};
  struct ct_itrace *tracer;
  struct ct_diag diag = {""};
  int exec_errno = 0;
  if (ct_itrace_begin(&begin, &tracer, &exec_errno, &diag) != 0) {
    return failure(exec_errno, &diag);
  }
  ct_signals_serve(signals, ct_itrace_pid(tracer), NULL, NULL);
  struct pollfd done = {.fd = ct_itrace_fd(tracer), .events = POLLIN};
  while (poll(&done, 1, -1) != 1) {
  }
  ct_signals_forget_program(signals);
  int code = ct_itrace_end(tracer, &summary, &diag);
  ct_signals_stop(signals);
  if (code != 0) {
    return failure(0, &diag);
  }
  report(&summary);
  if (WIFSIGNALED(summary.wait_status)) {
    ct_signals_die_of(signals, WTERMSIG(summary.wait_status));
    return 128 + WTERMSIG(summary.wait_status);
  }
  return WEXITSTATUS(summary.wait_status);
}

/* CONTRAIL_TEST_STEPS: a folder for the steps of each run. */
static void
records_by_environment(void)
{
  const char *folder = getenv("CONTRAIL_TEST_STEPS");
  if (records == NULL && folder != NULL && folder[0] != 0) {
    records = folder;
    is_lossless = true;
  }
}

int
main(int argc, char **argv)
{
  pid_t tid = 0;
  double seconds = 0;
  int option;
  all_threads = getenv("CONTRAIL_TEST_ALL_THREADS") != NULL;
  while ((option = getopt(argc, argv, "+avlgt:s:o:")) != -1) {
    switch (option) {
    case 'a':
      all_threads = true;
      break;
    case 'v':
      is_verbose = true;
      break;
    case 'l':
      is_lossless = true;
      break;
    case 'g':
      no_vectors = true;
      break;
    case 'o':
      records = optarg;
      break;
    case 't':
      tid = atoi(optarg);
      break;
    case 's':
      seconds = atof(optarg);
      break;
    default:
      return 2;
    }
  }
  records_by_environment();
  if (optind < argc && strcmp(argv[optind - 1], "--") == 0) {
    return run_program(argv + optind);
  }
  if (optind != argc - 1) {
    fprintf(stderr, "translated [-v] -- PROGRAM [ARG]... | [-v] [-t TID] [-s SECONDS] PID\n");
    return 2;
  }
  pid_t pid = atoi(argv[optind]);
  return run_thread(pid, tid != 0 ? tid : pid, seconds);
}
