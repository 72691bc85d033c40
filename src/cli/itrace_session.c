/* SPDX-License-Identifier: MIT */
/* See itrace_session.h. */
#include "cli/itrace_session.h"

#include "cli/ask.h"
#include "cli/signals.h"

#include <contrail/control.h>
#include <contrail/text.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_MS = 200 }; /* then it is looked whether a signal has come */

/* What has become of them. Numbers stay what they were when the session is gone. */
struct outcome {
  uint64_t recorded, cut, failed, steps;
  const char *reason; /* of itrace.wait; "interrupted" */
};

static char *
text_of(json_t *json)
{
  char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
  json_decref(json);
  return text;
}

/* Opens them; *number. */
static int
open_calls(const struct ct_itrace_session *wanted, const char *id, uint64_t *number)
{
  uint64_t calls = wanted->calls != 0 ? wanted->calls : CT_ITRACE_CALLS_MAX;
  char *params = text_of(json_pack("{s:s, s:s*, s:I}", "function", wanted->function, "condition", wanted->condition,
                                   "calls", (json_int_t)calls));
  json_t *answer = NULL;
  if (params == NULL) {
    return ct_usage_error(&ct_command_itrace, "the pattern or the condition is not UTF-8");
  }
  int code = ct_ask_named(&ct_command_itrace, id, "itrace.open", params, CT_CHANGE_MS, &answer);
  free(params);
  if (answer != NULL) {
    *number = ct_number_of(answer, "number");
    if (json_is_true(json_object_get(answer, "unmatched"))) {
      fputs("contrail itrace: ", stderr);
      ct_put_printable(stderr, wanted->function, SIZE_MAX);
      fputs(" names no hooked function of the process so far\n", stderr);
    }
  }
  json_decref(answer);
  return code;
}

static void
count(const json_t *answer, uint64_t number, struct outcome *outcome)
{
  size_t i;
  json_t *row;
  json_array_foreach(json_object_get(answer, "itrace"), i, row)
  {
    if (ct_number_of(row, "number") == number) {
      outcome->recorded = ct_number_of(row, "recorded");
      outcome->cut = ct_number_of(row, "cut");
      outcome->failed = ct_number_of(row, "failed");
      outcome->steps = ct_number_of(row, "steps");
    }
  }
}

/* A call about them. False: the session is gone, or does not answer; diag says which. */
static bool
ask(const char *id, const char *method, uint64_t number, int timeout_ms, struct outcome *outcome, struct ct_diag *diag)
{
  int code;
  bool is_wait = timeout_ms >= 0;
  char *params = text_of(is_wait ? json_pack("{s:I, s:i}", "number", (json_int_t)number, "timeout", timeout_ms)
                                 : json_pack("{s:I}", "number", (json_int_t)number));
  json_t *answer = ct_ask(id, method, params, CT_CHANGE_MS, &code, diag);
  free(params);
  if (answer == NULL) {
    outcome->reason = code == CT_ENOENT ? "ended" : "failed";
    return false;
  }
  count(answer, number, outcome);
  if (is_wait) {
    static const char *const reasons[] = {"timeout", "done", "closed", "replaced", "ended"};
    const char *reason = ct_text_of(answer, "reason");
    outcome->reason = "failed";
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
      outcome->reason = strcmp(reason, reasons[i]) == 0 ? reasons[i] : outcome->reason;
    }
  }
  json_decref(answer);
  return true;
}

static bool
is_reason(const struct outcome *outcome, const char *reason)
{
  return strcmp(outcome->reason, reason) == 0;
}

static void
wait_for_calls(const struct ct_itrace_session *wanted, const struct ct_signals *signals, const char *id,
               uint64_t number, struct outcome *outcome, struct ct_diag *diag)
{
  double left = wanted->seconds * 1000;
  outcome->reason = "timeout";
  while (is_reason(outcome, "timeout")) {
    if (ct_signals_enough(signals) || (wanted->seconds != 0 && left <= 0)) {
      bool open = ask(id, "itrace.close", number, -1, outcome, diag);
      outcome->reason = open ? "interrupted" : outcome->reason;
      return;
    }
    int step = wanted->seconds == 0 || left > STEP_MS ? STEP_MS : (int)left + 1;
    left -= step;
    ask(id, "itrace.wait", number, step, outcome, diag);
  }
}

static void
tell(const struct ct_itrace_session *wanted, const char *id, const struct outcome *outcome)
{
  char calls[CT_COUNT_CHARS], steps[CT_COUNT_CHARS], cut[CT_COUNT_CHARS];
  uint64_t ended = outcome->recorded + outcome->cut;
  bool is_gone = is_reason(outcome, "ended");
  if (wanted->quiet && outcome->failed == 0 && !is_gone) {
    return;
  }
  fprintf(stderr, "contrail: %s call%s of ", ct_format_count(calls, ended), ended == 1 ? "" : "s");
  ct_put_printable(stderr, wanted->function, SIZE_MAX);
  fprintf(stderr, ", %s instructions, in the session's trace", ct_format_count(steps, outcome->steps));
  if (outcome->cut != 0) {
    fprintf(stderr, "; %s cut before the end", ct_format_count(cut, outcome->cut));
  }
  if (outcome->failed != 0) {
    fprintf(stderr, "; %s could not be recorded (contrail status says why)", ct_format_count(cut, outcome->failed));
  }
  if (is_gone) {
    fputs("; the session has ended: its trace may have more\n", stderr);
  } else {
    fprintf(stderr, "; look at it with: contrail steps --live %s\n", id);
  }
}

int
ct_itrace_session_run(const struct ct_itrace_session *wanted)
{
  char id[CT_CONTROL_ID_BYTES];
  struct ct_diag diag = {""};
  struct outcome outcome = {.reason = "timeout"};
  uint64_t number = 0;
  if (wanted->calls > CT_ITRACE_CALLS_MAX) {
    return ct_usage_error(&ct_command_itrace, "of a session at most %d calls", CT_ITRACE_CALLS_MAX);
  }
  int code = ct_control_find(wanted->session, id, &diag);
  if (code != CT_OK) {
    ct_command_failed(&ct_command_itrace, "%s", diag.text);
    return code == CT_ENOENT ? CT_EXIT_NO_SESSION : code == CT_ERANGE ? CT_EXIT_USAGE : CT_EXIT_FAILED;
  }
  struct ct_signals *signals = ct_signals_create();
  if (signals == NULL) {
    return ct_command_failed(&ct_command_itrace, "out of memory");
  }
  ct_signals_forget_program(signals);
  ct_signals_serve(signals, 0, NULL, NULL); /* before they are open: a signal is to close them */
  code = open_calls(wanted, id, &number);
  if (code == CT_EXIT_OK) {
    wait_for_calls(wanted, signals, id, number, &outcome, &diag);
    if (is_reason(&outcome, "failed")) {
      code = ct_command_failed(&ct_command_itrace, "%s", diag.text);
    } else {
      tell(wanted, id, &outcome);
    }
  }
  ct_signals_stop(signals);
  ct_signals_destroy(signals);
  return code;
}
