/* SPDX-License-Identifier: MIT */
/* Spans from the middle of a stream are those of the whole one; ids of spans there and back. */
#include "views_make.h"

#include "span/id.h"
#include "span/spans.h"
#include "trace/batch.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"main", "work", "longjmp", "_Unwind_RaiseException", "_Unwind_Resume", "f",
                                    "g",    "h",    NULL};
enum { FUNCTIONS = 8, EVENTS = 300000 };

/* ---- ids ---- */

static void
check_place(uint64_t id, const struct ct_span_place *place)
{
  struct ct_span_place found;
  assert_true(id != 0 && ct_span_id_split(id, &found));
  assert_true(found.trace == place->trace && found.process == place->process && found.thread == place->thread &&
              found.ordinal == place->ordinal);
}

static void
test_ids(void **state)
{
  (void)state;
  static const uint32_t numbers[] = {0, 1, 3, 4, 15, 16, 63, 64, 255, 256, 4095, 4096, 65535, 65536, 131071};
  static const uint64_t ordinals[] = {0, 1, 1000, 1ull << 33, (1ull << 36) - 2};
  enum { COUNT = sizeof(numbers) / sizeof(numbers[0]) };
  for (uint32_t trace = 0; trace < 64; trace += 21) {
    for (size_t p = 0; p < COUNT; p++) {
      for (size_t t = 0; t < COUNT && (p < 11 || t < 11); t++) {
        for (size_t o = 0; o < sizeof(ordinals) / sizeof(ordinals[0]); o++) {
          struct ct_span_place place = {trace, numbers[p], numbers[t], ordinals[o]};
          if ((o > 2 && (p > 5 || t > 5)) || (p > 10 && t > 10)) {
            continue; /* there is not room for all at once */
          }
          check_place(ct_span_id(&place), &place);
        }
      }
    }
  }
  struct ct_span_place place = {.ordinal = (1ull << 52) - 2}, found;
  check_place(ct_span_id(&place), &place);
  place.ordinal = 1ull << 52;
  assert_int_equal(ct_span_id(&place), 0);
  place.ordinal = CT_NO_ORDINAL;
  assert_int_equal(ct_span_id(&place), 0);
  place = (struct ct_span_place){.thread = 7, .ordinal = CT_ORDINAL_BEFORE | 12345ull << CT_ORDINAL_DEPTH_BITS | 300};
  check_place(ct_span_id(&place), &place);
  assert_false(ct_span_id_split(0, &found));
  assert_false(ct_span_id_split(UINT64_MAX, &found));
}

static uint64_t
next_random(uint64_t *seed)
{
  *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
  return *seed >> 33;
}

/* Many of one thread: the same ids as one by one, up to what there is room for, and beyond. */
static void
test_ids_of_a_lane(void **state)
{
  (void)state;
  static const uint32_t threads[] = {0, 15, 16, 255, 4096, 131071};
  for (size_t t = 0; t < sizeof(threads) / sizeof(threads[0]); t++) {
    struct ct_span_place place = {.thread = threads[t]};
    struct ct_span_lane lane;
    ct_span_lane_init_at(&lane, &place);
    assert_true(lane.end > 1ull << 38);
    for (unsigned bit = 0; bit < 62; bit++) {
      for (int off = -2; off <= 2; off++) {
        place.ordinal = (1ull << bit) + (uint64_t)(int64_t)off;
        if (place.ordinal < lane.end) {
          assert_int_equal(ct_span_lane_id(&lane, place.ordinal), ct_span_id(&place));
        }
      }
    }
    place.ordinal = lane.end - 1;
    assert_int_equal(ct_span_lane_id(&lane, place.ordinal), ct_span_id(&place));
    place.ordinal = lane.end;
    assert_int_equal(ct_span_id(&place), 0);
  }
}

