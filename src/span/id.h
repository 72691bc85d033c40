/* SPDX-License-Identifier: MIT */
/* Ids of many spans of one thread; what an id is made of is in <contrail/span.h>. */
#ifndef CT_SPAN_ID_H
#define CT_SPAN_ID_H

#include <contrail/span.h>

#include "base/branch.h"

struct ct_span_lane {
  struct ct_span_place place; /* its ordinal is of no matter */
  unsigned shift;             /* of the ordinal in an id ... */
  uint64_t prefix;            /* ... and what is below it */
  uint64_t end;               /* ordinals below this one are so; 0: none */
};

void ct_span_lane_init(struct ct_span_lane *lane, const struct ct_trace *trace, uint32_t thread);
void ct_span_lane_init_at(struct ct_span_lane *lane, const struct ct_span_place *where);
uint64_t ct_span_lane_other_id(const struct ct_span_lane *lane, uint64_t ordinal);

/* The same as ct_span_id_in. */
static inline uint64_t
ct_span_lane_id(const struct ct_span_lane *lane, uint64_t ordinal)
{
  return CT_LIKELY(ordinal < lane->end) ? lane->prefix | (ordinal + 1) << lane->shift
                                        : ct_span_lane_other_id(lane, ordinal);
}

#endif
