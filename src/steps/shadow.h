/* SPDX-License-Identifier: MIT */
/*
 * Memory as memory.h has it, for one who asks for many different bytes, of later and later steps: all that the steps
 * say is followed from the first one on, so what counts is the steps between two questions, not the questions.
 */
#ifndef CT_STEPS_SHADOW_H
#define CT_STEPS_SHADOW_H

#include "steps/reader.h"

struct ct_steps_shadow; /* opaque; as large as the memory that was touched, 45 MB at most */

/* NULL: out of memory. The reader must outlive it. */
struct ct_steps_shadow *ct_steps_shadow_open(struct ct_steps_reader *reader);
void ct_steps_shadow_close(struct ct_steps_shadow *shadow); /* accepts NULL */

/*
 * As ct_steps_memory. False: that question is answered sooner in another way, or only so; each one makes it worth
 * following a longer way.
 */
bool ct_steps_shadow_memory(struct ct_steps_shadow *shadow, uint64_t address, size_t size, uint64_t before,
                            uint8_t *bytes, uint8_t *known);

#endif
