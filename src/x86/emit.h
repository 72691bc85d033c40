/* SPDX-License-Identifier: MIT */
/*
 * An x86-64 emitter: a cursor over a caller's buffer, and one function for each form of an instruction, named as the
 * system's assembler names it. Operands come in the order of Intel's manual: destination first. Without a suffix a form
 * is 64 bits wide; _load takes its second operand from memory, _store writes its first one there, _imm has a constant.
 *
 * The encodings are those that the assembler chooses, with the shortest displacements and constants
 * (tests/unit/x86_emit_test.c compares them byte for byte), except where ct_mem_wide asks for four bytes. Overflow, a
 * target out of reach and a label that is used too often are remembered in `overflow`; nothing is written past the end,
 * and the caller checks once.
 *
 * Source of the encodings: Intel SDM, volume 2, chapter 2 (instruction format) and the pages of each instruction.
 */
#ifndef CT_X86_EMIT_H
#define CT_X86_EMIT_H

#include "x86/marks.h"
#include "x86/operands.h"
#include "x86/store_bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct ct_code {
  uint8_t *bytes;
  size_t length;
  size_t capacity;
  uint64_t address; /* where bytes[0] will run */
  bool overflow;
  struct ct_code_marks *marks; /* NULL: nobody wants to know */
};

/* The four bytes that were emitted last. */
static inline void
ct_code_mark_last(struct ct_code *code, enum ct_mark_kind kind)
{
  ct_code_marks_add(code->marks, kind, code->length - 4);
}

/* Where the next byte will run. */
CT_INLINE uint64_t
ct_code_pc(const struct ct_code *code)
{
  return code->address + code->length;
}

/* ---- data ---- */

CT_INLINE void
ct_emit_bytes(struct ct_code *code, const void *bytes, size_t count)
{
  if (count > code->capacity - code->length) {
    code->overflow = true;
    return;
  }
  memcpy(code->bytes + code->length, bytes, count);
  code->length += count;
}

CT_INLINE void
ct_emit_u8(struct ct_code *code, uint8_t value)
{
  ct_emit_bytes(code, &value, 1);
}

CT_INLINE void
ct_emit_u32(struct ct_code *code, uint32_t value)
{
  ct_emit_bytes(code, &value, 4);
}

CT_INLINE void
ct_emit_u64(struct ct_code *code, uint64_t value)
{
  ct_emit_bytes(code, &value, 8);
}

/* rel32 from the end of the field to target */
CT_INLINE void
ct_emit_rel32(struct ct_code *code, uint64_t target)
{
  int64_t distance = (int64_t)(target - (ct_code_pc(code) + 4));
  if (distance != (int32_t)distance) {
    code->overflow = true;
  }
  ct_emit_u32(code, (uint32_t)distance);
}

/* ---- the instruction format ---- */

/* What stands before ModRM. opcode: with 0x0f00 for the second map. */
CT_INLINE void
ct_form_begin(struct ct_form *form, bool wide, unsigned opcode, unsigned reg, unsigned index, unsigned rm)
{
  unsigned rex = 0x40 | (unsigned)wide << 3 | reg >> 3 << 2 | index >> 3 << 1 | rm >> 3;
  if (rex != 0x40) {
    ct_form_add(form, rex);
  }
  if (opcode >> 8 != 0) {
    ct_form_add(form, opcode >> 8);
  }
  ct_form_add(form, opcode & 0xff);
}

/* The form, a displacement and a constant, of so many bytes each. */
CT_INLINE void
ct_emit_form(struct ct_code *code, struct ct_form form, uint32_t disp, unsigned disp_bytes, uint64_t imm,
             unsigned imm_bytes)
{
  unsigned __int128 bytes = form.bytes;
  bytes |= (unsigned __int128)(disp_bytes == 4 ? disp : disp & 0xff) << 8 * form.count;
  bytes |= (unsigned __int128)imm << 8 * (form.count + disp_bytes);
  unsigned count = form.count + disp_bytes + imm_bytes;
  if (count <= code->capacity - code->length) {
    ct_store_bytes(code->bytes + code->length, bytes, count);
    code->length += count;
  } else {
    code->overflow = true;
  }
}

