/* SPDX-License-Identifier: MIT */
/* contrail itrace: record every instruction of a thread. */
#include "cli/ask.h"
#include "cli/itrace_session.h"
#include "cli/signals.h"

#include <contrail/itrace.h>
#include <contrail/steps.h>
#include <contrail/text.h>
#include <contrail/trace.h>

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_TRACER = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127, STEP_MS = 50 };

struct itrace {
  const char *directory;
  const char *thread; /* its id; NULL: the first one */
  double seconds;     /* 0: until it ends, or contrail is interrupted */
  bool all_threads, is_lossy, is_live, no_vectors, quiet, in_session, json, index;
  const char *function, *from, *to, *condition;
  uint64_t stretches; /* 0: all */
};

static const struct ct_option options[] = {
    {.name = "output",
     .letter = 'o',
     .argument = "DIR",
     .help = "write the steps to DIR, a new or empty directory. Default: " CT_DEFAULT_TRACE
             "; an existing " CT_DEFAULT_TRACE " moves to " CT_DEFAULT_TRACE ".old",
     .values = CT_COMPLETE_DIRECTORY,
     .apply = ct_apply_text,
     .offset = offsetof(struct itrace, directory)},
    {.name = "thread",
     .letter = 't',
     .argument = "TID",
     .help = "record this thread of process PID (default: its first one)",
     .apply = ct_apply_text,
     .offset = offsetof(struct itrace, thread)},
    {.name = "all-threads",
     .letter = 'a',
     .help = "record all threads of the process or program, also those that it makes. Each has its own steps",
     .apply = ct_apply_flag,
     .offset = offsetof(struct itrace, all_threads)},
    {.name = "for",
     .argument = "TIME",
     .help = "release the thread after TIME: 10s, 500ms, 2m (default: on Ctrl-C, or when it ends)",
     .apply = ct_apply_for,
     .offset = offsetof(struct itrace, seconds)},
    {.name = "function",
     .letter = 'F',
     .argument = "PATTERN",
     .help = "record only calls of functions that match, from entry to return. The pattern is one of record "
             "--trace",
     .apply = ct_apply_text,
     .offset = offsetof(struct itrace, function)},
    {.name = "from",
     .argument = "PLACE",
     .help = "record only from PLACE, each time, up to --to: 0x401000, main, main+0x12 (hexadecimal)",
     .apply = ct_apply_text,
     .offset = offsetof(struct itrace, from)},
    {.name = "to",
     .argument = "PLACE",
     .help = "with --from: record up to PLACE",
     .apply = ct_apply_text,
     .offset = offsetof(struct itrace, to)},
    {.name = "when",
     .argument = "CONDITION",
     .help = "record only if CONDITION holds at the first instruction: 'arg1 > 5', 'rsi == 0x10'",
     .apply = ct_apply_text,
     .offset = offsetof(struct itrace, condition)},
    {.name = "limit",
     .letter = 'n',
     .argument = "N",
     .help = "release the thread after N calls, or stretches from --from to --to. 0, the default: record all",
     .most = UINT64_MAX,
     .unit = " of calls",
     .apply = ct_apply_count64,
     .offset = offsetof(struct itrace, stretches)},
    {.name = "lossy",
     .help = "lose records, and count them, when the file does not keep up; without it the thread waits",
     .apply = ct_apply_flag,
     .offset = offsetof(struct itrace, is_lossy)},
    {.name = "live",
     .help = "write what is executed soon, for contrail steps --live",
     .apply = ct_apply_flag,
     .offset = offsetof(struct itrace, is_live)},
    {.name = "no-vector",
     .help = "record no vector and mask registers: smaller and faster",
     .apply = ct_apply_flag,
     .offset = offsetof(struct itrace, no_vectors)},
    {.name = "index",
     .help = "afterwards make the index by which steps --last-write finds the last writer of memory at once; else "
             "the first question about what was written long ago makes it",
     .apply = ct_apply_flag,
     .offset = offsetof(struct itrace, index)},
    {.name = "session",
     .help = "with --function: record calls of a process that a session records, into the session's trace",
     .apply = ct_apply_flag,
     .offset = offsetof(struct itrace, in_session)},
    {.name = "json",
     .help = "with --session: print a line of JSON for each call that ends, and one at the end",
     .apply = ct_apply_flag,
     .offset = offsetof(struct itrace, json)},
    {.name = "quiet",
     .letter = 'q',
     .help = "say nothing but errors",
     .apply = ct_apply_flag,
     .offset = offsetof(struct itrace, quiet)},
    CT_OPTIONS_END,
};

