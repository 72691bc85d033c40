/* SPDX-License-Identifier: MIT */
/* contrail attach: record a process that runs. */
#include "cli/closing.h"
#include "cli/processes.h"
#include "cli/quantity.h"
#include "cli/live_view.h"
#include "cli/recording.h"
#include "cli/sending.h"

#include <contrail/control.h>
#include <contrail/session.h>
#include <contrail/text.h>

#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEP_MS = 50, LONG_STEP_MS = 1000 };

struct attach {
  struct ct_session_options options;
  struct ct_sending sending;
  pid_t pid;
  double seconds;     /* 0: until it ends or is interrupted */
  const char *format; /* NULL: our own */
  bool quiet, live;
};

/* A process id, or a name that one process has. */
static int
parse_process(const struct ct_command *command, const char *text, pid_t *pid)
{
  enum { SHOWN = 5 };
  pid_t pids[SHOWN];
  char list[SHOWN * 12] = "";
  if (text[0] >= '0' && text[0] <= '9') {
    return ct_parse_pid(command, text, pid);
  }
  size_t count = ct_processes_named(text, pids, SHOWN);
  if (count == 1) {
    *pid = pids[0];
    return CT_EXIT_OK;
  }
  if (count == 0) {
    return ct_usage_error(command, "there is no process named '%s'", text);
  }
  for (size_t i = 0, at = 0; i < count && i < SHOWN; i++) {
    at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%d", i == 0 ? "" : ", ", (int)pids[i]);
  }
  return ct_usage_error(command, "%zu processes are named '%s' (%s%s): which one?", count, text, list,
                        count > SHOWN ? ", ..." : "");
}

static int
apply_deadline(const struct ct_applied *applied)
{
  double seconds;
  if (!ct_parse_duration(applied->value, true, &seconds) || seconds > 3600) {
    return ct_usage_error(applied->command, "--deadline takes a time such as 10s or 500ms, not '%s'", applied->value);
  }
  *(uint32_t *)applied->member = seconds < 0.001 ? 1 : (uint32_t)(seconds * 1000);
  return CT_EXIT_OK;
}

static const struct ct_option options[] = {
    CT_OPTION_OUTPUT(struct attach, options),
    CT_OPTION_FORMAT(struct attach, format),
    {.name = "for",
     .argument = "TIME",
     .help = "detach after TIME: 10s, 500ms, 2m (default: on Ctrl-C, SIGTERM or SIGHUP, or when the process "
             "ends)",
     .apply = ct_apply_for,
     .offset = offsetof(struct attach, seconds)},
    {.name = "deadline",
     .argument = "TIME",
     .help = "give up when the hooks are not in after TIME, and leave the process as it was (default: 3 s and "
             "50 us for each function)",
     .apply = apply_deadline,
     .offset = offsetof(struct attach, options.deadline_ms)},
    {.name = "follow",
     .letter = 'f',
     .help = "record the children that the process makes from now on too, and theirs, each in a directory "
             "process-PID in DIR",
     .apply = ct_apply_flag,
     .offset = offsetof(struct attach, options.follow)},
    {.name = "live",
     .help = "show the process's functions meanwhile, as contrail top does: a screen with keys, or tables "
             "where standard input or output is no terminal. The key q leaves the screen; Ctrl-C detaches",
     .against = "last max-size",
     .apply = ct_apply_flag,
     .offset = offsetof(struct attach, live)},
    CT_OPTION_GROUP(ct_sending_options, struct attach, sending),
    CT_OPTION_GROUP(ct_recording_options, struct attach, options),
    {.name = "quiet",
     .letter = 'q',
     .help = "say nothing but errors",
     .apply = ct_apply_flag,
     .offset = offsetof(struct attach, quiet)},
    CT_OPTIONS_END,
};

/* PID|NAME [PATTERN]...; CT_EXIT_OK, or the exit code. */
static int
take_operands(struct attach *attach, int argc, char **argv)
{
  if (optind >= argc && argc > 2 && strcmp(argv[argc - 2], "--detail") == 0) {
    return ct_usage_error(&ct_command_attach, "which process? '%s' is the pattern of --detail (--detail all PID)",
                          argv[argc - 1]);
  }
  if (optind >= argc) {
    return ct_usage_error(&ct_command_attach, "which process?");
  }
  for (int i = optind + 1; i < argc; i++) {
    int code = ct_select_pattern(&ct_command_attach, argv[i], &attach->options.selection);
    if (code != CT_EXIT_OK) {
      return code;
    }
  }
  return parse_process(&ct_command_attach, argv[optind], &attach->pid);
}

static double
now_seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A thread that waits for the session, so that the first one can sleep until that or a signal: see await_end. */
struct waiter {
  struct ct_session *session;
  pthread_t thread;
  atomic_bool enough; /* relaxed: all that it says */
  int finished;       /* an eventfd, readable when the session has finished; -1: there is no such thread */
};

