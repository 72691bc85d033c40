/* SPDX-License-Identifier: MIT */
/* Open frames per stack context; see stacks.h. A chained hash table keyed by context number. */
#include "span/stacks.h"

#include "base/error.h"

#include <stdlib.h>

enum { FIRST_BUCKETS = 8, FIRST_FRAMES = 64 };

static uint32_t
bucket_of(const struct ct_span_stacks *stacks, uint64_t context)
{
  return (uint32_t)((context * UINT64_C(0x9E3779B97F4A7C15)) >> 40) & (stacks->bucket_count - 1);
}

int
ct_span_stack_grow(struct ct_span_stack *stack)
{
  if (stack->capacity > UINT32_MAX / 2) {
    return CT_ENOMEM;
  }
  uint32_t capacity = stack->capacity == 0 ? FIRST_FRAMES : stack->capacity * 2;
  struct ct_span_frame *old = stack->frames != NULL ? stack->frames - 1 : NULL;
  struct ct_span_frame *frames = reallocarray(old, (size_t)capacity + 1, sizeof(*frames));
  if (frames == NULL) {
    return CT_ENOMEM;
  }
  frames[0] = (struct ct_span_frame){0};
  stack->frames = frames + 1;
  stack->capacity = capacity;
  return 0;
}

static int
rehash(struct ct_span_stacks *stacks)
{
  uint32_t old_count = stacks->bucket_count;
  struct ct_span_stack **old = stacks->buckets;
  struct ct_span_stack **buckets = calloc((size_t)old_count * 2, sizeof(*buckets));
  if (buckets == NULL) {
    return CT_ENOMEM;
  }
  stacks->buckets = buckets;
  stacks->bucket_count = old_count * 2;
  for (uint32_t i = 0; i < old_count; i++) {
    while (old[i] != NULL) {
      struct ct_span_stack *stack = old[i];
      old[i] = stack->next;
      uint32_t b = bucket_of(stacks, stack->context);
      stack->next = buckets[b];
      buckets[b] = stack;
    }
  }
  free(old);
  return 0;
}

static struct ct_span_stack *
find_or_add(struct ct_span_stacks *stacks, uint64_t context)
{
  for (struct ct_span_stack *s = stacks->buckets[bucket_of(stacks, context)]; s != NULL; s = s->next) {
    if (s->context == context) {
      return s;
    }
  }
  if (stacks->stack_count >= stacks->bucket_count && rehash(stacks) != 0) {
    return NULL;
  }
  struct ct_span_stack *stack = stacks->spare;
  if (stack != NULL) {
    stacks->spare = stack->next;
  } else if ((stack = calloc(1, sizeof(*stack))) == NULL) {
    return NULL;
  }
  uint32_t b = bucket_of(stacks, context);
  stack->context = context;
  stack->count = 0;
  stack->base = 0;
  stack->away_since = 0;
  stack->unwind_reason = stack->arrived_by = stack->landing_count = stack->pending.reason = 0;
  stack->next = stacks->buckets[b];
  stacks->buckets[b] = stack;
  stacks->stack_count++;
  return stack;
}

static void
recycle(struct ct_span_stacks *stacks, struct ct_span_stack *stack)
{
  struct ct_span_stack **link = &stacks->buckets[bucket_of(stacks, stack->context)];
  while (*link != stack) {
    link = &(*link)->next;
  }
  *link = stack->next;
  stacks->stack_count--;
  stack->next = stacks->spare;
  stacks->spare = stack;
}

int
ct_span_stacks_init(struct ct_span_stacks *stacks)
{
  *stacks = (struct ct_span_stacks){.bucket_count = FIRST_BUCKETS};
  stacks->buckets = calloc(FIRST_BUCKETS, sizeof(struct ct_span_stack *));
  if (stacks->buckets == NULL) {
    return CT_ENOMEM;
  }
  stacks->current = find_or_add(stacks, 0);
  if (stacks->current == NULL) {
    ct_span_stacks_destroy(stacks);
    return CT_ENOMEM;
  }
  return 0;
}

static void
free_list(struct ct_span_stack *stack)
{
  while (stack != NULL) {
    struct ct_span_stack *next = stack->next;
    free(stack->frames != NULL ? stack->frames - 1 : NULL);
    free(stack->notes);
    free(stack);
    stack = next;
  }
}

void
ct_span_stacks_destroy(struct ct_span_stacks *stacks)
{
  if (stacks->buckets != NULL) {
    for (uint32_t i = 0; i < stacks->bucket_count; i++) {
      free_list(stacks->buckets[i]);
    }
  }
  free_list(stacks->spare);
  free(stacks->buckets);
  *stacks = (struct ct_span_stacks){0};
}

int
ct_span_stacks_switch(struct ct_span_stacks *stacks, uint64_t context, uint64_t tsc)
{
  struct ct_span_stack *left = stacks->current;
  if (left->context == context) {
    return 0;
  }
  struct ct_span_stack *entered = find_or_add(stacks, context);
  if (entered == NULL) {
    return CT_ENOMEM;
  }
  if (left->count == 0) {
    recycle(stacks, left);
  } else {
    left->away_since = tsc;
  }
  stacks->current = entered;
  return 0;
}

int
ct_span_stacks_each(struct ct_span_stacks *stacks, int (*visit)(struct ct_span_stack *, void *), void *arg)
{
  int code = visit(stacks->current, arg);
  for (uint32_t i = 0; code == 0 && i < stacks->bucket_count; i++) {
    for (struct ct_span_stack *s = stacks->buckets[i]; code == 0 && s != NULL; s = s->next) {
      if (s != stacks->current) {
        code = visit(s, arg);
      }
    }
  }
  return code;
}

void
ct_span_stacks_clear(struct ct_span_stacks *stacks)
{
  for (uint32_t i = 0; i < stacks->bucket_count; i++) {
    while (stacks->buckets[i] != NULL) {
      struct ct_span_stack *stack = stacks->buckets[i];
      stack->count = 0;
      recycle(stacks, stack);
    }
  }
  stacks->current = find_or_add(stacks, 0); /* there is a spare one: the current one was among them */
}
