/* SPDX-License-Identifier: MIT */
/* A trace, or a piece of it, as a trace of our own: contrail cut. */
#include "export/export.h"

#include "trace/cut.h"
#include "trace/tree.h"
#include "trace/writer.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static int
cut_one(const struct ct_export_job *job, struct ct_trace *trace, const char *path, json_t *children,
        struct ct_diag *diag)
{
  const struct ct_export_options *options = job->options;
  struct ct_cut_options cut = {.tids = options->tids,
                               .tid_count = options->tid_count,
                               .update = options->progress.update,
                               .arg = options->progress.arg};
  struct ct_cut_sums sums = {0};
  int err = ct_trace_cut(trace, path, &cut, children, &sums, diag);
  job->summary->processes++;
  job->summary->threads += sums.threads;
  job->summary->events += sums.events;
  job->summary->bytes += sums.bytes;
  if (sums.damaged_threads != 0 && job->notes->damaged_threads == 0) {
    job->notes->first_damaged_tid = sums.first_damaged_tid;
  }
  job->notes->damaged_threads += sums.damaged_threads;
  return err;
}

static int
cut_child(const struct ct_export_job *job, const json_t *child, struct ct_diag *diag)
{
  char path[PATH_MAX];
  struct ct_trace *trace;
  int err = ct_export_open_child(job->trace, child, &trace);
  if (err != CT_OK) {
    return err == CT_ENOENT ? CT_OK : ct_fail(diag, err, "out of memory to write a child");
  }
  const char *directory = json_string_value(json_object_get(child, "directory"));
  err = snprintf(path, sizeof(path), "%s/%s", job->options->path, directory) < (int)sizeof(path)
            ? cut_one(job, trace, path, NULL, diag)
            : ct_fail(diag, CT_EINVAL, "the name %.100s is too long", job->options->path);
  ct_trace_close(trace);
  return err;
}

/* The trace of the one process that is asked for, or that of the first, with what is around it: *children. */
static int
choose_process(const struct ct_export_job *job, struct ct_trace **trace, json_t **children, struct ct_diag *diag)
{
  const struct ct_filter *filter = job->options->filter;
  *trace = job->trace;
  *children = json_object_get(ct_trace_manifest(job->trace), "children");
  if (filter->pid_count == 0) {
    return CT_OK;
  }
  if (filter->pid_count > 1) {
    return ct_fail(diag, CT_EINVAL, "a trace is of one process, or of all that were followed: one --process");
  }
  *children = NULL;
  int err = ct_filter_open_process(job->trace, filter->pids[0], trace, diag);
  if (err == CT_OK && *trace != job->trace && ct_trace_set_same_range(*trace, job->trace) != CT_OK) {
    ct_trace_close(*trace);
    err = ct_fail(diag, CT_ENOMEM, "out of memory for the range of the trace");
  }
  return err;
}

static int
write_contrail(const struct ct_export_job *job, struct ct_diag *diag)
{
  int fd;
  bool made = false;
  struct ct_trace *trace;
  json_t *children;
  int err = choose_process(job, &trace, &children, diag);
  if (err != CT_OK) {
    return err;
  }
  err = ct_trace_directory_create(job->options->path, &fd, &made, diag);
  if (err != CT_OK) {
    goto close_trace;
  }
  err = cut_one(job, trace, job->options->path, children, diag);
  for (size_t i = 0; i < json_array_size(children) && err == CT_OK; i++) {
    err = cut_child(job, json_array_get(children, i), diag);
  }
  if (err == CT_OK && job->options->tid_count != 0 && job->summary->threads == 0) {
    err = ct_fail(diag, CT_ERANGE, "%s has no thread %u", ct_trace_path(job->trace), job->options->tids[0]);
  }
  if (err != CT_OK) {
    ct_trace_empty(fd);
    if (made) {
      rmdir(job->options->path);
    }
  }
  close(fd);
close_trace:
  if (trace != job->trace) {
    ct_trace_close(trace);
  }
  return err;
}

const struct ct_export_writer ct_export_contrail = {
    .format = {.name = "contrail",
               .summary = "a trace of contrail's own, as contrail cut makes it",
               .is_directory = true},
    .write = write_contrail,
};
