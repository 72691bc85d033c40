/* SPDX-License-Identifier: MIT */
/*
 * Memory as a thread's steps show it: a byte is what the last step before a place stored there, loaded from there, or
 * the kernel wrote there; unknown when the trace has none of these, or the last of them has no value, or after that one
 * something is not recorded. Stores of other threads are not seen.
 */
#ifndef CT_STEPS_MEMORY_H
#define CT_STEPS_MEMORY_H

#include "steps/index.h"

#define CT_STEPS_MEMORY_MAX 4096 /* bytes of ct_steps_recall_memory */

/*
 * The size bytes at address before that step; known: a byte each, 0 or 1. *index: opened when it is needed, and kept;
 * NULL before the first call. Many bytes at once cost as many chunks as their last values are in. 0, CT_ENOMEM,
 * CT_ECANCELED (by the reader's watch).
 */
int ct_steps_memory(struct ct_steps_reader *reader, struct ct_steps_index **index, uint64_t address, size_t size,
                    uint64_t before, uint8_t *bytes, uint8_t *known);

/*
 * The same for one who asks again and again for the same bytes, of later and later steps: within a block only what is
 * between the two steps is read. NULL: out of memory; the reader must outlive it.
 */
struct ct_steps_recall;
struct ct_steps_recall *ct_steps_recall_open(struct ct_steps_reader *reader);
void ct_steps_recall_close(struct ct_steps_recall *recall); /* accepts NULL */
int ct_steps_recall_memory(struct ct_steps_recall *recall, struct ct_steps_index **index, uint64_t address, size_t size,
                           uint64_t before, uint8_t *bytes, uint8_t *known);

#endif
