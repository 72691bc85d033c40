/* SPDX-License-Identifier: MIT */
/*
 * Sums of calling context trees (span/tree_sums.h) as bytes. Varints: time in gaps, a word (1: there are groups, 2:
 * there are paths), how many edges; for each: caller (0: own stack, 1: others, 2: counted; else 3 more), function, a
 * word (frames * 16, and which of what follows is there), self, total less self; 1: points; 2: before; 4: fresh less
 * total, here less total; 8: off of self, fresh off, here off. Of groups: of how many functions they are; of each way
 * of grouping: a CRC of it, how many groups; of each: one of its functions, total, off. Then the paths, as a tree.
 */
#include "index/index_internal.h"
#include "index/take.h"

#include <stdlib.h>

enum { HAS_POINTS = 1, HAS_BEFORE = 2, HAS_REST = 4, HAS_OFF = 8, WORD_SHIFT = 4, EDGE_LEAST = 5, EDGE_MOST = 11 * 10 };
enum { HAS_GROUPS = 1, HAS_PATHS = 2 };

static uint8_t *
put_edge(uint8_t *at, const struct ct_tree_edge *edge)
{
  bool has_rest = edge->fresh != edge->total || edge->here != edge->total;
  bool has_off = (edge->self_off | edge->fresh_off | edge->here_off) != 0;
  uint64_t caller = edge->caller >= CT_CALLER_COUNTED ? UINT32_MAX - edge->caller : (uint64_t)edge->caller + 3;
  uint64_t word = edge->frames << WORD_SHIFT | (edge->points != 0 ? HAS_POINTS : 0) |
                  (edge->before != 0 ? HAS_BEFORE : 0) | (has_rest ? HAS_REST : 0) | (has_off ? HAS_OFF : 0);
  at = ct_varint_put(at, caller);
  at = ct_varint_put(at, edge->fn);
  at = ct_varint_put(at, word);
  at = ct_varint_put(at, edge->self);
  at = ct_varint_put(at, ct_folded(edge->total - edge->self));
  at = edge->points != 0 ? ct_varint_put(at, edge->points) : at;
  at = edge->before != 0 ? ct_varint_put(at, edge->before) : at;
  if (has_rest) {
    at = ct_varint_put(at, ct_folded(edge->fresh - edge->total));
    at = ct_varint_put(at, ct_folded(edge->here - edge->total));
  }
  if (has_off) {
    at = ct_varint_put(at, ct_folded(edge->self_off));
    at = ct_varint_put(at, ct_folded(edge->fresh_off));
    at = ct_varint_put(at, ct_folded(edge->here_off));
  }
  return at;
}

static int
put_group(const struct ct_tree_group *group, struct ct_span_bytes *bytes)
{
  const uint64_t numbers[] = {group->fn, group->total, ct_folded(group->off)};
  int code = 0;
  for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]) && code == 0; k++) {
    code = ct_span_bytes_put(bytes, numbers[k]);
  }
  return code;
}

static int
put_grouping(const struct ct_tree_sums *sums, unsigned i, struct ct_span_bytes *bytes)
{
  int code = i != CT_TREE_ALL ? ct_span_bytes_put(bytes, sums->crc[i]) : 0;
  if (code != 0) {
    return code;
  }
  code = ct_span_bytes_put(bytes, sums->group_count[i]);
  for (uint32_t n = 0; n < sums->group_count[i] && code == 0; n++) {
    code = put_group(&sums->groups[i][n], bytes);
  }
  return code;
}

static int
put_groups(const struct ct_tree_sums *sums, struct ct_span_bytes *bytes)
{
  int code = ct_span_bytes_put(bytes, sums->fn_count);
  for (unsigned i = 0; i < CT_TREE_GROUPINGS && code == 0; i++) {
    code = put_grouping(sums, i, bytes);
  }
  return code;
}

int
ct_tree_sums_put(struct ct_tree_sums *sums, struct ct_span_bytes *bytes)
{
  const uint64_t head[] = {sums->gap_ticks, (sums->has_groups ? HAS_GROUPS : 0u) | (sums->has_paths ? HAS_PATHS : 0u),
                           sums->edge_count};
  int code = 0;
  for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++) {
    code = ct_span_bytes_put(bytes, head[i]);
    if (code != 0) {
      return code;
    }
  }
  for (uint32_t i = 0; i < sums->edge_count; i++) {
    code = ct_span_bytes_reserve(bytes, EDGE_MOST);
    if (code != 0) {
      return code;
    }
    bytes->size = (size_t)(put_edge(bytes->data + bytes->size, &sums->edges[i]) - bytes->data);
  }
  if (sums->has_groups) {
    code = put_groups(sums, bytes);
  }
  if (code != 0 || !sums->has_paths) {
    return code;
  }
  ct_tree_sums_total(sums);
  return ct_tree_put(&sums->paths, bytes);
}

/* ---- and back ---- */

