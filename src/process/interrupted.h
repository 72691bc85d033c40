/* SPDX-License-Identifier: MIT */
/* Where the handlers of signals that a stopped thread is in have interrupted it: by their frames on its stacks. */
#ifndef CT_PROCESS_INTERRUPTED_H
#define CT_PROCESS_INTERRUPTED_H

#include "process/stop.h"

/* Addresses to look for among words of stacks, nearly all of which lie outside lo .. hi. */
struct ct_restorers {
  const uint64_t *list;
  size_t count;
  uint64_t lo, hi;
  int64_t distance; /* from a stack to its return store; 0: there are none */
};

struct ct_restorers ct_restorers_of(const uint64_t *list, size_t count, int64_t distance);
/* 0, or CT_ENOMEM. */
int ct_stopped_add_pc(struct ct_stopped *stopped, uint64_t pc);
/* Adds the places to stopped->pcs, of a thread whose stack pointer is sp. The same errors. */
int ct_stopped_find_interrupted(struct ct_stopped *stopped, const struct ct_mappings *mappings,
                                const struct ct_restorers *restorers, uint64_t sp);

#endif
