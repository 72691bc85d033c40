/* SPDX-License-Identifier: MIT */
/*
 * A session's keeper: the thread that makes the session, sees its process end, and closes it, so that a trace is whole
 * without anybody asking. Others call the library between mcp_session_enter and mcp_session_leave; the keeper closes
 * when they have left.
 *
 * The end of a session comes in one of these ways: the program ends; somebody stops it (mcp_session_stop, contrail
 * stop, a rule); its time is over; the server ends. A program that was launched is then sent SIGTERM, and SIGKILL with
 * its group when it goes on, unless it is to be kept. One that was attached to is released. A launched program that
 * goes on unrecorded is watched to its end, or the server's.
 */
#include "mcp/held.h"

#include <contrail/exclude.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEP_MS = 50, TERM_MS = 2000, TERM_AT_END_MS = 300, PUMP_MS = 300 };

static uint64_t
now_ms(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool
is_ending(const struct mcp_held *held)
{
  return atomic_load_explicit(&held->server->is_ending, memory_order_acquire); /* pairs with mcp_end_requests */
}

static void
set_stage(struct mcp_held *held, enum mcp_stage stage)
{
  pthread_mutex_lock(&held->server->lock);
  held->session->stage = stage;
  pthread_cond_broadcast(&held->server->changed);
  pthread_mutex_unlock(&held->server->lock);
}

/* ---- begin ---- */

static int
start_pump(struct mcp_held *held)
{
  pthread_t thread;
  pthread_mutex_lock(&held->server->lock);
  held->users++;
  pthread_mutex_unlock(&held->server->lock);
  if (pthread_create(&thread, NULL, mcp_streams_pump, held) != 0) {
    mcp_held_put(held);
    return CT_ENOMEM;
  }
  pthread_detach(thread);
  return 0;
}

static int
spawn(struct mcp_held *held)
{
  struct mcp_session *s = held->session;
  struct ct_session_status status = {.struct_size = sizeof(status)};
  int code = ct_session_spawn(s->session, s->argv, &s->exec_errno, &s->diag);
  ct_session_get_status(s->session, &status);
  if (code == 0) {
    s->pid = status.pid;
    mcp_group_open(&s->group, s->pid);
    if (s->is_kept) {
      mcp_guard_attached(held->server, s->pid);
    } else {
      mcp_guard_launched(held->server, s->pid);
    }
    code = ct_session_install(s->session, &s->diag);
    code = code == CT_ETIMEOUT ? 0 : code; /* it runs on, unrecorded: the status says so */
  }
  return code;
}

static int
begin_session(struct mcp_held *held, int fds[3])
{
  struct mcp_session *s = held->session;
  struct ct_session_status status = {.struct_size = sizeof(status)};
  s->options.signal_mask = &held->server->program_mask;
  if (s->argv != NULL && !mcp_streams_open(held, fds)) {
    snprintf(s->diag.text, sizeof(s->diag.text), "the program's streams cannot be made: %s", strerror(errno));
    return CT_EIO;
  }
  mcp_guard_pipe(held->server, s->streams[0].from, true);
  s->options.streams = s->argv != NULL ? fds : NULL;
  struct ct_session *session;
  int code = ct_session_create(&s->options, &session, &s->diag);
  if (code != 0) {
    return code;
  }
  pthread_mutex_lock(&held->server->lock);
  s->session = session; /* from now on it can be cancelled */
  pthread_mutex_unlock(&held->server->lock);
  if (s->argv != NULL) {
    code = spawn(held);
  } else {
    mcp_guard_attached(held->server, s->pid);
    code = ct_session_attach(s->session, s->pid, &s->diag);
    if (code == 0 && mcp_started_at(s->pid) != s->started) { /* which has not run since */
      snprintf(s->diag.text, sizeof(s->diag.text), "process %d has ended, and another one has its number", (int)s->pid);
      code = CT_ESRCH;
    }
  }
  ct_session_get_status(s->session, &status);
  if (code == 0 && !status.ended && status.state == CT_STATE_ATTACHED) {
    struct ct_diag unused = {""};
    if (ct_control_open(s->session, &s->control, &unused) != 0) {
      s->control = NULL; /* contrail sessions does not show it; nothing else needs it */
    }
    code = ct_session_resume(s->session, &s->diag);
    ct_session_get_status(s->session, &status);
    code = status.ended || status.detached ? 0 : code;
  }
  return code;
}

static void
close_fds(int fds[3])
{
  for (int i = 0; i < 3; i++) {
    if (fds[i] >= 0) {
      close(fds[i]);
    }
  }
}

/* ---- while it goes on ---- */

/* SIGTERM, then SIGKILL, to the whole group, so that nothing of a script is left; until the program has ended. */
static void
end_program(struct mcp_held *held)
{
  struct mcp_session *s = held->session;
  struct ct_session_status status = {.struct_size = sizeof(status)};
  uint64_t begun = now_ms();
  bool is_killed = false;
  ct_session_get_status(s->session, &status);
  if (status.state == CT_STATE_ATTACHED && !status.ended) {
    ct_session_resume(s->session, NULL); /* one that is paused hears nothing */
  }
  mcp_group_signal(&s->group, SIGTERM);
  for (uint64_t wait = is_ending(held) ? TERM_AT_END_MS : TERM_MS; ct_session_wait(s->session, STEP_MS) == CT_ETIMEOUT;
       wait = is_ending(held) ? TERM_AT_END_MS : TERM_MS) {
    if (!is_killed && now_ms() - begun > wait) {
      mcp_group_signal(&s->group, SIGKILL);
      is_killed = true;
    }
  }
}

/* Until something ends the session. */
static void
await_end(struct mcp_held *held)
{
  struct mcp_session *s = held->session;
  struct ct_session_status status = {.struct_size = sizeof(status)};
  uint64_t begun = now_ms();
  for (;;) {
    bool over = ct_session_wait(s->session, STEP_MS) != CT_ETIMEOUT;
    ct_session_get_status(s->session, &status);
    if (over || status.ended || status.detached) {
      return;
    }
    s->has_hit_limit = s->limit_ms != 0 && now_ms() - begun >= s->limit_ms;
    pthread_mutex_lock(&held->server->lock);
    bool is_asked = s->stage == MCP_ENDING, ends = s->is_to_end;
    pthread_mutex_unlock(&held->server->lock);
    if (is_asked || is_ending(held) || s->has_hit_limit) {
      if (s->argv != NULL && (is_asked ? ends : !s->is_kept)) {
        end_program(held);
      } else {
        ct_session_detach(s->session, NULL); /* the close says what went wrong */
      }
      return;
    }
  }
}

static void
close_session(struct mcp_held *held)
{
  struct mcp_session *s = held->session;
  struct mcp_server *server = held->server;
  struct ct_session_status status = {.struct_size = sizeof(status)};
  struct ct_diag diag = {""};
  pthread_mutex_lock(&server->lock);
  s->stage = s->stage != MCP_STARTING ? MCP_ENDING : s->stage; /* who begins it waits for more than that */
  while (s->callers != 0) {
    pthread_cond_wait(&server->changed, &server->lock);
  }
  struct ct_session *session = s->session;
  ct_session_get_status(session, &status);
  s->status = status; /* until there is a later one */
  s->session = NULL;  /* from now on nobody calls it */
  pthread_mutex_unlock(&server->lock);
  ct_control_close(s->control);
  int code = ct_session_close(session, &status, &diag);
  pthread_mutex_lock(&server->lock);
  s->control = NULL;
  s->status = status;
  if (s->code == 0 && code != 0) {
    s->code = code;
    s->diag = diag;
  }
  pthread_mutex_unlock(&server->lock);
}

/* The rest of what the program has written, unless children of its have the pipe. */
static void
await_output(struct mcp_held *held)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += PUMP_MS * 1000000L;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&held->server->lock);
  while (!held->session->is_pumped &&
         pthread_cond_timedwait(&held->server->changed, &held->server->lock, &until) == 0) {
  }
  pthread_mutex_unlock(&held->server->lock);
}

