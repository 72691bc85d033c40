/* SPDX-License-Identifier: MIT */
/* The emulator's additions, subtractions, logic, multiplications and divisions; see emulate_internal.h. */
#include "x86/emulate_internal.h"

/* Flags of a + b (+ carry) = result, of operands that are masked to size. */
static inline uint64_t
flags_of_add(uint64_t a, uint64_t b, uint64_t result, unsigned size)
{
  uint64_t carries = (a & b) | ((a | b) & ~result);
  uint64_t overflow = (a ^ result) & (b ^ result);
  return flags_of(result, size) | top_of(carries, size) * CT_FLAG_CF | (carries >> 3 & 1) * CT_FLAG_AF |
         top_of(overflow, size) * CT_FLAG_OF;
}

static inline uint64_t
flags_of_sub(uint64_t a, uint64_t b, uint64_t result, unsigned size)
{
  uint64_t borrows = (~a & b) | ((~a | b) & result);
  uint64_t overflow = (a ^ b) & (a ^ result);
  return flags_of(result, size) | top_of(borrows, size) * CT_FLAG_CF | (borrows >> 3 & 1) * CT_FLAG_AF |
         top_of(overflow, size) * CT_FLAG_OF;
}

static inline enum ct_emulated
add(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step, uint64_t b, uint64_t carry, uint64_t written)
{
  uint64_t a = value_of(e, cpu, step, e->in);
  uint64_t result = (a + b + carry) & mask_of(e->size);
  put(e, cpu, step, e->out, result);
  put_flags(cpu, written, 0, flags_of_add(a, b, result, e->size));
  return CT_EMULATED;
}

static inline enum ct_emulated
sub(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step, uint64_t a, uint64_t b, uint64_t carry,
    uint64_t written)
{
  uint64_t result = (a - b - carry) & mask_of(e->size);
  put(e, cpu, step, e->out, result);
  put_flags(cpu, written, 0, flags_of_sub(a, b, result, e->size));
  return CT_EMULATED;
}

CT_DO(ct_do_add)
{
  return add(e, cpu, step, value_of(e, cpu, step, e->in2), 0, CT_FLAGS_SIX);
}

CT_DO(ct_do_adc)
{
  return add(e, cpu, step, value_of(e, cpu, step, e->in2), cpu->flags & CT_FLAG_CF, CT_FLAGS_SIX);
}

CT_DO(ct_do_inc)
{
  return add(e, cpu, step, 1, 0, CT_FLAGS_SIX & ~CT_FLAG_CF);
}

CT_DO(ct_do_sub)
{
  return sub(e, cpu, step, value_of(e, cpu, step, e->in), value_of(e, cpu, step, e->in2), 0, CT_FLAGS_SIX);
}

CT_DO(ct_do_cmp)
{
  return ct_do_sub(e, cpu, step); /* out is none */
}

CT_DO(ct_do_sbb)
{
  return sub(e, cpu, step, value_of(e, cpu, step, e->in), value_of(e, cpu, step, e->in2), cpu->flags & CT_FLAG_CF,
             CT_FLAGS_SIX);
}

CT_DO(ct_do_dec)
{
  return sub(e, cpu, step, value_of(e, cpu, step, e->in), 1, 0, CT_FLAGS_SIX & ~CT_FLAG_CF);
}

CT_DO(ct_do_neg)
{
  return sub(e, cpu, step, 0, value_of(e, cpu, step, e->in), 0, CT_FLAGS_SIX);
}

/* CF and OF are 0, AF is undefined. */
static inline enum ct_emulated
logic(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step, uint64_t result)
{
  put(e, cpu, step, e->out, result);
  put_flags(cpu, CT_FLAGS_SIX, e->flags_undefined, flags_of(result, e->size));
  return CT_EMULATED;
}

CT_DO(ct_do_and)
{
  return logic(e, cpu, step, value_of(e, cpu, step, e->in) & value_of(e, cpu, step, e->in2));
}

CT_DO(ct_do_or)
{
  return logic(e, cpu, step, value_of(e, cpu, step, e->in) | value_of(e, cpu, step, e->in2));
}

