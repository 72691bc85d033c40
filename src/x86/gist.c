/* SPDX-License-Identifier: MIT */
/* See gist.h. Registers are addressed as numbers of struct ct_cpu, so absent ones need no branch: they are 0. */
#include "x86/gist.h"

#include "x86/emulate_internal.h"

#include <assert.h>
#include <string.h>

static_assert(offsetof(struct ct_cpu, reg) == 0, "general registers come first");
static_assert(offsetof(struct ct_cpu, rip) == CT_GIST_ZERO * sizeof(uint64_t), "rip is the register that is 0");
static_assert(offsetof(struct ct_cpu, fs_base) == CT_GIST_FS * sizeof(uint64_t), "so is its base");

/* What is being made of one instruction. */
struct making {
  struct ct_gist *ops;
  unsigned count;
  const struct ct_effects *e;
  uint64_t next; /* address of the next instruction */
  uint32_t at;   /* of its first value */
  uint8_t loaded_size;
  uint8_t nth;
};

static struct ct_gist *
add(struct making *m, enum ct_gist_kind kind, unsigned out)
{
  struct ct_gist *op = &m->ops[m->count++];
  *op = (struct ct_gist){.kind = (uint8_t)kind,
                         .out = (uint8_t)out,
                         .base = CT_GIST_ZERO,
                         .index = CT_GIST_ZERO,
                         .nth = m->nth,
                         .is_four = m->e->size == 4,
                         .at = m->at};
  return op;
}

/* ---- addresses ---- */

/* False: it is more than base, index and disp. */
static bool
put_address(const struct making *m, const struct ct_access *access, struct ct_gist *op)
{
  bool is_simple = access->bits_reg == CT_NO_REG && access->segment != CT_SEGMENT_GS &&
                   (access->how & ~(CT_ACCESS_READ | CT_ACCESS_WRITE | CT_ACCESS_RIP)) == 0;
  bool has_fs = access->segment == CT_SEGMENT_FS, has_index = access->index != CT_NO_REG;
  if (!is_simple || (has_fs && has_index)) {
    return false;
  }
  op->base = access->base != CT_NO_REG ? access->base & 15 : CT_GIST_ZERO;
  op->index = has_fs ? CT_GIST_FS : has_index ? access->index & 15 : CT_GIST_ZERO;
  op->scale = has_index ? access->scale : 0;
  op->disp = (int64_t)((uint64_t)access->disp + ((access->how & CT_ACCESS_RIP) != 0 ? m->next : 0)); /* may go round */
  return true;
}

static bool
add_store(struct making *m, const struct ct_access *access)
{
  struct ct_gist *op = add(m, CT_GIST_STORE, CT_GIST_ZERO);
  op->size = (uint8_t)access->size;
  return access->size != 0 && access->size <= CT_GIST_STORE_MAX && put_address(m, access, op);
}

/* All of them, as ct_mem_stores has them. */
static bool
add_stores(struct making *m)
{
  bool good = m->e->saves == CT_SAVES_NOT && (m->e->traits & CT_EFFECT_MORE_STORES) == 0;
  for (unsigned i = 0; i < m->e->access_count && good; i++) {
    good = (m->e->access[i].how & CT_ACCESS_WRITE) == 0 || add_store(m, &m->e->access[i]);
  }
  return good;
}

/* The one that the emulator makes of a result. */
static bool
add_result_store(struct making *m)
{
  const struct ct_access *access = &m->e->access[m->e->store & 1];
  return m->e->store < m->e->access_count && access->size == m->e->size && add_store(m, access);
}

static bool
add_push(struct making *m, unsigned size)
{
  const struct ct_effects *e = m->e;
  const struct ct_access *access = &e->access[e->store & 1];
  if (e->store >= e->access_count || access->base != CT_RSP || access->index != CT_NO_REG ||
      access->segment != CT_SEGMENT_NONE || access->disp != -(int64_t)size || (access->how & ~CT_ACCESS_WRITE) != 0) {
    return false;
  }
  add(m, CT_GIST_PUSH, CT_RSP)->size = (uint8_t)size;
  return true;
}

static struct ct_gist *
add_sum(struct making *m, unsigned out, unsigned base, int64_t disp)
{
  struct ct_gist *op = add(m, CT_GIST_ADDRESS, out);
  op->base = (uint8_t)base;
  op->disp = disp;
  return op;
}

