/* SPDX-License-Identifier: MIT */
/* Bytes of an instruction that are gathered in a number, and stored from there. */
#ifndef CT_X86_STORE_BYTES_H
#define CT_X86_STORE_BYTES_H

#include <stdint.h>
#include <string.h>

/* Prefixes to SIB: up to six bytes, the first in the lowest bits. */
struct ct_form {
  uint64_t bytes;
  unsigned count;
};

static inline __attribute__((always_inline)) void
ct_form_add(struct ct_form *form, unsigned byte)
{
  form->bytes |= (uint64_t)byte << 8 * form->count++;
}

/* The first count bytes, 1 to 16, and none after them: other code may follow. No call of memcpy, which would cost more
 * than all else here. */
static inline __attribute__((always_inline)) void
ct_store_bytes(uint8_t *to, unsigned __int128 bytes, unsigned count)
{
  uint64_t low = (uint64_t)bytes, high;
  if (count >= 8) {
    high = (uint64_t)(bytes >> 8 * (count - 8));
    memcpy(to, &low, 8);
    memcpy(to + count - 8, &high, 8);
  } else if (count >= 4) {
    high = low >> 8 * (count - 4);
    memcpy(to, &low, 4);
    memcpy(to + count - 4, &high, 4);
  } else {
    to[0] = (uint8_t)low;
    to[count / 2] = (uint8_t)(low >> 8 * (count / 2));
    to[count - 1] = (uint8_t)(low >> 8 * (count - 1));
  }
}

#endif
