/* SPDX-License-Identifier: MIT */
/*
 * How the entry of a function is changed so that it goes to its trampoline. In this order:
 *
 *   jump      e9 rel32                    over whole instructions that are entered at the first only
 *   endbr     f3 0f 1e fa | e9 rel32      the same after endbr64
 *   padding   e9 rel32                    the code ends before five bytes, padding follows
 *   short     eb rel8 -> e9 rel32         the second jump in padding within 127 bytes (plan/springboard.c)
 *   pun       e9 xx [b2 b3 b4]            the last bytes of rel32 stay what they are, the first bytes of the next
 *                                         instruction, which may thus be branched to. They fix the upper bytes of the
 *                                         distance: a stub is mapped where it points (hook/install.c)
 *   evict     eb rel8 -> e9 rel32         the second jump in place of instructions that move out, for which
 *                                         five bytes before it a third jump goes to the copy (plan/springboard.c)
 *
 *   int3      cc                          only where the user asks for it (ct_plan_use_int3)
 *
 * Tactics from short on are for functions that the first three refuse, and selected when these have been through all
 * functions, so that none takes another's padding.
 */
#include "plan/plan_internal.h"
#include "x86/patch.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define INT3_BYTES  1
#define SHORT_BYTES 2
#define REACH       0x7ff00000ll /* of rel32, less a margin */
#define LOWEST      0x10000      /* address that can be mapped, as Linux is set up */

static enum ct_refusal
window_refusal(enum ct_window_refusal refusal)
{
  switch (refusal) {
  case CT_WINDOW_OK:
    return CT_REFUSED_NOT;
  case CT_WINDOW_UNDECODABLE:
    return CT_REFUSED_UNDECODABLE;
  case CT_WINDOW_INDIRECT_CALL:
    return CT_REFUSED_INDIRECT_CALL;
  case CT_WINDOW_TOO_SHORT:
    return CT_REFUSED_TOO_SHORT;
  case CT_WINDOW_UNREACHABLE:
    return CT_REFUSED_UNREACHABLE;
  }
  return CT_REFUSED_UNDECODABLE;
}

uint64_t
ct_code_end(const struct planner *planner, size_t i)
{
  const struct ct_function *function = &planner->functions[i];
  uint64_t end = function->address + function->size;
  if (i + 1 < planner->count && planner->functions[i + 1].address < end) {
    end = planner->functions[i + 1].address;
  }
  return end;
}

/* The bytes that change must be entered at their first byte only. */
static enum ct_refusal
check_patched_bytes(const struct planner *planner, size_t i, struct ct_planned *planned)
{
  uint64_t patched = planned->address + planned->patch_offset;
  uint64_t end = patched + planned->patch_bytes;
  if (i + 1 < planner->count && planner->functions[i + 1].address < end) {
    planned->refusal_offset = (uint8_t)(planner->functions[i + 1].address - planned->address);
    return CT_REFUSED_ENTRY_INTO;
  }
  for (uint64_t at = patched + 1; at < end; at++) {
    if (ct_targets_has(&planner->scan.targets, at)) {
      planned->refusal_offset = (uint8_t)(at - planned->address);
      return CT_REFUSED_BRANCH_INTO;
    }
  }
  return CT_REFUSED_NOT;
}

/* The window is shorter than a patch of need bytes; may the rest overwrite what follows it? */
static bool
ends_in_padding(const struct ct_planned *planned, const uint8_t *code, size_t left, size_t need)
{
  size_t at = planned->window.length;
  return planned->window.terminated && left >= need && ct_is_padding(code + at, need - at, left - at);
}

enum ct_refusal
ct_tactic_choose(const struct planner *planner, size_t i, struct ct_planned *planned)
{
  const struct ct_elf *elf = planner->plan->elf;
  uint64_t end = ct_code_end(planner, i);
  size_t left = ct_elf_code_left(elf, planned->address);
  const uint8_t *code = ct_elf_bytes(elf, planned->address, left);
  size_t size = end - planned->address < left ? end - planned->address : left;
  if (code == NULL || size == 0) {
    return CT_REFUSED_NO_CODE;
  }
  planned->tactic = CT_TACTIC_JUMP;
  planned->patch_bytes = CT_JUMP_BYTES;
  if (ct_is_endbr(code, size)) {
    planned->tactic = CT_TACTIC_ENDBR;
    planned->patch_offset = 4;
    if (size == 4) {
      return CT_REFUSED_TOO_SHORT;
    }
  }
  const uint8_t *patched = code + planned->patch_offset;
  size -= planned->patch_offset;
  left -= planned->patch_offset;
  enum ct_window_refusal refusal =
      ct_window_find(patched, size, planned->address + planned->patch_offset, CT_JUMP_BYTES, &planned->window);
  if (refusal != CT_WINDOW_OK) {
    return window_refusal(refusal);
  }
  if (planned->window.length < CT_JUMP_BYTES) {
    /* The code ends early (ret, jmp): the jump's last bytes may lie in padding. */
    if (!ends_in_padding(planned, patched, left, CT_JUMP_BYTES)) {
      return CT_REFUSED_TOO_SHORT;
    }
    planned->tactic = CT_TACTIC_PADDING;
  }
  return check_patched_bytes(planner, i, planned);
}

bool
ct_tactic_may_help(enum ct_refusal refusal)
{
  return refusal == CT_REFUSED_TOO_SHORT || refusal == CT_REFUSED_BRANCH_INTO || refusal == CT_REFUSED_ENTRY_INTO ||
         refusal == CT_REFUSED_INDIRECT_CALL;
}

