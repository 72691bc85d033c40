/* SPDX-License-Identifier: MIT */
/* Records by what came before them, made and undone: all is as it was; damage is told, and nothing else is written. */
#include "ring/itrace_stream.h"
#include "steps/matches.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { UNITS = 40, RECORDS = 60000, MOST = RECORDS * 160, STAMPS = 64, RACES = 60 };

static uint64_t seed = 1;
static struct ct_unit_sizes *sizes;
static struct ct_stream_stamp stamps[STAMPS];
static uint8_t *bytes;
static size_t size;
static atomic_bool is_over;

static uint32_t
lot(uint32_t below)
{
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % below;
}

static uint32_t
bytes_of(uint32_t unit)
{
  return 4 + unit * unit * 7 % 150;
}

static uint32_t
unit_at(size_t at)
{
  uint32_t unit;
  memcpy(&unit, bytes + at, sizeof(unit));
  return unit;
}

static void
add(const void *data, size_t count)
{
  memcpy(bytes + size, data, count);
  size += count;
}

/*
 * A context, then loops over a few units: so many values of a hundred change, by steps or at random. An event now and
 * then. Stamps where records begin.
 */
static void
fill(uint32_t changes, uint32_t random)
{
  struct ct_stream_context context = {.event = {CT_STREAM_EVENT | CT_STREAM_CONTEXT, sizeof(context)}, .tsc = 5};
  struct ct_stream_gap gap = {.event = {CT_STREAM_EVENT | CT_STREAM_GAP, sizeof(gap)}, .tsc = 9};
  uint8_t values[UNITS][160] = {{0}};
  uint32_t unit = 0, first = 1, length = 5;
  size = 0;
  add(&context, sizeof(context));
  for (uint32_t i = 0; i < RECORDS; i++) {
    if (lot(200) == 0) {
      first = 1 + lot(UNITS - 9);
      length = 1 + lot(8);
    }
    unit = first + i % length;
    for (uint32_t k = 0; k < bytes_of(unit) - 4; k++) {
      values[unit][k] += lot(100) >= changes ? 0 : lot(100) < random ? (uint8_t)lot(256) : (uint8_t)(k + 1);
    }
    if (i % (RECORDS / STAMPS) == 0 && i / (RECORDS / STAMPS) < STAMPS) {
      stamps[i / (RECORDS / STAMPS)] = (struct ct_stream_stamp){.tsc = i, .at = size};
    }
    if (lot(3000) == 0) {
      add(&gap, sizeof(gap));
    }
    add(&unit, sizeof(unit));
    add(values[unit], bytes_of(unit) - 4);
  }
}

/* As it is counted otherwise, too. */
static enum ct_matching
make(struct ct_matcher *matcher, const uint8_t **made, size_t *made_size)
{
  struct ct_stream_count count = {.steps = 0}, wanted = {.steps = 0};
  enum ct_matching matching = ct_matcher_make(matcher, sizes, bytes, size, stamps, STAMPS, &count, made, made_size);
  if (matching != CT_NOT_COUNTED && !atomic_load_explicit(&is_over, memory_order_relaxed)) {
    assert_true(ct_stream_count_sized(sizes, bytes, size, stamps, STAMPS, &wanted));
    assert_int_equal(count.steps, wanted.steps);
    assert_int_equal(count.first_tsc, wanted.first_tsc);
    assert_int_equal(count.last_tsc, wanted.last_tsc);
    assert_int_equal(count.is_whole, wanted.is_whole);
  }
  return matching;
}

static void
is_undone(void **state)
{
  (void)state;
  struct ct_matcher *matcher = ct_matcher_create();
  static const uint32_t kinds[][2] = {{0, 0}, {1, 0}, {1, 50}, {4, 10}, {3, 100}};
  uint8_t *undone = malloc(MOST);
  assert_non_null(matcher);
  assert_non_null(undone);
  for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
    const uint8_t *made = NULL;
    size_t made_size = 0;
    fill(kinds[i][0], kinds[i][1]);
    assert_int_equal(make(matcher, &made, &made_size), CT_MATCHED);
    assert_true(made_size < ct_matched_most(size) && made_size < size / 3);
    assert_memory_equal(made + CT_MATCHED_HEAD_BYTES, bytes, sizeof(struct ct_stream_context));
    memset(undone, 0xee, size);
    assert_true(ct_matched_undo(made, made_size, undone, size));
    assert_memory_equal(undone, bytes, size);
    assert_false(ct_matched_undo(made, made_size, undone, size / 2));
    assert_false(ct_matched_undo(made, made_size - 1, undone, size));
  }
  free(undone);
  ct_matcher_free(matcher);
}

