/* SPDX-License-Identifier: MIT */
/*
 * See shared_units.h. A copy is found by the unit's pc; it is used if the bytes that the translator has looked at are
 * the same: those of the unit, and as many more as an instruction may have, which decide where it ends. Watched
 * addresses and restartable sequences decide that, too: units that have one are not kept, and none that would have one
 * is used. Copies never change, and go when all does.
 */
#include "itrace/shared_units.h"

#include "base/test_point.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1 << 18, LOCKS = 64, INSN_MAX = 15, SAME_PC_MAX = 4 };

#define BYTES_MOST (512ull << 20)

struct copy {
  struct copy *next;
  uint64_t pc, hot_at, cold_at, leave; /* where it was emitted */
  uint32_t shared, first_exit, id, insns, entry;
  uint8_t mode, exit_count, return_count, part_count;
  bool is_whole;       /* no code follows its bytes */
  uint16_t code_bytes; /* that are compared ... */
  uint16_t unit_bytes; /* ... and that are the unit's */
  uint16_t hot_bytes, cold_bytes, hot_marks, cold_marks, note_count, hot_notes;
  /* One after the other: notes, exits, return addresses, parts, marks, hot code, cold code, the program's code. */
  _Alignas(8) uint8_t data[];
};

struct ct_shared_units {
  pthread_mutex_t locks[LOCKS]; /* of the bucket with that number, and those LOCKS after it */
  struct copy *buckets[BUCKETS];
  _Atomic uint64_t bytes;
  bool is_compared;
};

/* Where the parts of a copy's data are. */
struct parts {
  struct ct_recovery *notes;
  struct ct_unit_exit *exits;
  uint64_t *returns;
  struct ct_unit_part *parts;
  struct ct_code_mark *hot_marks, *cold_marks;
  uint8_t *hot, *cold, *code;
};

/* data: of the copy, or of one that has its counts; the size of all. */
static size_t
find_parts(const struct copy *copy, uint8_t *data, struct parts *parts)
{
  size_t at = 0;
#define PART(name, count)                                                                                              \
  at = (at + _Alignof(__typeof__(*parts->name)) - 1) & ~(_Alignof(__typeof__(*parts->name)) - 1);                      \
  parts->name = (__typeof__(parts->name))(void *)(data + at);                                                          \
  at += (count) * sizeof(*parts->name)
  PART(notes, copy->note_count);
  PART(exits, copy->exit_count);
  PART(returns, copy->return_count);
  PART(parts, copy->part_count);
  PART(hot_marks, copy->hot_marks);
  PART(cold_marks, copy->cold_marks);
  PART(hot, copy->hot_bytes);
  PART(cold, copy->cold_bytes);
  PART(code, copy->code_bytes);
#undef PART
  return at;
}

struct ct_shared_units *
ct_shared_units_create(void)
{
  struct ct_shared_units *units = calloc(1, sizeof(*units));
  for (size_t i = 0; units != NULL && i < LOCKS; i++) {
    pthread_mutex_init(&units->locks[i], NULL);
  }
  if (units != NULL) {
    units->is_compared = ct_test_number("CONTRAIL_TEST_COMPARE_UNITS", 0) != 0;
  }
  return units;
}

void
ct_shared_units_free(struct ct_shared_units *units)
{
  for (size_t i = 0; units != NULL && i < BUCKETS; i++) {
    while (units->buckets[i] != NULL) {
      struct copy *copy = units->buckets[i];
      units->buckets[i] = copy->next;
      free(copy);
    }
  }
  free(units);
}

static size_t
bucket_of(uint64_t pc)
{
  return (size_t)((pc * 0x9e3779b97f4a7c15ull) >> 40) % BUCKETS;
}

static uint8_t
mode_of(const struct ct_translation_place *place)
{
  return (uint8_t)(place->records | place->has_vectors << 1 | place->asks_at_switches << 2);
}

/* Is an address in [pc, pc + bytes], the end too, of those that decide where a unit ends? */
static bool
is_special(const struct ct_translation_place *place, uint64_t pc, uint64_t bytes)
{
  bool found = false;
  for (uint32_t i = 0; i < place->watched_count; i++) {
    found |= place->watched[i] - pc <= bytes;
  }
  for (uint32_t i = 0; i < place->sequence_count; i++) {
    found |= place->sequences[i].start - pc <= bytes;
  }
  return found;
}

