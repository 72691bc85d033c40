/* SPDX-License-Identifier: MIT */
/*
 * Forms of the emitter (emit.h) that store vector and mask registers.
 *
 * Source of the encodings: Intel SDM, volume 2, chapter 2.3 (VEX) and 2.7 (EVEX).
 */
#ifndef CT_X86_EMIT_VECTOR_H
#define CT_X86_EMIT_VECTOR_H

#include "x86/emit.h"

/* disp32(base), as the bytes of a VEX or EVEX form end. */
CT_INLINE void
ct_emit_vector_mem(struct ct_code *code, unsigned reg, struct ct_mem to)
{
  ct_emit_u8(code, (uint8_t)(0x80 | (reg & 7) << 3 | (to.base & 7)));
  if ((to.base & 7) == CT_RSP) {
    ct_emit_u8(code, 0x24);
  }
  ct_emit_u32(code, (uint32_t)to.disp);
}

/* movups of the low 16 bytes of xmm0 to xmm15 (number) */
CT_INLINE void
ct_emit_movups_store(struct ct_code *code, struct ct_mem to, unsigned number)
{
  ct_emit_rm(code, false, 0x0f11, number, to, 0, 0);
}

/* vmovups of 16 or 32 bytes of vector register 0 to 15, to(base) with four bytes of displacement */
CT_INLINE void
ct_emit_vmovups_store(struct ct_code *code, struct ct_mem to, unsigned number, unsigned bytes)
{
  unsigned r = number < 8 ? 0x80 : 0, last = 0x78 | (bytes == 32) << 2;
  if (to.base < CT_R8) {
    ct_emit_bytes(code, (const uint8_t[]){0xc5, (uint8_t)(r | last), 0x11}, 3);
  } else {
    ct_emit_bytes(code, (const uint8_t[]){0xc4, (uint8_t)(r | 0x41), (uint8_t)last, 0x11}, 4);
  }
  ct_emit_vector_mem(code, number, to);
}

/* The same of 16, 32 or 64 bytes of vector register 0 to 31, as AVX-512 has it. */
CT_INLINE void
ct_emit_vmovups_wide_store(struct ct_code *code, struct ct_mem to, unsigned number, unsigned bytes)
{
  unsigned inverted = (number & 8 ? 0 : 0x80) | 0x40 | (to.base >= CT_R8 ? 0 : 0x20) | (number & 16 ? 0 : 0x10);
  unsigned length = bytes == 64 ? 2 : bytes == 32 ? 1 : 0;
  ct_emit_bytes(code, (const uint8_t[]){0x62, (uint8_t)(inverted | 1), 0x7c, (uint8_t)(8 | length << 5), 0x11}, 5);
  ct_emit_vector_mem(code, number, to);
}

/* kmovq of a mask register, to(base) with four bytes of displacement */
CT_INLINE void
ct_emit_kmovq_store(struct ct_code *code, struct ct_mem to, unsigned number)
{
  ct_emit_bytes(code, (const uint8_t[]){0xc4, (uint8_t)(to.base < CT_R8 ? 0xe1 : 0xc1), 0xf8, 0x91}, 4);
  ct_emit_vector_mem(code, number, to);
}

#endif