/* ---- moves ---- */

/* What is loaded becomes the register. */
static bool
add_loaded(struct making *m, unsigned out, unsigned size, bool is_signed)
{
  bool is_whole = size == 8 && !is_signed;
  add(m, is_whole ? CT_GIST_LOADED8 : is_signed ? CT_GIST_LOADED_SIGNED : CT_GIST_LOADED, out)->size = (uint8_t)size;
  return is_signed ? size == 1 || size == 2 || size == 4 : size == 1 || size == 2 || size == 4 || size == 8;
}

static bool
add_move(struct making *m)
{
  const struct ct_effects *e = m->e;
  bool is_signed = e->op == CT_DO_MOVSX;
  unsigned size = e->op == CT_DO_MOV ? e->size : e->source_size;
  if (e->out == CT_OPERAND_MEMORY) {
    return e->op == CT_DO_MOV && add_result_store(m);
  }
  if (e->out >= 16 || e->size < 4 || size == 0 || size > 8) {
    return false;
  }
  if (e->in == CT_OPERAND_MEMORY) {
    return m->loaded_size == size && add_loaded(m, e->out, size, is_signed);
  }
  if (e->in == CT_OPERAND_IMM) {
    add_sum(m, e->out, CT_GIST_ZERO, (int64_t)((uint64_t)e->imm & mask_of(e->size)));
    return e->op == CT_DO_MOV;
  }
  if (e->in >= 16) {
    return false;
  }
  struct ct_gist *op = add(m, is_signed ? CT_GIST_SIGNED : CT_GIST_MASK, e->out);
  op->base = e->in;
  op->size = (uint8_t)size;
  op->disp = (int64_t)mask_of(size);
  return true;
}

static bool
add_lea(struct making *m)
{
  struct ct_gist *op = add(m, m->e->size == 4 ? CT_GIST_ADDRESS32 : CT_GIST_ADDRESS, m->e->out);
  return m->e->out < 16 && m->e->size >= 4 && put_address(m, &m->e->access[0], op);
}

static bool
add_pop(struct making *m)
{
  const struct ct_effects *e = m->e;
  if (e->out == CT_OPERAND_MEMORY ? !add_result_store(m) : e->out >= 16 || e->size != 8 || m->loaded_size != 8) {
    return false;
  }
  add_sum(m, CT_RSP, CT_RSP, e->size);
  return e->out == CT_OPERAND_MEMORY || add_loaded(m, e->out, 8, false);
}

static bool
add_leave(struct making *m)
{
  add_sum(m, CT_RSP, CT_RBP, 8);
  return m->loaded_size == 8 && add_loaded(m, CT_RBP, 8, false);
}

/* ---- arithmetic ---- */

/* base and what comes to it: in and in2, the second of them from wherever it is. */
static bool
add_two(struct making *m, enum ct_gist_kind kind, unsigned in, unsigned in2)
{
  const struct ct_effects *e = m->e;
  if (in == CT_OPERAND_MEMORY && (kind == CT_GIST_MUL || kind == CT_GIST_ADD)) {
    unsigned other = in;
    in = in2;
    in2 = other;
  }
  if (e->out == CT_OPERAND_MEMORY) {
    return add_result_store(m);
  }
  bool is_loaded = in2 == CT_OPERAND_MEMORY, is_constant = in2 == CT_OPERAND_IMM;
  if (e->out >= 16 || e->size < 4 || (is_loaded && m->loaded_size != e->size) ||
      (!is_loaded && !is_constant && in2 >= 16) || (in >= 16 && in != CT_GIST_ZERO)) {
    return false;
  }
  if (in == in2 && (kind == CT_GIST_XOR || kind == CT_GIST_SUB)) {
    add_sum(m, e->out, CT_GIST_ZERO, 0);
    return true;
  }
  if (kind == CT_GIST_ADD && !is_loaded) {
    kind = e->size == 4 ? CT_GIST_ADDRESS32 : CT_GIST_ADDRESS;
  }
  struct ct_gist *op = add(m, kind, e->out);
  op->base = (uint8_t)in;
  op->index = is_loaded || is_constant ? CT_GIST_ZERO : (uint8_t)in2;
  op->size = is_loaded ? e->size : 0;
  op->disp = is_constant ? e->imm : 0;
  return true;
}

