/* SPDX-License-Identifier: MIT */
/* Translated code that belongs to no unit: the entries of the table, and the wait for the tracer. */
#include "x86/translate.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>

#define SLOT(shared, member) ct_mem_absolute((shared) + (uint32_t)offsetof(struct ct_itrace_slots, member))

/* Goes over the next jump if the word there is value; rcx is free. */
static void
emit_compare(struct ct_code *out, struct ct_mem word, uint32_t value, uint8_t over)
{
  ct_emit_mov32_load(out, CT_RCX, word);
  ct_emit_lea32(out, CT_RCX, ct_mem_wide(ct_mem(CT_RCX, (int32_t)-value)));
  ct_emit_jrcxz_over(out, (int8_t)over);
}

static struct ct_recovery
between_units(const struct ct_translation_place *place)
{
  return (struct ct_recovery){.borrowed = CT_NO_REG,
                              .record = CT_NO_REG,
                              .scratch = CT_NO_REG,
                              .r10_is_slot = place->records,
                              .r11_is_slot = place->records};
}

/* The target is in its slot: its halves are compared one after the other. */
static void
emit_entry_by_slot(const struct ct_translation_place *place, uint64_t pc, struct ct_code_label *other,
                   struct ct_code *out, struct ct_recovery *recovery)
{
  enum { JUMP_FAR = 6 }; /* jmp *literal(%rip) */
  struct ct_mem low = SLOT(place->shared, target), high = low;
  high.disp += 4;
  recovery->pc_is = CT_PC_TARGET;
  emit_compare(out, low, (uint32_t)pc, JUMP_FAR);
  ct_emit_jmp_load_label(out, other);
  emit_compare(out, high, (uint32_t)(pc >> 32), JUMP_FAR);
  ct_emit_jmp_load_label(out, other);
}

/* The target is in rcx, and r10 is free. */
static void
emit_entry_by_rcx(uint64_t pc, size_t start, struct ct_code_label *other, struct ct_code *out,
                  struct ct_recovery recovery[3])
{
  enum { MOVABS = 10, LEA = 4, JUMP_FAR = 6 };
  recovery[0].pc_is = CT_PC_RCX;
  ct_emit_movabs(out, CT_R10, -pc);
  ct_emit_lea(out, CT_RCX, ct_mem_index(CT_RCX, CT_R10, 0));
  recovery[1] = recovery[0];
  recovery[1].at = (uint32_t)(out->length - start);
  recovery[1].pc = pc;
  ct_emit_jrcxz_over(out, MOVABS + LEA + JUMP_FAR);
  ct_emit_movabs(out, CT_R10, pc);
  ct_emit_lea(out, CT_RCX, ct_mem_index(CT_RCX, CT_R10, 0));
  recovery[2] = recovery[0];
  recovery[2].at = (uint32_t)(out->length - start);
  ct_emit_jmp_load_label(out, other);
}

uint32_t
ct_translate_entry(const struct ct_translation_place *place, uint64_t pc, uint64_t unit_address, uint64_t next,
                   struct ct_code *out, struct ct_recovery recovery[CT_ENTRY_RECOVERY])
{
  size_t start = out->length;
  struct ct_code_label literal = {.count = 0};
  struct ct_recovery *last = recovery;
  *last = between_units(place);
  last->rcx_is = CT_RCX_SPILLED;
  if (place->records) {
    emit_entry_by_rcx(pc, start, &literal, out, recovery);
    last += 3;
    *last = between_units(place);
    last->at = (uint32_t)(out->length - start);
    last->rcx_is = CT_RCX_SPILLED;
    last->pc = pc;
  } else {
    emit_entry_by_slot(place, pc, &literal, out, recovery);
  }
  ct_emit_mov_load(out, CT_RCX, SLOT(place->shared, spill_rcx));
  last++;
  *last = between_units(place);
  last->at = (uint32_t)(out->length - start);
  last->pc = pc;
  ct_emit_jmp(out, unit_address);
  ct_emit_align8(out);
  ct_code_label_bind(out, &literal);
  ct_emit_u64(out, next);
  return (uint32_t)(last - recovery) + 1;
}

void
ct_translate_far_jump(struct ct_code *out, uint64_t target)
{
  struct ct_code_label literal = {.count = 0};
  ct_emit_jmp_load_label(out, &literal);
  ct_emit_align8(out);
  ct_code_label_bind(out, &literal);
  ct_emit_u64(out, target);
}

/* Those that a system call changes, or has arguments in. */
static const uint8_t changed[] = {CT_RCX, CT_RDX, CT_RSI, CT_RDI, CT_R8, CT_R9, CT_R10, CT_R11};

static struct ct_mem
slot_of(uint32_t shared, enum ct_reg reg)
{
  return ct_mem_absolute(shared + 8u * (uint32_t)reg);
}

