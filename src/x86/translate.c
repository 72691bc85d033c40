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
 * An indirect branch: rcx is spilled, and neither lea nor jrcxz touches a flag. With records r10 is free, so the target
 * stays in rcx; without, it is stored:
 *
 *   mov %rcx, spill_rcx;  mov TARGET, %rcx;  (mov %rcx, target)
 *   (push of the return address, or rsp past it)
 *   movzwl %cx, %r10d;  jmp *table(, %r10, 8)        or by ecx
 *
 * One after which the unit goes on, because it nearly always leads there (GUESS), or to after its call:
 *
 *   mov %rcx, spill_rcx;  mov TARGET, %rcx;  movabs -GUESS, %scratch;  lea (%rcx, %scratch), %rcx;  jrcxz 1f
 *   jmp to where it leaves the unit by the table
 *   1: mov spill_rcx, %rcx;  (push of the return address, or rsp past it)
 */
#include "x86/translate_internal.h"

#include "x86/patch.h"

#include <string.h>

enum { REL32_BYTES = 4 }; /* of a branch, at its end */

static void
note_spilled(struct ct_writer *w, uint64_t pc)
{
  ct_writer_note(w, pc)->rcx_is = CT_RCX_SPILLED;
}

static void
note_target(struct ct_writer *w)
{
  struct ct_recovery *recovery = ct_writer_note(w, 0);
  recovery->pc_is = w->place->records ? CT_PC_RCX : CT_PC_TARGET;
  recovery->rcx_is = CT_RCX_SPILLED;
}

/* ---- exits ---- */

static struct ct_unit_exit *
add_exit(struct ct_writer *w, enum ct_exit_kind kind, uint64_t target)
{
  w->exit_states[w->unit->exit_count] = w->now;
  struct ct_unit_exit *added = &w->unit->exits[w->unit->exit_count++];
  *added = (struct ct_unit_exit){.kind = (uint8_t)kind, .target = target};
  return added;
}

/* To the unit of target, by way of the tracer at first. */
static void
emit_jump(struct ct_writer *w, uint64_t target)
{
  uint32_t number = w->unit->exit_count;
  struct ct_unit_exit *link = add_exit(w, CT_EXIT_LINK, target);
  ct_emit_jmp_label(w->out, &w->exit_labels[number]);
  link->field = ct_writer_here(w) - REL32_BYTES;
}

/* The same, if the condition holds. */
static void
emit_branch(struct ct_writer *w, unsigned cond, uint64_t target)
{
  uint32_t number = w->unit->exit_count;
  struct ct_unit_exit *link = add_exit(w, CT_EXIT_LINK, target);
  ct_emit_jcc_label(w->out, (enum ct_cond)cond, &w->exit_labels[number]);
  link->field = ct_writer_here(w) - REL32_BYTES;
}

static void
emit_exit_code(struct ct_writer *w, uint32_t i)
{
  struct ct_unit_exit *unit_exit = &w->unit->exits[i];
  struct ct_mem target = CT_SLOT(w->place, target), high = target;
  high.disp += 4;
  ct_writer_bind_cold(w, &w->exit_labels[i]);
  unit_exit->code_at = ct_writer_here(w);
  w->now = w->exit_states[i];
  ct_writer_note(w, unit_exit->target);
  ct_emit_mov32_store_imm(w->out, target, (uint32_t)unit_exit->target);
  ct_emit_mov32_store_imm(w->out, high, (uint32_t)(unit_exit->target >> 32));
  ct_emit_mov32_store_imm(w->out, CT_SLOT(w->place, exit), w->first_exit + i);
  ct_code_mark_last(w->out, CT_MARK_EXIT);
  ct_emit_jmp(w->out, w->place->leave);
  ct_code_mark_last(w->out, CT_MARK_LEAVE);
}

static void
emit_asking(struct ct_writer *w, enum ct_exit_kind kind, uint64_t pc)
{
  uint32_t number = w->unit->exit_count;
  add_exit(w, kind, pc);
  ct_writer_note(w, pc);
  ct_emit_jmp_label(w->out, &w->exit_labels[number]);
}

void
ct_translate_leave(struct ct_writer *w, uint64_t target, enum ct_exit_kind kind)
{
  if (kind == CT_EXIT_LINK) {
    emit_jump(w, target);
  } else {
    emit_asking(w, kind, target);
  }
}

