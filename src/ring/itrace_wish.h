/* SPDX-License-Identifier: MIT */
/* What agent and controller share of calls that are recorded as instructions while functions are recorded as ever. */
#ifndef CT_RING_ITRACE_WISH_H
#define CT_RING_ITRACE_WISH_H

#include "ring/offsets.h"

#include <stdint.h>

/*
 * Calls that are to be recorded as instructions: which functions they are of say descriptors, by the number of the wish
 * plus 1. The agent takes one of `calls` for each call whose register is as the condition says, and asks the
 * controller, which puts it back if the call could not be recorded.
 */
struct ct_itrace_wish {
  uint32_t calls; /* atomic */
  uint8_t reg;    /* enum ct_reg */
  uint8_t op;     /* enum ct_wish_op */
  uint16_t pad;
  int64_t value;
};
enum ct_wish_op {
  CT_WISH_ALWAYS,
  CT_WISH_EQUAL,
  CT_WISH_UNEQUAL,
  CT_WISH_LESS,
  CT_WISH_LESS_EQUAL,
  CT_WISH_MORE,
  CT_WISH_MORE_EQUAL,
};
enum {
  CT_ITRACE_RULES = 32,  /* wishes of rules, by their slots ... */
  CT_ITRACE_OPTIONS = 8, /* ... and those of the recording */
  CT_ITRACE_WISHES = CT_ITRACE_RULES + CT_ITRACE_OPTIONS
};
/* Where the thread goes on, what function that is of, its id and the number of the wish, the event of the call. */
enum ct_itrace_request {
  CT_ITRACE_ARG_PLACE,
  CT_ITRACE_ARG_FUNCTION,
  CT_ITRACE_ARG_FN,
  CT_ITRACE_ARG_WISH,
  CT_ITRACE_ARG_TSC, /* 0: it has none */
};
_Static_assert(sizeof(struct ct_itrace_wish) == 1 << CT_ITRACE_WISH_SHIFT, "wish");

#endif
