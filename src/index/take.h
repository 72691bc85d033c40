/* SPDX-License-Identifier: MIT */
/* Varints out of bytes that nobody believes: after the first one that makes no sense all are 0. */
#ifndef CT_INDEX_TAKE_H
#define CT_INDEX_TAKE_H

#include "trace/format.h"

struct ct_taking {
  const uint8_t *at, *end;
  int code; /* 0, or CT_EFORMAT */
};

static inline uint64_t
ct_take(struct ct_taking *t)
{
  uint64_t value = 0;
  const uint8_t *next = t->code == 0 ? ct_varint_get(t->at, t->end, &value) : NULL;
  if (next == NULL) {
    t->code = t->code != 0 ? t->code : CT_EFORMAT;
    return 0;
  }
  t->at = next;
  return value;
}

/* A difference modulo 2^64 that may be negative, sign last. */
static inline uint64_t
ct_folded(uint64_t difference)
{
  return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

static inline uint64_t
ct_unfolded(uint64_t value)
{
  return value >> 1 ^ (0 - (value & 1));
}

#endif
