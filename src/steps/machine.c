/* SPDX-License-Identifier: MIT */
/* See machine.h. Most instructions are emulated with one value or none, and with nothing unknown: that is the way. */
#include "steps/machine.h"

#include "base/branch.h"

#define ALL_VECTORS  0xffffu
#define COMPARED     (CT_FLAGS_SIX | CT_FLAG_DF)
#define FIRST_LEVELS 16 /* vector registers that vzeroall and vzeroupper are about */

static inline uint64_t
number_at(const uint8_t *at, unsigned size)
{
  uint64_t value = 0;
  uint32_t four;
  uint16_t two;
  switch (size) {
  case 8:
    memcpy(&value, at, 8);
    return value;
  case 4:
    memcpy(&four, at, 4);
    return four;
  case 2:
    memcpy(&two, at, 2);
    return two;
  case 1:
    return *at;
  default:
    memcpy(&value, at, size < 8 ? size : 8);
    return value;
  }
}

/* ---- vector registers ---- */

static void
zero_vectors(struct ct_steps_state *state, const struct ct_effects *e)
{
  bool upper = e->vectors_read != 0;
  for (unsigned reg = 0; reg < FIRST_LEVELS; reg++) {
    unsigned from = upper ? 16 : 0;
    if (state->vectors_known[reg] >= from) {
      memset(state->vector[reg] + from, 0, CT_STEPS_VECTOR_BYTES - from);
      state->vectors_known[reg] = CT_STEPS_VECTOR_BYTES;
    }
  }
}

static void
put_vector(struct ct_steps_state *state, const struct ct_effects *e, const struct ct_recorded_value *value,
           const uint8_t *at)
{
  unsigned reg = value->reg % CT_STEPS_VECTORS;
  unsigned size = value->size <= CT_STEPS_VECTOR_BYTES ? value->size : CT_STEPS_VECTOR_BYTES;
  memcpy(state->vector[reg], at, size);
  if ((e->traits & CT_EFFECT_VECTOR_ZEROES) != 0) {
    memset(state->vector[reg] + size, 0, CT_STEPS_VECTOR_BYTES - size);
    state->vectors_known[reg] = CT_STEPS_VECTOR_BYTES;
  } else if (state->vectors_known[reg] < size) {
    state->vectors_known[reg] = (uint8_t)size;
  }
}

static void
take_vectors(struct ct_steps_state *state, const struct ct_steps_insn *insn, const uint8_t *values)
{
  const struct ct_effects *e = &insn->effects;
  uint32_t written = e->vectors_written, given = 0;
  if (written == ALL_VECTORS) {
    zero_vectors(state, e);
    return;
  }
  for (unsigned i = 0; i < insn->value_count; i++) {
    const struct ct_recorded_value *value = &insn->values[i];
    if (value->kind == CT_VALUE_VECTOR) {
      put_vector(state, e, value, values);
      given |= 1u << (value->reg & 31);
    } else if (value->kind == CT_VALUE_MASK) {
      state->mask[value->reg & 7] = number_at(values, value->size);
      state->masks_known |= (uint8_t)(1u << (value->reg & 7));
    }
    values += value->size;
  }
  for (uint32_t rest = written & ~given; rest != 0; rest &= rest - 1) {
    state->vectors_known[__builtin_ctz(rest)] = 0;
  }
}

/* ---- what is not emulated ---- */

static void
take_stored(const struct ct_steps_insn *insn, const struct ct_recorded_value *value, const uint8_t *at,
            const struct ct_cpu *before, struct ct_steps_did *did)
{
  uint64_t address = ct_address(&insn->effects, &insn->effects.access[value->reg & 1], before);
  for (unsigned i = 0; i < did->store_count; i++) {
    struct ct_mem_store *store = &did->stores[i];
    if (store->address == address && store->size == value->size && store->count == 1) {
      store->value = number_at(at, value->size);
      store->known = true;
    }
  }
}

/* Of xsave it is reported how much it stores, of what it is asked for and the processor has. */
static void
bound_save(const struct ct_effects *e, const struct ct_steps_state *before, struct ct_steps_did *did)
{
  bool known = (before->unknown & (1u << CT_RAX | 1u << CT_RDX)) == 0;
  uint64_t mask = known ? (before->cpu.reg[CT_RAX] & UINT32_MAX) | before->cpu.reg[CT_RDX] << 32 : UINT64_MAX;
  mask &= before->saved_parts != 0 ? before->saved_parts : UINT64_MAX;
  for (unsigned i = 0; i < did->store_count; i++) {
    did->stores[i].size = did->stores[i].size != 0 ? ct_effects_save_bytes(e, mask) : 0;
  }
}

