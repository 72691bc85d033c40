/* SPDX-License-Identifier: MIT */
/*
 * Places in a thread's file that somebody knows (the index does): with them, where a range begins is found without a
 * look at each header before it. Which calls the frames are that are open there (range_calls.c) needs the blocks in
 * which they began, of those before: these are found from the places before their times.
 */
#include "trace/cursor_internal.h"

#include <stdlib.h>
#include <string.h>

int
ct_trace_set_places(struct ct_trace *trace, uint32_t thread, const struct ct_trace_place *places, size_t count)
{
  if (trace->places == NULL) {
    trace->places = calloc((size_t)trace->thread_count + 1, sizeof(*trace->places));
  }
  struct ct_trace_place *list = trace->places != NULL ? reallocarray(NULL, count + 1, sizeof(*list)) : NULL;
  if (list == NULL) {
    return CT_ENOMEM;
  }
  memcpy(list, places, count * sizeof(*list));
  free(trace->places[thread].list);
  trace->places[thread] = (struct ct_trace_places){list, count};
  return CT_OK;
}

void
ct_range_free_places(struct ct_trace *trace)
{
  for (uint32_t i = 0; trace->places != NULL && i < trace->thread_count; i++) {
    free(trace->places[i].list);
  }
  free(trace->places);
  trace->places = NULL;
}

uint64_t
ct_range_place_before(const struct ct_cursor *c, uint64_t tsc)
{
  const struct ct_trace_places *places = c->trace->places != NULL ? &c->trace->places[c->thread_position] : NULL;
  size_t low = 0, high = places != NULL ? places->count : 0;
  while (low < high) { /* the first one that is not before it */
    size_t middle = low + (high - low) / 2;
    if (places->list[middle].before_tsc < tsc) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low != 0 ? places->list[low - 1].offset : sizeof(struct ct_file_header);
}

/* The block at *offset, which becomes that of the next one; false: there is none before the end. */
static bool
pass(struct ct_cursor *c, const struct ct_block_file *file, uint64_t *offset, uint64_t end, uint64_t *first_tsc)
{
  struct ct_block_header header;
  if (*offset >= end || ct_block_file_read(file, &header, sizeof(header), *offset) != sizeof(header) ||
      !ct_block_header_ok(&header)) {
    return false;
  }
  *first_tsc = header.first_tsc;
  return ct_range_pass_block(c, *offset, &header) &&
         (*offset += sizeof(header) + header.payload_bytes) <= end; /* without memory calls are not found */
}

void
ct_range_pass_earlier(struct ct_cursor *c, const struct ct_block_file *file, const uint64_t *times, size_t count)
{
  struct ct_passed_block *later = c->passed;
  size_t later_count = c->passed_count;
  uint64_t end = c->passed_from, next = sizeof(struct ct_file_header), first_tsc = 0;
  c->passed = NULL;
  c->passed_count = 0;
  bool more = pass(c, file, &next, end, &first_tsc);
  for (size_t i = 0; i < count && more; i++) {
    uint64_t offset = ct_range_place_before(c, times[i]);
    next = offset > next ? offset : next;
    while (next < end && first_tsc <= times[i] && (more = pass(c, file, &next, end, &first_tsc))) {
    }
  }
  later_count = c->passed_count != 0 ? later_count : 0; /* the first one is read otherwise than others */
  for (size_t i = 0; i < later_count; i++) {
    struct ct_block_header header = {.first_tsc = later[i].first_tsc, .last_tsc = later[i].last_tsc};
    if (!ct_range_pass_block(c, later[i].offset, &header)) {
      break;
    }
  }
  free(later);
}
