/* SPDX-License-Identifier: MIT */
/* The emulator; see emulate.h and emulate_internal.h. Here: moves, the stack, control flow, strings. */
#include "x86/emulate_internal.h"

/* ---- conditions ---- */

static inline bool
holds(unsigned cond, uint64_t flags)
{
  bool sign_differs = ((flags / CT_FLAG_SF ^ flags / CT_FLAG_OF) & 1) != 0;
  bool met = false;
  switch (cond & ~1u) {
  case CT_JO:
    met = (flags & CT_FLAG_OF) != 0;
    break;
  case CT_JB:
    met = (flags & CT_FLAG_CF) != 0;
    break;
  case CT_JE:
    met = (flags & CT_FLAG_ZF) != 0;
    break;
  case CT_JBE:
    met = (flags & (CT_FLAG_CF | CT_FLAG_ZF)) != 0;
    break;
  case CT_JS:
    met = (flags & CT_FLAG_SF) != 0;
    break;
  case CT_JP:
    met = (flags & CT_FLAG_PF) != 0;
    break;
  case CT_JL:
    met = sign_differs;
    break;
  case CT_JLE:
    met = sign_differs || (flags & CT_FLAG_ZF) != 0;
    break;
  default:
    break;
  }
  return met != ((cond & 1) != 0);
}

/* ---- moves ---- */

static CT_DO(do_mov)
{
  put(e, cpu, step, e->out, value_of(e, cpu, step, e->in));
  return CT_EMULATED;
}

static CT_DO(do_movzx)
{
  put(e, cpu, step, e->out, wide_value(e, cpu, step, e->in) & mask_of(e->source_size));
  return CT_EMULATED;
}

static CT_DO(do_movsx)
{
  put(e, cpu, step, e->out, extend(wide_value(e, cpu, step, e->in), e->source_size));
  return CT_EMULATED;
}

static CT_DO(do_cmov)
{
  put(e, cpu, step, e->out, value_of(e, cpu, step, holds(e->cond, cpu->flags) ? e->in : e->out));
  return CT_EMULATED;
}

static CT_DO(do_setcc)
{
  put(e, cpu, step, e->out, holds(e->cond, cpu->flags));
  return CT_EMULATED;
}

static CT_DO(do_xchg)
{
  uint64_t a = value_of(e, cpu, step, e->in), b = value_of(e, cpu, step, e->in2);
  put(e, cpu, step, e->out, b);
  put(e, cpu, step, e->out2, a);
  return CT_EMULATED;
}

/* Of 32 and 64 bits. */
static CT_DO(do_bswap)
{
  put(e, cpu, step, e->out, __builtin_bswap64(value_of(e, cpu, step, e->in)) >> (64 - 8 * e->size));
  return CT_EMULATED;
}

static CT_DO(do_lea)
{
  put(e, cpu, step, e->out, ct_address(e, &e->access[0], cpu));
  return CT_EMULATED;
}

static CT_DO(do_extend_ax)
{
  put_reg(cpu, CT_RAX, e->size, extend(cpu->reg[CT_RAX], e->size / 2u));
  return CT_EMULATED;
}

static CT_DO(do_extend_adx)
{
  put_reg(cpu, CT_RDX, e->size, -top_of(cpu->reg[CT_RAX], e->size));
  return CT_EMULATED;
}

static CT_DO(do_rdbase)
{
  put(e, cpu, step, e->out, e->imm == CT_SEGMENT_FS ? cpu->fs_base : cpu->gs_base);
  return CT_EMULATED;
}

static CT_DO(do_wrbase)
{
  *(e->imm == CT_SEGMENT_FS ? &cpu->fs_base : &cpu->gs_base) = value_of(e, cpu, step, e->in);
  return CT_EMULATED;
}

/* ---- stack ---- */

static CT_DO(do_push)
{
  put_memory(e, cpu, step, e->size, wide_value(e, cpu, step, e->in));
  cpu->reg[CT_RSP] -= e->size;
  return CT_EMULATED;
}

