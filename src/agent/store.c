/* SPDX-License-Identifier: MIT */
/*
 * Return stores: which pages are ours (ring/stacks.h), mapping and giving them back. All with the lock of stack.c.
 *
 * A page is used as a store only when its bit is set, and a bit is set only by whoever has mapped the page where
 * nothing was. A chunk that no stack needs any more stays mapped, since the next stack may well lie there, but only so
 * many; what was written is given back at once.
 */
#include "agent/map.h"

#define IDLE_MAX 64u /* chunks without users: 256 MiB of addresses */

static struct ct_store_chunk *
chunk_at(uint64_t base)
{
  const uint32_t *word = agent_map_word(agent_map()->stores_root, base, 0);
  uint32_t index = word != 0 ? __atomic_load_n(word, __ATOMIC_ACQUIRE) : 0;
  return index != 0 ? &agent_map()->chunks[index - 1] : 0;
}

static struct ct_store_chunk *
new_chunk(uint64_t base)
{
  struct ct_stack_map *map = agent_map();
  uint32_t *word = agent_map_word(map->stores_root, base, 1);
  uint32_t index = map->chunk_free;
  if (word == 0) {
    return 0;
  }
  if (index != 0) {
    map->chunk_free = map->chunks[index - 1].next;
  } else if (map->chunk_count < CT_CHUNK_MAX) {
    index = ++map->chunk_count;
  } else {
    agent_map_prune(map->stores_root, base);
    return 0;
  }
  struct ct_store_chunk *chunk = &map->chunks[index - 1];
  *chunk = (struct ct_store_chunk){.base = base};
  map->idle++;
  __atomic_store_n(word, index, __ATOMIC_RELEASE);
  return chunk;
}

static void
mark(struct ct_store_chunk *chunk, uint32_t page, uint32_t end, int ours)
{
  for (; page < end; page++) {
    uint64_t bit = 1ull << (page % 64);
    chunk->pages[page / 64] = ours ? chunk->pages[page / 64] | bit : chunk->pages[page / 64] & ~bit;
  }
}

/* Maps pages of the chunk where nothing lies. */
static int
map_pages(struct ct_store_chunk *chunk, uint32_t page, uint32_t end)
{
  uint64_t at = chunk->base + (uint64_t)page * CT_PAGE_BYTES, bytes = (uint64_t)(end - page) * CT_PAGE_BYTES;
  long got = agent_syscall(SYS_mmap, (long)at, (long)bytes, PROT_RW,
                           MAP_PRIVATE_ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == (long)at) {
    agent_syscall(SYS_madvise, (long)at, (long)bytes, MADV_DONTDUMP, 0, 0, 0);
    mark(chunk, page, end, 1);
    return 1;
  }
  if (got > 0) { /* a kernel that takes the address for a hint */
    agent_syscall(SYS_munmap, got, (long)bytes, 0, 0, 0, 0);
  }
  return 0;
}

static void
unmap_pages(struct ct_store_chunk *chunk, uint32_t page, uint32_t end)
{
  mark(chunk, page, end, 0);
  agent_syscall(SYS_munmap, (long)(chunk->base + (uint64_t)page * CT_PAGE_BYTES), (long)(end - page) * CT_PAGE_BYTES, 0,
                0, 0, 0);
}

/* The chunk has no users. */
static void
drop_chunk(struct ct_store_chunk *chunk)
{
  struct ct_stack_map *map = agent_map();
  uint64_t base = chunk->base;
  uint32_t next;
  for (uint32_t page = 0; ct_store_chunk_run(chunk, CT_CHUNK_PAGES, 1, &page, &next); page = next) {
    unmap_pages(chunk, page, next);
  }
  uint32_t *word = agent_map_word(map->stores_root, base, 0);
  __atomic_store_n(word, 0, __ATOMIC_RELEASE);
  agent_map_prune(map->stores_root, base);
  chunk->base = 0;
  chunk->next = map->chunk_free;
  map->chunk_free = (uint32_t)(chunk - map->chunks) + 1;
  map->idle--;
}

static void
leave_chunk(uint64_t base)
{
  struct ct_store_chunk *chunk = chunk_at(base);
  if (chunk == 0 || chunk->users == 0 || --chunk->users != 0) {
    return;
  }
  if (++agent_map()->idle > IDLE_MAX) {
    drop_chunk(chunk);
  }
}

/* Makes the pages of [lo, hi), which lie in one chunk, ours. */
static int
use_chunk(uint64_t base, uint64_t lo, uint64_t hi)
{
  struct ct_store_chunk *chunk = chunk_at(base);
  if (chunk == 0) {
    chunk = new_chunk(base);
    if (chunk == 0) {
      return 0;
    }
    map_pages(chunk, 0, CT_CHUNK_PAGES); /* or else only what is needed */
  }
  uint32_t page = (uint32_t)((lo - base) / CT_PAGE_BYTES), end = (uint32_t)((hi - base) / CT_PAGE_BYTES), next;
  int ok = 1;
  for (; ok && ct_store_chunk_run(chunk, end, 0, &page, &next); page = next) {
    ok = map_pages(chunk, page, next);
  }
  if (ok) {
    agent_map()->idle -= chunk->users == 0;
    chunk->users++;
  } else if (chunk->users == 0) {
    drop_chunk(chunk);
  }
  return ok;
}

static struct ct_store_range
store_of(uint64_t lo, uint64_t hi)
{
  return ct_store_of(lo, hi, agent_config.store_delta);
}

