/* SPDX-License-Identifier: MIT */
#include "operands.h"

#include <stdio.h>
#include <string.h>

static const ZydisDecoder *
decoder(void)
{
  static ZydisDecoder instance;
  static bool ready;
  if (!ready) {
    ZydisDecoderInit(&instance, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    ready = true;
  }
  return &instance;
}

/* One list, longer than others. Does what it does to the machine beyond its registers, or has no one outcome. */
static bool
is_safe(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operands)
{
  switch (in->meta.category) {
  case ZYDIS_CATEGORY_SYSCALL:
  case ZYDIS_CATEGORY_SYSRET:
  case ZYDIS_CATEGORY_INTERRUPT:
  case ZYDIS_CATEGORY_IO:
  case ZYDIS_CATEGORY_IOSTRINGOP:
  case ZYDIS_CATEGORY_SYSTEM:
  case ZYDIS_CATEGORY_SEGOP:
  case ZYDIS_CATEGORY_VTX:
  case ZYDIS_CATEGORY_RDWRFSGS:
  case ZYDIS_CATEGORY_XSAVE:
  case ZYDIS_CATEGORY_XSAVEOPT:
  case ZYDIS_CATEGORY_PKU:
  case ZYDIS_CATEGORY_RDRAND:
  case ZYDIS_CATEGORY_RDSEED:
  case ZYDIS_CATEGORY_CET:
  case ZYDIS_CATEGORY_SGX:
  case ZYDIS_CATEGORY_PADLOCK:
  case ZYDIS_CATEGORY_UINTR:
  case ZYDIS_CATEGORY_WAITPKG:
  case ZYDIS_CATEGORY_ENQCMD:
  case ZYDIS_CATEGORY_TSX_LDTRK:
  case ZYDIS_CATEGORY_AMX_TILE:
  case ZYDIS_CATEGORY_RDPID:
  case ZYDIS_CATEGORY_RDPRU:
  case ZYDIS_CATEGORY_KEYLOCKER:
    return in->mnemonic == ZYDIS_MNEMONIC_ENDBR64;
  default:
    break;
  }
  switch (in->mnemonic) {
  case ZYDIS_MNEMONIC_POPF:
  case ZYDIS_MNEMONIC_POPFQ:
  case ZYDIS_MNEMONIC_IRET:
  case ZYDIS_MNEMONIC_IRETD:
  case ZYDIS_MNEMONIC_IRETQ:
  case ZYDIS_MNEMONIC_RDTSC:
  case ZYDIS_MNEMONIC_RDTSCP:
  case ZYDIS_MNEMONIC_RDPMC:
  case ZYDIS_MNEMONIC_CPUID:
  case ZYDIS_MNEMONIC_FNSAVE:
  case ZYDIS_MNEMONIC_FNSTENV:
  case ZYDIS_MNEMONIC_FLDENV:
  case ZYDIS_MNEMONIC_FRSTOR:
  case ZYDIS_MNEMONIC_FXSAVE:
  case ZYDIS_MNEMONIC_FXSAVE64:
  case ZYDIS_MNEMONIC_FXRSTOR:
  case ZYDIS_MNEMONIC_FXRSTOR64:
  case ZYDIS_MNEMONIC_XBEGIN:
  case ZYDIS_MNEMONIC_XEND:
  case ZYDIS_MNEMONIC_XABORT:
  case ZYDIS_MNEMONIC_MONITOR:
  case ZYDIS_MNEMONIC_MONITORX:
  case ZYDIS_MNEMONIC_MWAIT:
  case ZYDIS_MNEMONIC_MWAITX:
  case ZYDIS_MNEMONIC_HLT:
  case ZYDIS_MNEMONIC_LFS:
  case ZYDIS_MNEMONIC_LGS:
  case ZYDIS_MNEMONIC_LSS:
  case ZYDIS_MNEMONIC_CLZERO:
    return false;
  default:
    break;
  }
  bool far_transfer = in->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
  for (unsigned i = 0; i < in->operand_count; i++) {
    const ZydisDecodedOperand *o = &operands[i];
    if (o->type == ZYDIS_OPERAND_TYPE_REGISTER && (o->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0 &&
        ZydisRegisterGetClass(o->reg.value) == ZYDIS_REGCLASS_SEGMENT) {
      return false;
    }
    if (o->type == ZYDIS_OPERAND_TYPE_MEMORY && o->mem.segment == ZYDIS_REGISTER_GS) {
      return false;
    }
  }
  return !far_transfer;
}

static unsigned
traits_of(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *operands)
{
  unsigned traits = 0;
  if (in->raw.imm[0].is_relative) {
    traits |= in->meta.category == ZYDIS_CATEGORY_CALL ? PIECE_CALL : PIECE_BRANCH;
  } else if (in->meta.category == ZYDIS_CATEGORY_CALL) {
    traits |= PIECE_INDIRECT_CALL;
  }
  switch (in->mnemonic) {
  case ZYDIS_MNEMONIC_LOOP:
  case ZYDIS_MNEMONIC_LOOPE:
  case ZYDIS_MNEMONIC_LOOPNE:
  case ZYDIS_MNEMONIC_JCXZ:
  case ZYDIS_MNEMONIC_JECXZ:
  case ZYDIS_MNEMONIC_JRCXZ:
    traits |= PIECE_LOOP;
    break;
  default:
    break;
  }
  if (in->encoding == ZYDIS_INSTRUCTION_ENCODING_VEX) {
    traits |= PIECE_VEX;
  }
  if (in->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX) {
    traits |= PIECE_EVEX;
  }
  if (in->meta.category == ZYDIS_CATEGORY_STRINGOP) {
    traits |= PIECE_STRING;
  }
  if (in->meta.category == ZYDIS_CATEGORY_X87_ALU) {
    traits |= PIECE_X87;
  }
  for (unsigned i = 0; i < in->operand_count; i++) {
    if (operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY && operands[i].mem.base == ZYDIS_REGISTER_RIP) {
      traits |= PIECE_RIP;
    }
  }
  return traits;
}

bool
piece_take(struct piece *piece, const uint8_t *code, uint64_t address, const struct ct_window *window)
{
  memset(piece, 0, offsetof(struct piece, in));
  piece->address = address;
  piece->bytes = window->length;
  piece->count = window->count;
  memcpy(piece->offset, window->offset, sizeof(piece->offset));
  for (uint32_t i = 0; i < window->count; i++) {
    ZydisDecodedInstruction *in = &piece->in[i];
    size_t at = window->offset[i], length = (size_t)window->offset[i + 1] - at;
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(decoder(), code + at, length, in, piece->operands[i])) ||
        in->length != length || !is_safe(in, piece->operands[i])) {
      return false;
    }
    piece->traits |= traits_of(in, piece->operands[i]);
    piece->repeats[i] = (in->attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)) != 0;
    if (in->raw.imm[0].is_relative) {
      uint64_t target = address + at + length + (uint64_t)in->raw.imm[0].value.s;
      if (target > address && target < address + window->length) {
        return false; /* into itself: such a window is never moved */
      }
    }
  }
  return true;
}