static CT_DO(do_pushf)
{
  enum { RF = 1 << 16, VM = 1 << 17 };
  put_memory(e, cpu, step, e->size, cpu->flags & ~(uint64_t)(RF | VM));
  step->stores[0].known = cpu->unknown == 0;
  cpu->reg[CT_RSP] -= e->size;
  return CT_EMULATED;
}

/* pop of rsp leaves what was popped; an address with rsp in it was decoded as one from before. */
static CT_DO(do_pop)
{
  if (e->out == CT_OPERAND_MEMORY) {
    put_memory(e, cpu, step, e->size, step->loaded);
    cpu->reg[CT_RSP] += e->size;
  } else {
    cpu->reg[CT_RSP] += e->size;
    put(e, cpu, step, e->out, step->loaded);
  }
  return CT_EMULATED;
}

static CT_DO(do_leave)
{
  cpu->reg[CT_RSP] = cpu->reg[CT_RBP] + 8;
  cpu->reg[CT_RBP] = step->loaded;
  return CT_EMULATED;
}

/* ---- control flow ---- */

static CT_DO(do_call)
{
  put_memory(e, cpu, step, 8, step->next);
  cpu->reg[CT_RSP] -= 8;
  step->next += (uint64_t)e->imm;
  return CT_EMULATED;
}

static CT_DO(do_call_indirect)
{
  uint64_t target = wide_value(e, cpu, step, e->in);
  put_memory(e, cpu, step, 8, step->next);
  cpu->reg[CT_RSP] -= 8;
  step->next = target;
  return CT_EMULATED;
}

static CT_DO(do_ret)
{
  step->next = step->loaded;
  cpu->reg[CT_RSP] += 8 + (uint64_t)e->imm;
  return CT_EMULATED;
}

static CT_DO(do_jmp)
{
  step->next += (uint64_t)e->imm;
  return CT_EMULATED;
}

static CT_DO(do_jmp_indirect)
{
  step->next = wide_value(e, cpu, step, e->in);
  return CT_EMULATED;
}

static CT_DO(do_jcc)
{
  step->next += holds(e->cond, cpu->flags) ? (uint64_t)e->imm : 0;
  return CT_EMULATED;
}

/* Counts rcx, or ecx, down, and branches if that is not 0 and ZF is as wanted. */
static CT_DO(do_loop)
{
  uint64_t count = (cpu->reg[CT_RCX] - 1) & mask_of(e->size);
  bool zero = (cpu->flags & CT_FLAG_ZF) != 0;
  bool taken = count != 0 && (e->op == CT_DO_LOOP || zero == (e->op == CT_DO_LOOPE));
  put_reg(cpu, CT_RCX, e->size, count);
  step->next += taken ? (uint64_t)e->imm : 0;
  return CT_EMULATED;
}

static CT_DO(do_jrcxz)
{
  step->next += (cpu->reg[CT_RCX] & mask_of(e->size)) == 0 ? (uint64_t)e->imm : 0;
  return CT_EMULATED;
}

/* ---- flags ---- */

static CT_DO(do_clc)
{
  put_flags(cpu, CT_FLAG_CF, 0, 0);
  return CT_EMULATED;
}

static CT_DO(do_stc)
{
  put_flags(cpu, CT_FLAG_CF, 0, CT_FLAG_CF);
  return CT_EMULATED;
}

static CT_DO(do_cmc)
{
  put_flags(cpu, CT_FLAG_CF, 0, ~cpu->flags);
  return CT_EMULATED;
}

static CT_DO(do_cld)
{
  cpu->flags &= ~(uint64_t)CT_FLAG_DF;
  return CT_EMULATED;
}

static CT_DO(do_std)
{
  cpu->flags |= CT_FLAG_DF;
  return CT_EMULATED;
}

static CT_DO(do_lahf)
{
  put(e, cpu, step, CT_OPERAND_HIGH, (cpu->flags & CT_FLAGS_SIX & 0xff) | 2);
  return CT_EMULATED;
}

static CT_DO(do_sahf)
{
  put_flags(cpu, CT_FLAGS_SIX & 0xff, 0, cpu->reg[CT_RAX] >> 8);
  return CT_EMULATED;
}

/* ---- strings ---- */

