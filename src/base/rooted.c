/* SPDX-License-Identifier: MIT */
/* See rooted.h. */
#include "base/rooted.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* After "/DIGITS"; NULL when that is not what stands there. */
static const char *
skip_number(const char *at)
{
  size_t digits = at[0] == '/' ? strspn(at + 1, "0123456789") : 0;
  return digits != 0 ? at + 1 + digits : NULL;
}

size_t
ct_rooted_prefix(const char *path)
{
  const char *at = strncmp(path, "/proc", 5) == 0 ? skip_number(path + 5) : NULL;
  if (at != NULL && strncmp(at, "/task", 5) == 0) {
    at = skip_number(at + 5);
  }
  return at != NULL && strncmp(at, "/root", 5) == 0 && at[5] == '/' ? (size_t)(at + 5 - path) : 0;
}

int
ct_rooted_open(const char *path, int flags)
{
  char root[PATH_MAX];
  size_t prefix = ct_rooted_prefix(path);
  if (prefix == 0 || prefix >= sizeof(root)) {
    return open(path, flags);
  }
  memcpy(root, path, prefix);
  root[prefix] = '\0';
  int folder = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    return -1;
  }
  struct open_how how = {.flags = (uint64_t)flags, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
  int fd = (int)syscall(SYS_openat2, folder, path + prefix + 1, &how, sizeof(how));
  int err = errno;
  close(folder);
  errno = err;
  return fd < 0 && err == ENOSYS ? open(path, flags) : fd;
}