static bool
fits(struct copy *copy, const struct ct_unit_request *request)
{
  struct parts parts;
  if (copy->pc != request->pc || copy->mode != mode_of(request->place) ||
      (copy->is_whole ? request->size != copy->code_bytes : request->size < copy->code_bytes)) {
    return false;
  }
  find_parts(copy, copy->data, &parts);
  return memcmp(parts.code, request->code, copy->code_bytes) == 0;
}

/* NULL: there is none. */
static struct copy *
find(struct ct_shared_units *units, const struct ct_unit_request *request)
{
  size_t bucket = bucket_of(request->pc);
  pthread_mutex_lock(&units->locks[bucket % LOCKS]);
  struct copy *copy = units->buckets[bucket];
  while (copy != NULL && !fits(copy, request)) {
    copy = copy->next;
  }
  pthread_mutex_unlock(&units->locks[bucket % LOCKS]);
  return copy;
}

/* ---- from a copy to a unit ---- */

/* How what is marked changes, by kind: from where the copy was made to where the unit is. */
static void
find_changes(const struct copy *copy, const struct ct_unit_request *request, uint64_t own, uint64_t own_before,
             int64_t changes[CT_MARK_KINDS])
{
  int64_t moved = (int64_t)(own - own_before);
  changes[CT_MARK_ABSOLUTE] = (int64_t)request->place->shared - copy->shared;
  changes[CT_MARK_AWAY] = -moved;
  changes[CT_MARK_COLD] = (int64_t)(ct_code_pc(request->cold) - copy->cold_at) - moved;
  changes[CT_MARK_HOT] = (int64_t)(ct_code_pc(request->out) - copy->hot_at) - moved;
  changes[CT_MARK_LEAVE] = (int64_t)(request->place->leave - copy->leave) - moved;
  changes[CT_MARK_ID] = (int64_t)request->id - copy->id;
  changes[CT_MARK_EXIT] = (int64_t)request->first_exit - copy->first_exit;
}

/* False: an address is out of reach from there. */
static bool
move(uint8_t *bytes, const struct ct_code_mark *marks, size_t count, const int64_t changes[CT_MARK_KINDS])
{
  enum { SLACK = 64 };
  for (size_t i = 0; i < count; i++) {
    int32_t before;
    memcpy(&before, bytes + marks[i].at, sizeof(before));
    int64_t after = before + changes[marks[i].kind];
    bool is_distance =
        marks[i].kind != CT_MARK_ABSOLUTE && marks[i].kind != CT_MARK_ID && marks[i].kind != CT_MARK_EXIT;
    if (is_distance && (after <= INT32_MIN + SLACK || after >= INT32_MAX - SLACK)) {
      return false;
    }
    uint32_t word = (uint32_t)after;
    memcpy(bytes + marks[i].at, &word, sizeof(word));
  }
  return true;
}

static bool
emit(const struct copy *copy, const struct parts *parts, const struct ct_unit_request *request)
{
  struct ct_code *out = request->out, *cold = request->cold;
  int64_t changes[CT_MARK_KINDS];
  if (copy->hot_bytes > out->capacity || copy->cold_bytes > cold->capacity) {
    return false; /* who translates it finds that out, too */
  }
  memcpy(out->bytes, parts->hot, copy->hot_bytes);
  memcpy(cold->bytes, parts->cold, copy->cold_bytes);
  find_changes(copy, request, out->address, copy->hot_at, changes);
  bool good = move(out->bytes, parts->hot_marks, copy->hot_marks, changes);
  find_changes(copy, request, cold->address, copy->cold_at, changes);
  good = good && move(cold->bytes, parts->cold_marks, copy->cold_marks, changes);
  out->length = good ? copy->hot_bytes : 0;
  cold->length = good ? copy->cold_bytes : 0;
  return good;
}

