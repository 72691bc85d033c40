/* SPDX-License-Identifier: MIT */
/* See ids.h. */
#include "process/ids.h"

#include "base/clock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SCANS_NS    2000000000ull /* of all threads, together ... */
#define SCANS_SHARE 8             /* ... and an eighth of the time */

/*
 * The last id in the NSpid of that status file, and how many there are; 0: no such file. fallback: a kernel without. In
 * front of it stand the groups that the process is in, tens of thousands perhaps.
 */
static pid_t
last_id(const char *path, pid_t fallback, size_t *count)
{
  char piece[1024];
  bool begins_line = true, found = false;
  pid_t last = fallback;
  FILE *file = fopen(path, "re");
  *count = 0;
  if (file == NULL) {
    return 0;
  }
  while (!found && fgets(piece, sizeof(piece), file) != NULL) {
    found = begins_line && strncmp(piece, "NSpid:", strlen("NSpid:")) == 0;
    begins_line = strchr(piece, '\n') != NULL;
    *count = 1;
  }
  fclose(file);
  if (found) {
    char *at = piece + strlen("NSpid:");
    for (*count = 0; *at == '\t' || *at == ' '; (*count)++) {
      last = (pid_t)strtol(at, &at, 10);
    }
  }
  return *count != 0 ? last : 0;
}

pid_t
ct_process_own_id(pid_t pid, bool *elsewhere)
{
  char path[64];
  size_t count;
  snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
  pid_t own = last_id(path, pid, &count);
  if (elsewhere != NULL) {
    *elsewhere = count > 1;
  }
  return own;
}

pid_t
ct_thread_own_id(pid_t pid, pid_t tid)
{
  char path[64];
  size_t count;
  snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
  return last_id(path, tid, &count);
}

/* ---- of threads ---- */

static void
add_id(struct ct_thread_ids *ids, pid_t own, pid_t outside)
{
  if (ids->count == ids->capacity) {
    size_t grown = ids->capacity * 2 + 16;
    struct ct_thread_id *items = reallocarray(ids->items, grown, sizeof(*items));
    if (items == NULL) {
      return; /* it is looked for again when it is asked for */
    }
    ids->items = items;
    ids->capacity = grown;
  }
  ids->items[ids->count++] = (struct ct_thread_id){own, outside};
}

/*
 * Who has many threads, and gives ids that none of them has, has us look at all of them for each: of the time that
 * passes only a part is spent on that.
 */
static bool
may_scan(const struct ct_thread_ids *ids)
{
  return ids->spent_ns < SCANS_NS || ids->spent_ns < (ct_now_ns() - ids->since_ns) / SCANS_SHARE;
}

/* All threads that there are now. */
static void
scan(struct ct_thread_ids *ids)
{
  char path[64];
  uint64_t begin = ct_now_ns();
  snprintf(path, sizeof(path), "/proc/%d/task", (int)ids->pid);
  DIR *tasks = opendir(path);
  const struct dirent *task;
  ids->count = 0;
  while (tasks != NULL && (task = readdir(tasks)) != NULL) {
    pid_t tid = (pid_t)strtol(task->d_name, NULL, 10);
    pid_t own = tid > 0 ? ct_thread_own_id(ids->pid, tid) : 0;
    if (own != 0) {
      add_id(ids, own, tid);
    }
  }
  if (tasks != NULL) {
    closedir(tasks);
  }
  ids->spent_ns += ct_now_ns() - begin;
}

static pid_t
kept(const struct ct_thread_ids *ids, pid_t own)
{
  for (size_t i = 0; i < ids->count; i++) {
    if (ids->items[i].own == own) {
      return ids->items[i].outside;
    }
  }
  return 0;
}

void
ct_thread_ids_begin(struct ct_thread_ids *ids, pid_t pid)
{
  ct_thread_ids_end(ids);
  ids->pid = pid;
  ids->since_ns = ct_now_ns();
  ct_process_own_id(pid, &ids->elsewhere);
}

void
ct_thread_ids_end(struct ct_thread_ids *ids)
{
  free(ids->items);
  *ids = (struct ct_thread_ids){0};
}

pid_t
ct_thread_ids_outside(struct ct_thread_ids *ids, pid_t own)
{
  if (!ids->elsewhere || own <= 0) {
    return own > 0 ? own : 0;
  }
  pid_t outside = kept(ids, own);
  if (outside == 0 && may_scan(ids)) {
    scan(ids);
    outside = kept(ids, own);
  }
  return outside;
}

static bool
exists(pid_t pid, pid_t tid)
{
  return syscall(SYS_tgkill, pid, tid, 0) == 0 || errno != ESRCH;
}

bool
ct_thread_ids_live(struct ct_thread_ids *ids, pid_t own)
{
  if (!ids->elsewhere) {
    return exists(ids->pid, own);
  }
  pid_t outside = kept(ids, own);
  if (outside == 0 || !exists(ids->pid, outside)) { /* the id may be another thread's meanwhile */
    if (!may_scan(ids)) {
      return true; /* it is asked again */
    }
    scan(ids);
    outside = kept(ids, own);
  }
  return outside != 0;
}

pid_t
ct_thread_by_own_id(pid_t pid, pid_t own)
{
  struct ct_thread_ids ids = {0};
  ct_thread_ids_begin(&ids, pid);
  pid_t outside = ct_thread_ids_outside(&ids, own);
  ct_thread_ids_end(&ids);
  return outside;
}

/* ---- of all ---- */

bool
ct_proc_is_ours(void)
{
  char text[32];
  ssize_t length = readlink("/proc/self", text, sizeof(text) - 1);
  text[length > 0 ? length : 0] = '\0';
  return length > 0 && strtol(text, NULL, 10) == getpid();
}

bool
ct_children_go_elsewhere(void)
{
  struct stat own, of_children;
  if (stat("/proc/self/ns/pid", &own) != 0) {
    return false;
  }
  /* Before the first child is there, the link leads nowhere. */
  return stat("/proc/self/ns/pid_for_children", &of_children) == 0 ? own.st_ino != of_children.st_ino : errno == ENOENT;
}

pid_t
ct_process_find(bool (*visit)(void *context, pid_t pid), void *context)
{
  DIR *processes = opendir("/proc");
  const struct dirent *process;
  pid_t found = 0;
  while (processes != NULL && found == 0 && (process = readdir(processes)) != NULL) {
    pid_t pid = isdigit((unsigned char)process->d_name[0]) ? (pid_t)strtol(process->d_name, NULL, 10) : 0;
    if (pid > 0 && visit(context, pid)) {
      found = pid;
    }
  }
  if (processes != NULL) {
    closedir(processes);
  }
  return found;
}
