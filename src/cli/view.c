/* SPDX-License-Identifier: MIT */
/* See view.h. */
#include "cli/view.h"

#include "cli/progress.h"

#include <contrail/text.h>
#include <contrail/trace.h>

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- options ---- */

static int
apply_id(const struct ct_applied *applied)
{
  struct ct_id_list *list = applied->member;
  uint64_t id;
  if (!ct_parse_number(applied->value, UINT32_MAX, &id)) {
    return ct_usage_error(applied->command, "'%s' is not a %s id; contrail report --by %s shows them", applied->value,
                          applied->option->name, applied->option->name);
  }
  uint32_t *ids = reallocarray(list->ids, list->count + 1, sizeof(*ids));
  if (ids == NULL) {
    return ct_command_failed(applied->command, "out of memory");
  }
  list->ids = ids;
  list->ids[list->count++] = (uint32_t)id;
  return CT_EXIT_OK;
}

/* What a text of filter.h is refused for; said of the option. */
static int
check_parsed(const struct ct_applied *applied, int code, const struct ct_diag *diag)
{
  return code == CT_OK ? CT_EXIT_OK : ct_usage_error(applied->command, "--%s: %s", applied->option->name, diag->text);
}

static int
apply_duration(const struct ct_applied *applied)
{
  struct ct_diag diag = {""};
  return check_parsed(applied, ct_filter_parse_duration(applied->value, applied->member, &diag), &diag);
}

static int
apply_depth(const struct ct_applied *applied)
{
  struct ct_diag diag = {""};
  return check_parsed(applied, ct_filter_parse_depth(applied->value, applied->member, &diag), &diag);
}

int
ct_apply_levels(const struct ct_applied *applied, struct ct_filter *filter, uint32_t *levels)
{
  struct ct_applied part = *applied;
  bool is_range = strstr(applied->value, "..") != NULL;
  part.member = is_range ? (void *)filter : levels;
  return is_range ? apply_depth(&part) : ct_apply_count32(&part);
}

static int
apply_reason(const struct ct_applied *applied)
{
  struct ct_diag diag = {""};
  uint32_t more, *reasons = applied->member;
  int code = ct_filter_parse_reasons(applied->value, &more, &diag);
  *reasons |= code == CT_OK ? more : 0;
  return check_parsed(applied, code, &diag);
}

int
ct_apply_type(const struct ct_applied *applied)
{
  struct ct_diag diag = {""};
  uint32_t more, *types = applied->member;
  int code = ct_filter_parse_types(applied->value, &more, &diag);
  *types |= code == CT_OK ? more : 0;
  return check_parsed(applied, code, &diag);
}

int
ct_apply_limit(const struct ct_applied *applied)
{
  struct ct_view_selection *selected = applied->member;
  if (!ct_parse_number(applied->value, UINT64_MAX, &selected->filter.limit)) {
    return ct_usage_error(applied->command, "--limit takes a number, not '%s'", applied->value);
  }
  selected->has_limit = true;
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
     .apply = apply_id,
     .offset = offsetof(struct ct_view_selection, tids)},
    CT_OPTIONS_END,
};

const struct ct_option ct_process_options[] = {
    {.name = "process",
     .letter = 'p',
     .argument = "PID",
     .help = "only this process, of a recording that followed several (record --follow)",
     .adds_up = true,
     .apply = apply_id,
     .offset = offsetof(struct ct_view_selection, pids)},
    CT_OPTIONS_END,
};

/* What the macros of options need: a structure that has the selection in it. */
struct whole {
  struct ct_view_selection selected;
};

const struct ct_option ct_function_options[] = {
    CT_OPTION_FUNCTION(struct whole, selected,
                       "only functions that match: foo*, foo::**, @file:FILE, MODULE!PATTERN, as in record --trace"),
    CT_OPTIONS_END,
};

const struct ct_option ct_module_options[] = {
    {.name = "module",
     .letter = 'm',
     .argument = "GLOB",
     .help = "only functions of modules whose path or file name matches",
     .apply = ct_apply_text,
     .offset = offsetof(struct ct_view_selection, filter.module)},
    {.name = "file",
     .argument = "FILE",
     .help = "only functions written in FILE: its name, the end of its path, or a glob for these. The trace "
             "must say where functions are written (record --source)",
     .apply = ct_apply_text,
     .offset = offsetof(struct ct_view_selection, filter.file)},
    CT_OPTIONS_END,
};

