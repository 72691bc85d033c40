/* SPDX-License-Identifier: MIT */
/*
 * From the ops of a block to sums: the hot loop of a report without an index, where an instruction more for each event
 * shows. So it keeps less than direct.c, and puts the rest right when it is left:
 *
 *   frames   of those entered here only when, which call and function. The time off the processor is the same for all
 *            of them, since no op here changes it.
 *   child    the time in calls of the innermost frame is in a register. It goes into the frame when that calls.
 *   leaves   a call whose return comes next has no frame.
 *   fresh    the outermost call of a function that was entered here ends as the outermost one. So its fresh time is its
 *            duration, and presence is only counted.
 *   sums     a function's numbers are in one cache line, with counters for a stretch of the histogram's buckets. Calls
 *            that are shorter or longer than all before, and the first ones of a function, take the slow way, which
 *            makes it longer: so one comparison is for the least, the most and the stretch.
 *   bottom   the frame below the bottom takes what is called from there, so nobody asks whether there is a caller.
 *   end      the op after the block's last one is none, so the loop ends where it meets it.
 */
#include "base/error.h"
#include "span/direct.h"
#include "span/plain.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SLOW_CALLS = 64 }; /* of a function, before it has counters */

struct ct_span_sum {
  /* In this order no two that are added to lie side by side: the compiler would add them in a vector, which is slower.
   */
  uint64_t child; /* time in the calls inside of those that ended: with self, their durations */
  uint64_t least;
  uint64_t self;
  uint64_t extent;    /* the longest duration less the least, and 1; 0: there is none */
  uint64_t nested;    /* durations of those that ended in a call of the same function */
  uint64_t calls;     /* that have no place in the counters: the first ones, and what a full one did not count */
  uint32_t *counters; /* of the buckets first .. first + width - 1 */
  uint32_t first, width;
};
static_assert(sizeof(struct ct_span_sum) == 64, "one cache line per function");

/* The clock reading of the last event, and the ordinal of the next call: together in a register that has no other use.
 */
typedef uint64_t place __attribute__((vector_size(16)));
static_assert(offsetof(struct ct_span_frame, ordinal) == offsetof(struct ct_span_frame, enter_tsc) + 8, "one store");

/* In registers. */
struct loop {
  struct ct_span_frame *bottom, *top, *limit;
  struct ct_span_frame *low; /* frames from there on were entered in the loop */
  uint64_t child;            /* of the innermost frame */
  place at;
  const uint8_t *op, *delta;
  const uint32_t *id;
  const uint8_t *extra;
  uint32_t last, fn_count, values, nears;
  /* Of the clock, since the loop began, in CT_COST_UNIT of whole ticks, as `began` of the frames entered here; ahead:
   * what it makes of the next reading's ticks. */
  uint64_t now;
  int64_t ahead, least_ahead;
  struct ct_span_clock clock; /* as it was when the loop began */
  struct ct_span_sum *sums;
  struct ct_span_presence *present;
  uint32_t *prediction;
};

/* ---- The slow way ---- */

static uint32_t
bucket_of(uint64_t ticks)
{
  unsigned block = ct_histogram_block(ticks);
  return block * CT_HISTOGRAM_BUCKETS + ct_histogram_bucket(ticks, block);
}

/* Counters for this bucket too. */
static int
widen(struct ct_spans *spans, struct ct_span_sum *sum, uint32_t bucket)
{
  uint32_t begin = bucket / CT_HISTOGRAM_BUCKETS * CT_HISTOGRAM_BUCKETS, end = begin + CT_HISTOGRAM_BUCKETS;
  if (sum->width != 0) {
    begin = sum->first < begin ? sum->first : begin;
    end = sum->first + sum->width > end ? sum->first + sum->width : end;
  }
  uint32_t *counters = calloc(end - begin, sizeof(*counters));
  if (counters == NULL) {
    return CT_ENOMEM;
  }
  if (sum->width != 0) {
    memcpy(counters + (sum->first - begin), sum->counters, sum->width * sizeof(*counters));
    free(sum->counters);
  } else {
    spans->summed[spans->summed_count++] = (uint32_t)(sum - spans->sums);
    sum->calls = 0;
  }
  sum->counters = counters;
  sum->first = begin;
  sum->width = end - begin;
  return 0;
}

/* A call of which all numbers go to the statistics themselves. */
static int
add_plain(struct ct_stats *stats, uint32_t id, const struct ended *ended)
{
  struct ct_fn_stats *fn = ct_stats_touch(stats, id);
  return fn != NULL ? add_ended(stats, fn, ended) : CT_ENOMEM;
}