static void
fill(const struct copy *copy, const struct parts *parts, const struct ct_unit_request *request, struct ct_unit *unit)
{
  unit->pc = copy->pc;
  unit->insns = copy->insns;
  unit->entry = copy->entry;
  unit->id = copy->id != 0 ? request->id : 0;
  unit->part_count = copy->part_count;
  memcpy(unit->parts, parts->parts, copy->part_count * sizeof(*unit->parts));
  unit->stretch_count = copy->unit_bytes != 0;
  unit->stretches[0] = (struct ct_unit_stretch){.pc = copy->pc, .code = request->code, .bytes = copy->unit_bytes};
  unit->return_count = copy->return_count;
  memcpy(unit->return_addresses, parts->returns, copy->return_count * sizeof(*unit->return_addresses));
  unit->exit_count = copy->exit_count;
  memcpy(unit->exits, parts->exits, copy->exit_count * sizeof(*unit->exits));
  unit->recovery_count = copy->note_count;
  unit->hot_count = copy->hot_notes;
}

/* For tests: a translation would be the same, byte by byte. */
static void
compare(const struct copy *copy, const struct parts *parts, const struct ct_unit_request *request,
        const struct ct_unit *unit)
{
  struct ct_unit *fresh = calloc(1, sizeof(*fresh));
  uint8_t *hot = calloc(2, CT_UNIT_BYTES_MAX), *cold = hot + CT_UNIT_BYTES_MAX;
  struct ct_code out = {.bytes = hot, .capacity = CT_UNIT_BYTES_MAX, .address = request->out->address};
  struct ct_code cold_out = {.bytes = cold, .capacity = CT_UNIT_BYTES_MAX, .address = request->cold->address};
  if (fresh == NULL || hot == NULL) {
    abort();
  }
  ct_translate_unit(request->place, request->pc, request->code, request->size, false, NULL, request->first_exit,
                    request->id, &out, &cold_out, fresh);
  bool same = out.length == copy->hot_bytes && memcmp(hot, request->out->bytes, out.length) == 0 &&
              cold_out.length == copy->cold_bytes && memcmp(cold, request->cold->bytes, cold_out.length) == 0 &&
              fresh->insns == unit->insns && fresh->entry == unit->entry && fresh->id == unit->id &&
              fresh->exit_count == unit->exit_count && fresh->part_count == unit->part_count &&
              fresh->stretch_count == unit->stretch_count && fresh->return_count == unit->return_count &&
              fresh->recovery_count == unit->recovery_count && fresh->hot_count == unit->hot_count &&
              memcmp(fresh->recovery, parts->notes, unit->recovery_count * sizeof(*parts->notes)) == 0 &&
              memcmp(fresh->exits, unit->exits, unit->exit_count * sizeof(*unit->exits)) == 0 &&
              memcmp(fresh->parts, unit->parts, unit->part_count * sizeof(*unit->parts)) == 0 &&
              (fresh->stretch_count == 0 || fresh->stretches[0].bytes == unit->stretches[0].bytes);
  if (!same) {
    abort();
  }
  free(hot);
  free(fresh);
}

bool
ct_shared_units_get(struct ct_shared_units *units, const struct ct_unit_request *request, struct ct_unit *unit,
                    const struct ct_recovery **notes)
{
  struct copy *copy = find(units, request);
  struct parts parts;
  if (copy == NULL || is_special(request->place, copy->pc, copy->unit_bytes)) {
    return false;
  }
  find_parts(copy, copy->data, &parts);
  if (!emit(copy, &parts, request)) {
    return false;
  }
  fill(copy, &parts, request, unit);
  *notes = parts.notes;
  if (units->is_compared) {
    compare(copy, &parts, request, unit);
  }
  return true;
}

/* ---- from a unit to a copy ---- */

/* Of the marks of absolute addresses those of our own memory are kept; how many. */
static uint16_t
take_marks(const struct ct_code *code, const struct ct_code_marks *marks, uint32_t shared, struct ct_code_mark *out)
{
  uint16_t count = 0;
  for (uint32_t i = 0; i < marks->count; i++) {
    uint32_t word;
    memcpy(&word, code->bytes + marks->items[i].at, sizeof(word));
    if (marks->items[i].kind == CT_MARK_ABSOLUTE && word - shared >= CT_ITRACE_SHARED_BYTES) {
      continue;
    }
    if (out != NULL) {
      out[count] = marks->items[i];
    }
    count++;
  }
  return count;
}

