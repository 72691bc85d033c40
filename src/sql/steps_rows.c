/* SPDX-License-Identifier: MIT */
/* See sql_steps.h: the rows of a block. */
#include "sql/steps_internal.h"

#include "ring/itrace_stream.h"
#include "steps/stream.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 2048 };

/* ---- what is looked for ---- */

static int
choose(struct ct_sql_search *search)
{
  const struct ct_sql_steps_wanted *wanted = search->wanted;
  struct ct_steps_selected *selected = &search->selected;
  if (wanted->function != NULL) {
    int code =
        ct_steps_names_find(search->recorded->names, wanted->function, 0, &selected->ranges, &selected->count, NULL);
    if (code != 0) {
      return code;
    }
    selected->has_ranges = true;
  } else if (wanted->table == CT_SQL_STEPS && wanted->has_address) {
    selected->ranges = malloc(sizeof(*selected->ranges));
    if (selected->ranges == NULL) {
      return CT_ENOMEM;
    }
    selected->ranges[0] = (struct ct_steps_range){wanted->address, wanted->address_end + 1};
    selected->count = 1;
    selected->has_ranges = wanted->address_end != UINT64_MAX;
  }
  return ct_steps_selected_prepare(selected, search->recorded->reader);
}

struct ct_sql_search *
ct_sql_search_open(struct ct_sql_recorded *recorded, const struct ct_sql_steps_wanted *wanted)
{
  struct ct_sql_search *search = calloc(1, sizeof(*search));
  if (search == NULL) {
    return NULL;
  }
  search->recorded = recorded;
  search->wanted = wanted;
  int code = choose(search);
  bool asks = search->selected.has_ranges ||
              (wanted->table == CT_SQL_STEP_WRITES && (wanted->has_address || wanted->has_bytes));
  if (code == 0 && asks && recorded->index == NULL && ct_steps_index_is_worth(recorded->reader)) {
    code = ct_steps_index_open(recorded->reader, &recorded->index);
  }
  search->cursor = code == 0 ? ct_steps_cursor_open(recorded->reader) : NULL;
  if (search->cursor == NULL) {
    ct_sql_search_close(search);
    return NULL;
  }
  return search;
}

void
ct_sql_search_close(struct ct_sql_search *search)
{
  if (search != NULL) {
    ct_steps_cursor_close(search->cursor);
    ct_steps_selected_free(&search->selected);
    free(search);
  }
}

/* Of a step in the block; a row that stands between two steps may be in the block after, or before. */
static bool
has_selected(const struct ct_sql_search *search, size_t block)
{
  const struct ct_steps_index *index = search->recorded->index;
  bool between = search->wanted->table != CT_SQL_STEPS;
  return ct_steps_selected_in_block(&search->selected, index, block) ||
         (between && block > 0 && ct_steps_selected_in_block(&search->selected, index, block - 1)) ||
         (between && block + 1 < ct_steps_reader_blocks(search->recorded->reader) &&
          ct_steps_selected_in_block(&search->selected, index, block + 1));
}

/* No step of the block has a later time: that of the next one's begin. The end of a system call is in no block's head.
 */
static uint64_t
last_tsc(const struct ct_steps_reader *reader, size_t block)
{
  const struct ct_steps_place *place = ct_steps_reader_place(reader, block);
  const struct ct_steps_place *next =
      block + 1 < ct_steps_reader_blocks(reader) ? ct_steps_reader_place(reader, block + 1) : NULL;
  return next != NULL && next->first_tsc >= place->last_tsc && next->first_tsc != 0 ? next->first_tsc : UINT64_MAX;
}

bool
ct_sql_search_may(const struct ct_sql_search *search, size_t block)
{
  const struct ct_sql_steps_wanted *wanted = search->wanted;
  const struct ct_steps_place *place = ct_steps_reader_place(search->recorded->reader, block);
  const struct ct_steps_index *index = search->recorded->index;
  if ((place->first_step != 0 && place->first_step - 1 > wanted->to) ||
      place->first_step + place->steps < wanted->from) {
    return false;
  }
  uint64_t last = last_tsc(search->recorded->reader, block);
  if (place->first_tsc != 0 &&
      (ct_sql_recorded_time(search->recorded, place->first_tsc) - 2 > wanted->to_ns ||
       (last != UINT64_MAX && ct_sql_recorded_time(search->recorded, last) + 2 < wanted->from_ns))) {
    return false;
  }
  if (index == NULL) {
    return true;
  }
  if (search->selected.has_ranges && !has_selected(search, block)) {
    return false;
  }
  if (wanted->table != CT_SQL_STEP_WRITES) {
    return true;
  }
  return (!wanted->has_address ||
          ct_steps_index_may_write(index, block, wanted->address, wanted->address_end - wanted->address + 1)) &&
         (!wanted->has_bytes ||
          ct_steps_index_may_write(index, block, wanted->bytes, wanted->bytes_end - wanted->bytes + 1));
}

