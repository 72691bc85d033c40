/* SPDX-License-Identifier: MIT */
/* Counters of threads, as the drain reads them: drain/counts.c. */
#include "drain/drain_internal.h"

#include "drain_tape.h"

struct counted {
  struct tape tape;
  struct ct_drain *drain;
  uint64_t *calls;
  uint32_t *recorded;
};

static void
begin_counted(struct counted *counted, void **state)
{
  begin(&counted->tape, state);
  counted->drain = calloc(1, sizeof(*counted->drain));
  uint8_t *counters = calloc(1, CT_COUNTERS_BYTES);
  assert_true(counted->drain != NULL && counters != NULL);
  counted->calls = (uint64_t *)counters;
  counted->recorded = (uint32_t *)(counters + CT_COUNTERS_RECORDED);
  counted->drain->threads[0] = &counted->tape.thread;
  atomic_store(&counted->drain->function_count, FUNCTIONS);
  drain_counts_begin(counted->drain, counters);
}

static void
end_counted(struct counted *counted)
{
  free(counted->calls);
  drain_counts_end(counted->drain);
  drain_counts_free(&counted->drain->counts);
  free(counted->drain);
  free(finish(&counted->tape));
}

/* What a reading finds more, in all and of that function. */
static uint64_t
take(struct counted *counted, uint32_t fn)
{
  struct ct_drain *drain = counted->drain;
  uint64_t before = atomic_load(&drain->counts.tallies[fn].counted);
  uint64_t all = drain->stats.hook_events[CT_HOOK_EVENT_COUNTED];
  drain_counts_take_slot(drain, 0);
  assert_int_equal(drain->stats.hook_events[CT_HOOK_EVENT_COUNTED] - all,
                   atomic_load(&drain->counts.tallies[fn].counted) - before);
  return atomic_load(&drain->counts.tallies[fn].counted) - before;
}

/* A recorder that stood still for a while finds more calls than 31, or 32, bits hold. */
static void
stood_still(void **state)
{
  struct counted counted;
  begin_counted(&counted, state);
  counted.calls[3] = 100;
  counted.recorded[3] = 2;
  assert_int_equal(take(&counted, 3), 98);
  counted.calls[3] += 3000000000;
  assert_int_equal(take(&counted, 3), 3000000000);
  counted.calls[3] += 30000000000;
  counted.recorded[3] += 400000000;
  assert_int_equal(take(&counted, 3), 29600000000);
  counted.recorded[3] = 100; /* 4,294,967,296 and 100 */
  counted.calls[3] += 64ull << 32;
  assert_int_equal(take(&counted, 3), (64ull << 32) - ((1ull << 32) + 100 - 400000002));
  assert_int_equal(take(&counted, 3), 0);
  end_counted(&counted);
}

/* One that is recorded after it was read waits for the next one; what a target scribbles is no number of calls. */
static void
scribbled(void **state)
{
  struct counted counted;
  begin_counted(&counted, state);
  counted.calls[5] = 1000;
  assert_int_equal(take(&counted, 5), 1000);
  counted.recorded[5] = 1;
  assert_int_equal(take(&counted, 5), 0);
  counted.calls[5] += 5000000003;
  assert_int_equal(take(&counted, 5), 5000000002);
  counted.calls[5] = 7;
  assert_int_equal(take(&counted, 5), 0);
  counted.calls[5] = 17;
  assert_int_equal(take(&counted, 5), 10);
  counted.calls[5] = UINT64_MAX / 2;
  assert_int_equal(take(&counted, 5), 0);
  counted.calls[5] += 4;
  assert_int_equal(take(&counted, 5), 4);
  end_counted(&counted);
}

static uint64_t
reading(struct counted *counted, bool is_last)
{
  uint64_t all = counted->drain->stats.hook_events[CT_HOOK_EVENT_COUNTED];
  drain_counts_take(counted->drain, is_last);
  return counted->drain->stats.hook_events[CT_HOOK_EVENT_COUNTED] - all;
}

/* A thread that has counted a call, and is kept off the processor before it says that it is recorded, too. */
static void
kept_off(void **state)
{
  struct counted counted;
  begin_counted(&counted, state);
  drain_counts_hooked(&counted.drain->counts, 3);
  counted.calls[3] = 65;
  counted.recorded[3] = 1;
  assert_int_equal(reading(&counted, false), 63);
  counted.recorded[3] = 2;
  assert_int_equal(reading(&counted, false), 0); /* and it calls no more that is counted */
  assert_int_equal(reading(&counted, true), 0);
  counted.calls[3] = 129; /* one that is counted only */
  assert_int_equal(reading(&counted, false), 63);
  assert_int_equal(reading(&counted, false), 1);
  counted.calls[3] = 193;
  assert_int_equal(reading(&counted, true), 64);
  counted.calls[3] = 200;
  assert_int_equal(reading(&counted, false), 7);
  counted.calls[CT_COUNTERS_BY_ID] = 65;
  ct_drain_give_counter(counted.drain, CT_COUNTERS_BY_ID, 4);
  drain_counts_hooked(&counted.drain->counts, 4);
  assert_int_equal(take(&counted, 4), 65);
  end_counted(&counted);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      CASE(stood_still),
      CASE(scribbled),
      CASE(kept_off),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
