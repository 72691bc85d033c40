/* SPDX-License-Identifier: MIT */
/* Spans: their ends and the reasons of these, own time, time off the processor. */
#define _GNU_SOURCE 1 /* FTW_DEPTH */
#include "views_make.h"

#include "base/json.h"
#include "span/spans.h"

/* ---- Spans ---- */

static void
test_span_ends(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, small_names, 1);
  struct ct_encoder *e = m.encoders[0];
  ct_encode_orphan_return(e, 1000, 3);
  ct_encode_enter(e, 1010, 0, 0);
  ct_encode_switch(e, 1020, 9);
  ct_encode_enter(e, 1030, 1, 0);
  ct_encode_switch(e, 1050, 0);
  ct_encode_unwound(e, 1060, CT_UNWOUND_THREAD_EXIT);
  ct_encode_enter(e, 1070, 2, 0);
  ct_encode_exec(e, 1080);
  ct_encode_enter(e, 1090, 3, 0);
  ct_encode_tail(e, 1100, 0);
  struct ct_trace *trace = make_open(&m, true, 0);
  static const struct ct_span want[] = {
      {.enter_tsc = 1000, .end_tsc = 1000, .fn = 3, .end = CT_SPAN_ORPHAN},
      {.enter_tsc = 1010, .end_tsc = 1060, .self_ticks = 20, .fresh_ticks = 50, .fn = 0, .end = CT_SPAN_THREAD_EXIT},
      {.enter_tsc = 1070, .end_tsc = 1080, .self_ticks = 10, .fresh_ticks = 10, .fn = 2, .end = CT_SPAN_EXEC},
      {.enter_tsc = 1030, .end_tsc = 1080, .self_ticks = 20, .fresh_ticks = 50, .fn = 1, .end = CT_SPAN_EXEC},
      {.enter_tsc = 1090, .end_tsc = 1100, .self_ticks = 10, .fresh_ticks = 10, .fn = 3, .end = CT_SPAN_TAIL},
      {.enter_tsc = 1100, .end_tsc = 6000, .self_ticks = 4900, .fresh_ticks = 4900, .fn = 0, .end = CT_SPAN_OPEN},
  };
  struct ct_spans *spans;
  const struct ct_span *batch;
  size_t count, n = 0;
  assert_int_equal(ct_spans_open(trace, 0, CT_TIME_WALL, &spans, NULL), 0);
  while (ct_spans_next(spans, &batch, &count) == 0 && count != 0) {
    for (size_t i = 0; i < count; i++, n++) {
      assert_true(n < sizeof(want) / sizeof(want[0]));
      assert_int_equal(batch[i].fn, want[n].fn);
      assert_int_equal(batch[i].end, want[n].end);
      assert_int_equal(batch[i].enter_tsc, want[n].enter_tsc);
      assert_int_equal(batch[i].end_tsc, want[n].end_tsc);
      assert_int_equal(batch[i].self_ticks, want[n].self_ticks);
      assert_int_equal(batch[i].fresh_ticks, want[n].fresh_ticks);
      assert_int_equal(batch[i].depth, 0);
    }
  }
  assert_int_equal(n, sizeof(want) / sizeof(want[0]));
  ct_spans_close(spans);
  make_end(&m, trace);
}

/* An exec on another stack: what begins on the thread's own stack then has not been away since before. */
static void
test_exec_on_another_stack(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, small_names, 1);
  struct ct_encoder *e = m.encoders[0];
  ct_encode_enter(e, 1010, 0, 0);
  ct_encode_switch(e, 1020, 9);
  ct_encode_enter(e, 1030, 1, 0);
  ct_encode_exec(e, 1080);
  ct_encode_enter(e, 1090, 2, 0);
  struct ct_trace *trace = make_open(&m, true, 0);
  struct ct_spans *spans;
  const struct ct_span *span, *last = NULL;
  assert_int_equal(ct_spans_open(trace, 0, CT_TIME_WALL, &spans, NULL), 0);
  while ((span = ct_spans_next_span(spans)) != NULL) {
    last = span;
  }
  assert_true(last != NULL && last->fn == 2 && last->end == CT_SPAN_OPEN);
  assert_int_equal(last->duration_ticks, 4910);
  assert_int_equal(last->self_ticks, 4910);
  ct_spans_close(spans);
  make_end(&m, trace);
}

