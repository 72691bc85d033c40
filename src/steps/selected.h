/* SPDX-License-Identifier: MIT */
/*
 * Which steps are asked for by where their instructions are, and which blocks can have any of them: by the index, where
 * there is one.
 */
#ifndef CT_STEPS_SELECTED_H
#define CT_STEPS_SELECTED_H

#include "steps/index.h"
#include "steps/names.h"

/* Zeroed: all steps are. ranges: filled by who asks; may be none. */
struct ct_steps_selected {
  bool has_ranges;
  struct ct_steps_range *ranges; /* owned */
  size_t count;
  uint32_t *units; /* owned: ids of those that have an instruction in a range */
  size_t unit_count;
};

/* Looks for the units of the ranges, once these are there. 0 or CT_ENOMEM. */
int ct_steps_selected_prepare(struct ct_steps_selected *selected, struct ct_steps_reader *reader);
void ct_steps_selected_free(struct ct_steps_selected *selected);

/* False: no step of the block is in a range. */
bool ct_steps_selected_in_block(const struct ct_steps_selected *selected, const struct ct_steps_index *index,
                                size_t block);

static inline bool
ct_steps_selected_has(const struct ct_steps_selected *selected, uint64_t pc)
{
  for (size_t i = 0; i < selected->count; i++) {
    if (pc >= selected->ranges[i].start && pc < selected->ranges[i].end) {
      return true;
    }
  }
  return !selected->has_ranges;
}

#endif
