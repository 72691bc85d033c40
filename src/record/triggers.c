/* SPDX-License-Identifier: MIT */
/*
 * What rules set off. The drain finds out when one is true, and makes the mark (drain/rules.c). What else is to be done
 * then, the session's thread does when the post-roll is over: so a dump has it, and a recording that stops too. And the
 * calls for a live session: marks by hand, rules that come and go.
 */
#include "record/session_internal.h"

#include "base/clock.h"
#include "base/sized.h"

#include <string.h>

#define AGAIN_MS 20
#define MARKS_NS 5000000000ull /* between manifests that have no other news than marks in windows that they have */

/* ---- what they set off ---- */

/* The end of the window that is the latest. */
static uint64_t
last_end(struct ct_windows *windows)
{
  struct ct_windows_sums sums;
  struct ct_marked_window window = {0};
  ct_windows_sums(windows, &sums);
  return sums.windows != 0 && ct_windows_get(windows, sums.windows - 1, &window, 1) == 1 ? window.end : 0;
}

/* Where a window ends with an event, when it is over is not known before. */
static bool
is_over(const struct session_triggers *triggers)
{
  struct ct_windows_sums sums;
  struct ct_marked_window window = {0};
  ct_windows_sums(triggers->windows, &sums);
  return sums.windows == 0 || ct_windows_get(triggers->windows, sums.windows - 1, &window, 1) != 1 ||
         window.open_count == 0 || window.end < __builtin_ia32_rdtsc();
}

/* One dump for each window, however many marks are in it. */
static void
want_dump(struct session_triggers *triggers, uint64_t now)
{
  uint64_t post = ct_windows_limits(triggers->windows)->post_events == 0 ? triggers->post_ns : 0;
  struct ct_marked_window window = {0};
  struct ct_windows_sums sums;
  ct_windows_sums(triggers->windows, &sums);
  bool has = sums.windows != 0 && ct_windows_get(triggers->windows, sums.windows - 1, &window, 1) == 1;
  if (triggers->dump_ns == 0 && has && (triggers->dumped_end == 0 || window.begin > triggers->dumped_end)) {
    triggers->dump_ns = now + post;
  }
}

/* The rules, a bit for each, whose action is detail. */
static uint32_t
take_actions(struct ct_session *session, uint64_t now)
{
  uint32_t details = 0;
  struct session_triggers *triggers = &session->triggers;
  /* acquire: pairs with the release of ct_rules_mark */
  uint32_t actions = atomic_exchange_explicit(&triggers->rules->actions, 0, memory_order_acquire);
  for (; actions != 0; actions &= actions - 1) {
    enum ct_rule_action action = triggers->rules->list[__builtin_ctz(actions)].rule.action;
    if (action == CT_ACTION_DETAIL) {
      details |= actions & -actions;
    } else if (action == CT_ACTION_ITRACE) {
      uint32_t slot = (uint32_t)__builtin_ctz(actions);
      session_itrace_allow(session, slot, triggers->rules->list[slot].rule.calls);
    } else if (action == CT_ACTION_DUMP) {
      want_dump(triggers, now);
    } else if (action == CT_ACTION_STOP && triggers->stop_ns == 0) {
      triggers->stop_ns = now + (ct_windows_limits(triggers->windows)->post_events == 0 ? triggers->post_ns : 0);
    }
  }
  return details;
}

/* It has all windows, so with many of them it is not written for each mark. */
static void
refresh_manifest(struct ct_session *session)
{
  struct session_triggers *triggers = &session->triggers;
  struct ct_windows_sums sums;
  ct_windows_sums(triggers->windows, &sums);
  bool is_time = ct_now_ns() - session->recording.manifest_ns > MARKS_NS;
  if (sums.windows != triggers->windows_seen || (sums.marks + sums.refused != triggers->marks_seen && is_time)) {
    triggers->windows_seen = sums.windows;
    triggers->marks_seen = sums.marks + sums.refused;
    session->recording.manifest_is_old = true;
  }
}

