/* SPDX-License-Identifier: MIT */
/* What a tracer of instructions that was killed has left in a process: code and records that nobody uses any more. */
#ifndef CT_ITRACE_LEFTOVERS_H
#define CT_ITRACE_LEFTOVERS_H

#include "process/stop.h"

struct ct_itrace_leftovers {
  size_t mappings; /* taken out */
  uint64_t bytes;  /* of address space */
  bool kept;       /* a thread is still in translated code, or is to come back to it from a signal's handler */
};

/* Whether there may be any: it looks at the mappings alone. */
bool ct_itrace_has_leftovers(pid_t pid);
/* Of a process all of whose threads are stopped, by us, so that no other tracer has any of them. 0 or an error. */
int ct_itrace_take_out(struct ct_stopped *stopped, struct ct_itrace_leftovers *leftovers);
/* The same of one that runs and that nobody records; it is stopped for a moment if there are any. */
int ct_itrace_clean(pid_t pid, struct ct_itrace_leftovers *leftovers, struct ct_diag *diag);
/* The same of one that the caller has just ceased to record. */
int ct_itrace_clean_own(pid_t pid, struct ct_itrace_leftovers *leftovers, struct ct_diag *diag);
/*
 * The same before a recording begins. What a tracer that was killed has left takes room near the program's code, and
 * the thread may still be in there: it leaves in a second or so. If another one is at work, or a thread waits in there
 * for long, it stays.
 */
void ct_itrace_clean_before(pid_t pid);

#endif
