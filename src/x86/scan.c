/* SPDX-License-Identifier: MIT */
/*
 * The scanner; see scan.h. A linear walk over each function's bytes with Zydis.
 *
 * A function touches its own return-address slot when, with the CFA known from its CFI row (rsp- or rbp-based), an
 * operand addresses CFA-8, when it pops with CFA = rsp+8, or when a row places the CFA closer than 8 to rsp. gcc's
 * realigning prologue, `push -8(%r10)`, copies the slot for debuggers only and is addressed off r10: not counted.
 * Without CFI the depth of the stack is followed from push, pop, sub, add, lea and leave, and handed over to branch
 * targets inside the function; behind a jump with no known depth nothing is concluded until the next known one.
 *
 * How it can err: code that is reached only through a table of addresses is seen (the walk is linear), but jumps
 * there are not known as branch targets. A body with data in it may be decoded wrongly: a fact too many, at worst.
 */
#include "x86/scan.h"

#include <Zydis/Zydis.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_UNKNOWN INT32_MIN
#define DEPTH_WINDOW  512 /* branch targets remembered for functions without CFI */

static int
targets_init(struct ct_targets *targets, uint64_t start, uint64_t end)
{
  targets->start = start;
  targets->end = end;
  targets->bits = calloc((size_t)((end - start) / 64 + 1), sizeof(uint64_t));
  return targets->bits == NULL ? CT_ENOMEM : 0;
}

void
ct_targets_add(struct ct_targets *targets, uint64_t address)
{
  if (address >= targets->start && address < targets->end) {
    uint64_t bit = address - targets->start;
    targets->bits[bit / 64] |= 1ull << (bit % 64);
  }
}

bool
ct_targets_has(const struct ct_targets *targets, uint64_t address)
{
  if (address < targets->start || address >= targets->end) {
    return false;
  }
  uint64_t bit = address - targets->start;
  return (targets->bits[bit / 64] >> (bit % 64) & 1) != 0;
}

int
ct_scan_init(struct ct_scan *scan, uint64_t start, uint64_t end)
{
  memset(scan, 0, sizeof(*scan));
  if (end < start || end - start > (1ull << 36)) {
    return CT_EFORMAT;
  }
  int code = targets_init(&scan->targets, start, end);
  return code != 0 ? code : targets_init(&scan->flag_results, start, end);
}

void
ct_scan_free(struct ct_scan *scan)
{
  free(scan->targets.bits);
  free(scan->flag_results.bits);
  free(scan->tail_jumps);
  memset(scan, 0, sizeof(*scan));
}

static int
add_tail_jump(struct ct_scan *scan, uint32_t function, uint64_t target)
{
  if (scan->tail_jump_count == scan->tail_jump_capacity) {
    size_t grown = scan->tail_jump_capacity == 0 ? 1024 : scan->tail_jump_capacity * 2;
    struct ct_tail_jump *jumps = realloc(scan->tail_jumps, grown * sizeof(*jumps));
    if (jumps == NULL) {
      return CT_ENOMEM;
    }
    scan->tail_jumps = jumps;
    scan->tail_jump_capacity = grown;
  }
  scan->tail_jumps[scan->tail_jump_count++] = (struct ct_tail_jump){function, target};
  return 0;
}

int
ct_scan_merge(struct ct_scan *scan, const struct ct_scan *part)
{
  size_t words = (size_t)((scan->targets.end - scan->targets.start) / 64 + 1);
  for (size_t i = 0; i < words; i++) {
    scan->targets.bits[i] |= part->targets.bits[i];
    scan->flag_results.bits[i] |= part->flag_results.bits[i];
  }
  int code = 0;
  for (size_t i = 0; i < part->tail_jump_count && code == 0; i++) {
    code = add_tail_jump(scan, part->tail_jumps[i].function, part->tail_jumps[i].target);
  }
  return code;
}

struct known_depth {
  uint64_t address;
  int32_t depth;
};

