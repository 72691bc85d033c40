/* SPDX-License-Identifier: MIT */
/*
 * contrail tui: who calls whom, as a tree that is folded. Once the paths have been read it is of them, as contrail
 * graph has it. Before that, and with callers below what they call, a node below another is an edge: what its caller
 * called of it on all paths, as the index has it.
 */
#include "cli/tui.h"

#include <stdlib.h>
#include <string.h>

enum { CHILDREN_MAX = 500, OPEN_LEVELS = 40, OPEN_PERCENT = 60 };

static int
heavier(const void *a, const void *b)
{
  const struct tui_node *x = a, *y = b;
  return x->total != y->total   ? (x->total < y->total ? 1 : -1)
         : x->calls != y->calls ? (x->calls < y->calls ? 1 : -1)
                                : (x->function > y->function) - (x->function < y->function);
}

/* Room for so many nodes at a place. */
static int
make_room(struct tui_graph *graph, size_t at, size_t count)
{
  if (graph->count + count > graph->capacity) {
    size_t capacity = (graph->count + count) * 2;
    struct tui_node *more = reallocarray(graph->nodes, capacity, sizeof(*more));
    if (more == NULL) {
      return CT_ENOMEM;
    }
    graph->nodes = more;
    graph->capacity = capacity;
  }
  memmove(graph->nodes + at + count, graph->nodes + at, (graph->count - at) * sizeof(*graph->nodes));
  graph->count += count;
  return CT_OK;
}

static const struct tui_edge *
edge_at(const struct tui_graph *graph, const struct tui_data *data, size_t i)
{
  return i >= data->edge_count ? NULL : graph->up ? &data->edges[data->by_callee[i]] : &data->edges[i];
}

/* The edges of a function, or of none; how many. */
static size_t
edges_of(const struct tui_graph *graph, const struct tui_data *data, int64_t function, size_t *first)
{
  size_t count = 0;
  *first = graph->up ? tui_edges_of_callee(data, function) : tui_edges_of_caller(data, function);
  for (const struct tui_edge *edge;
       (edge = edge_at(graph, data, *first + count)) != NULL && (graph->up ? edge->callee : edge->caller) == function;
       count++) {
  }
  return count;
}

/* The function is on the path that leads to the node, or is its own. */
static bool
is_above(const struct tui_graph *graph, size_t at, int64_t function)
{
  uint32_t level = graph->nodes[at].level;
  for (size_t i = at + 1; i-- > 0;) {
    if (i == at || graph->nodes[i].level < level) {
      level = graph->nodes[i].level;
      if (graph->nodes[i].function == function) {
        return true;
      }
    }
  }
  return false;
}

/* The nodes, with room for one more, which become the parent's (SIZE_MAX: are the outermost); frees them. */
static int
put_nodes(struct tui_graph *graph, struct tui_node *nodes, size_t count, size_t parent)
{
  size_t at = parent + 1, shown = count < CHILDREN_MAX ? count : CHILDREN_MAX;
  uint32_t level = parent != SIZE_MAX ? graph->nodes[parent].level + 1 : 0;
  for (size_t i = 0; i < shown; i++) {
    nodes[i].level = level;
  }
  if (shown < count) {
    nodes[shown++] = (struct tui_node){.level = level, .others = count - CHILDREN_MAX, .function = TUI_NO_FUNCTION};
  }
  int code = make_room(graph, at, shown);
  if (code == CT_OK && shown != 0) {
    memcpy(graph->nodes + at, nodes, shown * sizeof(*nodes));
  }
  free(nodes);
  return code;
}

/* What is below a path, which is in the order of contrail graph: the heaviest first. */
static int
insert_paths(struct tui_graph *graph, const struct tui_paths *paths, size_t parent)
{
  size_t begin = parent != SIZE_MAX ? graph->nodes[parent].path + 1 : 0, count = 0;
  size_t end = parent != SIZE_MAX ? paths->paths[graph->nodes[parent].path].end : paths->count;
  for (size_t at = begin; at < end; at = paths->paths[at].end) {
    count++;
  }
  struct tui_node *nodes = calloc(count + 1, sizeof(*nodes));
  if (nodes == NULL) {
    return CT_ENOMEM;
  }
  for (size_t at = begin, i = 0; i < count; at = paths->paths[at].end, i++) {
    const struct tui_path *path = &paths->paths[at];
    nodes[i] = (struct tui_node){.function = path->function,
                                 .label = path->label,
                                 .calls = path->calls,
                                 .recursive = path->recursive,
                                 .total = path->total,
                                 .self = path->self,
                                 .others = path->others,
                                 .path = at,
                                 .has_more = path->others == 0 && path->end > at + 1};
  }
  return put_nodes(graph, nodes, count, parent);
}

/* What a function has called, or who has called it; parent: the number of its node, SIZE_MAX: none. */
static int
insert_edges(struct tui_graph *graph, const struct tui_data *data, int64_t function, size_t parent)
{
  size_t first, count = edges_of(graph, data, function, &first);
  struct tui_node *nodes = calloc(count + 1, sizeof(*nodes));
  if (nodes == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < count; i++) {
    const struct tui_edge *edge = edge_at(graph, data, first + i);
    int64_t other = graph->up ? edge->caller : edge->callee;
    size_t unused;
    nodes[i] = (struct tui_node){.function = other,
                                 .calls = edge->calls,
                                 .total = edge->total,
                                 .self = edge->self,
                                 .is_recursion = parent != SIZE_MAX && is_above(graph, parent, other)};
    nodes[i].has_more =
        other != TUI_NO_FUNCTION && !nodes[i].is_recursion && edges_of(graph, data, other, &unused) != 0;
  }
  qsort(nodes, count, sizeof(*nodes), heavier);
  return put_nodes(graph, nodes, count, parent);
}

