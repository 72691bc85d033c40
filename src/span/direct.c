/* SPDX-License-Identifier: MIT */
/*
 * From the ops of a block to spans, without events in between: enters, returns, tail calls, points and values, as
 * plain.c and spans.c have them of events; direct_sums.c makes sums of them. One stack serves here in place of two:
 * that of the cursor is as the builder's, is not looked at, and is put right when the loop is left. Frames from before
 * are compared with the cursor's when they end, those that were entered here cannot differ. At the first op that is
 * anything else the loop ends, and what comes next is read as events.
 */
#include "span/direct.h"
#include "span/plain.h"

#include <stdlib.h>

bool
ct_direct_agrees(const struct ct_ops *ops, const struct ct_span_stack *stack, const struct ct_span_frame *frame)
{
  uint32_t depth = stack->base + (uint32_t)(frame - stack->frames);
  if (depth < ops->base) {
    return false;
  }
  const struct ct_open_frame *known = &ops->frames[depth - ops->base];
  return known->fn == frame->fn && known->enter_tsc == frame->enter_tsc && known->uncertain == 0 &&
         (frame->flags & CT_SPAN_BEFORE) == 0;
}

struct ct_open_frame
ct_direct_frame_at(const void *arg, uint32_t depth)
{
  const struct ct_span_stack *stack = arg;
  const struct ct_span_frame *frame = &stack->frames[depth - stack->base];
  return (struct ct_open_frame){.fn = frame->fn, .enter_tsc = frame->enter_tsc};
}

/* What the loop makes: a constant in each of the three that there are. */
enum product { SPANS, EDGES, GATHERED };

/* What the loop has in registers, besides what it reads. */
struct direct {
  struct plain plain;
  struct ct_span_frame *low; /* frames from there on were entered in the loop */
  struct ct_span_clock clock;
  const uint32_t *id;
  const uint8_t *extra;
  uint32_t last, values, nears;
  /* of the builder and the block, which the loop's stores might change for all that the compiler knows */
  struct ct_span_frame *limit;
  struct ct_span *out_limit;
  struct ct_span_edge *edge; /* the next one */
  struct ct_span_presence *present;
  uint32_t *prediction;
  uint32_t fn_count;
  int code; /* CT_ENOMEM: statistics could not take something */
  /* of what is gathered */
  uint64_t *longest;
  uint64_t long_from, first_ordinal;
  uint32_t least_depth, most_depth;
};

/* The innermost frame may end here; the statistics, if there are any, know its function. */
PLAIN_INLINE bool
may_end(struct direct *d, const struct ct_spans *spans, enum product product, const struct ct_stats *stats,
        const struct ct_ops *ops, uint32_t *id)
{
  struct ct_span_frame *frame = d->plain.top - 1;
  if (d->plain.top == d->plain.bottom || d->plain.out == d->out_limit) {
    return false;
  }
  *id = frame->fn < d->fn_count ? frame->fn : d->fn_count;
  if (stats != NULL && stats->fns[*id].histogram == NULL) {
    return false;
  }
  if (product == GATHERED && (frame->node == CT_TREE_NONE || (stats->selves != NULL && stats->selves[*id] == NULL))) {
    return false;
  }
  if (frame < d->low) {
    if (!ct_direct_agrees(ops, spans->stacks.current, frame)) {
      return false;
    }
    d->low = frame;
  }
  return true;
}

static __attribute__((noinline, cold)) void
touch(struct ct_span_gather *gather, uint32_t id)
{
  gather->touched[gather->touched_count++] = id;
  gather->longest[id] = 1;
}