static void
take_values(struct ct_steps_state *state, const struct ct_steps_insn *insn, const uint8_t *values,
            struct ct_steps_did *did)
{
  const struct ct_effects *e = &insn->effects;
  struct ct_cpu before = state->cpu;
  bool is_call = e->flow == CT_INSN_FLOW_SYSCALL;
  uint16_t given = 0;
  bool lost = (e->reads & state->unknown) != 0;
  did->store_count = (uint8_t)(lost ? 0 : ct_mem_stores(e, &state->cpu, did->stores));
  if (CT_UNLIKELY(e->saves != CT_SAVES_NOT)) {
    bound_save(e, state, did);
  }
  state->cpu.unknown |= e->flags_written;
  for (unsigned i = 0; i < insn->value_count; i++) {
    const struct ct_recorded_value *value = &insn->values[i];
    switch (value->kind) {
    case CT_VALUE_REG:
      state->cpu.reg[value->reg & 15] = number_at(values, value->size);
      given |= (uint16_t)(1u << (value->reg & 15));
      break;
    case CT_VALUE_FLAGS:
      state->cpu.flags =
          (state->cpu.flags & ~(uint64_t)CT_FLAGS_SIX) | ct_flags_of_value((uint16_t)number_at(values, value->size));
      state->cpu.unknown = 0;
      break;
    case CT_VALUE_STORED:
      take_stored(insn, value, values, &before, did);
      break;
    case CT_VALUE_TIME:
      did->time = number_at(values, value->size);
      break;
    default:
      break;
    }
    values += value->size;
  }
  state->cpu.rip += e->length;
  if (is_call) {
    state->cpu.reg[CT_RCX] = state->cpu.rip;
    state->cpu.flags = state->cpu.reg[CT_R11];
    state->cpu.unknown = 0;
    given |= 1u << CT_RCX;
  }
  state->unknown = (uint16_t)((state->unknown & ~given) | (e->writes & ~given));
}

/* ---- what is ---- */

static void
note_load(const struct ct_steps_insn *insn, const struct ct_steps_state *state, struct ct_steps_did *did)
{
  const struct ct_effects *e = &insn->effects;
  for (unsigned i = 0; i < e->access_count; i++) {
    const struct ct_access *access = &e->access[i];
    if ((access->how & CT_ACCESS_READ) != 0) {
      bool simple = access->size >= 1 && access->size <= 8 && (access->how & CT_ACCESS_VECTOR) == 0;
      bool known = simple && (ct_address_regs(access) & state->unknown) == 0;
      did->load_address = known ? ct_address(e, access, &state->cpu) : 0;
      did->load_size = known ? (uint8_t)access->size : 0;
      did->loaded &= simple ? ~0ull >> (64 - 8 * access->size) : 0;
      return;
    }
  }
}

/* Not to be known, whatever the emulator makes of it. */
static void
forget_store(struct ct_mem_store *store)
{
  store->known = false;
  store->address = 0;
  store->size = 0;
}

static void
forget_written(struct ct_steps_state *state, const struct ct_effects *e, struct ct_steps_did *did)
{
  state->unknown |= e->writes;
  state->cpu.unknown |= e->flags_written;
  for (unsigned i = 0; i < did->store_count; i++) {
    forget_store(&did->stores[i]);
  }
}

/* It was emulated, on some registers whose values were not known. */
static void
forget_unknown(struct ct_steps_state *state, const struct ct_effects *e, struct ct_steps_did *did)
{
  struct ct_unknown_after after = ct_emulated_unknown(e, state->unknown);
  bool somewhere = false;
  for (unsigned i = 0; i < e->access_count; i++) {
    bool is_written = (e->access[i].how & CT_ACCESS_WRITE) != 0;
    somewhere |= is_written && (ct_address_regs(&e->access[i]) & state->unknown) != 0;
  }
  for (unsigned i = 0; i < did->store_count; i++) {
    did->stores[i].known &= !after.stored;
    if (somewhere) {
      forget_store(&did->stores[i]);
    }
  }
  state->unknown = (uint16_t)((state->unknown & ~e->writes) | after.written);
  state->cpu.unknown |= after.flags ? e->flags_written : 0;
}

