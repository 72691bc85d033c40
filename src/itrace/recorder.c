/* SPDX-License-Identifier: MIT */
/* See recorder.h. */
#include "itrace/recorder.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/test_point.h"
#include "itrace/branches.h"
#include "itrace/segments.h"
#include "itrace/vectors.h"
#include "x86/recorded.h"

#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

/* Trap and resume: of a step of ours, or of the next instruction only. */
#define FLAGS_OF_STEPS 0x10100ull

/* Bytes of records after which long units are worth what it takes to make them; and once more after so many times that.
 */
#define LONG_RUN (512ull << 20)
#define LEARNT   (32ull << 20) /* before that: which way branches go, and what is hot */
enum { LONGER = 8, ROUNDS = 3 };

enum {
  EVENT_ROOM = 8192,    /* of a context with all vector registers, and a part of a unit */
  WRITTEN_MAX = 1 << 16 /* bytes of what one system call has written that are kept */
};

struct ct_recorder {
  struct ct_recorder_options options;
  struct ct_segments *segments;
  struct ct_unit_log *units;
  struct ct_branches *branches;  /* NULL: not known */
  uint32_t segment;              /* of those of a long run */
  struct ct_itrace_space *space; /* NULL: none */
  pid_t tid;
  uint32_t current; /* segment */
  uint64_t handed;  /* bytes in segments before it */
  uint64_t used;    /* bytes in it, as far as they are known */
  uint64_t step_pc; /* the last step of an instruction where it is, if it ends there */
  uint64_t step_end;
  bool known[CT_ITRACE_BLOCKS]; /* had a time stamp when the thread was called in */
  bool holds_vectors;
  uint8_t vectors[CT_VECTORS_BYTES_MAX];
};

static uint8_t *
here(const struct ct_recorder *recorder)
{
  return recorder->space->segments[recorder->current].bytes + recorder->used;
}

static void
add(struct ct_recorder *recorder, const void *bytes, size_t size)
{
  memcpy(here(recorder), bytes, size);
  recorder->used += size;
}

/* ---- segments ---- */

/* Blocks of the segment: the last ones are left for what is written without a look. */
static void
set_blocks(struct ct_itrace_space *space)
{
  enum { LEFT = 16 }; /* see goes_slowly() in translate_block.c */
  uint8_t *blocks = (uint8_t *)space->slots + CT_ITRACE_BLOCKS_AT;
  uint8_t *kinds = blocks + CT_ITRACE_BLOCKS;
  memset(blocks, 0, CT_ITRACE_BLOCKS);
  memset(kinds, CT_ITRACE_BLOCK_FRESH, CT_ITRACE_BLOCKS);
  memset(kinds + CT_ITRACE_BLOCKS - LEFT, CT_ITRACE_BLOCK_FULL, LEFT);
  kinds[0] = CT_ITRACE_BLOCK_FULL;
}

/* The stamps of this segment that make sense. */
static uint32_t
take_stamps(const struct ct_recorder *recorder, struct ct_stream_stamp stamps[CT_ITRACE_BLOCKS])
{
  const uint8_t *shared = (const uint8_t *)recorder->space->slots;
  const uint64_t *tsc = (const uint64_t *)(shared + CT_ITRACE_STAMPS_AT), *at = tsc + CT_ITRACE_BLOCKS;
  uint64_t last = 0, start = recorder->space->segments[recorder->current].address;
  uint32_t count = 0;
  for (uint32_t i = 1; i < CT_ITRACE_BLOCKS; i++) {
    struct ct_stream_stamp stamp = {.tsc = tsc[i], .at = at[i] - start};
    bool is_known = recorder->known[i] || shared[CT_ITRACE_BLOCKS_AT + i] == CT_ITRACE_BLOCK_KNOWN;
    if (is_known && stamp.at < recorder->used && stamp.tsc >= last) {
      last = stamp.tsc;
      stamps[count++] = stamp;
    }
  }
  return count;
}

static uint64_t
long_run(void)
{
  return ct_test_number("CONTRAIL_TEST_LONG_RUN", LONG_RUN);
}

