/* SPDX-License-Identifier: MIT */
/* What the planner's files share; see plan.c. */
#ifndef CT_PLAN_INTERNAL_H
#define CT_PLAN_INTERNAL_H

#include "plan/plan.h"
#include "target/functions.h"
#include "x86/scan.h"

struct planner {
  struct ct_plan *plan;
  const struct ct_function *functions;
  size_t count;
  struct ct_scan scan;
  uint32_t *facts;   /* per function */
  uint8_t *is_part;  /* per function: a part of another one, by how it is reached */
  uint8_t *named;    /* per function: what its names mean, see ct_names_look_up */
  bool cfi_is_usual; /* most functions of the module have CFI */
};

/* Index of the function that begins at address, or -1. */
ptrdiff_t ct_planner_function(const struct planner *planner, uint64_t address);

/* plan/plan.c: tactic, mode and callout of function i, or why it is refused. Of any number of threads at a time. */
void ct_plan_one(const struct planner *planner, size_t i);

/* plan/shares.c: on all processors: the scan of all functions, which looks up their names too; ct_plan_one for all. */
int ct_shares_scan(struct planner *planner);
void ct_shares_plan(struct planner *planner);

/*
 * plan/names.c: what the names of a function mean, its first one and its aliases: 0 for nearly all, else a callout
 * (enum ct_callout) of that name, and flags. For functions in the order of their addresses; *next is theirs alone, 0 at
 * first.
 */
uint8_t ct_names_look_up(const struct ct_elf *elf, const struct ct_function *function, size_t *next);
#define CT_NAMED_CALLOUT 0x3f
#define CT_NAMED_COPIES  0x40 /* memcpy and the like */
#define CT_NAMED_COUNTS  0x80 /* mcount */

/* plan/callouts.c: enum ct_callout of function i; facts: as scanned. */
uint8_t ct_planner_callout(const struct planner *planner, size_t i, uint32_t facts);

/* plan/gs.c: when all functions are planned: who sets and uses gs in the text from start to end. */
void ct_planner_reconcile_gs(struct planner *planner, uint64_t start, uint64_t end);

/* plan/copies.c: marks the functions that copy memory (CT_FACT_COPIES). */
void ct_find_copies(struct planner *planner);

/* plan/counts.c: marks what mcount calls (CT_FACT_COUNTS). */
void ct_find_counts(struct planner *planner);

/* plan/faults.c: the function may fault in its first instructions, and its module has the address where it goes on. */
bool ct_faults_are_known(const struct planner *planner, size_t i);

/* plan/runtimes.c: whose code the module has; what that means for a function that is hookable so far. */
enum ct_runtime ct_runtime_of(const struct planner *planner);
enum ct_refusal ct_runtime_adapt(const struct planner *planner, size_t i, struct ct_planned *planned);
bool ct_runtime_translates(const struct ct_elf *elf);
bool ct_runtime_forbids_stores(const struct ct_elf *elf);

/*
 * Tactics 1 and 2: a jump of five bytes over whole instructions, or into padding. Fills tactic, window and the patch's
 * place; on a refusal refusal_offset says where a branch goes into.
 */
enum ct_refusal ct_tactic_choose(const struct planner *planner, size_t i, struct ct_planned *planned);

/* True when one of the other tactics may do for what ct_tactic_choose has refused so. */
bool ct_tactic_may_help(enum ct_refusal refusal);

/*
 * Tactics 3 to 5, when ct_tactic_choose has been through all functions of the module. True when one fits; planned is
 * as before otherwise. Memory that runs out counts as no fit.
 */
bool ct_tactic_choose_other(const struct planner *planner, size_t i, struct ct_planned *planned);

/* Where the code of function i ends: its size, but never beyond the next entry. */
uint64_t ct_code_end(const struct planner *planner, size_t i);

/* plan/springboard.c: five bytes of padding, or ten of movable instructions, where a two-byte jump at patch can go. */
bool ct_springboard_in_padding(const struct planner *planner, size_t i, uint64_t patch,
                               struct ct_springboard *springboard);
bool ct_springboard_in_victim(const struct planner *planner, size_t i, uint64_t patch,
                              struct ct_springboard *springboard);

#endif
