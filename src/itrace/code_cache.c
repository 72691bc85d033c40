/* SPDX-License-Identifier: MIT */
/*
 * The code cache. Everything that is emitted is a piece: a unit, an entry of the table or a region's runtime. Pieces
 * are appended to a region, so they are in the order of their addresses, and the recovery note of an address is found
 * by two binary searches. Units are found by a hash of their pc.
 *
 * The thread waits for us whenever this changes what it runs (it is in the runtime of a region, which does not change,
 * or ptrace has stopped it outside of the cache). So nothing here is atomic: waking it makes it see what was written.
 *
 * A unit that is asked for comes with those that it leads to (AHEAD of them), since a request takes longer than a
 * translation. Exits to units that are not there yet are found by their target when those are made, and linked.
 *
 * A unit that finds its code changed goes on to the one of what is there now. Both stay: code may change back.
 *
 * A region that is full: all units are forgotten, as they are when code has changed that units were made of. Nothing
 * outside of the cache ever has an address of it (docs/architecture.md), so there is nothing to look for.
 */
#include "itrace/code_cache_internal.h"

#include "base/error.h"
#include "itrace/branches.h"

#include <stdlib.h>
#include <string.h>

enum { AHEAD = 24, VERSIONS = 8 };

/* Units that are to be made: by their pc. */
struct ct_ahead {
  uint64_t pcs[AHEAD];
  bool are_returned_to[AHEAD];
  uint32_t count;
};

#define PASSES (1ull << 63) /* of a key */

/* ---- tables that grow ---- */

bool
ct_code_cache_reserve(void **items, size_t *capacity, size_t count, size_t more, size_t size)
{
  if (count + more <= *capacity) {
    return true;
  }
  size_t wanted = (count + more) * 2 < 1024 ? 1024 : (count + more) * 2;
  void *grown = reallocarray(*items, wanted, size);
  if (grown == NULL) {
    return false;
  }
  *items = grown;
  *capacity = wanted;
  return true;
}

static size_t
hash(uint64_t key, size_t count)
{
  return (size_t)((key * 0x9e3779b97f4a7c15ull) >> 20) & (count - 1);
}

static uint32_t *
bucket_of(const struct ct_code_cache *cache, uint64_t key)
{
  size_t at = hash(key, cache->bucket_count);
  while (cache->buckets[at] != 0 && cache->pieces[cache->buckets[at] - 1].key != key) {
    at = (at + 1) & (cache->bucket_count - 1);
  }
  return &cache->buckets[at];
}

static uint32_t *
waiting_for(const struct ct_code_cache *cache, uint64_t target)
{
  size_t at = hash(target, cache->waiting_count);
  while (cache->waiting[at] != 0 && cache->exits[cache->waiting[at] - 1].exit.target != target) {
    at = (at + 1) & (cache->waiting_count - 1);
  }
  return &cache->waiting[at];
}

/* Where an entry of each of the two tables belongs. */
static uint32_t *
place_of_unit(const struct ct_code_cache *cache, uint32_t entry)
{
  return bucket_of(cache, cache->pieces[entry - 1].key);
}

static uint32_t *
place_of_waiting(const struct ct_code_cache *cache, uint32_t entry)
{
  return waiting_for(cache, cache->exits[entry - 1].exit.target);
}

/* An exit stays in its table when it has been linked, so that the way to those after it in their chains is not cut. */
static bool
grow(struct ct_code_cache *cache, uint32_t **table, size_t *count,
     uint32_t *(*place_of)(const struct ct_code_cache *cache, uint32_t entry))
{
  uint32_t *old = *table;
  size_t before = *count;
  uint32_t *fresh = calloc(before * 2, sizeof(*fresh));
  if (fresh == NULL) {
    return false;
  }
  *table = fresh;
  *count = before * 2;
  for (size_t i = 0; i < before; i++) {
    if (old[i] != 0) {
      *place_of(cache, old[i]) = old[i];
    }
  }
  free(old);
  return true;
}

/* ---- life ---- */