/* From the last part of a short run; then from a part of one in some segments, since the thread waits for it. */
static void
learn(struct ct_recorder *recorder, const uint8_t *bytes)
{
  enum { EACH = 16, PART = 1 << 18 };
  bool is_long = recorder->handed >= long_run();
  uint64_t before = long_run() / 2 < LEARNT ? long_run() / 2 : LEARNT;
  if (recorder->handed < long_run() - before || (is_long && ++recorder->segment % EACH != 0)) {
    return;
  }
  if (recorder->branches == NULL) {
    recorder->branches = ct_branches_create();
  }
  if (recorder->branches != NULL) {
    ct_branches_learn(recorder->branches, recorder->units, bytes,
                      is_long && recorder->used > PART ? PART : recorder->used);
  }
}

static void
hand_over(struct ct_recorder *recorder)
{
  struct ct_stream_stamp stamps[CT_ITRACE_BLOCKS];
  const uint8_t *bytes = recorder->space->segments[recorder->current].bytes;
  uint32_t count = take_stamps(recorder, stamps);
  learn(recorder, bytes);
  recorder->handed += recorder->used;
  ct_segments_put(recorder->segments, recorder->units, recorder->current, bytes, recorder->used, stamps, count);
}

uint32_t
ct_recorder_round(const struct ct_recorder *recorder)
{
  uint32_t round = recorder->handed >= long_run();
  for (uint64_t bytes = LONG_RUN * LONGER; round != 0 && round < ROUNDS && recorder->handed >= bytes; bytes *= LONGER) {
    round++;
  }
  return round;
}

const struct ct_branches *
ct_recorder_branches(const struct ct_recorder *recorder)
{
  return recorder->branches;
}

static void
begin_segment(struct ct_recorder *recorder)
{
  recorder->used = 0;
  recorder->step_end = UINT64_MAX;
  memset(recorder->known, 0, sizeof(recorder->known));
  set_blocks(recorder->space);
}

void
ct_recorder_call_in(struct ct_recorder *recorder)
{
  uint8_t *blocks = (uint8_t *)recorder->space->slots + CT_ITRACE_BLOCKS_AT, *kinds = blocks + CT_ITRACE_BLOCKS;
  for (uint32_t i = 0; i < CT_ITRACE_BLOCKS; i++) {
    __atomic_store_n(&kinds[i], CT_ITRACE_BLOCK_FULL, __ATOMIC_RELAXED);
    recorder->known[i] |= __atomic_exchange_n(&blocks[i], 0, __ATOMIC_RELEASE) == CT_ITRACE_BLOCK_KNOWN;
  }
}

void
ct_recorder_room(struct ct_recorder *recorder, uint64_t bytes)
{
  struct ct_itrace_space *space = recorder->space;
  uint64_t most = ct_space_segment_bytes(space) - EVENT_ROOM;
  if (bytes != UINT64_MAX && recorder->used + bytes < most - (1u << 20)) {
    return;
  }
  hand_over(recorder);
  recorder->current = ct_segments_take(recorder->segments, recorder->options.is_lossless);
  begin_segment(recorder);
}

void
ct_recorder_enter(struct ct_recorder *recorder, struct ct_itrace_space *space, pid_t tid)
{
  recorder->space = space;
  recorder->tid = tid;
  recorder->current = ct_segments_take(recorder->segments, true);
  begin_segment(recorder);
  ct_recorder_note_modules(recorder);
}

void
ct_recorder_leave(struct ct_recorder *recorder)
{
  if (recorder->space != NULL) {
    hand_over(recorder);
    ct_segments_wait(recorder->segments);
    recorder->space = NULL;
  }
}

void
ct_recorder_note_modules(struct ct_recorder *recorder)
{
  ct_segments_note_modules(recorder->segments, recorder->space->process->pid);
}

uint64_t
ct_recorder_place(const struct ct_recorder *recorder)
{
  return recorder->space->segments[recorder->current].address + recorder->used;
}

/* ---- vector registers ---- */

/* False: they cannot be had. */
static bool
read_vectors(struct ct_recorder *recorder)
{
  return recorder->holds_vectors || ct_vectors_read(recorder->tid, recorder->vectors);
}

void
ct_recorder_hold_vectors(struct ct_recorder *recorder, bool are_held)
{
  recorder->holds_vectors =
      are_held && recorder->options.has_vectors && ct_vectors_read(recorder->tid, recorder->vectors);
}

/* ---- the unit that was under way ---- */

/* The registers of the program, by enum ct_reg. */
static uint64_t
general(const struct user_regs_struct *regs, unsigned reg)
{
  uint64_t values[16] = {regs->rax, regs->rcx, regs->rdx, regs->rbx, regs->rsp, regs->rbp, regs->rsi, regs->rdi,
                         regs->r8,  regs->r9,  regs->r10, regs->r11, regs->r12, regs->r13, regs->r14, regs->r15};
  return values[reg];
}