static void
emit_step(struct ct_writer *w, uint64_t pc)
{
  emit_asking(w, CT_EXIT_STEP, pc);
}

/* ---- copies ---- */

/* One that neither the instruction uses nor the record. */
static enum ct_reg
free_register(const struct ct_writer *w, const struct ct_source_insn *insn)
{
  uint32_t uses = insn->uses | 1u << w->record | 1u << w->scratch;
  static const uint8_t candidates[] = {CT_RAX, CT_RSI, CT_RDI, CT_RBX, CT_RDX, CT_RCX};
  for (size_t i = 0; i < sizeof(candidates); i++) {
    if ((uses >> candidates[i] & 1) == 0) {
      return (enum ct_reg)candidates[i];
    }
  }
  return CT_NO_REG;
}

static bool
can_copy(const struct ct_writer *w, const struct ct_source_insn *insn)
{
  return !insn->is_rip || ct_writer_reaches(w, insn->address) ||
         (insn->is_lea ? insn->is_lea_wide : !insn->cannot_borrow && free_register(w, insn) != CT_NO_REG);
}

/* The memory operand is relative to rip and out of reach: a borrowed register has its address. */
static void
copy_far(struct ct_writer *w, const struct ct_source_insn *insn)
{
  struct ct_code *out = w->out;
  if (insn->is_lea) {
    ct_emit_movabs(out, (enum ct_reg)((insn->code[insn->modrm_at] >> 3 & 7) | (insn->rex & 4) << 1), insn->address);
    return;
  }
  enum ct_reg base = free_register(w, insn);
  ct_emit_mov_store(out, CT_SLOT(w->place, spill), base);
  ct_writer_note(w, insn->pc)->borrowed = (uint8_t)base;
  ct_emit_movabs(out, base, insn->address);
  ct_emit_bytes(out, insn->code, insn->modrm_at);
  ct_emit_u8(out, (uint8_t)((insn->code[insn->modrm_at] & 0x38) | base));
  ct_emit_bytes(out, insn->code + insn->disp_at + 4, insn->length - insn->disp_at - 4u);
  struct ct_recovery *after = ct_writer_note(w, insn->pc + insn->length);
  after->borrowed = (uint8_t)base;
  after->done++;
  ct_emit_mov_load(out, base, CT_SLOT(w->place, spill));
}

static void
copy(struct ct_writer *w, const struct ct_source_insn *insn)
{
  ct_writer_note(w, insn->pc);
  if (insn->is_rip && !ct_writer_reaches(w, insn->address)) {
    copy_far(w, insn);
  } else if (insn->is_rip) {
    ct_writer_copy_near(w, insn);
  } else {
    ct_emit_bytes(w->out, insn->code, insn->length);
  }
}

/* ---- indirect branches ---- */

/* mov OPERAND, %rcx, of an indirect branch whose operand is in memory or a register */
static void
load_operand(struct ct_writer *w, const struct ct_source_insn *insn)
{
  struct ct_code *out = w->out;
  bool is_far = insn->is_rip && !ct_writer_reaches(w, insn->address);
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
    ct_emit_mov_load_operand(out, CT_RCX, insn->rex, insn->code + insn->modrm_at, insn->length - insn->modrm_at);
  }
}

static void
spill_target(struct ct_writer *w, const struct ct_source_insn *insn)
{
  ct_writer_note(w, insn->pc);
  ct_emit_mov_store(w->out, CT_SLOT(w->place, spill_rcx), CT_RCX);
  note_spilled(w, insn->pc);
  if (insn->flow == CT_SOURCE_RET) {
    ct_emit_mov_load(w->out, CT_RCX, ct_mem(CT_RSP, 0));
  } else {
    load_operand(w, insn);
  }
  if (!w->place->records) {
    ct_emit_mov_store(w->out, CT_SLOT(w->place, target), CT_RCX);
  }
}

static void
push_return_address(struct ct_writer *w, uint64_t address)
{
  uint32_t number = w->unit->return_count++;
  w->unit->return_addresses[number] = address;
  ct_emit_push_load_label(w->out, &w->literals[number]);
}

/* ---- the end of a unit ---- */

