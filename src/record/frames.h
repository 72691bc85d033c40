/* SPDX-License-Identifier: MIT */
/* Which function a frame of a stack is of, and how it is written in crash.json and stacks.json. */
#ifndef CT_RECORD_FRAMES_H
#define CT_RECORD_FRAMES_H

#include "record/backtrace.h"
#include "record/modules.h"

/* The loaded module that has code at pc, NULL: none that is known. */
const struct ct_module *ct_module_at(const struct ct_modules *modules, uint64_t pc);
/* The function at this ELF address, NULL: none. */
const struct ct_planned *ct_function_at(const struct ct_plan *plan, uint64_t address);
/* The place that the frame's function is at: after a call that is in it, its last byte. */
static inline uint64_t
ct_frame_inside(const struct ct_stack_frame *frame)
{
  return frame->pc - (frame->exact ? 0 : 1);
}
/* As docs/format.md describes a frame of a backtrace. */
json_t *ct_frame_json(const struct ct_modules *modules, struct ct_backtracer *tracer,
                      const struct ct_stack_frame *frame);
/* "0x..." as the value of a key. */
void ct_json_set_address(json_t *object, const char *key, uint64_t value);

#endif
