/* SPDX-License-Identifier: MIT */
/*
 * Plans of files that were planned before, kept on disk by build-id, or by content where there is none; see cache.c. A
 * cache that cannot be used is no error: everything here accepts a cache of NULL, and plans then as without one. Of one
 * thread.
 */
#ifndef CT_HOOK_CACHE_H
#define CT_HOOK_CACHE_H

#include "hook/plan.h"
#include "hook/plan_file.h"

#define CT_CACHE_BYTES_MAX (512ull << 20) /* of all files together; the least recently used ones go */

struct ct_cache;

struct ct_cache_stats {
  uint64_t hits;
  uint64_t misses;      /* planned anew */
  uint64_t uncacheable; /* of the misses: the file could not be read whole */
  uint64_t damaged;     /* of the misses: a file that could not be used */
  uint64_t stored;
  uint64_t evicted; /* files */
};

/*
 * Opens the directory, or the usual one when it is NULL: $CONTRAIL_CACHE, $XDG_CACHE_HOME/contrail or
 * $HOME/.cache/contrail. It is made when it is missing. NULL, and why in diag, when there is none or it is not safe.
 */
struct ct_cache *ct_cache_open(const char *directory, struct ct_diag *diag);
/* Plans that were not stored yet are not stored any more. */
void ct_cache_close(struct ct_cache *cache);
const char *ct_cache_path(const struct ct_cache *cache); /* NULL without one */
struct ct_cache_stats ct_cache_stats(const struct ct_cache *cache);

/* ct_plan_create, from the cache if it can be. A new plan is remembered for ct_cache_store. */
int ct_cache_plan(struct ct_cache *cache, const char *path, struct ct_plan **out, struct ct_diag *diag);

/*
 * Writes one of the new plans, which must still be there, and makes room for it. False when there was none left to
 * write. For a moment at which nobody waits: a large one takes some 50 ms.
 */
bool ct_cache_store(struct ct_cache *cache);

/* Calls visit with each file of the cache; info is NULL for one that is damaged. used_ns: when it was last used. */
typedef void ct_cache_visit(void *context, const char *name, uint64_t bytes, int64_t used_ns,
                            const struct ct_plan_file_info *info);
int ct_cache_list(struct ct_cache *cache, ct_cache_visit *visit, void *context);
/* Removes all files; how many there were, or a negative error. */
int64_t ct_cache_clear(struct ct_cache *cache);

#endif