/* It is the shortest or the longest one so far, or the first. */
static __attribute__((noinline, cold)) void
add_slowly(struct ct_spans *spans, uint32_t id, uint64_t ticks, uint64_t child, bool is_nested)
{
  struct ct_span_sum *sum = &spans->sums[id];
  bool is_first = sum->width == 0, is_few = is_first && ++sum->calls <= SLOW_CALLS;
  uint32_t bucket = bucket_of(ticks);
  bool is_there = !is_first && bucket >= sum->first && bucket - sum->first < sum->width;
  if (is_few || (!is_there && widen(spans, sum, bucket) != 0)) {
    struct ended ended = {.duration = ticks, .self = ticks - child, .fresh = is_nested ? 0 : ticks};
    if (add_plain(spans->stats, id, &ended) != 0) {
      spans->stats_code = CT_ENOMEM;
    }
    return;
  }
  uint64_t least = sum->least, most = sum->least + sum->extent - 1;
  least = is_first || ticks < least ? ticks : least;
  most = is_first || ticks > most ? ticks : most;
  sum->least = least;
  sum->extent = most - least + 1;
  uint32_t *counter = &sum->counters[bucket - sum->first];
  if (*counter == UINT32_MAX) {
    sum->calls++;
  } else {
    ++*counter;
  }
  sum->child += child;
  sum->self += ticks - child;
  sum->nested += is_nested ? ticks : 0;
}

/* The innermost frame is from before the loop. Its duration. */
static __attribute__((noinline)) uint64_t
end_before(struct ct_spans *spans, const struct ct_span_frame *frame, uint64_t now, uint64_t child, uint64_t off)
{
  struct ct_span_presence *present = ct_spans_presence(spans, frame->fn);
  uint64_t duration = now - frame->began;
  bool is_outermost = --present->frames == 0;
  struct ended ended = {.duration = duration,
                        .self = duration > child ? duration - child : 0,
                        .fresh = is_outermost ? now - present->since : 0,
                        .fresh_off = is_outermost ? off - present->off_since : 0};
  if (add_plain(spans->stats, frame->fn, &ended) != 0) {
    spans->stats_code = CT_ENOMEM;
  }
  return duration;
}

/* A frame of this function was left by a tail call. */
static __attribute__((noinline, cold)) void
first_tail(struct ct_spans *spans, uint32_t fn)
{
  uint64_t *unwound = ct_stats_touch(spans->stats, fn) != NULL ? ct_stats_unwound(spans->stats, fn) : NULL;
  if (unwound == NULL) {
    spans->stats_code = CT_ENOMEM;
    return;
  }
  unwound[CT_SPAN_TAIL]++;
}

/* ---- The fast way ---- */

PLAIN_INLINE void
next_tsc(struct loop *l)
{
  uint64_t delta;
  l->delta = ct_ops_delta(l->delta, &delta);
  l->at += (place){delta, 0};
  l->ahead = (int64_t)((uint64_t)l->ahead + delta * CT_COST_UNIT);
}

/*
 * ct_span_clock_read at the tsc at hand. Whether a stretch was longer than its hooks should have been is not to be
 * predicted where functions are short: so no branch here asks. ahead is (tsc - now) * CT_COST_UNIT - taken.
 */
PLAIN_INLINE void
read_clock(struct loop *l, int64_t ahead)
{
  int64_t more = ahead & -CT_COST_UNIT;
  more = more < 0 ? 0 : more;
  l->now += (uint64_t)more;
  ahead -= more;
  l->ahead = ahead < l->least_ahead ? l->least_ahead : ahead;
}

/* ct_span_clock_call likewise. */
PLAIN_INLINE uint64_t
clock_call(struct loop *l, unsigned kind)
{
  read_clock(l, l->ahead - l->clock.before[kind]);
  l->ahead -= l->clock.after[kind];
  return l->now;
}

