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
#include "process/stop.h"

struct ct_backtracer; /* opaque */

struct ct_stack_frame {
  uint64_t pc;
  uint64_t sp; /* in this frame: right above the return address of the one further in */
  bool exact;  /* pc is where the thread stood; otherwise the address after a call */
};

/* The part of a stack from start on, as it was at an earlier moment; what is further out, up to end, is not known. */
struct ct_stack_copy {
  uint64_t start, end;
  const uint8_t *bytes;
  size_t size;
};

/* 0, or an error with its text. layout NULL: there was nothing of ours in the process when its stacks were copied. */
int ct_backtracer_open(const struct ct_process *process, const struct ct_agent_layout *layout,
                       struct ct_backtracer **out, struct ct_diag *diag);
void ct_backtracer_close(struct ct_backtracer *tracer); /* accepts NULL */

/*
 * The frames of a thread with these registers, innermost first, at most max. Returns their number. copy NULL: its stack
 * is as it is in the process. *why: of which thread-local text says why there are no frames further out, NULL: the last
 * one is the outermost, or there are max.
 */
size_t ct_backtrace(struct ct_backtracer *tracer, const struct ct_registers *registers,
                    const struct ct_stack_copy *copy, struct ct_stack_frame *frames, size_t max, const char **why);
/* Opens the files of all modules, so that this is not to be done when it is urgent or the process is gone. */
void ct_backtracer_prepare(struct ct_backtracer *tracer);

/* The mapped file at pc as the mappings tell, and pc as an address of that file; NULL when there is none. */
const char *ct_backtrace_module(struct ct_backtracer *tracer, uint64_t pc, uint64_t *address);
/* The source line of pc, when there is debug information; the process need not be there any more. */
const char *ct_backtrace_line(struct ct_backtracer *tracer, uint64_t pc, int *line);

#endif
