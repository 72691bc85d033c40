/* SPDX-License-Identifier: MIT */
/* Tables that hash what a trace says: keys that lie in one place by a hash that everybody knows take no longer. */
#include "index/index_internal.h"
#include "span/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <time.h>

enum { KEYS = 60000, MOST_S = 3 };
#define KNOWN UINT64_C(0x9E3779B97F4A7C15)

/* The number n with KNOWN * n == 1 modulo 2^64: each step doubles the bits that are right. */
static uint64_t
inverse(void)
{
  uint64_t n = KNOWN;
  for (int i = 0; i < 5; i++) {
    n *= 2 - KNOWN * n;
  }
  return n;
}

/* Of which KNOWN times the key is the same in the bits from 16 to 47. */
static uint64_t
chosen_key(uint64_t i)
{
  return ((i & 0xffff) | (i >> 16 & 0xffff) << 48 | UINT64_C(0x12345678) << 16) * inverse();
}

static double
processor_s(void)
{
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void
edges_take_any_keys(void **state)
{
  (void)state;
  struct ct_edge_table table = {0};
  double begin = processor_s();
  for (uint64_t i = 0; i < KEYS; i++) {
    uint64_t key = chosen_key(i);
    assert_int_equal(ct_edges_add(&table, (uint32_t)(key >> 32), (uint32_t)key, 1, i, 0), 0);
  }
  assert_int_equal(table.count, KEYS);
  assert_true(processor_s() - begin < MOST_S);
  ct_edges_free(&table);
}

/* Callers of one function whose numbers are even ones of some bits: as chosen by nobody. */
static void
edges_take_round_numbers(void **state)
{
  (void)state;
  struct ct_edge_table table = {0};
  double begin = processor_s();
  for (uint32_t i = 0; i < KEYS; i++) {
    assert_int_equal(ct_edges_add(&table, i << 16, 7, 1, i, 0), 0);
  }
  assert_int_equal(table.count, KEYS);
  assert_true(processor_s() - begin < MOST_S);
  ct_edges_free(&table);
}

static void
tree_takes_any_functions(void **state)
{
  (void)state;
  struct ct_span_tree tree;
  assert_int_equal(ct_span_tree_init(&tree, KEYS * 2), 0);
  double begin = processor_s();
  for (uint32_t i = 0; i < KEYS; i++) { /* below one node: the upper half of the key is given */
    assert_int_not_equal(ct_span_tree_child(&tree, CT_TREE_FIRST - 1, i << 14 | i >> 18), CT_TREE_NONE);
  }
  assert_true(processor_s() - begin < MOST_S);
  ct_span_tree_destroy(&tree);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(edges_take_any_keys),
      cmocka_unit_test(edges_take_round_numbers),
      cmocka_unit_test(tree_takes_any_functions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
