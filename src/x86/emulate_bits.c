/* SPDX-License-Identifier: MIT */
/* The emulator's shifts, rotates and bit instructions; see emulate_internal.h. */
#include "x86/emulate_internal.h"

static inline unsigned
count_of(const struct ct_effects *e, const struct ct_cpu *cpu, const struct ct_step *step, unsigned operand)
{
  return wide_value(e, cpu, step, operand) & (e->size == 8 ? 63 : 31);
}

/* A count of 0 leaves the flags alone, but writes the result: 32 bits zero the upper half. */
static inline enum ct_emulated
shifted(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step, unsigned count, uint64_t result,
        uint64_t flags)
{
  result &= mask_of(e->size);
  put(e, cpu, step, e->out, result);
  if (count != 0) {
    put_flags(cpu, CT_FLAGS_SIX, shift_undefined(e->op, e->size, count), flags | flags_of(result, e->size));
  }
  return CT_EMULATED;
}

CT_DO(ct_do_shl)
{
  unsigned count = count_of(e, cpu, step, e->in2), bits = 8 * e->size;
  uint64_t value = value_of(e, cpu, step, e->in), result = value << count;
  uint64_t carry = count <= bits && count != 0 ? value >> (bits - count) & 1 : 0;
  return shifted(e, cpu, step, count, result, carry * CT_FLAG_CF | (carry ^ top_of(result, e->size)) * CT_FLAG_OF);
}

CT_DO(ct_do_shr)
{
  unsigned count = count_of(e, cpu, step, e->in2);
  uint64_t value = value_of(e, cpu, step, e->in);
  uint64_t carry = count != 0 ? value >> (count - 1) & 1 : 0;
  return shifted(e, cpu, step, count, value >> count, carry * CT_FLAG_CF | top_of(value, e->size) * CT_FLAG_OF);
}

CT_DO(ct_do_sar)
{
  unsigned count = count_of(e, cpu, step, e->in2);
  int64_t value = (int64_t)extend(value_of(e, cpu, step, e->in), e->size);
  uint64_t carry = count != 0 ? value >> (count - 1) & 1 : 0;
  return shifted(e, cpu, step, count, (uint64_t)(value >> count), carry * CT_FLAG_CF);
}

/* Rotates write CF and OF only. */
static inline enum ct_emulated
rotated(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step, unsigned count, uint64_t result,
        uint64_t carry, uint64_t overflow)
{
  put(e, cpu, step, e->out, result);
  if (count != 0) {
    put_flags(cpu, CT_FLAG_CF | CT_FLAG_OF, shift_undefined(e->op, e->size, count),
              carry * CT_FLAG_CF | overflow * CT_FLAG_OF);
  }
  return CT_EMULATED;
}

static inline uint64_t
rotate_right(uint64_t value, unsigned by, unsigned size)
{
  unsigned bits = 8 * size, right = by % bits;
  return right == 0 ? value : (value >> right | value << (bits - right)) & mask_of(size);
}

CT_DO(ct_do_rol)
{
  unsigned count = count_of(e, cpu, step, e->in2), bits = 8 * e->size;
  uint64_t result = rotate_right(value_of(e, cpu, step, e->in), bits - count % bits, e->size);
  return rotated(e, cpu, step, count, result, result & 1, (result & 1) ^ top_of(result, e->size));
}

CT_DO(ct_do_ror)
{
  unsigned count = count_of(e, cpu, step, e->in2);
  uint64_t result = rotate_right(value_of(e, cpu, step, e->in), count, e->size);
  return rotated(e, cpu, step, count, result, top_of(result, e->size),
                 top_of(result, e->size) ^ top_of(result << 1, e->size));
}

/* CF is a bit more of the value, above it. */
static inline enum ct_emulated
rotate_carry(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step, bool left)
{
  unsigned count = count_of(e, cpu, step, e->in2), width = 8 * e->size + 1, by = count % width;
  unsigned __int128 value = (unsigned __int128)(cpu->flags & CT_FLAG_CF) << (width - 1) | value_of(e, cpu, step, e->in);
  unsigned right = left ? width - by : by;
  unsigned __int128 turned = by == 0 ? value : value >> right | value << (width - right);
  uint64_t result = (uint64_t)turned & mask_of(e->size), carry = (uint64_t)(turned >> (width - 1)) & 1;
  uint64_t overflow = top_of(result, e->size) ^ (left ? carry : top_of(result << 1, e->size));
  return rotated(e, cpu, step, count, result, carry, overflow);
}

