/* SPDX-License-Identifier: MIT */
/*
 * See checkpoint.h. Packed: struct fixed; of each vector register how much of it is known (1) and kept (1), and what is
 * kept.
 */
#include "steps/checkpoint.h"

#include <string.h>

struct fixed {
  uint64_t number, at, tsc;
  uint64_t reg[16], rip, flags, flags_unknown, fs_base, gs_base;
  uint64_t mask[CT_STEPS_MASKS];
  uint32_t stamp, saved_parts;
  uint16_t unknown;
  uint8_t rip_unknown, masks_known;
  uint32_t hole;
};

static_assert(sizeof(struct fixed) + CT_STEPS_VECTORS * (2 + CT_STEPS_VECTOR_BYTES) <= CT_STEPS_CHECKPOINT_BYTES,
              "a packed one has room where another has");

size_t
ct_steps_checkpoint_pack(const struct ct_steps_checkpoint *c, uint8_t *bytes)
{
  const struct ct_steps_state *state = &c->state;
  struct fixed fixed = {.number = c->number,
                        .at = c->at,
                        .tsc = c->tsc,
                        .rip = state->cpu.rip,
                        .flags = state->cpu.flags,
                        .flags_unknown = state->cpu.unknown,
                        .fs_base = state->cpu.fs_base,
                        .gs_base = state->cpu.gs_base,
                        .stamp = c->stamp,
                        .saved_parts = state->saved_parts,
                        .unknown = state->unknown,
                        .rip_unknown = state->rip_unknown,
                        .masks_known = state->masks_known};
  memcpy(fixed.reg, state->cpu.reg, sizeof(fixed.reg));
  memcpy(fixed.mask, state->mask, sizeof(fixed.mask));
  memcpy(bytes, &fixed, sizeof(fixed));
  uint8_t *at = bytes + sizeof(fixed);
  for (unsigned i = 0; i < CT_STEPS_VECTORS; i++) {
    uint8_t kept = state->vectors_known[i];
    while (kept > 0 && state->vector[i][kept - 1] == 0) {
      kept--;
    }
    *at++ = state->vectors_known[i];
    *at++ = kept;
    memcpy(at, state->vector[i], kept);
    at += kept;
  }
  return (size_t)(at - bytes);
}

bool
ct_steps_checkpoint_unpack(const uint8_t *bytes, size_t size, struct ct_steps_checkpoint *out)
{
  struct fixed fixed;
  const uint8_t *at = bytes + sizeof(fixed), *end = bytes + size;
  struct ct_steps_state *state = &out->state;
  if (size < sizeof(fixed)) {
    return false;
  }
  memcpy(&fixed, bytes, sizeof(fixed));
  memset(out, 0, sizeof(*out));
  out->number = fixed.number;
  out->at = fixed.at;
  out->tsc = fixed.tsc;
  out->stamp = fixed.stamp;
  memcpy(state->cpu.reg, fixed.reg, sizeof(fixed.reg));
  memcpy(state->mask, fixed.mask, sizeof(fixed.mask));
  state->cpu.rip = fixed.rip;
  state->cpu.flags = fixed.flags;
  state->cpu.unknown = fixed.flags_unknown;
  state->cpu.fs_base = fixed.fs_base;
  state->cpu.gs_base = fixed.gs_base;
  state->saved_parts = fixed.saved_parts;
  state->unknown = fixed.unknown;
  state->rip_unknown = fixed.rip_unknown != 0;
  state->masks_known = fixed.masks_known;
  for (unsigned i = 0; i < CT_STEPS_VECTORS; i++) {
    if (end - at < 2 || at[0] > CT_STEPS_VECTOR_BYTES || at[1] > at[0] || end - at - 2 < at[1]) {
      return false;
    }
    state->vectors_known[i] = at[0];
    memcpy(state->vector[i], at + 2, at[1]);
    at += 2 + at[1];
  }
  return true;
}
