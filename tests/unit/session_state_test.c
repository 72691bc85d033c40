/* SPDX-License-Identifier: MIT */
/* Every step from every state, against a list of the transitions that there are; and a session's own errors. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "record/state.h"
#include "rounds.h"

#include <contrail/session.h>

static const struct {
  enum ct_session_state from;
  enum ct_session_step step;
  enum ct_session_state to;
} transitions[] = {
    {CT_STATE_UNINITIALIZED, CT_STEP_CREATE, CT_STATE_INITIALIZED},
    {CT_STATE_INITIALIZED, CT_STEP_SPAWN, CT_STATE_SPAWNING},
    {CT_STATE_INITIALIZED, CT_STEP_ATTACH, CT_STATE_ATTACHING},
    {CT_STATE_SPAWNING, CT_STEP_STOPPED, CT_STATE_SUSPENDED},
    {CT_STATE_SPAWNING, CT_STEP_FAIL, CT_STATE_FAILED},
    {CT_STATE_SPAWNING, CT_STEP_ENDED, CT_STATE_INITIALIZED},
    {CT_STATE_SUSPENDED, CT_STEP_INSTALL, CT_STATE_ATTACHING},
    {CT_STATE_SUSPENDED, CT_STEP_ENDED, CT_STATE_INITIALIZED},
    {CT_STATE_ATTACHING, CT_STEP_HOOKED, CT_STATE_ATTACHED},
    {CT_STATE_ATTACHING, CT_STEP_FAIL, CT_STATE_FAILED},
    {CT_STATE_ATTACHING, CT_STEP_ENDED, CT_STATE_INITIALIZED},
    {CT_STATE_ATTACHED, CT_STEP_RESUME, CT_STATE_RUNNING},
    {CT_STATE_ATTACHED, CT_STEP_DETACH, CT_STATE_DETACHING},
    {CT_STATE_ATTACHED, CT_STEP_ENDED, CT_STATE_INITIALIZED},
    {CT_STATE_RUNNING, CT_STEP_PAUSE, CT_STATE_ATTACHED},
    {CT_STATE_RUNNING, CT_STEP_DETACH, CT_STATE_DETACHING},
    {CT_STATE_RUNNING, CT_STEP_ENDED, CT_STATE_INITIALIZED},
    {CT_STATE_DETACHING, CT_STEP_UNDONE, CT_STATE_INITIALIZED},
    {CT_STATE_DETACHING, CT_STEP_FAIL, CT_STATE_FAILED},
    {CT_STATE_DETACHING, CT_STEP_ENDED, CT_STATE_INITIALIZED},
    {CT_STATE_FAILED, CT_STEP_RESET, CT_STATE_INITIALIZED},
};

static void
every_step_from_every_state(void **unused)
{
  (void)unused;
  size_t allowed = 0;
  for (int state = 0; state < CT_STATE_COUNT; state++) {
    for (int step = 0; step < CT_STEP_COUNT; step++) {
      enum ct_session_state now = (enum ct_session_state)state, expected = now;
      struct ct_diag diag = {""};
      bool listed = false;
      for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
        if (transitions[i].from == now && transitions[i].step == (enum ct_session_step)step) {
          expected = transitions[i].to;
          listed = true;
        }
      }
      int code = ct_state_go(&now, (enum ct_session_step)step, &diag);
      assert_int_equal(code, listed ? 0 : CT_EINVAL);
      assert_int_equal(now, expected);
      if (!listed) {
        assert_non_null(strstr(diag.text, ct_state_name((enum ct_session_state)state)));
        assert_non_null(strstr(diag.text, ct_step_name((enum ct_session_step)step)));
      }
      allowed += listed;
    }
  }
  assert_int_equal(allowed, sizeof(transitions) / sizeof(transitions[0]));
}

static void
nonsense_is_refused(void **unused)
{
  (void)unused;
  enum ct_session_state state = (enum ct_session_state)99;
  assert_int_equal(ct_state_go(&state, CT_STEP_SPAWN, NULL), CT_EINVAL);
  state = CT_STATE_RUNNING;
  assert_int_equal(ct_state_go(&state, (enum ct_session_step)99, NULL), CT_EINVAL);
  assert_int_equal(state, CT_STATE_RUNNING);
  assert_string_equal(ct_state_name((enum ct_session_state)99), "unknown");
}

static struct ct_session *
make_session(char *folder, uint32_t deadline_ms)
{
  struct ct_session_options options = {.struct_size = sizeof(options), .deadline_ms = deadline_ms};
  struct ct_session *session = NULL;
  struct ct_diag diag = {""};
  char *directory = folder;
  assert_non_null(mkdtemp(folder));
  options.directory = directory;
  assert_int_equal(ct_session_create(&options, &session, &diag), 0);
  return session;
}

static struct ct_session_status
status_of(struct ct_session *session)
{
  struct ct_session_status status = {.struct_size = sizeof(status)};
  assert_int_equal(ct_session_get_status(session, &status), 0);
  return status;
}

static void
clear(const char *folder)
{
  char command[300];
  snprintf(command, sizeof(command), "rm -rf '%s'", folder);
  assert_int_equal(system(command), 0);
}

/* A child that does nothing, until it is killed. */
static pid_t
sleeper(void)
{
  pid_t pid = fork();
  if (pid == 0) {
    for (;;) {
      pause();
    }
  }
  return pid;
}

