/* SPDX-License-Identifier: MIT */
/* See hot_functions.h. */
#include <contrail/hot_functions.h>

#include "base/sized.h"
#include "base/json.h"
#include "views/filter.h"
#include "views/report.h"
#include "views/warnings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct hot_functions {
  const struct ct_report_row *rows; /* by calls, descending */
  size_t count;
  uint64_t calls; /* of all rows */
  uint64_t left;  /* calls that the share still lacks */
};

static bool
is_short(const struct ct_report_row *row)
{
  uint64_t timed = row->calls - row->points;
  return timed == 0 || row->self_ns / timed < CT_HOT_FUNCTIONS_SELF_NS;
}

/* The next row to print, and how many calls are wanted besides; NULL when the share is reached. */
static const struct ct_report_row *
next_row(struct hot_functions *hot)
{
  while (hot->left != 0 && hot->count != 0) {
    const struct ct_report_row *row = hot->rows++;
    hot->count--;
    if (row->calls != 0 && row->fn != UINT32_MAX && is_short(row)) {
      hot->left -= row->calls < hot->left ? row->calls : hot->left;
      return row;
    }
  }
  return NULL;
}

/* What stands for itself in an exclude pattern; "!" ends the module there. */
static void
put_escaped(char **at, const char *text, const char *special)
{
  for (; *text != '\0'; text++) {
    if (strchr(special, *text) != NULL) {
      *(*at)++ = '\\';
    }
    *(*at)++ = *text;
  }
}

/* MODULE!FUNCTION with the raw name, or as it is called without one. To be freed. */
static char *
pattern_of(struct ct_trace *trace, const struct ct_report_row *row)
{
  const struct ct_trace_function *fn = ct_trace_function(trace, row->fn);
  const char *module = ct_trace_module_name(trace, fn->module);
  const char *name = fn->raw_name[0] != '\0' ? fn->raw_name : fn->name;
  char *pattern = malloc(2 * (strlen(module) + strlen(name)) + 2);
  if (pattern == NULL) {
    return NULL;
  }
  char *at = pattern;
  put_escaped(&at, module, "*?[\\!");
  *at++ = '!';
  put_escaped(&at, name, name[0] == '@' ? "*?[\\@" : "*?[\\");
  *at = '\0';
  return pattern;
}

static int
write_text(struct ct_trace *trace, struct hot_functions hot, unsigned percent, FILE *out)
{
  char a[CT_COUNT_CHARS];
  ct_view_put_warnings(trace, "# ", out); /* what is shown can be given to --exclude-from */
  fprintf(out, "# the hot short functions of %s: %u %% of %s calls\n", ct_trace_path(trace), percent,
          ct_format_count(a, hot.calls));
  const struct ct_report_row *row;
  while ((row = next_row(&hot)) != NULL) {
    char *pattern = pattern_of(trace, row);
    if (pattern == NULL) {
      return CT_ENOMEM;
    }
    ct_put_printable(out, pattern, SIZE_MAX);
    putc('\n', out);
    free(pattern);
  }
  if (hot.left != 0) {
    fprintf(out, "# there are no more short ones; %s calls are missing\n", ct_format_count(a, hot.left));
  }
  return 0;
}

static int
write_json(struct ct_trace *trace, struct hot_functions hot, FILE *out)
{
  json_t *list = json_array();
  json_t *json = json_pack("{s:o, s:I, s:o}", "busiest", list, "calls", (json_int_t)hot.calls, "warnings",
                           ct_view_warnings(trace));
  const struct ct_report_row *row;
  int code = json != NULL ? 0 : CT_ENOMEM;
  while (code == 0 && (row = next_row(&hot)) != NULL) {
    char *pattern = pattern_of(trace, row);
    json_t *item = pattern == NULL ? NULL
                                   : json_pack("{s:o, s:o, s:I, s:I}", "pattern", ct_json_string(pattern), "name",
                                               ct_json_string(row->name), "calls", (json_int_t)row->calls, "self_ns",
                                               (json_int_t)row->self_ns);
    code = item == NULL || json_array_append_new(list, item) != 0 ? CT_ENOMEM : 0;
    free(pattern);
  }
  if (code == 0) {
    code = json_dumpf(json, out, JSON_INDENT(1)) == 0 ? 0 : CT_EIO;
  }
  putc('\n', out);
  json_decref(json);
  return code;
}

static int
write_hot_functions(struct ct_trace *trace, const struct ct_hot_functions_options *options, FILE *out,
                    struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct ct_report_options report = {
      .sort = CT_SORT_CALLS, .workers = options->workers, .progress = options->progress, .filter = options->filter};
  struct ct_stats stats = {0};
  struct ct_report_thread *threads = NULL;
  struct ct_report_row *rows = NULL;
  struct hot_functions hot = {0};
  size_t thread_count = 0;
  int code = ct_report_collect(trace, &report, &stats, &threads, &thread_count, diag);
  if (code == 0) {
    code = ct_report_rows(trace, &stats, &report, &rows, &hot.count, diag);
  }
  ct_stats_destroy(&stats);
  if (code != 0) {
    goto free_rows;
  }
  for (size_t i = 0; i < thread_count; i++) {
    if (threads[i].damaged && notes->damaged_threads++ == 0) {
      notes->first_damaged_tid = ct_trace_thread(trace, threads[i].index)->tid;
    }
  }
  hot.rows = rows;
  for (size_t i = 0; i < hot.count; i++) {
    hot.calls += rows[i].calls;
  }
  hot.left = (uint64_t)((double)hot.calls * options->percent / 100);
  if (options->progress.finish != NULL) {
    options->progress.finish(options->progress.arg);
  }
  code = options->json ? write_json(trace, hot, out) : write_text(trace, hot, options->percent, out);
  if (code == CT_ENOMEM) {
    ct_fail(diag, code, "out of memory for the list");
  } else if (code != 0 || fflush(out) != 0 || ferror(out)) {
    code = ct_fail(diag, CT_EIO, "cannot write the list: %s", strerror(errno));
  }
free_rows:
  free(rows);
  free(threads);
  return code;
}

int
ct_hot_functions_write(struct ct_trace *trace, const struct ct_hot_functions_options *given, FILE *out,
                       struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct ct_hot_functions_options options;
  struct ct_view_notes own = {0};
  struct ct_filter filter;
  int code = ct_filter_take_with(&options, sizeof(options), given, &options.filter, &filter, diag);
  if (code != 0) {
    return code;
  }
  if (options.percent < 1 || options.percent > 100) {
    return ct_fail(diag, CT_EINVAL, "percent is 1 to 100, not %u", options.percent);
  }
  code = write_hot_functions(trace, &options, out, &own, diag);
  return code == 0 && notes != NULL ? ct_sized_give(notes, &own, sizeof(own), diag) : code;
}
