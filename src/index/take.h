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

#endif
