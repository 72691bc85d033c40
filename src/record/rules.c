/* SPDX-License-Identifier: MIT */
/*
 * The rules of a session: the list of them, which is the session's thread's (what the drain reads of it changes under
 * the writer's lock), and what the manifest says of the windows that they made. triggers.c does what they ask for.
 */
#include "record/session_internal.h"

#include "base/clock.h"
#include "base/json.h"
#include "hook/signals.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALIBRATE_NS   2000000
#define CATCH_UP_NS    5000000
#define CATCH_UP_TRIES 50
#define MINUTE         60u
#define ROLL_MOST      60u /* seconds that so many events may take */

static uint64_t
measure_ticks(void)
{
  struct timespec wait = {0, CALIBRATE_NS};
  uint64_t ns = ct_now_ns(), tsc = __builtin_ia32_rdtsc();
  nanosleep(&wait, NULL);
  uint64_t ns_after = ct_now_ns(), tsc_after = __builtin_ia32_rdtsc();
  return (uint64_t)((unsigned __int128)(tsc_after - tsc) * 1000000000u / (ns_after - ns + 1));
}

static uint64_t
window_ns(uint64_t wanted)
{
  return wanted == 0 ? CT_WINDOW_NS_DEFAULT : wanted == 1 ? 0 : wanted;
}

/* The number of this text, a new one if need be; negative: out of memory, or there are too many. */
int
session_mark_number(struct session_triggers *triggers, const char *rule, const char *name)
{
  for (size_t i = 0; i < triggers->reason_count; i++) {
    const struct trigger_reason *reason = &triggers->reasons[i];
    bool same_name = (name == NULL && reason->name == NULL) ||
                     (name != NULL && reason->name != NULL && strcmp(reason->name, name) == 0);
    if (same_name && strcmp(reason->rule, rule) == 0) {
      return (int)i;
    }
  }
  if (triggers->reason_count == SESSION_REASONS_MAX) {
    return CT_ERANGE;
  }
  if (triggers->reason_count == triggers->reason_capacity) {
    size_t capacity = triggers->reason_capacity != 0 ? 2 * triggers->reason_capacity : 16;
    struct trigger_reason *reasons = reallocarray(triggers->reasons, capacity, sizeof(*reasons));
    if (reasons == NULL) {
      return CT_ENOMEM;
    }
    triggers->reasons = reasons;
    triggers->reason_capacity = capacity;
  }
  struct trigger_reason reason = {strdup(rule), name != NULL ? strdup(name) : NULL};
  if (reason.rule == NULL || (name != NULL && reason.name == NULL)) {
    free(reason.rule);
    free(reason.name);
    return CT_ENOMEM;
  }
  triggers->reasons[triggers->reason_count] = reason;
  return (int)triggers->reason_count++;
}

/* ---- the list ---- */

void
session_forget_rule(struct ct_session *session, uint32_t slot)
{
  pthread_mutex_lock(&session->recording.writer_lock);
  ct_rules_remove(session->triggers.rules, slot);
  pthread_mutex_unlock(&session->recording.writer_lock);
  ct_plans_lock(session->recording.modules.plans);
  ct_select_unwatch(session->options.selection, slot);
  session_itrace_forget(session, slot);
  session->recording.modules.details_on &= ~(1u << slot);
  session->triggers.details_wanted &= ~(1u << slot);
  ct_plans_unlock(session->recording.modules.plans);
}

/* Can this session do what the rule asks for? */
static int
check_action(const struct ct_session *session, const struct ct_rule *rule, struct ct_diag *diag)
{
  const struct ct_ring_header *ring = session->recording.image.ring;
  if (rule->action == CT_ACTION_DUMP && session->options.last_bytes == 0) {
    return ct_fail(
        diag, CT_EINVAL,
        "rule '%.200s': dump is for a recording that keeps the last stretch only (--last); this one keeps all",
        rule->text);
  }
  if (rule->action == CT_ACTION_DETAIL && session->triggers.post_ns == 0) {
    return ct_fail(diag, CT_EINVAL, "rule '%.200s': its windows end with the mark (--post 0), so nothing has detail",
                   rule->text);
  }
  if (rule->action == CT_ACTION_DETAIL && ring != NULL && ring->detail_count == 0) {
    return ct_fail(diag, CT_EINVAL,
                   "rule '%.200s': the recording has no memory for detail: begin it with --detail, or with a rule that "
                   "has this action",
                   rule->text);
  }
  return 0;
}