/* To the tree and to what is gathered; a span comes out if it is one of few. */
PLAIN_INLINE void
gather_one(struct direct *d, const struct ct_spans *spans, struct ct_span_tree *const tree,
           const struct ct_stats *stats, const struct ended *ended, uint64_t tsc, uint32_t id, uint8_t end)
{
  const struct ct_span_frame *frame = d->plain.top;
  struct ct_tree_node *node = &tree->nodes[frame->node];
  uint64_t off = d->clock.off - frame->off;
  node->frames++;
  node->total += ended->duration;
  node->self += ended->self;
  node->fresh += ended->fresh;
  if (CT_UNLIKELY((off | ended->fresh_off) != 0)) {
    node->off += off;
    node->fresh_off += ended->fresh_off;
  }
  if (CT_UNLIKELY(d->longest[id] == 0)) {
    touch(spans->gather, id);
  }
  d->longest[id] = ended->duration >= d->longest[id] ? ended->duration + 1 : d->longest[id];
  d->least_depth = d->plain.depth < d->least_depth ? d->plain.depth : d->least_depth;
  d->most_depth = d->plain.depth > d->most_depth ? d->plain.depth : d->most_depth;
  if (stats->selves != NULL && CT_UNLIKELY(ct_selves_add(stats->selves[id], ended->self) != 0)) {
    d->code = CT_ENOMEM;
  }
  if (CT_UNLIKELY(ended->duration >= d->long_from || frame->ordinal < d->first_ordinal)) {
    put_span(&d->plain, spans, tsc, 0, ended, &d->present[id], d->clock.off, end);
    d->plain.out[-1].reserved = CT_SPAN_GATHERED;
  }
}

PLAIN_INLINE void
end_one(struct direct *d, struct ct_spans *spans, enum product product, struct ct_stats *stats,
        struct ct_span_tree *const tree, uint64_t now, uint64_t tsc, uint32_t id, uint8_t end)
{
  struct ct_span_presence *present = &d->present[id];
  struct ended ended = end_frame(&d->plain, present, &d->clock, now);
  if (product == EDGES) {
    *d->edge++ = (struct ct_span_edge){tsc, d->plain.top->fn, end};
  } else if (product == SPANS) {
    put_span(&d->plain, spans, tsc, 0, &ended, present, d->clock.off, end);
  } else if (CT_UNLIKELY(add_ended(stats, &stats->fns[id], &ended) != 0)) {
    d->code = CT_ENOMEM;
  }
  if (product == GATHERED) {
    gather_one(d, spans, tree, stats, &ended, tsc, id, end);
  }
}

PLAIN_INLINE void
begin_one(struct direct *d, enum product product, struct ct_span_tree *const tree, uint32_t slot, uint32_t with_id,
          uint32_t fn, uint64_t tsc, uint64_t now)
{
  d->id += with_id;
  d->prediction[slot] = fn;
  uint32_t node = node_of(&d->plain, tree, fn);
  begin_frame(&d->plain, &d->present[fn < d->fn_count ? fn : d->fn_count], fn, tsc, &d->clock, now, node);
  d->last = fn * 2;
  if (product == EDGES) {
    *d->edge++ = (struct ct_span_edge){tsc, fn, CT_SPAN_EDGE_BEGIN};
  }
}

/* ENTER and TAIL, with or without an id. */
PLAIN_INLINE bool
take_call(struct direct *d, struct ct_spans *spans, enum product product, struct ct_stats *stats,
          struct ct_span_tree *const tree, const struct ct_ops *ops, uint32_t op, uint64_t tsc)
{
  uint32_t slot = ct_prediction_slot(d->last);
  if (op <= CT_TRACE_OP_ENTER) {
    uint32_t fn = ct_direct_called(d->id, d->prediction[slot], op >> 1);
    if (fn == CT_FUNCTION_NONE || d->plain.top == d->limit) {
      return false;
    }
    begin_one(d, product, tree, slot, op >> 1, fn, tsc, ct_span_clock_call(&d->clock, CT_EV_ENTER, tsc));
    return true;
  }
  uint32_t with_id = op == CT_TRACE_OP_TAIL, fn = ct_direct_called(d->id, d->prediction[slot], with_id), id;
  if (fn == CT_FUNCTION_NONE || !may_end(d, spans, product, stats, ops, &id)) {
    return false;
  }
  uint64_t *unwound = stats != NULL ? stats->unwound[id] : NULL;
  if (stats != NULL && unwound == NULL) {
    return false;
  }
  uint64_t now = ct_span_clock_call(&d->clock, CT_EV_TAIL, tsc);
  end_one(d, spans, product, stats, tree, now, tsc, id, CT_SPAN_TAIL);
  if (stats != NULL) {
    unwound[CT_SPAN_TAIL]++;
  }
  begin_one(d, product, tree, slot, with_id, fn, tsc, now);
  return true;
}