struct ct_code_cache *
ct_code_cache_create(struct ct_itrace_slots *slots, const struct ct_translation_place *place, struct ct_unit_log *log)
{
  struct ct_code_cache *cache = calloc(1, sizeof(*cache));
  if (cache == NULL) {
    return NULL;
  }
  cache->place = *place;
  cache->log = log;
  cache->table = (uint64_t *)((uint8_t *)slots + CT_ITRACE_TABLE_AT);
  cache->bucket_count = cache->waiting_count = 4096;
  cache->waiting = calloc(cache->waiting_count, sizeof(*cache->waiting));
  cache->buckets = calloc(cache->bucket_count, sizeof(*cache->buckets));
  if (!ct_source_pages_create(&cache->pages) || cache->buckets == NULL || cache->waiting == NULL) {
    ct_code_cache_free(cache);
    return NULL;
  }
  return cache;
}

void
ct_code_cache_free(struct ct_code_cache *cache)
{
  if (cache == NULL) {
    return;
  }
  for (uint32_t i = 0; i < cache->region_count; i++) {
    free(cache->regions[i].hot.pieces);
    free(cache->regions[i].cold.pieces);
  }
  free(cache->pieces);
  free(cache->exits);
  free(cache->notes);
  free(cache->buckets);
  free(cache->waiting);
  free(cache->watched);
  free(cache->sequences.list);
  ct_source_pages_free(&cache->pages);
  free(cache);
}

void
ct_code_cache_flush(struct ct_code_cache *cache)
{
  cache->is_stale = false;
  cache->stale = 0;
  cache->piece_count = cache->exit_count = cache->note_count = cache->unit_count = 0;
  cache->waiting_used = 0;
  memset(cache->waiting, 0, cache->waiting_count * sizeof(*cache->waiting));
  memset(cache->buckets, 0, cache->bucket_count * sizeof(*cache->buckets));
  ct_source_pages_forget(&cache->pages);
  ct_code_regions_clear(cache);
  cache->stats.flushes++;
}

/* ---- units ---- */

/* In place of the exit's code. */
static void
jump_far(struct ct_code_cache *cache, uint32_t number, uint64_t unit)
{
  const struct ct_numbered_exit *from = &cache->exits[number - 1];
  struct ct_code_cache_region *region = &cache->regions[cache->pieces[from->piece].region];
  struct ct_code code = {.bytes = region->bytes + from->exit.code_at,
                         .capacity = CT_EXIT_BYTES,
                         .address = region->address + from->exit.code_at};
  ct_translate_far_jump(&code, unit);
}

/* Makes the exits of the unit that has just been emitted known, and links them as far as may be. */
static bool
add_exits(struct ct_code_cache *cache, size_t index)
{
  const struct ct_unit *unit = &cache->unit;
  for (uint32_t i = 0; i < unit->exit_count; i++) {
    uint32_t number = (uint32_t)cache->exit_count + 1;
    cache->exits[cache->exit_count++] = (struct ct_numbered_exit){unit->exits[i], (uint32_t)index, 0};
    if (unit->exits[i].kind != CT_EXIT_LINK) {
      continue;
    }
    uint32_t there = *bucket_of(cache, unit->exits[i].target);
    if (there != 0) {
      ct_code_cache_link(cache, number, ct_code_piece_address(cache, &cache->pieces[there - 1]));
      continue;
    }
    if (cache->waiting_used * 2 >= cache->waiting_count &&
        !grow(cache, &cache->waiting, &cache->waiting_count, place_of_waiting)) {
      return false;
    }
    uint32_t *last = waiting_for(cache, unit->exits[i].target);
    cache->waiting_used += *last == 0;
    cache->exits[number - 1].next = *last;
    *last = number;
  }
  return true;
}

/* Those that have waited for the unit go there from now on. */
static void
link_waiting(struct ct_code_cache *cache, size_t index)
{
  const struct ct_code_piece *piece = &cache->pieces[index];
  uint32_t number = *waiting_for(cache, piece->key);
  uint64_t address = ct_code_piece_address(cache, piece);
  while (number != 0) {
    uint32_t next = cache->exits[number - 1].next;
    ct_code_cache_link(cache, number, address);
    cache->exits[number - 1].next = 0;
    number = next;
  }
}

/* Of the unit that is being made. */
static bool
note_stretches(struct ct_code_cache *cache)
{
  const struct ct_unit *unit = &cache->unit;
  bool good = ct_source_pages_add(&cache->pages, unit->pc, 0);
  for (uint32_t i = 0; i < unit->stretch_count && good; i++) {
    good = ct_source_pages_add(&cache->pages, unit->stretches[i].pc, unit->stretches[i].bytes);
    cache->stats.source_bytes += unit->stretches[i].bytes;
  }
  return good;
}

