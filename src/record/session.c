/* SPDX-License-Identifier: MIT */
/*
 * A session as an object; see session.h. Its thread does everything: calls of the interface are commands, which
 * callers put into a list and wait for. In between it serves the process.
 *
 * ptrace stops the process only after an exec and while hooks are put in, changed or taken out; otherwise it runs
 * free. When it needs us it rings the doorbell, control_doorbell in the ring; commands and the end of the process (a
 * second thread waits for that, by a pidfd) ring the same.
 */
#include "record/session_internal.h"

#include <contrail/exclude.h>
#include "base/clock.h"
#include "base/sized.h"
#include "base/worker.h"
#include "select/select.h"
#include "record/program.h"
#include "trace/tree.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define IDLE_MS     200
#define COUNT_NS    200000000  /* between looks at the numbers */
#define STACK_BYTES (8u << 20) /* of its thread */
#define CHECK_MS    50         /* where no loader reports libraries */
#define LINGER_MS   5

/* A call of the interface, on the caller's stack. */
struct command {
  int (*run)(struct ct_session *session, void *argument, struct ct_diag *diag);
  void *argument;
  struct ct_diag *diag;
  int result;
  bool done;
  struct command *next;
};

void
session_wake(uint32_t *word)
{
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void
session_wait_ms(uint32_t *word, uint32_t value, int ms)
{
  struct timespec wait = {ms / 1000, ms % 1000 * 1000000L};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &wait, NULL, 0);
}

/* Under the guard, so that the ring is not unmapped meanwhile. */
static void
ring_doorbell(struct ct_session *session)
{
  __atomic_fetch_add(session->doorbell, 1, __ATOMIC_RELEASE);
  session_wake(session->doorbell);
}

void
session_set_doorbell(struct ct_session *session, uint32_t *doorbell)
{
  pthread_mutex_lock(&session->guard);
  session->doorbell = doorbell != NULL ? doorbell : &session->own_doorbell;
  pthread_mutex_unlock(&session->guard);
}

void
session_ring(struct ct_session *session)
{
  pthread_mutex_lock(&session->guard);
  ring_doorbell(session);
  pthread_mutex_unlock(&session->guard);
}

static int
go(struct ct_session *session, enum ct_session_step step, struct ct_diag *diag)
{
  pthread_mutex_lock(&session->guard);
  int code = ct_state_go(&session->status.state, step, diag);
  pthread_cond_broadcast(&session->changed);
  pthread_mutex_unlock(&session->guard);
  return code;
}

void
session_go(struct ct_session *session, enum ct_session_step step)
{
  go(session, step, NULL);
}

/* ---- the end of the process ---- */

static void *
watch_main(void *context)
{
  struct ct_session *session = context;
  struct pollfd wait[2] = {{.fd = session->process.pidfd, .events = POLLIN},
                           {.fd = session->stop_watching, .events = POLLIN}};
  while (poll(wait, 2, -1) < 0 && errno == EINTR) {
  }
  pthread_mutex_lock(&session->guard);
  ring_doorbell(session);
  pthread_mutex_unlock(&session->guard);
  return NULL;
}

void
session_start_watching(struct ct_session *session)
{
  session->stop_watching = eventfd(0, EFD_CLOEXEC);
  session->watched = session->stop_watching >= 0 && ct_worker_create(&session->watcher, NULL, watch_main, session) == 0;
}

static void
stop_watching(struct ct_session *session)
{
  uint64_t one = 1;
  if (session->watched) {
    if (write(session->stop_watching, &one, sizeof(one)) == (ssize_t)sizeof(one)) {
      pthread_join(session->watcher, NULL);
    }
    session->watched = false;
  }
  if (session->stop_watching >= 0) {
    close(session->stop_watching);
    session->stop_watching = -1;
  }
}

