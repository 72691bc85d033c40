/* SPDX-License-Identifier: MIT */
/*
 * The trees of ring/stacks.h. Whoever changes them has the lock of stack.c; readers have none: a node may become
 * another one's under their eyes, so whatever they find they check against the range that it says it has.
 */
#include "agent/map.h"

#define WORD_BYTES (4ull << 20) /* of address space, for a word of a node; a word of a leaf is for a page */

static uint32_t *
node_at(uint32_t index)
{
  return agent_map()->nodes[index - 1];
}

/* A node all of whose words are `fill`; 0 when there is none left. */
static uint32_t
new_node(uint32_t fill)
{
  struct ct_stack_map *map = agent_map();
  uint32_t index = map->node_free;
  if (index != 0) {
    map->node_free = node_at(index)[0];
  } else if (map->node_count < CT_STACK_NODE_MAX) {
    index = ++map->node_count;
  } else {
    return 0;
  }
  uint32_t *words = node_at(index);
  for (uint32_t i = 0; i < CT_NODE_WORDS; i++) {
    words[i] = fill;
  }
  return index;
}

/* Gives the node of *word back, if it is empty. */
static void
prune(uint32_t *word)
{
  const uint32_t *words = node_at(*word);
  for (uint32_t i = 0; i < CT_NODE_WORDS; i++) {
    if (words[i] != 0) {
      return;
    }
  }
  uint32_t index = *word;
  __atomic_store_n(word, 0, __ATOMIC_RELEASE);
  node_at(index)[0] = agent_map()->node_free;
  agent_map()->node_free = index;
}

uint32_t *
agent_map_word(uint32_t *root, uint64_t address, int make)
{
  uint32_t *top = &root[address >> 32 & (CT_STACK_ROOTS - 1)];
  uint32_t index = __atomic_load_n(top, __ATOMIC_ACQUIRE);
  if (index == 0) {
    index = make ? new_node(0) : 0;
    if (index == 0) {
      return 0;
    }
    __atomic_store_n(top, index, __ATOMIC_RELEASE);
  }
  return &node_at(index)[address / WORD_BYTES % CT_NODE_WORDS];
}

void
agent_map_prune(uint32_t *root, uint64_t address)
{
  uint32_t *top = &root[address >> 32 & (CT_STACK_ROOTS - 1)];
  if (*top != 0) {
    prune(top);
  }
}

static uint32_t
stack_of_page(uint64_t address)
{
  const uint32_t *word = agent_map_word(agent_map()->stacks_root, address, 0);
  uint32_t value = word != 0 ? __atomic_load_n(word, __ATOMIC_ACQUIRE) : 0;
  if (value == 0 || (value & CT_STACK_WHOLE) != 0) {
    return value & ~CT_STACK_WHOLE;
  }
  return __atomic_load_n(&node_at(value)[address / CT_PAGE_BYTES % CT_NODE_WORDS], __ATOMIC_ACQUIRE);
}

struct ct_stack *
agent_map_find(uint64_t address)
{
  uint32_t index = address >> 47 == 0 ? stack_of_page(address) : 0;
  struct ct_stack *stack = index != 0 ? agent_map_stack(index) : 0;
  return stack != 0 && address >= stack->lo && address < stack->hi ? stack : 0;
}

uint64_t
agent_map_next(const uint32_t *root, uint64_t lo, uint64_t hi, int pages)
{
  while (lo < hi) {
    uint32_t top = root[lo >> 32 & (CT_STACK_ROOTS - 1)];
    if (top == 0) {
      lo = (lo | 0xffffffffu) + 1;
      continue;
    }
    uint32_t value = __atomic_load_n(&node_at(top)[lo / WORD_BYTES % CT_NODE_WORDS], __ATOMIC_ACQUIRE);
    if (value == 0) {
      lo = (lo | (WORD_BYTES - 1)) + 1;
    } else if (!pages || (value & CT_STACK_WHOLE) != 0 || node_at(value)[lo / CT_PAGE_BYTES % CT_NODE_WORDS] != 0) {
      return lo;
    } else {
      lo = (lo | (CT_PAGE_BYTES - 1)) + 1;
    }
  }
  return hi;
}