/* child: of the ticks, those in calls inside. around: of the function's calls there are so many. */
PLAIN_INLINE void
add(struct loop *l, struct ct_spans *spans, uint32_t fn, uint64_t ticks, uint64_t child, uint64_t around)
{
  struct ct_span_sum *sum = &l->sums[fn];
  if (CT_UNLIKELY(ticks - sum->least >= sum->extent)) {
    add_slowly(spans, fn, ticks, child, around != 0);
    return;
  }
  /* As ct_histogram_block and ct_histogram_bucket have it, in one; the longest and the shortest have counters. */
  unsigned shift = (63u ^ (unsigned)__builtin_clzll(ticks | 64)) - 6;
  uint32_t n = shift * CT_HISTOGRAM_BUCKETS + (uint32_t)(ticks >> shift) - sum->first;
  if (CT_UNLIKELY(++sum->counters[n] == 0)) {
    sum->counters[n] = UINT32_MAX;
    sum->calls++;
  }
  sum->child += child;
  if (around != 0) {
    sum->nested += ticks;
  }
  sum->self += ticks - child;
}

/* The innermost frame was entered in the loop; if not, it may be as the block has it. */
PLAIN_INLINE bool
may_end(const struct loop *l, const struct ct_spans *spans, const struct ct_ops *ops)
{
  return CT_LIKELY(l->top > l->low) ||
         (l->top != l->bottom && ct_direct_agrees(ops, spans->stacks.current, l->top - 1));
}

static inline uint64_t
own_time(const struct loop *l, uint64_t now)
{
  return l->clock.now + now / CT_COST_UNIT;
}

/* Its function. */
PLAIN_INLINE uint32_t
end_one(struct loop *l, struct ct_spans *spans, uint64_t now)
{
  struct ct_span_frame *frame = l->top - 1;
  uint32_t fn = frame->fn;
  uint64_t ticks;
  if (CT_UNLIKELY(l->top <= l->low)) {
    ticks = end_before(spans, frame, own_time(l, now), l->child, l->clock.off);
    l->low = frame;
  } else {
    ticks = (now - frame->began) / CT_COST_UNIT;
    add(l, spans, fn, ticks, l->child, --l->present[fn].frames);
  }
  l->top = frame;
  l->child = frame[-1].child_ticks + ticks;
  return fn;
}

PLAIN_INLINE void
begin_one(struct loop *l, uint32_t fn, uint64_t now)
{
  struct ct_span_frame *frame = l->top++;
  frame[-1].child_ticks = l->child;
  memcpy(&frame->enter_tsc, &l->at, sizeof(l->at));
  l->at += (place){0, 1};
  frame->began = now;
  frame->fn = fn;
  l->child = 0;
  l->present[fn].frames++;
}

/* The function of the call at hand, which the op has or the block predicts; not less than fn_count: not for us. */
PLAIN_INLINE uint32_t
called(const struct loop *l, uint32_t **slot, uint32_t with_id)
{
  *slot = &l->prediction[ct_prediction_slot(l->last)];
  return ct_direct_called(l->id, **slot, with_id);
}

PLAIN_INLINE bool
take_return(struct loop *l, struct ct_spans *spans, const struct ct_ops *ops)
{
  if (!may_end(l, spans, ops)) {
    return false;
  }
  next_tsc(l);
  l->last = end_one(l, spans, clock_call(l, CT_EV_RETURN)) * 2 + 1;
  return true;
}

PLAIN_INLINE bool
take_enter(struct loop *l, struct ct_spans *spans, uint32_t with_id)
{
  uint32_t *slot, fn = called(l, &slot, with_id);
  bool is_leaf = l->op[1] == CT_TRACE_OP_RETURN;
  if (CT_UNLIKELY(fn >= l->fn_count) || (!is_leaf && CT_UNLIKELY(l->top == l->limit))) {
    return false;
  }
  *slot = fn;
  l->id += with_id;
  next_tsc(l);
  uint64_t now = clock_call(l, CT_EV_ENTER);
  if (!is_leaf) {
    begin_one(l, fn, now);
    l->last = fn * 2;
    return true;
  }
  next_tsc(l);
  uint64_t ticks = (clock_call(l, CT_EV_RETURN) - now) / CT_COST_UNIT;
  add(l, spans, fn, ticks, 0, l->present[fn].frames);
  l->child += ticks;
  l->at += (place){0, 1};
  l->last = fn * 2 + 1;
  l->op++;
  return true;
}

PLAIN_INLINE bool
take_tail(struct loop *l, struct ct_spans *spans, const struct ct_ops *ops, uint32_t with_id)
{
  uint32_t *slot, fn = called(l, &slot, with_id);
  if (CT_UNLIKELY(fn >= l->fn_count) || !may_end(l, spans, ops)) {
    return false;
  }
  *slot = fn;
  l->id += with_id;
  next_tsc(l);
  uint64_t now = clock_call(l, CT_EV_TAIL);
  uint32_t ended = end_one(l, spans, now);
  uint64_t *unwound = ended < l->fn_count ? spans->stats->unwound[ended] : NULL;
  if (CT_LIKELY(unwound != NULL)) {
    unwound[CT_SPAN_TAIL]++;
  } else {
    first_tail(spans, ended);
  }
  begin_one(l, fn, now);
  l->last = fn * 2;
  return true;
}

