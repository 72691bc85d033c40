/* SPDX-License-Identifier: MIT */
/*
 * Calling context trees (span/tree.h) as bytes, and what is made of them. Varints: time in gaps, how many nodes; for
 * each node: how far before it that is which it is below, function, a word (frames * 16, and which of what follows is
 * there), self, total less self and the totals of what is below it; 1: points; 2: before; 4: fresh less total; 8: off,
 * fresh off less off, away off. Differences are modulo 2^64, and are put so that they are short either way.
 */
#include "index/index_internal.h"
#include "index/take.h"

#include <stdlib.h>

enum {
  HAS_POINTS = 1,
  HAS_BEFORE = 2,
  HAS_FRESH = 4,
  HAS_OFF = 8,
  WORD_SHIFT = 4,
  NODE_MOST = 11 * 10,
  NODE_LEAST = 5
};

static uint8_t *
put_node(uint8_t *at, const struct ct_tree_node *node, uint32_t back, uint64_t inside)
{
  bool has_off = (node->off | node->fresh_off | node->away_off) != 0;
  uint64_t word = node->frames << WORD_SHIFT | (node->points != 0 ? HAS_POINTS : 0) |
                  (node->before != 0 ? HAS_BEFORE : 0) | (node->fresh != node->total ? HAS_FRESH : 0) |
                  (has_off ? HAS_OFF : 0);
  at = ct_varint_put(at, back);
  at = ct_varint_put(at, node->fn);
  at = ct_varint_put(at, word);
  at = ct_varint_put(at, node->self);
  at = ct_varint_put(at, ct_folded(node->total - node->self - inside));
  at = node->points != 0 ? ct_varint_put(at, node->points) : at;
  at = node->before != 0 ? ct_varint_put(at, node->before) : at;
  at = node->fresh != node->total ? ct_varint_put(at, ct_folded(node->fresh - node->total)) : at;
  if (has_off) {
    at = ct_varint_put(at, node->off);
    at = ct_varint_put(at, ct_folded(node->fresh_off - node->off));
    at = ct_varint_put(at, node->away_off);
  }
  return at;
}

int
ct_tree_put(const struct ct_span_tree *tree, struct ct_span_bytes *bytes)
{
  uint64_t *inside = calloc(tree->count, sizeof(*inside)); /* the totals of what is below each */
  int code = inside == NULL ? CT_ENOMEM : ct_span_bytes_put(bytes, tree->gap_ticks);
  if (code != 0) {
    goto free_totals;
  }
  code = ct_span_bytes_put(bytes, tree->count - CT_TREE_FIRST);
  if (code != 0) {
    goto free_totals;
  }
  for (uint32_t i = tree->count; i-- > CT_TREE_FIRST;) {
    inside[tree->nodes[i].parent] += tree->nodes[i].total;
  }
  for (uint32_t i = CT_TREE_FIRST; i < tree->count; i++) {
    const struct ct_tree_node *node = &tree->nodes[i];
    code = ct_span_bytes_reserve(bytes, NODE_MOST);
    if (code != 0) {
      goto free_totals;
    }
    uint8_t *end = put_node(bytes->data + bytes->size, node, i - node->parent, inside[i]);
    bytes->size = (size_t)(end - bytes->data);
  }
free_totals:
  free(inside);
  return code;
}

/* Its total without what is below it, and fresh as it differs from the total. */
static void
take_node(struct ct_taking *t, struct ct_tree_node *node, uint32_t number)
{
  uint64_t back = ct_take(t), fn = ct_take(t), word = ct_take(t);
  bool ok = t->code == 0 && back > 0 && back < number && fn <= UINT32_MAX;
  t->code = ok ? 0 : CT_EFORMAT;
  *node = (struct ct_tree_node){
      .fn = (uint32_t)fn, .parent = ok ? number - (uint32_t)back : CT_TREE_NONE, .frames = word >> WORD_SHIFT};
  node->self = ct_take(t);
  node->total = node->self + ct_unfolded(ct_take(t));
  node->points = word & HAS_POINTS ? ct_take(t) : 0;
  node->before = word & HAS_BEFORE ? ct_take(t) : 0;
  node->fresh = word & HAS_FRESH ? ct_unfolded(ct_take(t)) : 0;
  if (word & HAS_OFF) {
    node->off = ct_take(t);
    node->fresh_off = node->off + ct_unfolded(ct_take(t));
    node->away_off = ct_take(t);
  }
}