static void
emulate(struct ct_steps_state *state, const struct ct_steps_insn *insn, bool has_next, uint64_t next,
        struct ct_steps_did *did)
{
  const struct ct_effects *e = &insn->effects;
  unsigned stores = 0;
  bool by_unknown = e->flow == CT_INSN_FLOW_LOOP && (state->unknown & e->reads) != 0;
  enum ct_emulated code = ct_emulate(e, &state->cpu, did->loaded, did->stores, &stores);
  did->store_count = (uint8_t)stores;
  if (CT_UNLIKELY(e->saves != CT_SAVES_NOT)) {
    bound_save(e, state, did);
  }
  if (CT_UNLIKELY(code != CT_EMULATED)) {
    did->is_inconsistent = code == CT_EMULATED_FAULT && (e->reads & state->unknown) == 0;
    state->cpu.rip += e->length;
    if (e->flow != CT_INSN_FLOW_NEXT) {
      state->cpu.rip = has_next ? next : state->cpu.rip;
    }
    forget_written(state, e, did);
  } else if (CT_UNLIKELY(state->unknown != 0)) {
    forget_unknown(state, e, did);
    if (by_unknown) {
      state->cpu.rip = has_next ? next : insn->pc + e->length;
    }
  }
  if (insn->by_next) {
    state->cpu.rip = has_next ? next : state->cpu.rip;
    state->rip_unknown = !has_next && e->uses_loaded;
  }
}

void
ct_steps_execute(struct ct_steps_state *state, const struct ct_steps_insn *insn, const uint8_t *values, bool has_next,
                 uint64_t next, struct ct_steps_did *did)
{
  const struct ct_effects *e = &insn->effects;
  did->load_size = 0;
  did->time = 0;
  did->store_count = 0;
  did->is_inconsistent = state->cpu.rip != insn->pc && !state->rip_unknown;
  state->cpu.rip = insn->pc;
  state->rip_unknown = false;
  if (CT_UNLIKELY(!insn->is_emulated)) {
    take_values(state, insn, values, did);
    if (insn->by_next && has_next) {
      state->cpu.rip = next;
    }
  } else {
    if (e->uses_loaded) {
      did->loaded = insn->by_next ? next : number_at(values, insn->values[0].size);
      note_load(insn, state, did);
      did->load_size = insn->by_next && !has_next ? 0 : did->load_size;
    }
    emulate(state, insn, has_next, next, did);
  }
  if (CT_UNLIKELY((e->vectors_written | e->masks_written) != 0)) {
    take_vectors(state, insn, values);
  }
}

/* ---- contexts ---- */

void
ct_steps_take_context(struct ct_steps_state *state, const uint8_t *data)
{
  struct ct_stream_context context;
  memcpy(&context, data, sizeof(context));
  memset(state, 0, offsetof(struct ct_steps_state, vector));
  memcpy(state->cpu.reg, context.reg, sizeof(context.reg));
  state->cpu.rip = context.rip;
  state->cpu.flags = context.flags;
  state->cpu.fs_base = context.fs_base;
  state->cpu.gs_base = context.gs_base;
  data += sizeof(context);
  for (unsigned i = 0; i < context.vectors; i++) {
    memcpy(state->vector[i], data, context.vector_bytes);
    state->vectors_known[i] = context.vector_bytes;
    data += context.vector_bytes;
  }
  for (unsigned i = 0; i < context.masks; i++) {
    memcpy(&state->mask[i], data, 8);
    state->masks_known |= (uint8_t)(1u << i);
    data += 8;
  }
}

void
ct_steps_forget_all(struct ct_steps_state *state)
{
  state->unknown = 0xffff;
  state->cpu.unknown = CT_FLAGS_SIX;
  state->rip_unknown = true;
  state->masks_known = 0;
  memset(state->vectors_known, 0, sizeof(state->vectors_known));
}

bool
ct_steps_agrees(const struct ct_steps_state *a, const struct ct_steps_state *b)
{
  uint16_t unknown = a->unknown | b->unknown;
  for (unsigned i = 0; i < 16; i++) {
    if (a->cpu.reg[i] != b->cpu.reg[i] && (unknown >> i & 1) == 0) {
      return false;
    }
  }
  if (a->cpu.rip != b->cpu.rip && !a->rip_unknown && !b->rip_unknown) {
    return false;
  }
  return ((a->cpu.flags ^ b->cpu.flags) & COMPARED & ~(a->cpu.unknown | b->cpu.unknown)) == 0 &&
         a->cpu.fs_base == b->cpu.fs_base && a->cpu.gs_base == b->cpu.gs_base;
}

size_t
ct_steps_stored(const struct ct_effects *effects, const struct ct_mem_store *store, const struct ct_steps_state *after,
                uint8_t bytes[CT_STEPS_VECTOR_BYTES])
{
  if (store->part || store->size > CT_STEPS_VECTOR_BYTES) {
    return 0;
  }
  if (store->known && store->size <= sizeof(store->value)) {
    memcpy(bytes, &store->value, store->size);
    return store->size;
  }
  if (effects == NULL || effects->stored_vector >= CT_STEPS_VECTORS || store->count != 1 ||
      effects->stored_from + store->size > after->vectors_known[effects->stored_vector]) {
    return 0;
  }
  memcpy(bytes, after->vector[effects->stored_vector] + effects->stored_from, store->size);
  return store->size;
}
