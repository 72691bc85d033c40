/* SPDX-License-Identifier: MIT */
/*
 * From the state of a thread that runs translated to that of the program, and back; signals, which are delivered with
 * the program's own state; what the thread waits for.
 *
 * A signal: ptrace stops the thread before it is delivered, at any place of the translated code. The notes of the
 * translator make the program's state of the thread's, the kernel makes the handler's frame of that, and a single step
 * stops the thread at the handler's first instruction, from which it goes on translated. rt_sigreturn is a step again.
 */
#include "itrace/tracer.h"

#include "base/clock.h"
#include "base/test_point.h"
#include "process/again.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define FLAGS_OF_LAHF 0xd5ull
#define FLAG_OF       0x800ull
#define FLAG_TF       0x100ull
#define FLAG_AC       0x40000ull

static const size_t places[16] = {
    [CT_RAX] = offsetof(struct user_regs_struct, rax), [CT_RCX] = offsetof(struct user_regs_struct, rcx),
    [CT_RDX] = offsetof(struct user_regs_struct, rdx), [CT_RBX] = offsetof(struct user_regs_struct, rbx),
    [CT_RSP] = offsetof(struct user_regs_struct, rsp), [CT_RBP] = offsetof(struct user_regs_struct, rbp),
    [CT_RSI] = offsetof(struct user_regs_struct, rsi), [CT_RDI] = offsetof(struct user_regs_struct, rdi),
    [CT_R8] = offsetof(struct user_regs_struct, r8),   [CT_R9] = offsetof(struct user_regs_struct, r9),
    [CT_R10] = offsetof(struct user_regs_struct, r10), [CT_R11] = offsetof(struct user_regs_struct, r11),
    [CT_R12] = offsetof(struct user_regs_struct, r12), [CT_R13] = offsetof(struct user_regs_struct, r13),
    [CT_R14] = offsetof(struct user_regs_struct, r14), [CT_R15] = offsetof(struct user_regs_struct, r15),
};

static void
set_reg(struct user_regs_struct *regs, enum ct_reg reg, uint64_t value)
{
  *(unsigned long long *)((char *)regs + places[reg]) = value;
}

static uint64_t
get_reg(const struct user_regs_struct *regs, enum ct_reg reg)
{
  return *(const unsigned long long *)((const char *)regs + places[reg]);
}

static void
take_flags(const struct ct_itrace_slots *slots, struct user_regs_struct *regs)
{
  regs->eflags = (regs->eflags & ~(FLAGS_OF_LAHF | FLAG_OF)) | (slots->flags >> 8 & FLAGS_OF_LAHF) |
                 ((slots->flags & 1) != 0 ? FLAG_OF : 0);
}

/* What the wait for the tracer changes is in the slots. */
static void
take_waiting(const struct ct_itrace_slots *slots, struct user_regs_struct *regs)
{
  static const uint8_t saved[] = {CT_RAX, CT_RCX, CT_RDX, CT_RSI, CT_RDI, CT_R8, CT_R9, CT_R10, CT_R11};
  for (size_t i = 0; i < sizeof(saved); i++) {
    set_reg(regs, (enum ct_reg)saved[i], slots->regs[saved[i]]);
  }
  take_flags(slots, regs);
  regs->orig_rax = ~0ull;
}

/* The registers of records. Where the record begins. */
static uint64_t
take_record(const struct ct_itrace_slots *slots, const struct ct_recovery *recovery, struct user_regs_struct *regs)
{
  uint64_t place = recovery->r11_is_slot           ? regs->r11
                   : recovery->record != CT_NO_REG ? get_reg(regs, (enum ct_reg)recovery->record)
                                                   : 0; /* it is in a slot */
  if (recovery->rax_is_scratch) {
    regs->rax = get_reg(regs, (enum ct_reg)recovery->scratch);
  }
  if (recovery->scratch != CT_NO_REG) {
    set_reg(regs, (enum ct_reg)recovery->scratch, slots->spill_scratch);
  }
  if (recovery->record != CT_NO_REG) {
    set_reg(regs, (enum ct_reg)recovery->record, slots->spill_record);
  }
  if (recovery->r10_is_slot) {
    regs->r10 = slots->app_r10;
  }
  if (recovery->r11_is_slot) {
    regs->r11 = slots->app_r11;
  }
  return place;
}

