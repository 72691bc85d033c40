/* SPDX-License-Identifier: MIT */
/* See state.h. */
#include "record/state.h"

#include "base/error.h"

#include <stddef.h>

/* What each step leads to from each state; 0 (uninitialized, which nothing leads to): nowhere. */
static const unsigned char next_state[CT_STEP_COUNT][CT_STATE_COUNT] = {
    [CT_STEP_CREATE] = {[CT_STATE_UNINITIALIZED] = CT_STATE_INITIALIZED},
    [CT_STEP_SPAWN] = {[CT_STATE_INITIALIZED] = CT_STATE_SPAWNING},
    [CT_STEP_STOPPED] = {[CT_STATE_SPAWNING] = CT_STATE_SUSPENDED},
    [CT_STEP_INSTALL] = {[CT_STATE_SUSPENDED] = CT_STATE_ATTACHING},
    [CT_STEP_ATTACH] = {[CT_STATE_INITIALIZED] = CT_STATE_ATTACHING},
    [CT_STEP_HOOKED] = {[CT_STATE_ATTACHING] = CT_STATE_ATTACHED},
    [CT_STEP_RESUME] = {[CT_STATE_ATTACHED] = CT_STATE_RUNNING},
    [CT_STEP_PAUSE] = {[CT_STATE_RUNNING] = CT_STATE_ATTACHED},
    [CT_STEP_DETACH] = {[CT_STATE_ATTACHED] = CT_STATE_DETACHING, [CT_STATE_RUNNING] = CT_STATE_DETACHING},
    [CT_STEP_UNDONE] = {[CT_STATE_DETACHING] = CT_STATE_INITIALIZED},
    [CT_STEP_ENDED] = {[CT_STATE_SPAWNING] = CT_STATE_INITIALIZED,
                       [CT_STATE_SUSPENDED] = CT_STATE_INITIALIZED,
                       [CT_STATE_ATTACHING] = CT_STATE_INITIALIZED,
                       [CT_STATE_ATTACHED] = CT_STATE_INITIALIZED,
                       [CT_STATE_RUNNING] = CT_STATE_INITIALIZED,
                       [CT_STATE_DETACHING] = CT_STATE_INITIALIZED},
    [CT_STEP_FAIL] = {[CT_STATE_SPAWNING] = CT_STATE_FAILED,
                      [CT_STATE_ATTACHING] = CT_STATE_FAILED,
                      [CT_STATE_DETACHING] = CT_STATE_FAILED},
    [CT_STEP_RESET] = {[CT_STATE_FAILED] = CT_STATE_INITIALIZED},
};

const char *
ct_state_name(enum ct_session_state state)
{
  static const char *const names[CT_STATE_COUNT] = {"uninitialized", "initialized", "spawning",
                                                    "suspended",     "attaching",   "attached",
                                                    "running",       "detaching",   "failed"};
  return (unsigned)state < CT_STATE_COUNT ? names[state] : "unknown";
}

const char *
ct_step_name(enum ct_session_step step)
{
  static const char *const names[CT_STEP_COUNT] = {"create", "spawn",  "stopped", "install", "attach",
                                                   "hooked", "resume", "pause",   "detach",  "undone",
                                                   "ended",  "fail",   "reset"};
  return (unsigned)step < CT_STEP_COUNT ? names[step] : "unknown";
}

int
ct_state_go(enum ct_session_state *state, enum ct_session_step step, struct ct_diag *diag)
{
  unsigned next = (unsigned)*state < CT_STATE_COUNT && (unsigned)step < CT_STEP_COUNT ? next_state[step][*state] : 0;
  if (next == 0) {
    return ct_fail(diag, CT_EINVAL, "the session is %s: '%s' is not possible now", ct_state_name(*state),
                   ct_step_name(step));
  }
  *state = (enum ct_session_state)next;
  return 0;
}
