/* SPDX-License-Identifier: MIT */
/* Return addresses go back from the return stores into their slots; see undo.c. */
#include "hook/undo_internal.h"

#include "process/process.h"
#include "x86/trampoline.h"

/* Does a frame return to that address? What else there is of ours on a stack is the agent's and the trampolines' own.
 */
static bool
is_return_point(const struct undo *undo, uint64_t at)
{
  uint8_t bytes[CT_RETURN_POINT_BYTES];
  return undo_is_ours(undo, at) && ct_process_read(process_of(undo), at - CT_JUMP_BYTES, bytes, sizeof(bytes)) == 0 &&
         ct_trampoline_returns_at(bytes);
}

/* A piece of a return store, and the piece of the stack that it is of, which lies within a page. */
static int
put_back_piece(struct undo *undo, const uint64_t *store, uint64_t stack_at, size_t words, bool skip)
{
  uint64_t stack[CT_PAGE_BYTES / 8];
  if (ct_process_read(process_of(undo), stack_at, stack, words * sizeof(stack[0])) != 0) {
    return 0; /* the stack is gone */
  }
  for (size_t i = 0; i < words; i++) {
    if (store[i] != 0 && is_return_point(undo, stack[i]) && !(skip && undo_in_unwinder(undo, stack_at + 8 * i))) {
      int code = ct_process_write(process_of(undo), stack_at + 8 * i, &store[i], sizeof(store[i]));
      if (code != 0) {
        return code;
      }
      undo->undone->frames++;
    }
  }
  return 0;
}

/* One page of a return store. It is of parts of two pages of stacks, which need not be there both. */
static int
put_back_page(struct undo *undo, uint64_t store_page, bool skip)
{
  uint64_t store[CT_PAGE_BYTES / 8];
  uint64_t stack_at = store_page - (uint64_t)undo->config->store_delta;
  size_t first = (CT_PAGE_BYTES - stack_at % CT_PAGE_BYTES) / 8;
  if (ct_process_read(process_of(undo), store_page, store, sizeof(store)) != 0) {
    return 0;
  }
  int code = put_back_piece(undo, store, stack_at, first, skip);
  return code != 0 ? code : put_back_piece(undo, store + first, stack_at + 8 * first, CT_PAGE_BYTES / 8 - first, skip);
}

static int
put_back_run(struct undo *undo, struct ct_pagemap *map, uint64_t at, uint64_t end, bool skip)
{
  int code = 0;
  while (code == 0 && !undo_is_late(undo) && (at = ct_pagemap_find(map, at, end, true)) < end) {
    code = put_back_page(undo, at, skip);
    at += CT_PAGE_BYTES;
  }
  return code;
}

int
undo_put_back_returns(struct undo *undo, bool skip)
{
  struct ct_pagemap map;
  int code = 0;
  ct_pagemap_open(&map, process_of(undo)->pid);
  for (size_t i = 0; i < undo->chunk_count && code == 0 && !undo_is_late(undo); i++) {
    const struct ct_store_chunk *chunk = &undo->chunks[i].is;
    uint32_t next;
    for (uint32_t page = 0; code == 0 && ct_store_chunk_run(chunk, CT_CHUNK_PAGES, 1, &page, &next); page = next) {
      uint64_t at = chunk->base + (uint64_t)page * CT_PAGE_BYTES;
      code = put_back_run(undo, &map, at, chunk->base + (uint64_t)next * CT_PAGE_BYTES, skip);
    }
  }
  ct_pagemap_close(&map);
  return code;
}
