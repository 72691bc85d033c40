/* SPDX-License-Identifier: MIT */
/*
 * See shadow.h. Lines of 64 bytes in a table, each byte with its last value, if that is known. What was written with an
 * unknown value is as what was never written: nobody knows it. Followed is what is not dearer than the questions so far
 * would have been, steps and what they store; where steps cannot be read, or too much memory is touched, it is given
 * up.
 */
#include "steps/shadow.h"

#include "steps/cursor.h"

#include <stdlib.h>
#include <string.h>

enum {
  LINE = 64,
  SLOTS_FIRST = 1 << 10,
  SLOTS_MAX = 1 << 19,
  STEPS_A_QUESTION = 30000, /* followed in the time that a question takes by the index */
  STORES_A_STEP = 8,        /* of one instruction (rep stos), in the time of a step */
  DEBT_MAX = 1000 * STEPS_A_QUESTION,
  STORE_MAX = 16 << 20
};

struct line {
  uint64_t number; /* of the line, and 1; 0: free */
  uint64_t known;  /* a bit for each byte */
  uint8_t bytes[LINE];
};

struct ct_steps_shadow {
  struct ct_steps_reader *reader;
  struct ct_steps_cursor *cursor;
  struct line *lines;
  size_t slots, count;
  int64_t credit;  /* steps that may be followed; below 0: questions have to come that are answered in another way */
  uint64_t before; /* it has followed up to there */
  size_t block;    /* in which that is */
  bool is_in;      /* the cursor stands there; else at the block's begin */
  bool gave_up;
};

struct ct_steps_shadow *
ct_steps_shadow_open(struct ct_steps_reader *reader)
{
  struct ct_steps_shadow *s = calloc(1, sizeof(*s));
  if (s == NULL) {
    return NULL;
  }
  s->reader = reader;
  s->slots = SLOTS_FIRST;
  s->lines = calloc(s->slots, sizeof(*s->lines));
  s->cursor = ct_steps_cursor_open(reader);
  if (s->lines == NULL || s->cursor == NULL) {
    ct_steps_shadow_close(s);
    return NULL;
  }
  return s;
}

void
ct_steps_shadow_close(struct ct_steps_shadow *s)
{
  if (s != NULL) {
    ct_steps_cursor_close(s->cursor);
    free(s->lines);
    free(s);
  }
}

/* ---- lines ---- */

