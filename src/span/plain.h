/* SPDX-License-Identifier: MIT */
/* What the two hot loops of the span builder share, plain.c over events and direct.c over the ops of a block. */
#ifndef CT_SPAN_PLAIN_H
#define CT_SPAN_PLAIN_H

#include "base/branch.h"
#include "span/spans_internal.h"

/* What a loop has in registers. */
struct plain {
  struct ct_span_frame *bottom, *top; /* top: one past the innermost */
  struct ct_span *out;
  uint32_t depth;
  uint32_t root; /* of the tree, as ct_spans_tree_root has it */
  uint64_t ordinal;
};

#define PLAIN_INLINE static inline __attribute__((always_inline))

/* A call that returned: its numbers. The frame is off the stack; its parent has been notified. */
struct ended {
  uint64_t duration, self, fresh, fresh_off;
};

PLAIN_INLINE struct ended
end_frame(struct plain *plain, struct ct_span_presence *present, const struct ct_span_clock *clock, uint64_t now)
{
  const struct ct_span_frame *frame = --plain->top;
  plain->depth--;
  uint64_t duration = now - frame->began;
  if (plain->top != plain->bottom) {
    plain->top[-1].child_ticks += duration;
  }
  bool is_outermost = --present->frames == 0;
  return (struct ended){
      .duration = duration,
      .self = duration > frame->child_ticks ? duration - frame->child_ticks : 0,
      .fresh = is_outermost ? now - present->since : 0,
      .fresh_off = is_outermost ? clock->off - present->off_since : 0,
  };
}

/* Into the statistics, as ct_stats_add has it. 0 or CT_ENOMEM. */
PLAIN_INLINE int
add_ended(struct ct_stats *stats, struct ct_fn_stats *fn, const struct ended *ended)
{
  fn->total_ticks += ended->fresh;
  fn->self_ticks += ended->self;
  fn->min_ticks = ended->duration < fn->min_ticks ? ended->duration : fn->min_ticks;
  fn->max_ticks = ended->duration > fn->max_ticks ? ended->duration : fn->max_ticks;
  if (CT_UNLIKELY(ended->fresh_off != 0)) {
    stats->off[fn - stats->fns] += ended->fresh_off;
  }
  return ct_histogram_add(fn->histogram, ended->duration);
}

/* The span of the frame that has just ended, at tsc. */
PLAIN_INLINE void
put_span(struct plain *plain, const struct ct_spans *spans, uint64_t tsc, uint8_t uncertain, const struct ended *ended,
         const struct ct_span_presence *present, uint64_t off, uint8_t end)
{
  const struct ct_span_frame *frame = plain->top;
  struct ct_span *out = plain->out++;
  out->parent_ordinal = CT_NO_ORDINAL;
  out->caller_fn = UINT32_MAX;
  if (frame != plain->bottom) {
    out->parent_ordinal = frame[-1].ordinal;
    out->caller_fn = frame[-1].fn;
  }
  out->recursion = (uint32_t)present->frames;
  out->ordinal = frame->ordinal;
  out->context = (uint32_t)spans->stacks.current->context;
  out->enter_tsc = frame->enter_tsc;
  out->end_tsc = tsc;
  out->duration_ticks = ended->duration;
  out->self_ticks = ended->self;
  out->fresh_ticks = ended->fresh;
  out->off_ticks = off - frame->off;
  out->fresh_off_ticks = ended->fresh_off;
  out->fn = frame->fn;
  out->depth = plain->depth;
  out->thread = spans->thread;
  out->end = end;
  out->uncertain = (uint8_t)(uncertain | (frame->flags & CT_SPAN_BEFORE));
  out->reserved = frame->node;
}

/* Of a call of fn that begins now. tree is a constant NULL, or it is not NULL. */
PLAIN_INLINE uint32_t
node_of(const struct plain *plain, struct ct_span_tree *const tree, uint32_t fn)
{
  if (tree == NULL) {
    return CT_TREE_NONE;
  }
  struct ct_span_frame *frame = plain->top - 1;
  return CT_LIKELY(plain->top != plain->bottom) ? ct_span_tree_call(tree, frame->node, &frame->last, fn)
                                                : ct_span_tree_child(tree, plain->root, fn);
}

PLAIN_INLINE void
begin_frame(struct plain *plain, struct ct_span_presence *present, uint32_t fn, uint64_t tsc,
            const struct ct_span_clock *clock, uint64_t now, uint32_t node)
{
  *plain->top++ = (struct ct_span_frame){
      .enter_tsc = tsc, .began = now, .off = clock->off, .fn = fn, .ordinal = plain->ordinal++, .node = node};
  plain->depth++;
  if (present->frames++ == 0) {
    present->since = now;
    present->off_since = clock->off;
  }
}

#endif
