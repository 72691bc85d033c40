/* SPDX-License-Identifier: MIT */
/* See selected.h. */
#include "steps/selected.h"

#include <stdlib.h>
#include <string.h>

int
ct_steps_selected_prepare(struct ct_steps_selected *selected, struct ct_steps_reader *reader)
{
  struct ct_units *units = ct_steps_reader_units(reader);
  size_t count = ct_units_count(units);
  if (!selected->has_ranges) {
    return 0;
  }
  free(selected->units);
  selected->unit_count = 0;
  selected->units = malloc((count + 1) * sizeof(*selected->units));
  if (selected->units == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < count; i++) {
    const struct ct_steps_plan *plan = ct_units_item(units, i);
    bool has = false;
    for (size_t k = 0; k < selected->count && !has; k++) {
      has = ct_steps_plan_touches(plan, selected->ranges[k].start, selected->ranges[k].end);
    }
    if (has) {
      selected->units[selected->unit_count++] = plan->id;
    }
  }
  return 0;
}

void
ct_steps_selected_free(struct ct_steps_selected *selected)
{
  free(selected->ranges);
  free(selected->units);
  memset(selected, 0, sizeof(*selected));
}

bool
ct_steps_selected_in_block(const struct ct_steps_selected *selected, const struct ct_steps_index *index, size_t block)
{
  if (!selected->has_ranges || ct_steps_index_has_alone(index, block)) {
    return true;
  }
  for (size_t i = 0; i < selected->unit_count; i++) {
    if (ct_steps_index_may_run(index, block, selected->units[i])) {
      return true;
    }
  }
  return false;
}
