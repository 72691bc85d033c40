/* SPDX-License-Identifier: MIT */
/*
 * What instructions do, by Zydis; see effects.h. Zydis lists operands, hidden ones too, with what is read and written
 * of each; where its list is too short or too coarse for us, by_mnemonic() and the like add to it.
 */
#include "x86/emulate_internal.h"
#include "x86/zydis.h"

enum {
  READ = ZYDIS_OPERAND_ACTION_READ | ZYDIS_OPERAND_ACTION_CONDREAD,
  WRITE = ZYDIS_OPERAND_ACTION_WRITE | ZYDIS_OPERAND_ACTION_CONDWRITE
};

/* ---- registers ---- */

static void
note_general(const ZydisDecodedOperand *operand, uint8_t reg, struct ct_effects *out)
{
  uint16_t bit = (uint16_t)(1u << reg);
  bool part = operand->size < 32 || (operand->actions & ZYDIS_OPERAND_ACTION_CONDWRITE) != 0;
  if ((operand->actions & WRITE) != 0) {
    out->writes |= bit;
  }
  if ((operand->actions & READ) != 0 || ((operand->actions & WRITE) != 0 && part)) {
    out->reads |= bit;
  }
}

static void
note_vector(ZydisOperandActions actions, ZydisRegister reg, unsigned bytes, struct ct_effects *out)
{
  uint32_t bit = 1u << (ZydisRegisterGetId(reg) & 31);
  out->vectors_read |= (actions & READ) != 0 ? bit : 0;
  if ((actions & WRITE) != 0) {
    out->vectors_written |= bit;
    out->vector_size = out->vector_size < bytes ? (uint8_t)bytes : out->vector_size;
  }
}

static void
note_register(const ZydisDecodedOperand *operand, struct ct_effects *out)
{
  ZydisRegister reg = operand->reg.value;
  uint8_t general = ct_zydis_general(reg);
  if (general != CT_NO_REG) {
    note_general(operand, general, out);
    return;
  }
  switch (ZydisRegisterGetClass(reg)) {
  case ZYDIS_REGCLASS_XMM:
    note_vector(operand->actions, reg, 16, out);
    break;
  case ZYDIS_REGCLASS_YMM:
    note_vector(operand->actions, reg, 32, out);
    break;
  case ZYDIS_REGCLASS_ZMM:
    note_vector(operand->actions, reg, 64, out);
    break;
  case ZYDIS_REGCLASS_MASK: {
    uint8_t bit = (uint8_t)(1u << (ZydisRegisterGetId(reg) & 7));
    out->masks_read |= (operand->actions & READ) != 0 ? bit : 0;
    out->masks_written |= (operand->actions & WRITE) != 0 ? bit : 0;
    break;
  }
  case ZYDIS_REGCLASS_X87:
  case ZYDIS_REGCLASS_MMX:
    out->traits |= CT_EFFECT_X87;
    break;
  case ZYDIS_REGCLASS_SEGMENT:
    out->traits |=
        (operand->actions & WRITE) != 0 && (reg == ZYDIS_REGISTER_FS || reg == ZYDIS_REGISTER_GS) ? CT_EFFECT_BASES : 0;
    break;
  default:
    if (reg == ZYDIS_REGISTER_MXCSR) {
      out->traits |= CT_EFFECT_MXCSR;
    } else if (reg == ZYDIS_REGISTER_X87CONTROL || reg == ZYDIS_REGISTER_X87STATUS || reg == ZYDIS_REGISTER_X87TAG) {
      out->traits |= CT_EFFECT_X87;
    }
    break;
  }
}

/* ---- memory ---- */