static void
leave_chunks(uint64_t lo, uint64_t hi)
{
  for (uint64_t base = lo & ~(CT_CHUNK_BYTES - 1); base < hi; base += CT_CHUNK_BYTES) {
    leave_chunk(base);
  }
}

static struct {
  uint64_t lo, hi, count;
} reserved __attribute__((section(".data")));

void
agent_store_reserve(uint64_t lo, uint64_t hi)
{
  if (hi == 0) {
    reserved.count--;
  } else if (reserved.count++ == 0) {
    reserved.lo = lo;
    reserved.hi = hi;
  } else {
    reserved.lo = lo < reserved.lo ? lo : reserved.lo;
    reserved.hi = hi > reserved.hi ? hi : reserved.hi;
  }
}

int
agent_store_take(struct ct_stack *stack)
{
  struct ct_store_range store = store_of(stack->lo, stack->hi);
  if (store.lo >= store.hi || store.lo < 0x10000 || store.hi >= 0x7ffffffff000ull ||
      (reserved.count != 0 && store.lo < reserved.hi && store.hi > reserved.lo)) {
    return 0;
  }
  uint64_t base = store.lo & ~(CT_CHUNK_BYTES - 1);
  for (; base < store.hi; base += CT_CHUNK_BYTES) {
    uint64_t lo = store.lo > base ? store.lo : base;
    uint64_t hi = store.hi < base + CT_CHUNK_BYTES ? store.hi : base + CT_CHUNK_BYTES;
    if (!use_chunk(base, lo, hi)) {
      leave_chunks(store.lo, base);
      return 0;
    }
  }
  stack->store_lo = stack->lo;
  stack->store_hi = stack->hi;
  return 1;
}

void
agent_store_give(struct ct_stack *stack, uint64_t lo, uint64_t hi)
{
  if (stack->store_lo == stack->store_hi) {
    return;
  }
  /* Not the pages at the ends, which are a neighbour's too. */
  uint64_t page = CT_PAGE_BYTES - 1;
  uint64_t inner_lo = (lo + (uint64_t)agent_config.store_delta + page) & ~page;
  uint64_t inner_hi = (hi + (uint64_t)agent_config.store_delta) & ~page;
  if (inner_lo < inner_hi && stack->state == CT_STACK_READY) {
    agent_syscall(SYS_madvise, (long)inner_lo, (long)(inner_hi - inner_lo), MADV_DONTNEED, 0, 0, 0);
  }
  struct ct_store_range store = store_of(stack->store_lo, stack->store_hi);
  stack->store_hi = stack->store_lo;
  leave_chunks(store.lo, store.hi);
}

void
agent_store_leave(uint64_t lo, uint64_t hi)
{
  const uint32_t *root = agent_map()->stores_root;
  while ((lo = agent_map_next(root, lo, hi, 0)) < hi) {
    uint64_t base = lo & ~(CT_CHUNK_BYTES - 1);
    struct ct_store_chunk *chunk = chunk_at(base);
    uint32_t page = (uint32_t)((lo - base) / CT_PAGE_BYTES), next;
    uint32_t end = hi - base < CT_CHUNK_BYTES ? (uint32_t)((hi - base) / CT_PAGE_BYTES) : CT_CHUNK_PAGES;
    for (; ct_store_chunk_run(chunk, end, 1, &page, &next); page = next) {
      unmap_pages(chunk, page, next);
    }
    lo = base + CT_CHUNK_BYTES;
  }
}

int
agent_store_part(uint64_t *lo, uint64_t *hi)
{
  const uint32_t *root = agent_map()->stores_root;
  uint64_t delta = (uint64_t)agent_config.store_delta, at = *lo + delta, limit = *hi + delta;
  while (at < limit && (at = agent_map_next(root, at, limit, 0)) < limit) {
    uint64_t base = at & ~(CT_CHUNK_BYTES - 1);
    const struct ct_store_chunk *chunk = chunk_at(base);
    uint32_t page = (uint32_t)((at - base) / CT_PAGE_BYTES), next;
    if (chunk != 0 && ct_store_chunk_run(chunk, CT_CHUNK_PAGES, 1, &page, &next)) {
      uint64_t first = base + (uint64_t)page * CT_PAGE_BYTES, end = base + (uint64_t)next * CT_PAGE_BYTES;
      if (first >= limit) {
        return 0;
      }
      *lo = (first > at ? first : at) - delta;
      *hi = (end < limit ? end : limit) - delta;
      return 1;
    }
    at = base + CT_CHUNK_BYTES;
  }
  return 0;
}

int
agent_store_has(uint64_t lo, uint64_t hi)
{
  const uint32_t *root = agent_map()->stores_root;
  while ((lo = agent_map_next(root, lo, hi, 0)) < hi) {
    uint64_t base = lo & ~(CT_CHUNK_BYTES - 1);
    const struct ct_store_chunk *chunk = chunk_at(base);
    uint32_t page = (uint32_t)((lo - base) / CT_PAGE_BYTES), next;
    uint32_t end = hi - base < CT_CHUNK_BYTES ? (uint32_t)((hi - base) / CT_PAGE_BYTES) : CT_CHUNK_PAGES;
    if (chunk != 0 && ct_store_chunk_run(chunk, end, 1, &page, &next)) {
      return 1;
    }
    lo = base + CT_CHUNK_BYTES;
  }
  return 0;
}
