/* SPDX-License-Identifier: MIT */
/* A session's socket: its methods; see <contrail/control.h>. */
#include <contrail/control.h>

#include <contrail/select.h>
#include <contrail/text.h>
#include <contrail/version.h>

#include "control/runtime_dir.h"
#include "base/cost.h"
#include "base/json.h"
#include "control/itrace_news.h"
#include "control/server.h"
#include "record/itrace_live.h"

#include <assert.h>
#include <stdbool.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static_assert(CT_CONTROL_ID_BYTES == CT_SESSION_ID_BYTES, "one of them is public");

enum { MARK_NAME_MAX = 200 };

struct ct_control {
  struct ct_session *session;
  struct ct_runtime_dir runtime_dir;
  struct ct_server *server;
  struct ct_itrace_news news;
  int64_t since_wall_ns;
  char id[CT_SESSION_ID_BYTES];
  char program[PATH_MAX]; /* the server's, once that runs */
  char trace[PATH_MAX];
};

/* What the process runs now; *path stays as it was when that cannot be seen. */
static void
find_program(pid_t pid, char path[PATH_MAX])
{
  char link[64];
  snprintf(link, sizeof(link), "/proc/%ld/exe", (long)pid);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  if (length > 0) {
    path[length] = '\0';
  }
}

static void
add_child(void *context, const struct ct_session_child *child)
{
  char program[PATH_MAX] = "";
  find_program(child->pid, program);
  json_t *json = json_pack("{s:i, s:i, s:o, s:s, s:I, s:I, s:I, s:I}", "pid", (int)child->pid, "parent",
                           (int)child->parent, "program", ct_json_string(program), "state", ct_state_name(child->state),
                           "events", (json_int_t)child->events, "dropped", (json_int_t)child->dropped, "functions",
                           (json_int_t)child->functions, "hooked", (json_int_t)child->hooked);
  json_array_append_new(context, json);
}

/* Of a session that follows. */
static void
add_children(struct ct_session *session, const struct ct_session_status *s, json_t *json)
{
  json_t *live = json_array();
  ct_session_children(session, add_child, live);
  json_object_set_new(json, "children", json_integer((json_int_t)s->children));
  json_object_set_new(json, "child_events", json_integer((json_int_t)s->child_events));
  json_object_set_new(json, "child_dropped", json_integer((json_int_t)s->child_dropped));
  json_object_set_new(json, "children_live", live);
}

static json_t *
drops_json(const uint64_t *dropped_by)
{
  json_t *json = json_object();
  for (int reason = 0; reason < CT_DROP_COUNT; reason++) {
    json_object_set_new(json, ct_drop_name(reason), json_integer((json_int_t)dropped_by[reason]));
  }
  return json;
}

static json_t *
status_json(struct ct_control *control)
{
  struct ct_session_status s = {.struct_size = sizeof(s)};
  ct_session_get_status(control->session, &s);
  if (!s.ended) {
    find_program(s.pid, control->program); /* another one after an exec */
  }
  json_t *json =
      json_pack("{s:s, s:s, s:i, s:i, s:o, s:o, s:s, s:I, s:b, s:b, s:b}", "id", control->id, "version", ct_version(),
                "pid", (int)s.pid, "controller", (int)getpid(), "program", ct_json_string(control->program), "trace",
                ct_json_string(control->trace), "state", ct_state_name(s.state), "since_wall_ns",
                (json_int_t)control->since_wall_ns, "attached", s.attached, "ended", s.ended, "detached", s.detached);
  json_t *numbers =
      json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "events", (json_int_t)s.events, "dropped",
                (json_int_t)s.dropped, "functions", (json_int_t)s.functions, "hooked", (json_int_t)s.hooked, "threads",
                (json_int_t)s.threads, "interval", (json_int_t)s.sample_interval, "interval_changes",
                (json_int_t)s.sample_changes, "pause_ns", (json_int_t)s.pause_ns, "attach_ns", (json_int_t)s.attach_ns,
                "detach_ns", (json_int_t)s.detach_ns);
  json_object_update(json, numbers);
  json_decref(numbers);
  json_object_set_new(json, "dropped_by_reason", drops_json(s.dropped_by));
  if (s.kept_limit_bytes != 0) {
    json_object_set_new(json, "kept",
                        json_pack("{s:I, s:I, s:I, s:I}", "limit_bytes", (json_int_t)s.kept_limit_bytes, "bytes",
                                  (json_int_t)s.kept_bytes, "events", (json_int_t)s.kept_events, "ns",
                                  (json_int_t)s.kept_ns));
  }
  json_object_set_new(json, "cost", ct_cost_json(&s.cost));
  if (s.budget.limit > 0) {
    json_object_set_new(json, "budget", ct_budget_json(&s.budget));
  }
  json_object_set_new(json, "marks", json_integer((json_int_t)s.marks));
  json_object_set_new(json, "windows", json_integer((json_int_t)s.windows));
  json_object_set_new(json, "windows_refused", json_integer((json_int_t)s.windows_refused));
  json_object_set_new(json, "windows_size",
                      json_pack("{s:I, s:I, s:I}", "bytes", (json_int_t)s.windows_bytes, "limit_bytes",
                                (json_int_t)s.windows_limit_bytes, "refused", (json_int_t)s.windows_refused_size));
  add_children(control->session, &s, json);
  if (s.note[0] != '\0') {
    json_object_set_new(json, "note", ct_json_string(s.note));
  }
  return json;
}

