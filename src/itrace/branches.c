/* SPDX-License-Identifier: MIT */
/*
 * See branches.h. A unit is left by the branch at its end, or by one before it, then the record is that of a part of
 * the unit, which ends there. So of a record the branches before its end are at the ends of those parts that end before
 * it, and went the other way than those parts tell; the one at its own end was taken if the next record is of another
 * place than after it.
 */
#include "itrace/branches.h"

#include "itrace/unit_log.h"
#include "ring/itrace_stream.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1 << 14, FULL = SLOTS / 4 * 3 };

struct ct_branches {
  struct slot {
    uint64_t end; /* 0: free */
    uint32_t taken, passed;
  } slots[SLOTS];
  uint32_t count, percent;
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

static void
note(struct ct_branches *branches, uint64_t end, bool is_taken)
{
  struct slot *slot = &branches->slots[slot_of(branches, end)];
  if (slot->end == 0) {
    if (branches->count == FULL) {
      return;
    }
    branches->count++;
    slot->end = end;
  }
  slot->taken += is_taken;
  slot->passed += !is_taken;
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
    note(branches, end_of(&part), part.is_passed);
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
      if (end != 0) {
        note(branches, end, unit.pc != end);
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
ct_branches_are_taken(const struct ct_branches *branches, uint64_t end)
{
  enum { LEAST = 8 };
  const struct slot *slot = &branches->slots[slot_of(branches, end)];
  if (slot->end == 0) {
    return hash(end ^ hash(end)) % 100 < branches->percent;
  }
  return slot->taken >= LEAST && slot->taken / 2 >= slot->passed;
}