/* The record is complete but for the last instruction. */
static void
end_record(struct ct_writer *w, uint64_t pc)
{
  if (w->has_record) {
    ct_record_end(w, pc);
    w->has_record = false;
  }
}

/* The last instruction is executed when the program is at pc. */
static void
is_done(struct ct_writer *w, uint64_t pc)
{
  w->now.done++;
  ct_writer_note(w, pc);
}

/* The tracer reads what the call has written, and its records go on after that. rcx is free. */
static void
emit_written(struct ct_writer *w, uint64_t next, struct ct_code_label *go_on)
{
  struct ct_code *out = w->out;
  w->now.rcx_is = CT_RCX_PC;
  ct_writer_note(w, next);
  ct_emit_movabs(out, CT_RCX, next);
  w->now.rcx_is = CT_RCX_OWN;
  ct_writer_note(w, next);
  ct_emit_mov_store(out, CT_SLOT(w->place, spill_place), CT_R11);
  uint32_t number = w->unit->exit_count;
  struct ct_unit_exit *unit_exit = add_exit(w, CT_EXIT_WRITTEN, next);
  ct_emit_jmp_label(out, &w->exit_labels[number]);
  unit_exit->resume_at = ct_writer_here(w);
  ct_writer_note(w, next)->place_is_slot = 1;
  ct_emit_mov_load(out, CT_R11, CT_SLOT(w->place, spill_place));
  ct_writer_note(w, next);
  ct_emit_mov32_store_imm(out, CT_SLOT(w->place, exit), CT_ITRACE_EXIT_MISS);
  ct_emit_jmp_label(out, go_on);
}

static void
emit_system_call(struct ct_writer *w, const struct ct_source_insn *insn)
{
  enum { JMP_NEAR = 5 };
  struct ct_code *out = w->out;
  uint64_t next = insn->pc + insn->length;
  struct ct_code_label go_on = {.count = 0}, make = {.count = 0};
  ct_writer_note(w, insn->pc);
  ct_emit_mov_store(out, CT_SLOT(w->place, spill_rcx), CT_RCX); /* which the system call changes */
  note_spilled(w, insn->pc);
  ct_emit_movzx16(out, CT_RCX, CT_RAX);
  if (w->has_record) {
    ct_emit_mov32_store(out, CT_SLOT(w->place, call), CT_RAX);
  }
  ct_emit_movzx8_load(out, CT_RCX, ct_mem_table(w->place->shared + CT_ITRACE_SYSCALLS_AT, CT_RCX, 0));
  if (w->has_record) {
    ct_emit_mov32_store(out, CT_SLOT(w->place, call_kind), CT_RCX);
  }
  ct_emit_jrcxz_over(out, JMP_NEAR);
  ct_emit_jmp_label(out, &make);
  ct_emit_mov_load(out, CT_RCX, CT_SLOT(w->place, spill_rcx));
  uint32_t number = w->unit->exit_count;
  struct ct_unit_exit *looked_at = add_exit(w, CT_EXIT_SYSCALL, insn->pc);
  ct_writer_note(w, insn->pc);
  ct_emit_jmp_label(out, &w->exit_labels[number]);
  ct_code_label_bind(out, &make);
  looked_at->resume_at = ct_writer_here(w);
  note_spilled(w, insn->pc);
  if (w->has_record) {
    ct_record_before_syscall(w, insn->pc);
  }
  ct_emit_syscall(out);
  if (w->has_record) {
    ct_record_syscall(w, next);
    ct_emit_mov32_load(out, CT_RCX, CT_SLOT(w->place, call_kind));
    ct_emit_lea32(out, CT_RCX, ct_mem(CT_RCX, -CT_ITRACE_CALL_WRITES));
    ct_emit_jrcxz_over(out, 0);
  }
  uint32_t over_at = ct_writer_here(w);
  ct_code_label_bind(out, &go_on);
  w->now.rcx_is = CT_RCX_PC;
  ct_writer_note(w, next);
  ct_emit_movabs(out, CT_RCX, next);
  w->now.rcx_is = CT_RCX_OWN;
  ct_writer_note(w, next);
  emit_jump(w, next);
  if (w->has_record) {
    if (!out->overflow) {
      out->bytes[w->start + over_at - 1] = (uint8_t)(ct_writer_here(w) - over_at);
    }
    emit_written(w, next, &go_on);
  }
  w->has_record = false;
}