static void *
wait_for_session(void *argument)
{
  struct waiter *waiter = argument;
  while (!atomic_load_explicit(&waiter->enough, memory_order_relaxed)) {
    if (ct_session_wait(waiter->session, LONG_STEP_MS) != CT_ETIMEOUT) {
      eventfd_write(waiter->finished, 1);
      break;
    }
  }
  return NULL;
}

static void
start_waiter(struct waiter *waiter, struct ct_session *session)
{
  waiter->session = session;
  waiter->finished = eventfd(0, EFD_CLOEXEC);
  if (waiter->finished >= 0 && pthread_create(&waiter->thread, NULL, wait_for_session, waiter) != 0) {
    close(waiter->finished);
    waiter->finished = -1;
  }
}

/* Once the session has finished it comes back at once. */
static void
join_waiter(struct waiter *waiter)
{
  if (waiter->finished >= 0) {
    atomic_store_explicit(&waiter->enough, true, memory_order_relaxed);
    pthread_join(waiter->thread, NULL);
    close(waiter->finished);
  }
}

/* Until the process has ended, the time is over, or somebody interrupts. */
static void
await_end(struct ct_session *session, const struct waiter *waiter, const sigset_t *stops, double seconds)
{
  double end = now_seconds() + seconds;
  int signals = waiter->finished >= 0 ? signalfd(-1, stops, SFD_CLOEXEC) : -1;
  struct pollfd polled[2] = {{.fd = signals, .events = POLLIN}, {.fd = waiter->finished, .events = POLLIN}};
  int step_ms = signals >= 0 ? LONG_STEP_MS : STEP_MS;
  double left_ms = step_ms;
  while (left_ms > 0) {
    /* Asked once a turn: the time may be over by now, and poll takes what is below 0 for ever. */
    left_ms = seconds > 0 ? (end - now_seconds()) * 1e3 : step_ms;
    poll(polled, signals >= 0 ? 2 : 0, left_ms <= 0 ? 0 : left_ms < step_ms ? (int)left_ms + 1 : step_ms);
    struct timespec at_once = {0, 0};
    if (sigtimedwait(stops, NULL, &at_once) > 0 || ct_session_wait(session, 0) == 0) {
      break;
    }
  }
  if (signals >= 0) {
    close(signals);
  }
}

static double
ms(uint64_t ns)
{
  return (double)ns / 1e6;
}

static void
report_attached(const struct ct_session_status *status)
{
  char hooked[CT_COUNT_CHARS], threads[CT_COUNT_CHARS];
  fprintf(stderr,
          "contrail: attached to process %d: %s functions hooked, %s thread%s stopped for %.1f ms; Ctrl-C detaches\n",
          (int)status->pid, ct_format_count(hooked, status->hooked), ct_format_count(threads, status->threads),
          status->threads == 1 ? "" : "s", ms(status->attach_ns));
}

static void
report_end(const struct attach *attach, const struct ct_session_status *status)
{
  char events[CT_COUNT_CHARS];
  if (status->detached) {
    fprintf(stderr, "contrail: detached from process %d: %s events, stopped for %.1f ms, in %s\n", (int)status->pid,
            ct_format_count(events, status->events), ms(status->detach_ns), attach->options.directory);
  } else {
    fprintf(stderr, "contrail: process %d has ended: %s events in %s\n", (int)status->pid,
            ct_format_count(events, status->events), attach->options.directory);
  }
  if (status->children_missed) {
    fputs("contrail: children of the process were not recorded; contrail attach --follow records those that it makes "
          "from then on\n",
          stderr);
  }
  if (status->kept) {
    fprintf(stderr,
            "contrail: note: a thread has not left a hook yet (a signal handler runs above it, or others have the "
            "processors); contrail clean %d takes the rest out later\n",
            (int)status->pid);
  }
}

static struct ct_session *detaching; /* for the signal handler */

static void
on_expedite(int signal)
{
  (void)signal;
  ct_session_expedite(detaching);
}

/* One more interruption: what takes long is not waited for any more. */
static void
let_be_expedited(struct ct_session *session, const sigset_t *stops)
{
  struct sigaction action = {.sa_handler = on_expedite, .sa_flags = SA_RESTART};
  detaching = session;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGHUP, &action, NULL);
  sigprocmask(SIG_UNBLOCK, stops, NULL);
}

