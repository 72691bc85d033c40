/* SPDX-License-Identifier: MIT */
/*
 * The records of translated code (ring/itrace_stream.h). A unit writes its id and its instructions' values after each
 * other, at distances that are known when it is translated, and moves the place of the next record once, at its end.
 *
 *   - Between units that place is in r11, and the program's r11 in a slot. A unit that uses r11 has the place in a
 *     register that it does not use, `record`.
 *   - Values that are not in registers go through r10, whose own value is in a slot likewise; in a unit that uses r10
 *     through another register that it does not use, `scratch`.
 *   - So a unit ends before the instruction that would use the last of those.
 *   - A unit that is left by a branch before its end writes the id anew: that of a unit that ends there.
 *
 * Room: the ring's segments lie so that some bits of the place are the number of a block (struct ct_itrace_slots).
 * Wherever the program can come by again without end, a unit looks up that block's byte, by rcx and no flag: 0 where
 * none have been written before: it stamps the time, or waits for the tracer. The tracer need not be there for
 * that: a thread that it has left alone waits in vain, and goes on where the program is.
 */
#include "x86/emit_vector.h"
#include "x86/translate_internal.h"

#include <string.h>

enum { VECTOR_EVEX_FIRST = 16, JMP_NEAR = 5, JRCXZ_BYTES = 2 };

static uint32_t
access_uses(const struct ct_access *access)
{
  return (access->base != CT_NO_REG ? 1u << access->base : 0) | (access->index != CT_NO_REG ? 1u << access->index : 0) |
         (access->bits_reg != CT_NO_REG ? 1u << access->bits_reg : 0);
}

bool
ct_record_decode(const struct ct_translation_place *place, struct ct_source_insn *insn)
{
  if (!place->records || insn->flow == CT_SOURCE_STEP || insn->flow == CT_SOURCE_STOP) {
    return true;
  }
  if (insn->flow == CT_SOURCE_XBEGIN || !ct_effects_of(insn->code, insn->length, &insn->effects)) {
    return false;
  }
  const struct ct_effects *effects = &insn->effects;
  if (insn->flow != CT_SOURCE_SYSCALL) { /* which may do anything, but not here */
    insn->uses |= effects->reads | effects->writes;
  } else {
    insn->uses = 1u << CT_R10; /* which stays as it is; r11: see ct_record_before_syscall */
  }
  for (int i = 0; i < effects->access_count; i++) {
    insn->uses |= (uint16_t)access_uses(&effects->access[i]);
  }
  insn->value_count = ct_values_of(effects, place->has_vectors, insn->values);
  for (int i = 0; i < insn->value_count; i++) {
    const struct ct_recorded_value *value = &insn->values[i];
    if ((value->kind == CT_VALUE_LOADED || value->kind == CT_VALUE_STORED) &&
        effects->access[value->reg].disp != (int32_t)effects->access[value->reg].disp &&
        (effects->access[value->reg].how & CT_ACCESS_RIP) == 0) {
      return false;
    }
  }
  return insn->value_count != CT_VALUES_STEP;
}

/* ---- registers ---- */

/* Those that units borrow, the ones that compilers use least first; copy_far has its own. */
static const uint8_t candidates[] = {CT_R15, CT_R14, CT_R13, CT_R12, CT_R9, CT_R8,
                                     CT_RBP, CT_RBX, CT_RDI, CT_RSI, CT_RDX};

static uint8_t
free_of(uint32_t uses)
{
  for (size_t i = 0; i < sizeof(candidates); i++) {
    if ((uses >> candidates[i] & 1) == 0) {
      return candidates[i];
    }
  }
  return CT_NO_REG;
}

static bool
uses_r11(const struct ct_recording *recording)
{
  return (recording->uses >> CT_R11 & 1) != 0;
}

static bool
uses_r10(const struct ct_recording *recording)
{
  return (recording->uses >> CT_R10 & 1) != 0;
}