/* Do some of the bytes depend on masks or conditions? */
static bool
is_partial(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operand)
{
  switch (in->mnemonic) {
  case ZYDIS_MNEMONIC_CMPXCHG:
  case ZYDIS_MNEMONIC_CMPXCHG8B:
  case ZYDIS_MNEMONIC_CMPXCHG16B:
    return false; /* writes the old value where it does not exchange */
  case ZYDIS_MNEMONIC_MASKMOVQ:
  case ZYDIS_MNEMONIC_MASKMOVDQU:
  case ZYDIS_MNEMONIC_VMASKMOVDQU:
  case ZYDIS_MNEMONIC_VMASKMOVPS:
  case ZYDIS_MNEMONIC_VMASKMOVPD:
  case ZYDIS_MNEMONIC_VPMASKMOVD:
  case ZYDIS_MNEMONIC_VPMASKMOVQ:
    return true;
  default:
    return (operand->actions & (ZYDIS_OPERAND_ACTION_CONDREAD | ZYDIS_OPERAND_ACTION_CONDWRITE)) != 0 ||
           (in->avx.mask.reg != ZYDIS_REGISTER_NONE && in->avx.mask.reg != ZYDIS_REGISTER_K0);
  }
}

static void
note_address(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operand, struct ct_effects *out,
             struct ct_access *access)
{
  *access =
      (struct ct_access){.disp = operand->mem.disp.value, .base = CT_NO_REG, .index = CT_NO_REG, .bits_reg = CT_NO_REG};
  if (operand->mem.base == ZYDIS_REGISTER_RIP || operand->mem.base == ZYDIS_REGISTER_EIP) {
    access->how |= CT_ACCESS_RIP;
  } else if (operand->mem.base != ZYDIS_REGISTER_NONE) {
    access->base = ct_zydis_general(operand->mem.base);
    out->reads |= (uint16_t)(1u << access->base);
  }
  if (operand->mem.type == ZYDIS_MEMOP_TYPE_VSIB) {
    access->how |= CT_ACCESS_VECTOR;
    note_vector(ZYDIS_OPERAND_ACTION_READ, operand->mem.index, 0, out);
  } else if (operand->mem.index != ZYDIS_REGISTER_NONE) {
    access->index = ct_zydis_general(operand->mem.index);
    access->scale = (uint8_t)__builtin_ctz(operand->mem.scale);
    out->reads |= (uint16_t)(1u << access->index);
  }
  if (in->address_width == 32) {
    access->how |= CT_ACCESS_ADDRESS32;
  }
  if (operand->mem.type != ZYDIS_MEMOP_TYPE_AGEN) {
    access->segment = operand->mem.segment == ZYDIS_REGISTER_FS   ? CT_SEGMENT_FS
                      : operand->mem.segment == ZYDIS_REGISTER_GS ? CT_SEGMENT_GS
                                                                  : CT_SEGMENT_NONE;
  }
}

static void
note_memory(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operand, struct ct_effects *out)
{
  struct ct_access access;
  note_address(in, operand, out, &access);
  bool reads = (operand->actions & READ) != 0, writes = (operand->actions & WRITE) != 0;
  if (in->meta.category == ZYDIS_CATEGORY_PREFETCH || in->meta.category == ZYDIS_CATEGORY_NOP ||
      in->meta.category == ZYDIS_CATEGORY_WIDENOP || (!reads && !writes && in->mnemonic != ZYDIS_MNEMONIC_LEA)) {
    return;
  }
  if (operand->mem.type != ZYDIS_MEMOP_TYPE_AGEN) {
    access.how |= (reads ? CT_ACCESS_READ : 0) | (writes ? CT_ACCESS_WRITE : 0);
    access.size = operand->size / 8;
    if ((out->traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) != 0) {
      access.how |= CT_ACCESS_REPEATED;
    } else {
      access.how |= is_partial(in, operand) ? CT_ACCESS_PART : 0;
    }
  }
  if (out->access_count == 2 || (writes && access.size == 0)) {
    out->traits |= writes ? CT_EFFECT_MORE_STORES : 0;
  }
  if (out->access_count < 2) {
    out->access[out->access_count++] = access;
  }
}

