/* SPDX-License-Identifier: MIT */
/*
 * Relocation of displaced instructions; see relocate.h. Instructions are decoded by Zydis and copied byte for byte,
 * with these exceptions:
 *   - a rip-relative displacement is made anew for the new address;
 *   - jmp, jcc (short or near) become near jumps to the same target;
 *   - loop, loope, loopne, jrcxz become   loopX +2; jmp +5; jmp target;
 *   - call target becomes   push of the original return address, jmp target; see emit_push_return;
 *   - an indirect call at the window's end becomes the same push and the same instruction as jmp (ff /2 -> ff /4); one
 * whose operand is rsp or based on it is refused, since the push moves it.
 * A window of nothing but instructions that are copied as they are is plain, and copied in one piece.
 */
#include "x86/relocate.h"

#include "x86/decode.h"
#include "x86/patch.h"
#include "x86/zydis.h"

static bool
decode(const uint8_t *code, size_t size, ZydisDecodedInstruction *instruction)
{
  return ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(ct_zydis_decoder(), NULL, code, size, instruction));
}

static bool
never_goes_on(const ZydisDecodedInstruction *instruction)
{
  return instruction->meta.category == ZYDIS_CATEGORY_RET || instruction->meta.category == ZYDIS_CATEGORY_UNCOND_BR;
}

static bool
is_indirect_call(const ZydisDecodedInstruction *instruction)
{
  return instruction->meta.category == ZYDIS_CATEGORY_CALL && !instruction->raw.imm[0].is_relative;
}

/* True when the operand of ff /2 is rsp, or memory based on it. */
static bool
operand_is_rsp(const ZydisDecodedInstruction *instruction)
{
  bool memory_on_rsp =
      instruction->raw.modrm.mod != 3 && instruction->raw.modrm.rm == 4 && instruction->raw.sib.base == 4;
  bool rsp_itself = instruction->raw.modrm.mod == 3 && instruction->raw.modrm.rm == 4;
  return instruction->raw.rex.B == 0 && (memory_on_rsp || rsp_itself);
}

/* An instruction of a window. */
struct step {
  uint32_t length;
  bool terminated; /* never goes on */
  bool traps;      /* goes on only if a handler of its signal steps over it */
  bool plain;      /* does the same at any place, byte for byte */
};

/* False: the fast decoder does not know it, or it is an indirect call. */
static bool
step_fast(const uint8_t *code, size_t size, struct step *step)
{
  struct ct_insn in;
  if (!ct_decode_fast(code, size, &in) || ct_insn_op(&in) == CT_OP_CALL_INDIRECT) {
    return false;
  }
  enum ct_op op = ct_insn_op(&in);
  bool relative = op == CT_OP_BRANCH || op == CT_OP_JUMP || op == CT_OP_CALL;
  step->length = in.length;
  step->terminated = op == CT_OP_JUMP || op == CT_OP_JUMP_INDIRECT || op == CT_OP_RET || op == CT_OP_RET_IMM;
  step->traps = op == CT_OP_TRAP;
  step->plain = !relative && ct_insn_base(&in) != CT_BASE_RIP;
  return true;
}

/* need: bytes that the window still lacks. */
static enum ct_window_refusal
step_full(const uint8_t *code, size_t size, size_t need, struct step *step)
{
  ZydisDecodedInstruction in;
  if (!decode(code, size, &in)) {
    return CT_WINDOW_UNDECODABLE;
  }
  if (is_indirect_call(&in) &&
      (in.length < need || in.opcode != 0xff || in.raw.modrm.reg != 2 || operand_is_rsp(&in))) {
    return CT_WINDOW_INDIRECT_CALL;
  }
  bool traps = in.mnemonic == ZYDIS_MNEMONIC_UD2 || in.mnemonic == ZYDIS_MNEMONIC_UD0 ||
               in.mnemonic == ZYDIS_MNEMONIC_UD1 || in.mnemonic == ZYDIS_MNEMONIC_HLT;
  *step = (struct step){in.length, never_goes_on(&in), traps, false};
  return CT_WINDOW_OK;
}

/* One more instruction at the end of the window, which lacks need bytes. */
static enum ct_window_refusal
step_at(const uint8_t *code, size_t size, size_t need, struct step *step)
{
  return step_fast(code, size, step) ? CT_WINDOW_OK : step_full(code, size, need, step);
}

