/* SPDX-License-Identifier: MIT */
/*
 * The file behind a mapping. Its path in /proc/PID/maps is as this process would call it, where its root or mount
 * namespace has the file, else as the file's own mount namespace does: so it is looked for here, in the process's root,
 * and last by the mapping itself, which only who may do much (CAP_CHECKPOINT_RESTORE) is given. By whichever way: it
 * is the file when its device and inode are those of the mapping.
 */
#include "process/process.h"

#include "base/rooted.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/*
 * Some file systems report another device by stat than in mappings (btrfs, overlayfs): so the file is mapped, and our
 * own list says what they report there.
 */
static bool
is_reported_alike(int fd, const struct ct_mapping *mapping)
{
  struct ct_mappings own;
  bool is = false;
  void *piece = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
  if (piece == MAP_FAILED) {
    return false;
  }
  if (ct_process_mappings(getpid(), &own) == 0) {
    for (size_t i = 0; i < own.count && !is; i++) {
      const struct ct_mapping *item = &own.items[i];
      is = item->start == (uint64_t)piece && item->inode == mapping->inode &&
           item->device_major == mapping->device_major && item->device_minor == mapping->device_minor;
    }
    ct_mappings_free(&own);
  }
  munmap(piece, 1);
  return is;
}

/* The file opened for reading, if it is the one that is mapped, else -1. seen: a descriptor of O_PATH, closed here. */
static int
take(int seen, const struct ct_mapping *mapping, bool *is_other)
{
  struct stat file;
  char name[32];
  int fd = -1;
  if (seen < 0) {
    return -1;
  }
  if (fstat(seen, &file) == 0 && S_ISREG(file.st_mode)) {
    snprintf(name, sizeof(name), "/proc/self/fd/%d", seen);
    fd = open(name, O_RDONLY | O_CLOEXEC);
  }
  close(seen);
  if (fd < 0) {
    return -1;
  }
  if ((file.st_ino == mapping->inode && major(file.st_dev) == mapping->device_major &&
       minor(file.st_dev) == mapping->device_minor) ||
      is_reported_alike(fd, mapping)) {
    return fd;
  }
  close(fd);
  *is_other = true;
  return -1;
}

int
ct_process_open_mapped(pid_t pid, const struct ct_mapping *mapping, char *path, size_t size, struct ct_diag *why)
{
  char rest[PATH_MAX + 8];
  bool is_other = false;
  snprintf(path, size, "%s", mapping->path);
  int fd = mapping->path[0] == '/' ? take(open(path, O_PATH | O_CLOEXEC), mapping, &is_other) : -1;
  int err = errno;
  if (fd < 0 && mapping->path[0] == '/') {
    snprintf(rest, sizeof(rest), "root%s", mapping->path);
    ct_process_path(pid, rest, path, size);
    fd = take(ct_rooted_open(path, O_PATH | O_CLOEXEC), mapping, &is_other);
  }
  if (fd < 0) {
    snprintf(rest, sizeof(rest), "map_files/%llx-%llx", (unsigned long long)mapping->start,
             (unsigned long long)mapping->end);
    ct_process_path(pid, rest, path, size);
    fd = take(open(path, O_PATH | O_CLOEXEC), mapping, &is_other);
  }
  if (fd < 0 && is_other) {
    return ct_fail(why, CT_ENOENT, "the file has been replaced since it was loaded");
  }
  return fd >= 0 ? fd
                 : ct_fail(why, CT_ENOENT, "no file of that name here or in its root is the one that is mapped: %s",
                           strerror(err != 0 ? err : ENOENT));
}
