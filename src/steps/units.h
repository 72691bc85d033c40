/* SPDX-License-Identifier: MIT */
/*
 * The units of a thread's steps: code, and for each instruction what it does and which values the records have of it.
 * Instructions are decoded when somebody asks for the unit's plan, once.
 *
 * Untrusted: a unit may be anything; a plan has the instructions up to the first that is none. Not for several threads.
 */
#ifndef CT_STEPS_UNITS_H
#define CT_STEPS_UNITS_H

#include "base/branch.h"
#include "ring/itrace_stream.h"
#include "x86/recorded.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_steps_insn {
  struct ct_effects effects;
  uint64_t pc;
  const uint8_t *code; /* effects.length bytes */
  uint32_t at;         /* of its values in those of the unit */
  uint16_t bytes;      /* of its values */
  uint8_t value_count;
  bool is_emulated; /* ct_emulate is given what it loads, by a value or by where the next record is */
  bool by_next;     /* where it goes on is only known of the next record */
  struct ct_recorded_value values[CT_VALUES_MAX];
};

struct ct_steps_plan {
  uint64_t pc;
  const uint8_t *code;
  const struct ct_steps_joint *joints; /* where it goes on elsewhere */
  uint32_t id;
  uint16_t code_bytes;
  uint16_t insns; /* executed to its end */
  uint8_t joint_count;
  uint32_t bytes; /* values of these */
  uint16_t known; /* instructions that could be decoded, at least insns; 0: not decoded yet */
  bool is_bad;    /* fewer than insns could be decoded */
  struct ct_steps_insn *insn;
};

struct ct_units;

/* NULL: out of memory. */
struct ct_units *ct_units_create(bool has_vectors);
void ct_units_free(struct ct_units *units); /* accepts NULL */

/* rest: what follows it, copied. An id that is there already stays as it is. 0 or CT_ENOMEM. */
int ct_units_add(struct ct_units *units, const struct ct_steps_unit *unit, const uint8_t *rest);
/* Those of a block CT_STEPS_UNITS. 0, CT_ENOMEM, or CT_EFORMAT when it does not end with a unit. */
int ct_units_add_block(struct ct_units *units, const uint8_t *bytes, size_t size);

/* With its instructions; NULL: there is none of that id, it is bad, or memory is exhausted. */
const struct ct_steps_plan *ct_units_decode(struct ct_units *units, uint32_t id);

/* All of them, in the order in which they were added. */
size_t ct_units_count(const struct ct_units *units);
struct ct_steps_plan *ct_units_item(const struct ct_units *units, size_t i);

/* Has it code from start to end - 1? */
bool ct_steps_plan_touches(const struct ct_steps_plan *plan, uint64_t start, uint64_t end);

bool ct_units_has_vectors(const struct ct_units *units);

/* The instruction at pc with its values; false: it is none, or one that is executed alone. */
bool ct_steps_insn_of(const uint8_t *code, size_t size, uint64_t pc, bool has_vectors, struct ct_steps_insn *out);

struct ct_units_slot {
  uint32_t id;
  uint32_t number; /* of the plan, plus 1; 0: free */
  uint32_t bytes;  /* of its record, with the id; 0: it is not decoded, or is bad */
  uint32_t insns;
};
struct ct_units_table {
  struct ct_units_slot *slots;
  uint32_t mask;
  struct ct_steps_plan **plans;
};
const struct ct_units_table *ct_units_table(const struct ct_units *units);

/* ct_units_decode for who asks for each record. */
static inline const struct ct_steps_plan *
ct_units_plan(struct ct_units *units, const struct ct_units_table *table, uint32_t id)
{
  const struct ct_units_slot *slot = &table->slots[id & table->mask];
  if (CT_LIKELY(slot->id == id && slot->number != 0)) {
    const struct ct_steps_plan *plan = table->plans[slot->number - 1];
    if (CT_LIKELY(plan->known != 0 && !plan->is_bad)) {
      return plan;
    }
  }
  return ct_units_decode(units, id);
}

#endif