static bool
add_constant(struct making *m, enum ct_gist_kind kind, int64_t constant)
{
  bool is_memory = m->e->out == CT_OPERAND_MEMORY;
  bool good = add_two(m, kind, m->e->in, CT_OPERAND_IMM);
  if (good && !is_memory) {
    m->ops[m->count - 1].disp = constant;
  }
  return good;
}

static bool
add_shift(struct making *m, enum ct_gist_kind kind)
{
  const struct ct_effects *e = m->e;
  if (e->out == CT_OPERAND_MEMORY) {
    return e->in2 == CT_OPERAND_IMM && add_result_store(m);
  }
  return e->in2 == CT_OPERAND_IMM && add_constant(m, kind, e->imm & (e->size == 8 ? 63 : 31));
}

/* rdx and rax. */
static bool
add_wide(struct making *m)
{
  const struct ct_effects *e = m->e;
  bool is_loaded = e->in == CT_OPERAND_MEMORY;
  struct ct_gist *op = add(m, CT_GIST_WIDE, CT_RAX);
  op->index = is_loaded ? CT_GIST_ZERO : e->in & 15;
  op->size = is_loaded ? e->size : 0;
  return e->size >= 4 && (is_loaded ? m->loaded_size == e->size : e->in < 16);
}

static bool
add_extended(struct making *m)
{
  const struct ct_effects *e = m->e;
  if (e->size < 4) {
    return false;
  }
  bool is_adx = e->op == CT_DO_EXTEND_ADX;
  struct ct_gist *op = add(m, is_adx ? CT_GIST_SAR : CT_GIST_SIGNED, is_adx ? CT_RDX : CT_RAX);
  op->base = CT_RAX;
  op->size = e->size / 2;
  op->disp = 8 * e->size - 1;
  return true;
}

static bool
add_emulated(struct making *m)
{
  const struct ct_effects *e = m->e;
  switch (e->op) {
  case CT_DO_NOTHING:
    return add_stores(m);
  case CT_DO_MOV:
  case CT_DO_MOVZX:
  case CT_DO_MOVSX:
    return add_move(m);
  case CT_DO_LEA:
    return add_lea(m);
  case CT_DO_PUSH:
    return e->size == 8 && add_push(m, 8);
  case CT_DO_CALL:
  case CT_DO_CALL_INDIRECT:
    return add_push(m, 8);
  case CT_DO_POP:
    return add_pop(m);
  case CT_DO_LEAVE:
    return add_leave(m);
  case CT_DO_RET:
    add_sum(m, CT_RSP, CT_RSP, 8 + e->imm);
    return true;
  case CT_DO_JMP:
  case CT_DO_JMP_INDIRECT:
  case CT_DO_JCC:
  case CT_DO_JRCXZ:
    return true;
  case CT_DO_EXTEND_AX:
  case CT_DO_EXTEND_ADX:
    return add_extended(m);
  case CT_DO_ADD:
    return add_two(m, CT_GIST_ADD, e->in, e->in2);
  case CT_DO_SUB:
    return add_two(m, CT_GIST_SUB, e->in, e->in2);
  case CT_DO_AND:
    return add_two(m, CT_GIST_AND, e->in, e->in2);
  case CT_DO_OR:
    return add_two(m, CT_GIST_OR, e->in, e->in2);
  case CT_DO_XOR:
    return add_two(m, CT_GIST_XOR, e->in, e->in2);
  case CT_DO_IMUL:
    return e->out < 16 && add_two(m, CT_GIST_MUL, e->in, e->in2);
  case CT_DO_MUL:
    return add_wide(m);
  case CT_DO_INC:
    return add_constant(m, CT_GIST_ADD, 1);
  case CT_DO_DEC:
    return add_constant(m, CT_GIST_ADD, -1);
  case CT_DO_NOT_BITS:
    return add_constant(m, CT_GIST_XOR, -1);
  case CT_DO_NEG:
    return e->in < 16 && add_two(m, CT_GIST_SUB, CT_GIST_ZERO, e->in);
  case CT_DO_SHL:
    return add_shift(m, CT_GIST_SHL);
  case CT_DO_SHR:
    return add_shift(m, CT_GIST_SHR);
  case CT_DO_SAR:
    return add_shift(m, CT_GIST_SAR);
  default:
    return e->writes == 0 && e->store == CT_OPERAND_NONE && e->flow == CT_INSN_FLOW_NEXT &&
           (e->traits & (CT_EFFECT_WRITES_DF | CT_EFFECT_BASES)) == 0;
  }
}

