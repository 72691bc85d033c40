/* SPDX-License-Identifier: MIT */
/*
 * Part two: patched functions. The installer puts its patches into private copies of libraries, by every tactic; a case
 * calls a function's entry from a random state, or goes to instructions that have given way to a jump, or comes back
 * from a body, and compares what has happened when the function's own code is reached with what happens without
 * patches.
 */
#ifndef CT_TESTS_ENTRIES_H
#define CT_TESTS_ENTRIES_H

#include "windows.h"

struct entries_count {
  uint64_t tactic[CT_TACTIC_COUNT];
  uint64_t same, skipped, returns, evicted, enter_only, tails, slow, faults;
};

int entries_set_up(const char *const *paths, size_t count, char *text, size_t size);
enum case_result entries_case(uint64_t seed, uint64_t number, struct entries_count *count, char *text, size_t size);
void entries_tear_down(void);

#endif
