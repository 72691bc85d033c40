/* SPDX-License-Identifier: MIT */
/* See recorded.h. */
#include "x86/recorded.h"

#define ALL_VECTORS      0xffffu
#define RESTORES_VECTORS 0xffffffffu

struct list {
  struct ct_recorded_value *values;
  int count;
  bool overflow;
};

static void
add(struct list *list, enum ct_value_kind kind, unsigned reg, unsigned size)
{
  if (list->count == CT_VALUES_MAX) {
    list->overflow = true;
    return;
  }
  list->values[list->count++] =
      (struct ct_recorded_value){.kind = (uint8_t)kind, .reg = (uint8_t)reg, .size = (uint8_t)size};
}

static bool
is_simple_size(unsigned size)
{
  return size == 1 || size == 2 || size == 4 || size == 8;
}

/* One place of memory, which an instruction of the recorder's can read in the same way. */
static bool
can_be_read(const struct ct_access *access)
{
  return is_simple_size(access->size) && access->bits_reg == CT_NO_REG &&
         (access->how & (CT_ACCESS_ADDRESS32 | CT_ACCESS_PART | CT_ACCESS_VECTOR | CT_ACCESS_REPEATED)) == 0;
}

static int
access_that(const struct ct_effects *effects, enum ct_access_how how)
{
  for (int i = 0; i < effects->access_count; i++) {
    if ((effects->access[i].how & how) != 0) {
      return i;
    }
  }
  return -1;
}

static bool
goes_by_next_record(const struct ct_effects *effects)
{
  return effects->flow == CT_INSN_FLOW_RET || effects->flow == CT_INSN_FLOW_JUMP_INDIRECT ||
         effects->flow == CT_INSN_FLOW_CALL_INDIRECT;
}

static void
add_written(const struct ct_effects *effects, struct list *list)
{
  for (unsigned reg = 0; reg < 16; reg++) {
    if ((effects->writes >> reg & 1) != 0) {
      add(list, CT_VALUE_REG, reg, 8);
    }
  }
  if (effects->flags_written != 0) {
    add(list, CT_VALUE_FLAGS, 0, 2);
  }
}

/* What it stores, where that can be read afterwards, and is not what a vector register holds. */
static void
add_stored(const struct ct_effects *effects, bool has_vectors, struct list *list)
{
  int i = access_that(effects, CT_ACCESS_WRITE);
  if (i < 0 || !can_be_read(&effects->access[i]) || (has_vectors && effects->stored_vector != CT_NO_VECTOR)) {
    return;
  }
  const struct ct_access *access = &effects->access[i];
  uint32_t used =
      (access->base != CT_NO_REG ? 1u << access->base : 0) | (access->index != CT_NO_REG ? 1u << access->index : 0);
  if ((used & effects->writes) == 0) {
    add(list, CT_VALUE_STORED, (unsigned)i, access->size);
  }
}

static void
add_vectors(const struct ct_effects *effects, struct list *list)
{
  if (effects->vectors_written == ALL_VECTORS) {
    return;
  }
  for (unsigned reg = 0; reg < 32; reg++) {
    if ((effects->vectors_written >> reg & 1) != 0) {
      add(list, CT_VALUE_VECTOR, reg, effects->vector_size);
    }
  }
  for (unsigned reg = 0; reg < 8; reg++) {
    if ((effects->masks_written >> reg & 1) != 0) {
      add(list, CT_VALUE_MASK, reg, 8);
    }
  }
}

int
ct_values_of(const struct ct_effects *effects, bool has_vectors, struct ct_recorded_value values[CT_VALUES_MAX])
{
  struct list list = {.values = values};
  int read = access_that(effects, CT_ACCESS_READ);
  bool derivable = effects->derivable;
  if (effects->flow == CT_INSN_FLOW_SYSCALL) {
    add(&list, CT_VALUE_REG, CT_RAX, 8);
    add(&list, CT_VALUE_REG, CT_R11, 4); /* the flags, which the emulator need not know */
    add(&list, CT_VALUE_TIME, 0, 8);
    return list.count;
  }
  if (goes_by_next_record(effects)) {
    return 0;
  }
  if (effects->vectors_written == RESTORES_VECTORS ||
      (!derivable && (effects->traits & (CT_EFFECT_WRITES_DF | CT_EFFECT_BASES)) != 0)) {
    return CT_VALUES_STEP;
  }
  if (derivable && effects->uses_loaded) {
    if (effects->loaded_reg != CT_NO_REG && read >= 0 && is_simple_size(effects->access[read].size)) {
      add(&list, CT_VALUE_REG, effects->loaded_reg, effects->access[read].size);
    } else if (read >= 0 && can_be_read(&effects->access[read])) {
      add(&list, CT_VALUE_LOADED, (unsigned)read, effects->access[read].size);
    } else {
      derivable = false;
    }
  }
  if (!derivable) {
    add_written(effects, &list);
  }
  if (!derivable || effects->stores_unknown) {
    add_stored(effects, has_vectors, &list);
  }
  if (has_vectors) {
    add_vectors(effects, &list);
  }
  return list.overflow ? CT_VALUES_STEP : list.count;
}