CT_DO(ct_do_xor)
{
  return logic(e, cpu, step, value_of(e, cpu, step, e->in) ^ value_of(e, cpu, step, e->in2));
}

CT_DO(ct_do_test)
{
  return ct_do_and(e, cpu, step); /* out is none */
}

CT_DO(ct_do_andn)
{
  return logic(e, cpu, step, ~value_of(e, cpu, step, e->in) & value_of(e, cpu, step, e->in2));
}

CT_DO(ct_do_not)
{
  put(e, cpu, step, e->out, ~value_of(e, cpu, step, e->in));
  return CT_EMULATED;
}

/* Adds with one flag as the carry in and out. */
static inline enum ct_emulated
add_by(const struct ct_effects *e, struct ct_cpu *cpu, struct ct_step *step, uint64_t flag)
{
  uint64_t a = value_of(e, cpu, step, e->in), b = value_of(e, cpu, step, e->in2);
  uint64_t result = (a + b + ((cpu->flags & flag) != 0)) & mask_of(e->size);
  uint64_t carries = (a & b) | ((a | b) & ~result);
  put(e, cpu, step, e->out, result);
  put_flags(cpu, flag, 0, top_of(carries, e->size) * flag);
  return CT_EMULATED;
}

CT_DO(ct_do_adcx)
{
  return add_by(e, cpu, step, CT_FLAG_CF);
}

CT_DO(ct_do_adox)
{
  return add_by(e, cpu, step, CT_FLAG_OF);
}

/* The source becomes what the destination was; the sum stays where both are one register. */
CT_DO(ct_do_xadd)
{
  uint64_t a = value_of(e, cpu, step, e->in), b = value_of(e, cpu, step, e->in2);
  uint64_t result = (a + b) & mask_of(e->size);
  if (e->out == CT_OPERAND_MEMORY) {
    put(e, cpu, step, e->out, result);
    put(e, cpu, step, e->out2, a);
  } else {
    put(e, cpu, step, e->out2, a);
    put(e, cpu, step, e->out, result);
  }
  put_flags(cpu, CT_FLAGS_SIX, 0, flags_of_add(a, b, result, e->size));
  return CT_EMULATED;
}

/* Memory is written in any case. A register of 32 bits that is not exchanged keeps its upper half. */
CT_DO(ct_do_cmpxchg)
{
  uint64_t accumulator = cpu->reg[CT_RAX] & mask_of(e->size);
  uint64_t old = value_of(e, cpu, step, e->in), other = value_of(e, cpu, step, e->in2);
  uint64_t flags = flags_of_sub(accumulator, old, (accumulator - old) & mask_of(e->size), e->size);
  if (accumulator == old) {
    put(e, cpu, step, e->out, other);
  } else {
    if (e->out == CT_OPERAND_MEMORY) {
      put(e, cpu, step, e->out, old);
    }
    put_reg(cpu, CT_RAX, e->size, old);
  }
  put_flags(cpu, CT_FLAGS_SIX, 0, flags);
  return CT_EMULATED;
}

/* ---- multiplication ---- */

static inline void
put_product(const struct ct_effects *e, struct ct_cpu *cpu, uint64_t low, uint64_t high, bool carry)
{
  if (e->size == 1) {
    put_reg(cpu, CT_RAX, 2, (low & 0xff) | high << 8);
  } else {
    put_reg(cpu, CT_RAX, e->size, low);
    put_reg(cpu, CT_RDX, e->size, high);
  }
  put_flags(cpu, CT_FLAGS_SIX, e->flags_undefined, carry ? CT_FLAG_CF | CT_FLAG_OF : 0);
}

CT_DO(ct_do_mul)
{
  uint64_t a = cpu->reg[CT_RAX] & mask_of(e->size), b = value_of(e, cpu, step, e->in);
  unsigned __int128 product = (unsigned __int128)a * b;
  uint64_t high = (uint64_t)(product >> (8 * e->size)) & mask_of(e->size);
  put_product(e, cpu, (uint64_t)product, high, high != 0);
  return CT_EMULATED;
}