static void
emit_conditional(struct ct_writer *w, const struct ct_source_insn *insn)
{
  struct ct_code *out = w->out;
  uint64_t next = insn->pc + insn->length;
  end_record(w, insn->pc);
  ct_writer_note(w, insn->pc);
  if (insn->flow == CT_SOURCE_BRANCH) {
    w->now.done++;
    emit_branch(w, insn->cond, insn->target);
    ct_writer_note(w, next);
    emit_jump(w, next);
    return;
  }
  ct_emit_bytes(out, insn->code, insn->length - 1u);
  ct_emit_u8(out, CT_JUMP_BYTES); /* over the next jump */
  is_done(w, next);
  emit_jump(w, next);
  ct_writer_note(w, insn->target);
  emit_jump(w, insn->target);
}

static void
fill_part(struct ct_writer *w, uint32_t part, uint32_t stretch, uint64_t next, uint32_t insns)
{
  w->unit->parts[part] = (struct ct_unit_part){.stretches = (uint8_t)(stretch + 1),
                                               .insns = (uint8_t)insns,
                                               .last_bytes = (uint16_t)(next - w->unit->stretches[stretch].pc),
                                               .record_bytes = (uint16_t)w->value_at};
}

/* Of the record so far, which is left by a branch. */
static uint32_t
add_part(struct ct_writer *w, uint32_t stretch, uint64_t next, uint32_t insns)
{
  fill_part(w, w->unit->part_count, stretch, next, insns);
  return w->unit->part_count++;
}

/* A branch after which the unit goes on, after it or where it leads; done: instructions up to it. */
static void
emit_side(struct ct_writer *w, const struct ct_source_insn *insn, uint32_t stretch, uint32_t done)
{
  uint64_t next = insn->pc + insn->length, leaves_to = insn->is_taken ? next : insn->target;
  ct_writer_note(w, insn->pc);
  unsigned leaves_if = (unsigned)insn->cond ^ insn->is_taken;
  w->now.done++;
  if (w->has_record) {
    uint32_t number = w->side_count++;
    struct ct_writer_side *side = &w->sides[number];
    ct_emit_jcc_label(w->out, (enum ct_cond)leaves_if, &side->label);
    side->now = w->now;
    side->now.part = (uint8_t)add_part(w, stretch, next, done);
    w->unit->parts[side->now.part].is_passed = insn->is_taken;
    side->record = w->record;
    side->scratch = w->scratch;
    side->value_at = w->value_at;
    side->target = leaves_to;
  } else {
    emit_branch(w, leaves_if, leaves_to);
  }
  ct_writer_note(w, insn->is_taken ? insn->target : next);
}

/* What an indirect branch does to the stack. */
static void
move_stack(struct ct_writer *w, const struct ct_source_insn *insn)
{
  if (insn->flow == CT_SOURCE_CALL_INDIRECT) {
    push_return_address(w, insn->pc + insn->length);
  } else if (insn->flow == CT_SOURCE_RET) {
    ct_emit_lea(w->out, CT_RSP, ct_mem(CT_RSP, 8 + insn->ret_bytes));
  }
}

/* An indirect branch or a return, after which the unit goes on if it goes where it is thought to. */
static void
emit_guess(struct ct_writer *w, const struct ct_source_insn *insn, uint32_t stretch, uint32_t done)
{
  enum { JMP_NEAR = 5 };
  struct ct_code *out = w->out;
  enum ct_reg scratch = (enum ct_reg)w->scratch;
  if (insn->is_certain) {
    ct_writer_note(w, insn->pc);
    move_stack(w, insn);
    w->now.done++;
    ct_writer_note(w, insn->target);
    return;
  }
  struct ct_writer_side *side = &w->sides[w->side_count++];
  spill_target(w, insn);
  ct_emit_movabs(out, scratch, -insn->target);
  ct_emit_lea(out, CT_RCX, ct_mem_index(CT_RCX, scratch, 0));
  ct_emit_jrcxz_over(out, JMP_NEAR);
  ct_emit_jmp_label(out, &side->label);
  side->now = w->now;
  side->now.rcx_is = CT_RCX_SPILLED;
  side->now.part = (uint8_t)add_part(w, stretch, insn->pc + insn->length, done);
  side->record = w->record;
  side->scratch = w->scratch;
  side->value_at = w->value_at;
  w->unit->parts[side->now.part].is_guessed = true;
  side->target = insn->pc;
  side->indirect = insn;
  ct_emit_mov_load(out, CT_RCX, CT_SLOT(w->place, spill_rcx));
  ct_writer_note(w, insn->pc);
  move_stack(w, insn);
  w->now.done++;
  ct_writer_note(w, insn->target);
}

