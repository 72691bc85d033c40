/* SPDX-License-Identifier: MIT */
/*
 * What a calling context tree amounts to for who does not ask about single paths: sums of each caller's calls of each
 * function, of groups of functions, and of paths in which no function is twice. Recursion has ever more contexts, but
 * these are few. A tree that gets too large is added to its sums, and begins anew with the frames that are open: sums
 * are linear in what the nodes have, so it does not matter when.
 *
 *   f { g { f { h } } }    edges  f, f > g, g > f, f > h
 *                          paths  f (2 calls, 1 recursive), f/g, f/h
 *                          groups of the module with all of them: the outermost f
 */
#ifndef CT_SPAN_TREE_SUMS_H
#define CT_SPAN_TREE_SUMS_H

#include "span/tree.h"

#include <contrail/trace.h>

/* In place of a caller: the nodes that roots of trees stand for. */
#define CT_CALLER_OWN     UINT32_MAX
#define CT_CALLER_OTHERS  (UINT32_MAX - 1)
#define CT_CALLER_COUNTED (UINT32_MAX - 2)

/* In place of a function, in paths: those that were folded into what they begin with, as they were thin. */
#define CT_FN_OTHER UINT32_MAX

/* Of the calls of a function by another one. Sums modulo 2^64. */
struct ct_tree_edge {
  uint32_t caller, fn;
  uint64_t frames, points, before; /* as in struct ct_tree_node, ... */
  uint64_t total, self, fresh, fresh_off;
  uint64_t self_off, here, here_off; /* ... and struct ct_tree_time; here: what a row of callees has */
};

/* By what functions are grouped. Of a group one of its functions is kept, which stands for it. */
enum ct_tree_grouping { CT_TREE_MODULES = 0, CT_TREE_FILES, CT_TREE_CLASSES, CT_TREE_ALL, CT_TREE_GROUPINGS };
struct ct_tree_group {
  uint32_t fn;
  uint32_t number;     /* of struct ct_tree_groupings, while it is made */
  uint64_t total, off; /* of the frames that are in no other one of the group */
};

/* Of each function of a trace its group, in each way of grouping. They may be used by several threads. */
struct ct_tree_groupings {
  uint32_t fn_count;
  uint32_t *of[CT_TREE_ALL]; /* by function */
  uint32_t count[CT_TREE_ALL];
  uint32_t crc[CT_TREE_ALL]; /* of all these numbers */
};
/* The ways of grouping in the mask (1 << CT_TREE_MODULES ...) alone. 0 or CT_ENOMEM. */
int ct_tree_groupings_init(struct ct_tree_groupings *groupings, struct ct_trace *trace, uint32_t fn_count,
                           unsigned mask);
void ct_tree_groupings_destroy(struct ct_tree_groupings *groupings); /* accepts a zeroed one */

struct ct_tree_sums {
  struct ct_tree_edge *edges; /* in the order in which they were first met */
  uint32_t edge_count, edge_capacity;
  uint32_t *buckets; /* position + 1, 0: free; a power of two, edge_capacity * 2 */
  uint64_t hash_key; /* base/hash_key.h */
  struct ct_tree_group *groups[CT_TREE_GROUPINGS];
  uint32_t group_count[CT_TREE_GROUPINGS];
  uint32_t *group_at[CT_TREE_ALL]; /* while it is made, by number of the group: position + 1 */
  uint32_t fn_count,
      crc[CT_TREE_ALL]; /* of the groupings; crc 0: there are no groups of that kind, as these have changed */
  bool has_groups;      /* not where frames of one stack may lie in those of another one */
  /* Paths in which no function is twice: a call of one that is on the path goes on from there. Of a node: frames are
   * calls, before those of them that were recursive; points; self, total, and off, that of its self alone. Of
   * CT_FN_OTHER before is how many paths are in it. */
  struct ct_span_tree paths;
  bool has_paths;
  uint32_t most_paths;
  uint64_t gap_ticks;
};

/* Empty sums; of more than so many paths thin ones are folded when a tree has been added. 0 or CT_ENOMEM. */
int ct_tree_sums_init(struct ct_tree_sums *sums, uint32_t most_paths);
void ct_tree_sums_destroy(struct ct_tree_sums *sums); /* accepts a zeroed one */
/* Adds what the nodes have. 0, CT_ENOMEM, or CT_ENOENT: that cannot be; the sums are undefined then. */
int ct_tree_sums_add(struct ct_tree_sums *sums, const struct ct_span_tree *tree,
                     const struct ct_tree_groupings *groupings);
/* Folds paths, the thinnest first, until there are no more than so many. 0 or CT_ENOMEM. */
int ct_tree_sums_fold(struct ct_tree_sums *sums, uint32_t most);
bool ct_tree_sums_has_folded(const struct ct_tree_sums *sums); /* some were */
/* Totals of all paths, out of what is below them. */
void ct_tree_sums_total(struct ct_tree_sums *sums);
/* The edge, made where there is none; NULL: out of memory. Valid until the next one is made. */
struct ct_tree_edge *ct_tree_sums_edge(struct ct_tree_sums *sums, uint32_t caller, uint32_t fn);

/* As ct_tree_calls. */
uint64_t ct_tree_edge_calls(const struct ct_tree_edge *edge);

#endif