/* Which functions it is about, and which have detail then. */
static int
watch_functions(struct ct_session *session, const struct ct_rule *rule, uint32_t slot, struct ct_diag *diag)
{
  struct ct_selection *selection = session->options.selection;
  int code = 0;
  ct_plans_lock(session->recording.modules.plans);
  if (rule->pattern[0] != '\0') {
    code = ct_select_watch(selection, slot, rule->pattern, rule->kind == CT_RULE_RETURNS, diag);
  }
  if (code == 0 && rule->action == CT_ACTION_DETAIL) {
    code = ct_select_rule_detail(selection, slot, rule->detail, diag);
  }
  if (code == 0 && rule->action == CT_ACTION_ITRACE) {
    code = session_itrace_rule(session, slot, rule, diag);
  }
  ct_plans_unlock(session->recording.modules.plans);
  return code;
}

/* Its slot; negative: an error, with a line. */
int
session_add_rule(struct ct_session *session, const char *text, struct ct_diag *diag)
{
  struct session_triggers *triggers = &session->triggers;
  struct ct_diag why = {""};
  struct ct_rule rule;
  int code = ct_rule_parse(text, &rule, &why);
  if (code != 0) {
    return ct_fail(diag, code, "rule '%.200s': %s", text, why.text);
  }
  if ((code = check_action(session, &rule, diag)) != 0) {
    return code;
  }
  for (uint32_t slot = 0; slot < CT_RULES_MAX; slot++) {
    if (triggers->rules->list[slot].used && strcmp(triggers->rules->list[slot].rule.text, rule.text) == 0) {
      return ct_fail(diag, CT_EEXIST, "there is a rule '%.200s' already", text);
    }
  }
  int number = session_mark_number(triggers, rule.text, NULL);
  if (number < 0) {
    return ct_fail(diag, number, "no memory for a rule more");
  }
  pthread_mutex_lock(&session->recording.writer_lock);
  int slot = ct_rules_add(triggers->rules, &rule, (uint32_t)number, __builtin_ia32_rdtsc());
  pthread_mutex_unlock(&session->recording.writer_lock);
  if (slot < 0) {
    return ct_fail(diag, slot, "there are %d rules already, the most that a session takes", CT_RULES_MAX);
  }
  triggers->details[slot] = (struct rule_detail){0};
  code = watch_functions(session, &rule, (uint32_t)slot, diag);
  if (code != 0) {
    session_forget_rule(session, (uint32_t)slot);
  }
  return code != 0 ? code : slot;
}

void
session_clock_rules(struct ct_session *session)
{
  if (session->triggers.rules != NULL) {
    ct_rules_begin(session->triggers.rules, session->recording.manifest.tsc0);
  }
}

