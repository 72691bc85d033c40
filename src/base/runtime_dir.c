/* SPDX-License-Identifier: MIT */
/* See runtime_dir.h. */
#include "base/runtime_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES = 16 /* in a directory of everybody's that are tried */ };

static bool
is_ours(int fd)
{
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

static bool
is_private(int fd)
{
  struct stat info;
  return is_ours(fd) && fstat(fd, &info) == 0 && (info.st_mode & 022) == 0;
}

/* Opens the directory that is to hold ours, when it may. */
static int
open_runtime(char *path, size_t size)
{
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  if (runtime == NULL || runtime[0] != '/' || strlen(runtime) + sizeof("/contrail") > size) {
    return -1;
  }
  int fd = open(runtime, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 && !is_ours(fd)) { /* of another user, from whom we got our environment */
    close(fd);
    return -1;
  }
  snprintf(path, size, "%s/contrail", runtime);
  return fd;
}

/* The directory of that name, made when it is not there; -1 and errno. EPERM: it is not ours alone. */
static int
open_own(int above, const char *name, bool make)
{
  int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT && make && (mkdirat(above, name, 0700) == 0 || errno == EEXIST)) {
    fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  }
  if (fd < 0) {
    errno = errno == ENOTDIR || errno == ELOOP ? EPERM : errno;
  } else if (!is_private(fd)) {
    close(fd);
    fd = -1;
    errno = EPERM;
  }
  return fd;
}

/*
 * In /tmp and /dev/shm anybody may have taken the name before us. Then the next one is taken: those who look for
 * sessions try them in the same order, and find a directory of ours after whatever is in the way.
 */
static int
open_in_public(struct ct_runtime_dir *runtime_dir, const char *public, bool make)
{
  int above = open(public, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
  for (int n = 0; n < NAMES && above >= 0 && fd < 0; n++) {
    char name[64];
    int length = snprintf(name, sizeof(name), "contrail-%lu", (unsigned long)geteuid());
    if (n != 0) {
      snprintf(name + length, sizeof(name) - (size_t)length, ".%d", n);
    }
    snprintf(runtime_dir->path, sizeof(runtime_dir->path), "%s/%s", public, name);
    fd = open_own(above, name, make);
    if (fd < 0 && errno != EPERM && (make || errno != ENOENT)) { /* what was in the way may have gone */
      break;
    }
  }
  int error = errno;
  if (above >= 0) {
    close(above);
  }
  errno = error;
  return fd;
}

static int
finish(struct ct_runtime_dir *runtime_dir, int fd, int error, bool make, struct ct_diag *diag)
{
  struct stat info;
  if (fd < 0 && error == EPERM) {
    return ct_fail(diag, CT_EACCES, "%s belongs to another user, or others may write to it", runtime_dir->path);
  }
  if (fd < 0) {
    return ct_fail(diag, ct_err_from_errno(error), "%s: %s", runtime_dir->path, strerror(error));
  }
  if (make && fstat(fd, &info) == 0 && (info.st_mode & 0777) != 0700) {
    fchmod(fd, 0700); /* the umask may have taken our own rights; what others could read before is no secret */
  }
  runtime_dir->fd = fd;
  return CT_OK;
}

int
ct_runtime_dir_open(struct ct_runtime_dir *runtime_dir, bool make, struct ct_diag *diag)
{
  runtime_dir->fd = -1;
  int above = open_runtime(runtime_dir->path, sizeof(runtime_dir->path));
  int fd = above >= 0 ? open_own(above, "contrail", make) : open_in_public(runtime_dir, "/tmp", make);
  int error = errno;
  if (above >= 0) {
    close(above);
  }
  return finish(runtime_dir, fd, error, make, diag);
}

bool
ct_runtime_dir_is_set(void)
{
  char path[256];
  int fd = open_runtime(path, sizeof(path));
  if (fd >= 0) {
    close(fd);
  }
  return fd >= 0;
}

int
ct_runtime_dir_open_shm(struct ct_runtime_dir *runtime_dir, bool make, struct ct_diag *diag)
{
  runtime_dir->fd = -1;
  int fd = open_in_public(runtime_dir, "/dev/shm", make);
  return finish(runtime_dir, fd, errno, make, diag);
}

void
ct_runtime_dir_close(struct ct_runtime_dir *runtime_dir)
{
  if (runtime_dir->fd >= 0) {
    close(runtime_dir->fd);
  }
  runtime_dir->fd = -1;
}
