/* SPDX-License-Identifier: MIT */
/* A session as an object, and the calls of session.h, each a command of the session's thread (loop.c). */
#include "record/session_internal.h"

#include "base/pause_request.h"
#include "base/sized.h"
#include "base/test_point.h"
#include "base/worker.h"
#include "process/ids.h"
#include "record/program.h"
#include "select/select.h"
#include "target/debuginfod.h"
#include "trace/pieces.h"
#include "trace/tree.h"

#include <contrail/exclude.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (8u << 20) /* of its thread */

/* With room for what it does, whatever the limit on stacks is that the program is started with. */
static int
start_thread(struct ct_session *session)
{
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  int failed = ct_worker_create(&session->threads.thread, &attributes, session_main, session);
  pthread_attr_destroy(&attributes);
  return failed;
}

static void
free_session(struct ct_session *session)
{
  free(session->sync.metrics);
  if (!session->node.is_child) {
    ct_process_tree_free(session->node.tree);
  }
  pthread_mutex_destroy(&session->sync.guard);
  pthread_mutex_destroy(&session->recording.writer_lock);
  pthread_cond_destroy(&session->sync.changed);
  ct_selection_free(session->recording.own_selection);
  ct_exclude_free(session->recording.own_exclude);
  free((char *)session->options.directory);
  session_free_budget(session);
  session_end_feeds(session);
  session_forget_itrace(session);
  free(session);
}

#define BUDGET_LEAST 0.001
#define BUDGET_MOST  10.0

static int stop_recording(struct ct_session *session, struct ct_diag *diag);
static int create(const struct ct_session_options *options, struct ct_process_tree *tree,
                  struct ct_child_init *child_init, struct ct_session **out, struct ct_diag *diag);

static const struct ct_tree_sessions of_children = {.create = create, .close = ct_session_close};

static int
check_options(const struct ct_session_options *options, struct ct_diag *diag)
{
  if (options->directory == NULL) {
    return ct_fail(diag, CT_EINVAL, "no directory is given for the trace");
  }
  if (options->budget != 0 && !(options->budget >= BUDGET_LEAST && options->budget <= BUDGET_MOST)) {
    return ct_fail(diag, CT_EINVAL, "a budget is a share from %g to %g", BUDGET_LEAST, BUDGET_MOST);
  }
  if (options->max_bytes != 0 && (options->max_bytes < CT_PIECES_LIMIT_MIN ||
                                  options->max_bytes > CT_PIECES_LIMIT_MAX || options->last_bytes != 0)) {
    return ct_fail(diag, CT_EINVAL, "max_bytes is 1 MiB to 1 PiB, and not together with last_bytes");
  }
  return options->debuginfod ? ct_debuginfod_check(diag) : 0;
}

/* child_init: of a child, which is the new session's then; NULL: it is a first one. */
static int
create(const struct ct_session_options *options, struct ct_process_tree *tree, struct ct_child_init *child_init,
       struct ct_session **out, struct ct_diag *diag)
{
  struct ct_session_options own;
  int code = ct_sized_take(&own, sizeof(own), options, diag);
  code = code == 0 ? check_options(&own, diag) : code;
  if (code != 0) {
    return code;
  }
  struct ct_session *session = calloc(1, sizeof(*session));
  if (session == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  session->options = own;
  session->options.ring_mib = own.ring_mib != 0 ? own.ring_mib : CT_RING_MIB_DEFAULT;
  session->options.directory = strdup(own.directory);
  if (own.selection == NULL) {
    session->options.selection = session->recording.own_selection = ct_selection_create();
  }
  if (tree == NULL && session->options.selection != NULL) {
    ct_select_forks(session->options.selection, own.follow);
    ct_select_for_budget(session->options.selection, own.budget != 0);
  }
  if (own.exclude == NULL) {
    session->options.exclude = session->recording.own_exclude = ct_exclude_create();
  }
  bool have_all =
      session->options.directory != NULL && session->options.selection != NULL && session->options.exclude != NULL;
  session->target.process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
  session->sync.doorbell = &session->sync.own_doorbell;
  session->triggers.stop = stop_recording;
  session->threads.stop_watching = session->recording.directory_fd = -1;
  session->node.is_child = child_init != NULL;
  session->node.child_init = child_init;
  session->node.child_pid = child_init != NULL ? child_init->pid : 0;
  session->node.parent = child_init != NULL ? child_init->parent : 0;
  session->node.tree = tree == NULL && own.follow ? ct_process_tree_create(session, &of_children) : tree;
  have_all = have_all && (!own.follow || session->node.tree != NULL);
  pthread_mutex_init(&session->sync.guard, NULL);
  pthread_mutex_init(&session->recording.writer_lock, NULL);
  pthread_cond_init(&session->sync.changed, NULL);
  ct_state_go(&session->sync.status.state, CT_STEP_CREATE, NULL);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &session->caller_mask);
  int failed = have_all ? start_thread(session) : -1;
  pthread_sigmask(SIG_SETMASK, &session->caller_mask, NULL);
  if (failed != 0) {
    free_session(session);
    return ct_fail(
        diag, CT_ENOMEM, "cannot start a thread: %s",
        ct_children_go_elsewhere()
            ? "contrail was put before a new pid namespace without being in it (unshare -p needs -f and --mount-proc)"
            : "out of memory, or the user's limit of processes (ulimit -u) is reached");
  }
  *out = session;
  return 0;
}

