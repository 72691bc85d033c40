/* SPDX-License-Identifier: MIT */
/* See shared_memory.h. */
#include "process/shared_memory.h"

#include "ring/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define MEMFD_FILE "/memfd:" CT_RING_NAME " (deleted)"

/* A fresh memfd of our name: in no folder, without a byte. */
static bool
is_fresh_memfd(int fd, const char *path)
{
  struct stat file;
  struct statfs system;
  char name[sizeof(MEMFD_FILE)];
  return fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_nlink == 0 && file.st_size == 0 &&
         fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC &&
         readlink(path, name, sizeof(name)) == (ssize_t)sizeof(name) - 1 &&
         memcmp(name, MEMFD_FILE, sizeof(name) - 1) == 0;
}

/*
 * Opens what the target has as fd. It is the memfd that was just made there, or what somebody who shares the target's
 * descriptors has put in its place, and which we might have the right to write to and he not: so it is looked at
 * (O_PATH: nothing is opened by that) before it is opened, and what is opened is what was looked at. A file of a tmpfs
 * that somebody has unlinked has the seal against seals, a memfd has none yet. -1: errno, 0 when it is another file.
 */
static int
take_memfd(const struct ct_process *process, int fd)
{
  char rest[32], path[64];
  snprintf(rest, sizeof(rest), "fd/%d", fd);
  ct_process_path(process->pid, rest, path, sizeof(path));
  int seen = open(path, O_PATH | O_CLOEXEC);
  if (seen < 0) {
    return -1;
  }
  snprintf(path, sizeof(path), "/proc/self/fd/%d", seen);
  bool is_it = is_fresh_memfd(seen, path);
  int ours = is_it ? open(path, O_RDWR | O_CLOEXEC) : -1;
  int err = is_it ? errno : 0;
  close(seen);
  if (ours >= 0 && fcntl(ours, F_GET_SEALS) != 0) {
    close(ours);
    ours = -1;
    err = 0;
  }
  errno = err;
  return ours;
}

/* Its size is fixed before it is mapped: in a page that a shorter file no longer has we would end by SIGBUS. */
static void *
map_sealed(int fd, uint64_t bytes)
{
  if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return MAP_FAILED;
  }
  struct stat file;
  if (fstat(fd, &file) != 0 || (uint64_t)file.st_size != bytes) {
    errno = EBUSY; /* somebody else has been at it in between */
    return MAP_FAILED;
  }
  return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

int
ct_process_map_memfd(const struct ct_process *process, int fd, uint64_t bytes, void **mapping, int *file,
                     struct ct_diag *diag)
{
  int ours = take_memfd(process, fd);
  void *got = ours >= 0 ? map_sealed(ours, bytes) : MAP_FAILED;
  int err = errno;
  bool is_kept = file != NULL && got != MAP_FAILED;
  if (ours >= 0 && !is_kept) {
    close(ours);
  }
  if (got == MAP_FAILED) {
    return ct_fail(diag, err != 0 ? ct_err_from_errno(err) : CT_EACCES,
                   "cannot map the memory that is shared with it: %s",
                   err != 0 ? strerror(err) : "somebody has put another file in its place");
  }
  *mapping = got;
  if (is_kept) {
    *file = ours;
  }
  return 0;
}
