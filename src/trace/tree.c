/* SPDX-License-Identifier: MIT */
/* See tree.h. */
#include "trace/tree.h"

#include "trace/format.h"

#include <contrail/trace.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 4 }; /* trace, process-PID, thread_N, files */

#define OPEN_DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* What is done with each entry, with what is in a directory before it. */
typedef void visit_entry(int dir_fd, const char *name, bool is_directory, void *context);

static void
walk(int dir_fd, int depth, visit_entry *visit, void *context)
{
  int copy = depth < DEPTH_MAX ? openat(dir_fd, ".", OPEN_DIRECTORY) : -1;
  DIR *stream = copy >= 0 ? fdopendir(copy) : NULL;
  if (stream == NULL) {
    if (copy >= 0) {
      close(copy);
    }
    return;
  }
  for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
    struct stat file;
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || fstatat(dir_fd, name, &file, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    bool is_directory = S_ISDIR(file.st_mode);
    int inner = is_directory ? openat(dir_fd, name, OPEN_DIRECTORY) : -1;
    if (inner >= 0) {
      walk(inner, depth + 1, visit, context);
      close(inner);
    }
    visit(dir_fd, name, is_directory, context);
  }
  closedir(stream);
}

static void
remove_entry(int dir_fd, const char *name, bool is_directory, void *context)
{
  (void)context;
  unlinkat(dir_fd, name, is_directory ? AT_REMOVEDIR : 0);
}

/* Opens a directory that has a manifest of ours; *manifest is to be freed. -1, with errno, when there is none. */
static int
open_trace(const char *dir, json_t **manifest)
{
  int fd = open(dir, OPEN_DIRECTORY);
  if (fd < 0) {
    return -1;
  }
  int file = openat(fd, CT_TRACE_MANIFEST, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat status;
  bool regular = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  *manifest = regular ? json_loadfd(file, 0, NULL) : NULL;
  const char *format = json_string_value(json_object_get(*manifest, "format"));
  if (file >= 0) {
    close(file);
  }
  if (format == NULL || strcmp(format, "contrail") != 0) {
    json_decref(*manifest);
    close(fd);
    errno = EINVAL;
    return -1;
  }
  return fd;
}

/* Its state says so, and the process is there. A contrail that was killed leaves such a state too. */
static bool
is_recording(const json_t *manifest)
{
  const char *state = json_string_value(json_object_get(manifest, "state"));
  pid_t pid = (pid_t)json_integer_value(json_object_get(manifest, "pid"));
  return state != NULL && strcmp(state, "recording") == 0 && pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

/* What the entries of a folder are. */
struct entries {
  bool has_steps, has_others;
};

static void
look_at_entry(int dir_fd, const char *name, bool is_directory, void *context)
{
  struct entries *entries = context;
  (void)dir_fd;
  bool is_steps = !is_directory && strncmp(name, "steps.", 6) == 0 && name[6] >= '1' && name[6] <= '9';
  bool is_calls = is_directory && strncmp(name, "calls", 5) == 0 && (name[5] == '\0' || name[5] == '.');
  entries->has_steps |= is_steps;
  entries->has_others |= !is_steps && !is_calls;
}

/* Opens a folder in which there are recorded instructions, and nothing else. -1: it is none. */
static int
open_steps(const char *dir)
{
  struct entries entries = {false, false};
  int fd = open(dir, OPEN_DIRECTORY);
  if (fd >= 0) {
    walk(fd, DEPTH_MAX - 1, look_at_entry, &entries);
  }
  if (fd >= 0 && (!entries.has_steps || entries.has_others)) {
    close(fd);
    fd = -1;
  }
  return fd;
}

/* Opens what may be moved away, or removed for what is: a trace, or recorded instructions. -1: it is neither. */
static int
open_ours(const char *dir, bool *busy)
{
  json_t *manifest;
  int fd = open_trace(dir, &manifest);
  if (fd >= 0) {
    *busy = is_recording(manifest);
    json_decref(manifest);
    return fd;
  }
  fd = open_steps(dir);
  *busy = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; /* who records holds the folder */
  return fd;
}

int
ct_trace_move_old(const char *dir, struct ct_diag *diag)
{
  char old[PATH_MAX];
  bool busy;
  int fd = open_ours(dir, &busy);
  if (fd < 0) {
    return 0;
  }
  close(fd);
  if (busy) {
    return ct_fail(diag, CT_EEXIST, "%s is a recording that still goes on; give another name", dir);
  }
  if (snprintf(old, sizeof(old), "%s.old", dir) >= (int)sizeof(old)) {
    return ct_fail(diag, CT_EINVAL, "the name %s is too long", dir);
  }
  fd = open_ours(old, &busy);
  if (fd >= 0) {
    walk(fd, 0, remove_entry, NULL);
    close(fd);
  }
  if (rename(dir, old) != 0) { /* what is nothing of ours is still there */
    int err = errno;
    return ct_fail(diag, CT_EEXIST, "%s exists and cannot be moved to %s: %s; give another name", dir, old,
                   strerror(err));
  }
  return 0;
}

bool
ct_trace_is_held(int dir_fd)
{
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  int fd = openat(dir_fd, CT_TRACE_FUNCTIONS, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  bool held = fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  if (fd >= 0) {
    close(fd);
  }
  return held;
}

void
ct_trace_empty(int dir_fd)
{
  walk(dir_fd, 0, remove_entry, NULL);
}

void
ct_trace_remove(const char *path)
{
  int fd = open(path, OPEN_DIRECTORY);
  if (fd >= 0) {
    ct_trace_empty(fd);
    close(fd);
    rmdir(path);
  }
}

struct owner {
  uid_t uid;
  gid_t gid;
};

/* By a descriptor of the file that is looked at, so that it cannot be another one. */
static void
give_file(int fd, const struct owner *owner)
{
  struct stat file;
  if (fstat(fd, &file) == 0 && file.st_uid == geteuid() && (S_ISDIR(file.st_mode) || file.st_nlink == 1) &&
      fchown(fd, owner->uid, owner->gid) != 0) {
    return; /* it stays as it is */
  }
}

static void
give_entry(int dir_fd, const char *name, bool is_directory, void *context)
{
  int fd = openat(dir_fd, name, is_directory ? OPEN_DIRECTORY : O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) {
    give_file(fd, context);
    close(fd);
  }
}

void
ct_trace_give(int dir_fd, uid_t uid, gid_t gid)
{
  struct owner owner = {uid, gid};
  walk(dir_fd, 0, give_entry, &owner);
  give_file(dir_fd, &owner);
}
