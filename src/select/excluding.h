/* SPDX-License-Identifier: MIT */
/* Leaving out functions of a module by the patterns of <contrail/exclude.h>. */
#ifndef CT_SELECT_EXCLUDING_H
#define CT_SELECT_EXCLUDING_H

#include <contrail/exclude.h>

#include "plan/plan.h"

/*
 * Chooses among the hooks of the plan of the module at module_path (as the user sees it). exclude may be NULL: every
 * one. 0 or CT_ENOMEM. *filter_result goes to ct_filter_result_free.
 */
int ct_exclude_filter(struct ct_exclude *exclude, const struct ct_plan *plan, const char *module_path,
                      struct ct_filter_result *filter_result);

/* Looks in the plan for what patterns that match nothing may have meant: ct_exclude_likely. */
void ct_exclude_suggest(struct ct_exclude *exclude, const struct ct_plan *plan, const char *path);

extern const struct ct_hot ct_hot_list[]; /* ends with NULLs */

#endif
