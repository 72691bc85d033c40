/* SPDX-License-Identifier: MIT */
/* Detail that is held until it is known whether somebody wants it: what is packed when, and that nothing is mixed up.
 */
#include "trace/detail.h"
#include "unit/trace_model.h"

#include <sys/stat.h>

enum {
  CALLS = 60000,
  MEMORY = 1 << 20,
  WANTED = 2500, /* the last ones */
  RECORD = sizeof(struct ct_detail_entry) + 8 * (CT_DETAIL_CALL_WORDS + 4),
  STEP = 10, /* ticks between two events */
};

struct window {
  uint64_t from, to;
  bool is_known;
};

static enum ct_detail_fate
judge(void *context, uint64_t from_tsc, uint64_t to_tsc, bool is_last)
{
  const struct window *window = context;
  (void)is_last;
  return !window->is_known                                  ? CT_DETAIL_HOLD
         : from_tsc <= window->to && to_tsc >= window->from ? CT_DETAIL_WRITE
                                                            : CT_DETAIL_DROP;
}

/* Call number i, of two events. Its argument is its number; the rest is as hard to pack as registers are. */
static void
call(struct ct_encoder *encoder, uint64_t i)
{
  uint64_t tsc = 1000 + 2 * STEP * i, words[CT_DETAIL_CALL_WORDS + 4];
  for (size_t n = 0; n < sizeof(words) / sizeof(words[0]); n++) {
    words[n] = n == 3 ? i : n < 9 ? (i + n) * 0x9e3779b97f4a7c15u : n;
  }
  ct_encode_enter(encoder, tsc, 0, 0x1000);
  struct ct_detail_entry entry = {
      .enter_tsc = tsc, .tsc = tsc, .fn = 0, .record_bytes = RECORD, .kind = CT_DETAIL_KIND_CALL};
  ct_encode_detail(encoder, &entry, words);
  ct_encode_return(encoder, tsc + STEP);
}

/* How many calls have detail, each its own; of those from `least` on all have. */
static size_t
count_details(struct ct_trace *trace, uint32_t thread, uint64_t least)
{
  struct ct_details *details;
  struct ct_cursor *cursor;
  const struct ct_event *events;
  size_t got, found = 0;
  assert_int_equal(ct_details_open(trace, thread, &details, NULL), CT_OK);
  assert_int_equal(ct_cursor_open(trace, thread, 0, &cursor, NULL), CT_OK);
  while ((got = ct_cursor_next(cursor, &events)) != 0) {
    for (size_t n = 0; n < got; n++) {
      const struct ct_detail *detail = ct_details_of(details, &events[n]);
      uint64_t number = (events[n].tsc - 1000) / (2 * STEP);
      if (detail != NULL) {
        assert_int_equal(detail->registers[0], number);
        found++;
      } else if (events[n].kind == CT_EV_ENTER) {
        assert_true(number < least);
      }
    }
  }
  assert_int_not_equal(ct_details_state(details), CT_CURSOR_DAMAGED);
  ct_cursor_close(cursor);
  ct_details_close(details);
  return found;
}

/* Of two threads in turn; now the recorder is behind, and now not. */
static void
test_held(void **state)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct window window = {0};
  struct ct_encoder *encoders[2];
  ct_trace_writer_judge_detail(writer, judge, &window, MEMORY);
  assert_int_equal(ct_trace_writer_function(writer, 0, 0, 0x10, 4, "full", "called"), CT_OK);
  for (uint32_t i = 0; i < 2; i++) {
    assert_int_equal(ct_trace_writer_thread(writer, i, 100 + i, 9, &encoders[i]), CT_OK);
  }
  for (uint64_t i = 0; i < CALLS; i++) {
    ct_trace_writer_set_behind(writer, i / 3000 % 2 != 0);
    call(encoders[0], i);
    call(encoders[1], i);
  }
  struct ct_detail_dropped before = ct_trace_writer_detail_dropped(writer);
  assert_true(before.no_memory > 0 && before.unwanted == 0);
  assert_true((2 * CALLS - before.no_memory) * RECORD > MEMORY * 5 / 4); /* it is packed where memory is short */
  window = (struct window){1000 + 2 * STEP * (CALLS - WANTED), UINT64_MAX, true};
  ct_trace_writer_reconcile_detail(writer);
  assert_int_equal(ct_encoder_close(encoders[0]), CT_OK);
  assert_int_equal(ct_encoder_close(encoders[1]), CT_OK);
  ct_trace_writer_end_detail(writer);
  struct ct_detail_dropped dropped = ct_trace_writer_detail_dropped(writer);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);

  struct ct_trace *trace = open_trace(state);
  size_t found = 0;
  for (uint32_t i = 0; i < 2; i++) {
    found += count_details(trace, i, CALLS - WANTED);
  }
  assert_true(found >= (size_t)2 * WANTED && dropped.unwanted > 0);
  assert_int_equal(found + dropped.unwanted + dropped.no_memory, 2 * CALLS);
  ct_trace_close(trace);
}

static off_t
size_of_calls(void **state, bool is_behind)
{
  struct stat file;
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct window window = {0, UINT64_MAX, true};
  struct ct_encoder *encoder;
  ct_trace_writer_judge_detail(writer, judge, &window, MEMORY);
  ct_trace_writer_set_behind(writer, is_behind);
  assert_int_equal(ct_trace_writer_function(writer, 0, 0, 0x10, 4, "full", "called"), CT_OK);
  assert_int_equal(ct_trace_writer_thread(writer, 0, 100, 9, &encoder), CT_OK);
  for (uint64_t i = 0; i < CALLS; i++) {
    call(encoder, i);
  }
  assert_int_equal(ct_encoder_close(encoder), CT_OK);
  ct_trace_writer_end_detail(writer);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  struct ct_trace *trace = open_trace(state);
  assert_int_equal(count_details(trace, 0, 0), CALLS);
  ct_trace_close(trace);
  assert_int_equal(stat(path_in(state, "t/thread_0/detail.ctd"), &file), 0);
  return file.st_size;
}

/* While records are about to be lost, what is written is not packed. */
static void
test_behind(void **state)
{
  assert_true(size_of_calls(state, true) >= (off_t)CALLS * RECORD);
}

static void
test_not_behind(void **state)
{
  assert_true(size_of_calls(state, false) < (off_t)CALLS * RECORD / 3 * 2);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, temporary_setup, temporary_teardown)
  const struct CMUnitTest tests[] = {TEST(test_held), TEST(test_behind), TEST(test_not_behind)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
