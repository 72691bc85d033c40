/* SPDX-License-Identifier: MIT */
/* See chosen.h. */
#include "steps/chosen.h"

#include <stdlib.h>
#include <string.h>

int
ct_steps_chosen_prepare(struct ct_steps_chosen *chosen, struct ct_steps_reader *reader)
{
  struct ct_units *units = ct_steps_reader_units(reader);
  size_t count = ct_units_count(units);
  if (!chosen->has_ranges) {
    return 0;
  }
  free(chosen->units);
  chosen->unit_count = 0;
  chosen->units = malloc((count + 1) * sizeof(*chosen->units));
  if (chosen->units == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < count; i++) {
    const struct ct_steps_plan *plan = ct_units_item(units, i);
    bool has = false;
    for (size_t k = 0; k < chosen->count && !has; k++) {
      has = ct_steps_plan_touches(plan, chosen->ranges[k].start, chosen->ranges[k].end);
    }
    if (has) {
      chosen->units[chosen->unit_count++] = plan->id;
    }
  }
  return 0;
}

void
ct_steps_chosen_free(struct ct_steps_chosen *chosen)
{
  free(chosen->ranges);
  free(chosen->units);
  memset(chosen, 0, sizeof(*chosen));
}

bool
ct_steps_chosen_in_block(const struct ct_steps_chosen *chosen, const struct ct_steps_index *index, size_t block)
{
  if (!chosen->has_ranges || ct_steps_index_has_alone(index, block)) {
    return true;
  }
  for (size_t i = 0; i < chosen->unit_count; i++) {
    if (ct_steps_index_may_run(index, block, chosen->units[i])) {
      return true;
    }
  }
  return false;
}