uint64_t
agent_map_previous(uint64_t lo, uint64_t hi)
{
  const uint32_t *root = agent_map()->stacks_root;
  while (hi > lo) {
    uint64_t last = hi - 1;
    uint32_t top = root[last >> 32 & (CT_STACK_ROOTS - 1)];
    if (top == 0) {
      hi = last & ~0xffffffffull;
      continue;
    }
    uint32_t value = node_at(top)[last / WORD_BYTES % CT_NODE_WORDS];
    if (value == 0) {
      hi = last & ~(WORD_BYTES - 1);
    } else if ((value & CT_STACK_WHOLE) != 0 || node_at(value)[last / CT_PAGE_BYTES % CT_NODE_WORDS] != 0) {
      return hi;
    } else {
      hi = last & ~(uint64_t)(CT_PAGE_BYTES - 1);
    }
  }
  return lo;
}

/* The leaf in a word that may stand for one stack as yet; 0 when there is no room for it. */
static uint32_t
leaf_in(uint32_t *word)
{
  if (*word != 0 && (*word & CT_STACK_WHOLE) == 0) {
    return *word;
  }
  uint32_t leaf = new_node(*word & ~CT_STACK_WHOLE);
  if (leaf != 0) {
    __atomic_store_n(word, leaf, __ATOMIC_RELEASE);
  }
  return leaf;
}

/* In the part of one word: pages of `from` become `to`'s; from 0: whosever they are. */
static int
hand_pages(uint64_t lo, uint64_t hi, uint32_t from, uint32_t to)
{
  uint32_t *word = agent_map_word(agent_map()->stacks_root, lo, to != 0);
  if (word == 0 || (to == 0 && *word == 0)) {
    return to == 0;
  }
  uint32_t whole = to != 0 ? CT_STACK_WHOLE | to : 0;
  int is_one = *word == 0 || (*word & CT_STACK_WHOLE) != 0;
  if (is_one && from != 0 && *word != (CT_STACK_WHOLE | from)) {
    return 1;
  }
  if (is_one && hi - lo == WORD_BYTES) {
    __atomic_store_n(word, whole, __ATOMIC_RELEASE);
  } else {
    uint32_t leaf = leaf_in(word);
    if (leaf == 0) {
      return 0;
    }
    uint32_t *pages = node_at(leaf);
    for (uint64_t at = lo; at < hi; at += CT_PAGE_BYTES) {
      uint32_t *page = &pages[at / CT_PAGE_BYTES % CT_NODE_WORDS];
      if (from == 0 || *page == from) {
        __atomic_store_n(page, to, __ATOMIC_RELEASE);
      }
    }
    if (to == 0) {
      prune(word);
    }
  }
  if (to == 0 && *word == 0) {
    agent_map_prune(agent_map()->stacks_root, lo);
  }
  return 1;
}

int
agent_map_hand(uint64_t lo, uint64_t hi, uint32_t from, uint32_t to)
{
  for (uint64_t next; lo < hi; lo = next) {
    next = (lo | (WORD_BYTES - 1)) + 1;
    next = next < hi ? next : hi;
    if (!hand_pages(lo, next, from, to)) {
      return 0;
    }
  }
  return 1;
}

struct ct_stack *
agent_map_new(uint64_t lo, uint64_t hi)
{
  struct ct_stack_map *map = agent_map();
  uint32_t index = map->stack_free;
  if (index != 0) {
    map->stack_free = agent_map_stack(index)->next;
  } else if (map->stack_count < CT_STACK_MAX) {
    index = ++map->stack_count;
  } else {
    return 0;
  }
  struct ct_stack *stack = agent_map_stack(index);
  *stack = (struct ct_stack){.lo = lo, .hi = hi, .context = (uint32_t)(hi >> 12) & 0x7fffff};
  if (!agent_map_hand(lo, hi, 0, index)) {
    agent_map_drop(stack);
    return 0;
  }
  return stack;
}

void
agent_map_drop(struct ct_stack *stack)
{
  struct ct_stack_map *map = agent_map();
  uint32_t index = agent_map_index(stack);
  agent_map_hand(stack->lo, stack->hi, index, 0);
  stack->state = CT_STACK_FREE;
  stack->hi = stack->lo;
  stack->next = map->stack_free;
  map->stack_free = index;
}
