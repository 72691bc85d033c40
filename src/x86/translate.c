/* SPDX-License-Identifier: MIT */
/*
 * The translator. A unit is a copy of one block of the program's code, up to its next branch, at another address.
 *
 *   - Between units every register and flag is the program's own. What a unit borrows it gives back; no flag is changed
 *     that is not restored. Nothing is pushed but what the program pushes: no byte below its stack pointer is touched.
 *   - Addresses that the program sees are its own: a call pushes the program's return address, rcx after a system call
 *     is the program's next address.
 *   - Direct branches go to a unit by a jump that is made when that unit is there (CT_EXIT_LINK). Indirect branches and
 *     returns go by a table of the low 16 bits of their targets to an entry, which compares all 64 and goes on to the
 *     next entry of the same 16 bits if it is another.
 *   - For every place of the emitted code a note says how to make the program's state from there (struct ct_recovery),
 *     so that a signal can be delivered, and the thread taken out, at any place.
 *
 * An indirect branch: rcx is spilled, its target stored. rcx is free then, and neither lea nor jrcxz touches a flag:
 *
 *   mov %rcx, spill_rcx;  mov TARGET, %rcx;  mov %rcx, target
 *   (push of the return address, or rsp past it)
 *   movzwl %cx, %ecx;  jmp *table(, %rcx, 8)
 */
#include "x86/translate_internal.h"

#include <string.h>

struct writer {
  const struct ct_translation_place *place;
  struct ct_code *out;
  struct ct_unit *unit;
  size_t start;
  uint32_t first_exit;
  struct ct_code_label exit_labels[CT_UNIT_EXITS_MAX];
  struct ct_code_label literal;
};

#define SLOT(place, member) ct_mem_absolute((place)->shared + (uint32_t)offsetof(struct ct_itrace_slots, member))

static uint32_t
here(const struct writer *w)
{
  return (uint32_t)(w->out->length - w->start);
}

static struct ct_recovery *
note(struct writer *w, uint64_t pc)
{
  struct ct_unit *unit = w->unit;
  if (unit->recovery_count == CT_RECOVERY_MAX) {
    w->out->overflow = true;
    unit->recovery_count--;
  }
  struct ct_recovery *last = unit->recovery_count != 0 ? &unit->recovery[unit->recovery_count - 1] : NULL;
  if (last == NULL || last->at != here(w)) {
    last = &unit->recovery[unit->recovery_count++];
  }
  *last = (struct ct_recovery){.at = here(w), .pc = pc, .borrowed = CT_NO_REG};
  return last;
}

static void
note_spilled(struct writer *w, uint64_t pc)
{
  note(w, pc)->rcx_is = CT_RCX_SPILLED;
}

static void
note_target(struct writer *w)
{
  struct ct_recovery *recovery = note(w, 0);
  recovery->pc_is = CT_PC_TARGET;
  recovery->rcx_is = CT_RCX_SPILLED;
}

/* ---- exits ---- */

static struct ct_unit_exit *
add_exit(struct writer *w, enum ct_exit_kind kind, uint64_t target)
{
  struct ct_unit_exit *added = &w->unit->exits[w->unit->exit_count++];
  *added = (struct ct_unit_exit){.kind = (uint8_t)kind, .target = target};
  return added;
}

/* The rel32 of a branch whose opcode has just been emitted: to the unit of target, by way of the tracer at first. */
static void
emit_link(struct writer *w, uint64_t target)
{
  uint32_t number = w->unit->exit_count;
  add_exit(w, CT_EXIT_LINK, target)->field = here(w);
  ct_emit_label(w->out, &w->exit_labels[number]);
}

static void
emit_jump(struct writer *w, uint64_t target)
{
  ct_emit_u8(w->out, 0xe9);
  emit_link(w, target);
}

static void
emit_exit_code(struct writer *w, uint32_t i)
{
  struct ct_unit_exit *leaving = &w->unit->exits[i];
  struct ct_mem target = SLOT(w->place, target), high = target;
  high.disp += 4;
  ct_code_label_bind(w->out, &w->exit_labels[i]);
  leaving->code_at = here(w);
  note(w, leaving->target);
  ct_emit_mov32_store_imm(w->out, target, (uint32_t)leaving->target);
  ct_emit_mov32_store_imm(w->out, high, (uint32_t)(leaving->target >> 32));
  ct_emit_mov32_store_imm(w->out, SLOT(w->place, exit), w->first_exit + i);
  ct_emit_jmp(w->out, w->place->leave);
}

