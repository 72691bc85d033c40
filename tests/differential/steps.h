/* SPDX-License-Identifier: MIT */
/*
 * Part six: the reader's emulator (src/x86/emulate.h) against single steps of real programs: what they load and store
 * is read from their memory, flags that are undefined stay unknown until they are written again, as the reader has
 * them.
 */
#ifndef CT_TESTS_STEPS_H
#define CT_TESTS_STEPS_H

#include <stddef.h>
#include <stdint.h>

struct steps_count {
  uint64_t steps, derivable, loads, stores, programs;
};

/* How many instructions differ, -1 when no program could be stepped; text tells of the first of each program. */
int64_t steps_run(uint64_t steps_each, struct steps_count *count, char *text, size_t size);

#endif