const struct ct_option ct_min_duration_options[] = {
    {.name = "min-duration",
     .argument = "TIME",
     .help = "only calls that took at least TIME: 1ms, 1.5us, 200ns, 3s",
     .apply = apply_duration,
     .offset = offsetof(struct ct_view_selection, filter.min_ns)},
    CT_OPTIONS_END,
};

const struct ct_option ct_max_duration_options[] = {
    {.name = "max-duration",
     .argument = "TIME",
     .help = "only calls that took at most TIME",
     .apply = apply_duration,
     .offset = offsetof(struct ct_view_selection, filter.max_ns)},
    CT_OPTIONS_END,
};

const struct ct_option ct_reason_options[] = {
    {.name = "reason",
     .argument = "END",
     .help = "only calls that ended in this way: returned, exception, longjmp, exit, ... Several with commas "
             "between them",
     .values = "returned tail-call unwound longjmp setcontext exception cancellation pthread_exit exec thread-exit "
               "exit return-not-seen stack-switched lost killed still-open orphan enter-only counted",
     .adds_up = true,
     .apply = apply_reason,
     .offset = offsetof(struct ct_view_selection, filter.reasons)},
    CT_OPTIONS_END,
};

const struct ct_option ct_call_options[] = {
    {.group = ct_min_duration_options},
    {.group = ct_max_duration_options},
    {.name = "depth",
     .letter = 'd',
     .argument = "N",
     .help = "only N levels of calls (3), or the calls at these depths (2..5, 2.., ..5; the outermost is 0)",
     .apply = apply_depth,
     .offset = offsetof(struct ct_view_selection, filter)},
    {.group = ct_reason_options},
    CT_OPTIONS_END,
};

const struct ct_option ct_type_options[] = {
    {.name = "type",
     .argument = "TYPE",
     .help = "only call, point (enter only), output, switch (of stacks, and time off the processor), lost or "
             "crash. Several with commas between them",
     .values = "call point output switch lost crash",
     .adds_up = true,
     .apply = ct_apply_type,
     .offset = offsetof(struct ct_view_selection, filter.types)},
    CT_OPTIONS_END,
};

const struct ct_option ct_limit_options[] = {
    CT_OPTION_LIMIT(struct whole, selected, "write at most N calls, 0 for all"),
    CT_OPTIONS_END,
};

const struct ct_option ct_from_to_options[] = {
    {.name = "from",
     .argument = "TIME",
     .help = "only from TIME on: seconds from the start of the recording (1.5), with a unit (1500ms), or by "
             "the clock (10:15:30, 2026-11-24T10:15:30.5)",
     .apply = ct_apply_text,
     .offset = offsetof(struct ct_view_selection, from)},
    {.name = "to",
     .argument = "TIME",
     .help = "only up to TIME, given as for --from",
     .against = "window",
     .apply = ct_apply_text,
     .offset = offsetof(struct ct_view_selection, to)},
    CT_OPTIONS_END,
};

const struct ct_option ct_range_options[] = {
    {.name = "window",
     .argument = "N",
     .help = "only window N of those that contrail info lists (record --on, contrail mark)",
     .least = 1,
     .most = UINT32_MAX,
     .against = "from",
     .apply = ct_apply_count64,
     .offset = offsetof(struct ct_view_selection, window)},
    {.group = ct_from_to_options},
    CT_OPTIONS_END,
};

const struct ct_option ct_filter_options[] = {
    {.group = ct_range_options},    {.group = ct_thread_options}, {.group = ct_process_options},
    {.group = ct_function_options}, {.group = ct_module_options}, {.group = ct_call_options},
    {.group = ct_type_options},     {.group = ct_limit_options},  CT_OPTIONS_END,
};

const struct ct_option ct_time_options[] = {
    {.name = "time",
     .argument = "cpu|wall",
     .help = "show times without the time off the processor (cpu), or with it (wall, the default)",
     .values = "cpu wall",
     .against = "raw",
     .apply = apply_time,
     .offset = offsetof(struct ct_view_selection, time)},
    {.name = "raw",
     .help = "show times as the clock gave them, with what hooks and contrail took",
     .apply = apply_raw,
     .offset = offsetof(struct ct_view_selection, time)},
    CT_OPTIONS_END,
};

