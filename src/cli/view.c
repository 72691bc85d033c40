/* SPDX-License-Identifier: MIT */
/* See view.h. */
#include "cli/view.h"

#include "cli/progress.h"
#include "cli/quantity.h"

#include <contrail/text.h>
#include <contrail/trace.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

static int
apply_thread(const struct ct_applied *applied)
{
  struct ct_tid_list *list = applied->member;
  uint64_t tid;
  if (!ct_parse_number(applied->value, UINT32_MAX, &tid)) {
    return ct_usage_error(applied->command, "'%s' is not a thread id", applied->value);
  }
  uint32_t *tids = reallocarray(list->tids, list->count + 1, sizeof(*tids));
  if (tids == NULL) {
    return ct_command_failed(applied->command, "out of memory");
  }
  list->tids = tids;
  list->tids[list->count++] = (uint32_t)tid;
  return CT_EXIT_OK;
}

static int
apply_time(const struct ct_applied *applied)
{
  enum ct_view_time *time = applied->member;
  if (strcmp(applied->value, "cpu") != 0 && strcmp(applied->value, "wall") != 0) {
    return ct_usage_error(applied->command, "'%s' is neither wall nor cpu", applied->value);
  }
  *time = applied->value[0] == 'c' ? CT_TIME_CPU : CT_TIME_WALL;
  return CT_EXIT_OK;
}

static int
apply_raw(const struct ct_applied *applied)
{
  *(enum ct_view_time *)applied->member = CT_TIME_RAW;
  return CT_EXIT_OK;
}

const struct ct_option ct_thread_options[] = {
    {.name = "thread",
     .letter = 't',
     .argument = "TID",
     .help = "only this thread; may be given several times",
     .values = CT_COMPLETE_THREAD,
     .adds_up = true,
     .apply = apply_thread,
     .offset = offsetof(struct ct_view_choice, tids)},
    CT_OPTIONS_END,
};

const struct ct_option ct_module_options[] = {
    {.name = "module",
     .letter = 'm',
     .argument = "GLOB",
     .help = "only functions of modules whose path or file name matches",
     .apply = ct_apply_text,
     .offset = offsetof(struct ct_view_choice, module)},
    CT_OPTIONS_END,
};

const struct ct_option ct_range_options[] = {
    {.name = "window",
     .argument = "N",
     .help = "only the N-th of the windows that contrail info lists (record --on, contrail mark)",
     .least = 1,
     .most = UINT32_MAX,
     .against = "from",
     .apply = ct_apply_count64,
     .offset = offsetof(struct ct_view_choice, window)},
    {.name = "from",
     .argument = "TIME",
     .help = "only from then on: seconds from the begin of the recording (1.5), or with a unit (1500ms)",
     .apply = ct_apply_text,
     .offset = offsetof(struct ct_view_choice, from)},
    {.name = "to",
     .argument = "TIME",
     .help = "only up to then, likewise",
     .against = "window",
     .apply = ct_apply_text,
     .offset = offsetof(struct ct_view_choice, to)},
    CT_OPTIONS_END,
};

const struct ct_option ct_time_options[] = {
    {.name = "time",
     .argument = "cpu|wall",
     .help = "times without the time off the processor, or with it (default)",
     .values = "cpu wall",
     .against = "raw",
     .apply = apply_time,
     .offset = offsetof(struct ct_view_choice, time)},
    {.name = "raw",
     .help = "times as the clock gave them, with what hooks and contrail took",
     .apply = apply_raw,
     .offset = offsetof(struct ct_view_choice, time)},
    CT_OPTIONS_END,
};

const struct ct_option ct_source_options[] = {
    {.name = "source",
     .help = "where each function is written, if the trace says (record --source)",
     .apply = ct_apply_flag,
     .offset = offsetof(struct ct_view_choice, source)},
    CT_OPTIONS_END,
};

const struct ct_option ct_quiet_options[] = {
    {.name = "quiet",
     .letter = 'q',
     .help = "show nothing: the status tells whether anything matches",
     .apply = ct_apply_flag,
     .offset = offsetof(struct ct_view_choice, quiet)},
    CT_OPTIONS_END,
};

void
ct_view_choice_free(struct ct_view_choice *choice)
{
  free(choice->tids.tids);
}

/* ---- the course of a view ---- */

static void
warn_sources(struct ct_trace *trace)
{
  if (!ct_trace_has_sources(trace)) {
    fprintf(stderr,
            "contrail: the trace does not say where functions are written: no debug information was found, or it "
            "was not recorded with --source\n");
  }
}

/*
 * After a view with filters: when it has shown nothing says so on stderr, with names that may be meant. rc, or
 * CT_EXIT_FAILED for nothing with --json or --quiet.
 */