/* All registers that it writes are in the record. */
static bool
add_recorded(struct making *m, const struct ct_recorded_value *values, unsigned value_count)
{
  const struct ct_effects *e = m->e;
  uint16_t given = 0;
  bool good =
      e->flow == CT_INSN_FLOW_NEXT && (e->traits & (CT_EFFECT_WRITES_DF | CT_EFFECT_BASES)) == 0 && add_stores(m);
  for (unsigned i = 0; i < value_count && good; i++) {
    if (values[i].kind == CT_VALUE_REG) {
      given |= (uint16_t)(1u << (values[i].reg & 15));
      good = add_loaded(m, values[i].reg & 15, values[i].size, false);
    }
    m->at += values[i].size;
  }
  return good && (e->writes & ~given) == 0;
}

unsigned
ct_gist_of(const struct ct_effects *effects, const struct ct_recorded_value *values, unsigned value_count,
           bool is_emulated, bool is_asked, uint64_t pc, uint32_t at, uint8_t nth, struct ct_gist *ops)
{
  struct making m = {.ops = ops, .e = effects, .next = pc + effects->length, .at = at, .nth = nth};
  bool good = !is_asked;
  if (good && is_emulated) {
    m.loaded_size = value_count != 0 && values[0].kind <= CT_VALUE_REG ? values[0].size : 0;
    good = (effects->flags_read == 0 || effects->flow == CT_INSN_FLOW_BRANCH) && effects->saves == CT_SAVES_NOT &&
           add_emulated(&m);
  } else if (good) {
    good = add_recorded(&m, values, value_count);
  }
  if (!good) {
    ops[0] = (struct ct_gist){.kind = CT_GIST_WHOLE, .nth = nth};
    return 1;
  }
  return m.count;
}

/* ---- execution ---- */

static inline uint64_t
number_at(const uint8_t *at, unsigned size)
{
  uint64_t eight;
  uint32_t four;
  uint16_t two;
  switch (size) {
  case 8:
    memcpy(&eight, at, sizeof(eight));
    return eight;
  case 4:
    memcpy(&four, at, sizeof(four));
    return four;
  case 2:
    memcpy(&two, at, sizeof(two));
    return two;
  default:
    return *at;
  }
}

/* Exactly: those that go beyond the last address end there. */
static __attribute__((noinline, cold)) bool
writes(uint64_t address, unsigned size, struct ct_gist_bytes wanted)
{
  uint64_t last = address + size - 1 < address ? UINT64_MAX : address + size - 1;
  return address <= wanted.first + wanted.size - 1 && wanted.first <= last;
}

/* Who asks: for some bytes, or for all stores. */
struct asking {
  struct ct_gist_bytes wanted;
  int *hit;
  struct ct_gist_store **stores; /* NULL: for bytes */
};

static inline void
note_store(const struct ct_gist *op, uint64_t address, const struct asking *asking)
{
  struct ct_gist_bytes wanted = asking->wanted;
  if (asking->stores != NULL) {
    *(*asking->stores)++ = (struct ct_gist_store){address, op->size};
    return;
  }
  /* From size - 1 bytes before the first one wanted to the last one; addresses may go round. */
  unsigned more = op->size - 1u;
  if (CT_UNLIKELY(address - wanted.first + more < wanted.size + more) && writes(address, op->size, wanted)) {
    *asking->hit = op->nth;
  }
}

static inline uint64_t
put_half(const struct ct_gist *op, uint64_t value)
{
  return op->is_four ? (uint32_t)value : value;
}

static inline uint64_t
second(const struct ct_gist *op, const uint64_t *r, const uint8_t *values)
{
  return op->size != 0 ? number_at(values + op->at, op->size) : r[op->index] + (uint64_t)op->disp;
}