const struct ct_option ct_source_options[] = {
    {.name = "source",
     .help = "show where each function is written, if the trace says so (record --source)",
     .apply = ct_apply_flag,
     .offset = offsetof(struct ct_view_selection, source)},
    CT_OPTIONS_END,
};

const struct ct_option ct_quiet_options[] = {
    {.name = "quiet",
     .letter = 'q',
     .help = "print nothing; the status says whether anything matches",
     .apply = ct_apply_flag,
     .offset = offsetof(struct ct_view_selection, quiet)},
    CT_OPTIONS_END,
};

void
ct_view_selection_free(struct ct_view_selection *selected)
{
  free(selected->tids.ids);
  free(selected->pids.ids);
}

/* ---- what is said besides ---- */

static void
warn_sources(struct ct_trace *trace)
{
  if (!ct_trace_has_sources(trace)) {
    fprintf(stderr,
            "contrail: the trace does not say where functions are written: no debug information was found, or it "
            "was not recorded with --source\n");
  }
}

/* What --function, --module and --file say matches no function of the trace; or it does, and none was called. */
static void
warn_unmatched(struct ct_trace *trace, const struct ct_filter *filter, bool about_calls)
{
  enum { LIKELY = 3 };
  const char *likely[LIKELY];
  const char *what = filter->function != NULL ? "function" : filter->module != NULL ? "module" : "file";
  const char *glob = filter->function != NULL ? filter->function
                     : filter->module != NULL ? filter->module
                                              : filter->file;
  size_t count = ct_view_matches(trace, filter, likely, LIKELY);
  if (count != 0) {
    fprintf(stderr,
            about_calls ? "nothing: of the functions that match '%s' no call passes the other filters"
                        : "nothing: of the functions that match '%s' none was called",
            glob);
    return;
  }
  bool is_about_files =
      filter->file != NULL || (filter->function != NULL && strstr(filter->function, "@file:") != NULL);
  fprintf(stderr, "nothing: no %s matches '%s'%s", what, glob,
          is_about_files && !ct_trace_has_sources(trace)       ? ": the trace does not say where functions are written"
          : filter->function != NULL && filter->module != NULL ? " in these modules"
          : filter->function != NULL && filter->file != NULL   ? " in these files"
                                                               : "");
  for (size_t i = 0; i < LIKELY && likely[i][0] != '\0'; i++) {
    fputs(i == 0 ? "; perhaps " : ", ", stderr);
    ct_put_printable(stderr, likely[i], 200);
  }
}

/*
 * After a view with filters: when it has shown nothing says so on stderr, with names that may be meant. code, or
 * CT_EXIT_FAILED for nothing with --json or --quiet.
 */
static int
report_unmatched(const struct ct_command *command, const struct ct_trace_view *view,
                 const struct ct_view_selection *selected, const struct ct_view_notes *notes, int code)
{
  const struct ct_filter *filter = &view->filter;
  bool about_functions = filter->function != NULL || filter->module != NULL || filter->file != NULL;
  bool about_calls = filter->min_ns != 0 || filter->max_ns != 0 || filter->levels != 0 || filter->has_depths ||
                     filter->reasons != 0 || filter->types != 0;
  if (code != CT_EXIT_OK || notes->shown != 0 || (!about_functions && !about_calls)) {
    return code;
  }
  fflush(stdout);
  fprintf(stderr, "contrail %s: ", command->name);
  if (about_functions) {
    warn_unmatched(view->trace, filter, about_calls);
  } else {
    fputs("nothing: nothing passes the filters", stderr);
  }
  putc('\n', stderr);
  return selected->json || selected->quiet ? CT_EXIT_FAILED : code;
}

/* ---- a piece of the trace ---- */

static int
choose_window(const struct ct_command *command, const struct ct_trace *trace, uint64_t number, struct ct_filter *filter)
{
  struct ct_diag diag = {""};
  return ct_filter_choose_window(filter, trace, number, &diag) == CT_OK ? CT_EXIT_OK
                                                                        : ct_command_failed(command, "%s", diag.text);
}