/* The process has ended, as wait_status says if that is known; or is lost. */
static void
note_end(struct ct_session *session, bool has_status, int wait_status, bool lost)
{
  ct_manifest_stop(&session->manifest);
  session_resume_threads(session);
  session_end_image(session, false);
  if (session->writer != NULL) {
    ct_manifest_end(&session->manifest, has_status, wait_status);
    session_close_trace(session);
  }
  stop_watching(session);
  ct_process_close(&session->process, false);
  pthread_mutex_lock(&session->guard);
  session->status.ended = true;
  session->status.has_status = has_status;
  session->status.wait_status = wait_status;
  session->lost = lost;
  session->finished = true;
  ct_state_go(&session->status.state, CT_STEP_ENDED, NULL);
  pthread_cond_broadcast(&session->changed);
  pthread_mutex_unlock(&session->guard);
}

/* Before it has been waited for: did it have children? */
static void
note_children(struct ct_session *session)
{
  siginfo_t info = {.si_pid = 0};
  if (session->tree != NULL || session->status.children_missed ||
      waitid(P_PID, (id_t)session->process.pid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 || info.si_pid == 0) {
    return;
  }
  bool missed = ct_process_had_children(session->process.pid);
  session->manifest.children_missed = missed;
  pthread_mutex_lock(&session->guard);
  session->status.children_missed = missed;
  pthread_mutex_unlock(&session->guard);
}

/* Has it ended? True then. */
static bool
check_for_end(struct ct_session *session)
{
  int status = 0;
  struct ct_process *process = &session->process;
  if (process->pid == 0 || session->status.ended) {
    return false;
  }
  if (process->dead) {
    note_end(session, true, process->wait_status, false);
    return true;
  }
  if (session->status.attached) {
    if (ct_process_has_died(process)) {
      bool known = ct_process_end_status(process, &status);
      note_end(session, known, status, false);
      return true;
    }
    return false;
  }
  note_children(session);
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

/* ---- the thread ---- */

bool
session_has_commands(struct ct_session *session)
{
  pthread_mutex_lock(&session->guard);
  bool has = session->commands != NULL;
  pthread_mutex_unlock(&session->guard);
  return has;
}

static bool
run_commands(struct ct_session *session)
{
  pthread_mutex_lock(&session->guard);
  struct command *command = session->commands;
  if (command != NULL) {
    session->commands = command->next;
  }
  pthread_mutex_unlock(&session->guard);
  if (command == NULL) {
    return false;
  }
  int result = command->run(session, command->argument, command->diag);
  pthread_mutex_lock(&session->guard);
  command->result = result;
  command->done = true;
  pthread_cond_broadcast(&session->changed);
  pthread_mutex_unlock(&session->guard);
  return true;
}

void
session_count(struct ct_session *session)
{
  struct ct_drain_stats stats;
  struct ct_sampling_state sampling;
  if (session->drain == NULL) {
    return;
  }
  pthread_mutex_lock(&session->writer_lock);
  ct_drain_stats(session->drain, &stats);
  ct_drain_sampling(session->drain, &sampling);
  pthread_mutex_unlock(&session->writer_lock);
  pthread_mutex_lock(&session->guard);
  session->status.events = stats.events;
  session->status.dropped = stats.dropped;
  memcpy(session->status.dropped_by, stats.dropped_by, sizeof(stats.dropped_by));
  session->status.sample_interval = sampling.interval;
  session->status.sample_changes = sampling.changes;
  ct_modules_count(&session->modules, &session->status.functions, &session->status.hooked);
  pthread_mutex_unlock(&session->guard);
}

/* The same, waiting for nobody: while requests of the process may come. */
static void
count_roughly(struct ct_session *session)
{
  struct ct_drain_numbers numbers;
  if (session->drain == NULL) {
    return;
  }
  session->counted_ns = ct_now_ns();
  ct_drain_numbers(session->drain, &numbers);
  pthread_mutex_lock(&session->guard);
  struct ct_session_status *status = &session->status;
  if (numbers.interval != 0 && numbers.events >= status->events) { /* it has reported them, and since the last count */
    status->events = numbers.events;
    status->dropped = numbers.dropped;
    memcpy(status->dropped_by, numbers.dropped_by, sizeof(numbers.dropped_by));
    status->sample_interval = numbers.interval;
    status->sample_changes = numbers.changes;
  }
  ct_modules_count(&session->modules, &status->functions, &status->hooked);
  pthread_mutex_unlock(&session->guard);
}

/* What children need, and the first session for them. */
static void
serve_tree(struct ct_session *session)
{
  if (session->image_live) {
    session_serve_handshakes(session);
  }
  session_serve_lingering_image(session, false);
  session_trim_history(session);
  if (!session->is_child) {
    tree_free_ended(session);
  } else if (session->finished && !session->image_lingers && !session->over) {
    tree_child_is_over(session);
  }
}

static void *
session_main(void *context)
{
  struct ct_session *session = context;
  uint32_t served = 0;
  const uint32_t *served_doorbell = NULL;
  if (session->child_init != NULL) {
    session_start_child(session);
  }
  while (!session->quit) {
    uint32_t *doorbell = session->doorbell; /* only this thread changes it */
    uint32_t rung = __atomic_load_n(doorbell, __ATOMIC_ACQUIRE);
    if (run_commands(session)) {
      continue;
    }
    if (session->tree != NULL) {
      serve_tree(session);
    }
    bool running = session->status.state == CT_STATE_RUNNING;
    if (session->image_live && running && (rung != served || doorbell != served_doorbell)) {
      served = rung;
      served_doorbell = doorbell;
      if (session_serve_requests(session)) {
        served_doorbell = NULL;
        continue;
      }
    }
    if (check_for_end(session)) {
      continue;
    }
    if (session->process.late_count != 0) {
      ct_process_let_go(&session->process);
    }
    if (session->writer != NULL && running) {
      session_refresh_manifest(session);
    }
    if (doorbell != session->doorbell) {
      continue;
    }
    if (running && ct_now_ns() - session->counted_ns >= COUNT_NS) {
      count_roughly(session);
    }
    session_wait_ms(doorbell, rung,
                    session->image_lingers || session->handshake_queue.later != 0 ? LINGER_MS
                    : ct_modules_have_rendezvous(&session->modules) || !running   ? IDLE_MS
                                                                                  : CHECK_MS);
    if (session->writer == NULL || !running) {
      continue;
    }
    if (__atomic_load_n(doorbell, __ATOMIC_ACQUIRE) == rung) { /* nobody waits */
      ct_plans_store(session->modules.plans);
      count_roughly(session);
    }
    uint64_t begin = ct_now_ns();
    session_check_for_modules(session);
    if (__atomic_load_n(doorbell, __ATOMIC_ACQUIRE) != rung) { /* somebody may wait since then: plans take their time */
      session->manifest.install_ns += ct_now_ns() - begin;
    }
  }
  return NULL;
}

const char *
ct_error_class_name(enum ct_error_class error)
{
  static const char *const names[] = {"none", "init", "spawn", "attach", "hook", "permission", "timeout"};
  return (unsigned)error < sizeof(names) / sizeof(names[0]) ? names[error] : "unknown";
}

static enum ct_error_class
class_of(enum ct_error_class at, int code)
{
  switch (code) {
  case CT_EACCES:
  case CT_EPERM_PTRACE:
    return CT_ERROR_PERMISSION;
  case CT_ETIMEOUT:
    return CT_ERROR_TIMEOUT;
  case CT_ENOMEM:
  case CT_EINVAL:
    return CT_ERROR_INIT;
  default:
    return at;
  }
}

/* Has the thread run it, and waits for that. */
int
session_command(struct ct_session *session, enum ct_error_class at,
                int (*run)(struct ct_session *, void *, struct ct_diag *), void *argument, struct ct_diag *diag)
{
  struct ct_diag unused;
  struct command mine = {.run = run, .argument = argument, .diag = diag != NULL ? diag : &unused};
  mine.diag->text[0] = '\0';
  pthread_mutex_lock(&session->guard);
  struct command **last = &session->commands;
  while (*last != NULL) {
    last = &(*last)->next;
  }
  *last = &mine;
  ring_doorbell(session);
  while (!mine.done) {
    pthread_cond_wait(&session->changed, &session->guard);
  }
  if (mine.result != 0) {
    if (mine.diag->text[0] == '\0') {
      ct_fail(mine.diag, mine.result, "%s", ct_err_text(mine.result));
    }
    session->status.error = class_of(at, mine.result);
    memcpy(session->status.error_text, mine.diag->text, sizeof(session->status.error_text));
  }
  pthread_mutex_unlock(&session->guard);
  return mine.result;
}

/* ---- the calls ---- */

/* With room for what it does, whatever the limit on stacks is that the program is started with. */
static int
start_thread(struct ct_session *session)
{
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  int failed = ct_worker_create(&session->thread, &attributes, session_main, session);
  pthread_attr_destroy(&attributes);
  return failed;
}

static void
free_session(struct ct_session *session)
{
  if (!session->is_child) {
    ct_process_tree_free(session->tree);
  }
  pthread_mutex_destroy(&session->guard);
  pthread_mutex_destroy(&session->writer_lock);
  pthread_cond_destroy(&session->changed);
  ct_selection_free(session->own_selection);
  ct_exclude_free(session->own_exclude);
  free((char *)session->options.directory);
  free(session);
}

int
session_create(const struct ct_session_options *options, struct ct_process_tree *tree, struct ct_child_init *child_init,
               struct ct_session **out, struct ct_diag *diag)
{
  struct ct_session_options own;
  int code = ct_sized_take(&own, sizeof(own), options, diag);
  if (code == 0 && own.directory == NULL) {
    code = ct_fail(diag, CT_EINVAL, "no directory is given for the trace");
  }
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
    session->options.selection = session->own_selection = ct_selection_create();
  }
  if (tree == NULL && session->options.selection != NULL) {
    ct_select_forks(session->options.selection, own.follow);
  }
  if (own.exclude == NULL) {
    session->options.exclude = session->own_exclude = ct_exclude_create();
  }
  bool have_all =
      session->options.directory != NULL && session->options.selection != NULL && session->options.exclude != NULL;
  session->process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
  session->doorbell = &session->own_doorbell;
  session->stop_watching = session->directory_fd = -1;
  session->is_child = child_init != NULL;
  session->child_init = child_init;
  session->child_pid = child_init != NULL ? child_init->pid : 0;
  session->parent = child_init != NULL ? child_init->parent : 0;
  session->tree = tree == NULL && own.follow ? ct_process_tree_create(session) : tree;
  have_all = have_all && (!own.follow || session->tree != NULL);
  pthread_mutex_init(&session->guard, NULL);
  pthread_mutex_init(&session->writer_lock, NULL);
  pthread_cond_init(&session->changed, NULL);
  ct_state_go(&session->status.state, CT_STEP_CREATE, NULL);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &session->caller_mask);
  int failed = have_all ? start_thread(session) : -1;
  pthread_sigmask(SIG_SETMASK, &session->caller_mask, NULL);
  if (failed != 0) {
    free_session(session);
    return ct_fail(diag, CT_ENOMEM, "cannot start a thread");
  }
  *out = session;
  return 0;
}