/* The target is in rcx, whose own value is spilled. */
static void
emit_by_table(struct ct_writer *w)
{
  w->now.done++;
  note_target(w);
  enum ct_reg index = w->place->records ? CT_R10 : CT_RCX;
  ct_emit_movzx16(w->out, index, CT_RCX);
  ct_emit_jmp_load(w->out, ct_mem_table(w->place->shared + CT_ITRACE_TABLE_AT, index, 3));
}

static void
emit_indirect(struct ct_writer *w, const struct ct_source_insn *insn)
{
  spill_target(w, insn);
  w->now.rcx_is = CT_RCX_SPILLED;
  end_record(w, insn->pc);
  move_stack(w, insn);
  emit_by_table(w);
}

/* How a unit is left before its end. */
static void
emit_side_end(struct ct_writer *w, struct ct_writer_side *side)
{
  const struct ct_source_insn *indirect = side->indirect;
  ct_code_label_bind(w->out, &side->label);
  w->now = side->now;
  if (indirect != NULL) { /* rcx is how far it is from the guess */
    ct_writer_note(w, indirect->pc);
    ct_emit_movabs(w->out, (enum ct_reg)side->scratch, indirect->target);
    ct_emit_lea(w->out, CT_RCX, ct_mem_index(CT_RCX, (enum ct_reg)side->scratch, 0));
  }
  ct_record_end_side(w, side);
  if (indirect == NULL) {
    emit_jump(w, side->target);
    return;
  }
  move_stack(w, indirect);
  emit_by_table(w);
}

static void
emit_end(struct ct_writer *w, const struct ct_source_insn *insn)
{
  struct ct_code *out = w->out;
  uint64_t next = insn->pc + insn->length;
  switch (insn->flow) {
  case CT_SOURCE_JUMP:
    end_record(w, insn->pc);
    is_done(w, insn->target);
    emit_jump(w, insn->target);
    break;
  case CT_SOURCE_BRANCH:
  case CT_SOURCE_LOOP:
    emit_conditional(w, insn);
    break;
  case CT_SOURCE_XBEGIN: /* every transaction aborts at once, for no particular reason */
    ct_writer_note(w, insn->pc);
    ct_emit_mov32_imm(out, CT_RAX, 0);
    ct_writer_note(w, insn->target);
    emit_jump(w, insn->target);
    break;
  case CT_SOURCE_CALL:
    end_record(w, insn->pc);
    ct_writer_note(w, insn->pc);
    push_return_address(w, next);
    is_done(w, insn->target);
    emit_jump(w, insn->target);
    break;
  case CT_SOURCE_CALL_INDIRECT:
  case CT_SOURCE_JUMP_INDIRECT:
  case CT_SOURCE_RET:
    emit_indirect(w, insn);
    break;
  case CT_SOURCE_SYSCALL:
    emit_system_call(w, insn);
    break;
  case CT_SOURCE_STOP:
    end_record(w, insn->pc);
    copy(w, insn);
    ct_writer_note(w, next);
    emit_step(w, next);
    break;
  case CT_SOURCE_APART:
    end_record(w, insn->pc);
    ct_apart_emit(w, insn);
    break;
  default:
    end_record(w, insn->pc);
    emit_step(w, insn->pc);
    break;
  }
}

/* ---- units ---- */

/*
 * Compares the unit's code with what it was made of, four bytes at a time; without records in aligned pieces, for a
 * program that has alignment checks on runs translated then.
 */