/* The number of a general register of 64, 32, 16 or 8 bits, or -1. */
static int
general(ZydisRegister reg)
{
  ZydisRegister wide = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
  ZyanI8 id = ZydisRegisterGetClass(wide) == ZYDIS_REGCLASS_GPR64 ? ZydisRegisterGetId(wide) : -1;
  return id;
}

static bool
is_vector(ZydisRegister reg)
{
  switch (ZydisRegisterGetClass(reg)) {
  case ZYDIS_REGCLASS_XMM:
  case ZYDIS_REGCLASS_YMM:
  case ZYDIS_REGCLASS_ZMM:
    return true;
  default:
    return false;
  }
}

/* Small numbers in all lanes, so that gathers and scatters stay near. */
static void
tame_vector(struct machine *machine, unsigned n, struct rng *rng)
{
  if (n >= machine_vector_count()) {
    return;
  }
  for (unsigned part = 0; part < machine_vector_parts(); part++) {
    uint8_t *at = machine_vector(machine, n, part);
    memset(at, 0, 16);
    at[0] = (uint8_t)rng_below(rng, 200);
    at[8] = (uint8_t)rng_below(rng, 200);
  }
}

static uint64_t
address_in(const struct arena *arena, struct rng *rng)
{
  uint64_t start = (uint64_t)arena->bytes;
  switch (rng_below(rng, 20)) {
  case 0: /* across the end, or past it */
    return start + ARENA_BYTES - rng_below(rng, 64);
  case 1: /* in front */
    return start - 1 - rng_below(rng, 64);
  case 2:
  case 3:
    return rng_next(rng);
  default:
    break;
  }
  uint64_t at = ARENA_BYTES / 8 + rng_below(rng, ARENA_BYTES / 4);
  return start + (rng_chance(rng, 70) ? at & ~63ull : at);
}

