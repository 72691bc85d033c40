/* SPDX-License-Identifier: MIT */
/*
 * The trees of single calls, made of the lines of a replay (replay_sink). An entry is a call, or the repetition of
 * something. A call that has ended becomes an entry of the call that it is in, or is counted there: when it took too
 * little, or is too deep, or when the tree has too many entries already.
 */
#ifndef CT_VIEWS_CALL_TREE_H
#define CT_VIEWS_CALL_TREE_H

#include "views/replay_internal.h"

enum ct_entry_kind {
  CT_ENTRY_CALL,
  CT_ENTRY_POINT, /* calls of an enter-only function */
  CT_ENTRY_AWAY,  /* end: enum ct_away */
  CT_ENTRY_STACK, /* the thread was on other stacks */
  CT_ENTRY_LOST,  /* events; count: how many */
};

enum {
  CT_TREE_REPEATS = 4,         /* so many entries alike are shown one by one */
  CT_TREE_LEVELS_MAX = 250,    /* readers of JSON have limits */
  CT_TREE_ENTRIES_MAX = 50000, /* of all trees */
};

struct ct_entry {
  uint8_t kind;
  uint8_t end; /* enum ct_span_end */
  bool uncertain, before;
  uint32_t fn; /* UINT32_MAX: of none */
  uint32_t depth;
  uint64_t id, parent; /* of a call */
  uint64_t tsc, ticks, off_ticks;
  char *text, *result; /* with values, as ct_lines_call_text has them; NULL: there are none */
  /* Of a repetition: count is more than 1; ticks and off_ticks are sums. */
  uint64_t count, max_ticks;
  struct ct_entry *slowest; /* one of them, if it is a call */
  struct ct_entry **entries;
  uint32_t entry_count, entry_capacity;
  uint64_t inside;                     /* calls inside, at any depth */
  uint64_t hidden_calls, hidden_ticks; /* of these, those that are in no entry; the time of the outermost of them */
  /* While it is open. */
  uint64_t off_since, away_since;
};

struct ct_tree_root {
  uint32_t thread;
  uint64_t ordinal;
  uint64_t id;
  const struct ct_span_clock *clock; /* when it was entered; NULL: what the replay has by then */
  struct ct_entry *call;             /* NULL: not seen, or inside of another one: */
  size_t inside_of;                  /* position of that; SIZE_MAX: of none */
  uint64_t min_ticks;                /* as of the trees, of this one */
};

struct ct_tree_stack {
  uint32_t thread;
  uint64_t context;
  struct ct_entry **open;
  uint32_t count, capacity;
  size_t root;
};

struct ct_call_trees {
  struct ct_trace *trace;
  struct ct_tree_root *roots;
  size_t root_count, seen;
  struct ct_tree_stack *stacks;
  size_t stack_count;
  size_t entry_count;
  uint64_t min_ticks;
  uint32_t levels; /* 0: all */
  struct ct_line_writer writer;
  struct ct_entry *spare; /* entries that are free, linked by `slowest` */
  /* Of the roots, their numbers and 1, 0: free (call_tree.c). */
  uint32_t *by_ordinal, *by_id;
  size_t slot_count;
};

/* For replay; trees has its trace, roots, min_ticks, levels and writer. */
int ct_call_trees_sink(struct ct_call_trees *trees, struct replay_sink *sink); /* 0 or CT_ENOMEM */
void ct_call_trees_destroy(struct ct_call_trees *trees);                       /* with the trees of its roots */

#endif
