/* SPDX-License-Identifier: MIT */
/*
 * The drain beside a thread that does not wait for it: the thread takes the segment that it filled first away from the
 * drain, as agent_take_oldest does, again and again, while the drain looks at it. Each event is in the trace or counted
 * by the thread. Segments have few events, so there are many of such moments.
 */
#include "drain/drain_internal.h"

#include <inttypes.h>

#include "trace_model.h"

#include <sys/mman.h>
#include <time.h>

enum { SEGMENTS = 8, EVENTS = 4, LAST_MS = 1500, SLEEPS = 50 /* one after so many segments */ };

struct ring {
  struct ct_ring_parts parts;
  uint64_t written; /* events; the thread's */
  _Atomic bool is_written, is_over;
};

static void *
zeroed(size_t bytes)
{
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_true(at != MAP_FAILED);
  return at;
}

static void
make_ring(struct ring *ring)
{
  memset(ring, 0, sizeof(*ring));
  ring->parts = (struct ct_ring_parts){.header = zeroed(CT_PAGE_BYTES * 16),
                                       .tids = zeroed(CT_SLOT_COUNT * sizeof(uint32_t)),
                                       .slots = zeroed(CT_SLOT_COUNT * sizeof(struct ct_slot)),
                                       .entries = zeroed(SEGMENTS * sizeof(struct ct_segment_entry)),
                                       .segments = zeroed((size_t)SEGMENTS * CT_SEGMENT_STRIDE),
                                       .captures = zeroed(CT_PAGE_BYTES),
                                       .segment_count = SEGMENTS};
  ring->parts.header->free_map[0] = (1u << SEGMENTS) - 1;
}

/* Of the ring's segments a free one, else the full one that was begun first, whose events are lost. */
static uint32_t
take_segment(struct ring *ring)
{
  for (;;) {
    uint64_t *map = &ring->parts.header->free_map[0], bits = __atomic_load_n(map, __ATOMIC_ACQUIRE);
    if (bits != 0 &&
        __atomic_compare_exchange_n(map, &bits, bits & (bits - 1), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      return (uint32_t)__builtin_ctzll(bits);
    }
    uint32_t best = SEGMENTS;
    uint64_t best_word = UINT64_MAX;
    for (uint32_t i = 0; i < SEGMENTS && bits == 0; i++) {
      uint64_t word = __atomic_load_n(&ring->parts.entries[i].state, __ATOMIC_ACQUIRE);
      if (CT_SEG_STATE(word) == CT_SEG_FULL && word >> 16 < best_word >> 16) {
        best = i;
        best_word = word;
      }
    }
    uint64_t taken = CT_SEG_WORD(CT_SEG_DRAINING, 0, CT_SEG_SEQ(best_word));
    if (best < SEGMENTS && __atomic_compare_exchange_n(&ring->parts.entries[best].state, &best_word, taken, false,
                                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      __atomic_fetch_add(&ring->parts.slots[0].dropped_overwritten, EVENTS, __ATOMIC_RELAXED);
      return best;
    }
  }
}

static void
fill_segment(struct ring *ring, uint64_t seq)
{
  uint32_t index = take_segment(ring);
  struct ct_segment_entry *entry = &ring->parts.entries[index];
  struct ct_ring_event *events = (struct ct_ring_event *)(ring->parts.segments + (size_t)index * CT_SEGMENT_STRIDE);
  entry->tag = entry->tag >= 3 ? 1 : entry->tag + 1;
  entry->reserved = 0;
  entry->thread_seq = (uint32_t)seq;
  entry->generation = 1;
  __atomic_store_n(&entry->state, CT_SEG_WORD(CT_SEG_ACTIVE, 0, seq), __ATOMIC_RELEASE);
  for (uint32_t i = 0; i < EVENTS; i++) {
    uint64_t fn = (uint64_t)CT_FN_POINT_BIT << CT_WORD_FN_SHIFT;
    events[i].tsc = __builtin_ia32_rdtsc();
    __atomic_store_n(&events[i].word, fn | CT_KIND_OTHER << CT_WORD_KIND_SHIFT | entry->tag, __ATOMIC_RELEASE);
  }
  entry->reserved = EVENTS;
  __atomic_store_n(&entry->state, CT_SEG_WORD(CT_SEG_FULL, 0, seq), __ATOMIC_RELEASE);
  __atomic_fetch_add(&ring->parts.header->drain_doorbell, 1, __ATOMIC_SEQ_CST);
  ring->written += EVENTS;
}

/* The drain's thread may be long without a processor, where only sleeping lets it have this one. */
static void *
write_events(void *context)
{
  struct ring *ring = context;
  uint64_t begin = drain_now_ns();
  for (uint64_t seq = 0; drain_now_ns() - begin < LAST_MS * 1000000ull; seq++) {
    fill_segment(ring, seq);
    if (seq % SLEEPS == 0) {
      nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    }
  }
  atomic_store(&ring->is_written, true);
  while (!atomic_load(&ring->is_over)) { /* the drain finds it alive */
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  return NULL;
}

static void *
write_with_id(void *context)
{
  struct ring *ring = context;
  ring->parts.slots[0].tid = (uint32_t)gettid();
  ring->parts.slots[0].generation = 1;
  __atomic_store_n(&ring->parts.tids[0], (uint32_t)gettid(), __ATOMIC_RELEASE);
  return write_events(ring);
}

static void
each_event_is_there_or_was_overwritten(void **state)
{
  static struct ring ring;
  struct ct_pause_request pause = {0};
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  struct ct_drain *drain;
  struct ct_drain_stats stats;
  pthread_t thread;
  make_ring(&ring);
  struct ct_trace_writer *writer = create_writer(state, 0);
  assert_int_equal(ct_trace_writer_function(writer, 0, 0, 0x1000, 16, "enter", "f"), CT_OK);
  assert_int_equal(ct_drain_create(writer, &lock, UINT32_MAX, &pause, &drain), CT_OK);
  ct_drain_function_mode(drain, 0, CT_HOOK_STACKLESS);
  assert_int_equal(ct_drain_start(drain, &ring.parts, 0, getpid()), CT_OK);
  assert_int_equal(pthread_create(&thread, NULL, write_with_id, &ring), 0);
  while (!atomic_load(&ring.is_written)) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  ct_drain_stop(drain, 0, __builtin_ia32_rdtsc());
  atomic_store(&ring.is_over, true);
  pthread_join(thread, NULL);
  ct_drain_stats(drain, &stats);
  print_message("%" PRIu64 " events, %" PRIu64 " in the trace; lost: %" PRIu64 " overwritten, %" PRIu64
                " late, %" PRIu64 " for other reasons\n",
                ring.written, stats.events, stats.dropped_by[CT_DROP_OVERWRITTEN], stats.dropped_by[CT_DROP_LATE],
                stats.dropped - stats.dropped_by[CT_DROP_OVERWRITTEN] - stats.dropped_by[CT_DROP_LATE]);
  assert_int_equal(stats.dropped_by[CT_DROP_INTERRUPTED], 0);
  assert_int_equal(stats.events + stats.dropped, ring.written);
  ct_drain_free(drain);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(each_event_is_there_or_was_overwritten, temporary_setup, temporary_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
