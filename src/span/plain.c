/* SPDX-License-Identifier: MIT */
/*
 * The hot loop of the span builder (spans.c): nearly all events of nearly all programs are enters, returns and tail
 * calls that fit the stack. Everything is in local variables; there are two of it, one that makes spans, and one that
 * adds to statistics and makes none, which is a fifth of a report's time less. To leave the loop and come back costs as
 * much as some ten events, and in optimized programs each third call may be a tail call.
 */
#include "span/plain.h"

/* The event ends the innermost frame, of this function, and with stats it is one that these know and count. */
PLAIN_INLINE bool
fits(const struct plain *plain, const struct ct_event *ev, uint32_t id, const struct ct_stats *stats,
     const struct ct_fn_stats *fn)
{
  const struct ct_span_frame *frame = plain->top - 1;
  if (ev->depth + 1 != plain->depth || plain->top == plain->bottom || frame->fn != id ||
      frame->enter_tsc != ev->enter_tsc) {
    return false;
  }
  return stats == NULL || (fn->histogram != NULL && ev->uncertain == 0 && (frame->flags & CT_SPAN_BEFORE) == 0);
}

/* stats and tree are constants NULL, or one of them is not NULL. */
PLAIN_INLINE const struct ct_event *
plain_events(struct ct_spans *spans, struct ct_stats *const stats, struct ct_span_tree *const tree,
             const struct ct_event *ev, const struct ct_event *end)
{
  struct ct_span_stack *const stack = spans->stacks.current;
  if (stack->frames == NULL || spans->observer != NULL || ct_cursor_gives_frames(spans->cursor)) {
    return ev;
  }
  struct plain plain = {.bottom = stack->frames,
                        .top = stack->frames + stack->count,
                        .out = spans->batch + spans->count,
                        .depth = stack->base + stack->count,
                        .root = ct_spans_tree_root(stack),
                        .ordinal = spans->ordinal};
  struct ct_span_frame *const limit = stack->frames + stack->capacity;
  struct ct_span *const out_limit = spans->batch + CT_SPANS_BATCH;
  struct ct_span_presence *const present = spans->present;
  const uint32_t fn_count = spans->fn_count;
  struct ct_span_clock clock = spans->clock;
  for (; ev != end; ev++) {
    uint32_t fn = ev->fn < fn_count ? ev->fn : fn_count;
    struct ct_span_presence *p = &present[fn];
    if (ev->kind == CT_EV_ENTER) {
      if (ev->depth != plain.depth || plain.top == limit) {
        break;
      }
      uint64_t now = ct_span_clock_call(&clock, CT_EV_ENTER, ev->tsc);
      begin_frame(&plain, p, ev->fn, ev->tsc, &clock, now, node_of(&plain, tree, ev->fn));
    } else if (ev->kind == CT_EV_RETURN) {
      struct ct_fn_stats *sums = stats != NULL ? &stats->fns[fn] : NULL;
      if (!fits(&plain, ev, ev->fn, stats, sums) || plain.out == out_limit) {
        break;
      }
      uint64_t now = ct_span_clock_call(&clock, CT_EV_RETURN, ev->tsc);
      struct ended ended = end_frame(&plain, p, &clock, now);
      if (stats == NULL) {
        put_span(&plain, spans, ev->tsc, ev->uncertain, &ended, p, clock.off, CT_SPAN_RETURNED);
      } else if (CT_UNLIKELY(add_ended(stats, sums, &ended) != 0)) {
        spans->stats_code = CT_ENOMEM;
      }
    } else if (ev->kind == CT_EV_TAIL) {
      uint32_t id = ev->closed_fn < fn_count ? ev->closed_fn : fn_count;
      struct ct_fn_stats *sums = stats != NULL ? &stats->fns[id] : NULL;
      uint64_t *unwound = stats != NULL ? stats->unwound[id] : NULL;
      if (!fits(&plain, ev, ev->closed_fn, stats, sums) || plain.out == out_limit ||
          (stats != NULL && unwound == NULL)) {
        break;
      }
      uint64_t now = ct_span_clock_call(&clock, CT_EV_TAIL, ev->tsc);
      struct ended ended = end_frame(&plain, &present[id], &clock, now);
      if (stats == NULL) {
        put_span(&plain, spans, ev->tsc, ev->uncertain, &ended, &present[id], clock.off, CT_SPAN_TAIL);
      } else {
        unwound[CT_SPAN_TAIL]++;
        spans->stats_code = CT_UNLIKELY(add_ended(stats, sums, &ended) != 0) ? CT_ENOMEM : spans->stats_code;
      }
      begin_frame(&plain, p, ev->fn, ev->tsc, &clock, now, node_of(&plain, tree, ev->fn));
    } else {
      break;
    }
  }
  spans->clock = clock;
  spans->ordinal = plain.ordinal;
  stack->count = (uint32_t)(plain.top - plain.bottom);
  spans->count = (size_t)(plain.out - spans->batch);
  return ev;
}

static __attribute__((noinline)) const struct ct_event *
make_spans(struct ct_spans *spans, const struct ct_event *ev, const struct ct_event *end)
{
  return plain_events(spans, NULL, NULL, ev, end);
}

static __attribute__((noinline, nonnull(2))) const struct ct_event *
add_to_sums(struct ct_spans *spans, struct ct_stats *stats, const struct ct_event *ev, const struct ct_event *end)
{
  return plain_events(spans, stats, NULL, ev, end);
}

static __attribute__((noinline, nonnull(2))) const struct ct_event *
make_spans_of_tree(struct ct_spans *spans, struct ct_span_tree *tree, const struct ct_event *ev,
                   const struct ct_event *end)
{
  return plain_events(spans, NULL, tree, ev, end);
}

const struct ct_event *
ct_spans_plain(struct ct_spans *spans, const struct ct_event *ev, const struct ct_event *end)
{
  return spans->stats != NULL  ? add_to_sums(spans, spans->stats, ev, end)
         : spans->tree != NULL ? make_spans_of_tree(spans, spans->tree, ev, end)
                               : make_spans(spans, ev, end);
}
