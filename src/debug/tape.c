/* SPDX-License-Identifier: MIT */
/*
 * See tape.h. A search goes over one block after the other, and leaves out those in which, by the index, no breakpoint
 * is executed and nothing watched is touched.
 */
#include "debug/tape.h"

#include "steps/memory.h"

#include <stdlib.h>
#include <string.h>

enum { FEW_BLOCKS = 24 };

/* ---- life ---- */

static void
find_signal(void *context, const struct ct_steps_event *event)
{
  struct ct_tape *tape = context;
  struct ct_stream_signal signal;
  if (event->kind == CT_STREAM_SIGNAL && event->step >= tape->steps) {
    memcpy(&signal, event->data, sizeof(signal));
    tape->signal = signal.signal > 0 && signal.signal < 65 ? signal.signal : 0;
    tape->signal_pc = signal.pc;
  }
}

static bool
pass(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  (void)context;
  (void)step;
  (void)cursor;
  return true;
}

int
ct_tape_open(const char *path, struct ct_tape *tape, struct ct_diag *diag)
{
  const struct ct_steps_modules *modules;
  *tape = (struct ct_tape){.reader = NULL};
  int code = ct_steps_reader_open(path, &tape->reader, diag);
  if (code != 0) {
    return code;
  }
  tape->steps = ct_steps_reader_steps(tape->reader);
  tape->cursor = ct_steps_cursor_open(tape->reader);
  if (!ct_steps_index_load(tape->reader, &tape->index)) {
    tape->index = NULL; /* it is made when it is of use */
  }
  size_t maps = ct_steps_reader_modules(tape->reader, &modules);
  if (tape->cursor == NULL || ct_image_read(maps != 0 ? modules[maps - 1].text : "", &tape->image) != 0) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory");
  } else if (tape->steps == 0) {
    code = ct_fail(diag, CT_EFORMAT, "%s: no instruction is recorded in it", path);
  }
  if (code != 0) {
    ct_tape_close(tape);
    return code;
  }
  ct_steps_cursor_events(tape->cursor, find_signal, tape);
  ct_steps_cursor_scan(tape->cursor, ct_steps_reader_blocks(tape->reader) - 1, UINT64_MAX, pass, NULL);
  ct_steps_cursor_events(tape->cursor, NULL, NULL);
  if (tape->signal != 0 && tape->steps > 1 && ct_steps_cursor_seek(tape->cursor, tape->steps - 1) &&
      ct_steps_cursor_state(tape->cursor)->cpu.rip == tape->signal_pc) {
    tape->steps--; /* the last one is the instruction that did not end */
  }
  ct_tape_go(tape, tape->steps);
  return 0;
}

void
ct_tape_close(struct ct_tape *tape)
{
  ct_image_free(&tape->image);
  ct_steps_index_close(tape->index);
  ct_steps_cursor_close(tape->cursor);
  ct_steps_reader_close(tape->reader);
}

/* ---- a place ---- */

void
ct_tape_go(struct ct_tape *tape, uint64_t step)
{
  tape->at = step < tape->steps ? step : tape->steps;
  ct_steps_cursor_use_index(tape->cursor, tape->index);
  if (tape->at < ct_steps_reader_steps(tape->reader)) {
    ct_steps_cursor_seek(tape->cursor, tape->at);
  } else if (ct_steps_cursor_seek(tape->cursor, tape->steps - 1)) {
    while (ct_steps_cursor_next(tape->cursor) != NULL) { /* and what is told behind it: where a signal came */
    }
  }
}

const struct ct_steps_state *
ct_tape_state(const struct ct_tape *tape)
{
  return ct_steps_cursor_state(tape->cursor);
}

size_t
ct_tape_memory(struct ct_tape *tape, uint64_t address, uint8_t *bytes, size_t size)
{
  uint8_t known[CT_STEPS_MEMORY_MAX];
  size = size < sizeof(known) ? size : sizeof(known);
  size_t constant = ct_image_memory(&tape->image, address, bytes, size), count = 0;
  if (constant != 0) {
    return constant;
  }
  if (ct_steps_memory(tape->reader, &tape->index, address, size, tape->at, bytes, known) != 0) {
    return 0;
  }
  while (count < size && known[count] != 0) {
    count++;
  }
  return count;
}

/* ---- stops ---- */

static size_t
find_stop(const struct ct_tape *tape, const struct ct_tape_stop *stop)
{
  size_t i = 0;
  while (i < tape->stop_count && (tape->stops[i].kind != stop->kind || tape->stops[i].address != stop->address ||
                                  tape->stops[i].size != stop->size)) {
    i++;
  }
  return i;
}

bool
ct_tape_add(struct ct_tape *tape, const struct ct_tape_stop *stop)
{
  if (find_stop(tape, stop) < tape->stop_count) {
    return true;
  }
  if (tape->stop_count == CT_TAPE_STOPS_MAX) {
    return false;
  }
  tape->stops[tape->stop_count++] = *stop;
  return true;
}

bool
ct_tape_remove(struct ct_tape *tape, const struct ct_tape_stop *stop)
{
  size_t at = find_stop(tape, stop);
  if (at == tape->stop_count) {
    return false;
  }
  tape->stops[at] = tape->stops[--tape->stop_count];
  tape->hit = NULL;
  return true;
}

static bool
overlaps(uint64_t address, uint64_t bytes, const struct ct_tape_stop *stop)
{
  return address - stop->address < stop->size || stop->address - address < bytes;
}

static bool
is_touched(const struct ct_tape_stop *stop, const struct ct_steps_step *step)
{
  if (stop->kind != CT_TAPE_WRITTEN && step->did.load_size != 0 &&
      overlaps(step->did.load_address, step->did.load_size, stop)) {
    return true;
  }
  for (unsigned i = 0; i < step->did.store_count && stop->kind != CT_TAPE_READ; i++) {
    const struct ct_mem_store *store = &step->did.stores[i];
    if (store->size != 0 && overlaps(store->address, store->count * store->size, stop)) {
      return true;
    }
  }
  return false;
}