/* ---- rows ---- */

struct ct_sql_row *
ct_sql_add_row(struct ct_sql_search *search, uint64_t step, uint64_t pc, enum ct_sql_row_by by)
{
  struct ct_sql_step_rows *rows = search->way.rows;
  const struct ct_sql_steps_wanted *wanted = search->wanted;
  if (step < wanted->from || step > wanted->to) {
    return NULL;
  }
  if (rows->count == rows->capacity) {
    size_t capacity = rows->capacity == 0 ? 256 : 2 * rows->capacity;
    struct ct_sql_row *grown = reallocarray(rows->rows, capacity, sizeof(*grown));
    if (grown == NULL) {
      rows->failed = true;
      return NULL;
    }
    rows->rows = grown;
    rows->capacity = capacity;
  }
  struct ct_sql_row *row = &rows->rows[rows->count++];
  memset(row, 0, sizeof(*row));
  row->step = step;
  row->pc = pc;
  row->tsc = search->way.tsc;
  row->by = (uint8_t)by;
  return row;
}

void
ct_sql_set_code(struct ct_sql_row *row, const uint8_t *code, uint8_t length)
{
  row->length = length <= sizeof(row->code) ? length : 0;
  memcpy(row->code, code, row->length);
}

static uint64_t
hash_bytes(uint64_t hash, const uint8_t *bytes, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
  }
  return hash;
}

/* Not of times or code: for rows between two steps these depend on where the search began. */
uint64_t
ct_sql_step_row_hash(enum ct_sql_steps_table table, const struct ct_sql_row *row)
{
  uint64_t hash = hash_bytes(UINT64_C(0xCBF29CE484222325), &row->by, 1);
  switch (table) {
  case CT_SQL_STEP_WRITES:
    hash = hash_bytes(hash, (const uint8_t *)&row->write.address, 3 * sizeof(uint64_t));
    return hash_bytes(hash, row->write.bytes, row->write.known);
  case CT_SQL_STEP_CHANGES:
    return hash_bytes(hash, &row->change.reg, 1);
  case CT_SQL_STEP_VECTORS:
    return hash_bytes(hash, &row->vector.reg, 1);
  case CT_SQL_STEP_EVENTS:
    hash = hash_bytes(hash, (const uint8_t *)&row->event.address, 2 * sizeof(uint64_t));
    hash = hash_bytes(hash, (const uint8_t *)&row->event.number, 2 * sizeof(int32_t));
    return hash_bytes(hash, &row->event.kind, 1);
  default:
    return hash;
  }
}

static void
take_registers(struct ct_sql_registers *to, const struct ct_steps_state *state)
{
  memcpy(to->value, state->cpu.reg, 16 * sizeof(uint64_t));
  to->value[CT_SQL_FLAGS] = state->cpu.flags;
  to->unknown = state->unknown | (uint32_t)(state->cpu.unknown != 0) << CT_SQL_FLAGS;
}

static void
add_step(struct ct_sql_search *search, const struct ct_steps_step *step)
{
  struct ct_sql_row *row = ct_sql_add_row(search, step->number, step->pc, CT_SQL_BY_STEP);
  if (row != NULL) {
    ct_sql_set_code(row, step->code, step->length);
    row->made.before = search->way.before;
    row->made.load_address = step->did.load_address;
    row->made.load_size = step->did.load_size;
    row->made.loaded = step->did.loaded;
  }
}

/* ---- writes ---- */

static bool
is_wanted_store(const struct ct_sql_steps_wanted *wanted, uint64_t address, uint64_t size)
{
  uint64_t last = address + size - 1 < address ? UINT64_MAX : address + size - 1;
  if (wanted->has_address && (size == 0 || address < wanted->address || address > wanted->address_end)) {
    return false;
  }
  return !wanted->has_bytes || (size != 0 && address <= wanted->bytes_end && last >= wanted->bytes);
}

