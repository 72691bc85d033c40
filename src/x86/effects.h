/* SPDX-License-Identifier: MIT */
/*
 * What one instruction does to registers, flags, memory and control, by its bytes alone: what the instruction tracer's
 * translator asks when it decides which values to record, and what the reader's emulator (emulate.h) executes. Both
 * ask ct_effects_of, so the reader knows what was recorded. Pure, and independent of the machine.
 *
 * Rules:
 *  - Nothing is left out: a register, a flag, a store that the instruction can change is named here. More may be named
 *    than it changes (a conditional move, a repeated string instruction that repeats 0 times).
 *  - A register is read, too, when part of its old value stays: writes of 8 and 16 bits, conditional ones.
 *  - `derivable` means that ct_emulate knows every general register, every flag that is not undefined, and the next rip
 *    after the instruction from those before it and from `loaded`. It means so for every machine: where processors
 *    differ, or a fault is not distinguished from the end, it is false. (tzcnt and lzcnt are bsf and bsr on processors
 * without BMI1 and LZCNT: a recorder on such a machine has to record them.)
 *  - A system call changes rax, rcx and r11, and memory, by what the kernel does; execve and sigreturn change all.
 * After each the recorder keeps the whole state.
 *  - Of an instruction that is not derivable the recorder keeps the registers in `writes` and the flags in
 *    `flags_written`, as they are after it.
 *
 * `loaded` is the value of the instruction's only read, zero-extended. Reading it before the instruction does so again
 * is a race with other threads and devices; where `loaded_reg` names a register, that register's low bits hold the
 * value after the instruction, so the recorder takes it from there. Locked instructions are derivable only like that.
 *
 * Example: addl $1, -8(%rbp): one access: base rbp, disp -8, 4 bytes, read and written; reads rbp; no register written;
 * all six flags written, none undefined; derivable, uses loaded.
 */
#ifndef CT_X86_EFFECTS_H
#define CT_X86_EFFECTS_H

#include "x86/emit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of rflags. The six arithmetic ones make the masks of flags below; DF is described by traits. */
#define CT_FLAG_CF   0x001u
#define CT_FLAG_PF   0x004u
#define CT_FLAG_AF   0x010u
#define CT_FLAG_ZF   0x040u
#define CT_FLAG_SF   0x080u
#define CT_FLAG_DF   0x400u
#define CT_FLAG_OF   0x800u
#define CT_FLAGS_SIX 0x8d5u

enum ct_insn_flow {
  CT_INSN_FLOW_NEXT,          /* goes on after it */
  CT_INSN_FLOW_JUMP,          /* relative */
  CT_INSN_FLOW_BRANCH,        /* conditional, relative: cond says when */
  CT_INSN_FLOW_LOOP,          /* conditional, relative: loop, loope, loopne, jrcxz */
  CT_INSN_FLOW_CALL,          /* relative */
  CT_INSN_FLOW_JUMP_INDIRECT, /* to a register or to what the first access reads */
  CT_INSN_FLOW_CALL_INDIRECT,
  CT_INSN_FLOW_RET,     /* with ct_effects.imm bytes of arguments */
  CT_INSN_FLOW_SYSCALL, /* by syscall itself */
  CT_INSN_FLOW_TRAP,    /* ud2, int3, hlt and the like: does not go on by itself */
  CT_INSN_FLOW_OTHER /* far branches, int n, sysenter, iret, xbegin, branches with a 66 prefix, privileged ones ... */
};

enum ct_segment { CT_SEGMENT_NONE, CT_SEGMENT_FS, CT_SEGMENT_GS };

enum ct_access_how {
  CT_ACCESS_READ = 1 << 0,
  CT_ACCESS_WRITE = 1 << 1,     /* neither: an address only (lea) */
  CT_ACCESS_RIP = 1 << 2,       /* base is the next instruction's address */
  CT_ACCESS_ADDRESS32 = 1 << 3, /* base, index and disp modulo 2^32 */
  CT_ACCESS_PART = 1 << 4,      /* perhaps some of the bytes only, or none: masks, conditions */
  CT_ACCESS_VECTOR = 1 << 5,    /* gather, scatter: one address for each element of a vector register */
  CT_ACCESS_REPEATED = 1 << 6,  /* rcx times, size bytes each, upwards, or downwards with DF */
};

