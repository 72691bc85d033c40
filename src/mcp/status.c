/* SPDX-License-Identifier: MIT */
/* What there is to say of a session or a trace. */
#include "mcp/held.h"

#include <contrail/text.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { TAIL_BYTES = 1500 };

const char *
mcp_stage_name(const struct mcp_held *held)
{
  static const char *const names[] = {[MCP_STARTING] = "starting",
                                      [MCP_RECORDING] = "recording",
                                      [MCP_ENDING] = "ending",
                                      [MCP_DONE] = "done",
                                      [MCP_FAILED] = "failed"};
  return held->session != NULL ? names[held->session->stage] : "trace";
}

static json_t *
end_json(const struct ct_session_status *status)
{
  if (status->ended && status->has_status && WIFEXITED(status->wait_status)) {
    return mcp_textf("exited with status %d", WEXITSTATUS(status->wait_status));
  }
  if (status->ended && status->has_status && WIFSIGNALED(status->wait_status)) {
    return mcp_textf("ended by signal %d (%s)", WTERMSIG(status->wait_status),
                     strsignal(WTERMSIG(status->wait_status)));
  }
  return status->ended ? json_string("ended") : status->detached ? json_string("recorded no longer; it runs on") : NULL;
}

static void
set(json_t *json, const char *key, json_t *value)
{
  json_object_set_new(json, key, value);
}

static void
set_count(json_t *json, const char *key, uint64_t count)
{
  json_object_set_new(json, key, json_integer((json_int_t)count));
}

static json_t *
losses_json(const struct ct_session_status *status)
{
  json_t *json = json_object();
  for (int reason = 0; reason < CT_DROP_COUNT; reason++) {
    uint64_t count = status->dropped_by[reason] + status->child_dropped_by[reason];
    if (count != 0) {
      set_count(json, ct_drop_name((enum ct_drop)reason), count);
    }
  }
  return json;
}

static void
add_costs(json_t *json, const struct ct_session_status *status, bool keeps_last)
{
  char text[CT_DURATION_CHARS];
  double share = ct_cost_share(&status->cost);
  if (share >= 0) {
    set(json, "hooks_cost", mcp_textf("%.1f %% of the program's processor time (estimated)", 100 * share));
  }
  if (status->pause_ns != 0) {
    set(json, "longest_stop", json_string(ct_format_duration(text, status->pause_ns)));
  }
  if (status->budget.limit > 0) {
    char late[40] = "";
    if (!status->ended && !status->detached && status->budget.spent <= 1) { /* else next to nothing of it has run */
      snprintf(late, sizeof(late), ", of late %.1f %%", 100 * status->budget.spent);
    }
    set(json, "budget",
        mcp_textf("%g %%%s; functions in full %zu, sampled %zu, counted %zu, out %zu", 100 * status->budget.limit, late,
                  status->budget.full, status->budget.sampled, status->budget.counted, status->budget.out));
  }
  if (status->kept_limit_bytes != 0 && keeps_last && !status->ended) { /* then the trace has it */
    set(json, "kept",
        mcp_textf("the last %s of the recording, %llu events", ct_format_duration(text, status->kept_ns),
                  (unsigned long long)status->kept_events));
  }
}

/* What the library knows is of the last stop. */
static size_t
threads_of(pid_t pid)
{
  char path[64];
  size_t count = 0;
  snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
  DIR *tasks = opendir(path);
  for (const struct dirent *one; tasks != NULL && (one = readdir(tasks)) != NULL;) {
    count += one->d_name[0] != '.';
  }
  if (tasks != NULL) {
    closedir(tasks);
  }
  return count;
}

/* Everything about the session that the library knows. */
static void
add_status(json_t *json, const struct ct_session_status *status, bool keeps_last)
{
  if (!status->ended && !status->detached) { /* of what is loaded; afterwards the trace has all that there was */
    set_count(json, "functions", status->functions);
    set_count(json, "hooked", status->hooked);
    set_count(json, "threads", threads_of(status->pid));
  }
  if (status->dropped + status->child_dropped != 0) {
    set(json, "lost_by_reason", losses_json(status));
  }
  if (status->children != 0) {
    set_count(json, "children", status->children);
    set_count(json, "children_live", status->children_live);
    set_count(json, "child_events", status->child_events);
  }
  if (status->marks != 0) {
    set_count(json, "marks", status->marks);
    set_count(json, "windows", status->windows);
  }
  add_costs(json, status, keeps_last);
  if (status->note[0] != '\0') {
    set(json, "note", mcp_text(status->note));
  }
}

