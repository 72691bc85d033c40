/* SPDX-License-Identifier: MIT */
/*
 * Choosing the functions of a module by the patterns of <contrail/select.h>.
 *
 * There are two steps, because the number of matches concerns all modules: ct_select_count for each module that is
 * there, then ct_select_choose for each. A module that comes later is counted and chosen then. When that, or a change
 * of the list, means that what was chosen before would be chosen otherwise now, ct_selection_generation is another one:
 * choose again for all modules, if that is possible.
 */
#ifndef CT_HOOK_SELECT_H
#define CT_HOOK_SELECT_H

#include "hook/excluding.h"
#include "hook/plan.h"

#include <contrail/select.h>

uint64_t ct_selection_generation(const struct ct_selection *selection);

/*
 * The first step. plan is that of the module at module_path (as the user sees it) and must live until
 * ct_select_forget; is_program: it is the program itself, no library. What is known already is not looked at again. 0
 * or CT_ENOMEM.
 */
int ct_select_count(struct ct_selection *selection, const struct ct_plan *plan, const char *module_path,
                    bool is_program);
/* The second. Either may be NULL. 0 or CT_ENOMEM. *choice goes to ct_choice_free. */
int ct_select_choose(struct ct_selection *selection, struct ct_exclude *exclude, const struct ct_plan *plan,
                     const char *module_path, bool is_program, struct ct_choice *choice);
/*
 * Children are to be followed: what makes processes (the callout says which functions do) is chosen in full whatever
 * the patterns are, unless it is excluded. A forked child comes to the agent as it returns from there.
 */
void ct_select_forks(struct ct_selection *selection, bool followed);
/* What the installation found otherwise than the plan: why each function was not put in (ct_installed.late). */
void ct_select_settle(struct ct_selection *selection, const struct ct_plan *plan, const char *module_path,
                      const uint8_t *late);
/* The plans are about to go. What is known of the patterns can still be asked, until something is counted anew. */
void ct_select_end(struct ct_selection *selection); /* accepts NULL */
/* The module counts no longer. */
void ct_select_forget(struct ct_selection *selection, const struct ct_plan *plan, const char *module_path);

#endif
