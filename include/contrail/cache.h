/* SPDX-License-Identifier: MIT */
/*
 * The analysis cache: plans of files that were planned before, kept on disk by build-id, or by content where there is
 * none. A plan is used again when neither the file, nor its separate debug files, nor this library have changed.
 *
 * A cache that cannot be used is no error: all functions but ct_cache_list and ct_cache_clear accept a cache of NULL,
 * and plan then as without one. A struct ct_cache is of one thread; several processes and caches may share a directory.
 */
#ifndef CONTRAIL_CACHE_H
#define CONTRAIL_CACHE_H

#include <contrail/error.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CT_CACHE_BYTES_MAX (512ull << 20) /* of all files together; the least recently used ones go */

struct ct_cache; /* opaque */
struct ct_plan;  /* plan.h */

/*
 * Opens the directory, or the usual one when it is NULL: $CONTRAIL_CACHE, $XDG_CACHE_HOME/contrail or
 * $HOME/.cache/contrail. It is made when it is missing. NULL, and why in diag, when there is none or it is not safe
 * (another user's, or one that others may write to).
 */
struct ct_cache *ct_cache_open(const char *directory, struct ct_diag *diag);
/* Plans that were not stored yet are not stored any more. Plans that came from it stay. */
void ct_cache_close(struct ct_cache *cache);
const char *ct_cache_path(const struct ct_cache *cache); /* lives as long as the cache; NULL without one */

/* ct_plan_create, from the cache if it can be. A new plan is remembered for ct_cache_store. */
int ct_cache_plan(struct ct_cache *cache, const char *path, struct ct_plan **out, struct ct_diag *diag);
/*
 * Writes one of the new plans, which must still be there, and makes room for it. False when there was none left to
 * write. For a moment at which nobody waits: a large one takes some 50 ms.
 */
bool ct_cache_store(struct ct_cache *cache);

/* A file of the cache. May get members at its end. */
struct ct_cache_entry {
  const char *file;     /* its name in the directory */
  uint64_t bytes;       /* its size */
  int64_t used_wall_ns; /* when it was last used, since 1970 */
  bool damaged;         /* what follows is not known */
  bool current;         /* of this build of the library: it can be used */
  const char *path;     /* of the module when it was planned; cut when it is longer than 511 bytes */
  const char *build_id; /* hex; "" without one */
  uint64_t functions;
};
/* Calls visit with each file, the last used one first; the entry lives for the call. */
typedef void ct_cache_visit(void *context, const struct ct_cache_entry *entry);
int ct_cache_list(struct ct_cache *cache, ct_cache_visit *visit, void *context);
/* Removes all files; how many there were, or a negative error. */
int64_t ct_cache_clear(struct ct_cache *cache);

#ifdef __cplusplus
}
#endif

#endif
