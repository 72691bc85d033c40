/* SPDX-License-Identifier: MIT */
/* See edges.h. Callers are known to the spans themselves; callees need the stack (an observer). */
#include "views/edges.h"

#include "base/branch.h"
#include "base/hash_key.h"
#include "span/stacks.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_EDGES = 1024, NONE = 0 };

static uint32_t *
find(const struct ct_edges *edges, uint32_t function, int32_t other)
{
  uint64_t key = (uint64_t)function << 32 | (uint32_t)other;
  size_t at = (size_t)ct_hash(edges->hash_key, key) & (edges->bucket_count - 1);
  for (; edges->buckets[at] != NONE; at = (at + 1) & (edges->bucket_count - 1)) {
    const struct ct_edge *edge = &edges->edges[edges->buckets[at] - 1];
    if (edge->function == function && edge->other == other) {
      break;
    }
  }
  return &edges->buckets[at];
}

static __attribute__((noinline)) int
grow(struct ct_edges *edges)
{
  size_t capacity = edges->capacity == 0 ? FIRST_EDGES : edges->capacity * 2;
  struct ct_edge *grown = reallocarray(edges->edges, capacity, sizeof(*grown));
  if (grown == NULL) {
    return CT_ENOMEM;
  }
  edges->edges = grown;
  uint32_t *buckets = calloc(capacity * 2, sizeof(*buckets));
  if (buckets == NULL) {
    return CT_ENOMEM;
  }
  free(edges->buckets);
  edges->buckets = buckets;
  edges->bucket_count = capacity * 2;
  edges->hash_key = ct_hash_key();
  edges->capacity = capacity;
  for (size_t i = 0; i < edges->count; i++) {
    *find(edges, edges->edges[i].function, edges->edges[i].other) = (uint32_t)i + 1;
  }
  return 0;
}

/* NULL: out of memory. Valid until the next call. */
static struct ct_edge_sums *
sums_of(struct ct_edges *edges, uint32_t function, int32_t other)
{
  if (edges->count == edges->capacity && grow(edges) != 0) {
    return NULL;
  }
  uint32_t *bucket = find(edges, function, other);
  if (*bucket == NONE) {
    edges->edges[edges->count++] = (struct ct_edge){.function = function, .other = other};
    *bucket = (uint32_t)edges->count;
  }
  return &edges->edges[*bucket - 1].sums;
}

/* Room in the tables for all functions that have a number, or will have one in this trace. */
static __attribute__((noinline)) int
widen(struct ct_edges *edges)
{
  size_t capacity = edges->reading->names->capacity;
  if (capacity == edges->function_capacity) {
    return 0;
  }
  struct ct_edge_sums *functions = calloc(capacity, sizeof(*functions));
  uint32_t *open = calloc(capacity, sizeof(*open));
  if (functions == NULL || open == NULL) {
    free(functions);
    free(open);
    return CT_ENOMEM;
  }
  if (edges->function_capacity != 0) {
    memcpy(functions, edges->functions, edges->function_capacity * sizeof(*functions));
    memcpy(open, edges->open, edges->function_capacity * sizeof(*open));
  }
  free(edges->functions);
  free(edges->open);
  edges->functions = functions;
  edges->open = open;
  edges->function_capacity = capacity;
  return 0;
}

/* The number of a function of the trace, for which there is room in the tables; CT_NO_NAME: out of memory. */
static inline uint32_t
number_of(const struct ct_edges *edges, uint32_t fn)
{
  return ct_view_reading_name(edges->reading, fn);
}

static inline bool
is_selected(const struct ct_edges *edges, uint32_t number)
{
  return edges->known[number].is_selected;
}

static void
add(struct ct_edge_sums *sums, const struct ct_span *span)
{
  sums->calls += ct_view_calls_of(span);
  if (span->end != CT_SPAN_COUNTED) { /* those have a number there */
    sums->has_time |= span->end != CT_SPAN_POINT;
    sums->total_ticks += span->fresh_ticks;
    sums->self_ticks += span->self_ticks;
    sums->off_ticks += span->fresh_off_ticks;
  }
}

/* ---- parts ---- */

static void
free_part(void *part)
{
  ct_edges_destroy(part);
  free(part);
}

