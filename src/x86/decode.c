/* SPDX-License-Identifier: MIT */
/*
 * The fast decoder; see decode.h. One 32-bit word for each opcode of the one-byte map and of the 0F map; opcodes that
 * are a group have a second word for each value of ModRM's reg, which is or-ed to the first:
 *
 *    31    24  23 22 21   20   19   18   17   16   15       12  11  10   9    8    7   5 4   0
 *   +---------+-----+----+----+----+----+----+----+-----------+----+----+----+-----+-----+----+
 *   |  group  |     |none|reg |mem |test|immv|immz|  prefix   | 0  |set |read|nomrm| imm | op |
 *   +---------+-----+----+----+----+----+----+----+-----------+----+----+----+-----+-----+----+
 *
 *   imm       bytes of the immediate
 *   nomrm     has no ModRM
 *   read, set reads, sets flags
 *   mem, reg  known only with a memory operand, or only with a register
 *   prefix    with which mandatory prefix the opcode is known: none, 66, F3, F2, one bit each. 0: not known
 *   immz      the immediate is of 2 bytes with 66 and without REX.W
 *   immv      and of 8 with REX.W
 *   test      the immediate is there in members 0 and 1 of the group only
 *   none      (in a group) not known
 *   group     index of member 0
 *
 * Not known, and left to Zydis: lock, gs, 67, the maps 0F38 and 0F3A, x87 on registers, privileged and rare
 * instructions, and whatever is no instruction: this decoder never says that something is none. Prefixes: any of 66 and
 * of the segments but gs, or F2 or F3; then REX, then the opcode.
 *
 * VEX and EVEX have no table: which opcodes there are, and with which vector lengths, W, masks and rounding, fills
 * volumes. Zydis is asked once for each form, that is, for all bits but those that only choose among registers that
 * are all allowed; see ask().
 *
 * For speed: the first bytes are looked at in one word that is shifted, not read again; what code mixes freely (REX,
 * ModRM, SIB, the size of the displacement) is computed without branches; what is rare is branched on.
 *
 * Example: 48 8d 65 f0, lea -16(%rbp), %rsp: REX.W, opcode 8d: NP | P66 | MEM | CT_OP_LEA. ModRM 65: one byte of
 * displacement, base 5 without REX.B = rbp, reg 4 without REX.R = rsp.
 */
#include "x86/decode.h"

#include "base/branch.h"
#include "x86/zydis.h"

#include <string.h>

enum {
  GROUP_NONE,
  GROUP_1,
  GROUP_2,
  GROUP_3,
  GROUP_4,
  GROUP_5,
  GROUP_8,
  GROUP_11B,
  GROUP_11,
  GROUP_POP,
  GROUP_12,
  GROUP_14,
  GROUP_D9,
  GROUP_DB,
  GROUP_DD,
  GROUP_COUNT
};

#define IMM_SHIFT    5
#define I8           (1u << IMM_SHIFT)
#define I16          (2u << IMM_SHIFT)
#define I32          (4u << IMM_SHIFT)
#define NOMRM        CT_INSN_NO_MODRM
#define RD           (1u << 9)
#define SET          (1u << 10)
#define NP           (1u << 12)
#define P66          (1u << 13)
#define PF3          (1u << 14)
#define PF2          (1u << 15)
#define IMMZ         (1u << 16)
#define IMMV         (1u << 17)
#define TEST         (1u << 18)
#define MEM          (1u << 19)
#define REG          (1u << 20)
#define NONE         (1u << 21)
#define GROUP_SHIFT  24
#define GROUP(n)     ((uint32_t)(n)*8 << GROUP_SHIFT)
#define ANY          (NP | P66)
#define IZ           (I32 | IMMZ)
#define TRAITS_SHIFT 9