CT_INLINE bool
ct_is_imm8(int32_t value)
{
  return value == (int8_t)value;
}

/* With two registers; reg may be a part of the opcode instead. */
CT_INLINE void
ct_emit_rr(struct ct_code *code, bool wide, unsigned opcode, unsigned reg, unsigned rm, uint64_t imm,
           unsigned imm_bytes)
{
  struct ct_form form = {0, 0};
  ct_form_begin(&form, wide, opcode, reg, 0, rm);
  ct_form_add(&form, 0xc0 | (reg & 7) << 3 | (rm & 7));
  ct_emit_form(code, form, 0, 0, imm, imm_bytes);
}

/* With memory; reg may be a part of the opcode instead. */
CT_INLINE void
ct_emit_rm(struct ct_code *code, bool wide, unsigned opcode, unsigned reg, struct ct_mem mem, uint64_t imm,
           unsigned imm_bytes)
{
  struct ct_form form = {0, 0};
  unsigned base = mem.base == CT_NO_REG ? 0 : mem.base, index = mem.index == CT_NO_REG ? 4 : mem.index;
  unsigned disp_bytes = 4, mode = (reg & 7) << 3;
  uint32_t disp = (uint32_t)mem.disp;
  if (mem.kind == CT_MEM_GS) {
    ct_form_add(&form, 0x65);
  } else if (mem.kind == CT_MEM_FS) {
    ct_form_add(&form, 0x64);
  }
  ct_form_begin(&form, wide, opcode, reg, index, base);
  if (mem.kind == CT_MEM_GS || mem.kind == CT_MEM_ABSOLUTE) {
    ct_form_add(&form, mode | 4);
    ct_form_add(&form, (unsigned)mem.scale << 6 | (index & 7) << 3 | 5); /* no base */
    if (mem.kind == CT_MEM_ABSOLUTE) {
      ct_code_marks_add(code->marks, CT_MARK_ABSOLUTE, code->length + form.count);
    }
  } else if (mem.kind == CT_MEM_RIP) {
    ct_form_add(&form, mode | 5);
    int64_t distance = (int64_t)(mem.target - (ct_code_pc(code) + form.count + 4 + imm_bytes));
    code->overflow |= distance != (int32_t)distance;
    disp = (uint32_t)distance;
    ct_code_marks_add(code->marks, CT_MARK_AWAY, code->length + form.count);
  } else {
    if (!mem.wide && ct_is_imm8(mem.disp)) {
      disp_bytes =
          mem.disp == 0 && (base & 7) != CT_RBP ? 0 : 1; /* without displacement, rbp and r13 mean another form */
    }
    mode |= disp_bytes == 4 ? 0x80 : disp_bytes << 6;
    if (mem.index == CT_NO_REG && (base & 7) != CT_RSP) {
      ct_form_add(&form, mode | (base & 7));
    } else {
      ct_form_add(&form, mode | 4);
      ct_form_add(&form, (unsigned)mem.scale << 6 | (index & 7) << 3 | (base & 7));
    }
  }
  ct_emit_form(code, form, disp, disp_bytes, imm, imm_bytes);
}

/* With a register in the opcode. */
CT_INLINE void
ct_emit_opcode_reg(struct ct_code *code, bool wide, unsigned opcode, enum ct_reg reg, uint64_t imm, unsigned imm_bytes)
{
  struct ct_form form = {0, 0};
  ct_form_begin(&form, wide, opcode | (reg & 7u), 0, 0, reg);
  ct_emit_form(code, form, 0, 0, imm, imm_bytes);
}

/* ---- moves ---- */

CT_INLINE void
ct_emit_mov(struct ct_code *code, enum ct_reg to, enum ct_reg from)
{
  ct_emit_rr(code, true, 0x89, from, to, 0, 0);
}

CT_INLINE void
ct_emit_mov32(struct ct_code *code, enum ct_reg to, enum ct_reg from)
{
  ct_emit_rr(code, false, 0x89, from, to, 0, 0);
}

CT_INLINE void
ct_emit_mov_load(struct ct_code *code, enum ct_reg to, struct ct_mem from)
{
  ct_emit_rm(code, true, 0x8b, to, from, 0, 0);
}