/*
 * Has an exit led there: does the thread wait, or is it about to? On the way of an indirect branch rcx is spilled, and
 * slots.exit is that of an earlier wait.
 */
static bool
is_after_exit(const struct ct_recovery *recovery)
{
  return recovery->unit == 0 && recovery->pc_is == CT_PC_TARGET && recovery->rcx_is == CT_RCX_OWN;
}

/* Does it wait for the tracer by an exit of that kind, or has not gone on since? */
static bool
waits_by(const struct ct_tracer *tracer, const struct ct_recovery *recovery, enum ct_exit_kind kind)
{
  const struct ct_unit_exit *from =
      ct_code_cache_exit(tracer->space->cache, __atomic_load_n(&tracer->space->slots->exit, __ATOMIC_RELAXED));
  return is_after_exit(recovery) && from != NULL && from->kind == kind;
}

/* Bytes of the instruction that it has executed without a record; 0: of none. */
static uint8_t
apart_of(const struct ct_tracer *tracer, const struct ct_recovery *recovery)
{
  const struct ct_unit_exit *from =
      ct_code_cache_exit(tracer->space->cache, __atomic_load_n(&tracer->space->slots->exit, __ATOMIC_RELAXED));
  return is_after_exit(recovery) && from != NULL ? from->apart : recovery->apart;
}

/* The thread has stopped, and its records are closed: what its last system call has written belongs to them. */
static void
reconcile_call(struct ct_tracer *tracer, bool is_made, const struct user_regs_struct *regs)
{
  struct ct_itrace_slots *slots = tracer->space->slots;
  bool writes = slots->call_kind == CT_ITRACE_CALL_WRITES;
  slots->call_kind = CT_ITRACE_CALL_QUIET;
  if (writes && is_made) {
    struct ct_system_call call = ct_tracer_call_of(slots->call, regs);
    ct_recorder_written(tracer->recorder, &call, ct_recorder_place(tracer->recorder));
  }
}

bool
ct_tracer_find_state(const struct ct_tracer *tracer, struct user_regs_struct *regs, struct ct_found_state *out)
{
  const struct ct_itrace_slots *slots = tracer->space->slots;
  struct ct_recovery recovery;
  bool found;
  *out = (struct ct_found_state){.is_spoilt = false};
  if (tracer->space->cache == NULL || !ct_code_cache_recovery(tracer->space->cache, regs->rip, &recovery, &found)) {
    return false;
  }
  out->is_spoilt = !found;
  if (!found) {
    return true;
  }
  uint64_t rcx = recovery.rcx_is == CT_RCX_R10 ? regs->r10 : slots->spill_rcx;
  regs->rip = recovery.pc_is == CT_PC_TARGET ? slots->target
              : recovery.pc_is == CT_PC_RCX  ? recovery.pc + regs->rcx
                                             : recovery.pc;
  if (recovery.is_waiting) {
    take_waiting(slots, regs);
  } else if (recovery.rax_is_slot) {
    regs->rax = slots->regs[CT_RAX];
  }
  if (recovery.flags_are_slot) {
    take_flags(slots, regs);
  }
  if (ct_tracer_records(tracer)) {
    out->place = take_record(slots, &recovery, regs);
    out->waits = waits_by(tracer, &recovery, CT_EXIT_WRITTEN);
    out->is_sequence = recovery.is_sequence || waits_by(tracer, &recovery, CT_EXIT_SEQUENCE);
    out->place = out->waits || recovery.place_is_slot ? slots->spill_place : out->place;
    out->apart = apart_of(tracer, &recovery);
  }
  if (recovery.rcx_is != CT_RCX_OWN) {
    regs->rcx = recovery.rcx_is == CT_RCX_PC ? regs->rip : rcx;
  }
  if (recovery.borrowed != CT_NO_REG) {
    set_reg(regs, (enum ct_reg)recovery.borrowed, slots->spill);
  }
  out->recovery = recovery;
  return true;
}