CT_DO(ct_do_rcl)
{
  return rotate_carry(e, cpu, step, true);
}

CT_DO(ct_do_rcr)
{
  return rotate_carry(e, cpu, step, false);
}

/* Not of 16 bits, so the count is below the size. */
CT_DO(ct_do_shld)
{
  unsigned count = count_of(e, cpu, step, e->in3), bits = 8 * e->size;
  uint64_t value = value_of(e, cpu, step, e->in), more = value_of(e, cpu, step, e->in2);
  if (count == 0) {
    return shifted(e, cpu, step, 0, value, 0);
  }
  uint64_t result = value << count | more >> (bits - count), carry = value >> (bits - count) & 1;
  return shifted(e, cpu, step, count, result,
                 carry * CT_FLAG_CF | (top_of(result, e->size) ^ top_of(value, e->size)) * CT_FLAG_OF);
}

CT_DO(ct_do_shrd)
{
  unsigned count = count_of(e, cpu, step, e->in3), bits = 8 * e->size;
  uint64_t value = value_of(e, cpu, step, e->in), more = value_of(e, cpu, step, e->in2);
  if (count == 0) {
    return shifted(e, cpu, step, 0, value, 0);
  }
  uint64_t result = value >> count | more << (bits - count), carry = value >> (count - 1) & 1;
  return shifted(e, cpu, step, count, result,
                 carry * CT_FLAG_CF | (top_of(result, e->size) ^ top_of(value, e->size)) * CT_FLAG_OF);
}

CT_DO(ct_do_shlx)
{
  put(e, cpu, step, e->out, value_of(e, cpu, step, e->in) << count_of(e, cpu, step, e->in2));
  return CT_EMULATED;
}

CT_DO(ct_do_shrx)
{
  put(e, cpu, step, e->out, value_of(e, cpu, step, e->in) >> count_of(e, cpu, step, e->in2));
  return CT_EMULATED;
}

CT_DO(ct_do_sarx)
{
  int64_t value = (int64_t)extend(value_of(e, cpu, step, e->in), e->size);
  put(e, cpu, step, e->out, (uint64_t)(value >> count_of(e, cpu, step, e->in2)));
  return CT_EMULATED;
}

CT_DO(ct_do_rorx)
{
  put(e, cpu, step, e->out, rotate_right(value_of(e, cpu, step, e->in), count_of(e, cpu, step, e->in2), e->size));
  return CT_EMULATED;
}

/* ---- single bits ---- */

/* In memory, whole operands of the offset are part of the address. */
static inline uint64_t
bit_of(const struct ct_effects *e, const struct ct_cpu *cpu, const struct ct_step *step)
{
  return 1ull << (wide_value(e, cpu, step, e->in2) & (8 * e->size - 1));
}

static inline enum ct_emulated
bit_put(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step, uint64_t old, uint64_t bit,
        uint64_t result)
{
  put(e, cpu, step, e->out, result);
  put_flags(cpu, CT_FLAGS_SIX, e->flags_undefined, (old & bit) != 0 ? CT_FLAG_CF : 0);
  return CT_EMULATED;
}

CT_DO(ct_do_bt)
{
  uint64_t old = value_of(e, cpu, step, e->in);
  return bit_put(e, cpu, step, old, bit_of(e, cpu, step), old); /* out is none */
}

CT_DO(ct_do_bts)
{
  uint64_t old = value_of(e, cpu, step, e->in), bit = bit_of(e, cpu, step);
  return bit_put(e, cpu, step, old, bit, old | bit);
}

CT_DO(ct_do_btr)
{
  uint64_t old = value_of(e, cpu, step, e->in), bit = bit_of(e, cpu, step);
  return bit_put(e, cpu, step, old, bit, old & ~bit);
}

CT_DO(ct_do_btc)
{
  uint64_t old = value_of(e, cpu, step, e->in), bit = bit_of(e, cpu, step);
  return bit_put(e, cpu, step, old, bit, old ^ bit);
}

/* ---- counting ---- */

/* Of 0 the destination stays as it is; of 32 bits processors differ then, see effects_emulated.c. */
static inline enum ct_emulated
scanned(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step, uint64_t value, unsigned found)
{
  if (value != 0) {
    put(e, cpu, step, e->out, found);
  }
  put_flags(cpu, CT_FLAGS_SIX, e->flags_undefined, value == 0 ? CT_FLAG_ZF : 0);
  return CT_EMULATED;
}

