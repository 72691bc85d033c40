/* SPDX-License-Identifier: MIT */
/*
 * The last writer of some bytes in a block, found without an index and without the emulator: of each instruction only
 * what addresses are made of is executed (x86/gist.h). Says exactly what a scan by a cursor would, some ten times as
 * fast, or that it cannot say. Belongs to one thread, as its reader does.
 */
#ifndef CT_STEPS_SWEEP_H
#define CT_STEPS_SWEEP_H

#include "steps/view.h"

struct ct_steps_sweep;

struct ct_steps_sweep *ct_steps_sweep_open(struct ct_steps_reader *reader); /* NULL: out of memory */
void ct_steps_sweep_close(struct ct_steps_sweep *sweep);                    /* accepts NULL */

/*
 * target: bytes of memory. before: as of ct_steps_last_write; here it ends with the block. False: the block cannot be
 * read, or not as a whole, and a cursor has to; *write is then as it was.
 */
bool ct_steps_sweep_block(struct ct_steps_sweep *sweep, size_t block, const struct ct_steps_target *target,
                          uint64_t before, struct ct_steps_write *write);

/*
 * All stores of a block, and what the kernel wrote, in their order: visit sees the bytes of each. gap: of it only the
 * last gap is filled in. False: as above, but visit has seen some already.
 */
typedef void ct_steps_visit_bytes(void *context, uint64_t address, uint64_t bytes);
bool ct_steps_sweep_stores(struct ct_steps_sweep *sweep, size_t block, ct_steps_visit_bytes *visit, void *context,
                           struct ct_steps_write *gap);

/*
 * From that block on backwards, by a thread for each processor: up to the first one with a writer, or that cannot be
 * said, or to block `end`. *block becomes that one; *write is of all up to there, without that one if it could not be
 * said (false).
 */
bool ct_steps_sweep_back(struct ct_steps_reader *reader, size_t *block, size_t end,
                         const struct ct_steps_target *target, uint64_t before, struct ct_steps_write *write);

/* Do these bytes have one of the target's? */
static inline bool
ct_steps_target_meets(const struct ct_steps_target *target, uint64_t address, uint64_t bytes)
{
  uint64_t last = address + bytes - 1 < address ? UINT64_MAX : address + bytes - 1;
  return bytes != 0 && address <= target->address + target->size - 1 && target->address <= last;
}

/* Something is not recorded before that step. */
static inline void
ct_steps_write_gap(struct ct_steps_write *write, uint64_t step)
{
  write->gap = !write->has_gap || step > write->gap ? step : write->gap;
  write->has_gap = true;
}

#endif
