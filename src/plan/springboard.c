/* SPDX-License-Identifier: MIT */
/*
 * Places within reach of a two-byte jump (-128..127 from its end) for the five-byte jump that goes on.
 *
 * Padding: nops or int3 after an instruction that never goes on (jump, return), in a function or after it, up to the
 * next instruction; not entered by a branch, not in use by another patch.
 *
 * A victim: ten bytes or more of whole instructions in a hooked function, the first of which may be branched to, none
 * of the others. They move out: five bytes become a jump to their copy, the next five are ours. All branches into the
 * function must be known: it has no indirect jump, and all its bytes are instructions. No call among them, since its
 * return address would lie in the changed bytes; the copy goes on after them.
 *
 *          victim                              victim
 *   5550:  mov 8(%rdi), %rax            5550:  jmp copy           copy: mov 8(%rdi), %rax ... ; jmp 555b
 *   5554:  mov %rax, 16(%rdi)    ->     5555:  jmp trampoline     <- eb rel8 at the entry that is too short
 *   5558:  add $1, %rsi                 555a:  (rest)
 *   555b:  ...                          555b:  ...
 */
#include "plan/plan_internal.h"

#include "x86/peek.h"

#include <string.h>

#define BACK         126        /* from the patch's first byte: -128 + 2 */
#define FORTH        129        /* 127 + 2 */
#define VICTIM_BYTES 10         /* two jumps */
#define WALK_MAX     (1u << 16) /* bytes of a function that is walked for this */
#define APART        512        /* more than a relay can be in front of those of functions before it */

struct search {
  const struct planner *planner;
  uint64_t patch;
  uint64_t function; /* index of the function that is patched */
};

static bool
in_reach(const struct search *search, uint64_t at)
{
  return at + BACK >= search->patch && at <= search->patch + FORTH;
}

static bool
overlaps(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
  return a < b + b_bytes && b < a + a_bytes;
}

/* Bytes that another patch of the plan changes, or after whose original instructions it still jumps back. */
static bool
is_taken(const struct search *search, size_t near, uint64_t at, uint64_t bytes)
{
  const struct ct_plan *plan = search->planner->plan;
  /* They are there in the order of the functions, and each lies near its own. */
  for (size_t n = plan->springboard_count; n-- > 0;) {
    const struct ct_springboard *springboard = &plan->springboard[n];
    if (at > springboard->relay && at - springboard->relay > APART) {
      break;
    }
    if (overlaps(at, bytes, springboard->relay, CT_JUMP_BYTES) ||
        (springboard->window.length != 0 && overlaps(at, bytes, springboard->evicted, springboard->window.length))) {
      return true;
    }
  }
  if (overlaps(at, bytes, search->patch, CT_JUMP_BYTES)) {
    return true; /* ours, whatever its length will be */
  }
  /* Functions before `near` can only reach here from the last one or two; look at a few. */
  size_t first = near > 3 ? near - 3 : 0;
  for (size_t i = first; i < search->planner->count && plan->functions[i].address < at + bytes; i++) {
    const struct ct_planned *other = &plan->functions[i];
    uint64_t length = other->window.length > CT_JUMP_BYTES ? other->window.length : CT_JUMP_BYTES;
    if (overlaps(at, bytes, other->address, other->patch_offset + length)) {
      return true;
    }
  }
  return false;
}

static bool
is_branched_into(const struct search *search, uint64_t from, uint64_t to)
{
  for (uint64_t at = from; at < to; at++) {
    if (ct_targets_has(&search->planner->scan.targets, at)) {
      return true;
    }
  }
  return false;
}

/* The run of padding at `at`, up to `limit`; returns its length in whole instructions. None where the instruction in
 * front of it reaches beyond the limit. */
static size_t
padding_run(const struct planner *planner, uint64_t at, uint64_t limit)
{
  size_t run = 0;
  if (at >= limit) {
    return 0;
  }
  const struct ct_elf *elf = planner->plan->elf;
  while (at + run < limit) {
    size_t left = ct_elf_code_left(elf, at + run);
    const uint8_t *code = left != 0 ? ct_elf_bytes(elf, at + run, left) : NULL;
    struct ct_peek peek;
    if (code == NULL || !ct_peek(code, left, &peek) || !peek.is_padding) {
      break;
    }
    run += peek.length;
  }
  return at + run > limit ? (size_t)(limit - at) : run;
}

/* A place for five bytes in the padding [start, start + run) that lies in reach. */
static bool
place_in_padding(const struct search *search, size_t near, uint64_t start, size_t run, uint64_t *relay)
{
  for (size_t skip = 0; skip + CT_JUMP_BYTES <= run; skip++) {
    uint64_t at = start + skip;
    if (in_reach(search, at) && !is_taken(search, near, at, CT_JUMP_BYTES) &&
        !is_branched_into(search, start, at + CT_JUMP_BYTES)) {
      *relay = at;
      return true;
    }
  }
  return false;
}

static bool
peek_at(const struct ct_elf *elf, uint64_t at, struct ct_peek *peek)
{
  size_t left = ct_elf_code_left(elf, at);
  const uint8_t *code = left != 0 ? ct_elf_bytes(elf, at, left) : NULL;
  return code != NULL && ct_peek(code, left, peek);
}