static struct line *
slot_of(struct line *lines, size_t slots, uint64_t number)
{
  size_t at = (size_t)((number * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (slots - 1);
  while (lines[at].number != 0 && lines[at].number != number) {
    at = (at + 1) & (slots - 1);
  }
  return &lines[at];
}

static bool
grow(struct ct_steps_shadow *s)
{
  size_t slots = s->slots * 2;
  struct line *lines = slots <= SLOTS_MAX ? calloc(slots, sizeof(*lines)) : NULL;
  if (lines == NULL) {
    s->gave_up = true;
    return false;
  }
  for (size_t i = 0; i < s->slots; i++) {
    if (s->lines[i].number != 0) {
      *slot_of(lines, slots, s->lines[i].number) = s->lines[i];
    }
  }
  free(s->lines);
  s->lines = lines;
  s->slots = slots;
  return true;
}

/* What has been done besides steps, as so many of them. What is too much for the questions so far is owed by others. */
static void
charge(struct ct_steps_shadow *s, uint64_t steps)
{
  s->credit -= steps < DEBT_MAX ? (int64_t)steps : DEBT_MAX;
  s->gave_up |= s->credit < -DEBT_MAX;
}

static uint64_t
least(uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

/* Bytes of one line from `at` on, of which have are at value, the rest of them unknown. */
static void
note_in_line(struct ct_steps_shadow *s, uint64_t number, unsigned at, unsigned bytes, const uint8_t *value,
             unsigned have)
{
  struct line *line = slot_of(s->lines, s->slots, number);
  uint64_t all = bytes == LINE ? ~UINT64_C(0) : ((UINT64_C(1) << bytes) - 1) << at;
  uint64_t known = have == LINE ? ~UINT64_C(0) : ((UINT64_C(1) << have) - 1) << at;
  if (line->number == 0 && have == 0) {
    return;
  }
  if (line->number == 0) {
    if (4 * (s->count + 1) > 3 * s->slots) {
      if (!grow(s)) {
        return;
      }
      line = slot_of(s->lines, s->slots, number);
    }
    line->number = number;
    s->count++;
  }
  line->known = (line->known & ~all) | known;
  memset(line->bytes + at, 0, bytes);
  if (have != 0) {
    memcpy(line->bytes + at, value, have);
  }
}

/* The bytes from address on, of which have are at value (NULL: none); the rest of them unknown. */
static void
note(struct ct_steps_shadow *s, uint64_t address, uint64_t bytes, const uint8_t *value, uint64_t have)
{
  if (bytes > STORE_MAX || address + bytes < address) {
    s->gave_up = true;
  }
  charge(s, bytes / LINE);
  for (uint64_t i = 0; i < bytes && !s->gave_up;) {
    uint64_t at = (address + i) % LINE, part = least(LINE - at, bytes - i);
    uint64_t there = value != NULL && i < have ? least(part, have - i) : 0;
    note_in_line(s, (address + i) / LINE + 1, (unsigned)at, (unsigned)part, there != 0 ? value + i : NULL,
                 (unsigned)there);
    i += part;
  }
}

/* ---- the way ---- */

static void
note_store(struct ct_steps_shadow *s, const struct ct_effects *effects, const struct ct_mem_store *store,
           const struct ct_steps_state *after)
{
  uint8_t value[CT_STEPS_VECTOR_BYTES];
  uint64_t bytes = ct_mem_store_bytes(store);
  size_t known = bytes != 0 ? ct_steps_stored(effects, store, after, value) : 0;
  if (known == 0 || bytes > STORE_MAX) {
    note(s, store->address, bytes, NULL, 0);
    return;
  }
  charge(s, store->count / STORES_A_STEP);
  for (uint64_t i = 0; i < store->count && !s->gave_up; i++) {
    note(s, store->address + i * store->size, store->size, value, known);
  }
}

static bool
visit_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct ct_steps_shadow *s = context;
  if (step->did.load_size != 0) {
    note(s, step->did.load_address, step->did.load_size, (const uint8_t *)&step->did.loaded, step->did.load_size);
  }
  for (unsigned i = 0; i < step->did.store_count; i++) {
    note_store(s, step->effects, &step->did.stores[i], ct_steps_cursor_state(cursor));
  }
  return !s->gave_up;
}

static void
visit_event(void *context, const struct ct_steps_event *event)
{
  struct ct_steps_shadow *s = context;
  struct ct_stream_memory memory;
  if (event->step > s->before) {
    return;
  }
  if (ct_steps_is_gap(event)) {
    memset(s->lines, 0, s->slots * sizeof(*s->lines));
    s->count = 0;
  }
  if (event->kind == CT_STREAM_MEMORY) {
    memcpy(&memory, event->data, sizeof(memory));
    note(s, memory.address, memory.size, event->data + sizeof(memory), event->bytes - sizeof(memory));
  }
}

/* Up to before that step, which is in that block or one before it. */
static void
go_over(struct ct_steps_shadow *s, size_t block, uint64_t before)
{
  uint64_t holes = ct_steps_cursor_holes(s->cursor);
  s->before = before;
  ct_steps_cursor_events(s->cursor, visit_event, s);
  for (;;) {
    if (s->is_in) {
      ct_steps_cursor_resume(s->cursor, before, visit_step, s);
    } else {
      ct_steps_cursor_scan(s->cursor, s->block, before, visit_step, s);
    }
    ct_steps_cursor_pass_events(s->cursor);
    s->is_in = true;
    if (s->gave_up || ct_steps_cursor_holes(s->cursor) != holes) {
      s->gave_up = true;
      return;
    }
    if (s->block >= block) {
      break;
    }
    s->block++;
    s->is_in = false;
  }
  s->gave_up = ct_steps_cursor_block(s->cursor) != block || ct_steps_cursor_at(s->cursor) != before;
}

bool
ct_steps_shadow_memory(struct ct_steps_shadow *s, uint64_t address, size_t size, uint64_t before, uint8_t *bytes,
                       uint8_t *known)
{
  size_t blocks = ct_steps_reader_blocks(s->reader);
  size_t block = blocks != 0 ? ct_steps_reader_find(s->reader, before) : 0;
  if (s->gave_up || blocks == 0 || before < s->before) {
    return false;
  }
  const struct ct_steps_place *place = ct_steps_reader_place(s->reader, block);
  s->credit += STEPS_A_QUESTION;
  if (before < place->first_step || before >= place->first_step + place->steps || s->credit < 0 ||
      before - s->before > (uint64_t)s->credit) {
    return false;
  }
  s->credit -= (int64_t)(before - s->before);
  go_over(s, block, before);
  for (size_t i = 0; i < size && !s->gave_up; i++) {
    uint64_t number = (address + i) / LINE + 1;
    const struct line *line = slot_of(s->lines, s->slots, number);
    known[i] = line->number != 0 && (line->known >> ((address + i) % LINE) & 1) != 0;
    bytes[i] = known[i] != 0 ? line->bytes[(address + i) % LINE] : 0;
  }
  if (s->gave_up) {
    free(s->lines);
    ct_steps_cursor_close(s->cursor);
    s->lines = NULL;
    s->cursor = NULL;
  }
  return !s->gave_up;
}
