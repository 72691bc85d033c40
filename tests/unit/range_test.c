/* SPDX-License-Identifier: MIT */
/*
 * Pieces of a trace have the spans of the whole that reach into them: of all stacks that the thread has, those too that
 * it was not on for many blocks, and the outer ones of a deep recursion. With an index and without.
 */
#include "views_make.h"

#include "index/index.h"
#include "rounds.h"
#include "span/spans.h"
#include "trace/batch.h"
#include "trace/writer.h"

static const char *const names[] = {"main", "work", "f", "g", "h", NULL};
enum { FUNCTIONS = 5, STACKS = 40, DEPTH_MAX = 3000, BLOCK_OPS = 150, OPEN = -1 };

/* ---- what happened ---- */

struct call {
  uint64_t ordinal, enter, end; /* end UINT64_MAX: never */
  int64_t parent;               /* position; OPEN: none */
  uint64_t self;                /* of a piece */
  uint32_t context, depth, fn;
  bool is_point;
};

struct moment {
  uint64_t tsc;
  int64_t top; /* the innermost call from then on */
};

struct happened {
  struct ct_encoder *encoder;
  struct call *calls;
  struct moment *moments;
  size_t count, moment_count, capacity;
  int64_t stacks[STACKS][DEPTH_MAX];
  uint32_t depths[STACKS];
  uint32_t context;
  uint64_t tsc;
};

static int64_t
top_of(const struct happened *h)
{
  return h->depths[h->context] != 0 ? h->stacks[h->context][h->depths[h->context] - 1] : OPEN;
}

static void
note(struct happened *h)
{
  h->moments[h->moment_count++] = (struct moment){h->tsc, top_of(h)};
}

static void
push(struct happened *h, uint32_t fn, bool is_point)
{
  assert_true(h->count < h->capacity);
  h->calls[h->count] = (struct call){.ordinal = h->count,
                                     .enter = h->tsc,
                                     .end = is_point ? h->tsc : UINT64_MAX,
                                     .parent = top_of(h),
                                     .context = h->context,
                                     .depth = h->depths[h->context],
                                     .fn = fn,
                                     .is_point = is_point};
  if (!is_point) {
    h->stacks[h->context][h->depths[h->context]++] = (int64_t)h->count;
  }
  h->count++;
}

static void
pop(struct happened *h)
{
  h->calls[top_of(h)].end = h->tsc;
  h->depths[h->context]--;
}

static void
step(struct happened *h, bool has_stacks)
{
  uint32_t fn = random_below(FUNCTIONS), choice = random_below(has_stacks ? 1000 : 960), depth = h->depths[h->context];
  h->tsc += 1 + random_below(20);
  if (choice < 470 && depth < DEPTH_MAX - 1) {
    push(h, fn, false);
    ct_encode_enter(h->encoder, h->tsc, fn, 0);
  } else if (choice < 930 && depth != 0) {
    pop(h);
    if (choice < 900) {
      ct_encode_return(h->encoder, h->tsc);
    } else if (choice < 915) {
      ct_encode_unwound(h->encoder, h->tsc, CT_UNWOUND_JUMP);
    } else {
      push(h, fn, false);
      ct_encode_tail(h->encoder, h->tsc, fn);
    }
  } else if (choice < 960) {
    push(h, fn, true);
    ct_encode_point(h->encoder, h->tsc, fn);
  } else {
    h->context = random_below(3) == 0 ? random_below(STACKS) : random_below(3);
    ct_encode_switch(h->encoder, h->tsc, h->context);
  }
  note(h);
}

static void
replaced(struct happened *h)
{
  h->tsc += 10;
  for (h->context = 0; h->context < STACKS; h->context++) {
    while (h->depths[h->context] != 0) {
      pop(h);
    }
  }
  h->context = 0;
  ct_encode_exec(h->encoder, h->tsc);
  note(h);
}

static void
deepen(struct happened *h, uint32_t depth)
{
  while (h->depths[h->context] < depth) {
    h->tsc += 2;
    push(h, 1, false);
    ct_encode_enter(h->encoder, h->tsc, 1, 0);
    note(h);
  }
}

static void
happen(struct happened *h, struct ct_encoder *encoder, uint32_t steps, bool has_stacks)
{
  h->capacity = (size_t)steps * 2 + 20 * DEPTH_MAX;
  h->calls = calloc(h->capacity, sizeof(*h->calls));
  h->moments = calloc(h->capacity * 2, sizeof(*h->moments));
  assert_true(h->calls != NULL && h->moments != NULL);
  h->encoder = encoder;
  h->tsc = MAKE_START;
  uint32_t deep = steps / 3, exec = steps / 4;
  for (uint32_t i = 0; i < steps; i++) {
    if (i == deep) {
      deepen(h, 1500 + random_below(1000));
    }
    if (i == exec && has_stacks && random_below(2) == 0) {
      replaced(h);
    }
    step(h, has_stacks);
    if (i % BLOCK_OPS == 0) {
      assert_int_equal(ct_encoder_flush(encoder), CT_OK);
    }
  }
}

/* ---- what a piece of it has ---- */

static void
sum_selves(struct happened *h, uint64_t from, uint64_t to)
{
  for (size_t i = 0; i < h->count; i++) {
    h->calls[i].self = 0;
  }
  for (size_t i = 0; i < h->moment_count; i++) {
    const struct moment *moment = &h->moments[i];
    uint64_t begin = moment->tsc > from ? moment->tsc : from,
             end = i + 1 < h->moment_count && moment[1].tsc < to ? moment[1].tsc : to;
    if (moment->top != OPEN && begin < end) {
      h->calls[moment->top].self += end - begin;
    }
  }
}

