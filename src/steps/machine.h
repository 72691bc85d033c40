/* SPDX-License-Identifier: MIT */
/*
 * The state of a thread between two instructions as far as it is known, and what an instruction with its recorded
 * values makes of it.
 *
 * Rules: what is not known is never claimed. A register is unknown only when an instruction read a flag that is
 * undefined, or what came of one; what is computed of it is unknown, until it is written otherwise. A vector register
 * is known from its low end on, or not at all.
 */
#ifndef CT_STEPS_MACHINE_H
#define CT_STEPS_MACHINE_H

#include "steps/stream.h"
#include "x86/emulate.h"

enum { CT_STEPS_VECTORS = 32, CT_STEPS_VECTOR_BYTES = 64, CT_STEPS_MASKS = 8 };

struct ct_steps_state {
  struct ct_cpu cpu;                       /* cpu.unknown: of the flags */
  uint16_t unknown;                        /* general registers, a bit each */
  bool rip_unknown;                        /* after a return whose next record is lost */
  uint8_t masks_known;                     /* a bit each */
  uint8_t vectors_known[CT_STEPS_VECTORS]; /* bytes, from the low end */
  uint64_t mask[CT_STEPS_MASKS];
  uint8_t vector[CT_STEPS_VECTORS][CT_STEPS_VECTOR_BYTES];
  uint32_t saved_parts; /* see struct ct_steps_file; of the processor: no context changes it */
};

/* What an instruction did, besides the state. */
struct ct_steps_did {
  uint64_t loaded, load_address; /* if load_size is not 0 */
  struct ct_mem_store stores[2];
  uint64_t time; /* time stamp counter after a system call; 0: it has none */
  uint8_t load_size;
  uint8_t store_count;
  bool is_inconsistent; /* it is not where the state before it says, or faults in the emulator although it ended */
};

/* Is it a conditional branch whose condition the state does not tell? */
static inline bool
ct_steps_branches_on_unknown(const struct ct_steps_state *state, const struct ct_steps_insn *insn)
{
  const struct ct_effects *e = &insn->effects;
  return ((state->cpu.unknown & e->flags_read) != 0 && e->flow != CT_INSN_FLOW_NEXT) ||
         (e->flow == CT_INSN_FLOW_LOOP && (state->unknown & e->reads) != 0);
}

/*
 * Executes it: *state becomes that after it. values: of the instruction. next: where the record after it goes on, if
 * it is the last one of its record and that is known (has_next), else as in the code.
 */
void ct_steps_execute(struct ct_steps_state *state, const struct ct_steps_insn *insn, const uint8_t *values,
                      bool has_next, uint64_t next, struct ct_steps_did *did);

/*
 * The bytes that its store of that number has written, one element of it, given the state after it: all of them, or 0
 * when they are not known, or are more than CT_STEPS_VECTOR_BYTES.
 */
size_t ct_steps_stored(const struct ct_effects *effects, const struct ct_mem_store *store,
                       const struct ct_steps_state *after, uint8_t bytes[CT_STEPS_VECTOR_BYTES]);

/* The state that a context (ct_stream_context_is_good) tells, in place of what *state was. */
void ct_steps_take_context(struct ct_steps_state *state, const uint8_t *data);
/* Nothing of registers and flags is known any more. */
void ct_steps_forget_all(struct ct_steps_state *state);
/* Whether what both know of general registers, flags and rip is the same. */
bool ct_steps_agrees(const struct ct_steps_state *a, const struct ct_steps_state *b);

#endif
