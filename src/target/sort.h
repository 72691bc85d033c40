/* SPDX-License-Identifier: MIT */
/* Stable sort of (address, index) pairs: a radix sort over the bytes in which the keys differ. */
#ifndef CT_TARGET_SORT_H
#define CT_TARGET_SORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct ct_sort_key {
  uint64_t key;
  uint64_t index;
};

/* Returns false when memory is exhausted; the keys are then as they were. */
static inline bool
ct_sort_keys(struct ct_sort_key *keys, size_t count)
{
  uint64_t differ = 0;
  bool sorted = true;
  for (size_t i = 1; i < count; i++) {
    differ |= keys[i].key ^ keys[0].key;
    sorted &= keys[i - 1].key <= keys[i].key;
  }
  if (sorted) {
    return true;
  }

  struct ct_sort_key *scratch = malloc(count * sizeof(*scratch));
  if (scratch == NULL) {
    return false;
  }
  struct ct_sort_key *from = keys, *to = scratch;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    if ((differ >> shift & 0xff) == 0) {
      continue;
    }
    size_t place[256] = {0};
    for (size_t i = 0; i < count; i++) {
      place[from[i].key >> shift & 0xff]++;
    }
    for (size_t byte = 0, sum = 0; byte < 256; byte++) {
      size_t n = place[byte];
      place[byte] = sum;
      sum += n;
    }
    for (size_t i = 0; i < count; i++) {
      to[place[from[i].key >> shift & 0xff]++] = from[i];
    }
    struct ct_sort_key *swap = from;
    from = to;
    to = swap;
  }
  if (from != keys) {
    memcpy(keys, from, count * sizeof(*keys));
  }
  free(scratch);
  return true;
}

#endif
