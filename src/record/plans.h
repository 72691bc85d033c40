/* SPDX-License-Identifier: MIT */
/*
 * The plans of all files, kept for the next image and for other processes. Sessions of a process tree share them, and
 * what filtering learns: all that is done under a lock, which may be taken again by its holder.
 */
#ifndef CT_RECORD_PLANS_H
#define CT_RECORD_PLANS_H

#include "plan/cache.h"
#include "select/select.h"

#include <sys/stat.h>

struct ct_plans;

/* fetch: debug files that are missing, from debuginfod. */
struct ct_plans *ct_plans_create(bool use_int3, bool no_cache, bool fetch);
/* The errno of the first file for which no debuginfod server had an answer; 0: none. */
int ct_plans_fetch_failure(struct ct_plans *plans);
void ct_plans_lock(struct ct_plans *plans);
void ct_plans_unlock(struct ct_plans *plans);
/*
 * The plan of the file open as fd, which is called path, from an earlier image or another process if it is the same
 * file still; it lives as long as the plans. *fresh: nobody has counted the time that it took yet; count_it: the caller
 * does. 0 or an error.
 */
int ct_plans_get(struct ct_plans *plans, int fd, const char *path, bool count_it, struct ct_plan **out, bool *fresh,
                 struct ct_diag *diag);
/* There are functions in it that are answered for unwinders, or unwinders. */
bool ct_plans_unwinds(struct ct_plans *plans, const struct ct_plan *plan);
/* Looks in all of them for what patterns that match nothing may have meant. */
void ct_plans_suggest(struct ct_plans *plans, struct ct_selection *selection, struct ct_exclude *exclude);
/* Stores a plan in the cache, if there is one to store; false: none. */
bool ct_plans_store(struct ct_plans *plans);
/* There is none to store. */
bool ct_plans_are_stored(struct ct_plans *plans);
const struct ct_cache *ct_plans_cache(const struct ct_plans *plans);
void ct_plans_free(struct ct_plans *plans); /* accepts NULL */

#endif
