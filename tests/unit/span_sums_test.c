/* SPDX-License-Identifier: MIT */
/* Sums that are made without spans (span/direct_sums.c) are those of the spans, to the last tick. */
#define _GNU_SOURCE 1 /* FTW_DEPTH */
#include "views_make.h"

#include "span/spans.h"
#include "span/stats.h"

enum { FUNCTIONS = 7, CALLS = 200000, DEPTH = 60 };

static const char *const names[] = {"a", "b", "c", "d", "e", "f", "libg", NULL};

/* Mostly short, so that hooks take more than there was; some of each length that a histogram has a bucket for. */
static uint64_t
step(void)
{
  uint32_t kind = random_below(1000);
  return kind < 700 ? random_below(24) : kind < 995 ? random_below(3000) : UINT64_C(1) << random_below(34);
}

static int
compare_ids(const void *a, const void *b)
{
  return (int)*(const uint32_t *)a - (int)*(const uint32_t *)b;
}

/* Calls of few functions in one another, on two stacks, with what is none of the hot loop's in between. */
static void
encode(struct ct_encoder *e)
{
  uint64_t t = 1000;
  uint32_t depth[2] = {0, 0}, on = 0;
  for (int i = 0; i < CALLS; i++) {
    uint32_t what = random_below(1000), fn = random_below(FUNCTIONS);
    t += step();
    if (what < 480 && depth[on] < DEPTH) {
      ct_encode_enter(e, t, fn, 0);
      depth[on]++;
    } else if (what < 950 && depth[on] != 0) {
      ct_encode_return(e, t);
      depth[on]--;
    } else if (what < 990 && depth[on] != 0) {
      ct_encode_tail(e, t, fn);
    } else if (what < 993) {
      ct_encode_point(e, t, fn);
    } else if (what < 995) {
      ct_encode_away(e, t, t + 40, CT_AWAY_BLOCKED);
      t += 50;
    } else if (what < 997) {
      on = 1 - on;
      ct_encode_switch(e, t, on * 9);
    }
  }
}

static void
check_function(const struct ct_stats *sums, const struct ct_stats *spans, uint32_t id)
{
  const struct ct_fn_stats *a = &sums->fns[id], *b = &spans->fns[id];
  assert_int_equal(a->points, b->points);
  assert_int_equal(a->total_ticks, b->total_ticks);
  assert_int_equal(a->self_ticks, b->self_ticks);
  assert_int_equal(a->min_ticks, b->min_ticks);
  assert_int_equal(a->max_ticks, b->max_ticks);
  assert_int_equal(a->untimed, b->untimed);
  assert_int_equal(sums->off[id], spans->off[id]);
  assert_int_equal(a->histogram->count, b->histogram->count);
  assert_int_equal(a->histogram->sum, b->histogram->sum);
  for (uint32_t permille = 0; permille <= 1000; permille++) {
    assert_int_equal(ct_histogram_quantile(a->histogram, permille), ct_histogram_quantile(b->histogram, permille));
  }
  assert_true((sums->unwound[id] == NULL) == (spans->unwound[id] == NULL));
  for (int end = 0; end < CT_SPAN_ENDS && sums->unwound[id] != NULL; end++) {
    assert_int_equal(sums->unwound[id][end], spans->unwound[id][end]);
  }
}

static void
check(struct ct_trace *trace, enum ct_view_time time)
{
  struct ct_stats sums, added;
  struct ct_spans *spans;
  const struct ct_span *batch;
  size_t count;
  assert_int_equal(ct_stats_init(&sums, ct_trace_function_count(trace)), 0);
  assert_int_equal(ct_stats_init(&added, ct_trace_function_count(trace)), 0);
  assert_int_equal(ct_spans_open(trace, 0, time, &spans, NULL), 0);
  while (ct_spans_next(spans, &batch, &count) == 0 && count != 0) {
    assert_int_equal(ct_stats_add(&added, batch, count), 0);
  }
  uint64_t events = ct_spans_events(spans);
  ct_spans_close(spans);
  assert_int_equal(ct_spans_open(trace, 0, time, &spans, NULL), 0);
  assert_int_equal(ct_spans_sum(spans, &sums, NULL, NULL), 0);
  assert_int_equal(ct_spans_events(spans), events);
  ct_spans_close(spans);
  assert_int_equal(sums.touched_count, added.touched_count);
  qsort(sums.touched, sums.touched_count, sizeof(*sums.touched), compare_ids);
  for (uint32_t i = 0; i < sums.touched_count; i++) {
    check_function(&sums, &added, sums.touched[i]);
  }
  ct_stats_destroy(&sums);
  ct_stats_destroy(&added);
}

static void
test_sums(void **state)
{
  (void)state;
  static const char *const costs[] = {
      NULL, "{\"enter_before\": 4, \"enter_after\": 6.25, \"return_before\": 5.5, \"return_after\": 3}"};
  for (size_t i = 0; i < 8; i++) {
    struct make m;
    make_begin(&m, names, 1);
    m.hook_costs = costs[i % 2];
    encode(m.encoders[0]);
    struct ct_trace *trace = make_open(&m, true, 0);
    check(trace, CT_TIME_WALL);
    check(trace, CT_TIME_CPU);
    check(trace, CT_TIME_RAW);
    make_end(&m, trace);
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
