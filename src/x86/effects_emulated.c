/* SPDX-License-Identifier: MIT */
/*
 * What the emulator can do of an instruction: one line of the table for each, then the exceptions. Flags are the
 * manuals': what either Intel's or AMD's leaves undefined is undefined here.
 *
 * Sources: Intel SDM, volume 2, and AMD APM, volume 3, the page of each instruction, "Flags Affected".
 */
#include "x86/emulate_internal.h"
#include "x86/zydis.h"

/* Where the operands go, in the order of the instruction (destination first). */
enum form {
  FORM_NONE,
  FORM_ONE,    /* out and in */
  FORM_BOTH,   /* out and in, in2 */
  FORM_READ,   /* in, in2 */
  FORM_COPY,   /* out, in */
  FORM_THREE,  /* out, in, in2 */
  FORM_SWAP,   /* out and in, out2 and in2 */
  FORM_WIDE,   /* in */
  FORM_OUT,    /* out */
  FORM_MULX,   /* out, out2, in */
  FORM_DOUBLE, /* out and in, in2, in3 */
  FORM_STRING, /* by what it is */
  FORM_FLOW    /* in, or a relative target in imm */
};

struct rule {
  uint8_t op;
  uint8_t form;
  uint16_t written, undefined, read;
};

#define CF   CT_FLAG_CF
#define PF   CT_FLAG_PF
#define AF   CT_FLAG_AF
#define ZF   CT_FLAG_ZF
#define SF   CT_FLAG_SF
#define OF   CT_FLAG_OF
#define ALL  CT_FLAGS_SIX
#define LOW5 (ALL & 0xff)
#define M(x) ZYDIS_MNEMONIC_##x

