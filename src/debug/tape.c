/* SPDX-License-Identifier: MIT */
/*
 * See tape.h. A search goes over one block after the other, and leaves out those chunks in which, by the index, no
 * breakpoint is executed and nothing watched is touched.
 */
#include "debug/tape.h"

#include "steps/memory.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_BLOCKS = 24, PAGE = 4096 };

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
    tape->signal_code = signal.code;
  }
}

/*
 * The last step is a branch to an address that is not canonical: the processor faults at the branch, and a debugger
 * that stands there has a function, a line and a frame. (Translated code branches first; docs/limits.md.)
 */
static bool
is_fault_of_branch(const struct ct_tape *tape)
{
  int64_t high = (int64_t)tape->signal_pc >> 47;
  return tape->signal == SIGSEGV && tape->signal_code == SI_KERNEL && high != 0 && high != -1;
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
      (ct_steps_cursor_state(tape->cursor)->cpu.rip == tape->signal_pc || is_fault_of_branch(tape))) {
    tape->steps--; /* the last one is the instruction that did not end */
  }
  ct_tape_go(tape, tape->steps);
  return 0;
}

void
ct_tape_close(struct ct_tape *tape)
{
  free(tape->span.bytes);
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
    while (ct_steps_cursor_next(tape->cursor) != NULL) { /* and what is reported after it: where a signal came */
    }
  }
}

const struct ct_steps_state *
ct_tape_state(const struct ct_tape *tape)
{
  return ct_steps_cursor_state(tape->cursor);
}

int
ct_tape_bytes(struct ct_tape *tape, uint64_t address, size_t size, uint8_t *bytes, uint8_t *known)
{
  memset(known, 0, size);
  for (size_t at = 0; at < size;) {
    uint64_t page = PAGE - (address + at) % PAGE;
    size_t left = page < size - at ? (size_t)page : size - at;
    size_t constant = ct_image_memory(&tape->image, address + at, bytes + at, left);
    memset(known + at, 1, constant);
    at += constant != 0 ? constant : left;
  }
  const uint8_t *open = memchr(known, 0, size), *last = memrchr(known, 0, size);
  if (open == NULL) {
    return 0;
  }
  size_t first = (size_t)(open - known), rest = (size_t)(last - open) + 1;
  uint8_t *value = malloc(2 * rest), *is_known = value + rest;
  int code = value != NULL
                 ? ct_steps_memory(tape->reader, &tape->index, address + first, rest, tape->at, value, is_known)
                 : CT_ENOMEM;
  for (size_t i = 0; i < rest && code == 0; i++) {
    if (known[first + i] == 0) {
      bytes[first + i] = value[i];
      known[first + i] = is_known[i];
    }
  }
  free(value);
  return code;
}

size_t
ct_tape_memory(struct ct_tape *tape, uint64_t address, uint8_t *bytes, size_t size)
{
  uint8_t known[PAGE];
  size = size < sizeof(known) ? size : sizeof(known);
  if (ct_tape_bytes(tape, address, size, bytes, known) != 0) {
    return 0;
  }
  const uint8_t *first = memchr(known, 0, size);
  return first != NULL ? (size_t)(first - known) : size;
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

/* The nearest place where it stops: before a breakpoint's step; at a watchpoint's, after it, or before it going back.
 */
struct search {
  struct ct_tape *tape;
  bool back, found;
  uint64_t place, last; /* last: the step that the scan came to */
  const struct ct_tape_stop *hit;
  uint32_t *units; /* that have a breakpoint; NULL: not looked for so far */
  size_t unit_count;
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

/* The units that have one of the breakpoints. False: out of memory. */
static bool
find_units(struct search *search)
{
  const struct ct_tape *tape = search->tape;
  struct ct_units *units = ct_steps_reader_units(tape->reader);
  size_t count = ct_units_count(units);
  search->units = search->units != NULL ? search->units : malloc((count + 1) * sizeof(*search->units));
  search->unit_count = 0;
  for (size_t i = 0; i < count && search->units != NULL; i++) {
    const struct ct_steps_plan *plan = ct_units_item(units, i);
    bool has = false;
    for (size_t k = 0; k < tape->stop_count && !has; k++) {
      uint64_t address = tape->stops[k].address;
      has = tape->stops[k].kind == CT_TAPE_BREAK && ct_steps_plan_touches(plan, address, address + 1);
    }
    if (has) {
      search->units[search->unit_count++] = plan->id;
    }
  }
  return search->units != NULL;
}

static bool
may_stop(const struct search *search, size_t chunk)
{
  const struct ct_tape *tape = search->tape;
  bool may = ct_steps_index_chunk_has_alone(tape->index, chunk);
  for (size_t i = 0; i < search->unit_count && !may; i++) {
    may = ct_steps_index_chunk_runs(tape->index, chunk, search->units[i]);
  }
  for (size_t i = 0; i < tape->stop_count && !may; i++) {
    const struct ct_tape_stop *stop = &tape->stops[i];
    if (stop->kind == CT_TAPE_WRITTEN) {
      may = ct_steps_index_chunk_writes(tape->index, chunk, stop->address, stop->size);
    } else if (stop->kind != CT_TAPE_BREAK) {
      may = ct_steps_index_chunk_touches(tape->index, chunk, stop->address, stop->size, NULL, 0);
    }
  }
  return may;
}

/* A block of which the index knows the chunks: those in which it may stop, in the way's order. */
static void
search_chunks(struct search *search, size_t block)
{
  struct ct_tape *tape = search->tape;
  size_t first, count = ct_steps_index_chunks(tape->index, block, &first);
  for (size_t i = 0; i < count && !search->found; i++) {
    size_t chunk = search->back ? first + count - 1 - i : first + i;
    uint64_t begin = ct_steps_index_chunk_step(tape->index, chunk), end = UINT64_MAX; /* with events at the end */
    if (chunk + 1 < first + count) {
      end = ct_steps_index_chunk_step(tape->index, chunk + 1);
    }
    if ((search->back ? begin <= tape->at : end >= tape->at) && may_stop(search, chunk)) {
      end = search->back && tape->at < end ? tape->at : end;
      ct_steps_cursor_scan_from(tape->cursor, block, begin, end, visit_step, search);
      ct_steps_cursor_pass_events(tape->cursor);
    }
  }
}

static void
search_block(struct search *search, size_t block)
{
  struct ct_tape *tape = search->tape;
  if (tape->index != NULL && (search->units != NULL || find_units(search))) {
    ct_steps_cursor_use_index(tape->cursor, tape->index);
    search_chunks(search, block);
  } else {
    ct_steps_cursor_scan(tape->cursor, block, search->back ? tape->at : UINT64_MAX, visit_step, search);
    ct_steps_cursor_pass_events(tape->cursor);
  }
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
      free(search.units);
      ct_steps_cursor_events(tape->cursor, NULL, NULL);
      ct_tape_go(tape, ct_steps_reader_place(tape->reader, block)->first_step);
      return CT_TAPE_INTERRUPTED;
    }
    if (++read > FEW_BLOCKS && tape->index == NULL && ct_steps_index_open(tape->reader, &tape->index) != 0) {
      tape->index = NULL;
    }
    search_block(&search, block);
  }
  free(search.units);
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
