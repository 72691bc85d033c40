/* SPDX-License-Identifier: MIT */
/*
 * Who last wrote a register or some bytes of memory: blocks are read backwards. What was written a moment ago is in
 * the last ones; then an index says which blocks can be left out.
 */
#include "steps/sweep.h"

#include "base/branch.h"

#include <stdlib.h>
#include <string.h>

/* So many steps are read without an index that is not there; registers are written all the time, most of them. */
enum { MANY = 20000000 };

struct search {
  const struct ct_steps_target *target;
  uint64_t before;
  struct ct_steps_write found;
};

bool
ct_steps_parse_target(const char *text, struct ct_steps_target *target)
{
  char *end;
  *target = (struct ct_steps_target){.kind = CT_STEPS_REGISTER};
  text += text[0] == '%';
  for (unsigned reg = 0; reg < 16; reg++) {
    if (strcmp(text, ct_steps_register_name(reg)) == 0) {
      target->reg = reg;
      return true;
    }
  }
  if (strcmp(text, "rflags") == 0 || strcmp(text, "eflags") == 0) {
    target->kind = CT_STEPS_FLAGS;
    return true;
  }
  if (strlen(text) > 3 && strchr("xyz", text[0]) != NULL && text[1] == 'm' && text[2] == 'm') {
    unsigned long reg = strtoul(text + 3, &end, 10);
    target->kind = CT_STEPS_VECTOR_REGISTER;
    target->reg = (unsigned)reg;
    return *end == 0 && reg < CT_STEPS_VECTORS && text[3] >= '0' && text[3] <= '9';
  }
  target->kind = CT_STEPS_MEMORY_BYTES;
  target->size = 8;
  if (text[0] < '0' || text[0] > '9') {
    return false;
  }
  target->address = strtoull(text, &end, 0);
  if (*end == ':' && end[1] >= '0' && end[1] <= '9') {
    target->size = strtoull(end + 1, &end, 0);
  }
  return *end == 0 && target->size != 0 && target->size <= 4096 && target->address + target->size > target->address;
}

static bool
writes(const struct ct_steps_step *step, const struct ct_steps_target *target)
{
  const struct ct_effects *e = step->effects;
  switch (target->kind) {
  case CT_STEPS_REGISTER:
    return e == NULL || (e->writes >> target->reg & 1) != 0;
  case CT_STEPS_FLAGS:
    return e == NULL || e->flags_written != 0 || (e->traits & CT_EFFECT_WRITES_DF) != 0;
  case CT_STEPS_VECTOR_REGISTER:
    return e == NULL || (e->vectors_written >> target->reg & 1) != 0;
  default:
    for (unsigned i = 0; i < step->did.store_count; i++) {
      const struct ct_mem_store *store = &step->did.stores[i];
      if (ct_steps_target_meets(target, store->address, ct_mem_store_bytes(store))) {
        return true;
      }
    }
    return false;
  }
}

static bool
visit_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct search *search = context;
  (void)cursor;
  if (CT_UNLIKELY(writes(step, search->target))) {
    search->found.kind = CT_STEPS_WRITE_STEP;
    search->found.step = step->number;
  }
  return true;
}

static void
visit_event(void *context, const struct ct_steps_event *event)
{
  struct search *search = context;
  struct ct_stream_memory memory;
  struct ct_stream_context state;
  if (event->step > search->before) {
    return;
  }
  if (event->kind == CT_STREAM_MEMORY && search->target->kind == CT_STEPS_MEMORY_BYTES && event->step > 0) {
    memcpy(&memory, event->data, sizeof(memory));
    if (ct_steps_target_meets(search->target, memory.address, memory.size)) {
      search->found.kind = CT_STEPS_WRITE_KERNEL;
      search->found.step = event->step - 1;
    }
  }
  bool is_memory = search->target->kind == CT_STEPS_MEMORY_BYTES, comes_with_context = false;
  if (ct_steps_is_gap(event)) {
    comes_with_context = true; /* the context follows at once */
    ct_steps_write_gap(&search->found, event->step);
  } else if (event->kind == CT_STREAM_CONTEXT) {
    memcpy(&state, event->data, sizeof(state));
    comes_with_context =
        state.reason == CT_CONTEXT_HANDLER || state.reason == CT_CONTEXT_EXEC || state.reason == CT_CONTEXT_BEGIN;
  }
  if (comes_with_context && !is_memory) {
    search->found.kind = CT_STEPS_WRITE_CONTEXT;
    search->found.step = event->step;
  }
}

static bool
may_write(const struct ct_steps_index *index, size_t chunk, const struct ct_steps_target *target)
{
  if (target->kind == CT_STEPS_MEMORY_BYTES) {
    return ct_steps_index_chunk_writes(index, chunk, target->address, target->size);
  }
  unsigned first = target->kind == CT_STEPS_FLAGS             ? CT_STEPS_INDEX_FLAGS
                   : target->kind == CT_STEPS_VECTOR_REGISTER ? CT_STEPS_INDEX_VECTORS
                                                              : 0;
  return ct_steps_index_chunk_register(index, chunk, first + target->reg);
}