/* Appends whole instructions until there are need bytes; *trap is set to the length after the first trap, once. */
static enum ct_window_refusal
extend(const uint8_t *code, size_t size, size_t need, struct ct_window *window, uint32_t *trap)
{
  while (window->length < need && !window->terminated) {
    struct step step = {0};
    if (window->length >= size || window->count >= CT_RELOCATED_MAX) {
      return CT_WINDOW_TOO_SHORT;
    }
    enum ct_window_refusal refusal =
        step_at(code + window->length, size - window->length, need - window->length, &step);
    if (refusal != CT_WINDOW_OK) {
      return refusal;
    }
    window->offset[window->count++] = (uint8_t)window->length;
    window->length += step.length;
    window->offset[window->count] = (uint8_t)window->length;
    window->terminated = step.terminated;
    window->plain &= step.plain;
    if (step.traps && *trap == 0) {
      *trap = window->length;
    }
  }
  return CT_WINDOW_OK;
}

/*
 * A handler may step over a trap (ud2 as a call of a monitor, or as a warning), and must come to the instruction after
 * it: so the window goes on there. If it cannot, since the code ends or is refused, the trap ends it.
 */
enum ct_window_refusal
ct_window_find(const uint8_t *code, size_t size, uint64_t address, size_t need, struct ct_window *window)
{
  uint32_t trap = 0, again = 0;
  (void)address;
  *window = (struct ct_window){.plain = 1};
  enum ct_window_refusal refusal = extend(code, size, need, window, &trap);
  if (refusal == CT_WINDOW_OK || trap == 0) {
    return refusal;
  }
  *window = (struct ct_window){.plain = 1};
  refusal = extend(code, size, trap, window, &again);
  window->terminated = 1;
  return refusal;
}

static bool
reaches(int64_t distance)
{
  return distance == (int32_t)distance;
}

/*
 * Pushes next, as a call does, with no register and in one store, since what is called reads it at once. Processors
 * foresee returns by the calls that they have seen: with a push alone this return and those of the callers would all be
 * foreseen wrongly (20 ns); so there is a call too, whose own return address goes away, and only this one is (10 ns).
 */
static void
emit_push_return(struct ct_code *out, uint64_t next)
{
  struct ct_code_label on = {0};
  ct_emit_call_label(out, &on);
  ct_emit_jmp(out, next); /* nobody comes here, but the processor ahead of itself */
  uint64_t constant = ct_code_pc(out);
  ct_emit_u64(out, next);
  ct_code_label_bind(out, &on);
  ct_emit_lea(out, CT_RSP, ct_mem(CT_RSP, 8));
  ct_emit_push_load(out, ct_mem_rip(constant));
}

static enum ct_window_refusal
relocate_relative(const uint8_t *bytes, uint64_t address, const ZydisDecodedInstruction *instruction,
                  struct ct_code *out)
{
  uint64_t next = address + instruction->length;
  uint64_t target = next + (uint64_t)instruction->raw.imm[0].value.s;
  if (!reaches((int64_t)(target - ct_code_pc(out))) || !reaches((int64_t)(target - ct_code_pc(out) - 64))) {
    return CT_WINDOW_UNREACHABLE;
  }
  switch (instruction->meta.category) {
  case ZYDIS_CATEGORY_CALL:
    emit_push_return(out, next);
    ct_emit_jmp(out, target);
    return CT_WINDOW_OK;
  case ZYDIS_CATEGORY_UNCOND_BR:
    ct_emit_jmp(out, target);
    return CT_WINDOW_OK;
  default:
    break;
  }
  switch (instruction->mnemonic) {
  case ZYDIS_MNEMONIC_LOOP:
  case ZYDIS_MNEMONIC_LOOPE:
  case ZYDIS_MNEMONIC_LOOPNE:
  case ZYDIS_MNEMONIC_JCXZ:
  case ZYDIS_MNEMONIC_JECXZ:
  case ZYDIS_MNEMONIC_JRCXZ:
    ct_emit_bytes(out, bytes, instruction->length - 1u);
    ct_emit_u8(out, 2);
    ct_emit_jmp_over(out, CT_JUMP_BYTES);
    ct_emit_jmp(out, target);
    return CT_WINDOW_OK;
  default:
    break;
  }
  if (instruction->mnemonic == ZYDIS_MNEMONIC_XBEGIN) {
    ct_emit_xbegin(out, target);
    return CT_WINDOW_OK;
  }
  if (instruction->meta.category != ZYDIS_CATEGORY_COND_BR ||
      instruction->encoding != ZYDIS_INSTRUCTION_ENCODING_LEGACY) {
    return CT_WINDOW_UNDECODABLE; /* with VEX: jkzd and jknzd, of a processor that is not made any more */
  }
  /* jcc: the condition is the low nibble of the last opcode byte in both forms */
  ct_emit_jcc(out, (enum ct_cond)(instruction->opcode & 0xf), target);
  return CT_WINDOW_OK;
}