static void
add_stores(struct ct_sql_search *search, const struct ct_steps_step *step, const struct ct_steps_state *after)
{
  uint8_t bytes[CT_STEPS_VECTOR_BYTES];
  for (unsigned i = 0; i < step->did.store_count; i++) {
    const struct ct_mem_store *store = &step->did.stores[i];
    uint64_t all = ct_mem_store_bytes(store);
    if ((store->count == 0 && store->size != 0) || !is_wanted_store(search->wanted, store->address, all)) {
      continue;
    }
    struct ct_sql_row *row = ct_sql_add_row(search, step->number, step->pc, CT_SQL_BY_STEP);
    if (row == NULL) {
      return;
    }
    ct_sql_set_code(row, step->code, step->length);
    row->write.address = store->address;
    row->write.size = store->size;
    row->write.count = store->count;
    row->write.perhaps = store->part;
    size_t known = ct_steps_stored(step->effects, store, after, bytes);
    for (size_t at = 0; known != 0 && all <= CT_SQL_BYTES_MAX && at < all; at++) {
      row->write.bytes[at] = bytes[at % known];
    }
    row->write.known = known != 0 && all <= CT_SQL_BYTES_MAX ? (uint32_t)all : 0;
  }
}

/* By the kernel, in the step before the event. */
static void
add_kernel_write(struct ct_sql_search *search, const struct ct_steps_event *event)
{
  struct ct_stream_memory memory;
  memcpy(&memory, event->data, sizeof(memory));
  uint64_t step = event->step > 0 ? event->step - 1 : 0;
  if (!is_wanted_store(search->wanted, memory.address, memory.size)) {
    return;
  }
  struct ct_sql_row *row = ct_sql_add_row(search, step, 0, CT_SQL_BY_KERNEL);
  if (row == NULL) {
    return;
  }
  row->write.address = memory.address;
  row->write.size = memory.size;
  row->write.count = 1;
  if (event->bytes >= sizeof(memory) + memory.size && memory.size <= CT_SQL_BYTES_MAX) {
    row->write.known = (uint32_t)memory.size;
    memcpy(row->write.bytes, event->data + sizeof(memory), memory.size);
  }
  if (search->way.last_step == step && search->way.last_length != 0) {
    row->pc = search->way.last_pc;
    ct_sql_set_code(row, search->way.last_code, search->way.last_length);
  }
}

/* Rows of the kernel's writes in a step that is reported only after them. */
static void
place_rows(struct ct_sql_search *search, const struct ct_steps_step *step)
{
  for (size_t i = search->way.unplaced; i < search->way.rows->count; i++) {
    struct ct_sql_row *row = &search->way.rows->rows[i];
    if (row->step == step->number && row->length == 0) {
      row->pc = step->pc;
      ct_sql_set_code(row, step->code, step->length);
    }
  }
}

/* ---- changes ---- */

static void
add_change(struct ct_sql_search *search, uint64_t step, uint64_t pc, unsigned reg, const struct ct_sql_registers *after,
           enum ct_sql_row_by by)
{
  const struct ct_sql_steps_wanted *wanted = search->wanted;
  struct ct_sql_row *row =
      wanted->reg < 0 || (unsigned)wanted->reg == reg ? ct_sql_add_row(search, step, pc, by) : NULL;
  if (row == NULL) {
    return;
  }
  row->change.reg = (uint8_t)reg;
  row->change.value = after->value[reg];
  row->change.value_known = (after->unknown >> reg & 1) == 0;
  row->change.old = search->way.before.value[reg];
  row->change.old_known = (search->way.before.unknown >> reg & 1) == 0 && by != CT_SQL_BY_BEGIN;
}

static bool
differ(const struct ct_sql_registers *a, const struct ct_sql_registers *b, unsigned reg)
{
  return a->value[reg] != b->value[reg] || ((a->unknown ^ b->unknown) >> reg & 1) != 0;
}