int
ct_tree_take(const uint8_t *bytes, size_t size, struct ct_span_tree *tree)
{
  struct ct_taking t = {bytes, bytes + size, 0};
  uint64_t gap = ct_take(&t), count = ct_take(&t);
  if (t.code != 0 || count > size / NODE_LEAST || count > UINT32_MAX / 2) {
    return CT_EFORMAT;
  }
  uint32_t all = (uint32_t)count + CT_TREE_FIRST;
  struct ct_tree_node *nodes = calloc(all, sizeof(*nodes));
  if (nodes == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t i = CT_TREE_FIRST; i < all && t.code == 0; i++) {
    take_node(&t, &nodes[i], i);
  }
  if (t.code != 0 || t.at != t.end) {
    free(nodes);
    return CT_EFORMAT;
  }
  for (uint32_t i = all; i-- > CT_TREE_FIRST;) { /* what is below it has been added by now */
    nodes[i].fresh += nodes[i].total;
    if (nodes[i].parent >= CT_TREE_FIRST) {
      nodes[nodes[i].parent].total += nodes[i].total;
    }
  }
  *tree = (struct ct_span_tree){.nodes = nodes, .count = all, .capacity = all, .limit = all, .gap_ticks = gap};
  return 0;
}

int
ct_tree_add_edges(const struct ct_span_tree *tree, struct ct_edge_table *edges)
{
  int code = 0;
  for (uint32_t i = CT_TREE_FIRST; i < tree->count && code == 0; i++) {
    const struct ct_tree_node *node = &tree->nodes[i];
    uint32_t caller = node->parent < CT_TREE_FIRST ? UINT32_MAX : tree->nodes[node->parent].fn;
    if (node->parent != CT_TREE_COUNTED && node->frames + node->points != 0) {
      code = ct_edges_add(edges, caller, node->fn, node->frames + node->points, node->total, node->self);
    }
  }
  return code;
}

/* ---- of an index ---- */

static const struct ct_span_bytes *
bytes_of(const struct ct_index_thread *thread)
{
  return thread->is_whole ? &thread->kept_tree : &thread->tree;
}

static bool
is_sums(const struct ct_index_thread *thread)
{
  return thread->is_whole ? thread->kept_is_sums : thread->is_sums;
}

int
ct_index_tree_sums(const struct ct_index *index, uint32_t thread, struct ct_tree_sums *sums)
{
  const struct ct_index_thread *t = &index->threads[thread];
  const struct ct_span_bytes *bytes = bytes_of(t);
  return bytes->size == 0 || t->is_damaged || !is_sums(t) ? CT_ENOENT
                                                          : ct_tree_sums_take(bytes->data, bytes->size, sums);
}

int
ct_index_tree(const struct ct_index *index, uint32_t thread, struct ct_span_tree *tree)
{
  const struct ct_index_thread *t = &index->threads[thread];
  const struct ct_span_bytes *bytes = bytes_of(t);
  return bytes->size == 0 || t->is_damaged || is_sums(t) ? CT_ENOENT : ct_tree_take(bytes->data, bytes->size, tree);
}

static int
add_edges(const struct ct_index_thread *thread, struct ct_edge_table *edges)
{
  const struct ct_span_bytes *bytes = bytes_of(thread);
  struct ct_span_tree tree = {0};
  struct ct_tree_sums sums = {0};
  int code;
  if (is_sums(thread)) {
    code = ct_tree_sums_take(bytes->data, bytes->size, &sums);
    code = code == 0 ? ct_tree_sums_add_edges(&sums, edges) : code;
  } else {
    code = ct_tree_take(bytes->data, bytes->size, &tree);
    code = code == 0 ? ct_tree_add_edges(&tree, edges) : code;
  }
  ct_tree_sums_destroy(&sums);
  ct_span_tree_destroy(&tree);
  return code;
}

int
ct_trees_add_edges(const struct ct_index *index, struct ct_edge_table *edges)
{
  int code = 0;
  for (uint32_t i = 0; i < index->thread_count && code == 0; i++) {
    code = bytes_of(&index->threads[i])->size != 0 ? add_edges(&index->threads[i], edges) : 0;
  }
  return code;
}