/* ---- searches ---- */

/* The nearest place where it stops: before a breakpoint's step; at a watchpoint's, behind it, or before it going back.
 */
struct search {
  struct ct_tape *tape;
  bool back, found;
  uint64_t place, last; /* last: the step that the scan came to */
  const struct ct_tape_stop *hit;
};

/* Is it in the way that is searched? */
static bool
take(struct search *search, uint64_t place, const struct ct_tape_stop *hit)
{
  uint64_t at = search->tape->at;
  if (search->back ? place >= at : place <= at) {
    return false;
  }
  search->found = true;
  search->place = place;
  search->hit = hit;
  return !search->back;
}

static bool
visit_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct search *search = context;
  const struct ct_tape *tape = search->tape;
  (void)cursor;
  search->last = step->number;
  for (size_t i = 0; i < tape->stop_count; i++) {
    const struct ct_tape_stop *stop = &tape->stops[i];
    if (stop->kind == CT_TAPE_BREAK && step->pc == stop->address && take(search, step->number, NULL)) {
      return false;
    }
  }
  for (size_t i = 0; i < tape->stop_count; i++) {
    const struct ct_tape_stop *stop = &tape->stops[i];
    if (stop->kind != CT_TAPE_BREAK && is_touched(stop, step) &&
        take(search, search->back ? step->number : step->number + 1, stop)) {
      return false;
    }
  }
  return true;
}

/* What the kernel wrote was written by the step before. */
static void
visit_event(void *context, const struct ct_steps_event *event)
{
  struct search *search = context;
  struct ct_stream_memory memory;
  if (event->kind != CT_STREAM_MEMORY || event->step == 0 || (search->found && !search->back)) {
    return;
  }
  memcpy(&memory, event->data, sizeof(memory));
  for (size_t i = 0; i < search->tape->stop_count; i++) {
    const struct ct_tape_stop *stop = &search->tape->stops[i];
    if ((stop->kind == CT_TAPE_WRITTEN || stop->kind == CT_TAPE_ACCESSED) &&
        overlaps(memory.address, memory.size, stop)) {
      take(search, search->back ? event->step - 1 : event->step, stop);
    }
  }
}

static bool
may_run(struct ct_tape *tape, size_t block, uint64_t address)
{
  struct ct_units *units = ct_steps_reader_units(tape->reader);
  for (size_t i = 0; i < ct_units_count(units); i++) {
    const struct ct_steps_plan *plan = ct_units_item(units, i);
    if (ct_steps_plan_touches(plan, address, address + 1) && ct_steps_index_may_run(tape->index, block, plan->id)) {
      return true;
    }
  }
  return false;
}

static bool
may_stop(struct ct_tape *tape, size_t block)
{
  if (tape->index == NULL || ct_steps_index_has_alone(tape->index, block)) {
    return true;
  }
  bool may = false;
  for (size_t i = 0; i < tape->stop_count && !may; i++) {
    const struct ct_tape_stop *stop = &tape->stops[i];
    may = stop->kind == CT_TAPE_BREAK     ? may_run(tape, block, stop->address)
          : stop->kind == CT_TAPE_WRITTEN ? ct_steps_index_may_write(tape->index, block, stop->address, stop->size)
                                          : ct_steps_index_may_touch(tape->index, block, stop->address, stop->size);
  }
  return may;
}

static enum ct_tape_end
leave_at(struct ct_tape *tape, const struct search *search)
{
  if (search->found) {
    ct_tape_go(tape, search->place);
    tape->hit = search->hit;
    return CT_TAPE_STOPPED;
  }
  ct_tape_go(tape, search->back ? 0 : tape->steps);
  return search->back ? CT_TAPE_AT_BEGIN : CT_TAPE_AT_END;
}

enum ct_tape_end
ct_tape_continue(struct ct_tape *tape, bool back)
{
  struct search search = {.tape = tape, .back = back};
  size_t blocks = ct_steps_reader_blocks(tape->reader), read = 0;
  size_t block = ct_steps_reader_find(tape->reader, tape->at);
  tape->hit = NULL;
  if (tape->stop_count == 0) {
    return leave_at(tape, &search);
  }
  ct_steps_cursor_events(tape->cursor, visit_event, &search);
  for (; block < blocks && !search.found; block += back ? SIZE_MAX : 1) {
    if (tape->is_asked != NULL && tape->is_asked(tape->context)) {
      ct_steps_cursor_events(tape->cursor, NULL, NULL);
      ct_tape_go(tape, ct_steps_reader_place(tape->reader, block)->first_step);
      return CT_TAPE_INTERRUPTED;
    }
    if (++read > FEW_BLOCKS && tape->index == NULL && ct_steps_index_open(tape->reader, &tape->index) != 0) {
      tape->index = NULL;
    }
    if (may_stop(tape, block)) {
      ct_steps_cursor_scan(tape->cursor, block, back ? tape->at : UINT64_MAX, visit_step, &search);
    }
  }
  ct_steps_cursor_events(tape->cursor, NULL, NULL);
  return leave_at(tape, &search);
}

enum ct_tape_end
ct_tape_step(struct ct_tape *tape, bool back)
{
  tape->hit = NULL;
  if (back ? tape->at == 0 : tape->at >= tape->steps) {
    return back ? CT_TAPE_AT_BEGIN : CT_TAPE_AT_END;
  }
  ct_tape_go(tape, back ? tape->at - 1 : tape->at + 1);
  return CT_TAPE_STEPPED;
}
