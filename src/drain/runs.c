/* SPDX-License-Identifier: MIT */
/*
 * See runs.h. Events are first looked at four at a time: whether they are of the kind that is taken, of a known
 * function, on the stack, and not before the last one. Those are copied, since the target can still write to the
 * segment: what was looked at is what is used. Then each goes through the prediction and the stack of frames, with the
 * columns in registers; times and ids become bytes at the end (trace/runs.h). Where calls have values nothing is looked
 * at before it is taken.
 */
#include "drain/runs.h"

#include "trace/runs.h"

#include <emmintrin.h>

#define GROUP      4u
#define RETURN_BIT 3 /* of a word that is an enter or a return; the bit before is set in both */
static_assert(CT_WORD_ENTER == 1 << (RETURN_BIT - 1) && CT_WORD_RETURN == (CT_WORD_ENTER | 1 << RETURN_BIT), "kinds");
#define BATCH 64u /* so many are looked at before the first is taken: one that cannot be ends the run */
static_assert(BATCH % GROUP == 0 && BATCH <= CT_RUN_OPS, "whole groups");

/* What events are to be like, in each of four lanes. */
struct filter {
  __m128i kind, kind_mask; /* of the word's lower half */
  __m128i fn_mask, last_fn;
  __m128i low, extent; /* ra_slots less low are not greater than extent, with signs: both have the highest bit over */
  __m128i top;         /* no ra_slot is outside of this ... */
  bool has_top;        /* ... if that is asked for */
};

struct batch {
  struct ct_run run;
  uint64_t frames[BATCH]; /* function and, higher, ra_slot */
  uint64_t returns;       /* a bit for each: it is one, if it is either that or an enter */
};
static_assert(BATCH <= 64, "a bit for each");

/* Two words of 64 bits, wherever they are; each is read once. */
typedef long long two_words __attribute__((vector_size(16), aligned(8), may_alias));

static inline __m128i
load_event(const struct ct_ring_event *event)
{
  return (__m128i) * (const volatile two_words *)event;
}

static inline __m128i
all_lanes(uint32_t value)
{
  return _mm_set1_epi32((int)value);
}

static inline struct filter
make_filter(const struct drain_thread *thread, uint32_t kind, uint32_t kind_mask, uint32_t fn_mask,
            uint32_t function_count)
{
  const uint32_t highest = 1u << 31;
  return (struct filter){
      .kind = all_lanes(kind),
      .kind_mask = all_lanes(kind_mask),
      .fn_mask = all_lanes(fn_mask),
      .last_fn = all_lanes(function_count - 1),
      .low = all_lanes(thread->stack_low ^ highest),
      .extent = all_lanes((thread->stack_length == UINT32_MAX ? UINT32_MAX : thread->stack_length - 1) ^ highest),
  };
}

/* A bit for each of the lanes of two words each that is negative. */
static inline unsigned
negative(__m128i a, __m128i b)
{
  return (unsigned)_mm_movemask_pd(_mm_castsi128_pd(a)) | (unsigned)_mm_movemask_pd(_mm_castsi128_pd(b)) << 2;
}

static inline __m128i
halves(__m128i a, __m128i b, const int which)
{
  __m128 x = _mm_castsi128_ps(a), y = _mm_castsi128_ps(b);
  return _mm_castps_si128(which == 0 ? _mm_shuffle_ps(x, y, _MM_SHUFFLE(2, 0, 2, 0))
                                     : _mm_shuffle_ps(x, y, _MM_SHUFFLE(3, 1, 3, 1)));
}

/* The higher word of a and the lower one of b. */
static inline __m128i
between(__m128i a, __m128i b)
{
  return _mm_castpd_si128(_mm_shuffle_pd(_mm_castsi128_pd(a), _mm_castsi128_pd(b), 1));
}

static inline void
store(uint64_t *p, __m128i a, __m128i b)
{
  _mm_storeu_si128((__m128i *)p, a);
  _mm_storeu_si128((__m128i *)(p + 2), b);
}

/* Negative where a time is before the one before it. Both have to be below 2^63, as each clock is: of a greater one,
 * which only a target writes, the difference from a later, small one is not negative. */
static inline __m128i
later(__m128i times, __m128i before)
{
  return _mm_or_si128(_mm_sub_epi64(times, before), times);
}

/* Copies four events as the n-th of the batch and so on; *last has the time before them in its higher half. How many,
 * from the first on, are as they are to be. */
