/* SPDX-License-Identifier: MIT */
/* What a recording wants of a plan, and what it needs to know for that; see plan.h. */
#include "plan/plan.h"

#include "target/source.h"

#include <stdlib.h>
#include <string.h>

enum ct_requested_mode
ct_requested_for_none(const struct ct_planned *planned)
{
  return planned->why_enter != 0 || planned->callout != CT_CALLOUT_NONE ? CT_REQUESTED_PASSTHROUGH : CT_REQUESTED_NONE;
}

bool
ct_refusal_by_user(enum ct_refusal refusal)
{
  return refusal == CT_REFUSED_EXCLUDED || refusal == CT_REFUSED_UNSELECTED;
}

void
ct_filter_result_free(struct ct_filter_result *filter_result)
{
  free(filter_result->requested_modes);
  free(filter_result->more);
  free(filter_result->reasons);
  free(filter_result->itrace);
  free(filter_result->ruled);
  *filter_result = (struct ct_filter_result){0};
}

const struct ct_sources *
ct_plan_sources(const struct ct_plan *plan)
{
  struct ct_plan *keeper = (struct ct_plan *)plan; /* what is kept changes nothing that the plan says */
  if (keeper->sources_read) {
    return keeper->sources;
  }
  uint64_t *addresses = reallocarray(NULL, plan->count + 1, sizeof(*addresses));
  if (addresses == NULL) {
    return NULL;
  }
  for (size_t i = 0; i < plan->count; i++) {
    addresses[i] = plan->functions[i].address;
  }
  int code = ct_sources_read(plan->elf, addresses, plan->count, &keeper->sources);
  free(addresses);
  keeper->sources_read = code != CT_ENOMEM;
  ct_elf_drop_pages(plan->elf);
  return keeper->sources;
}

uint8_t
ct_planned_probe(const struct ct_plan *plan, const struct ct_filter_result *filter_result, size_t i)
{
  const struct ct_planned *planned = &plan->functions[i];
  bool is_free = planned->callout == CT_CALLOUT_NONE && !planned->event_last;
  return is_free && filter_result != NULL && filter_result->itrace != NULL &&
                 ct_requested_has_event(ct_filter_result_mode(filter_result, i))
             ? filter_result->itrace[i]
             : 0;
}

uint16_t
ct_planned_sort(const struct ct_plan *plan, const struct ct_filter_result *filter_result, size_t i)
{
  enum { HAS_RAX = 0x20, VALUES = 0x40 };
  const struct ct_planned *planned = &plan->functions[i];
  enum ct_requested_mode requested = ct_filter_result_mode(filter_result, i);
  if (requested == CT_REQUESTED_NONE) {
    return 0;
  }
  uint8_t values = ct_planned_values(planned, requested);
  struct ct_values_form form = {0};
  if (values == CT_HOOK_VALUES_FEW && filter_result != NULL && filter_result->more != NULL) {
    memcpy(&form, &filter_result->more[i], sizeof(form));
  }
  uint8_t has_rax = (form.results & CT_VALUES_RAX) != 0 ? HAS_RAX : 0;
  uint32_t probe = ct_planned_probe(plan, filter_result, i);
  return (uint16_t)(ct_planned_mode(planned, requested) + 1 + values * VALUES + has_rax +
                    (probe << CT_SORT_PROBE_SHIFT));
}
