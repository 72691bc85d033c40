/* SPDX-License-Identifier: MIT */
/* See view.h. */
#include "cli/view.h"

#include "cli/progress.h"

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