static int
choose_moments(const struct ct_command *command, const struct ct_trace *trace, const char *from, const char *to,
               bool is_named, struct ct_filter *filter)
{
  struct ct_diag diag = {""};
  int code = ct_filter_parse_piece(trace, from, to, filter, &diag);
  return code == CT_OK       ? CT_EXIT_OK
         : code != CT_ERANGE ? ct_usage_error(command, "%s", diag.text)
         : is_named          ? ct_usage_error(command, "the piece ends before it begins: %.100s..%.100s", from, to)
                             : ct_usage_error(command, "--from %.100s is after --to %.100s", from, to);
}

/* A piece of a time that the trace does not have: what is shown of it is nothing, and that looks like an answer. */
static void
warn_outside(const struct ct_command *command, const struct ct_trace *trace, const struct ct_filter *filter)
{
  uint64_t start_ns = ct_trace_start_ns(trace), end_tsc = ct_trace_end_tsc(trace);
  bool is_after = filter->from_tsc > end_tsc;
  bool is_before = filter->to_tsc != 0 && filter->to_tsc < ct_trace_tsc(trace, start_ns);
  if (ct_trace_is_complete(trace) && (is_after || is_before)) {
    ct_command_failed(command, "nothing: the piece is %s the trace, which is of 0 to %.3f s",
                      is_after ? "after the end of" : "before the start of",
                      (double)(ct_trace_ns(trace, end_tsc) - start_ns) / 1e9);
  }
}

static int
choose_range(const struct ct_command *command, struct ct_trace *trace, const struct ct_view_selection *selected,
             const struct ct_trace_form *form, struct ct_filter *filter)
{
  bool is_named = form->from != NULL || form->to != NULL || form->window != 0;
  if (is_named && (selected->window != 0 || selected->from != NULL || selected->to != NULL)) {
    return ct_usage_error(command, "the piece is in the name of the trace; leave out --window, --from and --to");
  }
  const char *from = is_named ? form->from : selected->from, *to = is_named ? form->to : selected->to;
  uint64_t window = is_named ? form->window : selected->window;
  int code = window != 0 ? choose_window(command, trace, window, filter)
                         : choose_moments(command, trace, from, to, is_named, filter);
  if (code == CT_EXIT_OK) {
    warn_outside(command, trace, filter);
  }
  if (code == CT_EXIT_OK && ct_filter_set_range(filter, trace) != CT_OK) {
    code = ct_command_failed(command, "out of memory");
  }
  return code;
}

/* The trace of --process in place of that of the first process. */
static int
choose_process(const struct ct_command *command, const struct ct_id_list *pids, struct ct_trace **trace)
{
  struct ct_trace *selected = *trace;
  struct ct_diag diag = {""};
  if (pids->count > 1) {
    return ct_usage_error(command, "one --process at a time");
  }
  int code = pids->count != 0 ? ct_filter_open_process(*trace, pids->ids[0], &selected, &diag) : CT_OK;
  if (code != CT_OK) {
    ct_command_failed(command, "%s", diag.text);
    return code == CT_ERANGE ? CT_EXIT_USAGE : CT_EXIT_FAILED;
  }
  if (selected != *trace) {
    ct_trace_close(*trace);
    *trace = selected;
  }
  return CT_EXIT_OK;
}

static int
open_form(const struct ct_command *command, const struct ct_trace_form *form, const struct ct_view_selection *selected,
          struct ct_trace_view *view)
{
  struct ct_filter *filter = &view->filter;
  *view = (struct ct_trace_view){.filter = selected->filter, .tid = form->tid};
  filter->struct_size = sizeof(*filter);
  filter->tids = form->has_tid ? &view->tid : selected->tids.ids;
  filter->tid_count = form->has_tid ? 1 : selected->tids.count;
  filter->pids = selected->pids.ids;
  filter->pid_count = selected->pids.count;
  if (form->has_tid && selected->tids.count != 0) {
    return ct_usage_error(command, "the thread is in the name of the trace; leave out --thread");
  }
  view->trace = ct_open_trace(command, form->directory[0] != '\0' ? form->directory : CT_DEFAULT_TRACE);
  if (view->trace == NULL) {
    return CT_EXIT_FAILED;
  }
  int code = selected->many_processes ? CT_EXIT_OK : choose_process(command, &selected->pids, &view->trace);
  if (code == CT_EXIT_OK) {
    code = choose_range(command, view->trace, selected, form, filter);
  }
  if (code != CT_EXIT_OK) {
    ct_trace_close(view->trace);
    view->trace = NULL;
  }
  return code;
}

