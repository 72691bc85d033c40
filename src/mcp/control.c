/* SPDX-License-Identifier: MIT */
/* session: what is held, its state, and its end. */
#include "mcp/held.h"

#include <contrail/text.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_SECONDS = 60, STOP_SECONDS = 15, PEEK_MS = 2000 };

/* ---- list ---- */

static void
add_other(void *others, const char *id)
{
  char *text = NULL;
  if (ct_control_call(id, "status", NULL, PEEK_MS, &text, NULL) != 0) {
    return;
  }
  json_t *status = json_loads(text, 0, NULL);
  free(text);
  if (mcp_get_count(status, "controller", 0) != (uint64_t)getpid()) {
    json_array_append_new(
        others, json_pack("{s:s, s:o, s:O?, s:O?}", "id", id, "program", mcp_name(mcp_get_text(status, "program")),
                          "pid", json_object_get(status, "pid"), "directory", json_object_get(status, "trace")));
  }
  json_decref(status);
}

static bool
list(struct mcp_call *call)
{
  struct mcp_server *server = call->server;
  struct mcp_held *held[MCP_TRACES_MAX + 1];
  size_t count = 0;
  json_t *sessions = json_array(), *others = json_array();
  pthread_mutex_lock(&server->lock);
  for (struct mcp_held *at = server->held; at != NULL && count <= MCP_TRACES_MAX; at = at->next) {
    at->users++;
    held[count++] = at;
  }
  pthread_mutex_unlock(&server->lock);
  for (size_t i = 0; i < count; i++) {
    json_array_append_new(sessions, mcp_status_json(held[i], true));
    mcp_held_put(held[i]);
  }
  ct_control_list(add_other, others, NULL);
  size_t found = json_array_size(others);
  mcp_put(call, "sessions", sessions);
  if (found != 0) {
    mcp_put_some(call, "others", json_incref(others), MCP_TRACES_MAX);
    mcp_suggest(call,
                "others are recorded by other processes of contrail: their traces can be asked (trace: directory)");
  }
  json_decref(others);
  mcp_suggest(call, count == 0 ? "launch a program, or attach to a process" : "session action=status session=ID");
  call->has_target_text = true;
  return true;
}

/* ---- one of them ---- */

static bool
pause_or_resume(struct mcp_call *call, struct mcp_held *held, bool is_pause)
{
  struct ct_diag diag = {""};
  struct ct_session *session = mcp_session_enter(call, held);
  if (session == NULL) {
    return false;
  }
  int code = is_pause ? ct_session_pause(session, &diag) : ct_session_resume(session, &diag);
  mcp_session_leave(held);
  if (code == 0 && is_pause) {
    mcp_suggest(call, "session action=resume session=%s: all its threads are stopped now", held->name);
  }
  return code == 0 || mcp_fail(call, "%s", diag.text[0] != '\0' ? diag.text : ct_err_text(code));
}

static bool
dump(struct mcp_call *call, struct mcp_held *held)
{
  struct ct_session_dump made = {.struct_size = sizeof(made)};
  struct ct_diag diag = {""};
  char text[CT_DURATION_CHARS];
  const char *directory = mcp_get_text(call->arguments, "directory");
  if (directory != NULL && (directory[0] != '/' || call->server->options->allow_count != 0)) {
    return mcp_fail(call, "dump: leave out directory%s", directory[0] != '/' ? ", or give an absolute path" : "");
  }
  struct ct_session *session =
      directory != NULL || mcp_disk_dump_fits(call, held) ? mcp_session_enter(call, held) : NULL;
  if (session == NULL) {
    return false;
  }
  int code = ct_session_dump(session, directory, &made, &diag);
  mcp_session_leave(held);
  if (code != 0) {
    return mcp_fail(call, "%s", diag.text[0] != '\0' ? diag.text : ct_err_text(code));
  }
  mcp_put(call, "dump",
          json_pack("{s:o, s:I, s:I, s:s}", "directory", mcp_text(made.directory), "events", (json_int_t)made.events,
                    "not_kept", (json_int_t)made.not_kept, "time", ct_format_duration(text, made.ns)));
  mcp_suggest(call, "analyze view=report trace=%s", made.directory);
  return true;
}