static void
add_session(struct mcp_held *held, json_t *json, bool is_short)
{
  struct mcp_session *s = held->session;
  struct ct_session_status status = {.struct_size = sizeof(status)};
  pthread_mutex_lock(&held->server->lock);
  struct ct_session *session = s->session;
  if (session != NULL) {
    s->callers++;
  } else {
    status = s->status;
  }
  const char *stage = mcp_stage_name(held);
  struct ct_diag diag = s->diag;
  int code = s->code;
  pthread_mutex_unlock(&held->server->lock);
  if (session != NULL) {
    ct_session_get_status(session, &status);
    mcp_session_leave(held);
  }
  bool is_paused = status.state == CT_STATE_ATTACHED && strcmp(stage, "recording") == 0;
  bool is_over = status.ended && strcmp(stage, "recording") == 0; /* the trace is being completed */
  set(json, "state", json_string(is_paused ? "paused" : is_over ? "ending" : stage));
  set_count(json, "pid", (uint64_t)s->pid);
  set(json, "program", mcp_name(s->argv != NULL ? s->argv[0] : s->attached_to));
  if (s->argv == NULL) {
    set(json, "attached", json_true());
  }
  json_t *end = end_json(&status);
  if (end != NULL) {
    set(json, "end", end);
  }
  set_count(json, "events", status.events + status.child_events);
  set_count(json, "lost", status.dropped + status.child_dropped);
  if (!is_short) {
    add_status(json, &status, s->options.last_bytes != 0);
  }
  if (s->has_hit_limit) {
    set(json, "stopped", json_string("its time limit was over"));
  }
  if (code != 0) {
    set(json, "error", mcp_text(diag.text[0] != '\0' ? diag.text : ct_err_text(code)));
  }
  if (!is_short && s->argv != NULL) {
    bool done = strcmp(stage, "done") == 0;
    set(json, "stdout", mcp_stream_json(&s->streams[0], done ? TAIL_BYTES : TAIL_BYTES / 3));
    set(json, "stderr", mcp_stream_json(&s->streams[1], done ? TAIL_BYTES : TAIL_BYTES / 3));
  }
}

static void
add_trace(struct mcp_held *held, json_t *json)
{
  char text[CT_DURATION_CHARS];
  json_t *facts = mcp_facts(held), *value;
  set(json, "state", json_string("trace"));
  if (facts == NULL) {
    return;
  }
  value = json_object_get(facts, "command");
  if (value != NULL) {
    set(json, "command", json_deep_copy(value));
  }
  set_count(json, "events", mcp_get_count(facts, "events", 0));
  set_count(json, "lost", mcp_get_count(facts, "dropped", 0));
  set(json, "duration", json_string(ct_format_duration(text, mcp_get_count(facts, "duration_ns", 0))));
  value = json_object_get(facts, "exit");
  if (json_is_object(value)) {
    set(json, "exit", json_deep_copy(value));
  }
  value = json_object_get(facts, "crash");
  if (json_is_object(value)) {
    set(json, "crash", mcp_textf("ended by %s: analyze view=crash", mcp_get_text(value, "name")));
  }
  json_decref(facts);
}

json_t *
mcp_status_json(struct mcp_held *held, bool is_short)
{
  json_t *json = json_pack("{s:s}", held->session != NULL ? "session" : "trace", held->name);
  if (held->session != NULL) {
    add_session(held, json, is_short);
  } else {
    add_trace(held, json);
  }
  set(json, "directory", mcp_text(held->directory));
  return json;
}

void
mcp_put_status(struct mcp_call *call, struct mcp_held *held)
{
  json_t *json = mcp_status_json(held, false);
  json_object_update(call->body, json);
  json_decref(json);
  call->has_target_text = true;
}
