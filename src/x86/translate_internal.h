/* SPDX-License-Identifier: MIT */
/* What the files of the translator share. */
#ifndef CT_X86_TRANSLATE_INTERNAL_H
#define CT_X86_TRANSLATE_INTERNAL_H

#include "x86/translate.h"

enum ct_source_flow {
  CT_SOURCE_NEXT,
  CT_SOURCE_STOP, /* it does not go on: ud2, hlt */
  CT_SOURCE_JUMP,
  CT_SOURCE_BRANCH, /* jcc */
  CT_SOURCE_LOOP,   /* jrcxz, loop and the like: only with one byte of distance */
  CT_SOURCE_XBEGIN,
  CT_SOURCE_CALL,
  CT_SOURCE_JUMP_INDIRECT,
  CT_SOURCE_CALL_INDIRECT,
  CT_SOURCE_RET,
  CT_SOURCE_SYSCALL,
  CT_SOURCE_STEP, /* cannot be translated */
};

/* An instruction of the program, as far as the translator has to know. */
struct ct_source_insn {
  const uint8_t *code;
  uint64_t pc, target;
  uint64_t address; /* of a memory operand that is relative to rip */
  uint16_t uses;    /* general registers, bits by enum ct_reg: read, written or part of an address */
  uint16_t ret_bytes;
  uint8_t flow; /* enum ct_source_flow */
  uint8_t cond, length;
  uint8_t modrm_at, disp_at, rex, segment;
  bool has_memory, is_rip, is_lea, is_lea_wide;
  bool cannot_borrow; /* its memory operand cannot have another base in place of rip */
  uint8_t rm;         /* without memory: the register */
};

/* False: it is no instruction, or does not end within size. */
bool ct_source_decode(uint64_t pc, const uint8_t *code, size_t size, struct ct_source_insn *insn);

#endif
