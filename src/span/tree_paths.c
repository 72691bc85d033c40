/* SPDX-License-Identifier: MIT */
/*
 * Paths of sums that are too many: the thinnest go, and what they have to a path CT_FN_OTHER of the innermost one
 * around them that stays. Those that are met again afterwards begin anew beside it. So what is shown of a path is what
 * it had since it was last made, and no moment is missing: it is in one of the others.
 *
 *   f 9 { g 5 { h 1  i 1 }  k 2 }   at most 3    f 9 { g 5 { other 2: 2 paths }  other 2: 1 path }
 */
#include "span/tree_sums.h"

#include <stdlib.h>

void
ct_tree_sums_total(struct ct_tree_sums *sums)
{
  struct ct_span_tree *paths = &sums->paths;
  for (uint32_t i = 0; i < paths->count; i++) {
    paths->nodes[i].total = paths->nodes[i].self;
  }
  for (uint32_t i = paths->count; i-- > CT_TREE_FIRST;) {
    struct ct_tree_node *node = &paths->nodes[i];
    paths->nodes[node->parent].total += node->total;
    node->fresh = node->total;
    node->fresh_off = node->off;
  }
}

static int
compare_weights(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static bool
can_go(const struct ct_tree_node *node)
{
  return node->fn != CT_FN_OTHER && node->parent != CT_TREE_COUNTED;
}

/* By path, what it is and all below it: ticks, or calls where no time is known. NULL: out of memory. To be freed. */
static uint64_t *
weights_of(struct ct_tree_sums *sums)
{
  const struct ct_span_tree *paths = &sums->paths;
  uint64_t *weights = calloc(paths->count, sizeof(*weights));
  ct_tree_sums_total(sums);
  bool has_time = (paths->nodes[CT_TREE_OWN].total | paths->nodes[CT_TREE_OTHERS].total) != 0;
  for (uint32_t i = paths->count; weights != NULL && i-- > CT_TREE_FIRST;) {
    const struct ct_tree_node *node = &paths->nodes[i];
    weights[i] += has_time ? node->self : node->frames + node->points;
    weights[node->parent] += weights[i];
  }
  return weights;
}

/* All of them that are no heavier go, so that so many stay or fewer. */
static int
find_threshold(const struct ct_span_tree *paths, const uint64_t *weights, uint32_t most, uint64_t *threshold)
{
  uint64_t *sorted = malloc(paths->count * sizeof(*sorted));
  uint32_t count = 0;
  if (sorted == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t i = CT_TREE_FIRST; i < paths->count; i++) {
    if (can_go(&paths->nodes[i])) {
      sorted[count++] = weights[i];
    }
  }
  qsort(sorted, count, sizeof(*sorted), compare_weights);
  *threshold = count > most ? sorted[count - most - 1] : 0;
  free(sorted);
  return 0;
}

static void
add_path(struct ct_tree_node *into, const struct ct_tree_node *from)
{
  into->frames += from->frames;
  into->points += from->points;
  into->self += from->self;
  into->off += from->off;
  into->before += from->fn == CT_FN_OTHER ? from->before : 1;
}

/* A node of `from`, in the new tree or in the innermost around it that stays; of, is_gone: what became of each. */
static int
fold_node(const struct ct_span_tree *from, uint32_t i, bool can_fold, struct ct_span_tree *into, uint32_t *of,
          bool *is_gone)
{
  const struct ct_tree_node *node = &from->nodes[i];
  uint32_t base = of[node->parent];
  is_gone[i] = is_gone[node->parent] || (can_go(node) && can_fold);
  uint32_t to = ct_span_tree_child(into, base, is_gone[i] ? CT_FN_OTHER : node->fn);
  of[i] = is_gone[i] ? base : to;
  if (to == CT_TREE_NONE) {
    return CT_ENOMEM;
  }
  if (is_gone[i] || node->fn == CT_FN_OTHER) {
    add_path(&into->nodes[to], node);
    return 0;
  }
  uint32_t parent = into->nodes[to].parent;
  into->nodes[to] = *node;
  into->nodes[to].parent = parent;
  return 0;
}

/* A tree of those that stay, in their order, in place of the one that there is. */
static int
fold_below(struct ct_tree_sums *sums, const uint64_t *weights, uint64_t threshold)
{
  struct ct_span_tree *from = &sums->paths, into;
  uint32_t *of = calloc(from->count, sizeof(*of)); /* in the new tree: what it is, or the innermost around it */
  bool *is_gone = calloc(from->count, sizeof(*is_gone));
  int code = of != NULL && is_gone != NULL ? ct_span_tree_init(&into, from->limit) : CT_ENOMEM;
  if (code != 0) {
    goto free_lists;
  }
  for (uint32_t i = CT_TREE_OWN; i < CT_TREE_FIRST; i++) {
    of[i] = i;
  }
  for (uint32_t i = CT_TREE_FIRST; i < from->count && code == 0; i++) {
    code = fold_node(from, i, weights[i] <= threshold, &into, of, is_gone);
  }
  if (code == 0) {
    into.gap_ticks = from->gap_ticks;
    ct_span_tree_destroy(from);
    *from = into;
  } else {
    ct_span_tree_destroy(&into);
  }
free_lists:
  free(of);
  free(is_gone);
  return code;
}

int
ct_tree_sums_fold(struct ct_tree_sums *sums, uint32_t most)
{
  if (sums->paths.count <= CT_TREE_FIRST + most) {
    return 0;
  }
  uint64_t threshold, *weights = weights_of(sums);
  int code = weights != NULL ? find_threshold(&sums->paths, weights, most / 2, &threshold) : CT_ENOMEM; /* and others */
  code = code == 0 ? fold_below(sums, weights, threshold) : code;
  free(weights);
  return code;
}

bool
ct_tree_sums_has_folded(const struct ct_tree_sums *sums)
{
  for (uint32_t i = CT_TREE_FIRST; i < sums->paths.count; i++) {
    if (sums->paths.nodes[i].fn == CT_FN_OTHER) {
      return true;
    }
  }
  return false;
}
