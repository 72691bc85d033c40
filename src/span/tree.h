/* SPDX-License-Identifier: MIT */
/*
 * The calling context tree of a thread: a node for each sequence of functions that was on one of its stacks, from the
 * outermost one down, recursion and all, with the sums of its calls. Who calls whom, what belongs to a module, and the
 * tree of call paths are all made of it without the calls themselves.
 *
 *   f { g { f { h } } }      f   f/g   f/g/f   f/g/f/h
 *
 * Nodes are in the order in which they were first entered, so what is above a node comes before it. The first ones are
 * none, the bottom of the thread's own stack, that of all others, and what calls hang below that were counted only.
 *
 * A tree has a limit, as recursion may have any number of paths. Who meets it has no tree from then on: is_broken.
 */
#ifndef CT_SPAN_TREE_H
#define CT_SPAN_TREE_H

#include <contrail/span.h>

#include "base/branch.h"
#include "base/hash_key.h"

enum { CT_TREE_NONE = 0, CT_TREE_OWN = 1, CT_TREE_OTHERS = 2, CT_TREE_COUNTED = 3, CT_TREE_FIRST = 4 };

/* Times are sums, modulo 2^64, of what struct ct_span has under these names. */
struct ct_tree_node {
  uint32_t fn, parent;
  uint32_t first, next; /* what was called first in it the last time, and after it: a guess (ct_span_tree_call) */
  uint64_t frames;      /* spans with a duration; */
  uint64_t total, self, off, fresh, fresh_off;
  uint64_t points;   /* calls without one, of enter-only functions; below CT_TREE_COUNTED: calls that were counted */
  uint64_t before;   /* of the frames: open when the recording began */
  uint64_t away_off; /* off the processor on other stacks, while a frame of it was the innermost one on its own */
};

struct ct_tree_slot {
  uint64_t key; /* parent << 32 | fn; 0: free */
  uint32_t node;
};

struct ct_span_tree {
  struct ct_tree_node *nodes;
  uint32_t count, capacity, limit;
  struct ct_tree_slot *slots; /* a power of two; NULL: nodes are not looked for */
  uint32_t slot_mask;
  uint64_t hash_key;  /* base/hash_key.h */
  bool is_broken;     /* there were more of them, or memory was exhausted */
  uint64_t gap_ticks; /* in which events were lost */
};

/* An empty one, of at most so many nodes. 0 or CT_ENOMEM. */
int ct_span_tree_init(struct ct_span_tree *tree, uint32_t limit);
void ct_span_tree_destroy(struct ct_span_tree *tree); /* accepts a zeroed one */
/* It is empty again, as after the first of these. */
void ct_span_tree_clear(struct ct_span_tree *tree);
/* So that nodes that are there can be looked for. 0 or CT_ENOMEM. */
int ct_span_tree_number(struct ct_span_tree *tree);
/* For ct_span_tree_child. */
uint32_t ct_span_tree_find(struct ct_span_tree *tree, uint32_t parent, uint32_t fn);

static inline uint32_t
ct_span_tree_slot(const struct ct_span_tree *tree, uint64_t key)
{
  return (uint32_t)ct_hash(tree->hash_key, key) & tree->slot_mask;
}

/* The node of a call of fn below that one, made where there is none; CT_TREE_NONE: the tree is broken. */
static inline uint32_t
ct_span_tree_child(struct ct_span_tree *tree, uint32_t parent, uint32_t fn)
{
  uint64_t key = (uint64_t)parent << 32 | fn;
  const struct ct_tree_slot *slot = &tree->slots[ct_span_tree_slot(tree, key)];
  return CT_LIKELY(slot->key == key) ? slot->node : ct_span_tree_find(tree, parent, fn);
}

/*
 * The same of who knows the node of the last call made in this one (*last; CT_TREE_NONE: it does not). What is called
 * there in turn is nearly always what was called last time, and that node is about to be used: to look there first
 * saves going to the table, which no cache holds.
 */
static inline uint32_t
ct_span_tree_call(struct ct_span_tree *tree, uint32_t parent, uint32_t *last, uint32_t fn)
{
  uint32_t before = *last;
  uint32_t node = before != CT_TREE_NONE ? tree->nodes[before].next : tree->nodes[parent].first;
  if (CT_UNLIKELY(tree->nodes[node].fn != fn || tree->nodes[node].parent != parent)) {
    node = ct_span_tree_child(tree, parent, fn);
    *(before != CT_TREE_NONE ? &tree->nodes[before].next : &tree->nodes[parent].first) = node;
  }
  *last = node;
  return node;
}

/* A span that has come out, at its node (reserved). */
static inline void
ct_span_tree_add(struct ct_span_tree *tree, const struct ct_span *span)
{
  struct ct_tree_node *node = &tree->nodes[span->reserved];
  if (CT_UNLIKELY(span->end > CT_SPAN_ORPHAN)) {
    node->points += span->end == CT_SPAN_POINT ? span->calls : span->duration_ticks;
    return;
  }
  node->frames++;
  node->total += span->duration_ticks;
  node->self += span->self_ticks;
  node->off += span->off_ticks;
  node->fresh += span->fresh_ticks;
  node->fresh_off += span->fresh_off_ticks;
  node->before += (span->uncertain & CT_SPAN_BEFORE) != 0;
}

/* Of all calls of the node, as <contrail/report.h> counts them: not what was open before. */
static inline uint64_t
ct_tree_calls(const struct ct_tree_node *node)
{
  return node->frames - node->before + node->points;
}

/* Of each node the time on its own stack, whatever went on on others. To be freed; NULL: out of memory. */
struct ct_tree_time {
  uint64_t self_off;         /* of its self, off the processor */
  uint64_t here, here_off;   /* its self and those of all that was called in it */
  uint64_t parts, parts_off; /* while they are made: of what was called directly in it */
};
struct ct_tree_time *ct_span_tree_times(const struct ct_span_tree *tree);

/*
 * By node: the nearest one above it that has the same key (of key_count; one for each node), and the one above which
 * that has it directly, which may be the node itself. CT_TREE_NONE: there is none. To be freed; NULL: out of memory.
 */
struct ct_tree_outer {
  uint32_t outer, inner;
};
struct ct_tree_outer *ct_span_tree_outers(const struct ct_span_tree *tree, const uint32_t *keys, uint32_t key_count);

#endif
