/* SPDX-License-Identifier: MIT */
/*
 * gdb's `find`: bytes in memory as it is at the tape's place. Only what is known of it is searched, and only pages that
 * the recording touches, or that files have: a range without any is passed over as a whole. gdb asks again from after
 * each match, so the last pages are kept.
 */
#include "debug/tape.h"

#include "steps/memory.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = CT_TAPE_PAGE, NEAR = 64 };

struct finding {
  struct ct_tape *tape;
  const uint8_t *pattern;
  size_t size;
  uint64_t last; /* of the range */
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

/* The page as it is now, if it is kept. */
static struct ct_tape_page *
kept_page(struct ct_tape *tape, uint64_t address)
{
  struct ct_tape_page *page = &tape->pages[address / PAGE % CT_TAPE_PAGES];
  return page->has_bytes && page->address == address && page->at == tape->at ? page : NULL;
}

/* NULL: out of memory. */
static const struct ct_tape_page *
page_at(struct ct_tape *tape, uint64_t address)
{
  struct ct_tape_page *page = kept_page(tape, address);
  if (page != NULL) {
    return page;
  }
  page = &tape->pages[address / PAGE % CT_TAPE_PAGES];
  page->has_bytes = ct_tape_bytes(tape, address, PAGE, page->bytes, page->known) == 0;
  page->address = address;
  page->at = tape->at;
  return page->has_bytes ? page : NULL;
}

static bool
matches(struct finding *f, uint64_t address)
{
  for (size_t i = 0; i < f->size; i++) {
    uint64_t at = address + i;
    const struct ct_tape_page *page = page_at(f->tape, at - at % PAGE);
    f->failed |= page == NULL;
    if (page == NULL || page->known[at % PAGE] == 0 || page->bytes[at % PAGE] != f->pattern[i]) {
      return false;
    }
  }
  return true;
}

/* Matches that begin in first to last, which are in one page. */
static void
search_page(struct finding *f, uint64_t first, uint64_t last)
{
  const struct ct_tape_page *page = page_at(f->tape, first - first % PAGE);
  f->failed |= page == NULL;
  for (uint64_t at = first; page != NULL && at <= last; at++) {
    if (page->known[at % PAGE] == 0) {
      f->found->unknown++;
    } else if (page->bytes[at % PAGE] == f->pattern[0] && matches(f, at)) {
      f->found->has_address = true;
      f->found->address = at;
      return;
    } else {
      page = page_at(f->tape, first - first % PAGE); /* it may have made room for others */
    }
    if (at == UINT64_MAX) {
      return;
    }
  }
}

static bool
goes_on(const struct finding *f)
{
  const struct ct_tape *tape = f->tape;
  return !f->failed && !f->found->has_address && (tape->is_asked == NULL || !tape->is_asked(tape->context));
}

/* False: it has come to an end. A number of pages, from the one that has address on. */
static bool
search_pages(struct finding *f, uint64_t address, uint64_t pages)
{
  uint64_t first = address - address % PAGE, last = first + (pages * PAGE - 1);
  last = last > f->last ? f->last : last;
  if (kept_page(f->tape, first) == NULL && !is_touched(f->tape, address, last - address + 1)) {
    f->found->unknown += last - address + 1;
  } else if (pages == 1) {
    search_page(f, address, last);
  } else {
    uint64_t half = pages / 2;
    return search_pages(f, address, half) && search_pages(f, first + half * PAGE, pages - half);
  }
  return goes_on(f);
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
  uint64_t page = address / PAGE, pages = f.last / PAGE - page + 1;
  bool is_over = false;
  /* Piece by piece: what is kept is not passed over, and a near match is found without a look at all of the range. */
  for (uint64_t some = 1; pages != 0 && !is_over;
       page += some, pages -= some, some = some < pages / 2 ? 2 * some : pages) {
    is_over = !search_pages(&f, page == address / PAGE ? address : page * PAGE, some);
  }
  return !f.failed && (found->has_address || !is_over);
}