static inline void
multiply(const struct ct_gist *op, uint64_t *r, uint64_t by)
{
  if (op->is_four) {
    uint64_t product = (uint64_t)(uint32_t)r[CT_RAX] * (uint32_t)by;
    r[CT_RAX] = (uint32_t)product;
    r[CT_RDX] = product >> 32;
  } else {
    unsigned __int128 product = (unsigned __int128)r[CT_RAX] * by;
    r[CT_RAX] = (uint64_t)product;
    r[CT_RDX] = (uint64_t)(product >> 64);
  }
}

static inline uint64_t
shifted(const struct ct_gist *op, const uint64_t *r)
{
  uint64_t value = r[op->base];
  unsigned by = (unsigned)op->disp;
  if (op->kind == CT_GIST_SHL) {
    return put_half(op, value << by);
  }
  if (op->kind == CT_GIST_SHR) {
    return op->is_four ? (uint32_t)value >> by : value >> by;
  }
  return op->is_four ? (uint32_t)((int32_t)value >> by) : (uint64_t)((int64_t)value >> by);
}

static inline __attribute__((always_inline)) const struct ct_gist *
run(const struct ct_gist *op, struct ct_cpu *cpu, const uint8_t *values, const struct asking *asking)
{
  uint64_t *r = (uint64_t *)cpu, address;
  r[CT_GIST_ZERO] = 0;
  for (;; op++) {
    switch (op->kind) {
    case CT_GIST_STORE:
      address = r[op->base] + (r[op->index] << op->scale) + (uint64_t)op->disp;
      note_store(op, address, asking);
      break;
    case CT_GIST_PUSH:
      r[CT_RSP] -= op->size;
      note_store(op, r[CT_RSP], asking);
      break;
    case CT_GIST_ADDRESS:
      r[op->out] = r[op->base] + (r[op->index] << op->scale) + (uint64_t)op->disp;
      break;
    case CT_GIST_ADDRESS32:
      r[op->out] = (uint32_t)(r[op->base] + (r[op->index] << op->scale) + (uint64_t)op->disp);
      break;
    case CT_GIST_LOADED8:
      memcpy(&r[op->out], values + op->at, sizeof(*r));
      break;
    case CT_GIST_LOADED:
      r[op->out] = number_at(values + op->at, op->size);
      break;
    case CT_GIST_LOADED_SIGNED:
      r[op->out] = put_half(op, extend(number_at(values + op->at, op->size), op->size));
      break;
    case CT_GIST_MASK:
      r[op->out] = r[op->base] & (uint64_t)op->disp;
      break;
    case CT_GIST_SIGNED:
      r[op->out] = put_half(op, extend(r[op->base], op->size));
      break;
    case CT_GIST_ADD:
      r[op->out] = put_half(op, r[op->base] + second(op, r, values));
      break;
    case CT_GIST_SUB:
      r[op->out] = put_half(op, r[op->base] - second(op, r, values));
      break;
    case CT_GIST_AND:
      r[op->out] = put_half(op, r[op->base] & second(op, r, values));
      break;
    case CT_GIST_OR:
      r[op->out] = put_half(op, r[op->base] | second(op, r, values));
      break;
    case CT_GIST_XOR:
      r[op->out] = put_half(op, r[op->base] ^ second(op, r, values));
      break;
    case CT_GIST_MUL:
      r[op->out] = put_half(op, r[op->base] * second(op, r, values));
      break;
    case CT_GIST_WIDE:
      multiply(op, r, second(op, r, values));
      break;
    case CT_GIST_SHL:
    case CT_GIST_SHR:
    case CT_GIST_SAR:
      r[op->out] = shifted(op, r);
      break;
    default:
      return op;
    }
  }
}

const struct ct_gist *
ct_gist_run(const struct ct_gist *ops, struct ct_cpu *cpu, const uint8_t *values, struct ct_gist_bytes wanted, int *hit)
{
  const struct asking asking = {.wanted = wanted, .hit = hit};
  return run(ops, cpu, values, &asking);
}

const struct ct_gist *
ct_gist_stores(const struct ct_gist *ops, struct ct_cpu *cpu, const uint8_t *values, struct ct_gist_store **stores)
{
  const struct asking asking = {.stores = stores};
  return run(ops, cpu, values, &asking);
}