/* Of a call that was seen: it is nobody's time, and no event. */
PLAIN_INLINE bool
take_value(struct direct *d, const struct ct_ops *ops)
{
  const uint8_t *extra = ct_ops_pass_value(d->extra, ops->extra_end);
  if (CT_UNLIKELY(extra == NULL) || d->plain.depth == 0) {
    return false;
  }
  d->extra = extra;
  d->clock.taken += (uint64_t)d->clock.value;
  d->values++;
  return true;
}

/* The same of one that is written by its difference. */
PLAIN_INLINE bool
take_near(struct direct *d, const struct ct_spans *spans, const struct ct_ops *ops, uint32_t op)
{
  const struct ct_span_frame *top = d->plain.top - 1;
  if (d->plain.top == d->plain.bottom || (top < d->low && !ct_direct_agrees(ops, spans->stacks.current, top))) {
    return false;
  }
  const uint8_t *extra = ct_ops_pass_near(op, d->extra, ops->extra_end, ops->near, top->fn);
  if (CT_UNLIKELY(extra == NULL)) {
    return false;
  }
  d->extra = extra;
  d->clock.taken += (uint64_t)d->clock.value;
  d->nears++;
  return true;
}

/* A call that has no frame, and no time, for who gathers: no span comes out. Of the first one of a function the
 * statistics do not know yet. */
PLAIN_INLINE bool
take_point(struct direct *d, const struct ct_spans *spans, struct ct_stats *stats, struct ct_span_tree *const tree,
           uint32_t with_id, uint64_t tsc)
{
  uint32_t slot = ct_prediction_slot(d->last), fn = ct_direct_called(d->id, d->prediction[slot], with_id);
  if (fn >= d->fn_count || !ct_unwind_reason_is_none(&spans->unwind_reason, fn) || stats->fns[fn].histogram == NULL) {
    return false;
  }
  uint32_t node = node_of(&d->plain, tree, fn);
  if (node == CT_TREE_NONE) {
    return false;
  }
  d->id += with_id;
  d->prediction[slot] = fn;
  d->clock.taken += (uint64_t)d->clock.point;
  ct_span_clock_read(&d->clock, tsc);
  tree->nodes[node].points++;
  stats->fns[fn].points++;
  if (CT_UNLIKELY(d->longest[fn] == 0)) {
    touch(spans->gather, fn);
  }
  d->least_depth = d->plain.depth < d->least_depth ? d->plain.depth : d->least_depth;
  d->most_depth = d->plain.depth > d->most_depth ? d->plain.depth : d->most_depth;
  d->plain.ordinal++;
  d->last = fn * 2;
  return true;
}

/* An op gives two edges at most. */
PLAIN_INLINE bool
has_room(const struct direct *d, enum product product, const struct ct_spans *spans)
{
  return product != EDGES || d->edge < spans->edges + CT_SPANS_EDGES - 1;
}

/* Before the loop, and after it: it had begun with so many frames and at that ordinal. */
static void
begin_gather(struct direct *d, const struct ct_span_gather *gather)
{
  d->longest = gather->longest;
  d->long_from = gather->long_from;
  d->first_ordinal = gather->first_ordinal;
  d->least_depth = UINT32_MAX;
}

static void
end_gather(const struct direct *d, struct ct_span_gather *gather, uint32_t frames, uint64_t ordinal)
{
  uint64_t begun = d->plain.ordinal - ordinal;
  gather->count += begun + frames - (uint64_t)(d->plain.top - d->plain.bottom);
  gather->least_depth = d->least_depth < gather->least_depth ? d->least_depth : gather->least_depth;
  gather->most_depth = d->most_depth > gather->most_depth ? d->most_depth : gather->most_depth;
}

