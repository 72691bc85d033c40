/* SPDX-License-Identifier: MIT */
/*
 * What threads and a session's own thread share: the list of commands, which is how calls of the interface get there;
 * the doorbell; the state. All under the session's guard.
 */
#include "record/session_internal.h"

#include "base/worker.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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
  __atomic_fetch_add(session->sync.doorbell, 1, __ATOMIC_RELEASE);
  session_wake(session->sync.doorbell);
}

void
session_set_doorbell(struct ct_session *session, uint32_t *doorbell)
{
  pthread_mutex_lock(&session->sync.guard);
  session->sync.doorbell = doorbell != NULL ? doorbell : &session->sync.own_doorbell;
  pthread_mutex_unlock(&session->sync.guard);
}

void
session_ring(struct ct_session *session)
{
  pthread_mutex_lock(&session->sync.guard);
  ring_doorbell(session);
  pthread_mutex_unlock(&session->sync.guard);
}

int
session_go(struct ct_session *session, enum ct_session_step step, struct ct_diag *diag)
{
  pthread_mutex_lock(&session->sync.guard);
  int code = ct_state_go(&session->sync.status.state, step, diag);
  pthread_cond_broadcast(&session->sync.changed);
  pthread_mutex_unlock(&session->sync.guard);
  return code;
}

bool
session_has_commands(struct ct_session *session)
{
  pthread_mutex_lock(&session->sync.guard);
  bool has = session->sync.commands != NULL;
  pthread_mutex_unlock(&session->sync.guard);
  return has;
}

bool
session_run_command(struct ct_session *session)
{
  pthread_mutex_lock(&session->sync.guard);
  struct command *command = session->sync.commands;
  if (command != NULL) {
    session->sync.commands = command->next;
  }
  pthread_mutex_unlock(&session->sync.guard);
  if (command == NULL) {
    return false;
  }
  int result = command->run(session, command->argument, command->diag);
  pthread_mutex_lock(&session->sync.guard);
  command->result = result;
  command->done = true;
  pthread_cond_broadcast(&session->sync.changed);
  pthread_mutex_unlock(&session->sync.guard);
  return true;
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

int
session_command(struct ct_session *session, enum ct_error_class at,
                int (*run)(struct ct_session *, void *, struct ct_diag *), void *argument, struct ct_diag *diag)
{
  struct ct_diag unused;
  struct command mine = {.run = run, .argument = argument, .diag = diag != NULL ? diag : &unused};
  mine.diag->text[0] = '\0';
  pthread_mutex_lock(&session->sync.guard);
  struct command **last = &session->sync.commands;
  while (*last != NULL) {
    last = &(*last)->next;
  }
  *last = &mine;
  ring_doorbell(session);
  while (!mine.done) {
    pthread_cond_wait(&session->sync.changed, &session->sync.guard);
  }
  if (mine.result != 0) {
    if (mine.diag->text[0] == '\0') {
      ct_fail(mine.diag, mine.result, "%s", ct_err_text(mine.result));
    }
    session->sync.status.error = class_of(at, mine.result);
    memcpy(session->sync.status.error_text, mine.diag->text, sizeof(session->sync.status.error_text));
  }
  pthread_mutex_unlock(&session->sync.guard);
  return mine.result;
}

void
session_await_dumps(struct ct_session *session)
{
  pthread_mutex_lock(&session->sync.guard);
  while (session->recording.dumps != 0) {
    pthread_cond_wait(&session->sync.changed, &session->sync.guard);
  }
  pthread_mutex_unlock(&session->sync.guard);
}

void
session_join_dumper(struct ct_session *session)
{
  if (session->triggers.has_dumper) {
    pthread_join(session->triggers.dumper, NULL);
    session->triggers.has_dumper = false;
  }
}
