/* SPDX-License-Identifier: MIT */
/* contrail replay: the calls in time order. */
#include "cli/ask.h"
#include "cli/view.h"

#include <contrail/control.h>
#include <contrail/replay.h>

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is known of the recording that --live follows. */
struct followed {
  char id[CT_CONTROL_ID_BYTES]; /* of its session; "": there is none */
  char path[PATH_MAX];          /* of the trace */
  unsigned asked, gone;         /* how often it was asked, and how often in a row the session was not there */
};

enum { ASK_EVERY = 10, GONE_TIMES = 4 }; /* of rounds of a twentieth of a second; what is left is written meanwhile */

static volatile sig_atomic_t interrupted;

/* What the options choose. */
struct wanted {
  struct ct_view_selection selected;
  bool no_output, live;
  struct followed followed;
};

static int
apply_after(const struct ct_applied *applied)
{
  struct ct_view_selection *selected = applied->member;
  struct ct_span_place place;
  if (!ct_parse_number(applied->value, UINT64_MAX, &selected->filter.after) ||
      !ct_span_id_split(selected->filter.after, &place)) {
    return ct_usage_error(applied->command, "--after takes the id of a call, not '%s'", applied->value);
  }
  return CT_EXIT_OK;
}

static const struct ct_option options[] = {
    CT_OPTION_GROUP(ct_thread_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_process_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_range_options, struct wanted, selected),
    CT_OPTION_FUNCTION(struct wanted, selected,
                       "only calls of functions that match, with what is called inside: foo*, foo::**, @file:FILE, "
                       "MODULE!PATTERN, as in record --trace"),
    CT_OPTION_GROUP(ct_module_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_call_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_type_options, struct wanted, selected),
    CT_OPTION_LIMIT(struct wanted, selected, "stop after N lines"),
    {.name = "after",
     .argument = "ID",
     .help = "show only what comes after the first line of the call with that id (--json has them). With "
             "--limit: page by page, from the last call that a page begins",
     .apply = apply_after,
     .offset = offsetof(struct wanted, selected)},
    {.name = "no-output",
     .help = "leave out what the program wrote to its standard output and error",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, no_output)},
    {.name = "live",
     .help = "follow a recording that goes on: show calls as they happen, until it ends or Ctrl-C",
     .against = "window from to",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, live)},
    CT_OPTION_GROUP(ct_time_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_source_options, struct wanted, selected),
    CT_OPTION_JSON(struct wanted, selected.json, "print one JSON object a line; the status is 1 when nothing matches"),
    CT_OPTION_GROUP(ct_quiet_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_names_options, struct wanted, selected.look),
    CT_OPTION_GROUP(ct_look_options, struct wanted, selected.look),
    CT_OPTIONS_END,
};

/* ---- --live ---- */

static void
interrupt(int number)
{
  (void)number;
  interrupted = 1;
}

/* Its trace is the one that is followed, or that of the first process of its tree. */
static void
look_at_session(void *context, const char *id)
{
  struct followed *followed = context;
  struct ct_diag diag = {""};
  char path[PATH_MAX];
  int code;
  json_t *status = ct_ask(id, "status", NULL, CT_PEEK_MS, &code, &diag);
  size_t length = status != NULL && realpath(ct_text_of(status, "trace"), path) != NULL ? strlen(path) : 0;
  if (length != 0 && strncmp(followed->path, path, length) == 0 &&
      (followed->path[length] == '\0' || followed->path[length] == '/')) {
    snprintf(followed->id, sizeof(followed->id), "%s", id);
  }
  json_decref(status);
}

/* The trace becomes complete when the recording ends in order; the session says when it has not. */
static enum ct_replay_course
ask_course(void *arg)
{
  struct followed *followed = arg;
  char id[CT_CONTROL_ID_BYTES];
  if (interrupted) {
    return CT_REPLAY_STOPS;
  }
  if (followed->id[0] == '\0') {
    return CT_REPLAY_ENDS;
  }
  if (followed->asked++ % ASK_EVERY == 0) {
    followed->gone = ct_control_find(followed->id, id, NULL) == CT_ENOENT ? followed->gone + 1 : 0;
  }
  return followed->gone < GONE_TIMES ? CT_REPLAY_GOES_ON : CT_REPLAY_ENDS;
}

/* 0, or an error with a line: it cannot be followed. */
static int
begin_live(struct followed *followed, const struct ct_trace *trace, struct ct_diag *diag)
{
  struct ct_trace_kept kept = {.struct_size = sizeof(kept)};
  ct_trace_get_kept(trace, &kept);
  if (ct_trace_has_range(trace) || (kept.is_kept && !ct_trace_is_complete(trace))) {
    snprintf(diag->text, sizeof(diag->text), "--live shows %s",
             kept.is_kept ? "no recording that keeps the last stretch only (record --last, --max-size)"
                          : "a recording to its end: leave out the piece");
    return CT_EINVAL;
  }
  struct sigaction action = {.sa_handler = interrupt};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  if (realpath(ct_trace_path(trace), followed->path) != NULL && !ct_trace_is_complete(trace)) {
    ct_control_list(look_at_session, followed, diag);
    if (followed->id[0] == '\0') {
      fprintf(stderr, "contrail replay: no session of yours records this trace: what there is of it is shown\n");
    }
  }
  return CT_OK;
}

static int
write_replay(void *context, struct ct_trace *trace, const struct ct_filter *filter,
             const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct wanted *wanted = context;
  const struct ct_view_selection *selected = &wanted->selected;
  int code = wanted->live ? begin_live(&wanted->followed, trace, diag) : CT_OK;
  if (code != CT_OK) {
    return code;
  }
  struct ct_replay_options replay = {
      .struct_size = sizeof(replay),
      .short_names = ct_shown_short_names(&selected->look),
      .filter = filter,
      .json = selected->json,
      .progress = *progress,
      .no_output = wanted->no_output,
      .source = selected->source,
      .time = selected->time,
      .follow = wanted->live ? ask_course : NULL,
      .follow_arg = &wanted->followed,
  };
  return ct_replay_write(trace, &replay, out, notes, diag);
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.selected.is_read = true, .no_output = false};
  int code = ct_parse(&ct_command_replay, argc, argv, &wanted);
  const char *dir = code == -1 ? ct_trace_argument(&ct_command_replay, argc, argv) : NULL;
  wanted.selected.is_live = wanted.live;
  if (dir != NULL) {
    code = ct_show_view(&ct_command_replay, dir, &wanted.selected, isatty(STDOUT_FILENO) != 1 && !wanted.live,
                        write_replay, &wanted);
  }
  ct_view_selection_free(&wanted.selected);
  return code == -1 ? CT_EXIT_USAGE : code;
}

const struct ct_command ct_command_replay = {
    .name = "replay",
    .summary = "the calls in time order, indented",
    .synopsis = "[OPTION]... [DIR]",
    .about = "Shows the calls of the trace in DIR (default " CT_DEFAULT_TRACE ") in time order, of all\n"
             "threads together.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