int
tui_graph_unfold(struct tui_graph *graph, const struct tui_sums *sums, size_t at)
{
  if (at >= graph->count || graph->nodes[at].is_open || !graph->nodes[at].has_more) {
    return CT_OK;
  }
  graph->nodes[at].is_open = true;
  return graph->of_paths ? insert_paths(graph, sums->paths, at)
                         : insert_edges(graph, sums->data, graph->nodes[at].function, at);
}

void
tui_graph_fold(struct tui_graph *graph, size_t at)
{
  if (at >= graph->count || !graph->nodes[at].is_open) {
    return;
  }
  size_t end = at + 1;
  while (end < graph->count && graph->nodes[end].level > graph->nodes[at].level) {
    end++;
  }
  memmove(graph->nodes + at + 1, graph->nodes + end, (graph->count - end) * sizeof(*graph->nodes));
  graph->count -= end - at - 1;
  graph->nodes[at].is_open = false;
  graph->selected =
      graph->selected > at ? (graph->selected < end ? at : graph->selected - (end - at - 1)) : graph->selected;
}

/* The way down on which most of the time is spent. */
static int
unfold_heavy(struct tui_graph *graph, const struct tui_sums *sums)
{
  size_t at = 0;
  int code = CT_OK;
  for (int level = 0; level < OPEN_LEVELS && at < graph->count && code == CT_OK; level++) {
    int64_t total = graph->nodes[at].total;
    if (!graph->nodes[at].has_more) {
      break;
    }
    code = tui_graph_unfold(graph, sums, at++);
    if (at >= graph->count || total <= 0 || graph->nodes[at].total < total / 100 * OPEN_PERCENT) {
      break;
    }
  }
  return code;
}

/* The outermost nodes, nothing of them unfolded. */
static int
begin_nodes(struct tui_graph *graph, const struct tui_sums *sums, int64_t root, bool up)
{
  const struct tui_data *data = sums->data;
  const struct tui_function *function = tui_data_function(data, root);
  graph->count = graph->first = graph->selected = 0;
  graph->root = function != NULL ? root : TUI_NO_FUNCTION;
  graph->up = up && function != NULL;
  graph->whole = 0;
  const struct tui_paths *paths = sums->paths;
  graph->of_paths = paths != NULL && paths->is_known && paths->root == graph->root && !graph->up;
  int code;
  if (graph->of_paths) {
    code = insert_paths(graph, paths, SIZE_MAX);
  } else if (function != NULL) {
    size_t unused;
    code = make_room(graph, 0, 1);
    if (code == CT_OK) {
      graph->nodes[0] = (struct tui_node){.function = root,
                                          .calls = function->calls,
                                          .total = function->total,
                                          .self = function->self,
                                          .has_more = edges_of(graph, data, root, &unused) != 0};
    }
  } else {
    code = insert_edges(graph, data, TUI_NO_FUNCTION, SIZE_MAX);
  }
  for (size_t i = 0; code == CT_OK && i < graph->count; i++) {
    graph->whole += graph->nodes[i].total > 0 ? graph->nodes[i].total : 0;
  }
  return code;
}

int
tui_graph_begin(struct tui_graph *graph, const struct tui_sums *sums, int64_t root, bool up)
{
  int code = begin_nodes(graph, sums, root, up);
  return code != CT_OK                    ? code
         : graph->root != TUI_NO_FUNCTION ? tui_graph_unfold(graph, sums, 0)
                                          : unfold_heavy(graph, sums);
}

/* Which node of before, from 1, the one at that place is: the same function below the same one; 0: none. */
static size_t
origin_of(const struct tui_graph *graph, size_t at, const struct tui_graph *before)
{
  const struct tui_node *node = &graph->nodes[at];
  size_t parent = at, first = 0;
  if (node->others != 0) {
    return 0;
  }
  while (parent > 0 && graph->nodes[parent].level >= node->level) {
    parent--;
  }
  if (node->level > 0) {
    first = graph->nodes[parent].origin;
    if (first == 0) {
      return 0;
    }
  }
  for (size_t i = first; i < before->count && before->nodes[i].level >= node->level; i++) {
    if (before->nodes[i].level == node->level && before->nodes[i].function == node->function &&
        before->nodes[i].label == node->label && before->nodes[i].others == 0) {
      return i + 1;
    }
  }
  return 0;
}

int
tui_graph_renew(struct tui_graph *graph, const struct tui_sums *sums)
{
  if (graph->count == 0) {
    return tui_graph_begin(graph, sums, graph->root, graph->up);
  }
  struct tui_graph new = {0};
  int code = begin_nodes(&new, sums, graph->root, graph->up);
  for (size_t i = 0; code == CT_OK && i < new.count; i++) {
    size_t origin = origin_of(&new, i, graph);
    new.nodes[i].origin = origin;
    if (origin != 0 && origin - 1 == graph->selected) {
      new.selected = i;
    }
    if (origin != 0 && graph->nodes[origin - 1].is_open) {
      code = tui_graph_unfold(&new, sums, i);
    }
  }
  if (code != CT_OK) {
    tui_graph_free(&new);
    return code;
  }
  new.first = graph->first < new.count ? graph->first : 0;
  tui_graph_free(graph);
  *graph = new;
  return CT_OK;
}

void
tui_graph_free(struct tui_graph *graph)
{
  free(graph->nodes);
  *graph = (struct tui_graph){0};
}
