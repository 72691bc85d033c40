/* SPDX-License-Identifier: MIT */
/*
 * Where stores go, and nothing else: an instruction as few simple operations on general registers, which are executed
 * some ten times as fast as ct_emulate executes it. No flag is computed, and no value that is stored; what needs more
 * is an operation CT_GIST_WHOLE, at which the caller executes the instruction as a whole.
 *
 * Rules: an address is exactly that of ct_emulate and ct_mem_stores. Only for a state of which everything is known, and
 * for instructions whose flags nobody reads; the caller sees to both. Whether a branch is taken nobody asks.
 */
#ifndef CT_X86_GIST_H
#define CT_X86_GIST_H

#include "x86/emulate.h"
#include "x86/recorded.h"

enum ct_gist_kind {
  CT_GIST_END,     /* of a list */
  CT_GIST_WHOLE,   /* instruction `nth` is the caller's */
  CT_GIST_STORE,   /* of size bytes, at base + (index << scale) + disp */
  CT_GIST_PUSH,    /* rsp -= size, and a store there */
  CT_GIST_ADDRESS, /* out = base + (index << scale) + disp */
  CT_GIST_ADDRESS32,
  CT_GIST_LOADED8, /* out = 8 bytes of the record */
  CT_GIST_LOADED,  /* out = size bytes of it */
  CT_GIST_LOADED_SIGNED,
  CT_GIST_MASK,   /* out = base & disp */
  CT_GIST_SIGNED, /* out = base, of which size bytes are extended */
  CT_GIST_ADD,    /* from here on out = base ? (index + disp), or in its place size bytes of the record */
  CT_GIST_SUB,
  CT_GIST_AND,
  CT_GIST_OR,
  CT_GIST_XOR,
  CT_GIST_MUL,
  CT_GIST_WIDE, /* rdx, rax = rax * (index + disp), or in its place size bytes of the record */
  CT_GIST_SHL,  /* by disp */
  CT_GIST_SHR,
  CT_GIST_SAR,
};

struct ct_gist {
  uint8_t kind;             /* enum ct_gist_kind */
  uint8_t out, base, index; /* enum ct_reg, or CT_GIST_ZERO, CT_GIST_FS */
  uint8_t scale;
  uint8_t size;
  uint8_t nth;     /* instruction of the list */
  uint8_t is_four; /* the upper half of the result is 0 */
  uint32_t at;     /* of the record's values, those of `size` */
  int64_t disp;
};

/* Members of struct ct_cpu, as registers: rip is 0 meanwhile. */
enum { CT_GIST_ZERO = 16, CT_GIST_FS = 18 };

enum { CT_GIST_MAX = 2 + CT_VALUES_MAX, CT_GIST_STORE_MAX = 64 };

/*
 * An instruction at pc whose values are from `at` on in the record; is_emulated: ct_emulate is given what it loads.
 * is_asked: a flag that it writes is read later. Returns how many operations are put to ops, up to CT_GIST_MAX.
 */
unsigned ct_gist_of(const struct ct_effects *effects, const struct ct_recorded_value *values, unsigned value_count,
                    bool is_emulated, bool is_asked, uint64_t pc, uint32_t at, uint8_t nth, struct ct_gist *ops);

/* Bytes of memory; the last one is at most the last address that there is. */
struct ct_gist_bytes {
  uint64_t first, size;
};

/*
 * Executes them up to the end or to CT_GIST_WHOLE, and returns where it is. values: the record's. *hit: the number of
 * the last instruction that wrote one of the wanted bytes; else it stays.
 */
const struct ct_gist *ct_gist_run(const struct ct_gist *ops, struct ct_cpu *cpu, const uint8_t *values,
                                  struct ct_gist_bytes wanted, int *hit);

/* The same for one who wants all stores: they are put to *stores, which is moved on, one for each operation at most. */
struct ct_gist_store {
  uint64_t address, size;
};
const struct ct_gist *ct_gist_stores(const struct ct_gist *ops, struct ct_cpu *cpu, const uint8_t *values,
                                     struct ct_gist_store **stores);

#endif