int
session_begin_triggers(struct ct_session *session, struct ct_diag *diag)
{
  const struct ct_session_options *options = &session->options;
  struct session_triggers *triggers = &session->triggers;
  if (session->node.is_child) {
    return 0;
  }
  uint64_t second = measure_ticks();
  const struct ct_windows_limits limits = {
      .pre = (uint64_t)((double)window_ns(options->pre_ns) / 1e9 * (double)second),
      .post = (uint64_t)((double)window_ns(options->post_ns) / 1e9 * (double)second),
      .pre_events = options->pre_events,
      .post_events = options->post_events,
      .most = ROLL_MOST * second,
      .minute = MINUTE * second,
      .per_minute = options->max_windows != 0 ? options->max_windows : CT_WINDOWS_DEFAULT,
      .bytes = options->max_windows_bytes != 0 ? options->max_windows_bytes : CT_WINDOWS_BYTES_DEFAULT,
  };
  triggers->post_ns = window_ns(options->post_ns);
  int code = ct_windows_create(&limits, &triggers->windows);
  if (code == 0) {
    code = ct_rules_create(triggers->windows, second, &triggers->rules);
  }
  if (code != 0) {
    return ct_fail(diag, code, "out of memory");
  }
  for (size_t i = 0; i < options->rule_count; i++) {
    int slot = session_add_rule(session, options->rules[i], diag);
    if (slot < 0) {
      return slot;
    }
  }
  session->recording.modules.rules = triggers->rules;
  ct_drain_rules(session->recording.drain, triggers->rules);
  return 0;
}

void
session_end_triggers(struct ct_session *session)
{
  struct session_triggers *triggers = &session->triggers;
  for (size_t i = 0; i < triggers->reason_count; i++) {
    free(triggers->reasons[i].rule);
    free(triggers->reasons[i].name);
  }
  free(triggers->reasons);
  ct_rules_free(triggers->rules);
  ct_windows_destroy(triggers->windows);
  *triggers = (struct session_triggers){.stop = triggers->stop};
}

void
session_note_dump(struct ct_session *session)
{
  /* acquire: pairs with the release of the dump's thread */
  if (atomic_exchange_explicit(&session->triggers.dump_failed, false, memory_order_acquire)) {
    session_note(session, session->triggers.dump_why.text);
  }
}

void
session_note_unmatched(struct ct_session *session)
{
  for (uint32_t slot = 0; session->triggers.rules != NULL && slot < CT_RULES_MAX; slot++) {
    const struct drain_rule *at = &session->triggers.rules->list[slot];
    if (at->used && at->rule.pattern[0] != '\0' && session->recording.modules.watched[slot] == 0) {
      char note[sizeof(session->sync.status.note)];
      snprintf(note, sizeof(note), "rule '%.150s' was about no function that could be hooked", at->rule.text);
      session_note(session, note);
    }
  }
}

static void
note_unseen(struct ct_session *session, const char *rule, uint64_t calls, size_t out)
{
  char note[sizeof(session->sync.status.note)];
  char functions[80] = "";
  if (out != 0) {
    snprintf(functions, sizeof(functions), "%sthose of %zu function%s while out of the budget",
             calls != 0 ? ", nor " : "", out, out == 1 ? "" : "s");
  }
  if (calls != 0) {
    snprintf(note, sizeof(note), "rule '%.100s' did not see %" PRIu64 " call%s that the budget only counted%s", rule,
             calls, calls == 1 ? "" : "s", functions);
  } else {
    snprintf(note, sizeof(note), "rule '%.100s' did not see calls: %s", rule, functions);
  }
  session_note(session, note);
}

void
session_note_unseen(struct ct_session *session)
{
  for (uint32_t slot = 0; session->triggers.rules != NULL && slot < CT_RULES_MAX; slot++) {
    const struct drain_rule *at = &session->triggers.rules->list[slot];
    size_t out = at->used ? session_budget_count_out(session, slot) : 0;
    if (at->used && (at->unseen != 0 || out != 0)) {
      note_unseen(session, at->rule.text, at->unseen, out);
    }
  }
}

/* ---- signals ---- */

/* The last thread in the trace that had this id. */
static uint32_t
thread_index(struct ct_session *session, uint32_t tid)
{
  const struct ct_drain_thread_info *threads;
  size_t count = tid != 0 ? ct_drain_threads(session->recording.drain, &threads) : 0;
  while (count-- > 0) {
    if (threads[count].tid == tid) {
      return threads[count].index;
    }
  }
  return UINT32_MAX;
}

