/* SPDX-License-Identifier: MIT */
/* contrail export: a trace in the format of other programs. */
#include "cli/view.h"

#include <contrail/export.h>
#include <contrail/text.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FORMATS "folded chrome perfetto csv jsonl speedscope flamegraph pprof firefox html parquet atf2 contrail itrace"

struct wanted {
  struct ct_view_selection selected;
  const char *format, *path;
  enum ct_export_weight weight;
  bool by_instructions;
  struct ct_trace_view before; /* of two traces the first */
};

#define STEPS_FORMAT "itrace"   /* of recordings of instructions only */
#define CALLS_FORMAT "contrail" /* of them: their calls; other formats are made of these */

static const struct ct_export_format *
format_of(const char *name)
{
  const struct ct_export_format *format;
  for (size_t i = 0; (format = ct_export_format(i)) != NULL; i++) {
    if (strcmp(format->name, name) == 0) {
      return format;
    }
  }
  return NULL;
}

/* --to has the format, and the end of a piece as with the other commands: no format has the name of a time. */
static int
apply_to(const struct ct_applied *applied)
{
  struct wanted *wanted = applied->member;
  const char *value = applied->value;
  bool is_time = (value[0] >= '0' && value[0] <= '9') || value[0] == '.';
  const char **where = is_time ? &wanted->selected.to : &wanted->format;
  if (!is_time && format_of(value) == NULL && strcmp(value, STEPS_FORMAT) != 0) {
    return ct_usage_error(applied->command, "there is no format '%.64s': %s", value, FORMATS);
  }
  if (*where != NULL) {
    return ct_usage_error(applied->command, "--to has two %s, %.64s and %.64s", is_time ? "times" : "formats", *where,
                          value);
  }
  *where = value;
  return CT_EXIT_OK;
}

static const char *const weight_names[] = {
    [CT_WEIGHT_TIME] = "time", [CT_WEIGHT_CALLS] = "calls", [CT_WEIGHT_OFF] = "off"};

static const struct ct_option options[] = {
    {.name = "to",
     .argument = "FORMAT|TIME",
     .help = "the format: perfetto, chrome, speedscope, firefox: time lines; csv, jsonl, parquet: a row for "
             "each call; folded, flamegraph, pprof: sums of paths; html: as contrail html; atf2: a directory "
             "of index.atf and detail.atf files (ATF V2); contrail: as contrail cut; itrace: instructions of "
             "one thread. Or a time: only up to then, as for --from",
     .values = FORMATS,
     .adds_up = true,
     .apply = apply_to},
    {.name = "output",
     .letter = 'o',
     .argument = "PATH",
     .help = "write to PATH: a new file, or a new or empty directory where the format is one. Default, for a "
             "file: standard output. A name that ends in .gz or .zst is compressed",
     .values = CT_COMPLETE_FILE,
     .apply = ct_apply_text,
     .offset = offsetof(struct wanted, path)},
    {.name = "weight",
     .argument = "WHAT",
     .help = "weigh stacks, in formats of sums, by time (default), calls, or off, the time off the processor",
     .values = "time calls off",
     CT_OPTION_NAMES(weight_names),
     .offset = offsetof(struct wanted, weight)},
    {.name = "window",
     .argument = "N",
     .help = "only window N of those that contrail info lists (record --on, contrail mark)",
     .least = 1,
     .most = UINT32_MAX,
     .against = "from",
     .apply = ct_apply_count64,
     .offset = offsetof(struct wanted, selected.window)},
    {.name = "from",
     .argument = "TIME",
     .help = "only from TIME on: seconds from the start of the recording (1.5), or with a unit (1500ms)",
     .apply = ct_apply_text,
     .offset = offsetof(struct wanted, selected.from)},
    {.name = "by-instructions",
     .help = "with --to contrail, for a recording of instructions: let a nanosecond of the trace stand for "
             "exactly one instruction of the thread",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, by_instructions)},
    CT_OPTION_GROUP(ct_thread_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_process_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_function_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_module_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_call_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_type_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_limit_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_time_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_quiet_options, struct wanted, selected),
    CT_OPTIONS_END,
};

