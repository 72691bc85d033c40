/* SPDX-License-Identifier: MIT */
/*
 * See translated.h. There is one thread: when the translated code has asked (slots.request), the next look at it
 * answers as the tracer does (src/itrace/state.c), at once or after some steps, or never, as a tracer that has been
 * killed.
 */
#include "translated.h"

#include "itrace/branches.h"
#include "itrace/tracer.h"
#include "machine.h"
#include "records.h"
#include "translated_program.h"

#include <asm/prctl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STATES_MAX = 270, CYCLE_MAX = 16, REGION_BYTES = 1 << 20, REGION_SMALL = 24 << 10 };

/* Where translated code lies. */
enum layout { LAYOUT_NEAR, LAYOUT_DATA_FAR, LAYOUT_ALL_FAR, LAYOUT_TWO, LAYOUTS };
#define FAR_AWAY 0x10000000000ull

struct state {
  uint64_t reg[16], rip, flags;
  uint64_t memory; /* a sum of it */
  bool may_hide;   /* need not show up: before a direct jump, and where a step may go over more than a system call */
};

static struct {
  struct ct_tracer tracer; /* as far as ct_tracer_recover looks at it */
  struct ct_itrace_slots *slots;
  struct ct_branches *branches;
  uint64_t region[LAYOUTS];
  struct rng rng;
  struct machine begin, native_end, translated_end;
  struct ending native, translated;
  struct state states[STATES_MAX];
  unsigned state_count;
  uint8_t data[DATA_BYTES], native_data[DATA_BYTES];
  uint64_t system_call_end, jumps_to; /* of the last instruction; 0: it is none */
  struct ct_cpu emulated;             /* the emulator's state after the instruction, if it knows it */
  bool is_emulated;
  bool is_cycle; /* it ends because it goes round for ever */
  /* The translated run. */
  unsigned at;          /* the state it is in */
  unsigned answers;     /* left before the tracer is dead */
  unsigned delay, wait; /* steps before an answer, at most; left of this one */
  bool is_waiting, is_stepping, is_checked, has_failed;
  /* With records. */
  bool is_recorded, has_vectors;
  struct user_regs_struct stopped; /* as the thread is */
  struct machine vectors[STATES_MAX];
  struct state wrong;
  uint64_t wrong_at;
  const char *why;
  struct translated_count *count;
} run;

/* ---- memory ---- */

