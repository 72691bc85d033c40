/* SPDX-License-Identifier: MIT */
/* Calls that are recorded as instructions: what a caller asks of a live session; see <contrail/session.h>. */
#include "record/itrace_live.h"
#include "record/session_internal.h"

#include "base/json.h"
#include "base/sized.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

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
  session_report_probes(session); /* what has become of the one whose place it takes */
  code = code == 0 ? session_open_probe(session, argument->wanted, &argument->number, diag) : code;
  if (code != 0) {
    return code;
  }
  code = session_rehook(session, &argument->done, diag);
  if (code != 0) {
    session_itrace_forget(session, argument->number);
    return code;
  }
  argument->done.hooked = ct_modules_probed(&session->recording.modules, argument->number);
  argument->done.unmatched = argument->done.hooked == 0;
  session_report_probes(session); /* it is open: however soon it is over, those who have subscribed are notified */
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
  return session_close_probe(session, *(uint32_t *)context, diag);
}

int
ct_session_itrace_close(struct ct_session *session, uint32_t number, struct ct_diag *diag)
{
  return session_command(session, CT_ERROR_HOOK, run_close, &number, diag);
}

void
session_report_probes(struct ct_session *session)
{
  const struct session_itrace *itrace = &session->itrace;
  uint64_t over[CT_ITRACE_PROBES]; /* serials; 0: it is not */
  bool changed = false;
  if (itrace->serials == 0) {
    return;
  }
  bool is_recorded = session_is_recorded(session);
  pthread_mutex_lock(&session->sync.guard);
  for (uint32_t i = 0; i < CT_ITRACE_PROBES; i++) {
    const struct session_probe *probe = &itrace->probes[i];
    struct session_probe_seen *seen = &session->sync.probes[i];
    /* of a process that has ended calls are still being collected, as long as its image is there */
    bool is_open = is_recorded ? session_probe_is_open(session, i)
                               : session->recording.image_live && session_probe_is_busy(session, i);
    struct session_probe_seen now = {
        .serial = probe->serial, .ended = probe->recorded + probe->cut, .is_open = is_open};
    if (now.serial == 0) { /* the recording has ended, what has become of its probes stays */
      now = *seen;
      now.is_open = false;
    }
    over[i] = seen->is_open && (!now.is_open || now.serial != seen->serial) ? seen->serial : 0;
    changed |= seen->serial != now.serial || seen->is_open != now.is_open || seen->ended != now.ended;
    *seen = now;
  }
  if (changed) {
    pthread_cond_broadcast(&session->sync.changed);
  }
  pthread_mutex_unlock(&session->sync.guard);
  for (uint32_t i = 0; i < CT_ITRACE_PROBES; i++) {
    if (over[i] != 0) {
      session_feed_over(session, i, over[i], session_probe_outcome(session, i, over[i]));
    }
  }
}

/* Under the guard. */
static bool
is_over(const struct ct_session *session, const struct session_itrace_wait *wait)
{
  const struct session_probe_seen *seen = &session->sync.probes[wait->number];
  return seen->serial != wait->serial || !seen->is_open || seen->ended > wait->after;
}

/* What is known is as of now. */
static int
run_begin(struct ct_session *session, void *context, struct ct_diag *diag)
{
  struct session_itrace_wait *wait = context;
  (void)diag;
  session_report_probes(session);
  wait->serial = session->sync.probes[wait->number].serial; /* only this thread changes it */
  return 0;
}

int
session_itrace_wait_begin(struct ct_session *session, uint32_t number, uint64_t after, struct session_itrace_wait *wait)
{
  *wait = (struct session_itrace_wait){.number = number, .after = after};
  if (number < CT_ITRACE_PROBES) {
    session_command(session, CT_ERROR_INIT, run_begin, wait, NULL);
  }
  return wait->serial != 0 ? 0 : CT_ENOENT;
}

bool
session_itrace_wait_is_over(struct ct_session *session, const struct session_itrace_wait *wait)
{
  pthread_mutex_lock(&session->sync.guard);
  bool over = is_over(session, wait);
  pthread_mutex_unlock(&session->sync.guard);
  return over;
}

bool
session_itrace_wait_is_of(struct ct_session *session, const struct session_itrace_wait *wait)
{
  pthread_mutex_lock(&session->sync.guard);
  bool same = session->sync.probes[wait->number].serial == wait->serial;
  pthread_mutex_unlock(&session->sync.guard);
  return same;
}

