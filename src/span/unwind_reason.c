/* SPDX-License-Identifier: MIT */
/* Reasons of frames unwound without a return; see unwind_reason.h. */
#include "span/unwind_reason.h"

#include <stdlib.h>
#include <string.h>

enum kind {
  KIND_UNKNOWN = 0,
  KIND_NONE = CT_UNWIND_REASON_NONE,
  KIND_JUMP,
  KIND_CONTEXT,
  KIND_RAISE,
  KIND_RETHROW,
  KIND_RESUME,
  KIND_FORCED,
  KIND_FORCED_NEXT, /* goes on after a cleanup handler of C */
  KIND_PTHREAD_EXIT,
  KIND_EXIT,
  KIND_THREAD, /* where threads begin */
  KIND_LIBC,   /* without a name */
};

enum {
  INNERMOST = 4, /* frames between the end of the stack and the function that leaves them */
  UNWINDING = 6, /* and between _Unwind_ForcedUnwind and pthread_exit, or the longjmp that ends it */
};

static const struct {
  const char *name;
  uint8_t kind;
} names[] = {
    {"longjmp", KIND_JUMP},
    {"_longjmp", KIND_JUMP},
    {"siglongjmp", KIND_JUMP},
    {"__longjmp", KIND_JUMP},
    {"__longjmp_chk", KIND_JUMP},
    {"____longjmp_chk", KIND_JUMP},
    {"__longjmp_cancel", KIND_JUMP},
    {"__libc_longjmp", KIND_JUMP},
    {"__libc_siglongjmp", KIND_JUMP},
    {"__libc_unwind_longjmp", KIND_JUMP},
    {"setcontext", KIND_CONTEXT},
    {"__setcontext", KIND_CONTEXT},
    {"_Unwind_RaiseException", KIND_RAISE},
    {"_Unwind_SjLj_RaiseException", KIND_RAISE},
    {"__gnat_Unwind_RaiseException", KIND_RAISE},
    {"_Unwind_Resume_or_Rethrow", KIND_RETHROW},
    {"_Unwind_Resume", KIND_RESUME},
    {"_Unwind_ForcedUnwind", KIND_FORCED},
    {"__gnat_Unwind_ForcedUnwind", KIND_FORCED},
    {"__pthread_unwind_next", KIND_FORCED_NEXT},
    {"pthread_exit", KIND_PTHREAD_EXIT},
    {"__pthread_exit", KIND_PTHREAD_EXIT},
    {"thrd_exit", KIND_PTHREAD_EXIT},
    {"exit", KIND_EXIT},
    {"_exit", KIND_EXIT},
    {"_Exit", KIND_EXIT},
    {"quick_exit", KIND_EXIT},
    {"start_thread", KIND_THREAD},
};

static uint8_t
find_kind(struct ct_trace *trace, uint32_t fn)
{
  const struct ct_trace_function *function = ct_trace_function(trace, fn);
  if (function == NULL) {
    return KIND_NONE;
  }
  if (function->raw_name[0] == '\0') {
    const char *module = ct_trace_module_name(trace, function->module);
    return strncmp(module, "libc.so", 7) == 0 || strncmp(module, "libpthread", 10) == 0 ? KIND_LIBC : KIND_NONE;
  }
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    if (strcmp(function->raw_name, names[i].name) == 0) {
      return names[i].kind;
    }
  }
  return KIND_NONE;
}

static inline uint8_t
kind_of(struct ct_unwind_reason *unwind_reason, uint32_t fn)
{
  if (fn >= unwind_reason->fn_count) {
    return KIND_NONE;
  }
  if (unwind_reason->kinds[fn] == KIND_UNKNOWN) {
    unwind_reason->kinds[fn] = find_kind(unwind_reason->trace, fn);
  }
  return unwind_reason->kinds[fn];
}

int
ct_unwind_reason_init(struct ct_unwind_reason *unwind_reason, struct ct_trace *trace)
{
  *unwind_reason =
      (struct ct_unwind_reason){.trace = trace, .fn_count = ct_trace_function_count(trace), .at_end = CT_SPAN_OPEN};
  unwind_reason->kinds = calloc((size_t)unwind_reason->fn_count + 1, 1);
  if (unwind_reason->kinds == NULL) {
    return CT_ENOMEM;
  }
  const json_t *manifest = ct_trace_manifest(trace), *end = json_object_get(manifest, "exit");
  /* With more than one image a thread may have ended by the exec of another one. */
  if (ct_trace_is_complete(trace) && json_array_size(json_object_get(manifest, "images")) == 1) {
    if (json_object_get(end, "status") != NULL) {
      unwind_reason->at_end = CT_SPAN_EXITED;
    } else if (json_object_get(end, "signal") != NULL) {
      unwind_reason->at_end = CT_SPAN_KILLED;
    }
  }
  return 0;
}

