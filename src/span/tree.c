/* SPDX-License-Identifier: MIT */
/* See tree.h. */
#include "span/tree.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_NODES = 256 };

/* An empty table with room for so many nodes, half of it free, and more. */
static int
set_slots(struct ct_span_tree *tree, uint32_t nodes)
{
  uint32_t count = FIRST_NODES * 4;
  while (count / 4 < nodes) {
    count *= 2;
  }
  struct ct_tree_slot *slots = calloc(count, sizeof(*slots));
  if (slots == NULL) {
    return CT_ENOMEM;
  }
  free(tree->slots);
  tree->slots = slots;
  tree->slot_mask = count - 1;
  tree->hash_key = ct_hash_key();
  return 0;
}

int
ct_span_tree_init(struct ct_span_tree *tree, uint32_t limit)
{
  *tree = (struct ct_span_tree){.count = CT_TREE_FIRST, .capacity = FIRST_NODES, .limit = limit};
  tree->nodes = calloc(FIRST_NODES, sizeof(*tree->nodes));
  if (tree->nodes == NULL || set_slots(tree, FIRST_NODES) != 0) {
    ct_span_tree_destroy(tree);
    return CT_ENOMEM;
  }
  return 0;
}

void
ct_span_tree_destroy(struct ct_span_tree *tree)
{
  free(tree->nodes);
  free(tree->slots);
  *tree = (struct ct_span_tree){0};
}

void
ct_span_tree_clear(struct ct_span_tree *tree)
{
  memset(tree->nodes, 0, CT_TREE_FIRST * sizeof(*tree->nodes));
  memset(tree->slots, 0, ((size_t)tree->slot_mask + 1) * sizeof(*tree->slots));
  tree->count = CT_TREE_FIRST;
}

/* Where the key is, or the free slot for it. */
static struct ct_tree_slot *
slot_of(const struct ct_span_tree *tree, uint64_t key)
{
  uint32_t at = ct_span_tree_slot(tree, key);
  while (tree->slots[at].key != 0 && tree->slots[at].key != key) {
    at = (at + 1) & tree->slot_mask;
  }
  return &tree->slots[at];
}

static uint64_t
key_of(const struct ct_tree_node *node)
{
  return (uint64_t)node->parent << 32 | node->fn;
}

int
ct_span_tree_number(struct ct_span_tree *tree)
{
  if (set_slots(tree, tree->count) != 0) {
    return CT_ENOMEM;
  }
  for (uint32_t i = CT_TREE_FIRST; i < tree->count; i++) {
    uint64_t key = key_of(&tree->nodes[i]);
    *slot_of(tree, key) = (struct ct_tree_slot){key, i};
  }
  return 0;
}

static int
grow(struct ct_span_tree *tree)
{
  uint32_t capacity = tree->capacity < FIRST_NODES ? FIRST_NODES : tree->capacity * 2;
  struct ct_tree_node *nodes = reallocarray(tree->nodes, capacity, sizeof(*nodes));
  if (nodes == NULL) {
    return CT_ENOMEM;
  }
  tree->nodes = nodes;
  tree->capacity = capacity;
  return ct_span_tree_number(tree);
}

__attribute__((noinline)) uint32_t
ct_span_tree_find(struct ct_span_tree *tree, uint32_t parent, uint32_t fn)
{
  uint64_t key = (uint64_t)parent << 32 | fn;
  if (parent == CT_TREE_NONE) {
    return CT_TREE_NONE;
  }
  struct ct_tree_slot *slot = slot_of(tree, key);
  if (slot->key == key) {
    return slot->node;
  }
  if (tree->is_broken || tree->count >= tree->limit || (tree->count == tree->capacity && grow(tree) != 0)) {
    tree->is_broken = true;
    return CT_TREE_NONE;
  }
  tree->nodes[tree->count] = (struct ct_tree_node){.fn = fn, .parent = parent};
  *slot_of(tree, key) = (struct ct_tree_slot){key, tree->count}; /* the table may have grown */
  return tree->count++;
}

struct ct_tree_time *
ct_span_tree_times(const struct ct_span_tree *tree)
{
  struct ct_tree_time *times = calloc((size_t)tree->count + 1, sizeof(*times));
  for (uint32_t i = tree->count; times != NULL && i-- > CT_TREE_FIRST;) {
    const struct ct_tree_node *node = &tree->nodes[i];
    struct ct_tree_time *time = &times[i], *above = &times[node->parent];
    time->self_off = node->off - node->away_off - time->parts_off;
    time->here = node->self + time->parts;
    time->here_off += time->self_off; /* those of what is above it were added before */
    above->parts += time->here;
    above->parts_off += node->off;
    above->here_off += time->here_off;
  }
  return times;
}

/* A walk through the tree, with the nodes above the one at hand. */
struct walk {
  const struct ct_span_tree *tree;
  const uint32_t *keys;
  uint32_t *first, *next;  /* of each node: below it, and below the same one */
  uint32_t *above, *level; /* by level; of each node */
  uint32_t *last;          /* of each key: the innermost node that has it */
  struct ct_tree_outer *outers;
};

static void
walk_in(struct walk *walk, uint32_t at)
{
  uint32_t parent = walk->tree->nodes[at].parent, key = walk->keys[at], outer = walk->last[key];
  walk->level[at] = parent < CT_TREE_FIRST ? 0 : walk->level[parent] + 1;
  walk->above[walk->level[at]] = at;
  walk->outers[at].outer = outer;
  walk->outers[at].inner = outer != CT_TREE_NONE ? walk->above[walk->level[outer] + 1] : CT_TREE_NONE;
  walk->last[key] = at;
}

static void
walk_below(struct walk *walk, uint32_t root)
{
  uint32_t at = walk->first[root];
  while (at != CT_TREE_NONE) {
    walk_in(walk, at);
    if (walk->first[at] != CT_TREE_NONE) {
      at = walk->first[at];
      continue;
    }
    uint32_t next = CT_TREE_NONE;
    while (next == CT_TREE_NONE && at != root) {
      walk->last[walk->keys[at]] = walk->outers[at].outer;
      next = walk->next[at];
      at = walk->tree->nodes[at].parent;
    }
    at = next;
  }
}

struct ct_tree_outer *
ct_span_tree_outers(const struct ct_span_tree *tree, const uint32_t *keys, uint32_t key_count)
{
  size_t count = tree->count;
  struct walk walk = {.tree = tree, .keys = keys, .outers = calloc(count, sizeof(*walk.outers))};
  uint32_t *lists = calloc(count * 4 + key_count + 1, sizeof(*lists));
  if (walk.outers == NULL || lists == NULL) {
    free(walk.outers);
    free(lists);
    return NULL;
  }
  walk.first = lists;
  walk.next = lists + count;
  walk.above = lists + count * 2;
  walk.level = lists + count * 3;
  walk.last = lists + count * 4;
  for (uint32_t i = tree->count; i-- > CT_TREE_FIRST;) {
    walk.next[i] = walk.first[tree->nodes[i].parent];
    walk.first[tree->nodes[i].parent] = i;
  }
  for (uint32_t root = CT_TREE_OWN; root < CT_TREE_FIRST; root++) {
    walk_below(&walk, root);
  }
  free(lists);
  return walk.outers;
}