/* Of time off the processor bounds are known: no function has more in an interval than it has time there. */
static void
test_bounds(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, small_names, 1);
  m.switches = "{\"source\": \"totals\"}";
  struct ct_encoder *e = m.encoders[0];
  ct_encode_enter(e, 1000, 0, 0);
  ct_encode_enter(e, 1100, 1, 0);
  ct_encode_return(e, 1200);
  ct_encode_away(e, 1250, 1300, CT_AWAY_SOME);
  ct_encode_enter(e, 1400, 1, 0);
  ct_encode_return(e, 1500);
  ct_encode_away(e, 1350, 1600, CT_AWAY_SOME);
  ct_encode_return(e, 1700); /* of the last 100 nothing is known */
  struct ct_trace *trace = make_open(&m, true, 0);
  struct ct_report_options options = {.struct_size = sizeof(options), .json = true, .workers = 1};
  char *text = report_text(trace, &options);
  assert_non_null(strstr(text, "\"total_ns\":700,\"self_ns\":500,\"off_ns\":null,"));
  assert_non_null(strstr(text, "\"off_at_most_ns\":400"));
  assert_non_null(strstr(text, "\"total_ns\":200,\"self_ns\":200,\"off_ns\":null,"));
  assert_non_null(strstr(text, "\"off_at_most_ns\":150"));
  free(text);
  make_end(&m, trace);
}

/* ---- Own time ---- */

struct own_span {
  uint32_t fn;
  uint64_t duration, self, fresh, off;
};

static void
check_own_times(struct ct_trace *trace, enum ct_view_time time, const struct own_span *want, size_t want_count)
{
  struct ct_spans *spans;
  const struct ct_span *batch;
  size_t count, n = 0;
  assert_int_equal(ct_spans_open(trace, 0, time, &spans, NULL), 0);
  while (ct_spans_next(spans, &batch, &count) == 0 && count != 0) {
    for (size_t i = 0; i < count; i++) {
      if (batch[i].end == CT_SPAN_POINT) {
        continue;
      }
      assert_true(n < want_count);
      assert_int_equal(batch[i].fn, want[n].fn);
      assert_int_equal(batch[i].duration_ticks, want[n].duration);
      assert_int_equal(batch[i].self_ticks, want[n].self);
      assert_int_equal(batch[i].fresh_ticks, want[n].fresh);
      assert_int_equal(batch[i].fresh_off_ticks, want[n].off);
      n++;
    }
  }
  assert_int_equal(n, want_count);
  ct_spans_close(spans);
}

/* A call costs 11 in it and 7 outside; main calls work three times, once too short for its hook. */
static void
test_own_times(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, small_names, 1);
  m.hook_costs = "{\"enter_before\": 4, \"enter_after\": 6, \"return_before\": 5, \"return_after\": 3, \"value\": 2,"
                 " \"point\": 8.5, \"sampled\": 9, \"passed_over\": 1}";
  struct ct_encoder *e = m.encoders[0];
  ct_encode_enter(e, 1000, 0, 0);
  ct_encode_enter(e, 1030, 1, 0); /* 20 of main's own */
  ct_encode_return(e, 1061);      /* 20 */
  ct_encode_enter(e, 1088, 1, 0); /* 20 */
  ct_encode_return(e, 1097);      /* 9 for a hook of 11: 0, and a debt of 2 */
  ct_encode_enter(e, 1126, 1, 0); /* 22 - 2 */
  ct_encode_value(e, CT_VALUE_ARG_1, 7);
  ct_encode_point(e, 1150, 2);
  ct_encode_point(e, 1160, 2);
  ct_encode_return(e, 1176); /* 50 - 11 - 2 - 17 */
  struct ct_trace *trace;
  ct_encode_return(e, 1204); /* 28 - 8 */
  trace = make_open(&m, true, 0);
  static const struct own_span own[] = {{1, 20, 20, 20, 0}, {1, 0, 0, 0, 0}, {1, 20, 20, 20, 0}, {0, 120, 80, 120, 0}};
  check_own_times(trace, CT_TIME_WALL, own, 4);
  check_own_times(trace, CT_TIME_CPU, own, 4);
  static const struct own_span raw[] = {{1, 31, 31, 31, 0}, {1, 9, 9, 9, 0}, {1, 50, 50, 50, 0}, {0, 204, 114, 204, 0}};
  check_own_times(trace, CT_TIME_RAW, raw, 4);
  make_end(&m, trace);
}