int
ct_session_create(const struct ct_session_options *options, struct ct_session **out, struct ct_diag *diag)
{
  ct_workers_guard(); /* a program with many busy threads, to be attached to, makes whoever calls us wait as well */
  int code = create(options, NULL, NULL, out, diag);
  if (code == 0) {
    ct_worker_enter();
    (*out)->threads.creator = pthread_self();
    (*out)->threads.workers_guarded = true;
  } else {
    ct_workers_unguard();
  }
  return code;
}

struct spawn_argument {
  char *const *argv;
  int *exec_errno;
  struct ct_process_setup setup;
};

static int
run_spawn(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  struct spawn_argument *spawn = argument;
  int code = session_go(session, CT_STEP_SPAWN, diag);
  if (code != 0) {
    return code;
  }
  code = ct_program_check(spawn->argv[0], spawn->exec_errno, diag);
  if (code == 0) {
    code = session_open_trace(session, diag);
  }
  ct_test_point("trace-opened");
  if (code == 0) {
    code = ct_process_spawn(spawn->argv, &spawn->setup, &session->target.process, spawn->exec_errno, diag);
    if (code != 0) {
      session_drop_trace(session);
    }
  }
  if (code != 0) {
    session->target.process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
    session_go(session, CT_STEP_FAIL, NULL);
    return code;
  }
  ct_manifest_start(&session->recording.manifest, &session->options, spawn->argv, session->target.process.pid);
  session_clock_rules(session);
  pthread_mutex_lock(&session->sync.guard);
  session->sync.status.pid = session->target.process.pid;
  pthread_mutex_unlock(&session->sync.guard);
  session_start_watching(session);
  return session_go(session, CT_STEP_STOPPED, NULL);
}

int
ct_session_spawn(struct ct_session *session, char *const argv[], int *exec_errno, struct ct_diag *diag)
{
  const struct ct_session_options *options = &session->options;
  struct spawn_argument spawn = {.argv = argv,
                                 .exec_errno = exec_errno,
                                 .setup = {.device = options->program_device,
                                           .inode = options->program_inode,
                                           .environment = options->environment,
                                           .directory = options->working_directory,
                                           .streams = options->streams,
                                           .own_group = options->own_group}};
  *exec_errno = 0;
  if (options->signal_mask != NULL) {
    memcpy(&spawn.setup.mask, options->signal_mask, sizeof(spawn.setup.mask));
  } else {
    pthread_sigmask(SIG_SETMASK, NULL, &spawn.setup.mask);
  }
  return session_command(session, CT_ERROR_SPAWN, run_spawn, &spawn, diag);
}

static int
run_install(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  (void)argument;
  int code = session_go(session, CT_STEP_INSTALL, diag);
  if (code != 0) {
    return code;
  }
  code = session_begin_image(session, diag);
  if (code == 0) {
    session->recording.modules.is_cancelled = NULL;
    return session_go(session, CT_STEP_HOOKED, NULL);
  }
  if (ct_process_reap(&session->target.process)) { /* it was killed while it was stopped */
    session_check_for_end(session);
    return 0;
  }
  if (code == CT_ETIMEOUT) { /* it runs on without us */
    ct_process_release(&session->target.process);
    session_detach(session, NULL);
  } else {
    session_end_image(session, false);
    session_stop_watching(session);
    ct_process_close(&session->target.process, true);
  }
  session_drop_trace(session);
  session_go(session, CT_STEP_FAIL, NULL);
  return code;
}