/* The smaller one of `ms` and what is left until then. */
static int
ms_until(uint64_t due_ns, uint64_t now, int ms)
{
  uint64_t left = due_ns > now ? (due_ns - now) / 1000000 + 1 : 0;
  return due_ns != 0 && left < (uint64_t)ms ? (int)left : ms;
}

int
session_serve_triggers(struct ct_session *session, int ms)
{
  struct session_triggers *triggers = &session->triggers;
  struct ct_diag diag = {""};
  uint64_t now = ct_now_ns();
  if (triggers->rules == NULL) {
    return ms;
  }
  session_watch_handlers(session);
  ms = session_serve_details(session, take_actions(session, now), ms);
  session_note_dump(session);
  refresh_manifest(session);
  if (((triggers->dump_ns != 0 && now >= triggers->dump_ns) || (triggers->stop_ns != 0 && now >= triggers->stop_ns)) &&
      !is_over(triggers)) {
    return ms < AGAIN_MS ? ms : AGAIN_MS;
  }
  if (triggers->dump_ns != 0 && now >= triggers->dump_ns) {
    triggers->dump_ns = 0;
    triggers->dumped_end = last_end(triggers->windows);
    session_join_dumper(session); /* what the last one took counts */
    if (ct_windows_are_full(triggers->windows)) {
      session_note(session, "no more dumps: windows have all the room on disk that they may have (--max-windows-size)");
    } else if (session_dump_aside(session, &diag) != 0) {
      session_note(session, diag.text);
    }
  }
  if (triggers->stop_ns != 0 && now >= triggers->stop_ns) {
    triggers->stop_ns = 0;
    session_note(session, "a rule has stopped the recording");
    if (triggers->stop(session, &diag) != 0) {
      session_note(session, diag.text);
    }
    return 0;
  }
  return ms_until(triggers->stop_ns, now, ms_until(triggers->dump_ns, now, ms));
}

/* ---- live ---- */

static int
check_recorded(struct ct_session *session, struct ct_diag *diag)
{
  return session->triggers.rules != NULL && session_is_recorded(session)
             ? 0
             : ct_fail(diag, CT_EINVAL, "the session is %s: nothing is recorded",
                       ct_state_name(session->sync.status.state));
}

struct mark_argument {
  const char *name;
  uint64_t tsc;
};

static int
run_mark(struct ct_session *session, void *context, struct ct_diag *diag)
{
  const struct mark_argument *argument = context;
  int code = check_recorded(session, diag);
  if (code != 0) {
    return code;
  }
  int number = session_mark_number(&session->triggers, "by hand", argument->name);
  if (number < 0) {
    return ct_fail(diag, number, "there are %u names of marks already", SESSION_REASONS_MAX);
  }
  const struct ct_mark mark = {
      .tsc = argument->tsc, .thread = UINT32_MAX, .rule = (uint32_t)number, .function = UINT32_MAX};
  bool taken = ct_windows_mark(session->triggers.windows, &mark);
  session_count(session);
  refresh_manifest(session);
  return taken ? 0
         : ct_windows_are_full(session->triggers.windows)
             ? ct_fail(diag, CT_ERANGE,
                       "refused: windows have all the room on disk that they may have "
                       "(--max-windows-size)")
             : ct_fail(diag, CT_ERANGE, "refused: more than %u windows in a minute (--max-windows)",
                       session->options.max_windows != 0 ? session->options.max_windows : CT_WINDOWS_DEFAULT);
}

int
ct_session_mark(struct ct_session *session, const char *name, struct ct_diag *diag)
{
  struct mark_argument argument = {name, __builtin_ia32_rdtsc()};
  return session_command(session, CT_ERROR_INIT, run_mark, &argument, diag);
}

/* Handlers that are there already: the process is stopped for a moment. Without that the agent reports later ones. */
static void
find_handlers(struct ct_session *session, struct ct_session_change *change)
{
  bool was_stopped = session->target.is_stopped;
  session_want_handlers(session);
  if (session_stop_threads(session, NULL) == 0) {
    struct ct_remote remote = session_stopped_remote(session);
    session_read_handlers(session, &remote);
    change->pause_ns = was_stopped ? 0 : session_resume_threads(session);
  }
}