static uint64_t
address_of(const struct ct_access *access, const struct user_regs_struct *regs, uint64_t next)
{
  uint64_t base = (access->how & CT_ACCESS_RIP) != 0 ? next
                  : access->base != CT_NO_REG        ? general(regs, access->base)
                                                     : 0;
  uint64_t index = access->index != CT_NO_REG ? general(regs, access->index) << access->scale : 0;
  uint64_t segment = access->segment == CT_SEGMENT_FS   ? regs->fs_base
                     : access->segment == CT_SEGMENT_GS ? regs->gs_base
                                                        : 0;
  return segment + base + index + (uint64_t)access->disp;
}

/* A value of the instruction that was executed last: perhaps the unit had not come to writing it. */
static void
rewrite(struct ct_recorder *recorder, const struct ct_effects *effects, const struct ct_recorded_value *value,
        const struct user_regs_struct *regs, uint64_t next, uint8_t *to)
{
  uint64_t word = 0;
  switch (value->kind) {
  case CT_VALUE_LOADED:
    return;
  case CT_VALUE_REG:
    word = general(regs, value->reg);
    break;
  case CT_VALUE_FLAGS:
    word = (regs->eflags & 0xff) << 8 | (regs->eflags >> 11 & 1);
    break;
  case CT_VALUE_STORED:
    ct_process_read(recorder->space->process, address_of(&effects->access[value->reg], regs, next), &word, value->size);
    break;
  case CT_VALUE_TIME:
    word = __rdtsc();
    break;
  case CT_VALUE_VECTOR:
  case CT_VALUE_MASK:
    ct_vectors_get(recorder->vectors, value->kind == CT_VALUE_MASK, value->reg, to, value->size);
    return;
  default:
    return;
  }
  memcpy(to, &word, value->size);
}

/* The bytes of the values of the first `done` instructions; those of the last one are made sure of. */
static uint32_t
reconcile(struct ct_recorder *recorder, const struct ct_logged_unit *unit, uint32_t done, bool may_be_open,
          const struct user_regs_struct *regs, uint8_t *record)
{
  uint32_t at = 0, code_at = 0;
  bool has_vectors = false;
  for (uint32_t i = 0; i < done; i++) {
    struct ct_effects effects;
    struct ct_recorded_value values[CT_VALUES_MAX];
    if (!ct_effects_of(unit->code + code_at, unit->code_bytes - code_at, &effects)) {
      break;
    }
    code_at += effects.length;
    int count = ct_values_of(&effects, recorder->options.has_vectors, values);
    for (int k = 0; k < count; k++) {
      if (may_be_open && i + 1 == done) {
        if (!has_vectors && (values[k].kind == CT_VALUE_VECTOR || values[k].kind == CT_VALUE_MASK)) {
          has_vectors = read_vectors(recorder);
        }
        rewrite(recorder, &effects, &values[k], regs, ct_unit_log_pc(unit, code_at), record + 4 + at);
      }
      at += values[k].size;
    }
  }
  return at;
}

/* A system call that was interrupted, and is going to be made again. */
static bool
is_restarted(const struct ct_logged_unit *unit, const struct user_regs_struct *regs)
{
  struct user_regs_struct before = *regs;
  struct ct_effects effects;
  return unit->insns == 1 && ct_effects_of(unit->code, unit->code_bytes, &effects) &&
         effects.flow == CT_INSN_FLOW_SYSCALL && ct_traced_before_syscall(&before);
}