/* What is to be known of the trace, and what the format cannot hold. */
static void
report(const struct wanted *wanted, const struct ct_export_summary *summary)
{
  fflush(stdout);
  if (wanted->selected.quiet) {
    return;
  }
  ct_put_warnings(&ct_command_export, summary->warnings);
  if (summary->mapped[0] != '\0') {
    fprintf(stderr, "contrail export: %s cannot hold all: %s\n", wanted->format, summary->mapped);
  }
}

static int
write_export(void *context, struct ct_trace *trace, const struct ct_filter *filter,
             const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes, struct ct_diag *diag)
{
  const struct wanted *wanted = context;
  struct ct_export_options export = {.struct_size = sizeof(export),
                                     .format = wanted->format,
                                     .path = wanted->path,
                                     .filter = filter,
                                     .time = wanted->selected.time,
                                     .weight = wanted->weight,
                                     .fd = fileno(out),
                                     .workers = ct_reading_workers(),
                                     .progress = *progress,
                                     .before = wanted->before.trace,
                                     .before_filter = wanted->before.trace != NULL ? &wanted->before.filter : NULL};
  struct ct_export_summary summary = {.struct_size = sizeof(summary)};
  int code = ct_export_write(trace, &export, &summary, notes, diag);
  int saved = errno;
  if (progress->finish != NULL) {
    progress->finish(progress->arg);
  }
  errno = saved;
  if (code != 0) {
    return code;
  }
  char events[CT_COUNT_CHARS], bytes[CT_DURATION_CHARS];
  if (wanted->path != NULL) {
    fprintf(out, "%s: %s %s of %llu thread%s, %s\n", wanted->format, ct_format_count(events, summary.events),
            format_of(wanted->format)->takes_filters ? "calls" : "events", (unsigned long long)summary.threads,
            summary.threads == 1 ? "" : "s", ct_format_bytes(bytes, summary.bytes));
  }
  report(wanted, &summary);
  return 0;
}

static bool
is_trace_of_calls(const char *dir)
{
  char manifest[4096];
  return snprintf(manifest, sizeof(manifest), "%s/manifest.json", dir) < (int)sizeof(manifest) &&
         access(manifest, F_OK) == 0;
}

/* A recording of instructions, which is no trace that views read. */
static int
export_steps(const char *dir, const struct wanted *wanted)
{
  const struct ct_view_selection *selected = &wanted->selected;
  struct ct_export_steps_options export = {.struct_size = sizeof(export),
                                           .format = wanted->format,
                                           .path = wanted->path,
                                           .tids = selected->tids.ids,
                                           .tid_count = selected->tids.count,
                                           .by_instructions = wanted->by_instructions};
  struct ct_export_summary summary = {.struct_size = sizeof(summary)};
  struct ct_diag diag = {""};
  char events[CT_COUNT_CHARS], bytes[CT_DURATION_CHARS];
  if (selected->window != 0 || selected->from != NULL || selected->to != NULL) {
    return ct_usage_error(&ct_command_export, "%s has instructions: no piece of it by time is written", dir);
  }
  int code = ct_export_steps(dir, &export, &summary, &diag);
  if (code != CT_OK) {
    ct_command_failed(&ct_command_export, "%s", diag.text);
    return code == CT_ERANGE || code == CT_EINVAL ? CT_EXIT_USAGE : CT_EXIT_FAILED;
  }
  if (!selected->quiet) {
    printf("%s: %s events of %llu thread%s, %s\n", wanted->format, ct_format_count(events, summary.events),
           (unsigned long long)summary.threads, summary.threads == 1 ? "" : "s", ct_format_bytes(bytes, summary.bytes));
    fflush(stdout);
  }
  if (summary.mapped[0] != '\0' && !selected->quiet) {
    fprintf(stderr, "contrail export: %s cannot hold all: %s\n", wanted->format, summary.mapped);
  }
  return CT_EXIT_OK;
}

static bool
needs_path(const char *format)
{
  const struct ct_export_format *known = format_of(format);
  return known == NULL || known->is_directory; /* or of instructions */
}