static void
place_operand(const ZydisDecodedOperand *o, unsigned address_width, const struct arena *arena, struct machine *machine,
              struct rng *rng)
{
  int base = general(o->mem.base), index = general(o->mem.index);
  uint64_t scaled = 0;
  if (is_vector(o->mem.index)) {
    tame_vector(machine, (unsigned)ZydisRegisterGetId(o->mem.index), rng);
  } else if (index >= 0 && index != RSP && index != base) {
    machine->reg[index] = rng_below(rng, 64);
    scaled = machine->reg[index] * o->mem.scale;
  }
  if (base < 0 || base == RSP) {
    return;
  }
  uint64_t wanted = address_in(arena, rng);
  machine->reg[base] = wanted - (uint64_t)o->mem.disp.value - scaled;
  if (address_width == 32) {
    machine->reg[base] &= 0xffffffff;
  }
}

void
piece_place(const struct piece *piece, const struct arena *arena, struct machine *machine, struct rng *rng)
{
  for (unsigned r = 0; r < 16; r++) {
    if (rng_chance(rng, 40)) {
      machine->reg[r] = rng_chance(rng, 50) ? rng_below(rng, 100) : address_in(arena, rng);
    }
  }
  uint64_t sp = (uint64_t)arena->bytes + ARENA_BYTES / 2 + rng_below(rng, ARENA_BYTES / 4);
  machine->reg[RSP] = rng_chance(rng, 90) ? sp & ~15ull : rng_chance(rng, 60) ? sp & ~7ull : sp;
  for (uint32_t i = piece->count; i-- > 0;) {
    const ZydisDecodedInstruction *in = &piece->in[i];
    for (unsigned k = 0; k < in->operand_count; k++) {
      if (piece->operands[i][k].type == ZYDIS_OPERAND_TYPE_MEMORY) {
        place_operand(&piece->operands[i][k], in->address_width, arena, machine, rng);
      }
    }
    if (piece->repeats[i]) {
      machine->reg[RCX] = rng_below(rng, 40);
    }
    if ((piece->traits & PIECE_LOOP) != 0 && rng_chance(rng, 70)) {
      machine->reg[RCX] = rng_below(rng, 3) + (rng_chance(rng, 30) ? 1ull << 32 : 0);
    }
    if (in->mnemonic == ZYDIS_MNEMONIC_BT || in->mnemonic == ZYDIS_MNEMONIC_BTS || in->mnemonic == ZYDIS_MNEMONIC_BTR ||
        in->mnemonic == ZYDIS_MNEMONIC_BTC) {
      int source =
          piece->operands[i][1].type == ZYDIS_OPERAND_TYPE_REGISTER ? general(piece->operands[i][1].reg.value) : -1;
      if (source >= 0 && source != RSP) {
        machine->reg[source] = rng_below(rng, 300);
      }
    }
  }
}

size_t
piece_touches(const struct piece *piece, const struct machine *machine, struct touch *touches, size_t max)
{
  size_t count = 0;
  for (uint32_t i = 0; i < piece->count; i++) {
    const ZydisDecodedInstruction *in = &piece->in[i];
    for (unsigned k = 0; k < in->operand_count && count < max; k++) {
      const ZydisDecodedOperand *o = &piece->operands[i][k];
      if (o->type != ZYDIS_OPERAND_TYPE_MEMORY || o->mem.type == ZYDIS_MEMOP_TYPE_AGEN) {
        continue;
      }
      uint64_t address = (uint64_t)o->mem.disp.value;
      int base = general(o->mem.base), index = general(o->mem.index);
      if (o->mem.base == ZYDIS_REGISTER_RIP) {
        address += piece->address + piece->offset[i + 1];
      } else if (base >= 0) {
        address += machine->reg[base];
      }
      if (index >= 0) {
        address += machine->reg[index] * o->mem.scale;
      }
      if (in->address_width == 32) {
        address &= 0xffffffff;
      }
      touches[count++] = (struct touch){address, o->size / 8, (o->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0};
    }
  }
  return count;
}

void
piece_capture(const struct piece *piece, const uint8_t *code, char *text, size_t size)
{
  ZydisFormatter formatter;
  ZydisFormatterInit(&formatter, ZYDIS_FORMATTER_STYLE_ATT);
  size_t used = 0;
  for (uint32_t i = 0; i < piece->count && used < size; i++) {
    char line[96] = "?";
    ZydisFormatterFormatInstruction(&formatter, &piece->in[i], piece->operands[i], piece->in[i].operand_count_visible,
                                    line, sizeof(line), piece->address + piece->offset[i], NULL);
    used += (size_t)snprintf(text + used, size - used,
                             "     %llx: ", (unsigned long long)(piece->address + piece->offset[i]));
    for (size_t b = piece->offset[i]; b < piece->offset[i + 1] && used < size; b++) {
      used += (size_t)snprintf(text + used, size - used, "%02x ", code[b]);
    }
    if (used < size) {
      used += (size_t)snprintf(text + used, size - used, "  %s\n", line);
    }
  }
}
