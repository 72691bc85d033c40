/* SPDX-License-Identifier: MIT */
/* Child start-up, on the thread of the child's session, which becomes that of its process or gives up. See
 * process_tree.h. */
#include "base/clock.h"
#include "record/program.h"
#include "record/session_internal.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#define STOP_MS 30000 /* it waits for us, a minute; where it finds no processor it does not stop until it has one */

/* ---- by the child's session ---- */

/* The process is still the one that waits. */
static bool
is_waiting(struct ct_session *session)
{
  const struct ct_child_init *child_init = session->node.child_init;
  struct ct_handshake handshake;
  return ct_process_read(&session->target.process, child_init->handshake, &handshake, sizeof(handshake)) == 0 &&
         handshake.owner == child_init->owner && handshake.state == CT_HANDSHAKE_PENDING &&
         handshake.tid == (uint32_t)child_init->own_tid && session->target.process.own_pid == child_init->own_pid;
}

static int
make_own(struct ct_session *session, struct ct_diag *diag)
{
  struct ct_injected_options options = session_image_options(session);
  struct ct_child_init *child_init = session->node.child_init;
  session->recording.image.layout = child_init->layout;
  memset(&child_init->layout, 0, sizeof(child_init->layout));
  session_bound_waits(session);
  int code = ct_process_stop(&session->target.process, STOP_MS, &session->target.stopped, diag);
  if (code != 0) {
    return code;
  }
  session->target.stopped_since_ns = session->target.stopped.since_ns;
  session->target.is_stopped = true;
  if (!is_waiting(session)) {
    return ct_fail(diag, CT_ESRCH, "it did not wait for the recorder");
  }
  struct ct_remote remote = session_stopped_remote(session);
  code = ct_injected_adopt(&remote, &options, child_init->handshake, &session->recording.image, diag);
  if (code == 0) {
    child_init_release_page(child_init);
    session->recording.image_live = true;
    session->recording.image_count = 1;
    code = ct_modules_complete(&session->recording.modules, &remote, child_init->since_ns);
  }
  return code;
}

static void
begin_manifest(struct ct_session *session)
{
  ct_plans_lock(session->recording.modules.plans); /* patterns may just be changed */
  ct_manifest_attach(&session->recording.manifest, &session->options, session->node.child_init->pid);
  ct_plans_unlock(session->recording.modules.plans);
}

static int
start_forked(struct ct_session *session, struct ct_diag *diag)
{
  struct ct_child_init *child_init = session->node.child_init;
  char exe[64], program[PATH_MAX];
  int code = session_open_trace(session, diag);
  if (code != 0) {
    return code;
  }
  session->recording.modules.items = child_init->modules.items;
  session->recording.modules.count = child_init->modules.count;
  session->recording.modules.capacity = child_init->modules.capacity;
  session->recording.modules.next_fn = child_init->modules.next_fn;
  memset(&child_init->modules, 0, sizeof(child_init->modules));
  session->node.generation = child_init->generation;
  session->node.hooks_version = child_init->hooks_version;
  begin_manifest(session);
  code = make_own(session, diag);
  session_resume_threads(session); /* it runs while names are written; its events wait */
  if (code != 0) {
    return code;
  }
  struct ct_module_sinks to = session_sinks(session);
  session_sample(session);
  code = ct_modules_publish_again(&session->recording.modules, child_init->pid, session->recording.drain);
  ct_modules_publish(&session->recording.modules, &to);
  if (code != 0 || (code = session_start_drain(session, child_init->pid)) != 0) {
    return code;
  }
  ct_process_path(child_init->pid, "exe", exe, sizeof(exe));
  ssize_t length = readlink(exe, program, sizeof(program) - 1);
  program[length > 0 ? length : 0] = '\0';
  ct_manifest_image(&session->recording.manifest, child_init->pid, program, NULL);
  session_set_doorbell(session, &session->recording.image.ring->control_doorbell);
  session->recording.manifest.install_ns = ct_now_ns() - session->target.stopped_since_ns;
  return 0;
}