struct walk {
  struct ct_scan *scan;
  uint32_t function;
  uint64_t start, end;
  const struct ct_cfi_row *rows;
  size_t row_count, row;
  int32_t depth; /* without CFI: CFA - rsp */
  struct known_depth known[64];
  size_t known_count;
  int facts;
  bool flags_set;        /* an instruction of the entry's straight line has set flags */
  bool entry_line;       /* still on it */
  uint64_t flags_callee; /* target of the call we stand behind while no instruction has set flags, 0 none */
  uint32_t eax;          /* last constant moved to eax */
  bool eax_known;
};

/* The CFA as register and offset at the walk's address; false when unknown. */
static bool
cfa_at(struct walk *walk, uint64_t address, uint8_t *reg, int32_t *offset)
{
  if (walk->row_count != 0) {
    while (walk->row + 1 < walk->row_count && walk->rows[walk->row + 1].pc <= address) {
      walk->row++;
    }
    const struct ct_cfi_row *row = &walk->rows[walk->row];
    if (row->pc > address || row->cfa_reg == 0xff) {
      return false;
    }
    *reg = row->cfa_reg;
    *offset = row->cfa_offset;
    return true;
  }
  for (size_t i = 0; i < walk->known_count; i++) {
    if (walk->known[i].address == address) {
      walk->depth = walk->known[i].depth;
    }
  }
  if (walk->depth == DEPTH_UNKNOWN) {
    return false;
  }
  *reg = 7;
  *offset = walk->depth;
  return true;
}

static bool
has_memory(const ZydisDecodedInstruction *in)
{
  return (in->attributes & ZYDIS_ATTRIB_HAS_MODRM) != 0 && in->raw.modrm.mod != 3;
}

/* DWARF number (7 rsp, 6 rbp) of a base register without index, or -1. */
static int
plain_base(const ZydisDecodedInstruction *in)
{
  if (!has_memory(in)) {
    return -1;
  }
  /* The extensions of base and index: inverted in VEX and EVEX, and Zydis gives them as they stand. */
  unsigned rexb = in->raw.rex.B, rexx = in->raw.rex.X;
  if (in->encoding == ZYDIS_INSTRUCTION_ENCODING_VEX) {
    rexb = !in->raw.vex.B;
    rexx = !in->raw.vex.X;
  } else if (in->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX) {
    rexb = !in->raw.evex.B;
    rexx = !in->raw.evex.X;
  }
  if (in->raw.modrm.rm == 4) {
    if (in->raw.sib.index != 4 || rexx != 0) {
      return -1;
    }
    if (in->raw.sib.base == 4 && rexb == 0) {
      return 7;
    }
    return in->raw.sib.base == 5 && in->raw.modrm.mod != 0 && rexb == 0 ? 6 : -1;
  }
  return in->raw.modrm.rm == 5 && in->raw.modrm.mod != 0 && rexb == 0 ? 6 : -1;
}

static void
check_slot(struct walk *walk, const ZydisDecodedInstruction *in, uint64_t address)
{
  uint8_t reg;
  int32_t offset;
  if (!cfa_at(walk, address, &reg, &offset)) {
    return;
  }
  if (reg == 7 && offset < 8) {
    walk->facts |= CT_FACT_TOUCHES_SLOT;
  }
  if (reg == 7 && offset == 8 && in->mnemonic == ZYDIS_MNEMONIC_POP) {
    walk->facts |= CT_FACT_TOUCHES_SLOT;
  }
  int base = plain_base(in);
  if (base >= 0 && base == reg && in->raw.disp.value - offset == -8 && in->mnemonic != ZYDIS_MNEMONIC_NOP) {
    walk->facts |= CT_FACT_TOUCHES_SLOT;
  }
}