CT_DO(ct_do_bsf)
{
  uint64_t value = value_of(e, cpu, step, e->in);
  return scanned(e, cpu, step, value, (unsigned)__builtin_ctzll(value | 1ull << 63));
}

CT_DO(ct_do_bsr)
{
  uint64_t value = value_of(e, cpu, step, e->in);
  return scanned(e, cpu, step, value, 63 - (unsigned)__builtin_clzll(value | 1));
}

static inline enum ct_emulated
counted(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step, uint64_t value, unsigned count)
{
  put(e, cpu, step, e->out, count);
  put_flags(cpu, CT_FLAGS_SIX, e->flags_undefined, (value == 0 ? CT_FLAG_CF : 0) | (count == 0 ? CT_FLAG_ZF : 0));
  return CT_EMULATED;
}

CT_DO(ct_do_tzcnt)
{
  uint64_t value = value_of(e, cpu, step, e->in);
  return counted(e, cpu, step, value, value == 0 ? 8u * e->size : (unsigned)__builtin_ctzll(value));
}

CT_DO(ct_do_lzcnt)
{
  uint64_t value = value_of(e, cpu, step, e->in);
  unsigned unused = 64 - 8 * e->size;
  return counted(e, cpu, step, value, value == 0 ? 8u * e->size : (unsigned)__builtin_clzll(value) - unused);
}

CT_DO(ct_do_popcnt)
{
  uint64_t value = value_of(e, cpu, step, e->in);
  put(e, cpu, step, e->out, (uint64_t)__builtin_popcountll(value));
  put_flags(cpu, CT_FLAGS_SIX, 0, value == 0 ? CT_FLAG_ZF : 0);
  return CT_EMULATED;
}

/* ---- BMI ---- */

static inline enum ct_emulated
bits_put(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step, uint64_t result, bool carry)
{
  result &= mask_of(e->size);
  put(e, cpu, step, e->out, result);
  put_flags(cpu, CT_FLAGS_SIX, e->flags_undefined, flags_of(result, e->size) | (carry ? CT_FLAG_CF : 0));
  return CT_EMULATED;
}

static inline uint64_t
low_bits(uint64_t value, unsigned count)
{
  return count < 64 ? value & ((1ull << count) - 1) : value;
}

CT_DO(ct_do_bextr)
{
  uint64_t value = value_of(e, cpu, step, e->in), control = wide_value(e, cpu, step, e->in2);
  unsigned start = control & 0xff, length = control >> 8 & 0xff;
  return bits_put(e, cpu, step, start < 64 ? low_bits(value >> start, length) : 0, false);
}

CT_DO(ct_do_blsi)
{
  uint64_t value = value_of(e, cpu, step, e->in);
  return bits_put(e, cpu, step, value & -value, value != 0);
}

CT_DO(ct_do_blsr)
{
  uint64_t value = value_of(e, cpu, step, e->in);
  return bits_put(e, cpu, step, value & (value - 1), value == 0);
}

CT_DO(ct_do_blsmsk)
{
  uint64_t value = value_of(e, cpu, step, e->in);
  return bits_put(e, cpu, step, value ^ (value - 1), value == 0);
}

CT_DO(ct_do_bzhi)
{
  uint64_t value = value_of(e, cpu, step, e->in);
  unsigned count = wide_value(e, cpu, step, e->in2) & 0xff;
  return bits_put(e, cpu, step, low_bits(value, count), count >= 8u * e->size);
}

CT_DO(ct_do_pdep)
{
  uint64_t from = value_of(e, cpu, step, e->in), result = 0;
  for (uint64_t mask = value_of(e, cpu, step, e->in2); mask != 0; mask &= mask - 1, from >>= 1) {
    result |= (from & 1) != 0 ? mask & -mask : 0;
  }
  put(e, cpu, step, e->out, result);
  return CT_EMULATED;
}

CT_DO(ct_do_pext)
{
  uint64_t from = value_of(e, cpu, step, e->in), result = 0, bit = 1;
  for (uint64_t mask = value_of(e, cpu, step, e->in2); mask != 0; mask &= mask - 1, bit <<= 1) {
    result |= (from & mask & -mask) != 0 ? bit : 0;
  }
  put(e, cpu, step, e->out, result);
  return CT_EMULATED;
}