static void
emit_save(uint32_t shared, struct ct_code *out)
{
  ct_emit_lahf(out);
  ct_emit_seto_al(out);
  ct_emit_mov_store(out, SLOT(shared, flags), CT_RAX);
  for (size_t i = 0; i < sizeof(changed); i++) {
    ct_emit_mov_store(out, slot_of(shared, (enum ct_reg)changed[i]), (enum ct_reg)changed[i]);
  }
  ct_emit_mov_store(out, slot_of(shared, CT_RSP), CT_RSP); /* for the tracer to see */
}

/* Everything but rax. */
static void
emit_restore_most(uint32_t shared, struct ct_code *out)
{
  for (size_t i = 0; i < sizeof(changed); i++) {
    ct_emit_mov_load(out, (enum ct_reg)changed[i], slot_of(shared, (enum ct_reg)changed[i]));
  }
  ct_emit_mov_load(out, CT_RAX, SLOT(shared, flags));
  ct_emit_set_of_from_al(out);
  ct_emit_sahf(out);
}

static void
emit_restore(uint32_t shared, struct ct_code *out)
{
  emit_restore_most(shared, out);
  ct_emit_mov_load(out, CT_RAX, slot_of(shared, CT_RAX));
  ct_emit_jmp_load(out, SLOT(shared, resume));
}

static void
emit_futex(struct ct_code *out, uint32_t word, int operation, uint32_t timeout)
{
  ct_emit_mov32_imm(out, CT_RAX, SYS_futex);
  ct_emit_mov32_imm(out, CT_RDI, word);
  ct_emit_mov32_imm(out, CT_RSI, (uint32_t)operation);
  ct_emit_mov32_imm(out, CT_RDX, 1);
  ct_emit_mov32_imm(out, CT_R10, timeout);
  ct_emit_syscall(out);
}

/* A thread that waits for its first tracer has all signals blocked (itrace/itrace.c). */
static void
emit_unpark(uint32_t shared, struct ct_code *out)
{
  struct ct_code_label is_not = {.count = 0};
  ct_emit_cmp32_store_imm(out, SLOT(shared, is_parked), 1);
  ct_emit_jcc_label(out, CT_JNE, &is_not);
  ct_emit_mov32_imm(out, CT_RAX, SYS_rt_sigprocmask);
  ct_emit_mov32_imm(out, CT_RDI, SIG_SETMASK);
  ct_emit_mov32_imm(out, CT_RSI, shared + (uint32_t)offsetof(struct ct_itrace_slots, parked_mask));
  ct_emit_mov32_imm(out, CT_RDX, 0);
  ct_emit_mov32_imm(out, CT_R10, sizeof(uint64_t));
  ct_emit_syscall(out);
  ct_emit_mov32_store_imm(out, SLOT(shared, is_parked), 0);
  ct_code_label_bind(out, &is_not);
}

/* In rax; rdx is lost. */
static void
emit_ticks(struct ct_code *out)
{
  ct_emit_rdtsc(out);
  ct_emit_shl(out, CT_RDX, 32);
  ct_emit_lea(out, CT_RAX, ct_mem_index(CT_RAX, CT_RDX, 0));
  ct_emit_shr(out, CT_RAX, CT_ITRACE_TICK_SHIFT);
}

/* A wait begins. */
static void
emit_wait_end(uint32_t shared, struct ct_code *out)
{
  emit_ticks(out);
  ct_emit_lea32(out, CT_RAX, ct_mem(CT_RAX, CT_ITRACE_WAIT_TICKS));
  ct_emit_mov32_store(out, SLOT(shared, wait_end), CT_RAX);
}

/*
 * The kernel counts the time of a wait anew each time that a signal has interrupted it. Of a thread that has more of
 * them than waits the time stamp counter shows when one is over.
 */
static void
emit_unless_over(uint32_t shared, struct ct_code *out, struct ct_code_label *wait)
{
  struct ct_code_label is_over = {.count = 0};
  ct_emit_cmp32_imm(out, CT_RAX, -ETIMEDOUT);
  ct_emit_jcc_label(out, CT_JE, &is_over);
  emit_ticks(out);
  ct_emit_mov32_load(out, CT_RCX, SLOT(shared, wait_end));
  ct_emit_cmp32(out, CT_RAX, CT_RCX);
  ct_emit_jcc_label(out, CT_JB, wait);
  ct_code_label_bind(out, &is_over);
  emit_wait_end(shared, out);
}

/*
 * The thread has waited in vain: it goes on where the program is, unless an answer comes at this moment. All that it
 * waited with stays in the slots, so that its records can be closed by a tracer that has only been kept from running.
 */