static void
calls_out_of_turn_are_errors(void **unused)
{
  (void)unused;
  char folder[] = "/tmp/contrail-state-XXXXXX";
  struct ct_session *session = make_session(folder, 0);
  struct ct_diag diag = {""};
  assert_int_equal(ct_session_resume(session, &diag), CT_EINVAL);
  assert_int_equal(ct_session_pause(session, &diag), CT_EINVAL);
  assert_int_equal(ct_session_detach(session, &diag), CT_EINVAL);
  assert_int_equal(ct_session_install(session, &diag), CT_EINVAL);
  assert_int_equal(ct_session_trace_add(session, "x", CT_SELECT_AUTO, NULL, &diag), CT_EINVAL);
  struct ct_session_status status = status_of(session);
  assert_int_equal(status.state, CT_STATE_INITIALIZED);
  assert_int_equal(status.error, CT_ERROR_INIT);
  assert_non_null(strstr(status.error_text, "initialized"));
  assert_int_equal(ct_session_close(session, NULL, &diag), 0);
  clear(folder);
}

static void
a_life(void **unused)
{
  (void)unused;
  char folder[] = "/tmp/contrail-state-XXXXXX";
  struct ct_session *session = make_session(folder, 0);
  struct ct_diag diag = {""};
  pid_t pid = sleeper();
  assert_int_equal(ct_session_attach(session, pid, &diag), 0);
  assert_int_equal(status_of(session).state, CT_STATE_ATTACHED);
  assert_int_equal(ct_session_attach(session, pid, &diag), CT_EINVAL);
  assert_int_equal(ct_session_resume(session, &diag), 0);
  assert_int_equal(ct_session_pause(session, &diag), 0);
  assert_int_equal(status_of(session).state, CT_STATE_ATTACHED);
  assert_int_equal(ct_session_resume(session, &diag), 0);
  assert_int_equal(ct_session_wait(session, 1), CT_ETIMEOUT);
  assert_int_equal(ct_session_detach(session, &diag), 0);
  struct ct_session_status status = status_of(session);
  assert_int_equal(status.state, CT_STATE_INITIALIZED);
  assert_true(status.detached && !status.ended && status.hooked > 1000);
  assert_int_equal(ct_session_wait(session, 0), 0);
  assert_int_equal(ct_session_close(session, NULL, &diag), 0);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  clear(folder);
}

/* Killed just before the detach, or while it is under way: the end is noted either way, and how it came. */
static void
the_end_of_a_process_is_not_a_detach(void **unused)
{
  (void)unused;
  int turns = (int)rounds(16, 40);
  for (int turn = 0; turn < turns; turn++) {
    char folder[] = "/tmp/contrail-state-XXXXXX";
    struct ct_session *session = make_session(folder, 0);
    struct ct_diag diag = {""};
    pid_t pid = sleeper();
    assert_int_equal(ct_session_attach(session, pid, &diag), 0);
    if (turn % 2 == 0) {
      assert_int_equal(ct_session_resume(session, &diag), 0);
    }
    kill(pid, SIGKILL);
    usleep((useconds_t)(turn * 1000 / turns));
    int code = ct_session_detach(session, &diag);
    struct ct_session_status status = status_of(session);
    assert_true(code == 0 || code == CT_EINVAL); /* the latter when the end had been noted before */
    assert_true(status.ended && status.has_status && !status.detached);
    assert_true(WIFSIGNALED(status.wait_status) && WTERMSIG(status.wait_status) == SIGKILL);
    assert_int_equal(ct_session_close(session, NULL, &diag), 0);
    waitpid(pid, NULL, 0);
    clear(folder);
  }
}

static void
too_late_leaves_the_process_untouched(void **unused)
{
  (void)unused;
  char folder[] = "/tmp/contrail-state-XXXXXX";
  struct ct_session *session = make_session(folder, 1);
  struct ct_clean_report report = {.struct_size = sizeof(report)};
  struct ct_diag diag = {""};
  pid_t pid = sleeper();
  assert_int_equal(ct_session_attach(session, pid, &diag), CT_ETIMEOUT);
  struct ct_session_status status = status_of(session);
  assert_int_equal(status.state, CT_STATE_FAILED);
  assert_int_equal(status.error, CT_ERROR_TIMEOUT);
  assert_int_equal(ct_clean(pid, &report, &diag), CT_ENOENT); /* nothing is left in it */
  assert_int_equal(kill(pid, 0), 0);
  assert_int_equal(ct_session_reset(session, &diag), 0);
  assert_int_equal(status_of(session).state, CT_STATE_INITIALIZED);
  assert_int_equal(ct_session_close(session, NULL, &diag), 0);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  clear(folder);
}

static void
errors_have_classes(void **unused)
{
  (void)unused;
  char folder[] = "/tmp/contrail-state-XXXXXX";
  struct ct_session *session = make_session(folder, 0);
  struct ct_diag diag = {""};
  char *missing[] = {"/nowhere/at/all", NULL};
  int exec_errno;
  assert_int_equal(ct_session_spawn(session, missing, &exec_errno, &diag), CT_ENOENT);
  assert_int_equal(status_of(session).error, CT_ERROR_SPAWN);
  assert_int_equal(ct_session_reset(session, &diag), 0);
  pid_t gone = fork();
  if (gone == 0) {
    _exit(0);
  }
  waitpid(gone, NULL, 0);
  assert_int_equal(ct_session_attach(session, gone, &diag), CT_ESRCH);
  assert_int_equal(status_of(session).error, CT_ERROR_ATTACH);
  assert_int_equal(ct_session_close(session, NULL, &diag), 0);
  clear(folder);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_step_from_every_state),
      cmocka_unit_test(nonsense_is_refused),
      cmocka_unit_test(calls_out_of_turn_are_errors),
      cmocka_unit_test(a_life),
      cmocka_unit_test(the_end_of_a_process_is_not_a_detach),
      cmocka_unit_test(too_late_leaves_the_process_untouched),
      cmocka_unit_test(errors_have_classes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
