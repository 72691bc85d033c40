/* SPDX-License-Identifier: MIT */
/*
 * An x86-64 emitter of just the forms that trampolines need: a cursor over a caller's buffer, one function per
 * form. Overflow is remembered, nothing is written past the end, and the caller checks once.
 */
#ifndef CT_X86_EMIT_H
#define CT_X86_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum ct_reg { CT_RAX = 0, CT_RCX = 1, CT_RDX = 2, CT_RSP = 4, CT_R10 = 10, CT_R11 = 11 };

struct ct_code {
  uint8_t *bytes;
  size_t length;
  size_t capacity;
  uint64_t address; /* where bytes[0] will run */
  bool overflow;
};

static inline uint64_t
ct_code_pc(const struct ct_code *code)
{
  return code->address + code->length;
}

static inline void
ct_emit_bytes(struct ct_code *code, const void *bytes, size_t count)
{
  if (count > code->capacity - code->length) {
    code->overflow = true;
    return;
  }
  memcpy(code->bytes + code->length, bytes, count);
  code->length += count;
}

static inline void
ct_emit_u8(struct ct_code *code, uint8_t value)
{
  ct_emit_bytes(code, &value, 1);
}

static inline void
ct_emit_u32(struct ct_code *code, uint32_t value)
{
  ct_emit_bytes(code, &value, 4);
}

static inline void
ct_emit_u64(struct ct_code *code, uint64_t value)
{
  ct_emit_bytes(code, &value, 8);
}

/* rel32 from behind the field to target; what does not reach counts as overflow. */
static inline void
ct_emit_rel32(struct ct_code *code, uint64_t target)
{
  int64_t distance = (int64_t)(target - (ct_code_pc(code) + 4));
  if (distance != (int32_t)distance) {
    code->overflow = true;
  }
  ct_emit_u32(code, (uint32_t)distance);
}

/* mov %reg, disp(%rsp) */
static inline void
ct_emit_store_sp(struct ct_code *code, enum ct_reg reg, int8_t disp)
{
  uint8_t bytes[] = {(uint8_t)(0x48 | (reg >= 8 ? 4 : 0)), 0x89, (uint8_t)(0x44 | (reg & 7) << 3), 0x24, (uint8_t)disp};
  ct_emit_bytes(code, bytes, sizeof(bytes));
}

/* mov disp(%rsp), %reg */
static inline void
ct_emit_load_sp(struct ct_code *code, enum ct_reg reg, int8_t disp)
{
  uint8_t bytes[] = {(uint8_t)(0x48 | (reg >= 8 ? 4 : 0)), 0x8b, (uint8_t)(0x44 | (reg & 7) << 3), 0x24, (uint8_t)disp};
  ct_emit_bytes(code, bytes, sizeof(bytes));
}

/* OP %gs:offset, %reg with a 64-bit register: 0x2b sub, 0x3b cmp, 0x03 add, 0x8b mov */
static inline void
ct_emit_gs64(struct ct_code *code, uint8_t opcode, enum ct_reg reg, uint32_t offset)
{
  uint8_t bytes[] = {0x65, (uint8_t)(0x48 | (reg >= 8 ? 4 : 0)), opcode, (uint8_t)(0x04 | (reg & 7) << 3), 0x25};
  ct_emit_bytes(code, bytes, sizeof(bytes));
  ct_emit_u32(code, offset);
}

/* jcc target, near form; opcode is the second byte (0x83 jae, 0x84 je, 0x85 jne) */
static inline void
ct_emit_jcc(struct ct_code *code, uint8_t opcode, uint64_t target)
{
  ct_emit_u8(code, 0x0f);
  ct_emit_u8(code, opcode);
  ct_emit_rel32(code, target);
}

static inline void
ct_emit_jmp(struct ct_code *code, uint64_t target)
{
  ct_emit_u8(code, 0xe9);
  ct_emit_rel32(code, target);
}

static inline void
ct_emit_call(struct ct_code *code, uint64_t target)
{
  ct_emit_u8(code, 0xe8);
  ct_emit_rel32(code, target);
}

/* jmp *target(%rip) */
static inline void
ct_emit_jmp_mem(struct ct_code *code, uint64_t pointer)
{
  ct_emit_u8(code, 0xff);
  ct_emit_u8(code, 0x25);
  ct_emit_rel32(code, pointer);
}

/* lea target(%rip), %r11 */
static inline void
ct_emit_lea_r11(struct ct_code *code, uint64_t target)
{
  ct_emit_bytes(code, "\x4c\x8d\x1d", 3);
  ct_emit_rel32(code, target);
}

/* movabs $value, %r11 */
static inline void
ct_emit_movabs_r11(struct ct_code *code, uint64_t value)
{
  ct_emit_bytes(code, "\x49\xbb", 2);
  ct_emit_u64(code, value);
}

#endif
