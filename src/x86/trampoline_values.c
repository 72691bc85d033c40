/* SPDX-License-Identifier: MIT */
/*
 * Arguments and results in the ring of events (CT_HOOK_VALUES_FEW), for trampoline.c. Those that belong together take
 * their entries at once, by one instruction. When a signal handler has filled the segment since there was room for
 * them, the last ones come to lie after its end, where nobody looks (CT_SEGMENT_STRIDE); or all of them are left out.
 *
 * How long this code is depends on what the function takes. The unwind table is the same for all functions
 * (trampoline_unwind.c), so that of the enter half lies among the cold stubs, where all is as at the function's entry,
 * and that of the return half is filled up to one length.
 */
#include "x86/trampoline_internal.h"

enum { RETURN_BYTES = 232, LARGEST_JUMP_OVER = 127 + 2, SLOT_BYTES = 8 };

static unsigned
bits_in(uint32_t mask)
{
  return (unsigned)__builtin_popcount(mask);
}

unsigned
ct_trampoline_enter_values(struct ct_values_form form)
{
  return bits_in(form.integers) + bits_in(form.vectors) + bits_in(form.stack);
}

unsigned
ct_trampoline_return_values(struct ct_values_form form)
{
  return bits_in(form.results);
}

/* Entries in r11, and in rdx the word of all of them but for what they are. rax is free. */
static void
take_entries(struct ct_code *out, unsigned count, struct ct_code_label *none)
{
  ct_emit_mov32_imm(out, CT_R11, count * CT_EVENT_BYTES);
  ct_emit_xadd_store(out, ct_mem_gs(CT_GS_CURSOR), CT_R11);
  ct_emit_test32_imm(out, CT_R11, CT_CURSOR_VALID);
  ct_emit_jcc_label(out, CT_JE, none);
  ct_emit_mov32(out, CT_RDX, CT_R11);
  ct_emit_and32_imm(out, CT_RDX, CT_WORD_TAG_MASK);
  ct_emit_and_imm(out, CT_R11, ~CT_WORD_TAG_MASK);
  ct_emit_mov32(out, CT_RAX, CT_RSP);
  ct_emit_shl(out, CT_RAX, 32);
  ct_emit_or(out, CT_RDX, CT_RAX);
}

/* The entry's value is there: its word, last. */
static void
put_word(struct ct_code *out, int32_t at, uint32_t word)
{
  ct_emit_lea(out, CT_RAX, ct_mem(CT_RDX, (int32_t)word));
  ct_emit_mov_store(out, ct_mem(CT_R11, at + 8), CT_RAX);
}

static uint32_t
word_of(uint32_t which)
{
  return CT_WORD_VALUE | which << CT_WORD_VALUE_SHIFT;
}

static void
put_loaded(struct ct_code *out, int32_t at, struct ct_mem from, uint32_t word)
{
  ct_emit_mov_load(out, CT_RAX, from);
  ct_emit_mov_store(out, ct_mem(CT_R11, at), CT_RAX);
  put_word(out, at, word);
}

static void
put_vector(struct ct_code *out, int32_t at, unsigned number, uint32_t word)
{
  ct_emit_movq_store(out, ct_mem(CT_R11, at), number);
  put_word(out, at, word);
}

/* The words of the stack above the return-address slot, if the thread's stack has as many. */
static void
put_stack(struct ct_code *out, uint32_t words)
{
  struct ct_code_label none = {0}, full = {0};
  int32_t end = 32 - __builtin_clz(words), at = 0;
  ct_trampoline_emit_stack_left(out, &none);
  ct_emit_cmp_imm(out, CT_RAX, SLOT_BYTES + end * 8);
  ct_emit_jcc_label(out, CT_JB, &none);
  take_entries(out, bits_in(words), &full);
  for (int32_t i = 0; i < end; i++) {
    if ((words >> i & 1) != 0) {
      put_loaded(out, at, ct_mem(CT_RSP, SLOT_BYTES + i * 8), word_of(CT_RING_VALUE_STACK + (uint32_t)i));
      at += CT_EVENT_BYTES;
    }
  }
  ct_code_label_bind(out, &none);
  ct_code_label_bind(out, &full);
}

