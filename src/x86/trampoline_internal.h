/* SPDX-License-Identifier: MIT */
/* What trampoline.c shares with trampoline_unwind.c. */
#ifndef CT_X86_TRAMPOLINE_INTERNAL_H
#define CT_X86_TRAMPOLINE_INTERNAL_H

#include "x86/trampoline.h"

/* The offsets within the fixed part of a call-through trampoline where another row begins. */
struct ct_trampoline_layout {
  size_t popped;   /* after pop: rsp = S+8, address in the store */
  size_t adjusted; /* after lea at ret_point: rsp = S, address in the store */
  size_t restored; /* after the store to the return-address slot: rsp = S, address in it */
};

/* From emitting one. values: CT_HOOK_VALUES_*. */
void ct_trampoline_layout(uint8_t values, struct ct_detail_form detail, struct ct_trampoline_layout *layout);

/*
 * rax: how many bytes there are from rsp to the end of the thread's stack; to `none` where that is not known. A signal
 * handler on another stack may leave that one's range in the page, at any moment since the first check: so both words
 * are read, and read again, and rsp must lie in them. Changes rax, rdx and r11.
 */
void ct_trampoline_emit_stack_left(struct ct_code *out, struct ct_code_label *none);

/* trampoline_values.c. How many events they are, at most. */
unsigned ct_trampoline_enter_values(struct ct_values_form form);
unsigned ct_trampoline_return_values(struct ct_values_form form);
/* The arguments: rax, rdx and r11 are free, what they held is saved, and r10 says where it goes on. */
void ct_trampoline_emit_enter_values(const struct ct_trampoline_spec *spec, struct ct_code *out);
/* The results: likewise, and it goes on after them. As long for all forms. */
void ct_trampoline_emit_return_values(const struct ct_trampoline_spec *spec, struct ct_code *out);

/* trampoline_gate.c: what the first instructions look at, what follows the return half up to the displaced
 * instructions, and what lies out of the way. */
struct ct_trampoline_gate {
  uint64_t at; /* struct ct_gate; 0: there is none */
  struct ct_code_label closed, pass, record, uncounted;
};
void ct_trampoline_emit_level(const struct ct_trampoline_spec *spec, struct ct_code *out,
                              struct ct_trampoline_gate *gate);
void ct_trampoline_emit_gate(struct ct_code *out, struct ct_trampoline_gate *gate);
void ct_trampoline_emit_counting(const struct ct_trampoline_spec *spec, struct ct_code *out,
                                 struct ct_trampoline_gate *gate);
void ct_trampoline_emit_gate_cold(const struct ct_trampoline_spec *spec, struct ct_code *out,
                                  struct ct_trampoline_gate *gate, uint64_t enter);

#endif
