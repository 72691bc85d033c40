/* SPDX-License-Identifier: MIT */
/* The end of the process: a thread that sees it, and what is done then. */
#include "record/session_internal.h"

#include "base/worker.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

static void *
watch_main(void *context)
{
  struct ct_session *session = context;
  struct pollfd wait[2] = {{.fd = session->target.process.pidfd, .events = POLLIN},
                           {.fd = session->threads.stop_watching, .events = POLLIN}};
  while (poll(wait, 2, -1) < 0 && errno == EINTR) {
  }
  session_ring(session);
  return NULL;
}

void
session_start_watching(struct ct_session *session)
{
  session->threads.stop_watching = eventfd(0, EFD_CLOEXEC);
  session->threads.watched = session->threads.stop_watching >= 0 &&
                             ct_worker_create(&session->threads.watcher, NULL, watch_main, session) == 0;
}

void
session_stop_watching(struct ct_session *session)
{
  uint64_t one = 1;
  if (session->threads.watched) {
    if (write(session->threads.stop_watching, &one, sizeof(one)) == (ssize_t)sizeof(one)) {
      pthread_join(session->threads.watcher, NULL);
    }
    session->threads.watched = false;
  }
  if (session->threads.stop_watching >= 0) {
    close(session->threads.stop_watching);
    session->threads.stop_watching = -1;
  }
}

/* The process has ended, as wait_status says if that is known; or is lost. */
static void
note_end(struct ct_session *session, bool has_status, int wait_status, bool lost)
{
  ct_manifest_stop(&session->recording.manifest);
  session_resume_threads(session);
  session_end_image(session, false);
  if (has_status && WIFSIGNALED(wait_status)) {
    session_note_signal(session, WTERMSIG(wait_status), false, session->recording.manifest.end_tsc, 0);
  }
  if (session->recording.writer != NULL) {
    ct_manifest_end(&session->recording.manifest, has_status, wait_status);
    session_close_trace(session);
  }
  session_stop_watching(session);
  ct_process_close(&session->target.process, false);
  pthread_mutex_lock(&session->sync.guard);
  session->sync.status.ended = true;
  session->sync.status.has_status = has_status;
  session->sync.status.wait_status = wait_status;
  session->sync.lost = lost;
  session->sync.finished = true;
  ct_state_go(&session->sync.status.state, CT_STEP_ENDED, NULL);
  pthread_cond_broadcast(&session->sync.changed);
  pthread_mutex_unlock(&session->sync.guard);
}

/* Before it has been waited for: did it have children? */
static void
note_children(struct ct_session *session)
{
  siginfo_t info = {.si_pid = 0};
  if (session->node.tree != NULL || session->sync.status.children_missed ||
      waitid(P_PID, (id_t)session->target.process.pid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 ||
      info.si_pid == 0) {
    return;
  }
  bool missed = ct_process_child_faults(session->target.process.pid) != session->node.earlier_faults;
  session->recording.manifest.children_missed = missed;
  pthread_mutex_lock(&session->sync.guard);
  session->sync.status.children_missed = missed;
  pthread_mutex_unlock(&session->sync.guard);
}

bool
session_check_for_end(struct ct_session *session)
{
  int status = 0;
  struct ct_process *process = &session->target.process;
  if (process->pid == 0 || session->sync.status.ended) {
    return false;
  }
  if (ct_process_has_died(process)) { /* while it is a zombie */
    session_read_cpu(session);
  }
  session_itrace_sees_end(session);
  if (process->dead) {
    note_end(session, true, process->wait_status, false);
    return true;
  }
  if (session->sync.status.attached) {
    if (ct_process_has_died(process)) {
      bool known = ct_process_end_status(process, &status);
      note_end(session, known, status, false);
      return true;
    }
    return false;
  }
  if (session_itrace_is_live(session)) { /* its tracers wait for its threads */
    return false;
  }
  note_children(session);
  /* What waitpid would take, so that nobody knows of it any more. Not one that we hold: it would run on. */
  if (process->late_count == 0 && !process->stopped && !session->target.is_stopped) {
    ct_process_decline_tracing();
  }
  pid_t got = waitpid(process->pid, &status, WNOHANG | __WALL);
  if (got == process->pid && (WIFEXITED(status) || WIFSIGNALED(status))) {
    note_end(session, true, status, false);
    return true;
  }
  if (got < 0 && errno == ECHILD) {
    note_end(session, false, 0, true);
    return true;
  }
  return false;
}
