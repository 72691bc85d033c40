/* SPDX-License-Identifier: MIT */
/*
 * The states of a session, and which step leads from which to which.
 *
 *   initialized --spawn--> spawning --held--> suspended --install--> attaching --hooked--> attached
 *   initialized --attach-> attaching                                 attached <--resume/pause--> running
 *   attached, running --detach--> detaching --undone--> initialized
 *   any of a process --ended--> initialized       spawning, attaching, detaching --fail--> failed --reset--> initialized
 *
 * suspended: the process is held before its first instruction, nothing is hooked. attached: it is held, and hooked.
 */
#ifndef CT_RECORD_STATE_H
#define CT_RECORD_STATE_H

#include "base/error.h"

enum ct_session_state {
  CT_STATE_UNINITIALIZED = 0,
  CT_STATE_INITIALIZED,
  CT_STATE_SPAWNING,
  CT_STATE_SUSPENDED,
  CT_STATE_ATTACHING,
  CT_STATE_ATTACHED,
  CT_STATE_RUNNING,
  CT_STATE_DETACHING,
  CT_STATE_FAILED,
  CT_STATE_COUNT
};

enum ct_session_step {
  CT_STEP_CREATE = 0,
  CT_STEP_SPAWN,
  CT_STEP_HELD,
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

/* "running"; never NULL. */
const char *ct_state_name(enum ct_session_state state);
const char *ct_step_name(enum ct_session_step step);
/* Goes the step. CT_EINVAL, with both in diag (which may be NULL), and *state untouched, when it leads nowhere. */
int ct_state_go(enum ct_session_state *state, enum ct_session_step step, struct ct_diag *diag);

#endif