static void
add_changes(struct ct_sql_search *search, const struct ct_steps_step *step, const struct ct_sql_registers *after)
{
  const struct ct_effects *e = step->effects;
  uint32_t written = e != NULL ? e->writes | (uint32_t)(e->flags_written != 0) << CT_SQL_FLAGS : 0;
  for (unsigned reg = 0; reg < CT_SQL_REGISTERS; reg++) {
    if ((written >> reg & 1) == 0 && (step->plan != NULL || !differ(&search->way.before, after, reg))) {
      continue;
    }
    size_t count = search->way.rows->count;
    add_change(search, step->number, step->pc, reg, after, CT_SQL_BY_STEP);
    if (search->way.rows->count != count) {
      ct_sql_set_code(&search->way.rows->rows[count], step->code, step->length);
    }
  }
}

static enum ct_sql_row_by
by_context(uint32_t reason)
{
  return reason == CT_CONTEXT_HANDLER ? CT_SQL_BY_SIGNAL
         : reason == CT_CONTEXT_EXEC  ? CT_SQL_BY_EXEC
         : reason == CT_CONTEXT_GAP   ? CT_SQL_BY_GAP
                                      : CT_SQL_BY_BEGIN;
}

/* ---- events ---- */

static void
add_event(struct ct_sql_search *search, const struct ct_steps_event *event)
{
  struct ct_stream_signal signal;
  struct ct_stream_memory memory;
  struct ct_stream_end end;
  struct ct_stream_context context;
  struct ct_stream_gap gap;
  if (event->kind == CT_STREAM_CONTEXT) {
    memcpy(&context, event->data, sizeof(context));
    if (context.reason == CT_CONTEXT_SEGMENT || context.reason == CT_CONTEXT_STEP) {
      return; /* nothing has happened */
    }
  }
  struct ct_sql_row *row = ct_sql_add_row(search, event->step, 0, CT_SQL_BY_STEP);
  if (row == NULL) {
    return;
  }
  row->event.kind = event->kind;
  if (event->kind == CT_STREAM_CONTEXT) {
    row->by = (uint8_t)by_context(context.reason);
    row->tsc = context.tsc;
    row->event.address = context.rip;
  } else if (event->kind == CT_STREAM_SIGNAL) {
    memcpy(&signal, event->data, sizeof(signal));
    row->tsc = signal.tsc;
    row->event.address = signal.address;
    row->event.number = signal.signal;
    row->event.code = signal.code;
  } else if (event->kind == CT_STREAM_MEMORY) {
    memcpy(&memory, event->data, sizeof(memory));
    row->event.address = memory.address;
    row->event.size = memory.size;
  } else if (event->kind == CT_STREAM_GAP) {
    memcpy(&gap, event->data, sizeof(gap));
    row->tsc = gap.tsc;
    row->event.size = gap.bytes;
  } else if (event->kind == CT_STREAM_END) {
    memcpy(&end, event->data, sizeof(end));
    row->tsc = end.tsc;
    row->event.number = (int32_t)end.reason;
    row->event.code = ct_stream_end_code(&end);
  }
}

/* ---- the way ---- */

/* What lies between steps belongs to the one before, or the one after. */
static uint64_t
end_of(const struct ct_sql_search *search)
{
  return search->wanted->to < UINT64_MAX - 2 ? search->wanted->to + 2 : UINT64_MAX;
}

static bool
visit_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct ct_sql_search *search = context;
  struct ct_sql_registers after;
  const struct ct_steps_state *state = ct_steps_cursor_state(cursor);
  enum ct_sql_steps_table table = search->wanted->table;
  search->way.tsc = step->tsc;
  bool wanted = ct_steps_selected_has(&search->selected, step->pc);
  if (table == CT_SQL_STEP_WRITES) {
    place_rows(search, step);
    if (wanted) {
      add_stores(search, step, state);
    }
    search->way.last_step = step->number;
    search->way.last_pc = step->pc;
    search->way.last_length = step->length <= sizeof(search->way.last_code) ? step->length : 0;
    memcpy(search->way.last_code, step->code, search->way.last_length);
    search->way.unplaced = search->way.rows->count;
  } else if (table == CT_SQL_STEP_VECTORS) {
    ct_sql_add_vectors(search, step, state, wanted);
  } else if (table != CT_SQL_STEP_EVENTS) {
    if (wanted && table == CT_SQL_STEPS) {
      add_step(search, step);
    } else if (wanted) {
      take_registers(&after, state);
      add_changes(search, step, &after);
    }
    if (state->rip_unknown || ct_steps_selected_has(&search->selected, state->cpu.rip)) {
      take_registers(&search->way.before, state); /* what comes next is wanted */
    }
  }
  return !search->way.rows->failed && (search->way.rows->count < AT_ONCE || search->wanted->descending);
}

