/* SPDX-License-Identifier: MIT */
/*
 * Granules that are asked for one call, or for the children of one, again and again: a join looks for a parent a row,
 * and parents of calls that ended one after the other are in few granules. Once a granule is asked for the second time
 * its spans are kept, in the order of their ends, with two lists of them: by ordinal, and by the parent's.
 *
 * The spans of all granules together are SPANS_MAX at most, but for those of one granule; what was asked for longest
 * ago goes. What a scan is at stays (pins).
 */
#include "index/index_internal.h"

#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 64, SPANS_MAX = 400000 };

struct ct_scan_cache {
  struct ct_scan_kept entries[ENTRIES];
  size_t span_count;
  uint64_t now;
};

struct ct_scan_cache *
ct_scan_cache_create(void)
{
  return calloc(1, sizeof(struct ct_scan_cache));
}

static void
empty(struct ct_scan_cache *cache, struct ct_scan_kept *entry)
{
  cache->span_count -= entry->count;
  free(entry->spans);
  free(entry->by_ordinal);
  free(entry->by_parent);
  *entry = (struct ct_scan_kept){0};
}

void
ct_scan_cache_destroy(struct ct_scan_cache *cache)
{
  for (size_t i = 0; cache != NULL && i < ENTRIES; i++) {
    empty(cache, &cache->entries[i]);
  }
  free(cache);
}

struct ct_scan_kept *
ct_scan_cache_ask(struct ct_scan_cache *cache, uint32_t thread, uint32_t granule)
{
  struct ct_scan_kept *oldest = NULL;
  cache->now++;
  for (size_t i = 0; i < ENTRIES; i++) {
    struct ct_scan_kept *entry = &cache->entries[i];
    if (entry->asked != 0 && entry->thread == thread && entry->granule == granule) {
      entry->asked = cache->now;
      entry->again = true;
      return entry;
    }
    if (entry->pins == 0 && (oldest == NULL || entry->asked < oldest->asked)) {
      oldest = entry;
    }
  }
  if (oldest != NULL) {
    empty(cache, oldest);
    oldest->asked = cache->now;
    oldest->thread = thread;
    oldest->granule = granule;
  }
  return oldest;
}

static void
make_room(struct ct_scan_cache *cache)
{
  while (cache->span_count > SPANS_MAX) {
    struct ct_scan_kept *oldest = NULL;
    for (size_t i = 0; i < ENTRIES; i++) {
      struct ct_scan_kept *entry = &cache->entries[i];
      if (entry->count != 0 && entry->pins == 0 && (oldest == NULL || entry->asked < oldest->asked)) {
        oldest = entry;
      }
    }
    if (oldest == NULL) {
      return;
    }
    empty(cache, oldest);
  }
}

static uint64_t
key_of(const struct ct_span *span, bool parent)
{
  return parent ? span->parent_ordinal : span->ordinal;
}

static int
compare(const void *a, const void *b, void *context)
{
  const struct ct_scan_kept *entry = context;
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  uint64_t p = key_of(&entry->spans[x], entry->sorts_parents), q = key_of(&entry->spans[y], entry->sorts_parents);
  return p != q ? (p > q) - (p < q) : (x > y) - (x < y);
}

static uint32_t *
sorted(struct ct_scan_kept *entry, bool parents)
{
  uint32_t *list = malloc((entry->count + 1) * sizeof(*list));
  entry->sorts_parents = parents;
  for (size_t i = 0; list != NULL && i < entry->count; i++) {
    list[i] = (uint32_t)i;
  }
  if (list != NULL && entry->count != 0) {
    qsort_r(list, entry->count, sizeof(*list), compare, entry);
  }
  return list;
}

static int
add(struct ct_scan_kept *entry, size_t *capacity, const struct ct_span *batch, size_t count)
{
  if (*capacity - entry->count < count) {
    size_t more = 2 * *capacity + count;
    struct ct_span *grown = reallocarray(entry->spans, more, sizeof(*grown));
    if (grown == NULL) {
      return CT_ENOMEM;
    }
    entry->spans = grown;
    *capacity = more;
  }
  memcpy(entry->spans + entry->count, batch, count * sizeof(*batch));
  entry->count += count;
  return 0;
}

int
ct_scan_cache_fill(struct ct_scan_cache *cache, struct ct_scan_kept *entry, struct ct_spans *spans)
{
  const struct ct_span *batch;
  size_t count, capacity = 0;
  int code;
  while ((code = ct_spans_next(spans, &batch, &count)) == 0 && count != 0) {
    if ((code = add(entry, &capacity, batch, count)) != 0) {
      break;
    }
  }
  cache->span_count += entry->count;
  entry->by_ordinal = code == 0 ? sorted(entry, false) : NULL;
  entry->by_parent = code == 0 ? sorted(entry, true) : NULL;
  if (code == 0 && (entry->by_ordinal == NULL || entry->by_parent == NULL)) {
    code = CT_ENOMEM;
  }
  if (code != 0) {
    empty(cache, entry);
    return code;
  }
  entry->is_there = true;
  entry->pins++;
  make_room(cache);
  entry->pins--;
  return 0;
}

/* Of a list: how many come before those with that key, or with it too. */
static size_t
before(const struct ct_scan_kept *entry, const uint32_t *list, bool parents, uint64_t key, bool with)
{
  size_t low = 0, high = entry->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    uint64_t there = key_of(&entry->spans[list[middle]], parents);
    if (there < key || (with && there == key)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

const uint32_t *
ct_scan_kept_find(const struct ct_scan_kept *entry, bool parents, uint64_t key, size_t *count)
{
  const uint32_t *list = parents ? entry->by_parent : entry->by_ordinal;
  size_t first = before(entry, list, parents, key, false);
  *count = before(entry, list, parents, key, true) - first;
  return list + first;
}