static void
emit_check(struct ct_writer *w, const uint8_t *code, size_t size)
{
  struct ct_code *out = w->out;
  uint64_t pc = w->unit->pc;
  struct ct_code_label stale = {.count = 0};
  bool first = true;
  ct_writer_note(w, pc);
  ct_emit_mov_store(out, CT_SLOT(w->place, spill_rcx), CT_RCX);
  note_spilled(w, pc);
  for (size_t at = 0; at < size;) {
    uint32_t want = 0;
    size_t bytes = size - at >= 4 ? 4 : size - at >= 2 ? 2 : 1;
    while (!w->place->records && (pc + at) % bytes != 0) {
      bytes /= 2;
    }
    struct ct_mem source = ct_mem_rip(pc + at);
    if (!ct_writer_reaches(w, pc + at)) {
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
    if (first) { /* after a jump, so that the label is bound and may be used often */
      ct_code_label_bind(out, &stale);
      ct_emit_mov_load(out, CT_RCX, CT_SLOT(w->place, spill_rcx));
      uint32_t number = w->unit->exit_count;
      add_exit(w, CT_EXIT_STALE, pc);
      ct_emit_jmp_label(out, &w->exit_labels[number]);
      first = false;
    }
    at += bytes;
  }
  ct_emit_mov_load(out, CT_RCX, CT_SLOT(w->place, spill_rcx));
}

static void
finish(struct ct_writer *w)
{
  struct ct_code_label room = {.count = 0};
  for (uint32_t i = 0; i < w->side_count; i++) {
    emit_side_end(w, &w->sides[i]);
  }
  uint32_t count = w->unit->exit_count;
  w->unit->hot_count = w->unit->recovery_count;
  w->out = w->cold;
  w->start = w->cold->length;
  if (w->has_look) {
    w->now = w->look;
    w->now.rcx_is = CT_RCX_OWN;
    add_exit(w, CT_EXIT_ROOM, w->look.pc);
    ct_record_cold(w, &room);
  }
  for (uint32_t i = 0; i < w->unit->exit_count; i++) {
    if (i == count) {
      ct_code_label_bind(w->out, &room);
    }
    emit_exit_code(w, i);
  }
  if (w->unit->return_count != 0) {
    ct_emit_align8(w->out);
  }
  for (uint32_t i = 0; i < w->unit->return_count; i++) {
    ct_writer_bind_cold(w, &w->literals[i]);
    ct_emit_u64(w->out, w->unit->return_addresses[i]);
  }
}

/* ---- all of it ---- */

/* A jump, a call or a return to the next stretch. done: instructions up to it. */
static void
emit_join(struct ct_writer *w, const struct ct_source_insn *insn, uint32_t stretch, uint32_t done)
{
  if (insn->flow != CT_SOURCE_CALL && insn->flow != CT_SOURCE_JUMP) {
    emit_guess(w, insn, stretch, done);
    return;
  }
  ct_writer_note(w, insn->pc);
  if (insn->flow == CT_SOURCE_CALL) {
    push_return_address(w, insn->pc + insn->length);
  }
  w->now.done++;
  ct_writer_note(w, insn->target);
}

static void
emit_insn(struct ct_writer *w, const struct ct_source_insn *insn)
{
  if (w->has_record) {
    ct_record_before(w, insn);
  }
  if (!w->has_record || !ct_record_copy(w, insn)) {
    copy(w, insn);
  }
  if (w->has_record) {
    ct_record_after(w, insn);
  }
}

/* Its instructions. False: the unit ends in it. */
static bool
emit_stretch(struct ct_writer *w, const struct ct_block *block, uint32_t stretch)
{
  bool is_last = stretch + 1 == block->stretch_count, is_recorded = w->has_record;
  uint32_t end = is_last ? block->count : block->stretches[stretch + 1].first;
  for (uint32_t i = block->stretches[stretch].first; i < end; i++) {
    const struct ct_source_insn *insn = &block->insns[i];
    if (insn->is_side) {
      emit_side(w, insn, stretch, i + 1);
    } else if (insn->flow == CT_SOURCE_NEXT && !can_copy(w, insn)) {
      if (is_recorded) {
        fill_part(w, 0, stretch, insn->pc, i);
      }
      end_record(w, insn->pc);
      emit_step(w, insn->pc);
      return false;
    } else if (insn->flow == CT_SOURCE_NEXT) {
      emit_insn(w, insn);
    } else if (!is_last) {
      emit_join(w, insn, stretch, i + 1);
    } else {
      if (is_recorded) {
        fill_part(w, 0, stretch, insn->pc + insn->length, block->recorded);
      }
      emit_end(w, insn);
    }
  }
  return true;
}

static void
emit_block_of(struct ct_writer *w, const struct ct_block *block)
{
  bool is_recorded = w->has_record;
  uint32_t last = block->stretch_count - 1;
  w->unit->part_count = is_recorded ? 1 : 0;
  for (uint32_t k = 0; k <= last; k++) {
    if (!emit_stretch(w, block, k)) {
      return;
    }
  }
  if (block->is_open) {
    uint64_t next = block->stretches[last].pc + block->used;
    if (is_recorded) {
      fill_part(w, 0, last, next, block->recorded);
    }
    end_record(w, next);
    if (block->is_switch) {
      emit_asking(w, CT_EXIT_SWITCHED, next);
    } else if (block->is_cut) {
      ct_writer_note(w, next);
      emit_jump(w, next);
    } else { /* what follows is no instruction, or cannot be read: let the processor say so */
      emit_step(w, next);
    }
  }
}

static void
note_stretches(struct ct_unit *unit, const struct ct_block *block)
{
  unit->stretch_count = block->used != 0 ? block->stretch_count : 0;
  for (uint32_t k = 0; k < unit->stretch_count; k++) {
    bool is_last = k + 1 == block->stretch_count;
    const struct ct_source_insn *last = &block->insns[is_last ? block->count - 1 : block->stretches[k + 1].first - 1];
    unit->stretches[k].pc = block->stretches[k].pc;
    unit->stretches[k].code = block->stretches[k].code;
    unit->stretches[k].bytes = (uint32_t)(last->pc + last->length - block->stretches[k].pc);
  }
}

static void
clear(struct ct_unit *unit, uint64_t pc)
{
  unit->pc = pc;
  unit->insns = unit->entry = unit->id = 0;
  unit->part_count = unit->stretch_count = unit->return_count = unit->exit_count = unit->recovery_count = 0;
}

void
ct_translate_unit(const struct ct_translation_place *place, uint64_t pc, const uint8_t *code, size_t size,
                  bool is_checked, const struct ct_translation_source *source, uint32_t first_exit, uint32_t id,
                  struct ct_code *out, struct ct_code *cold, struct ct_unit *unit)
{
  struct ct_block block;
  struct ct_writer w = {.place = place,
                        .out = out,
                        .hot = out,
                        .cold = cold,
                        .unit = unit,
                        .start = out->length,
                        .first_exit = first_exit};
  w.now = (struct ct_recovery){.borrowed = CT_NO_REG, .record = CT_NO_REG, .scratch = CT_NO_REG};
  w.now.r10_is_slot = w.now.r11_is_slot = place->records;
  w.record = w.scratch = CT_NO_REG;
  clear(unit, pc);
  bool is_watched = !place->passes_watched && ct_block_is_watched(place, pc);
  if (is_watched && (place->records || place->condition.op == CT_ALWAYS)) {
    emit_asking(&w, CT_EXIT_WATCHED, pc);
    finish(&w);
    return;
  }
  if (is_watched) {
    ct_writer_ask_if(&w, &place->condition, pc);
  }
  const struct ct_sequence *sequence = is_checked ? NULL : ct_sequence_at(place, pc);
  if (sequence != NULL && ct_sequence_emit(&w, sequence, code, size)) {
    unit->stretches[unit->stretch_count++] =
        (struct ct_unit_stretch){.pc = pc, .bytes = (uint32_t)(sequence->end - sequence->start)};
    finish(&w);
    return;
  }
  struct ct_block_request request = {
      .place = place, .source = is_checked ? NULL : source, .out = ct_code_pc(out), .is_checked = is_checked};
  ct_block_read(&request, pc, code, size, &block);
  note_stretches(unit, &block);
  if (block.recorded != 0 && block.insns[0].flow == CT_SOURCE_NEXT && !can_copy(&w, &block.insns[0])) {
    block.recorded = 0;
  }
  unit->insns = place->records ? block.recorded : block.count;
  unit->id = block.recorded != 0 ? id : 0;
  if (block.recorded != 0 && ct_block_wants_look(&block)) {
    ct_record_look(&w, pc);
  }
  if (is_checked && block.used != 0) {
    emit_check(&w, code, block.used);
  }
  if (block.recorded != 0) {
    w.has_record = true;
    ct_record_begin(&w, &block.recording);
  }
  emit_block_of(&w, &block);
  finish(&w);
}