/* clang-format off */
static const uint32_t words[512] = {
  [0x00 ... 0x03] = ANY | SET | CT_OP_WRITE_RM, /* add */
  [0x08 ... 0x0b] = ANY | SET,                  /* or */
  [0x10 ... 0x13] = ANY | SET | RD,             /* adc */
  [0x18 ... 0x1b] = ANY | SET | RD,             /* sbb */
  [0x20 ... 0x23] = ANY | SET | CT_OP_WRITE_RM, /* and */
  [0x28 ... 0x2b] = ANY | SET | CT_OP_WRITE_RM, /* sub */
  [0x30 ... 0x33] = ANY | SET,                  /* xor */
  [0x38 ... 0x3b] = ANY | SET,                  /* cmp */
  [0x04] = ANY | I8 | SET | NOMRM, [0x05] = ANY | IZ | SET | NOMRM,
  [0x0c] = ANY | I8 | SET | NOMRM, [0x0d] = ANY | IZ | SET | NOMRM,
  [0x14] = ANY | I8 | SET | RD | NOMRM, [0x15] = ANY | IZ | SET | RD | NOMRM,
  [0x1c] = ANY | I8 | SET | RD | NOMRM, [0x1d] = ANY | IZ | SET | RD | NOMRM,
  [0x24] = ANY | I8 | SET | NOMRM, [0x25] = ANY | IZ | SET | NOMRM,
  [0x2c] = ANY | I8 | SET | NOMRM, [0x2d] = ANY | IZ | SET | NOMRM,
  [0x34] = ANY | I8 | SET | NOMRM, [0x35] = ANY | IZ | SET | NOMRM,
  [0x3c] = ANY | I8 | SET | NOMRM, [0x3d] = ANY | IZ | SET | NOMRM,
  [0x50 ... 0x57] = ANY | CT_OP_PUSH | NOMRM,
  [0x58 ... 0x5f] = ANY | CT_OP_POP | NOMRM,
  [0x63] = ANY, /* movsxd */
  [0x68] = ANY | IZ | CT_OP_PUSH | NOMRM,
  [0x69] = ANY | IZ | SET, /* imul */
  [0x6a] = ANY | I8 | CT_OP_PUSH | NOMRM,
  [0x6b] = ANY | I8 | SET,
  [0x70 ... 0x7f] = NP | I8 | RD | CT_OP_BRANCH | NOMRM,
  [0x80] = ANY | I8 | GROUP(GROUP_1), [0x81] = ANY | IZ | GROUP(GROUP_1), [0x83] = ANY | I8 | GROUP(GROUP_1),
  [0x84 ... 0x85] = ANY | SET, /* test */
  [0x86 ... 0x87] = ANY,       /* xchg */
  [0x88 ... 0x8a] = ANY | CT_OP_WRITE_RM, /* mov */
  [0x8b] = ANY,
  [0x8d] = ANY | MEM | CT_OP_LEA,
  [0x8f] = ANY | GROUP(GROUP_POP),
  [0x90] = ANY | PF3 | NOMRM, /* nop, pause */
  [0x91 ... 0x97] = ANY | NOMRM,
  [0x98 ... 0x99] = ANY | NOMRM, /* cdqe, cqo */
  [0x9c] = NP | RD | CT_OP_PUSH | NOMRM, [0x9d] = NP | SET | CT_OP_POP_FLAGS | NOMRM,
  [0x9e] = ANY | SET | NOMRM, [0x9f] = ANY | RD | NOMRM,
  [0xa4 ... 0xa5] = ANY | PF3 | NOMRM, /* movs */
  [0xa8] = ANY | I8 | SET | NOMRM, [0xa9] = ANY | IZ | SET | NOMRM,
  [0xaa ... 0xab] = ANY | PF3 | NOMRM, /* stos */
  [0xb0 ... 0xb7] = ANY | I8 | NOMRM,
  [0xb8] = ANY | IZ | IMMV | CT_OP_MOV_IMM | NOMRM,
  [0xb9 ... 0xbf] = ANY | IZ | IMMV | NOMRM,
  [0xc0 ... 0xc1] = ANY | I8 | GROUP(GROUP_2),
  [0xc2] = NP | I16 | CT_OP_RET_IMM | NOMRM,
  [0xc3] = NP | PF3 | CT_OP_RET | NOMRM,
  [0xc6] = ANY | I8 | GROUP(GROUP_11B), [0xc7] = ANY | IZ | GROUP(GROUP_11),
  [0xc9] = ANY | CT_OP_LEAVE | NOMRM,
  [0xd0 ... 0xd3] = ANY | GROUP(GROUP_2),
  [0xd8] = NP | MEM, [0xda] = NP | MEM, [0xdc] = NP | MEM, /* x87 with memory */
  [0xde] = NP | MEM, [0xdf] = NP | MEM,
  [0xd9] = NP | MEM | GROUP(GROUP_D9), [0xdb] = NP | MEM | GROUP(GROUP_DB), [0xdd] = NP | MEM | GROUP(GROUP_DD),
  [0xe0 ... 0xe1] = NP | I8 | RD | CT_OP_BRANCH | NOMRM, /* loopne, loope */
  [0xe2 ... 0xe3] = NP | I8 | CT_OP_BRANCH | NOMRM,      /* loop, jrcxz */
  [0xe8] = NP | I32 | CT_OP_CALL | NOMRM,
  [0xe9] = NP | I32 | CT_OP_JUMP | NOMRM,
  [0xeb] = NP | I8 | CT_OP_JUMP | NOMRM,
  [0xf5] = ANY | RD | SET | NOMRM, /* cmc */
  [0xf6] = ANY | I8 | TEST | GROUP(GROUP_3), [0xf7] = ANY | IZ | TEST | GROUP(GROUP_3),
  [0xf8 ... 0xf9] = ANY | SET | NOMRM,
  [0xfc ... 0xfd] = ANY | SET | NOMRM,
  [0xfe] = ANY | GROUP(GROUP_4),
  [0xff] = ANY | GROUP(GROUP_5),

#define TWO(n) [0x100 + (n)]
#define TWO_RANGE(a, b) [0x100 + (a) ... 0x100 + (b)]
  TWO(0x05) = NP | SET | CT_OP_SYSCALL | NOMRM,
  TWO(0x0b) = NP | CT_OP_TRAP | NOMRM, /* ud2 */
  TWO_RANGE(0x10, 0x11) = ANY | PF3 | PF2, /* movups, movss, ... */
  TWO(0x12) = NP | PF3 | PF2,
  TWO(0x13) = ANY | MEM,
  TWO_RANGE(0x14, 0x15) = ANY,
  TWO(0x16) = NP | PF3,
  TWO(0x17) = ANY | MEM,
  TWO(0x1f) = ANY | MEM | CT_OP_NOP,
  TWO_RANGE(0x28, 0x29) = ANY,
  TWO(0x2a) = ANY | PF3 | PF2,
  TWO(0x2b) = ANY | MEM,
  TWO_RANGE(0x2c, 0x2d) = ANY | PF3 | PF2,
  TWO_RANGE(0x2e, 0x2f) = ANY | SET, /* ucomiss, comiss */
  TWO(0x31) = NP | NOMRM,                          /* rdtsc */
  TWO_RANGE(0x40, 0x4f) = ANY | RD,  /* cmovcc */
  TWO(0x50) = ANY | REG,
  TWO(0x51) = ANY | PF3 | PF2,
  TWO_RANGE(0x52, 0x53) = NP | PF3,
  TWO_RANGE(0x54, 0x57) = ANY,
  TWO_RANGE(0x58, 0x5a) = ANY | PF3 | PF2,
  TWO(0x5b) = ANY | PF3,
  TWO_RANGE(0x5c, 0x5f) = ANY | PF3 | PF2,
  TWO_RANGE(0x60, 0x6b) = ANY,
  TWO_RANGE(0x6c, 0x6d) = P66,
  TWO(0x6e) = ANY,
  TWO(0x6f) = ANY | PF3,
  TWO(0x70) = ANY | PF3 | PF2 | I8,
  TWO_RANGE(0x71, 0x72) = ANY | I8 | REG | GROUP(GROUP_12),
  TWO(0x73) = P66 | I8 | REG | GROUP(GROUP_14),
  TWO_RANGE(0x74, 0x76) = ANY,
  TWO(0x77) = NP | NOMRM,
  TWO_RANGE(0x7c, 0x7d) = P66 | PF2,
  TWO_RANGE(0x7e, 0x7f) = ANY | PF3,
  TWO_RANGE(0x80, 0x8f) = NP | I32 | RD | CT_OP_BRANCH | NOMRM,
  TWO_RANGE(0x90, 0x9f) = ANY | RD, /* setcc */
  TWO(0xa2) = NP | NOMRM,                         /* cpuid */
  TWO(0xa3) = ANY | SET,            /* bt */
  TWO(0xa4) = ANY | I8 | SET,       /* shld */
  TWO(0xa5) = ANY | SET,
  TWO(0xab) = ANY | SET,
  TWO(0xac) = ANY | I8 | SET,
  TWO(0xad) = ANY | SET,
  TWO(0xaf) = ANY | SET,              /* imul */
  TWO_RANGE(0xb0, 0xb1) = ANY | SET,  /* cmpxchg */
  TWO(0xb3) = ANY | SET,
  TWO_RANGE(0xb6, 0xb7) = ANY, /* movzx */
  TWO(0xb8) = PF3 | SET,       /* popcnt */
  TWO(0xba) = ANY | I8 | GROUP(GROUP_8),
  TWO(0xbb) = ANY | SET,
  TWO_RANGE(0xbc, 0xbd) = ANY | PF3 | SET, /* bsf, tzcnt, ... */
  TWO_RANGE(0xbe, 0xbf) = ANY,             /* movsx */
  TWO_RANGE(0xc0, 0xc1) = ANY | SET,       /* xadd */
  TWO(0xc2) = ANY | PF3 | PF2 | I8,
  TWO(0xc3) = NP | MEM,
  TWO(0xc4) = ANY | I8,
  TWO(0xc5) = ANY | REG | I8,
  TWO(0xc6) = ANY | I8,
  TWO_RANGE(0xc8, 0xcf) = ANY | NOMRM, /* bswap */
  TWO(0xd0) = P66 | PF2,
  TWO_RANGE(0xd1, 0xd5) = ANY,
  TWO(0xd6) = P66,
  TWO(0xd7) = ANY | REG,
  TWO_RANGE(0xd8, 0xdf) = ANY,
  TWO_RANGE(0xe0, 0xe5) = ANY,
  TWO(0xe6) = P66 | PF3 | PF2,
  TWO(0xe7) = ANY | MEM,
  TWO_RANGE(0xe8, 0xef) = ANY,
  TWO(0xf0) = PF2 | MEM,
  TWO_RANGE(0xf1, 0xf6) = ANY,
  TWO_RANGE(0xf8, 0xfe) = ANY,
};

