/* SPDX-License-Identifier: MIT */
/* What /proc says about a process: mappings, limits, seccomp, thread names. */
#include "process/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DYING_MS        2000    /* a process with much memory takes a while to end */
#define DESCENDANTS_MAX 131072u /* more than there is need to look at */

/* The whole file, ended by a NUL; NULL with errno set. */
static char *
read_whole(const char *name)
{
  size_t size = 0, capacity = 32768;
  int fd = open(name, O_RDONLY | O_CLOEXEC);
  char *text = fd < 0 ? NULL : malloc(capacity);
  while (text != NULL) {
    if (capacity - size < 8192) {
      char *grown = realloc(text, capacity * 2);
      if (grown == NULL) {
        free(text);
        text = NULL;
        break;
      }
      text = grown;
      capacity *= 2;
    }
    ssize_t got = read(fd, text + size, capacity - size - 1);
    if (got <= 0) {
      break;
    }
    size += (size_t)got;
  }
  if (fd >= 0) {
    int saved = errno;
    close(fd);
    errno = saved;
  }
  if (text != NULL) {
    text[size] = '\0';
  }
  return text;
}

static uint64_t
hex(char **at)
{
  uint64_t value = 0;
  for (;; (*at)++) {
    unsigned digit = (unsigned)**at - '0';
    if (digit > 9) {
      digit = (unsigned)(**at | 0x20) - 'a' + 10;
      if (digit < 10 || digit > 15) {
        return value;
      }
    }
    value = value << 4 | digit;
  }
}

static bool
skip(char **at, char expected)
{
  if (**at != expected) {
    return false;
  }
  (*at)++;
  return true;
}

/* "start-end rwxp offset major:minor inode   path" of proc(5); at is left after the inode's blanks. */
static bool
parse_mapping(char *at, struct ct_mapping *m)
{
  *m = (struct ct_mapping){.start = hex(&at)};
  bool good = skip(&at, '-');
  m->end = hex(&at);
  good = good && skip(&at, ' ') && strnlen(at, 5) == 5;
  if (!good) {
    return false;
  }
  m->readable = at[0] == 'r';
  m->writable = at[1] == 'w';
  m->executable = at[2] == 'x';
  m->shared = at[3] == 's';
  at += 4;
  good = skip(&at, ' ');
  m->offset = hex(&at);
  good = good && skip(&at, ' ');
  m->device_major = (uint32_t)hex(&at);
  good = good && skip(&at, ':');
  m->device_minor = (uint32_t)hex(&at);
  good = good && skip(&at, ' ');
  m->inode = strtoull(at, &at, 10);
  while (*at == ' ') {
    at++;
  }
  m->path = at;
  return good;
}

static int
read_mappings(const char *name, struct ct_mappings *out)
{
  struct ct_mappings result = {.text = read_whole(name)};
  if (result.text == NULL) {
    return ct_err_from_errno(errno);
  }
  size_t lines = 0;
  for (const char *at = result.text; (at = strchr(at, '\n')) != NULL; at++) {
    lines++;
  }
  result.items = calloc(lines + 1, sizeof(*result.items));
  if (result.items == NULL) {
    ct_mappings_free(&result);
    return CT_ENOMEM;
  }
  for (char *line = result.text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
    *end = '\0';
    result.count += parse_mapping(line, &result.items[result.count]);
  }
  *out = result;
  return 0;
}

/* A task that has its memory no longer has no program either. */
static bool
has_memory(const char *exe)
{
  char unused[8];
  return readlink(exe, unused, sizeof(unused)) >= 0 || errno != ENOENT;
}

void
ct_process_path(pid_t pid, const char *rest, char *path, size_t size)
{
  char name[320];
  bool found = false;
  snprintf(name, sizeof(name), "/proc/%d/exe", (int)pid);
  snprintf(path, size, "/proc/%d/%s", (int)pid, rest);
  if (has_memory(name)) {
    return;
  }
  snprintf(name, sizeof(name), "/proc/%d/task", (int)pid);
  DIR *tasks = opendir(name);
  const struct dirent *task;
  while (tasks != NULL && !found && (task = readdir(tasks)) != NULL) {
    snprintf(name, sizeof(name), "/proc/%d/task/%s/exe", (int)pid, task->d_name);
    if (task->d_name[0] != '.' && has_memory(name)) {
      snprintf(path, size, "/proc/%d/task/%s/%s", (int)pid, task->d_name, rest);
      found = true;
    }
  }
  if (tasks != NULL) {
    closedir(tasks);
  }
}

