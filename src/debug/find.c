/* SPDX-License-Identifier: MIT */
/*
 * gdb's `find`: bytes in memory as it is at the tape's place. Only what is known of it is searched, and only where the
 * recording touches memory, or files have it: a range without either is passed over as a whole. The rest is found out
 * in spans, since the last values of neighbours are in the same chunks: each chunk is read once for a span. gdb asks
 * again from after each match, so the last span is kept.
 */
#include "debug/tape.h"

#include "steps/memory.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, SPAN_PAGES = 4096, PAGES_MAX = 1 << 30 };

struct finding {
  struct ct_tape *tape;
  const uint8_t *pattern;
  size_t size;
  uint64_t last; /* where a match may begin */
  struct ct_tape_found *found;
  bool failed;
};

static bool
is_touched(const struct ct_tape *tape, uint64_t address, uint64_t bytes)
{
  size_t first, blocks = ct_steps_reader_blocks(tape->reader);
  size_t chunks = ct_steps_index_chunks(tape->index, blocks - 1, &first) + first;
  bool is = ct_image_has(&tape->image, address, bytes);
  for (size_t chunk = 0; chunk < chunks && !is; chunk++) {
    is = ct_steps_index_chunk_touches(tape->index, chunk, address, bytes, NULL, 0);
  }
  return is;
}

/* ---- spans ---- */

/* Is what is kept what is there now, and a match at the address in it? */
static bool
is_kept(const struct finding *f, uint64_t address)
{
  const struct ct_tape_span *span = &f->tape->span;
  return span->bytes != NULL && span->at == f->tape->at && address >= span->address &&
         address - span->address < span->size && span->size - (address - span->address) >= f->size;
}

static int
ask(void *context, uint64_t done, uint64_t total)
{
  const struct ct_tape *tape = context;
  (void)done;
  (void)total;
  return tape->is_asked != NULL && tape->is_asked(tape->context);
}

/* False: out of memory, or it is not wanted any more. */
static bool
keep(struct ct_tape *tape, uint64_t address, size_t size)
{
  struct ct_tape_span *span = &tape->span;
  struct ct_steps_watch watch = {.progress = ask, .context = tape, .owner = pthread_self(), .total = UINT64_MAX};
  free(span->bytes);
  *span = (struct ct_tape_span){.bytes = malloc(2 * size), .address = address, .size = size, .at = tape->at};
  if (span->bytes == NULL) {
    return false;
  }
  ct_steps_reader_set_watch(tape->reader, &watch);
  int code = ct_tape_bytes(tape, address, size, span->bytes, span->bytes + size);
  ct_steps_reader_set_watch(tape->reader, NULL);
  if (code != 0) {
    free(span->bytes);
    span->bytes = NULL;
  }
  return code == 0;
}

static bool
matches(const struct finding *f, const uint8_t *bytes, const uint8_t *known)
{
  return memcmp(bytes, f->pattern, f->size) == 0 && memchr(known, 0, f->size) == NULL;
}

/* Matches that begin at the address, up to the last one that lies in the span. The address after those. */
static uint64_t
search_span(struct finding *f, uint64_t address)
{
  const struct ct_tape_span *span = &f->tape->span;
  size_t at = (size_t)(address - span->address), end = span->size - f->size;
  const uint8_t *bytes = span->bytes, *known = span->bytes + span->size;
  end = f->last - span->address < end ? (size_t)(f->last - span->address) : end;
  for (; at <= end; at++) {
    if (known[at] == 0) {
      f->found->unknown++;
    } else if (bytes[at] == f->pattern[0] && matches(f, bytes + at, known + at)) {
      f->found->has_address = true;
      f->found->address = span->address + at;
      break;
    }
  }
  return span->address + at;
}

/* ---- the range ---- */

static bool
goes_on(const struct finding *f)
{
  const struct ct_tape *tape = f->tape;
  return !f->failed && !f->found->has_address && (tape->is_asked == NULL || !tape->is_asked(tape->context));
}

/*
 * A page first, so that a near match is found without a look at all of the range; then as much at once as there is room
 * for. False: it was ended before.
 */
static bool
search_range(struct finding *f, uint64_t address)
{
  uint64_t pages = 1;
  bool goes = true;
  for (uint64_t at = address; at <= f->last && at >= address && goes; goes = goes_on(f)) {
    uint64_t left = f->last - at, part = pages * PAGE - at % PAGE;
    part = left < part ? left + 1 : part; /* where a match may begin; left + 1 is no 0 there */
    if (is_kept(f, at)) {
      at = search_span(f, at);
    } else if (!is_touched(f->tape, at, part)) {
      f->found->unknown += part;
      at += part;
      pages = pages < PAGES_MAX ? 2 * pages : pages;
    } else if (pages > SPAN_PAGES) {
      pages /= 2;
    } else {
      f->failed = !keep(f->tape, at, (size_t)part + f->size - 1);
      pages = SPAN_PAGES;
    }
  }
  return goes || f->found->has_address;
}

bool
ct_tape_find(struct ct_tape *tape, uint64_t address, uint64_t bytes, const uint8_t *pattern, size_t size,
             struct ct_tape_found *found)
{
  *found = (struct ct_tape_found){.has_address = false};
  if (size == 0 || address + bytes - 1 < address) {
    return false;
  }
  if (bytes < size) {
    return true;
  }
  if (tape->index == NULL && ct_steps_index_open(tape->reader, &tape->index) != 0) {
    return false;
  }
  struct finding f = {.tape = tape, .pattern = pattern, .size = size, .last = address + (bytes - size), .found = found};
  return search_range(&f, address) && !f.failed;
}
