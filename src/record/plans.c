/* SPDX-License-Identifier: MIT */
/* See plans.h. */
#include "record/plans.h"

#include "target/debuginfod.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct entry {
  dev_t device;
  ino_t inode;
  off_t size;
  struct timespec changed;
  struct ct_plan *plan;
  bool counted; /* its time is in a module's plan_ns */
  bool unwinds; /* there are functions in it that are answered for unwinders, or unwinders */
};

struct ct_plans {
  pthread_mutex_t lock;
  struct entry *items;
  size_t count, capacity;
  bool use_int3;          /* for what no jump fits */
  bool fetch;             /* debug files, from debuginfod */
  int fetch_failure;      /* errno of the first file that no server could say anything of; 0: none */
  struct ct_cache *cache; /* NULL: none */
  bool has_new;           /* there may be plans that are to be stored */
};

struct ct_plans *
ct_plans_create(bool use_int3, bool no_cache, bool fetch)
{
  pthread_mutexattr_t again;
  struct ct_plans *plans = calloc(1, sizeof(*plans));
  if (plans == NULL) {
    return NULL;
  }
  pthread_mutexattr_init(&again);
  pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&plans->lock, &again);
  pthread_mutexattr_destroy(&again);
  plans->use_int3 = use_int3;
  plans->fetch = fetch;
  plans->cache = no_cache ? NULL : ct_cache_open(NULL, NULL);
  return plans;
}

int
ct_plans_fetch_failure(struct ct_plans *plans)
{
  ct_plans_lock(plans);
  int failure = plans->fetch_failure;
  ct_plans_unlock(plans);
  return failure;
}

void
ct_plans_lock(struct ct_plans *plans)
{
  pthread_mutex_lock(&plans->lock);
}

void
ct_plans_unlock(struct ct_plans *plans)
{
  pthread_mutex_unlock(&plans->lock);
}

bool
ct_plans_store(struct ct_plans *plans)
{
  ct_plans_lock(plans);
  bool stored = ct_cache_store(plans->cache);
  plans->has_new = stored;
  ct_plans_unlock(plans);
  return stored;
}

bool
ct_plans_are_stored(struct ct_plans *plans)
{
  ct_plans_lock(plans);
  bool stored = !plans->has_new;
  ct_plans_unlock(plans);
  return stored;
}

const struct ct_cache *
ct_plans_cache(const struct ct_plans *plans)
{
  return plans->cache;
}

void
ct_plans_free(struct ct_plans *plans)
{
  if (plans == NULL) {
    return;
  }
  ct_cache_close(plans->cache);
  for (size_t i = 0; i < plans->count; i++) {
    ct_plan_free(plans->items[i].plan);
  }
  pthread_mutex_destroy(&plans->lock);
  free(plans->items);
  free(plans);
}

static bool
has_unwinders(const struct ct_plan *plan)
{
  for (size_t f = 0; f < plan->count; f++) {
    if (plan->functions[f].callout == CT_CALLOUT_FIND_FDE || plan->functions[f].callout == CT_CALLOUT_MODULES) {
      return true;
    }
  }
  return plan->own_unwinder;
}

static int
get_locked(struct ct_plans *plans, int fd, const char *path, const struct stat *file, bool count_it,
           struct ct_plan **out, bool *fresh, struct ct_diag *diag)
{
  for (size_t i = 0; i < plans->count; i++) {
    struct entry *entry = &plans->items[i];
    if (entry->device == file->st_dev && entry->inode == file->st_ino && entry->size == file->st_size &&
        entry->changed.tv_sec == file->st_mtim.tv_sec && entry->changed.tv_nsec == file->st_mtim.tv_nsec) {
      *out = entry->plan;
      *fresh = !entry->counted;
      entry->counted |= count_it;
      return 0;
    }
  }
  if (plans->count == plans->capacity) {
    size_t grown = plans->capacity == 0 ? 32 : plans->capacity * 2;
    struct entry *items = realloc(plans->items, grown * sizeof(*items));
    if (items == NULL) {
      return ct_fail(diag, CT_ENOMEM, "out of memory");
    }
    plans->items = items;
    plans->capacity = grown;
  }
  struct ct_plan *plan;
  if (plans->fetch) {
    int failure = ct_debuginfod_fetch(fd, path);
    plans->fetch_failure = plans->fetch_failure != 0 ? plans->fetch_failure : failure;
  }
  int code = ct_cache_plan_fd(plans->cache, fd, path, &plan, diag);
  plans->has_new = true;
  if (code == 0) {
    if (plans->use_int3) {
      ct_plan_use_int3(plan);
    }
    plans->items[plans->count++] =
        (struct entry){file->st_dev, file->st_ino, file->st_size, file->st_mtim, plan, count_it, has_unwinders(plan)};
    *out = plan;
    *fresh = true;
  }
  return code;
}

int
ct_plans_get(struct ct_plans *plans, int fd, const char *path, bool count_it, struct ct_plan **out, bool *fresh,
             struct ct_diag *diag)
{
  struct stat file;
  if (fstat(fd, &file) != 0) {
    return ct_fail(diag, ct_err_from_errno(errno), "%s", strerror(errno));
  }
  ct_plans_lock(plans);
  int code = get_locked(plans, fd, path, &file, count_it, out, fresh, diag);
  ct_plans_unlock(plans);
  return code;
}

bool
ct_plans_unwinds(struct ct_plans *plans, const struct ct_plan *plan)
{
  bool found = false;
  ct_plans_lock(plans);
  for (size_t i = 0; i < plans->count && !found; i++) {
    found = plans->items[i].plan == plan && plans->items[i].unwinds;
  }
  ct_plans_unlock(plans);
  return found;
}

void
ct_plans_suggest(struct ct_plans *plans, struct ct_selection *selection, struct ct_exclude *exclude)
{
  ct_plans_lock(plans);
  for (size_t i = 0; i < plans->count; i++) {
    ct_plan_suggest(plans->items[i].plan, selection, exclude, ct_plan_path(plans->items[i].plan));
  }
  ct_plans_unlock(plans);
}