static bool
reserve_for_unit(struct ct_code_cache *cache)
{
  return ct_code_cache_reserve((void **)&cache->exits, &cache->exit_capacity, cache->exit_count, CT_UNIT_EXITS_MAX,
                               sizeof(*cache->exits)) &&
         (cache->unit_count * 2 < cache->bucket_count ||
          grow(cache, &cache->buckets, &cache->bucket_count, place_of_unit)) &&
         note_stretches(cache);
}

/* The pieces of the unit: its cold code, then the one that stands for it. NULL: out of memory. */
static struct ct_code_piece *
add_unit(struct ct_code_cache *cache, struct ct_code_cache_region *region, const struct ct_code *code,
         const struct ct_code *cold, const struct ct_recovery *kept)
{
  struct ct_unit *unit = &cache->unit;
  uint32_t hot = unit->hot_count, count = unit->recovery_count;
  const struct ct_recovery *notes = kept != NULL ? kept : unit->recovery;
  struct ct_code_piece *piece =
      ct_code_region_add(cache, region, &region->cold, cold, notes + hot, count - hot, kept != NULL);
  if (piece == NULL) {
    return NULL;
  }
  piece->unit = unit->id;
  for (uint32_t i = 0; i < unit->exit_count; i++) {
    unit->exits[i].code_at += piece->at; /* in the region from now on */
  }
  piece = ct_code_region_add(cache, region, &region->hot, code, notes, hot, kept != NULL);
  if (piece != NULL) {
    piece->unit = unit->id;
    piece->key = unit->pc | (cache->makes_passes ? PASSES : 0);
    piece->entry = (uint8_t)unit->entry;
  }
  return piece;
}

/* Restartable sequences that were not known: is the code about one? */
static bool
look_for_sequences(struct ct_code_cache *cache, uint64_t pc, const uint8_t *code, size_t size, void *context)
{
  bool found = ct_sequences_look(&cache->sequences, pc, code, size, context);
  cache->is_stale |= found;
  cache->place.sequences = cache->sequences.list;
  cache->place.sequence_count = cache->sequences.count;
  return found;
}

void
ct_code_cache_set_rseq(struct ct_code_cache *cache, uint64_t rseq, uint32_t signature, ct_sequences_data_fn read_data)
{
  if (cache->place.rseq == rseq && cache->place.rseq_signature == signature) {
    return;
  }
  cache->place.rseq = rseq;
  cache->place.rseq_signature = signature;
  ct_sequences_reset(&cache->sequences, rseq != 0 ? read_data : NULL, signature);
  ct_code_cache_flush(cache);
}

const struct ct_sequences *
ct_code_cache_sequences(const struct ct_code_cache *cache)
{
  return &cache->sequences;
}

void
ct_code_cache_follow(struct ct_code_cache *cache, uint32_t round, const struct ct_branches *branches)
{
  cache->is_stale |= cache->round != round;
  cache->round = round;
  cache->branches = branches;
}

static bool
is_taken(void *context, uint64_t end)
{
  return ct_branches_are_taken(((const struct ct_code_cache *)context)->branches, end);
}

static uint64_t
guess_target(void *context, uint64_t end)
{
  return ct_branches_target(((const struct ct_code_cache *)context)->branches, end);
}

/* The code of a stretch that the unit is about to go on with; NULL: it may change, or is of another region. */
static const uint8_t *
read_on(void *context, uint64_t pc, uint32_t number, size_t *size)
{
  struct ct_code_cache *cache = context;
  bool may_change = false;
  if (ct_code_region_near(cache, pc) != ct_code_region_near(cache, cache->unit.pc) ||
      ct_code_region_near(cache, pc) == NULL) {
    return NULL;
  }
  *size = cache->read(cache->read_context, pc, cache->code[number], CT_STRETCH_SOURCE_MAX, &may_change);
  look_for_sequences(cache, pc, cache->code[number], *size, cache->read_context);
  return may_change || *size == 0 || cache->is_stale ? NULL : cache->code[number];
}

