/* SPDX-License-Identifier: MIT */
/* A plan, and what is wanted of it, as <contrail/plan.h> shows them. */
#include "hook/plan.h"

#include "base/sized.h"
#include "hook/select.h"
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

int
ct_choice_create(const struct ct_plan *plan, struct ct_selection *selection, struct ct_exclude *exclude,
                 const char *path, struct ct_choice **out)
{
  struct ct_choice *choice = calloc(1, sizeof(*choice));
  if (choice == NULL)
    return CT_ENOMEM;
  int code = ct_select_choose(selection, exclude, plan, path, true, choice);
  if (code != 0) {
    ct_choice_destroy(choice);
    return code;
  }
  *out = choice;
  return 0;
}

void
ct_choice_destroy(struct ct_choice *choice)
{
  if (choice != NULL)
    ct_choice_free(choice);
  free(choice);
}

static enum ct_wish
wish_of(const struct ct_choice *choice, size_t i)
{
  return choice != NULL ? ct_choice_wish(choice, i) : CT_WISH_HOOK;
}

static enum ct_hooked
hooked_of(const struct ct_planned *planned, enum ct_wish wish)
{
  switch (ct_planned_mode(planned, wish)) {
  case CT_HOOK_FULL:
    return CT_HOOKED_FULL;
  case CT_HOOK_LIGHT:
    return CT_HOOKED_LIGHT;
  default:
    return CT_HOOKED_ENTER;
  }
}

size_t
ct_plan_function_count(const struct ct_plan *plan)
{
  return plan->count;
}

int
ct_plan_function(const struct ct_plan *plan, const struct ct_choice *choice, size_t index,
                 struct ct_plan_function *function)
{
  if (index >= plan->count)
    return CT_ERANGE;
  const struct ct_planned *planned = &plan->functions[index];
  enum ct_wish wish = wish_of(choice, index);
  struct ct_plan_function own = {.address = planned->address, .size = planned->size, .name = planned->name};
  own.refusal = (enum ct_refusal)planned->refusal;
  if (own.refusal == CT_REFUSED_NOT && !ct_wish_has_event(wish))
    own.refusal = ct_choice_reason(choice, index);
  own.callable = ct_refusal_is_callable(own.refusal);
  own.quiet = wish == CT_WISH_QUIET;
  if (own.refusal == CT_REFUSED_NOT) {
    own.hooked = hooked_of(planned, wish);
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
ct_plan_hooked(const struct ct_plan *plan, const struct ct_choice *choice)
{
  return plan->hooked - (choice != NULL ? choice->excluded : 0);
}

size_t
ct_plan_refused(const struct ct_plan *plan, const struct ct_choice *choice, enum ct_refusal refusal)
{
  size_t count = plan->refused[refusal];
  if (choice != NULL && refusal == CT_REFUSED_EXCLUDED)
    count += choice->excluded - choice->unchosen;
  return choice != NULL && refusal == CT_REFUSED_UNCHOSEN ? count + choice->unchosen : count;
}

const char *
ct_hooked_name(enum ct_hooked hooked)
{
  static const char *const names[] = {"-", "full", "enter", "light"};
  return names[hooked];
}