int
ct_session_create(const struct ct_session_options *options, struct ct_session **out, struct ct_diag *diag)
{
  int code = session_create(options, NULL, NULL, out, diag);
  if (code == 0) {
    ct_worker_enter();
    (*out)->creator = pthread_self();
  }
  return code;
}

/* From the attach on, or from the time when the program has been started, with the priority that is its own. */
static void
guard_workers(struct ct_session *session)
{
  if (!session->workers_guarded) {
    session->workers_guarded = true;
    ct_workers_guard();
  }
}

struct spawn_argument {
  char *const *argv;
  int *exec_errno;
  sigset_t mask;
};

static int
run_spawn(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  struct spawn_argument *spawn = argument;
  int code = go(session, CT_STEP_SPAWN, diag);
  if (code != 0) {
    return code;
  }
  code = ct_program_check(spawn->argv[0], spawn->exec_errno, diag);
  if (code == 0) {
    code = session_open_trace(session, diag);
  }
  if (code == 0) {
    code = ct_process_spawn(spawn->argv, &spawn->mask, &session->process, spawn->exec_errno, diag);
    if (code != 0) {
      session_drop_trace(session);
    }
  }
  if (code != 0) {
    session->process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
    go(session, CT_STEP_FAIL, NULL);
    return code;
  }
  ct_manifest_start(&session->manifest, &session->options, spawn->argv, session->process.pid);
  pthread_mutex_lock(&session->guard);
  session->status.pid = session->process.pid;
  pthread_mutex_unlock(&session->guard);
  guard_workers(session);
  session_start_watching(session);
  return go(session, CT_STEP_STOPPED, NULL);
}