static int
report_unmatched(const struct ct_command *command, struct ct_trace *trace, const struct ct_view_choice *choice,
                 const struct ct_view_notes *notes, int rc)
{
  enum { LIKELY = 3 };
  const char *likely[LIKELY];
  if (rc != CT_EXIT_OK || notes->shown != 0 || (choice->function == NULL && choice->module == NULL)) {
    return rc;
  }
  fflush(stdout);
  size_t count = ct_view_matches(trace, choice->function, choice->module, likely, LIKELY);
  const char *glob = choice->function != NULL ? choice->function : choice->module;
  fprintf(stderr, "contrail %s: ", command->name);
  if (count != 0) {
    fprintf(stderr, "nothing: of the functions that match '%s' none was called", glob);
  } else {
    fprintf(stderr, "nothing: no %s matches '%s'%s", choice->function != NULL ? "function" : "module", glob,
            choice->function != NULL && choice->module != NULL ? " in these modules" : "");
  }
  for (size_t i = 0; count == 0 && i < LIKELY && likely[i][0] != '\0'; i++) {
    fputs(i == 0 ? "; perhaps " : ", ", stderr);
    ct_put_printable(stderr, likely[i], 200);
  }
  putc('\n', stderr);
  return choice->json || choice->quiet ? CT_EXIT_FAILED : rc;
}

/* ---- a piece of the trace ---- */

static int
set_range(const struct ct_command *command, struct ct_trace *trace, uint64_t from, uint64_t to)
{
  return ct_trace_set_range(trace, from, to) == 0 ? CT_EXIT_OK : ct_command_failed(command, "out of memory");
}

static int
choose_window(const struct ct_command *command, struct ct_trace *trace, uint64_t number)
{
  struct ct_trace_window window;
  size_t count = ct_trace_window_count(trace);
  if (count == 0) {
    return ct_command_failed(command, "the trace has no windows: nothing was marked (record --on, contrail mark)");
  }
  if (number > count) {
    return ct_command_failed(command, "there is no window %llu: the trace has %zu (contrail info lists them)",
                             (unsigned long long)number, count);
  }
  if (!ct_trace_window(trace, number - 1, &window)) {
    return ct_command_failed(command, "what the manifest says of window %llu makes no sense",
                             (unsigned long long)number);
  }
  return set_range(command, trace, window.begin_tsc, window.end_tsc);
}

/* "1.5" or "1500ms" from the begin of the recording, as a time of the trace. */
static bool
parse_moment(const struct ct_trace *trace, const char *text, uint64_t *tsc)
{
  double seconds = 0;
  if (strspn(text, "0.") != strlen(text) && !ct_parse_duration(text, true, &seconds)) {
    return false;
  }
  *tsc = ct_trace_tsc(trace, ct_trace_start_ns(trace) + (uint64_t)(seconds * 1e9));
  return text[0] != '\0' && seconds < 1e9;
}

static int
choose_range(const struct ct_command *command, struct ct_trace *trace, const struct ct_view_choice *choice)
{
  uint64_t from = 0, to = UINT64_MAX;
  if (choice->window != 0) {
    return choose_window(command, trace, choice->window);
  }
  const char *wrong = choice->from != NULL && !parse_moment(trace, choice->from, &from) ? choice->from
                      : choice->to != NULL && !parse_moment(trace, choice->to, &to)     ? choice->to
                                                                                        : NULL;
  if (wrong != NULL) {
    return ct_usage_error(command, "'%.100s' is no time: 1.5 (seconds from the begin of the recording), 1500ms, 2m",
                          wrong);
  }
  if (from > to) {
    return ct_usage_error(command, "--from %.100s is after --to %.100s", choice->from, choice->to);
  }
  return choice->from != NULL || choice->to != NULL ? set_range(command, trace, from, to) : CT_EXIT_OK;
}

int
ct_show_view(const struct ct_command *command, const char *dir, const struct ct_view_choice *choice,
             bool shows_progress, ct_write_view *write, void *context)
{
  FILE *out = choice->quiet ? fopen("/dev/null", "we") : stdout;
  if (out == NULL) {
    return ct_command_failed(command, "/dev/null: %s", strerror(errno));
  }
  struct ct_trace *trace = ct_open_trace(command, dir);
  if (trace == NULL) {
    if (choice->quiet) {
      fclose(out);
    }
    return CT_EXIT_FAILED;
  }
  int chosen = choose_range(command, trace, choice);
  if (chosen != CT_EXIT_OK) {
    if (choice->quiet) {
      fclose(out);
    }
    ct_trace_close(trace);
    return chosen;
  }
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_diag diag = {""};
  struct ct_progress line;
  struct ct_view_progress progress = {0};
  ct_progress_start(&line, "reading the trace");
  if (shows_progress) {
    progress = (struct ct_view_progress){ct_progress_update, ct_progress_end, &line};
  }
  int rc = write(context, trace, &progress, out, &notes, &diag);
  ct_progress_end(&line);
  rc = ct_finish_view(command, rc, &notes, &diag);
  rc = report_unmatched(command, trace, choice, &notes, rc);
  if (choice->quiet) {
    fclose(out);
  }
  if (choice->source) {
    warn_sources(trace);
  }
  ct_trace_close(trace);
  return rc;
}
