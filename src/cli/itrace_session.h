/* SPDX-License-Identifier: MIT */
/* contrail itrace --session: calls that are recorded as instructions by a session that records the process already. */
#ifndef CT_CLI_ITRACE_SESSION_H
#define CT_CLI_ITRACE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

struct ct_itrace_session {
  const char *session; /* NULL: the only one */
  const char *function, *condition;
  uint64_t calls; /* 0: as many as there may be */
  double seconds; /* 0: any time */
  bool quiet, json;
};

/* Opens them, waits until all have ended, or the session has, or the time is over, or a signal comes, closes them and
 * says what there is. Gives the exit code. */
int ct_itrace_session_run(const struct ct_itrace_session *wanted);

#endif