int
ct_process_mappings(pid_t pid, struct ct_mappings *out)
{
  char name[320];
  ct_process_path(pid, "maps", name, sizeof(name));
  int code = read_mappings(name, out);
  if (code != 0 || out->count != 0) {
    return code;
  }
  ct_mappings_free(out); /* that thread has ended meanwhile */
  ct_process_path(pid, "maps", name, sizeof(name));
  return read_mappings(name, out);
}

const struct ct_mapping *
ct_mappings_at(const struct ct_mappings *mappings, uint64_t address)
{
  size_t low = 0, high = mappings->count; /* sorted, as the kernel gives them */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (mappings->items[middle].end <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < mappings->count && address >= mappings->items[low].start ? &mappings->items[low] : NULL;
}

int
ct_mappings_copy(const struct ct_mappings *from, struct ct_mappings *to)
{
  struct ct_mapping *items = malloc((from->count + 1) * sizeof(*items));
  if (items == NULL) {
    return CT_ENOMEM;
  }
  memcpy(items, from->items, from->count * sizeof(*items));
  *to = (struct ct_mappings){.items = items, .count = from->count};
  return 0;
}

int
ct_mappings_add(struct ct_mappings *mappings, uint64_t start, uint64_t bytes)
{
  struct ct_mapping *items = reallocarray(mappings->items, mappings->count + 1, sizeof(*items));
  if (items == NULL) {
    return CT_ENOMEM;
  }
  size_t at = mappings->count++;
  for (; at > 0 && items[at - 1].start > start; at--) {
    items[at] = items[at - 1];
  }
  items[at] = (struct ct_mapping){.start = start, .end = start + bytes, .path = ""};
  mappings->items = items;
  return 0;
}

void
ct_mappings_free(struct ct_mappings *mappings)
{
  free(mappings->items);
  free(mappings->text);
  *mappings = (struct ct_mappings){0};
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

/* A line "KEY: number" of /proc/PID/status, 0 when there is none. */
static int
status_number(pid_t pid, const char *key)
{
  char name[64];
  char line[256];
  int number = 0;
  size_t length = strlen(key);
  snprintf(name, sizeof(name), "/proc/%d/status", (int)pid);
  FILE *file = fopen(name, "re");
  if (file == NULL) {
    return 0;
  }
  while (fgets(line, sizeof(line), file) != NULL) {
    if (strncmp(line, key, length) == 0 && line[length] == ':') {
      number = (int)strtol(line + length + 1, NULL, 10);
      break;
    }
  }
  fclose(file);
  return number;
}

int
ct_process_seccomp(pid_t tid)
{
  return status_number(tid, "Seccomp");
}

pid_t
ct_process_seccomp_thread(pid_t pid)
{
  char path[64];
  pid_t found = 0;
  const struct dirent *task;
  snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
  DIR *tasks = opendir(path);
  while (found == 0 && tasks != NULL && (task = readdir(tasks)) != NULL) {
    pid_t tid = (pid_t)strtol(task->d_name, NULL, 10);
    found = tid > 0 && ct_process_seccomp(tid) != 0 ? tid : 0;
  }
  if (tasks != NULL) {
    closedir(tasks);
  }
  return found;
}

pid_t
ct_process_tracer(pid_t pid)
{
  return status_number(pid, "TracerPid");
}

/* What follows "pid (name) " in /proc/PID/stat: the state and the numbers after it. False when there is no process. */
static bool
read_stat(pid_t pid, char *text, size_t size)
{
  char name[64];
  snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
  FILE *file = fopen(name, "re");
  size_t got = file != NULL ? fread(text, 1, size - 1, file) : 0;
  if (file != NULL) {
    fclose(file);
  }
  text[got] = '\0';
  char *after = strrchr(text, ')'); /* the name may have anything in it */
  if (after == NULL || after[1] != ' ') {
    return false;
  }
  memmove(text, after + 2, strlen(after + 2) + 1);
  return true;
}

char
ct_process_state(pid_t pid)
{
  char text[1024];
  return read_stat(pid, text, sizeof(text)) ? text[0] : 0;
}

/* A field of text, the first of which is number 3; NULL when there are not so many. */
static const char *
stat_field(const char *text, int number)
{
  for (int field = 3; field < number && text != NULL; field++) {
    text = strchr(text + 1, ' ');
  }
  return text;
}

uint64_t
ct_process_start_time(pid_t pid)
{
  char text[1024];
  const char *at = read_stat(pid, text, sizeof(text)) ? stat_field(text, 22) : NULL;
  return at != NULL ? strtoull(at, NULL, 10) : 0;
}

uint64_t
ct_process_child_faults(pid_t pid)
{
  char text[1024];
  const char *faults = read_stat(pid, text, sizeof(text)) ? stat_field(text, 11) : NULL;
  return faults != NULL ? strtoull(faults, NULL, 10) : 0;
}

/* By /proc/PID/stat: flags (field 9; PF_EXITING, PF_SIGNALED of <linux/sched.h>), pending signals (field 31).
 * True also when it has gone: then what depends on it is to be looked at once more. */
static bool
is_dying(pid_t pid)
{
  char text[1024];
  const char *flags = read_stat(pid, text, sizeof(text)) ? stat_field(text, 9) : NULL;
  const char *pending = flags != NULL ? stat_field(text, 31) : NULL;
  return pending != NULL &&
         ((strtoull(flags, NULL, 10) & (0x4 | 0x400)) != 0 || (strtoull(pending, NULL, 10) >> (SIGKILL - 1) & 1) != 0);
}

bool
ct_process_is_going(pid_t pid, int ms)
{
  if (ms > 1 && !is_dying(pid)) { /* looked at twice: there is a moment in which it does not show */
    return false;
  }
  usleep(1000);
  return ms < DYING_MS;
}

struct pids {
  pid_t *items;
  size_t count, capacity;
};

static void
add_pid(struct pids *pids, pid_t pid)
{
  if (pids->count == pids->capacity) {
    size_t grown = pids->capacity * 2 + 64;
    pid_t *items = reallocarray(pids->items, grown, sizeof(*items));
    if (items == NULL) {
      return;
    }
    pids->items = items;
    pids->capacity = grown;
  }
  pids->items[pids->count++] = pid;
}

/* Of one thread. All are read before one is looked at: a place in the file is a number in the list. */
static void
add_children_of_thread(pid_t pid, const char *tid, struct pids *pids)
{
  char path[96], *text = NULL;
  size_t size = 0;
  snprintf(path, sizeof(path), "/proc/%d/task/%.20s/children", (int)pid, tid);
  FILE *file = fopen(path, "re");
  if (file != NULL && getdelim(&text, &size, '\0', file) > 0) {
    char *end = text;
    for (long child = strtol(text, &end, 10); child > 0; child = strtol(end, &end, 10)) {
      add_pid(pids, (pid_t)child);
    }
  }
  free(text);
  if (file != NULL) {
    fclose(file);
  }
}

static void
add_children(pid_t pid, struct pids *pids)
{
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
  DIR *tasks = opendir(path);
  const struct dirent *task;
  while (tasks != NULL && (task = readdir(tasks)) != NULL) {
    if (task->d_name[0] != '.') {
      add_children_of_thread(pid, task->d_name, pids);
    }
  }
  if (tasks != NULL) {
    closedir(tasks);
  }
}

/* However deep they are: a program decides how many generations there are, and may make more meanwhile. */
void
ct_process_descendants(pid_t pid, bool (*visit)(void *context, pid_t child), void *context)
{
  struct pids pids = {0};
  add_children(pid, &pids);
  for (size_t i = 0; i < pids.count && i < DESCENDANTS_MAX && !visit(context, pids.items[i]); i++) {
    add_children(pids.items[i], &pids);
  }
  free(pids.items);
}

bool
ct_process_exit_status(pid_t pid, int *status)
{
  char text[1024];
  /* X: its parent is just waiting for it; the pidfd does not tell the status before that is done. */
  bool has_ended = read_stat(pid, text, sizeof(text)) && (text[0] == 'Z' || text[0] == 'X');
  const char *at = has_ended ? stat_field(text, 52) : NULL;
  if (at == NULL) {
    return false;
  }
  *status = (int)strtol(at, NULL, 10);
  return true;
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