/* Without CFI: what the instruction does to the depth. Operands are decoded for the few that matter. */
static void
follow_depth(struct walk *walk, const ZydisDecodedInstruction *in)
{
  if (walk->row_count != 0 || walk->depth == DEPTH_UNKNOWN) {
    return;
  }
  bool on_rsp = (in->attributes & ZYDIS_ATTRIB_HAS_MODRM) != 0 && in->raw.modrm.mod == 3 && in->raw.modrm.rm == 4 &&
                in->raw.rex.B == 0;
  switch (in->mnemonic) {
  case ZYDIS_MNEMONIC_PUSH:
  case ZYDIS_MNEMONIC_PUSHFQ:
    walk->depth += 8;
    break;
  case ZYDIS_MNEMONIC_POP:
  case ZYDIS_MNEMONIC_POPFQ:
    walk->depth -= 8;
    break;
  case ZYDIS_MNEMONIC_SUB:
  case ZYDIS_MNEMONIC_ADD:
    if (on_rsp && in->raw.imm[0].size != 0) {
      int32_t by = (int32_t)in->raw.imm[0].value.s;
      walk->depth += in->mnemonic == ZYDIS_MNEMONIC_SUB ? by : -by;
    } else if (on_rsp) {
      walk->depth = DEPTH_UNKNOWN;
    }
    break;
  case ZYDIS_MNEMONIC_LEA:
    if (in->raw.modrm.reg == 4 && in->raw.rex.R == 0) {
      walk->depth = plain_base(in) == 7 ? walk->depth - (int32_t)in->raw.disp.value : DEPTH_UNKNOWN;
    }
    break;
  case ZYDIS_MNEMONIC_LEAVE:
    walk->depth = 8;
    break;
  case ZYDIS_MNEMONIC_AND:
  case ZYDIS_MNEMONIC_MOV:
    if (on_rsp && in->opcode != 0x8b) {
      walk->depth = DEPTH_UNKNOWN;
    }
    break;
  default:
    break;
  }
}

static void
note_depth(struct walk *walk, uint64_t target)
{
  if (walk->row_count == 0 && walk->depth != DEPTH_UNKNOWN && walk->known_count < 64 && target > walk->start &&
      target < walk->end) {
    walk->known[walk->known_count++] = (struct known_depth){target, walk->depth};
  }
}

static bool
reads_flags(const ZydisDecodedInstruction *in)
{
  const ZyanU32 arithmetic =
      ZYDIS_CPUFLAG_CF | ZYDIS_CPUFLAG_PF | ZYDIS_CPUFLAG_AF | ZYDIS_CPUFLAG_ZF | ZYDIS_CPUFLAG_SF | ZYDIS_CPUFLAG_OF;
  return in->cpu_flags != NULL && (in->cpu_flags->tested & arithmetic) != 0;
}

static bool
sets_flags(const ZydisDecodedInstruction *in)
{
  return in->cpu_flags != NULL &&
         (in->cpu_flags->modified | in->cpu_flags->set_0 | in->cpu_flags->set_1 | in->cpu_flags->undefined) != 0;
}

static void
follow_flags(struct walk *walk, const ZydisDecodedInstruction *in)
{
  bool is_call = in->meta.category == ZYDIS_CATEGORY_CALL || in->meta.category == ZYDIS_CATEGORY_SYSCALL;
  if (!walk->flags_set && walk->entry_line && reads_flags(in)) {
    walk->facts |= CT_FACT_FLAGS_IN;
  }
  if (walk->flags_callee != 0 && reads_flags(in)) {
    ct_targets_add(&walk->scan->flag_results, walk->flags_callee);
  }
  bool branches = in->meta.category == ZYDIS_CATEGORY_COND_BR || in->meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
                  in->meta.category == ZYDIS_CATEGORY_RET;
  if (sets_flags(in) || is_call || branches) {
    walk->flags_set = true;
    walk->flags_callee = 0;
  }
  if (branches || is_call) {
    walk->entry_line = false;
  }
}

