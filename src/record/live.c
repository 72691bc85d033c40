/* SPDX-License-Identifier: MIT */
/*
 * Changing what is traced in a live session; see <contrail/session.h>. What is to be hooked is found out first; then
 * the process is held, and what differs is changed. Where a thread stands in the bytes to be patched it is let go and
 * held again, a few times.
 *
 * A family has one set of patterns. Whoever asks has first the first process changed, then each child, by its own
 * thread. A child that is just being born when the patterns change has a generation that is older, and catches up.
 */
#include "record/session_internal.h"

#include "base/sized.h"
#include "hook/select.h"

#include <contrail/exclude.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRIES  50
#define TRY_NS 2000000

enum what { TRACE_ADD, TRACE_REMOVE, EXCLUDE_ADD, EXCLUDE_REMOVE };

struct change_argument {
  enum what what;
  const char *pattern;
  enum ct_select_mode mode;
  struct ct_session_change done;
};

static int
change_patterns(struct ct_session *session, const struct change_argument *argument, struct ct_diag *diag)
{
  struct ct_selection *selection = session->options.selection;
  struct ct_exclude *exclude = session->options.exclude;
  struct ct_diag why = {""};
  int code = 0;
  switch (argument->what) {
  case TRACE_ADD:
    code = ct_selection_add(selection, argument->pattern, argument->mode, &why);
    break;
  case TRACE_REMOVE:
    code = ct_selection_remove(selection, argument->pattern);
    break;
  case EXCLUDE_ADD:
    code = ct_exclude_add(exclude, argument->pattern, &why);
    break;
  default:
    code = ct_exclude_remove(exclude, argument->pattern);
    break;
  }
  if (code == CT_ENOENT) {
    return ct_fail(diag, code, "there is no pattern '%.200s'", argument->pattern);
  }
  return code == 0 ? 0
                   : ct_fail(diag, code, "pattern '%.200s': %s", argument->pattern,
                             why.text[0] != '\0' ? why.text : ct_err_text(code));
}

/* One time: hold, change, let go. */
static int
change_once(struct ct_session *session, struct ct_choice *choices, size_t *busy, uint64_t *pause_ns,
            struct ct_diag *diag)
{
  bool was_frozen = session->is_frozen;
  uint64_t begin = session_now_ns();
  int code = session_hold(session, diag);
  if (code != 0) {
    return code;
  }
  struct ct_remote remote = session_frozen_remote(session);
  code = ct_modules_change(&session->modules, &remote, &session->image.place, choices, busy, diag);
  uint64_t pause = was_frozen ? session_now_ns() - begin : session_let_go(session);
  *pause_ns = pause > *pause_ns ? pause : *pause_ns;
  return code;
}