CT_INLINE void
ct_emit_mov32_load(struct ct_code *code, enum ct_reg to, struct ct_mem from)
{
  ct_emit_rm(code, false, 0x8b, to, from, 0, 0);
}

CT_INLINE void
ct_emit_mov_store(struct ct_code *code, struct ct_mem to, enum ct_reg from)
{
  ct_emit_rm(code, true, 0x89, from, to, 0, 0);
}

CT_INLINE void
ct_emit_mov32_store(struct ct_code *code, struct ct_mem to, enum ct_reg from)
{
  ct_emit_rm(code, false, 0x89, from, to, 0, 0);
}

/* The low byte of any register: of rsp, rbp, rsi and rdi with a REX prefix. */
CT_INLINE void
ct_emit_mov8_store(struct ct_code *code, struct ct_mem to, enum ct_reg from)
{
  bool has_rex = (to.base != CT_NO_REG && to.base >= CT_R8) || (to.index != CT_NO_REG && to.index >= CT_R8);
  if (from >= CT_RSP && from < CT_R8 && !has_rex) { /* ct_form_begin leaves an empty one out */
    ct_emit_u8(code, 0x40);
  }
  ct_emit_rm(code, false, 0x88, from, to, 0, 0);
}

CT_INLINE void
ct_emit_mov16_store(struct ct_code *code, struct ct_mem to, enum ct_reg from)
{
  ct_emit_u8(code, 0x66);
  ct_emit_rm(code, false, 0x89, from, to, 0, 0);
}

CT_INLINE void
ct_emit_mov32_store_imm(struct ct_code *code, struct ct_mem to, uint32_t value)
{
  ct_emit_rm(code, false, 0xc7, 0, to, value, 4);
}

/* The rest of the register becomes 0. */
CT_INLINE void
ct_emit_movzx8_load(struct ct_code *code, enum ct_reg to, struct ct_mem from)
{
  ct_emit_rm(code, false, 0x0fb6, to, from, 0, 0);
}

CT_INLINE void
ct_emit_movzx16_load(struct ct_code *code, enum ct_reg to, struct ct_mem from)
{
  ct_emit_rm(code, false, 0x0fb7, to, from, 0, 0);
}

CT_INLINE void
ct_emit_movzx16(struct ct_code *code, enum ct_reg to, enum ct_reg from)
{
  ct_emit_rr(code, false, 0x0fb7, to, from, 0, 0);
}

/* The upper half becomes 0. */
CT_INLINE void
ct_emit_mov32_imm(struct ct_code *code, enum ct_reg to, uint32_t value)
{
  ct_emit_opcode_reg(code, false, 0xb8, to, value, 4);
}

CT_INLINE void
ct_emit_movabs(struct ct_code *code, enum ct_reg to, uint64_t value)
{
  ct_emit_opcode_reg(code, true, 0xb8, to, value, 8);
}

CT_INLINE void
ct_emit_lea(struct ct_code *code, enum ct_reg to, struct ct_mem of)
{
  ct_emit_rm(code, true, 0x8d, to, of, 0, 0);
}

CT_INLINE void
ct_emit_lea32(struct ct_code *code, enum ct_reg to, struct ct_mem of)
{
  ct_emit_rm(code, false, 0x8d, to, of, 0, 0);
}

CT_INLINE void
ct_emit_push(struct ct_code *code, enum ct_reg from)
{
  ct_emit_opcode_reg(code, false, 0x50, from, 0, 0);
}

CT_INLINE void
ct_emit_pop(struct ct_code *code, enum ct_reg to)
{
  ct_emit_opcode_reg(code, false, 0x58, to, 0, 0);
}

CT_INLINE void
ct_emit_push_load(struct ct_code *code, struct ct_mem from)
{
  ct_emit_rm(code, false, 0xff, 6, from, 0, 0);
}

/* An address with rsp is computed with what rsp is afterwards. */
CT_INLINE void
ct_emit_pop_store(struct ct_code *code, struct ct_mem to)
{
  ct_emit_rm(code, false, 0x8f, 0, to, 0, 0);
}

