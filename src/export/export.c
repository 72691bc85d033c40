/* SPDX-License-Identifier: MIT */
/* The table of formats; see <contrail/export.h>. */
#include "export/export.h"

#include "base/sized.h"
#include "export/out.h"
#include "export/walk.h"
#include "views/filter.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const struct ct_export_writer *const writers[] = {
    &ct_export_folded,     &ct_export_chrome,     &ct_export_perfetto, &ct_export_csv,     &ct_export_jsonl,
    &ct_export_speedscope, &ct_export_flamegraph, &ct_export_pprof,    &ct_export_firefox, &ct_export_parquet,
    &ct_export_html,       &ct_export_atf2,       &ct_export_contrail};

enum { WRITERS = sizeof(writers) / sizeof(writers[0]) };

const struct ct_export_format *
ct_export_format(size_t n)
{
  return n < WRITERS ? &writers[n]->format : NULL;
}

static const struct ct_export_writer *
writer_of(const char *name)
{
  for (size_t i = 0; name != NULL && i < WRITERS; i++) {
    if (strcmp(writers[i]->format.name, name) == 0) {
      return writers[i];
    }
  }
  return NULL;
}

/* The filter as a whole, with what the format cannot do refused. */
static int
take_filter(const struct ct_export_options *options, const struct ct_export_format *format, struct ct_filter *filter,
            struct ct_diag *diag)
{
  int err = ct_filter_take(options->filter, filter, diag);
  if (err == CT_OK && options->filter == NULL) {
    filter->tids = options->tids;
    filter->tid_count = options->tid_count;
  }
  bool is_about_more = filter->function != NULL || filter->module != NULL || filter->file != NULL ||
                       filter->limit != 0 || ct_filter_limits_calls(filter);
  is_about_more |= filter->pid_count != 0 && format != &ct_export_contrail.format;
  if (err == CT_OK && !format->takes_filters && (is_about_more || options->time != CT_TIME_WALL)) {
    return ct_fail(diag, CT_EINVAL, "%s has whole threads: only --thread,%s --from, --to and --window choose",
                   format->name, format == &ct_export_contrail.format ? " --process," : "");
  }
  if (err == CT_OK && format->has_weight && filter->limit != 0) {
    return ct_fail(diag, CT_EINVAL, "%s is made of sums, not of single calls: leave out --limit", format->name);
  }
  if (err == CT_OK && options->before != NULL && !format->takes_two) {
    return ct_fail(diag, CT_EINVAL, "%s is of one trace, and two are given", format->name);
  }
  if (err == CT_OK && !format->has_weight && options->weight != CT_WEIGHT_TIME) {
    return ct_fail(diag, CT_EINVAL, "%s is made of single calls: leave out --weight", format->name);
  }
  return err;
}

int
ct_export_write(struct ct_trace *trace, const struct ct_export_options *given, struct ct_export_summary *summary,
                struct ct_view_notes *given_notes, struct ct_diag *diag)
{
  struct ct_export_options options;
  struct ct_filter filter;
  struct ct_export_summary own = {.struct_size = sizeof(own)};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  int err = ct_sized_take(&options, sizeof(options), given, diag);
  if (err != CT_OK) {
    return err;
  }
  const struct ct_export_writer *writer = writer_of(options.format);
  if (writer == NULL) {
    return ct_fail(diag, CT_EINVAL, "there is no format '%.64s'", options.format != NULL ? options.format : "");
  }
  err = take_filter(&options, &writer->format, &filter, diag);
  if (err == CT_OK && options.path == NULL && (writer->format.is_directory || options.fd <= 0)) {
    err = ct_fail(diag, CT_EINVAL, "%s needs a path%s", options.format,
                  writer->format.is_directory ? ", a directory" : " or a descriptor");
  }
  if (err == CT_OK && writer->format.is_directory && ct_out_packing_of(options.path, CT_OUT_PLAIN) != CT_OUT_PLAIN) {
    err = ct_fail(diag, CT_EINVAL, "%s makes a directory, which is not compressed: leave .gz or .zst out",
                  options.format);
  }
  options.filter = &filter;
  options.tids = filter.tids;
  options.tid_count = filter.tid_count;
  struct ct_filter before_filter;
  err = err == CT_OK ? ct_filter_take(options.before_filter, &before_filter, diag) : err;
  options.before_filter = &before_filter;
  struct ct_export_job job = {trace, &options, &own, &notes};
  err = err == CT_OK ? writer->write(&job, diag) : err;
  if (err == CT_OK && summary != NULL) {
    err = ct_sized_give(summary, &own, sizeof(own), diag);
  }
  if (err == CT_OK && given_notes != NULL) {
    err = ct_sized_give(given_notes, &notes, sizeof(notes), diag);
  }
  return err;
}

static void
warn_of(struct ct_trace *trace, const char *which, struct ct_export_summary *summary)
{
  json_t *list = ct_export_warnings(trace), *line;
  size_t i, at = strlen(summary->warnings);
  json_array_foreach(list, i, line)
  {
    size_t room = sizeof(summary->warnings) - at;
    int length = snprintf(summary->warnings + at, room, "%s%s\n", which, json_string_value(line));
    if (length < 0 || (size_t)length >= room) {
      snprintf(summary->warnings + at, room, "...\n");
      break;
    }
    at += (size_t)length;
  }
  json_decref(list);
}

void
ct_export_warn(const struct ct_export_job *job)
{
  if (job->options->before != NULL) {
    warn_of(job->options->before, "before: ", job->summary);
  }
  warn_of(job->trace, "", job->summary);
}

int
ct_export_file(const struct ct_export_job *job, int packing,
               int (*body)(const struct ct_export_job *job, struct ct_sink *out, struct ct_diag *diag),
               struct ct_diag *diag)
{
  struct ct_sink out;
  int err = ct_out_open(&out, job->options->path, job->options->fd, (enum ct_out_packing)packing, diag);
  if (err != CT_OK) {
    return err;
  }
  err = body(job, &out, diag);
  if (err != CT_OK && ct_out_failed(&out)) {
    err = CT_OK; /* the reason is that, which closing says */
  }
  err = ct_out_close(&out, err, &job->summary->bytes, diag);
  if (err == CT_OK) {
    ct_export_warn(job);
  }
  return err;
}

int
ct_export_open_child(const struct ct_trace *parent, const json_t *child, struct ct_trace **out)
{
  char path[PATH_MAX];
  struct ct_trace *trace;
  const char *directory = json_string_value(json_object_get(child, "directory"));
  if (directory == NULL || directory[0] == '.' || directory[0] == '\0' || strchr(directory, '/') != NULL ||
      snprintf(path, sizeof(path), "%s/%s", ct_trace_path(parent), directory) >= (int)sizeof(path) ||
      ct_trace_open(path, &trace, NULL) != CT_OK) {
    return CT_ENOENT;
  }
  int err = ct_trace_set_same_range(trace, parent);
  if (err != CT_OK) {
    ct_trace_close(trace);
    return err;
  }
  *out = trace;
  return CT_OK;
}