/* Does it not fit into size? */
static inline bool
overflows(__int128 product, unsigned size)
{
  return product != (__int128)(int64_t)extend((uint64_t)product, size);
}

static inline __int128
signed_product(uint64_t a, uint64_t b, unsigned size)
{
  return (__int128)(int64_t)extend(a, size) * (int64_t)extend(b, size);
}

CT_DO(ct_do_imul_wide)
{
  __int128 product = signed_product(cpu->reg[CT_RAX], value_of(e, cpu, step, e->in), e->size);
  put_product(e, cpu, (uint64_t)product, (uint64_t)(product >> (8 * e->size)), overflows(product, e->size));
  return CT_EMULATED;
}

CT_DO(ct_do_imul)
{
  __int128 product = signed_product(value_of(e, cpu, step, e->in), value_of(e, cpu, step, e->in2), e->size);
  put(e, cpu, step, e->out, (uint64_t)product);
  put_flags(cpu, CT_FLAGS_SIX, e->flags_undefined, overflows(product, e->size) ? CT_FLAG_CF | CT_FLAG_OF : 0);
  return CT_EMULATED;
}

/* The high half stays where both halves go to one register. */
CT_DO(ct_do_mulx)
{
  unsigned __int128 product = (unsigned __int128)(cpu->reg[CT_RDX] & mask_of(e->size)) * value_of(e, cpu, step, e->in);
  put(e, cpu, step, e->out2, (uint64_t)product);
  put(e, cpu, step, e->out, (uint64_t)(product >> (8 * e->size)));
  return CT_EMULATED;
}

/* ---- division ---- */

static inline void
put_quotient(const struct ct_effects *e, struct ct_cpu *cpu, uint64_t quotient, uint64_t remainder)
{
  if (e->size == 1) {
    put_reg(cpu, CT_RAX, 2, (quotient & 0xff) | (remainder & 0xff) << 8);
  } else {
    put_reg(cpu, CT_RAX, e->size, quotient);
    put_reg(cpu, CT_RDX, e->size, remainder);
  }
  put_flags(cpu, CT_FLAGS_SIX, e->flags_undefined, 0);
}

/* rdx:rax, of 8 bits ax. */
static inline unsigned __int128
dividend_of(const struct ct_effects *e, const struct ct_cpu *cpu)
{
  if (e->size == 1) {
    return cpu->reg[CT_RAX] & 0xffff;
  }
  return (unsigned __int128)(cpu->reg[CT_RDX] & mask_of(e->size)) << (8 * e->size) |
         (cpu->reg[CT_RAX] & mask_of(e->size));
}

CT_DO(ct_do_div)
{
  unsigned __int128 dividend = dividend_of(e, cpu);
  uint64_t divisor = value_of(e, cpu, step, e->in);
  if (dividend >> (8 * e->size) >= divisor) {
    return CT_EMULATED_FAULT; /* by 0, too */
  }
  put_quotient(e, cpu, (uint64_t)(dividend / divisor), (uint64_t)(dividend % divisor));
  return CT_EMULATED;
}

CT_DO(ct_do_idiv)
{
  unsigned unused = 128 - 16 * e->size;
  __int128 dividend = (__int128)(dividend_of(e, cpu) << unused) >> unused;
  int64_t divisor = (int64_t)extend(value_of(e, cpu, step, e->in), e->size);
  unsigned __int128 magnitude = dividend < 0 ? -(unsigned __int128)dividend : (unsigned __int128)dividend;
  uint64_t by = divisor < 0 ? -(uint64_t)divisor : (uint64_t)divisor;
  if (magnitude >> (8 * e->size) >= by) {
    return CT_EMULATED_FAULT;
  }
  bool negative = (dividend < 0) != (divisor < 0);
  uint64_t quotient = (uint64_t)(magnitude / by), remainder = (uint64_t)(magnitude % by);
  if (quotient > (mask_of(e->size) >> 1) + negative) {
    return CT_EMULATED_FAULT;
  }
  put_quotient(e, cpu, negative ? -quotient : quotient, dividend < 0 ? -remainder : remainder);
  return CT_EMULATED;
}