/* Any number is an id or is none; none is two. */
static void
test_ids_at_random(void **state)
{
  (void)state;
  uint64_t seed = 7;
  for (int i = 0; i < 1000000; i++) {
    uint64_t id = (next_random(&seed) << 32 | next_random(&seed)) >> (next_random(&seed) % 50);
    struct ct_span_place place;
    if (ct_span_id_split(id, &place)) {
      assert_int_equal(ct_span_id(&place), id);
    }
  }
}

/* ---- states ---- */

struct list {
  struct ct_span *spans;
  size_t count, capacity;
};

static void
add(struct list *list, const struct ct_span *batch, size_t count)
{
  if (list->count + count > list->capacity) {
    list->capacity = (list->count + count) * 2;
    list->spans = reallocarray(list->spans, list->capacity, sizeof(*list->spans));
    assert_non_null(list->spans);
  }
  memcpy(list->spans + list->count, batch, count * sizeof(*batch));
  list->count += count;
}

static void
read_all(struct ct_spans *spans, struct list *list)
{
  const struct ct_span *batch;
  size_t count;
  int code;
  while ((code = ct_spans_next(spans, &batch, &count)) == 0 && count != 0) {
    add(list, batch, count);
  }
  assert_int_equal(code, 0);
}

static void
check_same(const struct ct_span *a, const struct ct_span *b, size_t n)
{
  if (a->ordinal != b->ordinal || a->parent_ordinal != b->parent_ordinal || a->enter_tsc != b->enter_tsc ||
      a->end_tsc != b->end_tsc || a->duration_ticks != b->duration_ticks || a->self_ticks != b->self_ticks ||
      a->fresh_ticks != b->fresh_ticks || a->off_ticks != b->off_ticks || a->fresh_off_ticks != b->fresh_off_ticks ||
      a->fn != b->fn || a->caller_fn != b->caller_fn || a->depth != b->depth || a->context != b->context ||
      a->end != b->end || a->uncertain != b->uncertain) {
    fail_msg("span %zu: function %u ordinal %lu %s is function %u ordinal %lu %s from the middle", n, a->fn,
             (unsigned long)a->ordinal, ct_span_end_text(a->end), b->fn, (unsigned long)b->ordinal,
             ct_span_end_text(b->end));
  }
}

/* Everything that a thread's stream may have, at random: nearly all of it calls and returns. */
static void
encode_at_random(struct ct_encoder *e, uint64_t seed)
{
  uint64_t tsc = MAKE_START;
  for (int i = 0; i < EVENTS; i++) {
    uint64_t what = next_random(&seed) % 1000;
    uint32_t fn = (uint32_t)(next_random(&seed) % FUNCTIONS), depth = ct_encoder_depth(e);
    tsc += next_random(&seed) % 50;
    if (what < 440 && depth < 3000) {
      ct_encode_enter(e, tsc, fn, 0);
    } else if (what < 900) {
      if (depth > 0) {
        ct_encode_return(e, tsc);
      }
    } else if (what < 940) {
      ct_encode_tail(e, tsc, fn);
    } else if (what < 970) {
      ct_encode_point(e, tsc, fn);
    } else if (what < 980) {
      for (uint64_t left = next_random(&seed) % 4; left > 0 && ct_encoder_depth(e) > 0; left--) {
        ct_encode_unwound(e, tsc, CT_UNWOUND_JUMP);
      }
    } else if (what < 988) {
      ct_encode_away(e, tsc - 20, tsc, 1 + (uint8_t)(what % 4));
    } else if (what < 999) {
      ct_encode_switch(e, tsc, (uint32_t)(next_random(&seed) % 5));
    } else {
      ct_encode_lost(e, tsc, 3);
    }
  }
}

/* Goes through the stream block by block; what comes out of each, from what is known at its begin, is what came before.
 */