void
ct_unwind_reason_destroy(struct ct_unwind_reason *unwind_reason)
{
  free(unwind_reason->kinds);
  *unwind_reason = (struct ct_unwind_reason){0};
}

static uint32_t
depth_of(const struct ct_span_stack *stack)
{
  return stack->base + stack->count;
}

/* What distinguishes the innermost of `depth` frames from others that had its place: when it was entered. 0: no such
 * frame. */
static uint64_t
identity(const struct ct_span_stack *stack, uint32_t depth)
{
  return depth > stack->base && depth <= depth_of(stack) ? stack->frames[depth - stack->base - 1].enter_tsc : 0;
}

/* By what the thread came to the innermost of `depth` frames, if it is there yet. */
static uint8_t
landed_by(const struct ct_span_stack *stack, uint32_t depth)
{
  for (uint32_t i = stack->landing_count; i-- > 0;) {
    const struct ct_span_landing *landing = &stack->landings[i];
    if (landing->depth == depth && landing->identity == identity(stack, depth)) {
      return landing->reason;
    }
  }
  return CT_SPAN_UNWOUND;
}

static bool
is_forced(uint8_t reason)
{
  return reason == CT_SPAN_CANCELLED || reason == CT_SPAN_PTHREAD_EXIT;
}

/* Is a forced unwinding under way in the frames of the stack? */
static uint8_t
rethrown(const struct ct_span_stack *stack)
{
  for (uint32_t i = stack->landing_count; i-- > 0;) {
    const struct ct_span_landing *landing = &stack->landings[i];
    if (landing->identity == identity(stack, landing->depth)) {
      return is_forced(landing->reason) ? landing->reason : CT_SPAN_EXCEPTION;
    }
  }
  return CT_SPAN_EXCEPTION;
}

/* Who began the forced unwinding that the frames below `depth` describe. */
static uint8_t
forced_by(struct ct_unwind_reason *unwind_reason, const struct ct_span_stack *stack, uint32_t depth)
{
  for (uint32_t i = 0; i < UNWINDING && depth > stack->base; i++, depth--) {
    switch (kind_of(unwind_reason, stack->frames[depth - stack->base - 1].fn)) {
    case KIND_PTHREAD_EXIT:
      return CT_SPAN_PTHREAD_EXIT;
    case KIND_FORCED_NEXT:
      return is_forced(landed_by(stack, depth - 1)) ? landed_by(stack, depth - 1) : CT_SPAN_CANCELLED;
    default:
      break;
    }
  }
  return CT_SPAN_CANCELLED;
}

/* The reason of leaving by a function of this kind that `depth` frames are below. */
static uint8_t
reason_of(struct ct_unwind_reason *unwind_reason, const struct ct_span_stack *stack, uint8_t kind, uint32_t depth)
{
  switch (kind) {
  case KIND_JUMP:
    return CT_SPAN_LONGJMP;
  case KIND_CONTEXT:
    return CT_SPAN_SETCONTEXT;
  case KIND_RAISE:
    return CT_SPAN_EXCEPTION;
  case KIND_RETHROW:
    return rethrown(stack);
  case KIND_RESUME: {
    uint8_t landed = landed_by(stack, depth);
    return landed == CT_SPAN_EXCEPTION || is_forced(landed) ? landed : CT_SPAN_UNWOUND;
  }
  case KIND_FORCED:
    return forced_by(unwind_reason, stack, depth);
  default:
    return CT_SPAN_UNWOUND;
  }
}

void
ct_unwind_reason_point(struct ct_unwind_reason *unwind_reason, struct ct_span_stack *stack, uint32_t fn)
{
  uint32_t depth = depth_of(stack);
  uint8_t reason = reason_of(unwind_reason, stack, kind_of(unwind_reason, fn), depth);
  if (reason == CT_SPAN_UNWOUND) {
    return;
  }
  stack->pending = (struct ct_span_landing){.depth = depth, .reason = reason, .identity = identity(stack, depth)};
}

/* The reason that waits for the frames to be left; only while the frame that called the unwinder is still there. */
static uint8_t
pending(const struct ct_span_stack *stack)
{
  const struct ct_span_landing *point = &stack->pending;
  uint32_t depth = depth_of(stack);
  bool valid = point->reason != 0 && depth >= point->depth && depth - point->depth <= UNWINDING &&
               point->identity == identity(stack, point->depth);
  return valid ? point->reason : CT_SPAN_UNWOUND;
}