int
ct_session_install(struct ct_session *session, struct ct_diag *diag)
{
  return session_command(session, CT_ERROR_HOOK, run_install, NULL, diag);
}

static int
run_attach(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  pid_t pid = *(pid_t *)argument;
  int code = session_go(session, CT_STEP_ATTACH, diag);
  if (code != 0) {
    return code;
  }
  pthread_mutex_lock(&session->sync.guard);
  session->sync.status.pid = pid;
  session->sync.status.attached = true;
  pthread_mutex_unlock(&session->sync.guard);
  code = session_attach(session, pid, diag);
  if (code != 0) {
    ct_process_close(&session->target.process, false);
    session->target.process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
    session_go(session, CT_STEP_FAIL, NULL);
    return code;
  }
  session->recording.modules.is_cancelled = NULL;
  session_note_earlier_children(session);
  pthread_mutex_lock(&session->sync.guard);
  ct_modules_count(&session->recording.modules, &session->sync.status.functions, &session->sync.status.hooked);
  pthread_mutex_unlock(&session->sync.guard);
  session_start_watching(session);
  return session_go(session, CT_STEP_HOOKED, NULL);
}

int
ct_session_attach(struct ct_session *session, pid_t pid, struct ct_diag *diag)
{
  return session_command(session, CT_ERROR_ATTACH, run_attach, &pid, diag);
}

static int
run_resume(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  (void)argument;
  int code = session_go(session, CT_STEP_RESUME, diag);
  if (code == 0) {
    if (session->recording.stacks != NULL && !session->recording.stacks_begun) {
      ct_stacks_begin(session->recording.stacks, session->recording.drain);
      session->recording.stacks_begun = true;
    }
    session_begin_cpu(session);
    ct_process_release(&session->target.process);
    session_resume_threads(session);
    ct_test_point("session-resumed");
    session_write_manifest(session, false);
    session_count(session);
  }
  return code;
}

int
ct_session_resume(struct ct_session *session, struct ct_diag *diag)
{
  return session_command(session, CT_ERROR_INIT, run_resume, NULL, diag);
}

static int
run_pause(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  (void)argument;
  enum ct_session_state state = session->sync.status.state;
  int code = ct_state_go(&state, CT_STEP_PAUSE, diag);
  if (code != 0) {
    return code;
  }
  code = session_stop_threads(session, diag);
  if (code != 0) {
    return code;
  }
  /* It may last: the drain reads and writes what came before it. */
  ct_pause_request_end(session->target.stopped.pause_request);
  session->target.stopped.pause_request = NULL;
  return session_go(session, CT_STEP_PAUSE, diag);
}

int
ct_session_pause(struct ct_session *session, struct ct_diag *diag)
{
  return session_command(session, CT_ERROR_ATTACH, run_pause, NULL, diag);
}

/* All children go with the first one. */
static void
end_tree(struct ct_session *session)
{
  if (session->node.tree != NULL && !session->node.is_child) {
    session_serve_lingering_image(session, true);
    tree_end(session);
  }
}

/* The first process has ended, and others go on. */
static void
let_children_go(struct ct_session *session)
{
  end_tree(session);
  pthread_mutex_lock(&session->sync.guard);
  session->sync.status.detached = true;
  pthread_cond_broadcast(&session->sync.changed);
  pthread_mutex_unlock(&session->sync.guard);
}

static int
run_detach(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  (void)argument;
  if (session->sync.status.ended && (session->node.image_lingers || session_has_children(session))) {
    let_children_go(session);
    return 0;
  }
  int code = session_go(session, CT_STEP_DETACH, diag);
  if (code != 0) {
    return code;
  }
  ct_process_release(&session->target.process); /* spawned, and not resumed yet */
  session_turn_away(session);                   /* others may wait for who waits for us, and we for them */
  end_tree(session);
  code = session_detach(session, diag);
  if (session_check_for_end(session)) { /* a child too, that had ended just before the first process did */
    return 0;
  }
  bool attached = session->sync.status.attached;
  bool missed = attached && session->node.tree == NULL && session_made_children(session);
  session->recording.manifest.children_missed |= missed;
  ct_manifest_detach(&session->recording.manifest);
  session_close_trace(session);
  if (attached) {
    session_stop_watching(session);
    ct_process_close(&session->target.process, false);
    session->target.process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
  }
  pthread_mutex_lock(&session->sync.guard);
  session->sync.status.detached = true;
  session->sync.status.children_missed |= missed;
  session->sync.finished |= attached;
  ct_state_go(&session->sync.status.state, code == 0 ? CT_STEP_UNDONE : CT_STEP_FAIL, NULL);
  pthread_cond_broadcast(&session->sync.changed);
  pthread_mutex_unlock(&session->sync.guard);
  return code;
}

