/* SPDX-License-Identifier: MIT */
/*
 * How long the record of each unit is and how many instructions it has, by its id, so that a segment can be counted
 * without its units being decoded. One thread adds; others read what was there when they were handed the segment.
 */
#ifndef CT_STEPS_SIZES_H
#define CT_STEPS_SIZES_H

#include <stdbool.h>
#include <stdint.h>

enum { CT_SIZES_SHIFT = 12, CT_SIZES_CHUNKS = 1 << 14 };

/* A word: bytes of the record with its id << 8 | instructions; 0: not known. Chunks stay where they are. */
struct ct_unit_sizes {
  uint32_t *chunks[CT_SIZES_CHUNKS];
};

struct ct_unit_sizes *ct_unit_sizes_create(void);     /* NULL: out of memory */
void ct_unit_sizes_free(struct ct_unit_sizes *sizes); /* accepts NULL */
/* What there is no room for is not known. */
void ct_unit_sizes_add(struct ct_unit_sizes *sizes, uint32_t id, uint32_t bytes, uint8_t insns);

static inline uint32_t
ct_unit_sizes_of(const struct ct_unit_sizes *sizes, uint32_t id)
{
  uint32_t number = id >> CT_SIZES_SHIFT;
  const uint32_t *chunk = number < CT_SIZES_CHUNKS ? sizes->chunks[number] : 0;
  return chunk != 0 ? chunk[id & ((1u << CT_SIZES_SHIFT) - 1)] : 0;
}

#endif