/* The same from the frames themselves and from the last point. */
static uint8_t
find_reason(struct ct_unwind_reason *unwind_reason, const struct ct_span_stack *stack)
{
  uint8_t waiting = pending(stack);
  uint32_t depth = depth_of(stack);
  for (uint32_t i = 0; i < INNERMOST && i < stack->count; i++) {
    uint8_t kind = kind_of(unwind_reason, stack->frames[stack->count - 1 - i].fn);
    if (kind == KIND_JUMP && is_forced(waiting)) {
      return waiting;
    }
    uint8_t reason = reason_of(unwind_reason, stack, kind, depth - 1 - i);
    if (reason != CT_SPAN_UNWOUND) {
      return reason;
    }
  }
  return waiting;
}

uint8_t
ct_unwind_reason_of(struct ct_unwind_reason *unwind_reason, const struct ct_span_stack *stack,
                    const struct ct_event *event)
{
  switch (event->reason) {
  case CT_UNWOUND_EXEC:
    return CT_SPAN_EXEC;
  case CT_UNWOUND_THREAD_EXIT:
    return CT_SPAN_THREAD_EXIT;
  case CT_UNWOUND_LOST:
    return CT_SPAN_LOST;
  case CT_UNWOUND_TAIL:
    return CT_SPAN_TAIL;
  case CT_UNWOUND_SWITCHED:
    return CT_SPAN_SWITCHED;
  case CT_UNWOUND_UNSEEN:
    return CT_SPAN_UNSEEN;
  default:
    break;
  }
  uint32_t depth = depth_of(stack);
  if (stack->unwind_reason != 0 && stack->unwound_tsc == event->tsc && stack->unwound_depth == depth) {
    return stack->unwind_reason;
  }
  uint8_t reason = find_reason(unwind_reason, stack);
  if (reason != CT_SPAN_UNWOUND) {
    return reason;
  }
  /* Not where the thread landed after all: its first events there were of calls further in than this frame (lazy
   * binding takes much stack). */
  return stack->arrived_by != 0 && stack->arrived_depth == depth ? stack->arrived_by : landed_by(stack, depth);
}

void
ct_unwind_reason_applied(struct ct_span_stack *stack, uint64_t tsc, uint8_t reason)
{
  uint32_t depth = depth_of(stack);
  if (reason < CT_SPAN_UNWOUND || reason > CT_SPAN_PTHREAD_EXIT) {
    return;
  }
  stack->unwind_reason = reason;
  stack->unwound_tsc = tsc;
  stack->unwound_depth = depth;
  stack->arrived_by = 0;
  stack->pending.reason = 0;
  while (stack->landing_count != 0 && stack->landings[stack->landing_count - 1].depth >= depth) {
    stack->landing_count--;
  }
  if (reason == CT_SPAN_UNWOUND) {
    return;
  }
  if (stack->landing_count == CT_SPAN_LANDINGS) {
    memmove(stack->landings, stack->landings + 1, sizeof(stack->landings) - sizeof(stack->landings[0]));
    stack->landing_count--;
  }
  stack->landings[stack->landing_count++] =
      (struct ct_span_landing){.depth = depth, .reason = reason, .identity = identity(stack, depth)};
}

int
ct_unwind_reason_switch(struct ct_unwind_reason *unwind_reason, struct ct_span_stacks *stacks, uint64_t context,
                        uint64_t tsc)
{
  struct ct_span_stack *from = stacks->current;
  uint8_t reason = find_reason(unwind_reason, from);
  int code = ct_span_stacks_switch(stacks, context, tsc);
  if (code != 0 || stacks->current == from) {
    return code;
  }
  stacks->current->arrived_by = reason != CT_SPAN_UNWOUND ? reason : 0;
  stacks->current->arrived_depth = depth_of(stacks->current);
  return 0;
}

uint8_t
ct_unwind_reason_at_end(struct ct_unwind_reason *unwind_reason, uint32_t thread, const struct ct_span_stacks *stacks,
                        const struct ct_span_stack *ended)
{
  const struct ct_span_stack *stack = stacks->current;
  if (ct_trace_is_cut(unwind_reason->trace, thread)) {
    return CT_SPAN_OPEN;
  }
  uint8_t before = ended != stack ? find_reason(unwind_reason, ended) : CT_SPAN_UNWOUND;
  if (before != CT_SPAN_UNWOUND) {
    return before;
  }
  for (uint32_t i = stack->count; i-- > 0;) {
    uint8_t kind = kind_of(unwind_reason, stack->frames[i].fn);
    if (kind == KIND_EXIT) {
      return CT_SPAN_EXIT;
    }
    if (kind == KIND_PTHREAD_EXIT || (kind == KIND_THREAD && i + 1 == stack->count) ||
        (kind == KIND_LIBC && stack->base + stack->count == 1)) {
      return CT_SPAN_THREAD_EXIT;
    }
  }
  return ct_trace_thread(unwind_reason->trace, thread)->exited ? CT_SPAN_THREAD_EXIT : unwind_reason->at_end;
}
