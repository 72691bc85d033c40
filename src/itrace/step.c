/* SPDX-License-Identifier: MIT */
/*
 * Instructions that a thread executes where they are: system calls up to their ends, and single steps.
 *
 * A tracer that is killed during a step leaves the trap flag behind: the thread dies of the trap after it, if the
 * instruction does not fault. So only what nothing else can do is a step. Far returns are none, of which the thread
 * gets the registers that it would have after them.
 */
#include "itrace/tracer.h"

#include "x86/effects.h"
#include "x86/far.h"

#include <sys/syscall.h>

#define FLAG_TF 0x100ull
#define FLAG_AC 0x40000ull
#define NO_CALL UINT32_MAX /* of those that the tracer knows */

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

/* False: the thread has to execute it itself. */
static bool
make_far_return(struct ct_tracer *tracer, const struct ct_far *far, const struct user_regs_struct *regs)
{
  uint64_t words[CT_FAR_WORDS] = {0};
  struct ct_far_state state = {
      .rip = regs->rip, .rsp = regs->rsp, .flags = regs->eflags, .cs = regs->cs, .ss = regs->ss};
  size_t count = far->kind == CT_FAR_RETURN ? CT_FAR_RETURN_WORDS : CT_FAR_WORDS;
  if (ct_process_read(&tracer->process, regs->rsp, words, count * sizeof(words[0])) != 0 ||
      !ct_far_return(far, words, &state)) {
    return false;
  }
  struct user_regs_struct after = *regs;
  after.rip = state.rip;
  after.rsp = state.rsp;
  after.eflags = state.flags;
  after.orig_rax = ~0ull;
  return ct_traced_set_regs(tracer->tid, &after) == 0;
}

static struct ct_far
far_at(const struct ct_tracer *tracer, uint64_t pc)
{
  uint8_t code[16];
  size_t size = sizeof(code);
  while (size != 0 && ct_process_read(&tracer->process, pc, code, size) != 0) {
    size--;
  }
  return ct_far_of(code, size);
}

int
ct_tracer_step(struct ct_tracer *tracer, const struct user_regs_struct *regs, bool is_call)
{
  struct ct_far far = is_call ? (struct ct_far){.kind = CT_FAR_NOT} : far_at(tracer, regs->rip);
  is_call |= far.kind == CT_FAR_CALL;
  tracer->summary.steps++;
  tracer->state = CT_TRACER_STEPS;
  tracer->reason = CT_CONTEXT_STEP;
  tracer->steps_call = is_call;
  tracer->has_own_trap = (regs->eflags & FLAG_TF) != 0;
  tracer->is_in_call = tracer->steps_into_handler = false;
  if (is_call) {
    ct_tracer_note_mappings(tracer);
    tracer->call = ct_tracer_call_of(far.kind == CT_FAR_CALL ? NO_CALL : regs->rax, regs);
  }
  if (ct_tracer_records(tracer)) {
    ct_recorder_step(tracer->recorder, regs->rip);
  }
  if (far.kind >= CT_FAR_RETURN && (regs->eflags & FLAG_AC) == 0 && make_far_return(tracer, &far, regs)) {
    return ct_tracer_stepped(tracer);
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
