/* SPDX-License-Identifier: MIT */
/* What hooks cost where code is cold: record/budget_cold.c. */
#include "record/budget_cold.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT 2000u

static const struct ct_budget_costs costs = {.full = 60, .counted = 4, .out = 3};

struct scene {
  struct ct_budget_function functions[COUNT];
  struct ct_budget_function *sorted[COUNT];
};

/* All but the last `hot` are called 1,000 times a second of the process's time. */
static struct scene *
make_scene(size_t hot)
{
  struct scene *scene = calloc(1, sizeof(*scene));
  for (size_t i = 0; i < COUNT; i++) {
    scene->functions[i] = (struct ct_budget_function){
        .rate = i < COUNT - hot ? 1000 : 1e7, .seen = CT_SEEN_COUNTED, .has_gate = true, .has_counter = true};
    scene->sorted[i] = &scene->functions[i];
  }
  return scene;
}

/* What comes once in a long request waits, what is called all the time does not; the more functions, the longer. */
static void
test_costs(void **state)
{
  struct ct_budget_cold cold;
  struct scene *scene = make_scene(3);
  ct_budget_cold_begin(&cold);
  ct_budget_cold_costs(&cold, scene->sorted, COUNT);
  assert_true(scene->functions[0].cold > 50 && scene->functions[0].cold < 200);
  assert_true(scene->functions[COUNT - 1].cold < 1);
  double of_many = scene->functions[0].cold;
  ct_budget_cold_costs(&cold, scene->sorted, 100);
  assert_true(scene->functions[0].cold < of_many / 4);
  for (size_t i = 1; i < COUNT; i++) { /* so thresholds of rates are thresholds of costs */
    struct ct_budget_function *less = scene->sorted[i - 1], *more = scene->sorted[i];
    assert_true(less->rate * less->cold <= more->rate * more->cold * 1.001 || less->rate == more->rate);
  }
  free(scene);
  (void)state;
}

/* A machine where a cold call costs `ns`: patches of half of the functions go, and the factor follows. */
static double
find(double ns, double wrong_by)
{
  struct ct_budget_cold cold;
  struct scene *scene = make_scene(0);
  ct_budget_cold_begin(&cold);
  for (int turn = 0; turn < 12; turn++) {
    bool goes = turn % 2 == 0;
    double own = 1e9, with = own + COUNT * 1000 * (ns + 3), without = own + COUNT / 2.0 * 1000 * (ns + 3);
    double begin = goes ? with : without, end = goes ? without : with;
    for (size_t i = 0; i < COUNT; i++) {
      struct ct_budget_function *function = &scene->functions[i];
      function->rate = 1000 * 1e9 / begin; /* a second of the process's time */
      function->calls = 100;
      if (i < COUNT / 2) {
        function->seen = goes ? CT_SEEN_OUT : CT_SEEN_COUNTED;
      }
    }
    ct_budget_cold_costs(&cold, scene->sorted, COUNT);
    ct_budget_cold_before(&cold, scene->sorted, COUNT, &costs, 0, begin / 10);
    assert_true(cold.goes_on);
    for (size_t i = 0; i < COUNT / 2; i++) {
      scene->functions[i].is_unpatched = goes;
      scene->functions[i].calls = 0;
    }
    ct_budget_cold_after(&cold, scene->sorted, COUNT, 0, end / 10 * wrong_by);
    assert_false(cold.goes_on);
  }
  ct_budget_cold_costs(&cold, scene->sorted, COUNT);
  double found = scene->functions[0].cold;
  assert_int_equal(cold.done, 12);
  free(scene);
  return found;
}

static void
test_factor(void **state)
{
  double dear = find(150, 1), usual = find(70, 1);
  assert_true(dear > 100 && dear < 200);
  assert_true(usual > 45 && usual < 100);
  assert_true(find(70, 3) > 25); /* a machine that changes its pace: never as if it cost nothing */
  (void)state;
}

/* Too few calls say nothing. */
static void
test_few(void **state)
{
  struct ct_budget_cold cold;
  struct scene *scene = make_scene(0);
  ct_budget_cold_begin(&cold);
  double before = ct_budget_cold_factor(&cold);
  ct_budget_cold_costs(&cold, scene->sorted, COUNT);
  scene->functions[0].seen = CT_SEEN_OUT;
  scene->functions[1].calls = 10;
  ct_budget_cold_before(&cold, scene->sorted, COUNT, &costs, 0, 1e8);
  assert_false(cold.goes_on);
  ct_budget_cold_before(&cold, scene->sorted, COUNT, &costs, 100000, 1e6);
  ct_budget_cold_after(&cold, scene->sorted, COUNT, 100, 1e6);
  assert_true(ct_budget_cold_factor(&cold) == before);
  free(scene);
  (void)state;
}

/* What is out and keeps its patch does not change at a stop: it is no experiment, but a witness. */
static void
test_kept(void **state)
{
  struct ct_budget_cold cold;
  struct scene *scene = make_scene(3);
  ct_budget_cold_begin(&cold);
  for (size_t i = 0; i < COUNT; i++) {
    scene->functions[i].seen = i < 1000 ? CT_SEEN_OUT : CT_SEEN_COUNTED;
    scene->functions[i].calls = 100;
  }
  ct_budget_cold_costs(&cold, scene->sorted, COUNT);
  ct_budget_cold_before(&cold, scene->sorted, COUNT, &costs, 0, 1e8);
  assert_true(cold.goes_on && !scene->functions[0].is_witness);
  for (size_t i = 0; i < 1000; i++) {
    scene->functions[i].keeps_patch = true;
  }
  ct_budget_cold_before(&cold, scene->sorted, COUNT, &costs, 0, 1e8);
  assert_true(!cold.goes_on && scene->functions[0].is_witness);
  free(scene);
  (void)state;
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_costs),
      cmocka_unit_test(test_factor),
      cmocka_unit_test(test_few),
      cmocka_unit_test(test_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
