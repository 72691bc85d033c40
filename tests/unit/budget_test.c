/* SPDX-License-Identifier: MIT */
/* How functions are seen under a budget: record/budget_policy.c. */
#include "record/budget_internal.h"
#include "record/budget_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT  1000u
#define SECOND 1000000000ull

static const struct ct_budget_costs costs = {.full = 60, .counted = 4, .out = 3};

struct scene {
  struct ct_budget_function functions[COUNT];
  struct ct_budget_function *sorted[COUNT];
  uint64_t now;
};

static int
compare(const void *a, const void *b)
{
  double x = (*(struct ct_budget_function *const *)a)->rate, y = (*(struct ct_budget_function *const *)b)->rate;
  return x < y ? -1 : x > y;
}

/* Function i is called a little more often than the one before: i, up to some 100 million times a second. */
static struct scene *
make_scene(void)
{
  struct scene *scene = calloc(1, sizeof(*scene));
  double rate = 1;
  for (size_t i = 0; i < COUNT; i++) {
    scene->functions[i] = (struct ct_budget_function){
        .rate = rate, .seen = CT_SEEN_SAMPLED, .has_gate = true, .has_counter = i % 50 != 7};
    scene->functions[i].seen = scene->functions[i].has_counter ? CT_SEEN_SAMPLED : CT_SEEN_FULL;
    scene->sorted[i] = &scene->functions[i];
    rate *= 1.0186;
  }
  scene->now = 100 * SECOND;
  return scene;
}

static double
spent(const struct scene *scene)
{
  double sum = 0;
  for (size_t i = 0; i < COUNT; i++) {
    const struct ct_budget_function *function = &scene->functions[i];
    sum += function->seen == CT_SEEN_OUT && function->is_unpatched
               ? 0
               : function->rate * ct_budget_call_cost(&costs, function->seen);
  }
  return sum;
}

/* A look: what was selected is done, and patches of functions that are out go. Returns the steps. */
static size_t
look(struct scene *scene, double allowed, bool is_first)
{
  size_t steps = 0;
  qsort(scene->sorted, COUNT, sizeof(scene->sorted[0]), compare);
  ct_budget_choose(scene->sorted, COUNT, &costs, allowed, scene->now, is_first, scene->now % SECOND == 0);
  for (size_t i = 0; i < COUNT; i++) {
    struct ct_budget_function *function = &scene->functions[i];
    steps += function->wanted != function->seen;
    function->since_ns = function->wanted != function->seen && !is_first ? scene->now : function->since_ns;
    function->seen = function->wanted;
    function->is_unpatched = function->seen == CT_SEEN_OUT;
  }
  scene->now += SECOND / 10;
  return steps;
}

static size_t
seen_so(const struct scene *scene, uint8_t seen)
{
  size_t count = 0;
  for (size_t i = 0; i < COUNT; i++) {
    count += scene->functions[i].seen == seen;
  }
  return count;
}

/* Within two seconds it is held, and many functions are fully seen; then few functions change. */
static void
test_settles(void **state)
{
  static const double allowed[] = {2e7, 5e7, 1e8, 1e9};
  for (size_t a = 0; a < sizeof(allowed) / sizeof(allowed[0]); a++) {
    struct scene *scene = make_scene();
    look(scene, allowed[a], true);
    for (int i = 0; i < 19; i++) {
      look(scene, allowed[a], false);
    }
    assert_true(spent(scene) <= allowed[a]);
    assert_true(seen_so(scene, CT_SEEN_FULL) > COUNT / 4);
    size_t full = seen_so(scene, CT_SEEN_FULL), steps = 0;
    double sum = 0;
    for (int i = 0; i < 600; i++) {
      steps += look(scene, allowed[a], false);
      sum += spent(scene);
    }
    assert_true(sum / 600 <= allowed[a]);
    assert_true(seen_so(scene, CT_SEEN_FULL) + 20 > full);
    assert_true(steps < 60 * 40); /* a minute: functions that are out are tried now and then */
    free(scene);
  }
  (void)state;
}

