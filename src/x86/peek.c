/* SPDX-License-Identifier: MIT */
#include "x86/peek.h"

#include "x86/zydis.h"

static enum ct_flow
flow_of(const ZydisDecodedInstruction *in)
{
  switch (in->meta.category) {
  case ZYDIS_CATEGORY_RET:
    return CT_FLOW_END;
  case ZYDIS_CATEGORY_UNCOND_BR:
    return in->raw.imm[0].is_relative ? CT_FLOW_END : CT_FLOW_INDIRECT;
  case ZYDIS_CATEGORY_COND_BR:
    return CT_FLOW_BRANCH;
  case ZYDIS_CATEGORY_CALL:
  case ZYDIS_CATEGORY_SYSCALL:
  case ZYDIS_CATEGORY_INTERRUPT:
    return CT_FLOW_CALL;
  default:
    break;
  }
  switch (in->mnemonic) {
  case ZYDIS_MNEMONIC_UD0:
  case ZYDIS_MNEMONIC_UD1:
  case ZYDIS_MNEMONIC_UD2:
  case ZYDIS_MNEMONIC_HLT:
    return CT_FLOW_END;
  case ZYDIS_MNEMONIC_XBEGIN: /* its second target is an instruction's, too, but control may come back later */
    return CT_FLOW_CALL;
  default:
    return CT_FLOW_NEXT;
  }
}

bool
ct_peek(const uint8_t *code, size_t size, struct ct_peek *peek)
{
  ZydisDecodedInstruction in;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(ct_zydis_decoder(), NULL, code, size, &in))) {
    return false;
  }
  bool xchg_nop = in.mnemonic == ZYDIS_MNEMONIC_XCHG && in.opcode == 0x90 && in.raw.rex.B == 0;
  bool int3 = in.mnemonic == ZYDIS_MNEMONIC_INT3;
  peek->length = in.length;
  peek->is_padding = in.mnemonic == ZYDIS_MNEMONIC_NOP || xchg_nop || int3;
  peek->flow = (uint8_t)(int3 ? CT_FLOW_END : flow_of(&in));
  return true;
}
