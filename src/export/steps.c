/* SPDX-License-Identifier: MIT */
/* Recordings of instructions: which of their threads are asked for, and in which format. */
#include "export/steps.h"

#include "base/error.h"
#include "base/json.h"
#include "base/sized.h"
#include "steps/block_stream.h"
#include "steps/folder.h"
#include "trace/tree.h"
#include "trace/writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool
ct_export_has_steps(const char *path)
{
  return ct_steps_folder_is(path);
}

char *
ct_export_steps_state(char *const *files, size_t count)
{
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  struct stat status;
  for (size_t i = 0; i < count && out != NULL; i++) {
    const char *slash = strrchr(files[i], '/');
    memset(&status, 0, sizeof(status));
    (void)stat(files[i], &status);
    fprintf(out, "%s:%lld:%lld.%09ld ", slash != NULL ? slash + 1 : files[i], (long long)status.st_size,
            (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  }
  if (out != NULL) {
    fclose(out);
  }
  return text;
}

/* Only the files of these threads are left in the list. */
static size_t
choose(char **files, size_t count, const struct ct_export_steps_options *options)
{
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    const char *dot = strrchr(files[i], '.');
    uint32_t tid = dot != NULL ? (uint32_t)strtoul(dot + 1, NULL, 10) : 0;
    bool wanted = options->tid_count == 0;
    for (size_t k = 0; k < options->tid_count && !wanted; k++) {
      wanted = options->tids[k] == tid;
    }
    if (wanted) {
      files[kept++] = files[i];
    }
  }
  return kept;
}

static int
write_stream(const struct ct_export_steps_job *job, struct ct_diag *diag)
{
  struct ct_steps_streamed streamed = {.blocks = 0};
  if (job->count != 1) {
    return ct_fail(diag, CT_EINVAL, "the stream is of one thread, and %s has %zu: choose with --thread", job->recording,
                   job->count);
  }
  if (job->options->by_instructions) {
    return ct_fail(diag, CT_EINVAL, "the stream has no times: --by-instructions is for --to contrail");
  }
  int code = ct_steps_stream_write(job->files[0], job->options->path, &streamed, diag);
  if (code == 0) {
    struct ct_export_summary *summary = job->summary;
    summary->processes = summary->threads = 1;
    summary->events = streamed.blocks;
    summary->bytes = streamed.bytes;
    snprintf(summary->mapped, sizeof(summary->mapped), "%s", streamed.left_out);
  }
  return code;
}

int
ct_export_steps(const char *recording, const struct ct_export_steps_options *given, struct ct_export_summary *summary,
                struct ct_diag *diag)
{
  struct ct_export_steps_options options;
  struct ct_export_summary own = {.struct_size = sizeof(own)};
  char **files;
  size_t count;
  int code = ct_sized_take(&options, sizeof(options), given, diag);
  if (code == 0 && (options.path == NULL || options.format == NULL)) {
    code = ct_fail(diag, CT_EINVAL, "an export needs a format and a path");
  }
  if (code != 0 || (code = ct_steps_folder_list(recording, &files, &count, diag)) != 0) {
    return code;
  }
  struct ct_export_steps_job job = {recording, files, choose(files, count, &options), &options, &own};
  if (job.count == 0) {
    code = ct_fail(diag, CT_ERANGE, "%s has no thread %u", recording, options.tids[0]);
  } else if (strcmp(options.format, "contrail") == 0) {
    code = ct_export_steps_contrail(&job, diag);
  } else if (strcmp(options.format, "itrace") == 0) {
    code = write_stream(&job, diag);
  } else {
    code =
        ct_fail(diag, CT_EINVAL, "%s has instructions: they become a trace of calls (--to contrail) first", recording);
  }
  free(files);
  return code == 0 && summary != NULL ? ct_sized_give(summary, &own, sizeof(own), diag) : code;
}

/* ---- the trace of the calls, beside the steps ---- */

static bool
is_of_now(const char *path, char *const *files, size_t count)
{
  char manifest[PATH_MAX];
  if (snprintf(manifest, sizeof(manifest), "%s/manifest.json", path) >= (int)sizeof(manifest)) {
    return false;
  }
  json_t *json = json_load_file(manifest, 0, NULL);
  const char *was = json_string_value(json_object_get(json_object_get(json, "instructions"), "state"));
  char *now = ct_export_steps_state(files, count);
  bool same = was != NULL && now != NULL && strcmp(was, now) == 0;
  free(now);
  json_decref(json);
  return same;
}

/* Is it a directory like "calls.4711" of a process that is gone? */
static bool
is_left_over(int dir_fd, const char *name)
{
  char *end;
  if (strncmp(name, "calls.", 6) != 0 || name[6] < '1' || name[6] > '9') {
    return false;
  }
  long pid = strtol(name + 6, &end, 10);
  if (*end != '\0' || pid > INT_MAX || kill((pid_t)pid, 0) == 0 || errno != ESRCH) {
    return false;
  }
  int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  bool is = fd >= 0 && !ct_trace_is_held(fd); /* nor by one whose process is not to be seen from here */
  if (fd >= 0) {
    close(fd);
  }
  return is;
}

/* Calls that somebody was making, and was interrupted. */
static void
remove_left_over(const char *recording)
{
  char path[PATH_MAX];
  DIR *dir = opendir(recording);
  struct dirent *entry;
  while (dir != NULL && (entry = readdir(dir)) != NULL) {
    if (is_left_over(dirfd(dir), entry->d_name) &&
        snprintf(path, sizeof(path), "%s/%s", recording, entry->d_name) < (int)sizeof(path)) {
      ct_trace_remove(path);
    }
  }
  if (dir != NULL) {
    closedir(dir);
  }
}

/* Made under another name: two who ask at the same time do not meet, and half of one is never there. */
static int
make_calls(const char *recording, const char *path, char *const *files, size_t count, struct ct_diag *diag)
{
  char made[PATH_MAX];
  struct ct_export_summary summary = {.struct_size = sizeof(summary)};
  struct ct_export_steps_options options = {.struct_size = sizeof(options), .format = "contrail", .path = made};
  struct ct_export_steps_job job = {recording, files, count, &options, &summary};
  if (snprintf(made, sizeof(made), "%s.%d", path, (int)getpid()) >= (int)sizeof(made)) {
    return ct_fail(diag, CT_EINVAL, "the name %.100s is too long", path);
  }
  ct_trace_remove(made);
  remove_left_over(recording);
  int code = ct_export_steps_contrail(&job, diag);
  if (code != 0) {
    return code;
  }
  ct_trace_remove(path);
  if (rename(made, path) != 0 && !is_of_now(path, files, count)) {
    code = ct_fail(diag, ct_err_from_errno(errno), "cannot make %s: %s", path, strerror(errno));
  }
  ct_trace_remove(made);
  return code;
}

int
ct_export_steps_calls(const char *recording, char *path, size_t size, struct ct_diag *diag)
{
  char **files;
  size_t count;
  struct stat status;
  int code = ct_steps_folder_list(recording, &files, &count, diag);
  if (code != 0) {
    return code;
  }
  if (stat(recording, &status) != 0 || !S_ISDIR(status.st_mode) ||
      snprintf(path, size, "%s/calls", recording) >= (int)size) {
    code = ct_fail(diag, CT_EINVAL, "%s: the calls are made in the recording's directory, give its name", recording);
  } else if (!is_of_now(path, files, count)) {
    code = make_calls(recording, path, files, count, diag);
  }
  free(files);
  return code;
}