struct rule_argument {
  const char *text;
  struct ct_session_change done;
};

static int
run_add(struct ct_session *session, void *context, struct ct_diag *diag)
{
  struct rule_argument *argument = context;
  struct ct_modules *modules = &session->recording.modules;
  int code = check_recorded(session, diag);
  int slot = code == 0 ? session_add_rule(session, argument->text, diag) : code;
  if (slot >= 0 && session->triggers.rules->list[slot].rule.kind == CT_RULE_SIGNAL) {
    find_handlers(session, &argument->done);
  }
  if (slot < 0 || (session->triggers.rules->list[slot].rule.pattern[0] == '\0' &&
                   session->triggers.rules->list[slot].rule.action != CT_ACTION_ITRACE)) {
    return slot < 0 ? slot : 0;
  }
  ct_plans_lock(modules->plans);
  pthread_mutex_lock(&session->recording.writer_lock);
  code = ct_modules_watch(modules, (uint32_t)slot, session->target.process.pid);
  pthread_mutex_unlock(&session->recording.writer_lock);
  ct_plans_unlock(modules->plans);
  if (code == 0) {
    code = session_rehook(session, &argument->done, diag);
  }
  if (code != 0) {
    session_forget_rule(session, (uint32_t)slot);
    return code;
  }
  argument->done.hooked = modules->watched[slot];
  argument->done.unmatched = modules->watched[slot] == 0;
  session->recording.manifest_is_old = true;
  return 0;
}

int
ct_session_trigger_add(struct ct_session *session, const char *rule, struct ct_session_change *change,
                       struct ct_diag *diag)
{
  struct rule_argument argument = {.text = rule};
  if (change != NULL && ct_sized_give(change, &argument.done, sizeof(argument.done), diag) != 0) {
    return CT_EINVAL;
  }
  int code = session_command(session, CT_ERROR_HOOK, run_add, &argument, diag);
  return code != 0 || change == NULL ? code : ct_sized_give(change, &argument.done, sizeof(argument.done), diag);
}

static int
run_remove(struct ct_session *session, void *context, struct ct_diag *diag)
{
  struct rule_argument *argument = context;
  struct ct_rule rule;
  int code = check_recorded(session, diag);
  bool is_rule = code == 0 && ct_rule_parse(argument->text, &rule, NULL) == 0;
  for (uint32_t slot = 0; is_rule && slot < CT_RULES_MAX; slot++) {
    const struct drain_rule *at = &session->triggers.rules->list[slot];
    if (at->used && strcmp(at->rule.text, rule.text) == 0) {
      bool has_pattern = at->rule.pattern[0] != '\0' || (session->recording.modules.details_on >> slot & 1) != 0;
      session_forget_rule(session, slot);
      session->recording.manifest_is_old = true;
      return has_pattern ? session_rehook(session, &argument->done, diag) : 0;
    }
  }
  return code != 0 ? code : ct_fail(diag, CT_ENOENT, "there is no rule '%.200s'", argument->text);
}

int
ct_session_trigger_remove(struct ct_session *session, const char *rule, struct ct_diag *diag)
{
  struct rule_argument argument = {.text = rule};
  return session_command(session, CT_ERROR_HOOK, run_remove, &argument, diag);
}

static int
run_list(struct ct_session *session, void *context, struct ct_diag *diag)
{
  (void)diag;
  pthread_mutex_lock(&session->recording.writer_lock);
  json_t *json = session->triggers.rules != NULL ? session_rules_json(session) : json_array();
  pthread_mutex_unlock(&session->recording.writer_lock);
  *(char **)context = json_dumps(json, JSON_COMPACT);
  json_decref(json);
  return 0;
}

char *
ct_session_trigger_list(struct ct_session *session)
{
  char *text = NULL;
  session_command(session, CT_ERROR_INIT, run_list, &text, NULL);
  return text;
}