static void
choose(const struct ct_recording *recording, uint8_t *record, uint8_t *scratch)
{
  uint32_t uses = recording->uses;
  *record = CT_R11;
  *scratch = CT_NO_REG;
  if (uses_r11(recording)) {
    *record = free_of(uses);
    uses |= *record != CT_NO_REG ? 1u << *record : 0;
  }
  if (recording->has_scratch) {
    *scratch = !uses_r10(recording) ? CT_R10 : (uses >> CT_RAX & 1) == 0 ? CT_RAX : free_of(uses);
  }
}

static bool
wants_scratch(const struct ct_source_insn *insn)
{
  for (int i = 0; i < insn->value_count; i++) {
    uint8_t kind = insn->values[i].kind;
    if (kind == CT_VALUE_LOADED || kind == CT_VALUE_STORED || kind == CT_VALUE_FLAGS) {
      return true;
    }
  }
  return insn->flow == CT_SOURCE_RET || insn->flow == CT_SOURCE_JUMP_INDIRECT ||
         insn->flow == CT_SOURCE_CALL_INDIRECT; /* see emit_guess */
}

bool
ct_record_takes(const struct ct_source_insn *insn, struct ct_recording *recording)
{
  struct ct_recording with = *recording;
  uint8_t record, scratch;
  with.uses |= insn->uses;
  with.bytes += ct_values_bytes(insn->values, insn->value_count);
  with.has_scratch |= wants_scratch(insn);
  choose(&with, &record, &scratch);
  if (record == CT_NO_REG || (with.has_scratch && scratch == CT_NO_REG) || with.bytes + 4 > CT_UNIT_RECORD_MAX) {
    return false;
  }
  *recording = with;
  return true;
}

/* ---- parts of a unit ---- */

static struct ct_mem
value_place(const struct ct_writer *w)
{
  return ct_mem((enum ct_reg)w->record, (int32_t)w->value_at);
}

void
ct_record_begin(struct ct_writer *w, const struct ct_recording *recording)
{
  uint64_t pc = w->unit->pc;
  choose(recording, &w->record, &w->scratch);
  w->value_at = 4;
  w->now.r10_is_slot = w->now.r11_is_slot = 1;
  ct_writer_note(w, pc);
  if (w->record != CT_R11) {
    enum ct_reg reg = (enum ct_reg)w->record;
    ct_emit_mov_store(w->out, CT_SLOT(w->place, spill_record), reg);
    ct_emit_mov(w->out, reg, CT_R11);
    w->now.record = w->record;
    ct_writer_note(w, pc);
    ct_emit_mov_load(w->out, CT_R11, CT_SLOT(w->place, app_r11));
    w->now.r11_is_slot = 0;
    ct_writer_note(w, pc);
  }
  if (uses_r10(recording)) {
    ct_emit_mov_load(w->out, CT_R10, CT_SLOT(w->place, app_r10));
    w->now.r10_is_slot = 0;
    ct_writer_note(w, pc);
  }
  w->now.scratch = w->scratch;
  if (w->scratch != CT_NO_REG && w->scratch != CT_R10) {
    ct_emit_mov_store(w->out, CT_SLOT(w->place, spill_scratch), (enum ct_reg)w->scratch);
    ct_writer_note(w, pc);
  }
  ct_emit_mov32_store_imm(w->out, ct_mem((enum ct_reg)w->record, 0), w->unit->id);
  ct_code_mark_last(w->out, CT_MARK_ID);
}

static void
store_register(struct ct_writer *w, enum ct_reg reg, unsigned size)
{
  struct ct_mem to = value_place(w);
  if (size == 8) {
    ct_emit_mov_store(w->out, to, reg);
  } else if (size == 4) {
    ct_emit_mov32_store(w->out, to, reg);
  } else if (size == 2) {
    ct_emit_mov16_store(w->out, to, reg);
  } else {
    ct_emit_mov8_store(w->out, to, reg);
  }
}