static void
emit_leave(const struct ct_translation_place *place, struct ct_code *out, struct ct_code_label *answered)
{
  uint32_t shared = place->shared;
  ct_emit_mov32_imm(out, CT_RAX, CT_ITRACE_WAITS);
  ct_emit_mov32_imm(out, CT_RCX, CT_ITRACE_LEFT);
  ct_emit_lock(out);
  ct_emit_cmpxchg32_store(out, SLOT(shared, request), CT_RCX);
  ct_emit_jcc_label(out, CT_JNE, answered);
  emit_unpark(shared, out);
  emit_restore_most(shared, out);
  if (place->records) {
    ct_emit_mov_load(out, CT_R10, SLOT(shared, app_r10));
    ct_emit_mov_load(out, CT_R11, SLOT(shared, app_r11));
  }
  ct_emit_mov_load(out, CT_RAX, slot_of(shared, CT_RAX));
  ct_emit_jmp_load(out, SLOT(shared, target));
}

/* Waits for the answer, or until the tracer seems to be dead. */
static void
emit_wait(const struct ct_translation_place *place, struct ct_code *out)
{
  uint32_t shared = place->shared;
  struct ct_code_label wait = {.count = 0}, lives = {.count = 0}, done = {.count = 0};
  ct_emit_mov32_load(out, CT_RAX, SLOT(shared, liveness));
  ct_emit_mov32_store(out, SLOT(shared, last_liveness), CT_RAX);
  ct_emit_mov32_store_imm(out, SLOT(shared, silent), place->silent_waits);
  ct_emit_mov32_store_imm(out, SLOT(shared, request), CT_ITRACE_WAITS);
  ct_emit_lock(out);
  ct_emit_inc32_store(out, SLOT(shared, doorbell));
  emit_futex(out, shared + offsetof(struct ct_itrace_slots, doorbell), FUTEX_WAKE, 0);
  emit_wait_end(shared, out);
  ct_code_label_bind(out, &wait);
  ct_emit_cmp32_store_imm(out, SLOT(shared, request), CT_ITRACE_WAITS);
  ct_emit_jcc_label(out, CT_JNE, &done);
  emit_futex(out, shared + offsetof(struct ct_itrace_slots, request), FUTEX_WAIT,
             shared + offsetof(struct ct_itrace_slots, timeout));
  emit_unless_over(shared, out, &wait);
  ct_emit_mov32_load(out, CT_RAX, SLOT(shared, liveness));
  ct_emit_mov32_load(out, CT_RCX, SLOT(shared, last_liveness));
  ct_emit_mov32_store(out, SLOT(shared, last_liveness), CT_RAX);
  ct_emit_cmp32(out, CT_RAX, CT_RCX);
  ct_emit_jcc_label(out, CT_JNE, &lives);
  ct_emit_dec32_store(out, SLOT(shared, silent));
  ct_emit_jcc_label(out, CT_JNE, &wait);
  emit_leave(place, out, &done);
  ct_code_label_bind(out, &lives);
  ct_emit_mov32_store_imm(out, SLOT(shared, silent), place->silent_waits);
  ct_emit_jmp_label(out, &wait);
  ct_code_label_bind(out, &done);
}

uint32_t
ct_translate_runtime(const struct ct_translation_place *place, struct ct_code *out,
                     struct ct_recovery recovery[CT_RUNTIME_RECOVERY], uint64_t *miss, uint64_t *leave)
{
  uint32_t shared = place->shared;
  size_t start = out->length;
  uint32_t count = 0;
  struct ct_recovery target = between_units(place);
  target.pc_is = CT_PC_TARGET;
  *miss = ct_code_pc(out);
  recovery[count] = target;
  recovery[count].pc_is = place->records ? CT_PC_RCX : CT_PC_TARGET;
  recovery[count++].rcx_is = CT_RCX_SPILLED; /* and the exit is one from before, perhaps */
  if (place->records) {
    ct_emit_mov_store(out, SLOT(shared, target), CT_RCX);
  }
  ct_emit_mov32_store_imm(out, SLOT(shared, exit), CT_ITRACE_EXIT_MISS);
  ct_emit_mov_load(out, CT_RCX, SLOT(shared, spill_rcx));
  target.at = (uint32_t)(out->length - start);
  recovery[count++] = target;
  *leave = ct_code_pc(out);
  ct_emit_mov_store(out, slot_of(shared, CT_RAX), CT_RAX);
  target.at = (uint32_t)(out->length - start);
  target.rax_is_slot = 1;
  recovery[count++] = target;
  emit_save(shared, out);
  target.at = (uint32_t)(out->length - start);
  target.is_waiting = 1;
  recovery[count++] = target;
  emit_wait(place, out);
  emit_restore(shared, out);
  return count;
}