static int
failed(const struct ct_diag *diag)
{
  ct_command_failed(&ct_command_itrace, "%s", diag->text);
  return EXIT_TRACER;
}

/* A new directory, or an empty one of ours. */
static bool
make_directory(const char *path, bool *made, struct ct_diag *diag)
{
  struct stat info;
  *made = mkdir(path, 0700) == 0;
  if (*made) {
    return true;
  }
  if (errno != EEXIST) {
    snprintf(diag->text, sizeof(diag->text), "cannot create %s: %s", path, strerror(errno));
    return false;
  }
  DIR *stream = opendir(path);
  if (stream == NULL || fstat(dirfd(stream), &info) != 0) {
    snprintf(diag->text, sizeof(diag->text), "%s already exists and is not a directory that can be read", path);
    return false;
  }
  bool is_empty = true;
  for (const struct dirent *entry; is_empty && (entry = readdir(stream)) != NULL;) {
    is_empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
  }
  closedir(stream);
  if (!is_empty || info.st_uid != geteuid() || (info.st_mode & 022) != 0) {
    snprintf(diag->text, sizeof(diag->text), "%s already exists and %s; give another name (-o), or remove it", path,
             !is_empty ? "is not empty" : "others may write there");
    return false;
  }
  return true;
}

/* What is not in the files. */
static void
report_missing(const struct itrace *wanted, const struct ct_itrace_summary *s)
{
  char count[CT_COUNT_CHARS];
  if (s->unrecorded != 0) {
    fprintf(stderr, "contrail: %s other thread%s that it made %s not recorded", ct_format_count(count, s->unrecorded),
            s->unrecorded == 1 ? "" : "s", s->unrecorded == 1 ? "is" : "are");
    if (!wanted->all_threads) {
      fputs(" (see --all-threads)", stderr);
    } else if (s->incomplete == 0 && s->why[0] != 0) {
      fputs(": ", stderr);
      ct_put_printable(stderr, s->why, SIZE_MAX);
    }
    fputs("\n", stderr);
  }
  if (s->left != 0) {
    fprintf(stderr,
            "contrail: %s time%s a thread ran on unrecorded, because contrail got no processor for a second: "
            "its steps have gaps there\n",
            ct_format_count(count, s->left), s->left == 1 ? "" : "s");
  }
  if (s->incomplete != 0) {
    fprintf(stderr, "contrail: %s thread%s could not be recorded to the end: ", ct_format_count(count, s->incomplete),
            s->incomplete == 1 ? "" : "s");
    ct_put_printable(stderr, s->why, SIZE_MAX);
    fputs("\n", stderr);
  }
}