/* Zydis has what is pushed at the stack pointer as it is after the push; an address of pop's, as it is before the pop.
 * What stores at the stack pointer and leaves it alone (movdir64b %rsp) pushes nothing.
 */
static void
put_stack_right(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operands, struct ct_effects *out)
{
  if ((out->writes & 1u << CT_RSP) == 0) {
    return;
  }
  for (unsigned i = in->operand_count_visible, n = 0; i < in->operand_count; i++) {
    const ZydisDecodedOperand *operand = &operands[i];
    if (operand->type != ZYDIS_OPERAND_TYPE_MEMORY || operand->mem.base != ZYDIS_REGISTER_RSP) {
      continue;
    }
    n = out->access_count - 1u;
    if ((operand->actions & WRITE) != 0) {
      out->access[n].disp = -(int64_t)out->access[n].size;
    } else if (n == 1 && out->access[0].base == CT_RSP) {
      out->access[0].disp += out->access[n].size;
    }
  }
}

/* ---- flags, control, and what Zydis does not list ---- */

static void
note_flags(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operands, struct ct_effects *out)
{
  const ZydisAccessedFlags *flags = in->cpu_flags;
  if (flags == NULL) {
    return;
  }
  ZydisAccessedFlagsMask written = flags->modified | flags->set_0 | flags->set_1 | flags->undefined;
  out->flags_read = flags->tested & CT_FLAGS_SIX;
  out->flags_written = written & CT_FLAGS_SIX;
  out->flags_undefined = flags->undefined & CT_FLAGS_SIX;
  out->traits |= (flags->tested & CT_FLAG_DF) != 0 ? CT_EFFECT_READS_DF : 0;
  out->traits |= (written & CT_FLAG_DF) != 0 ? CT_EFFECT_WRITES_DF : 0;
  for (unsigned i = in->operand_count_visible; i < in->operand_count; i++) {
    if (operands[i].type == ZYDIS_OPERAND_TYPE_REGISTER && operands[i].reg.value == ZYDIS_REGISTER_RFLAGS &&
        (operands[i].actions & ZYDIS_OPERAND_ACTION_CONDWRITE) != 0) {
      out->flags_kept = out->flags_written;
    }
  }
}

static bool
has_prefix(const ZydisDecodedInstruction *in, uint8_t prefix)
{
  for (unsigned i = 0; i < in->raw.prefix_count; i++) {
    if (in->raw.prefixes[i].value == prefix) {
      return true;
    }
  }
  return false;
}

static enum ct_insn_flow
branch_of(const ZydisDecodedInstruction *in)
{
  bool relative = in->raw.imm[0].is_relative;
  bool short_operand = (in->attributes & (ZYDIS_ATTRIB_HAS_OPERANDSIZE)) != 0 && in->raw.rex.W == 0;
  if (short_operand || in->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR) {
    return CT_INSN_FLOW_OTHER;
  }
  switch (in->mnemonic) {
  case ZYDIS_MNEMONIC_CALL:
    return relative ? CT_INSN_FLOW_CALL : CT_INSN_FLOW_CALL_INDIRECT;
  case ZYDIS_MNEMONIC_JMP:
    return relative ? CT_INSN_FLOW_JUMP : CT_INSN_FLOW_JUMP_INDIRECT;
  case ZYDIS_MNEMONIC_RET:
    return CT_INSN_FLOW_RET;
  case ZYDIS_MNEMONIC_LOOPE:
  case ZYDIS_MNEMONIC_LOOPNE: /* with F2 or F3, AMD's take that for the condition */
    return has_prefix(in, 0xf2) || has_prefix(in, 0xf3) ? CT_INSN_FLOW_OTHER : CT_INSN_FLOW_LOOP;
  case ZYDIS_MNEMONIC_LOOP:
  case ZYDIS_MNEMONIC_JECXZ:
  case ZYDIS_MNEMONIC_JRCXZ:
    return CT_INSN_FLOW_LOOP;
  default:
    return in->meta.category == ZYDIS_CATEGORY_COND_BR && in->mnemonic != ZYDIS_MNEMONIC_XBEGIN ? CT_INSN_FLOW_BRANCH
                                                                                                : CT_INSN_FLOW_OTHER;
  }
}