/* Of any length, in memory of just that size, which the sanitizers watch. */
static void
short_ones_are_undone(void **state)
{
  (void)state;
  struct ct_matcher *matcher = ct_matcher_create();
  uint32_t matched = 0;
  for (unsigned turn = 0; turn < 200; turn++) {
    const uint8_t *made = NULL;
    size_t made_size = 0, part = sizeof(struct ct_stream_context);
    struct ct_stream_count count;
    if (turn % 20 == 0) {
      fill(3, turn % 100);
    }
    for (uint32_t i = lot(60); i > 0 && ct_unit_sizes_of(sizes, unit_at(part)) != 0; i--) {
      part += ct_unit_sizes_of(sizes, unit_at(part)) >> 8;
    }
    uint8_t *alone = malloc(part), *undone = malloc(part);
    assert_non_null(alone);
    assert_non_null(undone);
    memcpy(alone, bytes, part);
    if (ct_matcher_make(matcher, sizes, alone, part, NULL, 0, &count, &made, &made_size) == CT_MATCHED) {
      assert_true(made_size <= ct_matched_most(part) && ct_matched_undo(made, made_size, undone, part));
      assert_memory_equal(undone, alone, part);
      matched++;
    }
    free(alone);
    free(undone);
  }
  assert_true(matched > 100);
  ct_matcher_free(matcher);
}

static void
knows_what_is_not_similar(void **state)
{
  (void)state;
  struct ct_matcher *matcher = ct_matcher_create();
  const uint8_t *made = NULL;
  size_t made_size = 0;
  fill(90, 100);
  assert_int_equal(make(matcher, &made, &made_size), CT_NOT_SIMILAR);
  struct ct_stream_part part = {.word = CT_STREAM_PART, .unit = 3, .first = 0, .end = 1};
  fill(1, 0);
  add(&part, sizeof(part));
  assert_int_equal(make(matcher, &made, &made_size), CT_NOT_COUNTED);
  fill(1, 0); /* and goes on after either */
  assert_int_equal(make(matcher, &made, &made_size), CT_MATCHED);
  size = 0;
  assert_int_equal(make(matcher, &made, &made_size), CT_NOT_COUNTED);
  ct_matcher_free(matcher);
}

/* Into memory of just that size, which the sanitizers watch. */
static void
damage_is_no_harm(void **state)
{
  (void)state;
  struct ct_matcher *matcher = ct_matcher_create();
  const uint8_t *made = NULL;
  size_t made_size = 0;
  uint32_t told = 0, changed = 0;
  fill(2, 30);
  size = stamps[2].at; /* a short one: its first bytes, and some tokens */
  assert_int_equal(
      ct_matcher_make(matcher, sizes, bytes, size, NULL, 0, &(struct ct_stream_count){0}, &made, &made_size),
      CT_MATCHED);
  uint8_t *damaged = malloc(made_size), *undone = malloc(size);
  assert_non_null(damaged);
  assert_non_null(undone);
  for (unsigned turn = 0; turn < 4000; turn++) {
    memcpy(damaged, made, made_size);
    size_t at = turn < 12 ? turn : lot((uint32_t)made_size);
    damaged[at] ^= (uint8_t)(1 + lot(255));
    if (!ct_matched_undo(damaged, made_size, undone, size)) {
      told++;
    } else {
      changed += memcmp(undone, bytes, size) != 0;
    }
  }
  assert_true(told > 400 && changed > 400);
  free(damaged);
  free(undone);
  ct_matcher_free(matcher);
}

/* What the traced program may do to its own segments meanwhile. */
static void *
change(void *context)
{
  uint64_t own = (uint64_t)(uintptr_t)context | 1;
  while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
    own = own * 6364136223846793005u + 1442695040888963407u;
    __atomic_store_n(&bytes[(own >> 33) % size], (uint8_t)((own >> 20) % UNITS), __ATOMIC_RELAXED);
  }
  return NULL;
}

static void
changes_meanwhile_are_no_harm(void **state)
{
  (void)state;
  struct ct_matcher *matcher = ct_matcher_create();
  uint8_t *undone = malloc(MOST);
  uint32_t done = 0;
  assert_non_null(undone);
  for (unsigned turn = 0; turn < RACES; turn++) {
    pthread_t thread;
    const uint8_t *made = NULL;
    size_t made_size = 0;
    struct ct_stream_count count;
    fill(1, 20);
    atomic_store_explicit(&is_over, false, memory_order_relaxed);
    assert_int_equal(pthread_create(&thread, NULL, change, NULL), 0);
    enum ct_matching matching = ct_matcher_make(matcher, sizes, bytes, size, NULL, 0, &count, &made, &made_size);
    atomic_store_explicit(&is_over, true, memory_order_relaxed);
    pthread_join(thread, NULL);
    if (matching == CT_MATCHED) {
      assert_true(ct_matched_undo(made, made_size, undone, size));
      done++;
    }
  }
  print_message("%u of %u were made\n", done, (unsigned)RACES);
  atomic_store_explicit(&is_over, false, memory_order_relaxed);
  free(undone);
  ct_matcher_free(matcher);
}

int
main(void)
{
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(is_undone),
      cmocka_unit_test(short_ones_are_undone),
      cmocka_unit_test(knows_what_is_not_similar),
      cmocka_unit_test(damage_is_no_harm),
      cmocka_unit_test(changes_meanwhile_are_no_harm),
  };
  sizes = ct_unit_sizes_create();
  bytes = malloc(MOST);
  for (uint32_t id = 1; id < UNITS; id++) {
    ct_unit_sizes_add(sizes, id, bytes_of(id), (uint8_t)(1 + id % 20));
  }
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  ct_unit_sizes_free(sizes);
  free(bytes);
  return failed;
}