/* ---- the methods ---- */

typedef json_t *method_run(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault);

static json_t *
status(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  (void)params;
  (void)fault;
  json_t *json = status_json(control);
  char *text = ct_session_metrics(control->session);
  json_t *metrics = text != NULL ? json_loads(text, 0, NULL) : NULL;
  json_object_update(json, metrics);
  json_decref(metrics);
  free(text);
  return json;
}

static json_t *
finish(struct ct_control *control, int code, struct ct_rpc_fault *fault)
{
  return code == 0 ? status_json(control) : ct_rpc_failed(fault, code);
}

static json_t *
pause_session(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  (void)params;
  return finish(control, ct_session_pause(control->session, &fault->diag), fault);
}

static json_t *
resume_session(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  (void)params;
  return finish(control, ct_session_resume(control->session, &fault->diag), fault);
}

/* By a handle, so that no other process gets it that has the number by then. */
static int
terminate(struct ct_control *control, struct ct_diag *diag)
{
  struct ct_session_status s = {.struct_size = sizeof(s)};
  ct_session_get_status(control->session, &s);
  int fd = s.pid > 0 ? (int)syscall(SYS_pidfd_open, s.pid, 0) : -1;
  ct_session_get_status(control->session, &s);
  int code = CT_OK;
  if (s.ended || fd < 0) {
    code = ct_fail(diag, CT_ESRCH, "the process has ended");
  } else if (syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) != 0) {
    code = ct_fail(diag, CT_EACCES, "the process cannot be sent a signal");
  }
  if (fd >= 0) {
    close(fd);
  }
  return code;
}

static json_t *
stop(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  json_t *end = json_object_get(params, "end");
  if (end != NULL && !json_is_boolean(end)) {
    return ct_rpc_wrong_params(fault, "end is true or false");
  }
  int code = json_is_true(end) ? terminate(control, &fault->diag) : ct_session_detach(control->session, &fault->diag);
  return finish(control, code, fault);
}

static json_t *
dump(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  struct ct_session_dump made = {.struct_size = sizeof(made)};
  json_t *directory = json_object_get(params, "directory");
  if (directory != NULL && (!json_is_string(directory) || json_string_value(directory)[0] != '/')) {
    return ct_rpc_wrong_params(fault, "directory is an absolute path");
  }
  int code = ct_session_dump(control->session, json_string_value(directory), &made, &fault->diag);
  json_t *json = finish(control, code, fault);
  if (json != NULL) {
    json_object_set_new(json, "dump",
                        json_pack("{s:o, s:I, s:I, s:I, s:I}", "directory", ct_json_string(made.directory), "events",
                                  (json_int_t)made.events, "not_kept", (json_int_t)made.not_kept, "bytes",
                                  (json_int_t)made.bytes, "ns", (json_int_t)made.ns));
  }
  return json;
}

/* ---- what is traced and what is not ---- */

typedef int change_one(struct ct_session *session, const char *pattern, enum ct_select_mode mode,
                       struct ct_session_change *change, struct ct_diag *diag);

static int
add_exclusion(struct ct_session *session, const char *pattern, enum ct_select_mode mode,
              struct ct_session_change *change, struct ct_diag *diag)
{
  (void)mode;
  return ct_session_exclude_add(session, pattern, change, diag);
}

