/* SPDX-License-Identifier: MIT */
/*
 * The reader's emulator: general registers, flags, rip and stores of one instruction that ct_effects_of calls
 * derivable. Everything it needs was decoded by ct_effects_of, which is called once for each instruction of the code,
 * not for each that is executed.
 *
 * Flags that an instruction leaves undefined are never claimed: they become `unknown`, until they are written or the
 * caller, who knows them from a record, clears them there. No instruction is executed on flags that are unknown.
 *
 * An instruction that is not derivable is left to the caller: rip, the registers it writes and its flags come from
 * records. Its stores are reported by ct_mem_stores.
 */
#ifndef CT_X86_EMULATE_H
#define CT_X86_EMULATE_H

#include "base/branch.h"
#include "x86/effects.h"

struct ct_cpu {
  uint64_t reg[16]; /* by enum ct_reg */
  uint64_t rip;
  uint64_t flags; /* rflags, all of it: pushf stores it */
  uint64_t fs_base, gs_base;
  uint64_t unknown; /* those of the six flags whose values are not known */
};

struct ct_mem_store {
  uint64_t address;
  uint64_t count; /* elements of size bytes each, upwards from address; 1 but for rep */
  uint64_t value; /* of each; of a repeated store of more than one: of all of them the same */
  uint32_t size;  /* bytes, 0: not known how many */
  bool known;     /* value is; false for vectors, locked instructions, rep movs */
  bool part;      /* perhaps not all of its bytes, or none, were written */
};

/* Of all its elements; what no 64 bits hold is UINT64_MAX. */
static inline uint64_t
ct_mem_store_bytes(const struct ct_mem_store *store)
{
  uint64_t bytes;
  return __builtin_mul_overflow(store->count, store->size, &bytes) ? UINT64_MAX : bytes;
}

enum ct_emulated {
  CT_EMULATED,
  CT_EMULATED_NOT_DERIVABLE,
  CT_EMULATED_UNKNOWN_FLAG, /* it depends on a flag that is unknown */
  CT_EMULATED_FAULT         /* a division that faults: the instruction did not end */
};

/* The address of an access of the instruction at cpu->rip; not of CT_ACCESS_VECTOR, which has several. */
static inline uint64_t
ct_address(const struct ct_effects *effects, const struct ct_access *access, const struct ct_cpu *cpu)
{
  uint64_t at = (uint64_t)access->disp;
  at += access->base != CT_NO_REG ? cpu->reg[access->base & 15] : 0;
  at += access->index != CT_NO_REG ? cpu->reg[access->index & 15] << access->scale : 0;
  if (CT_UNLIKELY(access->bits_reg != CT_NO_REG || (access->how & ~3) != 0 || access->segment != 0)) {
    if ((access->how & CT_ACCESS_RIP) != 0) {
      at += cpu->rip + effects->length;
    }
    if (access->bits_reg != CT_NO_REG) {
      unsigned unused = 64 - 8 * access->size;
      int64_t offset = (int64_t)(cpu->reg[access->bits_reg & 15] << unused) >> unused;
      at += (uint64_t)(offset >> __builtin_ctz(8u * access->size)) * access->size;
    }
    if ((access->how & CT_ACCESS_ADDRESS32) != 0) {
      at = (uint32_t)at;
    }
    at += access->segment == CT_SEGMENT_FS ? cpu->fs_base : access->segment == CT_SEGMENT_GS ? cpu->gs_base : 0;
  }
  return at;
}

/*
 * Executes it on *cpu. loaded: see effects.h; its bits above the access's size do not matter. On CT_EMULATED *cpu is
 * the state after the instruction, stores[0 .. *store_count - 1] is what it wrote; else all stay as they were.
 */
enum ct_emulated ct_emulate(const struct ct_effects *effects, struct ct_cpu *cpu, uint64_t loaded,
                            struct ct_mem_store stores[2], unsigned *store_count);

/*
 * Of an instruction that ct_emulate executed while the registers in `unknown` (a bit each) had no known values: what is
 * not known after it. What it loaded is known, wherever it came from.
 */
struct ct_unknown_after {
  uint16_t written; /* of the registers that it writes, those that are not known */
  bool flags;       /* the flags that it writes are not */
  bool stored;      /* what it stores is not */
};
struct ct_unknown_after ct_emulated_unknown(const struct ct_effects *effects, uint16_t unknown);

/* The general registers that an access takes its address from, a bit each. */
uint16_t ct_address_regs(const struct ct_access *access);

/*
 * What an instruction writes to memory, of which nothing else is to be derived; values are unknown. cpu: before it.
 * Returns how many.
 */
unsigned ct_mem_stores(const struct ct_effects *effects, const struct ct_cpu *cpu, struct ct_mem_store stores[2]);

#endif
