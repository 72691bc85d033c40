/* SPDX-License-Identifier: MIT */
/* trace: what a session hooks, its rules, marks; and what patterns would match. */
#include "mcp/held.h"

#include <contrail/cache.h>
#include <contrail/exclude.h>
#include <contrail/plan.h>
#include <contrail/text.h>

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MODULES_MAX = 200 };

static json_t *
loads(char *text)
{
  json_t *json = text != NULL ? json_loads(text, 0, NULL) : NULL;
  free(text);
  return json != NULL ? json : json_array();
}

static enum ct_select_mode
mode_of(const json_t *arguments)
{
  const char *mode = mcp_get_text(arguments, "mode");
  for (int m = CT_SELECT_AUTO; mode != NULL && m <= CT_SELECT_LIGHT; m++) {
    if (strcmp(mode, ct_select_mode_name((enum ct_select_mode)m)) == 0) {
      return (enum ct_select_mode)m;
    }
  }
  return CT_SELECT_AUTO;
}

static void
put_change(struct mcp_call *call, const struct ct_session_change *change, uint64_t before)
{
  char text[CT_DURATION_CHARS];
  mcp_put(call, "hooked", json_integer((json_int_t)change->hooked));
  mcp_put(call, "before", json_integer((json_int_t)before));
  mcp_put(call, "stopped_for", json_string(ct_format_duration(text, change->pause_ns)));
  if (change->busy != 0) {
    mcp_doubt(call, "%zu functions could not be hooked: a thread stood in their first bytes all the time",
              change->busy);
  }
}

static int
change_one(struct ct_session *session, const char *action, const char *pattern, enum ct_select_mode mode,
           struct ct_session_change *change, struct ct_diag *diag)
{
  return strcmp(action, "add") == 0       ? ct_session_trace_add(session, pattern, mode, change, diag)
         : strcmp(action, "remove") == 0  ? ct_session_trace_remove(session, pattern, change, diag)
         : strcmp(action, "exclude") == 0 ? ct_session_exclude_add(session, pattern, change, diag)
                                          : ct_session_exclude_remove(session, pattern, change, diag);
}

/* Each is a change of its own, up to the first that fails. */
static bool
change_patterns(struct mcp_call *call, struct ct_session *session, pid_t pid, const char *action)
{
  const json_t *patterns = json_object_get(call->arguments, "patterns"), *pattern;
  struct ct_session_change change = {.struct_size = sizeof(change)};
  uint64_t before = 0;
  json_t *unmatched = json_array();
  size_t i;
  bool good = json_array_size(patterns) != 0 || mcp_fail(call, "trace %s: which patterns?", action);
  json_array_foreach((json_t *)patterns, i, pattern)
  {
    struct ct_diag diag = {""};
    const char *text = json_string_value(pattern);
    int code = good ? change_one(session, action, text, mode_of(call->arguments), &change, &diag) : 0;
    if (code != 0) {
      good = mcp_fail(call, "pattern '%.200s': %s%s", text, diag.text[0] != '\0' ? diag.text : ct_err_text(code),
                      i != 0 ? " (those before it are done)" : "");
    }
    if (!good) {
      break;
    }
    before = i == 0 ? change.before : before;
    if (change.unmatched) {
      json_array_append_new(unmatched, mcp_text(text));
      mcp_doubt_pattern(call, pid, text, change.likely);
    }
  }
  if (good) {
    put_change(call, &change, before);
    if (strcmp(action, "remove") == 0 && change.hooked >= before && json_array_size(unmatched) == 0) {
      mcp_doubt(call, "no fewer functions are hooked than before: another pattern, or a trigger, still names them");
    }
    mcp_put_some(call, "unmatched", json_incref(unmatched), MCP_ROWS);
  }
  json_decref(unmatched);
  return good;
}

static void
put_lists(struct mcp_call *call, struct ct_session *session)
{
  json_t *excluded = loads(ct_session_exclude_list(session));
  json_t *patterns = loads(ct_session_trace_list(session));
  mcp_doubt_light(call, patterns);
  mcp_put_some(call, "patterns", patterns, MCP_ROWS);
  if (json_array_size(excluded) != 0) {
    mcp_put_some(call, "excluded", json_incref(excluded), MCP_ROWS);
  }
  json_decref(excluded);
  call->has_target_text = true;
}

static bool
change_rules(struct mcp_call *call, struct ct_session *session, const char *action)
{
  const char *rule = mcp_get_text(call->arguments, "rule");
  struct ct_session_change change = {.struct_size = sizeof(change)};
  struct ct_diag diag = {""};
  int code = 0;
  if (strcmp(action, "triggers") != 0 && rule == NULL) {
    return mcp_fail(call, "trace %s: which rule?", action);
  }
  if (strcmp(action, "add_trigger") == 0) {
    code = ct_session_trigger_add(session, rule, &change, &diag);
  } else if (strcmp(action, "remove_trigger") == 0) {
    code = ct_session_trigger_remove(session, rule, &diag);
  }
  if (code != 0) {
    return mcp_fail(call, "rule '%.200s': %s", rule, diag.text[0] != '\0' ? diag.text : ct_err_text(code));
  }
  call->has_target_text = true;
  if (change.unmatched) {
    mcp_doubt(call, "the rule is about no function of the process%s%s", change.likely[0] != '\0' ? ": " : "",
              change.likely);
  }
  mcp_put(call, "triggers", loads(ct_session_trigger_list(session)));
  mcp_suggest(call,
              "a marked window is asked with analyze filter={window: 1}; query \"SELECT * FROM windows\" lists them");
  return true;
}

