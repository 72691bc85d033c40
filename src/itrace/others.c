/* SPDX-License-Identifier: MIT */
/*
 * Threads that are there when all of a process are to be traced.
 *
 * A thread that ptrace holds makes no other that it does not hold, too. So all of them are held first, one look at
 * /proc after the other until one shows no new thread. That takes little, and who is held stands still. What takes
 * long, the spaces of each, is made afterwards, in turns (borrow.c), while those that have theirs run already.
 *
 * This is the work of a thread of its own, the finder: the recording has begun, with the first thread.
 */
#include "itrace/tracer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/worker.h"

#include <dirent.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIND_NS 3000000000ull /* where threads make others, and end, before they can be held */

struct finding {
  struct ct_itrace *all;
  struct ct_tracer **tracers; /* started, and not known to have begun */
  size_t count;
  pid_t *refused;
  size_t refused_count;
};

static bool
is_ending(struct ct_itrace *all)
{
  pthread_mutex_lock(&all->lock);
  bool is = all->is_ending;
  pthread_mutex_unlock(&all->lock);
  return is;
}

static bool
is_refused(const struct finding *finding, pid_t tid)
{
  for (size_t i = 0; i < finding->refused_count; i++) {
    if (finding->refused[i] == tid) {
      return true;
    }
  }
  return false;
}

static void
refuse(struct finding *finding, pid_t tid, const struct ct_diag *why)
{
  pid_t *grown = reallocarray(finding->refused, finding->refused_count + 1, sizeof(*grown));
  if (grown != NULL) { /* else it is asked again, for the time that there is */
    finding->refused = grown;
    finding->refused[finding->refused_count++] = tid;
  }
  ct_itrace_not_recorded(finding->all, why);
}

static bool
is_there(const struct ct_itrace *all, pid_t tid)
{
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)all->pid, (int)tid);
  return access(path, F_OK) == 0;
}

/* It has not begun. True: there may be more threads that nobody holds, which it has made. */
static bool
settle(struct finding *finding, pid_t tid, int code, struct ct_diag *why)
{
  struct ct_itrace *all = finding->all;
  if (code == CT_ESRCH) {
    return true;
  }
  if (code == CT_EEXIST || ct_traced_is_ours_too(tid) || ct_itrace_is_known(all, tid)) { /* as it was made, by now */
    return false;
  }
  if (!is_there(all, tid)) {
    return true;
  }
  if (code == CT_ECANCELED) {
    ct_fail(why, CT_ETIMEOUT, "the recording was ended before it had begun with them");
  }
  refuse(finding, tid, why);
  return true;
}

static bool
start_one(struct finding *finding, pid_t tid)
{
  struct ct_diag diag = {""};
  struct ct_tracer **grown = reallocarray(finding->tracers, finding->count + 1, sizeof(struct ct_tracer *));
  finding->tracers = grown != NULL ? grown : finding->tracers;
  struct ct_tracer *tracer = grown != NULL ? ct_itrace_start(finding->all, tid, &diag) : NULL;
  if (tracer == NULL) {
    if (!ct_itrace_is_known(finding->all, tid) && !is_ending(finding->all)) {
      ct_fail(&diag, CT_ENOMEM, "out of memory");
      refuse(finding, tid, &diag);
    }
    return false;
  }
  finding->tracers[finding->count++] = tracer;
  return true;
}

/* Until each of those from `first` on has hold of its thread; who has none is no tracer any more. */
static bool
await_taken(struct finding *finding, size_t first)
{
  bool has_more = false;
  size_t left = first;
  for (size_t i = first; i < finding->count; i++) {
    struct ct_tracer *tracer = finding->tracers[i];
    while (atomic_load_explicit(&tracer->taken, memory_order_acquire) == 0) { /* pairs with ct_tracer_has_taken */
      syscall(SYS_futex, &tracer->taken, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    }
    if (atomic_load_explicit(&tracer->begun, memory_order_acquire) == 2) {
      struct ct_diag diag = {""};
      pid_t tid = tracer->tid;
      int code = ct_itrace_started(tracer, &diag);
      has_more |= settle(finding, tid, code, &diag);
    } else {
      finding->tracers[left++] = tracer;
      has_more = true;
    }
  }
  finding->count = left;
  return has_more;
}

uint32_t
ct_itrace_count_threads(pid_t pid)
{
  char path[64];
  uint32_t count = 0;
  snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
  DIR *folder = opendir(path);
  for (const struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    count += entry->d_name[0] != '.';
  }
  if (folder != NULL) {
    closedir(folder);
  }
  return count;
}

/* One look at all threads. True: there may be more. */
static bool
find_once(struct finding *finding)
{
  char path[64];
  size_t first = finding->count;
  snprintf(path, sizeof(path), "/proc/%d/task", (int)finding->all->pid);
  DIR *folder = opendir(path);
  if (folder == NULL) {
    return false;
  }
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
    if (tid > 0 && !ct_itrace_is_known(finding->all, tid) && !is_refused(finding, tid)) {
      start_one(finding, tid);
    }
  }
  closedir(folder);
  return await_taken(finding, first);
}

static void
find_all(struct finding *finding)
{
  struct ct_itrace *all = finding->all;
  uint64_t until = ct_now_ns() + FIND_NS;
  bool has_more = true;
  while (has_more && !is_ending(all) && ct_now_ns() < until) {
    has_more = find_once(finding);
  }
  if (has_more && !is_ending(all)) {
    struct ct_diag why;
    ct_fail(&why, CT_ETIMEOUT, "threads were made and ended faster than they could be taken hold of");
    ct_itrace_not_recorded(all, &why);
  }
  for (size_t i = 0; i < finding->count; i++) {
    struct ct_diag diag = {""};
    pid_t tid = finding->tracers[i]->tid;
    int code = ct_itrace_started(finding->tracers[i], &diag);
    if (code != 0) {
      settle(finding, tid, code, &diag);
    }
  }
  free(finding->tracers);
  free(finding->refused);
}

static void *
finder_main(void *context)
{
  struct finding finding = {.all = context};
  find_all(&finding);
  pthread_mutex_lock(&finding.all->lock);
  ct_itrace_has_one_less(finding.all);
  pthread_mutex_unlock(&finding.all->lock);
  return NULL;
}

void
ct_itrace_find_others(struct ct_itrace *all)
{
  pthread_mutex_lock(&all->lock);
  all->running++; /* it is not over when the first thread has ended, as long as others are to come */
  pthread_mutex_unlock(&all->lock);
  all->has_finder = ct_worker_create(&all->finder, NULL, finder_main, all) == 0;
  if (!all->has_finder) {
    finder_main(all);
  }
}

void
ct_itrace_join_others(struct ct_itrace *all)
{
  if (all->has_finder) {
    pthread_join(all->finder, NULL);
    all->has_finder = false;
  }
}