static void
reconcile(struct ct_tracer *tracer, const struct ct_found_state *found, const struct user_regs_struct *regs)
{
  if (!found->has_left) {
    ct_recorder_close(tracer->recorder, &found->recovery, found->place, regs);
    reconcile_call(tracer, found->waits || found->recovery.done != 0, regs);
  }
  if (found->apart != 0) {
    ct_recorder_step(tracer->recorder, regs->rip - found->apart);
    ct_recorder_context(tracer->recorder, regs, CT_CONTEXT_STEP);
  }
  if (found->is_sequence || found->has_left) {
    struct user_regs_struct at = *regs;
    ct_traced_before_syscall(&at); /* that a thread which had left is about to make again */
    ct_recorder_context(tracer->recorder, &at, CT_CONTEXT_GAP);
  }
}

void
ct_tracer_close_left(struct ct_tracer *tracer, const struct user_regs_struct *regs)
{
  struct user_regs_struct waiting = *regs;
  struct ct_found_state found;
  take_waiting(tracer->space->slots, &waiting);
  waiting.rip = ct_code_cache_wait(tracer->space->cache);
  if (ct_tracer_find_state(tracer, &waiting, &found) && !found.is_spoilt) {
    ct_recorder_close(tracer->recorder, &found.recovery, found.place, &waiting);
    reconcile_call(tracer, found.waits, &waiting);
  }
  tracer->space->slots->exit = CT_ITRACE_EXIT_MISS;
  ct_recorder_gap(tracer->recorder);
}

bool
ct_tracer_recover(struct ct_tracer *tracer, struct user_regs_struct *regs, bool *spoilt, bool *is_before)
{
  struct ct_found_state found;
  bool is_translated = ct_tracer_find_state(tracer, regs, &found);
  found.has_left = !is_translated && ct_tracer_has_left(tracer);
  if (found.has_left) {
    ct_tracer_is_back(tracer, regs);
  }
  *spoilt = found.is_spoilt;
  if (is_before != NULL) {
    *is_before = is_translated && !found.is_spoilt && found.recovery.is_before;
  }
  if ((!is_translated && !found.has_left) || found.is_spoilt || !ct_tracer_records(tracer)) {
    return is_translated;
  }
  if (found.waits || found.is_sequence || found.apart != 0) {
    tracer->space->slots->exit = CT_ITRACE_EXIT_MISS; /* once */
  }
  tracer->held.is_held &= !found.recovery.is_waiting; /* for us: the frame tells nothing of that */
  if (tracer->held.is_held) {
    tracer->held.found = found;
    tracer->held.is_translated = true;
    ct_recorder_hold_vectors(tracer->recorder, true);
  } else {
    reconcile(tracer, &found, regs);
  }
  return is_translated;
}

/* It waits in code that stays as it is, whatever is forgotten; where it goes on is set anew. */
static int
look(struct ct_tracer *tracer)
{
  return ct_watch_look(tracer->watch, &tracer->process, tracer->spaces[0].cache, tracer->spaces[1].cache,
                       &tracer->diag);
}

/* Threads that are traced beside this one have mapped something, or changed code. */
static int
see_changes(struct ct_tracer *tracer)
{
  uint32_t changes = atomic_load_explicit(&tracer->all->changes, memory_order_acquire);
  if (changes == tracer->changes) {
    return 0;
  }
  tracer->changes = changes;
  ct_code_pages_forget(tracer->code);
  tracer->has_new_mappings = true;
  return tracer->watch != NULL ? look(tracer) : 0;
}

enum unit_kind {
  UNIT_PLAIN,
  UNIT_TARGET, /* it is going there by an indirect branch */
  UNIT_PASSING /* that address is watched, and it goes on all the same */
};

