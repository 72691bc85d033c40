/* SPDX-License-Identifier: MIT */
/* The table of formats; see <contrail/export.h>. */
#include "export/export.h"

#include "base/sized.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const struct ct_export_writer *const writers[] = {&ct_export_atf2, &ct_export_contrail};

enum { WRITERS = sizeof(writers) / sizeof(writers[0]) };

const struct ct_export_format *
ct_export_format(size_t n)
{
  return n < WRITERS ? &writers[n]->format : NULL;
}

int
ct_export_write(struct ct_trace *trace, const struct ct_export_options *given, struct ct_export_summary *summary,
                struct ct_view_notes *given_notes, struct ct_diag *diag)
{
  struct ct_export_options options;
  struct ct_export_summary own = {.struct_size = sizeof(own)};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  int err = ct_sized_take(&options, sizeof(options), given, diag);
  if (err != CT_OK) {
    return err;
  }
  for (size_t i = 0; i < WRITERS; i++) {
    if (options.format != NULL && strcmp(writers[i]->format.name, options.format) == 0) {
      struct ct_export_job job = {trace, &options, &own, &notes};
      err = options.path != NULL ? writers[i]->write(&job, diag) : ct_fail(diag, CT_EINVAL, "an export needs a path");
      if (err == CT_OK && summary != NULL) {
        err = ct_sized_give(summary, &own, sizeof(own), diag);
      }
      if (err == CT_OK && given_notes != NULL) {
        err = ct_sized_give(given_notes, &notes, sizeof(notes), diag);
      }
      return err;
    }
  }
  return ct_fail(diag, CT_EINVAL, "there is no format '%.64s'", options.format != NULL ? options.format : "");
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
