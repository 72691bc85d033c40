/* SPDX-License-Identifier: MIT */
/*
 * Calls that are recorded as instructions (itrace.h). The hook of a function that a probe is about asks, as long as the
 * ring says that calls are wanted: the thread waits in the agent. A tracer takes it there (itrace/calls.h), it is
 * answered, and goes on in translated code, hooks and all; from the function's first instruction to its return that is
 * recorded.
 *
 * A thread that a tracer has cannot be stopped by anybody else. So before threads are stopped, for a change, an exec,
 * a crash or the end, all are released (ct_process_release_traced), and their calls are cut there. A call in a call
 * that is recorded is none of its own.
 *
 * Which steps are of which call is in the trace's itrace.tsv: thread, function, clock of the call's event (0: it has
 * none), first step in the thread's file, steps, and what has become of it.
 */
#include "record/session_internal.h"

#include "base/json.h"
#include "process/ids.h"
#include "trace/format.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAILURES_MAX = 3 }; /* of a probe's calls: then nothing more is tried */

/* ---- probes ---- */

static void
clear_probe(struct session_probe *probe)
{
  free(probe->function);
  free(probe->condition);
  *probe = (struct session_probe){.state = SESSION_PROBE_NONE};
}

/* The calls that may still be begun. */
static uint32_t
left_of(const struct session_probe *probe)
{
  uint64_t left = probe->state == SESSION_PROBE_OPEN && probe->failed < FAILURES_MAX && probe->allowed > probe->begun
                      ? probe->allowed - probe->begun
                      : 0;
  return left < UINT32_MAX ? (uint32_t)left : UINT32_MAX;
}

static void
show_probe(struct ct_session *session, uint32_t number)
{
  const struct session_probe *probe = &session->itrace.probes[number];
  struct ct_ring_header *ring = session->recording.image.ring;
  if (ring != NULL) {
    ring->itrace[number].reg = probe->when.reg;
    ring->itrace[number].op = probe->when.op;
    ring->itrace[number].value = probe->when.value;
    /* release: who sees that calls are wanted sees which */
    __atomic_store_n(&ring->itrace[number].calls, left_of(probe), __ATOMIC_RELEASE);
  }
}

void
session_show_probes(struct ct_session *session)
{
  for (uint32_t i = 0; i < CT_ITRACE_PROBES; i++) {
    if (session->itrace.probes[i].state != SESSION_PROBE_NONE) {
      show_probe(session, i);
    }
  }
}

/* A condition that the agent can look at. */
static int
check_condition(const char *text, struct ct_condition *out, struct ct_diag *diag)
{
  enum { RBP = 5, LAST = 11 }; /* enum ct_reg */
  int code = ct_condition_parse(text, out, diag);
  if (code == 0 && out->op != CT_ALWAYS && (out->reg == RBP || out->reg > LAST)) {
    return ct_fail(diag, CT_EINVAL, "'%.100s': here a condition is of arg1 to arg6, rax, rbx, r10, r11 or rsp", text);
  }
  return code;
}

static int
set_probe(struct ct_session *session, uint32_t number, const struct ct_session_itrace *wanted, struct ct_diag *diag)
{
  struct session_probe *probe = &session->itrace.probes[number];
  struct ct_condition when;
  struct ct_diag why = {""};
  int code = check_condition(wanted->condition, &when, diag);
  if (code != 0) {
    return code;
  }
  ct_plans_lock(session->recording.modules.plans);
  code = ct_select_itrace(session->options.selection, number, wanted->function, &why);
  ct_plans_unlock(session->recording.modules.plans);
  if (code != 0) {
    return ct_fail(diag, code, "pattern '%.200s': %s", wanted->function, why.text);
  }
  clear_probe(probe);
  probe->serial = ++session->itrace.serials;
  probe->state = SESSION_PROBE_OPEN;
  probe->function = strdup(wanted->function);
  probe->condition = wanted->condition != NULL ? strdup(wanted->condition) : NULL;
  probe->when = when;
  probe->allowed = wanted->calls;
  show_probe(session, number);
  return probe->function != NULL ? 0 : ct_fail(diag, CT_ENOMEM, "out of memory");
}

