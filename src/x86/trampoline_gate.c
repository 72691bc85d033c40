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

/* The thread's counters are at r11. */
static struct ct_mem
calls_of(const struct ct_trampoline_spec *spec)
{
  return ct_mem(CT_R11, (int32_t)(spec->counter * sizeof(uint64_t)));
}

static struct ct_mem
recorded_of(const struct ct_trampoline_spec *spec)
{
  return ct_mem(CT_R11, (int32_t)(CT_COUNTERS_RECORDED + spec->counter * sizeof(uint32_t)));
}

static struct ct_mem
kept_r11(void)
{
  return ct_mem(CT_RSP, -24);
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
  ct_emit_mov_load(out, CT_R11, ct_mem_gs(CT_GS_COUNTERS));
  ct_emit_inc32_store(out, recorded_of(spec));
  ct_code_label_bind(out, &gate->uncounted);
  ct_emit_mov_load(out, CT_R11, kept_r11());
  ct_emit_jmp(out, enter);
}
