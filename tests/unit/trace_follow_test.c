/* SPDX-License-Identifier: MIT */
/* A trace that is read while it is written: events as far as their functions are known. */
#include "unit/trace_model.h"

#include <pthread.h>
#include <stdatomic.h>

/* A reader that stands at the end of a file that still grows sees what comes next, once it knows its functions. */
static void
test_follow(void **state)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct ct_encoder *encoder;
  assert_int_equal(ct_trace_writer_thread(writer, 0, 1, 1, &encoder), CT_OK);
  assert_int_equal(ct_trace_writer_sync(writer), CT_OK);
  struct ct_trace *trace = open_trace(state);
  struct ct_cursor *cursor;
  const struct ct_event *events;
  assert_int_equal(ct_cursor_open(trace, 0, 0, &cursor, NULL), CT_OK);
  for (uint32_t i = 0; i < 5; i++) {
    assert_int_equal(ct_cursor_next(cursor, &events), 0);
    assert_int_equal(ct_cursor_state(cursor), CT_CURSOR_END);
    assert_int_equal(ct_trace_writer_function(writer, i, 0, 16 * i, 16, "full", "later"), CT_OK);
    ct_encode_enter(encoder, 100 + i, i, 0);
    assert_int_equal(ct_encoder_flush(encoder), CT_OK);
    assert_int_equal(ct_trace_writer_sync(writer), CT_OK);
    assert_int_equal(ct_cursor_next(cursor, &events), 0); /* its functions need not be known yet */
    assert_int_equal(ct_trace_refresh(trace, NULL), CT_OK);
    assert_string_equal(ct_trace_function(trace, i)->name, "later");
    assert_int_equal(ct_cursor_next(cursor, &events), 1);
    assert_int_equal(events[0].fn, i);
    assert_int_equal(events[0].depth, i);
  }
  ct_cursor_close(cursor);
  ct_trace_close(trace);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
}

enum { GIVEN_ROUNDS = 300, GIVEN_LINES = 40, GIVEN_ALL = GIVEN_ROUNDS * GIVEN_LINES, FAILED };

struct giver {
  struct ct_trace_writer *writer;
  _Atomic uint32_t known; /* functions that may be called; FAILED: there will be no more */
};

/* As the session's thread: each round's functions are given, then they can be called. */
static void *
give_lines(void *context)
{
  struct giver *giver = context;
  for (uint32_t round = 0; round < GIVEN_ROUNDS; round++) {
    struct ct_function_lines lines = {.writer = giver->writer};
    for (uint32_t i = 0; i < GIVEN_LINES; i++) {
      if (ct_function_lines_add(&lines, round * GIVEN_LINES + i, 0, 16, 16, "full", "given") != CT_OK) {
        atomic_store_explicit(&giver->known, FAILED, memory_order_release);
        return NULL;
      }
    }
    ct_function_lines_end(&lines);
    atomic_store_explicit(&giver->known, (round + 1) * GIVEN_LINES, memory_order_release);
  }
  return NULL;
}

/* Whoever reads a block has its functions' names, though another thread gives them while blocks are written. */
static void
test_given_lines(void **state)
{
  struct giver giver = {.writer = create_writer(state, 1 << 20)};
  struct ct_encoder *encoder;
  const struct ct_event *events;
  struct ct_cursor *cursor;
  pthread_t thread;
  uint32_t next = 0, seen = 0;
  assert_int_equal(ct_trace_writer_thread(giver.writer, 0, 1, 1, &encoder), CT_OK);
  assert_int_equal(ct_trace_writer_sync(giver.writer), CT_OK);
  struct ct_trace *trace = open_trace(state);
  assert_int_equal(ct_cursor_open(trace, 0, 0, &cursor, NULL), CT_OK);
  assert_int_equal(pthread_create(&thread, NULL, give_lines, &giver), 0);
  while (seen < GIVEN_ALL) {
    uint32_t known = atomic_load_explicit(&giver.known, memory_order_acquire);
    assert_true(known <= GIVEN_ALL);
    for (; next < known; next++) {
      ct_encode_enter(encoder, 100 + 2 * next, next, 0);
      ct_encode_return(encoder, 101 + 2 * next);
    }
    assert_int_equal(ct_encoder_flush(encoder), CT_OK);
    if (known == GIVEN_ALL) {
      assert_int_equal(ct_trace_writer_sync(giver.writer), CT_OK); /* then all of them are there */
    }
    assert_int_equal(ct_trace_refresh(trace, NULL), CT_OK); /* what the writer's thread has come to */
    for (size_t count; (count = ct_cursor_next(cursor, &events)) != 0;) {
      for (size_t i = 0; i < count; i++) {
        const struct ct_trace_function *function = ct_trace_function(trace, events[i].fn);
        assert_true(function != NULL && strcmp(function->name, "given") == 0);
        seen += events[i].kind == CT_EV_ENTER;
      }
    }
    assert_true(known < GIVEN_ALL || seen == GIVEN_ALL);
  }
  assert_int_equal(pthread_join(thread, NULL), 0);
  ct_cursor_close(cursor);
  ct_trace_close(trace);
  assert_int_equal(ct_trace_writer_close(giver.writer, NULL), CT_OK);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, temporary_setup, temporary_teardown)
  const struct CMUnitTest tests[] = {TEST(test_follow), TEST(test_given_lines)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
