/* SPDX-License-Identifier: MIT */
/* contrail html: a trace as a page for a browser. */
#include "cli/view.h"

#include <contrail/export.h>
#include <contrail/text.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct wanted {
  struct ct_view_selection selected;
  const char *path;
  uint64_t single;
};

static const struct ct_option options[] = {
    {.name = "output",
     .letter = 'o',
     .argument = "FILE",
     .help = "write to FILE, a new file (default: standard output). A name that ends in .gz or .zst is "
             "compressed",
     .values = CT_COMPLETE_FILE,
     .apply = ct_apply_text,
     .offset = offsetof(struct wanted, path)},
    {.name = "single",
     .argument = "N",
     .help = "give about N calls, the longest, an entry of their own on the time line (default 2000000). "
             "Shorter ones are drawn together, with their number",
     .least = 1,
     .most = UINT32_MAX,
     .apply = ct_apply_count64,
     .offset = offsetof(struct wanted, single)},
    CT_OPTION_GROUP(ct_range_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_thread_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_process_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_function_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_module_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_call_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_type_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_time_options, struct wanted, selected),
    CT_OPTION_GROUP(ct_quiet_options, struct wanted, selected),
    CT_OPTIONS_END,
};

static int
write_page(void *context, struct ct_trace *trace, const struct ct_filter *filter,
           const struct ct_view_progress *progress, FILE *out, struct ct_view_notes *notes, struct ct_diag *diag)
{
  const struct wanted *wanted = context;
  struct ct_export_options export = {.struct_size = sizeof(export),
                                     .format = "html",
                                     .path = wanted->path,
                                     .filter = filter,
                                     .time = wanted->selected.time,
                                     .fd = fileno(out),
                                     .workers = ct_reading_workers(),
                                     .single = wanted->single,
                                     .progress = *progress};
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
  if (wanted->path != NULL) {
    char events[CT_COUNT_CHARS], bytes[CT_DURATION_CHARS];
    fprintf(out, "%s calls of %llu thread%s, %s\n", ct_format_count(events, summary.events),
            (unsigned long long)summary.threads, summary.threads == 1 ? "" : "s",
            ct_format_bytes(bytes, summary.bytes));
    fflush(out);
  }
  if (!wanted->selected.quiet) {
    ct_put_warnings(&ct_command_html, summary.warnings);
  }
  if (!wanted->selected.quiet && summary.mapped[0] != '\0') {
    fprintf(stderr, "contrail html: the page does not have all: %s\n", summary.mapped);
  }
  return 0;
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.selected.many_processes = true};
  int code = ct_parse(&ct_command_html, argc, argv, &wanted);
  wanted.path = wanted.path != NULL && strcmp(wanted.path, "-") == 0 ? NULL : wanted.path;
  const char *dir = code == -1 ? ct_trace_argument(&ct_command_html, argc, argv) : NULL;
  if (dir != NULL && wanted.path == NULL && isatty(STDOUT_FILENO) == 1) {
    code = ct_usage_error(&ct_command_html, "a page is nothing for a terminal: -o FILE");
  } else if (dir != NULL && wanted.path == NULL && wanted.selected.quiet) {
    code = ct_usage_error(&ct_command_html, "with --quiet nothing goes to standard output: -o FILE");
  } else if (dir != NULL) {
    code = ct_show_view(&ct_command_html, dir, &wanted.selected, true, write_page, &wanted);
  }
  ct_view_selection_free(&wanted.selected);
  return code == -1 ? CT_EXIT_USAGE : code;
}

const struct ct_command ct_command_html = {
    .name = "html",
    .summary = "a trace as a page for a browser: time line, flame graph, functions",
    .synopsis = "[-o FILE] [OPTION]... [DIR]",
    .about = "Writes the trace in DIR (default " CT_DEFAULT_TRACE "), or a piece of it, as one HTML file. The file\n"
             "opens from the disk, and needs nothing else and no network.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