/* The unit that has been emitted is there from now on. Its piece, as an index; SIZE_MAX: out of memory. */
static size_t
take_unit(struct ct_code_cache *cache, struct ct_code_cache_region *region, const struct ct_unit_request *request,
          const struct ct_recovery *kept)
{
  struct ct_code_piece *piece =
      reserve_for_unit(cache) ? add_unit(cache, region, request->out, request->cold, kept) : NULL;
  if (piece == NULL || !ct_unit_log_add_parts(cache->log, &cache->unit)) {
    return SIZE_MAX;
  }
  size_t index = (size_t)(piece - cache->pieces);
  if (!cache->makes_one) {
    *bucket_of(cache, piece->key) = (uint32_t)index + 1;
    cache->unit_count++;
    link_waiting(cache, index);
  }
  cache->stats.units++;
  cache->stats.insns += cache->unit.insns;
  return add_exits(cache, index) ? index : SIZE_MAX;
}

/* Emits the unit, or what another thread has made of the same code. Its notes, if they are kept elsewhere, or NULL. */
static const struct ct_recovery *
translate(struct ct_code_cache *cache, const struct ct_unit_request *request, bool may_change)
{
  bool is_alone = cache->makes_one || cache->round == 0, is_hot = ct_branches_are_hot(cache->branches, request->pc);
  const struct ct_translation_source source = {read_on, is_taken, guess_target, cache, is_hot};
  bool is_shared = cache->shared_units != NULL && is_alone && !cache->makes_one && !cache->makes_passes && !may_change;
  const struct ct_recovery *kept = NULL;
  if (is_shared && ct_shared_units_get(cache->shared_units, request, &cache->unit, &kept)) {
    cache->stats.shared++;
    return kept;
  }
  cache->hot_marks.count = cache->cold_marks.count = 0;
  cache->hot_marks.is_lost = cache->cold_marks.is_lost = false;
  request->out->marks = is_shared ? &cache->hot_marks : NULL;
  request->cold->marks = is_shared ? &cache->cold_marks : NULL;
  ct_translate_unit(request->place, request->pc, request->code, request->size, may_change, is_alone ? NULL : &source,
                    request->first_exit, request->id, request->out, request->cold, &cache->unit);
  return NULL;
}

/* The unit's piece, as an index; SIZE_MAX: out of memory. */
static size_t
make_unit(struct ct_code_cache *cache, uint64_t pc, ct_code_cache_read_fn read, void *context)
{
  uint8_t *bytes = cache->code[0];
  struct ct_unit *unit = &cache->unit;
  bool may_change = false;
  cache->read = read;
  cache->read_context = context;
  size_t size = read(context, pc, bytes, CT_STRETCH_SOURCE_MAX, &may_change);
  for (int tries = 0; tries < 3; tries++) {
    struct ct_code_cache_region *region = ct_code_region_near(cache, pc);
    region = region == NULL ? &cache->regions[0] : region;
    struct ct_translation_place place = cache->place;
    struct ct_code code = ct_code_region_open(region, &region->hot), cold = ct_code_region_open(region, &region->cold);
    struct ct_unit_request request = {.place = &place,
                                      .pc = pc,
                                      .code = bytes,
                                      .size = size,
                                      .first_exit = (uint32_t)cache->exit_count + 1,
                                      .id = cache->log != NULL ? ct_unit_log_next(cache->log) : 0,
                                      .out = &code,
                                      .cold = &cold};
    place.leave = region->leave;
    place.passes_watched = cache->makes_passes;
    const struct ct_recovery *kept = translate(cache, &request, may_change);
    if (code.overflow || cold.overflow) {
      ct_code_cache_flush(cache);
      continue;
    }
    if (look_for_sequences(cache, pc, bytes, unit->stretch_count != 0 ? unit->stretches[0].bytes : 0, context)) {
      continue; /* it may be one itself */
    }
    if (code.marks != NULL) {
      ct_shared_units_add(cache->shared_units, &request, unit, code.marks, cold.marks, &kept);
    }
    return take_unit(cache, region, &request, kept);
  }
  return SIZE_MAX;
}