/* A program of ours that goes on unrecorded: until it ends, or the server does. */
static void
watch(struct mcp_held *held)
{
  const struct mcp_session *s = held->session;
  struct pollfd fds[2] = {{.fd = s->group.fd, .events = POLLIN}, {.fd = held->server->wake_fd, .events = POLLIN}};
  while (s->group.fd >= 0 && waitpid(s->pid, NULL, WNOHANG) == 0 && !is_ending(held)) {
    poll(fds, 2, -1);
  }
}

/* What is left of its program, which nobody is to keep. */
static void
end_group(struct mcp_held *held, bool goes_on)
{
  const struct mcp_session *s = held->session;
  if (s->argv != NULL && !s->is_kept && (goes_on || is_ending(held) || s->is_to_end)) {
    mcp_group_signal(&s->group, SIGKILL);
  }
}

static void *
keeper_main(void *argument)
{
  struct mcp_held *held = argument;
  struct mcp_session *s = held->session;
  struct mcp_server *server = held->server;
  int fds[3] = {-1, -1, -1};
  int code = begin_session(held, fds);
  close_fds(fds);
  s->is_pumped = s->streams[0].from < 0 && s->streams[1].from < 0;
  if (!s->is_pumped && start_pump(held) != 0) {
    s->is_pumped = true;
  }
  pthread_mutex_lock(&server->lock);
  s->code = code; /* and what diag says */
  pthread_mutex_unlock(&server->lock);
  bool has_begun = code == 0;
  if (has_begun) {
    set_stage(held, MCP_RECORDING);
    await_end(held);
  }
  if (s->session != NULL) {
    close_session(held);
  }
  bool goes_on = has_begun && s->argv != NULL && !s->status.ended;
  if (has_begun && s->argv != NULL && !goes_on) {
    await_output(held);
  }
  if (!goes_on) { /* before it is done: the server may end then */
    end_group(held, false);
  }
  if (!goes_on || s->is_kept) {
    mcp_guard_pipe(server, s->streams[0].from, false);
    mcp_guard_forget(server, s->pid);
  }
  s->runs_on = goes_on;
  set_stage(held, has_begun ? MCP_DONE : MCP_FAILED);
  if (goes_on) {
    watch(held);
    end_group(held, true);
    pthread_mutex_lock(&server->lock);
    s->runs_on = false;
    pthread_mutex_unlock(&server->lock);
  }
  mcp_held_put(held);
  return NULL;
}

