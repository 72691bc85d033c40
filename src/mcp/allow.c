/* SPDX-License-Identifier: MIT */
/*
 * --allow: which programs, processes and directories the client may name. Without it: all that the user may.
 *
 * Entries are what they were when the server began: paths without links, a process with the time of its start. What the
 * client names is looked at without links too; and it has to be the same file by that path as by the one that was
 * given, because links of /proc (/proc/PID/root, /proc/PID/exe) lead to where no path does.
 */
#include "mcp/server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

unsigned long long
mcp_started_at(pid_t pid)
{
  char path[64], text[1024];
  unsigned long long started = 0;
  snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
  if (fd >= 0) {
    close(fd);
  }
  text[got > 0 ? got : 0] = '\0';
  const char *at = strrchr(text, ')'); /* the name may have anything in it */
  enum { FIELDS = 20 };                /* from the state to starttime */
  for (int i = 0; at != NULL && i < FIELDS; i++) {
    at = strchr(at + 1, ' ');
  }
  if (at != NULL) {
    sscanf(at, "%llu", &started);
  }
  return started;
}

/* The path is that of the entry, or below it. */
static bool
is_below(const char *path, const char *entry)
{
  size_t length = strlen(entry);
  return strncmp(path, entry, length) == 0 && (path[length] == '\0' || path[length] == '/' || length == 1);
}

/* The path without links, if that is the same file. */
static bool
resolve(const char *path, char real[PATH_MAX], struct stat *found)
{
  struct stat given;
  return realpath(path, real) != NULL && stat(path, &given) == 0 && stat(real, found) == 0 &&
         given.st_dev == found->st_dev && given.st_ino == found->st_ino;
}

static bool
is_listed(const struct mcp_options *options, const char *path, char real[PATH_MAX], struct stat *found)
{
  bool is_good = false;
  if (!resolve(path, real, found)) {
    return false;
  }
  for (size_t i = 0; i < options->allow_count && !is_good; i++) {
    is_good = options->allow[i].path != NULL && is_below(real, options->allow[i].path);
  }
  return is_good;
}

/* What a script says of itself is read again, by its interpreter, from its path. */
static bool
is_script(const char *path)
{
  char begin[2] = "";
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for a writer */
  bool found = fd >= 0 && read(fd, begin, sizeof(begin)) == (ssize_t)sizeof(begin) && memcmp(begin, "#!", 2) == 0;
  if (fd >= 0) {
    close(fd);
  }
  return found;
}

bool
mcp_allows_program(struct mcp_call *call, char path[PATH_MAX], struct mcp_file *file)
{
  const struct mcp_options *options = call->server->options;
  char real[PATH_MAX];
  struct stat found;
  *file = (struct mcp_file){0};
  if (options->allow_count == 0) {
    return true;
  }
  if (!is_listed(options, path, real, &found)) {
    return mcp_fail(call,
                    "%.300s is not among what the server was allowed (--allow); the user may start it with another "
                    "--allow",
                    path);
  }
  if (is_script(real)) {
    memcpy(path, real, PATH_MAX);
  } else {
    *file = (struct mcp_file){.device = found.st_dev, .inode = found.st_ino};
  }
  return true;
}

bool
mcp_allows_process(struct mcp_call *call, pid_t pid, unsigned long long *started)
{
  const struct mcp_options *options = call->server->options;
  char link[64], real[PATH_MAX];
  struct stat unused;
  bool found = options->allow_count == 0;
  if (pid == getpid() || pid == call->server->guardian) {
    return mcp_fail(call, "process %d is the server itself", (int)pid);
  }
  if (pid == 1) {
    return mcp_fail(call, "process 1 is the system's own: it is not recorded");
  }
  *started = mcp_started_at(pid);
  for (size_t i = 0; i < options->allow_count && !found; i++) {
    found = options->allow[i].path == NULL && options->allow[i].pid == pid && options->allow[i].started == *started;
  }
  snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
  return found || is_listed(options, link, real, &unused) ||
         mcp_fail(call, "process %d is not among what the server was allowed (--allow)", (int)pid);
}

bool
mcp_allows_directory(struct mcp_call *call, char path[PATH_MAX])
{
  const struct mcp_options *options = call->server->options;
  char real[PATH_MAX];
  struct stat found;
  if (options->allow_count == 0) {
    return true;
  }
  if (!is_listed(options, path, real, &found) &&
      (!resolve(path, real, &found) || !is_below(real, call->server->directory))) {
    return mcp_fail(call, "%.300s is not below what the server was allowed (--allow)", path);
  }
  memcpy(path, real, PATH_MAX);
  return true;
}

bool
mcp_allows_held(struct mcp_call *call, char path[PATH_MAX], int *fd)
{
  const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                               .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
  *fd = -1;
  if (!mcp_allows_directory(call, path)) {
    return false;
  }
  if (call->server->options->allow_count != 0) {
    *fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
  }
  return *fd >= 0 || call->server->options->allow_count == 0 ||
         mcp_fail(call, "%.300s is no directory, or another one now: %s", path, strerror(errno));
}

bool
mcp_place(char place[PATH_MAX], const char *path, int fd, const char *name)
{
  if (fd >= 0) { /* "/." after it, as the link of /proc itself counts as a link */
    return snprintf(place, PATH_MAX, "/proc/self/fd/%d/%s", fd, name != NULL ? name : ".") < PATH_MAX;
  }
  return snprintf(place, PATH_MAX, "%s%s%s", path, name == NULL || strcmp(path, "/") == 0 ? "" : "/",
                  name != NULL ? name : "") < PATH_MAX;
}