/* clang-format off */
static const struct rule rules[ZYDIS_MNEMONIC_MAX_VALUE + 1] = {
  [M(MOV)] = {CT_DO_MOV, FORM_COPY, 0, 0, 0},
  [M(MOVZX)] = {CT_DO_MOVZX, FORM_COPY, 0, 0, 0},
  [M(MOVSX)] = {CT_DO_MOVSX, FORM_COPY, 0, 0, 0},
  [M(MOVSXD)] = {CT_DO_MOVSX, FORM_COPY, 0, 0, 0},
  [M(MOVBE)] = {CT_DO_BSWAP, FORM_COPY, 0, 0, 0},
  [M(MOVNTI)] = {CT_DO_MOV, FORM_COPY, 0, 0, 0},
  [M(BSWAP)] = {CT_DO_BSWAP, FORM_ONE, 0, 0, 0},
  [M(XCHG)] = {CT_DO_XCHG, FORM_SWAP, 0, 0, 0},
  [M(LEA)] = {CT_DO_LEA, FORM_OUT, 0, 0, 0},
  [M(PUSH)] = {CT_DO_PUSH, FORM_WIDE, 0, 0, 0},
  [M(PUSHFQ)] = {CT_DO_PUSHF, FORM_NONE, 0, 0, ALL},
  [M(POP)] = {CT_DO_POP, FORM_OUT, 0, 0, 0},
  [M(LEAVE)] = {CT_DO_LEAVE, FORM_NONE, 0, 0, 0},
  [M(CALL)] = {CT_DO_CALL, FORM_FLOW, 0, 0, 0},
  [M(RET)] = {CT_DO_RET, FORM_FLOW, 0, 0, 0},
  [M(JMP)] = {CT_DO_JMP, FORM_FLOW, 0, 0, 0},
  [M(LOOP)] = {CT_DO_LOOP, FORM_FLOW, 0, 0, 0},
  [M(LOOPE)] = {CT_DO_LOOPE, FORM_FLOW, 0, 0, ZF},
  [M(LOOPNE)] = {CT_DO_LOOPNE, FORM_FLOW, 0, 0, ZF},
  [M(JRCXZ)] = {CT_DO_JRCXZ, FORM_FLOW, 0, 0, 0},
  [M(JECXZ)] = {CT_DO_JRCXZ, FORM_FLOW, 0, 0, 0},
  [M(CBW)] = {CT_DO_EXTEND_AX, FORM_NONE, 0, 0, 0},
  [M(CWDE)] = {CT_DO_EXTEND_AX, FORM_NONE, 0, 0, 0},
  [M(CDQE)] = {CT_DO_EXTEND_AX, FORM_NONE, 0, 0, 0},
  [M(CWD)] = {CT_DO_EXTEND_ADX, FORM_NONE, 0, 0, 0},
  [M(CDQ)] = {CT_DO_EXTEND_ADX, FORM_NONE, 0, 0, 0},
  [M(CQO)] = {CT_DO_EXTEND_ADX, FORM_NONE, 0, 0, 0},
  [M(CLC)] = {CT_DO_CLC, FORM_NONE, CF, 0, 0},
  [M(STC)] = {CT_DO_STC, FORM_NONE, CF, 0, 0},
  [M(CMC)] = {CT_DO_CMC, FORM_NONE, CF, 0, CF},
  [M(CLD)] = {CT_DO_CLD, FORM_NONE, 0, 0, 0},
  [M(STD)] = {CT_DO_STD, FORM_NONE, 0, 0, 0},
  [M(LAHF)] = {CT_DO_LAHF, FORM_NONE, 0, 0, LOW5},
  [M(SAHF)] = {CT_DO_SAHF, FORM_NONE, LOW5, 0, 0},
  [M(MOVSB)] = {CT_DO_MOVS, FORM_STRING, 0, 0, 0},
  [M(MOVSW)] = {CT_DO_MOVS, FORM_STRING, 0, 0, 0},
  [M(MOVSD)] = {CT_DO_MOVS, FORM_STRING, 0, 0, 0},
  [M(MOVSQ)] = {CT_DO_MOVS, FORM_STRING, 0, 0, 0},
  [M(STOSB)] = {CT_DO_STOS, FORM_STRING, 0, 0, 0},
  [M(STOSW)] = {CT_DO_STOS, FORM_STRING, 0, 0, 0},
  [M(STOSD)] = {CT_DO_STOS, FORM_STRING, 0, 0, 0},
  [M(STOSQ)] = {CT_DO_STOS, FORM_STRING, 0, 0, 0},
  [M(LODSB)] = {CT_DO_LODS, FORM_STRING, 0, 0, 0},
  [M(LODSW)] = {CT_DO_LODS, FORM_STRING, 0, 0, 0},
  [M(LODSD)] = {CT_DO_LODS, FORM_STRING, 0, 0, 0},
  [M(LODSQ)] = {CT_DO_LODS, FORM_STRING, 0, 0, 0},
  [M(SCASB)] = {CT_DO_SCAS, FORM_STRING, ALL, 0, 0},
  [M(SCASW)] = {CT_DO_SCAS, FORM_STRING, ALL, 0, 0},
  [M(SCASD)] = {CT_DO_SCAS, FORM_STRING, ALL, 0, 0},
  [M(SCASQ)] = {CT_DO_SCAS, FORM_STRING, ALL, 0, 0},
  [M(RDFSBASE)] = {CT_DO_RDBASE, FORM_OUT, 0, 0, 0},
  [M(RDGSBASE)] = {CT_DO_RDBASE, FORM_OUT, 0, 0, 0},
  [M(WRFSBASE)] = {CT_DO_WRBASE, FORM_WIDE, 0, 0, 0},
  [M(WRGSBASE)] = {CT_DO_WRBASE, FORM_WIDE, 0, 0, 0},

  [M(ADD)] = {CT_DO_ADD, FORM_BOTH, ALL, 0, 0},
  [M(ADC)] = {CT_DO_ADC, FORM_BOTH, ALL, 0, CF},
  [M(SUB)] = {CT_DO_SUB, FORM_BOTH, ALL, 0, 0},
  [M(SBB)] = {CT_DO_SBB, FORM_BOTH, ALL, 0, CF},
  [M(CMP)] = {CT_DO_CMP, FORM_READ, ALL, 0, 0},
  [M(AND)] = {CT_DO_AND, FORM_BOTH, ALL, AF, 0},
  [M(OR)] = {CT_DO_OR, FORM_BOTH, ALL, AF, 0},
  [M(XOR)] = {CT_DO_XOR, FORM_BOTH, ALL, AF, 0},
  [M(TEST)] = {CT_DO_TEST, FORM_READ, ALL, AF, 0},
  [M(ANDN)] = {CT_DO_ANDN, FORM_THREE, ALL, AF | PF, 0},
  [M(INC)] = {CT_DO_INC, FORM_ONE, ALL & ~CF, 0, 0},
  [M(DEC)] = {CT_DO_DEC, FORM_ONE, ALL & ~CF, 0, 0},
  [M(NEG)] = {CT_DO_NEG, FORM_ONE, ALL, 0, 0},
  [M(NOT)] = {CT_DO_NOT_BITS, FORM_ONE, 0, 0, 0},
  [M(ADCX)] = {CT_DO_ADCX, FORM_BOTH, CF, 0, CF},
  [M(ADOX)] = {CT_DO_ADOX, FORM_BOTH, OF, 0, OF},
  [M(XADD)] = {CT_DO_XADD, FORM_SWAP, ALL, 0, 0},
  [M(CMPXCHG)] = {CT_DO_CMPXCHG, FORM_BOTH, ALL, 0, 0},
  [M(MUL)] = {CT_DO_MUL, FORM_WIDE, ALL, SF | ZF | AF | PF, 0},
  [M(IMUL)] = {CT_DO_IMUL, FORM_THREE, ALL, SF | ZF | AF | PF, 0},
  [M(MULX)] = {CT_DO_MULX, FORM_MULX, 0, 0, 0},
  [M(DIV)] = {CT_DO_DIV, FORM_WIDE, ALL, ALL, 0},
  [M(IDIV)] = {CT_DO_IDIV, FORM_WIDE, ALL, ALL, 0},

  [M(SHL)] = {CT_DO_SHL, FORM_BOTH, ALL, 0, 0},
  [M(SHR)] = {CT_DO_SHR, FORM_BOTH, ALL, 0, 0},
  [M(SAR)] = {CT_DO_SAR, FORM_BOTH, ALL, 0, 0},
  [M(ROL)] = {CT_DO_ROL, FORM_BOTH, CF | OF, 0, 0},
  [M(ROR)] = {CT_DO_ROR, FORM_BOTH, CF | OF, 0, 0},
  [M(RCL)] = {CT_DO_RCL, FORM_BOTH, CF | OF, 0, CF},
  [M(RCR)] = {CT_DO_RCR, FORM_BOTH, CF | OF, 0, CF},
  [M(SHLD)] = {CT_DO_SHLD, FORM_DOUBLE, ALL, 0, 0},
  [M(SHRD)] = {CT_DO_SHRD, FORM_DOUBLE, ALL, 0, 0},
  [M(SHLX)] = {CT_DO_SHLX, FORM_THREE, 0, 0, 0},
  [M(SHRX)] = {CT_DO_SHRX, FORM_THREE, 0, 0, 0},
  [M(SARX)] = {CT_DO_SARX, FORM_THREE, 0, 0, 0},
  [M(RORX)] = {CT_DO_RORX, FORM_THREE, 0, 0, 0},
  [M(BT)] = {CT_DO_BT, FORM_READ, ALL, ALL & ~CF, 0},
  [M(BTS)] = {CT_DO_BTS, FORM_BOTH, ALL, ALL & ~CF, 0},
  [M(BTR)] = {CT_DO_BTR, FORM_BOTH, ALL, ALL & ~CF, 0},
  [M(BTC)] = {CT_DO_BTC, FORM_BOTH, ALL, ALL & ~CF, 0},
  [M(BSF)] = {CT_DO_BSF, FORM_COPY, ALL, ALL & ~ZF, 0},
  [M(BSR)] = {CT_DO_BSR, FORM_COPY, ALL, ALL & ~ZF, 0},
  [M(TZCNT)] = {CT_DO_TZCNT, FORM_COPY, ALL, OF | SF | PF | AF, 0},
  [M(LZCNT)] = {CT_DO_LZCNT, FORM_COPY, ALL, OF | SF | PF | AF, 0},
  [M(POPCNT)] = {CT_DO_POPCNT, FORM_COPY, ALL, 0, 0},
  [M(BEXTR)] = {CT_DO_BEXTR, FORM_THREE, ALL, AF | SF | PF, 0},
  [M(BLSI)] = {CT_DO_BLSI, FORM_COPY, ALL, AF | PF, 0},
  [M(BLSR)] = {CT_DO_BLSR, FORM_COPY, ALL, AF | PF, 0},
  [M(BLSMSK)] = {CT_DO_BLSMSK, FORM_COPY, ALL, AF | PF, 0},
  [M(BZHI)] = {CT_DO_BZHI, FORM_THREE, ALL, AF | PF, 0},
  [M(PDEP)] = {CT_DO_PDEP, FORM_THREE, 0, 0, 0},
  [M(PEXT)] = {CT_DO_PEXT, FORM_THREE, 0, 0, 0},
};
/* clang-format on */