static inline uint64_t
stride_of(const struct ct_effects *e, const struct ct_cpu *cpu)
{
  return (cpu->flags & CT_FLAG_DF) != 0 ? -(uint64_t)e->size : e->size;
}

static CT_DO(do_movs)
{
  put_memory(e, cpu, step, e->size, step->loaded);
  cpu->reg[CT_RSI] += stride_of(e, cpu);
  cpu->reg[CT_RDI] += stride_of(e, cpu);
  return CT_EMULATED;
}

static CT_DO(do_stos)
{
  put_memory(e, cpu, step, e->size, cpu->reg[CT_RAX]);
  cpu->reg[CT_RDI] += stride_of(e, cpu);
  return CT_EMULATED;
}

static CT_DO(do_lods)
{
  put_reg(cpu, CT_RAX, e->size, step->loaded);
  cpu->reg[CT_RSI] += stride_of(e, cpu);
  return CT_EMULATED;
}

static CT_DO(do_scas)
{
  cpu->reg[CT_RDI] += stride_of(e, cpu);
  return ct_do_cmp(e, cpu, step);
}

/* To its end: one that is interrupted has not ended. */
static CT_DO(do_rep)
{
  uint64_t distance = cpu->reg[CT_RCX] * stride_of(e, cpu);
  step->store_count = ct_mem_stores(e, cpu, step->stores);
  if (e->op == CT_DO_REP_STOS && step->store_count != 0) {
    step->stores[0].value = cpu->reg[CT_RAX] & mask_of(e->size);
    step->stores[0].known = true;
  }
  cpu->reg[CT_RSI] += e->op == CT_DO_REP_MOVS ? distance : 0;
  cpu->reg[CT_RDI] += distance;
  cpu->reg[CT_RCX] = 0;
  return CT_EMULATED;
}

static CT_DO(do_nothing)
{
  if (e->store != CT_OPERAND_NONE) {
    step->store_count = ct_mem_stores(e, cpu, step->stores);
  }
  return CT_EMULATED;
}

static CT_DO(do_not)
{
  return CT_EMULATED_NOT_DERIVABLE;
}

/* ---- all of them ---- */