/* The unit at pc. 0: out of memory. */
static uint64_t
find_unit(struct ct_tracer *tracer, uint64_t pc, enum unit_kind kind)
{
  struct ct_code_cache *cache = tracer->space->cache;
  for (;;) {
    if (see_changes(tracer) != 0) {
      return 0;
    }
    uint64_t unit = kind == UNIT_TARGET    ? ct_code_cache_target(cache, pc, ct_code_pages_read, tracer->code)
                    : kind == UNIT_PASSING ? ct_code_cache_unit_that_passes(cache, pc, ct_code_pages_read, tracer->code)
                                           : ct_code_cache_unit(cache, pc, ct_code_pages_read, tracer->code);
    if (atomic_load_explicit(&tracer->all->changes, memory_order_acquire) == tracer->changes) {
      return unit;
    }
    ct_tracer_flush(tracer); /* it may be of code as it was before; who changed it may not have seen that we have it */
  }
}

/* The first unit of a call, which is of the program's own bytes: that the function is hooked is done with. */
static uint64_t
find_begin(struct ct_tracer *tracer, uint64_t pc)
{
  struct ct_code_pages *code = tracer->code;
  const struct ct_itrace_patch *hidden = code->hidden;
  size_t count = code->hidden_count;
  code->hidden = &tracer->own_patch;
  code->hidden_count = 1;
  uint64_t unit = ct_code_cache_unit_once(tracer->space->cache, pc, ct_code_pages_read, code);
  code->hidden = hidden;
  code->hidden_count = count;
  return unit;
}

int
ct_tracer_enter(struct ct_tracer *tracer)
{
  struct user_regs_struct regs;
  enum unit_kind kind = tracer->passes_watched ? UNIT_PASSING : UNIT_PLAIN;
  tracer->passes_watched = false;
  if (ct_traced_regs(tracer->tid, &regs) != 0) {
    return CT_ESRCH;
  }
  ct_traced_before_syscall(&regs);
  if (ct_tracer_records(tracer) && (regs.eflags & FLAG_AC) != 0) { /* records are not aligned */
    ct_recorder_context(tracer->recorder, &regs, tracer->reason);
    return ct_traced_set_regs(tracer->tid, &regs) != 0
               ? CT_ESRCH
               : ct_tracer_step(tracer, &regs, ct_tracer_is_syscall(tracer, regs.rip));
  }
  uint64_t rseq = 0;
  uint32_t signature = 0;
  ct_traced_rseq(tracer->tid, &rseq, &signature);
  ct_code_cache_set_rseq(tracer->space->cache, rseq, signature, ct_code_pages_data);
  uint32_t round = ct_tracer_records(tracer) ? ct_recorder_round(tracer->recorder) : 0;
  if (round != 0) {
    ct_code_cache_follow(tracer->space->cache, round, ct_recorder_branches(tracer->recorder));
  }
  uint64_t unit = tracer->is_at_call ? find_begin(tracer, regs.rip) : find_unit(tracer, regs.rip, kind);
  tracer->is_at_call = false;
  if (unit == 0) {
    return tracer->diag.text[0] != 0 ? CT_ENOMEM : ct_fail(&tracer->diag, CT_ENOMEM, "out of memory");
  }
  if (ct_tracer_records(tracer)) {
    ct_recorder_context(tracer->recorder, &regs, tracer->reason);
    tracer->space->slots->app_r10 = regs.r10;
    tracer->space->slots->app_r11 = regs.r11;
    regs.r11 = ct_recorder_place(tracer->recorder);
  }
  regs.rip = unit;
  regs.orig_rax = ~0ull;
  tracer->state = CT_TRACER_TRANSLATED;
  __atomic_store_n(&tracer->space->slots->request, CT_ITRACE_ANSWERED, __ATOMIC_RELAXED);
  return ct_traced_set_regs(tracer->tid, &regs) != 0 || ct_traced_go(tracer->tid, CT_TRACED_RUN, 0) != 0 ? CT_ESRCH : 0;
}

/* ---- signals ---- */