static void
take_edge(struct ct_taking *t, struct ct_tree_sums *sums)
{
  uint64_t caller = ct_take(t), fn = ct_take(t), word = ct_take(t);
  caller = caller < 3 ? UINT32_MAX - caller : caller - 3;
  uint32_t count = sums->edge_count;
  struct ct_tree_edge *edge = t->code == 0 && caller <= UINT32_MAX && fn <= UINT32_MAX
                                  ? ct_tree_sums_edge(sums, (uint32_t)caller, (uint32_t)fn)
                                  : NULL;
  if (edge == NULL || sums->edge_count == count) { /* one that makes no sense, or is there already */
    t->code = t->code != 0 ? t->code : CT_EFORMAT;
    return;
  }
  edge->frames = word >> WORD_SHIFT;
  edge->self = ct_take(t);
  edge->total = edge->self + ct_unfolded(ct_take(t));
  edge->points = word & HAS_POINTS ? ct_take(t) : 0;
  edge->before = word & HAS_BEFORE ? ct_take(t) : 0;
  edge->fresh = edge->total + (word & HAS_REST ? ct_unfolded(ct_take(t)) : 0);
  edge->here = edge->total + (word & HAS_REST ? ct_unfolded(ct_take(t)) : 0);
  if (word & HAS_OFF) {
    edge->self_off = ct_unfolded(ct_take(t));
    edge->fresh_off = ct_unfolded(ct_take(t));
    edge->here_off = ct_unfolded(ct_take(t));
  }
}

static void
take_groups(struct ct_taking *t, struct ct_tree_sums *sums)
{
  sums->fn_count = (uint32_t)ct_take(t);
  for (unsigned i = 0; i < CT_TREE_GROUPINGS && t->code == 0; i++) {
    if (i != CT_TREE_ALL) {
      sums->crc[i] = (uint32_t)ct_take(t);
    }
    uint64_t count = ct_take(t), capacity = 1;
    if (t->code != 0 || count > (uint64_t)(t->end - t->at)) {
      t->code = CT_EFORMAT;
      return;
    }
    while (capacity < count) {
      capacity *= 2; /* as they grow */
    }
    sums->groups[i] = calloc(capacity, sizeof(*sums->groups[i]));
    if (sums->groups[i] == NULL) {
      t->code = CT_ENOMEM;
      return;
    }
    for (; sums->group_count[i] < count; sums->group_count[i]++) {
      struct ct_tree_group *group = &sums->groups[i][sums->group_count[i]];
      group->fn = (uint32_t)ct_take(t);
      group->total = ct_take(t);
      group->off = ct_unfolded(ct_take(t));
    }
  }
}

/* What was folded is a path's end: who walks the paths asks for the names of what is above a function. */
static bool
ends_where_folded(const struct ct_span_tree *paths)
{
  for (uint32_t i = CT_TREE_FIRST; i < paths->count; i++) {
    uint32_t parent = paths->nodes[i].parent;
    if (parent >= CT_TREE_FIRST && paths->nodes[parent].fn == CT_FN_OTHER) {
      return false;
    }
  }
  return true;
}

int
ct_tree_sums_take(const uint8_t *bytes, size_t size, struct ct_tree_sums *sums)
{
  struct ct_taking t = {bytes, bytes + size, 0};
  uint64_t gap = ct_take(&t), word = ct_take(&t), count = ct_take(&t);
  if (t.code != 0 || count > size / EDGE_LEAST || ct_tree_sums_init(sums, UINT32_MAX) != 0) {
    return t.code != 0 || count > size / EDGE_LEAST ? CT_EFORMAT : CT_ENOMEM;
  }
  sums->gap_ticks = gap;
  sums->has_groups = (word & HAS_GROUPS) != 0;
  sums->has_paths = (word & HAS_PATHS) != 0;
  for (; count > 0 && t.code == 0; count--) {
    take_edge(&t, sums);
  }
  if (sums->has_groups) {
    take_groups(&t, sums);
  }
  if (t.code != 0) {
    goto destroy_sums;
  }
  if (sums->has_paths) {
    ct_span_tree_destroy(&sums->paths);
    t.code = ct_tree_take(t.at, (size_t)(t.end - t.at), &sums->paths);
    t.at = t.end;
    if (t.code != 0) {
      goto destroy_sums;
    }
    if (!ends_where_folded(&sums->paths)) {
      t.code = CT_EFORMAT;
      goto destroy_sums;
    }
  }
  if (t.at == t.end) {
    return 0;
  }
  t.code = CT_EFORMAT;
destroy_sums:
  ct_tree_sums_destroy(sums);
  return t.code;
}

int
ct_tree_sums_add_edges(const struct ct_tree_sums *sums, struct ct_edge_table *edges)
{
  int code = 0;
  for (uint32_t i = 0; i < sums->edge_count && code == 0; i++) {
    const struct ct_tree_edge *edge = &sums->edges[i];
    uint32_t caller = edge->caller >= CT_CALLER_OTHERS ? UINT32_MAX : edge->caller;
    if (edge->caller != CT_CALLER_COUNTED && edge->frames + edge->points != 0) {
      code = ct_edges_add(edges, caller, edge->fn, edge->frames + edge->points, edge->total, edge->self);
    }
  }
  return code;
}
