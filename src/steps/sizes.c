/* SPDX-License-Identifier: MIT */
/* See sizes.h. */
#include "steps/sizes.h"

#include <stdlib.h>

struct ct_unit_sizes *
ct_unit_sizes_create(void)
{
  return calloc(1, sizeof(struct ct_unit_sizes));
}

void
ct_unit_sizes_free(struct ct_unit_sizes *sizes)
{
  for (uint32_t i = 0; sizes != NULL && i < CT_SIZES_CHUNKS; i++) {
    free(sizes->chunks[i]);
  }
  free(sizes);
}

void
ct_unit_sizes_add(struct ct_unit_sizes *sizes, uint32_t id, uint32_t bytes, uint8_t insns)
{
  uint32_t number = id >> CT_SIZES_SHIFT;
  if (number >= CT_SIZES_CHUNKS || bytes < sizeof(id) || bytes >= 1u << 24) {
    return;
  }
  uint32_t **chunk = &sizes->chunks[number];
  if (*chunk == NULL) {
    *chunk = calloc(1u << CT_SIZES_SHIFT, sizeof(**chunk));
  }
  if (*chunk != NULL) {
    (*chunk)[id & ((1u << CT_SIZES_SHIFT) - 1)] = bytes << 8 | insns;
  }
}