/* to += from, and from gets what to was, by one instruction (no lock). */
CT_INLINE void
ct_emit_xadd_store(struct ct_code *code, struct ct_mem to, enum ct_reg from)
{
  ct_emit_rm(code, true, 0x0fc1, from, to, 0, 0);
}

/* The low half of xmm0 to xmm7 (number). */
CT_INLINE void
ct_emit_movq_store(struct ct_code *code, struct ct_mem to, unsigned number)
{
  ct_emit_u8(code, 0x66);
  ct_emit_rm(code, false, 0x0fd6, number, to, 0, 0);
}

/* BMI2: rotated right by so many bits, no flag changes. */
CT_INLINE void
ct_emit_rorx(struct ct_code *code, enum ct_reg to, enum ct_reg from, uint8_t bits)
{
  unsigned inverted = (to >= CT_R8 ? 0 : 0x80) | 0x40 | (from >= CT_R8 ? 0 : 0x20);
  ct_emit_bytes(
      code,
      (const uint8_t[]){0xc4, (uint8_t)(inverted | 3), 0xfb, 0xf0, (uint8_t)(0xc0 | (to & 7) << 3 | (from & 7)), bits},
      6);
}

/* The upper bytes become 0. */
CT_INLINE void
ct_emit_movzx8(struct ct_code *code, enum ct_reg to, enum ct_reg from)
{
  if (from >= CT_RSP && from < CT_R8 && to < CT_R8) {
    ct_emit_u8(code, 0x40);
  }
  ct_emit_rr(code, false, 0x0fb6, to, from, 0, 0);
}

CT_INLINE void
ct_emit_mov8_store_imm(struct ct_code *code, struct ct_mem to, uint8_t value)
{
  ct_emit_rm(code, false, 0xc6, 0, to, value, 1);
}

/* To any address, without rip: only rax can be stored so. */
CT_INLINE void
ct_emit_movabs_store_rax(struct ct_code *code, uint64_t address)
{
  ct_emit_bytes(code, (const uint8_t[]){0x48, 0xa3}, 2);
  ct_emit_u64(code, address);
}

/* From the memory that an operand of another instruction means: its bytes from ModRM to the displacement, and its REX
 * prefix (0: it has none). No segment, and nothing relative to rip. */
CT_INLINE void
ct_emit_mov_load_operand(struct ct_code *code, enum ct_reg to, unsigned rex, const uint8_t *modrm, size_t count)
{
  ct_emit_u8(code, (uint8_t)(0x48 | (rex & 3) | (unsigned)to >> 3 << 2));
  ct_emit_u8(code, 0x8b);
  ct_emit_u8(code, (uint8_t)((modrm[0] & 0xc7) | (to & 7) << 3));
  ct_emit_bytes(code, modrm + 1, count - 1);
}

/* If the comparison before said "below" (unsigned). */
CT_INLINE void
ct_emit_cmovb(struct ct_code *code, enum ct_reg to, enum ct_reg from)
{
  ct_emit_rr(code, true, 0x0f42, to, from, 0, 0);
}

/* ---- arithmetic ---- */

/* number: of the operation, as in bits 3 to 5 of its opcodes */
CT_INLINE void
ct_emit_alu_imm(struct ct_code *code, bool wide, unsigned number, enum ct_reg to, int32_t value)
{
  struct ct_form form = {0, 0};
  if (ct_is_imm8(value)) {
    ct_emit_rr(code, wide, 0x83, number, to, (uint32_t)value, 1);
  } else if (to == CT_RAX) {
    ct_form_begin(&form, wide, number << 3 | 5, 0, 0, 0);
    ct_emit_form(code, form, 0, 0, (uint32_t)value, 4);
  } else {
    ct_emit_rr(code, wide, 0x81, number, to, (uint32_t)value, 4);
  }
}

CT_INLINE void
ct_emit_alu_mem_imm(struct ct_code *code, bool wide, unsigned number, struct ct_mem to, int32_t value)
{
  bool is_short = ct_is_imm8(value);
  ct_emit_rm(code, wide, is_short ? 0x83 : 0x81, number, to, (uint32_t)value, is_short ? 1 : 4);
}