#define MEMBERS(n, a, b, c, d, e, f, g, h)                                                                             \
  [8 * (n)] = (a), [8 * (n) + 1] = (b), [8 * (n) + 2] = (c), [8 * (n) + 3] = (d), [8 * (n) + 4] = (e),                 \
          [8 * (n) + 5] = (f), [8 * (n) + 6] = (g), [8 * (n) + 7] = (h)
static const uint32_t groups[8 * GROUP_COUNT] = {
  MEMBERS(GROUP_1, SET | CT_OP_ADD_IMM, SET, SET | RD, SET | RD, SET | CT_OP_WRITE_RM, SET | CT_OP_SUB_IMM, SET, SET),
  MEMBERS(GROUP_2, SET, SET, SET | RD, SET | RD, SET, SET, SET, SET),
  MEMBERS(GROUP_3, SET, SET, 0, SET, SET, SET, SET, SET),
  MEMBERS(GROUP_4, SET, SET, NONE, NONE, NONE, NONE, NONE, NONE),
  MEMBERS(GROUP_5, SET, SET, CT_OP_CALL_INDIRECT, NONE, CT_OP_JUMP_INDIRECT, NONE, CT_OP_PUSH, NONE),
  MEMBERS(GROUP_8, NONE, NONE, NONE, NONE, SET, SET, SET, SET),
  MEMBERS(GROUP_11B, CT_OP_WRITE_RM, NONE, NONE, NONE, NONE, NONE, NONE, NONE),
  MEMBERS(GROUP_11, CT_OP_MOV_IMM, NONE, NONE, NONE, NONE, NONE, NONE, NONE),
  MEMBERS(GROUP_POP, CT_OP_POP, NONE, NONE, NONE, NONE, NONE, NONE, NONE),
  MEMBERS(GROUP_12, NONE, NONE, 0, NONE, 0, NONE, 0, NONE),
  MEMBERS(GROUP_14, NONE, NONE, 0, 0, NONE, NONE, 0, 0),
  MEMBERS(GROUP_D9, 0, NONE, 0, 0, 0, 0, 0, 0),
  MEMBERS(GROUP_DB, 0, 0, 0, 0, NONE, 0, NONE, 0),
  MEMBERS(GROUP_DD, 0, 0, 0, 0, 0, NONE, 0, 0),
};

