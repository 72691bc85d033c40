/* SPDX-License-Identifier: MIT */
/* What trampoline.c tells trampoline_unwind.c. */
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

#endif
