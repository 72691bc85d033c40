/* SPDX-License-Identifier: MIT */
/* See folder.h. */
#include "steps/folder.h"

#include "base/file.h"
#include "ring/itrace_stream.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HOLD_TRIES = 1000 };

static int
compare_ids(const void *a, const void *b)
{
  uint32_t x, y;
  memcpy(&x, a, sizeof(x));
  memcpy(&y, b, sizeof(y));
  return x < y ? -1 : x > y;
}

/* Of steps.TID; false: it is called otherwise. */
static bool
tid_of(const char *name, uint32_t *tid)
{
  char *end = NULL;
  if (strncmp(name, "steps.", 6) != 0 || name[6] < '0' || name[6] > '9') {
    return false;
  }
  unsigned long number = strtoul(name + 6, &end, 10);
  *tid = (uint32_t)number;
  return *end == 0 && number <= UINT32_MAX;
}

/* Sorted; to be freed. */
static int
list_threads(const char *path, uint32_t **tids, size_t *count, struct ct_diag *diag)
{
  DIR *folder = opendir(path);
  struct dirent *entry;
  uint32_t tid;
  *tids = NULL;
  *count = 0;
  if (folder == NULL) {
    return ct_fail(diag, ct_err_from_errno(errno), "%s: %s", path, strerror(errno));
  }
  while ((entry = readdir(folder)) != NULL) {
    if (!tid_of(entry->d_name, &tid)) {
      continue;
    }
    uint32_t *more = realloc(*tids, (*count + 1) * sizeof(**tids));
    if (more == NULL) {
      closedir(folder);
      return ct_fail(diag, CT_ENOMEM, "out of memory");
    }
    *tids = more;
    more[(*count)++] = tid;
  }
  closedir(folder);
  if (*count == 0) {
    return ct_fail(diag, CT_ENOENT, "%s: there are no steps in it (they are recorded by contrail itrace)", path);
  }
  qsort(*tids, *count, sizeof(**tids), compare_ids);
  return 0;
}

/* The list and the names after it. */
static char **
names_of(const char *path, const uint32_t *tids, size_t count)
{
  size_t bytes = strlen(path) + sizeof("/steps.4294967295");
  char **list = malloc(count * (sizeof(char *) + bytes));
  char *text = (char *)(list + count);
  for (size_t i = 0; i < count && list != NULL; i++, text += bytes) {
    list[i] = text;
    if (tids != NULL) {
      snprintf(text, bytes, "%s/steps.%" PRIu32, path, tids[i]);
    } else {
      snprintf(text, bytes, "%s", path);
    }
  }
  return list;
}

int
ct_steps_folder_list(const char *path, char ***paths, size_t *count, struct ct_diag *diag)
{
  struct stat status;
  uint32_t *tids = NULL;
  size_t found = 1;
  if (stat(path, &status) != 0) {
    return ct_fail(diag, ct_err_from_errno(errno), "%s: %s", path, strerror(errno));
  }
  int code = S_ISDIR(status.st_mode) ? list_threads(path, &tids, &found, diag) : 0;
  if (code != 0) {
    free(tids);
    return code;
  }
  char **list = names_of(path, tids, found);
  free(tids);
  if (list == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  *paths = list;
  *count = found;
  return 0;
}

int
ct_steps_folder_hold(const char *path)
{
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const struct timespec wait = {0, 1000000};
  for (int tries = 0; fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && tries < HOLD_TRIES; tries++) {
    nanosleep(&wait, NULL); /* somebody looks whether it is held */
  }
  return fd;
}

bool
ct_steps_folder_is_held(const char *path)
{
  char folder[PATH_MAX];
  struct stat status;
  if (stat(path, &status) != 0 || (size_t)snprintf(folder, sizeof(folder), "%s", path) >= sizeof(folder)) {
    return false;
  }
  int fd = open(S_ISDIR(status.st_mode) ? folder : dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return false;
  }
  bool is_held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return is_held;
}

bool
ct_steps_folder_is(const char *path)
{
  struct stat status;
  char magic[sizeof(CT_STEPS_MAGIC)] = "";
  char **paths;
  size_t count;
  if (stat(path, &status) != 0) {
    return false;
  }
  if (S_ISDIR(status.st_mode)) {
    if (ct_steps_folder_list(path, &paths, &count, NULL) != 0) {
      return false;
    }
    free(paths);
    return true;
  }
  int fd = ct_open_regular(path);
  bool is = fd >= 0 && ct_read_at(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
            memcmp(magic, CT_STEPS_MAGIC, sizeof(magic)) == 0;
  if (fd >= 0) {
    close(fd);
  }
  return is;
}