static void
report(const struct itrace *wanted, const struct ct_itrace_summary *s)
{
  char steps[CT_COUNT_CHARS], calls[CT_COUNT_CHARS], lost[CT_DURATION_CHARS], size[CT_DURATION_CHARS];
  bool selected = wanted->function != NULL || wanted->from != NULL;
  if (selected && s->stretches == 0) {
    fputs("contrail: nothing was recorded: ", stderr);
    ct_put_printable(stderr, selected && wanted->function != NULL ? wanted->function : wanted->from, SIZE_MAX);
    fputs(s->places == 0              ? " names no function of the program and its libraries\n"
          : wanted->condition != NULL ? " was not called with that condition\n"
                                      : " was not called\n",
          stderr);
    return;
  }
  if (wanted->quiet && s->lost_bytes == 0) {
    if (s->incomplete != 0 || s->left != 0) {
      report_missing(wanted, s);
    }
    return;
  }
  fprintf(stderr, "contrail: %s instructions", ct_format_count(steps, s->recorded));
  if (selected) {
    fprintf(stderr, " of %s %s%s", ct_format_count(calls, s->stretches), wanted->function != NULL ? "call" : "stretch",
            s->stretches == 1          ? ""
            : wanted->function != NULL ? "s"
                                       : "es");
  }
  if (s->threads > 1) {
    fprintf(stderr, " of %s threads", ct_format_count(calls, s->threads));
  }
  fputs(" in ", stderr);
  ct_put_printable(stderr, wanted->directory, SIZE_MAX);
  fprintf(stderr, ", %s", ct_format_bytes(size, s->file_bytes));
  if (s->lost_bytes != 0) {
    fprintf(stderr, "; %s of records are lost: the file did not keep up (see --lossy)",
            ct_format_bytes(lost, s->lost_bytes));
  }
  fputs("; look at it with: contrail steps\n", stderr);
  report_missing(wanted, s);
}

/* What cannot be made now the first question makes, or says why it cannot be made. */
static void
make_index(const struct itrace *wanted)
{
  const struct ct_steps_options options = {.struct_size = sizeof(options), .index = true};
  struct ct_diag diag = {""};
  if (wanted->index && ct_steps_write(wanted->directory, &options, stderr, NULL, &diag) != CT_OK) {
    ct_command_failed(&ct_command_itrace, "no index: %s", diag.text);
  }
}

static void
fill(const struct itrace *wanted, struct ct_itrace_options *begin)
{
  begin->struct_size = sizeof(*begin);
  begin->directory = wanted->directory;
  begin->is_lossless = !wanted->is_lossy;
  begin->is_live = wanted->is_live;
  begin->no_vectors = wanted->no_vectors;
  begin->function = wanted->function;
  begin->from = wanted->from;
  begin->to = wanted->to;
  begin->condition = wanted->condition;
  begin->stretches = wanted->stretches;
  begin->all_threads = wanted->all_threads;
}

/* The thread has ended, the time is over, or contrail has got a signal. */
static void
wait_for_end(const struct ct_itrace *tracer, const struct ct_signals *signals, double seconds)
{
  struct pollfd done = {.fd = ct_itrace_fd(tracer), .events = POLLIN};
  double left = seconds * 1000;
  while (!ct_signals_enough(signals) && (seconds == 0 || left > 0)) {
    int step = seconds == 0 || left > STEP_MS ? STEP_MS : (int)left + 1;
    if (poll(&done, 1, step) == 1) {
      return;
    }
    left -= step;
  }
}

static bool
has_enough(void *context)
{
  return ct_signals_enough(context);
}

static int
trace_thread(const struct itrace *wanted, const char *process)
{
  struct ct_itrace_options begin = {.pid = 0};
  struct ct_itrace_summary summary = {.struct_size = sizeof(summary)};
  struct ct_itrace *tracer;
  struct ct_diag diag = {""};
  int code = ct_parse_pid(&ct_command_itrace, process, &begin.pid);
  begin.tid = begin.pid;
  if (code == CT_EXIT_OK && wanted->thread != NULL) {
    code = ct_parse_pid(&ct_command_itrace, wanted->thread, &begin.tid);
  }
  if (code != CT_EXIT_OK) {
    return code;
  }
  struct ct_signals *signals = ct_signals_create();
  if (signals == NULL) {
    return ct_command_failed(&ct_command_itrace, "out of memory");
  }
  ct_signals_forget_program(signals);
  ct_signals_serve(signals, 0, NULL, NULL);
  fill(wanted, &begin);
  begin.enough = has_enough;
  begin.enough_context = signals;
  code = ct_itrace_begin(&begin, &tracer, NULL, &diag);
  if (code != 0) {
    ct_signals_stop(signals);
    if (code == CT_ECANCELED) {
      snprintf(diag.text, sizeof(diag.text), "interrupted before thread %d had stopped", (int)begin.tid);
    }
    return failed(&diag);
  }
  wait_for_end(tracer, signals, wanted->seconds);
  code = ct_itrace_end(tracer, &summary, &diag);
  ct_signals_stop(signals);
  if (code != 0) {
    return failed(&diag);
  }
  report(wanted, &summary);
  make_index(wanted);
  return CT_EXIT_OK;
}