void
session_want_handlers(struct ct_session *session)
{
  struct ct_rules *rules = session->triggers.rules;
  if (session->recording.image.ring != NULL && rules != NULL) {
    pthread_mutex_lock(&session->recording.writer_lock);
    rules->handlers_known = 0;
    pthread_mutex_unlock(&session->recording.writer_lock);
    __atomic_store_n(&session->recording.image.ring->handlers_wanted, rules->signals != 0, __ATOMIC_RELEASE);
  }
}

void
session_read_handlers(struct ct_session *session, const struct ct_remote *remote)
{
  struct ct_ring_header *ring = session->recording.image.ring;
  if (session->triggers.rules == NULL || session->triggers.rules->signals == 0 || ring == NULL) {
    return;
  }
  for (int number = 1; number < CT_HANDLED_SIGNALS; number++) {
    struct ct_signal_action action;
    if (ct_signal_get(remote, session->recording.image.layout.scratch, number, &action) == 0) {
      __atomic_store_n(&ring->handlers[number], action.handler, __ATOMIC_RELAXED);
    }
  }
  /* release: as the agent does */
  __atomic_fetch_add(&ring->handlers_changes, 1, __ATOMIC_RELEASE);
}

/* Rule `slot` is about the functions that handle its signal. handlers: by signal, UINT32_MAX: none. */
static void
watch_handlers_of(struct ct_session *session, uint32_t slot, const uint32_t *handlers)
{
  struct ct_rules *rules = session->triggers.rules;
  int wanted = rules->list[slot].rule.signal;
  session->recording.modules.watched[slot] = 0;
  ct_rules_unwatch(rules, slot);
  for (int number = 1; number < CT_HANDLED_SIGNALS; number++) {
    if (handlers[number] != UINT32_MAX && (wanted == 0 || wanted == number)) {
      ct_rules_watch_late(rules, slot, handlers[number]);
      session->recording.modules.watched[slot]++;
    }
  }
}

void
session_watch_handlers(struct ct_session *session)
{
  struct session_triggers *triggers = &session->triggers;
  const struct ct_ring_header *ring = session->recording.image.ring;
  if (triggers->rules == NULL || triggers->rules->signals == 0 || ring == NULL) {
    return;
  }
  /* acquire: pairs with the agent's release */
  uint32_t changes = __atomic_load_n(&ring->handlers_changes, __ATOMIC_ACQUIRE);
  if (changes == triggers->rules->handlers_known) {
    return;
  }
  uint32_t handlers[CT_HANDLED_SIGNALS];
  for (int number = 1; number < CT_HANDLED_SIGNALS; number++) {
    uint64_t address = __atomic_load_n(&ring->handlers[number], __ATOMIC_RELAXED);
    handlers[number] = address > 1 ? ct_modules_function_at(&session->recording.modules, address) : UINT32_MAX;
  }
  pthread_mutex_lock(&session->recording.writer_lock);
  for (uint32_t mask = triggers->rules->signals; mask != 0; mask &= mask - 1) {
    watch_handlers_of(session, (uint32_t)__builtin_ctz(mask), handlers);
  }
  triggers->rules->handlers_known = changes;
  pthread_mutex_unlock(&session->recording.writer_lock);
}

