/* SPDX-License-Identifier: MIT */
/* Linear probing with backward shift deletion; see contexts.h. */
#include "trace/contexts.h"

#include "base/error.h"

#include <stdlib.h>

static uint32_t
home_of(const struct ct_contexts *contexts, uint32_t context)
{
  return (uint32_t)((context * 0x9e3779b97f4a7c15ull) >> 32) & (contexts->capacity - 1);
}

static void
insert(struct ct_contexts *contexts, const struct ct_saved_stack *stack)
{
  uint32_t i = home_of(contexts, stack->context);
  while (contexts->slots[i].frames != NULL) {
    i = (i + 1) & (contexts->capacity - 1);
  }
  contexts->slots[i] = *stack;
  contexts->count++;
}

static int
grow(struct ct_contexts *contexts)
{
  struct ct_contexts bigger = {.capacity = contexts->capacity == 0 ? 16 : contexts->capacity * 2};
  bigger.slots = calloc(bigger.capacity, sizeof(*bigger.slots));
  if (bigger.slots == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t i = 0; i < contexts->capacity; i++) {
    if (contexts->slots[i].frames != NULL) {
      insert(&bigger, &contexts->slots[i]);
    }
  }
  free(contexts->slots);
  *contexts = bigger;
  return CT_OK;
}

int
ct_contexts_put(struct ct_contexts *contexts, const struct ct_saved_stack *stack)
{
  if ((uint64_t)(contexts->count + 1) * 4 > (uint64_t)contexts->capacity * 3) {
    int err = grow(contexts);
    if (err != CT_OK) {
      return err;
    }
  }
  insert(contexts, stack);
  return CT_OK;
}

bool
ct_contexts_take(struct ct_contexts *contexts, uint32_t context, struct ct_saved_stack *out)
{
  if (contexts->count == 0) {
    return false;
  }
  uint32_t mask = contexts->capacity - 1;
  uint32_t i = home_of(contexts, context);
  while (contexts->slots[i].frames != NULL && contexts->slots[i].context != context) {
    i = (i + 1) & mask;
  }
  if (contexts->slots[i].frames == NULL) {
    return false;
  }
  *out = contexts->slots[i];
  contexts->count--;
  /* Close the gap: an entry moves back unless its home lies after the gap. */
  uint32_t gap = i;
  for (uint32_t j = (i + 1) & mask; contexts->slots[j].frames != NULL; j = (j + 1) & mask) {
    uint32_t home = home_of(contexts, contexts->slots[j].context);
    if (((j - home) & mask) >= ((j - gap) & mask)) {
      contexts->slots[gap] = contexts->slots[j];
      gap = j;
    }
  }
  contexts->slots[gap].frames = NULL;
  return true;
}

void
ct_contexts_clear(struct ct_contexts *contexts)
{
  for (uint32_t i = 0; i < contexts->capacity; i++) {
    free(contexts->slots[i].frames);
  }
  free(contexts->slots);
  *contexts = (struct ct_contexts){0};
}
