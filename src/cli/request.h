/* SPDX-License-Identifier: MIT */
/* One session, one call: what contrail status, pause, resume and stop share, and how a session is shown. */
#ifndef CT_CLI_REQUEST_H
#define CT_CLI_REQUEST_H

#include "cli/ask.h"

/* What the options of these commands choose. */
struct ct_session_wanted {
  bool json, end;
};

struct ct_session_request {
  const struct ct_command *command;
  const char *method;
  int timeout_ms;
  void (*show)(const json_t *status);
};

/* Takes the command's words, asks the session and shows its answer. Gives the exit code. */
int ct_session_request(const struct ct_session_request *request, int argc, char **argv);

/* --json of those that change something. */
extern const struct ct_option ct_session_change_options[];
/* "ID is paused", or whatever it is. */
void ct_session_show_state(const json_t *status);
/* On stdout, where it lost events: as the views of its trace begin. */
void ct_session_put_lost(const json_t *status);
/* When it began, by the local clock. */
void ct_session_format_since(char *buf, size_t size, const json_t *status);

#endif
