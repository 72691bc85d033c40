/* SPDX-License-Identifier: MIT */
/*
 * Granules that are asked for one call, or for the children of one, again and again: a join looks for a parent a row,
 * and parents of calls that ended one after the other are in few granules. Once a granule is asked for the second time
 * its spans are kept, in the order of their ends, in chains by ordinal, or by the parent's, as it is asked.
 *
 * The spans of all granules together are `most` at most, of all indexes that share the cache; what was asked for
 * longest ago goes, and first, so that there are never more. What a scan is at stays (pins). A granule that does not
 * fit, or for which there is no memory, is not kept: it is read once more.
 */
#include "index/index_internal.h"

#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 64, SPANS_MAX = 400000 };

struct ct_scan_cache {
  struct ct_scan_kept entries[ENTRIES];
  size_t most, span_count; /* the count is of what there is room for */
  uint64_t now;
};

struct ct_scan_cache *
ct_scan_cache_create(size_t most)
{
  struct ct_scan_cache *cache = calloc(1, sizeof(*cache));
  if (cache != NULL) {
    cache->most = most != 0 ? most : SPANS_MAX;
  }
  return cache;
}

size_t
ct_scan_cache_spans(const struct ct_scan_cache *cache)
{
  return cache->span_count;
}

bool
ct_scan_cache_fits(const struct ct_scan_cache *cache, size_t granules, uint64_t spans)
{
  return granules <= ENTRIES / 2 && spans <= cache->most / 4 * 3;
}

static void
empty(struct ct_scan_cache *cache, struct ct_scan_kept *entry)
{
  cache->span_count -= entry->capacity;
  free(entry->spans);
  free(entry->chains[0]);
  free(entry->chains[1]);
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
ct_scan_cache_ask(struct ct_scan_cache *cache, const struct ct_index *index, uint32_t thread, uint32_t granule)
{
  struct ct_scan_kept *oldest = NULL;
  cache->now++;
  for (size_t i = 0; i < ENTRIES; i++) {
    struct ct_scan_kept *entry = &cache->entries[i];
    if (entry->asked != 0 && entry->index == index && entry->thread == thread && entry->granule == granule) {
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
    oldest->index = index;
    oldest->thread = thread;
    oldest->granule = granule;
  }
  return oldest;
}

/* For so many spans more. */
static bool
make_room(struct ct_scan_cache *cache, size_t count)
{
  while (count > cache->most - cache->span_count) {
    struct ct_scan_kept *oldest = NULL;
    for (size_t i = 0; i < ENTRIES; i++) {
      struct ct_scan_kept *entry = &cache->entries[i];
      if (entry->capacity != 0 && entry->pins == 0 && (oldest == NULL || entry->asked < oldest->asked)) {
        oldest = entry;
      }
    }
    if (oldest == NULL) {
      return false;
    }
    empty(cache, oldest);
  }
  return true;
}

/* ---- chains ---- */

static uint32_t
slots_of(const struct ct_scan_kept *entry)
{
  uint32_t slots = 1;
  while (slots < entry->count) {
    slots *= 2;
  }
  return slots;
}

static uint32_t
slot_of(uint64_t key, uint32_t slots)
{
  return (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (slots - 1);
}

/* First the numbers of the slots' first spans, then those of the next one of each span; with 1 added, 0: none. */
static uint32_t *
chained(const struct ct_scan_kept *entry, bool parents)
{
  uint32_t slots = slots_of(entry);
  uint32_t *chains = calloc((size_t)slots + entry->count, sizeof(*chains));
  for (size_t i = entry->count; chains != NULL && i-- > 0;) {
    const struct ct_span *span = &entry->spans[i];
    uint32_t slot = slot_of(parents ? span->parent_ordinal : span->ordinal, slots);
    chains[slots + i] = chains[slot];
    chains[slot] = (uint32_t)i + 1;
  }
  return chains;
}

bool
ct_scan_kept_find(struct ct_scan_kept *entry, bool parents, uint64_t key, struct ct_scan_chain *chain)
{
  uint32_t *chains = entry->chains[parents] != NULL ? entry->chains[parents] : chained(entry, parents);
  if (chains == NULL) {
    return false;
  }
  entry->chains[parents] = chains;
  uint32_t slots = slots_of(entry);
  *chain = (struct ct_scan_chain){entry->spans, chains + slots, chains[slot_of(key, slots)]};
  return true;
}

/* ---- spans ---- */

/* Room for so many spans, in the entry. */
static bool
reserve(struct ct_scan_cache *cache, struct ct_scan_kept *entry, size_t count)
{
  if (count <= entry->capacity) {
    return true;
  }
  if (count > cache->most || !make_room(cache, count - entry->capacity)) {
    return false;
  }
  struct ct_span *grown = reallocarray(entry->spans, count, sizeof(*grown));
  if (grown == NULL) {
    return false;
  }
  cache->span_count += count - entry->capacity;
  entry->spans = grown;
  entry->capacity = count;
  return true;
}

bool
ct_scan_cache_fill(struct ct_scan_cache *cache, struct ct_scan_kept *entry, struct ct_spans *spans, size_t expected)
{
  const struct ct_span *batch;
  size_t count;
  entry->pins++;
  entry->is_there = reserve(cache, entry, expected);
  while (entry->is_there) {
    if (ct_spans_next(spans, &batch, &count) != 0) {
      entry->is_there = false;
    } else if (count == 0) {
      break;
    } else {
      entry->is_there = reserve(cache, entry, entry->count + count);
    }
    if (entry->is_there) {
      memcpy(entry->spans + entry->count, batch, count * sizeof(*batch));
      entry->count += count;
    }
  }
  entry->pins--;
  bool is_there = entry->is_there;
  if (!is_there) {
    empty(cache, entry);
  }
  return is_there;
}