static bool
stop(struct mcp_call *call, struct mcp_held *held)
{
  const json_t *end = json_object_get(call->arguments, "end");
  bool is_launched = held->session->argv != NULL && !held->session->is_kept;
  if (json_is_true(end) && held->session->argv == NULL) {
    return mcp_fail(call, "stop: a process that was attached to is released, not ended (end: false)");
  }
  mcp_session_stop(held, end != NULL ? json_is_true(end) : is_launched);
  if (!mcp_session_await(call, held, mcp_get_number(call->arguments, "wait_s", STOP_SECONDS))) {
    mcp_doubt(call, "it has not ended yet: session action=wait");
  }
  mcp_suggest(call, "analyze view=report trace=%s", held->name);
  return true;
}

static bool
act(struct mcp_call *call, struct mcp_held *held, const char *action)
{
  bool is_session = held->session != NULL, is_live = mcp_held_is_live(held);
  if (strcmp(action, "status") == 0) {
    mcp_suggest(call, is_live ? "trace action=list session=%s: what is hooked" : "analyze view=report trace=%s",
                held->name);
    return true;
  }
  if (!is_session) {
    return mcp_fail(call, "%s is a trace from the disk: there is nothing to %s", held->name, action);
  }
  if (strcmp(action, "wait") == 0) {
    if (!mcp_session_await(call, held, mcp_get_number(call->arguments, "wait_s", WAIT_SECONDS))) {
      mcp_doubt(call, "it has not ended within wait_s: it goes on");
    }
    mcp_suggest(call, "analyze view=report trace=%s", held->name);
    return true;
  }
  if (!is_live) {
    return mcp_fail(call, "%s has ended: there is nothing to %s", held->name, action);
  }
  return strcmp(action, "stop") == 0     ? stop(call, held)
         : strcmp(action, "pause") == 0  ? pause_or_resume(call, held, true)
         : strcmp(action, "resume") == 0 ? pause_or_resume(call, held, false)
                                         : dump(call, held);
}

static bool
is_reading(const char *action)
{
  static const char *const words[] = {"list", "status", "wait", "open", "forget"};
  for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
    if (strcmp(action, words[i]) == 0) {
      return true;
    }
  }
  return false;
}

bool
mcp_tool_session(struct mcp_call *call)
{
  const char *action = mcp_get_text(call->arguments, "action"), *name = mcp_get_text(call->arguments, "session");
  if (call->server->options->is_read_only && !is_reading(action)) {
    return mcp_fail(call, "the server is read-only: list, status, wait, open and forget are all there is");
  }
  if (strcmp(action, "list") == 0) {
    return list(call);
  }
  if (strcmp(action, "open") == 0) {
    name = mcp_get_text(call->arguments, "directory");
    action = "status";
    if (name == NULL || name[0] != '/') {
      return mcp_fail(call, "open: the absolute path of a trace's directory");
    }
  }
  bool wants_live = !is_reading(action) && name == NULL;
  struct mcp_held *held = wants_live ? mcp_held_get_live(call, name) : mcp_held_get(call, name);
  if (held == NULL) {
    return false;
  }
  bool good;
  if (strcmp(action, "forget") == 0) {
    bool removes = mcp_get_flag(call->arguments, "remove");
    good = (name != NULL || mcp_fail(call, "forget: which one?")) &&
           (!removes || !call->server->options->is_read_only || mcp_fail(call, "the server is read-only: no remove")) &&
           (!removes || mcp_disk_can_remove(call, held)) && mcp_held_forget(call, held);
    if (good && removes) {
      mcp_disk_remove(held);
    }
    mcp_put(call, "state", json_string(removes ? "forgotten, with its files" : "forgotten; its files stay"));
    mcp_suggest(call, "session action=list: what there is");
  } else {
    good = act(call, held, action);
    mcp_put_status(call, held);
    mcp_doubts(call, held);
  }
  mcp_held_put(held);
  return good;
}