static int
begin_thread(void *arg, struct ct_trace *trace, uint32_t thread, void **part)
{
  const struct ct_edges *all = arg;
  struct ct_edges *edges = *part = calloc(1, sizeof(*edges));
  (void)trace;
  (void)thread;
  if (edges == NULL) {
    return CT_ENOMEM;
  }
  edges->reading = all->reading;
  edges->known = all->reading->names->names;
  return widen(edges);
}

static void
merge_sums(struct ct_edge_sums *into, const struct ct_edge_sums *from)
{
  into->calls += from->calls;
  into->total_ticks += from->total_ticks;
  into->self_ticks += from->self_ticks;
  into->off_ticks += from->off_ticks;
  into->has_time |= from->has_time;
}

static int
merge(void *arg, void *part)
{
  struct ct_edges *all = arg;
  struct ct_edges *edges = part;
  if (widen(all) != 0) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < edges->count; i++) {
    struct ct_edge_sums *sums = sums_of(all, edges->edges[i].function, edges->edges[i].other);
    if (sums == NULL) {
      return CT_ENOMEM;
    }
    merge_sums(sums, &edges->edges[i].sums);
    struct ct_edge_sums *function = &edges->functions[edges->edges[i].function]; /* each that has sums has a row */
    merge_sums(&all->functions[edges->edges[i].function], function);
    *function = (struct ct_edge_sums){0};
  }
  return 0;
}

static size_t
part_bytes(const void *part)
{
  const struct ct_edges *edges = part;
  return edges->capacity * (sizeof(*edges->edges) + 2 * sizeof(*edges->buckets)) +
         edges->function_capacity * (sizeof(*edges->functions) + sizeof(*edges->open));
}

static void
set_parts(struct ct_edges *edges, struct ct_view_reading *reading)
{
  edges->reading = reading;
  reading->names = &edges->names;
  reading->arg = edges;
  reading->begin_thread = begin_thread;
  reading->merge = merge;
  reading->free_part = free_part;
  reading->part_bytes = part_bytes;
}

/* ---- callers ---- */

static int
add_callers(void *arg, const struct ct_span *spans, size_t count)
{
  struct ct_edges *edges = arg;
  for (const struct ct_span *span = spans; span != spans + count; span++) {
    uint32_t number = number_of(edges, span->fn), caller = 0;
    if (number == CT_NO_NAME) {
      return CT_ENOMEM;
    }
    if (!is_selected(edges, number) || span->end == CT_SPAN_ORPHAN) {
      continue;
    }
    bool is_called = span->end != CT_SPAN_COUNTED && span->caller_fn != UINT32_MAX;
    if (is_called && (caller = number_of(edges, span->caller_fn)) == CT_NO_NAME) {
      return CT_ENOMEM;
    }
    int32_t other = is_called                      ? (int32_t)caller
                    : span->end == CT_SPAN_COUNTED ? CT_EDGE_COUNTED
                    : span->context != 0           ? CT_EDGE_STACK
                                                   : CT_EDGE_ROOT;
    struct ct_edge_sums *sums = sums_of(edges, number, other);
    if (sums == NULL) {
      return CT_ENOMEM;
    }
    add(sums, span);
    add(&edges->functions[number], span);
  }
  return 0;
}

/* The same of a tree: what its nodes have are the sums of such spans. */
static struct ct_edge_sums
sums_of_node(const struct ct_tree_node *node)
{
  return (struct ct_edge_sums){.calls = ct_tree_calls(node),
                               .total_ticks = node->fresh,
                               .self_ticks = node->self,
                               .off_ticks = node->fresh_off,
                               .has_time = node->frames != 0};
}

/* By node, the number of its function. To be freed; NULL: out of memory. */
static uint32_t *
numbers_of_tree(const struct ct_edges *edges, const struct ct_span_tree *tree)
{
  uint32_t *numbers = calloc(tree->count, sizeof(*numbers));
  for (uint32_t i = CT_TREE_FIRST; numbers != NULL && i < tree->count; i++) {
    numbers[i] = number_of(edges, tree->nodes[i].fn);
    if (numbers[i] == CT_NO_NAME) {
      free(numbers);
      return NULL;
    }
  }
  return numbers;
}

static int32_t
caller_of(const struct ct_tree_node *node, const uint32_t *numbers)
{
  switch (node->parent) {
  case CT_TREE_OWN:
    return CT_EDGE_ROOT;
  case CT_TREE_OTHERS:
    return CT_EDGE_STACK;
  case CT_TREE_COUNTED:
    return CT_EDGE_COUNTED;
  default:
    return (int32_t)numbers[node->parent];
  }
}