/* Hooks that were cheaper than measured: what comes after them pays for four of them, not for a thousand. */
static void
test_debt_is_bounded(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, small_names, 1);
  m.hook_costs = "{\"enter_before\": 5, \"enter_after\": 5, \"return_before\": 5, \"return_after\": 5}";
  struct ct_encoder *e = m.encoders[0];
  uint64_t t = 1000;
  ct_encode_enter(e, t, 0, 0);
  for (int i = 0; i < 1000; i++) {
    ct_encode_enter(e, t += 8, 1, 0);
    ct_encode_return(e, t += 8);
  }
  ct_encode_return(e, t + 10000);
  struct ct_trace *trace = make_open(&m, true, 0);
  struct ct_spans *spans;
  const struct ct_span *batch;
  size_t count;
  uint64_t total = 0, selves = 0;
  assert_int_equal(ct_spans_open(trace, 0, CT_TIME_WALL, &spans, NULL), 0);
  while (ct_spans_next(spans, &batch, &count) == 0 && count != 0) {
    for (size_t i = 0; i < count; i++) {
      assert_true(batch[i].duration_ticks <= 10000);
      selves += batch[i].self_ticks;
      total = batch[i].fn == 0 ? batch[i].fresh_ticks : total;
    }
  }
  ct_spans_close(spans);
  assert_int_equal(total, selves);
  assert_in_range(total, 10000 - 4 * 20 - 20, 10000);
  make_end(&m, trace);
}

/* Off the processor, and contrail's own; where both are, the second. */
static void
test_away(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, small_names, 1);
  struct ct_encoder *e = m.encoders[0];
  ct_encode_enter(e, 1000, 0, 0);
  ct_encode_enter(e, 1010, 1, 0);
  ct_encode_away(e, 1020, 1120, CT_AWAY_BLOCKED);
  ct_encode_away(e, 1130, 1140, CT_AWAY_PREEMPTED);
  ct_encode_return(e, 1200);
  ct_encode_away(e, 1220, 1320, CT_AWAY_BLOCKED); /* while it was held for longer */
  ct_encode_away(e, 1210, 1330, CT_AWAY_HELD);
  ct_encode_away(e, 1400, 1450, CT_AWAY_ROOM);
  ct_encode_away(e, 1410, 1430, CT_AWAY_BLOCKED);
  ct_encode_return(e, 1500);
  struct ct_trace *trace = make_open(&m, true, 0);
  static const struct own_span wall[] = {{1, 190, 190, 190, 110}, {0, 330, 140, 330, 110}};
  static const struct own_span cpu[] = {{1, 80, 80, 80, 110}, {0, 220, 140, 220, 110}};
  check_own_times(trace, CT_TIME_WALL, wall, 2);
  check_own_times(trace, CT_TIME_CPU, cpu, 2);
  static const struct own_span raw[] = {{1, 190, 190, 190, 110}, {0, 500, 310, 500, 110}};
  check_own_times(trace, CT_TIME_RAW, raw, 2);
  make_end(&m, trace);
}

/* ---- Reasons ---- */

