/* SPDX-License-Identifier: MIT */
/* See file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

int
ct_open_regular(const char *path)
{
  struct stat file;
  char again[40];
  int seen = open(path, O_PATH | O_CLOEXEC); /* opens nothing yet */
  if (seen < 0) {
    return -1;
  }
  int fd = -1;
  if (fstat(seen, &file) != 0 || !S_ISREG(file.st_mode)) {
    errno = EINVAL;
  } else {
    snprintf(again, sizeof(again), "/proc/self/fd/%d", seen);
    fd = open(again, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  }
  int err = errno;
  close(seen);
  errno = err;
  return fd;
}

size_t
ct_read_at(int fd, void *data, size_t size, uint64_t offset)
{
  size_t done = 0;
  while (done < size) {
    ssize_t n = pread(fd, (char *)data + done, size - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      break;
    }
    done += (size_t)n;
  }
  return done;
}

bool
ct_file_may_change(const struct stat *file)
{
  return (file->st_uid != 0 && file->st_uid != geteuid()) || (file->st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

/* False: not all of it could be copied. What the file has got beyond its size meanwhile is left out. */
static bool
copy(int from, int to, uint64_t size)
{
  off_t at = 0;
  while ((uint64_t)at < size) {
    ssize_t n = sendfile(to, from, &at, size - (uint64_t)at);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return n == 0; /* it is shorter by now */
    }
  }
  return true;
}

int
ct_file_keep_still(int fd, uint64_t *room)
{
  struct stat file;
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) {
    close(fd);
    return -1;
  }
  if (!ct_file_may_change(&file)) {
    return fd;
  }
  uint64_t size = (uint64_t)file.st_size;
  int still = size <= *room ? memfd_create("contrail-copy", MFD_CLOEXEC) : -1;
  if (still >= 0 && !copy(fd, still, size)) {
    close(still);
    still = -1;
  }
  *room -= still >= 0 ? size : 0;
  close(fd);
  return still;
}
