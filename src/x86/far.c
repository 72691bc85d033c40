/* SPDX-License-Identifier: MIT */
/* See far.h. */
#include "x86/far.h"

#include "x86/zydis.h"

#define FLAG_TF  0x100ull
#define FLAG_NT  0x4000ull
#define FLAG_RF  0x10000ull
#define FLAG_AC  0x40000ull
#define FLAG_ID  0x200000ull
#define SETTABLE (CT_FLAGS_SIX | CT_FLAG_DF | FLAG_AC)
#define USER_END (1ull << 47)

enum { SYSTEM_CALL = 0x80, QUAD = 64 };

struct ct_far
ct_far_of(const uint8_t *code, size_t size)
{
  ZydisDecodedInstruction in;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  struct ct_far far = {.kind = CT_FAR_NOT};
  if (!ct_zydis_decode(code, size, &in, operands)) {
    return far;
  }
  bool is_far = in.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
  if (in.mnemonic == ZYDIS_MNEMONIC_INT && in.raw.imm[0].value.u == SYSTEM_CALL) {
    far.kind = CT_FAR_CALL;
  } else if (in.mnemonic == ZYDIS_MNEMONIC_IRETQ) {
    far.kind = CT_FAR_INTERRUPT_RETURN;
  } else if (in.mnemonic == ZYDIS_MNEMONIC_RET && is_far && in.operand_width == QUAD) {
    far.kind = CT_FAR_RETURN;
    far.drops = in.raw.imm[0].size != 0 ? (uint16_t)in.raw.imm[0].value.u : 0;
  }
  return far;
}

bool
ct_far_return(const struct ct_far *far, const uint64_t words[CT_FAR_WORDS], struct ct_far_state *state)
{
  uint64_t flags = state->flags;
  if ((uint16_t)words[1] != state->cs || words[0] >= USER_END || (flags & (FLAG_TF | FLAG_NT)) != 0) {
    return false;
  }
  if (far->kind == CT_FAR_RETURN) {
    state->rip = words[0];
    state->rsp += CT_FAR_RETURN_WORDS * sizeof(uint64_t) + far->drops;
    return true;
  }
  if (far->kind != CT_FAR_INTERRUPT_RETURN || (uint16_t)words[4] != state->ss || words[3] >= USER_END ||
      ((words[2] ^ flags) & (FLAG_TF | FLAG_NT | FLAG_ID)) != 0 || (words[2] & FLAG_RF) != 0) {
    return false;
  }
  state->rip = words[0];
  state->rsp = words[3];
  state->flags = (flags & ~(SETTABLE | FLAG_RF)) | (words[2] & SETTABLE);
  return true;
}