static void
emit_step(struct writer *w, uint64_t pc)
{
  uint32_t number = w->unit->exit_count;
  add_exit(w, CT_EXIT_STEP, pc);
  note(w, pc);
  ct_emit_jmp_label(w->out, &w->exit_labels[number]);
}

/* ---- copies ---- */

static bool
in_reach(const struct writer *w, uint64_t address)
{
  int64_t distance = (int64_t)(address - ct_code_pc(w->out));
  return distance > INT32_MIN + 64 && distance < INT32_MAX - 64;
}

static enum ct_reg
free_register(uint16_t uses)
{
  static const uint8_t candidates[] = {CT_RAX, CT_RSI, CT_RDI, CT_RBX, CT_RDX, CT_RCX};
  for (size_t i = 0; i < sizeof(candidates); i++) {
    if ((uses >> candidates[i] & 1) == 0) {
      return (enum ct_reg)candidates[i];
    }
  }
  return CT_NO_REG;
}

static bool
can_copy(const struct writer *w, const struct ct_source_insn *insn)
{
  return !insn->is_rip || in_reach(w, insn->address) ||
         (insn->is_lea ? insn->is_lea_wide : !insn->cannot_borrow && free_register(insn->uses) != CT_NO_REG);
}

/* The memory operand is relative to rip and out of reach: a borrowed register has its address. */
static void
copy_far(struct writer *w, const struct ct_source_insn *insn)
{
  struct ct_code *out = w->out;
  if (insn->is_lea) {
    ct_emit_movabs(out, (enum ct_reg)((insn->code[insn->modrm_at] >> 3 & 7) | (insn->rex & 4) << 1), insn->address);
    return;
  }
  enum ct_reg base = free_register(insn->uses);
  ct_emit_mov_store(out, SLOT(w->place, spill), base);
  note(w, insn->pc)->borrowed = (uint8_t)base;
  ct_emit_movabs(out, base, insn->address);
  ct_emit_bytes(out, insn->code, insn->modrm_at);
  ct_emit_u8(out, (uint8_t)((insn->code[insn->modrm_at] & 0x38) | base));
  ct_emit_bytes(out, insn->code + insn->disp_at + 4, insn->length - insn->disp_at - 4u);
  note(w, insn->pc + insn->length)->borrowed = (uint8_t)base;
  ct_emit_mov_load(out, base, SLOT(w->place, spill));
}

static void
copy(struct writer *w, const struct ct_source_insn *insn)
{
  note(w, insn->pc);
  if (insn->is_rip && !in_reach(w, insn->address)) {
    copy_far(w, insn);
  } else if (insn->is_rip) {
    int32_t distance = (int32_t)(insn->address - (ct_code_pc(w->out) + insn->length));
    ct_emit_bytes(w->out, insn->code, insn->disp_at);
    ct_emit_u32(w->out, (uint32_t)distance);
    ct_emit_bytes(w->out, insn->code + insn->disp_at + 4, insn->length - insn->disp_at - 4u);
  } else {
    ct_emit_bytes(w->out, insn->code, insn->length);
  }
}

/* ---- indirect branches ---- */

/* mov OPERAND, %rcx, of an indirect branch whose operand is in memory or a register */
static void
load_operand(struct writer *w, const struct ct_source_insn *insn)
{
  struct ct_code *out = w->out;
  bool is_far = insn->is_rip && !in_reach(w, insn->address);
  if (is_far) {
    ct_emit_movabs(out, CT_RCX, insn->address);
  }
  if (insn->has_memory && insn->segment != 0) {
    ct_emit_u8(out, insn->segment);
  }
  if (insn->is_rip) {
    ct_emit_mov_load(out, CT_RCX, is_far ? ct_mem(CT_RCX, 0) : ct_mem_rip(insn->address));
  } else if (!insn->has_memory) {
    if (insn->rm != CT_RCX) {
      ct_emit_mov(out, CT_RCX, (enum ct_reg)insn->rm);
    }
  } else {
    uint8_t modrm = insn->code[insn->modrm_at];
    ct_emit_u8(out, (uint8_t)(0x48 | (insn->rex & 3)));
    ct_emit_u8(out, 0x8b);
    ct_emit_u8(out, (uint8_t)((modrm & 0xc7) | CT_RCX << 3));
    ct_emit_bytes(out, insn->code + insn->modrm_at + 1, insn->length - insn->modrm_at - 1u);
  }
}

