/* SPDX-License-Identifier: MIT */
/* See units.h. Ids are mostly given one after the other, so their low bits are a good hash. */
#include "steps/units.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 256, INSNS_FIRST = 16 };

struct ct_units {
  struct ct_units_table table;
  size_t count, capacity;
  bool has_vectors;
};

struct ct_units *
ct_units_create(bool has_vectors)
{
  struct ct_units *units = calloc(1, sizeof(*units));
  struct ct_units_slot *slots = calloc(FIRST_SLOTS, sizeof(*slots));
  if (units == NULL || slots == NULL) {
    free(units);
    free(slots);
    return NULL;
  }
  units->table = (struct ct_units_table){.slots = slots, .mask = FIRST_SLOTS - 1};
  units->has_vectors = has_vectors;
  return units;
}

void
ct_units_free(struct ct_units *units)
{
  if (units == NULL) {
    return;
  }
  for (size_t i = 0; i < units->count; i++) {
    free(units->table.plans[i]->insn);
    free(units->table.plans[i]);
  }
  free(units->table.plans);
  free(units->table.slots);
  free(units);
}

const struct ct_units_table *
ct_units_table(const struct ct_units *units)
{
  return &units->table;
}

size_t
ct_units_count(const struct ct_units *units)
{
  return units->count;
}

struct ct_steps_plan *
ct_units_item(const struct ct_units *units, size_t i)
{
  return units->table.plans[i];
}

bool
ct_units_has_vectors(const struct ct_units *units)
{
  return units->has_vectors;
}

/* Its slot, or the free one for it. */
static struct ct_units_slot *
slot_of(const struct ct_units_table *table, uint32_t id)
{
  uint32_t at = id & table->mask;
  while (table->slots[at].number != 0 && table->slots[at].id != id) {
    at = (at + 1) & table->mask;
  }
  return &table->slots[at];
}

static int
grow(struct ct_units *units)
{
  struct ct_units_table *table = &units->table;
  if (units->count == units->capacity) {
    size_t capacity = units->capacity == 0 ? FIRST_SLOTS : 2 * units->capacity;
    struct ct_steps_plan **plans = realloc(table->plans, capacity * sizeof(struct ct_steps_plan *));
    if (plans == NULL) {
      return CT_ENOMEM;
    }
    table->plans = plans;
    units->capacity = capacity;
  }
  if (2 * units->count < table->mask) {
    return 0;
  }
  struct ct_units_table wider = {.mask = 2 * table->mask + 1, .plans = table->plans};
  wider.slots = calloc((size_t)wider.mask + 1, sizeof(*wider.slots));
  if (wider.slots == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < units->count; i++) {
    uint32_t id = table->plans[i]->id;
    *slot_of(&wider, id) = (struct ct_units_slot){.id = id, .number = (uint32_t)i + 1};
  }
  free(table->slots);
  *table = wider;
  return 0;
}

int
ct_units_add(struct ct_units *units, const struct ct_steps_unit *unit, const uint8_t *rest)
{
  size_t joint_bytes = unit->joints * sizeof(struct ct_steps_joint);
  struct ct_units_slot *slot = slot_of(&units->table, unit->id);
  if (slot->number != 0) {
    return 0;
  }
  struct ct_steps_plan *plan = grow(units) == 0 ? malloc(sizeof(*plan) + ct_steps_unit_rest(unit)) : NULL;
  if (plan == NULL) {
    return CT_ENOMEM;
  }
  *plan = (struct ct_steps_plan){.pc = unit->pc,
                                 .code = (const uint8_t *)(plan + 1) + joint_bytes,
                                 .joints = (const struct ct_steps_joint *)(plan + 1),
                                 .joint_count = unit->joints,
                                 .id = unit->id,
                                 .code_bytes = unit->code_bytes,
                                 .insns = unit->insns};
  memcpy(plan + 1, rest, ct_steps_unit_rest(unit));
  units->table.plans[units->count++] = plan;
  *slot_of(&units->table, unit->id) = (struct ct_units_slot){.id = unit->id, .number = (uint32_t)units->count};
  return 0;
}

int
ct_units_add_block(struct ct_units *units, const uint8_t *bytes, size_t size)
{
  struct ct_steps_unit unit;
  for (size_t at = 0; at < size; at += sizeof(unit) + ct_steps_unit_rest(&unit)) {
    if (size - at < sizeof(unit)) {
      return CT_EFORMAT;
    }
    memcpy(&unit, bytes + at, sizeof(unit));
    if (size - at - sizeof(unit) < ct_steps_unit_rest(&unit)) {
      return CT_EFORMAT;
    }
    if (ct_units_add(units, &unit, bytes + at + sizeof(unit)) != 0) {
      return CT_ENOMEM;
    }
  }
  return 0;
}

