/* SPDX-License-Identifier: MIT */
/*
 * See memory.h. Blocks are read backwards, each of them forward: what a block says of a byte replaces what it said
 * before, and what later blocks have said stays.
 */
#include "steps/memory.h"

#include "steps/cursor.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = 30000 };      /* so many steps are read without an index that is not there */
enum { OPEN, KNOWN, LOST }; /* of a byte: nothing is said of it so far; its value is; it was written, but with what */

struct memory {
  uint64_t address, before;
  size_t size;
  uint8_t *state, *value; /* of this block */
  size_t first, last;     /* of these bytes something is said in it, or of none: first > last */
};

struct answer {
  uint8_t *state, *bytes;
  size_t open; /* so many bytes */
};

static void
set_open(struct memory *m)
{
  if (m->first <= m->last) {
    memset(m->state + m->first, OPEN, m->last - m->first + 1);
  }
  m->first = SIZE_MAX;
  m->last = 0;
}

static void
widen(struct memory *m, size_t first, size_t last)
{
  m->first = first < m->first ? first : m->first;
  m->last = last > m->last ? last : m->last;
}

/* The bytes from address on, of which have are at value (NULL: none); rest of them unknown. */
static void
note(struct memory *m, uint64_t address, uint64_t bytes, const uint8_t *value, uint64_t have)
{
  uint64_t end = address + bytes < address ? UINT64_MAX : address + bytes;
  uint64_t first = address > m->address ? address : m->address;
  uint64_t last = end < m->address + m->size ? end : m->address + m->size;
  if (first < last) {
    widen(m, (size_t)(first - m->address), (size_t)(last - 1 - m->address));
  }
  for (uint64_t at = first; at < last; at++) {
    bool is_known = value != NULL && at - address < have;
    m->state[at - m->address] = is_known ? KNOWN : LOST;
    m->value[at - m->address] = is_known ? value[at - address] : 0;
  }
}

static void
note_store(struct memory *m, const struct ct_effects *effects, const struct ct_mem_store *store,
           const struct ct_steps_state *after)
{
  uint8_t value[CT_STEPS_VECTOR_BYTES];
  uint64_t bytes = ct_mem_store_bytes(store);
  if (store->address >= m->address + m->size || bytes == 0 ||
      (store->address < m->address && bytes <= m->address - store->address)) {
    return;
  }
  size_t known = ct_steps_stored(effects, store, after, value);
  if (known == 0) {
    note(m, store->address, bytes, NULL, 0);
    return;
  }
  /* Elements of the same value: only those that are asked for. */
  uint64_t skipped = m->address > store->address ? (m->address - store->address) / store->size : 0;
  for (uint64_t i = skipped; i < store->count; i++) {
    uint64_t at = store->address + i * store->size;
    if (at >= m->address + m->size) {
      break;
    }
    note(m, at, store->size, value, known);
  }
}

static bool
visit_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct memory *m = context;
  if (step->did.load_size != 0 && step->did.load_address < m->address + m->size &&
      step->did.load_address + step->did.load_size > m->address) {
    note(m, step->did.load_address, step->did.load_size, (const uint8_t *)&step->did.loaded, step->did.load_size);
  }
  for (unsigned i = 0; i < step->did.store_count; i++) {
    note_store(m, step->effects, &step->did.stores[i], ct_steps_cursor_state(cursor));
  }
  return true;
}

static void
visit_event(void *context, const struct ct_steps_event *event)
{
  struct memory *m = context;
  struct ct_stream_memory memory;
  if (ct_steps_is_gap(event) && event->step <= m->before) {
    memset(m->state, LOST, m->size);
    widen(m, 0, m->size - 1);
  }
  if (event->kind == CT_STREAM_MEMORY && event->step <= m->before) {
    memcpy(&memory, event->data, sizeof(memory));
    note(m, memory.address, memory.size, event->data + sizeof(memory), event->bytes - sizeof(memory));
  }
}

/* What a part says of bytes that later parts have said nothing of. */
static void
take(struct memory *m, struct answer *answer)
{
  for (size_t i = m->first; i <= m->last; i++) {
    if (answer->state[i] == OPEN && m->state[i] != OPEN) {
      answer->state[i] = m->state[i];
      answer->bytes[i] = m->value[i];
      answer->open--;
    }
  }
  set_open(m);
}

/* A block of which the index knows the chunks, from its end. */
static void
read_chunks(struct memory *m, struct answer *answer, const struct ct_steps_index *index, size_t block,
            struct ct_steps_cursor *cursor)
{
  size_t first, count = ct_steps_index_chunks(index, block, &first);
  uint64_t gap, end = UINT64_MAX; /* with the events at the block's end */
  for (size_t chunk = first + count; chunk > first && answer->open > 0;) {
    uint64_t begin = ct_steps_index_chunk_step(index, --chunk);
    if (begin <= m->before && (ct_steps_index_chunk_touches(index, chunk, m->address, m->size, answer->state, OPEN) ||
                               ct_steps_index_chunk_gap(index, chunk, &gap))) {
      ct_steps_cursor_scan_from(cursor, block, begin, end < m->before ? end : m->before, visit_step, m);
      ct_steps_cursor_pass_events(cursor);
      take(m, answer);
    }
    end = begin;
  }
}

