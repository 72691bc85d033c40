/* SPDX-License-Identifier: MIT */
/* Noise: batches, quantiles, typical calls; that chance is no change, and that a change is one. */
#include "views/noise.h"
#include "views/profile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rounds.h"

static uint64_t state;

static double
uniform(void)
{
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (double)(state >> 11) / 9007199254740992.0;
}

static double
normal(void)
{
  return sqrt(-2 * log(1 - uniform())) * cos(2 * M_PI * uniform());
}

static uint64_t
sum_of(const struct ct_batches *batches, uint64_t *calls)
{
  uint64_t sum = 0;
  *calls = 0;
  for (uint32_t i = 0; i < batches->count; i++) {
    sum += batches->list[i].ticks;
    *calls += batches->list[i].calls;
  }
  return sum;
}

static void
test_batches(void **unused)
{
  for (uint64_t count = 1; count < 3000; count = count * 3 / 2 + 1) {
    struct ct_batches one = {0}, other = {0};
    uint64_t calls;
    for (uint64_t i = 0; i < count; i++) {
      ct_batches_add(&one, i, i);
    }
    for (uint64_t i = 0; i < 100; i++) {
      ct_batches_add(&other, i, 7);
    }
    assert_int_equal(sum_of(&one, &calls), count * (count - 1) / 2);
    assert_int_equal(calls, count);
    assert_true(count < CT_BATCHES ? one.count == count : one.count > CT_BATCHES / 2);
    ct_batches_merge(&one, &other);
    assert_int_equal(sum_of(&one, &calls), count * (count - 1) / 2 + 700);
    assert_int_equal(calls, count + 100);
    assert_true(one.count <= CT_BATCHES);
  }
}

/* Threads of any length, put together in any order: what all of them together make. */
static void
test_batches_in_any_order(void **unused)
{
  enum { THREADS = 5 };
  struct ct_batches all = {0}, parts[THREADS] = {0}, forth = {0}, back = {0};
  for (uint64_t thread = 0; thread < THREADS; thread++) {
    for (uint64_t i = 0; i < 7ull << 3 * thread; i++) {
      uint64_t ticks = i * 7 % 100 + thread;
      ct_batches_add(&all, i, ticks);
      ct_batches_add(&parts[thread], i, ticks);
    }
  }
  for (int i = 0; i < THREADS; i++) {
    ct_batches_merge(&forth, &parts[i]);
    ct_batches_merge(&back, &parts[THREADS - 1 - i]);
  }
  assert_memory_equal(&all, &forth, sizeof(all));
  assert_memory_equal(&all, &back, sizeof(all));
  assert_true(all.count > CT_BATCHES / 2 && all.list[0].calls > all.list[all.count - 1].calls);
}

/* Of published tables. */
static void
test_quantiles(void **unused)
{
  assert_true(fabs(ct_noise_quantile(0.05, 0) - 1.960) < 0.001);
  assert_true(fabs(ct_noise_quantile(0.001, 0) - 3.291) < 0.001);
  assert_true(fabs(ct_noise_quantile(0.05, 7) - 2.365) < 0.01);
  assert_true(fabs(ct_noise_quantile(0.01, 31) - 2.744) < 0.01);
  assert_true(fabs(ct_noise_quantile(0.001, 15) - 4.073) < 0.03);
}

static void
test_typical(void **unused)
{
  struct ct_histogram histogram = {0};
  for (int i = 0; i < 1000; i++) {
    assert_int_equal(ct_histogram_add(&histogram, i % 20 == 0 ? 1000000 : 40 + (uint64_t)(i % 3)), 0);
  }
  struct ct_typical typical = ct_typical_of(&histogram);
  assert_true(fabs(typical.mean - 41) < 0.1 && typical.calls == 1000);
  assert_true(typical.error > 0 && typical.error < 0.2);
  ct_histogram_destroy(&histogram);
  assert_true(ct_typical_of(&histogram).calls == 0);
}

/* ---- many functions ---- */

enum { FUNCTIONS = 300 };

struct made {
  struct ct_batches batches[2];
  struct ct_histogram selves[2];
};

/* Calls of some mean, with a spread in a run and one between runs, and now and then one that is interrupted. */
static void
make_side(struct made *made, int side, int calls, double mean, double factor, struct ct_noise_side *out)
{
  uint64_t sum = 0;
  double run = factor * exp(0.01 * normal());
  for (int i = 0; i < calls; i++) {
    double value = mean * run * exp(0.2 * normal()) + (uniform() < 0.001 ? 2e6 * uniform() : 0);
    ct_batches_add(&made->batches[side], (uint64_t)i, (uint64_t)value);
    assert_int_equal(ct_histogram_add(&made->selves[side], (uint64_t)value), 0);
    sum += (uint64_t)value;
  }
  *out = (struct ct_noise_side){.batches = &made->batches[side],
                                .typical = ct_typical_of(&made->selves[side]),
                                .ns_per_tick = 1,
                                .self = (double)sum,
                                .calls = (uint64_t)calls};
}

