/* SPDX-License-Identifier: MIT */
/*
 * The sampling interval: what cycles make of it, and who is told. A ring of nothing but states, a file in place of
 * the target's memory, and time as the test has it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "drain/drain_internal.h"

enum { SEGMENTS = 100, CYCLE = 10000000 };
#define CONTROLS 0x100000ull

struct scene {
  struct ct_drain *drain;
  struct ct_ring_header *ring;
  int memory;
};

static void
begin(struct scene *scene, bool adapts, uint32_t log2)
{
  scene->drain = calloc(1, sizeof(*scene->drain));
  scene->ring = calloc(1, CT_PAGE_BYTES);
  scene->memory = memfd_create("controls", MFD_CLOEXEC);
  assert_true(scene->drain != NULL && scene->ring != NULL && scene->memory >= 0);
  struct ct_sampling_options options = {.adapts = adapts, .log2 = log2, .mem_fd = scene->memory, .controls = CONTROLS};
  ct_drain_sample(scene->drain, &options);
  scene->drain->segment_count = SEGMENTS;
  scene->drain->ring = scene->ring;
  scene->drain->tids = calloc(CT_SLOT_COUNT, sizeof(uint32_t));
  scene->drain->entries = calloc(SEGMENTS, sizeof(struct ct_segment_entry));
  assert_true(scene->drain->tids != NULL && scene->drain->entries != NULL);
  scene->drain->tids[0] = 4711;
  scene->drain->tids[1] = UINT32_MAX; /* seized */
  scene->drain->tids[7] = 4712;
  drain_sampling_start(scene->drain);
  scene->drain->now = scene->drain->sampling.cycle_ns;
}

static void
end(struct scene *scene)
{
  close(scene->memory);
  free(scene->drain->tids);
  free(scene->drain->entries);
  free(scene->drain);
  free(scene->ring);
}

/* What stands in a slot's control page, UINT32_MAX when nothing has been written there. */
static uint32_t
page_of(const struct scene *scene, uint32_t slot)
{
  uint32_t log2 = UINT32_MAX;
  off_t at = (off_t)(CONTROLS + (uint64_t)slot * CT_CONTROL_STRIDE + offsetof(struct ct_control_page, sample_log2));
  return pread(scene->memory, &log2, sizeof(log2), at) == sizeof(log2) ? log2 : UINT32_MAX;
}

/* A cycle in three rounds, the second one with so many full segments; samples: sampled hooks had part in it. */
static uint32_t
cycle(struct scene *scene, uint32_t full, bool samples)
{
  struct ct_drain *drain = scene->drain;
  drain->samples += samples;
  drain->now += CYCLE / 2;
  drain_sampling_round(drain, full / 3);
  drain->now += CYCLE / 4;
  drain_sampling_round(drain, full);
  drain->now += CYCLE / 4;
  drain_sampling_round(drain, 0);
  struct ct_sampling_state state;
  ct_drain_sampling(drain, &state);
  return state.interval;
}

static void
up_and_down(void **state)
{
  struct scene s;
  begin(&s, true, 0);
  assert_int_equal(cycle(&s, 51, true), 1);
  assert_int_equal(cycle(&s, 51, true), 2);
  assert_int_equal(cycle(&s, 51, true), 2); /* counted anew */
  assert_int_equal(cycle(&s, 50, true), 2); /* not in a row */
  assert_int_equal(cycle(&s, 51, true), 2);
  assert_int_equal(cycle(&s, 100, true), 4);
  for (int i = 0; i < 20; i++) {
    cycle(&s, 90, true);
  }
  assert_int_equal(cycle(&s, 90, true), 256); /* and no further */
  assert_int_equal(cycle(&s, 90, true), 256);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(cycle(&s, 9, true), 256);
  }
  assert_int_equal(cycle(&s, 10, true), 256);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(cycle(&s, 9, true), 256);
  }
  assert_int_equal(cycle(&s, 9, true), 128);
  for (int i = 0; i < 7 * 5; i++) {
    cycle(&s, 0, false);
  }
  for (int i = 0; i < 10; i++) {
    assert_int_equal(cycle(&s, 0, false), 1);
  }
  struct ct_sampling_state reported;
  ct_drain_sampling(s.drain, &reported);
  assert_int_equal(reported.changes, 16);
  assert_int_equal(reported.last_count, 16);
  assert_int_equal(reported.last[0].interval, 2);
  assert_int_equal(reported.last[7].interval, 256);
  assert_int_equal(reported.last[15].interval, 1);
  for (int i = 1; i < 16; i++) {
    assert_true(reported.last[i].ns > reported.last[i - 1].ns);
  }
  end(&s);
}

