/* SPDX-License-Identifier: MIT */
/* The steps between the states of a session; <contrail/session.h> draws which leads where. */
#ifndef CT_RECORD_STATE_H
#define CT_RECORD_STATE_H

#include <contrail/session.h>

enum ct_session_step {
  CT_STEP_CREATE = 0,
  CT_STEP_SPAWN,
  CT_STEP_STOPPED,
  CT_STEP_INSTALL,
  CT_STEP_ATTACH,
  CT_STEP_HOOKED,
  CT_STEP_RESUME,
  CT_STEP_PAUSE,
  CT_STEP_DETACH,
  CT_STEP_UNDONE,
  CT_STEP_ENDED, /* the process has ended by itself */
  CT_STEP_FAIL,
  CT_STEP_RESET,
  CT_STEP_COUNT
};

const char *ct_step_name(enum ct_session_step step);
/* Goes the step. CT_EINVAL, with both in diag (which may be NULL), and *state untouched, when it leads nowhere. */
int ct_state_go(enum ct_session_state *state, enum ct_session_step step, struct ct_diag *diag);

#endif