/* ct_emit_NAME, ct_emit_NAME32: registers; _load; _imm; _store_imm: memory and a constant; 8_store_imm: a byte there */
#define CT_EMIT_ALU(name, number)                                                                                      \
  CT_INLINE void ct_emit_##name(struct ct_code *code, enum ct_reg to, enum ct_reg from)                                \
  {                                                                                                                    \
    ct_emit_rr(code, true, (number) << 3 | 1, from, to, 0, 0);                                                         \
  }                                                                                                                    \
  CT_INLINE void ct_emit_##name##32(struct ct_code * code, enum ct_reg to, enum ct_reg from)                           \
  {                                                                                                                    \
    ct_emit_rr(code, false, (number) << 3 | 1, from, to, 0, 0);                                                        \
  }                                                                                                                    \
  CT_INLINE void ct_emit_##name##_load(struct ct_code *code, enum ct_reg to, struct ct_mem from)                       \
  {                                                                                                                    \
    ct_emit_rm(code, true, (number) << 3 | 3, to, from, 0, 0);                                                         \
  }                                                                                                                    \
  CT_INLINE void ct_emit_##name##_imm(struct ct_code *code, enum ct_reg to, int32_t value)                             \
  {                                                                                                                    \
    ct_emit_alu_imm(code, true, number, to, value);                                                                    \
  }                                                                                                                    \
  CT_INLINE void ct_emit_##name##32_imm(struct ct_code * code, enum ct_reg to, int32_t value)                          \
  {                                                                                                                    \
    ct_emit_alu_imm(code, false, number, to, value);                                                                   \
  }                                                                                                                    \
  CT_INLINE void ct_emit_##name##_store_imm(struct ct_code *code, struct ct_mem to, int32_t value)                     \
  {                                                                                                                    \
    ct_emit_alu_mem_imm(code, true, number, to, value);                                                                \
  }                                                                                                                    \
  CT_INLINE void ct_emit_##name##32_store_imm(struct ct_code * code, struct ct_mem to, int32_t value)                  \
  {                                                                                                                    \
    ct_emit_alu_mem_imm(code, false, number, to, value);                                                               \
  }                                                                                                                    \
  CT_INLINE void ct_emit_##name##8_store_imm(struct ct_code * code, struct ct_mem to, uint8_t value)                   \
  {                                                                                                                    \
    ct_emit_rm(code, false, 0x80, number, to, value, 1);                                                               \
  }
CT_EMIT_ALU(add, 0)
CT_EMIT_ALU(or, 1)
CT_EMIT_ALU(and, 4)
CT_EMIT_ALU(sub, 5)
CT_EMIT_ALU(xor, 6)
CT_EMIT_ALU(cmp, 7)
#undef CT_EMIT_ALU

CT_INLINE void
ct_emit_test32_imm(struct ct_code *code, enum ct_reg reg, uint32_t value)
{
  if (reg == CT_RAX) {
    struct ct_form form = {0xa9, 1};
    ct_emit_form(code, form, 0, 0, value, 4);
  } else {
    ct_emit_rr(code, false, 0xf7, 0, reg, value, 4);
  }
}

CT_INLINE void
ct_emit_dec(struct ct_code *code, enum ct_reg reg)
{
  ct_emit_rr(code, true, 0xff, 1, reg, 0, 0);
}

CT_INLINE void
ct_emit_dec32_store(struct ct_code *code, struct ct_mem mem)
{
  ct_emit_rm(code, false, 0xff, 1, mem, 0, 0);
}

CT_INLINE void
ct_emit_inc_store(struct ct_code *code, struct ct_mem mem)
{
  ct_emit_rm(code, true, 0xff, 0, mem, 0, 0);
}

CT_INLINE void
ct_emit_inc32_store(struct ct_code *code, struct ct_mem mem)
{
  ct_emit_rm(code, false, 0xff, 0, mem, 0, 0);
}

/* Compares eax. */
CT_INLINE void
ct_emit_cmpxchg32_store(struct ct_code *code, struct ct_mem to, enum ct_reg from)
{
  ct_emit_rm(code, false, 0x0fb1, from, to, 0, 0);
}

