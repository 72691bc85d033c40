/* SPDX-License-Identifier: MIT */
/*
 * Changing what is traced in a live session; see <contrail/session.h>. What is to be hooked is found out first; then
 * the process is stopped, and what differs is changed. Where a thread stands in the bytes to be patched it is resumed
 * and stopped again, a few times.
 *
 * A process tree has one set of patterns. Whoever asks has first the first process changed, then each child, by its own
 * thread. A child that starts while the patterns change has an older generation, and catches up.
 */
#include "record/session_internal.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/sized.h"
#include "select/select.h"

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
  bool changed; /* the patterns */
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

/* Children that are forked from here on tell by it what they have. */
static int
number_hooks(struct ct_session *session)
{
  uint64_t version = session->node.hooks_version + 1;
  int code = ct_process_write(&session->target.process,
                              session->recording.image.layout.config + offsetof(struct ct_agent_config, hooks_version),
                              &version, sizeof(version));
  if (code == 0) {
    session->node.hooks_version = version;
    session_date_history(session);
  }
  return code;
}

/* One time: stop, change, resume. */
static int
change_once(struct ct_session *session, struct ct_filter_result *filter_results, size_t *busy, uint64_t *pause_ns,
            struct ct_diag *diag)
{
  bool was_stopped = session->target.is_stopped;
  uint64_t begin = ct_now_ns();
  int code = session->node.tree != NULL ? session_push_history(session) : 0;
  if (code == 0) {
    code = session_stop_threads(session, diag);
  }
  if (code != 0) {
    session_date_history(session); /* not changed, but the history gets its end */
    return code;
  }
  struct ct_remote remote = session_stopped_remote(session);
  code = session->node.tree != NULL ? number_hooks(session) : 0;
  if (code == 0) {
    code = ct_modules_change(&session->recording.modules, &remote, &session->recording.image.layout, filter_results,
                             busy, diag);
    session_budget_rehooked(session);
  }
  uint64_t pause = was_stopped ? ct_now_ns() - begin : session_resume_threads(session);
  *pause_ns = pause > *pause_ns ? pause : *pause_ns;
  return code;
}

static int
apply(struct ct_session *session, struct ct_filter_result *filter_results, struct ct_session_change *change,
      struct ct_diag *diag)
{
  int tries = session->target.is_stopped ? 1 : TRIES;
  int code = change_once(session, filter_results, &change->busy, &change->pause_ns, diag);
  while (code == 0 && change->busy != 0 && --tries > 0) {
    struct timespec wait = {0, TRY_NS};
    nanosleep(&wait, NULL);
    code = change_once(session, filter_results, &change->busy, &change->pause_ns, diag);
  }
  return code;
}

/* Has what is hooked become what the patterns say. */
int
session_rehook(struct ct_session *session, struct ct_session_change *change, struct ct_diag *diag)
{
  size_t functions;
  ct_modules_count(&session->recording.modules, &functions, &change->before);
  ct_plans_lock(session->recording.modules.plans);
  uint32_t generation = session->node.tree != NULL ? tree_generation(session->node.tree) : 0;
  struct ct_filter_result *filter_results = ct_modules_filter(&session->recording.modules, session->target.process.pid);
  ct_plans_unlock(session->recording.modules.plans);
  int code = filter_results != NULL ? apply(session, filter_results, change, diag) : CT_ENOMEM;
  ct_modules_filter_results_free(&session->recording.modules, filter_results);
  if (code == 0) {
    session->node.generation = generation;
  } else {
    ct_modules_reconcile(&session->recording.modules);
  }
  ct_modules_count(&session->recording.modules, &functions, &change->hooked);
  return code;
}

bool
session_is_recorded(const struct ct_session *session)
{
  enum ct_session_state state = session->sync.status.state;
  return (state == CT_STATE_RUNNING || state == CT_STATE_ATTACHED) && session->recording.image_live &&
         !ct_process_has_died(&session->target.process);
}

static void
note_change(struct ct_session *session, const struct change_argument *argument, const struct ct_session_change *change)
{
  static const char *const names[] = {"trace", "untrace", "exclude", "include"};
  ct_manifest_change(&session->recording.manifest, names[argument->what], argument->pattern, change->hooked,
                     change->pause_ns);
  ct_plans_lock(session->recording.modules.plans);
  ct_manifest_exclude(&session->recording.manifest, session->options.exclude);
  ct_plans_unlock(session->recording.modules.plans);
  session_count(session);
  session_write_manifest(session, false);
}

/* Before calls of functions are recorded that whoever asked for them sees at once. */
static void
begin_watching(struct ct_session *session)
{
  session->recording.is_watched = true;
  session_list_modules(session);
}

static void
check_matched(struct ct_session *session, struct change_argument *argument)
{
  struct ct_selection *selection = session->options.selection;
  struct ct_exclude *exclude = session->options.exclude;
  struct ct_select_info info = {.struct_size = sizeof(info)};
  struct ct_session_change *done = &argument->done;
  const char *text;
  size_t traced = 0, excluded = 0;
  while (ct_selection_info(selection, traced, &info) == 0 && strcmp(info.pattern, argument->pattern) != 0) {
    traced++;
  }
  while ((text = ct_exclude_pattern(exclude, excluded)) != NULL && strcmp(text, argument->pattern) != 0) {
    excluded++;
  }
  done->unmatched = (argument->what == TRACE_ADD && info.matched == 0) ||
                    (argument->what == EXCLUDE_ADD && !ct_exclude_has_matched(exclude, excluded));
  if (done->unmatched) {
    ct_plans_suggest(session->recording.modules.plans, selection, exclude);
    (void)ct_selection_info(selection, traced, &info);
    snprintf(done->likely, sizeof(done->likely), "%s",
             argument->what == TRACE_ADD ? info.likely : ct_exclude_likely(exclude, excluded));
  }
}

