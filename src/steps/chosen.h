/* SPDX-License-Identifier: MIT */
/*
 * Which steps are asked for by where their instructions are, and which blocks can have any of them: by the index, where
 * there is one.
 */
#ifndef CT_STEPS_CHOSEN_H
#define CT_STEPS_CHOSEN_H

#include "steps/index.h"
#include "steps/names.h"

/* Zeroed: all steps are. ranges: filled by who asks; may be none. */
struct ct_steps_chosen {
  bool has_ranges;
  struct ct_steps_range *ranges; /* owned */
  size_t count;
  uint32_t *units; /* owned: ids of those that have an instruction in a range */
  size_t unit_count;
};

/* Looks for the units of the ranges, once these are there. 0 or CT_ENOMEM. */
int ct_steps_chosen_prepare(struct ct_steps_chosen *chosen, struct ct_steps_reader *reader);
void ct_steps_chosen_free(struct ct_steps_chosen *chosen);

/* False: no step of the block is in a range. */
bool ct_steps_chosen_in_block(const struct ct_steps_chosen *chosen, const struct ct_steps_index *index, size_t block);

static inline bool
ct_steps_chosen_has(const struct ct_steps_chosen *chosen, uint64_t pc)
{
  for (size_t i = 0; i < chosen->count; i++) {
    if (pc >= chosen->ranges[i].start && pc < chosen->ranges[i].end) {
      return true;
    }
  }
  return !chosen->has_ranges;
}

#endif