static bool
stops_by_default(int signal)
{
  return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

/* Faults of these kinds have the address of the instruction, not that of what it wanted. */
static bool
reports_pc(const siginfo_t *info)
{
  return info->si_code > 0 && (info->si_signo == SIGILL || info->si_signo == SIGFPE || info->si_signo == SIGTRAP);
}

void
ct_tracer_note_mappings(struct ct_tracer *tracer)
{
  if (ct_tracer_records(tracer) && (tracer->has_new_mappings || tracer->code->is_renewed)) {
    tracer->has_new_mappings = tracer->code->is_renewed = false;
    tracer->noted_ns = ct_now_ns();
    ct_recorder_note_modules(tracer->recorder);
  }
}

static bool
is_fault(const struct ct_traced_event *event)
{
  return (event->signal == SIGSEGV || event->signal == SIGBUS) && event->info.si_code > 0;
}

static bool
is_interrupted(const struct user_regs_struct *regs)
{
  struct user_regs_struct before = *regs;
  return ct_traced_before_syscall(&before);
}

static void
note_signal(struct ct_tracer *tracer, const struct user_regs_struct *regs)
{
  struct user_regs_struct at = *regs;
  if (ct_tracer_records(tracer)) {
    ct_traced_before_syscall(&at);
    ct_recorder_signal(tracer->recorder, at.rip, &tracer->held.info);
  }
}

void
ct_tracer_reconcile_held(struct ct_tracer *tracer, const ucontext_t *frame)
{
  struct ct_held_signal *held = &tracer->held;
  if (!held->is_held) {
    return;
  }
  held->is_held = false;
  if (frame != NULL && (uint64_t)frame->uc_mcontext.gregs[REG_RIP] == held->regs.rip) { /* it is not made again */
    held->regs.rax = (uint64_t)frame->uc_mcontext.gregs[REG_RAX];
    held->regs.orig_rax = ~0ull;
  }
  if (held->is_translated) {
    reconcile(tracer, &held->found, &held->regs);
    ct_recorder_hold_vectors(tracer->recorder, false);
  }
  note_signal(tracer, &held->regs);
}

int
ct_tracer_signal(struct ct_tracer *tracer, struct ct_traced_event *event)
{
  enum ct_disposition does = ct_traced_disposition(tracer->process.pid, event->signal);
  struct user_regs_struct regs;
  bool spoilt, is_before, by_default = does == CT_DISPOSITION_DEFAULT;
  if (does == CT_DISPOSITION_IGNORED) { /* reported only since the thread is traced; that has woken it */
    ct_make_again(tracer->tid);
  }
  if (does == CT_DISPOSITION_IGNORED || (by_default && stops_by_default(event->signal)) || event->signal == SIGSTOP) {
    return ct_tracer_go_on(tracer, event->signal);
  }
  if (ct_traced_regs(tracer->tid, &regs) != 0) {
    return CT_ESRCH;
  }
  if (tracer->state == CT_TRACER_STEPS && !tracer->has_own_trap && (regs.eflags & FLAG_TF) != 0) {
    regs.eflags &= ~FLAG_TF; /* the kernel takes ours for the program's own at popf and iret */
    if (ct_traced_set_regs(tracer->tid, &regs) != 0) {
      return CT_ESRCH;
    }
  }
  uint64_t pc = regs.rip;
  tracer->held = (struct ct_held_signal){.is_held = does == CT_DISPOSITION_CAUGHT && is_interrupted(&regs)};
  if (ct_tracer_recover(tracer, &regs, &spoilt, &is_before)) {
    if (spoilt) {
      return ct_fail(&tracer->diag, CT_EIO, "a signal came where the program's state is not known (0x%llx)",
                     (unsigned long long)pc);
    }
    if (reports_pc(&event->info) && (uint64_t)event->info.si_addr == pc) {
      event->info.si_addr = (void *)regs.rip;
      ct_traced_set_info(tracer->tid, &event->info);
    }
    ct_tracer_abort_sequence(tracer, &regs);
    if (ct_traced_set_regs(tracer->tid, &regs) != 0) {
      return CT_ESRCH;
    }
    __atomic_store_n(&tracer->space->slots->request, CT_ITRACE_ANSWERED, __ATOMIC_RELAXED);
    tracer->wants_step = tracer->wants_room = tracer->wants_watched = tracer->wants_sequence = false;
    if (is_before && is_fault(event)) { /* the instruction is about to do the same, or not */
      return ct_tracer_step(tracer, &regs, false);
    }
  }
  ct_tracer_note_not_made(tracer, &regs);
  tracer->held.info = event->info;
  tracer->held.regs = regs;
  if (!tracer->held.is_held) {
    note_signal(tracer, &regs);
  }
  if (by_default) {
    tracer->state = CT_TRACER_NATIVE; /* it ends by that */
    return ct_traced_go(tracer->tid, CT_TRACED_RUN, event->signal);
  }
  tracer->summary.signals++;
  tracer->reason = CT_CONTEXT_HANDLER;
  tracer->state = CT_TRACER_STEPS;
  tracer->steps_call = false;
  tracer->steps_into_handler = (regs.eflags & FLAG_TF) == 0;
  return ct_traced_go(tracer->tid, CT_TRACED_STEP, event->signal);
}

/* The kernel has put the handler's frame onto the stack: it ends with the state of vector registers. */
static void
note_frame(struct ct_tracer *tracer)
{
  enum {
    FRAME_MAX = 1 << 15,
    CONTEXT_BYTES = offsetof(ucontext_t, uc_sigmask),
    FXSAVE_BYTES = 512,
    EXTENDED_SIZE_AT = 464 + 4 /* in the bytes of fxsave that are the system's: struct _fpx_sw_bytes */
  };
  struct user_regs_struct regs;
  ucontext_t context;
  uint32_t extended = 0;
  bool is_there = ct_traced_regs(tracer->tid, &regs) == 0 &&
                  ct_process_read(&tracer->process, regs.rsp + sizeof(uint64_t), &context, CONTEXT_BYTES) == 0;
  ct_tracer_reconcile_held(tracer, is_there ? &context : NULL);
  if (!ct_tracer_records(tracer) || !is_there) {
    return;
  }
  uint64_t floats = (uint64_t)context.uc_mcontext.fpregs;
  ct_process_read(&tracer->process, floats + EXTENDED_SIZE_AT, &extended, sizeof(extended));
  uint64_t end = floats + (extended > FXSAVE_BYTES ? extended : FXSAVE_BYTES);
  struct ct_written frame = {.address = regs.rsp, .size = end - regs.rsp};
  if (end > regs.rsp && frame.size < FRAME_MAX) {
    ct_recorder_memory(tracer->recorder, &frame);
  }
}

/*
 * A signal at popf or iret: the kernel takes the trap flag, which it has set for the step, for the program's own, and
 * leaves it in the handler's frame.
 */
void
ct_tracer_in_handler(struct ct_tracer *tracer)
{
  static const size_t flags_at = sizeof(uint64_t) + offsetof(ucontext_t, uc_mcontext.gregs[REG_EFL]);
  struct user_regs_struct regs;
  uint64_t flags;
  if (tracer->reason == CT_CONTEXT_HANDLER) {
    note_frame(tracer);
  }
  if (!tracer->steps_into_handler) {
    return;
  }
  tracer->steps_into_handler = false;
  if (ct_traced_regs(tracer->tid, &regs) == 0 &&
      ct_process_read(&tracer->process, regs.rsp + flags_at, &flags, sizeof(flags)) == 0 && (flags & FLAG_TF) != 0) {
    flags &= ~FLAG_TF;
    ct_process_write(&tracer->process, regs.rsp + flags_at, &flags, sizeof(flags));
  }
}

/* ---- what it waits for ---- */

/*
 * exit: what the thread's wait is still about while it goes on; a number may be another exit's by now. A thread that
 * has just left does not read the answer; what its wait was about stays, for ct_tracer_close_left.
 */
static void
resume(struct ct_itrace_slots *slots, uint64_t address, uint32_t exit)
{
  uint32_t before = slots->exit, waits = CT_ITRACE_WAITS;
  slots->resume = address;
  slots->exit = exit;
  if (!__atomic_compare_exchange_n(&slots->request, &waits, CT_ITRACE_ANSWERED, false, __ATOMIC_RELEASE,
                                   __ATOMIC_RELAXED)) { /* pairs with the thread's look, and its own exchange */
    slots->exit = before;
    return;
  }
  syscall(SYS_futex, &slots->request, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int
ask_for_step(struct ct_tracer *tracer, bool is_call)
{
  tracer->wants_step = true;
  tracer->steps_call = is_call;
  return ct_traced_interrupt(tracer->tid);
}

void
ct_tracer_flush(struct ct_tracer *tracer)
{
  for (int i = 0; i < 2; i++) {
    if (tracer->spaces[i].cache != NULL) {
      ct_code_cache_flush(tracer->spaces[i].cache);
    }
  }
  ct_code_pages_forget(tracer->code);
}

static bool
covers(const struct ct_tracer *tracer, uint64_t start, uint64_t end)
{
  if (ct_itrace_is_many(tracer->all)) {
    return ct_itrace_covers(tracer->all, start, end);
  }
  return ct_code_cache_covers(tracer->space->cache, start, end) ||
         (tracer->watch != NULL && (ct_code_cache_covers(tracer->spaces[0].cache, start, end) ||
                                    ct_code_cache_covers(tracer->spaces[1].cache, start, end)));
}

/*
 * Does the system call change where the thread goes on, or code that has been translated? What only maps or unmaps
 * other memory is made in the translated code; but that there is new code, the other traced threads learn when it is
 * there.
 */
static bool
is_to_be_stepped(struct ct_tracer *tracer, const uint64_t regs[16])
{
  uint64_t start = regs[CT_RDI], end = start + regs[CT_RSI];
  tracer->code->is_old = true;
  tracer->has_new_mappings |= regs[CT_RAX] != SYS_mmap || (regs[CT_RDX] & PROT_EXEC) != 0;
  bool is_for_others = ct_itrace_is_many(tracer->all) && (regs[CT_RDX] & PROT_EXEC) != 0;
  tracer->flushes_after = false;
  switch (regs[CT_RAX]) {
  case SYS_mmap:
    if (is_for_others) {
      break;
    }
    if ((regs[CT_R10] & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == 0) {
      return false;
    }
    break;
  case SYS_shmat:
    return false;
  case SYS_mremap:
    is_for_others = (regs[CT_R10] & MREMAP_FIXED) != 0; /* what is there goes, and code may come */
    if (is_for_others) {
      uint64_t place = regs[CT_R8], place_end = place + regs[CT_RDX];
      start = place < start ? place : start;
      end = place_end > end ? place_end : end;
    }
    break;
  case SYS_munmap:
    is_for_others = false;
    break;
  case SYS_mprotect:
  case SYS_pkey_mprotect:
    break;
  case SYS_shmdt:
    is_for_others = false;
    end = UINT64_MAX - 4096; /* it does not say how much */
    break;
  default:
    return true;
  }
  tracer->changed_start = start;
  tracer->changed_end = end;
  tracer->flushes_after = is_for_others || (end > start && covers(tracer, start, end));
  return tracer->flushes_after;
}

static int
answer_syscall(struct ct_tracer *tracer, uint32_t number)
{
  struct ct_itrace_slots *slots = tracer->space->slots;
  uint64_t regs[16];
  for (int i = 0; i < 16; i++) {
    regs[i] = __atomic_load_n(&slots->regs[i], __ATOMIC_RELAXED);
  }
  if (ct_tracer_begins_filter(regs)) {
    tracer->wants_end = true;
    return ct_traced_interrupt(tracer->tid);
  }
  if (tracer->watch != NULL && tracer->looks_again) { /* what has been mapped is there now */
    struct ct_code_cache_stats before, after;
    tracer->looks_again = false;
    ct_code_cache_stats(tracer->space->cache, &before);
    int code = look(tracer);
    ct_code_cache_stats(tracer->space->cache, &after);
    if (code != 0 || before.flushes != after.flushes) { /* the unit that makes the call is gone */
      return code != 0 ? code : ask_for_step(tracer, true);
    }
  }
  tracer->looks_again |= tracer->watch != NULL && regs[CT_RAX] == SYS_mmap && (regs[CT_RDX] & PROT_EXEC) != 0;
  bool is_live = ct_live_is_call(tracer, regs[CT_RAX]);
  if (is_live && ct_live_wants_records(tracer)) {
    tracer->wants_room = true;
    return ct_traced_interrupt(tracer->tid);
  }
  if (!is_live && is_to_be_stepped(tracer, regs)) {
    return ask_for_step(tracer, true);
  }
  slots->call_kind =
      ct_tracer_records(tracer) && ct_writes_memory(regs[CT_RAX]) ? CT_ITRACE_CALL_WRITES : CT_ITRACE_CALL_QUIET;
  resume(slots, ct_code_cache_resume(tracer->space->cache, number), CT_ITRACE_EXIT_MISS);
  return 0;
}

/* The thread has made a system call: what it wrote is read while nothing has been changed by the thread. */
static int
answer_written(struct ct_tracer *tracer, uint32_t number)
{
  struct ct_itrace_slots *slots = tracer->space->slots;
  struct ct_system_call call = {.number = __atomic_load_n(&slots->call, __ATOMIC_RELAXED)};
  static const uint8_t args[] = {CT_RDI, CT_RSI, CT_RDX, CT_R10, CT_R8, CT_R9};
  for (size_t i = 0; i < sizeof(args); i++) {
    call.args[i] = __atomic_load_n(&slots->regs[args[i]], __ATOMIC_RELAXED);
  }
  call.result = (int64_t)__atomic_load_n(&slots->regs[CT_RAX], __ATOMIC_RELAXED);
  uint64_t place = __atomic_load_n(&slots->spill_place, __ATOMIC_RELAXED);
  slots->spill_place = ct_recorder_written(tracer->recorder, &call, place);
  slots->call_kind = CT_ITRACE_CALL_QUIET;
  resume(slots, ct_code_cache_resume(tracer->space->cache, number), number);
  return 0;
}

int
ct_tracer_answer(struct ct_tracer *tracer)
{
  struct ct_itrace_slots *slots = tracer->space->slots;
  struct ct_code_cache *cache = tracer->space->cache;
  uint64_t target = __atomic_load_n(&slots->target, __ATOMIC_RELAXED), unit;
  uint32_t number = __atomic_load_n(&slots->exit, __ATOMIC_RELAXED);
  const struct ct_unit_exit *from = ct_code_cache_exit(cache, number);
  struct ct_code_cache_stats before, after;
  tracer->summary.requests++;
  if (from == NULL) {
    unit = find_unit(tracer, target, UNIT_TARGET);
  } else if (from->kind == CT_EXIT_SYSCALL) {
    return answer_syscall(tracer, number);
  } else if (from->kind == CT_EXIT_WRITTEN) {
    return answer_written(tracer, number);
  } else if (from->kind == CT_EXIT_STEP) {
    return ask_for_step(tracer, false);
  } else if (from->kind == CT_EXIT_WATCHED || from->kind == CT_EXIT_SEQUENCE || from->kind == CT_EXIT_APART ||
             from->kind == CT_EXIT_ROOM || (from->kind == CT_EXIT_SWITCHED && ct_tracer_has_returned(tracer))) {
    tracer->wants_watched |= from->kind == CT_EXIT_WATCHED || from->kind == CT_EXIT_SWITCHED;
    tracer->wants_sequence |= from->kind == CT_EXIT_SEQUENCE || from->kind == CT_EXIT_APART;
    tracer->wants_room |= from->kind == CT_EXIT_ROOM;
    return ct_traced_interrupt(tracer->tid);
  } else {
    target = from->target;
    number = from->kind != CT_EXIT_SWITCHED ? number : 0; /* it asks each time */
    if (from->kind == CT_EXIT_STALE) {
      ct_code_cache_forget(cache, number);
      number = 0;
    }
    ct_code_cache_stats(cache, &before);
    unit = find_unit(tracer, target, UNIT_PLAIN);
    ct_code_cache_stats(cache, &after);
    if (unit != 0 && number != 0 && before.flushes == after.flushes) {
      ct_code_cache_link(cache, number, unit);
    }
  }
  if (unit == 0) {
    return ct_fail(&tracer->diag, CT_ENOMEM, "out of memory");
  }
  resume(slots, unit, CT_ITRACE_EXIT_MISS);
  return 0;
}