/* The builder, the ops and the cursor are as the loop has left them. */
PLAIN_INLINE int
leave(struct ct_spans *spans, const struct direct *d, struct ct_ops *ops, const uint8_t *op_at, const uint8_t *delta_at,
      uint64_t tsc)
{
  struct ct_span_stack *stack = spans->stacks.current;
  spans->stats_code = d->code != 0 ? d->code : spans->stats_code;
  spans->clock = d->clock;
  spans->ordinal = d->plain.ordinal;
  spans->before = 0;
  spans->total_events += (uint64_t)(op_at - ops->op) - d->values - d->nears;
  spans->last_tsc = op_at != ops->op ? tsc : spans->last_tsc;
  spans->count = (size_t)(d->plain.out - spans->batch);
  stack->count = (uint32_t)(d->plain.top - d->plain.bottom);
  uint32_t kept = stack->base + (uint32_t)(d->low - d->plain.bottom) - ops->base;
  *ops = (struct ct_ops){.op = op_at,
                         .delta = delta_at,
                         .id = d->id,
                         .extra = d->extra,
                         .has_near = d->nears != 0,
                         .last = d->last,
                         .tsc = tsc,
                         .ordinal = d->plain.ordinal,
                         .count = stack->base + stack->count - ops->base};
  return ct_cursor_took(spans->cursor, ops, kept, ct_direct_frame_at, stack);
}

/* stats: with GATHERED, and a constant NULL else; tree: with GATHERED, with SPANS if there is one, else
 * likewise. edges: how many there are. */
PLAIN_INLINE int
take_ops(struct ct_spans *spans, enum product product, struct ct_stats *const stats, struct ct_span_tree *const tree,
         struct ct_ops *ops, size_t *edges)
{
  struct ct_span_stack *const stack = spans->stacks.current;
  const uint8_t *op_at = ops->op, *const op_end = ops->end, *delta_at = ops->delta;
  uint64_t tsc = ops->tsc;
  struct direct d = {.plain = {.bottom = stack->frames,
                               .top = stack->frames + stack->count,
                               .out = spans->batch + spans->count,
                               .depth = stack->base + stack->count,
                               .root = ct_spans_tree_root(stack),
                               .ordinal = ops->ordinal},
                     .low = stack->frames + stack->count,
                     .clock = spans->clock,
                     .id = ops->id,
                     .extra = ops->extra,
                     .last = ops->last,
                     .limit = stack->frames + stack->capacity,
                     .out_limit = spans->batch + CT_SPANS_BATCH,
                     .edge = spans->edges,
                     .present = spans->present,
                     .prediction = ops->prediction,
                     .fn_count = spans->fn_count};
  if (product == GATHERED) {
    begin_gather(&d, spans->gather);
  }
  for (; op_at != op_end && has_room(&d, product, spans); op_at++) {
    uint64_t delta;
    const uint8_t *delta_next = ct_ops_delta(delta_at, &delta);
    uint32_t op = *op_at;
    if (op == CT_TRACE_OP_RETURN) {
      uint32_t id;
      if (!may_end(&d, spans, product, stats, ops, &id)) {
        break;
      }
      d.last = d.plain.top[-1].fn * 2 + 1;
      uint64_t now = ct_span_clock_call(&d.clock, CT_EV_RETURN, tsc + delta);
      end_one(&d, spans, product, stats, tree, now, tsc + delta, id, CT_SPAN_RETURNED);
    } else if (op <= CT_TRACE_OP_TAIL) {
      if (!take_call(&d, spans, product, stats, tree, ops, op, tsc + delta)) {
        break;
      }
    } else if (product == GATHERED && op <= CT_TRACE_OP_POINT) {
      if (!take_point(&d, spans, stats, tree, op == CT_TRACE_OP_POINT, tsc + delta)) {
        break;
      }
    } else if (!ct_op_has_time((uint8_t)op)) {
      if (!take_near(&d, spans, ops, op)) {
        break;
      }
      continue;
    } else if (op != CT_TRACE_OP_VALUE || !take_value(&d, ops)) {
      break;
    }
    delta_at = delta_next;
    tsc += delta;
  }
  if (product == GATHERED) {
    end_gather(&d, spans->gather, stack->count, ops->ordinal);
  }
  *edges = product == EDGES ? (size_t)(d.edge - spans->edges) : 0;
  return leave(spans, &d, ops, op_at, delta_at, tsc);
}