static const char *const unwind_names[] = {"main",
                                           "work",
                                           "longjmp",
                                           "__longjmp",
                                           "__cxa_throw",
                                           "_Unwind_RaiseException",
                                           "_Unwind_Resume",
                                           "_Unwind_ForcedUnwind",
                                           "pthread_exit",
                                           "exit",
                                           "start_thread",
                                           "handler",
                                           NULL};
enum {
  L_MAIN,
  L_WORK,
  L_LONGJMP,
  L_LONGJMP2,
  L_THROW,
  L_RAISE,
  L_RESUME,
  L_FORCED,
  L_PTHREAD_EXIT,
  L_EXIT,
  L_START,
  L_HANDLER
};

struct expected_end {
  uint32_t fn;
  uint8_t end;
};

static void
check_ends(struct ct_trace *trace, uint32_t thread, const struct expected_end *expected, size_t count)
{
  struct ct_diag diag = {""};
  struct ct_spans *spans;
  assert_int_equal(ct_spans_open(trace, thread, CT_TIME_WALL, &spans, &diag), 0);
  const struct ct_span *batch;
  size_t n, at = 0;
  while (ct_spans_next(spans, &batch, &n) == 0 && n != 0) {
    for (size_t i = 0; i < n; i++) {
      if (batch[i].end == CT_SPAN_POINT) {
        continue;
      }
      assert_true(at < count);
      if (batch[i].fn != expected[at].fn || batch[i].end != expected[at].end) {
        fail_msg("span %zu: function %u %s, not %u %s", at, batch[i].fn, ct_span_end_text(batch[i].end),
                 expected[at].fn, ct_span_end_text(expected[at].end));
      }
      at++;
    }
  }
  assert_int_equal(at, count);
  ct_spans_close(spans);
}

static uint64_t unwind_now;

static void
enter(struct ct_encoder *e, uint32_t fn)
{
  ct_encode_enter(e, unwind_now += 10, fn, 0);
}

static void
point(struct ct_encoder *e, uint32_t fn)
{
  ct_encode_point(e, unwind_now += 10, fn);
}

/* One event of the thread, further out: what is inside was left. */
static void
left(struct ct_encoder *e, int frames)
{
  unwind_now += 10;
  while (frames-- > 0) {
    ct_encode_unwound(e, unwind_now, CT_UNWOUND_JUMP);
  }
}

/* A throw passes three frames, two of which clean up, the inner one with an exception of its own, thrown and caught. */
static void
throw_through(struct ct_encoder *e)
{
  enter(e, L_WORK);
  enter(e, L_WORK);
  enter(e, L_WORK);
  enter(e, L_THROW);
  point(e, L_RAISE);
  left(e, 1); /* lands in the innermost */
  enter(e, L_HANDLER);
  enter(e, L_WORK);
  enter(e, L_LONGJMP);
  left(e, 2); /* the handler's own longjmp */
  ct_encode_return(e, unwind_now += 10);
  point(e, L_RESUME);
  left(e, 1); /* lands in the middle */
  point(e, L_RESUME);
  left(e, 1); /* with more stack in use than the throw needed, as it seems ... */
  enter(e, L_HANDLER);
  ct_encode_return(e, unwind_now += 10);
  left(e, 1); /* ... for in truth it is the outermost where it landed */
}

