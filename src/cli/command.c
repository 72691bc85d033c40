/* SPDX-License-Identifier: MIT */
/* What the commands share; see command.h. */
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/quantity.h"

#include <contrail/control.h>
#include <contrail/export.h>
#include <contrail/text.h>
#include <contrail/trace.h>

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line, whatever the words have in them that it repeats. */
static void
complain(const struct ct_command *command, const char *fmt, va_list ap)
{
  char *text = NULL;
  fflush(stdout);
  if (vasprintf(&text, fmt, ap) < 0) {
    text = NULL;
  }
  fprintf(stderr, "contrail %s: ", command->name);
  ct_put_printable(stderr, text != NULL ? text : "out of memory", SIZE_MAX);
  free(text);
}

int
ct_usage_error(const struct ct_command *command, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  complain(command, fmt, ap);
  va_end(ap);
  fprintf(stderr, " (see: contrail help %s)\n", command->name);
  return CT_EXIT_USAGE;
}

int
ct_command_failed(const struct ct_command *command, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  complain(command, fmt, ap);
  va_end(ap);
  fputc('\n', stderr);
  return CT_EXIT_FAILED;
}

bool
ct_parse_number(const char *text, uint64_t max, uint64_t *value)
{
  char *end;
  if (text[0] < '0' || text[0] > '9') {
    return false;
  }
  errno = 0;
  unsigned long long n = strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0' || n > max) {
    return false;
  }
  *value = n;
  return true;
}

int
ct_apply_for(const struct ct_applied *applied)
{
  return ct_parse_duration(applied->value, true, applied->member)
             ? CT_EXIT_OK
             : ct_usage_error(applied->command, "--for takes a time such as 10s, 500ms or 2m, not '%s'",
                              applied->value);
}

int
ct_parse_pid(const struct ct_command *command, const char *text, pid_t *pid)
{
  uint64_t number;
  if (!ct_parse_number(text, INT32_MAX, &number) || number == 0) {
    return ct_usage_error(command, "'%s' is no process id", text);
  }
  *pid = (pid_t)number;
  return CT_EXIT_OK;
}

json_t *
ct_json_text(const char *text)
{
  char *clean = ct_utf8_copy(text);
  json_t *json = clean != NULL ? json_string(clean) : NULL;
  free(clean);
  return json;
}

struct ct_control *
ct_open_control(struct ct_session *session)
{
  struct ct_control *control = NULL;
  struct ct_diag diag = {""};
  int code = ct_control_open(session, &control, &diag);
  if (code != CT_OK && code != CT_ESRCH) {
    fprintf(stderr, "contrail: note: contrail sessions will not show this one: %s\n", diag.text);
  }
  return control;
}

int
ct_no_operands(const struct ct_command *command, int argc, char **argv)
{
  return optind == argc ? CT_EXIT_OK : ct_usage_error(command, "'%s' is too much", argv[optind]);
}

const char *
ct_trace_argument(const struct ct_command *command, int argc, char **argv)
{
  if (argc - optind > 1) {
    ct_usage_error(command, "one trace directory at a time, '%s' is too much", argv[optind + 1]);
    return NULL;
  }
  return argc > optind ? argv[optind] : CT_DEFAULT_TRACE;
}

/* Of a recording of instructions the trace of its calls, which is made when it is first asked for. */
static int
open_calls(const char *dir, struct ct_trace **trace, struct ct_diag *diag)
{
  char path[PATH_MAX];
  struct ct_progress_alone progress;
  int code = ct_trace_open(dir, trace, diag);
  if (code == 0 || !ct_export_has_steps(dir)) {
    return code;
  }
  diag->text[0] = '\0';
  ct_progress_alone_begin(&progress, "making the calls of the instructions, once");
  code = ct_export_steps_calls(dir, path, sizeof(path), diag);
  ct_progress_alone_end(&progress);
  return code == 0 ? ct_trace_open(path, trace, diag) : code;
}

struct ct_trace *
ct_open_trace(const struct ct_command *command, const char *dir)
{
  struct ct_trace *trace;
  struct ct_diag diag = {""};
  signal(SIGPIPE, SIG_IGN);
  int code = open_calls(dir, &trace, &diag);
  if (code == 0) {
    return trace;
  }
  if (code == CT_ENOENT && strcmp(dir, CT_DEFAULT_TRACE) == 0) {
    ct_command_failed(command, "no %s here; give a trace directory, or record one: contrail record -- PROGRAM",
                      CT_DEFAULT_TRACE);
  } else {
    ct_command_failed(command, "%s", diag.text[0] != '\0' ? diag.text : ct_err_text(code));
  }
  return NULL;
}

int
ct_finish_view(const struct ct_command *command, int code, const struct ct_view_notes *notes,
               const struct ct_diag *diag)
{
  if (code == CT_EIO && errno == EPIPE) {
    return CT_EXIT_OK;
  }
  if (code != 0) {
    ct_command_failed(command, "%s", diag->text[0] != '\0' ? diag->text : ct_err_text(code));
    return code == CT_ERANGE || code == CT_EINVAL ? CT_EXIT_USAGE : CT_EXIT_FAILED;
  }
  if (notes->damaged_threads == 1) {
    ct_command_failed(command, "the file of thread %u is damaged or cut; what comes before that place is shown",
                      notes->first_damaged_tid);
  } else if (notes->damaged_threads != 0) {
    ct_command_failed(command,
                      "the files of %u threads (the first is %u) are damaged or cut; what comes before is shown",
                      notes->damaged_threads, notes->first_damaged_tid);
  }
  if (notes->damaged_details != 0) {
    ct_command_failed(command, "the detail of %u thread%s is damaged; what could be read of it is shown",
                      notes->damaged_details, notes->damaged_details == 1 ? "" : "s");
  }
  return CT_EXIT_OK;
}
