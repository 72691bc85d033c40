/* SPDX-License-Identifier: MIT */
/*
 * The open frames of one thread while its events are walked: one stack per stack
 * context (the thread's own stack is context 0; coroutines and alternate signal
 * stacks have others). Spans and replay keep their notes about a frame in it.
 *
 * Depths come from the trace and are not trusted: the frames of a stack are those
 * of depths base .. base + count - 1, and a depth that does not fit what is open
 * (after damage) moves the base and never sizes an allocation.
 */
#ifndef CT_SPAN_STACKS_H
#define CT_SPAN_STACKS_H

#include "base/branch.h"

#include <stddef.h>
#include <stdint.h>

struct ct_span_frame {
  uint64_t enter_tsc;
  uint64_t ordinal; /* of the call; CT_NO_ORDINAL: not known */
  uint64_t began;   /* own time (clock.h) when it was entered ... */
  uint64_t off;     /* ... and how long the thread had been off the processor until then */
  union {
    uint64_t child_ticks; /* spans: time in frames directly below */
    struct {
      uint32_t level; /* replay: shown frames above this one */
      uint32_t below; /* replay: frames between the selected root and this one */
    };
  };
  uint32_t fn;
  uint32_t flags; /* the owner's */
  uint32_t node;  /* of the calling context tree (tree.h), if there is one, ... */
  uint32_t last;  /* ... and of the last call made in it, by the hot loops: CT_TREE_NONE: none is known */
};

/* What is kept of a frame for somebody who looks on (spans.h). */
struct ct_span_note {
  uint64_t inside, inside_off; /* the selves of the calls above it on its stack that have ended, and their time off */
  uint64_t child_off;          /* time off the processor in calls directly above it, or on other stacks */
  uint32_t node, outer;        /* the observer's own, 0 at first ... */
  uint64_t left, left_off;     /* ... these too */
};

enum { CT_SPAN_LANDINGS = 16 };

/* See unwind_reason.h. A place on a stack (so many frames, of which the innermost is that one) and how the thread came
 * there. */
struct ct_span_landing {
  uint64_t identity; /* when that frame was entered */
  uint32_t depth;
  uint8_t reason;
};

struct ct_span_stack {
  struct ct_span_frame *frames; /* there is one below them that nobody looks at, so that it can be written to */
  uint32_t count;
  uint32_t capacity;
  uint32_t base; /* depth of frames[0] */
  uint64_t context;
  uint64_t away_since;        /* tsc of the switch to another stack; 0 while running */
  uint64_t away_off;          /* how long the thread had been off the processor then */
  struct ct_span_note *notes; /* as the frames; NULL: nobody looks on */
  uint32_t note_capacity;

  /* unwind_reason.h; reasons are 0 when there is none */
  uint64_t unwound_tsc;   /* of the UNWOUND that closed the frame last unwound ... */
  uint32_t unwound_depth; /* ... so many are open since ... */
  uint32_t arrived_depth; /* frames when the thread came back from another stack ... */
  uint8_t unwind_reason;  /* ... for this reason */
  uint8_t arrived_by;     /* ... unwound for this reason */
  uint8_t landing_count;
  struct ct_span_landing pending; /* the unwinder's function last called */
  struct ct_span_landing landings[CT_SPAN_LANDINGS];
  struct ct_span_stack *next;
};

struct ct_span_stacks {
  struct ct_span_stack *current;
  struct ct_span_stack **buckets;
  uint32_t bucket_count; /* a power of two */
  uint32_t stack_count;
  struct ct_span_stack *spare; /* emptied stacks, to be used again */
};

/* All return 0 or CT_ENOMEM. After init the current stack is that of context 0. */
int ct_span_stacks_init(struct ct_span_stacks *stacks);
void ct_span_stacks_destroy(struct ct_span_stacks *stacks); /* accepts a zeroed or destroyed one */
/*
 * Makes the stack of `context` current. A stack left empty is recycled, so what is
 * kept is bounded by the stacks that have open frames.
 */
int ct_span_stacks_switch(struct ct_span_stacks *stacks, uint64_t context, uint64_t tsc);
/* Calls visit for every stack, the current one first. */
int ct_span_stacks_each(struct ct_span_stacks *stacks, int (*visit)(struct ct_span_stack *, void *), void *arg);
/* Empties all of them; context 0 is the current one. */
void ct_span_stacks_clear(struct ct_span_stacks *stacks);
int ct_span_stack_grow(struct ct_span_stack *stack);

/* The innermost frame or NULL. */
static inline struct ct_span_frame *
ct_span_stack_top(struct ct_span_stack *stack)
{
  return stack->count == 0 ? NULL : &stack->frames[stack->count - 1];
}

/* How many of the open frames lie above `depth`; 0 when the depth fits none of them. */
static inline uint32_t
ct_span_stack_fit(const struct ct_span_stack *stack, uint32_t depth)
{
  return depth >= stack->base && depth - stack->base <= stack->count ? depth - stack->base : 0;
}

/* A new, unset innermost frame; NULL when memory is exhausted. */
static inline struct ct_span_frame *
ct_span_stack_push(struct ct_span_stack *stack)
{
  if (CT_UNLIKELY(stack->count == stack->capacity) && ct_span_stack_grow(stack) != 0) {
    return NULL;
  }
  return &stack->frames[stack->count++];
}

#endif
