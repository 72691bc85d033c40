/* SPDX-License-Identifier: MIT */
/*
 * Whether a plan may be put into a process, judged from its bytes by rules of its own, not by the planner's: used by
 * the fuzz target and by the differential test, on made-up files and on the system's libraries.
 *
 *   - every byte that changes lies in code of the file, and belongs to one patch;
 *   - what is changed is entered at the first byte of a patch only: no direct branch, no return of a call, no address
 *     that code computes, no end of another window goes elsewhere into it;
 *   - bytes that a punned jump borrows stay what they are;
 *   - a jump in padding replaces whole bytes of nops and int3 that nothing runs into.
 */
#ifndef CT_TESTS_CHECK_PLAN_H
#define CT_TESTS_CHECK_PLAN_H

#include "plan/plan.h"
#include "target/elf.h"

#include <Zydis/Zydis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum plan_change_kind { CHANGE_ENTRY, CHANGE_RELAY, CHANGE_EVICTED, CHANGE_BORROWED };

struct plan_change {
  uint64_t start, end;
  uint8_t kind;
  uint32_t function;
};

struct plan_check {
  const struct ct_plan *plan;
  ZydisDecoder decoder;
  struct plan_change *changes; /* sorted, disjoint */
  size_t count, capacity;
  char text[256]; /* what is wrong, "" when nothing is */
};

static inline void
plan_wrong(struct plan_check *check, const char *fmt, ...)
{
  va_list ap;
  if (check->text[0] != 0) {
    return;
  }
  va_start(ap, fmt);
  vsnprintf(check->text, sizeof(check->text), fmt, ap);
  va_end(ap);
}

static inline void
plan_add(struct plan_check *check, uint64_t start, uint64_t bytes, enum plan_change_kind kind, size_t function)
{
  if (check->count == check->capacity) {
    check->capacity = check->capacity * 2 + 256;
    check->changes = realloc(check->changes, check->capacity * sizeof(*check->changes));
    if (check->changes == NULL) {
      abort();
    }
  }
  check->changes[check->count++] = (struct plan_change){start, start + bytes, (uint8_t)kind, (uint32_t)function};
}

static inline int
plan_compare(const void *a, const void *b)
{
  const struct plan_change *x = a, *y = b;
  return x->start < y->start ? -1 : x->start > y->start;
}

static inline void
plan_collect(struct plan_check *check)
{
  const struct ct_plan *plan = check->plan;
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *f = &plan->functions[i];
    uint64_t at = f->address + f->patch_offset;
    if (f->refusal != CT_REFUSED_NOT) {
      continue;
    }
    plan_add(check, at, f->patch_bytes, CHANGE_ENTRY, i);
    if (f->patch_bytes == 0 || f->patch_bytes > CT_JUMP_BYTES) {
      plan_wrong(check, "function %#llx changes %u bytes", (unsigned long long)f->address, f->patch_bytes);
    }
    if (f->tactic == CT_TACTIC_PUN && f->patch_bytes < CT_JUMP_BYTES) {
      plan_add(check, at + f->patch_bytes, CT_JUMP_BYTES - f->patch_bytes, CHANGE_BORROWED, i);
    }
    if (f->tactic != CT_TACTIC_SHORT && f->tactic != CT_TACTIC_EVICT) {
      continue;
    }
    const struct ct_springboard *springboard = &plan->springboard[f->springboard];
    plan_add(check, springboard->relay, CT_JUMP_BYTES, CHANGE_RELAY, i);
    if (f->tactic == CT_TACTIC_EVICT) {
      plan_add(check, springboard->evicted, CT_JUMP_BYTES, CHANGE_EVICTED, i);
    }
    int64_t distance = (int64_t)(springboard->relay - (at + 2));
    if (distance != (int8_t)distance) {
      plan_wrong(check, "function %#llx: the short jump does not reach", (unsigned long long)f->address);
    }
  }
  if (check->count != 0) {
    qsort(check->changes, check->count, sizeof(*check->changes), plan_compare);
  }
  for (size_t i = 1; i < check->count; i++) {
    const struct plan_change *a = &check->changes[i - 1], *b = &check->changes[i];
    /* Two may borrow the same bytes. */
    if (a->end > b->start && (a->kind != CHANGE_BORROWED || b->kind != CHANGE_BORROWED)) {
      plan_wrong(check, "changes at %#llx (kind %u) and %#llx (kind %u) overlap", (unsigned long long)a->start, a->kind,
                 (unsigned long long)b->start, b->kind);
    }
  }
}

