/* SPDX-License-Identifier: MIT */
/*
 * Which values the instruction tracer keeps of an instruction: those from which, with the state before it, a reader
 * knows the state after it. Recorder and reader both ask here, so nothing about it stands in a trace.
 *
 * The values of an instruction follow each other without gaps, those of a unit likewise, in the order of execution.
 */
#ifndef CT_X86_RECORDED_H
#define CT_X86_RECORDED_H

#include "x86/effects.h"

enum ct_value_kind {
  CT_VALUE_LOADED, /* access reg of the instruction, read just before it */
  CT_VALUE_REG,    /* the low bytes of general register reg, after it */
  CT_VALUE_FLAGS,  /* 2 bytes, after it: as seto %al and lahf leave ax */
  CT_VALUE_VECTOR, /* vector register reg, after it; the rest of it is as CT_EFFECT_VECTOR_ZEROES says */
  CT_VALUE_MASK,   /* 8 bytes: mask register reg, after it */
  CT_VALUE_STORED, /* access reg of the instruction, read just after it */
  CT_VALUE_TIME    /* 8 bytes: the time stamp counter, just after it; of no register */
};

struct ct_recorded_value {
  uint8_t kind; /* enum ct_value_kind */
  uint8_t reg;  /* or the number of the access */
  uint8_t size; /* bytes */
};

enum {
  CT_VALUES_MAX = 8,
  CT_VALUES_STEP = -1 /* in place of a count: the instruction is executed alone, and the whole state kept after it */
};

/*
 * The values of an instruction, how many; or CT_VALUES_STEP. has_vectors: vector and mask registers are kept, too.
 *
 *  - A derivable instruction that uses what it loads: its CT_VALUE_REG where the register holds that after it
 *    (ct_effects.loaded_reg), else CT_VALUE_LOADED. ct_emulate knows the rest.
 *  - Where returns and indirect branches go is known of the next record, so they have no value.
 *  - A system call: rax, and the time.
 *  - Of what is not derivable: all general registers and flags that it writes, and what it stores, if that is simple.
 *  - vzeroall and vzeroupper have no values: all of vector registers 0 to 15 become 0, or what is above 128 bits.
 */
int ct_values_of(const struct ct_effects *effects, bool has_vectors, struct ct_recorded_value values[CT_VALUES_MAX]);

/* The bytes of those values together. */
static inline uint32_t
ct_values_bytes(const struct ct_recorded_value *values, int count)
{
  uint32_t bytes = 0;
  for (int i = 0; i < count; i++) {
    bytes += values[i].size;
  }
  return bytes;
}

/* ax as seto and lahf leave it, to the six arithmetic flags. */
static inline uint64_t
ct_flags_of_value(uint16_t ax)
{
  return (ax >> 8 & (CT_FLAGS_SIX & ~CT_FLAG_OF)) | ((ax & 1) != 0 ? CT_FLAG_OF : 0);
}

#endif