static bool
mark(struct mcp_call *call, struct ct_session *session)
{
  struct ct_diag diag = {""};
  if (ct_session_mark(session, mcp_get_text(call->arguments, "name"), &diag) != 0) {
    return mcp_fail(call, "%s", diag.text);
  }
  mcp_suggest(call, "query \"SELECT * FROM windows\": where the mark's window is");
  return true;
}

/* ---- what would match ---- */

/* What the patterns have found in one module after the other. */
struct trial {
  struct mcp_request *request; /* NULL: nobody's */
  struct ct_selection *selection;
  struct ct_cache *cache; /* NULL: none */
  json_t *modules;
  bool has_more; /* modules than were looked at */
};

static void
try_module(struct trial *trial, const char *path)
{
  struct ct_plan *plan;
  struct ct_filter_result *result;
  if ((trial->cache != NULL ? ct_cache_plan(trial->cache, path, &plan, NULL) : ct_plan_create(path, &plan, NULL)) !=
      0) {
    json_array_append_new(trial->modules, json_pack("{s:o, s:s}", "path", mcp_text(path), "problem", "not readable"));
    return;
  }
  if (ct_filter_result_create(plan, trial->selection, NULL, path, &result) == 0) {
    size_t hooked = ct_plan_hooked(plan, result);
    if (hooked != 0) {
      json_array_append_new(trial->modules,
                            json_pack("{s:o, s:I}", "path", mcp_text(path), "hooked", (json_int_t)hooked));
    }
    ct_filter_result_destroy(result);
  }
  ct_plan_suggest(plan, trial->selection, NULL, path);
  ct_plan_free(plan);
}

/* The files that the process has mapped executable, each once, the program first: an object of their paths. has_more:
 * there are more than that. */
static json_t *
mapped_files(pid_t pid, bool *has_more)
{
  char path[64], *line = NULL;
  size_t size = 0;
  json_t *seen = json_object();
  snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
  FILE *maps = fopen(path, "re");
  *has_more = false;
  while (maps != NULL && !*has_more && getline(&line, &size, maps) > 0) {
    char kind[8] = "";
    const char *file = strchr(line, '/');
    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%*s %7s", kind) == 1 && kind[2] == 'x' && file != NULL && access(file, R_OK) == 0 &&
        json_object_get(seen, file) == NULL) {
      *has_more = json_object_size(seen) == MODULES_MAX;
      if (!*has_more) {
        json_object_set_new_nocheck(seen, file, json_true()); /* names may be no UTF-8 */
      }
    }
  }
  if (maps != NULL) {
    fclose(maps);
  }
  free(line);
  return seen;
}

static void
try_process(struct trial *trial, pid_t pid)
{
  const char *file;
  json_t *one, *files = mapped_files(pid, &trial->has_more);
  size_t done = 0;
  json_object_foreach(files, file, one)
  {
    if (trial->request != NULL && mcp_is_cancelled(trial->request)) {
      break;
    }
    if (trial->request != NULL) {
      mcp_progress(trial->request, (double)done, (double)json_object_size(files), "looking for functions");
    }
    done++;
    try_module(trial, file);
  }
  json_decref(files);
}

/* What stands before '!' in the pattern names no module: those that there are; "": it does, or there is none. */
static void
list_modules(pid_t pid, const char *pattern, char *list, size_t size)
{
  char glob[256];
  const char *mark = strchr(pattern, '!'), *file;
  list[0] = '\0';
  if (mark == NULL || snprintf(glob, sizeof(glob), "%.*s", (int)(mark - pattern), pattern) >= (int)sizeof(glob)) {
    return;
  }
  bool has_more;
  json_t *one, *files = mapped_files(pid, &has_more);
  json_object_foreach(files, file, one)
  {
    const char *name = strrchr(file, '/') + 1;
    size_t at = strlen(list);
    if (fnmatch(glob, name, 0) == 0 || fnmatch(glob, file, 0) == 0) {
      list[0] = '\0';
      break;
    }
    if (at + strlen(name) + sizeof(", , ...") < size) {
      snprintf(list + at, size - at, "%s%s", at == 0 ? "" : ", ", name);
    } else if (at < 3 || strcmp(list + at - 3, "...") != 0) {
      snprintf(list + at, size - at, "...");
    }
  }
  if (has_more) {
    list[0] = '\0'; /* it may name one of the others */
  }
  json_decref(files);
}