/* What a condition asks of, by its upper three bits. */
static const uint16_t condition_flags[8] = {OF, CF, ZF, CF | ZF, SF, PF, SF | OF, ZF | SF | OF};

/* jcc, setcc and cmov: their 16 mnemonics each have the condition in the opcode. */
static bool
conditional_rule(const ZydisDecodedInstruction *in, struct ct_effects *out, struct rule *rule)
{
  switch (in->meta.category) {
  case ZYDIS_CATEGORY_COND_BR:
    *rule = (struct rule){CT_DO_JCC, FORM_FLOW, 0, 0, 0};
    if (out->flow != CT_INSN_FLOW_BRANCH) {
      return false;
    }
    break;
  case ZYDIS_CATEGORY_SETCC:
    *rule = (struct rule){CT_DO_SETCC, FORM_OUT, 0, 0, 0};
    break;
  case ZYDIS_CATEGORY_CMOV:
    *rule = (struct rule){CT_DO_CMOV, FORM_COPY, 0, 0, 0};
    break;
  default:
    return false;
  }
  if (in->encoding != ZYDIS_INSTRUCTION_ENCODING_LEGACY) {
    return false; /* of mask registers */
  }
  out->cond = in->opcode & 15;
  rule->read = condition_flags[out->cond >> 1];
  return true;
}