static void
check_places(struct ct_trace *trace, enum ct_view_time time)
{
  struct ct_spans *whole, *walker, *from;
  struct list all = {0};
  assert_int_equal(ct_spans_open(trace, 0, time, &whole, NULL), 0);
  assert_int_equal(ct_spans_open(trace, 0, time, &walker, NULL), 0);
  assert_int_equal(ct_spans_open(trace, 0, time, &from, NULL), 0);
  read_all(whole, &all);
  uint64_t offset = 0;
  size_t done = 0, blocks = 0;
  struct ct_span_bytes state = {0};
  for (bool more = true; more; blocks++) {
    struct list here = {0}, again = {0};
    ct_spans_stop_at(walker, offset + 1);
    read_all(walker, &here);
    uint64_t next;
    more = ct_spans_stopped(walker, &next);
    assert_int_equal(ct_spans_restore(from, offset, state.data, state.size), 0);
    ct_spans_stop_at(from, more ? next : UINT64_MAX);
    read_all(from, &again);
    assert_int_equal(here.count, again.count);
    for (size_t i = 0; i < here.count; i++) {
      check_same(&all.spans[done + i], &here.spans[i], done + i);
      check_same(&all.spans[done + i], &again.spans[i], done + i);
    }
    done += here.count;
    if (more) {
      state.size = 0;
      assert_int_equal(ct_spans_save(walker, &state), 0);
      offset = next;
    }
    free(here.spans);
    free(again.spans);
  }
  assert_int_equal(done, all.count);
  assert_true(blocks > 5);
  ct_spans_close(whole);
  ct_spans_close(walker);
  ct_spans_close(from);
  free(state.data);
  free(all.spans);
}

static void
test_places(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= 3; seed++) {
    struct make m;
    make_begin(&m, names, 1);
    m.hook_costs = "{\"enter_before\": 4, \"enter_after\": 6, \"return_before\": 5, \"return_after\": 3, \"value\": 2,"
                   " \"point\": 8.5, \"sampled\": 9, \"passed_over\": 1}";
    encode_at_random(m.encoders[0], seed);
    struct ct_trace *trace = make_open(&m, true, 0);
    check_places(trace, CT_TIME_WALL);
    check_places(trace, CT_TIME_CPU);
    make_end(&m, trace);
  }
}

/* Bytes that are cut or changed are refused, or give some spans; nothing worse. */
static void
test_damaged_state(void **state)
{
  (void)state;
  struct make m;
  make_begin(&m, names, 1);
  encode_at_random(m.encoders[0], 9);
  struct ct_trace *trace = make_open(&m, true, 0);
  struct ct_spans *spans;
  struct list list = {0};
  struct ct_span_bytes bytes = {0};
  assert_int_equal(ct_spans_open(trace, 0, CT_TIME_WALL, &spans, NULL), 0);
  ct_spans_stop_at(spans, 65);
  read_all(spans, &list);
  uint64_t offset, seed = 3;
  assert_true(ct_spans_stopped(spans, &offset));
  assert_int_equal(ct_spans_save(spans, &bytes), 0);
  for (size_t size = 1; size < bytes.size; size += 1 + size / 16) {
    assert_int_equal(ct_spans_restore(spans, offset, bytes.data, size), CT_EFORMAT);
  }
  for (int i = 0; i < 300; i++) {
    uint8_t *at = &bytes.data[next_random(&seed) % bytes.size], was = *at;
    *at = (uint8_t)next_random(&seed);
    if (ct_spans_restore(spans, offset, bytes.data, bytes.size) == 0) {
      list.count = 0;
      ct_spans_stop_at(spans, offset + 1);
      read_all(spans, &list);
    }
    *at = was;
  }
  assert_int_equal(ct_spans_restore(spans, offset + 1, bytes.data, bytes.size), CT_EFORMAT);
  list.count = 0;
  read_all(spans, &list);
  assert_int_equal(list.count, 0);
  ct_spans_close(spans);
  free(bytes.data);
  free(list.spans);
  make_end(&m, trace);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ids),    cmocka_unit_test(test_ids_of_a_lane), cmocka_unit_test(test_ids_at_random),
      cmocka_unit_test(test_places), cmocka_unit_test(test_damaged_state),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