/* Of a call that was seen: it is nobody's time, and no event. */
PLAIN_INLINE bool
take_value(struct loop *l, const struct ct_spans *spans, const struct ct_ops *ops)
{
  const uint8_t *extra = ct_ops_pass_value(l->extra, ops->extra_end);
  if (CT_UNLIKELY(extra == NULL) || (l->top == l->bottom && spans->stacks.current->base == 0)) {
    return false;
  }
  l->extra = extra;
  next_tsc(l);
  l->ahead -= l->clock.value;
  l->values++;
  return true;
}

/* The same of one that is written by its difference. */
PLAIN_INLINE bool
take_near(struct loop *l, const struct ct_spans *spans, const struct ct_ops *ops, uint32_t op)
{
  const struct ct_span_frame *top = l->top - 1;
  if (l->top == l->bottom || (top < l->low && !ct_direct_agrees(ops, spans->stacks.current, top))) {
    return false;
  }
  const uint8_t *extra = ct_ops_pass_near(op, l->extra, ops->extra_end, ops->near, top->fn);
  if (CT_UNLIKELY(extra == NULL)) {
    return false;
  }
  l->extra = extra;
  l->ahead -= l->clock.value;
  l->nears++;
  return true;
}

/* A call that has no frame, and no time. Of the first one of a function the statistics do not know yet. */
PLAIN_INLINE bool
take_point(struct loop *l, struct ct_spans *spans, uint32_t with_id)
{
  uint32_t *slot, fn = called(l, &slot, with_id);
  if (CT_UNLIKELY(fn >= l->fn_count) || !ct_unwind_reason_is_none(&spans->unwind_reason, fn) ||
      spans->stats->fns[fn].histogram == NULL) {
    return false;
  }
  *slot = fn;
  l->id += with_id;
  next_tsc(l);
  read_clock(l, l->ahead - l->clock.point);
  spans->stats->fns[fn].points++;
  l->at += (place){0, 1};
  l->last = fn * 2;
  return true;
}

/* Frames that were entered in the loop and are open get what the loop did not write. */
static void
complete_frames(const struct loop *l)
{
  for (struct ct_span_frame *frame = l->top; frame-- != l->low;) {
    struct ct_span_presence *present = &l->present[frame->fn];
    frame->began = own_time(l, frame->began);
    if (--present->frames == 0) {
      present->since = frame->began;
      present->off_since = l->clock.off;
    }
    frame->off = l->clock.off;
    frame->flags = 0;
    frame->node = frame->last = CT_TREE_NONE;
  }
  for (const struct ct_span_frame *frame = l->low; frame != l->top; frame++) {
    l->present[frame->fn].frames++;
  }
  if (l->top != l->bottom) {
    l->top[-1].child_ticks = l->child;
  }
}

static int
leave(struct ct_spans *spans, const struct loop *l, struct ct_ops *ops)
{
  struct ct_span_stack *stack = spans->stacks.current;
  uint64_t tsc = l->at[0], now = own_time(l, l->now);
  complete_frames(l);
  spans->clock.now = now;
  spans->clock.taken = (tsc - now) * CT_COST_UNIT - (uint64_t)l->ahead;
  spans->ordinal = l->at[1];
  spans->before = 0;
  spans->total_events += (uint64_t)(l->op - ops->op) - l->values - l->nears;
  spans->last_tsc = l->op != ops->op ? tsc : spans->last_tsc;
  stack->count = (uint32_t)(l->top - l->bottom);
  uint32_t kept = stack->base + (uint32_t)(l->low - l->bottom) - ops->base;
  *ops = (struct ct_ops){.op = l->op,
                         .delta = l->delta,
                         .id = l->id,
                         .extra = l->extra,
                         .has_near = l->nears != 0,
                         .last = l->last,
                         .tsc = tsc,
                         .ordinal = l->at[1],
                         .count = stack->base + stack->count - ops->base};
  return ct_cursor_took(spans->cursor, ops, kept, ct_direct_frame_at, stack);
}