void
session_note_signal(struct ct_session *session, int number, bool is_crash, uint64_t tsc, uint32_t tid)
{
  struct ct_rules *rules = session->triggers.rules;
  if (rules == NULL || session->recording.drain == NULL || (!is_crash && session->triggers.crash == number)) {
    return; /* the crash was this signal's */
  }
  session->triggers.crash = is_crash ? number : 0;
  pthread_mutex_lock(&session->recording.writer_lock);
  uint32_t thread = rules->others != 0 ? thread_index(session, tid) : UINT32_MAX;
  for (int n = 0; n < CATCH_UP_TRIES && rules->others != 0 && tid != 0 && thread == UINT32_MAX; n++) {
    struct timespec wait = {0, CATCH_UP_NS}; /* the drain may not have come to its first events yet */
    pthread_mutex_unlock(&session->recording.writer_lock);
    nanosleep(&wait, NULL);
    pthread_mutex_lock(&session->recording.writer_lock);
    thread = thread_index(session, tid);
  }
  struct drain_rolls *rolls = ct_drain_rolls(session->recording.drain, thread);
  for (uint32_t mask = rules->others; mask != 0; mask &= mask - 1) {
    uint32_t slot = (uint32_t)__builtin_ctz(mask);
    const struct ct_rule *rule = &rules->list[slot].rule;
    /* One that the program had handled, or blocked, is known at its end only. */
    if ((rule->kind == CT_RULE_CRASH && (is_crash || ct_signal_is_fault(number))) ||
        (rule->kind == CT_RULE_SIGNAL && (rule->signal == 0 || rule->signal == number))) {
      ct_rules_mark(rules, slot, tsc, thread, rolls, UINT32_MAX);
    }
  }
  pthread_mutex_unlock(&session->recording.writer_lock);
}

/* ---- what is shown of them ---- */

static void
put_time(json_t *json, const char *tsc_key, const char *ns_key, uint64_t tsc, const json_t *clock)
{
  double tsc0 = (double)json_integer_value(json_object_get(clock, "tsc0"));
  double tsc1 = (double)json_integer_value(json_object_get(clock, "tsc1"));
  json_int_t ns0 = json_integer_value(json_object_get(clock, "ns0"));
  json_int_t ns1 = json_integer_value(json_object_get(clock, "ns1"));
  double ns = tsc1 > tsc0 ? ((double)tsc - tsc0) * (double)(ns1 - ns0) / (tsc1 - tsc0) : 0;
  json_object_set_new(json, tsc_key, json_integer((json_int_t)tsc));
  json_object_set_new(json, ns_key, json_integer(ns0 + (json_int_t)ns));
}

static json_t *
reason_json(const struct session_triggers *triggers, const struct ct_mark *mark, const json_t *clock)
{
  json_t *json = json_object();
  const struct trigger_reason *reason = &triggers->reasons[mark->rule];
  json_object_set_new(json, "rule", ct_json_string(reason->rule));
  if (reason->name != NULL) {
    json_object_set_new(json, "name", ct_json_string(reason->name));
  }
  put_time(json, "tsc", "ns", mark->tsc, clock);
  if (mark->thread != UINT32_MAX) {
    json_object_set_new(json, "thread", json_integer(mark->thread));
  }
  if (mark->function != UINT32_MAX) {
    json_object_set_new(json, "function", json_integer(mark->function));
  }
  if (mark->call != 0) {
    bool is_least = mark->call_is == CT_CALL_LEAST || mark->call_tsc > triggers->rules->ordinals.lost_tsc;
    json_object_set_new(json, "call", json_integer((json_int_t)mark->call));
    if (mark->call_is == CT_CALL_ABOUT || is_least) {
      json_object_set_new(json, "call_is", json_string(mark->call_is == CT_CALL_ABOUT ? "about" : "least"));
    }
  }
  return json;
}

static json_t *
window_json(const struct session_triggers *triggers, const struct ct_marked_window *window, size_t number,
            uint64_t first, uint64_t last, const json_t *clock)
{
  json_t *json = json_object(), *reasons = json_array();
  uint64_t end = window->end < last ? window->end : last;
  json_object_set_new(json, "number", json_integer((json_int_t)number));
  put_time(json, "begin_tsc", "begin_ns", window->begin > first ? window->begin : first, clock);
  put_time(json, "end_tsc", "end_ns", end > first ? end : first, clock);
  json_object_set_new(json, "marks", json_integer((json_int_t)window->marks));
  for (uint32_t i = 0; i < window->reason_count; i++) {
    json_array_append_new(reasons, reason_json(triggers, &window->reasons[i], clock));
  }
  json_object_set_new(json, "reasons", reasons);
  return json;
}