static int
remove_exclusion(struct ct_session *session, const char *pattern, enum ct_select_mode mode,
                 struct ct_session_change *change, struct ct_diag *diag)
{
  (void)mode;
  return ct_session_exclude_remove(session, pattern, change, diag);
}

static int
remove_pattern(struct ct_session *session, const char *pattern, enum ct_select_mode mode,
               struct ct_session_change *change, struct ct_diag *diag)
{
  (void)mode;
  return ct_session_trace_remove(session, pattern, change, diag);
}

/* {"patterns": ...}: takes over the text, which is JSON; NULL: out of memory. */
static json_t *
list_json(char *text)
{
  json_t *patterns = text != NULL ? json_loads(text, 0, NULL) : NULL;
  free(text);
  return patterns != NULL ? json_pack("{s:o}", "patterns", patterns) : NULL;
}

static json_t *
list_traced(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  (void)params;
  (void)fault;
  return list_json(ct_session_trace_list(control->session));
}

static json_t *
list_excluded(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  (void)params;
  (void)fault;
  return list_json(ct_session_exclude_list(control->session));
}

/* CT_OK when patterns is a list of some texts. */
static int
check_patterns(const json_t *patterns, struct ct_rpc_fault *fault)
{
  size_t i;
  json_t *pattern;
  bool wrong = json_array_size(patterns) == 0;
  json_array_foreach((json_t *)patterns, i, pattern) wrong |= !json_is_string(pattern);
  if (wrong) {
    ct_rpc_wrong_params(fault, "patterns is a list of texts");
  }
  return wrong ? CT_EINVAL : CT_OK;
}

static int
parse_mode(const json_t *mode, enum ct_select_mode *out, struct ct_rpc_fault *fault)
{
  const char *name = json_string_value(mode);
  for (int m = CT_SELECT_AUTO; m <= CT_SELECT_LIGHT; m++) {
    if (mode == NULL || (name != NULL && strcmp(name, ct_select_mode_name((enum ct_select_mode)m)) == 0)) {
      *out = (enum ct_select_mode)m;
      return CT_OK;
    }
  }
  ct_rpc_wrong_params(fault, "mode is full, light or auto");
  return CT_EINVAL;
}

/* The patterns in their order, each a change of its own, up to the first that fails. */
static json_t *
change(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault, change_one *run, bool excluded)
{
  const json_t *patterns = json_object_get(params, "patterns"), *pattern;
  struct ct_session_change all = {0}, one = {.struct_size = sizeof(one)};
  enum ct_select_mode mode;
  size_t i;
  if (check_patterns(patterns, fault) != CT_OK || parse_mode(json_object_get(params, "mode"), &mode, fault) != CT_OK) {
    return NULL;
  }
  json_t *unmatched = json_array();
  json_array_foreach((json_t *)patterns, i, pattern)
  {
    struct ct_diag diag = {""};
    int code = run(control->session, json_string_value(pattern), mode, &one, &diag);
    if (code != CT_OK) {
      ct_fail(&fault->diag, code, "'%.100s': %.300s%s", json_string_value(pattern),
              diag.text[0] != '\0' ? diag.text : ct_err_text(code), i != 0 ? " (those before it are done)" : "");
      json_decref(unmatched);
      return ct_rpc_failed(fault, code);
    }
    all.before = i == 0 ? one.before : all.before;
    all.hooked = one.hooked;
    all.busy = one.busy;
    all.pause_ns = one.pause_ns > all.pause_ns ? one.pause_ns : all.pause_ns;
    all.children = one.children;
    if (one.unmatched) {
      json_array_append_new(unmatched,
                            json_pack("{s:O, s:o}", "pattern", pattern, "likely", ct_json_string(one.likely)));
    }
  }
  json_t *json = excluded ? list_excluded(control, NULL, fault) : list_traced(control, NULL, fault);
  json_t *numbers =
      json_pack("{s:I, s:I, s:I, s:I, s:I}", "hooked", (json_int_t)all.hooked, "before", (json_int_t)all.before, "busy",
                (json_int_t)all.busy, "pause_ns", (json_int_t)all.pause_ns, "children", (json_int_t)all.children);
  json_object_set_new(numbers, "unmatched", unmatched);
  json_object_update(json, numbers);
  json_decref(numbers);
  return json;
}

static json_t *
add_traced(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  return change(control, params, fault, ct_session_trace_add, false);
}

