/* SPDX-License-Identifier: MIT */
/*
 * Changing what is traced in a live session; see <contrail/session.h>. What is to be hooked is found out first; then
 * the process is held, and what differs is changed. Where a thread stands in the bytes to be patched it is let go and
 * held again, a few times.
 */
#include "record/session_internal.h"

#include <contrail/exclude.h>
#include "hook/select.h"

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
  struct ct_session_change *change;
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

static int
run_change(struct ct_session *session, void *context, struct ct_diag *diag)
{
  static const char *const names[] = {"trace", "untrace", "exclude", "include"};
  struct change_argument *argument = context;
  struct ct_session_change change = {.struct_size = sizeof(change)};
  enum ct_session_state state = session->status.state;
  size_t functions;
  if ((state != CT_STATE_RUNNING && state != CT_STATE_ATTACHED) || !session->image_live) {
    return ct_fail(diag, CT_EINVAL, "the session is %s: what is traced can be changed while it runs",
                   ct_state_name(state));
  }
  ct_modules_count(&session->modules, &functions, &change.before);
  ct_plans_lock(session->modules.plans);
  int code = change_patterns(session, argument, diag);
  if (code == 0) {
    code = apply(session, &change.busy, &change.pause_ns, diag);
  }
  ct_plans_unlock(session->modules.plans);
  if (code != 0) {
    return code;
  }
  ct_modules_count(&session->modules, &functions, &change.hooked);
  ct_manifest_change(&session->manifest, names[argument->what], argument->pattern, change.hooked, change.pause_ns);
  ct_manifest_exclude(&session->manifest, session->options.exclude);
  session->manifest_is_old = true;
  session_count(session);
  if (argument->change != NULL) {
    size_t size = argument->change->struct_size;
    memcpy(argument->change, &change, size < sizeof(change) ? size : sizeof(change));
    argument->change->struct_size = size;
  }
  return 0;
}

int
ct_session_trace_add(struct ct_session *session, const char *pattern, enum ct_select_mode mode,
                     struct ct_session_change *change, struct ct_diag *diag)
{
  struct change_argument argument = {TRACE_ADD, pattern, mode, change};
  return session_command(session, CT_ERROR_HOOK, run_change, &argument, diag);
}

int
ct_session_trace_remove(struct ct_session *session, const char *pattern, struct ct_session_change *change,
                        struct ct_diag *diag)
{
  struct change_argument argument = {TRACE_REMOVE, pattern, CT_SELECT_AUTO, change};
  return session_command(session, CT_ERROR_HOOK, run_change, &argument, diag);
}

int
ct_session_exclude_add(struct ct_session *session, const char *pattern, struct ct_session_change *change,
                       struct ct_diag *diag)
{
  struct change_argument argument = {EXCLUDE_ADD, pattern, CT_SELECT_AUTO, change};
  return session_command(session, CT_ERROR_HOOK, run_change, &argument, diag);
}

int
ct_session_exclude_remove(struct ct_session *session, const char *pattern, struct ct_session_change *change,
                          struct ct_diag *diag)
{
  struct change_argument argument = {EXCLUDE_REMOVE, pattern, CT_SELECT_AUTO, change};
  return session_command(session, CT_ERROR_HOOK, run_change, &argument, diag);
}

static int
run_trace_list(struct ct_session *session, void *context, struct ct_diag *diag)
{
  (void)diag;
  *(char **)context = ct_selection_json(session->options.selection);
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