static enum ct_insn_flow
flow_of(const ZydisDecodedInstruction *in)
{
  switch (in->mnemonic) {
  case ZYDIS_MNEMONIC_UD0:
  case ZYDIS_MNEMONIC_UD1:
  case ZYDIS_MNEMONIC_UD2:
  case ZYDIS_MNEMONIC_HLT:
  case ZYDIS_MNEMONIC_INT1:
  case ZYDIS_MNEMONIC_INT3:
    return CT_INSN_FLOW_TRAP;
  case ZYDIS_MNEMONIC_SYSCALL:
    return CT_INSN_FLOW_SYSCALL;
  case ZYDIS_MNEMONIC_XABORT:
  case ZYDIS_MNEMONIC_XBEGIN:
  case ZYDIS_MNEMONIC_UIRET:
  case ZYDIS_MNEMONIC_ENCLU:
  case ZYDIS_MNEMONIC_VMCALL:
  case ZYDIS_MNEMONIC_VMFUNC:
  case ZYDIS_MNEMONIC_VMMCALL:
    return CT_INSN_FLOW_OTHER;
  default:
    break;
  }
  switch (in->meta.category) {
  case ZYDIS_CATEGORY_CALL:
  case ZYDIS_CATEGORY_RET:
  case ZYDIS_CATEGORY_UNCOND_BR:
  case ZYDIS_CATEGORY_COND_BR:
    return branch_of(in);
  case ZYDIS_CATEGORY_SYSCALL:
  case ZYDIS_CATEGORY_SYSRET:
  case ZYDIS_CATEGORY_INTERRUPT:
    return CT_INSN_FLOW_OTHER;
  default:
    return (in->attributes & ZYDIS_ATTRIB_IS_PRIVILEGED) != 0 ? CT_INSN_FLOW_OTHER : CT_INSN_FLOW_NEXT;
  }
}

/* String instructions move the registers that they go by. */
static void
note_string(const ZydisDecodedInstruction *in, struct ct_effects *out)
{
  if (in->meta.category != ZYDIS_CATEGORY_STRINGOP && in->meta.category != ZYDIS_CATEGORY_IOSTRINGOP) {
    return;
  }
  uint16_t moved = (out->traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) != 0 ? 1u << CT_RCX : 0;
  for (unsigned i = 0; i < out->access_count; i++) {
    moved |= (uint16_t)(1u << out->access[i].base);
  }
  out->reads |= moved;
  out->writes |= moved;
}

static uint8_t
saves_of(ZydisMnemonic mnemonic)
{
  switch (mnemonic) {
  case ZYDIS_MNEMONIC_FXSAVE:
  case ZYDIS_MNEMONIC_FXSAVE64:
    return CT_SAVES_NOT;
  case ZYDIS_MNEMONIC_XSAVEC:
  case ZYDIS_MNEMONIC_XSAVEC64:
    return CT_SAVES_COMPACT;
  default:
    return CT_SAVES_IN_PLACE;
  }
}

