/* SPDX-License-Identifier: MIT */
/* Kinds of instructions that random programs must have executed. */
#ifndef CT_TESTS_CLASSES_H
#define CT_TESTS_CLASSES_H

#include <stdint.h>

struct ct_effects;

enum class {
  CLASS_VEX2,
  CLASS_VEX3,
  CLASS_EVEX,
  CLASS_X87,
  CLASS_REPEATED,
  CLASS_UNDEFINED_FLAGS,
  CLASS_LOCKED,
  CLASS_WORDS, /* operands of 16 bits */
  CLASS_HIGH_BYTES,
  CLASS_ADDRESS32,
  CLASS_RIP,
  CLASS_FS,
  CLASS_GS,
  CLASS_COMPARE_PAIRS, /* cmpxchg8b, cmpxchg16b */
  CLASSES
};

extern const char *const class_names[CLASSES];

/* A bit for each that it is of. */
uint32_t classes_of(const uint8_t *code, const struct ct_effects *effects);
void classes_note(const uint8_t *code, const struct ct_effects *effects, uint64_t counts[CLASSES]);

#endif
