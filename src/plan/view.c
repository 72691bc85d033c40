/* SPDX-License-Identifier: MIT */
/* A plan, and what is wanted of it, as <contrail/plan.h> shows them. */
#include "plan/plan.h"

#include "base/sized.h"
#include "target/functions.h"

#include <stdlib.h>

const char *
ct_plan_path(const struct ct_plan *plan)
{
  return plan->path;
}

const char *
ct_plan_build_id(const struct ct_plan *plan)
{
  return ct_elf_build_id(plan->elf);
}

const char *
ct_plan_enter_only_text(const struct ct_plan *plan)
{
  return ct_runtime_text((enum ct_runtime)plan->runtime);
}

bool
ct_plan_uses_gs(const struct ct_plan *plan)
{
  return plan->uses_gs != 0;
}

bool
ct_plan_is_cached(const struct ct_plan *plan)
{
  return plan->mapping != NULL;
}

uint64_t
ct_plan_ns(const struct ct_plan *plan)
{
  return plan->plan_ns;
}

static enum ct_requested_mode
requested_mode_of(const struct ct_filter_result *filter_result, size_t i)
{
  return filter_result != NULL ? ct_filter_result_mode(filter_result, i) : CT_REQUESTED_HOOK;
}

static enum ct_hooked
hooked_of(const struct ct_planned *planned, enum ct_requested_mode requested)
{
  switch (ct_planned_mode(planned, requested)) {
  case CT_HOOK_FULL:
    return CT_HOOKED_FULL;
  case CT_HOOK_SAMPLED:
    return CT_HOOKED_LIGHT;
  default:
    return CT_HOOKED_ENTER;
  }
}

uint64_t
ct_plan_code_bytes(const struct ct_plan *plan)
{
  return plan->code_bytes;
}

uint64_t
ct_plan_known_bytes(const struct ct_plan *plan)
{
  return plan->known_bytes;
}

size_t
ct_plan_function_count(const struct ct_plan *plan)
{
  return plan->count;
}

int
ct_plan_function(const struct ct_plan *plan, const struct ct_filter_result *filter_result, size_t index,
                 struct ct_plan_function *function)
{
  if (index >= plan->count) {
    return CT_ERANGE;
  }
  const struct ct_planned *planned = &plan->functions[index];
  enum ct_requested_mode requested = requested_mode_of(filter_result, index);
  struct ct_plan_function own = {.address = planned->address, .size = planned->size, .name = planned->name};
  own.refusal = (enum ct_refusal)planned->refusal;
  if (own.refusal == CT_REFUSED_NOT && !ct_requested_has_event(requested)) {
    own.refusal = ct_filter_result_reason(filter_result, index);
  }
  own.callable = ct_refusal_is_callable(own.refusal);
  own.passthrough = requested == CT_REQUESTED_PASSTHROUGH;
  if (own.refusal == CT_REFUSED_NOT) {
    own.hooked = hooked_of(planned, requested);
    own.tactic = (enum ct_tactic)planned->tactic;
  } else if (own.refusal == CT_REFUSED_BRANCH_INTO || own.refusal == CT_REFUSED_ENTRY_INTO) {
    own.refusal_offset = planned->refusal_offset;
  }
  return ct_sized_give(function, &own, sizeof(own), NULL);
}

char *
ct_plan_function_label(const struct ct_plan *plan, size_t index, char *buf, size_t size)
{
  struct ct_function function = {.address = plan->functions[index].address, .name = plan->functions[index].name};
  return ct_function_label(buf, size, plan->path, &function);
}

const char *
ct_plan_function_alias(const struct ct_plan *plan, size_t index, size_t n)
{
  return ct_plan_alias(plan, &plan->functions[index], n);
}

size_t
ct_plan_hooked(const struct ct_plan *plan, const struct ct_filter_result *filter_result)
{
  return plan->hooked - (filter_result != NULL ? filter_result->excluded : 0);
}

size_t
ct_plan_refused(const struct ct_plan *plan, const struct ct_filter_result *filter_result, enum ct_refusal refusal)
{
  size_t count = plan->refused[refusal];
  if (filter_result != NULL && refusal == CT_REFUSED_EXCLUDED) {
    count += filter_result->excluded - filter_result->unselected;
  }
  return filter_result != NULL && refusal == CT_REFUSED_UNSELECTED ? count + filter_result->unselected : count;
}

const char *
ct_hooked_name(enum ct_hooked hooked)
{
  static const char *const names[] = {"-", "full", "enter", "light"};
  return names[hooked];
}
