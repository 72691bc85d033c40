/* SPDX-License-Identifier: MIT */
/* See sending.h. */
#include "cli/sending.h"

#include <contrail/text.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_S = 60 }; /* after the end, for a receiver that has gone or takes nothing */

const struct ct_option ct_sending_options[] = {
    {.name = "to",
     .argument = "ADDRESS",
     .help = "send the trace to `contrail receive` while it is recorded: at unix:PATH or tcp://HOST:PORT; at "
             "nats://HOST:PORT/SUBJECT to any number of receivers; down a pipe with fd:N; to standard output "
             "with -, when what the program writes there goes to standard error. The trace stays in DIR, and "
             "is sent again from there after a cut of the connection",
     .against = "last max-size",
     .apply = ct_apply_text,
     .offset = offsetof(struct ct_sending, to)},
    {.name = "token",
     .argument = "FILE|TEXT",
     .help = "what the receiver of --to asks for: the first line of FILE, or TEXT itself. Needed for tcp. For "
             "nats: what the server asks for, a token or USER:PASSWORD",
     .values = CT_COMPLETE_FILE,
     .apply = ct_apply_text,
     .offset = offsetof(struct ct_sending, token)},
    CT_OPTIONS_END,
};

int
ct_sending_check(const struct ct_command *command, const struct ct_sending *sending)
{
  if (sending->token != NULL && sending->to == NULL) {
    return ct_usage_error(command, "--token is for --to");
  }
  if (sending->to != NULL && strcmp(sending->to, "-") == 0 && isatty(STDOUT_FILENO) == 1) {
    return ct_usage_error(command, "a terminal is no place for a trace: give --to - a pipe or a file");
  }
  return CT_EXIT_OK;
}

/* The stream gets a descriptor that no program inherits; - the one of standard output, in whose place is another. */
static int
take_descriptor(struct ct_sending *sending, struct ct_diag *diag)
{
  bool is_output = strcmp(sending->to, "-") == 0;
  if (!is_output && strncmp(sending->to, "fd:", 3) != 0) {
    return CT_OK;
  }
  char *end = NULL;
  long number = is_output ? STDOUT_FILENO : strtol(sending->to + 3, &end, 10);
  bool is_number = is_output || (end != sending->to + 3 && *end == '\0' && number >= 0 && number <= INT32_MAX);
  if (!is_number || (!is_output && number <= STDERR_FILENO)) {
    snprintf(diag->text, sizeof(diag->text), "%.64s: fd:N is a descriptor from 3 on", sending->to);
    return CT_EINVAL;
  }
  int own = fcntl((int)number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (own < 0 || (is_output ? dup2(STDERR_FILENO, STDOUT_FILENO) : fcntl((int)number, F_SETFD, FD_CLOEXEC)) < 0) {
    snprintf(diag->text, sizeof(diag->text), "%.64s: %s", sending->to, strerror(errno));
    return CT_EIO;
  }
  snprintf(sending->address, sizeof(sending->address), "fd:%d", own);
  return CT_OK;
}

int
ct_sending_connect(struct ct_sending *sending, const char *resumed, struct ct_diag *diag)
{
  char *token = NULL;
  if (sending->to == NULL) {
    return CT_OK;
  }
  int code = sending->token != NULL ? ct_stream_token(sending->token, &token, diag) : CT_OK;
  code = code == CT_OK ? take_descriptor(sending, diag) : code;
  const char *address = sending->address[0] != '\0' ? sending->address : sending->to;
  if (code == CT_OK) {
    code = resumed != NULL ? ct_sender_resume(address, token, resumed, &sending->sender, diag)
                           : ct_sender_connect(address, token, &sending->sender, diag);
  }
  free(token);
  return code;
}

/* Signals that came since the end, which nobody else takes: the user does not want to wait any longer. */
static bool
has_come(void *unused)
{
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  struct timespec at_once = {0, 0};
  sigset_t set;
  (void)unused;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
    sigaddset(&set, numbers[i]);
  }
  return sigtimedwait(&set, NULL, &at_once) > 0;
}

int
ct_sending_finish(struct ct_sending *sending, const char *directory, bool verbose, bool quiet)
{
  struct ct_stream_summary summary = {.struct_size = sizeof(summary)};
  struct ct_diag diag = {""};
  if (sending->sender == NULL) {
    return CT_EXIT_OK;
  }
  int code = ct_sender_finish(sending->sender, PATIENCE_S, has_come, NULL, &summary, &diag);
  sending->sender = NULL;
  if (code != CT_OK && code != CT_EINVAL) {
    fprintf(stderr, "contrail: the trace was not sent whole: %s; it is whole in %s (contrail send)\n", diag.text,
            directory);
    return CT_EXIT_FAILED;
  }
  bool is_fanout = summary.receivers != 0;
  if (verbose || (!quiet && (summary.cuts != 0 || is_fanout))) {
    char bytes[CT_DURATION_CHARS], receivers[48] = "";
    if (is_fanout) {
      snprintf(receivers, sizeof(receivers), ", %zu receiver%s", summary.receivers, summary.receivers == 1 ? "" : "s");
    }
    fprintf(stderr, "contrail: sent to %s%s: %" PRIu64 " files, %s; the connection was lost %" PRIu64 " time%s\n",
            sending->to, receivers, summary.files, ct_format_bytes(bytes, summary.bytes), summary.cuts,
            summary.cuts == 1 ? "" : "s");
  }
  return CT_EXIT_OK;
}