static int
take_callers(void *part, const struct ct_span_tree *tree)
{
  struct ct_edges *edges = part;
  uint32_t *numbers = numbers_of_tree(edges, tree);
  int code = numbers != NULL ? 0 : CT_ENOMEM;
  for (uint32_t i = CT_TREE_FIRST; code == 0 && i < tree->count; i++) {
    const struct ct_tree_node *node = &tree->nodes[i];
    struct ct_edge_sums own = sums_of_node(node);
    struct ct_edge_sums *sums =
        is_selected(edges, numbers[i]) ? sums_of(edges, numbers[i], caller_of(node, numbers)) : &own;
    code = sums != NULL ? 0 : CT_ENOMEM;
    if (code == 0 && sums != &own) {
      merge_sums(sums, &own);
      merge_sums(&edges->functions[numbers[i]], &own);
    }
  }
  free(numbers);
  return code;
}

/* The same of the sums of one. Also what all calls of each selected function amount to. */
static struct ct_edge_sums
sums_of_tree_edge(const struct ct_tree_edge *edge)
{
  return (struct ct_edge_sums){.calls = ct_tree_edge_calls(edge),
                               .total_ticks = edge->fresh,
                               .self_ticks = edge->self,
                               .off_ticks = edge->fresh_off,
                               .has_time = edge->frames != 0};
}

static int
take_callers_of_sums(void *part, const struct ct_tree_sums *tree)
{
  struct ct_edges *edges = part;
  uint32_t *functions, *callers;
  int code = ct_view_reading_edges(edges->reading, tree, &functions, &callers);
  if (code != 0) {
    return code;
  }
  for (uint32_t i = 0; i < tree->edge_count && code == 0; i++) {
    const struct ct_tree_edge *edge = &tree->edges[i];
    int32_t other = edge->caller == CT_CALLER_OWN       ? CT_EDGE_ROOT
                    : edge->caller == CT_CALLER_OTHERS  ? CT_EDGE_STACK
                    : edge->caller == CT_CALLER_COUNTED ? CT_EDGE_COUNTED
                                                        : (int32_t)callers[i];
    if (is_selected(edges, functions[i])) {
      struct ct_edge_sums own = sums_of_tree_edge(edge), *sums = sums_of(edges, functions[i], other);
      code = sums != NULL ? 0 : CT_ENOMEM;
      if (sums != NULL) {
        merge_sums(sums, &own);
        merge_sums(&edges->functions[functions[i]], &own);
      }
    }
  }
  free(functions);
  free(callers);
  return code;
}

int
ct_edges_collect_callers(struct ct_edges *edges, struct ct_view_reading *reading, struct ct_diag *diag)
{
  set_parts(edges, reading);
  reading->add = add_callers;
  reading->take_tree = take_callers;
  reading->take_sums = take_callers_of_sums;
  return ct_view_read(reading, diag);
}

/* ---- callees ---- */

/* Notes of a frame of a selected function: the position of the next one further out on the stack + 1, 0: there is none.
 */
static int
entered(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack)
{
  struct ct_edges *edges = arg;
  (void)spans;
  uint32_t top = stack->count - 1, fn = stack->frames[top].fn;
  uint32_t number = number_of(edges, fn);
  if (number == CT_NO_NAME) {
    return CT_ENOMEM;
  }
  stack->notes[top].node = number;
  if (is_selected(edges, number) && edges->open[number]++ != 0) {
    uint32_t at = top;
    while (at != 0 && stack->notes[at - 1].node != number) {
      at--;
    }
    stack->notes[top].outer = at;
  }
  return 0;
}

