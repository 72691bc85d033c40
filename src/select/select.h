/* SPDX-License-Identifier: MIT */
/*
 * Choosing the functions of a module by the patterns of <contrail/select.h>.
 *
 * There are two steps, because the number of matches concerns all modules: ct_select_count for each module that is
 * there, then ct_select_filter for each. A module that comes later is counted and filtered then. When that, or a change
 * of the list, means that what was selected before would be selected otherwise now, ct_selection_generation is another
 * one: filter all modules again, if that is possible.
 */
#ifndef CT_SELECT_H
#define CT_SELECT_H

#include "select/excluding.h"
#include "plan/plan.h"

#include <contrail/select.h>

#include <jansson.h>

uint64_t ct_selection_generation(const struct ct_selection *selection);

/*
 * The first step. plan is that of the module at module_path (as the user sees it) and must live until
 * ct_select_forget; is_program: it is the program itself, no library. What is known already is not looked at again. 0
 * or CT_ENOMEM.
 */
int ct_select_count(struct ct_selection *selection, const struct ct_plan *plan, const char *module_path,
                    bool is_program);
/* The second. Either may be NULL. 0 or CT_ENOMEM. *filter_result goes to ct_filter_result_free. */
int ct_select_filter(struct ct_selection *selection, struct ct_exclude *exclude, const struct ct_plan *plan,
                     const char *module_path, bool is_program, struct ct_filter_result *filter_result);
/* As things stand functions may be found whose arguments and results are recorded. Accepts NULL. */
bool ct_select_has_values(const struct ct_selection *selection);
/*
 * Children are to be followed: what makes processes (the callout says which functions do) is selected in full whatever
 * the patterns are, unless it is excluded. A forked child comes to the agent as it returns from there.
 */
void ct_select_forks(struct ct_selection *selection, bool followed);
/*
 * A budget makes hooks cheaper where they cost too much, which it can of full ones only: CT_SELECT_AUTO means full
 * then, however many functions match.
 */
void ct_select_for_budget(struct ct_selection *selection, bool has_budget);
/*
 * Rule `slot`, below CT_RULES_MAX, is about the functions of a pattern: they are hooked in full, with their results if
 * these are wanted, also when no other pattern selects them. 0, CT_ENOMEM or CT_EINVAL.
 */
int ct_select_watch(struct ct_selection *selection, uint32_t slot, const char *pattern, bool result,
                    struct ct_diag *diag);
/* Forgets both. */
void ct_select_unwatch(struct ct_selection *selection, uint32_t slot);
/*
 * The functions of a pattern have detail as long as rule `slot`, a bit of it, is among those that are on: in a window
 * of its. After ct_select_watch. 0, CT_ENOMEM or CT_EINVAL.
 */
int ct_select_rule_detail(struct ct_selection *selection, uint32_t slot, const char *pattern, struct ct_diag *diag);
void ct_select_details_on(struct ct_selection *selection, uint32_t slots); /* accepts NULL */
/*
 * Calls of the functions of a pattern may be recorded as instructions, for that probe (struct ct_itrace_probe): they
 * are hooked in full, also when no other pattern selects them. NULL: no longer. 0, CT_ENOMEM or CT_EINVAL.
 */
int ct_select_itrace(struct ct_selection *selection, uint32_t probe, const char *pattern, struct ct_diag *diag);
/* Some functions have, or had, detail, if only in windows: there must be room for it. Accepts NULL. */
bool ct_select_has_lane(const struct ct_selection *selection);
/* Calls visit with each function of the plan, an index, that rule `slot` is about. As ct_select_count. */
int ct_select_each_watched(struct ct_selection *selection, uint32_t slot, const struct ct_plan *plan,
                           const char *module_path, bool is_program, void (*visit)(void *context, size_t function),
                           void *context);
/* What the installation found otherwise than the plan: why each function was not put in
 * (ct_installed.install_refusals). */
void ct_select_reconcile(struct ct_selection *selection, const struct ct_plan *plan, const char *module_path,
                         const uint8_t *install_refusals);
/* Looks in the plan for what patterns that match nothing may have meant: ct_select_info.likely. */
void ct_select_suggest(struct ct_selection *selection, const struct ct_plan *plan, const char *path);
/* The plans are about to go. What is known of the patterns can still be asked, until something is counted anew. */
void ct_select_end(struct ct_selection *selection); /* accepts NULL */
/* The module counts no longer. */
void ct_select_forget(struct ct_selection *selection, const struct ct_plan *plan, const char *module_path);

/* The patterns, what they match and what was hooked of that; a new reference. As ct_selection_json. */
json_t *ct_selection_list(const struct ct_selection *selection);

#endif