static int
reserve_sums(struct ct_spans *spans)
{
  if (spans->sums != NULL) {
    return 0;
  }
  size_t slots = (size_t)spans->fn_count + 1;
  /* As zero pages, which cost nothing where no function is seen. */
  spans->sums_memory = calloc(slots + 1, sizeof(*spans->sums));
  spans->summed = malloc(slots * sizeof(*spans->summed));
  if (spans->sums_memory == NULL || spans->summed == NULL) {
    free(spans->sums_memory);
    free(spans->summed);
    spans->sums_memory = NULL;
    spans->summed = NULL;
    return CT_ENOMEM;
  }
  spans->sums = (void *)(((uintptr_t)spans->sums_memory + 63) & ~(uintptr_t)63);
  return 0;
}

int
ct_direct_sum(struct ct_spans *spans, struct ct_stats *stats, struct ct_ops *ops)
{
  struct ct_span_stack *const stack = spans->stacks.current;
  if (reserve_sums(spans) != 0 || stats != spans->stats) {
    return CT_ENOMEM;
  }
  struct loop l = {.bottom = stack->frames,
                   .top = stack->frames + stack->count,
                   .limit = stack->frames + stack->capacity,
                   .low = stack->frames + stack->count,
                   .child = stack->count != 0 ? stack->frames[stack->count - 1].child_ticks : 0,
                   .at = {ops->tsc, ops->ordinal},
                   .op = ops->op,
                   .delta = ops->delta,
                   .id = ops->id,
                   .extra = ops->extra,
                   .last = ops->last,
                   .fn_count = spans->fn_count,
                   .ahead = (int64_t)((ops->tsc - spans->clock.now) * CT_COST_UNIT - spans->clock.taken),
                   .least_ahead = -spans->clock.debt_max,
                   .clock = spans->clock,
                   .sums = spans->sums,
                   .present = spans->present,
                   .prediction = ops->prediction};
  for (;; l.op++) {
    uint32_t op = *l.op;
    if (op == CT_TRACE_OP_RETURN) {
      if (!take_return(&l, spans, ops)) {
        break;
      }
    } else if (op <= CT_TRACE_OP_ENTER) {
      if (!take_enter(&l, spans, op >> 1)) {
        break;
      }
    } else if (op <= CT_TRACE_OP_TAIL) {
      if (!take_tail(&l, spans, ops, op == CT_TRACE_OP_TAIL)) {
        break;
      }
    } else if (op <= CT_TRACE_OP_POINT) {
      if (!take_point(&l, spans, op == CT_TRACE_OP_POINT)) {
        break;
      }
    } else if (op == CT_TRACE_OP_VALUE) {
      if (!take_value(&l, spans, ops)) {
        break;
      }
    } else if (ct_op_has_time((uint8_t)op) || op >= CT_TRACE_OP_COUNT || !take_near(&l, spans, ops, op)) {
      break;
    }
  }
  return leave(spans, &l, ops);
}

/* ---- The end ---- */

static int
hand_over(struct ct_stats *stats, uint32_t id, const struct ct_span_sum *sum)
{
  struct ct_fn_stats *fn = ct_stats_touch(stats, id);
  int code = fn != NULL ? 0 : CT_ENOMEM;
  for (uint32_t i = 0; i < sum->width && code == 0; i++) {
    code = sum->counters[i] != 0 ? ct_histogram_add_many(fn->histogram, sum->first + i, sum->counters[i]) : 0;
  }
  if (code == 0) {
    uint64_t ticks = sum->self + sum->child, most = sum->least + sum->extent - 1;
    fn->histogram->count += sum->calls;
    fn->histogram->sum += ticks;
    fn->total_ticks += ticks - sum->nested;
    fn->self_ticks += sum->self;
    fn->min_ticks = sum->least < fn->min_ticks ? sum->least : fn->min_ticks;
    fn->max_ticks = most > fn->max_ticks ? most : fn->max_ticks;
  }
  return code;
}

int
ct_direct_sums_end(struct ct_spans *spans, struct ct_stats *stats, int code)
{
  for (uint32_t i = 0; i < spans->summed_count; i++) {
    struct ct_span_sum *sum = &spans->sums[spans->summed[i]];
    code = code == 0 ? hand_over(stats, spans->summed[i], sum) : code;
    free(sum->counters);
  }
  free(spans->sums_memory);
  free(spans->summed);
  spans->sums = NULL;
  spans->sums_memory = NULL;
  spans->summed = NULL;
  spans->summed_count = 0;
  return code;
}
