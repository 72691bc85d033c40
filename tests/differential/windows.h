/* SPDX-License-Identifier: MIT */
/*
 * Part one: displaced instructions, here and there. A case takes some instructions (at a function's entry as the
 * planner does, anywhere in a function, or made up), a random state in which their operands are mostly in reach, runs
 * them at their own place and then where ct_window_relocate has put them, and compares all that can be seen afterwards.
 */
#ifndef CT_TESTS_WINDOWS_H
#define CT_TESTS_WINDOWS_H

#include "image.h"
#include "machine.h"

enum case_result { CASE_SAME, CASE_SKIPPED, CASE_DIFFERS };

struct windows_count {
  uint64_t same, skipped, faults, branches, rip_relative, calls, vex, evex, strings;
};

int windows_set_up(const char *const *paths, size_t count);
/* text: what was run and what differs. */
enum case_result windows_case(uint64_t seed, uint64_t number, struct windows_count *count, char *text, size_t size);
void windows_tear_down(void);

#endif