/* Saves and restores of much at once, and what the kernel does. */
static void
note_by_mnemonic(const ZydisDecodedInstruction *in, struct ct_effects *out)
{
  switch (in->mnemonic) {
  case ZYDIS_MNEMONIC_SYSCALL:
    out->writes |= 1u << CT_RAX | 1u << CT_RCX | 1u << CT_R11;
    out->reads = 0xffff;
    break;
  case ZYDIS_MNEMONIC_VZEROALL:
    out->vectors_written = 0xffff;
    out->vector_size = 64;
    break;
  case ZYDIS_MNEMONIC_VZEROUPPER: /* the lower part stays, and may be taken for written */
    out->vectors_read = out->vectors_written = 0xffff;
    out->vector_size = 16;
    break;
  case ZYDIS_MNEMONIC_FXSAVE:
  case ZYDIS_MNEMONIC_FXSAVE64:
  case ZYDIS_MNEMONIC_XSAVE:
  case ZYDIS_MNEMONIC_XSAVE64:
  case ZYDIS_MNEMONIC_XSAVEC:
  case ZYDIS_MNEMONIC_XSAVEC64:
  case ZYDIS_MNEMONIC_XSAVEOPT:
  case ZYDIS_MNEMONIC_XSAVEOPT64:
    out->vectors_read = ~0u;
    out->masks_read = 0xff;
    out->traits |= CT_EFFECT_X87 | CT_EFFECT_MXCSR | CT_EFFECT_MORE_STORES;
    out->saves = saves_of(in->mnemonic);
    break;
  case ZYDIS_MNEMONIC_FXRSTOR:
  case ZYDIS_MNEMONIC_FXRSTOR64:
  case ZYDIS_MNEMONIC_XRSTOR:
  case ZYDIS_MNEMONIC_XRSTOR64:
    out->vectors_read = out->vectors_written = ~0u;
    out->masks_read = out->masks_written = 0xff;
    out->vector_size = 64;
    out->traits |= CT_EFFECT_X87 | CT_EFFECT_MXCSR;
    break;
  case ZYDIS_MNEMONIC_PAUSE: /* with REX.B it is an exchange all the same */
    out->reads |= in->raw.rex.B != 0 ? 1u << CT_RAX | 1u << CT_R8 : 0;
    out->writes |= in->raw.rex.B != 0 ? 1u << CT_RAX | 1u << CT_R8 : 0;
    break;
  case ZYDIS_MNEMONIC_BSF:
  case ZYDIS_MNEMONIC_BSR: /* of 0 leave it as it is */
    out->reads |= out->writes;
    break;
  case ZYDIS_MNEMONIC_VP2INTERSECTD:
  case ZYDIS_MNEMONIC_VP2INTERSECTQ: /* a pair of mask registers */
    out->masks_written |= (uint8_t)((out->masks_written & 0x55) << 1 | (out->masks_written & 0xaa) >> 1);
    break;
  case ZYDIS_MNEMONIC_VPTEST: /* Zydis lists no flags of them */
  case ZYDIS_MNEMONIC_VTESTPS:
  case ZYDIS_MNEMONIC_VTESTPD:
    out->flags_written = CT_FLAGS_SIX;
    break;
  case ZYDIS_MNEMONIC_XLAT: /* at rbx + al */
    out->reads |= 1u << CT_RAX;
    out->access[0].size = 0;
    break;
  case ZYDIS_MNEMONIC_CLZERO:
  case ZYDIS_MNEMONIC_ENTER:
    out->traits |= CT_EFFECT_MORE_STORES;
    break;
  case ZYDIS_MNEMONIC_WRFSBASE:
  case ZYDIS_MNEMONIC_WRGSBASE:
    out->traits |= CT_EFFECT_BASES;
    break;
  default:
    break;
  }
}

/* Where the part of the vector register begins that is stored. */
static unsigned
stored_part(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operands)
{
  unsigned lane = in->operand_count_visible > 2 && operands[2].type == ZYDIS_OPERAND_TYPE_IMMEDIATE
                      ? (unsigned)(operands[2].imm.value.u & 15) * operands[0].size / 8
                      : 0;
  switch (in->mnemonic) {
  case ZYDIS_MNEMONIC_MOVHPS:
  case ZYDIS_MNEMONIC_MOVHPD:
  case ZYDIS_MNEMONIC_VMOVHPS:
  case ZYDIS_MNEMONIC_VMOVHPD:
    return 8;
  case ZYDIS_MNEMONIC_VEXTRACTF128:
  case ZYDIS_MNEMONIC_VEXTRACTI128:
    return lane & 16;
  case ZYDIS_MNEMONIC_PEXTRB:
  case ZYDIS_MNEMONIC_PEXTRW:
  case ZYDIS_MNEMONIC_PEXTRD:
  case ZYDIS_MNEMONIC_PEXTRQ:
  case ZYDIS_MNEMONIC_EXTRACTPS:
  case ZYDIS_MNEMONIC_VPEXTRB:
  case ZYDIS_MNEMONIC_VPEXTRW:
  case ZYDIS_MNEMONIC_VPEXTRD:
  case ZYDIS_MNEMONIC_VPEXTRQ:
  case ZYDIS_MNEMONIC_VEXTRACTPS:
    return lane & 15;
  default:
    return 0;
  }
}