static CT_DO((*const operations[CT_DO_COUNT])) = {
    [CT_DO_NOT] = do_not,
    [CT_DO_NOTHING] = do_nothing,
    [CT_DO_MOV] = do_mov,
    [CT_DO_MOVZX] = do_movzx,
    [CT_DO_MOVSX] = do_movsx,
    [CT_DO_CMOV] = do_cmov,
    [CT_DO_SETCC] = do_setcc,
    [CT_DO_XCHG] = do_xchg,
    [CT_DO_BSWAP] = do_bswap,
    [CT_DO_LEA] = do_lea,
    [CT_DO_PUSH] = do_push,
    [CT_DO_PUSHF] = do_pushf,
    [CT_DO_POP] = do_pop,
    [CT_DO_LEAVE] = do_leave,
    [CT_DO_CALL] = do_call,
    [CT_DO_CALL_INDIRECT] = do_call_indirect,
    [CT_DO_RET] = do_ret,
    [CT_DO_JMP] = do_jmp,
    [CT_DO_JMP_INDIRECT] = do_jmp_indirect,
    [CT_DO_JCC] = do_jcc,
    [CT_DO_LOOP] = do_loop,
    [CT_DO_LOOPE] = do_loop,
    [CT_DO_LOOPNE] = do_loop,
    [CT_DO_JRCXZ] = do_jrcxz,
    [CT_DO_EXTEND_AX] = do_extend_ax,
    [CT_DO_EXTEND_ADX] = do_extend_adx,
    [CT_DO_CLC] = do_clc,
    [CT_DO_STC] = do_stc,
    [CT_DO_CMC] = do_cmc,
    [CT_DO_CLD] = do_cld,
    [CT_DO_STD] = do_std,
    [CT_DO_LAHF] = do_lahf,
    [CT_DO_SAHF] = do_sahf,
    [CT_DO_MOVS] = do_movs,
    [CT_DO_STOS] = do_stos,
    [CT_DO_LODS] = do_lods,
    [CT_DO_SCAS] = do_scas,
    [CT_DO_REP_MOVS] = do_rep,
    [CT_DO_REP_STOS] = do_rep,
    [CT_DO_RDBASE] = do_rdbase,
    [CT_DO_WRBASE] = do_wrbase,
    [CT_DO_ADD] = ct_do_add,
    [CT_DO_ADC] = ct_do_adc,
    [CT_DO_SUB] = ct_do_sub,
    [CT_DO_SBB] = ct_do_sbb,
    [CT_DO_CMP] = ct_do_cmp,
    [CT_DO_AND] = ct_do_and,
    [CT_DO_OR] = ct_do_or,
    [CT_DO_XOR] = ct_do_xor,
    [CT_DO_TEST] = ct_do_test,
    [CT_DO_ANDN] = ct_do_andn,
    [CT_DO_INC] = ct_do_inc,
    [CT_DO_DEC] = ct_do_dec,
    [CT_DO_NEG] = ct_do_neg,
    [CT_DO_NOT_BITS] = ct_do_not,
    [CT_DO_ADCX] = ct_do_adcx,
    [CT_DO_ADOX] = ct_do_adox,
    [CT_DO_XADD] = ct_do_xadd,
    [CT_DO_CMPXCHG] = ct_do_cmpxchg,
    [CT_DO_MUL] = ct_do_mul,
    [CT_DO_IMUL_WIDE] = ct_do_imul_wide,
    [CT_DO_IMUL] = ct_do_imul,
    [CT_DO_MULX] = ct_do_mulx,
    [CT_DO_DIV] = ct_do_div,
    [CT_DO_IDIV] = ct_do_idiv,
    [CT_DO_SHL] = ct_do_shl,
    [CT_DO_SHR] = ct_do_shr,
    [CT_DO_SAR] = ct_do_sar,
    [CT_DO_ROL] = ct_do_rol,
    [CT_DO_ROR] = ct_do_ror,
    [CT_DO_RCL] = ct_do_rcl,
    [CT_DO_RCR] = ct_do_rcr,
    [CT_DO_SHLD] = ct_do_shld,
    [CT_DO_SHRD] = ct_do_shrd,
    [CT_DO_SHLX] = ct_do_shlx,
    [CT_DO_SHRX] = ct_do_shrx,
    [CT_DO_SARX] = ct_do_sarx,
    [CT_DO_RORX] = ct_do_rorx,
    [CT_DO_BT] = ct_do_bt,
    [CT_DO_BTS] = ct_do_bts,
    [CT_DO_BTR] = ct_do_btr,
    [CT_DO_BTC] = ct_do_btc,
    [CT_DO_BSF] = ct_do_bsf,
    [CT_DO_BSR] = ct_do_bsr,
    [CT_DO_TZCNT] = ct_do_tzcnt,
    [CT_DO_LZCNT] = ct_do_lzcnt,
    [CT_DO_POPCNT] = ct_do_popcnt,
    [CT_DO_BEXTR] = ct_do_bextr,
    [CT_DO_BLSI] = ct_do_blsi,
    [CT_DO_BLSR] = ct_do_blsr,
    [CT_DO_BLSMSK] = ct_do_blsmsk,
    [CT_DO_BZHI] = ct_do_bzhi,
    [CT_DO_PDEP] = ct_do_pdep,
    [CT_DO_PEXT] = ct_do_pext,
};

enum ct_emulated
ct_emulate(const struct ct_effects *effects, struct ct_cpu *cpu, uint64_t loaded, struct ct_mem_store stores[2],
           unsigned *store_count)
{
  struct ct_step step = {.loaded = loaded, .next = cpu->rip + effects->length, .stores = stores};
  if (!effects->derivable) {
    return CT_EMULATED_NOT_DERIVABLE;
  }
  if ((cpu->unknown & effects->flags_read) != 0 && effects->op != CT_DO_PUSHF) {
    return CT_EMULATED_UNKNOWN_FLAG;
  }
  enum ct_emulated code = operations[effects->op](effects, cpu, &step);
  if (code == CT_EMULATED) {
    cpu->rip = step.next;
    *store_count = step.store_count;
  }
  return code;
}

