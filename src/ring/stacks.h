/* SPDX-License-Identifier: MIT */
/*
 * The agent's map of stacks and return stores: which stack has an address, and which pages are stores of ours. It lies
 * in the target, in a mapping of its own that is only as large as it is used, and is the agent's; the controller reads
 * the chunks when it takes everything out again, and believes none of it: see ct_store_chunk_is_sound.
 *
 *   address  46        32 31      22 21      12 11       0
 *           |   root     |   node   |   leaf   |          |
 *
 * Two trees of nodes of 1,024 words. That of stacks: a word of a node is 0, CT_STACK_WHOLE and the stack that has all
 * 4 MiB, or a leaf, whose words are the stacks of pages. That of stores: a word of a node is a chunk, 4 MiB of address
 * space with a bit for each page that is ours. All numbers count from 1. Readers take no lock: what they find they
 * compare with the stack's own range.
 *
 * A chunk is mapped whole where nothing of the target's lies in it: so neighbouring stacks need no mapping of their
 * own.
 */
#ifndef CT_RING_STACKS_H
#define CT_RING_STACKS_H

#include "ring/offsets.h"

#include <stddef.h>
#include <stdint.h>

#define CT_STACK_ROOTS    32768u /* of 4 GiB each */
#define CT_STACK_WHOLE    0x80000000u
#define CT_STACK_MAX      (1u << 17)
#define CT_STACK_NODE_MAX 8192u
#define CT_NODE_WORDS     1024u

enum ct_stack_state {
  CT_STACK_FREE = 0,
  CT_STACK_READY = 1,     /* its store is mapped */
  CT_STACK_STORELESS = 2, /* it has none: calls on it are recorded by their enter only */
  CT_STACK_DECLARED = 3,  /* reported by whoever makes it, and not yet used */
};

struct ct_stack {
  uint64_t lo, hi;             /* whole pages */
  uint32_t state;              /* enum ct_stack_state */
  uint32_t owner;              /* slot of the thread that was on it last, plus 1: only its control page has the range */
  uint32_t context;            /* its number in the trace */
  uint32_t next;               /* of the free ones */
  uint64_t store_lo, store_hi; /* the part of the stack whose chunks are counted as used for it */
  uint64_t pad[2];
};
_Static_assert(sizeof(struct ct_stack) == 1 << CT_STACK_SHIFT, "stack");
_Static_assert(offsetof(struct ct_stack, hi) == CT_STACK_HI, "stack");
_Static_assert(offsetof(struct ct_stack, state) == CT_STACK_STATE && CT_STACK_READY == CT_STACK_IS_READY, "stack");
_Static_assert(offsetof(struct ct_stack, owner) == CT_STACK_OWNER, "stack");
_Static_assert(offsetof(struct ct_stack, context) == CT_STACK_CONTEXT, "stack");

#define CT_CHUNK_BYTES (4ull << 20)
#define CT_CHUNK_MAX   32768u
#define CT_CHUNK_PAGES 1024u
struct ct_store_chunk {
  uint64_t base;  /* 0: unused */
  uint32_t users; /* stacks */
  uint32_t next;  /* of the free ones */
  uint64_t pages[CT_CHUNK_PAGES / 64];
};

struct ct_stack_map {
  uint32_t stacks_root[CT_STACK_ROOTS];
  uint32_t stores_root[CT_STACK_ROOTS];
  uint32_t stack_count, stack_free; /* numbers given out so far; the first of those that came back */
  uint32_t node_count, node_free;
  uint32_t chunk_count, chunk_free;
  uint32_t idle; /* chunks without users that are kept */
  uint32_t pad[1017];
  struct ct_stack stacks[CT_STACK_MAX];
  struct ct_store_chunk chunks[CT_CHUNK_MAX];
  uint32_t nodes[CT_STACK_NODE_MAX][CT_NODE_WORDS];
};
_Static_assert(offsetof(struct ct_stack_map, stacks) == CT_MAP_STACKS, "map");
_Static_assert(offsetof(struct ct_stack_map, nodes) == CT_MAP_NODES && CT_MAP_NODES % 4096 == 0, "map");

/* A chunk as it was read from the target: can it be one? */
static inline int
ct_store_chunk_is_sound(const struct ct_store_chunk *chunk)
{
  return chunk->base != 0 && chunk->base % CT_CHUNK_BYTES == 0 && chunk->base >> 47 == 0;
}

static inline int
ct_store_chunk_has(const struct ct_store_chunk *chunk, uint32_t page)
{
  return (int)(chunk->pages[page / 64] >> (page % 64) & 1);
}

/* The next run of pages in the chunk that are ours (ours != 0) or not, from *page on and before `end`: 0 when there is
 * none; else *page is its first one and *next the one after it. */
static inline int
ct_store_chunk_run(const struct ct_store_chunk *chunk, uint32_t end, int ours, uint32_t *page, uint32_t *next)
{
  uint32_t at = *page;
  while (at < end && ct_store_chunk_has(chunk, at) != (ours != 0)) {
    at++;
  }
  *page = at;
  while (at < end && ct_store_chunk_has(chunk, at) == (ours != 0)) {
    at++;
  }
  *next = at;
  return *page < end;
}

#endif