/* One that is called more is not seen better, but where it has no counter; none of these is counted. */
static void
test_order(void **state)
{
  struct scene *scene = make_scene();
  look(scene, 5e7, true);
  for (int i = 0; i < 20; i++) {
    look(scene, 5e7, false);
  }
  uint8_t worst = CT_SEEN_FULL;
  for (size_t i = 0; i < COUNT; i++) {
    const struct ct_budget_function *function = &scene->functions[i];
    if (!function->has_counter) {
      assert_true(function->seen == CT_SEEN_FULL || function->seen == CT_SEEN_OUT);
    } else {
      assert_true(function->seen >= worst);
      worst = function->seen;
    }
  }
  assert_int_equal(worst, CT_SEEN_OUT);
  free(scene);
  (void)state;
}

/* A function that is suddenly called a thousand times as often is held again in one second, and comes back after. */
static void
test_jump(void **state)
{
  struct scene *scene = make_scene();
  struct ct_budget_function *jumps = &scene->functions[300];
  look(scene, 1e8, true);
  for (int i = 0; i < 30; i++) {
    look(scene, 1e8, false);
  }
  assert_int_equal(jumps->seen, CT_SEEN_FULL);
  double before = jumps->rate;
  jumps->rate = 3e7;
  assert_true(spent(scene) > 1e8);
  for (int i = 0; i < 10; i++) {
    look(scene, 1e8, false);
  }
  assert_true(spent(scene) <= 1e8);
  assert_true(jumps->seen > CT_SEEN_FULL);
  jumps->rate = before;
  for (int i = 0; i < 100; i++) {
    look(scene, 1e8, false);
  }
  assert_int_equal(jumps->seen, CT_SEEN_FULL);
  free(scene);
  (void)state;
}

/* With all the time that there is everything is fully seen, also what nobody calls. */
static void
test_enough(void **state)
{
  struct scene *scene = make_scene();
  scene->functions[5].rate = 0;
  look(scene, 1e12, true);
  assert_int_equal(seen_so(scene, CT_SEEN_FULL), COUNT);
  free(scene);
  (void)state;
}

/* Without any the functions that nobody calls are fully seen, and no number is odd. */
static void
test_nothing(void **state)
{
  struct scene *scene = make_scene();
  for (size_t i = 0; i < COUNT; i += 2) {
    scene->functions[i].rate = 0;
  }
  look(scene, 0, true);
  for (int i = 0; i < 20; i++) {
    look(scene, 0, false);
  }
  for (size_t i = 0; i < COUNT; i++) {
    assert_int_equal(scene->functions[i].seen, i % 2 == 0 ? CT_SEEN_FULL : CT_SEEN_OUT);
  }
  free(scene);
  (void)state;
}

/* memcpy keeps its patch, however often it is called: what is out with its patch is worth a stop, but not if it stays.
 */
static void
test_kept(void **state)
{
  struct ct_budget_function hot = {.rate = 1e8, .seen = CT_SEEN_OUT, .has_gate = true, .has_counter = true};
  struct ct_budget_function *all[] = {&hot};
  assert_true(ct_budget_wants_stop(all, 1, &costs, 1e7, SECOND / 5));
  assert_true(ct_budget_wants_stop(all, 1, &costs, 1e9, SECOND));
  hot.keeps_patch = true;
  assert_false(ct_budget_wants_stop(all, 1, &costs, 1e7, SECOND / 5));
  assert_false(ct_budget_wants_stop(all, 1, &costs, 1e7, 10 * SECOND));
  struct ct_budget_function back = {.rate = 1, .seen = CT_SEEN_COUNTED, .is_unpatched = true};
  all[0] = &back;
  assert_true(ct_budget_wants_stop(all, 1, &costs, 1e9, SECOND));
  assert_false(ct_budget_wants_stop(all, 1, &costs, 1e9, SECOND / 2));
  (void)state;
}