__attribute__((always_inline)) static inline unsigned
look_at_group(const struct ct_ring_event *events, const struct filter *filter, struct batch *batch, size_t n,
              __m128i *last)
{
  __m128i a = load_event(events), b = load_event(events + 1), c = load_event(events + 2), d = load_event(events + 3);
  __m128i times_ab = _mm_unpacklo_epi64(a, b), times_cd = _mm_unpacklo_epi64(c, d);
  __m128i words_ab = _mm_unpackhi_epi64(a, b), words_cd = _mm_unpackhi_epi64(c, d);
  __m128i lower = halves(words_ab, words_cd, 0), ra_slot = halves(words_ab, words_cd, 1);
  __m128i fn = _mm_and_si128(_mm_srli_epi32(lower, CT_WORD_FN_SHIFT), filter->fn_mask);
  store(batch->run.times + 1 + n, times_ab, times_cd);
  store(batch->frames + n, _mm_unpacklo_epi32(fn, ra_slot), _mm_unpackhi_epi32(fn, ra_slot));
  batch->returns |= (uint64_t)_mm_movemask_ps(_mm_castsi128_ps(_mm_slli_epi32(lower, 31 - RETURN_BIT))) << n;

  __m128i wrong = _mm_and_si128(_mm_xor_si128(lower, filter->kind), filter->kind_mask);
  wrong = _mm_or_si128(wrong, _mm_cmpgt_epi32(fn, filter->last_fn));
  wrong = _mm_or_si128(wrong, _mm_cmpgt_epi32(_mm_sub_epi32(ra_slot, filter->low), filter->extent));
  if (filter->has_top) {
    wrong = _mm_or_si128(wrong, _mm_cmpgt_epi32(_mm_sub_epi32(ra_slot, filter->top), _mm_setzero_si128()));
  }
  unsigned right = (unsigned)_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(wrong, _mm_setzero_si128())));
  right &= ~negative(later(times_ab, between(*last, times_ab)), later(times_cd, between(times_ab, times_cd)));
  *last = times_cd;
  return (unsigned)__builtin_ctz(~right);
}

/* Copies up to BATCH events that are as they are to be; how many, from the first on. */
__attribute__((always_inline)) static inline size_t
look_at(const struct ct_ring_event *events, size_t count, const struct filter *filter, uint64_t last_tsc,
        struct batch *batch)
{
  __m128i last = _mm_set1_epi64x((long long)last_tsc);
  batch->run.times[0] = last_tsc;
  batch->returns = 0;
  count = last_tsc >> 63 != 0 ? 0 : count < BATCH ? count : BATCH; /* see later() */
  size_t n = 0;
  for (; n + GROUP <= count; n += GROUP) {
    __builtin_prefetch(events + n + DRAIN_PIECE); /* beyond a segment's end nothing happens */
    unsigned right = look_at_group(events + n, filter, batch, n, &last);
    if (right != GROUP) {
      return n + right;
    }
  }
  if (n < count) {
    struct ct_ring_event rest[GROUP] = {{0, 0}};
    memcpy(rest, events + n, (count - n) * sizeof(*rest));
    size_t right = look_at_group(rest, filter, batch, n, &last);
    n = n + right < count ? n + right : count;
  }
  return n;
}

static inline size_t
room_for(const struct ct_columns *columns, size_t count)
{
  size_t room = (size_t)(columns->op_limit - columns->op);
  return room < count ? room : count;
}

/* A call begins, if the frame may: below the one at hand. */
static inline bool
open_frame(struct ct_columns *columns, const struct ct_frame *full, uint64_t tsc, uint32_t fn, uint32_t ra_slot,
           uint32_t **id)
{
  struct ct_frame *top = columns->top;
  if (top >= full || (top != columns->frames && (int32_t)(ra_slot - top[-1].ra_slot) >= 0)) {
    return false;
  }
  *id = ct_columns_note_call(columns, fn, CT_TRACE_OP_ENTER_PREDICTED, *id);
  ct_frame_open(top, tsc, fn, ra_slot);
  columns->top = top + 1;
  return true;
}

/* called: function and, higher, ra_slot. */
static inline bool
close_frame(struct ct_columns *columns, uint64_t called)
{
  struct ct_frame *top = columns->top;
  if (top <= columns->floor || (top[-1].root_fn | (uint64_t)top[-1].ra_slot << 32) != called) {
    return false;
  }
  *columns->op++ = CT_TRACE_OP_RETURN;
  columns->top = --top;
  columns->last = top->fn * 2 + 1;
  return true;
}