static int
stop_recording(struct ct_session *session, struct ct_diag *diag)
{
  return run_detach(session, NULL, diag);
}

void
ct_session_expedite(struct ct_session *session)
{
  atomic_store_explicit(&session->sync.expedited, 1, memory_order_relaxed);
}

void
ct_session_cancel(struct ct_session *session)
{
  atomic_store_explicit(&session->sync.is_cancelled, true, memory_order_relaxed);
}

int
ct_session_detach(struct ct_session *session, struct ct_diag *diag)
{
  return session_command(session, CT_ERROR_ATTACH, run_detach, NULL, diag);
}

static int
run_reset(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  (void)argument;
  return session_go(session, CT_STEP_RESET, diag);
}

int
ct_session_reset(struct ct_session *session, struct ct_diag *diag)
{
  return session_command(session, CT_ERROR_INIT, run_reset, NULL, diag);
}

static bool
has_finished(const struct ct_session *session)
{
  bool waits =
      session->options.wait_for_all && (session->node.image_lingers || session->sync.status.children_live != 0);
  return session->sync.finished && (!waits || session->sync.status.detached);
}

int
ct_session_wait(struct ct_session *session, int timeout_ms)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += timeout_ms / 1000;
  until.tv_nsec += timeout_ms % 1000 * 1000000L;
  until.tv_sec += until.tv_nsec / 1000000000L;
  until.tv_nsec %= 1000000000L;
  int late = 0;
  pthread_mutex_lock(&session->sync.guard);
  while (!has_finished(session) && late == 0) {
    late = timeout_ms < 0 ? pthread_cond_wait(&session->sync.changed, &session->sync.guard)
                          : pthread_cond_timedwait(&session->sync.changed, &session->sync.guard, &until);
  }
  int code = !has_finished(session) ? CT_ETIMEOUT : session->sync.lost ? CT_ESRCH : 0;
  pthread_mutex_unlock(&session->sync.guard);
  return code;
}

const char *
ct_session_directory(const struct ct_session *session)
{
  return session->options.directory;
}

int
ct_session_get_status(struct ct_session *session, struct ct_session_status *status)
{
  pthread_mutex_lock(&session->sync.guard);
  int code = ct_sized_give(status, &session->sync.status, sizeof(session->sync.status), NULL);
  pthread_mutex_unlock(&session->sync.guard);
  return code;
}

static int
run_close(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  (void)argument;
  enum ct_session_state state = session->sync.status.state;
  if (state == CT_STATE_ATTACHED || state == CT_STATE_RUNNING) {
    run_detach(session, NULL, diag);
  } else if (state == CT_STATE_SUSPENDED) {
    ct_process_close(&session->target.process, true);
    session_drop_trace(session);
  }
  end_tree(session);
  session_serve_lingering_image(session, true);
  if (session->node.is_child) {
    tree_child_is_over(session);
  }
  session_stop_watching(session);
  ct_process_close(&session->target.process, false);
  session_close_trace(session);
  tree_amend(session);
  if (session->recording.directory_fd >= 0) {
    ct_trace_give(session->recording.directory_fd, session->options.owner, session->options.owner_group);
    close(session->recording.directory_fd);
  }
  session->sync.quit = true;
  if (session->recording.result != 0) {
    *diag = session->recording.why;
  }
  return session->recording.result;
}

int
ct_session_close(struct ct_session *session, struct ct_session_status *status, struct ct_diag *diag)
{
  int code = session_command(session, CT_ERROR_ATTACH, run_close, NULL, diag);
  pthread_join(session->threads.thread, NULL);
  if (session->threads.workers_guarded) {
    ct_workers_unguard();
  }
  if (pthread_equal(session->threads.creator, pthread_self())) {
    ct_worker_leave();
  }
  if (status != NULL && ct_sized_give(status, &session->sync.status, sizeof(session->sync.status), NULL) != 0 &&
      code == 0) {
    code = ct_fail(diag, CT_EINVAL, "struct_size of the status is not set");
  }
  free_session(session);
  return code;
}