/* What is said of the bytes, up to where nothing is open: answer.state is OPEN for each of them before. */
static int
search(struct ct_steps_reader *reader, struct ct_steps_index **index, struct memory *m, struct answer *answer)
{
  size_t block = 0;
  uint64_t read = 0;
  int code = 0;
  struct ct_steps_cursor *cursor = ct_steps_cursor_open(reader);
  if (cursor == NULL) {
    return CT_ENOMEM;
  }
  if (ct_steps_reader_blocks(reader) != 0) {
    block = ct_steps_reader_find(reader, m->before) + 1;
  }
  ct_steps_cursor_events(cursor, visit_event, m);
  while (block > 0 && answer->open > 0) {
    block--;
    code = ct_steps_index_want(reader, block, read, MANY, index);
    read += ct_steps_reader_place(reader, block)->steps;
    ct_steps_cursor_use_index(cursor, *index);
    if (code != 0) {
      break;
    }
    if (*index != NULL) {
      read_chunks(m, answer, *index, block, cursor);
    } else {
      ct_steps_cursor_scan(cursor, block, m->before, visit_step, m);
      ct_steps_cursor_pass_events(cursor);
      take(m, answer);
    }
    if (ct_steps_reader_is_over(reader)) {
      code = CT_ECANCELED;
      break;
    }
  }
  ct_steps_cursor_close(cursor);
  return code;
}

int
ct_steps_memory(struct ct_steps_reader *reader, struct ct_steps_index **index, uint64_t address, size_t size,
                uint64_t before, uint8_t *bytes, uint8_t *known)
{
  struct memory m = {.address = address, .size = size, .before = before, .first = SIZE_MAX};
  struct answer answer = {.state = known, .bytes = bytes, .open = size};
  m.state = calloc(size + 1, 2);
  m.value = m.state + size;
  memset(known, OPEN, size);
  int code = m.state != NULL ? search(reader, index, &m, &answer) : CT_ENOMEM;
  for (size_t i = 0; i < size; i++) {
    known[i] = known[i] == KNOWN;
    bytes[i] = known[i] != 0 ? bytes[i] : 0;
  }
  free(m.state);
  return code;
}

/* ---- again and again ---- */

struct ct_steps_recall {
  struct ct_steps_reader *reader;
  struct ct_steps_cursor *cursor; /* before step memory.before, if is_there */
  struct memory memory;
  uint8_t state[CT_STEPS_MEMORY_MAX], value[CT_STEPS_MEMORY_MAX];
  size_t block;
  bool is_there;
};

struct ct_steps_recall *
ct_steps_recall_open(struct ct_steps_reader *reader)
{
  struct ct_steps_recall *recall = calloc(1, sizeof(*recall));
  if (recall != NULL) {
    recall->reader = reader;
    recall->memory.state = recall->state;
    recall->memory.value = recall->value;
    recall->cursor = ct_steps_cursor_open(reader);
  }
  if (recall != NULL && recall->cursor == NULL) {
    free(recall);
    recall = NULL;
  }
  return recall;
}

void
ct_steps_recall_close(struct ct_steps_recall *recall)
{
  if (recall != NULL) {
    ct_steps_cursor_close(recall->cursor);
    free(recall);
  }
}

static bool
is_at(const struct ct_steps_recall *recall, uint64_t step)
{
  return ct_steps_cursor_block(recall->cursor) == recall->block && ct_steps_cursor_at(recall->cursor) == step;
}

/* From where it stands up to there, in the same block. False: it cannot. */
static bool
go_on(struct ct_steps_recall *recall, uint64_t before)
{
  uint64_t holes = ct_steps_cursor_holes(recall->cursor);
  recall->memory.before = before;
  ct_steps_cursor_events(recall->cursor, visit_event, &recall->memory);
  ct_steps_cursor_resume(recall->cursor, before, visit_step, &recall->memory);
  ct_steps_cursor_pass_events(recall->cursor);
  return is_at(recall, before) && ct_steps_cursor_holes(recall->cursor) == holes;
}

/* Where the answer is from, for the next question. */
static void
stand_at(struct ct_steps_recall *recall, const struct ct_steps_index *index, const uint8_t *bytes, const uint8_t *known)
{
  struct memory *m = &recall->memory;
  for (size_t i = 0; i < m->size; i++) {
    m->state[i] = known[i] != 0 ? KNOWN : LOST;
    m->value[i] = bytes[i];
  }
  ct_steps_cursor_events(recall->cursor, NULL, NULL);
  ct_steps_cursor_use_index(recall->cursor, index);
  recall->is_there = ct_steps_cursor_seek(recall->cursor, m->before) && is_at(recall, m->before);
}

int
ct_steps_recall_memory(struct ct_steps_recall *recall, struct ct_steps_index **index, uint64_t address, size_t size,
                       uint64_t before, uint8_t *bytes, uint8_t *known)
{
  struct memory *m = &recall->memory;
  size_t blocks = ct_steps_reader_blocks(recall->reader);
  size_t block = blocks != 0 ? ct_steps_reader_find(recall->reader, before) : 0;
  bool follows = recall->is_there && m->address == address && m->size == size && block == recall->block &&
                 before >= m->before &&
                 before < ct_steps_reader_place(recall->reader, block)->first_step +
                              ct_steps_reader_place(recall->reader, block)->steps;
  recall->is_there = follows && go_on(recall, before);
  if (recall->is_there) {
    for (size_t i = 0; i < size; i++) {
      known[i] = m->state[i] == KNOWN;
      bytes[i] = known[i] != 0 ? m->value[i] : 0;
    }
    return 0;
  }
  int code = ct_steps_memory(recall->reader, index, address, size, before, bytes, known);
  if (code == 0 && blocks != 0) {
    m->address = address;
    m->size = size;
    m->before = before;
    recall->block = block;
    stand_at(recall, *index, bytes, known);
  }
  return code;
}
