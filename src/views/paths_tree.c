/* SPDX-License-Identifier: MIT */
/*
 * Paths out of what an index has of a thread: its calling context tree, or the sums of one that was too large.
 *
 * The paths of sums begin with the outermost call, and have no function twice. Those below selected functions are a
 * part of them, as long as nothing that was called there went to a path that goes on further out: as long as no
 * function that is above a selected one was called again.
 *
 *   main { run { F { g } } }         F { g }
 *   run { F { g  run { h } } }       run { F { g }  h }: where h was called is not known
 */
#include "views/paths.h"

#include "views/filter.h"

#include <stdlib.h>

/* ---- of a tree ---- */

/* The path of a node, of which that of the one it is below is known. */
static int
path_of_node(struct ct_paths *paths, const struct ct_tree_node *node, const uint32_t *of, uint32_t *base,
             uint32_t *path)
{
  *base = of[node->parent];
  if (node->parent < CT_TREE_FIRST) {
    *base = paths->is_selected_only       ? CT_PATH_NONE
            : node->parent == CT_TREE_OWN ? paths->top
                                          : ct_paths_step(paths, paths->top, CT_PATH_STACKS);
  }
  return ct_paths_of_call(paths, *base, node->fn, path);
}

/*
 * Nodes come in the order in which they were entered, and so do paths then: what is made of them later is the same. Of
 * more of them than the limit some would have been folded, while it was known which were open: that cannot be made
 * here.
 */
int
ct_paths_take_tree(void *arg, const struct ct_span_tree *tree)
{
  struct ct_paths *paths = arg;
  if (paths->is_limited || tree->count > paths->limit) {
    return CT_ENOENT;
  }
  struct ct_tree_time *times = ct_span_tree_times(tree);
  uint32_t *of = calloc(tree->count, sizeof(*of));
  int code = times != NULL && of != NULL ? 0 : CT_ENOMEM;
  for (uint32_t i = CT_TREE_FIRST; code == 0 && i < tree->count; i++) {
    const struct ct_tree_node *node = &tree->nodes[i];
    uint32_t base;
    bool is_in = !paths->is_filtered || ct_filter_has_function(paths->reading->chooses, node->fn);
    if (node->parent == CT_TREE_COUNTED) {
      paths->counted += is_in ? node->points : 0;
      continue;
    }
    code = path_of_node(paths, node, of, &base, &of[i]);
    if (code != 0 || of[i] == CT_PATH_NONE || !is_in) {
      continue;
    }
    struct ct_path *path = &paths->paths[of[i]];
    bool is_recursive = base != CT_PATH_NONE && path->parent != base;
    path->calls += ct_tree_calls(node);
    path->recursive += is_recursive ? node->frames - node->before : 0;
    path->self_ticks += node->self;
    path->self_off_ticks += times[i].self_off;
  }
  free(times);
  free(of);
  return code;
}

/* ---- of sums ---- */

/* What is to be known of sums before the paths below selected functions are taken out of them. */
struct choice {
  const struct ct_paths *paths;
  const struct ct_tree_sums *sums;
  uint32_t *names; /* by node of the sums; of CT_FN_OTHER none */
  uint8_t *kinds;  /* likewise */
  /* By number of the function: */
  uint64_t *missing; /* calls that edges have and paths have not */
  bool *was_open;    /* when the recording began: recursions of such frames are not counted */
};
enum { OUTSIDE = 0, ABOVE = 1, INSIDE = 2 };

static int
name_nodes(struct choice *c)
{
  const struct ct_span_tree *tree = &c->sums->paths;
  for (uint32_t i = CT_TREE_FIRST; i < tree->count; i++) {
    const struct ct_tree_node *node = &tree->nodes[i];
    c->names[i] = node->fn != CT_FN_OTHER ? ct_view_reading_name(c->paths->reading, node->fn) : CT_NO_NAME;
    if (node->fn != CT_FN_OTHER && c->names[i] == CT_NO_NAME) {
      return CT_ENOMEM;
    }
    bool is_selected = c->names[i] != CT_NO_NAME && c->paths->known[c->names[i]].is_selected;
    bool is_below = node->parent >= CT_TREE_FIRST && c->kinds[node->parent] == INSIDE;
    c->kinds[i] = is_selected || is_below ? INSIDE : OUTSIDE;
  }
  for (uint32_t i = tree->count; i-- > CT_TREE_FIRST;) {
    uint32_t parent = tree->nodes[i].parent;
    if (c->kinds[i] != OUTSIDE && parent >= CT_TREE_FIRST && c->kinds[parent] == OUTSIDE) {
      c->kinds[parent] = ABOVE;
    }
  }
  return 0;
}