static void
spill_target(struct writer *w, const struct ct_source_insn *insn)
{
  note(w, insn->pc);
  ct_emit_mov_store(w->out, SLOT(w->place, spill_rcx), CT_RCX);
  note_spilled(w, insn->pc);
  if (insn->flow == CT_SOURCE_RET) {
    ct_emit_mov_load(w->out, CT_RCX, ct_mem(CT_RSP, 0));
  } else {
    load_operand(w, insn);
  }
  ct_emit_mov_store(w->out, SLOT(w->place, target), CT_RCX);
}

static void
jump_by_table(struct writer *w)
{
  note_target(w);
  ct_emit_movzx16(w->out, CT_RCX, CT_RCX);
  ct_emit_jmp_load(w->out, ct_mem_table(w->place->shared + CT_ITRACE_TABLE_AT, CT_RCX, 3));
}

static void
push_return_address(struct writer *w, uint64_t address)
{
  w->unit->return_address = address;
  ct_emit_bytes(w->out, (const uint8_t[]){0xff, 0x35}, 2); /* push of the unit's literal */
  ct_emit_label(w->out, &w->literal);
}

/* ---- the end of a unit ---- */

static void
emit_system_call(struct writer *w, const struct ct_source_insn *insn)
{
  enum { NATIVE_BYTES = 2 + 10 + 5 };
  struct ct_code *out = w->out;
  uint64_t next = insn->pc + insn->length;
  note(w, insn->pc);
  ct_emit_mov_store(out, SLOT(w->place, spill_rcx), CT_RCX); /* which the system call changes */
  note_spilled(w, insn->pc);
  ct_emit_movzx16(out, CT_RCX, CT_RAX);
  ct_emit_movzx8_load(out, CT_RCX, ct_mem_table(w->place->shared + CT_ITRACE_SYSCALLS_AT, CT_RCX, 0));
  ct_emit_jrcxz_over(out, NATIVE_BYTES);
  uint32_t resume_at = here(w);
  ct_emit_syscall(out);
  note(w, next)->rcx_is = CT_RCX_PC;
  ct_emit_movabs(out, CT_RCX, next);
  note(w, next);
  emit_jump(w, next);
  note_spilled(w, insn->pc);
  ct_emit_mov_load(out, CT_RCX, SLOT(w->place, spill_rcx));
  uint32_t number = w->unit->exit_count;
  add_exit(w, CT_EXIT_SYSCALL, insn->pc)->resume_at = resume_at;
  note(w, insn->pc);
  ct_emit_jmp_label(out, &w->exit_labels[number]);
}

static void
emit_end(struct writer *w, const struct ct_source_insn *insn)
{
  struct ct_code *out = w->out;
  uint64_t next = insn->pc + insn->length;
  switch (insn->flow) {
  case CT_SOURCE_JUMP:
    note(w, insn->target);
    emit_jump(w, insn->target);
    break;
  case CT_SOURCE_BRANCH:
    note(w, insn->pc);
    ct_emit_bytes(out, (const uint8_t[]){0x0f, (uint8_t)(0x80 | insn->cond)}, 2);
    emit_link(w, insn->target);
    note(w, next);
    emit_jump(w, next);
    break;
  case CT_SOURCE_LOOP:
    note(w, insn->pc);
    ct_emit_bytes(out, insn->code, insn->length - 1u);
    ct_emit_u8(out, 5); /* over the next jump */
    note(w, next);
    emit_jump(w, next);
    note(w, insn->target);
    emit_jump(w, insn->target);
    break;
  case CT_SOURCE_XBEGIN: /* every transaction aborts at once, for no particular reason */
    note(w, insn->pc);
    ct_emit_mov32_imm(out, CT_RAX, 0);
    note(w, insn->target);
    emit_jump(w, insn->target);
    break;
  case CT_SOURCE_CALL:
    note(w, insn->pc);
    push_return_address(w, next);
    note(w, insn->target);
    emit_jump(w, insn->target);
    break;
  case CT_SOURCE_CALL_INDIRECT:
    spill_target(w, insn);
    push_return_address(w, next);
    jump_by_table(w);
    break;
  case CT_SOURCE_JUMP_INDIRECT:
    spill_target(w, insn);
    jump_by_table(w);
    break;
  case CT_SOURCE_RET:
    spill_target(w, insn);
    ct_emit_lea(out, CT_RSP, ct_mem(CT_RSP, 8 + insn->ret_bytes));
    jump_by_table(w);
    break;
  case CT_SOURCE_SYSCALL:
    emit_system_call(w, insn);
    break;
  case CT_SOURCE_STOP:
    copy(w, insn);
    note(w, next);
    emit_step(w, next);
    break;
  default:
    emit_step(w, insn->pc);
    break;
  }
}