static enum ct_window_refusal
relocate_one(const uint8_t *bytes, size_t size, uint64_t address, struct ct_code *out)
{
  ZydisDecodedInstruction instruction;
  if (!decode(bytes, size, &instruction)) {
    return CT_WINDOW_UNDECODABLE;
  }
  /* With a displacement: mov to and from control registers has mod 0, rm 5 and no memory operand. */
  bool rip_relative = (instruction.attributes & ZYDIS_ATTRIB_HAS_MODRM) != 0 && instruction.raw.modrm.mod == 0 &&
                      instruction.raw.modrm.rm == 5 && instruction.raw.disp.size == 32;
  if (instruction.raw.imm[0].is_relative) {
    return relocate_relative(bytes, address, &instruction, out);
  }
  bool call = is_indirect_call(&instruction);
  if (call) {
    if (instruction.opcode != 0xff || instruction.raw.modrm.reg != 2 || operand_is_rsp(&instruction)) {
      return CT_WINDOW_INDIRECT_CALL;
    }
    emit_push_return(out, address + instruction.length);
  }
  size_t at = out->length;
  uint64_t new_address = ct_code_pc(out);
  ct_emit_bytes(out, bytes, instruction.length);
  if (call && !out->overflow) {
    uint8_t *modrm = out->bytes + at + instruction.raw.modrm.offset;
    *modrm = (uint8_t)((*modrm & 0xc7) | 4 << 3);
  }
  if (rip_relative && !out->overflow) {
    int64_t displacement = instruction.raw.disp.value + (int64_t)(address - new_address);
    if (!reaches(displacement) || (instruction.attributes & ZYDIS_ATTRIB_HAS_ADDRESSSIZE) != 0) {
      return CT_WINDOW_UNREACHABLE;
    }
    int32_t narrow = (int32_t)displacement;
    memcpy(out->bytes + at + instruction.raw.disp.offset, &narrow, sizeof(narrow));
  }
  return CT_WINDOW_OK;
}

/* All instructions, each made anew where it must be. */
static enum ct_window_refusal
relocate_each(const uint8_t *code, uint64_t address, const struct ct_window *window, struct ct_code *out,
              struct ct_relocation_map *map)
{
  size_t start = out->length;
  for (uint32_t i = 0; i < window->count; i++) {
    uint32_t offset = window->offset[i];
    map->to[i] = (uint8_t)(out->length - start);
    size_t length = (size_t)window->offset[i + 1] - offset;
    enum ct_window_refusal refusal = relocate_one(code + offset, length, address + offset, out);
    if (refusal != CT_WINDOW_OK) {
      return refusal;
    }
  }
  return CT_WINDOW_OK;
}

enum ct_window_refusal
ct_window_relocate(const uint8_t *code, uint64_t address, const struct ct_window *window, struct ct_code *out,
                   struct ct_relocation_map *map)
{
  struct ct_relocation_map made = {.count = (uint8_t)window->count};
  memcpy(made.from, window->offset, window->count);
  if (window->plain) {
    memcpy(made.to, window->offset, window->count);
    ct_emit_bytes(out, code, window->length);
  } else {
    enum ct_window_refusal refusal = relocate_each(code, address, window, out, &made);
    if (refusal != CT_WINDOW_OK) {
      return refusal;
    }
  }
  if (!window->terminated) {
    ct_emit_jmp(out, address + window->length);
  }
  if (map != NULL) {
    *map = made;
  }
  return out->overflow ? CT_WINDOW_UNREACHABLE : CT_WINDOW_OK;
}

int
ct_is_padding(const uint8_t *code, size_t size, size_t readable)
{
  size_t at = 0;
  while (at < size) {
    if (code[at] == ct_int3_byte) {
      at++;
      continue;
    }
    ZydisDecodedInstruction instruction;
    if (!decode(code + at, readable - at, &instruction)) {
      return 0;
    }
    bool xchg_nop =
        instruction.mnemonic == ZYDIS_MNEMONIC_XCHG && instruction.opcode == 0x90 && instruction.raw.rex.B == 0;
    if (instruction.mnemonic != ZYDIS_MNEMONIC_NOP && !xchg_nop) {
      return 0;
    }
    at += instruction.length;
  }
  return 1;
}