/* From here on an interruption detaches. */
static int
attach_to(const struct attach *attach, struct ct_session *session, const sigset_t *stops, pid_t *view,
          struct waiter *waiter, struct ct_diag *diag)
{
  struct ct_session_status status = {.struct_size = sizeof(status)};
  int code = ct_session_attach(session, attach->pid, diag);
  if (code == 0 && attach->sending.sender != NULL) {
    code = ct_sender_follow(attach->sending.sender, attach->options.directory, diag);
  }
  if (code != 0) {
    return code;
  }
  struct ct_control *control = ct_open_control(session);
  code = ct_session_resume(session, diag);
  ct_session_get_status(session, &status);
  /* Others may have been faster: a signal that killed it while it was stopped, or contrail resume, or stop. */
  if (code != 0 && !status.ended && !status.detached && status.state != CT_STATE_RUNNING) {
    ct_control_close(control);
    return code;
  }
  if (!attach->quiet) {
    report_attached(&status);
  }
  *view = attach->live ? ct_live_view_start(control, false) : 0;
  start_waiter(waiter, session);
  await_end(session, waiter, stops, attach->seconds);
  ct_control_close(control);
  ct_session_get_status(session, &status);
  if (status.detached) { /* by contrail stop */
    return 0;
  }
  let_be_expedited(session, stops);
  if (status.ended) {
    struct ct_diag unused;
    if (status.children_live != 0) { /* detached by this, and not by the close, which cannot be expedited */
      ct_session_detach(session, &unused);
    }
    return 0;
  }
  code = ct_session_detach(session, diag);
  ct_session_get_status(session, &status);
  return status.ended ? 0 : code; /* it may have ended just then */
}

static int
attach_it(struct attach *attach)
{
  struct ct_session *session;
  pid_t view = 0; /* of --live */
  struct waiter waiter = {.finished = -1};
  struct ct_session_status status = {.struct_size = sizeof(status)};
  struct ct_diag diag = {""}, closing = {""};
  static const int ends[] = {SIGINT,  SIGTERM, SIGHUP,    SIGQUIT, SIGUSR1, SIGUSR2,
                             SIGALRM, SIGXCPU, SIGVTALRM, SIGPROF, SIGIO};
  sigset_t stops;
  sigemptyset(&stops); /* whatever would end us: the process must not be left with hooks */
  for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
    sigaddset(&stops, ends[i]);
  }
  sigprocmask(SIG_BLOCK, &stops, NULL);
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  int code = ct_sending_connect(&attach->sending, NULL, &diag);
  code = code == CT_OK ? ct_session_create(&attach->options, &session, &diag) : code;
  if (code == 0) {
    code = attach_to(attach, session, &stops, &view, &waiter, &diag);
    sigprocmask(SIG_BLOCK, &stops, NULL); /* the session goes */
    join_waiter(&waiter);
    int closed = ct_session_close(session, &status, &closing);
    ct_live_view_end(view);
    if (code == 0 && closed != 0) {
      code = closed;
      diag = closing;
    }
  }
  int sent = ct_sending_finish(&attach->sending, attach->options.directory, false, attach->quiet);
  if (code != 0) {
    fprintf(stderr, "contrail: %s\n", diag.text);
    return CT_EXIT_RECORDING;
  }
  if (!attach->quiet) {
    report_end(attach, &status);
  }
  ct_recording_warn(&attach->options, &status);
  bool is_good = status.ended || ct_report_gaps(&attach->options, &status);
  code = ct_convert_trace(&attach->options, attach->format, attach->quiet);
  return is_good && sent == CT_EXIT_OK ? code : CT_EXIT_RECORDING;
}

static int
run_attach(int argc, char **argv)
{
  struct attach attach = {.options = {.struct_size = sizeof(attach.options)}};
  int code = ct_parse(&ct_command_attach, argc, argv, &attach);
  if (code == -1 && ct_check_format(&ct_command_attach, &attach.options, attach.format) != CT_EXIT_OK) {
    code = CT_EXIT_USAGE;
  }
  if (code == -1 && ct_sending_check(&ct_command_attach, &attach.sending) != CT_EXIT_OK) {
    code = CT_EXIT_USAGE;
  }
  if (code == -1) {
    ct_place_trace(&attach.options);
    code = take_operands(&attach, argc, argv);
    code = code == CT_EXIT_OK ? attach_it(&attach) : code;
    ct_sender_destroy(attach.sending.sender);
  }
  ct_recording_options_free(&attach.options);
  return code;
}

const struct ct_command ct_command_attach = {
    .name = "attach",
    .summary = "record a process that runs already",
    .synopsis = "[OPTION]... PID|NAME [PATTERN]...",
    .about = "NAME is the name of a program that only one process runs. Each PATTERN is one of --trace.\n",
    .options = options,
    .closing = "The process is stopped while the hooks go in and come out again; contrail prints for how long.\n"
               "Then it is as it was before. Exits with 0, 125 when contrail could not attach to it or record\n"
               "it, 2 for wrong usage, also when no process, or several, have the NAME.\n",
    .operands = CT_COMPLETE_PROCESS,
    .run = run_attach,
};