static struct copy *
make_copy(const struct ct_unit_request *request, const struct ct_unit *unit, const struct ct_code_marks *hot,
          const struct ct_code_marks *cold)
{
  const struct ct_translation_place *place = request->place;
  uint32_t bytes = unit->stretch_count != 0 ? unit->stretches[0].bytes : 0;
  size_t looked_at = bytes + INSN_MAX < request->size ? bytes + INSN_MAX : request->size;
  struct copy head = {.pc = unit->pc,
                      .hot_at = request->out->address,
                      .cold_at = request->cold->address,
                      .leave = place->leave,
                      .shared = place->shared,
                      .first_exit = request->first_exit,
                      .id = unit->id,
                      .insns = unit->insns,
                      .entry = unit->entry,
                      .mode = mode_of(place),
                      .exit_count = (uint8_t)unit->exit_count,
                      .return_count = (uint8_t)unit->return_count,
                      .part_count = (uint8_t)unit->part_count,
                      .is_whole = looked_at < bytes + INSN_MAX,
                      .code_bytes = (uint16_t)looked_at,
                      .unit_bytes = (uint16_t)bytes,
                      .hot_bytes = (uint16_t)request->out->length,
                      .cold_bytes = (uint16_t)request->cold->length,
                      .hot_marks = take_marks(request->out, hot, place->shared, NULL),
                      .cold_marks = take_marks(request->cold, cold, place->shared, NULL),
                      .note_count = (uint16_t)unit->recovery_count,
                      .hot_notes = (uint16_t)unit->hot_count};
  struct parts parts;
  struct copy *copy = malloc(sizeof(*copy) + find_parts(&head, head.data, &parts));
  if (copy == NULL) {
    return NULL;
  }
  *copy = head;
  find_parts(copy, copy->data, &parts);
  memcpy(parts.notes, unit->recovery, unit->recovery_count * sizeof(*parts.notes));
  memcpy(parts.exits, unit->exits, unit->exit_count * sizeof(*parts.exits));
  memcpy(parts.returns, unit->return_addresses, unit->return_count * sizeof(*parts.returns));
  memcpy(parts.parts, unit->parts, unit->part_count * sizeof(*parts.parts));
  take_marks(request->out, hot, place->shared, parts.hot_marks);
  take_marks(request->cold, cold, place->shared, parts.cold_marks);
  memcpy(parts.hot, request->out->bytes, request->out->length);
  memcpy(parts.cold, request->cold->bytes, request->cold->length);
  memcpy(parts.code, request->code, looked_at);
  return copy;
}

/* Another thread may have been faster: then there are two. False: there are enough. */
static bool
keep(struct ct_shared_units *units, struct copy *copy)
{
  size_t bucket = bucket_of(copy->pc);
  uint32_t same = 0;
  pthread_mutex_lock(&units->locks[bucket % LOCKS]);
  for (const struct copy *other = units->buckets[bucket]; other != NULL; other = other->next) {
    same += other->pc == copy->pc && other->mode == copy->mode;
  }
  if (same < SAME_PC_MAX) {
    copy->next = units->buckets[bucket];
    units->buckets[bucket] = copy;
  }
  pthread_mutex_unlock(&units->locks[bucket % LOCKS]);
  return same < SAME_PC_MAX;
}

void
ct_shared_units_add(struct ct_shared_units *units, const struct ct_unit_request *request, const struct ct_unit *unit,
                    const struct ct_code_marks *hot, const struct ct_code_marks *cold, const struct ct_recovery **notes)
{
  struct parts parts;
  *notes = NULL;
  if (request->out->length > CT_UNIT_BYTES_MAX || request->cold->length > CT_UNIT_BYTES_MAX || hot->is_lost ||
      cold->is_lost || unit->stretch_count > 1 || request->out->overflow || request->cold->overflow ||
      is_special(request->place, unit->pc, unit->stretch_count != 0 ? unit->stretches[0].bytes : 0) ||
      atomic_load_explicit(&units->bytes, memory_order_relaxed) >= BYTES_MOST) {
    return;
  }
  struct copy *copy = make_copy(request, unit, hot, cold);
  if (copy == NULL) {
    return;
  }
  size_t size = sizeof(*copy) + find_parts(copy, copy->data, &parts);
  if (!keep(units, copy)) {
    free(copy);
    return;
  }
  atomic_fetch_add_explicit(&units->bytes, size, memory_order_relaxed);
  *notes = parts.notes;
}