static void
check_span(const struct happened *h, const struct ct_span *span, uint64_t from, uint64_t to)
{
  if (span->ordinal >= h->count) {
    fail_msg("%u to %u: a span of function %u at depth %u of stack %u, from %u to %u (%s), that is none of the whole",
             (unsigned)from, (unsigned)to, span->fn, span->depth, span->context, (unsigned)span->enter_tsc,
             (unsigned)span->end_tsc, ct_span_end_text(span->end));
  }
  const struct call *call = &h->calls[span->ordinal];
  uint64_t parent = call->parent != OPEN ? h->calls[call->parent].ordinal : CT_NO_ORDINAL;
  bool same = span->fn == call->fn && span->depth == call->depth && span->context == call->context &&
              span->parent_ordinal == parent && span->enter_tsc == (call->enter > from ? call->enter : from) &&
              span->end_tsc == (call->end < to ? call->end : to) && (span->end == CT_SPAN_POINT) == call->is_point &&
              (span->uncertain & CT_SPAN_UNCERTAIN) == 0;
  if (!call->is_point) {
    same &= span->self_ticks == call->self && ((span->uncertain & CT_SPAN_BEFORE) != 0) == (call->enter < from);
  }
  if (!same) {
    fail_msg("%u to %u: call %u of function %u, at depth %u of stack %u, on %d, from %u to %u, self %u, doubt %u, %u "
             "ticks, %s; "
             "not of %u, at depth %u of stack %u, on %d, from %u to %u, self %u",
             (unsigned)from, (unsigned)to, (unsigned)span->ordinal, span->fn, span->depth, span->context,
             (int)span->parent_ordinal, (unsigned)span->enter_tsc, (unsigned)span->end_tsc, (unsigned)span->self_ticks,
             span->uncertain, (unsigned)span->duration_ticks, ct_span_end_text(span->end), call->fn, call->depth,
             call->context, (int)parent, (unsigned)call->enter, (unsigned)call->end, (unsigned)call->self);
  }
}

static void
check_piece(struct happened *h, struct ct_trace *trace, uint64_t from, uint64_t to)
{
  struct ct_spans *spans;
  struct ct_diag diag = {""};
  size_t got = 0, want = 0;
  sum_selves(h, from, to);
  assert_int_equal(ct_spans_open(trace, 0, CT_TIME_RAW, &spans, &diag), 0);
  for (const struct ct_span *span; (span = ct_spans_next_span(spans)) != NULL; got++) {
    check_span(h, span, from, to);
  }
  assert_int_equal(ct_spans_state(spans), CT_CURSOR_END);
  ct_spans_close(spans);
  for (size_t i = 0; i < h->count; i++) {
    const struct call *call = &h->calls[i];
    want += call->enter <= to && call->end >= from;
  }
  if (got != want) {
    fail_msg("%u to %u: %zu spans, not %zu", (unsigned)from, (unsigned)to, got, want);
  }
}

static void
check_pieces(const char *dir, struct happened *h, bool with_index)
{
  struct ct_diag diag = {""};
  struct ct_trace *trace;
  uint64_t length = h->tsc - MAKE_START;
  for (uint64_t i = 0; i < rounds(30, 300); i++) {
    uint64_t from = MAKE_START + random_below((uint32_t)length);
    uint64_t to = from + 1 + random_below((uint32_t)(random_below(2) != 0 ? length : 2000));
    to = to < h->tsc ? to : h->tsc;
    assert_int_equal(ct_trace_open(dir, &trace, &diag), 0);
    struct ct_filter filter = {.struct_size = sizeof(filter), .from_tsc = from, .to_tsc = to};
    assert_int_equal(with_index ? ct_filter_set_range(&filter, trace) : ct_trace_set_range(trace, from, to), 0);
    check_piece(h, trace, from, to);
    check_piece(h, trace, from, to); /* with what the first cursor found */
    uint64_t later = from + (to - from) / 2;
    assert_int_equal(ct_trace_set_range(trace, later, to), 0);
    check_piece(h, trace, later, to);
    ct_trace_close(trace);
  }
}

static void
check_trace(bool has_stacks)
{
  struct make m;
  struct ct_index *index;
  struct ct_view_progress none = {0};
  struct ct_diag diag = {""};
  struct happened *h = calloc(1, sizeof(*h));
  assert_non_null(h);
  make_begin(&m, names, 1);
  happen(h, m.encoders[0], 30000, has_stacks);
  m.ticks = h->tsc - MAKE_START;
  struct ct_trace *trace = make_open(&m, true, 0);
  check_pieces(m.dir, h, false);
  assert_int_equal(ct_index_open(trace, 1, &none, &index, &diag), 0);
  assert_true(ct_index_bytes(index) != 0);
  ct_index_close(index);
  check_pieces(m.dir, h, true);
  make_end(&m, trace);
  free(h->calls);
  free(h->moments);
  free(h);
}

static void
test_stacks(void **state)
{
  (void)state;
  for (uint64_t i = 0; i < rounds(2, 10); i++) {
    check_trace(true);
  }
}

static void
test_one_stack(void **state)
{
  (void)state;
  check_trace(false);
}

int
main(void)
{
  setenv("CONTRAIL_TEST_INDEX_EVENTS", "1", 1); /* it is kept, however short the trace is */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stacks),
      cmocka_unit_test(test_one_stack),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
