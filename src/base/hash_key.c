/* SPDX-License-Identifier: MIT */
/* See hash_key.h. */
#include "base/hash_key.h"

#include <string.h>
#include <sys/auxv.h>

/* The kernel gives each process 16 random bytes; the C library guards the stack with the first eight. */
uint64_t
ct_hash_key(void)
{
  uint64_t key = 0;
  const uint8_t *random = (const uint8_t *)getauxval(AT_RANDOM);
  if (random != NULL) {
    memcpy(&key, random + 8, sizeof(key));
  }
  return (key * UINT64_C(0xD6E8FEB86659FD93)) | 1;
}
