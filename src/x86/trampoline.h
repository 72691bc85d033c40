/* SPDX-License-Identifier: MIT */
/* Trampolines: the code between a function's patched entry and its body. See trampoline.c. */
#ifndef CT_X86_TRAMPOLINE_H
#define CT_X86_TRAMPOLINE_H

#include "ring/layout.h"
#include "x86/emit.h"
#include "x86/patch.h"
#include "x86/relocate.h"

#define CT_TRAMPOLINE_BYTES_MAX 1536

struct ct_trampoline_spec {
  uint32_t fn;                /* id in the event */
  uint8_t mode;               /* CT_HOOK_* */
  uint8_t callout;            /* enum ct_callout */
  uint8_t itrace;             /* CT_CALLOUT_ITRACE: as struct ct_hook_desc has it */
  uint8_t self_branch;        /* the function branches to its own entry: coming back there is no call */
  uint8_t event_last;         /* CT_HOOK_STACKLESS: the displaced instructions come before the event */
  uint8_t values;             /* CT_HOOK_FULL: CT_HOOK_VALUES_* */
  struct ct_values_form form; /* CT_HOOK_VALUES_FEW */
  struct ct_detail_form detail;
  uint16_t texts;      /* with detail: what is read that arguments point to, the low bits of what the agent is asked
                          for (CT_DETAIL_WANTED_STRINGS_SHIFT) */
  uint16_t outs;       /* likewise at the return (CT_DETAIL_OUT_REGISTER) */
  bool has_gate;       /* CT_HOOK_FULL: under a budget, see struct ct_gate, which lies before the first instruction */
  struct ct_gate gate; /* what it begins with */
  uint32_t counter;    /* with a gate: which of a thread's counters is its own, ... */
  bool moves_counter;  /* ... which may become another one: CT_GATE_COUNTER */
  uint64_t errno_slot; /* with values: runtime address of the word that says where errno is from %fs on; 0: none */
  int64_t store_delta; /* D */
  uint64_t table;      /* runtime address of the byte table */
  uint64_t function;   /* runtime address of the patched instruction: entry, or after endbr64 */
  uint64_t head;       /* runtime address of the region's struct ct_region_head */
  uint64_t desc;       /* runtime address of this trampoline's descriptor */
  const uint8_t *code; /* the displaced bytes */
  const struct ct_window *window;
};

/* How much longer it is with CT_HOOK_VALUES_FEW, at most. */
static inline size_t
ct_trampoline_values_bytes(struct ct_values_form form)
{
  size_t count = (size_t)__builtin_popcount(form.integers) + (size_t)__builtin_popcount(form.vectors);
  return 320 + (count != 0 ? 64 + 24 * count : 0) +
         (form.stack != 0 ? 128u + 32u * (unsigned)__builtin_popcount(form.stack) : 0);
}

/*
 * Emits one trampoline at out's position, with a gate before it, and fills its descriptor: desc->start is where the
 * function's entry is to go. On a refusal out and *desc are untouched.
 */
enum ct_window_refusal ct_trampoline_emit(const struct ct_trampoline_spec *spec, struct ct_code *out,
                                          struct ct_hook_desc *desc);

/*
 * Is that the end of a trampoline's call, five bytes further on, and what follows it? The distance of the call may be
 * any; the instruction after it is nowhere else after a call.
 */
#define CT_RETURN_POINT_BYTES 10
bool ct_trampoline_returns_at(const uint8_t *code);

/* Addresses of the templates' FDEs: of call-through trampolines by their values, of enter-only ones. */
struct ct_trampoline_rows {
  uint64_t full, values, detail, enter;
};

/*
 * The .eh_frame templates for the agent: a CIE and the FDEs. Writes at most size bytes to buffer (which will be at
 * address). Returns the bytes written, 0 when they do not fit.
 */
size_t ct_trampoline_unwind(int64_t store_delta, struct ct_detail_form detail, uint8_t *buffer, size_t size,
                            uint64_t address, struct ct_trampoline_rows *rows);

#endif
