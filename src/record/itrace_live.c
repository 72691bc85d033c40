/* SPDX-License-Identifier: MIT */
/* Calls that are recorded as instructions: what a caller asks of a live session; see <contrail/session.h>. */
#include "record/session_internal.h"

#include "base/clock.h"
#include "base/sized.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_NS 20000000

struct open_argument {
  const struct ct_session_itrace *wanted;
  uint32_t number;
  struct ct_session_change done;
};

static int
check_recorded(const struct ct_session *session, struct ct_diag *diag)
{
  return session_is_recorded(session) ? 0
                                      : ct_fail(diag, CT_EINVAL, "the session is %s: nothing is recorded",
                                                ct_state_name(session->sync.status.state));
}

static int
run_open(struct ct_session *session, void *context, struct ct_diag *diag)
{
  struct open_argument *argument = context;
  int code = check_recorded(session, diag);
  code = code == 0 ? session_open_wish(session, argument->wanted, &argument->number, diag) : code;
  if (code != 0) {
    return code;
  }
  code = session_rehook(session, &argument->done, diag);
  if (code != 0) {
    session_itrace_forget(session, argument->number);
    return code;
  }
  argument->done.hooked = ct_modules_wished(&session->recording.modules, argument->number);
  argument->done.unmatched = argument->done.hooked == 0;
  session->recording.manifest_is_old = true;
  return 0;
}

int
ct_session_itrace_open(struct ct_session *session, const struct ct_session_itrace *wanted, uint32_t *number,
                       struct ct_session_change *change, struct ct_diag *diag)
{
  struct open_argument argument = {.wanted = wanted};
  if (change != NULL && ct_sized_give(change, &argument.done, sizeof(argument.done), diag) != 0) {
    return CT_EINVAL;
  }
  int code = session_command(session, CT_ERROR_HOOK, run_open, &argument, diag);
  if (code == 0) {
    *number = argument.number;
    code = change != NULL ? ct_sized_give(change, &argument.done, sizeof(argument.done), diag) : 0;
  }
  return code;
}

static int
run_close(struct ct_session *session, void *context, struct ct_diag *diag)
{
  return session_close_wish(session, *(uint32_t *)context, diag);
}

int
ct_session_itrace_close(struct ct_session *session, uint32_t number, struct ct_diag *diag)
{
  return session_command(session, CT_ERROR_HOOK, run_close, &number, diag);
}

struct look {
  uint32_t number;
  bool is_known, is_done;
};

static int
run_look(struct ct_session *session, void *context, struct ct_diag *diag)
{
  struct look *look = context;
  (void)diag;
  look->is_known = look->number < CT_ITRACE_WISHES && session->itrace.wishes[look->number].state != SESSION_WISH_NONE;
  look->is_done = !session_is_recorded(session) || !session_wish_is_open(session, look->number);
  return 0;
}

int
ct_session_itrace_wait(struct ct_session *session, uint32_t number, int timeout_ms)
{
  uint64_t until = ct_now_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000;
  struct timespec step = {0, LOOK_NS};
  for (;;) {
    struct look look = {.number = number};
    session_command(session, CT_ERROR_INIT, run_look, &look, NULL);
    if (!look.is_known || look.is_done) {
      return look.is_known ? 0 : CT_ENOENT;
    }
    if (timeout_ms >= 0 && ct_now_ns() >= until) {
      return CT_ETIMEOUT;
    }
    nanosleep(&step, NULL);
  }
}

static int
run_list(struct ct_session *session, void *context, struct ct_diag *diag)
{
  (void)diag;
  json_t *json = session_itrace_json(session);
  json = json != NULL ? json : json_array();
  *(char **)context = json_dumps(json, JSON_COMPACT);
  json_decref(json);
  return 0;
}

char *
ct_session_itrace_list(struct ct_session *session)
{
  char *text = NULL;
  session_command(session, CT_ERROR_INIT, run_list, &text, NULL);
  return text;
}