#define PREFIX_IGNORED 1u
#define PREFIX_STOP    2u
static const uint32_t prefixes[256] = {
  [0x66] = P66, [0xf3] = PF3, [0xf2] = PF2,
  [0x26] = PREFIX_IGNORED, [0x2e] = PREFIX_IGNORED, [0x36] = PREFIX_IGNORED, [0x3e] = PREFIX_IGNORED,
  [0x64] = PREFIX_IGNORED, [0x65] = PREFIX_STOP, [0x67] = PREFIX_STOP, [0xf0] = PREFIX_STOP,
};

/*
 * By ModRM, and from 256 on for opcodes without one: bytes of displacement (0..2), of ModRM, SIB and displacement
 * together (4..7), whether it is memory, and what the opcode must not have asked for (MEM, REG, NONE).
 */
#define M_BASE5      (1u << 3) /* has SIB; with base 5: 4 bytes more */
#define TAIL(bytes)  ((uint32_t)(bytes) << 4)
#define IN_MEMORY    (CT_INSN_MEMORY | REG | NONE)
#define EIGHT(a, sib, five) (a), (a), (a), (a), (sib), (five), (a), (a)
#define ROW(a, sib, five)                                                                                              \
  EIGHT(a, sib, five), EIGHT(a, sib, five), EIGHT(a, sib, five), EIGHT(a, sib, five), EIGHT(a, sib, five),             \
      EIGHT(a, sib, five), EIGHT(a, sib, five), EIGHT(a, sib, five)
static const uint32_t modrms[512] = {
  ROW(IN_MEMORY | TAIL(1), IN_MEMORY | M_BASE5 | TAIL(2), IN_MEMORY | TAIL(5) | 4),
  ROW(IN_MEMORY | TAIL(2) | 1, IN_MEMORY | TAIL(3) | 1, IN_MEMORY | TAIL(2) | 1),
  ROW(IN_MEMORY | TAIL(5) | 4, IN_MEMORY | TAIL(6) | 4, IN_MEMORY | TAIL(5) | 4),
  ROW(MEM | NONE | TAIL(1), MEM | NONE | TAIL(1), MEM | NONE | TAIL(1)),
};
/* clang-format on */

enum { PREFIXES_MAX = 7 };

/* Passes over the legacy prefixes at *at. The bit of the table that they ask for, or 0 when that is not known. */
static inline uint32_t
read_prefixes(const uint8_t **at)
{
  uint32_t needed = NP;
  for (int n = 0; n < PREFIXES_MAX; n++) {
    uint32_t prefix = prefixes[**at];
    if (prefix == 0) {
      return needed;
    }
    if (prefix == PREFIX_STOP || (needed != NP && prefix != PREFIX_IGNORED && prefix != needed)) {
      return 0;
    }
    needed = prefix != PREFIX_IGNORED ? prefix : needed;
    (*at)++;
  }
  return 0;
}

