/* SPDX-License-Identifier: MIT */
/* What record, attach and send share: a trace that is sent to `contrail receive`. */
#ifndef CT_CLI_SENDING_H
#define CT_CLI_SENDING_H

#include "cli/command.h"

#include <contrail/stream.h>

struct ct_sending {
  const char *to, *token; /* as given, or NULL */
  char address[32];       /* in place of `to`: of -, and fd:N */
  struct ct_sender *sender;
};

extern const struct ct_option ct_sending_options[]; /* --to, --token. Member: struct ct_sending */

/* Options that do not go together. CT_EXIT_OK, or CT_EXIT_USAGE after a message. */
int ct_sending_check(const struct ct_command *command, const struct ct_sending *sending);
/*
 * Connects, if that is asked for: a receiver that is not there, or that refuses, is known before anything is run.
 * resumed: the directory of a trace that is complete; else NULL, and ct_sender_follow is to be called. With --to -
 * standard output is that of the stream from here on, and what else is written there goes to standard error.
 */
int ct_sending_connect(struct ct_sending *sending, const char *resumed, struct ct_diag *diag);
/*
 * The trace is complete here; till it is there, too, or a signal comes. SIGINT, SIGTERM, SIGHUP and SIGQUIT must be
 * blocked. CT_EXIT_OK, also when nothing is sent; CT_EXIT_FAILED after a message.
 */
int ct_sending_finish(struct ct_sending *sending, const char *directory, bool verbose, bool quiet);

#endif