/* Enters and returns. */
static size_t
take_calls(struct drain_thread *thread, const struct ct_ring_event *events, size_t count, uint32_t function_count)
{
  struct batch batch;
  struct ct_columns columns = thread->encoder->columns;
  const struct filter filter = make_filter(thread, CT_WORD_ENTER, CT_WORD_ENTER, UINT32_MAX, function_count);
  const struct ct_frame *const full = columns.frames + thread->max_depth;
  size_t taken = 0, looked_at, i;
  do {
    uint32_t *id = batch.run.ids;
    looked_at = look_at(events + taken, room_for(&columns, count - taken), &filter, columns.last_tsc, &batch);
    uint64_t returns = batch.returns;
    for (i = 0; i < looked_at; i++, returns >>= 1) {
      uint64_t called = batch.frames[i];
      bool is_taken = (returns & 1) == 0 ? open_frame(&columns, full, batch.run.times[i + 1], (uint32_t)called,
                                                      (uint32_t)(called >> 32), &id)
                                         : close_frame(&columns, called);
      if (!is_taken) {
        break;
      }
    }
    ct_columns_put_run(&columns, &batch.run, i, (size_t)(id - batch.run.ids));
    taken += i;
  } while (i == BATCH);
  thread->encoder->columns = columns;
  return taken;
}

/* What the values of a run change, or look at. */
struct values {
  uint8_t *extra;
  const uint8_t *extra_limit;
  uint64_t *near;
  size_t count;
};

/* Values of the frame at hand, as many as come first. Returns how many; those whose ops have a time note it there. */
static inline size_t
put_values(const struct ct_encoder *encoder, struct ct_columns *columns, struct values *values,
           const struct ct_ring_event *events, size_t count, struct ct_run *run, size_t *timed)
{
  struct ct_frame *frame = columns->top - 1;
  uint8_t *op = columns->op, *extra = values->extra;
  uint64_t *const near = ct_columns_is_near(columns, values->near) ? values->near : NULL;
  size_t n = 0;
  if (columns->top == columns->frames) {
    return 0;
  }
  const uint64_t kind = (uint64_t)frame->ra_slot << 32 | CT_KIND_OTHER << CT_WORD_KIND_SHIFT;
  const uint64_t kind_mask = (uint64_t)UINT32_MAX << 32 | 3 << CT_WORD_KIND_SHIFT;
  const uint32_t fn = frame->fn;
  for (; n < count && extra <= values->extra_limit; n++) {
    __builtin_prefetch(events + n + DRAIN_PIECE);
    uint64_t word = __atomic_load_n(&events[n].word, __ATOMIC_RELAXED);
    uint64_t value = __atomic_load_n(&events[n].tsc, __ATOMIC_RELAXED);
    uint32_t which = drain_value_which((uint32_t)word >> CT_WORD_FN_SHIFT);
    if ((word & kind_mask) != kind || which == 0) {
      break;
    }
    if (near != NULL) {
      extra = ct_near_put(op++, extra, near, fn, which, value);
    } else {
      extra = ct_value_as_is(op++, extra, which, value);
      run->times[*timed + 1] = run->times[*timed];
      ++*timed;
    }
  }
  if (n != 0 && (frame->flags & DRAIN_FRAME_VALUES) == 0) {
    frame->flags |= DRAIN_FRAME_VALUES;
    ct_encoder_note_values(encoder, fn);
  }
  columns->op = op;
  values->extra = extra;
  values->count += n;
  return n;
}

/*
 * Enters, returns and values. These are of different kinds one after the other, so each event is looked at by itself;
 * it is read once. A value takes no time: its op has none, or that of the one before.
 */