/* Of a selected function a frame has ended. */
static int
end_selected(struct ct_edges *edges, const struct ct_span_stack *stack, const struct ct_span_call *call,
             uint32_t number)
{
  const struct ct_span *span = call->span;
  add(&edges->functions[number], span);
  struct ct_edge_sums *own = sums_of(edges, number, CT_EDGE_SELF);
  if (own == NULL) {
    return CT_ENOMEM;
  }
  if (span->end == CT_SPAN_POINT || span->end == CT_SPAN_COUNTED) {
    return 0;
  }
  own->has_time = true;
  own->total_ticks += span->self_ticks;
  own->self_ticks += span->self_ticks;
  own->off_ticks += call->self_off_ticks;
  if (call->note == NULL) {
    return 0;
  }
  edges->open[number] -= edges->open[number] != 0;
  uint32_t outer = call->note->outer;
  if (outer == 0) {
    return 0;
  }
  /* What the frame further out had called, this one included, is not that one's time. */
  uint32_t inner = outer < stack->count ? stack->notes[outer].node : number;
  struct ct_edge_sums *called = sums_of(edges, number, (int32_t)inner);
  if (called == NULL) {
    return CT_ENOMEM;
  }
  called->total_ticks -= call->here_ticks;
  called->off_ticks -= call->here_off_ticks;
  return 0;
}

static int
ended(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack, const struct ct_span_call *call)
{
  struct ct_edges *edges = arg;
  const struct ct_span *span = call->span;
  (void)spans;
  uint32_t number = call->note != NULL ? call->note->node : number_of(edges, span->fn);
  if (number == CT_NO_NAME) {
    return CT_ENOMEM;
  }
  if (span->end == CT_SPAN_ORPHAN) {
    return 0;
  }
  if (is_selected(edges, number) && end_selected(edges, stack, call, number) != 0) {
    return CT_ENOMEM;
  }
  uint32_t caller = stack->count != 0 ? stack->notes[stack->count - 1].node : CT_NO_NAME;
  if (caller == CT_NO_NAME || !is_selected(edges, caller) || span->end == CT_SPAN_COUNTED) {
    return 0;
  }
  struct ct_edge_sums *sums = sums_of(edges, caller, (int32_t)number);
  if (sums == NULL) {
    return CT_ENOMEM;
  }
  sums->calls += ct_view_calls_of(span);
  sums->has_time |= span->end != CT_SPAN_POINT;
  sums->total_ticks += call->here_ticks;
  sums->self_ticks += span->self_ticks;
  sums->off_ticks += call->here_off_ticks;
  return 0;
}

/* Of a selected function a node, as end_selected has it of each of its calls. */
static int
take_selected(struct ct_edges *edges, const struct ct_span_tree *tree, const uint32_t *numbers,
              const struct ct_tree_time *times, const struct ct_tree_outer *outers, uint32_t at)
{
  const struct ct_tree_node *node = &tree->nodes[at];
  struct ct_edge_sums all = sums_of_node(node), *own = sums_of(edges, numbers[at], CT_EDGE_SELF);
  if (own == NULL) {
    return CT_ENOMEM;
  }
  merge_sums(&edges->functions[numbers[at]], &all);
  if (node->frames == 0) {
    return 0;
  }
  own->has_time = true;
  own->total_ticks += node->self;
  own->self_ticks += node->self;
  own->off_ticks += times[at].self_off;
  if (outers[at].outer == CT_TREE_NONE) {
    return 0;
  }
  struct ct_edge_sums *called = sums_of(edges, numbers[at], (int32_t)numbers[outers[at].inner]);
  if (called == NULL) {
    return CT_ENOMEM;
  }
  called->total_ticks -= times[at].here;
  called->off_ticks -= times[at].here_off;
  return 0;
}

static int
take_callees(void *part, const struct ct_span_tree *tree)
{
  struct ct_edges *edges = part;
  uint32_t *numbers = numbers_of_tree(edges, tree);
  struct ct_tree_time *times = ct_span_tree_times(tree);
  struct ct_tree_outer *outers =
      numbers != NULL ? ct_span_tree_outers(tree, numbers, edges->reading->names->capacity) : NULL;
  int code = outers != NULL && times != NULL ? 0 : CT_ENOMEM;
  for (uint32_t i = CT_TREE_FIRST; code == 0 && i < tree->count; i++) {
    const struct ct_tree_node *node = &tree->nodes[i];
    code = is_selected(edges, numbers[i]) ? take_selected(edges, tree, numbers, times, outers, i) : 0;
    if (code != 0 || node->parent < CT_TREE_FIRST || !is_selected(edges, numbers[node->parent])) {
      continue;
    }
    struct ct_edge_sums *sums = sums_of(edges, numbers[node->parent], (int32_t)numbers[i]);
    code = sums != NULL ? 0 : CT_ENOMEM;
    if (code == 0) {
      sums->calls += ct_tree_calls(node);
      sums->has_time |= node->frames != 0;
      sums->total_ticks += times[i].here;
      sums->self_ticks += node->self;
      sums->off_ticks += times[i].here_off;
    }
  }
  free(numbers);
  free(times);
  free(outers);
  return code;
}

