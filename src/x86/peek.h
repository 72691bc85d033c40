/* SPDX-License-Identifier: MIT */
/* One instruction at a glance: its length and where it goes on. For walks over code that is not hooked itself. */
#ifndef CT_X86_PEEK_H
#define CT_X86_PEEK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_flow {
  CT_FLOW_NEXT,     /* goes on after itself */
  CT_FLOW_BRANCH,   /* conditional: there or after itself */
  CT_FLOW_CALL,     /* and usually comes back after itself; system calls too */
  CT_FLOW_END,      /* direct jump, return, or an instruction that faults on purpose */
  CT_FLOW_INDIRECT, /* jump to an address from a register or from memory */
};

struct ct_peek {
  uint8_t length;
  uint8_t flow;    /* enum ct_flow */
  bool is_padding; /* nop of any length, or int3 */
};

/* Peeks at the instruction at code (size readable bytes). False when there is none. */
bool ct_peek(const uint8_t *code, size_t size, struct ct_peek *peek);

#endif
