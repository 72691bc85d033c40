/* SPDX-License-Identifier: MIT */
/* See processes.h. */
#include "cli/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool
is_last_part(const char *path, const char *name)
{
  const char *slash = strrchr(path, '/');
  return strcmp(slash != NULL ? slash + 1 : path, name) == 0;
}

/* The first line or word of a file of /proc/PID, "" when there is none. */
static void
read_word(pid_t pid, const char *file, char *text, size_t size)
{
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd >= 0 ? read(fd, text, size - 1) : 0;
  if (fd >= 0) {
    close(fd);
  }
  text[got > 0 ? got : 0] = '\0';
  text[strcspn(text, "\n")] = '\0';
}

static bool
has_name(pid_t pid, const char *name)
{
  char path[64], text[PATH_MAX];
  snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
  ssize_t length = readlink(path, text, sizeof(text) - 1);
  text[length > 0 ? length : 0] = '\0';
  if (length > 0 && is_last_part(text, name)) {
    return true;
  }
  read_word(pid, "cmdline", text, sizeof(text));
  if (text[0] == '\0') {
    return false; /* a thread of the kernel, or one that has ended */
  }
  if (is_last_part(text, name)) {
    return true;
  }
  read_word(pid, "comm", text, sizeof(text));
  return strcmp(text, name) == 0;
}

static int
compare_pids(const void *a, const void *b)
{
  return *(const pid_t *)a < *(const pid_t *)b ? -1 : 1;
}

size_t
ct_processes_named(const char *name, pid_t *pids, size_t size)
{
  size_t count = 0;
  DIR *stream = opendir("/proc");
  if (stream == NULL) {
    return 0;
  }
  for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
    pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && pid != getpid() && has_name(pid, name)) {
      if (count < size) {
        pids[count] = pid;
      }
      count++;
    }
  }
  closedir(stream);
  qsort(pids, count < size ? count : size, sizeof(*pids), compare_pids);
  return count;
}
