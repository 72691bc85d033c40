/* SPDX-License-Identifier: MIT */
/*
 * Instructions of which nothing is recorded but the whole state after them (CT_SOURCE_APART): they are executed in the
 * unit, with all registers the program's own, and then the tracer comes to record that. No step: a tracer that dies
 * leaves nothing behind.
 *
 *   mov %r11, spill_place;  mov app_r10, %r10;  mov app_r11, %r11
 *   INSTRUCTION
 *   mov %r10, app_r10;  mov %r11, app_r11;  mov spill_place, %r11
 *   (asks the tracer)
 *
 * popf: what it pops may have the trap flag, of which the trap would come behind an instruction of ours. That is left
 * to a step where the instruction is, so it is looked at first; neither lea nor movzx changes a flag:
 *
 *   mov %rcx, %r10;  movzwl (%rsp), %ecx;  movzbl 1(%rsp), %ecx         faults as popf does
 *   lea (, %ecx, 8), %ecx;  lea (, %ecx, 8), %ecx;  lea (, %ecx, 2), %ecx;  movzbl %cl, %ecx
 *   jrcxz 1f;  jmp to the other way;  1: mov %r10, %rcx
 */
#include "x86/translate_internal.h"

enum { JMP_NEAR = 5 };

/* Goes to the label if the trap flag is set in what is about to be popped; rcx is in r10 there. */
static void
emit_look_at_flags(struct ct_writer *w, uint64_t pc, struct ct_code_label *traps)
{
  struct ct_code *out = w->out;
  ct_writer_note(w, pc);
  ct_emit_mov(out, CT_R10, CT_RCX);
  w->now.rcx_is = CT_RCX_R10;
  ct_writer_note(w, pc);
  ct_emit_movzx16_load(out, CT_RCX, ct_mem(CT_RSP, 0));
  ct_emit_movzx8_load(out, CT_RCX, ct_mem(CT_RSP, 1));
  ct_emit_lea32(out, CT_RCX, ct_mem_table(0, CT_RCX, 3));
  ct_emit_lea32(out, CT_RCX, ct_mem_table(0, CT_RCX, 3));
  ct_emit_lea32(out, CT_RCX, ct_mem_table(0, CT_RCX, 1));
  ct_emit_movzx8(out, CT_RCX, CT_RCX);
  ct_emit_jrcxz_over(out, JMP_NEAR);
  ct_emit_jmp_label(out, traps);
  ct_emit_mov(out, CT_RCX, CT_R10);
  w->now.rcx_is = CT_RCX_OWN;
}

static void
emit_bare(struct ct_writer *w, const struct ct_source_insn *insn)
{
  struct ct_code *out = w->out;
  uint64_t pc = insn->pc, next = pc + insn->length;
  ct_writer_note(w, pc);
  ct_emit_mov_store(out, CT_SLOT(w->place, spill_place), CT_R11);
  ct_emit_mov_load(out, CT_R10, CT_SLOT(w->place, app_r10));
  ct_emit_mov_load(out, CT_R11, CT_SLOT(w->place, app_r11));
  w->now.r10_is_slot = w->now.r11_is_slot = 0;
  w->now.place_is_slot = 1;
  ct_writer_note(w, pc);
  if (insn->is_rip) {
    ct_writer_copy_near(w, insn);
  } else {
    ct_emit_bytes(out, insn->code, insn->length);
  }
  w->now.apart = insn->length;
  ct_writer_note(w, next);
  ct_emit_mov_store(out, CT_SLOT(w->place, app_r10), CT_R10);
  ct_emit_mov_store(out, CT_SLOT(w->place, app_r11), CT_R11);
  ct_emit_mov_load(out, CT_R11, CT_SLOT(w->place, spill_place));
  w->now.r10_is_slot = w->now.r11_is_slot = 1;
  w->now.place_is_slot = 0;
  ct_writer_note(w, next);
  ct_translate_leave(w, next, CT_EXIT_APART);
  w->unit->exits[w->unit->exit_count - 1].apart = insn->length;
}

void
ct_apart_emit(struct ct_writer *w, const struct ct_source_insn *insn)
{
  struct ct_code_label traps = {.count = 0};
  struct ct_recovery before = w->now;
  if (insn->is_rip && !ct_writer_reaches(w, insn->address)) {
    ct_translate_leave(w, insn->pc, CT_EXIT_STEP);
    return;
  }
  if (insn->is_popf) {
    emit_look_at_flags(w, insn->pc, &traps);
  }
  emit_bare(w, insn);
  if (insn->is_popf) {
    ct_code_label_bind(w->out, &traps);
    w->now = before;
    w->now.rcx_is = CT_RCX_R10;
    ct_writer_note(w, insn->pc);
    ct_emit_mov(w->out, CT_RCX, CT_R10);
    w->now.rcx_is = CT_RCX_OWN;
    ct_translate_leave(w, insn->pc, CT_EXIT_STEP);
  }
}
