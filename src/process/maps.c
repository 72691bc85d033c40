/* SPDX-License-Identifier: MIT */
/* What /proc tells about a process: mappings, limits, seccomp, thread names. */
#include "process/process.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int
append(struct ct_mappings *out, size_t *capacity, const struct ct_mapping *mapping)
{
  if (out->count == *capacity) {
    size_t grown = *capacity == 0 ? 64 : *capacity * 2;
    struct ct_mapping *items = realloc(out->items, grown * sizeof(*items));
    if (items == NULL) {
      return CT_ENOMEM;
    }
    out->items = items;
    *capacity = grown;
  }
  out->items[out->count++] = *mapping;
  return 0;
}

static int
read_mappings(const char *name, struct ct_mappings *out)
{
  FILE *file = fopen(name, "re");
  if (file == NULL) {
    return ct_err_from_errno(errno);
  }
  struct ct_mappings result = {0};
  size_t capacity = 0;
  char *line = NULL;
  size_t line_size = 0;
  int code = 0;
  while (code == 0 && getline(&line, &line_size, file) > 0) {
    struct ct_mapping m = {0};
    char perms[5] = "";
    int path_at = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %" SCNx32 ":%" SCNx32 " %" SCNu64 " %n", &m.start, &m.end,
               perms, &m.offset, &m.device_major, &m.device_minor, &m.inode, &path_at) < 7) {
      continue;
    }
    line[strcspn(line, "\n")] = '\0';
    m.readable = perms[0] == 'r';
    m.writable = perms[1] == 'w';
    m.executable = perms[2] == 'x';
    m.shared = perms[3] == 's';
    m.path = strdup(path_at > 0 && path_at <= (int)strlen(line) ? line + path_at : "");
    code = m.path == NULL ? CT_ENOMEM : append(&result, &capacity, &m);
  }
  free(line);
  fclose(file);
  if (code != 0) {
    ct_mappings_free(&result);
    return code;
  }
  *out = result;
  return 0;
}

int
ct_process_mappings(pid_t pid, struct ct_mappings *out)
{
  char name[320];
  snprintf(name, sizeof(name), "/proc/%d/maps", (int)pid);
  int code = read_mappings(name, out);
  if (code != 0 || out->count != 0) {
    return code;
  }
  /* The main thread has ended and shows nothing any more: ask another one. */
  snprintf(name, sizeof(name), "/proc/%d/task", (int)pid);
  DIR *tasks = opendir(name);
  if (tasks == NULL) {
    return ct_err_from_errno(errno);
  }
  const struct dirent *task;
  while (code == 0 && out->count == 0 && (task = readdir(tasks)) != NULL) {
    if (task->d_name[0] != '.') {
      snprintf(name, sizeof(name), "/proc/%d/task/%s/maps", (int)pid, task->d_name);
      code = read_mappings(name, out);
    }
  }
  closedir(tasks);
  return code;
}

void
ct_mappings_free(struct ct_mappings *mappings)
{
  for (size_t i = 0; i < mappings->count; i++) {
    free(mappings->items[i].path);
  }
  free(mappings->items);
  mappings->items = NULL;
  mappings->count = 0;
}

uint64_t
ct_process_stack_limit(pid_t pid)
{
  char name[64];
  char line[256];
  uint64_t limit = 8u << 20;
  snprintf(name, sizeof(name), "/proc/%d/limits", (int)pid);
  FILE *file = fopen(name, "re");
  if (file == NULL) {
    return limit;
  }
  while (fgets(line, sizeof(line), file) != NULL) {
    if (strncmp(line, "Max stack size", 14) == 0) {
      if (strncmp(line + 26, "unlimited", 9) == 0) {
        limit = UINT64_MAX;
      } else {
        sscanf(line + 26, "%" SCNu64, &limit);
      }
    }
  }
  fclose(file);
  return limit;
}

int
ct_process_seccomp(pid_t pid)
{
  char name[64];
  char line[256];
  int mode = 0;
  snprintf(name, sizeof(name), "/proc/%d/status", (int)pid);
  FILE *file = fopen(name, "re");
  if (file == NULL) {
    return 0;
  }
  while (fgets(line, sizeof(line), file) != NULL) {
    if (sscanf(line, "Seccomp: %d", &mode) == 1) {
      break;
    }
  }
  fclose(file);
  return mode;
}

void
ct_process_thread_name(pid_t pid, pid_t tid, char *name, size_t size)
{
  char path[96];
  snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)pid, (int)tid);
  name[0] = '\0';
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return;
  }
  if (fgets(name, (int)size, file) != NULL) {
    name[strcspn(name, "\n")] = '\0';
  }
  fclose(file);
}