/* Indirect branches to the unit find it from now on, if there is room for that. */
static void
make_entry(struct ct_code_cache *cache, size_t index)
{
  uint64_t pc = cache->pieces[index].key, address = ct_code_piece_address(cache, &cache->pieces[index]);
  if (cache->pieces[index].has_entry) {
    return;
  }
  struct ct_code_cache_region *region = &cache->regions[cache->pieces[index].region];
  struct ct_translation_place place = cache->place;
  struct ct_recovery notes[CT_ENTRY_RECOVERY];
  struct ct_code code = ct_code_region_open(region, &region->hot);
  uint64_t entry = code.address, *slot = &cache->table[pc & (CT_ITRACE_TABLE_ENTRIES - 1)];
  uint32_t count = ct_translate_entry(&place, pc, address, *slot, &code, notes);
  if (!code.overflow && ct_code_region_add(cache, region, &region->hot, &code, notes, count, false) != NULL) {
    *slot = entry;
    cache->pieces[index].has_entry = true;
  } /* else each such branch asks, until the region is full and all is forgotten */
}

static void
look_ahead(struct ct_code_cache *cache, struct ct_ahead *ahead, uint64_t pc, bool is_returned_to)
{
  if (ahead->count < AHEAD && *bucket_of(cache, pc) == 0) {
    ahead->are_returned_to[ahead->count] = is_returned_to;
    ahead->pcs[ahead->count++] = pc;
  }
}

/* Where the unit that has just been made leads to. */
static void
look_after_unit(struct ct_code_cache *cache, struct ct_ahead *ahead)
{
  const struct ct_unit *unit = &cache->unit;
  for (uint32_t i = 0; i < unit->exit_count; i++) {
    if (unit->exits[i].kind == CT_EXIT_LINK) {
      look_ahead(cache, ahead, unit->exits[i].target, false);
    }
  }
  for (uint32_t i = 0; i < unit->return_count; i++) {
    look_ahead(cache, ahead, unit->return_addresses[i], true);
  }
}

/* Is there room for a unit, near pc, without forgetting others? */
static bool
has_room(const struct ct_code_cache *cache, uint64_t pc)
{
  const struct ct_code_cache_region *region = ct_code_region_near(cache, pc);
  return region != NULL && region->hot.end - region->hot.used > 2 * CT_UNIT_BYTES_MAX &&
         region->cold.end - region->cold.used > 2 * CT_UNIT_BYTES_MAX;
}

/* Where the unit of that exit finds itself stale it goes on to this one, which has taken its place. */
static void
replace(struct ct_code_cache *cache, uint32_t number, size_t index)
{
  const struct ct_numbered_exit *from = &cache->exits[number - 1];
  cache->pieces[index].version = cache->pieces[from->piece].version + 1;
  cache->unit_count--;
  jump_far(cache, number, ct_code_piece_address(cache, &cache->pieces[index]));
}

static size_t
find_or_make(struct ct_code_cache *cache, uint64_t pc, ct_code_cache_read_fn read, void *context)
{
  struct ct_ahead ahead = {.count = 0};
  if (cache->is_stale) {
    ct_code_cache_flush(cache);
  }
  uint32_t found = *bucket_of(cache, pc | (cache->makes_passes ? PASSES : 0)), stale = cache->stale;
  cache->stale = 0;
  if (found != 0 && (stale == 0 || found != cache->exits[stale - 1].piece + 1)) {
    return found - 1;
  }
  uint64_t flushes = cache->stats.flushes;
  size_t index = make_unit(cache, pc, read, context);
  cache->makes_passes = false;
  if (index == SIZE_MAX) {
    return index;
  }
  if (found != 0 && flushes == cache->stats.flushes) {
    replace(cache, stale, index);
  }
  look_after_unit(cache, &ahead);
  for (uint32_t i = 0; i < ahead.count && has_room(cache, ahead.pcs[i]); i++) {
    if (*bucket_of(cache, ahead.pcs[i]) != 0) {
      continue;
    }
    size_t next = make_unit(cache, ahead.pcs[i], read, context);
    if (next == SIZE_MAX) {
      break;
    }
    look_after_unit(cache, &ahead);
    if (ahead.are_returned_to[i]) {
      make_entry(cache, next);
    }
  }
  return index;
}

uint64_t
ct_code_cache_unit(struct ct_code_cache *cache, uint64_t pc, ct_code_cache_read_fn read, void *context)
{
  size_t index = find_or_make(cache, pc, read, context);
  return index == SIZE_MAX ? 0 : ct_code_piece_address(cache, &cache->pieces[index]);
}