unsigned
ct_mem_stores(const struct ct_effects *effects, const struct ct_cpu *cpu, struct ct_mem_store stores[2])
{
  unsigned count = 0;
  for (unsigned i = 0; i < effects->access_count; i++) {
    const struct ct_access *access = &effects->access[i];
    if ((access->how & CT_ACCESS_WRITE) == 0) {
      continue;
    }
    bool repeated = (access->how & CT_ACCESS_REPEATED) != 0, vector = (access->how & CT_ACCESS_VECTOR) != 0;
    uint64_t times = !repeated                                  ? 1
                     : (access->how & CT_ACCESS_ADDRESS32) != 0 ? (uint32_t)cpu->reg[CT_RCX]
                                                                : cpu->reg[CT_RCX];
    if (times == 0) {
      continue;
    }
    uint64_t back = repeated && (cpu->flags & CT_FLAG_DF) != 0 ? (times - 1) * access->size : 0;
    stores[count++] = (struct ct_mem_store){.address = vector ? 0 : ct_address(effects, access, cpu) - back,
                                            .count = times,
                                            .size = vector ? 0 : access->size,
                                            .part = (access->how & CT_ACCESS_PART) != 0};
  }
  return count;
}

uint16_t
ct_address_regs(const struct ct_access *access)
{
  uint16_t regs = 0;
  regs |= access->base != CT_NO_REG ? (uint16_t)(1u << (access->base & 15)) : 0;
  regs |= access->index != CT_NO_REG ? (uint16_t)(1u << (access->index & 15)) : 0;
  regs |= access->bits_reg != CT_NO_REG ? (uint16_t)(1u << (access->bits_reg & 15)) : 0;
  return regs;
}

static uint16_t
operand_reg(uint8_t operand)
{
  return operand < CT_OPERAND_MEMORY ? (uint16_t)(1u << (operand & (operand < CT_OPERAND_HIGH ? 15 : 3))) : 0;
}

/* The registers whose values its results are made of; addresses apart, where that is known. */
static uint16_t
value_regs(const struct ct_effects *e)
{
  uint16_t regs = (uint16_t)(operand_reg(e->in) | operand_reg(e->in2) | operand_reg(e->in3));
  switch (e->op) {
  case CT_DO_MOV:
  case CT_DO_MOVZX:
  case CT_DO_MOVSX:
  case CT_DO_ADD:
  case CT_DO_ADC:
  case CT_DO_SUB:
  case CT_DO_SBB:
  case CT_DO_CMP:
  case CT_DO_AND:
  case CT_DO_OR:
  case CT_DO_XOR:
  case CT_DO_TEST:
  case CT_DO_INC:
  case CT_DO_DEC:
  case CT_DO_PUSH:
  case CT_DO_POP:
  case CT_DO_CALL:
  case CT_DO_CALL_INDIRECT:
  case CT_DO_RET: {
    bool keeps_part = e->size < 4 || e->out >= CT_OPERAND_HIGH;
    return (uint16_t)(regs | (keeps_part ? operand_reg(e->out) : 0)) & e->reads;
  }
  default:
    return e->reads;
  }
}

struct ct_unknown_after
ct_emulated_unknown(const struct ct_effects *e, uint16_t unknown)
{
  struct ct_unknown_after after = {0};
  bool moves_stack = e->op == CT_DO_PUSH || e->op == CT_DO_POP || e->op == CT_DO_CALL || e->op == CT_DO_CALL_INDIRECT ||
                     e->op == CT_DO_RET;
  bool pops_stack = e->op == CT_DO_POP && e->out == CT_RSP;
  uint16_t by_itself = moves_stack && !pops_stack ? 1u << CT_RSP & e->writes : 0;
  if ((value_regs(e) & unknown) != 0) {
    after.written = e->writes & (uint16_t)~by_itself;
    after.flags = e->flags_written != 0;
    after.stored = e->op != CT_DO_CALL && e->op != CT_DO_CALL_INDIRECT;
  }
  after.written |= by_itself & unknown;
  return after;
}
