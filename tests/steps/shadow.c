/* SPDX-License-Identifier: MIT */
/*
 * Is every writer of memory in the records? Of a program with one thread: what stores and system calls wrote, by its
 * steps, is kept; what the program then loads from there must be that. A load of something else was written by
 * something that is missing. Then who last wrote some hundred of these bytes, and of those around them, before some
 * steps, is asked by the index, and some of it without one: it must be who it was.
 *
 *   shadow FILE     1: there is such a load, or a wrong writer
 */
#include "base/error.h"
#include "steps/cursor.h"
#include "steps/sweep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, SLOTS = 1 << 20, SHOWN = 10, ASKED = 150, SWEPT_MAX = 40000000 /* steps, without an index */ };

struct page {
  uint64_t number; /* plus 1 */
  uint8_t value[PAGE], known[PAGE], is_kernel[PAGE];
  uint64_t writer[PAGE]; /* step of the last store or system call, plus 1; 0: none */
};

static struct page *pages[SLOTS];
static struct ct_steps_cursor *cursor;
static uint64_t loads, checked, wrong, kernel, asked, swept;

static struct page *
page_of(uint64_t address, bool make)
{
  uint64_t number = address / PAGE;
  size_t at = (size_t)(number * 0x9e3779b97f4a7c15ull >> 44) & (SLOTS - 1);
  while (pages[at] != NULL && pages[at]->number != number + 1) {
    at = (at + 1) & (SLOTS - 1);
  }
  if (pages[at] == NULL && make) {
    pages[at] = calloc(1, sizeof(struct page));
    if (pages[at] == NULL) {
      abort();
    }
    pages[at]->number = number + 1;
  }
  return pages[at];
}

static void
put(uint64_t address, const uint8_t *bytes, uint64_t have, uint64_t size)
{
  for (uint64_t i = 0; i < size; i++) {
    struct page *page = page_of(address + i, i < have);
    if (page == NULL) {
      i += PAGE - 1 - (address + i) % PAGE; /* nothing is known there */
      continue;
    }
    page->known[(address + i) % PAGE] = i < have;
    page->value[(address + i) % PAGE] = i < have ? bytes[i] : 0;
  }
}

static void
note_writer(uint64_t address, uint64_t size, uint64_t step, bool is_kernel)
{
  for (uint64_t i = 0; i < size && i < (1u << 28); i++) {
    struct page *page = page_of(address + i, true);
    page->writer[(address + i) % PAGE] = step + 1;
    page->is_kernel[(address + i) % PAGE] = is_kernel;
  }
}

/* The page that the kernel keeps the time in, for all processes; found in the lines of /proc/PID/maps. */
static bool
is_clock(struct ct_steps_reader *reader, uint64_t address)
{
  static uint64_t seen;
  if (address / PAGE == seen) {
    return true;
  }
  const struct ct_steps_modules *modules;
  size_t count = ct_steps_reader_modules(reader, &modules);
  for (size_t i = 0; i < count; i++) {
    for (const char *at = modules[i].text; (at = strstr(at, "[vvar")) != NULL; at++) {
      uint64_t start = 0, end = 0;
      const char *line = at;
      while (line > modules[i].text && line[-1] != '\n') {
        line--;
      }
      if (sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) == 2 && address >= start && address < end) {
        seen = address / PAGE;
        return true;
      }
    }
  }
  return false;
}

static void
load(struct ct_steps_reader *reader, const struct ct_steps_step *step)
{
  const uint8_t *bytes = (const uint8_t *)&step->did.loaded;
  uint64_t address = step->did.load_address;
  bool good = true;
  loads += step->did.load_size != 0;
  for (uint64_t i = 0; i < step->did.load_size; i++) {
    const struct page *page = page_of(address + i, true);
    bool known = page->known[(address + i) % PAGE] != 0;
    checked += known;
    good &= !known || page->value[(address + i) % PAGE] == bytes[i];
  }
  if (!good && !is_clock(reader, address) && wrong++ < SHOWN) {
    printf("step %" PRIu64 " at 0x%" PRIx64 " loads 0x%" PRIx64 " (%u bytes) from 0x%" PRIx64 "; known is",
           step->number, step->pc, step->did.loaded, step->did.load_size, address);
    for (uint64_t i = 0; i < step->did.load_size; i++) {
      printf(" %02x", page_of(address + i, true)->value[(address + i) % PAGE]);
    }
    printf("\n");
  }
  put(address, bytes, step->did.load_size, step->did.load_size);
}

static void
store(const struct ct_steps_step *step, const struct ct_mem_store *s)
{
  uint8_t bytes[CT_STEPS_VECTOR_BYTES];
  size_t known = ct_steps_stored(step->effects, s, ct_steps_cursor_state(cursor), bytes);
  if (s->size == 0) {
    printf("step %" PRIu64 " stores where is not known\n", step->number);
    wrong++;
  }
  for (uint64_t i = 0; i < s->count; i++) {
    put(s->address + i * s->size, bytes, known, s->size);
  }
  note_writer(s->address, s->count * s->size, step->number, false);
}

static void
visit_event(void *context, const struct ct_steps_event *event)
{
  struct ct_stream_memory memory;
  (void)context;
  if (event->kind == CT_STREAM_MEMORY) {
    memcpy(&memory, event->data, sizeof(memory));
    put(memory.address, event->data + sizeof(memory), event->bytes - sizeof(memory), memory.size);
    if (event->step > 0) {
      note_writer(memory.address, memory.size, event->step - 1, true);
    }
    kernel++;
  }
}