static void
settle(struct scene *scene, double allowed)
{
  look(scene, allowed, true);
  for (int i = 0; i < 60; i++) {
    look(scene, allowed, false);
  }
}

/* What takes much of the program's time for what its events cost is seen in full, however many are called less. */
static void
test_long(void **state)
{
  struct scene *scene = make_scene();
  struct ct_budget_function *slow = &scene->functions[620], *quick = &scene->functions[621];
  settle(scene, 2e7);
  assert_true(slow->seen != CT_SEEN_FULL && quick->seen != CT_SEEN_FULL);
  double before = (double)seen_so(scene, CT_SEEN_FULL);
  slow->own_ns = 3000; /* it is called some 90,000 times a second: a quarter of the program's time */
  quick->own_ns = 20;
  double sum = 0;
  for (int i = 0; i < 90; i++) {
    look(scene, 2e7, false);
    sum += i >= 30 ? spent(scene) : 0;
  }
  assert_true(sum / 60 <= 2e7);
  assert_int_equal(slow->seen, CT_SEEN_FULL);
  assert_true(quick->seen != CT_SEEN_FULL);
  assert_true((double)seen_so(scene, CT_SEEN_FULL) > 0.8 * before);
  free(scene);
  (void)state;
}

/* Where all have long times the longest ones come first, of those that cost no more, and the limit is kept. */
static void
test_all_long(void **state)
{
  static const double allowed[] = {2e7, 1e8};
  for (size_t a = 0; a < sizeof(allowed) / sizeof(allowed[0]); a++) {
    struct scene *scene = make_scene();
    for (size_t i = 300; i < COUNT; i++) {
      scene->functions[i].own_ns = 300 + 10 * (double)(i * 7919 % COUNT);
    }
    settle(scene, allowed[a]);
    double sum = 0;
    for (int i = 0; i < 300; i++) {
      look(scene, allowed[a], false);
      sum += spent(scene);
    }
    assert_true(sum / 300 <= allowed[a]);
    for (size_t i = 300; i < 700; i++) {
      for (size_t k = 300; k < i; k++) { /* called less, and longer */
        const struct ct_budget_function *more = &scene->functions[i], *less = &scene->functions[k];
        bool is_better = less->has_counter && less->own_ns > 1.5 * more->own_ns;
        assert_true(!is_better || less->seen <= more->seen || more->seen != CT_SEEN_FULL);
      }
    }
    free(scene);
  }
  (void)state;
}

/* What took all the time before, and went out, keeps nothing for itself when other functions take it now. */
static void
test_phases(void **state)
{
  struct ct_budget_function functions[22], *all[22];
  for (size_t i = 0; i < 22; i++) { /* 20 that took 208 % of the time; two that take 48 % each now */
    bool is_earlier = i > 0 && i < 21;
    functions[i] = (struct ct_budget_function){.rate = i == 21 ? 4.8e5 : 8e4,
                                               .own_ns = is_earlier ? 1300
                                                         : i == 0   ? 6000
                                                                    : 1000,
                                               .seen = is_earlier ? CT_SEEN_OUT : CT_SEEN_COUNTED,
                                               .is_unpatched = is_earlier,
                                               .has_gate = true,
                                               .has_counter = true,
                                               .since_ns = 100 * SECOND,
                                               .retry_ns = 200 * SECOND};
    all[i] = &functions[i];
  }
  ct_budget_choose(all, 22, &costs, 8e7, 102 * SECOND, false, false);
  assert_int_equal(functions[0].wanted, CT_SEEN_FULL);
  assert_int_equal(functions[21].wanted, CT_SEEN_FULL);
  (void)state;
}

