/* SPDX-License-Identifier: MIT */
/* See pages.h. */
#include "base/pages.h"

#include <stdlib.h>
#include <sys/mman.h>

#define LARGE_PAGE ((size_t)2 << 20)

void *
ct_pages_alloc(size_t size)
{
  if (size < 2 * LARGE_PAGE) {
    return malloc(size);
  }
  void *memory = NULL;
  if (posix_memalign(&memory, LARGE_PAGE, size) != 0) {
    return NULL;
  }
  madvise(memory, size, MADV_HUGEPAGE); /* what it does not cover stays as it is */
  return memory;
}
