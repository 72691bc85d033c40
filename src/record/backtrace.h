/* SPDX-License-Identifier: MIT */
/*
 * Backtraces of a traced process's threads, from outside, while they stand still: by the call frame information of its
 * modules (libdwfl), through /proc/PID/mem. To the unwinder hooks are not there: where a return address is a
 * trampoline's it is given the true one, where a thread stands in a trampoline or in the agent it starts from the
 * function that was being entered or left.
 */
#ifndef CT_RECORD_BACKTRACE_H
#define CT_RECORD_BACKTRACE_H

#include "hook/install.h"
#include "process/freeze.h"

struct ct_backtracer; /* opaque */

struct ct_stack_frame {
  uint64_t pc;
  bool exact; /* pc is where the thread stood; otherwise the address behind a call */
};

/* 0, or an error with its text. */
int ct_backtracer_open(const struct ct_process *process, const struct ct_agent_place *place, struct ct_backtracer **out,
                       struct ct_diag *diag);
void ct_backtracer_close(struct ct_backtracer *tracer); /* accepts NULL */

/* The frames of a thread with these registers, innermost first, at most max. Returns their number. */
size_t ct_backtrace(struct ct_backtracer *tracer, const struct ct_registers *registers, struct ct_stack_frame *frames,
                    size_t max);

/* The mapped file at pc as the mappings tell, and pc as an address of that file; NULL when there is none. */
const char *ct_backtrace_module(struct ct_backtracer *tracer, uint64_t pc, uint64_t *address);
/* The source line of pc, when there is debug information; the process need not be there any more. */
const char *ct_backtrace_line(struct ct_backtracer *tracer, uint64_t pc, int *line);

#endif
