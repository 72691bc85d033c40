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
  ct_emit_bytes(w->out, insn->code + insn->disp_at + 4, insn->length - insn->disp_at - 4u);
}

void
ct_writer_bind_cold(struct ct_writer *w, const struct ct_code_label *label)
{
  uint64_t place = ct_code_pc(w->cold);
  for (unsigned i = 0; i < label->count && !w->hot->overflow; i++) {
    int32_t distance = (int32_t)(place - (w->hot->address + label->uses[i] + 4));
    memcpy(w->hot->bytes + label->uses[i], &distance, sizeof(distance));
  }
}
