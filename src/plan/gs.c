/* SPDX-License-Identifier: MIT */
/*
 * gs is the hooks'. A function that sets it says so first (CT_CALLOUT_GS, and libc's syscall and arch_prctl), and the
 * hooks go. What only uses it does so after that; a module that nobody is known to set it for, or does so where we
 * cannot see it, may not run with hooks at all.
 */
#include "plan/plan_internal.h"

#include "target/elf.h"
#include "x86/known.h"

/* Does a wrgsbase stand where no function is known, so that none could report it? */
static bool
sets_gs_unseen(const struct planner *planner, uint64_t start, uint64_t end)
{
  const struct ct_elf *elf = planner->plan->elf;
  size_t i = 0;
  for (uint64_t at = start; at < end;) {
    size_t left = ct_elf_code_left(elf, at);
    const uint8_t *code = left != 0 ? ct_elf_bytes(elf, at, left) : NULL;
    if (code == NULL) {
      at += CT_PAGE_BYTES;
      continue;
    }
    for (uint64_t gap = at; gap < at + left;) { /* what lies between the functions, which are sorted */
      const struct ct_function *function = i < planner->count ? &planner->functions[i] : NULL;
      uint64_t stop = function != NULL && function->address < at + left ? function->address : at + left;
      if (gap < stop && ct_has_wrgsbase(code, left, gap - at, stop - at)) {
        return true;
      }
      gap = gap > stop ? gap : stop;
      if (stop < at + left) {
        gap = function->address + function->size > gap ? function->address + function->size : gap;
        i++;
      }
    }
    at += left;
  }
  return false;
}

void
ct_planner_reconcile_gs(struct planner *planner, uint64_t start, uint64_t end)
{
  struct ct_plan *plan = planner->plan;
  bool is_reported = ct_elf_links(plan->elf, "syscall") || ct_elf_links(plan->elf, "arch_prctl"), silent = false;
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *planned = &plan->functions[i];
    bool sets = (planner->facts[i] & CT_FACT_GS_SET) != 0;
    bool has_callout = planned->refusal == CT_REFUSED_NOT && planned->callout != CT_CALLOUT_NONE;
    is_reported |=
        has_callout && (sets || planned->callout == CT_CALLOUT_SYSCALL || planned->callout == CT_CALLOUT_ARCH_PRCTL);
    silent |= sets && !has_callout;
    plan->uses_gs |= sets;
  }
  plan->gs_unsafe = silent || (plan->uses_gs && (!is_reported || sets_gs_unseen(planner, start, end)));
}
