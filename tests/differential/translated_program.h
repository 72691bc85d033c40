/* SPDX-License-Identifier: MIT */
/*
 * Random programs for translated.c, made while they run: where control comes to a place without code, an instruction or
 * two are made that can run in the state there is. So loops, calls and returns are real ones, and memory operands lie
 * where memory is. What has been made stays, and may be run again from other states.
 */
#ifndef CT_TESTS_TRANSLATED_PROGRAM_H
#define CT_TESTS_TRANSLATED_PROGRAM_H

#include "trials.h"

enum { PROGRAM_AREAS = 2, PROGRAM_AREA_BYTES = 192 << 10 };

#define PROGRAM_GS_BASE 0x2340ull /* set while programs run */

struct program {
  uint64_t area[PROGRAM_AREAS]; /* the first one reaches the data by rip, the second one only the first */
  uint64_t apart[2];            /* where the second one may be: where jumps reach it, or 4 GiB from the first one */
  unsigned areas;               /* of them, how many this program uses */
  bool may_change;              /* it may write to its own code */
  bool is_straight;             /* mostly */
};

extern struct program program;

/* 0, or -1 when this machine has no room for it. */
int program_set_up(void);
void program_tear_down(void);
void program_begin(struct rng *rng, unsigned areas, bool may_change);
/* Its code as it was before it ran. */
void program_again(void);
/*
 * cpu is the state now: makes code if there is none. False: the program ends here, before the instruction, whose
 * effects are filled in else.
 */
bool program_goes_on(struct rng *rng, const struct ct_cpu *cpu, struct ct_effects *effects);
size_t program_read(uint64_t pc, uint8_t *bytes, size_t size);

#endif