static int
run_change(struct ct_session *session, void *context, struct ct_diag *diag)
{
  struct change_argument *argument = context;
  bool recorded = session_is_recorded(session), alone = !session_has_children(session);
  if (alone && session->recording.image_live && ct_process_has_died(&session->target.process)) {
    return ct_fail(diag, CT_ESRCH, "the process has ended");
  }
  if (alone && !recorded) {
    return ct_fail(diag, CT_EINVAL, "the session is %s: what is traced can be changed while it runs",
                   ct_state_name(session->sync.status.state));
  }
  struct ct_plans *plans =
      session->node.tree != NULL ? ct_process_tree_plans(session->node.tree) : session->recording.modules.plans;
  ct_plans_lock(plans);
  int code = change_patterns(session, argument, diag);
  argument->changed = code == 0;
  if (code == 0 && session->node.tree != NULL) {
    tree_change(session->node.tree);
  }
  ct_plans_unlock(plans);
  if (code != 0 || !recorded) {
    return code;
  }
  begin_watching(session);
  code = session_rehook(session, &argument->done, diag);
  if (code != 0) {
    return code;
  }
  check_matched(session, argument);
  note_change(session, argument, &argument->done);
  return 0;
}

static void
note_failure(struct ct_session *session, int code, const struct ct_diag *diag)
{
  char note[sizeof(session->sync.status.note)];
  if (!ct_process_has_died(&session->target.process)) {
    snprintf(note, sizeof(note), "process %d keeps the hooks that it had: %.180s", (int)session->target.process.pid,
             diag->text[0] != '\0' ? diag->text : ct_err_text(code));
    tree_note(session, note);
  }
}

/* In a child's thread. What it cannot have is no failure of the change. */
static int
run_change_of_child(struct ct_session *session, void *context, struct ct_diag *diag)
{
  struct change_argument *argument = context;
  struct ct_session_change change = {0};
  if (!session_is_recorded(session)) {
    return 0;
  }
  begin_watching(session);
  int code = session_rehook(session, &change, diag);
  if (code != 0) {
    note_failure(session, code, diag);
    return 0;
  }
  note_change(session, argument, &change);
  argument->done.children++;
  argument->done.busy += change.busy;
  argument->done.pause_ns = change.pause_ns > argument->done.pause_ns ? change.pause_ns : argument->done.pause_ns;
  return 0;
}

void
session_catch_up(struct ct_session *session)
{
  struct ct_session_change change = {0};
  struct ct_diag diag = {""};
  if (session->node.generation != tree_generation(session->node.tree)) {
    int code = session_rehook(session, &change, &diag);
    if (code != 0) {
      note_failure(session, code, &diag);
    }
  }
}

/* The children too when the first process could not have it: they have one list of patterns, which has changed. */
static int
change_all(struct ct_session *session, struct change_argument *argument, struct ct_session_change *change,
           struct ct_diag *diag)
{
  if (change != NULL && ct_sized_give(change, &argument->done, sizeof(argument->done), diag) != 0) {
    return CT_EINVAL;
  }
  int code = session_command(session, CT_ERROR_HOOK, run_change, argument, diag);
  if (argument->changed && session->node.tree != NULL) {
    int failed = tree_each(session->node.tree, run_change_of_child, argument);
    code = code != 0 ? code : failed;
  }
  return code != 0 || change == NULL ? code : ct_sized_give(change, &argument->done, sizeof(argument->done), diag);
}

int
ct_session_trace_add(struct ct_session *session, const char *pattern, enum ct_select_mode mode,
                     struct ct_session_change *change, struct ct_diag *diag)
{
  struct change_argument argument = {.what = TRACE_ADD, .pattern = pattern, .mode = mode};
  return change_all(session, &argument, change, diag);
}

int
ct_session_trace_remove(struct ct_session *session, const char *pattern, struct ct_session_change *change,
                        struct ct_diag *diag)
{
  struct change_argument argument = {.what = TRACE_REMOVE, .pattern = pattern, .mode = CT_SELECT_AUTO};
  return change_all(session, &argument, change, diag);
}

int
ct_session_exclude_add(struct ct_session *session, const char *pattern, struct ct_session_change *change,
                       struct ct_diag *diag)
{
  struct change_argument argument = {.what = EXCLUDE_ADD, .pattern = pattern, .mode = CT_SELECT_AUTO};
  return change_all(session, &argument, change, diag);
}

int
ct_session_exclude_remove(struct ct_session *session, const char *pattern, struct ct_session_change *change,
                          struct ct_diag *diag)
{
  struct change_argument argument = {.what = EXCLUDE_REMOVE, .pattern = pattern, .mode = CT_SELECT_AUTO};
  return change_all(session, &argument, change, diag);
}

/* Children look patterns up at any time. */
static void
lock_patterns(struct ct_session *session)
{
  if (session->node.tree != NULL) {
    ct_plans_lock(ct_process_tree_plans(session->node.tree));
  }
}

static void
unlock_patterns(struct ct_session *session)
{
  if (session->node.tree != NULL) {
    ct_plans_unlock(ct_process_tree_plans(session->node.tree));
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
    json_array_append_new(list, ct_json_string(pattern));
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
