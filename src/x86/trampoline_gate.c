/* SPDX-License-Identifier: MIT */
/*
 * The gate of a full hook, under a budget: before the enter half of a full hook a level is looked at, by which the
 * controller says, while threads run, whether calls are recorded, counted or neither. What is counted goes on into the
 * displaced instructions as if there were no hook; of these calls the mask finds some that are recorded too. A page
 * without counters (of a thread that is new, a forked child, or of several threads) leaves the call to the enter half.
 * The agent's stubs try again after the gate, so no call is counted twice.
 *
 *   (64-byte line) level and mask
 *   start:      level?                              not full -> gate
 *   enter:      as above, up to ret
 *   gate:       out -> relocated; count             to be recorded -> cold part, enter
 *   relocated:  as above
 *
 * Where a request runs through thousands of functions once each line of memory that a call touches is a wait, and each
 * jump that the processor has not foreseen: a call that is counted touches the first line, the one or two of the gate
 * with the displaced instructions after it, and its counter's.
 */
#include "x86/trampoline_internal.h"

#include "ring/counters.h"

#include <assert.h>

static struct ct_mem
counter_offset(const struct ct_trampoline_gate *gate)
{
  return ct_mem_rip(gate->at - CT_GATE_COUNTER);
}

/* The thread's counters are at r11, or, where the function's counter moves, the number of its calls. */
static struct ct_mem
calls_of(const struct ct_trampoline_spec *spec)
{
  return ct_mem(CT_R11, spec->moves_counter ? 0 : (int32_t)ct_counter_calls_offset(spec->counter));
}

/* Likewise; where it moves r11 has gone half of the way, since these numbers are half as long. */
static struct ct_mem
recorded_of(const struct ct_trampoline_spec *spec)
{
  return ct_mem(CT_R11, (int32_t)ct_counter_recorded_offset(spec->moves_counter ? 0 : spec->counter));
}

static struct ct_mem
kept_r11(void)
{
  return ct_mem(CT_RSP, -24);
}

void
ct_trampoline_emit_level(const struct ct_trampoline_spec *spec, struct ct_code *out, struct ct_trampoline_gate *gate)
{
  if (spec->moves_counter) {
    uint64_t offset = ct_counter_calls_offset(spec->counter);
    static_assert(sizeof(offset) == CT_GATE_COUNTER, "it comes right before the gate");
    ct_emit_bytes(out, &offset, sizeof(offset));
  }
  gate->at = ct_code_pc(out);
  ct_emit_bytes(out, &spec->gate, sizeof(spec->gate));
}

void
ct_trampoline_emit_gate(struct ct_code *out, struct ct_trampoline_gate *gate)
{
  static_assert(CT_LEVEL_FULL < CT_LEVEL_COUNTING && CT_LEVEL_COUNTING < CT_LEVEL_OUT, "one compare is enough");
  ct_emit_cmp8_store_imm(out, ct_mem_rip(gate->at + offsetof(struct ct_gate, level)), CT_LEVEL_COUNTING);
  ct_emit_jcc_label(out, CT_JAE, &gate->closed);
}

/* A handler that interrupts may count in between: then its call is recorded in place of this one. */
void
ct_trampoline_emit_counting(const struct ct_trampoline_spec *spec, struct ct_code *out, struct ct_trampoline_gate *gate)
{
  ct_code_label_bind(out, &gate->closed);
  ct_emit_jcc_label(out, CT_JNE, &gate->pass);
  ct_emit_mov_store(out, kept_r11(), CT_R11);
  ct_emit_mov_load(out, CT_R11, ct_mem_gs(CT_GS_COUNTERS));
  ct_emit_cmp_imm(out, CT_R11, 0);
  ct_emit_jcc_label(out, CT_JE, &gate->uncounted);
  if (spec->moves_counter) {
    ct_emit_add_load(out, CT_R11, counter_offset(gate));
  }
  ct_emit_inc_store(out, calls_of(spec));
  ct_emit_mov32_load(out, CT_R11, calls_of(spec)); /* the mask has no more bits */
  ct_emit_and32_load(out, CT_R11, ct_mem_rip(gate->at + offsetof(struct ct_gate, mask)));
  ct_emit_cmp32_imm(out, CT_R11, 1);
  ct_emit_jcc_label(out, CT_JE, &gate->record);
  ct_emit_mov_load(out, CT_R11, kept_r11());
  ct_code_label_bind(out, &gate->pass);
}

void
ct_trampoline_emit_gate_cold(const struct ct_trampoline_spec *spec, struct ct_code *out,
                             struct ct_trampoline_gate *gate, uint64_t enter)
{
  ct_code_label_bind(out, &gate->record);
  if (spec->moves_counter) {
    static_assert(sizeof(uint64_t) / sizeof(uint32_t) == 2, "half of the offset");
    ct_emit_mov_load(out, CT_R11, counter_offset(gate));
    ct_emit_shr_once(out, CT_R11);
    ct_emit_add_load(out, CT_R11, ct_mem_gs(CT_GS_COUNTERS));
  } else {
    ct_emit_mov_load(out, CT_R11, ct_mem_gs(CT_GS_COUNTERS));
  }
  ct_emit_inc32_store(out, recorded_of(spec));
  ct_code_label_bind(out, &gate->uncounted);
  ct_emit_mov_load(out, CT_R11, kept_r11());
  ct_emit_jmp(out, enter);
}
