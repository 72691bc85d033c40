/* SPDX-License-Identifier: MIT */
/*
 * A place within a block of records, between two of them, with the state there: from it a cursor goes on without what
 * comes before. Packed for the index (index.c): trailing zeros of vector registers are left out.
 */
#ifndef CT_STEPS_CHECKPOINT_H
#define CT_STEPS_CHECKPOINT_H

#include "steps/machine.h"

struct ct_steps_checkpoint {
  uint64_t number; /* of the step that comes next */
  uint64_t at;     /* of the record that comes next, in the block's records */
  uint64_t tsc;
  uint32_t stamp; /* the next one of the block's */
  struct ct_steps_state state;
};

enum { CT_STEPS_CHECKPOINT_BYTES = 2560 }; /* packed it has no more */

size_t ct_steps_checkpoint_pack(const struct ct_steps_checkpoint *checkpoint, uint8_t *bytes);
/* False: these are none. */
bool ct_steps_checkpoint_unpack(const uint8_t *bytes, size_t size, struct ct_steps_checkpoint *checkpoint);

#endif