/* What the access would read here, to the scratch register and from there to the record. */
static void
store_memory(struct ct_writer *w, const struct ct_source_insn *insn, const struct ct_recorded_value *value)
{
  const struct ct_access *access = &insn->effects.access[value->reg];
  enum ct_reg scratch = (enum ct_reg)w->scratch;
  struct ct_mem from = {
      .base = access->base, .index = access->index, .scale = access->scale, .disp = (int32_t)access->disp};
  if ((access->how & CT_ACCESS_RIP) != 0) {
    uint64_t address = insn->pc + insn->length + (uint64_t)access->disp;
    from = ct_mem_rip(address);
    if (!ct_writer_reaches(w, address)) {
      ct_emit_movabs(w->out, scratch, address);
      from = ct_mem(scratch, 0);
    }
  } else if (access->base == CT_NO_REG) {
    from.kind = CT_MEM_ABSOLUTE; /* the program's own address: if it is one of ours, no mark can tell */
    if (w->out->marks != NULL && (uint32_t)from.disp - w->place->shared < CT_ITRACE_SHARED_BYTES) {
      w->out->marks->is_lost = true;
    }
  }
  if (access->segment == CT_SEGMENT_FS) {
    ct_emit_fs(w->out);
  } else if (access->segment != CT_SEGMENT_NONE) {
    ct_emit_gs(w->out);
  }
  if (value->size == 8) {
    ct_emit_mov_load(w->out, scratch, from);
  } else if (value->size == 4) {
    ct_emit_mov32_load(w->out, scratch, from);
  } else if (value->size == 2) {
    ct_emit_movzx16_load(w->out, scratch, from);
  } else {
    ct_emit_movzx8_load(w->out, scratch, from);
  }
  store_register(w, scratch, value->size);
}

static void
store_flags(struct ct_writer *w, uint64_t next)
{
  enum ct_reg scratch = (enum ct_reg)w->scratch;
  if (scratch != CT_RAX) {
    ct_emit_mov(w->out, scratch, CT_RAX);
    w->now.rax_is_scratch = 1;
    ct_writer_note(w, next);
  }
  ct_emit_lahf(w->out);
  ct_emit_seto_al(w->out);
  store_register(w, CT_RAX, 2);
  if (scratch != CT_RAX) {
    ct_emit_mov(w->out, CT_RAX, scratch);
    w->now.rax_is_scratch = 0;
    ct_writer_note(w, next);
  }
}

static void
store_vector(struct ct_writer *w, const struct ct_source_insn *insn, const struct ct_recorded_value *value)
{
  struct ct_mem to = value_place(w);
  if (value->kind == CT_VALUE_MASK) {
    ct_emit_kmovq_store(w->out, to, value->reg);
  } else if (value->reg >= VECTOR_EVEX_FIRST || value->size == 64) {
    ct_emit_vmovups_wide_store(w->out, to, value->reg, value->size);
  } else if (value->size == 32 || (insn->effects.traits & CT_EFFECT_VECTOR_ZEROES) != 0) {
    ct_emit_vmovups_store(w->out, to, value->reg, value->size);
  } else {
    ct_emit_movups_store(w->out, to, value->reg);
  }
}

/* ---- what was read for the record, in place of memory ---- */

/* Where the opcode begins; *rex: the prefix right before it, 0: none. One that other prefixes follow counts for
 * nothing. */
static size_t
opcode_at(const struct ct_source_insn *insn, uint8_t *rex)
{
  static const uint8_t prefixes[] = {0x66, 0x67, 0xf2, 0xf3, 0xf0, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65};
  size_t at = 0;
  *rex = 0;
  for (;; at++) {
    bool is_rex = (insn->code[at] & 0xf0) == 0x40;
    if (!is_rex && memchr(prefixes, insn->code[at], sizeof(prefixes)) == NULL) {
      return at;
    }
    *rex = is_rex ? insn->code[at] : 0;
  }
}

/* Those of one byte that have a part of the opcode where others have a register. */
static bool
has_extended_opcode(uint8_t opcode)
{
  static const uint8_t groups[] = {0x80, 0x81, 0x83, 0xf6, 0xf7, 0xfe, 0xff};
  return memchr(groups, opcode, sizeof(groups)) != NULL;
}