/* endbr64 is known by name: the other things that F3 0F 1E may be are not. */
static bool
is_endbr(const uint8_t *at, uint32_t needed)
{
  return needed == PF3 && memcmp(at, "\x0f\x1e\xfa", 3) == 0;
}

/* The size of an immediate that depends on more than the opcode. */
static unsigned
odd_immediate(uint32_t word, uint32_t needed, unsigned rex, unsigned modrm)
{
  if ((word & TEST) != 0 && (modrm >> 3 & 7) > 1) {
    return 0;
  }
  if ((word & IMMV) != 0 && (rex & 8) != 0) {
    return 8;
  }
  return (word & IMMZ) != 0 && needed == P66 && (rex & 8) == 0 ? 2 : word >> IMM_SHIFT & 7;
}

static bool decode_copy(const uint8_t *code, size_t size, struct ct_insn *out);
static bool decode_vector(const uint8_t *code, struct ct_insn *out);

bool
ct_decode_fast(const uint8_t *code, size_t size, struct ct_insn *out)
{
  if (CT_UNLIKELY(size < CT_DECODE_READABLE)) {
    return decode_copy(code, size, out);
  }
  const uint8_t *at = code;
  uint32_t needed = NP;
  if (CT_UNLIKELY(prefixes[*at] != 0)) {
    needed = read_prefixes(&at);
    if (is_endbr(at, needed)) {
      *out = (struct ct_insn){.code = code, .length = (uint8_t)(at + 3 - code)};
      return true;
    }
  }
  /* Up to here 7 bytes, in window the next 8, of which at most REX, 2 of opcode, ModRM and SIB are used. */
  uint64_t window;
  memcpy(&window, at, sizeof(window));
  unsigned has_rex = (window & 0xf0) == 0x40;
  unsigned rex = (unsigned)window & -has_rex;
  window >>= 8 * has_rex;
  unsigned length = (unsigned)(at - code) + has_rex + 1;
  unsigned opcode = window & 0xff;
  window >>= 8;
  if (opcode == 0x0f) {
    opcode = 0x100 | (window & 0xff);
    window >>= 8;
    length++;
  }
  uint32_t word = words[opcode];
  unsigned modrm = window & 0xff, sib = window >> 8 & 0xff;
  uint32_t kind = modrms[modrm | (word & NOMRM)];
  bool known = (word & needed) != 0;
  word |= groups[(word >> GROUP_SHIFT) + (modrm >> 3 & 7)];
  if (CT_UNLIKELY(!known || (word & kind & (MEM | REG | NONE)) != 0)) {
    return (*code == 0xc5 || *code == 0xc4 || *code == 0x62) && decode_vector(code, out);
  }
  unsigned disp_bytes = kind & 7;
  length += kind >> 4 & 15;
  if ((kind & M_BASE5) != 0 && (sib & 7) == 5) {
    disp_bytes = 4;
    length += 4;
  }
  unsigned imm_bytes = word >> IMM_SHIFT & 7;
  if (CT_UNLIKELY((word & (IMMV | TEST)) != 0 || needed == P66)) {
    imm_bytes = odd_immediate(word, needed, rex, modrm);
  }
  length += imm_bytes;
  out->code = code;
  out->word = word;
  out->kind = kind;
  out->length = (uint8_t)length;
  out->disp_bytes = (uint8_t)disp_bytes;
  out->imm_bytes = (uint8_t)imm_bytes;
  out->address = (uint16_t)window;
  out->rex = (uint8_t)rex;
  return length <= CT_INSN_BYTES_MAX;
}

/* Near the end of what may be read. */
static __attribute__((noinline)) bool
decode_copy(const uint8_t *code, size_t size, struct ct_insn *out)
{
  uint8_t copy[CT_DECODE_READABLE] = {0};
  memcpy(copy, code, size);
  bool known = ct_decode_fast(copy, sizeof(copy), out) && out->length <= size;
  out->code = code;
  return known;
}

const ZydisDecoder *
ct_zydis_decoder(void)
{
  static _Thread_local ZydisDecoder instance;
  static _Thread_local bool ready;
  if (!ready) {
    ZydisDecoderInit(&instance, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    ready = true;
  }
  return &instance;
}

/*
 * Of 0x67 and REX.B Zydis 4.0 takes a SIB byte that says "no base, 32 bits of displacement" for one with r13d and no
 * displacement. The length is right.
 */
static void
mend_base(const ZydisDecodedInstruction *in, ZydisDecodedOperand *operand)
{
  bool has_none = in->raw.modrm.mod == 0 && in->raw.modrm.rm == 4 && in->raw.sib.base == 5;
  if (operand->type == ZYDIS_OPERAND_TYPE_MEMORY && operand->encoding == ZYDIS_OPERAND_ENCODING_MODRM_RM && has_none &&
      in->address_width == 32) {
    operand->mem.base = ZYDIS_REGISTER_NONE;
    operand->mem.disp.has_displacement = ZYAN_TRUE;
    operand->mem.disp.value = in->raw.disp.value;
  }
}

bool
ct_zydis_decode(const uint8_t *code, size_t size, ZydisDecodedInstruction *in,
                ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT])
{
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(ct_zydis_decoder(), code, size, in, operands))) {
    return false;
  }
  for (unsigned i = 0; i < in->operand_count; i++) {
    mend_base(in, &operands[i]);
  }
  return true;
}