static json_t *
remove_traced(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  return change(control, params, fault, remove_pattern, false);
}

static json_t *
add_excluded(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  return change(control, params, fault, add_exclusion, true);
}

static json_t *
remove_excluded(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  return change(control, params, fault, remove_exclusion, true);
}

/* ---- marks and rules ---- */

static json_t *
mark(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  json_t *name = json_object_get(params, "name");
  if (name != NULL && (!json_is_string(name) || json_string_length(name) > MARK_NAME_MAX)) {
    return ct_rpc_wrong_params(fault, "name is a text of at most 200 bytes");
  }
  return finish(control, ct_session_mark(control->session, json_string_value(name), &fault->diag), fault);
}

/* text: a JSON list, freed here. NULL: out of memory. */
static json_t *
listed(const char *name, char *text)
{
  json_t *list = text != NULL ? json_loads(text, 0, NULL) : NULL;
  free(text);
  return list != NULL ? json_pack("{s:o}", name, list) : NULL;
}

static json_t *
list_rules(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  (void)params;
  (void)fault;
  return listed("rules", ct_session_trigger_list(control->session));
}

static json_t *
add_rule(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  struct ct_session_change change = {.struct_size = sizeof(change)};
  const char *rule = json_string_value(json_object_get(params, "rule"));
  if (rule == NULL) {
    return ct_rpc_wrong_params(fault, "rule is a text");
  }
  int code = ct_session_trigger_add(control->session, rule, &change, &fault->diag);
  if (code != CT_OK) {
    return ct_rpc_failed(fault, code);
  }
  json_t *json = list_rules(control, NULL, fault);
  if (json != NULL) {
    json_object_set_new(json, "unmatched", json_boolean(change.unmatched));
    json_object_set_new(json, "pause_ns", json_integer((json_int_t)change.pause_ns));
  }
  return json;
}

static json_t *
remove_rule(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  const char *rule = json_string_value(json_object_get(params, "rule"));
  if (rule == NULL) {
    return ct_rpc_wrong_params(fault, "rule is a text");
  }
  int code = ct_session_trigger_remove(control->session, rule, &fault->diag);
  return code == CT_OK ? list_rules(control, NULL, fault) : ct_rpc_failed(fault, code);
}

static json_t *
list_itrace(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  (void)params;
  (void)fault;
  return listed("itrace", ct_session_itrace_list(control->session));
}

static json_t *
open_itrace(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  struct ct_session_change change = {.struct_size = sizeof(change)};
  const json_t *calls = json_object_get(params, "calls");
  struct ct_session_itrace wanted = {.function = json_string_value(json_object_get(params, "function")),
                                     .condition = json_string_value(json_object_get(params, "condition"))};
  uint32_t number = 0;
  json_int_t count = json_integer_value(calls);
  if (wanted.function == NULL ||
      (calls != NULL && (!json_is_integer(calls) || count < 1 || count > CT_ITRACE_CALLS_MAX))) {
    return ct_rpc_wrong_params(fault, "function is a text, calls a number");
  }
  wanted.calls = (uint32_t)count;
  int code = ct_session_itrace_open(control->session, &wanted, &number, &change, &fault->diag);
  if (code != CT_OK) {
    return ct_rpc_failed(fault, code);
  }
  json_t *json = list_itrace(control, NULL, fault);
  if (json != NULL) {
    json_object_set_new(json, "number", json_integer(number));
    json_object_set_new(json, "unmatched", json_boolean(change.unmatched));
  }
  return json;
}

static json_t *
close_itrace(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  const json_t *number = json_object_get(params, "number");
  json_int_t value = json_integer_value(number);
  if (!json_is_integer(number) || value < 0 || value > UINT32_MAX) {
    return ct_rpc_wrong_params(fault, "number is that of itrace.open");
  }
  int code = ct_session_itrace_close(control->session, (uint32_t)value, &fault->diag);
  return code == CT_OK ? list_itrace(control, NULL, fault) : ct_rpc_failed(fault, code);
}

static const json_t *
row_of(const json_t *rows, uint32_t number)
{
  size_t i;
  json_t *row;
  json_array_foreach((json_t *)rows, i, row)
  {
    if (json_integer_value(json_object_get(row, "number")) == number) {
      return row;
    }
  }
  return NULL;
}

