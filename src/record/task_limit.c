/* SPDX-License-Identifier: MIT */
/*
 * RLIMIT_NPROC bounds the processes and threads of a user, and contrail's own are the same user's: a program would get
 * fewer than without us. So its soft limit is raised by their number, as far as its hard limit allows, and the agent
 * takes it off what the program reads, and adds it to what it sets (agent/limits.c). A hard limit cannot be raised:
 * what is missing below one that is nearly reached is reported.
 *
 * The other way round, our own soft limit would refuse a thread that this process starts while the program has as many
 * as it may (those of a followed child), or while the kernel still counts threads of ours that have just been joined:
 * it becomes the hard one.
 */
#include "record/session_internal.h"

#include "base/worker.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
  COMMAND_TASKS = 2,    /* the main thread, and the control socket's */
  SESSION_TASKS = 5,    /* session, watcher, drain, liveness, writer */
  HELPER_TASKS = 2,     /* the witness, a child, and the thread that takes signals (cli/signals.c) */
  COUNTED_BELOW = 4096, /* a limit above is not nearly reached: nobody counts */
  ROOM_SMALL = 64,
};
#define ADMIN_CAPABILITIES (1ull << 21 | 1ull << 24) /* CAP_SYS_ADMIN, CAP_SYS_RESOURCE: no such limit */

struct owner {
  uint32_t user; /* the real one */
  uint32_t threads;
  uint64_t capabilities;
};

static bool
read_owner(pid_t pid, struct owner *owner)
{
  char path[64], line[256];
  unsigned user = 0, threads = 0;
  unsigned long long capabilities = 0;
  int found = 0;
  snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
  FILE *file = fopen(path, "re");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    found += sscanf(line, "Uid: %u", &user) == 1;
    found += sscanf(line, "Threads: %u", &threads) == 1;
    found += sscanf(line, "CapEff: %llx", &capabilities) == 1;
  }
  if (file != NULL) {
    fclose(file);
  }
  *owner = (struct owner){user, threads, capabilities};
  return found == 3;
}

/* Has contrail a child besides the program? */
static bool
has_helper(pid_t program)
{
  char path[320];
  bool found = false;
  DIR *tasks = opendir("/proc/self/task");
  const struct dirent *task;
  while (tasks != NULL && (task = readdir(tasks)) != NULL) {
    int child;
    snprintf(path, sizeof(path), "/proc/self/task/%s/children", task->d_name);
    FILE *file = task->d_name[0] != '.' ? fopen(path, "re") : NULL;
    while (file != NULL && fscanf(file, "%d", &child) == 1) {
      found |= child != (int)program;
    }
    if (file != NULL) {
      fclose(file);
    }
  }
  if (tasks != NULL) {
    closedir(tasks);
  }
  return found;
}

static uint64_t
count_tasks_of(uint32_t user)
{
  uint64_t count = 0;
  DIR *processes = opendir("/proc");
  const struct dirent *process;
  while (processes != NULL && (process = readdir(processes)) != NULL) {
    struct owner owner;
    pid_t pid = (pid_t)strtol(process->d_name, NULL, 10);
    if (pid > 0 && read_owner(pid, &owner) && owner.user == user) {
      count += owner.threads;
    }
  }
  if (processes != NULL) {
    closedir(processes);
  }
  return count;
}

static void
note_missing(struct ct_session *session, const struct owner *program, uint64_t limit, uint32_t missing)
{
  char text[300];
  uint64_t tasks = limit < COUNTED_BELOW ? count_tasks_of(program->user) : 0;
  if (limit < COUNTED_BELOW && limit < tasks + ROOM_SMALL) {
    snprintf(
        text, sizeof(text),
        "the user's limit of %llu processes and threads (ulimit -u) is nearly reached and cannot be raised: contrail's "
        "own count as well, so the program gets up to %u less",
        (unsigned long long)limit, missing);
    session_note(session, text);
  }
}

static void
raise_own_limit(void)
{
  struct rlimit limit;
  if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NPROC, &limit);
  }
}

void
session_raise_task_limit(struct ct_session *session, struct ct_injected_options *options)
{
  struct owner own, program;
  struct rlimit limit;
  pid_t pid = session->target.process.pid;
  if (!read_owner(getpid(), &own) || !read_owner(pid, &program) || own.user != program.user || program.user == 0 ||
      (program.capabilities & ADMIN_CAPABILITIES) != 0 || prlimit(pid, RLIMIT_NPROC, NULL, &limit) != 0) {
    return;
  }
  if (session->recording.own_tasks == 0) {
    raise_own_limit();
    session->recording.own_tasks = COMMAND_TASKS + SESSION_TASKS * (session->node.is_child ? 2u : 1u) +
                                   HELPER_TASKS * (has_helper(pid) ? 1u : 0u) + (ct_workers_are_guarded() ? 1u : 0u);
  }
  uint32_t share = session->recording.own_tasks;
  options->task_share = share;
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur == 0) {
    return;
  }
  rlim_t before = limit.rlim_cur;
  limit.rlim_cur = before + share < limit.rlim_max ? before + share : limit.rlim_max;
  if (limit.rlim_cur != before && prlimit(pid, RLIMIT_NPROC, &limit, NULL) != 0) {
    limit.rlim_cur = before;
  }
  options->tasks_raised = (uint32_t)(limit.rlim_cur - before);
  options->task_limit = limit.rlim_cur;
  if (options->tasks_raised < share) {
    note_missing(session, &program, before, share - options->tasks_raised);
  }
}