static bool
has_memory(const ZydisDecodedInstruction *in)
{
  return (in->attributes & ZYDIS_ATTRIB_HAS_MODRM) != 0 && in->raw.modrm.mod != 3;
}

/* B, X and R: inverted in VEX and EVEX, and Zydis gives them as they stand. */
static uint8_t
rex_of(const ZydisDecodedInstruction *in)
{
  switch (in->encoding) {
  case ZYDIS_INSTRUCTION_ENCODING_VEX:
    return 7 ^ (uint8_t)(in->raw.vex.B | in->raw.vex.X << 1 | in->raw.vex.R << 2);
  case ZYDIS_INSTRUCTION_ENCODING_EVEX:
    return 7 ^ (uint8_t)(in->raw.evex.B | in->raw.evex.X << 1 | in->raw.evex.R << 2);
  default:
    return (uint8_t)(in->raw.rex.B | in->raw.rex.X << 1 | in->raw.rex.R << 2);
  }
}

static uint8_t
traits_of(const ZydisDecodedInstruction *in)
{
  const ZyanU32 arithmetic =
      ZYDIS_CPUFLAG_CF | ZYDIS_CPUFLAG_PF | ZYDIS_CPUFLAG_AF | ZYDIS_CPUFLAG_ZF | ZYDIS_CPUFLAG_SF | ZYDIS_CPUFLAG_OF;
  uint8_t traits = 0;
  const ZydisAccessedFlags *flags = in->cpu_flags;
  if (flags != NULL && (flags->tested & arithmetic) != 0) {
    traits |= CT_TRAIT_READS_FLAGS;
  }
  if (flags != NULL && (flags->modified | flags->set_0 | flags->set_1 | flags->undefined) != 0) {
    traits |= CT_TRAIT_SETS_FLAGS;
  }
  if ((in->attributes & ZYDIS_ATTRIB_HAS_SEGMENT_GS) != 0 || in->mnemonic == ZYDIS_MNEMONIC_WRGSBASE) {
    traits |= CT_TRAIT_GS;
  }
  return traits;
}

/* What it does to the stack or to a register, by mnemonic. */
static uint8_t
effect_of(const ZydisDecodedInstruction *in)
{
  bool has_modrm = (in->attributes & ZYDIS_ATTRIB_HAS_MODRM) != 0;
  switch (in->mnemonic) {
  case ZYDIS_MNEMONIC_NOP:
    return has_memory(in) ? CT_OP_NOP : CT_OP_OTHER;
  case ZYDIS_MNEMONIC_PUSH:
  case ZYDIS_MNEMONIC_PUSHFQ:
    return CT_OP_PUSH;
  case ZYDIS_MNEMONIC_POP:
    return CT_OP_POP;
  case ZYDIS_MNEMONIC_POPFQ:
    return CT_OP_POP_FLAGS;
  case ZYDIS_MNEMONIC_LEAVE:
    return CT_OP_LEAVE;
  case ZYDIS_MNEMONIC_LEA:
    return CT_OP_LEA;
  case ZYDIS_MNEMONIC_UD0:
  case ZYDIS_MNEMONIC_UD1:
  case ZYDIS_MNEMONIC_UD2:
  case ZYDIS_MNEMONIC_HLT:
    return CT_OP_TRAP;
  case ZYDIS_MNEMONIC_ADD:
  case ZYDIS_MNEMONIC_SUB:
    if (has_modrm && in->raw.imm[0].size != 0) {
      return in->mnemonic == ZYDIS_MNEMONIC_ADD ? CT_OP_ADD_IMM : CT_OP_SUB_IMM;
    }
    return has_modrm ? CT_OP_WRITE_RM : CT_OP_OTHER;
  case ZYDIS_MNEMONIC_AND:
    return has_modrm ? CT_OP_WRITE_RM : CT_OP_OTHER;
  case ZYDIS_MNEMONIC_MOV:
    if (in->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && (in->opcode == 0xb8 || in->opcode == 0xc7)) {
      return CT_OP_MOV_IMM;
    }
    return has_modrm && in->opcode != 0x8b ? CT_OP_WRITE_RM : CT_OP_OTHER;
  default:
    return CT_OP_OTHER;
  }
}

