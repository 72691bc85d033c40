/* SPDX-License-Identifier: MIT */
/*
 * What a few instructions need to be run from a made-up state: that they may be run at all, and registers that make
 * their memory operands lie, mostly, in an arena of ours.
 */
#ifndef CT_TESTS_OPERANDS_H
#define CT_TESTS_OPERANDS_H

#include "machine.h"
#include "x86/relocate.h"

#include <Zydis/Zydis.h>

enum { ARENA_BYTES = 64 << 10 };

struct arena {
  uint8_t *bytes; /* nothing is mapped around it */
};

enum piece_trait {
  PIECE_RIP = 1 << 0,
  PIECE_BRANCH = 1 << 1, /* relative, conditional or not */
  PIECE_CALL = 1 << 2,
  PIECE_INDIRECT_CALL = 1 << 3,
  PIECE_VEX = 1 << 4,
  PIECE_EVEX = 1 << 5,
  PIECE_STRING = 1 << 6,
  PIECE_LOOP = 1 << 7,
  PIECE_X87 = 1 << 8,
};

struct piece {
  uint64_t address;
  size_t bytes;
  uint32_t count;
  uint8_t offset[CT_RELOCATED_MAX + 1];
  bool repeats[CT_RELOCATED_MAX]; /* a string instruction that traps after each turn */
  unsigned traits;
  ZydisDecodedInstruction in[CT_RELOCATED_MAX];
  ZydisDecodedOperand operands[CT_RELOCATED_MAX][ZYDIS_MAX_OPERAND_COUNT];
};

/* Decodes the window at code, which stands for address. False when something in it must not be run here. */
bool piece_take(struct piece *piece, const uint8_t *code, uint64_t address, const struct ct_window *window);
/* Gives registers values, so that most operands lie in the arena; rsp too. */
void piece_place(const struct piece *piece, const struct arena *arena, struct machine *machine, struct rng *rng);

/* A memory operand as the state at the piece's start gives its address. */
struct touch {
  uint64_t address;
  uint32_t bytes;
  bool written;
};
size_t piece_touches(const struct piece *piece, const struct machine *machine, struct touch *touches, size_t max);

/* One line for each instruction. */
void piece_capture(const struct piece *piece, const uint8_t *code, char *text, size_t size);

#endif
