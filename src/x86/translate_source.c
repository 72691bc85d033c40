/* SPDX-License-Identifier: MIT */
/* What the translator has to know of an instruction, by Zydis. */
#include "x86/translate_internal.h"
#include "x86/zydis.h"

/* The bit of the general register that it is or is a part of. */
static uint16_t
register_bit(ZydisRegister reg)
{
  uint8_t number = ct_zydis_general(reg);
  return number == CT_NO_REG ? 0 : (uint16_t)(1u << number);
}

static void
take_operands(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operands, struct ct_source_insn *insn)
{
  for (int i = 0; i < in->operand_count; i++) {
    const ZydisDecodedOperand *operand = &operands[i];
    if (operand->type == ZYDIS_OPERAND_TYPE_REGISTER) {
      insn->uses |= register_bit(operand->reg.value);
    } else if (operand->type == ZYDIS_OPERAND_TYPE_MEMORY) {
      insn->uses |= register_bit(operand->mem.base) | register_bit(operand->mem.index);
      insn->has_memory |= operand->visibility != ZYDIS_OPERAND_VISIBILITY_HIDDEN;
      insn->is_rip |= operand->mem.base == ZYDIS_REGISTER_RIP;
      if (operand->mem.base == ZYDIS_REGISTER_EIP) {
        insn->flow = CT_SOURCE_STEP;
      }
    }
  }
  if (!insn->has_memory && in->operand_count != 0 && operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER) {
    uint16_t bit = register_bit(operands[0].reg.value);
    insn->rm = bit != 0 ? (uint8_t)__builtin_ctz(bit) : 0;
  }
}

static void
take_branch(const ZydisDecodedInstruction *in, struct ct_source_insn *insn, enum ct_source_flow direct,
            enum ct_source_flow indirect)
{
  bool is_far = in->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
  /* What the two makers do with an operand size of 16 bits is not the same; REX.W overrides it (calls of
   * __tls_get_addr). */
  if (is_far || ((in->attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE) != 0 && !in->raw.rex.W)) {
    insn->flow = CT_SOURCE_STEP;
  } else if (in->raw.imm[0].is_relative) {
    insn->flow = (uint8_t)direct;
    insn->target = insn->pc + in->length + (uint64_t)in->raw.imm[0].value.s;
  } else {
    insn->flow = (uint8_t)indirect;
    if (in->address_width != 64 || insn->flow == CT_SOURCE_STEP) {
      insn->flow = CT_SOURCE_STEP;
    }
  }
}

static bool
is_loop(ZydisMnemonic mnemonic)
{
  switch (mnemonic) {
  case ZYDIS_MNEMONIC_JRCXZ:
  case ZYDIS_MNEMONIC_JECXZ:
  case ZYDIS_MNEMONIC_LOOP:
  case ZYDIS_MNEMONIC_LOOPE:
  case ZYDIS_MNEMONIC_LOOPNE:
    return true;
  default:
    return false;
  }
}

static void
take_flow(const ZydisDecodedInstruction *in, struct ct_source_insn *insn)
{
  switch (in->meta.category) {
  case ZYDIS_CATEGORY_COND_BR:
    take_branch(in, insn, is_loop(in->mnemonic) ? CT_SOURCE_LOOP : CT_SOURCE_BRANCH, CT_SOURCE_STEP);
    insn->cond = in->opcode & 15;
    break;
  case ZYDIS_CATEGORY_UNCOND_BR:
    take_branch(in, insn, CT_SOURCE_JUMP, CT_SOURCE_JUMP_INDIRECT);
    break;
  case ZYDIS_CATEGORY_CALL:
    take_branch(in, insn, CT_SOURCE_CALL, CT_SOURCE_CALL_INDIRECT);
    break;
  case ZYDIS_CATEGORY_RET:
    insn->flow = in->mnemonic == ZYDIS_MNEMONIC_RET && in->meta.branch_type != ZYDIS_BRANCH_TYPE_FAR &&
                         (in->attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE) == 0
                     ? CT_SOURCE_RET
                     : CT_SOURCE_STEP;
    insn->ret_bytes = in->raw.imm[0].size != 0 ? (uint16_t)in->raw.imm[0].value.u : 0;
    break;
  case ZYDIS_CATEGORY_INTERRUPT:
    insn->flow =
        in->mnemonic == ZYDIS_MNEMONIC_INT3 || in->mnemonic == ZYDIS_MNEMONIC_INT1 ? CT_SOURCE_NEXT : CT_SOURCE_STEP;
    break;
  case ZYDIS_CATEGORY_SYSCALL:
  case ZYDIS_CATEGORY_SYSRET:
    insn->flow = in->mnemonic == ZYDIS_MNEMONIC_SYSCALL ? CT_SOURCE_SYSCALL : CT_SOURCE_STEP;
    break;
  default:
    break;
  }
  switch (in->mnemonic) {
  case ZYDIS_MNEMONIC_XBEGIN:
    insn->flow = CT_SOURCE_XBEGIN;
    insn->target = insn->pc + in->length + (uint64_t)in->raw.imm[0].value.s;
    break;
  case ZYDIS_MNEMONIC_UD0:
  case ZYDIS_MNEMONIC_UD1:
  case ZYDIS_MNEMONIC_UD2:
  case ZYDIS_MNEMONIC_HLT:
    insn->flow = CT_SOURCE_STOP;
    break;
  default:
    break;
  }
}

bool
ct_source_decode(uint64_t pc, const uint8_t *code, size_t size, struct ct_source_insn *insn)
{
  ZydisDecodedInstruction in;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  if (!ct_zydis_decode(code, size, &in, operands)) {
    return false;
  }
  *insn = (struct ct_source_insn){.code = code, .pc = pc, .length = in.length};
  take_flow(&in, insn);
  take_operands(&in, operands, insn);
  insn->modrm_at = in.raw.modrm.offset;
  insn->disp_at = in.raw.disp.offset;
  insn->rex = (uint8_t)(in.raw.rex.W << 3 | in.raw.rex.R << 2 | in.raw.rex.X << 1 | in.raw.rex.B);
  insn->segment = (in.attributes & ZYDIS_ATTRIB_HAS_SEGMENT_FS) != 0   ? 0x64
                  : (in.attributes & ZYDIS_ATTRIB_HAS_SEGMENT_GS) != 0 ? 0x65
                                                                       : 0;
  insn->imm_bytes = (uint8_t)((in.raw.imm[0].size + in.raw.imm[1].size) / 8);
  insn->is_plain = in.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY && insn->has_memory &&
                   (in.attributes & ZYDIS_ATTRIB_HAS_MODRM) != 0 && in.raw.modrm.mod != 3;
  insn->is_popf = in.mnemonic == ZYDIS_MNEMONIC_POPFQ || in.mnemonic == ZYDIS_MNEMONIC_POPF;
  insn->is_lea = in.mnemonic == ZYDIS_MNEMONIC_LEA;
  insn->is_lea_wide = in.operand_width == 64;
  if (insn->is_rip) {
    insn->address = pc + in.length + (uint64_t)in.raw.disp.value;
    /* With a borrowed register as base this bit would mean something; VEX and EVEX have it inverted. */
    insn->cannot_borrow = in.raw.rex.B || (in.raw.vex.offset != 0 && in.raw.vex.size == 3 && !in.raw.vex.B) ||
                          (in.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX && !in.raw.evex.B) ||
                          in.encoding == ZYDIS_INSTRUCTION_ENCODING_XOP;
  }
  return true;
}