static uint8_t
op_of(const ZydisDecodedInstruction *in)
{
  bool relative = in->raw.imm[0].is_relative;
  switch (in->meta.category) {
  case ZYDIS_CATEGORY_CALL:
    return relative ? CT_OP_CALL : CT_OP_CALL_INDIRECT;
  case ZYDIS_CATEGORY_SYSCALL:
    return in->mnemonic == ZYDIS_MNEMONIC_SYSCALL ? CT_OP_SYSCALL : CT_OP_CALL_INDIRECT;
  case ZYDIS_CATEGORY_UNCOND_BR:
    return relative ? CT_OP_JUMP : CT_OP_JUMP_INDIRECT;
  case ZYDIS_CATEGORY_COND_BR:
    return relative ? CT_OP_BRANCH : CT_OP_CALL_INDIRECT;
  case ZYDIS_CATEGORY_RET:
    return in->opcode == 0xc2 ? CT_OP_RET_IMM : CT_OP_RET;
  default:
    return effect_of(in);
  }
}

/*
 * A form of a VEX or EVEX instruction, and what is known of it:
 *
 *    26   25  24 22   21   20  19  18  17 16  15    8  7   6    5   4    3 2  1 0
 *   +----+---+-----+------+---+---+---+------+--------+---+----+---+----+----+----+
 *   | R' | R | reg |by reg|aaa| b | z |  LL  | opcode | W |EVEX|reg|vvvv| map| pp |
 *   +----+---+-----+------+---+---+---+------+--------+---+----+---+----+----+----+
 *
 *   reg (5)   ModRM is of a register, not of memory
 *   vvvv      it is all ones, as it must be where it names no register; aaa: it is not 0
 *   by reg    ModRM's reg and its other bits are looked at too, else they are 0
 */
enum { FORM_LEFT = 1, FORM_KNOWN, FORM_BY_REG, FORM_BARE }; /* bare: without ModRM */
#define FORM_KIND    7u
#define FORM_IMM8    8u
#define FORM_SETS    16u
#define FORM_SHIFT   5
#define FORM_IS_REG  (1u << 5)
#define FORM_IS_EVEX (1u << 6)
#define FORM_HAS_REG (1u << 21)
#define FORMS_BITS   12

/* May its registers be any, by the bits that the form leaves out? *by_reg: but for those of ModRM's reg. */
static bool
registers_are_free(const ZydisDecodedOperand *operand, uint32_t form, bool *by_reg)
{
  if (operand->type == ZYDIS_OPERAND_TYPE_MEMORY) {
    return operand->mem.type == ZYDIS_MEMOP_TYPE_MEM;
  }
  if (operand->type != ZYDIS_OPERAND_TYPE_REGISTER || operand->encoding == ZYDIS_OPERAND_ENCODING_MASK) {
    return true;
  }
  switch (ZydisRegisterGetClass(operand->reg.value)) {
  case ZYDIS_REGCLASS_XMM:
  case ZYDIS_REGCLASS_YMM:
  case ZYDIS_REGCLASS_ZMM:
    return true;
  case ZYDIS_REGCLASS_GPR32:
  case ZYDIS_REGCLASS_GPR64:
    return (form & FORM_IS_EVEX) == 0; /* which has 32, and of these only 16 */
  case ZYDIS_REGCLASS_MASK:
    *by_reg = true;
    return operand->encoding == ZYDIS_OPERAND_ENCODING_MODRM_REG;
  default:
    return false;
  }
}

/*
 * What all instructions of a form have in common, by Zydis and the one at code. Left to Zydis are those where the bits
 * that are no part of the form matter: gathers (their registers must differ, and ModRM must have a SIB), tiles, mask
 * registers in other places than ModRM's reg, general registers with EVEX, and opcodes that go on in ModRM's rm.
 */
static __attribute__((noinline)) uint32_t
ask(const uint8_t *code, uint32_t form)
{
  ZydisDecoderContext context;
  ZydisDecodedInstruction in;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(ct_zydis_decoder(), &context, code, CT_DECODE_READABLE, &in)) ||
      !ZYAN_SUCCESS(
          ZydisDecoderDecodeOperands(ct_zydis_decoder(), &context, &in, operands, in.operand_count_visible))) {
    return FORM_LEFT;
  }
  unsigned imm_bits = in.raw.imm[0].size + in.raw.imm[1].size, traits = traits_of(&in);
  bool has_modrm = (in.attributes & ZYDIS_ATTRIB_HAS_MODRM) != 0, has_reg = false, has_rm = false, by_reg = false;
  if (op_of(&in) != CT_OP_OTHER || (traits & ~CT_TRAIT_SETS_FLAGS) != 0 || (imm_bits != 0 && imm_bits != 8)) {
    return FORM_LEFT;
  }
  for (unsigned i = 0; i < in.operand_count_visible; i++) {
    if (!registers_are_free(&operands[i], form, &by_reg)) {
      return FORM_LEFT;
    }
    has_reg |= operands[i].encoding == ZYDIS_OPERAND_ENCODING_MODRM_REG;
    has_rm |= operands[i].encoding == ZYDIS_OPERAND_ENCODING_MODRM_RM;
  }
  if (has_modrm && !has_rm) {
    return FORM_LEFT;
  }
  if (has_modrm && (!has_reg || by_reg) && (form & FORM_HAS_REG) == 0) {
    return FORM_BY_REG;
  }
  return (has_modrm ? FORM_KNOWN : FORM_BARE) | (imm_bits != 0 ? FORM_IMM8 : 0) | (traits != 0 ? FORM_SETS : 0);
}

