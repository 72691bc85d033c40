/* SPDX-License-Identifier: MIT */
/*
 * A session's thread, which does everything: it runs commands and serves the process in between.
 *
 * ptrace stops the process only after an exec and while hooks are put in, changed or taken out; otherwise it runs
 * free. When it needs us it rings the doorbell, control_doorbell in the ring; commands and the end of the process (a
 * second thread waits for that, by a pidfd) ring the same.
 */
#include "record/session_internal.h"

#include "base/clock.h"

#define IDLE_MS   200
#define COUNT_NS  200000000 /* between looks at the numbers */
#define CHECK_MS  50        /* where no loader reports libraries */
#define TICKS_MS  500       /* under a budget, whose ticks wake this thread in any case */
#define LINGER_MS 5

/* What children need, and the first session for them. */
static void
serve_tree(struct ct_session *session)
{
  if (session->recording.image_live) {
    session_serve_handshakes(session);
  }
  session_serve_lingering_image(session, false);
  session_trim_history(session);
  if (!session->node.is_child) {
    tree_free_ended(session);
  } else if (session->sync.finished && !session->node.image_lingers && !session->node.over) {
    tree_child_is_over(session);
  }
}

/* How long it may wait when nobody rings. */
static int
idle_ms(struct ct_session *session, bool is_running)
{
  if (session->node.image_lingers || session->node.handshake_queue.later != 0) {
    return LINGER_MS;
  }
  if (is_running && !ct_modules_have_rendezvous(&session->recording.modules)) {
    return CHECK_MS;
  }
  bool has_ticks = is_running && session->budget != NULL && session->node.tree == NULL &&
                   session->triggers.rules == NULL && ct_plans_are_stored(session->recording.modules.plans);
  return has_ticks ? TICKS_MS : IDLE_MS;
}

void *
session_main(void *context)
{
  struct ct_session *session = context;
  uint32_t served = 0;
  const uint32_t *served_doorbell = NULL;
  if (session->node.child_init != NULL) {
    session_start_child(session);
  }
  while (!session->sync.quit) {
    uint32_t *doorbell = session->sync.doorbell; /* only this thread changes it */
    uint32_t rung = __atomic_load_n(doorbell, __ATOMIC_ACQUIRE);
    if (session_run_command(session)) {
      continue;
    }
    if (session->node.tree != NULL) {
      serve_tree(session);
    }
    bool running = session->sync.status.state == CT_STATE_RUNNING;
    if (session->recording.image_live && running && (rung != served || doorbell != served_doorbell)) {
      served = rung;
      served_doorbell = doorbell;
      if (session_serve_requests(session)) {
        served_doorbell = NULL;
        continue;
      }
    }
    session_collect_itrace(session);
    session_report_probes(session);
    session_serve_metrics(session);
    if (session_check_for_end(session)) {
      continue;
    }
    if (session->target.process.late_count != 0) {
      ct_process_release_late(&session->target.process);
    }
    if (session->recording.writer != NULL && running) {
      session_refresh_manifest(session);
    }
    if (doorbell != session->sync.doorbell) {
      continue;
    }
    if (running && ct_now_ns() - session->recording.counted_ns >= COUNT_NS) {
      session_count_roughly(session);
    }
    int wait_ms = idle_ms(session, running);
    if (session->recording.image_live && running) {
      wait_ms = session_serve_budget(session, session_serve_triggers(session, wait_ms));
    }
    session_wait_ms(doorbell, rung, wait_ms);
    if (session->recording.writer == NULL || !running) {
      continue;
    }
    if (__atomic_load_n(doorbell, __ATOMIC_ACQUIRE) == rung) { /* nobody waits */
      ct_plans_store(session->recording.modules.plans);
      if (ct_now_ns() - session->recording.counted_ns >= COUNT_NS) {
        session_count_roughly(session);
      }
    }
    uint64_t begin = ct_now_ns();
    session_check_for_modules(session);
    if (__atomic_load_n(doorbell, __ATOMIC_ACQUIRE) != rung) { /* somebody may wait since then: plans take their time */
      session->recording.manifest.install_ns += ct_now_ns() - begin;
    }
  }
  return NULL;
}
