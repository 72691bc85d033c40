/* SPDX-License-Identifier: MIT */
/* Counters of threads, as the drain reads them: drain/counts.c. */
#include "drain/drain_internal.h"

#include "drain_tape.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* calls, recorded: of the first functions, by their ids. */
struct counted {
  struct tape tape;
  struct ct_drain *drain;
  uint8_t *counters;
  uint64_t *calls;
  uint32_t *recorded;
  int fd;
};

static void
begin_counted(struct counted *counted, void **state)
{
  begin(&counted->tape, state);
  counted->drain = calloc(1, sizeof(*counted->drain));
  counted->fd = memfd_create("counters", MFD_CLOEXEC);
  assert_true(counted->fd >= 0 && ftruncate(counted->fd, CT_COUNTERS_BYTES) == 0);
  uint8_t *counters = mmap(NULL, CT_COUNTERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, counted->fd, 0);
  assert_true(counted->drain != NULL && counters != MAP_FAILED);
  counted->counters = counters;
  counted->calls = (uint64_t *)(counters + ct_counter_calls_offset(ct_counter_by_id(0)));
  counted->recorded = (uint32_t *)(counters + ct_counter_recorded_offset(ct_counter_by_id(0)));
  counted->drain->threads[0] = &counted->tape.thread;
  atomic_store(&counted->drain->function_count, FUNCTIONS);
  struct ct_ring_parts parts = {.counters = counters, .counter_blocks = CT_COUNTERS_BLOCKS, .fd = counted->fd};
  drain_counts_begin(counted->drain, &parts);
}

static void
end_counted(struct counted *counted)
{
  munmap(counted->counters, CT_COUNTERS_BYTES);
  close(counted->fd);
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
  ((uint64_t *)counted.counters)[0] = 65;
  ct_drain_give_counter(counted.drain, 0, 4);
  drain_counts_hooked(&counted.drain->counts, 4);
  assert_int_equal(take(&counted, 4), 65);
  end_counted(&counted);
}

static long
memory(const struct counted *counted)
{
  struct stat file;
  assert_int_equal(fstat(counted->fd, &file), 0);
  return (long)file.st_blocks;
}

/* Most of a thread's counters have no memory, and get none by being read. What gets some later is seen. */
static void
without_memory(void **state)
{
  struct counted counted;
  uint32_t far = 3 * CT_COUNTERS_BLOCK + 100;
  begin_counted(&counted, state);
  atomic_store(&counted.drain->function_count, 4 * CT_COUNTERS_BLOCK);
  assert_int_equal(take(&counted, far), 0);
  assert_int_equal(memory(&counted), 0);
  counted.calls[3] = 10;
  counted.recorded[3] = 1;
  long before = memory(&counted);
  assert_int_equal(take(&counted, 3), 9);
  assert_int_equal(take(&counted, far), 0);
  assert_int_equal(memory(&counted), before);
  *(uint64_t *)(counted.counters + ct_counter_calls_offset(ct_counter_by_id(far))) = 20;
  *(uint32_t *)(counted.counters + ct_counter_recorded_offset(ct_counter_by_id(far))) = 1;
  before = memory(&counted);
  assert_int_equal(take(&counted, far), 19);
  counted.calls[3] = 11;
  assert_int_equal(take(&counted, 3), 1);
  assert_int_equal(memory(&counted), before);
  end_counted(&counted);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      CASE(stood_still),
      CASE(scribbled),
      CASE(kept_off),
      CASE(without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