/* One trace of all reasons, longer than others. */
static void
test_reasons(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, unwind_names, 4);
  unwind_now = MAKE_START;
  struct ct_encoder *e = m.encoders[0];
  enter(e, L_MAIN);
  enter(e, L_WORK);
  enter(e, L_LONGJMP);
  enter(e, L_LONGJMP2);
  left(e, 3);
  throw_through(e);
  enter(e, L_WORK);
  left(e, 1); /* by nothing that is in the trace */
  enter(e, L_WORK);
  ct_encode_switch(e, unwind_now += 10, 1);
  enter(e, L_HANDLER);
  enter(e, L_LONGJMP);
  ct_encode_switch(e, unwind_now += 10, 0);
  left(e, 1); /* from a signal stack */
  enter(e, L_EXIT);
  const struct expected_end first[] = {
      {L_LONGJMP2, CT_SPAN_LONGJMP}, {L_LONGJMP, CT_SPAN_LONGJMP}, {L_WORK, CT_SPAN_LONGJMP},
      {L_THROW, CT_SPAN_EXCEPTION},  {L_LONGJMP, CT_SPAN_LONGJMP}, {L_WORK, CT_SPAN_LONGJMP},
      {L_HANDLER, CT_SPAN_RETURNED}, {L_WORK, CT_SPAN_EXCEPTION},  {L_WORK, CT_SPAN_EXCEPTION},
      {L_HANDLER, CT_SPAN_RETURNED}, {L_WORK, CT_SPAN_EXCEPTION},  {L_WORK, CT_SPAN_UNWOUND},
      {L_WORK, CT_SPAN_LONGJMP},     {L_EXIT, CT_SPAN_EXIT},       {L_MAIN, CT_SPAN_EXIT},
      {L_LONGJMP, CT_SPAN_LONGJMP},  {L_HANDLER, CT_SPAN_LONGJMP},
  };
  e = m.encoders[1]; /* cancelled; then at its end, with a longjmp to where it began */
  enter(e, L_START);
  enter(e, L_WORK);
  enter(e, L_WORK);
  point(e, L_FORCED);
  left(e, 1);
  point(e, L_RESUME);
  enter(e, L_HANDLER); /* of the unwinder */
  enter(e, L_LONGJMP);
  left(e, 3);
  const struct expected_end second[] = {{L_WORK, CT_SPAN_CANCELLED},
                                        {L_LONGJMP, CT_SPAN_CANCELLED},
                                        {L_HANDLER, CT_SPAN_CANCELLED},
                                        {L_WORK, CT_SPAN_CANCELLED},
                                        {L_START, CT_SPAN_THREAD_EXIT}};
  e = m.encoders[2];
  enter(e, L_START);
  enter(e, L_WORK);
  enter(e, L_PTHREAD_EXIT);
  point(e, L_FORCED);
  left(e, 1);
  point(e, L_RESUME);
  left(e, 1);
  const struct expected_end third[] = {
      {L_PTHREAD_EXIT, CT_SPAN_PTHREAD_EXIT}, {L_WORK, CT_SPAN_PTHREAD_EXIT}, {L_START, CT_SPAN_THREAD_EXIT}};
  e = m.encoders[3]; /* an unwinder that found nobody and returned is no reason for what comes later */
  enter(e, L_MAIN);
  enter(e, L_THROW);
  point(e, L_RAISE);
  ct_encode_return(e, unwind_now += 10);
  enter(e, L_WORK);
  left(e, 1);
  const struct expected_end fourth[] = {{L_THROW, CT_SPAN_RETURNED}, {L_WORK, CT_SPAN_UNWOUND}, {L_MAIN, CT_SPAN_OPEN}};
  struct ct_trace *trace = make_open(&m, true, 0);
  check_ends(trace, 0, first, sizeof(first) / sizeof(first[0]));
  check_ends(trace, 1, second, sizeof(second) / sizeof(second[0]));
  check_ends(trace, 2, third, sizeof(third) / sizeof(third[0]));
  check_ends(trace, 3, fourth, sizeof(fourth) / sizeof(fourth[0]));
  struct ct_report_options options = {.struct_size = sizeof(options), .json = true, .workers = 1};
  char *text = report_text(trace, &options);
  assert_non_null(strstr(text, "\"name\":\"__cxa_throw\""));
  assert_non_null(strstr(text, "\"left\":{\"exception\":1}"));
  assert_non_null(strstr(text, "\"left\":{\"pthread_exit\":1}"));
  assert_non_null(strstr(text, "\"left\":{\"thread exit\":2}"));
  free(text);
  make_end(&m, trace);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_span_ends), cmocka_unit_test(test_exec_on_another_stack), cmocka_unit_test(test_bounds),
      cmocka_unit_test(test_own_times), cmocka_unit_test(test_debt_is_bounded),       cmocka_unit_test(test_away),
      cmocka_unit_test(test_reasons),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