/* Full hooks alone fill the ring: sampling would not help. */
static void
for_sampled_hooks_only(void **state)
{
  struct scene s;
  begin(&s, true, 0);
  for (int i = 0; i < 20; i++) {
    assert_int_equal(cycle(&s, 100, false), 1);
  }
  assert_int_equal(cycle(&s, 100, true), 1);
  assert_int_equal(cycle(&s, 100, true), 2);
  end(&s);
}

/* Active segments are no room: with half of them taken by threads, a quarter of all is half of what there is. */
static void
active_segments_do_not_count(void **state)
{
  struct scene s;
  begin(&s, true, 0);
  for (uint32_t i = 0; i < 52; i++) {
    s.drain->entries[i].state = CT_SEG_WORD(CT_SEG_ACTIVE, i, i);
  }
  cycle(&s, 24, true);
  cycle(&s, 24, true);
  assert_int_equal(cycle(&s, 24, true), 1);
  cycle(&s, 25, true);
  assert_int_equal(cycle(&s, 25, true), 2);
  for (uint32_t i = 0; i < SEGMENTS; i++) {
    s.drain->entries[i].state = CT_SEG_WORD(CT_SEG_ACTIVE, i, i); /* nothing else: no division by it */
  }
  cycle(&s, 0, true);
  end(&s);
}

static void
rounds_within_a_cycle(void **state)
{
  struct scene s;
  begin(&s, true, 0);
  s.drain->samples = 1;
  for (int i = 0; i < 1000; i++) { /* however many: a cycle is a time */
    s.drain->now += CYCLE / 1000 - 1;
    drain_sampling_round(s.drain, 90);
  }
  assert_int_equal(s.drain->sampling.log2, 0);
  s.drain->now += 1000;
  drain_sampling_round(s.drain, 90);
  assert_int_equal(s.drain->sampling.high, 1);
  end(&s);
}

static void
threads_are_reported(void **state)
{
  struct scene s;
  begin(&s, true, 0);
  assert_int_equal(s.ring->sample_log2, 0);
  assert_int_equal(page_of(&s, 0), 0);
  cycle(&s, 90, true);
  cycle(&s, 90, true);
  assert_int_equal(s.ring->sample_log2, 1);
  assert_int_equal(page_of(&s, 0), 1);
  assert_int_equal(page_of(&s, 7), 1);
  assert_int_equal(page_of(&s, 1), 0); /* a hole of the file */
  s.drain->tids[8] = 4713;
  cycle(&s, 90, true);
  cycle(&s, 90, true);
  assert_int_equal(page_of(&s, 8), 2);
  end(&s);
}

static void
fixed_or_off(void **state)
{
  for (uint32_t log2 = 0; log2 <= CT_SAMPLE_LOG2_MAX; log2 += 4) {
    struct scene s;
    begin(&s, false, log2);
    assert_int_equal(s.ring->sample_log2, log2);
    assert_int_equal(page_of(&s, 7), log2);
    for (int i = 0; i < 20; i++) {
      assert_int_equal(cycle(&s, i < 10 ? 100 : 0, true), 1u << log2);
    }
    end(&s);
  }
}

/* The interval outlives an image, and of many changes the last ones are kept. */
static void
images_and_history(void **state)
{
  struct scene s;
  begin(&s, true, 0);
  for (int i = 0; i < 600; i++) {
    cycle(&s, 90, true);
    cycle(&s, 90, true);
    for (int k = 0; k < 5; k++) {
      cycle(&s, 0, true);
    }
  }
  cycle(&s, 90, true);
  cycle(&s, 90, true);
  struct ct_sampling_state reported;
  ct_drain_sampling(s.drain, &reported);
  assert_int_equal(reported.changes, 1201);
  assert_int_equal(reported.last_count, CT_SAMPLING_HISTORY);
  assert_int_equal(reported.last[CT_SAMPLING_HISTORY - 1].interval, 2);
  assert_int_equal(reported.last[CT_SAMPLING_HISTORY - 2].interval, 1);
  s.ring->sample_log2 = 0; /* another image's */
  struct ct_sampling_options options = s.drain->sampling.options;
  ct_drain_sample(s.drain, &options);
  drain_sampling_start(s.drain);
  assert_int_equal(s.ring->sample_log2, 1);
  assert_int_equal(page_of(&s, 0), 1);
  end(&s);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(up_and_down),
      cmocka_unit_test(for_sampled_hooks_only),
      cmocka_unit_test(active_segments_do_not_count),
      cmocka_unit_test(rounds_within_a_cycle),
      cmocka_unit_test(threads_are_reported),
      cmocka_unit_test(fixed_or_off),
      cmocka_unit_test(images_and_history),
  };
  return cmocka_run_group_tests_name("sampling", tests, NULL, NULL);
}
