/* SPDX-License-Identifier: MIT */
/*
 * The emulator's operations, and what all of them do with operands and flags. effects_emulated.c chooses the operation
 * and the operands, emulate.c and emulate_*.c execute them, one function for each operation:
 *
 *   value(in), value(in2) -> result, flags -> put(out)
 *
 * A function writes memory first, then general registers, flags last. Those of control flow
 * set step->next. Nothing is written before everything that can be refused has been asked.
 */
#ifndef CT_X86_EMULATE_INTERNAL_H
#define CT_X86_EMULATE_INTERNAL_H

#include "x86/emulate.h"

enum ct_emulator_op {
  CT_DO_NOT = 0, /* not known to the emulator */
  CT_DO_NOTHING, /* no general register and no flag is written: nop, vector instructions with their stores */
  CT_DO_MOV,
  CT_DO_MOVZX,
  CT_DO_MOVSX,
  CT_DO_CMOV,
  CT_DO_SETCC,
  CT_DO_XCHG,
  CT_DO_BSWAP,
  CT_DO_LEA,
  CT_DO_PUSH,
  CT_DO_PUSHF,
  CT_DO_POP,
  CT_DO_LEAVE,
  CT_DO_CALL,
  CT_DO_CALL_INDIRECT,
  CT_DO_RET,
  CT_DO_JMP,
  CT_DO_JMP_INDIRECT,
  CT_DO_JCC,
  CT_DO_LOOP,
  CT_DO_LOOPE,
  CT_DO_LOOPNE,
  CT_DO_JRCXZ,
  CT_DO_EXTEND_AX,  /* cbw, cwde, cdqe */
  CT_DO_EXTEND_ADX, /* cwd, cdq, cqo */
  CT_DO_CLC,
  CT_DO_STC,
  CT_DO_CMC,
  CT_DO_CLD,
  CT_DO_STD,
  CT_DO_LAHF,
  CT_DO_SAHF,
  CT_DO_MOVS,
  CT_DO_STOS,
  CT_DO_LODS,
  CT_DO_SCAS,
  CT_DO_REP_MOVS,
  CT_DO_REP_STOS,
  CT_DO_RDBASE,
  CT_DO_WRBASE,
  /* emulate_alu.c */
  CT_DO_ADD,
  CT_DO_ADC,
  CT_DO_SUB,
  CT_DO_SBB,
  CT_DO_CMP,
  CT_DO_AND,
  CT_DO_OR,
  CT_DO_XOR,
  CT_DO_TEST,
  CT_DO_ANDN,
  CT_DO_INC,
  CT_DO_DEC,
  CT_DO_NEG,
  CT_DO_NOT_BITS,
  CT_DO_ADCX,
  CT_DO_ADOX,
  CT_DO_XADD,
  CT_DO_CMPXCHG,
  CT_DO_MUL,
  CT_DO_IMUL_WIDE,
  CT_DO_IMUL,
  CT_DO_MULX,
  CT_DO_DIV,
  CT_DO_IDIV,
  /* emulate_bits.c */
  CT_DO_SHL,
  CT_DO_SHR,
  CT_DO_SAR,
  CT_DO_ROL,
  CT_DO_ROR,
  CT_DO_RCL,
  CT_DO_RCR,
  CT_DO_SHLD,
  CT_DO_SHRD,
  CT_DO_SHLX,
  CT_DO_SHRX,
  CT_DO_SARX,
  CT_DO_RORX,
  CT_DO_BT,
  CT_DO_BTS,
  CT_DO_BTR,
  CT_DO_BTC,
  CT_DO_BSF,
  CT_DO_BSR,
  CT_DO_TZCNT,
  CT_DO_LZCNT,
  CT_DO_POPCNT,
  CT_DO_BEXTR,
  CT_DO_BLSI,
  CT_DO_BLSR,
  CT_DO_BLSMSK,
  CT_DO_BZHI,
  CT_DO_PDEP,
  CT_DO_PEXT,
  CT_DO_COUNT
};

/* What goes into and comes out of one step, besides the state. */
struct ct_step {
  uint64_t loaded;
  uint64_t next; /* rip after it */
  struct ct_mem_store *stores;
  unsigned store_count;
};

#define CT_DO(name) enum ct_emulated name(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step)