static int
read_edges(struct choice *c)
{
  const struct ct_span_tree *tree = &c->sums->paths;
  for (uint32_t i = 0; i < c->sums->edge_count; i++) {
    const struct ct_tree_edge *edge = &c->sums->edges[i];
    uint32_t name = ct_view_reading_name(c->paths->reading, edge->fn);
    if (name == CT_NO_NAME) {
      return CT_ENOMEM;
    }
    c->missing[name] += ct_tree_edge_calls(edge);
    c->was_open[name] |= edge->before != 0;
  }
  for (uint32_t i = CT_TREE_FIRST; i < tree->count; i++) {
    if (c->names[i] != CT_NO_NAME) {
      c->missing[c->names[i]] -= tree->nodes[i].frames + tree->nodes[i].points;
    }
  }
  return 0;
}

/* No selected function was called in paths that were folded, and nothing above one that is known was called again. */
static bool
has_all_below(const struct choice *c)
{
  const struct ct_span_tree *tree = &c->sums->paths;
  bool has_all = true;
  for (uint32_t i = 0; i < c->paths->reading->names->count; i++) {
    has_all &= c->missing[i] == 0 || !c->paths->known[i].is_selected;
  }
  for (uint32_t i = CT_TREE_FIRST; i < tree->count && has_all; i++) {
    const struct ct_tree_node *node = &tree->nodes[i];
    has_all = c->kinds[i] != ABOVE || (node->before == 0 && node->points == 0 && !c->was_open[c->names[i]]);
  }
  return has_all;
}

/* CT_ENOENT: the sums do not have these paths. */
static int
check_selected(const struct ct_paths *paths, const struct ct_tree_sums *sums)
{
  struct choice c = {.paths = paths, .sums = sums};
  c.names = calloc(sums->paths.count, sizeof(*c.names));
  c.kinds = calloc(sums->paths.count, sizeof(*c.kinds));
  c.missing = calloc(paths->reading->names->capacity, sizeof(*c.missing));
  c.was_open = calloc(paths->reading->names->capacity, sizeof(*c.was_open));
  bool has_room = c.names != NULL && c.kinds != NULL && c.missing != NULL && c.was_open != NULL;
  int code = has_room ? name_nodes(&c) : CT_ENOMEM;
  code = code == 0 ? read_edges(&c) : code;
  code = code == 0 && !has_all_below(&c) ? CT_ENOENT : code;
  free(c.names);
  free(c.kinds);
  free(c.missing);
  free(c.was_open);
  return code;
}

/* Paths that were folded when the sums were made. */
static int
take_folded(struct ct_paths *paths, const struct ct_tree_node *node, const uint32_t *of)
{
  uint32_t base = of[node->parent];
  if (paths->is_selected_only && base == CT_PATH_NONE) {
    return 0; /* none of them is below a selected function */
  }
  if (node->parent < CT_TREE_FIRST) {
    base = node->parent == CT_TREE_OWN ? paths->top : ct_paths_step(paths, paths->top, CT_PATH_STACKS);
  }
  uint32_t at = base != CT_PATH_NONE ? ct_paths_step(paths, base, CT_PATH_OTHER) : CT_PATH_NONE;
  if (at == CT_PATH_NONE) {
    return CT_ENOMEM;
  }
  struct ct_path *path = &paths->paths[at];
  uint32_t folded = node->before < UINT32_MAX - path->folded ? (uint32_t)node->before : UINT32_MAX - path->folded;
  path->calls += node->frames + node->points;
  path->self_ticks += node->self;
  path->self_off_ticks += node->off;
  path->folded += folded;
  paths->folded += folded;
  return 0;
}

static int
take_node(struct ct_paths *paths, const struct ct_tree_node *node, uint32_t i, uint32_t *of)
{
  uint32_t base;
  if (node->parent == CT_TREE_COUNTED) {
    paths->counted += node->points;
    return 0;
  }
  if (node->fn == CT_FN_OTHER) {
    return take_folded(paths, node, of);
  }
  int code = path_of_node(paths, node, of, &base, &of[i]);
  if (code == 0 && of[i] != CT_PATH_NONE) {
    struct ct_path *path = &paths->paths[of[i]];
    path->calls += node->frames + node->points;
    path->recursive += node->before;
    path->self_ticks += node->self;
    path->self_off_ticks += node->off;
  }
  return code;
}

/* What calls of some leave out cannot be given of them. */
int
ct_paths_take_sums(void *arg, const struct ct_tree_sums *sums)
{
  struct ct_paths *paths = arg;
  const struct ct_span_tree *tree = &sums->paths;
  if (paths->is_limited || paths->is_filtered || !sums->has_paths || tree->count > paths->limit ||
      (paths->limit > CT_PATHS_MAX && ct_tree_sums_has_folded(sums))) {
    return CT_ENOENT;
  }
  int code = ct_view_reading_paths(paths->reading, tree);
  if (code != 0) {
    return code;
  }
  code = paths->is_selected_only ? check_selected(paths, sums) : 0;
  if (code != 0) {
    return code;
  }
  uint32_t *of = calloc(tree->count, sizeof(*of));
  code = of != NULL ? 0 : CT_ENOMEM;
  for (uint32_t i = CT_TREE_FIRST; code == 0 && i < tree->count; i++) {
    code = take_node(paths, &tree->nodes[i], i, of);
  }
  free(of);
  return code;
}