void
ct_recorder_close(struct ct_recorder *recorder, const struct ct_recovery *recovery, uint64_t place,
                  const struct user_regs_struct *regs)
{
  struct ct_record_segment *segment = &recorder->space->segments[recorder->current];
  struct ct_logged_unit unit;
  uint64_t used = place - segment->address;
  if (used < recorder->used || used > ct_space_segment_bytes(recorder->space) - EVENT_ROOM) {
    ct_recorder_gap(recorder); /* somebody has changed the register that says so */
    return;
  }
  recorder->used = used;
  if (!ct_unit_log_get(recorder->units, recovery->unit, &unit) || (recovery->done == 0 && !recovery->is_advanced)) {
    return;
  }
  if (recovery->is_advanced && recovery->done >= unit.insns) {
    return;
  }
  if (!recovery->is_advanced && is_restarted(&unit, regs)) {
    return;
  }
  if (recovery->is_advanced) {
    uint32_t all = reconcile(recorder, &unit, unit.insns, false, regs, NULL) + 4;
    if (all > recorder->used) {
      return;
    }
    recorder->used -= all;
    if (recovery->done == 0) {
      return;
    }
  }
  uint8_t *record = here(recorder);
  uint32_t bytes = reconcile(recorder, &unit, recovery->done, !recovery->is_advanced, regs, record);
  if (recovery->done == unit.insns) {
    memcpy(record, &recovery->unit, sizeof(recovery->unit));
    recorder->used += 4 + bytes;
    return;
  }
  struct ct_stream_part part = {.word = CT_STREAM_PART, .unit = recovery->unit, .first = 0, .end = recovery->done};
  memmove(record + sizeof(part), record + 4, bytes);
  memcpy(record, &part, sizeof(part));
  recorder->used += sizeof(part) + bytes;
}

/* ---- events ---- */

static void
add_context(struct ct_recorder *recorder, const struct user_regs_struct *regs, enum ct_context_reason reason,
            bool with_vectors)
{
  struct ct_stream_context context = {.event = {CT_STREAM_EVENT | CT_STREAM_CONTEXT, sizeof(context)},
                                      .tsc = __rdtsc(),
                                      .rip = regs->rip,
                                      .flags = regs->eflags & ~FLAGS_OF_STEPS,
                                      .fs_base = regs->fs_base,
                                      .gs_base = regs->gs_base,
                                      .reason = (uint32_t)reason};
  for (unsigned i = 0; i < 16; i++) {
    context.reg[i] = general(regs, i);
  }
  ct_recorder_room(recorder, 0);
  uint32_t size = 0;
  if (with_vectors && recorder->options.has_vectors && read_vectors(recorder)) {
    size = ct_vectors_put(recorder->vectors, &context, here(recorder) + sizeof(context));
  }
  context.event.bytes += size;
  memcpy(here(recorder), &context, sizeof(context));
  recorder->used += sizeof(context) + size;
}

void
ct_recorder_context(struct ct_recorder *recorder, const struct user_regs_struct *regs, enum ct_context_reason reason)
{
  add_context(recorder, regs, reason, true);
}

void
ct_recorder_leaves(struct ct_recorder *recorder, const struct user_regs_struct *regs, bool is_last)
{
  add_context(recorder, regs, CT_CONTEXT_STEP, is_last);
}

void
ct_recorder_step(struct ct_recorder *recorder, uint64_t pc)
{
  struct ct_stream_step step = {.event = {CT_STREAM_EVENT | CT_STREAM_STEP, sizeof(step)}, .tsc = __rdtsc(), .pc = pc};
  for (step.length = sizeof(step.code); step.length != 0; step.length--) {
    if (ct_process_read(recorder->space->process, pc, step.code, step.length) == 0) {
      break;
    }
  }
  struct ct_effects effects;
  if (step.length != 0 && ct_effects_of(step.code, step.length, &effects)) {
    step.length = effects.length;
  }
  memset(step.code + step.length, 0, sizeof(step.code) - step.length);
  add(recorder, &step, sizeof(step));
  recorder->step_pc = pc;
  recorder->step_end = recorder->used;
}

void
ct_recorder_step_not_made(struct ct_recorder *recorder, uint64_t pc)
{
  if (recorder->step_pc == pc && recorder->step_end == recorder->used) {
    recorder->used -= sizeof(struct ct_stream_step);
  }
  recorder->step_end = UINT64_MAX;
}

void
ct_recorder_gap(struct ct_recorder *recorder)
{
  struct ct_stream_gap gap = {.event = {CT_STREAM_EVENT | CT_STREAM_GAP, sizeof(gap)}, .tsc = __rdtsc()};
  add(recorder, &gap, sizeof(gap));
}