static int
apply(struct ct_session *session, size_t *busy, uint64_t *pause_ns, struct ct_diag *diag)
{
  struct ct_choice *choices = ct_modules_choose(&session->modules, session->process.pid);
  if (choices == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  int tries = session->is_frozen ? 1 : TRIES;
  int code = change_once(session, choices, busy, pause_ns, diag);
  while (code == 0 && *busy != 0 && --tries > 0) {
    struct timespec wait = {0, TRY_NS};
    nanosleep(&wait, NULL);
    code = change_once(session, choices, busy, pause_ns, diag);
  }
  ct_modules_choices_free(&session->modules, choices);
  return code;
}

static bool
is_recorded(const struct ct_session *session)
{
  enum ct_session_state state = session->status.state;
  return (state == CT_STATE_RUNNING || state == CT_STATE_ATTACHED) && session->image_live;
}

/* Has what is hooked become what the patterns say. The plans are locked. */
static int
bring_up_to_date(struct ct_session *session, struct ct_session_change *change, struct ct_diag *diag)
{
  size_t functions;
  uint32_t generation = session->family != NULL ? family_generation(session->family) : 0;
  ct_modules_count(&session->modules, &functions, &change->before);
  int code = apply(session, &change->busy, &change->pause_ns, diag);
  if (code == 0) {
    session->generation = generation;
    ct_modules_count(&session->modules, &functions, &change->hooked);
  }
  return code;
}

static void
note_change(struct ct_session *session, const struct change_argument *argument, const struct ct_session_change *change)
{
  static const char *const names[] = {"trace", "untrace", "exclude", "include"};
  ct_manifest_change(&session->manifest, names[argument->what], argument->pattern, change->hooked, change->pause_ns);
  ct_plans_lock(session->modules.plans);
  ct_manifest_exclude(&session->manifest, session->options.exclude);
  ct_plans_unlock(session->modules.plans);
  session->manifest_is_old = true;
  session_count(session);
}

static bool
has_children(struct ct_session *session)
{
  pthread_mutex_lock(&session->guard);
  bool has = session->family != NULL && session->options.wait_for_all && session->status.children_live != 0;
  pthread_mutex_unlock(&session->guard);
  return has;
}

static int
run_change(struct ct_session *session, void *context, struct ct_diag *diag)
{
  struct change_argument *argument = context;
  enum ct_session_state state = session->status.state;
  bool recorded = is_recorded(session);
  if (!recorded && !has_children(session)) {
    return ct_fail(diag, CT_EINVAL, "the session is %s: what is traced can be changed while it runs",
                   ct_state_name(state));
  }
  struct ct_plans *plans = session->family != NULL ? ct_family_plans(session->family) : session->modules.plans;
  ct_plans_lock(plans);
  int code = change_patterns(session, argument, diag);
  if (code == 0 && session->family != NULL) {
    family_change(session->family);
  }
  if (code == 0 && recorded) {
    code = bring_up_to_date(session, &argument->done, diag);
  }
  ct_plans_unlock(plans);
  if (code == 0 && recorded) {
    note_change(session, argument, &argument->done);
  }
  return code;
}

/* In a child's thread. What it cannot have is no failure of the change. */
static int
run_change_of_child(struct ct_session *session, void *context, struct ct_diag *diag)
{
  struct change_argument *argument = context;
  struct ct_session_change change = {0};
  char note[sizeof(session->status.note)];
  if (!is_recorded(session)) {
    return 0;
  }
  ct_plans_lock(session->modules.plans);
  int code = bring_up_to_date(session, &change, diag);
  ct_plans_unlock(session->modules.plans);
  if (code == 0) {
    note_change(session, argument, &change);
    argument->done.children++;
    argument->done.busy += change.busy;
    argument->done.pause_ns = change.pause_ns > argument->done.pause_ns ? change.pause_ns : argument->done.pause_ns;
  } else if (!ct_process_has_died(&session->process)) {
    snprintf(note, sizeof(note), "process %d keeps the hooks that it had: %.180s", (int)session->process.pid,
             diag->text[0] != '\0' ? diag->text : ct_err_text(code));
    session_note(session, note);
  }
  return 0;
}

void
session_catch_up(struct ct_session *session)
{
  struct ct_session_change change = {0};
  struct ct_diag diag = {""};
  if (session->generation != family_generation(session->family)) {
    ct_plans_lock(session->modules.plans);
    bring_up_to_date(session, &change, &diag); /* a failure leaves it what its parent had */
    ct_plans_unlock(session->modules.plans);
  }
}

static int
change_all(struct ct_session *session, struct change_argument *argument, struct ct_session_change *change,
           struct ct_diag *diag)
{
  if (change != NULL && ct_sized_give(change, &argument->done, sizeof(argument->done), diag) != 0) {
    return CT_EINVAL;
  }
  int code = session_command(session, CT_ERROR_HOOK, run_change, argument, diag);
  if (code == 0 && session->family != NULL) {
    family_each(session->family, run_change_of_child, argument);
  }
  return code != 0 || change == NULL ? code : ct_sized_give(change, &argument->done, sizeof(argument->done), diag);
}

int
ct_session_trace_add(struct ct_session *session, const char *pattern, enum ct_select_mode mode,
                     struct ct_session_change *change, struct ct_diag *diag)
{
  struct change_argument argument = {TRACE_ADD, pattern, mode, {0}};
  return change_all(session, &argument, change, diag);
}

int
ct_session_trace_remove(struct ct_session *session, const char *pattern, struct ct_session_change *change,
                        struct ct_diag *diag)
{
  struct change_argument argument = {TRACE_REMOVE, pattern, CT_SELECT_AUTO, {0}};
  return change_all(session, &argument, change, diag);
}

int
ct_session_exclude_add(struct ct_session *session, const char *pattern, struct ct_session_change *change,
                       struct ct_diag *diag)
{
  struct change_argument argument = {EXCLUDE_ADD, pattern, CT_SELECT_AUTO, {0}};
  return change_all(session, &argument, change, diag);
}

int
ct_session_exclude_remove(struct ct_session *session, const char *pattern, struct ct_session_change *change,
                          struct ct_diag *diag)
{
  struct change_argument argument = {EXCLUDE_REMOVE, pattern, CT_SELECT_AUTO, {0}};
  return change_all(session, &argument, change, diag);
}

/* Children look patterns up at any time. */
static void
lock_patterns(struct ct_session *session)
{
  if (session->family != NULL) {
    ct_plans_lock(ct_family_plans(session->family));
  }
}

static void
unlock_patterns(struct ct_session *session)
{
  if (session->family != NULL) {
    ct_plans_unlock(ct_family_plans(session->family));
  }
}

static int
run_trace_list(struct ct_session *session, void *context, struct ct_diag *diag)
{
  (void)diag;
  lock_patterns(session);
  *(char **)context = ct_selection_json(session->options.selection);
  unlock_patterns(session);
  return 0;
}

char *
ct_session_trace_list(struct ct_session *session)
{
  char *text = NULL;
  session_command(session, CT_ERROR_INIT, run_trace_list, &text, NULL);
  return text;
}

static int
run_exclude_list(struct ct_session *session, void *context, struct ct_diag *diag)
{
  (void)diag;
  json_t *list = json_array();
  const char *pattern;
  for (size_t n = 0; (pattern = ct_exclude_pattern(session->options.exclude, n)) != NULL; n++) {
    json_array_append_new(list, ct_manifest_text(pattern));
  }
  *(char **)context = json_dumps(list, JSON_COMPACT);
  json_decref(list);
  return 0;
}

char *
ct_session_exclude_list(struct ct_session *session)
{
  char *text = NULL;
  session_command(session, CT_ERROR_INIT, run_exclude_list, &text, NULL);
  return text;
}
