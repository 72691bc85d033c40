/* SPDX-License-Identifier: MIT */
/* The session of a child, by its own thread: it becomes that of its process, or gives up. See family.h. */
#include "base/clock.h"
#include "record/program.h"
#include "record/session_internal.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#define HOLD_MS 2000

/* ---- by the child's session ---- */

/* To a child that waits in the agent and is not held: it looks again within 100 ms. */
static void
tell_visitor(struct ct_session *session, enum ct_visitor_state state)
{
  uint32_t value = state, pending;
  uint64_t at = session->birth->visitor + offsetof(struct ct_visitor, state);
  if (ct_process_read(&session->process, at, &pending, sizeof(pending)) == 0 && pending == CT_VISIT_PENDING) {
    ct_process_write(&session->process, at, &value, sizeof(value));
  }
}

/* The process with that id is the one that waits: ids may differ between namespaces. */
static bool
is_waiting(struct ct_session *session)
{
  const struct ct_birth *birth = session->birth;
  struct ct_visitor visitor;
  return ct_process_read(&session->process, birth->visitor, &visitor, sizeof(visitor)) == 0 &&
         visitor.owner >> 32 == (uint32_t)birth->pid && visitor.state == CT_VISIT_PENDING &&
         visitor.tid == (uint32_t)birth->tid;
}

static int
make_own(struct ct_session *session, struct ct_diag *diag)
{
  struct ct_image_options options = {.ring_bytes = (uint64_t)session->options.ring_mib << 20,
                                     .lossless = session->options.lossless};
  struct ct_birth *birth = session->birth;
  session->image.place = birth->place;
  memset(&birth->place, 0, sizeof(birth->place));
  int code = ct_process_freeze(&session->process, HOLD_MS, &session->frozen, diag);
  if (code != 0) {
    return code;
  }
  session->frozen_since_ns = session->frozen.since_ns;
  session->is_frozen = true;
  if (!is_waiting(session)) {
    return ct_fail(diag, CT_ESRCH, "it did not wait for the recorder");
  }
  struct ct_remote remote = session_frozen_remote(session);
  code = ct_image_adopt(&remote, &options, (uint32_t)birth->pid, &session->image, diag);
  if (code == 0) {
    session->image_live = true;
    session->image_count = 1;
    code = ct_modules_complete(&session->modules, &remote, birth->since_ns);
  }
  return code;
}

static void
begin_manifest(struct ct_session *session)
{
  ct_plans_lock(session->modules.plans); /* patterns may just be changed */
  ct_manifest_attach(&session->manifest, &session->options, session->birth->pid);
  ct_plans_unlock(session->modules.plans);
}

static int
be_forked(struct ct_session *session, struct ct_diag *diag)
{
  struct ct_birth *birth = session->birth;
  struct ct_module_sinks to;
  char exe[64], program[PATH_MAX];
  int code = session_open_trace(session, diag);
  if (code != 0) {
    return code;
  }
  session->modules.items = birth->modules.items;
  session->modules.count = birth->modules.count;
  session->modules.capacity = birth->modules.capacity;
  session->modules.next_fn = birth->modules.next_fn;
  memset(&birth->modules, 0, sizeof(birth->modules));
  session->generation = birth->generation;
  session->hooks_version = birth->hooks_version;
  begin_manifest(session);
  code = make_own(session, diag);
  session_let_go(session);
  if (code == 0) { /* it runs while names are written; its events wait */
    to = session_sinks(session);
    session_sample(session);
    code = ct_modules_tell_again(&session->modules, birth->pid, session->drain);
    ct_modules_tell(&session->modules, &to);
  }
  if (code == 0) {
    code = ct_drain_start(session->drain, session->image.ring, birth->pid);
  }
  if (code == 0) {
    ct_process_path(birth->pid, "exe", exe, sizeof(exe));
    ssize_t length = readlink(exe, program, sizeof(program) - 1);
    program[length > 0 ? length : 0] = '\0';
    ct_manifest_image(&session->manifest, birth->pid, program, NULL);
    session_set_bell(session, &session->image.ring->control_bell);
    session->manifest.install_ns = ct_now_ns() - session->frozen_since_ns;
  }
  return code;
}

static void
answer_exec(void *context)
{
  struct ct_session *session = context;
  tell_visitor(session, CT_VISIT_DONE);
  session->birth->answered = true;
}

/* The child of vfork goes through its exec with us. CT_ENOENT: there was none. */
static int
be_executed(struct ct_session *session, struct ct_diag *diag)
{
  struct ct_birth *birth = session->birth;
  if (session_exec_loses_privilege(session, birth->path)) {
    return ct_fail(diag, CT_EUNSUPPORTED, "a setuid or setgid program is not recorded");
  }
  int code = ct_process_follow_exec(&session->process, birth->tid, answer_exec, session, diag);
  if (code == 0) {
    code = session_open_trace(session, diag);
    if (code == 0) {
      begin_manifest(session);
      session->generation = family_generation(session->family); /* it looks patterns up from here on */
      code = session_begin_image(session, diag);
    }
    ct_process_release(&session->process);
  }
  return code;
}

static int
open_process(struct ct_session *session, struct ct_diag *diag)
{
  int code = ct_process_open(session->birth->pid, &session->process, diag);
  if (code == 0 && !is_waiting(session)) {
    code = ct_fail(diag, CT_ESRCH, "it did not wait for the recorder");
  }
  return code;
}

/* It could not be followed, and runs on as it is. */
static void
give_up(struct ct_session *session, int code, const struct ct_diag *diag)
{
  const struct ct_birth *birth = session->birth;
  bool has_ended = session->process.pid == 0 || ct_process_has_died(&session->process);
  if (session->image_live && !has_ended) {
    session_detach(session, NULL);
  }
  session_end_image(session, false);
  session_drop_trace(session);
  if (!has_ended && !birth->answered) {
    tell_visitor(session, CT_VISIT_REFUSED);
  }
  ct_process_close(&session->process, false);
  session->process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
  if (code != CT_ENOENT && !has_ended) {
    family_list(session->family, birth, NULL, diag->text[0] != '\0' ? diag->text : ct_err_text(code));
  }
  session_go(session, CT_STEP_FAIL);
  pthread_mutex_lock(&session->guard);
  session->finished = true;
  pthread_cond_broadcast(&session->changed);
  pthread_mutex_unlock(&session->guard);
  family_is_over(session);
}

void
session_be_born(struct ct_session *session)
{
  struct ct_diag diag = {""};
  struct ct_birth *birth = session->birth;
  pthread_mutex_lock(&session->guard);
  session->status.pid = birth->pid;
  session->status.attached = true;
  pthread_mutex_unlock(&session->guard);
  session_go(session, CT_STEP_ATTACH);
  int code = open_process(session, &diag);
  if (code == 0) {
    code = birth->kind == CT_VISIT_FORK ? be_forked(session, &diag) : be_executed(session, &diag);
  }
  if (code != 0) {
    give_up(session, code, &diag);
  } else {
    session->manifest.born = birth->kind == CT_VISIT_FORK ? "fork" : "vfork";
    session->manifest.parent = birth->parent;
    family_list(session->family, birth, session->options.directory, NULL);
    session_start_watching(session);
    session_go(session, CT_STEP_HOOKED);
    session_go(session, CT_STEP_RESUME);
    session_catch_up(session);
    session_write_manifest(session, false);
  }
  ct_birth_free(birth);
  session->birth = NULL;
}