static void
follow_syscalls(struct walk *walk, const ZydisDecodedInstruction *in, uint64_t address)
{
  if (in->opcode == 0xb8 && in->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && in->raw.rex.B == 0) {
    walk->eax = (uint32_t)in->raw.imm[0].value.u;
    walk->eax_known = true;
  } else if (in->opcode == 0xc7 && in->raw.modrm.mod == 3 && in->raw.modrm.rm == 0 && in->raw.rex.B == 0 &&
             in->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT) {
    walk->eax = (uint32_t)in->raw.imm[0].value.u;
    walk->eax_known = true;
  }
  if (in->mnemonic != ZYDIS_MNEMONIC_SYSCALL || !walk->eax_known) {
    return;
  }
  switch (walk->eax) {
  case 56:  /* clone */
  case 57:  /* fork */
  case 435: /* clone3 */
    walk->facts |= CT_FACT_CLONE;
    break;
  case 58:
    walk->facts |= CT_FACT_VFORK;
    break;
  case 59:
  case 322:
    walk->facts |= CT_FACT_EXEC;
    break;
  case 15:
    if (address - walk->start <= 9) {
      walk->facts |= CT_FACT_SIGRETURN;
    }
    break;
  default:
    break;
  }
  walk->eax_known = false;
}

static int
follow_branches(struct walk *walk, const ZydisDecodedInstruction *in, uint64_t address)
{
  uint64_t next = address + in->length;
  if (in->raw.imm[0].is_relative) {
    uint64_t target = next + (uint64_t)in->raw.imm[0].value.s;
    ct_targets_add(&walk->scan->targets, target);
    note_depth(walk, target);
    if (in->meta.category == ZYDIS_CATEGORY_CALL) {
      walk->flags_callee = target;
    } else if (target == walk->start || target == walk->start + 4) { /* or behind its endbr64 */
      walk->facts |= CT_FACT_SELF_BRANCH;
    } else if (target < walk->start || target >= walk->end) {
      return add_tail_jump(walk->scan, walk->function, target);
    }
  } else if (has_memory(in) && in->raw.modrm.mod == 0 && in->raw.modrm.rm == 5 && in->mnemonic == ZYDIS_MNEMONIC_LEA) {
    ct_targets_add(&walk->scan->targets, next + (uint64_t)in->raw.disp.value);
  }
  if (in->meta.category == ZYDIS_CATEGORY_RET && in->opcode == 0xc2) {
    walk->facts |= CT_FACT_RET_IMM;
  }
  if (in->meta.category == ZYDIS_CATEGORY_RET || in->meta.category == ZYDIS_CATEGORY_UNCOND_BR) {
    walk->depth = DEPTH_UNKNOWN;
  }
  return 0;
}

int
ct_scan_function(struct ct_scan *scan, uint32_t function, const uint8_t *code, uint64_t address, size_t size,
                 const struct ct_cfi_row *rows, size_t row_count)
{
  static _Thread_local ZydisDecoder decoder;
  static _Thread_local bool ready;
  if (!ready) {
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    ready = true;
  }
  struct walk walk = {.scan = scan,
                      .function = function,
                      .start = address,
                      .end = address + size,
                      .rows = rows,
                      .row_count = row_count,
                      .depth = 8,
                      .entry_line = true};
  size_t at = 0;
  while (at < size) {
    ZydisDecodedInstruction in;
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, NULL, code + at, size - at, &in))) {
      walk.facts |= CT_FACT_UNDECODED;
      walk.entry_line = false;
      at++;
      continue;
    }
    uint64_t here = address + at;
    check_slot(&walk, &in, here);
    follow_depth(&walk, &in);
    follow_flags(&walk, &in);
    follow_syscalls(&walk, &in, here);
    int code_or_error = follow_branches(&walk, &in, here);
    if (code_or_error != 0) {
      return code_or_error;
    }
    if ((in.attributes & ZYDIS_ATTRIB_HAS_SEGMENT_GS) != 0 || in.mnemonic == ZYDIS_MNEMONIC_WRGSBASE) {
      walk.facts |= CT_FACT_GS;
    }
    at += in.length;
  }
  return walk.facts;
}