/* planted: the factor of function 7. Gives how many have changed, and whether that one is among them. */
static size_t
compare(double planted, double all, int more_calls, bool *is_found)
{
  static struct made made[FUNCTIONS];
  static struct ct_noise_pair pairs[FUNCTIONS];
  struct ct_noise noise = {0};
  size_t changed = 0;
  memset(made, 0, sizeof(made));
  memset(pairs, 0, sizeof(pairs));
  for (int i = 0; i < FUNCTIONS; i++) {
    int calls = i % 3 == 0 ? 1 + i % 5 : 200 + 10 * i;
    double mean = 500 + 40 * i;
    calls = i == 7 ? 4000 : calls;
    make_side(&made[i], 0, calls, mean, 1, &pairs[i].before);
    make_side(&made[i], 1, calls + (i == 8 ? more_calls : 0), mean, all * (i == 7 ? planted : 1), &pairs[i].after);
    pairs[i].has_calls = pairs[i].has_times = true;
  }
  noise.disturbance = 2e6;
  assert_int_equal(ct_noise_judge(&noise, pairs, FUNCTIONS), 0);
  assert_true(noise.spread >= 0.01 && noise.spread < 0.03 && noise.well_known > 100);
  for (int i = 0; i < FUNCTIONS; i++) {
    bool is = pairs[i].is_self_changed || pairs[i].is_typical_changed || pairs[i].is_calls_changed;
    changed += is;
    *is_found = i == 7 ? is : *is_found;
    assert_true(more_calls == 0 || i != 8 || pairs[i].is_calls_changed);
    for (int side = 0; side < 2; side++) {
      ct_histogram_destroy(&made[i].selves[side]);
    }
  }
  return changed;
}

static void
test_chance_is_no_change(void **unused)
{
  size_t changed = 0;
  bool is_found;
  for (state = 1; state <= rounds(6, 20); state++) {
    uint64_t seed = state;
    changed += compare(1, 1, 0, &is_found);
    state = seed;
  }
  assert_true(changed <= 2); /* of 1800 or 6000 functions, at a level of 1 % for each 300 */
}

static void
test_changes_are_found(void **unused)
{
  bool is_found = false;
  state = 5;
  assert_true(compare(1.1, 1, 0, &is_found) <= 2 && is_found);
  assert_true(compare(0.88, 1, 0, &is_found) <= 2 && is_found);
  assert_true(compare(1, 1, 2000, &is_found) >= 1);
}

/* What the machine does to all of them is none of theirs. */
static void
test_common(void **unused)
{
  bool is_found = false;
  state = 6;
  assert_true(compare(1, 1.05, 0, &is_found) <= 1);
  assert_true(compare(1.12, 1.05, 0, &is_found) >= 1 && is_found);
}

/* Hooks that cost a ns more: what makes 1000 calls has not changed by a microsecond; what makes none has, by as much.
 */
static void
test_hooks(void **unused)
{
  enum { PARENTS = 40, CALLS = 400 };
  static struct made made[PARENTS];
  static struct ct_noise_pair pairs[PARENTS];
  struct ct_noise noise = {.hooks = {.own = 0.5, .child = {[CT_CHILDREN_CALLS] = 1}}};
  state = 9;
  for (int i = 0; i < PARENTS; i++) {
    bool has_more = i == 3 || i == 4;
    make_side(&made[i], 0, CALLS, 1000, 1, &pairs[i].before);
    make_side(&made[i], 1, CALLS, 1000, has_more ? 1.8 : 1, &pairs[i].after);
    pairs[i].before.children[CT_CHILDREN_CALLS] = pairs[i].after.children[CT_CHILDREN_CALLS] =
        i == 3 ? UINT64_C(1000) * CALLS : 0;
    pairs[i].has_calls = pairs[i].has_times = true;
  }
  assert_int_equal(ct_noise_judge(&noise, pairs, PARENTS), 0);
  assert_false(pairs[3].is_self_changed || pairs[3].is_typical_changed);
  assert_true(pairs[4].is_self_changed || pairs[4].is_typical_changed);
  for (int i = 0; i < PARENTS; i++) {
    ct_histogram_destroy(&made[i].selves[0]);
    ct_histogram_destroy(&made[i].selves[1]);
  }
}

static void
test_nothing(void **unused)
{
  struct ct_noise noise = {0};
  assert_int_equal(ct_noise_judge(&noise, NULL, 0), 0);
  assert_true(noise.common == 1 && noise.overdispersion == 1);
}

static void
test_names(void **unused)
{
  assert_int_equal(ct_profile_module_length("libx.so.1.2"), 7);
  assert_int_equal(ct_profile_module_length("libx.so"), 7);
  assert_int_equal(ct_profile_module_length("prog-1.2"), 8);
  assert_int_equal(ct_profile_stem_length("f.constprop.0"), 1);
  assert_int_equal(ct_profile_stem_length("f"), 1);
  assert_int_equal(ct_profile_stem_length(".hidden"), 7);
  assert_int_equal(ct_profile_stem_length("A::f(int) [clone .part.1]"), 9);
  assert_int_equal(ct_profile_stem_length("f(a.b)"), 6);
  assert_int_equal(ct_profile_stem_length("libx.so.1+0x10"), 14);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_batches),
      cmocka_unit_test(test_batches_in_any_order),
      cmocka_unit_test(test_quantiles),
      cmocka_unit_test(test_typical),
      cmocka_unit_test(test_chance_is_no_change),
      cmocka_unit_test(test_changes_are_found),
      cmocka_unit_test(test_common),
      cmocka_unit_test(test_hooks),
      cmocka_unit_test(test_nothing),
      cmocka_unit_test(test_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