/* Walks function i and the padding after it. */
static bool
padding_of(const struct search *search, size_t i, uint64_t *relay)
{
  const struct planner *planner = search->planner;
  const struct ct_elf *elf = planner->plan->elf;
  uint64_t at = planner->functions[i].address;
  uint64_t end = ct_code_end(planner, i);
  uint64_t limit = i + 1 < planner->count ? planner->functions[i + 1].address : end + 16;
  if (end - at > WALK_MAX) {
    return false;
  }
  while (at < end && at <= search->patch + FORTH) {
    struct ct_peek peek;
    if (!peek_at(elf, at, &peek)) {
      return false;
    }
    at += peek.length;
    if (peek.flow != CT_FLOW_END && peek.flow != CT_FLOW_INDIRECT) {
      continue;
    }
    size_t run = padding_run(planner, at, limit);
    if (run >= CT_JUMP_BYTES && place_in_padding(search, i, at, run, relay)) {
      return true;
    }
    at += run;
  }
  return false;
}

/* The first function that may have something in reach. */
static size_t
first_near(const struct search *search)
{
  const struct planner *planner = search->planner;
  size_t i = (size_t)search->function;
  while (i > 0 && planner->functions[i - 1].address + BACK + 64 >= search->patch) {
    i--;
  }
  return i > 0 ? i - 1 : 0; /* and the one whose body reaches up to here */
}

bool
ct_springboard_in_padding(const struct planner *planner, size_t i, uint64_t patch, struct ct_springboard *springboard)
{
  struct search search = {planner, patch, i};
  memset(springboard, 0, sizeof(*springboard));
  for (size_t j = first_near(&search); j < planner->count && planner->functions[j].address <= patch + FORTH; j++) {
    if (padding_of(&search, j, &springboard->relay)) {
      return true;
    }
  }
  return false;
}

/* May instructions of function i move out? */
static bool
may_give_way(const struct planner *planner, size_t i)
{
  const struct ct_elf *elf = planner->plan->elf;
  uint64_t at = planner->functions[i].address;
  uint64_t end = ct_code_end(planner, i);
  size_t left = ct_elf_code_left(elf, at);
  const uint8_t *code = left >= end - at ? ct_elf_bytes(elf, at, left) : NULL;
  if (planner->plan->functions[i].refusal != CT_REFUSED_NOT || code == NULL || end - at > WALK_MAX) {
    return false;
  }
  for (size_t offset = 0; offset < end - at;) {
    struct ct_peek peek;
    if (!ct_peek(code + offset, left - offset, &peek) || peek.flow == CT_FLOW_INDIRECT) {
      return false;
    }
    offset += peek.length;
  }
  return true;
}

/* Ten bytes or more of movable instructions from `at` on, up to end. */
static bool
victim_at(const struct search *search, size_t i, uint64_t at, uint64_t end, struct ct_springboard *springboard)
{
  const struct ct_elf *elf = search->planner->plan->elf;
  size_t bytes = 0;
  const uint8_t *code = ct_elf_bytes(elf, at, end - at);
  while (bytes < VICTIM_BYTES) {
    struct ct_peek peek;
    if (at + bytes >= end || !ct_peek(code + bytes, end - at - bytes, &peek) || peek.flow == CT_FLOW_CALL ||
        peek.flow == CT_FLOW_INDIRECT || (peek.flow == CT_FLOW_END && bytes + peek.length < VICTIM_BYTES)) {
      return false;
    }
    bytes += peek.length;
  }
  if (at + bytes > end || is_branched_into(search, at + 1, at + bytes) || is_taken(search, i, at, bytes) ||
      ct_window_find(code, end - at, at, VICTIM_BYTES, &springboard->window) != CT_WINDOW_OK ||
      springboard->window.length != bytes) {
    return false;
  }
  springboard->evicted = at;
  springboard->relay = at + CT_JUMP_BYTES;
  return true;
}

static bool
victim_in(const struct search *search, size_t i, struct ct_springboard *springboard)
{
  const struct planner *planner = search->planner;
  const struct ct_elf *elf = planner->plan->elf;
  uint64_t at = planner->functions[i].address;
  uint64_t end = ct_code_end(planner, i);
  if (!may_give_way(planner, i)) {
    return false;
  }
  while (at < end && at <= search->patch + FORTH) {
    struct ct_peek peek;
    if (!peek_at(elf, at, &peek)) {
      return false;
    }
    if (in_reach(search, at + CT_JUMP_BYTES) && victim_at(search, i, at, end, springboard)) {
      return true;
    }
    at += peek.length;
  }
  return false;
}

bool
ct_springboard_in_victim(const struct planner *planner, size_t i, uint64_t patch, struct ct_springboard *springboard)
{
  struct search search = {planner, patch, i};
  for (size_t j = first_near(&search); j < planner->count && planner->functions[j].address <= patch + FORTH; j++) {
    memset(springboard, 0, sizeof(*springboard));
    if (j != i && victim_in(&search, j, springboard)) {
      return true;
    }
  }
  return false;
}
