/* SPDX-License-Identifier: MIT */
/* What an index has of a thread in memory: arrays that are its own and may grow, or lie in the file as it was read. */
#include "index/index_internal.h"

#include <stdlib.h>
#include <string.h>

void
ct_index_part_free(struct ct_index_part *part)
{
  if (part->granule_capacity != 0) {
    free(part->granules);
  }
  if (part->crossing_capacity != 0) {
    free(part->crossings);
  }
  if (part->blob_capacity != 0) {
    free(part->blob);
  }
  free((void *)part->is_read);
  free(part->frames);
  *part = (struct ct_index_part){0};
}

static int
own(void **array, uint64_t *capacity, uint64_t count, size_t size)
{
  if (*capacity != 0) {
    return 0;
  }
  if (count == 0) { /* a place in the file, which is not to be grown */
    *array = NULL;
    return 0;
  }
  void *copy = reallocarray(NULL, count, size);
  if (copy == NULL) {
    return CT_ENOMEM;
  }
  memcpy(copy, *array, count * size);
  *array = copy;
  *capacity = count;
  return 0;
}

int
ct_index_part_own(struct ct_index_part *part)
{
  void *granules = part->granules, *crossings = part->crossings, *blob = part->blob;
  int code = own(&granules, &part->granule_capacity, part->granule_count, sizeof(*part->granules));
  part->granules = granules;
  if (code == 0) {
    code = own(&crossings, &part->crossing_capacity, part->crossing_count, sizeof(*part->crossings));
    part->crossings = crossings;
  }
  if (code == 0) {
    code = own(&blob, &part->blob_capacity, part->blob_bytes, 1);
    part->blob = blob;
  }
  return code;
}

bool
ct_index_part_makes_sense(const struct ct_index_part *part)
{
  uint64_t end = 0; /* one after the other */
  for (uint64_t i = 0; i < part->granule_count; i++) {
    const struct ct_granule *g = &part->granules[i];
    uint64_t bytes = (uint64_t)g->state_bytes + g->function_bytes + g->long_bytes;
    if ((g->long_from & 0xff) == 0 || g->blob != end || bytes > part->blob_bytes - end ||
        (i > 0 && (g->offset <= g[-1].offset || g->first_ordinal < g[-1].first_ordinal))) {
      return false;
    }
    end += bytes;
  }
  for (uint64_t i = 0; i < part->crossing_count; i++) {
    if (part->crossings[i].granule >= part->granule_count ||
        (i > 0 && part->crossings[i].ordinal < part->crossings[i - 1].ordinal)) {
      return false;
    }
  }
  return true;
}
