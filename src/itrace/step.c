/* SPDX-License-Identifier: MIT */
/* Instructions that a thread executes where they are: system calls up to their ends, and single steps. */
#include "itrace/tracer.h"

#include "x86/effects.h"

#include <sys/syscall.h>

#define FLAG_TF 0x100ull

bool
ct_tracer_is_syscall(const struct ct_tracer *tracer, uint64_t pc)
{
  uint8_t code[2];
  struct ct_effects effects;
  return ct_process_read(&tracer->process, pc, code, sizeof(code)) == 0 &&
         ct_effects_of(code, sizeof(code), &effects) && effects.flow == CT_INSN_FLOW_SYSCALL;
}

struct ct_system_call
ct_tracer_call_of(uint64_t number, const struct user_regs_struct *regs)
{
  return (struct ct_system_call){.number = number,
                                 .args = {regs->rdi, regs->rsi, regs->rdx, regs->r10, regs->r8, regs->r9},
                                 .result = (int64_t)regs->rax};
}

/*
 * A system call is released to its end by PTRACE_SYSCALL: of a single step the trap flag would stay if we were killed
 * meanwhile, and the program would die of it.
 */
int
ct_tracer_go_on(struct ct_tracer *tracer, int signal)
{
  if (tracer->state != CT_TRACER_STEPS) {
    return ct_traced_go(tracer->tid, CT_TRACED_RUN, signal);
  }
  if (tracer->steps_call) {
    return ct_traced_go(tracer->tid, CT_TRACED_TO_CALL, signal);
  }
  tracer->hides_trap = ct_traced_block_trap(tracer->tid, false);
  return ct_traced_go(tracer->tid, CT_TRACED_STEP, signal);
}

void
ct_tracer_call_made(struct ct_tracer *tracer)
{
  struct user_regs_struct regs, before;
  if (tracer->steps_call && (tracer->call.number == SYS_clone || tracer->call.number == SYS_clone3) &&
      ct_traced_regs(tracer->tid, &regs) == 0 && ct_tracer_has_made_untraced(tracer, (int64_t)regs.rax)) {
    ct_itrace_untraced(tracer->all);
  }
  if (!ct_tracer_records(tracer) || !tracer->steps_call || ct_traced_regs(tracer->tid, &regs) != 0) {
    return;
  }
  before = regs;
  if (ct_traced_before_syscall(&before)) { /* fork, with a signal on its way */
    ct_recorder_step_not_made(tracer->recorder, before.rip);
  } else if (ct_writes_memory(tracer->call.number)) {
    tracer->call.result = (int64_t)regs.rax;
    ct_recorder_written(tracer->recorder, &tracer->call, ct_recorder_place(tracer->recorder));
  }
}

int
ct_tracer_step(struct ct_tracer *tracer, const struct user_regs_struct *regs, bool is_call)
{
  tracer->summary.steps++;
  tracer->state = CT_TRACER_STEPS;
  tracer->reason = CT_CONTEXT_STEP;
  tracer->steps_call = is_call;
  tracer->has_own_trap = (regs->eflags & FLAG_TF) != 0;
  tracer->is_in_call = tracer->steps_into_handler = false;
  if (is_call) {
    ct_tracer_note_mappings(tracer);
    tracer->call = ct_tracer_call_of(regs->rax, regs);
  }
  if (ct_tracer_records(tracer)) {
    ct_recorder_step(tracer->recorder, regs->rip);
  }
  return ct_tracer_go_on(tracer, 0);
}

void
ct_tracer_note_not_made(struct ct_tracer *tracer, const struct user_regs_struct *regs)
{
  bool is_step = tracer->state == CT_TRACER_STEPS && tracer->reason == CT_CONTEXT_STEP;
  if (ct_tracer_records(tracer) && is_step && !tracer->is_in_call) {
    ct_recorder_step_not_made(tracer->recorder, regs->rip);
  }
}