/* ---- plans ---- */

static bool
is_simple_size(unsigned size)
{
  return size == 1 || size == 2 || size == 4 || size == 8;
}

/* Whether its first value is what it loads; see ct_values_of. */
static bool
has_loaded_value(const struct ct_steps_insn *insn)
{
  const struct ct_effects *e = &insn->effects;
  if (insn->value_count == 0 || insn->values[0].kind > CT_VALUE_REG) {
    return false;
  }
  if (insn->values[0].kind == CT_VALUE_LOADED) {
    return true;
  }
  for (unsigned i = 0; i < e->access_count; i++) {
    if ((e->access[i].how & CT_ACCESS_READ) != 0) {
      return e->loaded_reg != CT_NO_REG && is_simple_size(e->access[i].size);
    }
  }
  return false;
}

/* Of xsave and the like: perhaps so much, all of what the processor has but for its matrices. */
static void
bound_stores(struct ct_effects *e)
{
  enum { XSAVE_BYTES = 2696, FXSAVE_BYTES = 512 };
  if ((e->traits & CT_EFFECT_MORE_STORES) == 0 || e->access_count != 1 || e->vectors_read != UINT32_MAX) {
    return;
  }
  e->access[0].size = e->access[0].size == FXSAVE_BYTES ? FXSAVE_BYTES : XSAVE_BYTES;
  e->access[0].how |= CT_ACCESS_PART;
}

bool
ct_steps_insn_of(const uint8_t *code, size_t size, uint64_t pc, bool has_vectors, struct ct_steps_insn *out)
{
  if (!ct_effects_of(code, size, &out->effects)) {
    return false;
  }
  const struct ct_effects *e = &out->effects;
  int count = ct_values_of(e, has_vectors, out->values);
  if (count == CT_VALUES_STEP) {
    return false;
  }
  out->pc = pc;
  out->code = code;
  out->value_count = (uint8_t)count;
  out->bytes = (uint16_t)ct_values_bytes(out->values, count);
  out->by_next = e->flow == CT_INSN_FLOW_RET || e->flow == CT_INSN_FLOW_JUMP_INDIRECT ||
                 e->flow == CT_INSN_FLOW_CALL_INDIRECT || e->flow == CT_INSN_FLOW_OTHER;
  out->is_emulated = e->derivable && !e->stores_unknown && (!e->uses_loaded || out->by_next || has_loaded_value(out));
  bound_stores(&out->effects);
  return true;
}

bool
ct_steps_plan_touches(const struct ct_steps_plan *plan, uint64_t start, uint64_t end)
{
  uint64_t pc = plan->pc;
  uint32_t at = 0;
  for (unsigned i = 0; i <= plan->joint_count; i++) {
    uint32_t to = i < plan->joint_count ? plan->joints[i].at : plan->code_bytes;
    if (at < to && pc < end && pc + (to - at) > start) {
      return true;
    }
    at = to;
    pc = i < plan->joint_count ? plan->joints[i].pc : pc;
  }
  return false;
}

/* False: out of memory. */
static bool
make_plan(const struct ct_units *units, struct ct_steps_plan *plan)
{
  size_t capacity = plan->insns + 1u;
  plan->insn = calloc(capacity, sizeof(*plan->insn));
  if (plan->insn == NULL) {
    return false;
  }
  uint32_t at = 0, bytes = 0, joint = 0;
  uint64_t pc = plan->pc;
  uint16_t known = 0;
  while (known < plan->insns) {
    struct ct_steps_insn *insn = &plan->insn[known];
    if (joint < plan->joint_count && plan->joints[joint].at <= at) {
      if (plan->joints[joint].at != at || at == 0) {
        break; /* within an instruction, or none comes before it */
      }
      pc = plan->joints[joint++].pc;
      continue;
    }
    if (!ct_steps_insn_of(plan->code + at, plan->code_bytes - at, pc, units->has_vectors, insn)) {
      break;
    }
    pc += insn->effects.length;
    insn->at = bytes;
    bytes += insn->bytes;
    at += insn->effects.length;
    known++;
  }
  plan->bytes = bytes;
  plan->is_bad = known < plan->insns || known == 0;
  plan->known = known != 0 ? known : 1;
  return true;
}

const struct ct_steps_plan *
ct_units_decode(struct ct_units *units, uint32_t id)
{
  struct ct_units_slot *slot = slot_of(&units->table, id);
  struct ct_steps_plan *plan = slot->number != 0 ? units->table.plans[slot->number - 1] : NULL;
  if (plan == NULL || (plan->known == 0 && !make_plan(units, plan)) || plan->is_bad) {
    return NULL;
  }
  slot->bytes = (uint32_t)sizeof(uint32_t) + plan->bytes;
  slot->insns = plan->insns;
  return plan;
}