static uint64_t
random_number(void)
{
  static uint64_t chance = 88172645463325252ull;
  chance ^= chance << 13;
  chance ^= chance >> 7;
  chance ^= chance << 17;
  return chance >> 11;
}

/* The index of writes says exactly in which blocks: last is that of the last writer before `end`, or the one after it.
 */
static bool
is_indexed(struct ct_steps_reader *reader, uint64_t address, uint64_t size, uint64_t step, bool is_written, size_t end)
{
  static struct ct_steps_index *writes;
  bool is_there = !is_written, is_later = false;
  if (writes == NULL && ct_steps_index_open_writes(reader, &writes) != 0) {
    abort();
  }
  size_t first = is_written ? ct_steps_reader_find(reader, step) : 0;
  size_t last = is_written ? ct_steps_reader_find(reader, step + 1) : 0; /* the kernel's is told before the next step */
  for (size_t block = first; block <= last || block < end; block++) {
    size_t chunk, count = ct_steps_index_chunks(writes, block, &chunk);
    bool is_one = count == 1 && ct_steps_index_chunk_writes(writes, chunk, address, size);
    is_there |= is_one && block <= last;
    is_later |= is_one && (block > last || !is_written) && block < end;
  }
  return is_there && !is_later;
}

static void
ask(struct ct_steps_reader *reader, struct ct_steps_index **index, uint64_t address, uint64_t size, uint64_t before)
{
  const struct ct_steps_target target = {.kind = CT_STEPS_MEMORY_BYTES, .address = address, .size = size};
  struct ct_steps_write found;
  uint64_t last = 0;
  bool is_kernel = false;
  for (uint64_t i = 0; i < size; i++) {
    const struct page *page = page_of(address + i, false);
    if (page != NULL && page->writer[(address + i) % PAGE] > last) {
      last = page->writer[(address + i) % PAGE];
      is_kernel = page->is_kernel[(address + i) % PAGE];
    }
  }
  asked++;
  enum ct_steps_write_kind kind = last == 0   ? CT_STEPS_WRITE_NONE
                                  : is_kernel ? CT_STEPS_WRITE_KERNEL
                                              : CT_STEPS_WRITE_STEP;
  if (ct_steps_last_write(reader, index, &target, before, &found) != 0 || found.kind != kind ||
      (last != 0 && found.step != last - 1)) {
    printf("0x%" PRIx64 ":%" PRIu64 " before step %" PRIu64 ": written by step %" PRIu64 " (%d), not %" PRIu64
           " (%d)\n",
           address, size, before, found.step, found.kind, last - 1, kind);
    wrong++;
  }
  size_t block = ct_steps_reader_find(reader, before), end = block;
  if (swept < SWEPT_MAX) {
    struct ct_steps_write without = {.kind = CT_STEPS_WRITE_NONE};
    bool is_said = ct_steps_sweep_back(reader, &block, 0, &target, before, &without);
    for (size_t i = block; i <= end; i++) {
      swept += ct_steps_reader_place(reader, i)->steps;
    }
    bool is_right = is_said && without.kind == kind && (last == 0 || without.step == last - 1);
    if (!is_right || !is_indexed(reader, address, size, last - 1, last != 0, end)) {
      printf("0x%" PRIx64 ":%" PRIu64 " before step %" PRIu64 ": without an index step %" PRIu64 " (%d), not %" PRIu64
             " (%d)\n",
             address, size, before, without.step, without.kind, last - 1, kind);
      wrong++;
    }
  }
}

/* Of the bytes as they are before that step. */
static void
ask_some(struct ct_steps_reader *reader, uint64_t before)
{
  static struct ct_steps_index *index;
  static const uint8_t sizes[] = {1, 1, 1, 2, 4, 8, 16, 100};
  if (index == NULL && ct_steps_index_open(reader, &index) != 0) {
    abort();
  }
  for (unsigned i = 0, tries = 0; i < ASKED && tries < 1000 * SLOTS; tries++) {
    const struct page *page = pages[random_number() % SLOTS];
    if (page != NULL) {
      ask(reader, &index, (page->number - 1) * PAGE + random_number() % PAGE, sizes[i++ % sizeof(sizes)], before);
    }
  }
  if (before == UINT64_MAX) {
    ct_steps_index_close(index);
  }
}

int
main(int argc, char **argv)
{
  struct ct_steps_reader *reader;
  struct ct_diag diag = {""};
  const struct ct_steps_step *step;
  if (argc != 2 || ct_steps_reader_open(argv[1], &reader, &diag) != 0) {
    fprintf(stderr, "shadow FILE; %s\n", diag.text);
    return 2;
  }
  cursor = ct_steps_cursor_open(reader);
  ct_steps_cursor_events(cursor, visit_event, NULL);
  while ((step = ct_steps_cursor_next(cursor)) != NULL) {
    if (step->number == ct_steps_reader_steps(reader) / 3) {
      ask_some(reader, step->number);
    }
    if (step->did.load_size != 0) {
      load(reader, step);
    }
    for (unsigned i = 0; i < step->did.store_count; i++) {
      store(step, &step->did.stores[i]);
    }
  }
  ask_some(reader, UINT64_MAX);
  printf("%" PRIu64 " loads, %" PRIu64 " bytes compared, %" PRIu64 " times the kernel wrote, %" PRIu64
         " writers asked for, %" PRIu64 " wrong\n",
         loads, checked, kernel, asked, wrong);
  ct_steps_cursor_close(cursor);
  ct_steps_reader_close(reader);
  return wrong != 0;
}