static const uint8_t *
patched_code(const struct planner *planner, const struct ct_planned *planned, size_t *size, size_t *left, size_t i)
{
  uint64_t patched = planned->address + planned->patch_offset;
  uint64_t end = ct_code_end(planner, i);
  *left = ct_elf_code_left(planner->plan->elf, patched);
  *size = end <= patched ? 0 : end - patched < *left ? end - patched : *left;
  return *size == 0 ? NULL : ct_elf_bytes(planner->plan->elf, patched, *left);
}

static bool
add_springboard(struct ct_plan *plan, const struct ct_springboard *springboard, struct ct_planned *planned)
{
  size_t count = plan->springboard_count;
  if ((count & (count - 1)) == 0) { /* there is room up to the next power of two */
    struct ct_springboard *grown = realloc(plan->springboard, (count == 0 ? 1 : 2 * count) * sizeof(*grown));
    if (grown == NULL) {
      return false;
    }
    plan->springboard = grown;
  }
  planned->springboard = (uint32_t)plan->springboard_count;
  plan->springboard[plan->springboard_count++] = *springboard;
  return true;
}

typedef bool find_springboard(const struct planner *planner, size_t i, uint64_t patch,
                              struct ct_springboard *springboard);

/* Tactics 3 and 5: two bytes at the entry are enough, if there is a springboard for the five others. */
static bool
choose_short(const struct planner *planner, size_t i, enum ct_tactic tactic, find_springboard *find,
             struct ct_planned *planned)
{
  size_t size, left;
  const uint8_t *code = patched_code(planner, planned, &size, &left, i);
  uint64_t patched = planned->address + planned->patch_offset;
  planned->patch_bytes = SHORT_BYTES;
  if (code == NULL || ct_window_find(code, size, patched, SHORT_BYTES, &planned->window) != CT_WINDOW_OK ||
      (planned->window.length < SHORT_BYTES && !ends_in_padding(planned, code, left, SHORT_BYTES)) ||
      check_patched_bytes(planner, i, planned) != CT_REFUSED_NOT) {
    return false;
  }
  struct ct_springboard springboard = {0};
  planned->tactic = (uint8_t)tactic;
  return find(planner, i, patched, &springboard) && add_springboard(planner->plan, &springboard, planned);
}

/* Is there anything that can be mapped where the jump may point? [lo, hi) are ELF virtual addresses. */
static bool
pun_can_be_mapped(const struct planner *planner, int64_t lo, int64_t hi)
{
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(planner->plan->elf, &segments);
  int64_t module_lo = INT64_MAX, module_hi = 0;
  for (size_t s = 0; s < count; s++) {
    int64_t start = (int64_t)(segments[s].address & ~0xffffull);
    int64_t end = (int64_t)((segments[s].address + segments[s].memory_bytes + 0xffff) & ~0xffffull);
    module_lo = start < module_lo ? start : module_lo;
    module_hi = end > module_hi ? end : module_hi;
  }
  bool fixed = ct_elf_type(planner->plan->elf) == ET_EXEC;
  /* Below the module, where a heap never grows; after it only where it is far from the heap. */
  bool below = lo < module_lo && (!fixed || (lo < hi && hi > LOWEST && lo >= LOWEST));
  bool above =
      fixed ? hi > module_hi + (int64_t)CT_HEAP_RESERVE : hi > module_hi && ct_elf_soname(planner->plan->elf) != NULL;
  return below || above;
}

/* Tactic 4: the jump's first `own` bytes are ours, the others stay. */
static bool
choose_pun(const struct planner *planner, size_t i, struct ct_planned *planned)
{
  size_t size, left;
  const uint8_t *code = patched_code(planner, planned, &size, &left, i);
  uint64_t patched = planned->address + planned->patch_offset;
  if (code == NULL || left < CT_JUMP_BYTES) {
    return false;
  }
  if (i + 1 < planner->count && planner->functions[i + 1].address < patched + CT_JUMP_BYTES) {
    return false; /* its entry may change */
  }
  for (unsigned own = CT_JUMP_BYTES - 1; own >= 1; own--) {
    planned->patch_bytes = (uint8_t)own;
    if (ct_window_find(code, size, patched, own, &planned->window) != CT_WINDOW_OK || planned->window.length != own ||
        check_patched_bytes(planner, i, planned) != CT_REFUSED_NOT) {
      continue;
    }
    uint64_t span = 1ull << (8 * (own - 1));
    int32_t rel;
    memcpy(&rel, code + 1, sizeof(rel));
    int64_t lo = (int64_t)(patched + CT_JUMP_BYTES) + (int64_t)((uint64_t)(int64_t)rel & ~(span - 1));
    if (pun_can_be_mapped(planner, lo, lo + (int64_t)span)) {
      planned->tactic = CT_TACTIC_PUN;
      return true;
    }
  }
  return false;
}

bool
ct_tactic_choose_other(const struct planner *planner, size_t i, struct ct_planned *planned)
{
  struct ct_planned saved = *planned;
  if (choose_short(planner, i, CT_TACTIC_SHORT, ct_springboard_in_padding, planned)) {
    return true;
  }
  *planned = saved;
  if (choose_pun(planner, i, planned)) {
    return true;
  }
  *planned = saved;
  /* Go makes panics of faults, by the place where they happened: instructions stay where they are. */
  if (planner->plan->runtime != CT_RUNTIME_GO &&
      choose_short(planner, i, CT_TACTIC_EVICT, ct_springboard_in_victim, planned)) {
    return true;
  }
  *planned = saved;
  size_t size, left;
  const uint8_t *code = patched_code(planner, planned, &size, &left, i);
  planned->patch_bytes = INT3_BYTES;
  planned->int3_fits = code != NULL && ct_window_find(code, size, planned->address + planned->patch_offset, INT3_BYTES,
                                                      &planned->window) == CT_WINDOW_OK;
  return false;
}
