/* SPDX-License-Identifier: MIT */
/* Own times of calls, as a budget wants them: drain/counts.c. */
#include "drain/counts.h"

#include "ring/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define MOST 40u

struct scene {
  struct drain_counts *counts;
  struct ct_ring_event events[MOST];
  size_t count;
};

static void
begin(struct scene *scene)
{
  *scene = (struct scene){.counts = calloc(1, sizeof(struct drain_counts))};
  struct drain_counts *counts = scene->counts;
  counts->tallies = calloc(CT_DRAIN_TALLIES, sizeof(*counts->tallies));
  counts->touched = calloc(CT_DRAIN_TALLIES / CT_DRAIN_TALLY_RUN, 1);
  atomic_store(&counts->own, calloc(CT_DRAIN_TALLIES, sizeof(struct ct_drain_own)));
  atomic_store(&counts->measures_own, true);
}

static void
end(struct scene *scene)
{
  drain_counts_free(scene->counts);
  free(scene->counts);
}

static void
put(struct scene *scene, unsigned kind, uint32_t fn, uint64_t tsc)
{
  assert_true(scene->count < MOST);
  scene->events[scene->count++] =
      (struct ct_ring_event){.tsc = tsc, .word = fn << CT_WORD_FN_SHIFT | kind << CT_WORD_KIND_SHIFT | 1};
}

static void
take(struct scene *scene)
{
  drain_counts_tally(scene->counts, scene->events, scene->count);
  scene->count = 0;
}

static uint64_t
ticks(const struct scene *scene, uint32_t fn)
{
  return atomic_load(&atomic_load(&scene->counts->own)[fn].ticks);
}

static uint64_t
calls(const struct scene *scene, uint32_t fn)
{
  return atomic_load(&atomic_load(&scene->counts->own)[fn].calls);
}

/* write() of a program with threads: what takes long is between its two callees. */
static void
test_between_callees(void **state)
{
  struct scene scene;
  begin(&scene);
  put(&scene, CT_KIND_ENTER, 1, 100);
  put(&scene, CT_KIND_ENTER, 2, 110);
  put(&scene, CT_KIND_RETURN, 2, 115);
  put(&scene, CT_KIND_ENTER, 3, 1115);
  put(&scene, CT_KIND_RETURN, 3, 1120);
  put(&scene, CT_KIND_RETURN, 1, 1130);
  take(&scene);
  assert_int_equal(ticks(&scene, 1), 10 + 1000 + 10);
  assert_int_equal(ticks(&scene, 2), 5);
  assert_int_equal(ticks(&scene, 3), 5);
  assert_int_equal(calls(&scene, 1), 1);
  end(&scene);
  (void)state;
}

/* A tail call's time is that of what was jumped to; what was entered before is known at its return only. */
static void
test_tails_and_returns(void **state)
{
  struct scene scene;
  begin(&scene);
  put(&scene, CT_KIND_RETURN, 9, 50);
  put(&scene, CT_KIND_RETURN, 8, 60);
  put(&scene, CT_KIND_ENTER, 1, 100);
  put(&scene, CT_KIND_TAIL, 2, 110);
  put(&scene, CT_KIND_RETURN, 2, 140);
  put(&scene, CT_KIND_RETURN, 7, 145);
  take(&scene);
  assert_int_equal(ticks(&scene, 9), 0);
  assert_int_equal(ticks(&scene, 8), 10);
  assert_int_equal(ticks(&scene, 1), 10);
  assert_int_equal(ticks(&scene, 2), 30);
  assert_int_equal(ticks(&scene, 7), 5);
  assert_int_equal(calls(&scene, 8), 0);
  end(&scene);
  (void)state;
}

/* A thread that waits, or has lost its processor for long, does not make a quick function slow. */
static void
test_waits(void **state)
{
  struct scene scene;
  begin(&scene);
  put(&scene, CT_KIND_ENTER, 1, 100);
  put(&scene, CT_KIND_RETURN, 1, 100 + (1ull << 40));
  put(&scene, CT_KIND_ENTER, 2, 50); /* before that: no time at all */
  put(&scene, CT_KIND_RETURN, 2, 70);
  take(&scene);
  assert_int_equal(ticks(&scene, 1), 1u << 18);
  assert_int_equal(ticks(&scene, 2), 20);
  end(&scene);
  (void)state;
}

static double
squares_of_mean(struct scene *scene, uint32_t fn, double *squares)
{
  const struct ct_drain_own *own = &atomic_load(&scene->counts->own)[fn];
  double n = (double)atomic_load(&own->whole), mean = (double)atomic_load(&own->whole_ticks) / n;
  *squares = (double)atomic_load(&own->squares) / n;
  return mean * mean;
}

/* Calls that take as long as each other, and such that do not: of a caller all its pieces together. One that was
 * interrupted does not make the first ones differ. */
static void
test_spread(void **state)
{
  struct scene scene;
  uint64_t tsc = 1000;
  double squares;
  begin(&scene);
  for (unsigned i = 0; i < 400; i++) {
    put(&scene, CT_KIND_ENTER, 1, tsc += 3);
    put(&scene, CT_KIND_ENTER, 2,
        tsc += 1 + i % 30); /* 1 takes now this long before its callee and the rest after it */
    put(&scene, CT_KIND_RETURN, 2, tsc += i == 300 ? 200000 : 50);
    put(&scene, CT_KIND_RETURN, 1, tsc += 31 - i % 30);
    put(&scene, CT_KIND_ENTER, 3, tsc += 3);
    put(&scene, CT_KIND_RETURN, 3, tsc += i % 2 == 0 ? 10 : 100);
    take(&scene);
  }
  double mean = squares_of_mean(&scene, 1, &squares);
  assert_true(squares == mean);
  mean = squares_of_mean(&scene, 2, &squares);
  assert_true(squares < 2 * mean);
  mean = squares_of_mean(&scene, 3, &squares);
  assert_true(squares > 1.5 * mean && squares < 1.8 * mean);
  end(&scene);
  (void)state;
}

/* What the target has scribbled: any words at all. */
static void
test_any_words(void **state)
{
  struct scene scene;
  begin(&scene);
  srand(7);
  for (int round = 0; round < 20000; round++) {
    for (unsigned i = 0; i < MOST; i++) {
      uint64_t word = (uint64_t)rand() << 32 ^ (uint64_t)rand() << 8 ^ (uint64_t)rand();
      scene.events[i] = (struct ct_ring_event){.tsc = (uint64_t)rand() << 20, .word = word};
      if (round % 2 == 0) { /* deep: only enters */
        scene.events[i].word |= (uint64_t)CT_KIND_ENTER << CT_WORD_KIND_SHIFT;
      }
    }
    scene.count = MOST;
    take(&scene);
  }
  struct ct_ring_event *deep = calloc(5000, sizeof(*deep));
  for (unsigned i = 0; i < 5000; i++) {
    deep[i] = (struct ct_ring_event){i, 5u << CT_WORD_FN_SHIFT | CT_KIND_ENTER << CT_WORD_KIND_SHIFT | 1};
  }
  uint64_t before = calls(&scene, 5);
  drain_counts_tally(scene.counts, deep, 5000);
  assert_int_equal(calls(&scene, 5) - before, 5000);
  free(deep);
  end(&scene);
  (void)state;
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_between_callees), cmocka_unit_test(test_tails_and_returns),
                                     cmocka_unit_test(test_waits), cmocka_unit_test(test_spread),
                                     cmocka_unit_test(test_any_words)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
