/* SPDX-License-Identifier: MIT */
/*
 * Hash tables whose keys come out of a trace: who wrote it may choose them. With a hash that everybody knows they can
 * be chosen so that all are in one place, and a table of n of them takes n * n steps. So each process hashes by a
 * number of its own, which no trace can know. Nothing that is shown may depend on the order in such a table.
 */
#ifndef CT_BASE_HASH_KEY_H
#define CT_BASE_HASH_KEY_H

#include <stdint.h>

/* The same each time in one process, odd. To be kept with the table: it takes a while. */
uint64_t ct_hash_key(void);

/* Its low bits are as good as its high ones. */
static inline uint64_t
ct_hash(uint64_t key, uint64_t value)
{
  unsigned __int128 product = (unsigned __int128)(value ^ key) * (key * UINT64_C(0x9E3779B97F4A7C15));
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

#endif
