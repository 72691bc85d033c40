/* SPDX-License-Identifier: MIT */
/* Of the analysis cache what <contrail/cache.h> does not give to everybody; see cache.c. */
#ifndef CT_PLAN_CACHE_H
#define CT_PLAN_CACHE_H

#include <contrail/cache.h>

#include "plan/plan.h"

struct ct_cache_stats {
  uint64_t hits;
  uint64_t misses;      /* planned anew */
  uint64_t uncacheable; /* of the misses: the file could not be read whole */
  uint64_t damaged;     /* of the misses: a file that could not be used */
  uint64_t stored;
  uint64_t evicted; /* files */
};

/* As ct_cache_plan, of a file that is open; path is what it is called. */
int ct_cache_plan_fd(struct ct_cache *cache, int fd, const char *path, struct ct_plan **out, struct ct_diag *diag);
struct ct_cache_stats ct_cache_stats(const struct ct_cache *cache);

#endif