int
ct_session_spawn(struct ct_session *session, char *const argv[], int *exec_errno, struct ct_diag *diag)
{
  struct spawn_argument spawn = {.argv = argv, .exec_errno = exec_errno};
  *exec_errno = 0;
  if (session->options.signal_mask != NULL) {
    memcpy(&spawn.mask, session->options.signal_mask, sizeof(spawn.mask));
  } else {
    pthread_sigmask(SIG_SETMASK, NULL, &spawn.mask);
  }
  return session_command(session, CT_ERROR_SPAWN, run_spawn, &spawn, diag);
}

static int
run_install(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  (void)argument;
  int code = go(session, CT_STEP_INSTALL, diag);
  if (code != 0) {
    return code;
  }
  code = session_begin_image(session, diag);
  if (code == 0) {
    return go(session, CT_STEP_HOOKED, NULL);
  }
  if (ct_process_reap(&session->process)) { /* it was killed while it was stopped */
    check_for_end(session);
    return 0;
  }
  if (code == CT_ETIMEOUT) { /* it runs on without us */
    ct_process_release(&session->process);
    session_detach(session, NULL);
  } else {
    session_end_image(session, false);
    stop_watching(session);
    ct_process_close(&session->process, true);
  }
  session_drop_trace(session);
  go(session, CT_STEP_FAIL, NULL);
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
  int code = go(session, CT_STEP_ATTACH, diag);
  if (code != 0) {
    return code;
  }
  pthread_mutex_lock(&session->guard);
  session->status.pid = pid;
  session->status.attached = true;
  pthread_mutex_unlock(&session->guard);
  guard_workers(session);
  code = session_attach(session, pid, diag);
  if (code != 0) {
    ct_process_close(&session->process, false);
    session->process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
    go(session, CT_STEP_FAIL, NULL);
    return code;
  }
  pthread_mutex_lock(&session->guard);
  ct_modules_count(&session->modules, &session->status.functions, &session->status.hooked);
  pthread_mutex_unlock(&session->guard);
  session_start_watching(session);
  return go(session, CT_STEP_HOOKED, NULL);
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
  int code = go(session, CT_STEP_RESUME, diag);
  if (code == 0) {
    if (session->stacks != NULL && !session->stacks_begun) {
      ct_stacks_begin(session->stacks, session->drain);
      session->stacks_begun = true;
    }
    ct_process_release(&session->process);
    session_resume_threads(session);
    session_publish(session);
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
  enum ct_session_state state = session->status.state;
  int code = ct_state_go(&state, CT_STEP_PAUSE, diag);
  if (code == 0) {
    code = session_stop_threads(session, diag);
  }
  return code == 0 ? go(session, CT_STEP_PAUSE, diag) : code;
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
  if (session->tree != NULL && !session->is_child) {
    session_serve_lingering_image(session, true);
    tree_end(session);
  }
}

bool
session_has_children(struct ct_session *session)
{
  pthread_mutex_lock(&session->guard);
  bool has = session->status.children_live != 0;
  pthread_mutex_unlock(&session->guard);
  return has;
}

/* The first process has ended, and others go on. */
static void
let_children_go(struct ct_session *session)
{
  end_tree(session);
  pthread_mutex_lock(&session->guard);
  session->status.detached = true;
  pthread_cond_broadcast(&session->changed);
  pthread_mutex_unlock(&session->guard);
}

static int
run_detach(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  (void)argument;
  if (session->status.ended && (session->image_lingers || session_has_children(session))) {
    let_children_go(session);
    return 0;
  }
  int code = go(session, CT_STEP_DETACH, diag);
  if (code != 0) {
    return code;
  }
  ct_process_release(&session->process); /* spawned, and not resumed yet */
  session_turn_away(session);            /* others may wait for who waits for us, and we for them */
  end_tree(session);
  code = session_detach(session, diag);
  if (check_for_end(session)) { /* a child too, that had ended just before the first process did */
    return 0;
  }
  ct_manifest_detach(&session->manifest);
  session_close_trace(session);
  bool attached = session->status.attached;
  if (attached) {
    stop_watching(session);
    ct_process_close(&session->process, false);
    session->process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
  }
  pthread_mutex_lock(&session->guard);
  session->status.detached = true;
  session->finished |= attached;
  ct_state_go(&session->status.state, code == 0 ? CT_STEP_UNDONE : CT_STEP_FAIL, NULL);
  pthread_cond_broadcast(&session->changed);
  pthread_mutex_unlock(&session->guard);
  return code;
}

void
ct_session_expedite(struct ct_session *session)
{
  __atomic_store_n(&session->expedited, 1, __ATOMIC_RELAXED);
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
  return go(session, CT_STEP_RESET, diag);
}

int
ct_session_reset(struct ct_session *session, struct ct_diag *diag)
{
  return session_command(session, CT_ERROR_INIT, run_reset, NULL, diag);
}

static bool
has_finished(const struct ct_session *session)
{
  bool waits = session->options.wait_for_all && (session->image_lingers || session->status.children_live != 0);
  return session->finished && (!waits || session->status.detached);
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
  pthread_mutex_lock(&session->guard);
  while (!has_finished(session) && late == 0) {
    late = timeout_ms < 0 ? pthread_cond_wait(&session->changed, &session->guard)
                          : pthread_cond_timedwait(&session->changed, &session->guard, &until);
  }
  int code = !has_finished(session) ? CT_ETIMEOUT : session->lost ? CT_ESRCH : 0;
  pthread_mutex_unlock(&session->guard);
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
  pthread_mutex_lock(&session->guard);
  int code = ct_sized_give(status, &session->status, sizeof(session->status), NULL);
  pthread_mutex_unlock(&session->guard);
  return code;
}

static int
run_close(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  (void)argument;
  enum ct_session_state state = session->status.state;
  if (state == CT_STATE_ATTACHED || state == CT_STATE_RUNNING) {
    run_detach(session, NULL, diag);
  } else if (state == CT_STATE_SUSPENDED) {
    ct_process_close(&session->process, true);
    session_drop_trace(session);
  }
  end_tree(session);
  session_serve_lingering_image(session, true);
  if (session->is_child) {
    tree_child_is_over(session);
  }
  stop_watching(session);
  ct_process_close(&session->process, false);
  session_close_trace(session);
  tree_amend(session);
  if (session->directory_fd >= 0) {
    ct_trace_give(session->directory_fd, session->options.owner, session->options.owner_group);
    close(session->directory_fd);
  }
  session->quit = true;
  if (session->result != 0) {
    *diag = session->why;
  }
  return session->result;
}

int
ct_session_close(struct ct_session *session, struct ct_session_status *status, struct ct_diag *diag)
{
  int code = session_command(session, CT_ERROR_ATTACH, run_close, NULL, diag);
  pthread_join(session->thread, NULL);
  if (session->workers_guarded) {
    ct_workers_unguard();
  }
  if (pthread_equal(session->creator, pthread_self())) {
    ct_worker_leave();
  }
  if (status != NULL && ct_sized_give(status, &session->status, sizeof(session->status), NULL) != 0 && code == 0) {
    code = ct_fail(diag, CT_EINVAL, "struct_size of the status is not set");
  }
  free_session(session);
  return code;
}
