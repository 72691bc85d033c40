/* SPDX-License-Identifier: MIT */
/*
 * Two runs of a program at the same addresses differ in what they read from the time stamp counter, in the ids of
 * processes and threads, in random bytes, and in what they compute from these: these differences are followed, through
 * registers, flags and memory, and only these are excused.
 */
#ifndef CT_TESTS_STEPS_EXCUSED_H
#define CT_TESTS_STEPS_EXCUSED_H

#include "steps/cursor.h"

enum { EXCUSED_WORDS = 4096 };

struct excused {
  uint16_t registers, flags;     /* that differ, and may */
  uint64_t words[EXCUSED_WORDS]; /* of memory, 8 bytes each */
  size_t count;
};

/* What may differ after the step: is in *excused. */
void excused_step(struct excused *excused, const struct ct_steps_step *step, uint64_t rax_before,
                  const struct ct_steps_state *after);
/* What does, of that. */
void excused_keep(struct excused *excused, uint16_t registers, uint16_t flags);

#endif
