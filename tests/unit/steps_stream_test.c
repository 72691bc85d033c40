/* SPDX-License-Identifier: MIT */
/* Records of a segment that the traced program writes over while they are counted, as it can. */
#include "ring/itrace_stream.h"
#include "steps/sizes.h"
#include "steps/stream.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { GAPS = 2, RUN_MS = 300 };

struct segment {
  struct ct_stream_context context;
  struct ct_stream_gap gaps[GAPS];
};

static struct segment segment;
static atomic_bool is_over;

/* An event becomes a part of a unit, and an event again. */
static void *
flip(void *context)
{
  (void)context;
  for (unsigned n = 0; !atomic_load_explicit(&is_over, memory_order_relaxed); n++) {
    uint32_t word = (n & 1) != 0 ? CT_STREAM_PART : CT_STREAM_EVENT | CT_STREAM_GAP;
    __atomic_store_n(&segment.gaps[0].event.word, word, __ATOMIC_RELAXED);
  }
  return NULL;
}

static uint64_t
spent_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void
fill(void)
{
  segment.context = (struct ct_stream_context){.event = {CT_STREAM_EVENT | CT_STREAM_CONTEXT, sizeof(segment.context)}};
  for (unsigned i = 0; i < GAPS; i++) {
    segment.gaps[i] = (struct ct_stream_gap){.event = {CT_STREAM_EVENT | CT_STREAM_GAP, sizeof(segment.gaps[0])}};
  }
}

static void
counts_what_changes(void **state)
{
  (void)state;
  struct ct_unit_sizes *sizes = ct_unit_sizes_create();
  struct ct_stream_count count;
  pthread_t thread;
  assert_non_null(sizes);
  fill();
  assert_true(ct_stream_count_sized(sizes, (const uint8_t *)&segment, sizeof(segment), NULL, 0, &count));
  assert_true(count.is_whole);
  assert_int_equal(pthread_create(&thread, NULL, flip, NULL), 0);
  for (uint64_t end = spent_ms() + RUN_MS; spent_ms() < end;) {
    for (unsigned n = 0; n < 1000; n++) {
      ct_stream_count_sized(sizes, (const uint8_t *)&segment, sizeof(segment), NULL, 0, &count);
    }
  }
  atomic_store(&is_over, true);
  pthread_join(thread, NULL);
  ct_unit_sizes_free(sizes);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(counts_what_changes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
