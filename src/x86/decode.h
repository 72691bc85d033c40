/* SPDX-License-Identifier: MIT */
/*
 * What the scanner and the relocator want to know about an instruction, and nothing else. ct_decode_fast knows the
 * usual instructions by a table of its own, and of VEX and EVEX the forms that it has asked for; ct_decode_full asks
 * Zydis and is the truth: where the first gives an answer it is the second's (tests/unit/x86_decode_test.c,
 * bench/decode_bench.c). Pure: what is remembered changes no answer.
 */
#ifndef CT_X86_DECODE_H
#define CT_X86_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CT_INSN_BYTES_MAX 15

enum ct_op {
  CT_OP_OTHER = 0,
  CT_OP_NOP,  /* with a memory operand, which it does not touch */
  CT_OP_PUSH, /* 8 bytes */
  CT_OP_POP,
  CT_OP_POP_FLAGS,
  CT_OP_LEAVE,
  CT_OP_ADD_IMM, /* register rm += value */
  CT_OP_SUB_IMM,
  CT_OP_MOV_IMM,  /* register rm = value (its low half) */
  CT_OP_WRITE_RM, /* register rm becomes something else: mov, add, sub, and */
  CT_OP_LEA,      /* register reg = address of the memory operand */
  CT_OP_TRAP,     /* ud2, hlt and the like: does not go on */
  CT_OP_SYSCALL,
  /* From here on control goes elsewhere. Relative: by value bytes from the next instruction. */
  CT_OP_BRANCH, /* conditional, relative: jcc, loop, jrcxz, xbegin */
  CT_OP_JUMP,   /* relative */
  CT_OP_CALL,   /* relative */
  CT_OP_JUMP_INDIRECT,
  CT_OP_CALL_INDIRECT, /* or a system call by another instruction than syscall, or xend */
  CT_OP_RET,           /* any kind of return, but: */
  CT_OP_RET_IMM,       /* ret imm16 */
};

enum ct_trait {
  CT_TRAIT_READS_FLAGS = 1 << 0, /* one of CF PF AF ZF SF OF */
  CT_TRAIT_SETS_FLAGS = 1 << 1,  /* changes any flag, or leaves it undefined */
  CT_TRAIT_GS = 1 << 2,          /* has a gs prefix that counts, or sets the base of gs */
};

/* In word: op 0..4, CT_INSN_NO_MODRM, traits 9..11; in kind: CT_INSN_MEMORY; their other bits mean nothing. */
#define CT_INSN_OP_MASK      31u
#define CT_INSN_NO_MODRM     (1u << 8)
#define CT_INSN_TRAITS_SHIFT 9
#define CT_INSN_MEMORY       (1u << 8) /* has a memory operand by ModRM */

/* As little as can be: what is asked of few instructions is worked out when it is asked. */
struct ct_insn {
  const uint8_t *code;
  uint32_t word;
  uint32_t kind;
  uint8_t length;
  uint8_t disp_bytes; /* 0, 1, 4; before the immediate */
  uint8_t imm_bytes;  /* the last ones of the instruction */
  uint8_t rex;        /* 1: B, 2: X, 4: R; of VEX and EVEX too */
  uint16_t address;   /* ModRM and, from bit 8, SIB; any without one. In one: the scanner reads both for each */
};

static inline unsigned
ct_insn_modrm(const struct ct_insn *in)
{
  return in->address & 0xff;
}

static inline unsigned
ct_insn_sib(const struct ct_insn *in)
{
  return in->address >> 8;
}

static inline enum ct_op
ct_insn_op(const struct ct_insn *in)
{
  return (enum ct_op)(in->word & CT_INSN_OP_MASK);
}

static inline unsigned
ct_insn_traits(const struct ct_insn *in)
{
  return in->word >> CT_INSN_TRAITS_SHIFT & 7;
}

/* The base of a memory operand that is base + disp without index, by DWARF number. */
#define CT_BASE_RBP  6
#define CT_BASE_RSP  7
#define CT_BASE_RIP  16
#define CT_BASE_NONE 0xff /* no memory operand, or another kind of address */

static inline uint8_t
ct_insn_base(const struct ct_insn *in)
{
  unsigned rm = ct_insn_modrm(in) & 7, mod = ct_insn_modrm(in) >> 6;
  if ((in->kind & CT_INSN_MEMORY) == 0) {
    return CT_BASE_NONE;
  }
  if (rm == 5 && mod == 0) {
    return CT_BASE_RIP;
  }
  if (rm == 4) {
    if ((ct_insn_sib(in) & 0x38) != 0x20 || (in->rex & 2) != 0) {
      return CT_BASE_NONE; /* an index */
    }
    rm = ct_insn_sib(in) & 7;
  }
  if ((in->rex & 1) != 0 || (rm == 5 && mod == 0)) {
    return CT_BASE_NONE;
  }
  return rm == 4 ? CT_BASE_RSP : rm == 5 ? CT_BASE_RBP : CT_BASE_NONE;
}

static inline int32_t
ct_insn_signed(const uint8_t *at, unsigned bytes)
{
  int32_t four;
  int16_t two;
  switch (bytes) {
  case 1:
    return (int8_t)*at;
  case 2:
    memcpy(&two, at, sizeof(two));
    return two;
  case 4:
  case 8: /* its low half */
    memcpy(&four, at, sizeof(four));
    return four;
  default:
    return 0;
  }
}

/* The displacement of the memory operand; as encoded, so without EVEX's factor. */
static inline int32_t
ct_insn_disp(const struct ct_insn *in)
{
  return ct_insn_signed(in->code + in->length - in->imm_bytes - in->disp_bytes, in->disp_bytes);
}

/* The (first) immediate: what op says of a value. */
static inline int32_t
ct_insn_value(const struct ct_insn *in)
{
  return ct_insn_signed(in->code + in->length - in->imm_bytes, in->imm_bytes);
}

/* The registers of ModRM, in the order of the encoding (4: rsp). rm: only when it is no memory operand, else -1; of
 * mov of an immediate that has it in the opcode, too. */
static inline int
ct_insn_reg(const struct ct_insn *in)
{
  return (ct_insn_modrm(in) >> 3 & 7) | (in->rex & 4) << 1;
}

static inline int
ct_insn_rm(const struct ct_insn *in)
{
  unsigned rm =
      (in->word & CT_INSN_NO_MODRM) != 0 ? in->code[in->length - in->imm_bytes - 1] & 7 : ct_insn_modrm(in) & 7;
  return (in->kind & CT_INSN_MEMORY) != 0 ? -1 : (int)(rm | (in->rex & 1) << 3);
}

/*
 * The instruction at code, of which size bytes may be read: more than the instruction has is no harm, and saves a copy
 * from CT_DECODE_READABLE on. False when it is none of those this decoder knows; *out is undefined then.
 */
#define CT_DECODE_READABLE 32
bool ct_decode_fast(const uint8_t *code, size_t size, struct ct_insn *out);
/* By Zydis. False when it is no instruction, or does not end within size. */
bool ct_decode_full(const uint8_t *code, size_t size, struct ct_insn *out);

/* Of the library behind ct_decode_full, for whoever keeps what was found out by it. */
uint64_t ct_decoder_version(void);

/* The instruction at code that must end within size; readable (at least size) bytes are there. */
static inline bool
ct_decode(const uint8_t *code, size_t size, size_t readable, struct ct_insn *out)
{
  return (ct_decode_fast(code, readable, out) && out->length <= size) || ct_decode_full(code, size, out);
}

#endif