CT_DO(ct_do_add);
CT_DO(ct_do_adc);
CT_DO(ct_do_sub);
CT_DO(ct_do_sbb);
CT_DO(ct_do_cmp);
CT_DO(ct_do_and);
CT_DO(ct_do_or);
CT_DO(ct_do_xor);
CT_DO(ct_do_test);
CT_DO(ct_do_andn);
CT_DO(ct_do_inc);
CT_DO(ct_do_dec);
CT_DO(ct_do_neg);
CT_DO(ct_do_not);
CT_DO(ct_do_adcx);
CT_DO(ct_do_adox);
CT_DO(ct_do_xadd);
CT_DO(ct_do_cmpxchg);
CT_DO(ct_do_mul);
CT_DO(ct_do_imul_wide);
CT_DO(ct_do_imul);
CT_DO(ct_do_mulx);
CT_DO(ct_do_div);
CT_DO(ct_do_idiv);
CT_DO(ct_do_shl);
CT_DO(ct_do_shr);
CT_DO(ct_do_sar);
CT_DO(ct_do_rol);
CT_DO(ct_do_ror);
CT_DO(ct_do_rcl);
CT_DO(ct_do_rcr);
CT_DO(ct_do_shld);
CT_DO(ct_do_shrd);
CT_DO(ct_do_shlx);
CT_DO(ct_do_shrx);
CT_DO(ct_do_sarx);
CT_DO(ct_do_rorx);
CT_DO(ct_do_bt);
CT_DO(ct_do_bts);
CT_DO(ct_do_btr);
CT_DO(ct_do_btc);
CT_DO(ct_do_bsf);
CT_DO(ct_do_bsr);
CT_DO(ct_do_tzcnt);
CT_DO(ct_do_lzcnt);
CT_DO(ct_do_popcnt);
CT_DO(ct_do_bextr);
CT_DO(ct_do_blsi);
CT_DO(ct_do_blsr);
CT_DO(ct_do_blsmsk);
CT_DO(ct_do_bzhi);
CT_DO(ct_do_pdep);
CT_DO(ct_do_pext);

/* ---- sizes ---- */

CT_INLINE uint64_t
mask_of(unsigned size)
{
  return ~0ull >> (64 - 8 * size);
}

CT_INLINE uint64_t
extend(uint64_t value, unsigned size)
{
  unsigned unused = 64 - 8 * size;
  return (uint64_t)((int64_t)(value << unused) >> unused);
}

/* 0 or 1. */
CT_INLINE uint64_t
top_of(uint64_t value, unsigned size)
{
  return value >> (8 * size - 1) & 1;
}

/* ---- operands ---- */

/* Its bits above the operand's size are anything. */
CT_INLINE uint64_t
wide_value(const struct ct_effects *e, const struct ct_cpu *cpu, const struct ct_step *step, unsigned operand)
{
  if (operand < 16) {
    return cpu->reg[operand];
  }
  if (operand == CT_OPERAND_IMM) {
    return (uint64_t)e->imm;
  }
  return operand == CT_OPERAND_MEMORY ? step->loaded : cpu->reg[operand & 3] >> 8;
}

CT_INLINE uint64_t
value_of(const struct ct_effects *e, const struct ct_cpu *cpu, const struct ct_step *step, unsigned operand)
{
  return wide_value(e, cpu, step, operand) & mask_of(e->size);
}

CT_INLINE void
put_reg(struct ct_cpu *cpu, unsigned reg, unsigned size, uint64_t value)
{
  uint64_t kept = size >= 4 ? 0 : cpu->reg[reg] & ~mask_of(size);
  cpu->reg[reg] = kept | (value & mask_of(size));
}

CT_INLINE void
put_memory(const struct ct_effects *e, const struct ct_cpu *cpu, struct ct_step *step, unsigned size, uint64_t value)
{
  struct ct_mem_store *store = &step->stores[step->store_count++];
  uint64_t address = ct_address(e, &e->access[e->store & 1], cpu);
  *store = (struct ct_mem_store){
      .address = address, .count = 1, .value = value & mask_of(size), .size = size, .known = true};
}

CT_INLINE void
put(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step, unsigned operand, uint64_t value)
{
  if (operand < 16) {
    put_reg(cpu, operand, e->size, value);
  } else if (operand == CT_OPERAND_MEMORY) {
    put_memory(e, cpu, step, e->size, value);
  } else if (operand < CT_OPERAND_MEMORY) {
    cpu->reg[operand & 3] = (cpu->reg[operand & 3] & ~0xff00ull) | (value & 0xff) << 8;
  }
}

/* ---- flags ---- */

CT_INLINE uint64_t
parity_of(uint64_t value)
{
  return (0x9669u >> ((value ^ value >> 4) & 15) & 1) * CT_FLAG_PF;
}

/* SF, ZF, PF. */
CT_INLINE uint64_t
flags_of(uint64_t result, unsigned size)
{
  return (result == 0) * CT_FLAG_ZF | top_of(result, size) * CT_FLAG_SF | parity_of(result);
}

/* written: undefined ones too, which keep their bits and become unknown. */
CT_INLINE void
put_flags(struct ct_cpu *cpu, uint64_t written, uint64_t undefined, uint64_t flags)
{
  uint64_t defined = written & ~undefined;
  cpu->flags = (cpu->flags & ~defined) | (flags & defined);
  cpu->unknown = (cpu->unknown & ~written) | undefined;
}

/* What shifts and rotates leave undefined, with the masked count, which is not 0. */
CT_INLINE uint64_t
shift_undefined(unsigned op, unsigned size, unsigned count)
{
  uint64_t undefined = count != 1 ? CT_FLAG_OF : 0;
  if (op == CT_DO_SHL || op == CT_DO_SHR || op == CT_DO_SAR || op == CT_DO_SHLD || op == CT_DO_SHRD) {
    undefined |= CT_FLAG_AF;
  }
  if ((op == CT_DO_SHL || op == CT_DO_SHR) && count >= 8 * size) {
    undefined |= CT_FLAG_CF;
  }
  return undefined;
}

#endif