/*
 * Emits the instruction with the scratch register, which holds what it would read, in place of its memory operand: it
 * then works with just what the record says, whatever another thread writes meanwhile. False: not this one.
 */
bool
ct_record_copy(struct ct_writer *w, const struct ct_source_insn *insn)
{
  const struct ct_effects *effects = &insn->effects;
  uint8_t rex, modrm = insn->code[insn->modrm_at];
  if (insn->value_count == 0 || insn->values[0].kind != CT_VALUE_LOADED || !insn->is_plain ||
      effects->access_count != 1 || effects->access[0].how & CT_ACCESS_WRITE ||
      (effects->traits & CT_EFFECT_LOCKED) != 0) {
    return false;
  }
  size_t opcode = opcode_at(insn, &rex);
  if (insn->code[opcode] == 0x0f && insn->code[opcode + 1] == 0x38) {
    return false; /* movbe has no form with two registers */
  }
  bool has_byte = insn->values[0].size == 1, wants_rex = w->scratch >= CT_R8 || (has_byte && w->scratch >= CT_RSP);
  bool is_group = has_extended_opcode(insn->code[opcode]);
  if (has_byte && !is_group && rex == 0 && wants_rex && (modrm >> 3 & 7) >= 4) {
    return false; /* ah and the like, which there are not with a REX prefix */
  }
  ct_writer_note(w, insn->pc);
  for (size_t i = 0; i < opcode; i++) {
    bool is_rex = (insn->code[i] & 0xf0) == 0x40; /* one that does not count would, as the last prefix */
    if (!is_rex && (insn->code[i] != insn->segment || insn->segment == 0)) {
      ct_emit_u8(w->out, insn->code[i]);
    }
  }
  if (rex != 0 || wants_rex) {
    ct_emit_u8(w->out, (uint8_t)(0x40 | (rex & 0xc) | w->scratch >> 3));
  }
  ct_emit_bytes(w->out, insn->code + opcode, insn->modrm_at - opcode);
  ct_emit_u8(w->out, (uint8_t)(0xc0 | (modrm & 0x38) | (w->scratch & 7)));
  ct_emit_bytes(w->out, insn->code + insn->length - insn->imm_bytes, insn->imm_bytes);
  return true;
}

void
ct_record_before(struct ct_writer *w, const struct ct_source_insn *insn)
{
  for (int i = 0; i < insn->value_count; i++) {
    if (insn->values[i].kind == CT_VALUE_LOADED) {
      w->now.is_before = 1;
      ct_writer_note(w, insn->pc);
      store_memory(w, insn, &insn->values[i]);
      w->now.is_before = 0;
      w->value_at += insn->values[i].size;
    }
  }
}

void
ct_record_after(struct ct_writer *w, const struct ct_source_insn *insn)
{
  uint64_t next = insn->pc + insn->length;
  w->now.done++;
  ct_writer_note(w, next);
  for (int i = 0; i < insn->value_count; i++) {
    const struct ct_recorded_value *value = &insn->values[i];
    switch (value->kind) {
    case CT_VALUE_LOADED:
      continue;
    case CT_VALUE_REG:
      store_register(w, (enum ct_reg)value->reg, value->size);
      break;
    case CT_VALUE_FLAGS:
      store_flags(w, next);
      break;
    case CT_VALUE_STORED:
      w->now.is_before = 1;
      ct_writer_note(w, next);
      store_memory(w, insn, value);
      w->now.is_before = 0;
      ct_writer_note(w, next);
      break;
    default:
      store_vector(w, insn, value);
      break;
    }
    w->value_at += value->size;
  }
}

