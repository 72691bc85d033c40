/* SPDX-License-Identifier: MIT */
/* See running.h. */
#include "export/running.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* The stack of the context, which is the current one from now on. */
static int
switch_to(struct ct_running *running, uint32_t context, uint64_t *ns, struct ct_running_stack **out)
{
  uint32_t lane;
  bool is_new;
  if (ct_export_lane(&running->lanes, context, &lane, &is_new) != CT_OK) {
    return CT_ENOMEM;
  }
  if (lane >= running->stack_count) {
    uint32_t count = 2 * lane + 8;
    struct ct_running_stack *stacks = reallocarray(running->stacks, count, sizeof(*stacks));
    if (stacks == NULL) {
      return CT_ENOMEM;
    }
    memset(stacks + running->stack_count, 0, (count - running->stack_count) * sizeof(*stacks));
    running->stacks = stacks;
    running->stack_count = count;
  }
  running->ns = *ns > running->ns ? *ns : running->ns;
  *ns = running->ns;
  int code = 0;
  if (lane != running->current) {
    const struct ct_running_stack *left = &running->stacks[running->current], *next = &running->stacks[lane];
    for (uint32_t i = left->count; i-- > 0 && code == 0;) {
      code = running->close(running->arg, left->frames[i], *ns);
    }
    for (uint32_t i = 0; i < next->count && code == 0; i++) {
      code = running->open(running->arg, next->frames[i], *ns);
    }
    running->current = lane;
  }
  *out = &running->stacks[lane];
  return code;
}

int
ct_running_enter(struct ct_running *running, uint32_t context, uint32_t frame, uint64_t ns)
{
  struct ct_running_stack *stack;
  int code = switch_to(running, context, &ns, &stack);
  if (code != 0) {
    return code;
  }
  if (stack->count == stack->capacity) {
    uint32_t capacity = 2 * stack->capacity + 64;
    uint32_t *frames = reallocarray(stack->frames, capacity, sizeof(*frames));
    if (frames == NULL) {
      return CT_ENOMEM;
    }
    stack->frames = frames;
    stack->capacity = capacity;
  }
  stack->frames[stack->count++] = frame;
  return running->open(running->arg, frame, ns);
}

int
ct_running_leave(struct ct_running *running, uint32_t context, uint64_t ns)
{
  struct ct_running_stack *stack;
  int code = switch_to(running, context, &ns, &stack);
  return code != 0 || stack->count == 0 ? code : running->close(running->arg, stack->frames[--stack->count], ns);
}

int
ct_running_switch(struct ct_running *running, uint32_t context, uint64_t ns)
{
  struct ct_running_stack *stack;
  return switch_to(running, context, &ns, &stack);
}

int
ct_running_point(struct ct_running *running, uint32_t context, uint32_t frame, uint64_t ns)
{
  int code = ct_running_enter(running, context, frame, ns);
  return code != 0 ? code : ct_running_leave(running, context, ns);
}

int
ct_running_gap(struct ct_running *running, uint32_t frame, uint64_t begin_ns, uint64_t end_ns)
{
  begin_ns = begin_ns > running->ns ? begin_ns : running->ns;
  running->ns = end_ns > begin_ns ? end_ns : begin_ns;
  int code = running->open(running->arg, frame, begin_ns);
  return code != 0 ? code : running->close(running->arg, frame, running->ns);
}

void
ct_running_clear(struct ct_running *running)
{
  for (uint32_t i = 0; i < running->stack_count; i++) {
    free(running->stacks[i].frames);
  }
  free(running->stacks);
  ct_export_lanes_clear(&running->lanes);
  running->stacks = NULL;
  running->stack_count = running->current = 0;
  running->ns = 0;
}

int
ct_running_entered(struct ct_running *running, struct ct_export_frames *frames, const struct ct_walk_place *place,
                   const struct ct_span_frame *frame, uint64_t context)
{
  uint32_t number = ct_export_frame(frames, frame->fn);
  return number == CT_FRAMES_NONE
             ? CT_ENOMEM
             : ct_running_enter(running, (uint32_t)context, number, ct_walk_ns(place, frame->enter_tsc));
}
