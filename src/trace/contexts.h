/* SPDX-License-Identifier: MIT */
/*
 * The stacks of frames of the contexts (coroutines, signal stacks) that a thread is
 * not on just now, by context number. Writer and reader each keep one table per
 * thread; what a frame is they know themselves. A context without frames is not
 * in the table, so finished coroutines cost nothing.
 */
#ifndef CT_TRACE_CONTEXTS_H
#define CT_TRACE_CONTEXTS_H

#include <stdbool.h>
#include <stdint.h>

struct ct_saved_stack {
  void *frames; /* malloc'd, owned */
  uint32_t context;
  uint32_t count;
  uint32_t capacity;
  uint32_t floor;  /* writer: first frame that the block alone knows; reader: frames below the first one it knows */
  uint64_t block;  /* block number for which floor holds */
  uint64_t losses; /* LOST ops seen when it was saved */
};

struct ct_contexts {
  struct ct_saved_stack *slots; /* open addressing; frames == NULL: free */
  uint32_t capacity;            /* 0 or a power of two, at least 4/3 of count */
  uint32_t count;
};

/* Moves the saved stack of a context to *out; false when it has none. */
bool ct_contexts_take(struct ct_contexts *contexts, uint32_t context, struct ct_saved_stack *out);
/* Saves a stack (frames not NULL; its context not in the table) and takes the frames over. 0 or CT_ENOMEM. */
int ct_contexts_put(struct ct_contexts *contexts, const struct ct_saved_stack *stack);
/* Frees all of them. */
void ct_contexts_clear(struct ct_contexts *contexts);

#endif
