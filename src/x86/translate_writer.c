/* SPDX-License-Identifier: MIT */
/* What is under way while a unit is being emitted (struct ct_writer): its notes, and what it can reach. */
#include "x86/translate_internal.h"

#include <string.h>

struct ct_recovery *
ct_writer_note(struct ct_writer *w, uint64_t pc)
{
  struct ct_unit *unit = w->unit;
  uint32_t at = ct_writer_here(w), first = w->out == w->hot ? 0 : unit->hot_count;
  if (unit->recovery_count > first && unit->recovery[unit->recovery_count - 1].at == at) {
    unit->recovery_count--;
  }
  if (unit->recovery_count == CT_RECOVERY_MAX) {
    w->out->overflow = true;
    unit->recovery_count--;
  }
  struct ct_recovery *recovery = &unit->recovery[unit->recovery_count++];
  *recovery = w->now;
  recovery->at = at;
  recovery->pc = pc;
  return recovery;
}

bool
ct_writer_reaches(const struct ct_writer *w, uint64_t address)
{
  int64_t distance = (int64_t)(address - ct_code_pc(w->out));
  return distance > INT32_MIN + 64 && distance < INT32_MAX - 64;
}

void
ct_writer_copy_near(struct ct_writer *w, const struct ct_source_insn *insn)
{
  int32_t distance = (int32_t)(insn->address - (ct_code_pc(w->out) + insn->length));
  ct_emit_bytes(w->out, insn->code, insn->disp_at);
  ct_emit_u32(w->out, (uint32_t)distance);
  ct_code_mark_last(w->out, CT_MARK_AWAY);
  ct_emit_bytes(w->out, insn->code + insn->disp_at + 4, insn->length - insn->disp_at - 4u);
}

void
ct_writer_bind_cold(struct ct_writer *w, const struct ct_code_label *label)
{
  uint64_t place = ct_code_pc(w->cold);
  for (unsigned i = 0; i < label->count && !w->hot->overflow; i++) {
    int32_t distance = (int32_t)(place - (w->hot->address + label->uses[i] + 4));
    memcpy(w->hot->bytes + label->uses[i], &distance, sizeof(distance));
    ct_code_marks_add(w->hot->marks, CT_MARK_COLD, label->uses[i]);
  }
}

/* The flags that lahf and seto have left in the slot, rcx and rax. */
static void
emit_restore(struct ct_writer *w)
{
  ct_emit_mov_load(w->out, CT_RCX, CT_SLOT(w->place, spill_rcx));
  ct_emit_mov_load(w->out, CT_RAX, CT_SLOT(w->place, flags));
  ct_emit_set_of_from_al(w->out);
  ct_emit_sahf(w->out);
  ct_emit_mov_load(w->out, CT_RAX, CT_SLOT(w->place, spill));
}

/* rax, rcx and the flags are in slots, and the notes say so. Goes to the label if the condition does not hold. */
static void
emit_compare(struct ct_writer *w, const struct ct_condition *condition, uint64_t pc, struct ct_code_label *otherwise)
{
  static const uint8_t opposites[] = {[CT_EQUAL] = CT_JNE,     [CT_UNEQUAL] = CT_JE, [CT_LESS] = CT_JGE,
                                      [CT_LESS_EQUAL] = CT_JG, [CT_MORE] = CT_JLE,   [CT_MORE_EQUAL] = CT_JL};
  ct_emit_mov_store(w->out, CT_SLOT(w->place, spill), CT_RAX);
  w->now.borrowed = CT_RAX;
  ct_writer_note(w, pc);
  ct_emit_lahf(w->out);
  ct_emit_seto_al(w->out);
  ct_emit_mov_store(w->out, CT_SLOT(w->place, flags), CT_RAX);
  ct_emit_mov_store(w->out, CT_SLOT(w->place, spill_rcx), CT_RCX);
  w->now.flags_are_slot = 1;
  w->now.rcx_is = CT_RCX_SPILLED;
  ct_writer_note(w, pc);
  if (condition->reg == CT_RAX) {
    ct_emit_mov_load(w->out, CT_RAX, CT_SLOT(w->place, spill));
  } else {
    ct_emit_mov(w->out, CT_RAX, (enum ct_reg)condition->reg);
  }
  ct_emit_movabs(w->out, CT_RCX, (uint64_t)condition->value);
  ct_emit_cmp(w->out, CT_RAX, CT_RCX);
  ct_emit_jcc_label(w->out, (enum ct_cond)opposites[condition->op], otherwise);
}

void
ct_writer_ask_if(struct ct_writer *w, const struct ct_condition *condition, uint64_t pc)
{
  struct ct_code_label otherwise = {.count = 0};
  struct ct_recovery own = w->now, kept;
  ct_writer_note(w, pc);
  emit_compare(w, condition, pc, &otherwise);
  kept = w->now;
  emit_restore(w);
  w->now = own;
  ct_translate_leave(w, pc, CT_EXIT_WATCHED);
  ct_code_label_bind(w->out, &otherwise);
  w->now = kept;
  ct_writer_note(w, pc);
  emit_restore(w);
  w->now = own;
  ct_writer_note(w, pc);
}