static int
trace_program(const struct itrace *wanted, char **argv)
{
  struct ct_signals *signals = ct_signals_create();
  struct ct_itrace_options begin = {.argv = argv};
  struct ct_itrace_summary summary = {.struct_size = sizeof(summary)};
  struct ct_itrace *tracer;
  struct ct_diag diag = {""};
  int exec_errno = 0;
  if (signals == NULL) {
    return ct_command_failed(&ct_command_itrace, "out of memory");
  }
  fill(wanted, &begin);
  begin.signal_mask = ct_signals_mask(signals);
  if (ct_itrace_begin(&begin, &tracer, &exec_errno, &diag) != 0) {
    if (exec_errno != 0) {
      ct_command_failed(&ct_command_itrace, "%s: %s", argv[0], strerror(exec_errno));
    } else {
      failed(&diag);
    }
    return exec_errno == 0                                 ? EXIT_TRACER
           : exec_errno == ENOENT || exec_errno == ENOTDIR ? EXIT_NOT_FOUND
                                                           : EXIT_NOT_EXECUTABLE;
  }
  ct_signals_serve(signals, ct_itrace_pid(tracer), NULL, NULL);
  struct pollfd done = {.fd = ct_itrace_fd(tracer), .events = POLLIN};
  if (wanted->seconds == 0) {
    while (poll(&done, 1, -1) != 1) {
    }
  } else {
    poll(&done, 1, (int)(wanted->seconds * 1000));
  }
  pid_t pid = ct_itrace_pid(tracer);
  int code = ct_itrace_end(tracer, &summary, &diag);
  if (code == 0 && !summary.has_ended) { /* it goes on untraced */
    code = waitpid(pid, &summary.wait_status, 0) == pid ? 0 : CT_EIO;
  }
  ct_signals_forget_program(signals);
  ct_signals_stop(signals);
  if (code != 0) {
    return failed(&diag);
  }
  report(wanted, &summary);
  make_index(wanted);
  if (WIFSIGNALED(summary.wait_status)) {
    ct_signals_die_of(signals, WTERMSIG(summary.wait_status));
    return 128 + WTERMSIG(summary.wait_status);
  }
  return WEXITSTATUS(summary.wait_status);
}

/* The calls of a function, by the session that records its process. */
static int
trace_in_session(const struct itrace *wanted, int count, char **words)
{
  const struct ct_itrace_session session = {.session = count > 0 ? words[0] : NULL,
                                            .function = wanted->function,
                                            .condition = wanted->condition,
                                            .calls = wanted->stretches,
                                            .seconds = wanted->seconds,
                                            .quiet = wanted->quiet,
                                            .json = wanted->json};
  if (count > 1) {
    return ct_usage_error(&ct_command_itrace, "'%s' is too much", words[1]);
  }
  if (wanted->function == NULL) {
    return ct_usage_error(&ct_command_itrace, "--session goes with --function");
  }
  if (wanted->directory != NULL || wanted->thread != NULL || wanted->all_threads || wanted->from != NULL ||
      wanted->to != NULL || wanted->is_lossy || wanted->is_live || wanted->no_vectors || wanted->index) {
    return ct_usage_error(&ct_command_itrace,
                          "with --session go --function, --when, --limit, --for, --json and --quiet");
  }
  return ct_itrace_session_run(&session);
}