void
ct_record_end(struct ct_writer *w, uint64_t pc)
{
  struct ct_code *out = w->out;
  enum ct_reg record = (enum ct_reg)w->record;
  if (w->scratch != CT_NO_REG && w->scratch != CT_R10) {
    ct_emit_mov_load(out, (enum ct_reg)w->scratch, CT_SLOT(w->place, spill_scratch));
  }
  w->now.scratch = w->scratch = CT_NO_REG;
  if (!w->now.r10_is_slot) {
    ct_emit_mov_store(out, CT_SLOT(w->place, app_r10), CT_R10);
    w->now.r10_is_slot = 1;
  }
  ct_writer_note(w, pc);
  ct_emit_lea(out, record, ct_mem(record, (int32_t)w->value_at));
  w->now.is_advanced = 1;
  ct_writer_note(w, pc);
  if (record != CT_R11) {
    ct_emit_mov_store(out, CT_SLOT(w->place, app_r11), CT_R11);
    ct_emit_mov(out, CT_R11, record);
    w->now.r11_is_slot = 1;
    ct_writer_note(w, pc);
    ct_emit_mov_load(out, record, CT_SLOT(w->place, spill_record));
    w->now.record = CT_NO_REG;
    ct_writer_note(w, pc);
  }
}

void
ct_record_end_side(struct ct_writer *w, const struct ct_writer_side *side)
{
  w->record = side->record;
  w->scratch = side->scratch;
  w->value_at = side->value_at;
  ct_writer_note(w, side->target);
  ct_emit_mov32_store_imm(w->out, ct_mem((enum ct_reg)w->record, 0), w->unit->id + side->now.part);
  ct_code_mark_last(w->out, CT_MARK_ID);
  ct_record_end(w, side->target);
}

/* ---- time and room ---- */

/* The time stamp counter to memory, of which `high` is the upper half. rax goes by its slot, rdx by that of scratch. */
static void
emit_time(struct ct_writer *w, uint64_t pc, struct ct_mem low, struct ct_mem high)
{
  struct ct_code *out = w->out;
  struct ct_mem rax = ct_mem_absolute(w->place->shared + (uint32_t)offsetof(struct ct_itrace_slots, regs[CT_RAX]));
  ct_emit_mov_store(out, rax, CT_RAX);
  ct_emit_mov_store(out, CT_SLOT(w->place, spill_scratch), CT_RDX);
  w->now.rax_is_slot = 1;
  w->now.scratch = CT_RDX;
  ct_writer_note(w, pc);
  ct_emit_rdtsc(out);
  ct_emit_mov32_store(out, low, CT_RAX);
  ct_emit_mov32_store(out, high, CT_RDX);
  ct_emit_mov_load(out, CT_RDX, CT_SLOT(w->place, spill_scratch));
  ct_emit_mov_load(out, CT_RAX, rax);
  w->now.rax_is_slot = 0;
  w->now.scratch = CT_NO_REG;
  ct_writer_note(w, pc);
}

/* The number of the block of records to rcx. */
static void
emit_block(struct ct_writer *w)
{
  if (w->place->has_bmi2) {
    ct_emit_rorx(w->out, CT_RCX, CT_R11, CT_ITRACE_BLOCK_SHIFT);
    ct_emit_movzx8(w->out, CT_RCX, CT_RCX);
    return;
  }
  struct ct_mem byte = CT_SLOT(w->place, spill_place);
  ct_emit_mov_store(w->out, byte, CT_R11);
  byte.disp += CT_ITRACE_BLOCK_SHIFT_OLD / 8;
  ct_emit_movzx8_load(w->out, CT_RCX, byte);
}

/*
 * r10 is free and gets rcx. Where there is something to do, which is hardly ever, the branch is taken, to a jump in
 * front of the unit: not taken costs less than taken, over a jump.
 */
void
ct_record_look(struct ct_writer *w, uint64_t pc)
{
  struct ct_mem byte = ct_mem_table(w->place->shared + CT_ITRACE_BLOCKS_AT, CT_RCX, 0);
  struct ct_recovery *before = ct_writer_note(w, pc);
  before->rcx_is = CT_RCX_R10;
  ct_emit_jmp_label(w->out, &w->to_cold);
  w->unit->entry = ct_writer_here(w);
  ct_writer_note(w, pc);
  ct_emit_mov(w->out, CT_R10, CT_RCX);
  w->now.rcx_is = CT_RCX_R10;
  ct_writer_note(w, pc);
  emit_block(w);
  ct_emit_movzx8_load(w->out, CT_RCX, byte);
  ct_emit_jrcxz_over(w->out, (int8_t) - (int32_t)(ct_writer_here(w) + JRCXZ_BYTES));
  w->back = ct_code_pc(w->out);
  w->has_look = true;
  w->look = w->now;
  w->look.pc = pc;
  ct_emit_mov(w->out, CT_RCX, CT_R10);
  w->now.rcx_is = CT_RCX_OWN;
  ct_writer_note(w, pc);
}