int
ct_open_trace_form(const struct ct_command *command, const char *name, const struct ct_view_selection *selected,
                   struct ct_trace_view *view)
{
  struct ct_trace_form form = {.struct_size = sizeof(form)};
  struct ct_diag diag = {""};
  int error = ct_trace_form_parse(name, &form, &diag);
  if (error != CT_OK) {
    return error == CT_EINVAL ? ct_usage_error(command, "%s", diag.text) : ct_command_failed(command, "%s", diag.text);
  }
  int code = open_form(command, &form, selected, view);
  ct_trace_form_free(&form);
  return code;
}

/* ---- the course of a view ---- */

unsigned
ct_terminal_columns(void)
{
  struct winsize size;
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) {
    return 0;
  }
  return size.ws_col;
}

unsigned
ct_reading_workers(void)
{
  cpu_set_t processors;
  int count = sched_getaffinity(0, sizeof(processors), &processors) == 0 ? CPU_COUNT(&processors) : 1;
  return count > 0 ? (unsigned)count : 1; /* more processors than a cpu_set_t has: the views have a limit anyway */
}

int
ct_check_tree_is_whole(const struct ct_trace *trace, const struct ct_filter *filter, struct ct_diag *diag)
{
  if (filter->tid_count == 0 && !ct_trace_has_range(trace)) {
    return CT_OK;
  }
  snprintf(diag->text, sizeof(diag->text), "--family shows whole traces: leave out the piece or thread");
  return CT_EINVAL;
}

/* Writes the view of a trace that is open. */
static int
write_view(const struct ct_command *command, const struct ct_trace_view *view, const struct ct_view_selection *selected,
           bool shows_progress, FILE *out, ct_write_view *write, void *context)
{
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_diag diag = {""};
  struct ct_progress line;
  struct ct_view_progress progress = {0};
  ct_progress_start(&line, "reading the trace");
  if (shows_progress) {
    progress = (struct ct_view_progress){ct_progress_update, ct_progress_end, &line};
  }
  FILE *shown = selected->is_read && !selected->json && !selected->quiet
                    ? ct_shown_open(&selected->look, !selected->is_live)
                    : out;
  if (shown == NULL) {
    return ct_command_failed(command, "out of memory");
  }
  int code = write(context, view->trace, &view->filter, &progress, shown, &notes, &diag);
  ct_progress_end(&line);
  int why = errno; /* of the writing, for ct_finish_view */
  ct_shown_close(shown != out ? shown : NULL);
  errno = why;
  bool is_written = code == 0;
  code = ct_finish_view(command, code, &notes, &diag);
  code = !is_written ? code : report_unmatched(command, view, selected, &notes, code);
  if (selected->source) {
    warn_sources(view->trace);
  }
  return code;
}

int
ct_show_view(const struct ct_command *command, const char *name, const struct ct_view_selection *selected,
             bool shows_progress, ct_write_view *write, void *context)
{
  struct ct_trace_view view;
  FILE *out = selected->quiet ? fopen("/dev/null", "we") : stdout;
  if (out == NULL) {
    return ct_command_failed(command, "/dev/null: %s", strerror(errno));
  }
  int code = ct_open_trace_form(command, name, selected, &view);
  if (code == CT_EXIT_OK) {
    code = write_view(command, &view, selected, shows_progress, out, write, context);
    ct_trace_close(view.trace);
  }
  if (selected->quiet) {
    fclose(out);
  }
  return code;
}

void
ct_put_warnings(const struct ct_command *command, const char *lines)
{
  while (*lines != '\0') {
    size_t length = strcspn(lines, "\n");
    fprintf(stderr, "contrail %s: ", command->name);
    ct_put_printable(stderr, lines, length);
    putc('\n', stderr);
    lines += length + (lines[length] == '\n');
  }
}
