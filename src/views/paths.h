/* SPDX-License-Identifier: MIT */
/*
 * The tree of call paths, made in one pass: a node for each sequence of functions from the outermost one down.
 *
 * Recursion. A function that is on the path already goes on from there: its call counts to the node further out, and
 * what it calls hangs below that one. So no path has a function twice, and the depth of the tree is bounded by the
 * functions of the program.
 *
 *   f { g { f { h } } }      f (2 calls, 1 of them recursive)  { g  h }
 *
 * Time. A node has the selves of its calls; its total is the selves of all that hang below it. So the total of a node
 * is that of its children and its self, the roots have all there is, and no moment counts twice.
 *
 * Calls that are left out (is_limited). Their selves are part of the total, not of the self, of the innermost call
 * around them that is not left out, on the same stack. So a call that counts has all of its time, as in the report, and
 * still no moment counts twice; what is in no call that counts is left out. Paths with nothing are not there at the
 * end.
 *
 *   main { work 3 ms { step 1 us  step 1 us } }   of at least 1 ms: main { work 3 ms }
 *
 * Memory. Beyond so many nodes the thinnest half of the paths, of which no call is open, goes to nodes "(other)" of the
 * paths that they begin with. What is called in an "(other)" stays in it. Each thread has a tree of its own with that
 * bound, and the trees are merged (reading.h).
 */
#ifndef CT_VIEWS_PATHS_H
#define CT_VIEWS_PATHS_H

#include "views/reading.h"

/* In place of the number of a function. Threads: CT_PATH_THREAD + position in labels. */
#define CT_PATH_OTHER  0xFFFFFFF0u /* paths that were folded */
#define CT_PATH_STACKS 0xFFFFFFF1u /* what was called on other stacks than the threads' own */
#define CT_PATH_LOST   0xFFFFFFF2u /* the time in which events were lost */
#define CT_PATH_ROOT   0xFFFFFFF3u
#define CT_PATH_THREAD 0x80000000u

enum { CT_PATH_NONE = 0, CT_PATH_TOP = 1, CT_PATHS_MAX = 250000 };

struct ct_path {
  uint32_t name;
  uint32_t parent, first, next; /* positions; CT_PATH_NONE: there is none */
  uint32_t open;                /* frames of it that are on stacks */
  uint32_t folded;              /* paths that went into it */
  uint64_t calls, recursive;
  uint64_t self_ticks, self_off_ticks;
  uint64_t left_ticks, left_off_ticks;   /* is_limited: the selves of calls inside that are left out */
  uint64_t total_ticks, total_off_ticks; /* filled at the end ... */
  uint64_t total_calls;                  /* ... with all below */
};

struct ct_path_label {
  uint32_t tid, pid;
  char *name;
};

struct ct_paths {
  uint32_t limit;
  bool per_thread, is_selected_only; /* from the functions down that the filter chooses */
  bool is_filtered; /* whole paths, but of calls that the filter of the reading leaves out neither call nor time */
  bool is_limited;  /* calls that the filter leaves out for their duration, depth or end count to no path of theirs */
  struct ct_view_names names;       /* not of a part ... */
  const struct ct_view_name *known; /* ... which has these, of the reading's names */
  struct ct_path *paths;            /* the first is none, the second the root */
  uint32_t count, capacity, live, spare;
  struct ct_path_step {
    uint32_t parent, name, path;
  } *steps; /* a table: what a call of a function leads to; path CT_PATH_NONE: free */
  uint32_t step_count, step_capacity;
  struct ct_path_label *labels;
  uint32_t label_count;
  uint32_t top;     /* of a part: what the outermost calls of the thread hang below */
  uint64_t counted; /* calls that are in no path: they were counted only */
  uint64_t folded;  /* paths that are in an "(other)" */
  struct ct_view_reading *reading;
  struct ct_trace *trace; /* of a part: its thread's */
};

/* Fills a zeroed one but for limit (0: CT_PATHS_MAX) and the three that follow. As ct_edges_collect_callers. */
int ct_paths_collect(struct ct_paths *paths, struct ct_view_reading *reading, struct ct_diag *diag);
void ct_paths_destroy(struct ct_paths *paths); /* accepts a zeroed one */

/* For paths.c, and tests. The path of a call of that function below another one; CT_PATH_NONE: out of memory. */
uint32_t ct_paths_step(struct ct_paths *paths, uint32_t parent, uint32_t name);
int ct_paths_init(struct ct_paths *paths);
/* Adds the paths of another tree, whose threads get new labels. 0 or CT_ENOMEM. */
int ct_paths_merge(struct ct_paths *into, const struct ct_paths *from);
/* Totals of all nodes, and their children in order. 0 or CT_ENOMEM. */
int ct_paths_finish(struct ct_paths *paths);
/* The next one in the order of a tree: first what is below, if wanted. CT_PATH_NONE: that was all. */
uint32_t ct_paths_next(const struct ct_paths *paths, uint32_t path, bool below);
/* The path of a call below base (CT_PATH_NONE: it is in no selected function); CT_PATH_NONE: it is in none. Or
 * CT_ENOMEM. */
int ct_paths_of_call(struct ct_paths *paths, uint32_t base, uint32_t fn, uint32_t *path);
/* Of a part, by what an index has; as take_tree and take_sums of struct ct_view_reading. */
int ct_paths_take_tree(void *paths, const struct ct_span_tree *tree);
int ct_paths_take_sums(void *paths, const struct ct_tree_sums *sums);
const char *ct_paths_name(const struct ct_paths *paths, uint32_t name);

#endif