CT_INLINE void
ct_emit_and32_load(struct ct_code *code, enum ct_reg to, struct ct_mem from)
{
  ct_emit_rm(code, false, 0x23, to, from, 0, 0);
}

/* bits: 2 to 63 (by 1 the assembler has a shorter form) */
CT_INLINE void
ct_emit_shl(struct ct_code *code, enum ct_reg reg, uint8_t bits)
{
  ct_emit_rr(code, true, 0xc1, 4, reg, bits, 1);
}

CT_INLINE void
ct_emit_shr(struct ct_code *code, enum ct_reg reg, uint8_t bits)
{
  ct_emit_rr(code, true, 0xc1, 5, reg, bits, 1);
}

/* By one bit. */
CT_INLINE void
ct_emit_shr_once(struct ct_code *code, enum ct_reg reg)
{
  ct_emit_rr(code, true, 0xd1, 5, reg, 0, 0);
}

/* ---- prefixes of the form that is emitted next ---- */

static inline void
ct_emit_lock(struct ct_code *code)
{
  ct_emit_u8(code, 0xf0);
}

static inline void
ct_emit_fs(struct ct_code *code)
{
  ct_emit_u8(code, 0x64);
}

static inline void
ct_emit_gs(struct ct_code *code)
{
  ct_emit_u8(code, 0x65);
}

/* ---- without operands ---- */

static inline void
ct_emit_rdtsc(struct ct_code *code)
{
  ct_emit_bytes(code, (const uint8_t[]){0x0f, 0x31}, 2);
}

static inline void
ct_emit_syscall(struct ct_code *code)
{
  ct_emit_bytes(code, (const uint8_t[]){0x0f, 0x05}, 2);
}

/* The low flags to ah and from there; OF to al, as 0 or 1. */
static inline void
ct_emit_lahf(struct ct_code *code)
{
  ct_emit_u8(code, 0x9f);
}

static inline void
ct_emit_sahf(struct ct_code *code)
{
  ct_emit_u8(code, 0x9e);
}

static inline void
ct_emit_seto_al(struct ct_code *code)
{
  ct_emit_bytes(code, (const uint8_t[]){0x0f, 0x90, 0xc0}, 3);
}

/* OF as ct_emit_seto_al has left it in al; the other flags become something. */
static inline void
ct_emit_set_of_from_al(struct ct_code *code)
{
  ct_emit_bytes(code, (const uint8_t[]){0x04, 0x7f}, 2); /* add $0x7f, %al */
}

static inline void
ct_emit_popfq(struct ct_code *code)
{
  ct_emit_u8(code, 0x9d);
}

static inline void
ct_emit_ret(struct ct_code *code)
{
  ct_emit_u8(code, 0xc3);
}

static inline void
ct_emit_int3(struct ct_code *code)
{
  ct_emit_u8(code, 0xcc);
}

/* What follows, which is no code, is at a multiple of 8. */
CT_INLINE void
ct_emit_align8(struct ct_code *code)
{
  while (ct_code_pc(code) % 8 != 0 && !code->overflow) {
    ct_emit_int3(code);
  }
}

/* nopl 0(%rax,%rax): five bytes, as many as a jump */
static inline void
ct_emit_nop5(struct ct_code *code)
{
  ct_emit_bytes(code, (const uint8_t[]){0x0f, 0x1f, 0x44, 0x00, 0x00}, 5);
}

/* ---- branches ---- */

static inline void
ct_emit_jmp(struct ct_code *code, uint64_t target)
{
  ct_emit_u8(code, 0xe9);
  ct_emit_rel32(code, target);
}

static inline void
ct_emit_jcc(struct ct_code *code, enum ct_cond cond, uint64_t target)
{
  ct_emit_bytes(code, (const uint8_t[]){0x0f, (uint8_t)(0x80 | cond)}, 2);
  ct_emit_rel32(code, target);
}

static inline void
ct_emit_call(struct ct_code *code, uint64_t target)
{
  ct_emit_u8(code, 0xe8);
  ct_emit_rel32(code, target);
}