/* The change that address lies in, after its first byte or at a relay's first; NULL for none. */
static inline const struct plan_change *
plan_inside(const struct plan_check *check, uint64_t address)
{
  size_t low = 0, high = check->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (check->changes[middle].start <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (size_t i = low; i > 0 && low - i < 3; i--) {
    const struct plan_change *c = &check->changes[i - 1];
    if (c->kind != CHANGE_BORROWED && address < c->end && (address != c->start || c->kind == CHANGE_RELAY)) {
      return c;
    }
  }
  return NULL;
}

static inline void
plan_goes_to(struct plan_check *check, uint64_t from, uint64_t to, const char *how)
{
  const struct plan_change *c = plan_inside(check, to);
  if (c != NULL) {
    plan_wrong(check, "%#llx %s %#llx, inside the change of kind %u at %#llx", (unsigned long long)from, how,
               (unsigned long long)to, c->kind, (unsigned long long)c->start);
  }
}

/* One instruction of the file as it is: where control goes from it. */
static inline void
plan_instruction(struct plan_check *check, uint64_t at, const ZydisDecodedInstruction *in)
{
  uint64_t next = at + in->length;
  if (in->raw.imm[0].is_relative) {
    plan_goes_to(check, at, next + (uint64_t)in->raw.imm[0].value.s, "branches to");
  }
  if (in->mnemonic == ZYDIS_MNEMONIC_LEA && in->raw.modrm.mod == 0 && in->raw.modrm.rm == 5) {
    plan_goes_to(check, at, next + (uint64_t)in->raw.disp.value, "computes");
  }
  if (in->meta.category == ZYDIS_CATEGORY_CALL && plan_inside(check, at) == NULL) {
    const struct plan_change *c = plan_inside(check, next);
    /* What is displaced itself pushes an address that nothing returns into, unless the call comes back. */
    if (c != NULL) {
      plan_wrong(check, "the call at %#llx returns into the change at %#llx", (unsigned long long)at,
                 (unsigned long long)c->start);
    }
  }
}

/* All code of a function, up to the next one. Instructions are taken from its start on, as they follow one another. */
static inline void
plan_walk(struct plan_check *check, size_t i)
{
  const struct ct_plan *plan = check->plan;
  const struct ct_planned *f = &plan->functions[i];
  uint64_t end = f->address + f->size;
  if (i + 1 < plan->count && plan->functions[i + 1].address < end) {
    end = plan->functions[i + 1].address;
  }
  size_t left = ct_elf_bytes_left(plan->elf, f->address);
  size_t size = end - f->address < left ? end - f->address : left;
  const uint8_t *code = size != 0 ? ct_elf_bytes(plan->elf, f->address, size) : NULL;
  for (size_t at = 0; code != NULL && at < size;) {
    ZydisDecodedInstruction in;
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&check->decoder, NULL, code + at, size - at, &in))) {
      at++;
      continue;
    }
    plan_instruction(check, f->address + at, &in);
    at += in.length;
  }
}

/* The displaced instructions as they are in the file, and where their copy goes on. */
static inline void
plan_window(struct plan_check *check, uint64_t at, const struct ct_window *window, uint64_t need)
{
  const uint8_t *code = ct_elf_bytes(check->plan->elf, at, window->length);
  if (code == NULL || window->count == 0 || window->count > CT_RELOCATED_MAX ||
      (window->length < need && !window->terminated)) {
    plan_wrong(check, "the window at %#llx has %u bytes, %u instructions", (unsigned long long)at, window->length,
               window->count);
    return;
  }
  for (uint32_t i = 0; i < window->count; i++) {
    ZydisDecodedInstruction in;
    size_t length = (size_t)(window->offset[i + 1] - window->offset[i]);
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&check->decoder, NULL, code + window->offset[i], length, &in)) ||
        in.length != length) {
      plan_wrong(check, "the window at %#llx is not of whole instructions", (unsigned long long)at);
    } else if (in.meta.category == ZYDIS_CATEGORY_CALL) {
      plan_goes_to(check, at, at + window->offset[i + 1], "calls and comes back to");
    }
  }
  if (!window->terminated) {
    plan_goes_to(check, at, at + window->length, "goes on at");
  }
}

static inline bool
plan_is_padding(const struct plan_check *check, uint64_t from, uint64_t to)
{
  for (uint64_t at = from; at < to;) {
    size_t left = ct_elf_bytes_left(check->plan->elf, at);
    const uint8_t *code = left != 0 ? ct_elf_bytes(check->plan->elf, at, left) : NULL;
    ZydisDecodedInstruction in;
    if (code == NULL || !ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&check->decoder, NULL, code, left, &in))) {
      return false;
    }
    bool xchg = in.mnemonic == ZYDIS_MNEMONIC_XCHG && in.opcode == 0x90 && in.raw.rex.B == 0;
    if (in.mnemonic != ZYDIS_MNEMONIC_NOP && in.mnemonic != ZYDIS_MNEMONIC_INT3 && !xchg) {
      return false;
    }
    at += in.length;
  }
  return true;
}

/* "" or what is wrong. plan_check_free afterwards. */
static inline const char *
plan_check(struct plan_check *check, const struct ct_plan *plan)
{
  memset(check, 0, sizeof(*check));
  check->plan = plan;
  ZydisDecoderInit(&check->decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  plan_collect(check);
  for (size_t i = 0; i < check->count; i++) {
    const struct plan_change *c = &check->changes[i];
    if (ct_elf_bytes(plan->elf, c->start, c->end - c->start) == NULL || !ct_elf_is_code(plan->elf, c->start) ||
        !ct_elf_is_code(plan->elf, c->end - 1)) {
      plan_wrong(check, "the change at %#llx is not in code", (unsigned long long)c->start);
    }
  }
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *f = &plan->functions[i];
    plan_walk(check, i);
    if (f->refusal != CT_REFUSED_NOT) {
      continue;
    }
    uint64_t at = f->address + f->patch_offset;
    plan_window(check, at, &f->window, f->patch_bytes);
    if (f->window.length < f->patch_bytes && !plan_is_padding(check, at + f->window.length, at + f->patch_bytes)) {
      plan_wrong(check, "the patch at %#llx ends in something else than padding", (unsigned long long)at);
    }
    if (f->tactic == CT_TACTIC_EVICT) {
      plan_window(check, plan->springboard[f->springboard].evicted, &plan->springboard[f->springboard].window,
                  2 * CT_JUMP_BYTES);
    }
  }
  return check->text;
}

static inline void
plan_check_free(struct plan_check *check)
{
  free(check->changes);
}

#endif
