/* SPDX-License-Identifier: MIT */
/* How often a test does what each time proves a little more: few times in make test, many in make torture. */
#ifndef CT_TESTS_ROUNDS_H
#define CT_TESTS_ROUNDS_H

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t
rounds(uint64_t few, uint64_t many)
{
  return getenv("CONTRAIL_TEST_LONG") != NULL ? many : few;
}

#endif