/* "perhaps NAME", by all that the process has mapped; "": there is none. */
static void
find_likely(pid_t pid, const char *pattern, char *likely, size_t size)
{
  struct trial trial = {
      .selection = ct_selection_create(), .cache = ct_cache_open(NULL, NULL), .modules = json_array()};
  if (trial.selection != NULL && ct_selection_add(trial.selection, pattern, CT_SELECT_AUTO, NULL) == 0) {
    try_process(&trial, pid);
    json_t *found = loads(ct_selection_json(trial.selection));
    const char *text = mcp_get_text(json_array_get(found, 0), "likely");
    snprintf(likely, size, "%s", text != NULL ? text : "");
    json_decref(found);
  }
  ct_cache_close(trial.cache);
  ct_selection_free(trial.selection);
  json_decref(trial.modules);
}

void
mcp_doubt_pattern(struct mcp_call *call, pid_t pid, const char *pattern, const char *likely)
{
  char modules[300], found[300] = "";
  list_modules(pid, pattern, modules, sizeof(modules));
  if (modules[0] != '\0') {
    mcp_doubt(call, "the pattern '%.200s' names no module (what stands before '!'): the process has %s", pattern,
              modules);
  } else {
    if (likely == NULL) {
      find_likely(pid, pattern, found, sizeof(found));
      likely = found;
    }
    mcp_doubt(call, "the pattern '%.200s' matches no function so far%s%s", pattern,
              likely != NULL && likely[0] != '\0' ? ": " : "", likely != NULL ? likely : "");
  }
}

static bool
add_tried(struct mcp_call *call, struct trial *trial)
{
  const json_t *patterns = json_object_get(call->arguments, "patterns"), *pattern;
  struct ct_diag diag = {""};
  size_t i;
  if (json_array_size(patterns) == 0) {
    return mcp_fail(call, "trace try: which patterns?");
  }
  json_array_foreach((json_t *)patterns, i, pattern)
  {
    if (ct_selection_add(trial->selection, json_string_value(pattern), mode_of(call->arguments), &diag) != 0) {
      return mcp_fail(call, "pattern '%.200s': %s", json_string_value(pattern), diag.text);
    }
  }
  return true;
}

static pid_t
pid_of(struct mcp_call *call)
{
  struct mcp_held *held = mcp_held_get_live(call, mcp_get_text(call->arguments, "session"));
  pid_t pid = held != NULL ? held->session->pid : 0;
  if (held != NULL) {
    mcp_held_put(held);
  }
  return pid;
}

static bool
try_patterns(struct mcp_call *call)
{
  const char *program = mcp_get_text(call->arguments, "program");
  char path[PATH_MAX];
  struct trial trial = {.request = call->request, .selection = ct_selection_create(), .modules = json_array()};
  bool good = trial.selection != NULL && add_tried(call, &trial);
  pid_t pid = good && program == NULL ? pid_of(call) : 0;
  snprintf(path, sizeof(path), "%s", program != NULL ? program : "");
  good = good && (program != NULL ? mcp_allows_directory(call, path) : pid > 0);
  trial.cache = good ? ct_cache_open(NULL, NULL) : NULL;
  if (good && program != NULL) {
    try_module(&trial, path);
    mcp_doubt(call, "only this file was looked at, not the libraries that it will load");
  } else if (good) {
    try_process(&trial, pid);
  }
  if (trial.has_more) {
    mcp_doubt(call, "the process has more than %d files of code: only the first of them were looked at", MODULES_MAX);
  }
  if (good) {
    mcp_put_some(call, "patterns", loads(ct_selection_json(trial.selection)), MCP_ROWS);
    mcp_put_some(call, "modules", json_incref(trial.modules), MCP_ROWS);
    mcp_suggest(call, "nothing was changed: trace action=add, or launch, with these patterns");
    call->has_target_text = true;
  }
  ct_cache_close(trial.cache);
  ct_selection_free(trial.selection);
  json_decref(trial.modules);
  return good;
}

/* ---- the tool ---- */

static bool
is_rule_action(const char *action)
{
  return strstr(action, "trigger") != NULL;
}

bool
mcp_tool_trace(struct mcp_call *call)
{
  const char *action = mcp_get_text(call->arguments, "action");
  if (strcmp(action, "try") == 0) {
    return try_patterns(call);
  }
  struct mcp_held *held = mcp_held_get_live(call, mcp_get_text(call->arguments, "session"));
  struct ct_session *session = held != NULL ? mcp_session_enter(call, held) : NULL;
  bool good = session != NULL;
  if (good) {
    mcp_put(call, "session", json_string(held->name));
    good = strcmp(action, "mark") == 0   ? mark(call, session)
           : is_rule_action(action)      ? change_rules(call, session, action)
           : strcmp(action, "list") == 0 ? true
                                         : change_patterns(call, session, held->session->pid, action);
    if (good && !is_rule_action(action)) {
      put_lists(call, session);
    }
    mcp_session_leave(held);
  }
  if (good && json_array_size(call->next) == 0) {
    mcp_suggest(call, "analyze view=report trace=%s: calls so far", held->name);
  }
  if (held != NULL) {
    mcp_held_put(held);
  }
  return good;
}
