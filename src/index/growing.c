/* SPDX-License-Identifier: MIT */
/* See index_internal.h. Numbers of nodes are for memory: some 150 bytes each. */
#include "index/building.h"

#include "base/test_point.h"

#include <stdlib.h>

enum {
  NODES_MOST = 400000, /* of all that are made at a time ... */
  NODES_MOST_EACH = 250000,
  NODES_AGAIN = 60000,            /* once there are sums: what fits a cache is faster */
  NODES_AHEAD = CT_SPANS_GATHERS, /* ... and a fourth more: so many may come before it is looked at */
  NODES_OPEN = 8192,              /* of the frames that are open, besides half of what it may have */
  PATHS_MOST = 250000,
  LEAST_FREE = 8192,
  TREE_SHARE = 100, /* of a thread's blocks its tree is at most this part ... */
  FREE_SHARE = 4,
  TREE_FREE = 256 << 10, /* ... and that part, up to this */
  FOLDS_FROM = 16 << 20, /* blocks of fewer bytes are read in no time: their paths are kept whole or not at all */
  PATHS_FEWEST = 4096,
  NODE_LEAST = 5, /* bytes of a node (trees.c) */
};

void
ct_growing_tree_destroy(struct ct_growing_tree *growing)
{
  ct_span_tree_destroy(&growing->tree);
  ct_tree_sums_destroy(&growing->sums);
  *growing = (struct ct_growing_tree){0};
}

static uint32_t
paths_most(void)
{
  return (uint32_t)ct_test_number("CONTRAIL_TEST_PATHS", PATHS_MOST);
}

static int
take_kept(struct ct_growing_tree *growing, const struct ct_index_thread *thread)
{
  const struct ct_span_bytes *bytes = &thread->kept_tree;
  if (!thread->kept_is_sums) {
    int code = bytes->size != 0 ? ct_tree_take(bytes->data, bytes->size, &growing->tree) : CT_ENOENT;
    return code == 0 ? ct_span_tree_number(&growing->tree) : code;
  }
  int code = ct_tree_sums_take(bytes->data, bytes->size, &growing->sums);
  if (code != 0) {
    return code;
  }
  growing->has_sums = true;
  growing->sums.paths.limit = UINT32_MAX / 2;
  growing->sums.most_paths = paths_most();
  code = ct_span_tree_number(&growing->sums.paths);
  return code == 0 ? ct_span_tree_init(&growing->tree, 0) : code;
}

/* So many bytes of a tree are kept of a thread with so many bytes of blocks. */
static uint64_t
bytes_most(uint64_t payload_bytes)
{
  uint64_t free_bytes = payload_bytes / FREE_SHARE < TREE_FREE ? payload_bytes / FREE_SHARE : TREE_FREE;
  return LEAST_FREE + free_bytes + payload_bytes / TREE_SHARE;
}

int
ct_growing_tree_begin(struct ct_growing_tree *growing, const struct ct_index_thread *thread, unsigned workers,
                      uint64_t payload_bytes)
{
  uint32_t most = (uint32_t)ct_test_number("CONTRAIL_TEST_TREE_NODES", NODES_MOST);
  uint32_t fold_at = most / (workers != 0 ? workers : 1);
  fold_at = fold_at < NODES_MOST_EACH ? fold_at : NODES_MOST_EACH;
  uint64_t kept_most = payload_bytes <= UINT32_MAX ? bytes_most(payload_bytes) / NODE_LEAST : UINT32_MAX;
  if (fold_at > NODES_AGAIN && kept_most < fold_at) { /* more would not be kept, and what is smaller is faster */
    fold_at = kept_most > NODES_AGAIN ? (uint32_t)kept_most : NODES_AGAIN;
  }
  *growing = (struct ct_growing_tree){0};
  int code = thread->kept_granules == 0 ? ct_span_tree_init(&growing->tree, 0) : take_kept(growing, thread);
  if (code != 0) {
    ct_growing_tree_destroy(growing);
    return code == CT_ENOMEM ? code : 0;
  }
  growing->is_there = true;
  growing->fold_at = fold_at;
  growing->tree.limit = fold_at + fold_at / 4 + NODES_AHEAD;
  return 0;
}