/* Why somebody waits no longer. */
static const char *
reason_of(const json_t *row, const struct session_itrace_wait *wait, bool is_over, enum ct_rpc_turn turn)
{
  const char *state = json_string_value(json_object_get(row, "state"));
  json_int_t ended =
      json_integer_value(json_object_get(row, "recorded")) + json_integer_value(json_object_get(row, "cut"));
  if (!is_over) {
    return turn == CT_RPC_LAST_AT_END ? "ended" : "timeout";
  }
  if (state != NULL && strcmp(state, "open") != 0) {
    return strcmp(state, "done") == 0 ? "done" : "closed";
  }
  return (uint64_t)ended > wait->after ? "calls" : "ended";
}

/* The rows of itrace.list, and what has become of what was waited for. */
static json_t *
report_itrace(struct ct_control *control, const struct session_itrace_wait *wait, bool is_over, enum ct_rpc_turn turn,
              struct ct_rpc_fault *fault)
{
  json_t *json = list_itrace(control, NULL, fault); /* before the calls: what these rows count is among them */
  char *text = session_itrace_ended(control->session, wait);
  json_t *calls = text != NULL ? json_loads(text, 0, NULL) : NULL;
  const json_t *row = row_of(json_object_get(json, "itrace"), wait->number);
  free(text);
  if (json == NULL || calls == NULL) {
    json_decref(json);
    json_decref(calls);
    return ct_rpc_failed(fault, CT_ENOMEM);
  }
  bool is_another = is_over && !session_itrace_wait_is_of(control->session, wait);
  json_object_set_new(json, "number", json_integer(wait->number));
  json_object_set_new(json, "reason", json_string(is_another ? "replaced" : reason_of(row, wait, is_over, turn)));
  json_object_set_new(json, "calls", calls);
  return json;
}

static json_t *
look_for_itrace(void *context, const uint64_t what[3], enum ct_rpc_turn turn, struct ct_rpc_fault *fault)
{
  struct ct_control *control = context;
  const struct session_itrace_wait wait = {.number = (uint32_t)what[0], .serial = what[1], .after = what[2]};
  bool is_over = session_itrace_wait_is_over(control->session, &wait);
  if (!is_over && turn == CT_RPC_ONE_LOOK) {
    fault->code = CT_RPC_LATER;
    return NULL;
  }
  return report_itrace(control, &wait, is_over, turn, fault);
}

/* A number that may be missing. False: it is none, or out of range. */
static bool
take_number(const json_t *params, const char *name, json_int_t most, json_int_t missing, json_int_t *out)
{
  const json_t *given = json_object_get(params, name);
  *out = given != NULL ? json_integer_value(given) : missing;
  return given == NULL || (json_is_integer(given) && *out >= 0 && *out <= most);
}

static json_t *
wait_for_itrace(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  struct session_itrace_wait wait;
  json_int_t number, timeout_ms, after;
  if (!take_number(params, "number", UINT32_MAX, -1, &number) || number < 0 ||
      !take_number(params, "timeout", INT_MAX, -1, &timeout_ms) ||
      !take_number(params, "after", INT64_MAX, -1, &after)) {
    return ct_rpc_wrong_params(fault, "number is that of itrace.open, timeout in ms, after a number of calls");
  }
  if (session_itrace_wait_begin(control->session, (uint32_t)number, after < 0 ? UINT64_MAX : (uint64_t)after, &wait) !=
      CT_OK) {
    ct_fail(&fault->diag, CT_ENOENT, "there is no itrace of number %u", (uint32_t)number);
    return ct_rpc_failed(fault, CT_ENOENT);
  }
  fault->later = (struct ct_rpc_later){
      .look = look_for_itrace, .what = {wait.number, wait.serial, wait.after}, .timeout_ms = timeout_ms};
  return look_for_itrace(control, fault->later.what, timeout_ms == 0 ? CT_RPC_LAST_BY_TIME : CT_RPC_ONE_LOOK, fault);
}

static json_t *
subscribe(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  json_int_t number;
  uint64_t id;
  if (!take_number(params, "number", UINT32_MAX - 1, CT_ITRACE_EVERY, &number)) {
    return ct_rpc_wrong_params(fault, "number is that of itrace.open; without one it is of all");
  }
  int code =
      ct_itrace_news_begin(&control->news, control->session, (uint32_t)number, &fault->later.feed, &id, &fault->diag);
  if (code != CT_OK) {
    return ct_rpc_failed(fault, code);
  }
  json_t *json = list_itrace(control, NULL, fault);
  json_object_set_new(json, "subscription", json_integer((json_int_t)id));
  return json;
}