/* rax, rdx, r11 are free, r10 is where it goes on; what they were is saved. */
void
ct_trampoline_emit_enter_values(const struct ct_trampoline_spec *spec, struct ct_code *out)
{
  static const enum ct_reg registers[] = {CT_RDI, CT_RSI, CT_RDX, CT_RCX, CT_R8, CT_R9};
  struct ct_values_form form = spec->form;
  struct ct_code_label full = {0};
  unsigned count = bits_in(form.integers) + bits_in(form.vectors);
  int32_t at = 0;
  if (count != 0) {
    take_entries(out, count, &full);
  }
  for (unsigned i = 0; i < sizeof(registers) / sizeof(registers[0]); i++) {
    uint32_t word = i == 0 ? CT_WORD_ARG_1 : i == 1 ? CT_WORD_ARG_2 : word_of(CT_RING_VALUE_INTEGER + i);
    if ((form.integers >> i & 1) == 0) {
      continue;
    }
    if (registers[i] == CT_RDX) {
      put_loaded(out, at, ct_mem(CT_RSP, -16), word);
    } else {
      ct_emit_mov_store(out, ct_mem(CT_R11, at), registers[i]);
      put_word(out, at, word);
    }
    at += CT_EVENT_BYTES;
  }
  for (unsigned i = 0; i < 8; i++) {
    if ((form.vectors >> i & 1) != 0) {
      put_vector(out, at, i, word_of(CT_RING_VALUE_VECTOR + i));
      at += CT_EVENT_BYTES;
    }
  }
  ct_code_label_bind(out, &full);
  if (form.stack != 0) {
    put_stack(out, form.stack);
  }
  ct_emit_jmp_reg(out, CT_R10);
}

/* errno, where eax was -1. */
static void
put_errno(const struct ct_trampoline_spec *spec, struct ct_code *out)
{
  struct ct_code_label none = {0};
  ct_emit_cmp32_store_imm(out, ct_mem(CT_RSP, -8), -1);
  ct_emit_jcc_label(out, CT_JNE, &none);
  take_entries(out, 1, &none);
  ct_emit_mov_load(out, CT_RAX, ct_mem_rip(spec->errno_slot));
  ct_emit_mov32_load(out, CT_RAX, ct_mem_fs(CT_RAX));
  ct_emit_mov_store(out, ct_mem(CT_R11, 0), CT_RAX);
  put_word(out, 0, word_of(CT_RING_VALUE_ERROR));
  ct_code_label_bind(out, &none);
}

static void
put_results(const struct ct_trampoline_spec *spec, struct ct_code *out)
{
  uint8_t results = spec->form.results & (CT_VALUES_RAX | CT_VALUES_RDX | CT_VALUES_XMM0 | CT_VALUES_XMM1);
  struct ct_code_label full = {0};
  int32_t at = 0;
  if (results != 0) {
    take_entries(out, bits_in(results), &full);
  }
  if ((results & CT_VALUES_RAX) != 0) {
    put_loaded(out, at, ct_mem(CT_RSP, -8), CT_WORD_RESULT);
    at += CT_EVENT_BYTES;
  }
  if ((results & CT_VALUES_RDX) != 0) {
    put_loaded(out, at, ct_mem(CT_RSP, -16), word_of(CT_RING_VALUE_RESULT_2));
    at += CT_EVENT_BYTES;
  }
  if ((results & CT_VALUES_XMM0) != 0) {
    put_vector(out, at, 0, word_of(CT_RING_VALUE_XMM0));
    at += CT_EVENT_BYTES;
  }
  if ((results & CT_VALUES_XMM1) != 0) {
    put_vector(out, at, 1, word_of(CT_RING_VALUE_XMM1));
  }
  ct_code_label_bind(out, &full);
  if ((spec->form.results & CT_VALUES_ERRNO) != 0 && spec->errno_slot != 0) {
    put_errno(spec, out);
  }
}

void
ct_trampoline_emit_return_values(const struct ct_trampoline_spec *spec, struct ct_code *out)
{
  size_t end = out->length + RETURN_BYTES;
  put_results(spec, out);
  if (out->overflow || out->length > end) {
    out->overflow = true;
    return;
  }
  size_t left = end - out->length;
  if (left > LARGEST_JUMP_OVER) {
    ct_emit_jmp(out, ct_code_pc(out) + left);
  } else if (left >= 2) {
    ct_emit_jmp_over(out, (int8_t)(left - 2));
  }
  while (out->length < end && !out->overflow) {
    ct_emit_int3(out);
  }
}
