/* SPDX-License-Identifier: MIT */
/* Numbers at random that are the same in each run (xorshift64). */
#ifndef CT_TESTS_XORSHIFT_H
#define CT_TESTS_XORSHIFT_H

#include <stdint.h>

static inline uint64_t
xorshift(uint64_t *state)
{
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

#endif
