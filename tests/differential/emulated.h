/* SPDX-License-Identifier: MIT */
/*
 * Part four: the reader's emulator (src/x86/emulate.h) against the processor, instruction by instruction. A case begins
 * with a random state and runs some random instructions one after the other, each natively between a load and a save
 * of all general registers and flags, and by the emulator; registers, flags, rip and the memory in reach are compared,
 * and what ct_effects_of says of the instruction with what it did, of those too that the emulator does not know.
 */
#ifndef CT_TESTS_EMULATED_H
#define CT_TESTS_EMULATED_H

#include "random.h"

struct emulated_count {
  uint64_t emulated, recorded, faults, refused; /* refused: on unknown flags */
  uint64_t by_op[256];
};

/* 0, or -1 when this machine does not let code be made. */
int emulated_set_up(void);
/* True when something differs; text says what. */
bool emulated_case(uint64_t seed, uint64_t number, struct emulated_count *count, char *text, size_t size);
/* An operation that the emulator knows, and that was hardly ever run; -1: none. */
int emulated_missed(const struct emulated_count *count, uint64_t at_least);

#endif