static inline uint32_t
find_form(const uint8_t *code, uint32_t form)
{
  static _Thread_local uint32_t forms[1u << FORMS_BITS]; /* by a hash: form and what is known, 0 nothing */
  uint32_t *place = &forms[form * 0x9e3779b1u >> (32 - FORMS_BITS)];
  if (CT_UNLIKELY(*place >> FORM_SHIFT != form)) {
    *place = form << FORM_SHIFT | ask(code, form);
  }
  return *place;
}

/* At code are C5, C4 or 62 and CT_DECODE_READABLE bytes. */
static bool
decode_vector(const uint8_t *code, struct ct_insn *out)
{
  bool evex = code[0] == 0x62;
  unsigned first = code[1], second = code[2], third = 0, head = 3; /* RXB R' map; W vvvv L pp; z LL b V' aaa */
  if (code[0] == 0xc5) {
    first = 0x61 | (code[1] & 0x80);
    second = code[1] & 0x7f;
    head = 2;
  } else if (evex) {
    third = code[3];
    head = 4;
  }
  unsigned map = first & (evex ? 0x0f : 0x1f), opcode = code[head], modrm = code[head + 1], sib = code[head + 2];
  if (map < 1 || map > 3 || (evex && (second & 4) == 0)) {
    return false;
  }
  bool no_register = (second & 0x78) == 0x78 && (!evex || (third & 8) != 0);
  unsigned vector_length = evex ? third >> 5 & 3 : second >> 2 & 1;
  uint32_t form = (second & 0x83) | map << 2 | (uint32_t)no_register << 4 | (modrm >= 0xc0 ? FORM_IS_REG : 0) |
                  (evex ? FORM_IS_EVEX : 0) | opcode << 8 | vector_length << 16 | (third >> 7) << 18 |
                  (third >> 4 & 1) << 19 | (uint32_t)((third & 7) != 0) << 20;
  uint32_t found = find_form(code, form);
  if ((found & FORM_KIND) == FORM_BY_REG) {
    form |= FORM_HAS_REG | (modrm >> 3 & 7) << 22 | first >> 7 << 25 | (first >> 4 & 1) << 26;
    found = find_form(code, form);
  }
  if ((found & FORM_KIND) == FORM_LEFT) {
    return false;
  }
  bool bare = (found & FORM_KIND) == FORM_BARE;
  uint32_t kind = bare ? 0 : modrms[modrm];
  bool four_more = (kind & M_BASE5) != 0 && (sib & 7) == 5;
  unsigned imm_bytes = (found & FORM_IMM8) != 0;
  *out = (struct ct_insn){.code = code,
                          .word = (bare ? CT_INSN_NO_MODRM : 0) | ((found & FORM_SETS) != 0 ? SET : 0),
                          .kind = kind,
                          .length = (uint8_t)(head + 1 + (kind >> 4 & 15) + (four_more ? 4 : 0) + imm_bytes),
                          .disp_bytes = (uint8_t)(four_more ? 4 : kind & 7),
                          .imm_bytes = (uint8_t)imm_bytes,
                          .address = (uint16_t)(modrm | sib << 8),
                          .rex = 7 ^ (uint8_t)((first >> 5 & 1) | (first >> 6 & 1) << 1 | (first >> 7) << 2)};
  return true;
}

bool
ct_decode_full(const uint8_t *code, size_t size, struct ct_insn *out)
{
  ZydisDecodedInstruction in;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(ct_zydis_decoder(), NULL, code, size, &in))) {
    return false;
  }
  *out = (struct ct_insn){.code = code, .length = in.length, .rex = rex_of(&in)};
  out->word = op_of(&in) | CT_INSN_NO_MODRM | (uint32_t)traits_of(&in) << CT_INSN_TRAITS_SHIFT;
  out->kind = has_memory(&in) ? CT_INSN_MEMORY : 0;
  out->imm_bytes = (uint8_t)((in.raw.imm[0].size + in.raw.imm[1].size) / 8);
  if ((in.attributes & ZYDIS_ATTRIB_HAS_MODRM) != 0) {
    out->word &= ~CT_INSN_NO_MODRM;
    unsigned modrm = in.raw.modrm.mod << 6 | in.raw.modrm.reg << 3 | in.raw.modrm.rm;
    unsigned sib = in.raw.sib.scale << 6 | in.raw.sib.index << 3 | in.raw.sib.base;
    out->address = (uint16_t)(modrm | sib << 8);
    out->disp_bytes = in.raw.disp.size / 8;
  }
  return true;
}

uint64_t
ct_decoder_version(void)
{
  return ZydisGetVersion();
}
