/* SPDX-License-Identifier: MIT */
/* contrail send: a trace that is complete, or what a recorder that was killed has left of one, to contrail receive. */
#include "cli/sending.h"

#include <contrail/trace.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

struct wanted {
  struct ct_sending sending;
  bool quiet;
};

static const struct ct_option options[] = {
    CT_OPTION_GROUP(ct_sending_options, struct wanted, sending),
    {.name = "quiet",
     .letter = 'q',
     .help = "say nothing but errors",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, quiet)},
    CT_OPTIONS_END,
};

static int
send_it(struct wanted *wanted, const char *directory)
{
  struct ct_diag diag = {""};
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGINT);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGHUP);
  sigaddset(&stops, SIGQUIT);
  int code = ct_sending_connect(&wanted->sending, directory, &diag);
  sigprocmask(SIG_BLOCK, &stops, NULL);
  code = code == CT_OK ? ct_sender_follow(wanted->sending.sender, directory, &diag) : code;
  if (code != CT_OK) {
    ct_sender_destroy(wanted->sending.sender);
    return code == CT_EINVAL ? ct_usage_error(&ct_command_send, "%s", diag.text)
                             : ct_command_failed(&ct_command_send, "%s", diag.text);
  }
  return ct_sending_finish(&wanted->sending, directory, !wanted->quiet, wanted->quiet);
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.quiet = false};
  int code = ct_parse(&ct_command_send, argc, argv, &wanted);
  const char *directory = code == -1 ? ct_trace_argument(&ct_command_send, argc, argv) : NULL;
  if (directory == NULL) {
    return code == -1 ? CT_EXIT_USAGE : code;
  }
  if (wanted.sending.to == NULL) {
    return ct_usage_error(&ct_command_send, "where to? --to ADDRESS");
  }
  code = ct_sending_check(&ct_command_send, &wanted.sending);
  return code == CT_EXIT_OK ? send_it(&wanted, directory) : code;
}

const struct ct_command ct_command_send = {
    .name = "send",
    .summary = "send a trace, or the rest of one, to contrail receive",
    .synopsis = "--to ADDRESS [OPTION]... [DIR]",
    .about = "Sends the trace in DIR (default " CT_DEFAULT_TRACE "), whose recording is over. When record --to or\n"
             "attach --to was killed or could not send all, the receiver gets the rest.\n",
    .options = options,
    .closing = "Exits with 0 when the receiver has confirmed all of it (down a pipe: when all was written); 1\n"
               "when not, 2 for wrong usage.\n",
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