/* ---- units ---- */

/* Compares the unit's code with what it was made of, four bytes at a time. */
static void
emit_check(struct writer *w, const uint8_t *code, size_t size)
{
  struct ct_code *out = w->out;
  uint64_t pc = w->unit->pc;
  struct ct_code_label stale = {.count = 0};
  bool first = true;
  note(w, pc);
  ct_emit_mov_store(out, SLOT(w->place, spill_rcx), CT_RCX);
  note_spilled(w, pc);
  for (size_t at = 0; at < size;) {
    uint32_t want = 0;
    size_t bytes = size - at >= 4 ? 4 : size - at >= 2 ? 2 : 1;
    struct ct_mem source = ct_mem_rip(pc + at);
    if (!in_reach(w, pc + at)) {
      ct_emit_movabs(out, CT_RCX, pc + at);
      source = ct_mem(CT_RCX, 0);
    }
    memcpy(&want, code + at, bytes);
    if (bytes == 4) {
      ct_emit_mov32_load(out, CT_RCX, source);
    } else if (bytes == 2) {
      ct_emit_movzx16_load(out, CT_RCX, source);
    } else {
      ct_emit_movzx8_load(out, CT_RCX, source);
    }
    ct_emit_lea32(out, CT_RCX, ct_mem_wide(ct_mem(CT_RCX, (int32_t)-want)));
    ct_emit_jrcxz_over(out, first ? 5 + 8 + 5 : 5);
    ct_emit_jmp_label(out, &stale);
    if (first) { /* behind a jump, so that the label is bound and may be used often */
      ct_code_label_bind(out, &stale);
      ct_emit_mov_load(out, CT_RCX, SLOT(w->place, spill_rcx));
      uint32_t number = w->unit->exit_count;
      add_exit(w, CT_EXIT_STALE, pc);
      ct_emit_jmp_label(out, &w->exit_labels[number]);
      first = false;
    }
    at += bytes;
  }
  ct_emit_mov_load(out, CT_RCX, SLOT(w->place, spill_rcx));
}

static void
finish(struct writer *w)
{
  for (uint32_t i = 0; i < w->unit->exit_count; i++) {
    emit_exit_code(w, i);
  }
  if (w->unit->return_address != 0) {
    ct_code_label_bind(w->out, &w->literal);
    ct_emit_u64(w->out, w->unit->return_address);
  }
}

static bool
goes_on(const struct ct_source_insn *insn)
{
  return insn->flow == CT_SOURCE_NEXT;
}

void
ct_translate_unit(const struct ct_translation_place *place, uint64_t pc, const uint8_t *code, size_t size,
                  bool is_checked, uint32_t first_exit, struct ct_code *out, struct ct_unit *unit)
{
  enum { CHECKED_INSNS_MAX = 12 };
  struct ct_source_insn insns[CT_UNIT_INSNS_MAX];
  struct writer w = {.place = place, .out = out, .unit = unit, .start = out->length, .first_exit = first_exit};
  uint32_t count = 0, most = is_checked ? CHECKED_INSNS_MAX : CT_UNIT_INSNS_MAX;
  size_t used = 0;
  bool is_open = true;
  unit->pc = pc;
  unit->return_address = 0;
  unit->exit_count = unit->recovery_count = 0;
  while (is_open && count < most && ct_source_decode(pc + used, code + used, size - used, &insns[count])) {
    used += insns[count].length;
    is_open = goes_on(&insns[count++]);
  }
  unit->source_bytes = (uint32_t)used;
  unit->insns = count;
  if (is_checked && used != 0) {
    emit_check(&w, code, used);
  }
  for (uint32_t i = 0; i < count; i++) {
    if (!goes_on(&insns[i])) {
      emit_end(&w, &insns[i]);
    } else if (can_copy(&w, &insns[i])) {
      copy(&w, &insns[i]);
    } else {
      emit_step(&w, insns[i].pc);
      is_open = false;
      break;
    }
  }
  if (is_open) {
    note(&w, pc + used);
    if (count == most) {
      emit_jump(&w, pc + used);
    } else { /* what follows is no instruction, or cannot be read: let the processor say so */
      emit_step(&w, pc + used);
    }
  }
  finish(&w);
}
