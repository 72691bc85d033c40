/* SPDX-License-Identifier: MIT */
/* What the files of the code cache share; see code_cache.c. */
#ifndef CT_ITRACE_CODE_CACHE_INTERNAL_H
#define CT_ITRACE_CODE_CACHE_INTERNAL_H

#include "itrace/code_cache.h"
#include "itrace/shared_units.h"
#include "itrace/source_pages.h"

struct ct_code_piece {
  uint64_t key;                    /* of a unit: its pc, and whether it passes it; 0: another piece */
  uint32_t unit;                   /* its id; 0: it makes no records */
  uint32_t at;                     /* in the region */
  const struct ct_recovery *notes; /* that others have, too; NULL: they are the cache's, from first_note on */
  uint32_t first_note, note_count;
  uint8_t region, entry; /* entry: offset where it begins */
  uint8_t version;       /* of that unit: how many were found stale before it */
  bool has_entry;
};

struct ct_numbered_exit {
  struct ct_unit_exit exit;
  uint32_t piece;
  uint32_t next; /* exit to the same target that is not linked; 0: none */
};

struct ct_code_cache {
  uint64_t *table;
  struct ct_translation_place place;
  struct ct_unit_log *log;
  struct ct_code_cache_region regions[CT_CACHE_REGIONS];
  uint32_t region_count;
  struct ct_code_piece *pieces;
  size_t piece_count, piece_capacity;
  struct ct_numbered_exit *exits; /* exit n is exits[n - 1] */
  size_t exit_count, exit_capacity;
  struct ct_recovery *notes;
  size_t note_count, note_capacity;
  uint32_t *buckets; /* of units by pc: piece + 1, 0: none */
  size_t bucket_count, unit_count;
  uint32_t *waiting; /* exits that are not linked, by target: the last one of each */
  size_t waiting_count, waiting_used;
  uint64_t *watched; /* of place */
  struct ct_sequences sequences;
  bool is_stale;                /* units may be of sequences that were not known */
  struct ct_source_pages pages; /* that units were made of */
  struct ct_code_cache_stats stats;
  struct ct_unit unit;                                             /* the one that is being made */
  uint8_t code[CT_UNIT_STRETCHES_MAX][CT_STRETCH_SOURCE_MAX + 32]; /* that it is made of */
  uint32_t round;                                                  /* 0: units are of one stretch */
  const struct ct_branches *branches;
  ct_code_cache_read_fn read;
  void *read_context;
  uint32_t stale;    /* exit of a unit that was found stale, and is to be replaced by the next one; 0: none */
  bool makes_one;    /* that is not found by its pc */
  bool makes_passes; /* that is found by its pc as a unit that passes it, though it is watched */
  struct ct_shared_units *shared_units; /* NULL: there are none */
  struct ct_code_marks hot_marks, cold_marks;
};

/* Room for so many items more in a table that grows. False: out of memory. */
bool ct_code_cache_reserve(void **items, size_t *capacity, size_t count, size_t more, size_t size);

/* ---- code_regions.c ---- */

/* The room in the area. */
struct ct_code ct_code_region_open(const struct ct_code_cache_region *region, const struct ct_code_cache_area *area);
/* Makes what was emitted there a piece. are_kept: its notes stay as long as the cache. NULL: out of memory. */
struct ct_code_piece *ct_code_region_add(struct ct_code_cache *cache, struct ct_code_cache_region *region,
                                         struct ct_code_cache_area *area, const struct ct_code *code,
                                         const struct ct_recovery *notes, uint32_t note_count, bool are_kept);
/* NULL: there is none. */
struct ct_code_cache_region *ct_code_region_near(const struct ct_code_cache *cache, uint64_t pc);
/* Where the piece begins, for those who go there. */
uint64_t ct_code_piece_address(const struct ct_code_cache *cache, const struct ct_code_piece *piece);
/* Nothing is left in them but their runtime. */
void ct_code_regions_clear(struct ct_code_cache *cache);

#endif