static json_t *
rule_detail_json(struct ct_session *session, uint32_t slot)
{
  const struct rule_detail *detail = &session->triggers.details[slot];
  return json_pack("{s:o, s:b, s:I, s:I, s:I}", "pattern",
                   ct_json_string(session->triggers.rules->list[slot].rule.detail), "on",
                   (int)(session->recording.modules.details_on >> slot & 1), "times", (json_int_t)detail->times,
                   "missed", (json_int_t)detail->missed, "slowest_ns", (json_int_t)detail->slowest_ns);
}

json_t *
session_rules_json(struct ct_session *session)
{
  json_t *json = json_array();
  for (uint32_t slot = 0; slot < CT_RULES_MAX; slot++) {
    const struct drain_rule *at = &session->triggers.rules->list[slot];
    if (at->used) {
      json_t *rule = json_pack("{s:o, s:I, s:I, s:I}", "rule", ct_json_string(at->rule.text), "functions",
                               (json_int_t)session->recording.modules.watched[slot], "marks", (json_int_t)at->marks,
                               "refused", (json_int_t)at->refused);
      if (session->options.budget > 0) {
        json_object_set_new(rule, "unseen_calls", json_integer((json_int_t)at->unseen));
        json_object_set_new(rule, "unseen_functions",
                            json_integer((json_int_t)session_budget_count_out(session, slot)));
      }
      if (at->rule.action == CT_ACTION_DETAIL) {
        json_object_set_new(rule, "detail", rule_detail_json(session, slot));
      }
      json_array_append_new(json, rule);
    }
  }
  return json;
}

/* What was asked for on both sides of marks; the windows have what came of it. */
static json_t *
rolls_json(const struct ct_session_options *options)
{
  return json_pack("{s:I, s:I, s:I, s:I}", "pre_ns", (json_int_t)window_ns(options->pre_ns), "pre_events",
                   (json_int_t)options->pre_events, "post_ns", (json_int_t)window_ns(options->post_ns), "post_events",
                   (json_int_t)options->post_events);
}

void
session_put_windows(struct ct_session *session, json_t *manifest)
{
  struct session_triggers *triggers = &session->triggers;
  const json_t *clock = json_object_get(manifest, "clock");
  struct ct_windows_sums sums;
  struct ct_marked_window window;
  if (triggers->windows == NULL) {
    return;
  }
  uint64_t first = session->recording.manifest.tsc0, end = session->recording.manifest.end_tsc;
  uint64_t last = end != 0 ? end : (uint64_t)json_integer_value(json_object_get(clock, "tsc1"));
  ct_windows_sums(triggers->windows, &sums);
  json_t *list = json_array();
  for (size_t i = 0; ct_windows_get(triggers->windows, i, &window, 1) == 1; i++) {
    json_array_append_new(list, window_json(triggers, &window, i + 1, first, last, clock));
  }
  json_object_set_new(manifest, "rules", session_rules_json(session));
  json_object_set_new(manifest, "windows", list);
  json_object_set_new(manifest, "rolls", rolls_json(&session->options));
  json_object_set_new(manifest, "windows_refused", json_integer((json_int_t)sums.refused));
  json_object_set_new(manifest, "windows_size",
                      json_pack("{s:I, s:I, s:I}", "bytes", (json_int_t)sums.bytes, "limit_bytes",
                                (json_int_t)ct_windows_limits(triggers->windows)->bytes, "refused",
                                (json_int_t)sums.refused_size));
}

void
session_count_windows(struct ct_session *session)
{
  struct ct_windows_sums sums;
  if (session->triggers.windows != NULL) {
    ct_windows_sums(session->triggers.windows, &sums);
    session->sync.status.marks = sums.marks;
    session->sync.status.windows = sums.windows;
    session->sync.status.windows_refused = sums.refused;
    session->sync.status.windows_refused_size = sums.refused_size;
    session->sync.status.windows_bytes = sums.bytes;
    session->sync.status.windows_limit_bytes = ct_windows_limits(session->triggers.windows)->bytes;
  }
}
