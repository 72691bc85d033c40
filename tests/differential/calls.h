/* SPDX-License-Identifier: MIT */
/*
 * Part three: whole functions of libraries whose every function is patched. Two processes, one with the patches, make
 * the same calls with the same random arguments; all registers that they come back with, memory and faults are
 * compared.
 */
#ifndef CT_TESTS_CALLS_H
#define CT_TESTS_CALLS_H

#include "windows.h"

struct calls_count {
  uint64_t same, faults, functions, hooked, events;
};

/* Makes cases from..to-1 of the seed, or only one of them; says what differs on stdout. The number of those, or -1. */
int64_t calls_run(uint64_t seed, uint64_t from, uint64_t to, double seconds, struct calls_count *count);

#endif
