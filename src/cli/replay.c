/* SPDX-License-Identifier: MIT */
/* contrail replay: the calls in time order. */
#define _GNU_SOURCE 1
#include "cli/ask.h"
#include "cli/view.h"

#include <contrail/control.h>
#include <contrail/replay.h>

#include <errno.h>
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

enum { TAIL_NS = 1000000, TAIL_GROWS = 8 }; /* the first piece that --tail reads, and how each next one is longer */
enum { ASK_EVERY = 10, GONE_TIMES = 4 }; /* of rounds of a twentieth of a second; what is left is written meanwhile */

static volatile sig_atomic_t interrupted;

/* What the options choose. */
struct wanted {
  struct ct_view_selection selected;
  uint64_t tail; /* so many of the last lines; 0: not given */
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
    {.name = "tail",
     .argument = "N",
     .help = "show the last N lines, before the end or --to",
     .against = "limit after live from window",
     .least = 1,
     .most = UINT32_MAX,
     .unit = " of lines",
     .apply = ct_apply_count64,
     .offset = offsetof(struct wanted, tail)},
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

/* ---- --tail ---- */

/* Lines on their way: counted, and as many of the first ones left out. */
struct lines {
  FILE *out; /* NULL: all are only counted */
  uint64_t count, omitted;
  bool has_head; /* the first line is always written */
};

static ssize_t
write_lines(void *context, const char *text, size_t bytes)
{
  struct lines *lines = context;
  for (size_t done = 0; done < bytes;) {
    const char *end = memchr(text + done, '\n', bytes - done);
    size_t length = end != NULL ? (size_t)(end - (text + done)) + 1 : bytes - done;
    bool is_shown =
        lines->has_head ? lines->count == 0 || lines->count > lines->omitted : lines->count >= lines->omitted;
    if (lines->out != NULL && is_shown && fwrite(text + done, 1, length, lines->out) != length) {
      return 0; /* an error, as fopencookie has it */
    }
    lines->count += end != NULL;
    done += length;
  }
  return (ssize_t)bytes;
}

static int
replay_lines(struct ct_trace *trace, const struct ct_replay_options *replay, struct lines *lines,
             struct ct_view_notes *notes, struct ct_diag *diag)
{
  FILE *through = fopencookie(lines, "w", (cookie_io_functions_t){.write = write_lines});
  if (through == NULL) {
    snprintf(diag->text, sizeof(diag->text), "out of memory");
    return CT_ENOMEM;
  }
  *notes = (struct ct_view_notes){.struct_size = sizeof(*notes)};
  int code = ct_replay_write(trace, replay, through, notes, diag);
  int why = errno; /* of the writing, for who writes the line */
  bool failed = fclose(through) != 0;
  if (code == CT_OK && failed) {
    return CT_EIO;
  }
  errno = why;
  return code;
}

/* Ever longer pieces before the end are read until one has as many lines; that is then written without its first ones.
 */
static int
write_tail(struct ct_trace *trace, const struct ct_replay_options *replay, uint64_t tail, FILE *out,
           struct ct_view_notes *notes, struct ct_diag *diag)
{
  uint64_t to = replay->filter->to_tsc, end = ct_trace_end_tsc(trace), start = ct_trace_start_ns(trace);
  uint64_t first = ct_trace_tsc(trace, start), piece = ct_trace_tsc(trace, start + TAIL_NS) - first;
  struct lines lines = {.has_head = !replay->json};
  end = to != 0 && to < end ? to : end;
  for (bool is_all = false; !is_all && lines.count < tail + lines.has_head; piece *= TAIL_GROWS) {
    is_all = end < first || piece >= end - first;
    lines.count = 0;
    int code = ct_trace_set_range(trace, is_all ? 0 : end - piece, to != 0 ? to : UINT64_MAX);
    code = code == CT_OK ? replay_lines(trace, replay, &lines, notes, diag) : code;
    if (code != CT_OK) {
      return code;
    }
  }
  lines.omitted = lines.count > tail + lines.has_head ? lines.count - lines.has_head - tail : 0;
  lines.count = 0;
  lines.out = out;
  return replay_lines(trace, replay, &lines, notes, diag);
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
  return wanted->tail != 0 ? write_tail(trace, &replay, wanted->tail, out, notes, diag)
                           : ct_replay_write(trace, &replay, out, notes, diag);
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