/* ---- operands ---- */

/* False when the emulator has no such operand. */
static bool
take(const ZydisDecodedOperand *operand, uint8_t *out, struct ct_effects *effects)
{
  uint8_t reg;
  switch (operand->type) {
  case ZYDIS_OPERAND_TYPE_MEMORY:
    *out = CT_OPERAND_MEMORY;
    return true;
  case ZYDIS_OPERAND_TYPE_IMMEDIATE:
    *out = CT_OPERAND_IMM;
    effects->imm = operand->imm.value.s;
    return true;
  case ZYDIS_OPERAND_TYPE_REGISTER:
    reg = ct_zydis_general(operand->reg.value);
    if (operand->reg.value >= ZYDIS_REGISTER_AH && operand->reg.value <= ZYDIS_REGISTER_BH) {
      *out = (uint8_t)(CT_OPERAND_HIGH + (operand->reg.value - ZYDIS_REGISTER_AH));
    } else {
      *out = reg;
    }
    return reg != CT_NO_REG;
  default:
    return false;
  }
}

static bool
take_flow(const ZydisDecodedOperand *operands, struct ct_effects *out)
{
  switch (out->flow) {
  case CT_INSN_FLOW_JUMP_INDIRECT:
    out->op = CT_DO_JMP_INDIRECT;
    return take(&operands[0], &out->in, out);
  case CT_INSN_FLOW_CALL_INDIRECT:
    out->op = CT_DO_CALL_INDIRECT;
    return take(&operands[0], &out->in, out);
  case CT_INSN_FLOW_RET: /* the number of bytes, where there is one */
    return operands[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE || take(&operands[0], &out->in, out);
  case CT_INSN_FLOW_JUMP:
  case CT_INSN_FLOW_BRANCH:
  case CT_INSN_FLOW_LOOP:
  case CT_INSN_FLOW_CALL:
    return take(&operands[0], &out->in, out);
  default:
    return false;
  }
}

static bool
take_operands(unsigned form, const ZydisDecodedOperand *operands, struct ct_effects *out)
{
  bool good = true;
  switch (form) {
  case FORM_ONE:
    good = take(&operands[0], &out->in, out);
    out->out = out->in;
    break;
  case FORM_DOUBLE:
    good = take(&operands[2], &out->in3, out); /* goes on */
    __attribute__((fallthrough));
  case FORM_BOTH:
    good = good && take(&operands[0], &out->in, out) && take(&operands[1], &out->in2, out);
    out->out = out->in;
    break;
  case FORM_SWAP:
    good = take(&operands[0], &out->in, out) && take(&operands[1], &out->in2, out);
    out->out = out->in;
    out->out2 = out->in2;
    break;
  case FORM_READ:
    good = take(&operands[0], &out->in, out) && take(&operands[1], &out->in2, out);
    break;
  case FORM_COPY:
    good = take(&operands[0], &out->out, out) && take(&operands[1], &out->in, out);
    break;
  case FORM_THREE:
    good =
        take(&operands[0], &out->out, out) && take(&operands[1], &out->in, out) && take(&operands[2], &out->in2, out);
    break;
  case FORM_MULX:
    good =
        take(&operands[0], &out->out, out) && take(&operands[1], &out->out2, out) && take(&operands[2], &out->in, out);
    break;
  case FORM_WIDE:
    good = take(&operands[0], &out->in, out);
    break;
  case FORM_OUT:
    good = take(&operands[0], &out->out, out);
    break;
  case FORM_FLOW:
    good = take_flow(operands, out);
    break;
  default:
    break;
  }
  return good;
}

/* ---- exceptions ---- */

/* False when it is to be recorded. */
static bool
take_string(const ZydisDecodedInstruction *in, struct ct_effects *out)
{
  bool repeated = (out->traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) != 0;
  if (in->meta.category != ZYDIS_CATEGORY_STRINGOP || in->address_width != 64) {
    return false;
  }
  out->size = out->access_count != 0 ? (uint8_t)out->access[0].size : 0;
  if (out->op == CT_DO_SCAS) { /* al, ax ... against memory; its flags are cmp's */
    out->in = CT_RAX;
    out->in2 = CT_OPERAND_MEMORY;
  }
  if (repeated) {
    out->op = out->op == CT_DO_MOVS ? CT_DO_REP_MOVS : out->op == CT_DO_STOS ? CT_DO_REP_STOS : CT_DO_NOT;
  }
  return out->op != CT_DO_NOT;
}

/* Those of shifts and rotates depend on the count. */
static void
take_shift_flags(struct ct_effects *out)
{
  uint8_t count = out->op == CT_DO_SHLD || out->op == CT_DO_SHRD ? out->in3 : out->in2;
  if (count == CT_OPERAND_IMM) {
    unsigned by = (unsigned)out->imm & (out->size == 8 ? 63 : 31);
    out->flags_written = by != 0 ? out->flags_written : 0;
    out->flags_undefined = by != 0 ? (uint16_t)shift_undefined(out->op, out->size, by) : 0;
    out->flags_kept = 0;
  } else {
    out->flags_undefined = (uint16_t)shift_undefined(out->op, out->size, 31);
    out->flags_kept = out->flags_written;
  }
}

/* Where processors differ, or the emulator does not do it. */
static bool
is_left_out(const ZydisDecodedInstruction *in, const struct ct_effects *out)
{
  switch (out->op) {
  case CT_DO_SHLD:
  case CT_DO_SHRD: /* 16 bits: undefined for counts above */
    return out->size == 2;
  case CT_DO_BSF:
  case CT_DO_BSR: /* 32 bits of 0: the upper half of the destination differs */
    return out->size == 4;
  case CT_DO_BSWAP:
    return out->size == 2 && in->mnemonic == ZYDIS_MNEMONIC_BSWAP;
  case CT_DO_CMPXCHG: /* 32 bits: the upper half of the destination that is not exchanged */
    return out->out < 16 && out->size == 4;
  case CT_DO_MOVSX:
    return in->mnemonic == ZYDIS_MNEMONIC_MOVSXD && out->size == 2;
  case CT_DO_LEAVE:
    return in->operand_width != 64;
  case CT_DO_BEXTR:
    return in->encoding != ZYDIS_INSTRUCTION_ENCODING_VEX;
  default:
    return false;
  }
}

static void
take_sizes(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operands, struct ct_effects *out)
{
  switch (out->op) {
  case CT_DO_LOOP:
  case CT_DO_LOOPE:
  case CT_DO_LOOPNE:
  case CT_DO_JRCXZ:
    out->size = in->address_width / 8;
    break;
  case CT_DO_PUSH:
  case CT_DO_POP:
  case CT_DO_EXTEND_AX:
  case CT_DO_EXTEND_ADX:
    out->size = in->operand_width / 8;
    break;
  case CT_DO_PUSHF:
  case CT_DO_LEAVE:
    out->size = 8;
    break;
  case CT_DO_LAHF:
    out->size = 1;
    break;
  default:
    out->size = in->operand_count != 0 ? (uint8_t)(operands[0].size / 8) : 0;
    out->source_size = in->operand_count > 1 ? (uint8_t)(operands[1].size / 8) : 0;
    break;
  }
}

/* ---- what is read and written of memory ---- */

/* The register that holds, after the instruction, what it has loaded. */
static uint8_t
loaded_reg_of(const struct ct_effects *out)
{
  uint8_t reg = CT_NO_REG;
  switch (out->op) {
  case CT_DO_MOV:
  case CT_DO_MOVZX:
  case CT_DO_MOVSX:
  case CT_DO_POP:
    reg = out->out;
    break;
  case CT_DO_XCHG:
  case CT_DO_XADD:
    reg = out->out2;
    break;
  case CT_DO_CMPXCHG:
  case CT_DO_LODS:
    return CT_RAX;
  case CT_DO_LEAVE:
    return CT_RBP;
  default:
    break;
  }
  return reg < 16 ? reg : CT_NO_REG;
}

static bool
uses_loaded(const struct ct_effects *out)
{
  switch (out->op) {
  case CT_DO_POP:
  case CT_DO_LEAVE:
  case CT_DO_RET:
  case CT_DO_MOVS:
  case CT_DO_LODS:
    return true;
  default:
    return out->in == CT_OPERAND_MEMORY || out->in2 == CT_OPERAND_MEMORY;
  }
}

static void
take_memory(struct ct_effects *out)
{
  for (unsigned i = out->access_count; i-- > 0;) {
    if ((out->access[i].how & CT_ACCESS_WRITE) != 0) {
      out->store = (uint8_t)i;
    }
  }
  if (out->op == CT_DO_XCHG && out->in == CT_OPERAND_MEMORY) {
    out->traits |= CT_EFFECT_LOCKED;
  }
  if (out->op >= CT_DO_BT && out->op <= CT_DO_BTC && out->in == CT_OPERAND_MEMORY && out->in2 < 16) {
    out->access[0].bits_reg = out->in2;
  }
  out->uses_loaded = uses_loaded(out);
  out->loaded_reg = out->uses_loaded ? loaded_reg_of(out) : CT_NO_REG;
}

/* Nothing that the emulator keeps changes. */
static bool
changes_nothing(const struct ct_effects *out)
{
  return out->flow == CT_INSN_FLOW_NEXT && out->writes == 0 && out->flags_written == 0 &&
         (out->traits & (CT_EFFECT_WRITES_DF | CT_EFFECT_BASES)) == 0;
}

static bool
take_all(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operands, const struct rule *rule,
         struct ct_effects *out)
{
  out->op = rule->op;
  take_sizes(in, operands, out);
  if (out->op == CT_DO_IMUL && in->operand_count_visible < 3) {
    bool one = in->operand_count_visible == 1;
    out->op = one ? CT_DO_IMUL_WIDE : CT_DO_IMUL;
    if (!take_operands(one ? FORM_WIDE : FORM_BOTH, operands, out)) {
      return false;
    }
  } else if (!take_operands(rule->form, operands, out)) {
    return false;
  }
  if (rule->form == FORM_STRING && !take_string(in, out)) {
    return false;
  }
  if ((rule->form != FORM_FLOW && out->flow != CT_INSN_FLOW_NEXT) || is_left_out(in, out)) {
    return false;
  }
  if (out->op == CT_DO_RDBASE || out->op == CT_DO_WRBASE) {
    bool fs = in->mnemonic == ZYDIS_MNEMONIC_RDFSBASE || in->mnemonic == ZYDIS_MNEMONIC_WRFSBASE;
    out->imm = fs ? CT_SEGMENT_FS : CT_SEGMENT_GS;
  }
  out->flags_read = rule->read;
  out->flags_written = rule->written;
  out->flags_undefined = rule->undefined;
  out->flags_kept = 0;
  if ((out->op >= CT_DO_SHL && out->op <= CT_DO_SHRD)) {
    take_shift_flags(out);
  }
  take_memory(out);
  return true;
}

void
ct_effects_emulated(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operands, struct ct_effects *out)
{
  struct rule rule = rules[in->mnemonic];
  struct ct_effects tried = *out;
  if ((rule.op != CT_DO_NOT || conditional_rule(in, &tried, &rule)) && take_all(in, operands, &rule, &tried)) {
    bool one_read = (tried.traits & CT_EFFECT_LOCKED) == 0 || !tried.uses_loaded || tried.loaded_reg != CT_NO_REG;
    *out = tried;
    out->derivable = one_read;
  } else if (changes_nothing(out)) {
    take_memory(out);
    out->op = CT_DO_NOTHING;
    out->derivable = true;
    out->stores_unknown = out->store != CT_OPERAND_NONE && out->stored_vector == CT_NO_VECTOR;
  }
}

bool
ct_effects_switch_stack(const struct ct_effects *effects)
{
  return (effects->writes & ~effects->reads & 1u << CT_RSP) != 0 && effects->op != CT_DO_LEAVE;
}
