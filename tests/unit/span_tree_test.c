/* SPDX-License-Identifier: MIT */
/* Calling context trees: their nodes, what is above them, and their bytes, of which nothing is believed. */
#include "index/index_internal.h"
#include "xorshift.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { FUNCTIONS = 7, LIMIT = 500 };

static uint64_t seed = 88172645463325252u;

/* Of calls at random, some of them recursive, until it is full. */
static void
fill(struct ct_span_tree *tree)
{
  assert_int_equal(ct_span_tree_init(tree, LIMIT), 0);
  while (!tree->is_broken) {
    uint32_t parent = CT_TREE_OWN + (uint32_t)(xorshift(&seed) % (tree->count - CT_TREE_OWN));
    uint32_t fn = (uint32_t)(xorshift(&seed) % FUNCTIONS), node = ct_span_tree_child(tree, parent, fn);
    struct ct_span span = {.fn = fn,
                           .reserved = node,
                           .end = xorshift(&seed) % 5 == 0 ? CT_SPAN_POINT : CT_SPAN_RETURNED,
                           .calls = 3,
                           .duration_ticks = xorshift(&seed) >> 40,
                           .self_ticks = xorshift(&seed) >> 50,
                           .off_ticks = xorshift(&seed) % 3 == 0 ? xorshift(&seed) >> 45 : 0,
                           .fresh_ticks = xorshift(&seed) >> 41,
                           .uncertain = xorshift(&seed) % 9 == 0 ? CT_SPAN_BEFORE : 0};
    if (node != CT_TREE_NONE) {
      assert_int_equal(ct_span_tree_child(tree, parent, fn), node);
      ct_span_tree_add(tree, &span);
    }
  }
  assert_int_equal(tree->count, LIMIT);
}

static void
bytes_are_the_tree(void **state)
{
  struct ct_span_tree tree, again;
  struct ct_span_bytes bytes = {0};
  (void)state;
  fill(&tree);
  tree.gap_ticks = 12345;
  tree.nodes[20].away_off = 7;
  tree.nodes[20].off = 9;
  assert_int_equal(ct_tree_put(&tree, &bytes), 0);
  assert_int_equal(ct_tree_take(bytes.data, bytes.size, &again), 0);
  assert_int_equal(again.count, tree.count);
  assert_int_equal(again.gap_ticks, tree.gap_ticks);
  for (uint32_t i = CT_TREE_FIRST; i < tree.count; i++) {
    assert_memory_equal(&again.nodes[i], &tree.nodes[i], sizeof(tree.nodes[i]));
  }
  assert_int_equal(ct_span_tree_number(&again), 0);
  for (uint32_t i = CT_TREE_FIRST; i < tree.count; i++) {
    assert_int_equal(ct_span_tree_child(&again, tree.nodes[i].parent, tree.nodes[i].fn), i);
  }
  ct_span_tree_destroy(&again);
  ct_span_tree_destroy(&tree);
  free(bytes.data);
}

/* Cut short they are refused; changed they are refused, or a tree of which each node is below an earlier one. */
static void
bytes_are_not_believed(void **state)
{
  struct ct_span_tree tree, again;
  struct ct_span_bytes bytes = {0};
  (void)state;
  fill(&tree);
  assert_int_equal(ct_tree_put(&tree, &bytes), 0);
  for (size_t size = 0; size < bytes.size; size++) {
    uint8_t *exact = malloc(size + 1); /* whoever reads on is seen by the sanitizer */
    memcpy(exact, bytes.data, size);
    assert_int_equal(ct_tree_take(exact, size, &again), CT_EFORMAT);
    free(exact);
  }
  for (int turn = 0; turn < 5000; turn++) {
    size_t at = xorshift(&seed) % bytes.size;
    uint8_t was = bytes.data[at];
    bytes.data[at] = (uint8_t)xorshift(&seed);
    int code = ct_tree_take(bytes.data, bytes.size, &again);
    assert_true(code == 0 || code == CT_EFORMAT);
    for (uint32_t i = CT_TREE_FIRST; code == 0 && i < again.count; i++) {
      assert_in_range(again.nodes[i].parent, CT_TREE_OWN, i - 1);
    }
    if (code == 0) {
      ct_span_tree_destroy(&again);
    }
    bytes.data[at] = was;
  }
  ct_span_tree_destroy(&tree);
  free(bytes.data);
}

/* Nothing is below paths that were folded: names are looked up for what is above a function. */
static void
folded_is_the_end(void **state)
{
  (void)state;
  for (int is_below = 0; is_below < 2; is_below++) {
    struct ct_tree_sums sums, again;
    struct ct_span_bytes bytes = {0};
    assert_int_equal(ct_tree_sums_init(&sums, UINT32_MAX), 0);
    uint32_t outer = ct_span_tree_child(&sums.paths, CT_TREE_OWN, 1);
    uint32_t folded = ct_span_tree_child(&sums.paths, outer, CT_FN_OTHER);
    assert_int_not_equal(ct_span_tree_child(&sums.paths, is_below ? folded : outer, 2), CT_TREE_NONE);
    sums.has_paths = true;
    assert_int_equal(ct_tree_sums_put(&sums, &bytes), 0);
    assert_int_equal(ct_tree_sums_take(bytes.data, bytes.size, &again), is_below ? CT_EFORMAT : 0);
    if (!is_below) {
      ct_tree_sums_destroy(&again);
    }
    ct_tree_sums_destroy(&sums);
    free(bytes.data);
  }
}

static void
what_is_above(void **state)
{
  struct ct_span_tree tree;
  uint32_t keys[LIMIT];
  (void)state;
  fill(&tree);
  for (uint32_t i = 0; i < tree.count; i++) {
    keys[i] = tree.nodes[i].fn / 2;
  }
  struct ct_tree_outer *outers = ct_span_tree_outers(&tree, keys, FUNCTIONS);
  struct ct_tree_time *times = ct_span_tree_times(&tree);
  uint64_t here[LIMIT] = {0};
  assert_non_null(outers);
  assert_non_null(times);
  for (uint32_t i = CT_TREE_FIRST; i < tree.count; i++) {
    uint32_t inner = i, outer = tree.nodes[i].parent;
    while (outer >= CT_TREE_FIRST && keys[outer] != keys[i]) {
      inner = outer;
      outer = tree.nodes[outer].parent;
    }
    assert_int_equal(outers[i].outer, outer >= CT_TREE_FIRST ? outer : CT_TREE_NONE);
    assert_int_equal(outers[i].inner, outer >= CT_TREE_FIRST ? inner : CT_TREE_NONE);
    for (uint32_t above = i; above >= CT_TREE_FIRST; above = tree.nodes[above].parent) {
      here[above] += tree.nodes[i].self;
    }
  }
  for (uint32_t i = CT_TREE_FIRST; i < tree.count; i++) {
    assert_int_equal(times[i].here, here[i]);
  }
  free(outers);
  free(times);
  ct_span_tree_destroy(&tree);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_are_the_tree),
      cmocka_unit_test(bytes_are_not_believed),
      cmocka_unit_test(folded_is_the_end),
      cmocka_unit_test(what_is_above),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