static void
answer_exec(void *context)
{
  struct ct_session *session = context;
  child_init_answer(session->node.child_init, CT_HANDSHAKE_DONE);
  session->node.child_init->answered = true;
}

/* The child of vfork goes through its exec with us. CT_ENOENT: there was none. */
static int
start_executed(struct ct_session *session, struct ct_diag *diag)
{
  struct ct_child_init *child_init = session->node.child_init;
  if (session_exec_loses_privilege(session, child_init->path)) {
    return ct_fail(diag, CT_EUNSUPPORTED, "a setuid or setgid program is not recorded");
  }
  session_bound_waits(session);
  int code = ct_process_follow_exec(&session->target.process, child_init->tid, answer_exec, session, diag);
  if (code == 0) {
    code = session_open_trace(session, diag);
    if (code == 0) {
      begin_manifest(session);
      session->node.generation = tree_generation(session->node.tree); /* it looks patterns up from here on */
      code = session_begin_image(session, diag);
    }
    ct_process_release(&session->target.process);
  }
  return code;
}

static int
open_process(struct ct_session *session, struct ct_diag *diag)
{
  int code = ct_process_open(session->node.child_init->pid, &session->target.process, diag);
  if (code == 0 && !is_waiting(session)) {
    code = ct_fail(diag, CT_ESRCH, "it did not wait for the recorder");
  }
  return code;
}

/* It could not be followed, and runs on as it is. */
static void
give_up(struct ct_session *session, int code, const struct ct_diag *diag)
{
  struct ct_child_init *child_init = session->node.child_init;
  bool has_ended = session->target.process.pid == 0 || ct_process_has_died(&session->target.process);
  if (session->recording.image_live && !has_ended) {
    session_detach(session, NULL);
  }
  session_end_image(session, false);
  session_drop_trace(session);
  if (!has_ended && !child_init->answered) {
    child_init_answer(child_init, CT_HANDSHAKE_REFUSED);
  }
  ct_process_close(&session->target.process, false);
  session->target.process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
  if (code != CT_ENOENT && !has_ended) {
    tree_list_child(session->node.tree, child_init, NULL, diag->text[0] != '\0' ? diag->text : ct_err_text(code));
  }
  session_go(session, CT_STEP_FAIL, NULL);
  pthread_mutex_lock(&session->sync.guard);
  session->sync.finished = true;
  pthread_cond_broadcast(&session->sync.changed);
  pthread_mutex_unlock(&session->sync.guard);
  tree_child_is_over(session);
}

void
session_start_child(struct ct_session *session)
{
  struct ct_diag diag = {""};
  struct ct_child_init *child_init = session->node.child_init;
  pthread_mutex_lock(&session->sync.guard);
  session->sync.status.pid = child_init->pid;
  session->sync.status.attached = true;
  pthread_mutex_unlock(&session->sync.guard);
  session_go(session, CT_STEP_ATTACH, NULL);
  session->recording.is_watched = tree_generation(session->node.tree) != 0; /* patterns have been changed in its tree */
  int code = open_process(session, &diag);
  if (code == 0) {
    code = child_init->kind == CT_HANDSHAKE_FORK ? start_forked(session, &diag) : start_executed(session, &diag);
  }
  if (code != 0) {
    give_up(session, code, &diag);
  } else {
    session->recording.manifest.born = child_init->kind == CT_HANDSHAKE_FORK ? "fork" : "vfork";
    session->recording.manifest.parent = child_init->parent;
    tree_list_child(session->node.tree, child_init, session->options.directory, NULL);
    session_start_watching(session);
    session_go(session, CT_STEP_HOOKED, NULL);
    session_go(session, CT_STEP_RESUME, NULL);
    session_begin_cpu(session);
    session_catch_up(session);
    session_write_manifest(session, false);
  }
  ct_child_init_free(child_init);
  session->node.child_init = NULL;
}
