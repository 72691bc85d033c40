/* SPDX-License-Identifier: MIT */
/* See itrace_session.h. */
#include "cli/itrace_session.h"

#include "cli/ask.h"
#include "cli/signals.h"

#include <contrail/control.h>
#include <contrail/text.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEP_MS = 200 }; /* then it is looked whether a signal has come */

/* What has become of them. Numbers stay what they were when the session is gone. */
struct outcome {
  uint64_t recorded, cut, failed, steps;
  uint64_t missed; /* ends that were not reported */
  const char
      *reason; /* NULL: they are still to come; of the session's event "over"; "interrupted", "timeout", "failed" */
};

static double
now_s(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

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

/* Closes them if they are open; their numbers at the end. False: the session is gone, or does not answer. */
static bool
ask(const char *id, const char *method, uint64_t number, struct outcome *outcome, struct ct_diag *diag)
{
  int code;
  bool is_close = strcmp(method, "itrace.close") == 0;
  char *params = is_close ? text_of(json_pack("{s:I}", "number", (json_int_t)number)) : NULL;
  json_t *answer = ct_ask(id, method, params, CT_CHANGE_MS, &code, diag);
  free(params);
  if (answer == NULL) {
    outcome->reason = code == CT_ENOENT ? "ended" : "failed";
    return false;
  }
  count(answer, number, outcome);
  json_decref(answer);
  return true;
}

static bool
is_reason(const struct outcome *outcome, const char *reason)
{
  return outcome->reason != NULL && strcmp(outcome->reason, reason) == 0;
}

static void
put_line(const json_t *json)
{
  json_dumpf(json, stdout, JSON_COMPACT);
  fputc('\n', stdout);
  fflush(stdout);
}

/* A call has ended. */
static void
put_call(const struct ct_itrace_session *wanted, const json_t *event)
{
  const char *function = json_string_value(json_object_get(event, "function"));
  uint64_t first = ct_number_of(event, "first_step"), steps = ct_number_of(event, "steps");
  printf("call %" PRIu64 " of ", ct_number_of(event, "call"));
  ct_put_printable(stdout, function != NULL ? function : wanted->function, SIZE_MAX);
  printf(", thread %" PRIu64 ": ", ct_number_of(event, "tid"));
  if (steps != 0) {
    printf("steps %" PRIu64 " to %" PRIu64, first, first + steps - 1);
  } else {
    fputs("no steps", stdout);
  }
  printf(", %s\n", ct_text_of(event, "outcome"));
  fflush(stdout);
}

/* An event of the subscription. */
static void
take_event(const struct ct_itrace_session *wanted, const char *text, struct outcome *outcome)
{
  static const char *const reasons[] = {"done", "closed", "ended"};
  json_t *event = json_loads(text, 0, NULL);
  outcome->missed += ct_number_of(event, "missed");
  if (strcmp(ct_text_of(event, "event"), "call") == 0) {
    bool is_cut = strcmp(ct_text_of(event, "outcome"), "returned") != 0;
    outcome->recorded += !is_cut;
    outcome->cut += is_cut;
    outcome->steps += ct_number_of(event, "steps");
    if (wanted->json) {
      put_line(event);
    } else if (!wanted->quiet) {
      put_call(wanted, event);
    }
  } else if (strcmp(ct_text_of(event, "event"), "over") == 0) {
    const char *reason = ct_text_of(event, "reason");
    outcome->reason = "failed";
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
      outcome->reason = strcmp(reason, reasons[i]) == 0 ? reasons[i] : outcome->reason;
    }
  }
  json_decref(event);
}

/* Whether there was an event. */
static bool
take_next(const struct ct_itrace_session *wanted, struct ct_control_feed *feed, int timeout_ms, struct outcome *outcome,
          struct ct_diag *diag)
{
  char *event = NULL;
  int code = ct_control_feed_next(feed, timeout_ms, &event, diag);
  if (code == CT_OK) {
    take_event(wanted, event, outcome);
    free(event);
  } else if (code != CT_ETIMEOUT) {
    outcome->reason = code == CT_ENOENT ? "ended" : "failed";
  }
  return code == CT_OK;
}

static void
wait_for_calls(const struct ct_itrace_session *wanted, const struct ct_signals *signals, const char *id,
               uint64_t number, struct outcome *outcome, struct ct_diag *diag)
{
  struct ct_control_feed *feed;
  char *answer = NULL, *params = text_of(json_pack("{s:I}", "number", (json_int_t)number));
  double end = now_s() + wanted->seconds;
  int code = ct_control_feed_open(id, "itrace.subscribe", params, CT_CHANGE_MS, &answer, &feed, diag);
  free(params);
  free(answer);
  if (code != CT_OK) {
    outcome->reason = code == CT_ENOENT ? "ended" : "failed";
    return;
  }
  while (outcome->reason == NULL && !ct_signals_enough(signals)) {
    double left = wanted->seconds != 0 ? (end - now_s()) * 1000 : STEP_MS;
    if (left <= 0) {
      outcome->reason = "timeout";
    } else {
      take_next(wanted, feed, left > STEP_MS ? STEP_MS : (int)left + 1, outcome, diag);
    }
  }
  if (outcome->reason == NULL || is_reason(outcome, "timeout")) {
    const char *reason = outcome->reason != NULL ? outcome->reason : "interrupted";
    outcome->reason = NULL;
    bool is_closed = ask(id, "itrace.close", number, outcome, diag);
    while (is_closed && outcome->reason == NULL && take_next(wanted, feed, CT_PEEK_MS, outcome, diag)) {
    }
    outcome->reason = is_closed || is_reason(outcome, "ended") ? reason : outcome->reason;
  }
  if (!is_reason(outcome, "failed") && !is_reason(outcome, "ended")) {
    const char *reason = outcome->reason;
    ask(id, "itrace.list", number, outcome, diag);
    outcome->reason = reason;
  }
  ct_control_feed_close(feed);
}

static void
report(const struct ct_itrace_session *wanted, const char *id, const struct outcome *outcome)
{
  char calls[CT_COUNT_CHARS], steps[CT_COUNT_CHARS], cut[CT_COUNT_CHARS];
  uint64_t ended = outcome->recorded + outcome->cut;
  bool is_gone = is_reason(outcome, "ended");
  if (wanted->json) {
    json_t *json =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "event", "over", "reason", outcome->reason, "recorded",
                  (json_int_t)outcome->recorded, "cut", (json_int_t)outcome->cut, "failed", (json_int_t)outcome->failed,
                  "steps", (json_int_t)outcome->steps, "missed", (json_int_t)outcome->missed);
    put_line(json);
    json_decref(json);
    return;
  }
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
  if (outcome->missed != 0 && !wanted->quiet) {
    fprintf(stderr, "; %s are not listed here: they ended too fast", ct_format_count(cut, outcome->missed));
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
  struct outcome outcome = {.reason = NULL};
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
      report(wanted, id, &outcome);
    }
  }
  ct_signals_stop(signals);
  ct_signals_destroy(signals);
  return code;
}
