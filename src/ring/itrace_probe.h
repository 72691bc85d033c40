/* SPDX-License-Identifier: MIT */
/* What agent and controller share of calls that are recorded as instructions while functions are recorded as ever. */
#ifndef CT_RING_ITRACE_PROBE_H
#define CT_RING_ITRACE_PROBE_H

#include "ring/offsets.h"

#include <stdint.h>

/*
 * Calls that are to be recorded as instructions: which functions they are of say descriptors, by the number of the
 * probe plus 1. The agent takes one of `calls` for each call whose register is as the condition says, and asks the
 * controller, which puts it back if the call could not be recorded.
 */
struct ct_itrace_probe {
  uint32_t calls; /* atomic */
  uint8_t reg;    /* enum ct_reg */
  uint8_t op;     /* enum ct_probe_op */
  uint16_t pad;
  int64_t value;
};
enum ct_probe_op {
  CT_PROBE_ALWAYS,
  CT_PROBE_EQUAL,
  CT_PROBE_UNEQUAL,
  CT_PROBE_LESS,
  CT_PROBE_LESS_EQUAL,
  CT_PROBE_MORE,
  CT_PROBE_MORE_EQUAL,
};
enum {
  CT_ITRACE_RULES = 32,  /* probes of rules, by their slots ... */
  CT_ITRACE_OPTIONS = 8, /* ... and those of the recording */
  CT_ITRACE_PROBES = CT_ITRACE_RULES + CT_ITRACE_OPTIONS
};
/* Where the thread goes on, what function that is of, its id and the number of the probe, the event of the call. */
enum ct_itrace_request {
  CT_ITRACE_ARG_PLACE,
  CT_ITRACE_ARG_FUNCTION,
  CT_ITRACE_ARG_FN,
  CT_ITRACE_ARG_PROBE,
  CT_ITRACE_ARG_TSC, /* 0: it has none */
};
_Static_assert(sizeof(struct ct_itrace_probe) == 1 << CT_ITRACE_PROBE_SHIFT, "probe");

#endif