static void
note_stored_vector(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operands, struct ct_effects *out)
{
  static const ZydisMnemonic moves[] = {
      ZYDIS_MNEMONIC_MOVUPS,    ZYDIS_MNEMONIC_MOVAPS,     ZYDIS_MNEMONIC_MOVUPD,       ZYDIS_MNEMONIC_MOVAPD,
      ZYDIS_MNEMONIC_MOVDQU,    ZYDIS_MNEMONIC_MOVDQA,     ZYDIS_MNEMONIC_MOVNTDQ,      ZYDIS_MNEMONIC_MOVNTPS,
      ZYDIS_MNEMONIC_MOVNTPD,   ZYDIS_MNEMONIC_MOVQ,       ZYDIS_MNEMONIC_MOVD,         ZYDIS_MNEMONIC_MOVSS,
      ZYDIS_MNEMONIC_MOVSD,     ZYDIS_MNEMONIC_MOVLPS,     ZYDIS_MNEMONIC_MOVLPD,       ZYDIS_MNEMONIC_VMOVUPS,
      ZYDIS_MNEMONIC_VMOVAPS,   ZYDIS_MNEMONIC_VMOVUPD,    ZYDIS_MNEMONIC_VMOVAPD,      ZYDIS_MNEMONIC_VMOVDQU,
      ZYDIS_MNEMONIC_VMOVDQA,   ZYDIS_MNEMONIC_VMOVDQU8,   ZYDIS_MNEMONIC_VMOVDQU16,    ZYDIS_MNEMONIC_VMOVDQU32,
      ZYDIS_MNEMONIC_VMOVDQU64, ZYDIS_MNEMONIC_VMOVDQA32,  ZYDIS_MNEMONIC_VMOVDQA64,    ZYDIS_MNEMONIC_VMOVNTDQ,
      ZYDIS_MNEMONIC_VMOVNTPS,  ZYDIS_MNEMONIC_VMOVNTPD,   ZYDIS_MNEMONIC_VMOVQ,        ZYDIS_MNEMONIC_VMOVD,
      ZYDIS_MNEMONIC_VMOVSS,    ZYDIS_MNEMONIC_VMOVSD,     ZYDIS_MNEMONIC_VMOVLPS,      ZYDIS_MNEMONIC_VMOVLPD,
      ZYDIS_MNEMONIC_MOVHPS,    ZYDIS_MNEMONIC_MOVHPD,     ZYDIS_MNEMONIC_VMOVHPS,      ZYDIS_MNEMONIC_VMOVHPD,
      ZYDIS_MNEMONIC_PEXTRB,    ZYDIS_MNEMONIC_PEXTRW,     ZYDIS_MNEMONIC_PEXTRD,       ZYDIS_MNEMONIC_PEXTRQ,
      ZYDIS_MNEMONIC_EXTRACTPS, ZYDIS_MNEMONIC_VPEXTRB,    ZYDIS_MNEMONIC_VPEXTRW,      ZYDIS_MNEMONIC_VPEXTRD,
      ZYDIS_MNEMONIC_VPEXTRQ,   ZYDIS_MNEMONIC_VEXTRACTPS, ZYDIS_MNEMONIC_VEXTRACTF128, ZYDIS_MNEMONIC_VEXTRACTI128,
  };
  if (out->vectors_read == 0 || (out->vectors_read & (out->vectors_read - 1)) != 0 || out->vectors_written != 0 ||
      operands[0].type != ZYDIS_OPERAND_TYPE_MEMORY) {
    return;
  }
  for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
    if (moves[i] == in->mnemonic) {
      out->stored_vector = (uint8_t)__builtin_ctz(out->vectors_read);
      out->stored_from = (uint8_t)stored_part(in, operands);
    }
  }
}