/* Another recording begins. */
static void
forget_last(struct ct_session *session)
{
  session_forget_itrace(session);
  pthread_mutex_lock(&session->sync.guard);
  memset(session->sync.probes, 0, sizeof(session->sync.probes));
  pthread_mutex_unlock(&session->sync.guard);
}

int
session_begin_itrace(struct ct_session *session, struct ct_diag *diag)
{
  const struct ct_session_options *options = &session->options;
  forget_last(session);
  if (options->itrace_count > CT_ITRACE_OPTIONS) {
    return ct_fail(diag, CT_EINVAL, "at most %d functions for itrace", CT_ITRACE_OPTIONS);
  }
  for (size_t i = 0; i < options->itrace_count && !session->node.is_child; i++) {
    struct ct_session_itrace wanted = options->itrace[i];
    wanted.calls = wanted.calls != 0 ? wanted.calls : CT_ITRACE_CALLS_DEFAULT;
    int code = set_probe(session, CT_ITRACE_RULES + (uint32_t)i, &wanted, diag);
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

int
session_itrace_rule(struct ct_session *session, uint32_t slot, const struct ct_rule *rule, struct ct_diag *diag)
{
  const struct ct_session_itrace wanted = {.function = rule->detail, .calls = 0};
  return set_probe(session, slot, &wanted, diag);
}

/* Those that are wanted already are not wanted twice. */
void
session_itrace_allow(struct ct_session *session, uint32_t slot, uint32_t calls)
{
  struct session_probe *probe = &session->itrace.probes[slot];
  if (probe->state == SESSION_PROBE_OPEN) {
    probe->allowed = probe->begun + calls;
    show_probe(session, slot);
  }
}

void
session_itrace_forget(struct ct_session *session, uint32_t slot)
{
  if (session->itrace.probes[slot].state != SESSION_PROBE_NONE) {
    session->itrace.probes[slot].state = SESSION_PROBE_CLOSED;
    ct_select_itrace(session->options.selection, slot, NULL, NULL);
    show_probe(session, slot);
  }
}

bool
session_probe_is_busy(const struct ct_session *session, uint32_t number)
{
  const struct session_itrace *itrace = &session->itrace;
  bool found = false;
  for (size_t i = 0; i < itrace->live_count; i++) {
    found |= itrace->live[i].probe == number;
  }
  return found;
}

bool
session_probe_is_open(const struct ct_session *session, uint32_t number)
{
  const struct session_probe *probe = &session->itrace.probes[number];
  return session_probe_is_busy(session, number) || left_of(probe) != 0 ||
         (probe->state == SESSION_PROBE_OPEN && number < CT_ITRACE_RULES);
}

const char *
session_probe_outcome(const struct ct_session *session, uint32_t number, uint64_t serial)
{
  const struct session_probe *probe = &session->itrace.probes[number];
  if (probe->serial == 0) { /* the recording is over */
    return "ended";
  }
  if (probe->serial != serial || probe->state == SESSION_PROBE_CLOSED) { /* another is in its place, or it is closed */
    return "closed";
  }
  return session_probe_is_open(session, number) ? "ended" : "done";
}

int
session_open_probe(struct ct_session *session, const struct ct_session_itrace *wanted, uint32_t *number,
                   struct ct_diag *diag)
{
  struct ct_session_itrace own = *wanted;
  own.calls = own.calls != 0 ? own.calls : CT_ITRACE_CALLS_DEFAULT;
  if (own.calls > CT_ITRACE_CALLS_MAX) {
    return ct_fail(diag, CT_EINVAL, "at most %d calls", CT_ITRACE_CALLS_MAX);
  }
  for (uint32_t i = CT_ITRACE_RULES; i < CT_ITRACE_PROBES; i++) {
    if (session->itrace.probes[i].state == SESSION_PROBE_NONE || !session_probe_is_open(session, i)) {
      *number = i;
      return set_probe(session, i, &own, diag);
    }
  }
  return ct_fail(diag, CT_ERANGE, "there are %d functions for itrace already: close one", CT_ITRACE_OPTIONS);
}

/* ---- calls ---- */

static void
ring_session(void *context)
{
  session_ring(context);
}

static void
release_traced(void *context)
{
  struct ct_session *session = context;
  if (session->itrace.calls != NULL) {
    ct_itrace_calls_stop(session->itrace.calls);
    session_collect_itrace(session);
  }
}

static int
begin_calls(struct ct_session *session, struct ct_diag *diag)
{
  struct session_itrace *itrace = &session->itrace;
  session->target.process.release_traced = release_traced;
  session->target.process.release_context = session;
  if (itrace->calls != NULL) {
    return 0;
  }
  const struct ct_itrace_calls_options options = {.directory = session->options.directory,
                                                  .no_vectors = session->options.itrace_no_vectors,
                                                  .is_lossless = true,
                                                  .ended = ring_session,
                                                  .context = session};
  return ct_itrace_calls_create(&options, &itrace->calls, diag);
}

static void
copy_patch(const struct ct_patch *patch, struct ct_itrace_patch *to)
{
  *to = (struct ct_itrace_patch){.address = patch->address, .length = patch->length};
  memcpy(to->bytes, patch->bytes, sizeof(patch->bytes));
  memcpy(to->old, patch->old, sizeof(patch->old));
}

/* The hooks that the call is not to meet. */
static void
hide_hooks(const struct ct_session *session, struct ct_wanted_call *call)
{
  size_t count;
  struct ct_patch *patches = ct_modules_patches(&session->recording.modules, &count);
  call->hidden = patches != NULL ? calloc(count + 1, sizeof(*call->hidden)) : NULL;
  for (size_t i = 0; call->hidden != NULL && i < count; i++) {
    copy_patch(&patches[i], &call->hidden[i]);
    call->hidden_count++;
  }
  free(patches);
}

static int
begin_call(struct ct_session *session, uint32_t slot, const struct ct_request *request, struct itrace_live *live,
           struct ct_diag *diag)
{
  struct ct_slot *asker = &session->recording.image.parts.slots[slot];
  struct ct_itrace_patch own;
  struct ct_patch patch;
  struct ct_wanted_call call = {.pid = session->target.process.pid,
                                .tid = ct_thread_by_own_id(session->target.process.pid, (pid_t)asker->tid),
                                .number = live->number,
                                .place = request->arg[CT_ITRACE_ARG_PLACE],
                                .function = request->arg[CT_ITRACE_ARG_FUNCTION],
                                .flag = &asker->itraced};
  if (call.tid == 0) {
    return ct_fail(diag, CT_ESRCH, "the thread has ended");
  }
  if (ct_modules_patch_at(&session->recording.modules, call.function, &patch)) {
    copy_patch(&patch, &own);
    call.own = &own;
  }
  int code = begin_calls(session, diag);
  if (code == 0 && session->options.itrace_plain) {
    hide_hooks(session, &call);
  }
  __atomic_store_n(&asker->itraced, 1, __ATOMIC_RELAXED);
  code = code == 0 ? ct_itrace_call_begin(session->itrace.calls, &call, diag) : code;
  if (code != 0) {
    __atomic_store_n(&asker->itraced, 0, __ATOMIC_RELAXED);
  }
  return code;
}

static void
note_failure(struct ct_session *session, struct session_probe *probe, const char *why)
{
  char note[sizeof(session->sync.status.note)];
  probe->failed++;
  snprintf(note, sizeof(note), "a call of '%.80s' could not be recorded as instructions: %.100s", probe->function, why);
  session_note(session, note);
}

void
session_serve_itrace(struct ct_session *session, uint32_t slot, const struct ct_request *request)
{
  struct session_itrace *itrace = &session->itrace;
  uint64_t number =
      __atomic_load_n(&request->arg[CT_ITRACE_ARG_PROBE], __ATOMIC_RELAXED); /* once: checked, then used */
  struct ct_diag diag = {""};
  if (number >= CT_ITRACE_PROBES || left_of(&itrace->probes[number]) == 0) { /* it says what it likes */
    return;
  }
  session_collect_itrace(session);
  struct itrace_live *all = reallocarray(itrace->live, itrace->live_count + 1, sizeof(*all));
  if (all == NULL) {
    return;
  }
  itrace->live = all;
  struct itrace_live *live = &all[itrace->live_count];
  *live = (struct itrace_live){.number = ++itrace->next_number,
                               .tsc = request->arg[CT_ITRACE_ARG_TSC],
                               .probe = (uint32_t)number,
                               .fn = (uint32_t)request->arg[CT_ITRACE_ARG_FN],
                               .slot = slot};
  struct session_probe *probe = &itrace->probes[number];
  int code = begin_call(session, slot, request, live, &diag);
  if (code == 0) {
    itrace->live_count++;
    probe->begun++;
  } else if (code != CT_ESRCH) {
    note_failure(session, probe, diag.text[0] != '\0' ? diag.text : ct_err_text(code));
  }
  show_probe(session, (uint32_t)number);
}

/* ---- what has become of them ---- */

static FILE *
open_list(struct ct_session *session)
{
  char path[PATH_MAX];
  if (session->itrace.list != NULL || session->itrace.list_failed) {
    return session->itrace.list;
  }
  snprintf(path, sizeof(path), "%s/%s", session->options.directory, CT_TRACE_ITRACED);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  session->itrace.list = fd >= 0 ? fdopen(fd, "w") : NULL;
  if (session->itrace.list == NULL) {
    session->itrace.list_failed = true;
    session_note(session, "itrace.tsv cannot be written: which calls were recorded as instructions is not known");
    if (fd >= 0) {
      close(fd);
    }
  }
  return session->itrace.list;
}

static const char *const outcomes[] = {
    [CT_ITRACE_RETURNED] = "returned", [CT_ITRACE_CUT] = "cut", [CT_ITRACE_ENDED] = "ended"};

static void
keep_ended(struct ct_session *session, const struct itrace_live *live, const struct ct_itrace_done *done)
{
  struct session_itrace *itrace = &session->itrace;
  const struct session_probe *probe = &itrace->probes[live->probe];
  itrace->ended = itrace->ended != NULL ? itrace->ended : calloc(ITRACE_ENDED_KEPT, sizeof(*itrace->ended));
  if (itrace->ended != NULL) {
    struct itrace_ended *ended = &itrace->ended[itrace->ended_count++ % ITRACE_ENDED_KEPT];
    const char *name = ct_modules_name(&session->recording.modules, live->fn);
    free(ended->name);
    *ended = (struct itrace_ended){.name = name != NULL ? strdup(name) : NULL,
                                   .serial = probe->serial,
                                   .ordinal = probe->recorded + probe->cut,
                                   .first_step = done->first_step,
                                   .steps = done->steps,
                                   .fn = live->fn,
                                   .tid = (int)done->tid,
                                   .outcome = outcomes[done->outcome]};
    session_feed_call(session, live->probe, ended);
  }
}

static void
list_call(struct ct_session *session, const struct itrace_live *live, const struct ct_itrace_done *done)
{
  FILE *list = open_list(session);
  if (list != NULL) {
    fprintf(list, "%d\t%u\t%llu\t%llu\t%llu\t%s\n", (int)done->tid, live->fn, (unsigned long long)live->tsc,
            (unsigned long long)done->first_step, (unsigned long long)done->steps, outcomes[done->outcome]);
    fflush(list);
  }
}

/* A later call of the thread is being recorded already. */
static bool
slot_is_busy(const struct session_itrace *itrace, uint32_t slot)
{
  bool found = false;
  for (size_t i = 0; i < itrace->live_count; i++) {
    found |= itrace->live[i].slot == slot;
  }
  return found;
}

static void
take_done(struct ct_session *session, const struct ct_itrace_done *done)
{
  struct session_itrace *itrace = &session->itrace;
  size_t i = 0;
  while (i < itrace->live_count && itrace->live[i].number != done->number) {
    i++;
  }
  if (i == itrace->live_count) {
    return;
  }
  struct itrace_live live = itrace->live[i];
  struct session_probe *probe = &itrace->probes[live.probe];
  itrace->live[i] = itrace->live[--itrace->live_count];
  if (session->recording.image.ring != NULL && !slot_is_busy(itrace, live.slot)) {
    __atomic_store_n(&session->recording.image.parts.slots[live.slot].itraced, 0, __ATOMIC_RELAXED);
  }
  probe->steps += done->steps;
  probe->recorded += done->outcome == CT_ITRACE_RETURNED;
  probe->cut += done->outcome == CT_ITRACE_CUT || done->outcome == CT_ITRACE_ENDED;
  if (done->outcome == CT_ITRACE_MISSED) {
    probe->begun--;
  } else {
    list_call(session, &live, done);
    keep_ended(session, &live, done);
  }
  if (done->why.text[0] != '\0' && probe->function != NULL) {
    note_failure(session, probe, done->why.text);
  }
  show_probe(session, live.probe);
  session->recording.manifest_is_old = true;
}

void
session_collect_itrace(struct ct_session *session)
{
  struct ct_itrace_done *done = session->itrace.calls != NULL ? ct_itrace_calls_done(session->itrace.calls) : NULL;
  while (done != NULL) {
    struct ct_itrace_done *next = done->next;
    take_done(session, done);
    free(done);
    done = next;
  }
}

int
session_close_probe(struct ct_session *session, uint32_t number, struct ct_diag *diag)
{
  if (number < CT_ITRACE_RULES || number >= CT_ITRACE_PROBES ||
      session->itrace.probes[number].state == SESSION_PROBE_NONE) {
    return ct_fail(diag, CT_ENOENT, "there is no itrace of number %u", number);
  }
  ct_plans_lock(session->recording.modules.plans);
  session_itrace_forget(session, number);
  ct_plans_unlock(session->recording.modules.plans);
  if (session_probe_is_busy(session, number)) {
    release_traced(session);
  }
  session->recording.manifest_is_old = true;
  return 0;
}

bool
session_itrace_is_live(struct ct_session *session)
{
  return session->itrace.calls != NULL && ct_itrace_calls_live(session->itrace.calls);
}

bool
session_itrace_sees_end(struct ct_session *session)
{
  int status = 0;
  if (session->itrace.calls == NULL) {
    return false;
  }
  if (ct_process_has_died(&session->target.process)) {
    release_traced(session);
  }
  bool has_ended = ct_itrace_calls_process_ended(session->itrace.calls, &status);
  if (has_ended && !session->target.process.dead) {
    ct_process_note_end(&session->target.process, session->target.process.pid, status);
  }
  return has_ended;
}

/* Functions that probes are about, as long as their modules are there. */
static void
count_functions(struct ct_session *session)
{
  for (uint32_t i = 0; session->recording.image_live && i < CT_ITRACE_PROBES; i++) {
    struct session_probe *probe = &session->itrace.probes[i];
    if (probe->state != SESSION_PROBE_NONE) {
      size_t count = ct_modules_probed(&session->recording.modules, i);
      probe->functions = count > probe->functions ? count : probe->functions;
    }
  }
}

void
session_itrace_end_image(struct ct_session *session)
{
  count_functions(session);
  if (session->itrace.calls != NULL) {
    release_traced(session);
    ct_itrace_calls_image(session->itrace.calls);
  }
}

void
session_end_itrace(struct ct_session *session)
{
  struct session_itrace *itrace = &session->itrace;
  struct ct_diag diag = {""};
  for (uint32_t i = 0; i < CT_ITRACE_PROBES; i++) {
    const struct session_probe *probe = &itrace->probes[i];
    char note[sizeof(session->sync.status.note)];
    if (probe->state != SESSION_PROBE_NONE && probe->begun == 0 && probe->allowed != 0) {
      snprintf(
          note, sizeof(note),
          probe->functions == 0
              ? "no calls of '%.100s' are recorded as instructions: no such function was hooked in a way that tells"
              : "no calls of '%.100s' are recorded as instructions: there were none",
          probe->function);
      session_note(session, note);
    }
  }
  if (itrace->calls != NULL && ct_itrace_calls_end(itrace->calls, &itrace->summary, &diag) != 0) {
    session_note(session, diag.text);
  }
  itrace->calls = NULL;
  if (itrace->list != NULL) {
    fclose(itrace->list);
    itrace->list = NULL;
  }
}

void
session_forget_itrace(struct ct_session *session)
{
  struct session_itrace *itrace = &session->itrace;
  for (size_t i = 0; itrace->ended != NULL && i < ITRACE_ENDED_KEPT; i++) {
    free(itrace->ended[i].name);
  }
  free(itrace->ended);
  json_decref(itrace->last);
  itrace->ended = NULL;
  itrace->last = NULL;
  itrace->ended_count = 0;
}

/* Nothing more will be recorded: those who do not ask are notified. */
static void
report_the_end(struct ct_session *session)
{
  for (uint32_t i = 0; i < CT_ITRACE_PROBES; i++) {
    pthread_mutex_lock(&session->sync.guard);
    struct session_probe_seen *seen = &session->sync.probes[i];
    uint64_t serial = seen->is_open ? seen->serial : 0;
    seen->is_open = false;
    pthread_cond_broadcast(&session->sync.changed);
    pthread_mutex_unlock(&session->sync.guard);
    if (serial != 0) {
      session_feed_over(session, i, serial, session_probe_outcome(session, i, serial));
    }
  }
}

void
session_free_itrace(struct ct_session *session)
{
  struct session_itrace *itrace = &session->itrace;
  json_decref(itrace->last);
  itrace->last = session_itrace_json(session); /* those who wait are notified */
  report_the_end(session);
  for (uint32_t i = 0; i < CT_ITRACE_PROBES; i++) {
    clear_probe(&itrace->probes[i]);
  }
  free(itrace->live);
  itrace->live = NULL;
  itrace->live_count = 0;
}

json_t *
session_itrace_json(struct ct_session *session)
{
  const struct session_itrace *itrace = &session->itrace;
  count_functions(session);
  json_t *list = json_array();
  for (uint32_t i = 0; i < CT_ITRACE_PROBES; i++) {
    const struct session_probe *probe = &itrace->probes[i];
    if (probe->state == SESSION_PROBE_NONE) {
      continue;
    }
    json_t *json =
        json_pack("{s:i, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "number", (int)i, "function",
                  ct_json_string(probe->function), "state",
                  probe->state == SESSION_PROBE_CLOSED ? "closed"
                  : session_probe_is_open(session, i)  ? "open"
                                                       : "done",
                  "functions", (json_int_t)probe->functions, "calls", (json_int_t)probe->allowed, "begun",
                  (json_int_t)probe->begun, "recorded", (json_int_t)probe->recorded, "cut", (json_int_t)probe->cut,
                  "failed", (json_int_t)probe->failed, "steps", (json_int_t)probe->steps);
    if (probe->condition != NULL) {
      json_object_set_new(json, "condition", ct_json_string(probe->condition));
    }
    json_array_append_new(list, json);
  }
  if (json_array_size(list) == 0) {
    json_decref(list);
    return NULL;
  }
  return list;
}
