/* SPDX-License-Identifier: MIT */
/* What is taken many at a time gives what it gives one by one: bytes of the columns, and events of threads. */
#include "drain_tape.h"

#include "trace/runs.h"

enum { ROUNDS = 3000, EVENTS = 4000 };

/* Mostly small ones, some of each length. */
static uint64_t
some_difference(uint64_t *random)
{
  uint64_t word = xorshift(random);
  return word % 16 < 9 ? (word >> 8) % 128 : word % 16 < 15 ? (word >> 8) % 20000 : word >> (word >> 8) % 60;
}

static void
times_become_the_same_bytes(void **state)
{
  uint64_t random = 4711;
  for (int round = 0; round < ROUNDS; round++) {
    static struct ct_run run;
    uint8_t bytes[3][CT_RUN_OPS * CT_DELTA_BYTES_MAX + 16];
    struct ct_columns columns = {.delta = bytes[0], .last_tsc = 0};
    size_t count = xorshift(&random) % (CT_RUN_OPS + 1);
    run.times[0] = 0;
    for (size_t i = 0; i < count; i++) {
      run.times[i + 1] = run.times[i] + (some_difference(&random) >> 8 * (round % 3));
      run.times[i + 1] = run.times[i + 1] < run.times[i] ? run.times[i] : run.times[i + 1];
      ct_columns_time(&columns, run.times[i + 1]);
    }
    size_t size = (size_t)(columns.delta - bytes[0]);
    assert_ptr_equal(ct_run_put_times_plain(bytes[1], run.times, count), bytes[1] + size);
    assert_memory_equal(bytes[0], bytes[1], size);
    assert_ptr_equal(ct_run_put_times(bytes[2], run.times, count), bytes[2] + size);
    assert_memory_equal(bytes[0], bytes[2], size);
  }
}

static void
ids_become_the_same_bytes(void **state)
{
  uint64_t random = 4712;
  for (int round = 0; round < ROUNDS; round++) {
    uint32_t ids[CT_RUN_OPS];
    uint8_t bytes[2][CT_RUN_OPS * 10 + 4];
    uint8_t *end = bytes[0];
    size_t count = xorshift(&random) % (CT_RUN_OPS + 1);
    for (size_t i = 0; i < count; i++) {
      uint64_t word = xorshift(&random);
      ids[i] = (uint32_t)(word & CT_FUNCTION_ID_MAX) >> (word >> 32) % 28;
      end = ct_varint_put(end, ids[i]);
    }
    size_t size = (size_t)(end - bytes[0]);
    assert_ptr_equal(ct_run_put_ids(bytes[1], ids, count), bytes[1] + size);
    assert_memory_equal(bytes[0], bytes[1], size);
  }
}

static void
values_become_the_same_bytes(void **state)
{
  uint64_t random = 4714;
  for (int round = 0; round < ROUNDS * 10; round++) {
    uint8_t bytes[2][16];
    uint64_t value = xorshift(&random) >> round % 64;
    value = round % 7 == 0 ? ~value : round % 7 == 1 ? (value & (value - 1)) ^ value : value;
    size_t size = (size_t)(ct_varint_put(bytes[0], value) - bytes[0]);
    assert_ptr_equal(ct_value_put(bytes[1], value), bytes[1] + size);
    assert_memory_equal(bytes[0], bytes[1], size);
  }
}

static uint32_t
some_value(uint64_t *random)
{
  static const uint32_t kinds[] = {CT_OTHER_ARG_1, CT_OTHER_ARG_1, CT_OTHER_ARG_2, CT_OTHER_RESULT, CT_OTHER_VALUE};
  uint64_t word = xorshift(random);
  uint32_t kind = kinds[word % 5];
  return kind == CT_OTHER_VALUE ? kind | (uint32_t)(word >> 8) % (CT_VALUE_COUNT + 2) << 4 : kind;
}

/*
 * Calls as a thread makes them, of 16 events so many are values of the call at hand, and now and then something that no
 * thread would.
 */
