/* SPDX-License-Identifier: MIT */
/* What the files that ask Zydis share. */
#ifndef CT_X86_ZYDIS_H
#define CT_X86_ZYDIS_H

#include "x86/effects.h"

#include <Zydis/Zydis.h>

/* This thread's, for 64-bit code. */
const ZydisDecoder *ct_zydis_decoder(void);

/* One instruction with all its operands, hidden ones too; false: it is none. */
bool ct_zydis_decode(const uint8_t *code, size_t size, ZydisDecodedInstruction *in,
                     ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT]);

/*
 * The emulator's part of out, which has the rest already: op, its operands, imm, the flags of what it knows, derivable.
 * Left at "not derivable" when the emulator does not know it.
 */
void ct_effects_emulated(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operands,
                         struct ct_effects *out);

/* The number of the general register that reg is or is a part of; CT_NO_REG for others. */
static inline uint8_t
ct_zydis_general(ZydisRegister reg)
{
  ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
  return ZydisRegisterGetClass(whole) == ZYDIS_REGCLASS_GPR64 ? (uint8_t)ZydisRegisterGetId(whole) : CT_NO_REG;
}

#endif