static int
write_it(const struct wanted *wanted, const char *dir)
{
  bool is_steps = ct_export_has_steps(dir) && !is_trace_of_calls(dir),
       is_stream = strcmp(wanted->format, STEPS_FORMAT) == 0;
  if (is_steps && (is_stream || strcmp(wanted->format, CALLS_FORMAT) == 0)) {
    return export_steps(dir, wanted);
  }
  if (is_stream || wanted->by_instructions) {
    return ct_usage_error(&ct_command_export,
                          is_steps ? "%s: --by-instructions goes with --to " CALLS_FORMAT
                                   : "%s has no instructions (contrail itrace records them)",
                          dir);
  }
  return ct_show_view(&ct_command_export, dir, &wanted->selected, true, write_export, (void *)wanted);
}

/* The difference of two traces: pieces and threads of one of them are reported in its name. */
static int
write_difference(struct wanted *wanted, const char *before, const char *after)
{
  const struct ct_view_selection *selected = &wanted->selected;
  const struct ct_export_format *format = format_of(wanted->format);
  if (format == NULL || !format->takes_two) {
    return ct_usage_error(&ct_command_export, "%s is of one trace, and two are given (flamegraph and folded compare)",
                          wanted->format);
  }
  if (selected->from != NULL || selected->to != NULL || selected->window != 0 || selected->tids.count != 0 ||
      selected->pids.count != 0 || wanted->by_instructions) {
    return ct_usage_error(
        &ct_command_export,
        "of two traces each has its piece and its thread in its name: DIR@FROM..TO#TID, DIR@window:N");
  }
  int code = ct_open_trace_form(&ct_command_export, before, selected, &wanted->before);
  if (code == CT_EXIT_OK) {
    code = ct_show_view(&ct_command_export, after, selected, true, write_export, wanted);
    ct_trace_close(wanted->before.trace);
  }
  return code;
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.selected.many_processes = true};
  int code = ct_parse(&ct_command_export, argc, argv, &wanted);
  wanted.path = wanted.path != NULL && strcmp(wanted.path, "-") == 0 ? NULL : wanted.path;
  bool is_difference = code == -1 && argc - optind == 2;
  const char *dir = is_difference ? argv[optind]
                    : code == -1  ? ct_trace_argument(&ct_command_export, argc, argv)
                                  : NULL;
  if (dir != NULL && wanted.format == NULL) {
    code = ct_usage_error(&ct_command_export, "which format? --to FORMAT");
  } else if (dir != NULL && wanted.path == NULL && needs_path(wanted.format)) {
    code = ct_usage_error(&ct_command_export, "where to? -o PATH");
  } else if (dir != NULL && wanted.path == NULL && isatty(STDOUT_FILENO) == 1 &&
             (strcmp(wanted.format, "perfetto") == 0 || strcmp(wanted.format, "pprof") == 0)) {
    code = ct_usage_error(&ct_command_export, "%s is nothing for a terminal: -o FILE", wanted.format);
  } else if (dir != NULL && wanted.selected.window != 0 && wanted.selected.to != NULL) {
    code = ct_usage_error(&ct_command_export, "--window and --to %s contradict each other", wanted.selected.to);
  } else if (is_difference) {
    code = write_difference(&wanted, dir, argv[optind + 1]);
  } else if (dir != NULL) {
    code = write_it(&wanted, dir);
  }
  ct_view_selection_free(&wanted.selected);
  return code == -1 ? CT_EXIT_USAGE : code;
}

const struct ct_command ct_command_export = {
    .name = "export",
    .summary = "write a trace in the format of other programs",
    .synopsis = "--to FORMAT [-o PATH] [OPTION]... [[BEFORE] DIR]",
    .about = "Writes the trace in DIR (default " CT_DEFAULT_TRACE "), or a piece of it, in another format. What the\n"
             "format cannot hold is counted on standard error.\n"
             "Of two traces, BEFORE and DIR, flamegraph and folded show the difference, path by path.\n"
             "Of a recording of instructions (contrail itrace), --to contrail writes a trace of the calls,\n"
             "with times interpolated between time stamps; --to itrace the stream of one thread: blocks, their\n"
             "code, and the registers that they wrote (docs/format.md).\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