/* Where the look goes that found something to do; rcx has nothing, and its own value is in r10. */
void
ct_record_cold(struct ct_writer *w, struct ct_code_label *room)
{
  struct ct_code *out = w->out;
  uint32_t shared = w->place->shared;
  uint64_t pc = w->look.pc;
  struct ct_mem low = ct_mem_table(shared + CT_ITRACE_STAMPS_AT, CT_RCX, 3), high = low;
  struct ct_mem at = ct_mem_table(shared + CT_ITRACE_STAMPS_AT + 8 * CT_ITRACE_BLOCKS, CT_RCX, 3);
  high.disp += 4;
  struct ct_mem kind = ct_mem_table(shared + CT_ITRACE_BLOCKS_AT + CT_ITRACE_BLOCKS, CT_RCX, 0);
  ct_writer_bind_cold(w, &w->to_cold);
  w->now = w->look;
  ct_writer_note(w, pc);
  emit_block(w);
  ct_emit_movzx8_load(out, CT_RCX, kind);
  ct_emit_jrcxz_over(out, JMP_NEAR);
  struct ct_code_label stamp = {.count = 0};
  ct_emit_jmp_label(out, &stamp);
  ct_emit_mov(out, CT_RCX, CT_R10);
  w->now.rcx_is = CT_RCX_OWN;
  ct_writer_note(w, pc);
  ct_emit_jmp_label(out, room);
  ct_code_label_bind(out, &stamp);
  w->now.rcx_is = CT_RCX_R10;
  ct_writer_note(w, pc);
  emit_block(w);
  ct_emit_mov_store(out, at, CT_R11);
  ct_emit_mov8_store_imm(out, ct_mem_table(shared + CT_ITRACE_BLOCKS_AT, CT_RCX, 0), CT_ITRACE_BLOCK_KNOWN);
  emit_time(w, pc, low, high);
  ct_emit_jmp(out, w->back);
  ct_code_mark_last(out, CT_MARK_HOT);
}

/* ---- a system call ---- */

/* Before it, which changes r11: where its record begins is in a slot, whatever r11 is when it is made again. */
void
ct_record_before_syscall(struct ct_writer *w, uint64_t pc)
{
  ct_emit_mov_store(w->out, CT_SLOT(w->place, spill_place), CT_R11);
  w->now.place_is_slot = 1;
  ct_writer_note(w, pc)->rcx_is = CT_RCX_SPILLED;
  w->now.place_is_slot = 0;
}

/* After it: its values. */
void
ct_record_syscall(struct ct_writer *w, uint64_t next)
{
  w->now.done = 1;
  w->now.rcx_is = CT_RCX_PC;
  w->now.r10_is_slot = 1;
  w->now.r11_is_slot = 0;
  w->now.place_is_slot = 1;
  ct_writer_note(w, next);
  ct_emit_mov_load(w->out, CT_RCX, CT_SLOT(w->place, spill_place));
  ct_emit_mov_store(w->out, ct_mem(CT_RCX, 4), CT_RAX);
  ct_emit_mov32_store(w->out, ct_mem(CT_RCX, 12), CT_R11);
  emit_time(w, next, ct_mem(CT_RCX, 16), ct_mem(CT_RCX, 20));
  ct_emit_mov_store(w->out, CT_SLOT(w->place, app_r11), CT_R11);
  ct_emit_lea(w->out, CT_R11, ct_mem(CT_RCX, 24));
  w->now.r11_is_slot = 1;
  w->now.place_is_slot = 0;
  w->unit->parts[0].record_bytes = 24;
  w->now.is_advanced = 1;
  ct_writer_note(w, next);
}