static json_t *
unsubscribe(struct ct_control *control, const json_t *params, struct ct_rpc_fault *fault)
{
  json_int_t id;
  if (!take_number(params, "subscription", INT64_MAX, 0, &id) || id == 0) {
    return ct_rpc_wrong_params(fault, "subscription is that of itrace.subscribe");
  }
  if (ct_itrace_news_end(&control->news, (uint64_t)id) != CT_OK) {
    ct_fail(&fault->diag, CT_ENOENT, "there is no subscription %lld", (long long)id);
    return ct_rpc_failed(fault, CT_ENOENT);
  }
  return list_itrace(control, NULL, fault);
}

static const struct method {
  const char *name;
  method_run *run;
  const char *params[4];
} methods[] = {
    {"status", status, {NULL}},
    {"pause", pause_session, {NULL}},
    {"resume", resume_session, {NULL}},
    {"stop", stop, {"end"}},
    {"dump", dump, {"directory"}},
    {"trace.add", add_traced, {"patterns", "mode"}},
    {"trace.remove", remove_traced, {"patterns"}},
    {"trace.list", list_traced, {NULL}},
    {"exclude.add", add_excluded, {"patterns"}},
    {"exclude.remove", remove_excluded, {"patterns"}},
    {"exclude.list", list_excluded, {NULL}},
    {"mark", mark, {"name"}},
    {"trigger.add", add_rule, {"rule"}},
    {"trigger.remove", remove_rule, {"rule"}},
    {"trigger.list", list_rules, {NULL}},
    {"itrace.open", open_itrace, {"function", "condition", "calls"}},
    {"itrace.close", close_itrace, {"number"}},
    {"itrace.list", list_itrace, {NULL}},
    {"itrace.wait", wait_for_itrace, {"number", "timeout", "after"}},
    {"itrace.subscribe", subscribe, {"number"}},
    {"itrace.unsubscribe", unsubscribe, {"subscription"}},
};

static json_t *
run_method(void *context, const char *name, const json_t *params, struct ct_rpc_fault *fault)
{
  for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
    if (strcmp(methods[i].name, name) == 0) {
      return ct_rpc_only(params, fault, methods[i].params) == CT_OK ? methods[i].run(context, params, fault) : NULL;
    }
  }
  fault->code = CT_RPC_METHOD;
  ct_fail(&fault->diag, CT_EUNSUPPORTED, "the session does not know '%.100s'", name);
  return NULL;
}

/* ---- opening and closing ---- */

int
ct_control_open(struct ct_session *session, struct ct_control **out, struct ct_diag *diag)
{
  struct ct_session_status s = {.struct_size = sizeof(s)};
  ct_session_get_status(session, &s);
  if (s.pid <= 0 || s.ended) {
    return ct_fail(diag, CT_ESRCH, "the session has no process");
  }
  struct ct_control *control = calloc(1, sizeof(*control));
  if (control == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the control socket");
  }
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  control->session = session;
  strcpy(control->program, "?");
  control->since_wall_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  find_program(s.pid, control->program);
  if (realpath(ct_session_directory(session), control->trace) == NULL) {
    snprintf(control->trace, sizeof(control->trace), "%s", ct_session_directory(session));
  }
  ct_session_id_make(control->id, control->program, (long)s.pid);
  int socket = -1, code = ct_runtime_dir_open(&control->runtime_dir, true, diag);
  if (code == CT_OK) {
    code = ct_runtime_dir_listen(&control->runtime_dir, control->id, &socket, diag);
  }
  if (code == CT_OK) {
    code = ct_server_start(socket, run_method, control, &control->server, diag);
    if (code != CT_OK) {
      ct_runtime_dir_remove(&control->runtime_dir, control->id);
      close(socket);
    }
  }
  if (code != CT_OK) {
    ct_runtime_dir_close(&control->runtime_dir);
    free(control);
    return code;
  }
  *out = control;
  return CT_OK;
}

const char *
ct_control_id(const struct ct_control *control)
{
  return control->id;
}

void
ct_control_close(struct ct_control *control)
{
  if (control == NULL) {
    return;
  }
  ct_runtime_dir_remove(&control->runtime_dir, control->id);
  ct_server_stop(control->server);
  ct_runtime_dir_close(&control->runtime_dir);
  free(control);
}
