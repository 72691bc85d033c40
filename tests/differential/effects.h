/* SPDX-License-Identifier: MIT */
/*
 * Part five: what ct_effects_of says of vector instructions against the processor: one at a time, from a random state;
 * vector and mask registers, x87, general registers, flags and memory that it does not name must be as before, and the
 * rest of the vector registers that it names as it says.
 */
#ifndef CT_TESTS_EFFECTS_H
#define CT_TESTS_EFFECTS_H

#include "random.h"

struct effects_count {
  uint64_t same, faults, vex, masked;
};

int effects_set_up(void);
/* True when something differs; text says what. */
bool effects_case(uint64_t seed, uint64_t number, struct effects_count *count, char *text, size_t size);

#endif
