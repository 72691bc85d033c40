/* SPDX-License-Identifier: MIT */
/*
 * Single random instructions with states in which they can run: what the parts that test effects and the emulator
 * share. The code page, in the lowest 2 GiB as the data page, so that all kinds of addresses can be made to reach it:
 *
 *   ... instruction | jmp next | jmp taken
 *                   ^ fell_through ^ taken: where branches, calls and returns are made to go
 *
 * The memory in reach is the middle of the data page; what is before and after it is compared, too.
 */
#ifndef CT_TESTS_TRIALS_H
#define CT_TESTS_TRIALS_H

#include "random.h"

#include "x86/decode.h"
#include "x86/emulate_internal.h"

enum { DATA_BYTES = 2048 };
#define COMPARED ((uint64_t)CT_FLAGS_SIX | CT_FLAG_DF)

struct trials {
  uint8_t *code, *data; /* a page each */
  uint64_t fell_through, taken;
  uint64_t fs_base;
};

extern struct trials trials;

/* What is run, and what has come of it. */
struct trial {
  uint8_t code[CT_INSN_BYTES_MAX];
  struct ct_effects effects;
  uint64_t loaded;
  struct ct_cpu cpu; /* before it; the emulator's after it */
  struct ct_mem_store stores[2];
  unsigned store_count;
  enum ct_emulated result;
};

/* next, taken: where those exits jump to. 0, or -1 when this machine does not let code be made. */
int trials_set_up(const char *next, const char *taken);
/* A random state, and memory. */
void trial_begin(struct rng *rng, struct trial *t);
/* One of general registers; its cpu is changed so that it can run. False: try again. */
bool trial_make(struct rng *rng, struct trial *t);
/* One of vector registers. Gathers and scatters are in reach when their indices are 0. */
bool trial_make_vector(struct rng *rng, struct trial *t);
/* One of x87; none of those that store the address of the last one. */
bool trial_make_x87(struct rng *rng, struct trial *t);
void trial_describe(const struct trial *t, const struct ct_cpu *begin, const char *why, char *text, size_t size);

#endif
