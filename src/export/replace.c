/* SPDX-License-Identifier: MIT */
/*
 * An export in place of its trace, for a recording in another format: the two directories change places in one step, so
 * that at any moment the one that has the name is whole.
 */
#include "export/export.h"

#include "trace/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int
failed(const char *path, struct ct_diag *diag)
{
  int saved = errno;
  return ct_fail(diag, ct_err_from_errno(saved), "cannot put %s in the place of the trace: %s", path, strerror(saved));
}

/* Some file systems cannot exchange: there the name is nobody's for a moment, and the trace has the other one. */
static int
change_places(const char *directory, const char *path, struct ct_diag *diag)
{
  char aside[PATH_MAX];
  if (renameat2(AT_FDCWD, path, AT_FDCWD, directory, RENAME_EXCHANGE) == 0) {
    return CT_OK;
  }
  if ((errno != EINVAL && errno != ENOSYS) ||
      snprintf(aside, sizeof(aside), "%s.contrail", directory) >= (int)sizeof(aside) || rename(directory, aside) != 0) {
    return failed(path, diag);
  }
  if (rename(path, directory) != 0) {
    int err = failed(path, diag);
    return rename(aside, directory) == 0 ? err : ct_fail(diag, err, "the trace is in %s", aside);
  }
  return rename(aside, path) == 0 ? CT_OK : failed(path, diag);
}

int
ct_export_replace(const char *directory, const char *format, const struct ct_export_owner *owner,
                  struct ct_export_summary *summary, struct ct_diag *diag)
{
  char path[PATH_MAX];
  struct ct_trace *trace;
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  size_t length = strlen(directory);
  while (length > 1 && directory[length - 1] == '/') {
    length--;
  }
  if (snprintf(path, sizeof(path), "%.*s.%s", (int)length, directory, format) >= (int)sizeof(path)) {
    return ct_fail(diag, CT_EINVAL, "the name %.200s is too long", directory);
  }
  int err = ct_trace_open(directory, &trace, diag);
  if (err != CT_OK) {
    return err;
  }
  struct ct_export_options options = {.struct_size = sizeof(options), .format = format, .path = path};
  err = ct_export_write(trace, &options, summary, &notes, diag);
  ct_trace_close(trace);
  if (err != CT_OK) {
    return err;
  }
  if (notes.damaged_threads != 0) {
    err = ct_fail(diag, CT_EFORMAT, "the trace is damaged");
  }
  int fd = owner->give ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
  if (fd >= 0) {
    ct_trace_give(fd, owner->uid, owner->gid);
    close(fd);
  }
  err = err == CT_OK ? change_places(directory, path, diag) : err;
  ct_trace_remove(path); /* the trace, or what was written in vain */
  return err;
}
