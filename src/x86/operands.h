/* SPDX-License-Identifier: MIT */
/* What the emitter's forms (emit.h) work on: registers, conditions and operands in memory, as the manual numbers them.
 */
#ifndef CT_X86_OPERANDS_H
#define CT_X86_OPERANDS_H

#include <stdbool.h>
#include <stdint.h>

/* With constant operands all of a form is found at compile time: emitting is a few stores then. */
#define CT_INLINE static inline __attribute__((always_inline))

enum ct_reg {
  CT_RAX,
  CT_RCX,
  CT_RDX,
  CT_RBX,
  CT_RSP,
  CT_RBP,
  CT_RSI,
  CT_RDI,
  CT_R8,
  CT_R9,
  CT_R10,
  CT_R11,
  CT_R12,
  CT_R13,
  CT_R14,
  CT_R15,
  CT_NO_REG
};

/* Conditions, as in the low four bits of the opcodes of jcc. */
enum ct_cond {
  CT_JO,
  CT_JNO,
  CT_JB,
  CT_JAE,
  CT_JE,
  CT_JNE,
  CT_JBE,
  CT_JA,
  CT_JS,
  CT_JNS,
  CT_JP,
  CT_JNP,
  CT_JL,
  CT_JGE,
  CT_JLE,
  CT_JG
};

/* An operand in memory. */
struct ct_mem {
  uint64_t target;     /* of CT_MEM_RIP: its address */
  int32_t disp;        /* of the others */
  uint8_t base, index; /* enum ct_reg */
  uint8_t scale;       /* log2 of what the index is multiplied by */
  enum { CT_MEM_BASE, CT_MEM_GS, CT_MEM_RIP, CT_MEM_FS, CT_MEM_ABSOLUTE } kind : 8;
  bool wide; /* four bytes of displacement, whatever it is */
};

/* disp(base) */
CT_INLINE struct ct_mem
ct_mem(enum ct_reg base, int32_t disp)
{
  return (struct ct_mem){.base = base, .index = CT_NO_REG, .disp = disp};
}

/* disp(base, index), as long as index is not rsp */
CT_INLINE struct ct_mem
ct_mem_index(enum ct_reg base, enum ct_reg index, int32_t disp)
{
  return (struct ct_mem){.base = base, .index = index, .disp = disp};
}

/* The same with a displacement of four bytes, so that the form's length does not depend on it. */
CT_INLINE struct ct_mem
ct_mem_wide(struct ct_mem mem)
{
  mem.wide = true;
  return mem;
}

/* %gs:offset */
CT_INLINE struct ct_mem
ct_mem_gs(uint32_t offset)
{
  return (struct ct_mem){.kind = CT_MEM_GS, .base = CT_NO_REG, .index = CT_NO_REG, .disp = (int32_t)offset};
}

/* %fs:(base) */
CT_INLINE struct ct_mem
ct_mem_fs(enum ct_reg base)
{
  return (struct ct_mem){.kind = CT_MEM_FS, .base = base, .index = CT_NO_REG};
}

/* The memory at that address below 2 GiB, from wherever the code runs. */
CT_INLINE struct ct_mem
ct_mem_absolute(uint32_t address)
{
  return (struct ct_mem){.kind = CT_MEM_ABSOLUTE, .base = CT_NO_REG, .index = CT_NO_REG, .disp = (int32_t)address};
}

/* address(, index, 1 << scale), as long as index is not rsp */
CT_INLINE struct ct_mem
ct_mem_table(uint32_t address, enum ct_reg index, uint8_t scale)
{
  return (struct ct_mem){
      .kind = CT_MEM_ABSOLUTE, .base = CT_NO_REG, .index = (uint8_t)index, .scale = scale, .disp = (int32_t)address};
}

/* The memory at that address, relative to rip. */
CT_INLINE struct ct_mem
ct_mem_rip(uint64_t target)
{
  return (struct ct_mem){.kind = CT_MEM_RIP, .base = CT_NO_REG, .index = CT_NO_REG, .target = target};
}

#endif