static __attribute__((noinline)) int
make_spans(struct ct_spans *spans, struct ct_ops *ops)
{
  size_t none;
  return take_ops(spans, SPANS, NULL, NULL, ops, &none);
}

static __attribute__((noinline)) int
make_edges(struct ct_spans *spans, struct ct_ops *ops)
{
  const struct ct_span_observer *observer = spans->observer;
  size_t count;
  if (spans->edges == NULL) {
    spans->edges = malloc(CT_SPANS_EDGES * sizeof(*spans->edges));
    if (spans->edges == NULL) {
      return CT_ENOMEM;
    }
  }
  int code = take_ops(spans, EDGES, NULL, NULL, ops, &count);
  return code != 0 || count == 0
             ? code
             : observer->edges(observer->arg, spans, spans->stacks.current->context, spans->edges, count);
}

static __attribute__((noinline, nonnull(2))) int
make_spans_of_tree(struct ct_spans *spans, struct ct_span_tree *tree, struct ct_ops *ops)
{
  size_t none;
  return take_ops(spans, SPANS, NULL, tree, ops, &none);
}

static __attribute__((noinline, nonnull(2, 3))) int
gather_calls(struct ct_spans *spans, struct ct_stats *stats, struct ct_span_tree *tree, struct ct_ops *ops)
{
  size_t none;
  return take_ops(spans, GATHERED, stats, tree, ops, &none);
}

static int
take(struct ct_spans *spans, struct ct_ops *ops)
{
  return spans->stats != NULL      ? ct_direct_sum(spans, spans->stats, ops)
         : spans->observer != NULL ? make_edges(spans, ops)
         : spans->gather != NULL   ? gather_calls(spans, spans->gather->stats, spans->tree, ops)
         : spans->tree != NULL     ? make_spans_of_tree(spans, spans->tree, ops)
                                   : make_spans(spans, ops);
}

/* So many ops were taken. What is odd is read as events, and no more of them than that takes, unless it comes often. */
static void
note_run(struct ct_spans *spans, uint64_t taken)
{
  if (taken >= CT_SPANS_RUN || spans->few == 0) {
    spans->few = CT_SPANS_FEW;
  }
  if (taken == 0) {
    ct_cursor_few(spans->cursor, spans->few);
    spans->few = spans->few < UINT16_MAX ? spans->few * 2 : spans->few;
  }
}

/* Of a stack that nothing has been put on: a thread may have points only. */
static bool
make_frames(struct ct_span_stack *stack)
{
  bool is_made = ct_span_stack_push(stack) != NULL;
  stack->count = 0;
  return is_made;
}

bool
ct_spans_direct(struct ct_spans *spans, int *code)
{
  struct ct_span_stack *stack = spans->stacks.current;
  struct ct_ops ops;
  uint64_t offset = ct_cursor_block_offset(spans->cursor);
  if ((stack->frames == NULL && !make_frames(stack)) || (spans->observer != NULL && spans->observer->edges == NULL) ||
      spans->bounds.inside != NULL || spans->clock.in_gap || spans->stopped || spans->ended ||
      offset >= spans->stop_offset || offset >= spans->end_offset ||
      !ct_cursor_ops(spans->cursor, CT_SPANS_FEW, &ops) || ops.base + ops.count != stack->base + stack->count) {
    return false;
  }
  const uint8_t *from = ops.op;
  *code = take(spans, &ops);
  note_run(spans, (uint64_t)(ops.op - from));
  return *code != 0 || ops.op != from;
}