static void
make_events(uint64_t *random, struct ct_ring_event *events, unsigned values, unsigned oddities)
{
  enum { DEPTH = 40, TOP = 0x80000100, FRAME = 16 }; /* halves of addresses on both sides of the highest bit */
  static uint32_t functions[DEPTH];
  uint32_t depth = 0;
  uint64_t tsc = 1000;
  for (size_t i = 0; i < EVENTS; i++) {
    uint64_t word = xorshift(random);
    uint32_t fn = (uint32_t)(word >> 8) % ENTER_ONLY, ra_slot = TOP - depth * FRAME, kind = CT_KIND_ENTER;
    bool is_value = depth != 0 && (word >> 33) % 16 < values;
    tsc += some_difference(random) % 100000;
    if (is_value) {
      kind = CT_KIND_OTHER;
      ra_slot += FRAME;
      fn = some_value(random);
    } else if (depth == DEPTH || (depth != 0 && (word >> 20) % 2 == 0)) {
      kind = CT_KIND_RETURN;
      depth--;
      ra_slot += FRAME;
      fn = functions[depth];
    } else if ((word >> 21) % 8 < 2) {
      kind = CT_KIND_OTHER;
      fn = ((word >> 24) % 16 != 0 ? 9 : 10 + (word >> 28) % 4) | CT_FN_POINT_BIT |
           ((word >> 32) % 64 != 0 ? 1 : 2 + (word >> 40) % 10) << CT_FN_WEIGHT_SHIFT;
      fn = (word >> 50) % 16 == 0 ? fn & ~(15u << CT_FN_WEIGHT_SHIFT) : fn;
    } else {
      functions[depth++] = fn;
    }
    uint64_t odd = xorshift(random), clock = is_value ? odd >> (odd & 63) : tsc;
    if (odd % 1000 < oddities) {
      uint32_t what = (odd >> 10) % 9;
      kind = what == 0 ? CT_KIND_TAIL : what == 1 ? CT_KIND_OTHER : what == 2 ? CT_KIND_RETURN : kind;
      fn = what == 1 ? (odd >> 16) % 16 : what == 3 ? FUNCTIONS + (odd >> 16) % 3 : fn;
      fn = what == 1 && (fn == CT_OTHER_DETAIL || fn == CT_OTHER_VALUE) ? CT_OTHER_ARG_1 : fn;
      ra_slot += what == 4 ? (uint32_t)(odd >> 16) % 64 * 16 - 512 : what == 5 ? 1u << 31 : 0;
      tsc -= what == 6 ? tsc / 2 : 0;
      clock = what == 8 && i > EVENTS / 2 ? odd << 24 : is_value ? odd : tsc; /* then as late as that all others are */
      fn = what == 7 && kind == CT_KIND_OTHER ? fn | 15u << CT_FN_WEIGHT_SHIFT : fn;
    }
    events[i] = (struct ct_ring_event){
        .tsc = clock, .word = (uint64_t)ra_slot << 32 | fn << CT_WORD_FN_SHIFT | kind << CT_WORD_KIND_SHIFT | 1};
  }
}

/* All that readers see of the events, as a number. */
static uint64_t
sum_of_events(void **state)
{
  struct ct_trace *trace = open_trace(state);
  struct ct_cursor *cursor;
  const struct ct_event *e;
  uint64_t sum = 0;
  assert_int_equal(ct_cursor_open(trace, 0, 0, &cursor, NULL), CT_OK);
  for (size_t n; (n = ct_cursor_next(cursor, &e)) != 0;) {
    for (size_t i = 0; i < n; i++) {
      uint64_t words[] = {e[i].tsc, e[i].enter_tsc, e[i].value, (uint64_t)e[i].fn << 32 | e[i].depth,
                          (uint64_t)e[i].kind << 16 | (uint64_t)e[i].reason << 8 | e[i].uncertain};
      for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++) {
        sum = (sum ^ words[w]) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
      }
    }
  }
  ct_cursor_close(cursor);
  ct_trace_close(trace);
  return sum;
}

/* most 0: one by one, and none of them as a run. */
static char *
play(void **state, uint64_t *random, const struct ct_ring_event *events, size_t most, const uint32_t stack[2],
     uint32_t max_depth, uint64_t *sum)
{
  struct tape t;
  temporary_setup(state);
  begin(&t, state);
  t.thread.stack_low = stack[0];
  t.thread.stack_length = stack[1];
  t.thread.max_depth = max_depth;
  for (size_t at = 0; at < EVENTS;) {
    size_t count = most == 0 ? 1 : 1 + xorshift(random) % most;
    count = count < EVENTS - at ? count : EVENTS - at;
    if (most == 0) {
      t.thread.encoder->columns.op_limit = t.thread.encoder->columns.op;
    }
    drain_thread_events(&t.thread, events + at, count, t.modes, FUNCTIONS);
    at += count;
  }
  char *line = finish(&t);
  *sum = sum_of_events(state);
  free(t.thread.flows);
  temporary_teardown(state);
  return line;
}

static void
runs_are_their_events(void **state)
{
  static struct ct_ring_event events[EVENTS];
  static const uint32_t stacks[][2] = {{0, UINT32_MAX}, {0x7fff0000, 0x20000}, {0x7ffffff0, 0x100}, {0, 0}};
  uint64_t random = 4713;
  for (unsigned round = 0; round < 48; round++) {
    make_events(&random, events, (unsigned[]){0, 9, 1}[round / 4 % 3], (unsigned[]){0, 2, 30, 200}[round / 2 % 4]);
    const uint32_t *stack = stacks[round % 4];
    tape_is_near = round % 3 == 1;
    uint32_t max_depth = round % 5 == 4 ? 3 : UINT32_MAX;
    uint64_t expected_sum, sum;
    char *expected = play(state, &random, events, 0, stack, max_depth, &expected_sum);
    for (size_t most = 1; most <= EVENTS; most *= 8) {
      char *line = play(state, &random, events, most, stack, max_depth, &sum);
      assert_string_equal(line, expected);
      assert_true(sum == expected_sum);
      free(line);
    }
    free(expected);
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(times_become_the_same_bytes),
      cmocka_unit_test(ids_become_the_same_bytes),
      cmocka_unit_test(values_become_the_same_bytes),
      cmocka_unit_test(runs_are_their_events),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