/* Of a selected function, the calls of it by one other. */
static int
take_own_of_sums(struct ct_edges *edges, const struct ct_tree_edge *edge, uint32_t number)
{
  struct ct_edge_sums all = sums_of_tree_edge(edge), *own = sums_of(edges, number, CT_EDGE_SELF);
  if (own == NULL) {
    return CT_ENOMEM;
  }
  merge_sums(&edges->functions[number], &all);
  own->has_time |= edge->frames != 0;
  own->total_ticks += edge->self;
  own->self_ticks += edge->self;
  own->off_ticks += edge->self_off;
  return 0;
}

static int
take_callees_of_sums(void *part, const struct ct_tree_sums *tree)
{
  struct ct_edges *edges = part;
  uint32_t *functions, *callers;
  int code = ct_view_reading_edges(edges->reading, tree, &functions, &callers);
  if (code != 0) {
    return code;
  }
  for (uint32_t i = 0; i < tree->edge_count && code == 0; i++) {
    const struct ct_tree_edge *edge = &tree->edges[i];
    code = is_selected(edges, functions[i]) ? take_own_of_sums(edges, edge, functions[i]) : 0;
    if (code != 0 || edge->caller >= CT_CALLER_COUNTED || !is_selected(edges, callers[i])) {
      continue;
    }
    struct ct_edge_sums *sums = sums_of(edges, callers[i], (int32_t)functions[i]);
    code = sums != NULL ? 0 : CT_ENOMEM;
    if (sums != NULL) {
      sums->calls += ct_tree_edge_calls(edge);
      sums->has_time |= edge->frames != 0;
      sums->total_ticks += edge->here;
      sums->self_ticks += edge->self;
      sums->off_ticks += edge->here_off;
    }
  }
  free(functions);
  free(callers);
  return code;
}

/* What is missing of a function's total. */
static int
add_away(struct ct_edges *edges)
{
  struct ct_edge_sums *left = malloc((edges->names.count + 1) * sizeof(*left));
  if (left == NULL) {
    return CT_ENOMEM;
  }
  memcpy(left, edges->functions, edges->names.count * sizeof(*left));
  for (size_t i = 0; i < edges->count; i++) {
    left[edges->edges[i].function].total_ticks -= edges->edges[i].sums.total_ticks;
    left[edges->edges[i].function].off_ticks -= edges->edges[i].sums.off_ticks;
  }
  int code = 0;
  for (uint32_t i = 0; i < edges->names.count && code == 0; i++) {
    int64_t total = (int64_t)left[i].total_ticks, off = (int64_t)left[i].off_ticks;
    if (edges->names.names[i].is_selected && (total > 0 || off > 0)) {
      struct ct_edge_sums *sums = sums_of(edges, i, CT_EDGE_AWAY);
      code = sums == NULL ? CT_ENOMEM : 0;
      if (sums != NULL) {
        sums->has_time = true;
        sums->total_ticks = total > 0 ? (uint64_t)total : 0;
        sums->off_ticks = off > 0 ? (uint64_t)off : 0;
      }
    }
  }
  free(left);
  return code;
}

int
ct_edges_collect_callees(struct ct_edges *edges, struct ct_view_reading *reading, struct ct_diag *diag)
{
  const struct ct_span_observer observer = {.entered = entered, .ended = ended};
  set_parts(edges, reading);
  reading->observer = &observer;
  reading->take_tree = take_callees;
  reading->take_sums = take_callees_of_sums;
  int code = ct_view_read(reading, diag);
  reading->observer = NULL;
  if (code == 0 && edges->names.count != 0) {
    code = add_away(edges) == 0 ? 0 : ct_fail(diag, CT_ENOMEM, "out of memory for the calls of the trace");
  }
  return code;
}

void
ct_edges_destroy(struct ct_edges *edges)
{
  ct_view_names_destroy(&edges->names);
  free(edges->edges);
  free(edges->buckets);
  free(edges->functions);
  free(edges->open);
  *edges = (struct ct_edges){0};
}
