/* SPDX-License-Identifier: MIT */
/*
 * What a recording costs the program, as status, the line at the end and info say it: an estimate, from how many events
 * of each kind there were and what the hook of that kind costs, as it was measured when the recording began.
 */
#ifndef CONTRAIL_COST_H
#define CONTRAIL_COST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is not in the estimate although there was some, because what it costs was not measured. */
enum ct_cost_part {
  CT_COST_DETAIL = 0,      /* records of the detail lane */
  CT_COST_BREAKPOINTS = 1, /* hooks by int3 may be among them, which take far longer than the others */
  CT_COST_LOST = 2,        /* events that were lost before they were written */
  CT_COST_OTHER = 3,       /* changes of the stack, longjmp and the like, when they are more than 1 % of all events */
  CT_COST_COUNTED = 4,     /* under a budget: calls that were only counted, and those of what is out with its patch */
  CT_COST_PART_COUNT = 5,
};

struct ct_cost {
  bool is_known;            /* what hooks cost was measured; else hooks_ns is 0 and says nothing */
  uint64_t hooks_ns;        /* of the program's processor time, the hooks' part; not more than all of it */
  uint64_t program_cpu_ns;  /* user and system, of the process since it is recorded; 0: not known */
  uint64_t recorder_cpu_ns; /* of the process that records, since then: all its sessions together */
  uint32_t left_out;        /* bits: 1 << enum ct_cost_part */
};

/* How a recording keeps to its budget. */
struct ct_budget_status {
  double limit;    /* of the processor time that the program would take without hooks; 0: there is no budget */
  double spent;    /* the same, of late: the sum of the next three */
  double hooks;    /* by hooks, with what code that is cold waits for them and patches that stay, as estimated ... */
  double switches; /* ... by the kernel's reports of the threads' switches ... */
  double recorder; /* ... and by the recorder's threads that read events and decide */
  size_t full;     /* functions of which every call is recorded ... */
  size_t sampled;  /* ... of which every call is counted and one of 64 is recorded too ... */
  size_t counted;  /* ... of which every call is counted ... */
  size_t out;      /* ... and whose calls are not seen */
  uint64_t steps;  /* changes of that so far, without those of the first choice */
};

/* The hooks' part of the program's processor time, 0 to 1; negative: not known. */
double ct_cost_share(const struct ct_cost *cost);
/* As JSON has it: "detail", ...; NULL: there is no such part. */
const char *ct_cost_part_name(int part);
/* "hooks took 912.0 ms, 61 % of the program's processor time (estimated); the recorder 420.0 ms". */
void ct_cost_put(FILE *out, const struct ct_cost *cost);

/* "5 %, of late 4.1 % spent (hooks 2.9, the recorder 1.2); functions: 5,120 in full, 40 sampled, 10 counted, 3 out; 230
 * steps". */
void ct_budget_put(FILE *out, const struct ct_budget_status *budget);

#ifdef __cplusplus
}
#endif

#endif