static int
run_itrace(int argc, char **argv)
{
  struct itrace wanted = {.directory = NULL};
  struct ct_diag diag = {""};
  bool made = false;
  int code = ct_parse(&ct_command_itrace, argc, argv, &wanted);
  if (code != -1) {
    return code;
  }
  bool is_program = optind > 0 && strcmp(argv[optind - 1], "--") == 0;
  if (!is_program && optind < argc) { /* what is no number is no process */
    is_program = argv[optind][strspn(argv[optind], "0123456789")] != '\0';
  }
  if (wanted.in_session) {
    return trace_in_session(&wanted, argc - optind, argv + optind);
  }
  if (wanted.json) {
    return ct_usage_error(&ct_command_itrace, "--json goes with --session");
  }
  bool is_default = wanted.directory == NULL;
  wanted.directory = is_default ? CT_DEFAULT_TRACE : wanted.directory;
  if (argc - optind < 1) {
    return ct_usage_error(&ct_command_itrace, "which program, or which process?");
  }
  if (!is_program && argc - optind > 1) {
    return ct_usage_error(&ct_command_itrace, "one process at a time; a program's arguments follow --");
  }
  if (wanted.thread != NULL && (is_program || wanted.all_threads)) {
    return ct_usage_error(&ct_command_itrace,
                          is_program ? "--thread goes with a process: of a program the first thread is recorded"
                                     : "--thread is for one thread, --all-threads for all: not both");
  }
  if ((wanted.from == NULL) != (wanted.to == NULL) || (wanted.from != NULL && wanted.function != NULL)) {
    return ct_usage_error(&ct_command_itrace, "--from and --to go together, and not with --function");
  }
  bool selected = wanted.from != NULL || wanted.function != NULL;
  if (!selected && (wanted.condition != NULL || wanted.stretches != 0)) {
    return ct_usage_error(&ct_command_itrace, "--when and --limit go with --function, or with --from and --to");
  }
  if ((is_default && ct_trace_move_old(wanted.directory, &diag) != CT_OK) ||
      !make_directory(wanted.directory, &made, &diag)) {
    return failed(&diag);
  }
  code = is_program ? trace_program(&wanted, argv + optind) : trace_thread(&wanted, argv[optind]);
  if (made && code != CT_EXIT_OK) {
    rmdir(wanted.directory); /* if there is nothing in it */
  }
  return code;
}

const struct ct_command ct_command_itrace = {
    .name = "itrace",
    .summary = "record every instruction of a thread, or of all",
    .synopsis = "[OPTION]... [--] PROGRAM [ARG]...\n[OPTION]... [--thread TID] PID\n--session --function PATTERN "
                "[OPTION]... [SESSION]",
    .about = "Records every instruction of the program's first thread, or of a thread of a running process, with\n"
             "the values that it read and wrote. contrail steps shows them. Meanwhile the thread runs translated\n"
             "copies of its code, so it is some times slower, and no debugger can have it. Other threads\n"
             "(without --all-threads) and children are not touched. What system calls write into memory is\n"
             "recorded, up to 64 KiB of each call. With --session it records calls of functions of a process\n"
             "that is recorded (record, attach): from now on until there are as many as --limit says, for the\n"
             "time of --for, or until Ctrl-C. Each call is a line on standard output when it ends.\n"
             "\n" CT_WHICH_SESSION,
    .options = options,
    .closing = "Exit status: the program's own, 128+N when signal N ended it; 0 of a process that runs;\n"
               "125 when recording failed, 126 and 127 when the program cannot be run; 2 for wrong usage.\n"
               "With --session 0; 1 when the session refused or does not answer; 3 when there is none.\n",
    .operands = CT_COMPLETE_PROGRAM,
    .stops_at_operand = true,
    .run = run_itrace,
};