static void
visit_event(void *argument, const struct ct_steps_event *event)
{
  struct ct_sql_search *search = argument;
  struct ct_stream_context context;
  struct ct_steps_state state;
  struct ct_sql_registers after;
  enum ct_sql_steps_table table = search->wanted->table;
  if (table == CT_SQL_STEP_EVENTS) {
    add_event(search, event);
  } else if (table == CT_SQL_STEP_WRITES && event->kind == CT_STREAM_MEMORY) {
    add_kernel_write(search, event);
  }
  if (event->kind != CT_STREAM_CONTEXT) {
    return;
  }
  memcpy(&context, event->data, sizeof(context));
  search->way.tsc = context.tsc;
  if (context.reason == CT_CONTEXT_STEP) {
    return; /* what a step made, which is reported after this */
  }
  ct_steps_take_context(&state, event->data);
  if (table == CT_SQL_STEP_VECTORS) {
    ct_sql_add_vectors_of_context(search, event->step, &state, context.reason != CT_CONTEXT_SEGMENT,
                                  by_context(context.reason));
    return;
  }
  take_registers(&after, &state);
  for (unsigned reg = 0; table == CT_SQL_STEP_CHANGES && context.reason != CT_CONTEXT_SEGMENT && reg < CT_SQL_REGISTERS;
       reg++) {
    add_change(search, event->step, context.rip, reg, &after, by_context(context.reason));
  }
  search->way.before = after;
}

/* To the first step that is wanted, by the index if it is there; false: it is not far, or rows lie between steps. */
static bool
go_to_first(struct ct_sql_search *search, size_t block)
{
  enum { FAR = 100000 };
  struct ct_sql_recorded *recorded = search->recorded;
  enum ct_sql_steps_table table = search->wanted->table;
  uint64_t from = search->wanted->from >= 2 ? search->wanted->from - 2 : 0;
  bool by_steps = table == CT_SQL_STEPS || table == CT_SQL_STEP_CHANGES || table == CT_SQL_STEP_VECTORS;
  if (!by_steps || from < ct_steps_reader_place(recorded->reader, block)->first_step + FAR ||
      (recorded->index == NULL && !ct_steps_index_load(recorded->reader, &recorded->index))) {
    return false;
  }
  ct_steps_cursor_use_index(search->cursor, recorded->index);
  if (!ct_steps_cursor_seek(search->cursor, from) || ct_steps_cursor_block(search->cursor) != block) {
    return false;
  }
  const struct ct_steps_state *state = ct_steps_cursor_state(search->cursor);
  search->way.tsc = ct_steps_cursor_tsc(search->cursor);
  take_registers(&search->way.before, state);
  if (table == CT_SQL_STEP_VECTORS) {
    ct_sql_add_vectors_of_context(search, from, state, false, CT_SQL_BY_STEP);
  }
  return true;
}

bool
ct_sql_search_block(struct ct_sql_search *search, size_t block, struct ct_sql_step_rows *rows)
{
  const struct ct_steps_place *place = ct_steps_reader_place(search->recorded->reader, block);
  rows->count = 0;
  search->way = (struct ct_sql_way){.rows = rows, .tsc = place->first_tsc};
  if (search->wanted->table == CT_SQL_STEP_BLOCKS) {
    struct ct_sql_row *row = ct_sql_add_row(search, place->first_step, 0, CT_SQL_BY_STEP);
    if (row != NULL) {
      row->block = block;
    }
    return false;
  }
  ct_steps_cursor_events(search->cursor, visit_event, search);
  if (go_to_first(search, block)) {
    return ct_steps_cursor_resume(search->cursor, end_of(search), visit_step, search) && !rows->failed;
  }
  return ct_steps_cursor_scan(search->cursor, block, end_of(search), visit_step, search) && !rows->failed;
}

bool
ct_sql_search_more(struct ct_sql_search *search, struct ct_sql_step_rows *rows)
{
  rows->count = search->way.unplaced = 0;
  return ct_steps_cursor_resume(search->cursor, end_of(search), visit_step, search) && !rows->failed;
}