uint32_t
ct_effects_save_bytes(const struct ct_effects *effects, uint64_t mask)
{
  enum { HEADER_END = 576, ALIGNED = 64 };
  static const struct {
    uint8_t bit;
    uint16_t at, bytes;
  } parts[] = {{2, 576, 256},  {3, 960, 64},    {4, 1024, 64}, {5, 1088, 64},
               {6, 1152, 512}, {7, 1664, 1024}, {9, 2688, 8}};
  uint32_t end = HEADER_END, compact = HEADER_END;
  for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
    if ((mask >> parts[i].bit & 1) != 0) {
      end = (uint32_t)parts[i].at + parts[i].bytes;
      compact = (compact + ALIGNED - 1) / ALIGNED * ALIGNED + parts[i].bytes;
    }
  }
  return effects->saves == CT_SAVES_COMPACT ? compact : end;
}

static uint16_t
prefix_traits(const ZydisDecodedInstruction *in)
{
  uint16_t traits = 0;
  if ((in->attributes & ZYDIS_ATTRIB_HAS_LOCK) != 0) {
    traits |= CT_EFFECT_LOCKED;
  }
  if ((in->attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE)) != 0) {
    traits |= CT_EFFECT_REP;
  }
  if ((in->attributes & ZYDIS_ATTRIB_HAS_REPNE) != 0) {
    traits |= CT_EFFECT_REPNE;
  }
  if (in->meta.category == ZYDIS_CATEGORY_X87_ALU || in->mnemonic == ZYDIS_MNEMONIC_EMMS) {
    traits |= CT_EFFECT_X87;
  }
  return traits;
}

static bool
zeroes_the_rest(const ZydisDecodedInstruction *in, const struct ct_effects *out)
{
  return out->vectors_written != 0 &&
         (in->encoding == ZYDIS_INSTRUCTION_ENCODING_VEX || in->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX ||
          in->encoding == ZYDIS_INSTRUCTION_ENCODING_XOP);
}

bool
ct_effects_of(const uint8_t *code, size_t size, struct ct_effects *out)
{
  ZydisDecodedInstruction in;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  if (!ct_zydis_decode(code, size, &in, operands)) {
    return false;
  }
  *out = (struct ct_effects){.length = in.length,
                             .out = CT_OPERAND_NONE,
                             .out2 = CT_OPERAND_NONE,
                             .in = CT_OPERAND_NONE,
                             .in2 = CT_OPERAND_NONE,
                             .in3 = CT_OPERAND_NONE,
                             .store = CT_OPERAND_NONE,
                             .loaded_reg = CT_NO_REG,
                             .stored_vector = CT_NO_VECTOR,
                             .traits = prefix_traits(&in)};
  for (unsigned i = 0; i < in.operand_count; i++) {
    if (operands[i].type == ZYDIS_OPERAND_TYPE_REGISTER) {
      note_register(&operands[i], out);
    } else if (operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY) {
      note_memory(&in, &operands[i], out);
    }
  }
  put_stack_right(&in, operands, out);
  note_flags(&in, operands, out);
  note_string(&in, out);
  note_by_mnemonic(&in, out);
  note_stored_vector(&in, operands, out);
  out->flow = (uint8_t)flow_of(&in);
  out->traits |= zeroes_the_rest(&in, out) ? CT_EFFECT_VECTOR_ZEROES : 0;
  ct_effects_emulated(&in, operands, out);
  return true;
}