static void *
map(uint64_t at, size_t bytes, int protection, int flags)
{
  void *got = mmap((void *)at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return got == MAP_FAILED ? NULL : got;
}

int
translated_set_up(void)
{
  if (machine_set_up() != 0 || program_set_up() != 0 || records_set_up() != 0) {
    return -1;
  }
  if (syscall(SYS_arch_prctl, ARCH_SET_GS, PROGRAM_GS_BASE) != 0) {
    return -1;
  }
  run.branches = ct_branches_create();
  run.slots = map(0, CT_ITRACE_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_32BIT);
  run.region[LAYOUT_NEAR] = program.area[0] - (1024ull << 20);
  run.region[LAYOUT_DATA_FAR] = program.area[0] + (1500ull << 20);
  run.region[LAYOUT_ALL_FAR] = FAR_AWAY;
  run.region[LAYOUT_TWO] = program.apart[1] + (1500ull << 20);
  for (unsigned i = 0; i < LAYOUTS; i++) {
    if (map(run.region[i], REGION_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_FIXED_NOREPLACE) !=
        (void *)run.region[i]) {
      return -1;
    }
  }
  return run.slots != NULL && run.branches != NULL ? 0 : -1;
}

void
translated_tear_down(void)
{
  for (unsigned i = 0; i < LAYOUTS; i++) {
    munmap((void *)run.region[i], REGION_BYTES);
  }
  records_tear_down();
  program_tear_down();
  syscall(SYS_arch_prctl, ARCH_SET_GS, 0);
  munmap(run.slots, CT_ITRACE_SHARED_BYTES);
  ct_branches_free(run.branches);
}

static uint64_t
sum_of_memory(void)
{
  uint64_t sum = 0, word;
  for (size_t i = 0; i < DATA_BYTES; i += sizeof(word)) {
    memcpy(&word, trials.data + i, sizeof(word));
    sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
    sum ^= sum >> 29;
  }
  return sum;
}

/* ---- the native run ---- */

static struct state
state_of(const uint64_t reg[16], uint64_t rip, uint64_t flags)
{
  struct state s = {.rip = rip, .flags = flags & MACHINE_FLAGS, .memory = sum_of_memory()};
  memcpy(s.reg, reg, sizeof(s.reg));
  return s;
}

static bool
is_same(const struct state *a, const struct state *b)
{
  return memcmp(a->reg, b->reg, sizeof(a->reg)) == 0 && a->rip == b->rip && a->flags == b->flags &&
         a->memory == b->memory;
}

static bool
fail(const char *why, const struct state *s, uint64_t at)
{
  run.has_failed = true;
  run.why = why;
  run.wrong = *s;
  run.wrong_at = at;
  return false;
}

/* False: it has been there, so it goes round for ever; or there are enough. */
static bool
add_state(const struct state *s)
{
  for (unsigned i = run.state_count > CYCLE_MAX ? run.state_count - CYCLE_MAX : 0; i < run.state_count; i++) {
    if (is_same(&run.states[i], s)) {
      run.is_cycle = true;
      return false;
    }
  }
  if (run.is_recorded && run.state_count != 0) {
    machine_now(&run.vectors[run.state_count]);
  }
  run.states[run.state_count++] = *s;
  return run.state_count <= STATES_MAX - CYCLE_MAX - 4;
}

/* The reader's emulator goes on from here to the next state, of the instructions that it knows. */
static void
emulate(const struct ct_effects *e, const struct ct_cpu *cpu)
{
  struct ct_mem_store stores[2];
  unsigned store_count = 0;
  uint64_t loaded = 0;
  run.emulated = *cpu;
  for (unsigned i = 0; e->uses_loaded && i < e->access_count; i++) {
    uint64_t at = ct_address(e, &e->access[i], cpu);
    if ((e->access[i].how & CT_ACCESS_READ) != 0 && at - (uint64_t)trials.data <= DATA_BYTES - 8) {
      memcpy(&loaded, (const void *)at, e->access[i].size <= 8 ? e->access[i].size : 8);
      break;
    }
  }
  run.is_emulated = (e->traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) == 0 && e->flow != CT_INSN_FLOW_SYSCALL &&
                    ct_emulate(e, &run.emulated, loaded, stores, &store_count) == CT_EMULATED;
}

static bool
is_as_emulated(const struct state *s)
{
  return memcmp(run.emulated.reg, s->reg, sizeof(s->reg)) == 0 && run.emulated.rip == s->rip &&
         ((run.emulated.flags ^ s->flags) & MACHINE_FLAGS & ~run.emulated.unknown) == 0;
}

/* Before the instruction at rip. */
static bool
is_at(const uint64_t reg[16], uint64_t rip, uint64_t flags)
{
  struct state s = state_of(reg, rip, flags);
  struct ct_cpu cpu = {.rip = rip, .flags = 0x202 | s.flags, .fs_base = trials.fs_base, .gs_base = PROGRAM_GS_BASE};
  struct ct_effects effects;
  memcpy(cpu.reg, reg, sizeof(cpu.reg));
  if (run.is_emulated) {
    run.count->emulated++;
    if (!is_as_emulated(&s)) {
      run.at = run.state_count - 1;
      return fail("the emulator has another state", &s, 0);
    }
  }
  run.is_emulated = false;
  bool goes_on = add_state(&s);
  if (run.is_cycle || !program_goes_on(&run.rng, &cpu, &effects)) {
    return false;
  }
  emulate(&effects, &cpu);
  classes_note((const uint8_t *)rip, &effects, run.count->by_class);
  run.states[run.state_count - 1].may_hide = effects.flow == CT_INSN_FLOW_JUMP;
  run.jumps_to = effects.flow == CT_INSN_FLOW_JUMP ? ct_effects_target(&effects, rip) : 0;
  run.system_call_end = effects.flow == CT_INSN_FLOW_SYSCALL ? rip + effects.length : 0;
  return goes_on;
}

static bool
look_native(void *context, const uint64_t reg[16], uint64_t rip)
{
  (void)context;
  if (run.system_call_end != 0 && rip == run.system_call_end + 1) { /* the kernel has let it step over the nop, too */
    struct state between = state_of(reg, rip - 1, machine_flags());
    between.may_hide = true;
    add_state(&between);
  }
  run.jumps_to = run.system_call_end = 0;
  return is_at(reg, rip, machine_flags());
}

/* Of the direct jump there; 0: there is none. */
static uint64_t
jump_target(uint64_t rip)
{
  uint8_t code[CT_INSN_BYTES_MAX];
  struct ct_effects effects;
  size_t size = program_read(rip, code, sizeof(code));
  bool is_jump = size != 0 && ct_effects_of(code, size, &effects) && effects.flow == CT_INSN_FLOW_JUMP;
  return is_jump ? ct_effects_target(&effects, rip) : 0;
}

/* After a jump that is the last instruction, and those that it leads to, none of which need show up. */
static void
go_on_to(uint64_t rip)
{
  const struct state last = run.states[run.state_count - 1];
  const struct machine vectors = run.vectors[run.state_count - 1];
  for (unsigned jumps = 0; jumps < CYCLE_MAX && rip != 0; jumps++) {
    run.native_end.rip = rip;
    run.states[run.state_count] = last;
    run.states[run.state_count].rip = rip;
    run.vectors[run.state_count] = vectors;
    rip = jump_target(rip);
    run.states[run.state_count++].may_hide = rip != 0 && jumps + 1 < CYCLE_MAX;
  }
}

/* The last state is one that shows up. */
static void
finish_native(void)
{
  struct state *last = &run.states[run.state_count - 1];
  if (run.is_cycle) {
    while (last->may_hide && run.state_count > 1) {
      last = &run.states[--run.state_count - 1];
    }
    run.native_end.rip = last->rip;
  } else if (run.native.signal == 0 && last->may_hide) {
    go_on_to(run.jumps_to);
  }
  memcpy(run.native_data, trials.data, DATA_BYTES);
}

/* ---- the tracer ---- */

static size_t
read_code(void *context, uint64_t pc, uint8_t *bytes, size_t size, bool *may_change)
{
  (void)context;
  *may_change = run.is_checked;
  return program_read(pc, bytes, size);
}

static struct user_regs_struct
regs_of(const uint64_t reg[16], uint64_t rip, uint64_t flags)
{
  return (struct user_regs_struct){.rip = rip,
                                   .eflags = flags,
                                   .fs_base = trials.fs_base,
                                   .gs_base = PROGRAM_GS_BASE,
                                   .rax = reg[0],
                                   .rcx = reg[1],
                                   .rdx = reg[2],
                                   .rbx = reg[3],
                                   .rsp = reg[4],
                                   .rbp = reg[5],
                                   .rsi = reg[6],
                                   .rdi = reg[7],
                                   .r8 = reg[8],
                                   .r9 = reg[9],
                                   .r10 = reg[10],
                                   .r11 = reg[11],
                                   .r12 = reg[12],
                                   .r13 = reg[13],
                                   .r14 = reg[14],
                                   .r15 = reg[15]};
}

/* The program's state; false: it was that. */
static bool
recover(uint64_t reg[16], uint64_t *rip, uint64_t *flags, struct ct_found_state *found)
{
  struct user_regs_struct regs = run.stopped = regs_of(reg, *rip, *flags);
  if (!ct_tracer_find_state(&run.tracer, &regs, found)) {
    return false;
  }
  const uint64_t recovered[16] = {regs.rax, regs.rcx, regs.rdx, regs.rbx, regs.rsp, regs.rbp, regs.rsi, regs.rdi,
                                  regs.r8,  regs.r9,  regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15};
  memcpy(reg, recovered, sizeof(recovered));
  *rip = regs.rip;
  *flags = regs.eflags;
  return true;
}

/* ---- records, as the tracer has them (src/itrace/state.c) ---- */

/* What the thread was recording is closed: it is to have the program's state. */
static void
close_records(void)
{
  struct user_regs_struct regs = run.stopped;
  bool spoilt, is_before;
  ct_tracer_recover(&run.tracer, &regs, &spoilt, &is_before);
  run.slots->request = 0;
  run.is_waiting = false;
}

/* Into the translated code, from the program's state. Its address; reg gets what the thread has. */
static uint64_t
enter_recorded(uint64_t reg[16], uint64_t rip, uint64_t flags, enum ct_context_reason reason)
{
  struct user_regs_struct regs = regs_of(reg, rip, 0x202 | flags);
  uint64_t unit = ct_code_cache_unit(run.tracer.space->cache, rip, read_code, NULL);
  ct_recorder_context(run.tracer.recorder, &regs, reason);
  run.slots->app_r10 = reg[CT_R10];
  run.slots->app_r11 = reg[CT_R11];
  reg[CT_R11] = ct_recorder_place(run.tracer.recorder);
  return unit;
}

static void
go_on_recorded(const uint64_t program[16], uint64_t rip, uint64_t flags, enum ct_context_reason reason)
{
  uint64_t reg[16];
  memcpy(reg, program, sizeof(reg));
  uint64_t unit = enter_recorded(reg, rip, flags, reason);
  machine_replace(reg, unit, flags);
}

/* Now and then, as for a signal; not within a string instruction, which has no state of its own there. */
static bool
stops_here(uint64_t rip)
{
  uint8_t code[CT_INSN_BYTES_MAX] = {0};
  struct ct_effects effects;
  return run.is_recorded && rng_chance(&run.rng, 3) && program_read(rip, code, sizeof(code)) != 0 &&
         ct_effects_of(code, sizeof(code), &effects) && (effects.traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) == 0;
}

static void
resume(uint64_t address, uint32_t exit)
{
  run.slots->resume = address;
  run.slots->exit = exit;
  run.slots->request = 0;
}

/* See ct_tracer_answer. reg, rip, flags: the program's. */
static void
answer(const uint64_t reg[16], uint64_t rip, uint64_t flags)
{
  struct ct_code_cache *cache = run.tracer.space->cache;
  struct ct_code_cache_stats before, after;
  uint32_t number = run.slots->exit;
  const struct ct_unit_exit *from = ct_code_cache_exit(cache, number);
  run.count->requests++;
  if (from == NULL) {
    resume(ct_code_cache_target(cache, run.slots->target, read_code, NULL), CT_ITRACE_EXIT_MISS);
  } else if (from->kind == CT_EXIT_SYSCALL) {
    run.count->system_calls++;
    run.slots->call_kind = rng_chance(&run.rng, 30) ? CT_ITRACE_CALL_WRITES : CT_ITRACE_CALL_QUIET;
    resume(ct_code_cache_resume(cache, number), CT_ITRACE_EXIT_MISS);
  } else if (from->kind == CT_EXIT_WRITTEN) {
    struct ct_system_call call = {.number = run.slots->call};
    run.slots->spill_place = ct_recorder_written(run.tracer.recorder, &call, run.slots->spill_place);
    run.slots->call_kind = CT_ITRACE_CALL_QUIET;
    resume(ct_code_cache_resume(cache, number), number);
  } else if (from->kind == CT_EXIT_ROOM) {
    run.count->rooms++;
    close_records();
    ct_recorder_room(run.tracer.recorder, UINT64_MAX);
    go_on_recorded(reg, rip, flags, CT_CONTEXT_SEGMENT);
  } else if (from->kind == CT_EXIT_APART) {
    run.count->apart++;
    close_records();
    go_on_recorded(reg, rip, flags, CT_CONTEXT_SEGMENT);
  } else if (from->kind == CT_EXIT_STEP) {
    run.count->stepped++;
    if (run.is_recorded) {
      close_records();
      ct_recorder_step(run.tracer.recorder, rip);
    }
    run.slots->request = 0;
    run.is_stepping = true;
    machine_replace(reg, rip, flags);
  } else {
    uint64_t target = from->target;
    if (from->kind == CT_EXIT_STALE) {
      run.count->stale++;
      ct_code_cache_forget(cache, number);
      number = 0;
    }
    ct_code_cache_stats(cache, &before);
    uint64_t unit = ct_code_cache_unit(cache, target, read_code, NULL);
    ct_code_cache_stats(cache, &after);
    if (number != 0 && before.flushes == after.flushes) {
      int64_t distance = (int64_t)(unit - rip);
      run.count->far += distance != (int32_t)distance;
      ct_code_cache_link(cache, number, unit);
    }
    resume(unit, CT_ITRACE_EXIT_MISS);
  }
}

/* Moves on in the native states to this one. */
static bool
find_state(const struct state *s)
{
  unsigned at = run.at;
  if (is_same(&run.states[at], s)) {
    return true;
  }
  do {
    at++;
  } while (at < run.state_count && !is_same(&run.states[at], s) && run.states[at].may_hide);
  if (at >= run.state_count || !is_same(&run.states[at], s)) {
    return false;
  }
  run.at = at;
  return true;
}

static bool
is_over(void)
{
  return run.at == run.state_count - 1 && run.native.signal == 0;
}

static bool
look_translated(void *context, const uint64_t stopped[16], uint64_t stopped_rip)
{
  uint64_t reg[16], rip = stopped_rip, flags = machine_flags();
  struct ct_found_state found;
  (void)context;
  memcpy(reg, stopped, sizeof(reg));
  bool is_translated = recover(reg, &rip, &flags, &found);
  struct state s = state_of(reg, rip, flags);
  if (found.is_spoilt) {
    return fail("no state is known", &s, stopped_rip);
  }
  if (!find_state(&s)) {
    return fail("a state that is not the next native one", &s, stopped_rip);
  }
  if (is_over()) {
    return false;
  }
  if (!is_translated && run.answers != 0) {
    if (!run.is_stepping) {
      return fail("it left the translated code", &s, stopped_rip);
    }
    run.is_stepping = false;
    if (run.is_recorded) {
      go_on_recorded(reg, rip, flags, CT_CONTEXT_STEP);
    } else {
      machine_redirect(ct_code_cache_unit(run.tracer.space->cache, rip, read_code, NULL));
    }
  } else if (is_translated && !found.recovery.is_before && stops_here(rip)) {
    run.count->stops++;
    close_records();
    go_on_recorded(reg, rip, flags, CT_CONTEXT_SEGMENT);
  } else if (run.slots->request == 1 && run.answers != 0) {
    if (!run.is_waiting) {
      run.is_waiting = true;
      run.wait = (unsigned)rng_below(&run.rng, run.delay + 1);
    }
    run.slots->liveness++;
    if (run.wait-- == 0) {
      run.is_waiting = false;
      if (--run.answers == 0) {
        run.count->deserted++;
        run.wait = 0;
        return true;
      }
      answer(reg, rip, flags);
    }
  }
  return true;
}

/* Some indirect branches and returns are thought to go where they once go. */
static bool
make_guesses(void)
{
  enum { TIMES = 8 };
  uint32_t percent = rng_below(&run.rng, 100);
  ct_branches_free(run.branches);
  run.branches = ct_branches_create();
  for (unsigned i = 0; i + 1 < run.state_count && run.branches != NULL; i++) {
    uint8_t code[16];
    struct ct_effects effects;
    uint64_t rip = run.states[i].rip;
    size_t size = rng_chance(&run.rng, percent) ? program_read(rip, code, sizeof(code)) : 0;
    bool is_indirect = size != 0 && ct_effects_of(code, size, &effects) &&
                       (effects.flow == CT_INSN_FLOW_RET || effects.flow == CT_INSN_FLOW_JUMP_INDIRECT ||
                        effects.flow == CT_INSN_FLOW_CALL_INDIRECT);
    for (int k = 0; is_indirect && k < TIMES; k++) {
      ct_branches_note(run.branches, rip + effects.length, run.states[i + 1].rip);
    }
  }
  return run.branches != NULL;
}

static bool
make_cache(enum layout layout)
{
  enum { SMALL_PERCENT = 15 };
  size_t small = run.is_recorded ? 4 * REGION_SMALL : REGION_SMALL;
  size_t bytes = rng_chance(&run.rng, SMALL_PERCENT) ? small : REGION_BYTES;
  uint8_t *syscalls = (uint8_t *)run.slots + CT_ITRACE_SYSCALLS_AT;
  memset(run.slots, 0, sizeof(*run.slots));
  rng_fill(&run.rng, syscalls, CT_ITRACE_SYSCALLS);
  for (size_t i = 0; i < CT_ITRACE_SYSCALLS; i++) {
    syscalls[i] &= 1;
  }
  run.slots->timeout[1] = 1000;
  run.tracer.space = &run.tracer.spaces[0];
  run.tracer.space->slots = run.slots;
  struct ct_translation_place place = {.silent_waits = CT_ITRACE_SILENT_WAITS, .shared = (uint32_t)(uint64_t)run.slots};
  if (run.is_recorded) {
    bool has_bmi2 = __builtin_cpu_supports("bmi2") && rng_chance(&run.rng, 70);
    run.has_vectors = rng_chance(&run.rng, 60);
    if (!records_begin(&run.tracer, run.has_vectors, has_bmi2, &place)) {
      return false;
    }
  }
  struct ct_unit_log *log = run.is_recorded ? ct_recorder_units(run.tracer.recorder) : NULL;
  run.tracer.space->cache = ct_code_cache_create(run.slots, &place, log);
  if (run.tracer.space->cache != NULL && rng_chance(&run.rng, 70)) {
    if (!make_guesses()) {
      return false;
    }
    ct_branches_by_lot(run.branches, rng_below(&run.rng, 100));
    ct_code_cache_follow(run.tracer.space->cache, 1, run.branches);
  }
  if (run.tracer.space->cache == NULL) {
    return false;
  }
  if (layout == LAYOUT_TWO) {
    uint64_t first = run.region[LAYOUT_NEAR];
    return ct_code_cache_add_region(run.tracer.space->cache, first, (uint8_t *)first, bytes) == 0 &&
           ct_code_cache_add_region(run.tracer.space->cache, run.region[LAYOUT_TWO], (uint8_t *)run.region[LAYOUT_TWO],
                                    bytes) == 0;
  }
  return ct_code_cache_add_region(run.tracer.space->cache, run.region[layout], (uint8_t *)run.region[layout], bytes) ==
         0;
}

/* ---- a case ---- */

static bool
go_on_anyway(void *context, const uint64_t reg[16], uint64_t rip)
{
  (void)context;
  (void)reg;
  (void)rip;
  return false;
}

/*
 * The recorded thread has stopped for good. A fault of what only reads for the record is none of the program's: the
 * instruction is executed where it is.
 */
static void
reconcile_recorded(void)
{
  struct machine *end = &run.translated_end;
  struct ct_recorder *recorder = run.tracer.recorder;
  struct ct_found_state found;
  struct ending ending;
  bool is_translated = recover(end->reg, &end->rip, &end->flags, &found);
  if (is_translated && !found.is_spoilt) {
    close_records();
    end->flags &= MACHINE_FLAGS;
    if (run.translated.signal != 0 && found.recovery.is_before) {
      struct machine from = *end;
      ct_recorder_step(recorder, end->rip);
      machine_run(&from, go_on_anyway, NULL, end, &ending);
      ending.steps = run.translated.steps;
      run.translated = ending;
      ct_recorder_step_not_made(recorder, end->rip);
    }
  } else if (run.is_stepping && run.translated.signal != 0) {
    ct_recorder_step_not_made(recorder, end->rip);
  } else if (run.is_stepping) {
    struct user_regs_struct regs = regs_of(end->reg, end->rip, 0x202 | end->flags);
    ct_recorder_context(recorder, &regs, CT_CONTEXT_STEP);
  }
}

static void
native_state(unsigned index, struct records_state *out)
{
  const struct state *s = &run.states[index];
  *out = (struct records_state){.reg = s->reg, .rip = s->rip, .flags = s->flags, .vectors = &run.vectors[index]};
}

/* Of what the reader makes of it; NULL: the same. */
static const char *
compare_records(bool is_whole, char *text, size_t size)
{
  const char *why = records_end(&run.tracer);
  unsigned hidden = run.state_count - 1 - run.at + run.translated.no_step; /* see compare_ends */
  if (why != NULL || !is_whole) {
    return why;
  }
  return records_compare(run.state_count, hidden, native_state, &run.count->records, text, size) ? NULL : text;
}

/* What the two runs ended with; NULL: the same. */
static const char *
compare_ends(char *text, size_t size)
{
  uint64_t flags = run.translated_end.flags;
  struct ct_found_state found;
  if (run.native.signal != run.translated.signal || run.native.code != run.translated.code ||
      run.native.address != run.translated.address || run.native.error != run.translated.error) {
    snprintf(text, size, "it ends with signal %d, code %d, address %#llx, not %d, %d, %#llx", run.translated.signal,
             run.translated.code, (unsigned long long)run.translated.address, run.native.signal, run.native.code,
             (unsigned long long)run.native.address);
    return text;
  }
  recover(run.translated_end.reg, &run.translated_end.rip, &flags, &found);
  run.translated_end.flags = flags & MACHINE_FLAGS;
  if (run.translated.no_step && run.at == run.state_count - 2 && run.states[run.at].may_hide) { /* a deserted jump */
    run.translated_end.rip = run.states[++run.at].rip;
  }
  if (run.at != run.state_count - 1 || run.translated_end.rip != run.native_end.rip) {
    return "it ends early";
  }
  if (run.is_cycle) { /* who knows how often the two went round */
    return NULL;
  }
  if (machine_differs(&run.native_end, &run.translated_end, MACHINE_FLAGS, text, size)) {
    return text;
  }
  return memcmp(run.native_data, trials.data, DATA_BYTES) != 0 ? "memory differs at the end" : NULL;
}

static void
describe(const char *why, enum layout layout, char *text, size_t size)
{
  const struct state *native = &run.states[run.at], *next = native + (run.at + 1 < run.state_count);
  const uint8_t *code = (const uint8_t *)native->rip;
  int n = snprintf(text, size, "%s; layout %d%s, state %u of %u, rip %#llx, code", why, (int)layout,
                   run.is_checked ? ", checked" : "", run.at, run.state_count, (unsigned long long)native->rip);
  uint8_t bytes[CT_INSN_BYTES_MAX];
  for (size_t i = 0; program_read(native->rip, bytes, sizeof(bytes)) != 0 && i < sizeof(bytes); i++) {
    n += snprintf(text + n, size - (size_t)n, " %02x", code[i]);
  }
  if (run.has_failed) {
    n += snprintf(text + n, size - (size_t)n,
                  "\n  translated at %#llx; native now, next, recovered:\n  rip %#llx %#llx %#llx, "
                  "flags %#llx %#llx %#llx%s",
                  (unsigned long long)run.wrong_at, (unsigned long long)native->rip, (unsigned long long)next->rip,
                  (unsigned long long)run.wrong.rip, (unsigned long long)native->flags, (unsigned long long)next->flags,
                  (unsigned long long)run.wrong.flags,
                  run.wrong.memory != native->memory && run.wrong.memory != next->memory ? ", memory is neither" : "");
  }
  for (unsigned r = 0; run.has_failed && r < 16; r++) {
    n += snprintf(text + n, size - (size_t)n, "%s r%u %#llx %#llx %#llx", r % 4 == 0 ? "\n " : ";", r,
                  (unsigned long long)native->reg[r], (unsigned long long)next->reg[r],
                  (unsigned long long)run.wrong.reg[r]);
  }
  snprintf(text + n, size - (size_t)n, "\n");
}

static bool
run_native(void)
{
  struct trial t;
  trial_begin(&run.rng, &t);
  machine_random(&run.begin, &run.rng);
  memcpy(run.begin.reg, t.cpu.reg, sizeof(run.begin.reg));
  run.begin.reg[RSP] = (uint64_t)trials.data + DATA_BYTES / 2;
  run.begin.rip = t.cpu.rip = program.area[0] + rng_below(&run.rng, PROGRAM_AREA_BYTES / 2);
  run.begin.flags = t.cpu.flags & MACHINE_FLAGS;
  memcpy(run.data, trials.data, DATA_BYTES);
  run.state_count = 0;
  run.is_cycle = run.is_emulated = run.has_failed = false;
  run.at = 0;
  if (!is_at(run.begin.reg, run.begin.rip, run.begin.flags)) {
    return false;
  }
  machine_run(&run.begin, look_native, NULL, &run.native_end, &run.native);
  finish_native();
  return true;
}

static void
run_translated(void)
{
  struct machine from = run.begin;
  memcpy(trials.data, run.data, DATA_BYTES);
  program_again();
  run.at = 0;
  run.has_failed = run.is_stepping = run.is_waiting = false;
  run.answers = !run.is_recorded && rng_chance(&run.rng, 10) ? 1 + (unsigned)rng_below(&run.rng, 12) : UINT32_MAX;
  run.delay = rng_chance(&run.rng, 20) ? (unsigned)rng_below(&run.rng, 100) : 0;
  if (run.is_recorded) {
    records_enter(&run.tracer);
    if (rng_chance(&run.rng, 30)) { /* no room from the beginning on: each look is for another segment */
      records_fill(&run.tracer, 0);
    }
    machine_rests(&run.begin);
    from.rip = enter_recorded(from.reg, run.begin.rip, run.begin.flags, CT_CONTEXT_BEGIN);
  } else {
    from.rip = ct_code_cache_unit(run.tracer.space->cache, run.begin.rip, read_code, NULL);
  }
  machine_run(&from, look_translated, NULL, &run.translated_end, &run.translated);
}

bool
translated_case(uint64_t seed, uint64_t number, bool is_recorded, struct translated_count *count, char *text,
                size_t size)
{
  char why_text[200];
  struct ct_code_cache_stats stats;
  run.rng = rng_of(seed, number);
  run.count = count;
  run.is_recorded = is_recorded;
  enum layout layout = (enum layout)rng_below(&run.rng, LAYOUTS);
  run.is_checked = rng_chance(&run.rng, 40);
  program_begin(&run.rng, layout == LAYOUT_TWO ? 2 : 1, run.is_checked);
  if (!run_native()) {
    snprintf(text, size, "no program can be made\n");
    return true;
  }
  if (run.has_failed) {
    describe(run.why, layout, text, size);
    return true;
  }
  if (run.state_count == 1) { /* it goes round at once */
    return false;
  }
  if (!make_cache(layout)) {
    snprintf(text, size, "no code cache can be made\n");
    ct_code_cache_free(run.tracer.space->cache);
    return true;
  }
  run_translated();
  if (run.is_recorded) {
    reconcile_recorded();
  }
  const char *why = run.has_failed ? run.why : compare_ends(why_text, sizeof(why_text));
  if (run.is_recorded) {
    const char *other = compare_records(why == NULL, why_text, sizeof(why_text));
    why = why != NULL ? why : other;
  }
  ct_code_cache_stats(run.tracer.space->cache, &stats);
  ct_code_cache_free(run.tracer.space->cache);
  run.tracer.space->cache = NULL;
  run.tracer.space->slots = NULL;
  count->instructions += run.state_count;
  count->steps += run.translated.steps;
  count->flushes += stats.flushes;
  count->faults += run.native.signal != 0;
  if (why != NULL) {
    describe(why, layout, text, size);
  }
  return why != NULL;
}