/* ---- the other side ---- */

bool
mcp_session_begin(struct mcp_call *call, struct mcp_held *held)
{
  struct mcp_server *server = held->server;
  struct mcp_session *s = held->session;
  pthread_t keeper;
  pthread_mutex_lock(&server->lock);
  held->users++;
  pthread_mutex_unlock(&server->lock);
  if (pthread_create(&keeper, NULL, keeper_main, held) != 0) {
    set_stage(held, MCP_FAILED);
    mcp_held_put(held);
    return mcp_fail(call, "no thread can be started");
  }
  pthread_detach(keeper);
  uint64_t begun = now_ms();
  pthread_mutex_lock(&server->lock);
  while (s->stage == MCP_STARTING) {
    struct timespec until;
    if (s->session != NULL && mcp_is_cancelled(call->request)) {
      ct_session_cancel(s->session);
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    if (pthread_cond_timedwait(&server->changed, &server->lock, &until) != 0) {
      pthread_mutex_unlock(&server->lock);
      mcp_progress(call->request, (double)(now_ms() - begun) / 1000, 0, "finding functions, putting hooks in");
      pthread_mutex_lock(&server->lock);
    }
  }
  bool failed = s->stage == MCP_FAILED;
  pthread_mutex_unlock(&server->lock);
  return !failed || mcp_fail(call, "%s", s->diag.text[0] != '\0' ? s->diag.text : ct_err_text(s->code));
}

bool
mcp_session_await(struct mcp_call *call, struct mcp_held *held, double seconds)
{
  struct mcp_server *server = held->server;
  uint64_t begun = now_ms(), most = (uint64_t)(seconds * 1000);
  bool done = false;
  for (;;) {
    struct timespec until;
    uint64_t waited = now_ms() - begun;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += STEP_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&server->lock);
    done = held->session->stage >= MCP_DONE;
    if (!done && waited < most && !mcp_is_cancelled(call->request)) {
      pthread_cond_timedwait(&server->changed, &server->lock, &until);
      done = held->session->stage >= MCP_DONE;
    }
    pthread_mutex_unlock(&server->lock);
    if (done || waited >= most || mcp_is_cancelled(call->request)) {
      return done;
    }
    mcp_progress(call->request, (double)waited / 1000, seconds, "waiting for the program to end");
  }
}

void
mcp_session_stop(struct mcp_held *held, bool ends)
{
  pthread_mutex_lock(&held->server->lock);
  if (held->session->stage == MCP_RECORDING) {
    held->session->stage = MCP_ENDING;
    held->session->is_to_end = ends;
  }
  pthread_mutex_unlock(&held->server->lock);
}

struct ct_session *
mcp_session_enter(struct mcp_call *call, struct mcp_held *held)
{
  struct ct_session *session = NULL;
  pthread_mutex_lock(&held->server->lock);
  if (held->session != NULL && held->session->stage == MCP_RECORDING) {
    session = held->session->session;
    held->session->callers++;
  }
  pthread_mutex_unlock(&held->server->lock);
  if (session == NULL) {
    mcp_fail(call, "%s is not being recorded any more; its trace can still be asked (analyze, query)", held->name);
  }
  return session;
}

void
mcp_session_leave(struct mcp_held *held)
{
  pthread_mutex_lock(&held->server->lock);
  held->session->callers--;
  pthread_cond_broadcast(&held->server->changed);
  pthread_mutex_unlock(&held->server->lock);
}

static void
free_list(char **list)
{
  for (size_t i = 0; list != NULL && list[i] != NULL; i++) {
    free(list[i]);
  }
  free(list);
}

void
mcp_session_free(struct mcp_session *session)
{
  if (session == NULL) {
    return;
  }
  for (int i = 0; i < 2; i++) {
    if (session->streams[i].from >= 0) {
      close(session->streams[i].from);
    }
    if (session->streams[i].file >= 0) {
      close(session->streams[i].file);
    }
  }
  mcp_group_close(&session->group);
  ct_selection_free(session->options.selection);
  ct_exclude_free(session->options.exclude);
  free_list(session->argv);
  free_list(session->environment);
  free_list(session->rules);
  free(session->working_directory);
  free(session->input);
  free(session);
}