/* A block of which the index knows the chunks, from its end. */
static void
search_chunks(struct search *search, const struct ct_steps_reader *reader, const struct ct_steps_index *index,
              size_t block, struct ct_steps_cursor *cursor)
{
  const struct ct_steps_target *target = search->target;
  const struct ct_steps_place *place = ct_steps_reader_place(reader, block);
  size_t first, count = ct_steps_index_chunks(index, block, &first);
  uint64_t gap, end = place->first_step + place->steps;
  for (size_t chunk = first + count; chunk > first && search->found.kind == CT_STEPS_WRITE_NONE;) {
    uint64_t begin = ct_steps_index_chunk_step(index, --chunk);
    bool is_last = chunk + 1 == first + count; /* with the events at the block's end */
    if (begin > search->before) {
      end = begin;
      continue;
    }
    if (may_write(index, chunk, target)) {
      uint64_t to = is_last ? UINT64_MAX : end;
      ct_steps_cursor_scan_from(cursor, block, begin, to < search->before ? to : search->before, visit_step, search);
      ct_steps_cursor_pass_events(cursor);
    } else if (ct_steps_index_chunk_gap(index, chunk, &gap) && place->first_step + gap <= search->before) {
      ct_steps_write_gap(&search->found, place->first_step + gap);
    }
    end = begin;
  }
}

static void
scan_block(struct search *search, size_t block, struct ct_steps_cursor *cursor)
{
  ct_steps_cursor_scan(cursor, block, search->before, visit_step, search);
  ct_steps_cursor_pass_events(cursor);
}

/*
 * Memory, from *block backwards, without the index: by sweeps, over so many steps. After these, by an index of writes,
 * which takes not much longer than to sweep all the rest, and is there for the next question. *block becomes the last
 * one that was read.
 */
static int
search_memory(struct search *search, struct ct_steps_reader *reader, size_t *block, struct ct_steps_cursor *cursor)
{
  struct ct_steps_index *writes = NULL;
  size_t end = *block;
  uint64_t gap, last = ct_steps_reader_place(reader, *block)->first_step;
  while (end > 0 && last - ct_steps_reader_place(reader, end)->first_step < MANY) {
    end--;
  }
  if (end == 0 || !ct_steps_index_load_writes(reader, &writes)) {
    if (!ct_steps_sweep_back(reader, block, end, search->target, search->before, &search->found)) {
      scan_block(search, *block, cursor);
      return 0;
    }
    int code =
        *block == 0 || search->found.kind != CT_STEPS_WRITE_NONE ? 0 : ct_steps_index_open_writes(reader, &writes);
    if (writes == NULL) {
      return code;
    }
    --*block;
  }
  for (;; --*block) {
    size_t chunk;
    ct_steps_index_chunks(writes, *block, &chunk);
    const struct ct_steps_place *place = ct_steps_reader_place(reader, *block);
    if (ct_steps_index_chunk_writes(writes, chunk, search->target->address, search->target->size)) {
      if (!ct_steps_sweep_back(reader, block, *block, search->target, search->before, &search->found)) {
        scan_block(search, *block, cursor);
      }
    } else if (ct_steps_index_chunk_gap(writes, chunk, &gap) && place->first_step + gap <= search->before) {
      ct_steps_write_gap(&search->found, place->first_step + gap);
    }
    if (*block == 0 || search->found.kind != CT_STEPS_WRITE_NONE) {
      break;
    }
  }
  ct_steps_index_close(writes);
  return 0;
}

int
ct_steps_last_write(struct ct_steps_reader *reader, struct ct_steps_index **index, const struct ct_steps_target *target,
                    uint64_t before, struct ct_steps_write *write)
{
  struct search search = {.target = target, .before = before};
  struct ct_steps_cursor *cursor = ct_steps_cursor_open(reader);
  bool is_memory = target->kind == CT_STEPS_MEMORY_BYTES;
  int code = 0;
  if (cursor == NULL) {
    return CT_ENOMEM;
  }
  uint64_t end = 0; /* of the steps that are looked at */
  size_t block = ct_steps_reader_blocks(reader) != 0 ? ct_steps_reader_find(reader, before) + 1 : 0;
  ct_steps_cursor_events(cursor, visit_event, &search);
  while (block > 0 && search.found.kind == CT_STEPS_WRITE_NONE && code == 0 && !ct_steps_reader_is_over(reader)) {
    block--;
    const struct ct_steps_place *place = ct_steps_reader_place(reader, block);
    end = end != 0 ? end : place->first_step + place->steps;
    uint64_t read = end - (place->first_step + place->steps);
    code = ct_steps_index_want(reader, block, read, is_memory ? UINT64_MAX : MANY, index);
    ct_steps_cursor_use_index(cursor, *index);
    if (code != 0) {
      break;
    }
    if (*index != NULL) {
      search_chunks(&search, reader, *index, block, cursor);
    } else if (is_memory && ct_steps_index_is_due(reader, block, read)) {
      code = search_memory(&search, reader, &block, cursor);
    } else {
      scan_block(&search, block, cursor);
    }
  }
  code = code == 0 && ct_steps_reader_is_over(reader) ? CT_ECANCELED : code;
  ct_steps_cursor_close(cursor);
  *write = search.found;
  write->has_gap = write->has_gap && (write->kind == CT_STEPS_WRITE_NONE || write->gap > write->step);
  return code;
}
