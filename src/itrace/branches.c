/* SPDX-License-Identifier: MIT */
/*
 * See branches.h. A unit is left by the branch at its end, or by one before it, then the record is that of a part of
 * the unit, which ends there. So of a record the branches before its end are at the ends of those parts that end before
 * it, and went the other way than those parts tell; the one at its own end was taken if the next record is of another
 * place than after it. Where an indirect branch or a return went is told by the next record, or by a unit that went on
 * after it, to where it was thought to go. One place is remembered, the one that it went to more often than elsewhere
 * since then.
 */
#include "itrace/branches.h"

#include "itrace/unit_log.h"
#include "ring/itrace_stream.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1 << 14, FULL = SLOTS / 4 * 3, STARTS = 1 << 16 };

struct ct_branches {
  struct slot {
    uint64_t end; /* 0: free */
    uint32_t taken, passed;
    uint64_t target; /* where it went last, or mostly: so often, and so often elsewhere since it was taken for that */
    uint32_t hits, misses;
  } slots[SLOTS];
  uint32_t count, percent;
  uint32_t starts[STARTS]; /* records of units, by a hash of where these begin */
};

struct ct_branches *
ct_branches_create(void)
{
  return calloc(1, sizeof(struct ct_branches));
}

void
ct_branches_free(struct ct_branches *branches)
{
  free(branches);
}

static uint64_t
hash(uint64_t end)
{
  return (end * 0x9e3779b97f4a7c15ull) >> 32;
}

static size_t
slot_of(const struct ct_branches *branches, uint64_t end)
{
  size_t at = hash(end) % SLOTS;
  while (branches->slots[at].end != 0 && branches->slots[at].end != end) {
    at = (at + 1) % SLOTS;
  }
  return at;
}

/* NULL: there is no room for another one. */
static struct slot *
find_or_add(struct ct_branches *branches, uint64_t end)
{
  struct slot *slot = &branches->slots[slot_of(branches, end)];
  if (slot->end == 0) {
    if (branches->count == FULL) {
      return NULL;
    }
    branches->count++;
    slot->end = end;
  }
  return slot;
}

void
ct_branches_note(struct ct_branches *branches, uint64_t end, uint64_t target)
{
  struct slot *slot = find_or_add(branches, end);
  if (slot == NULL) {
    return;
  }
  slot->taken += target != end;
  slot->passed += target == end;
  if (slot->target == target) {
    slot->hits++;
  } else if (++slot->misses > slot->hits) {
    slot->target = target;
    slot->hits = 1;
    slot->misses = 0;
  }
}

/* The unit went on after it: where that part of it, which was not executed alone, would not have gone. */
static void
note_inside(struct ct_branches *branches, uint64_t end, const struct ct_logged_unit *part)
{
  struct slot *slot = find_or_add(branches, end);
  if (slot != NULL && part->is_guessed) {
    slot->hits++;
  } else if (slot != NULL) {
    slot->taken += part->is_passed;
    slot->passed += !part->is_passed;
  }
}

static uint64_t
end_of(const struct ct_logged_unit *unit)
{
  return ct_unit_log_pc(unit, unit->code_bytes);
}

static void
note_passed(struct ct_branches *branches, const struct ct_unit_log *log, uint32_t id, const struct ct_logged_unit *unit)
{
  uint32_t whole = id - unit->part, end = unit->part == 0 ? unit->parts : unit->part;
  struct ct_logged_unit part;
  for (uint32_t k = 1; k < end && ct_unit_log_get(log, whole + k, &part); k++) {
    note_inside(branches, end_of(&part), &part);
  }
}

void
ct_branches_learn(struct ct_branches *branches, const struct ct_unit_log *log, const uint8_t *bytes, size_t size)
{
  struct ct_logged_unit unit;
  struct ct_stream_event event;
  uint64_t end = 0; /* of the record before; 0: it is none of a unit */
  for (size_t at = 0; size - at >= sizeof(event);) {
    memcpy(&event, bytes + at, sizeof(event));
    if (ct_unit_log_get(log, event.word, &unit)) {
      branches->starts[hash(unit.pc) % STARTS]++;
      if (end != 0) {
        ct_branches_note(branches, end, unit.pc);
      }
      note_passed(branches, log, event.word, &unit);
      end = end_of(&unit);
      at += unit.record_bytes;
    } else if ((event.word & CT_STREAM_PART) == CT_STREAM_EVENT && event.bytes >= sizeof(event)) {
      end = 0;
      at += event.bytes;
    } else {
      return; /* what follows is left out: there is enough without it */
    }
    if (at > size) {
      return;
    }
  }
}

void
ct_branches_by_lot(struct ct_branches *branches, uint32_t percent)
{
  branches->percent = percent;
}

bool
ct_branches_are_hot(const struct ct_branches *branches, uint64_t pc)
{
  /* Of the some two million records that a long run begins with. To translate some 100 instructions takes as long as
   * what is gained by thousands of executions. */
  enum { LEAST = 256 };
  if (branches == NULL) {
    return false;
  }
  uint64_t lot = hash(pc);
  return branches->starts[lot % STARTS] >= LEAST || hash(lot) % 100 < branches->percent;
}

bool
ct_branches_are_taken(const struct ct_branches *branches, uint64_t end)
{
  enum { LEAST = 8 };
  if (branches == NULL) {
    return false;
  }
  const struct slot *slot = &branches->slots[slot_of(branches, end)];
  if (slot->end == 0) {
    return hash(end ^ hash(end)) % 100 < branches->percent;
  }
  return slot->taken >= LEAST && slot->taken / 2 >= slot->passed;
}

uint64_t
ct_branches_target(const struct ct_branches *branches, uint64_t end)
{
  enum { LEAST = 8, OFTEN = 4 };
  if (branches == NULL) {
    return 0;
  }
  const struct slot *slot = &branches->slots[slot_of(branches, end)];
  return slot->end != 0 && slot->hits >= LEAST && slot->hits / OFTEN >= slot->misses ? slot->target : 0;
}
