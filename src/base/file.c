/* SPDX-License-Identifier: MIT */
/* See file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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