static inline void
ct_emit_jmp_load(struct ct_code *code, struct ct_mem from)
{
  ct_emit_rm(code, false, 0xff, 4, from, 0, 0);
}

static inline void
ct_emit_jmp_reg(struct ct_code *code, enum ct_reg to)
{
  ct_emit_rr(code, false, 0xff, 4, to, 0, 0);
}

/* If rcx is 0, over the next bytes. */
static inline void
ct_emit_jrcxz_over(struct ct_code *code, int8_t bytes)
{
  ct_emit_bytes(code, (const uint8_t[]){0xe3, (uint8_t)bytes}, 2);
}

/* target: where it goes on when the transaction aborts */
static inline void
ct_emit_xbegin(struct ct_code *code, uint64_t target)
{
  ct_emit_bytes(code, (const uint8_t[]){0xc7, 0xf8}, 2);
  ct_emit_rel32(code, target);
}

/* jmp over the next bytes */
static inline void
ct_emit_jmp_over(struct ct_code *code, int8_t bytes)
{
  ct_emit_bytes(code, (const uint8_t[]){0xeb, (uint8_t)bytes}, 2);
}

/* ---- labels ---- */

/* A place in the code that branches go to, before it is known or afterwards. All zeros at first. */
#define CT_CODE_LABEL_USES 4
struct ct_code_label {
  size_t uses[CT_CODE_LABEL_USES]; /* the fields to fill in */
  size_t place;
  uint8_t count;
  bool is_bound;
};

static inline void
ct_code_label_fill(struct ct_code *code, size_t field, size_t place)
{
  if (!code->overflow) {
    int32_t distance = (int32_t)(place - (field + 4));
    memcpy(code->bytes + field, &distance, sizeof(distance));
  }
}

/* The rel32 of a branch whose opcode has just been emitted. */
static inline void
ct_emit_label(struct ct_code *code, struct ct_code_label *label)
{
  size_t field = code->length;
  ct_emit_u32(code, 0);
  if (label->is_bound) {
    ct_code_label_fill(code, field, label->place);
  } else if (label->count == CT_CODE_LABEL_USES) {
    code->overflow = true;
  } else {
    label->uses[label->count++] = field;
  }
}

/* The label is here. */
static inline void
ct_code_label_bind(struct ct_code *code, struct ct_code_label *label)
{
  label->is_bound = true;
  label->place = code->length;
  for (unsigned i = 0; i < label->count; i++) {
    ct_code_label_fill(code, label->uses[i], label->place);
  }
}

static inline bool
ct_code_label_is_used(const struct ct_code_label *label)
{
  return label->count != 0;
}

static inline void
ct_emit_jcc_label(struct ct_code *code, enum ct_cond cond, struct ct_code_label *label)
{
  ct_emit_bytes(code, (const uint8_t[]){0x0f, (uint8_t)(0x80 | cond)}, 2);
  ct_emit_label(code, label);
}

/* The address of the label. */
static inline void
ct_emit_lea_label(struct ct_code *code, enum ct_reg to, struct ct_code_label *label)
{
  ct_emit_bytes(code, (const uint8_t[]){(uint8_t)(0x48 | (to >> 3) << 2), 0x8d, (uint8_t)(5 | (to & 7) << 3)}, 3);
  ct_emit_label(code, label);
}

/* To the address that lies at the label. */
static inline void
ct_emit_jmp_load_label(struct ct_code *code, struct ct_code_label *label)
{
  ct_emit_bytes(code, (const uint8_t[]){0xff, 0x25}, 2);
  ct_emit_label(code, label);
}

/* What lies at the label. */
static inline void
ct_emit_push_load_label(struct ct_code *code, struct ct_code_label *label)
{
  ct_emit_bytes(code, (const uint8_t[]){0xff, 0x35}, 2);
  ct_emit_label(code, label);
}

static inline void
ct_emit_jmp_label(struct ct_code *code, struct ct_code_label *label)
{
  ct_emit_u8(code, 0xe9);
  ct_emit_label(code, label);
}

static inline void
ct_emit_call_label(struct ct_code *code, struct ct_code_label *label)
{
  ct_emit_u8(code, 0xe8);
  ct_emit_label(code, label);
}

#endif