int
ct_session_itrace_wait(struct ct_session *session, uint32_t number, int timeout_ms)
{
  struct session_itrace_wait wait;
  struct timespec until;
  int late = 0, code = session_itrace_wait_begin(session, number, UINT64_MAX, &wait);
  if (code != 0) {
    return code;
  }
  clock_gettime(CLOCK_REALTIME, &until);
  int64_t ns = until.tv_nsec + (int64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000;
  until.tv_sec += ns / 1000000000;
  until.tv_nsec = ns % 1000000000;
  pthread_mutex_lock(&session->sync.guard);
  while (!is_over(session, &wait) && late == 0) {
    late = timeout_ms < 0 ? pthread_cond_wait(&session->sync.changed, &session->sync.guard)
                          : pthread_cond_timedwait(&session->sync.changed, &session->sync.guard, &until);
  }
  code = is_over(session, &wait) ? 0 : CT_ETIMEOUT;
  pthread_mutex_unlock(&session->sync.guard);
  return code;
}

struct subscribe_argument {
  struct ct_itrace_feed *feed;
  uint32_t number;
  bool is_begun;
};

static int
run_subscribe(struct ct_session *session, void *context, struct ct_diag *diag)
{
  struct subscribe_argument *argument = context;
  uint32_t number = argument->number;
  uint64_t serial = 0;
  const char *outcome = NULL;
  (void)diag;
  session_report_probes(session); /* what is known is as of now */
  if (number < CT_ITRACE_PROBES) {
    serial = session->sync.probes[number].serial;
    outcome = session->sync.probes[number].is_open ? NULL : session_probe_outcome(session, number, serial);
  }
  argument->is_begun = number == CT_ITRACE_EVERY || serial != 0;
  if (argument->is_begun) {
    session_feed_begin(session, argument->feed, serial, outcome);
  }
  return 0;
}

int
ct_session_itrace_subscribe(struct ct_session *session, uint32_t number, struct ct_itrace_feed **out,
                            struct ct_diag *diag)
{
  struct subscribe_argument argument = {.feed = session_feed_create(number), .number = number};
  if (argument.feed == NULL) {
    return ct_fail(diag, CT_ENOMEM, "no memory, or no descriptor, for a subscription");
  }
  session_command(session, CT_ERROR_INIT, run_subscribe, &argument, NULL);
  if (!argument.is_begun) {
    session_feed_drop(argument.feed);
    return ct_fail(diag, CT_ENOENT, "there is no itrace of number %u", number);
  }
  *out = argument.feed;
  return 0;
}

static int
run_list(struct ct_session *session, void *context, struct ct_diag *diag)
{
  (void)diag;
  json_t *json = session_itrace_json(session);
  json = json != NULL ? json : session->itrace.last != NULL ? json_incref(session->itrace.last) : json_array();
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

struct ended_argument {
  const struct session_itrace_wait *wait;
  char *text;
};

static json_t *
ended_json(const struct itrace_ended *ended)
{
  return json_pack("{s:I, s:i, s:o, s:I, s:I, s:I, s:s}", "call", (json_int_t)ended->ordinal, "tid", ended->tid,
                   "function", ended->name != NULL ? ct_json_string(ended->name) : json_null(), "fn",
                   (json_int_t)ended->fn, "first_step", (json_int_t)ended->first_step, "steps",
                   (json_int_t)ended->steps, "outcome", ended->outcome);
}

static int
run_ended(struct ct_session *session, void *context, struct ct_diag *diag)
{
  struct ended_argument *argument = context;
  const struct session_itrace *itrace = &session->itrace;
  uint64_t count = itrace->ended_count, kept = count < ITRACE_ENDED_KEPT ? count : ITRACE_ENDED_KEPT;
  uint64_t after = argument->wait->after != UINT64_MAX ? argument->wait->after : 0; /* none said: all */
  json_t *list = json_array();
  (void)diag;
  for (uint64_t i = count - kept; i < count; i++) {
    const struct itrace_ended *ended = &itrace->ended[i % ITRACE_ENDED_KEPT];
    if (ended->serial == argument->wait->serial && ended->ordinal > after) {
      json_array_append_new(list, ended_json(ended));
    }
  }
  argument->text = json_dumps(list, JSON_COMPACT);
  json_decref(list);
  return 0;
}

char *
session_itrace_ended(struct ct_session *session, const struct session_itrace_wait *wait)
{
  struct ended_argument argument = {.wait = wait};
  session_command(session, CT_ERROR_INIT, run_ended, &argument, NULL);
  return argument.text;
}