static size_t
take_valued(struct drain_thread *thread, const struct ct_ring_event *events, size_t count, uint32_t function_count)
{
  struct ct_run run;
  struct ct_encoder *encoder = thread->encoder;
  struct ct_columns columns = encoder->columns;
  struct values values = {encoder->extra, encoder->extra_limit, encoder->near, 0};
  const struct ct_frame *const full = columns.frames + thread->max_depth;
  const uint32_t low = thread->stack_low;
  const uint64_t length = thread->stack_length == UINT32_MAX ? UINT64_MAX : thread->stack_length;
  size_t taken = 0, i, timed, room;
  bool has_values = false;
  if (encoder->is_near && encoder->near == NULL) {
    return 0;
  }
  do {
    uint32_t *id = run.ids;
    size_t values_before = values.count;
    run.times[0] = columns.last_tsc;
    room = room_for(&columns, count - taken < CT_RUN_OPS ? count - taken : CT_RUN_OPS);
    for (i = timed = 0; i < room;) {
      const struct ct_ring_event *event = events + taken + i;
      __builtin_prefetch(event + DRAIN_PIECE);
      uint64_t word = __atomic_load_n(&event->word, __ATOMIC_RELAXED);
      uint64_t tsc = __atomic_load_n(&event->tsc, __ATOMIC_RELAXED);
      uint32_t ra_slot = (uint32_t)(word >> 32), fn = (uint32_t)word >> CT_WORD_FN_SHIFT;
      unsigned kind = (unsigned)word >> CT_WORD_KIND_SHIFT & 3;
      if (CT_UNLIKELY((uint64_t)(ra_slot - low) >= length)) {
        break;
      }
      if (kind == CT_KIND_OTHER) {
        size_t put = put_values(encoder, &columns, &values, event, room - i, &run, &timed);
        if (put == 0) {
          break;
        }
        i += put;
        continue;
      }
      if (tsc < run.times[timed] ||
          (kind == CT_KIND_ENTER ? fn >= function_count || !open_frame(&columns, full, tsc, fn, ra_slot, &id)
                                 : kind != CT_KIND_RETURN || !close_frame(&columns, fn | (uint64_t)ra_slot << 32))) {
        break;
      }
      run.times[++timed] = tsc;
      i++;
    }
    ct_columns_put_run(&columns, &run, timed, (size_t)(id - run.ids));
    has_values = i != 0 ? values.count != values_before : has_values;
    taken += i;
  } while (i == room && i != 0 && taken < count);
  thread->has_values = has_values;
  encoder->columns = columns;
  encoder->extra = values.extra;
  thread->hook_events[CT_HOOK_EVENT_VALUE] += values.count;
  return taken;
}

/* Calls of sampled hooks, at the interval at hand. */
static size_t
take_samples(struct drain_thread *thread, const struct ct_ring_event *events, size_t count, uint32_t function_count)
{
  struct batch batch;
  struct ct_encoder *encoder = thread->encoder;
  struct ct_columns columns = encoder->columns;
  const uint32_t log2 = encoder->interval_log2;
  const uint32_t kind = (CT_FN_POINT_BIT | (log2 + 1) << CT_FN_WEIGHT_SHIFT) << CT_WORD_FN_SHIFT;
  const uint32_t kind_mask = ~CT_FN_MAX << CT_WORD_FN_SHIFT | 3u << CT_WORD_KIND_SHIFT;
  const uint8_t predicted = log2 == 0 ? CT_TRACE_OP_POINT_PREDICTED : CT_TRACE_OP_SAMPLED_PREDICTED;
  struct filter filter = make_filter(thread, kind, kind_mask, CT_FN_MAX, function_count);
  if (columns.top != columns.frames) {
    filter.top = all_lanes(columns.top[-1].ra_slot);
    filter.has_top = true;
  }
  count = (size_t)(columns.top - columns.frames) >= thread->max_depth ? 0 : count;
  size_t taken = 0, n;
  do {
    uint32_t *id = batch.run.ids;
    n = look_at(events + taken, room_for(&columns, count - taken), &filter, columns.last_tsc, &batch);
    for (size_t i = 0; i < n; i++) {
      id = ct_columns_note_call(&columns, (uint32_t)batch.frames[i], predicted, id);
    }
    ct_columns_put_run(&columns, &batch.run, n, (size_t)(id - batch.run.ids));
    taken += n;
  } while (n == BATCH);
  encoder->columns = columns;
  thread->samples += taken;
  thread->hook_events[CT_HOOK_EVENT_SAMPLED] += taken;
  thread->hook_events[CT_HOOK_EVENT_PASSED_OVER] += (taken << log2) - taken;
  return taken;
}

/* Of what the first one is. */
size_t
drain_take_run(struct drain_thread *thread, const struct ct_ring_event *events, size_t count, uint32_t function_count)
{
  uint64_t word = __atomic_load_n(&events->word, __ATOMIC_RELAXED);
  unsigned kind = (unsigned)word >> CT_WORD_KIND_SHIFT & 3;
  if (thread->stack_length == 0 || function_count == 0 || thread->encoder->columns.op_limit == NULL) {
    return 0;
  }
  bool is_point = (word >> CT_WORD_FN_SHIFT & CT_FN_POINT_BIT) != 0;
  switch (kind) {
  case CT_KIND_ENTER:
  case CT_KIND_RETURN:
    return thread->has_values ? take_valued(thread, events, count, function_count)
                              : take_calls(thread, events, count, function_count);
  case CT_KIND_OTHER:
    return is_point ? take_samples(thread, events, count, function_count)
           : drain_value_which((uint32_t)word >> CT_WORD_FN_SHIFT) != 0
               ? take_valued(thread, events, count, function_count)
               : 0;
  default:
    return 0;
  }
}
