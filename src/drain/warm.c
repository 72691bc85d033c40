/* SPDX-License-Identifier: MIT */
/*
 * The pages of the segments that threads take in turn are there before they are written to: in one system call for each
 * segment, which takes a tenth of the faults' time. Some at the start, and some more for each that the program has
 * filled: a process that ends after a few calls, of which a build has thousands, would spend more on these pages than
 * on anything else.
 */
#include "drain/drain_internal.h"

#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define WARM_SHARE 2 /* of the ring, at most */

void
drain_warm_up(struct ct_drain *drain, uint32_t count)
{
  uint32_t share = drain->segment_count / WARM_SHARE, end = share < CT_SEGMENT_ROUND ? share : CT_SEGMENT_ROUND;
  for (; drain->warm < end && count > 0; drain->warm++, count--) {
    uint8_t *segment = drain->segments + (size_t)drain->warm * CT_SEGMENT_STRIDE;
    bool is_there = madvise(segment, CT_SEGMENT_BYTES, MADV_POPULATE_WRITE) == 0; /* Linux 5.14 and later */
    for (size_t at = 0; at < CT_SEGMENT_BYTES && !is_there; at += CT_PAGE_BYTES) {
      __atomic_fetch_or((uint64_t *)(segment + at + CT_PAGE_BYTES - 8), 0, __ATOMIC_RELAXED);
    }
  }
}