void
ct_recorder_memory(struct ct_recorder *recorder, const struct ct_written *written)
{
  struct ct_stream_memory memory = {.event = {CT_STREAM_EVENT | CT_STREAM_MEMORY, sizeof(memory)},
                                    .address = written->address,
                                    .size = written->size};
  uint64_t room = ct_space_segment_bytes(recorder->space) - EVENT_ROOM;
  if (recorder->used + sizeof(memory) > room) {
    return;
  }
  uint64_t bytes = written->is_fresh ? 0 : written->size < WRITTEN_MAX ? written->size : WRITTEN_MAX;
  uint8_t *to = here(recorder) + sizeof(memory);
  if (recorder->used + sizeof(memory) + bytes <= room && bytes != 0 &&
      ct_process_read(recorder->space->process, written->address, to, bytes) == 0) {
    memory.event.bytes += (uint32_t)bytes;
  }
  memcpy(here(recorder), &memory, sizeof(memory));
  recorder->used += memory.event.bytes;
}

uint64_t
ct_recorder_written(struct ct_recorder *recorder, const struct ct_system_call *call, uint64_t place)
{
  struct ct_written written[CT_WRITTEN_MAX];
  uint64_t used = place - recorder->space->segments[recorder->current].address, most = WRITTEN_MAX;
  if (used < recorder->used || used > ct_space_segment_bytes(recorder->space) - EVENT_ROOM) {
    return place;
  }
  recorder->used = used;
  uint32_t count = ct_written_by(recorder->space->process, call, written);
  for (uint32_t i = 0; i < count; i++) {
    written[i].is_fresh |= written[i].size > most;
    most -= written[i].is_fresh ? 0 : written[i].size;
    ct_recorder_memory(recorder, &written[i]);
  }
  return ct_recorder_place(recorder);
}

void
ct_recorder_signal(struct ct_recorder *recorder, uint64_t pc, const siginfo_t *info)
{
  struct ct_stream_signal signal = {.event = {CT_STREAM_EVENT | CT_STREAM_SIGNAL, sizeof(signal)},
                                    .tsc = __rdtsc(),
                                    .pc = pc,
                                    .signal = info->si_signo,
                                    .code = info->si_code};
  if (info->si_code > 0 && (info->si_signo == SIGSEGV || info->si_signo == SIGBUS || info->si_signo == SIGILL ||
                            info->si_signo == SIGFPE || info->si_signo == SIGTRAP)) {
    signal.address = (uint64_t)info->si_addr;
  }
  add(recorder, &signal, sizeof(signal));
}

void
ct_recorder_end(struct ct_recorder *recorder, enum ct_stream_end_reason reason, int status)
{
  struct ct_stream_end end = {.event = {CT_STREAM_EVENT | CT_STREAM_END, sizeof(end)},
                              .tsc = __rdtsc(),
                              .reason = (uint32_t)reason,
                              .status = status};
  if (recorder->space != NULL) {
    add(recorder, &end, sizeof(end));
  }
}

/* ---- life ---- */

int
ct_recorder_create(const struct ct_recorder_options *options, pid_t pid, pid_t tid, struct ct_recorder **out,
                   struct ct_diag *diag)
{
  struct ct_recorder *recorder = calloc(1, sizeof(*recorder));
  struct ct_unit_log *units = ct_unit_log_create();
  if (recorder == NULL || units == NULL) {
    free(recorder);
    ct_unit_log_free(units);
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  recorder->options = *options;
  recorder->units = units;
  recorder->tid = tid;
  uint32_t percent = (uint32_t)ct_test_number("CONTRAIL_TEST_TAKEN", 0);
  recorder->branches = percent != 0 ? ct_branches_create() : NULL;
  if (recorder->branches != NULL) {
    ct_branches_by_lot(recorder->branches, percent);
  }
  int code = ct_segments_create(options, pid, tid, &recorder->segments, diag);
  if (code != 0) {
    ct_unit_log_free(units);
    ct_branches_free(recorder->branches);
    free(recorder);
    return code;
  }
  *out = recorder;
  return 0;
}

int
ct_recorder_finish(struct ct_recorder *recorder, struct ct_recorder_counts *counts, struct ct_diag *diag)
{
  ct_recorder_leave(recorder);
  int code = ct_segments_finish(recorder->segments, counts, diag);
  ct_unit_log_free(recorder->units);
  ct_branches_free(recorder->branches);
  free(recorder);
  return code;
}

uint64_t
ct_recorder_steps(const struct ct_recorder *recorder)
{
  return ct_segments_steps(recorder->segments);
}

struct ct_unit_log *
ct_recorder_units(struct ct_recorder *recorder)
{
  return recorder->units;
}

bool
ct_recorder_has_vectors(const struct ct_recorder *recorder)
{
  return recorder->options.has_vectors;
}
