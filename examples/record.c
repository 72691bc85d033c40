/* SPDX-License-Identifier: MIT */
/*
 * record DIR PROGRAM [ARGUMENT]...: runs a program, records it into DIR, and shows where its time went. While it runs
 * `contrail sessions` shows it, and `contrail stop` ends the recording.
 *
 *   cc record.c $(pkg-config --cflags --libs contrail)
 */
#include <contrail/contrail.h>

#include <stdio.h>
#include <sys/wait.h>

static int
complain(const struct ct_diag *diag)
{
  fprintf(stderr, "record: %s\n", diag->text);
  return 125;
}

static int
report(const char *directory)
{
  struct ct_diag diag;
  struct ct_trace *trace;
  struct ct_filter filter = {.struct_size = sizeof(filter), .limit = 10};
  struct ct_report_options options = {.struct_size = sizeof(options), .filter = &filter};
  if (ct_trace_open(directory, &trace, &diag) != 0) {
    return complain(&diag);
  }
  int code = ct_report_write(trace, &options, stdout, NULL, &diag);
  ct_trace_close(trace);
  return code == 0 ? 0 : complain(&diag);
}

int
main(int argc, char **argv)
{
  struct ct_diag diag = {""};
  struct ct_session *session;
  struct ct_control *control = NULL;
  int exec_errno;
  if (argc < 3) {
    fputs("usage: record DIR PROGRAM [ARGUMENT]...\n", stderr);
    return 125;
  }
  struct ct_session_options options = {.struct_size = sizeof(options), .directory = argv[1]};
  struct ct_session_status status = {.struct_size = sizeof(status)};
  if (ct_session_create(&options, &session, &diag) != 0) {
    return complain(&diag);
  }

  int code = ct_session_spawn(session, argv + 2, &exec_errno, &diag);
  if (code == 0) {
    code = ct_session_install(session, &diag);
  }
  if (code == 0) {
    ct_control_open(session, &control, NULL); /* without it the recording is as good */
  }
  if (code == 0) {
    code = ct_session_resume(session, &diag);
  }
  if (code == 0 && (code = ct_session_wait(session, -1)) != 0) {
    snprintf(diag.text, sizeof(diag.text), "cannot wait for the program: %s", ct_err_text(code));
  }
  ct_control_close(control);
  int closed = ct_session_close(session, &status, code == 0 ? &diag : NULL);
  if (code != 0 || closed != 0) {
    return complain(&diag);
  }

  code = report(argv[1]);
  if (code != 0 || !status.has_status) {
    return code;
  }
  return WIFEXITED(status.wait_status) ? WEXITSTATUS(status.wait_status) : 128 + WTERMSIG(status.wait_status);
}