/* An operand in memory; all registers as they are before the instruction. */
struct ct_access {
  int64_t disp;
  uint16_t size; /* bytes; 0: more or others than can be said here */
  uint8_t base;  /* enum ct_reg */
  uint8_t index;
  uint8_t scale;    /* log2 */
  uint8_t segment;  /* enum ct_segment */
  uint8_t bits_reg; /* CT_NO_REG, or: of bt and the like, whose bit offset moves the address by whole operands */
  uint8_t how;
};

enum ct_effects_trait {
  CT_EFFECT_LOCKED = 1 << 0, /* by prefix; and xchg with memory */
  CT_EFFECT_REP = 1 << 1,    /* rep or repe that counts */
  CT_EFFECT_REPNE = 1 << 2,
  CT_EFFECT_READS_DF = 1 << 3,
  CT_EFFECT_WRITES_DF = 1 << 4,
  CT_EFFECT_X87 = 1 << 5, /* uses x87 or MMX registers or state */
  CT_EFFECT_MXCSR = 1 << 6,
  CT_EFFECT_BASES = 1 << 7,        /* changes the base of fs or gs */
  CT_EFFECT_MORE_STORES = 1 << 8,  /* writes memory that accesses do not tell */
  CT_EFFECT_VECTOR_ZEROES = 1 << 9 /* VEX and EVEX: the rest of the vector registers written becomes 0 */
};

enum { CT_NO_VECTOR = 255 };

/* Of xsave and the like, which store what a mask in edx:eax asks for: each part in its place, or one after the other.
 */
enum ct_saves { CT_SAVES_NOT, CT_SAVES_IN_PLACE, CT_SAVES_COMPACT };

/* An operand of the emulator. 0 to 15: a general register. */
enum { CT_OPERAND_HIGH = 16 /* ah; ch, dh, bh follow */, CT_OPERAND_MEMORY = 20, CT_OPERAND_IMM, CT_OPERAND_NONE };

struct ct_effects {
  /* What the emulator needs; ops are in emulate_internal.h. */
  uint8_t op;
  uint8_t length;      /* of the instruction */
  uint8_t size;        /* of the operands, bytes */
  uint8_t source_size; /* of movzx and movsx */
  uint8_t out, out2, in, in2, in3;
  uint8_t cond;  /* enum ct_cond, of jcc, setcc, cmov */
  uint8_t store; /* the access that is written; CT_OPERAND_NONE: there is none */
  uint8_t flow;  /* enum ct_insn_flow */
  bool derivable;
  bool uses_loaded;
  bool stores_unknown; /* it is derivable, but for what it stores: of x87, and of vector registers converted */
  uint8_t loaded_reg;  /* see above; or CT_NO_REG */
  uint8_t access_count;
  int64_t imm; /* constant; of relative branches: target minus the next instruction's address */
  uint16_t flags_read;
  uint16_t flags_written;   /* those that are left undefined are among them */
  uint16_t flags_undefined; /* perhaps: shifts by cl decide when they run */
  uint16_t flags_kept;      /* of those written: stay as they were under some condition (a shift by 0) */
  uint16_t reads, writes;   /* general registers, a bit each, by enum ct_reg */
  uint16_t traits;
  struct ct_access access[2]; /* what is pushed or popped comes after an explicit operand */

  /* Vector registers 0 to 31, mask registers, a bit each. */
  uint32_t vectors_read, vectors_written;
  uint8_t masks_read, masks_written;
  uint8_t vector_size; /* bytes of each vector register written, at most */
  /* What it stores is bytes of that vector register, from stored_from on; CT_NO_VECTOR: it is not. */
  uint8_t stored_vector, stored_from;
  uint8_t saves; /* enum ct_saves */
};

/*
 * The instruction at code, of which size bytes may be read. False when it is none, or does not end there; *out is as it
 * was then.
 */
bool ct_effects_of(const uint8_t *code, size_t size, struct ct_effects *out);

/*
 * How many bytes such a save writes at most, from its address on. mask: edx:eax. (Intel's manual, volume 1, 13.4 and
 * 13.5; matrices of AMX are left out, which are saved by programs only that have asked for them.)
 */
uint32_t ct_effects_save_bytes(const struct ct_effects *effects, uint64_t mask);

/* Does it give the stack pointer a value that has nothing to do with what it was: mov to rsp, but not leave? */
bool ct_effects_switch_stack(const struct ct_effects *effects);

/* Where a relative branch at rip goes when it is taken. */
static inline uint64_t
ct_effects_target(const struct ct_effects *effects, uint64_t rip)
{
  return rip + effects->length + (uint64_t)effects->imm;
}

#endif