/* Of those that are out who comes back first, for a moment, is not known; and what is known fits all the same. */
static void
test_unknown_first(void **state)
{
  struct ct_budget_function functions[12], *all[12];
  for (size_t i = 0; i < 12; i++) { /* the dear ones last, as sorted */
    functions[i] = (struct ct_budget_function){.rate = 20000 + (double)i,
                                               .own_ns = i == 9 ? 0 : 20,
                                               .seen = CT_SEEN_OUT,
                                               .is_unpatched = true,
                                               .has_gate = true,
                                               .since_ns = 100 * SECOND,
                                               .backoff = CT_BUDGET_BACKOFF_MAX};
    all[i] = &functions[i];
  }
  ct_budget_choose(all, 12, &costs, 1e6, 130 * SECOND, false, true);
  for (size_t i = 0; i < 12; i++) { /* any of them is more than a tenth of the limit: one at a time */
    assert_int_equal(functions[i].wanted, i == 9 ? CT_SEEN_FULL : CT_SEEN_OUT);
  }
  (void)state;
}

/* What cannot be counted may go out at the first tick: what it takes is known then. Of others later. */
static void
test_first_look(void **state)
{
  struct ct_drain_own own = {.calls = 100, .ticks = 200000, .whole = 100, .whole_ticks = 200000, .squares = 400000000};
  struct ct_budget_function uncounted = {.seen = CT_SEEN_FULL, .has_gate = true}, rare = uncounted;
  struct ct_budget_function counted = {.seen = CT_SEEN_SAMPLED, .has_gate = true, .has_counter = true};
  struct ct_drain_own few = {.calls = 3, .ticks = 6000};
  ct_budget_first_look(&uncounted, &own, 0.5);
  ct_budget_first_look(&counted, &own, 0.5);
  ct_budget_first_look(&rare, &few, 0.5);
  assert_true(uncounted.own_ns == 1000 && uncounted.steady > 0.99);
  assert_true(counted.own_ns == 0 && rare.own_ns == 0);
  own.calls += 50; /* while all is recorded: only that counts */
  own.ticks += 1000;
  ct_budget_read_own(&counted, &own, 0.5);
  assert_true(counted.own_ns == 10);
  (void)state;
}

/* In the order of their rates, however these are. */
static void
test_sorted(void **state)
{
  enum { MOST = 3000 };
  static struct ct_budget_function all[MOST];
  static struct ct_budget_function *sorted[MOST];
  static struct ct_budget_rank ranks[2 * MOST];
  static const size_t counts[] = {0, 1, 2, 63, 64, 65, 1000, MOST};
  uint64_t seed = 1;
  for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
    for (unsigned kind = 0; kind < 4; kind++) {
      size_t count = counts[n];
      for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double any = (double)(seed >> 33);
        all[i].rate = kind == 0   ? any / 1e4
                      : kind == 1 ? (double)(seed >> 40 & 3)
                      : kind == 2 ? 1e9 - (double)i /* all alike, the other way round */
                                  : 1 / (1 + any);
        sorted[i] = &all[i];
      }
      ct_budget_sort(sorted, count, ranks);
      for (size_t i = 1; i < count; i++) {
        assert_true(sorted[i - 1]->rate <= sorted[i]->rate);
      }
      size_t sum = 0;
      for (size_t i = 0; i < count; i++) {
        sum += (size_t)(sorted[i] - all);
      }
      assert_int_equal(sum, count == 0 ? 0 : count * (count - 1) / 2);
    }
  }
  (void)state;
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_phases),        cmocka_unit_test(test_settles),    cmocka_unit_test(test_order),
      cmocka_unit_test(test_jump),          cmocka_unit_test(test_enough),     cmocka_unit_test(test_nothing),
      cmocka_unit_test(test_kept),          cmocka_unit_test(test_long),       cmocka_unit_test(test_all_long),
      cmocka_unit_test(test_unknown_first), cmocka_unit_test(test_first_look), cmocka_unit_test(test_sorted)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
