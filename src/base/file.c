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
