/* SPDX-License-Identifier: MIT */
/* The regions of a code cache, the pieces in them, and what the program's state is in each; see code_cache.c. */
#include "itrace/code_cache_internal.h"

#include "base/error.h"

#include <string.h>

#define REACH (0x7fffffffull - (256ull << 20)) /* of a region to what code near it refers to */

struct ct_code
ct_code_region_open(const struct ct_code_cache_region *region, const struct ct_code_cache_area *area)
{
  return (struct ct_code){
      .bytes = region->bytes + area->used, .capacity = area->end - area->used, .address = region->address + area->used};
}

struct ct_code_piece *
ct_code_region_add(struct ct_code_cache *cache, struct ct_code_cache_region *region, struct ct_code_cache_area *area,
                   const struct ct_code *code, const struct ct_recovery *notes, uint32_t note_count, bool are_kept)
{
  uint32_t copied = are_kept ? 0 : note_count;
  if (!ct_code_cache_reserve((void **)&cache->pieces, &cache->piece_capacity, cache->piece_count, 1,
                             sizeof(*cache->pieces)) ||
      !ct_code_cache_reserve((void **)&cache->notes, &cache->note_capacity, cache->note_count, note_count,
                             sizeof(*cache->notes)) ||
      !ct_code_cache_reserve((void **)&area->pieces, &area->piece_capacity, area->piece_count, 1,
                             sizeof(*area->pieces))) {
    return NULL;
  }
  struct ct_code_piece *piece = &cache->pieces[cache->piece_count];
  *piece = (struct ct_code_piece){.at = (uint32_t)area->used,
                                  .first_note = (uint32_t)cache->note_count,
                                  .note_count = note_count,
                                  .notes = are_kept ? notes : NULL,
                                  .region = (uint8_t)(region - cache->regions)};
  if (copied != 0) {
    memcpy(cache->notes + cache->note_count, notes, copied * sizeof(*notes));
    cache->note_count += copied;
  }
  area->pieces[area->piece_count++] = (uint32_t)cache->piece_count++;
  area->used = (area->used + code->length + 15) & ~(size_t)15;
  cache->stats.code_bytes += code->length;
  return piece;
}

static int
emit_runtime(struct ct_code_cache *cache, struct ct_code_cache_region *region)
{
  struct ct_recovery notes[CT_RUNTIME_RECOVERY];
  struct ct_code code = ct_code_region_open(region, &region->hot);
  uint32_t count = ct_translate_runtime(&cache->place, &code, notes, &region->miss, &region->leave);
  if (code.overflow || ct_code_region_add(cache, region, &region->hot, &code, notes, count, false) == NULL) {
    return CT_ENOMEM;
  }
  return 0;
}

static void
clear_table(struct ct_code_cache *cache)
{
  for (size_t i = 0; i < CT_ITRACE_TABLE_ENTRIES; i++) {
    cache->table[i] = cache->regions[0].miss;
  }
}

int
ct_code_cache_add_region(struct ct_code_cache *cache, uint64_t address, uint8_t *bytes, size_t size)
{
  if (cache->region_count == CT_CACHE_REGIONS) {
    return CT_ENOMEM;
  }
  struct ct_code_cache_region *region = &cache->regions[cache->region_count++];
  *region = (struct ct_code_cache_region){.address = address, .bytes = bytes, .size = size};
  region->hot.end = cache->place.records ? size / 8 * 3 : size / 2;
  region->cold.end = size;
  region->cold.used = region->hot.end;
  int code = emit_runtime(cache, region);
  if (code == 0 && cache->region_count == 1) {
    clear_table(cache);
  }
  return code;
}

/* From anywhere in the region to the address, and back. */
static bool
is_near(const struct ct_code_cache_region *region, uint64_t pc)
{
  return (pc >= region->address ? pc - region->address : region->address + region->size - pc) < REACH;
}

struct ct_code_cache_region *
ct_code_region_near(const struct ct_code_cache *cache, uint64_t pc)
{
  const struct ct_code_cache_region *found = NULL;
  for (uint32_t i = 0; i < cache->region_count && found == NULL; i++) {
    found = is_near(&cache->regions[i], pc) ? &cache->regions[i] : NULL;
  }
  return (struct ct_code_cache_region *)found;
}

bool
ct_code_cache_has_region_near(const struct ct_code_cache *cache, uint64_t pc)
{
  return ct_code_region_near(cache, pc) != NULL;
}

/* It is full: the next time hot and cold code have as much of it as they took of what there was. */
static void
share_region(struct ct_code_cache_region *region)
{
  enum { PAGE = 4096, PARTS = 8 };
  size_t hot = region->hot.used, used = hot + region->cold.used - region->hot.end, part = region->size / PARTS;
  if (used > region->size / 2) {
    size_t end = (size_t)((double)region->size * (double)hot / (double)used) & ~(size_t)(PAGE - 1);
    region->hot.end = end < part ? part : end > region->size - part ? region->size - part : end;
  }
}

void
ct_code_regions_clear(struct ct_code_cache *cache)
{
  for (uint32_t i = 0; i < cache->region_count; i++) {
    struct ct_code_cache_region *region = &cache->regions[i];
    share_region(region);
    region->hot.used = region->hot.piece_count = region->cold.piece_count = 0;
    region->cold.used = region->hot.end;
    emit_runtime(cache, region); /* the same bytes: the thread may be in there */
  }
  clear_table(cache);
}

uint64_t
ct_code_piece_address(const struct ct_code_cache *cache, const struct ct_code_piece *piece)
{
  return cache->regions[piece->region].address + piece->at + piece->entry;
}

/* ---- recovery ---- */

bool
ct_code_cache_recovery(const struct ct_code_cache *cache, uint64_t address, struct ct_recovery *recovery, bool *found)
{
  *found = false;
  for (uint32_t i = 0; i < cache->region_count; i++) {
    const struct ct_code_cache_region *region = &cache->regions[i];
    if (address - region->address >= region->size) {
      continue;
    }
    uint32_t at = (uint32_t)(address - region->address);
    const struct ct_code_cache_area *area = at < region->hot.end ? &region->hot : &region->cold;
    size_t low = 0, high = area->piece_count; /* the last piece that begins at or before at */
    while (high - low > 1) {
      size_t middle = low + (high - low) / 2;
      *(cache->pieces[area->pieces[middle]].at <= at ? &low : &high) = middle;
    }
    if (area->piece_count == 0) {
      return true;
    }
    const struct ct_code_piece *piece = &cache->pieces[area->pieces[low]];
    const struct ct_recovery *notes = piece->notes != NULL ? piece->notes : cache->notes + piece->first_note;
    for (uint32_t n = 0; n < piece->note_count && notes[n].at <= at - piece->at; n++) {
      *recovery = notes[n];
      *found = true;
    }
    recovery->unit = piece->unit + (*found && piece->unit != 0 ? recovery->part : 0);
    return true;
  }
  return false;
}
