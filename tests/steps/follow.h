/* SPDX-License-Identifier: MIT */
/*
 * A program run by single steps under ptrace along with a recording of the same program at the same addresses: after
 * each step every general register, flag, base and vector register of it is what the reader has, and so are the
 * addresses and values that the reader tells of loads and stores, what it tells that system calls wrote, and the frames
 * of signal handlers. What differs between any two runs (inputs.h) is taken from the recording where it comes in, and
 * counted; so is where a signal comes that the thread has not sent itself. Nothing else is: two runs that differ
 * otherwise are told as a difference.
 *
 * The recording must have the state before the program's first instruction (machine_hold).
 */
#ifndef CT_TESTS_STEPS_FOLLOW_H
#define CT_TESTS_STEPS_FOLLOW_H

#include <stdint.h>

/* At most that many steps; the program writes to the file output. 0: none differs; 1: some do, or the program ended
 * elsewhere; 2: it cannot be done. */
int follow_run(const char *path, uint64_t steps, const char *output, char *const argv[]);

#endif