static int
add_to_sums(struct ct_growing_tree *growing, struct ct_index_job *job)
{
  const struct ct_tree_groupings *groupings;
  int code = ct_index_job_groupings(job, &groupings);
  if (code != 0) {
    return code;
  }
  if (!growing->has_sums) {
    code = ct_tree_sums_init(&growing->sums, paths_most());
    if (code != 0) {
      return code;
    }
    growing->has_sums = true;
  }
  return ct_tree_sums_add(&growing->sums, &growing->tree, groupings);
}

/* An empty tree, and so large as it is to be from now on. */
static int
begin_again(struct ct_growing_tree *growing)
{
  growing->fold_at = growing->fold_at < NODES_AGAIN ? growing->fold_at : NODES_AGAIN;
  uint32_t limit = growing->fold_at + growing->fold_at / 4 + NODES_AHEAD;
  if (growing->tree.capacity > 2 * limit) {
    ct_span_tree_destroy(&growing->tree);
    return ct_span_tree_init(&growing->tree, limit);
  }
  growing->tree.limit = limit;
  ct_span_tree_clear(&growing->tree);
  return 0;
}

int
ct_growing_tree_fold(struct ct_growing_tree *growing, struct ct_spans *spans, struct ct_index_job *job)
{
  int code = add_to_sums(growing, job);
  code = code == 0 ? begin_again(growing) : code;
  if (code == 0) {
    ct_spans_set_tree(spans, &growing->tree); /* nodes for the frames that are open */
    code = growing->tree.is_broken || growing->tree.count > growing->fold_at / 2 + NODES_OPEN ? CT_ENOENT : 0;
  }
  return code;
}

static bool
is_small(const struct ct_span_bytes *bytes, uint64_t payload_bytes)
{
  return bytes->size <= bytes_most(payload_bytes);
}

/* The sums are too large: of their paths the thinner ones go, or all. What else there is may be small enough. */
static int
leave_out_paths(struct ct_growing_tree *growing, uint64_t payload_bytes)
{
  struct ct_tree_sums *sums = &growing->sums;
  uint32_t count = sums->paths.count;
  if (!sums->has_paths || count < PATHS_FEWEST || payload_bytes < ct_test_number("CONTRAIL_TEST_FOLDS", FOLDS_FROM)) {
    sums->has_paths = false;
    return 0;
  }
  return ct_tree_sums_fold(sums, count - count / 4);
}

int
ct_growing_tree_keep(struct ct_growing_tree *growing, struct ct_spans *spans, struct ct_index_job *job,
                     uint64_t payload_bytes, struct ct_span_bytes *bytes)
{
  bytes->size = 0;
  growing->tree.gap_ticks = ct_spans_gap_ticks(spans);
  int code = growing->has_sums ? 0 : ct_tree_put(&growing->tree, bytes);
  if (code != 0 || (!growing->has_sums && is_small(bytes, payload_bytes))) {
    return code;
  }
  code = ct_growing_tree_fold(growing, spans, job);
  growing->sums.gap_ticks = ct_spans_gap_ticks(spans);
  for (bool more = true; code == 0 && more;) {
    bytes->size = 0;
    code = ct_tree_sums_put(&growing->sums, bytes);
    if (code != 0 || is_small(bytes, payload_bytes)) {
      return code;
    }
    more = growing->sums.has_paths;
    code = leave_out_paths(growing, payload_bytes);
  }
  bytes->size = 0;
  growing->is_there = false;
  return code == CT_ENOENT ? 0 : code;
}

int
ct_growing_tree_add_edges(const struct ct_growing_tree *growing, struct ct_edge_table *edges)
{
  int code = ct_tree_add_edges(&growing->tree, edges);
  return code == 0 && growing->has_sums ? ct_tree_sums_add_edges(&growing->sums, edges) : code;
}
