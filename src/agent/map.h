/* SPDX-License-Identifier: MIT */
/* Inside the agent: the map of stacks and stores (ring/stacks.h), and what stack.c and store.c offer each other. */
#ifndef CT_AGENT_MAP_H
#define CT_AGENT_MAP_H

#include "agent/agent.h"
#include "ring/stacks.h"

static inline struct ct_stack_map *
agent_map(void)
{
  return (struct ct_stack_map *)agent_config.stacks;
}

static inline struct ct_stack *
agent_map_stack(uint32_t index)
{
  return &agent_map()->stacks[index - 1];
}

static inline uint32_t
agent_map_index(const struct ct_stack *stack)
{
  return (uint32_t)(stack - agent_map()->stacks) + 1;
}

/* Without the lock. The known stack that has the address, or NULL. */
AGENT_HIDDEN struct ct_stack *agent_map_find(uint64_t address);
/* The first address in [lo, hi) that has a stack (of the tree of stacks, pages: 1) or a chunk (of that of stores, 0);
 * hi when none has. */
AGENT_HIDDEN uint64_t agent_map_next(const uint32_t *root, uint64_t lo, uint64_t hi, int pages);
/* Where the last page in [lo, hi) that has a stack ends; lo when none has. */
AGENT_HIDDEN uint64_t agent_map_previous(uint64_t lo, uint64_t hi);

/* With the lock. The word for the 4 MiB with the address; NULL when there is none, or with make: no room for it. */
AGENT_HIDDEN uint32_t *agent_map_word(uint32_t *root, uint64_t address, int make);
/* A word has become 0. */
AGENT_HIDDEN void agent_map_prune(uint32_t *root, uint64_t address);
/* The pages in [lo, hi) that are stack `from`'s (0: all) are `to`'s from now on. 0: no room for that. */
AGENT_HIDDEN int agent_map_hand(uint64_t lo, uint64_t hi, uint32_t from, uint32_t to);
/* A new stack, without a state, that takes its pages from whoever has them; NULL when there is no room for it. */
AGENT_HIDDEN struct ct_stack *agent_map_new(uint64_t lo, uint64_t hi);
AGENT_HIDDEN void agent_map_drop(struct ct_stack *stack);

/* stack.c: the lock, with all signals blocked. And with it: no control page has the stack's range from here on. */
AGENT_HIDDEN void agent_map_lock(void);
AGENT_HIDDEN void agent_map_unlock(void);
AGENT_HIDDEN void agent_stack_disown(struct ct_stack *stack);
/* This page has not. 1: it had it until now. */
AGENT_HIDDEN int agent_stack_leave(struct ct_control_page *control, const struct ct_stack *stack);

/*
 * going.c: between the callout of munmap and what the kernel does, the memory is there and yet no part of a stack. The
 * thread says so before it looks for stacks in it; whoever has just made a stack known looks here after that. So one of
 * the two sees the other. Without the lock:
 */
AGENT_HIDDEN void agent_going_put(uint64_t lo, uint64_t hi);
/* Takes what may be going out of the mapping, but not sp's side of it. Who has gone on since then is done with it: so
 * the mapping has to be asked for after this. */
AGENT_HIDDEN void agent_going_cut(uint64_t sp, struct ct_stack_range *range);

/* store.c, with the lock. Maps the store of the stack; 0 when something of the target's lies there. */
AGENT_HIDDEN int agent_store_take(struct ct_stack *stack);
/* Nothing on the stack needs its store any more; what lies in [lo, hi) of the stack is gone and its memory is given
 * back. No control page has the stack's range. */
AGENT_HIDDEN void agent_store_give(struct ct_stack *stack, uint64_t lo, uint64_t hi);
/* The pages [lo, hi) of ours become the target's. */
AGENT_HIDDEN void agent_store_leave(uint64_t lo, uint64_t hi);
/* The target is about to have [lo, hi): no store is put there. Counts up what several threads ask for; 0, 0: one of
 * them is done. */
AGENT_HIDDEN void agent_store_reserve(uint64_t lo, uint64_t hi);
/* Is any page in [lo, hi) ours? Without the lock too. */
AGENT_HIDDEN int agent_store_has(uint64_t lo, uint64_t hi);

#endif
