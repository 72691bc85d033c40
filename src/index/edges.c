/* SPDX-License-Identifier: MIT */
/* Who called whom: a hash table of pairs of functions with open addressing (base/hash_key.h: they are a trace's). */
#include "index/index_internal.h"

#include "base/hash_key.h"
#include "trace/format.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 1024 };

static size_t
slot_of(const struct ct_edge_table *table, uint32_t caller, uint32_t fn)
{
  size_t at = (size_t)ct_hash(table->hash_key, (uint64_t)caller << 32 | fn) & (table->capacity - 1);
  while (table->slots[at].calls != 0 && (table->slots[at].caller != caller || table->slots[at].fn != fn)) {
    at = (at + 1) & (table->capacity - 1);
  }
  return at;
}

static int
grow(struct ct_edge_table *table)
{
  struct ct_edge_table larger = {.capacity = table->capacity == 0 ? FIRST_CAPACITY : table->capacity * 2,
                                 .hash_key = ct_hash_key()};
  larger.slots = calloc(larger.capacity, sizeof(*larger.slots));
  if (larger.slots == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < table->capacity; i++) {
    if (table->slots[i].calls != 0) {
      larger.slots[slot_of(&larger, table->slots[i].caller, table->slots[i].fn)] = table->slots[i];
    }
  }
  larger.count = table->count;
  free(table->slots);
  *table = larger;
  return 0;
}

int
ct_edges_add(struct ct_edge_table *table, uint32_t caller, uint32_t fn, uint64_t calls, uint64_t total_ticks,
             uint64_t self_ticks)
{
  if (table->count * 2 >= table->capacity && grow(table) != 0) {
    return CT_ENOMEM;
  }
  struct ct_index_edge *edge = &table->slots[slot_of(table, caller, fn)];
  table->count += edge->calls == 0;
  edge->caller = caller;
  edge->fn = fn;
  edge->calls += calls;
  edge->total_ticks += total_ticks;
  edge->self_ticks += self_ticks;
  return 0;
}

int
ct_edges_merge(struct ct_edge_table *into, const struct ct_edge_table *from)
{
  int code = 0;
  for (size_t i = 0; i < from->capacity && code == 0; i++) {
    const struct ct_index_edge *edge = &from->slots[i];
    if (edge->calls != 0) {
      code = ct_edges_add(into, edge->caller, edge->fn, edge->calls, edge->total_ticks, edge->self_ticks);
    }
  }
  return code;
}

void
ct_edges_free(struct ct_edge_table *table)
{
  free(table->slots);
  *table = (struct ct_edge_table){0};
}

int
ct_edges_take(struct ct_edge_table *table, const uint8_t *bytes, size_t size)
{
  const uint8_t *at = bytes, *end = bytes + size;
  int code = 0;
  while (at != end && code == 0) {
    uint64_t numbers[5]; /* caller + 1, function, calls, total and self */
    for (int i = 0; i < 5 && at != NULL; i++) {
      at = ct_varint_get(at, end, &numbers[i]);
    }
    if (at == NULL || numbers[0] > UINT32_MAX || numbers[1] > UINT32_MAX || numbers[2] == 0) {
      return CT_EFORMAT;
    }
    code = ct_edges_add(table, (uint32_t)numbers[0] - 1, (uint32_t)numbers[1], numbers[2], numbers[3], numbers[4]);
  }
  return code;
}

static int
compare(const void *a, const void *b)
{
  const struct ct_index_edge *x = a, *y = b;
  if (x->calls != y->calls) {
    return x->calls < y->calls ? 1 : -1;
  }
  return x->fn != y->fn ? (x->fn > y->fn) - (x->fn < y->fn) : (x->caller > y->caller) - (x->caller < y->caller);
}

int
ct_edges_list(const struct ct_edge_table *table, struct ct_index_edge **list, size_t *count)
{
  struct ct_index_edge *edges = malloc((table->count + 1) * sizeof(*edges));
  size_t n = 0;
  if (edges == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < table->capacity; i++) {
    if (table->slots[i].calls != 0) {
      edges[n++] = table->slots[i];
    }
  }
  qsort(edges, n, sizeof(*edges), compare);
  *list = edges;
  *count = n;
  return 0;
}

int
ct_edges_put(const struct ct_edge_table *table, struct ct_span_bytes *bytes)
{
  struct ct_index_edge *edges;
  size_t count;
  int code = ct_edges_list(table, &edges, &count);
  if (code != 0) {
    return code;
  }
  for (size_t i = 0; i < count && code == 0; i++) {
    const struct ct_index_edge *edge = &edges[i];
    const uint64_t numbers[] = {(uint64_t)(uint32_t)(edge->caller + 1), edge->fn, edge->calls, edge->total_ticks,
                                edge->self_ticks};
    for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]) && code == 0; n++) {
      code = ct_span_bytes_put(bytes, numbers[n]);
    }
  }
  free(edges);
  return code;
}
