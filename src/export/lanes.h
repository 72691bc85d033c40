/* SPDX-License-Identifier: MIT */
/*
 * The stacks of a thread beside its own (coroutines, signal stacks): what is on two of them overlaps in time and does
 * not nest, so each is a lane of its own on a time line. Numbers from 1 on, in the order of appearance; 0 is the
 * thread's own.
 */
#ifndef CT_EXPORT_LANES_H
#define CT_EXPORT_LANES_H

#include <stdbool.h>
#include <stdint.h>

struct ct_export_lanes {
  struct ct_export_lane {
    uint32_t context, number; /* number 0: free */
  } *table;
  uint32_t count, capacity;
  struct ct_export_lane last;
};

/* *number, and whether it is new. 0 or CT_ENOMEM. */
int ct_export_lane(struct ct_export_lanes *lanes, uint32_t context, uint32_t *number, bool *is_new);
void ct_export_lanes_clear(struct ct_export_lanes *lanes); /* for the next thread; frees; accepts a zeroed one */

#endif