uint64_t
ct_code_cache_unit_once(struct ct_code_cache *cache, uint64_t pc, ct_code_cache_read_fn read, void *context)
{
  cache->makes_one = true;
  size_t index = make_unit(cache, pc, read, context);
  cache->makes_one = false;
  return index == SIZE_MAX ? 0 : ct_code_piece_address(cache, &cache->pieces[index]);
}

uint64_t
ct_code_cache_unit_that_passes(struct ct_code_cache *cache, uint64_t pc, ct_code_cache_read_fn read, void *context)
{
  cache->makes_passes = true;
  uint64_t unit = ct_code_cache_unit(cache, pc, read, context);
  cache->makes_passes = false;
  return unit;
}

uint64_t
ct_code_cache_target(struct ct_code_cache *cache, uint64_t pc, ct_code_cache_read_fn read, void *context)
{
  size_t index = find_or_make(cache, pc, read, context);
  if (index == SIZE_MAX) {
    return 0;
  }
  make_entry(cache, index);
  return ct_code_piece_address(cache, &cache->pieces[index]);
}

const struct ct_unit_exit *
ct_code_cache_exit(const struct ct_code_cache *cache, uint32_t number)
{
  return number == 0 || number > cache->exit_count ? NULL : &cache->exits[number - 1].exit;
}

uint64_t
ct_code_cache_resume(const struct ct_code_cache *cache, uint32_t number)
{
  const struct ct_numbered_exit *from = &cache->exits[number - 1];
  const struct ct_code_piece *piece = &cache->pieces[from->piece];
  return cache->regions[piece->region].address + piece->at + from->exit.resume_at;
}

void
ct_code_cache_link(struct ct_code_cache *cache, uint32_t number, uint64_t unit)
{
  const struct ct_numbered_exit *from = &cache->exits[number - 1];
  const struct ct_code_piece *piece = &cache->pieces[from->piece];
  struct ct_code_cache_region *region = &cache->regions[piece->region];
  size_t field = piece->at + from->exit.field;
  int64_t distance = (int64_t)(unit - (region->address + field + 4));
  if (distance == (int32_t)distance) {
    int32_t value = (int32_t)distance;
    memcpy(region->bytes + field, &value, sizeof(value));
    return;
  }
  jump_far(cache, number, unit);
}

void
ct_code_cache_forget(struct ct_code_cache *cache, uint32_t number)
{
  const struct ct_code_piece *piece = &cache->pieces[cache->exits[number - 1].piece];
  bool is_last = *bucket_of(cache, piece->key) == cache->exits[number - 1].piece + 1;
  cache->stats.stale += is_last;
  cache->stale = number;
  if (is_last && (piece->version == VERSIONS || (piece->key & PASSES) != 0)) {
    ct_code_cache_flush(cache);
  }
}

void
ct_code_cache_share(struct ct_code_cache *cache, struct ct_shared_units *units)
{
  cache->shared_units = units;
}

int
ct_code_cache_watch(struct ct_code_cache *cache, uint64_t pc)
{
  uint32_t count = cache->place.watched_count, at = 0;
  while (at < count && cache->watched[at] < pc) {
    at++;
  }
  if (at < count && cache->watched[at] == pc) {
    return 0;
  }
  uint64_t *more = reallocarray(cache->watched, count + 1, sizeof(*more));
  if (more == NULL) {
    return CT_ENOMEM;
  }
  memmove(more + at + 1, more + at, (count - at) * sizeof(*more));
  more[at] = pc;
  cache->watched = more;
  cache->place.watched = more;
  cache->place.watched_count = count + 1;
  if (ct_code_cache_covers(cache, pc, pc + 1)) {
    ct_code_cache_flush(cache);
  }
  return 0;
}

void
ct_code_cache_watch_if(struct ct_code_cache *cache, const struct ct_condition *condition)
{
  cache->place.condition = *condition;
}

void
ct_code_cache_ask_at_switches(struct ct_code_cache *cache)
{
  cache->place.asks_at_switches = true;
}

bool
ct_code_cache_covers(struct ct_code_cache *cache, uint64_t start, uint64_t end)
{
  return ct_source_pages_have(&cache->pages, start, end);
}

uint64_t
ct_code_cache_wait(const struct ct_code_cache *cache)
{
  return cache->regions[0].leave;
}

void
ct_code_cache_stats(const struct ct_code_cache *cache, struct ct_code_cache_stats *stats)
{
  *stats = cache->stats;
}
