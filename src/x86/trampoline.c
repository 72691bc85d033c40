/* SPDX-License-Identifier: MIT */
/*
 * Call-through trampoline (CT_HOOK_FULL), S = address of the return-address slot:
 *
 *   enter:      rsp = S; rax rdx r11 r10 saved at S-8..S-32
 *               check 1: S within the thread's stack?            else -> slow_enter
 *               check 2: return address in a module's text?      else -> not_module (tail call, JIT)
 *               tsc, tag; reserve 16 bytes; check 3: room?       else -> slow_enter
 *               store event, restore rax rdx r10
 *               pop the return address into S + D                (rsp = S+8)
 *               restore r11
 *               call relocated                                   (pushes ret_point at S)
 *   ret_point:  rsp = S                                          (slot holds garbage, S + D the truth)
 *   ret:        rax rdx r11 saved; checks 1 and 3, event         else -> slow_return
 *   ret_done:   restore, put the true return address into S, ret
 *   relocated:  [callout] the displaced instructions, jump after them
 *   cold:       three stubs: r11 = descriptor, jump through the region head
 *
 * With values (spec->values, spec->form): the first check looks whether there is room for all events, and after that of
 * the enter further ones say what is in the registers that the function takes; the return half has some, before its
 * own, of what it gives. Should a signal handler take the room in between, values are not recorded
 * (trampoline_values.c).
 *
 * With detail: a record in the detail lane, and before the event of the enter or return one that says where it is
 * (ring/layout.h). In the return half the clock is read first and kept below the stack pointer meanwhile (S-128), so
 * that what this takes is in the time of the caller. Without room for the record the agent looks for another segment
 * (detail_full) and it is tried again, or left out.
 *
 * Nothing but flags is changed on either way: at a function's entry and after its return no compiled code
 * has live flags; functions that have are refused by the planner. The layout up to `relocated` is the same for
 * all functions, so that one unwind table serves them all (ct_trampoline_unwind).
 *
 * Enter-only (CT_HOOK_ENTER): checks 1 and 3, event, then straight on into the displaced
 * instructions. It also looks whether the return-address slot holds a trampoline's address (restore_ra_slot).
 * CT_HOOK_STACKLESS has check 3 only, which fails too where a thread has no segment yet. With event_last the order is:
 * the displaced instructions, which branch away or have no effect yet; the event; on into the body.
 *
 * Sampled (CT_HOOK_SAMPLED; the user's word is light): enter only by request, and perhaps sampled. First a compare
 * shows whether every call is recorded. If not, the call is counted down and, unless it is due, goes straight on into
 * the displaced instructions, which follow at once; of one that is due the agent writes the event (sample_due). What
 * records every call comes after them: checks 1 and 3, event, and back; the return-address slot is not looked at, and
 * may hold anything. A page that several threads share is only read that far: its countdown is 1.
 *
 * Gate (spec->has_gate): in front of the enter half of a full hook; trampoline_gate.c.
 *
 * Passthrough (CT_HOOK_PASSTHROUGH): an excluded function that needs a trampoline. It only looks whether the
 * return-address slot holds a trampoline's address (restore_passthrough), through the table's address itself: the
 * thread's gs is not looked at, so there is nothing to check first.
 */
#include "x86/trampoline_internal.h"

/* The record of an enter or return with detail. */
struct detail {
  struct ct_code_label full; /* there is no room for it */
  uint64_t again, done;      /* where to try again, and where to go on without it */
};

/* Places after the code that is usually run. */
struct cold {
  struct ct_code_label slow_enter, slow_return;
  struct ct_code_label other;  /* not_module or restore_ra_slot; of a sampled hook: this call is due */
  struct ct_code_label every;  /* of a sampled hook: every call is recorded */
  struct ct_code_label copy;   /* CT_CALLOUT_COPY: this copy is to be looked at */
  struct ct_code_label values; /* the arguments */
  struct ct_trampoline_gate gate;
  struct detail enter, leave, tail;
};

CT_INLINE void
emit_save(struct ct_code *out, enum ct_reg reg)
{
  int32_t place = reg == CT_RAX ? -8 : reg == CT_RDX ? -16 : reg == CT_R11 ? -24 : -32;
  ct_emit_mov_store(out, ct_mem(CT_RSP, place), reg);
}

CT_INLINE void
emit_restore(struct ct_code *out, enum ct_reg reg)
{
  int32_t place = reg == CT_RAX ? -8 : reg == CT_RDX ? -16 : reg == CT_R11 ? -24 : -32;
  ct_emit_mov_load(out, reg, ct_mem(CT_RSP, place));
}

static void
emit_stack_check(struct ct_code *out, struct ct_code_label *slow)
{
  ct_emit_mov(out, CT_R11, CT_RSP);
  ct_emit_sub_load(out, CT_R11, ct_mem_gs(CT_GS_STACK_LO));
  ct_emit_cmp_load(out, CT_R11, ct_mem_gs(CT_GS_STACK_LEN));
  ct_emit_jcc_label(out, CT_JAE, slow);
}

/*
 * The entry of an event in r11 and its tag in edx. Both come out of one instruction, so that a handler that interrupts
 * takes the next entry; and whether the entry is one is seen from its address: a signal handler that comes in between
 * may fill the segment and begin another, what has been reserved stays valid.
 */
static void
emit_take_entry(struct ct_code *out, struct ct_code_label *none)
{
  ct_emit_mov32_imm(out, CT_R11, CT_EVENT_BYTES);
  ct_emit_xadd_store(out, ct_mem_gs(CT_GS_CURSOR), CT_R11);
  ct_emit_test32_imm(out, CT_R11, CT_CURSOR_VALID);
  ct_emit_jcc_label(out, CT_JE, none);
  ct_emit_mov32(out, CT_RDX, CT_R11);
  ct_emit_and32_imm(out, CT_RDX, CT_WORD_TAG_MASK);
  ct_emit_and_imm(out, CT_R11, ~CT_WORD_TAG_MASK);
}

/* rdx:rax free. Reads the clock, then reserves; the event's address is in r11, clock in rax, tag in edx. */
CT_INLINE void
emit_clock(struct ct_code *out)
{
  ct_emit_rdtsc(out);
  ct_emit_shl(out, CT_RDX, 32);
  ct_emit_or(out, CT_RAX, CT_RDX);
}

static void
emit_reserve(struct ct_code *out, struct ct_code_label *slow)
{
  emit_clock(out);
  emit_take_entry(out, slow);
}

/* The word, of rsp, the tag in edx and word, into the event at r11: last, in one store. The same length for all words,
 * see ct_trampoline_unwind. */
static void
emit_word(struct ct_code *out, uint32_t word)
{
  ct_emit_mov32(out, CT_RAX, CT_RSP);
  ct_emit_shl(out, CT_RAX, 32);
  if (word < 0x80000000u) {
    ct_emit_lea(out, CT_RAX, ct_mem_wide(ct_mem_index(CT_RAX, CT_RDX, (int32_t)word)));
  } else { /* zero-extends, unlike the form above */
    ct_emit_lea32(out, CT_RDX, ct_mem_wide(ct_mem(CT_RDX, (int32_t)word)));
    ct_emit_or(out, CT_RAX, CT_RDX);
  }
  ct_emit_mov_store(out, ct_mem(CT_R11, 8), CT_RAX);
}

static void
emit_event(struct ct_code *out, uint32_t word)
{
  ct_emit_mov_store(out, ct_mem(CT_R11, 0), CT_RAX);
  emit_word(out, word);
}

/* Is there room for so many events? r11 is free. The same length for all numbers, see ct_trampoline_unwind. */
static void
emit_room_check(struct ct_code *out, unsigned events, struct ct_code_label *slow)
{
  ct_emit_mov_load(out, CT_R11, ct_mem_gs(CT_GS_CURSOR));
  ct_emit_lea(out, CT_R11, ct_mem_wide(ct_mem(CT_R11, (int32_t)((events - 1) * CT_EVENT_BYTES))));
  ct_emit_test32_imm(out, CT_R11, CT_CURSOR_VALID);
  ct_emit_jcc_label(out, CT_JE, slow);
}

/* The clock, in rax, is needed once more. */
static void
emit_keep_clock(struct ct_code *out)
{
  ct_emit_mov_store(out, ct_mem(CT_RSP, -128), CT_RAX);
}

static void
emit_kept_clock(struct ct_code *out)
{
  ct_emit_mov_load(out, CT_RAX, ct_mem(CT_RSP, -128));
}

/* The place of a record in r10, and its head. rax, rdx are free. */
static void
emit_detail_head(struct ct_code *out, uint32_t bytes, uint32_t word, struct detail *detail)
{
  detail->again = ct_code_pc(out);
  ct_emit_mov32_imm(out, CT_R10, bytes);
  ct_emit_xadd_store(out, ct_mem_gs(CT_GS_DETAIL_CURSOR), CT_R10);
  ct_emit_test32_imm(out, CT_R10, CT_CURSOR_VALID);
  ct_emit_jcc_label(out, CT_JE, &detail->full);
  ct_emit_mov32(out, CT_RAX, CT_RSP);
  ct_emit_shl(out, CT_RAX, 32);
  ct_emit_mov32_imm(out, CT_RDX, word);
  ct_emit_or(out, CT_RAX, CT_RDX);
  ct_emit_mov_store(out, ct_mem(CT_R10, offsetof(struct ct_detail_record, word)), CT_RAX);
  ct_emit_mov_store(out, ct_mem(CT_R10, offsetof(struct ct_detail_record, sp)), CT_RSP);
  ct_emit_mov_store(out, ct_mem(CT_R10, offsetof(struct ct_detail_record, bp)), CT_RBP);
}

/* The event that says where the record at r10 is; and here it goes on without one. */
static void
emit_detail_link(struct ct_code *out, struct detail *detail)
{
  struct ct_code_label none = {0};
  emit_take_entry(out, &none);
  ct_emit_mov_load(out, CT_RAX, ct_mem_gs(CT_GS_DETAIL_TAG));
  ct_emit_or(out, CT_RAX, CT_R10);
  ct_emit_mov_store(out, ct_mem(CT_R11, 0), CT_RAX);
  emit_word(out, CT_WORD_DETAIL);
  ct_code_label_bind(out, &none);
  detail->done = ct_code_pc(out);
}

void
ct_trampoline_emit_stack_left(struct ct_code *out, struct ct_code_label *none)
{
  ct_emit_mov_load(out, CT_R11, ct_mem_gs(CT_GS_STACK_LO));
  ct_emit_mov_load(out, CT_RAX, ct_mem_gs(CT_GS_STACK_LEN));
  ct_emit_cmp_load(out, CT_R11, ct_mem_gs(CT_GS_STACK_LO));
  ct_emit_jcc_label(out, CT_JNE, none);
  ct_emit_cmp_load(out, CT_RAX, ct_mem_gs(CT_GS_STACK_LEN));
  ct_emit_jcc_label(out, CT_JNE, none);
  ct_emit_mov(out, CT_RDX, CT_RSP);
  ct_emit_sub(out, CT_RDX, CT_R11);
  ct_emit_sub(out, CT_RAX, CT_RDX);
  ct_emit_jcc_label(out, CT_JBE, none); /* rsp is not below the end; nor above the begin, or it would be far above */
}

/*
 * The stack from rsp up to the end of the thread's range, and not more than `bytes`, with their number before them at
 * disp(%r10).
 */
static void
emit_stack_bytes(struct ct_code *out, uint32_t bytes, int32_t disp)
{
  struct ct_code_label none = {0}, next = {0};
  ct_emit_and_store_imm(out, ct_mem(CT_R10, disp), 0);
  ct_trampoline_emit_stack_left(out, &none);
  ct_emit_mov32_imm(out, CT_RDX, bytes);
  ct_emit_cmp(out, CT_RAX, CT_RDX);
  ct_emit_cmovb(out, CT_RDX, CT_RAX);
  ct_emit_and_imm(out, CT_RDX, -8);
  ct_emit_mov_store(out, ct_mem(CT_R10, disp), CT_RDX);
  ct_emit_jcc_label(out, CT_JE, &none); /* by the and: mov leaves flags alone */
  ct_code_label_bind(out, &next);
  ct_emit_mov_load(out, CT_RAX, ct_mem_index(CT_RSP, CT_RDX, -8));
  ct_emit_mov_store(out, ct_mem_index(CT_R10, CT_RDX, disp), CT_RAX);
  ct_emit_add_imm(out, CT_RDX, -8);
  ct_emit_jcc_label(out, CT_JNE, &next);
  ct_code_label_bind(out, &none);
}

static void
emit_cold(struct ct_code *out, const struct ct_trampoline_spec *spec, size_t head_field)
{
  ct_emit_lea(out, CT_R11, ct_mem_rip(spec->desc));
  ct_emit_jmp_load(out, ct_mem_rip(spec->head + head_field));
}

/* The agent reads what is wanted into the record at r10. */
static void
emit_texts(struct ct_code *out, const struct ct_trampoline_spec *spec, uint32_t wanted)
{
  struct ct_code_label back = {0};
  ct_emit_mov32_imm(out, CT_RDX, wanted);
  ct_emit_lea_label(out, CT_RAX, &back);
  emit_cold(out, spec, offsetof(struct ct_region_head, detail_texts));
  ct_code_label_bind(out, &back);
}

/* What a function is entered with, at r10. All registers but rax, rdx, r10, r11 have it, and these are saved. */
static void
emit_detail_enter(struct ct_code *out, const struct ct_trampoline_spec *spec, uint32_t kind, struct detail *detail)
{
  static const enum ct_reg kept[8] = {CT_RDI, CT_RSI, CT_RDX, CT_RCX, CT_R8, CT_R9, CT_RAX, CT_R10};
  int32_t at = offsetof(struct ct_detail_enter, registers);
  uint32_t texts_bytes = spec->texts != 0 ? (uint32_t)sizeof(struct ct_detail_texts) : 0;
  uint32_t word = spec->fn << CT_WORD_FN_SHIFT | kind | (spec->texts != 0 ? CT_DETAIL_WORD_TEXTS : 0);
  emit_detail_head(out, ct_detail_enter_bytes(spec->detail) + texts_bytes, word, detail);
  ct_emit_mov_load(out, CT_RAX, ct_mem(CT_RSP, 0));
  ct_emit_mov_store(out, ct_mem(CT_R10, offsetof(struct ct_detail_enter, return_address)), CT_RAX);
  for (unsigned i = 0; i < 8; i++, at += 8) {
    enum ct_reg from = kept[i];
    if (from == CT_RDX || from == CT_RAX || from == CT_R10) {
      ct_emit_mov_load(out, CT_RAX, ct_mem(CT_RSP, from == CT_RAX ? -8 : from == CT_RDX ? -16 : -32));
      from = CT_RAX;
    }
    ct_emit_mov_store(out, ct_mem(CT_R10, at), from);
  }
  for (unsigned i = 0; spec->detail.vectors != 0 && i < CT_DETAIL_VECTORS; i++, at += 8) {
    ct_emit_movq_store(out, ct_mem(CT_R10, at), i);
  }
  if (spec->detail.stack != 0) {
    emit_stack_bytes(out, spec->detail.stack, at);
  }
  uint32_t wanted = spec->texts | (spec->outs != 0 ? CT_DETAIL_WANTED_PENDING : 0);
  if (wanted != 0) {
    emit_texts(out, spec, ct_detail_enter_bytes(spec->detail) << CT_DETAIL_WANTED_OFFSET_SHIFT | wanted);
  }
  emit_detail_link(out, detail);
}

/* errno, where eax is -1. */
static void
emit_errno(struct ct_code *out, uint64_t slot)
{
  struct ct_code_label none = {0};
  ct_emit_cmp32_imm(out, CT_RAX, -1);
  ct_emit_jcc_label(out, CT_JNE, &none);
  ct_emit_mov_load(out, CT_RAX, ct_mem_rip(slot));
  ct_emit_mov32_load(out, CT_RAX, ct_mem_fs(CT_RAX));
  ct_emit_mov_store(out, ct_mem(CT_R10, offsetof(struct ct_detail_return, error)), CT_RAX);
  ct_emit_or32_store_imm(out, ct_mem(CT_R10, offsetof(struct ct_detail_return, is_error)), 1);
  ct_code_label_bind(out, &none);
}

/* What it returns. rax and rdx are saved. */
static void
emit_detail_return(struct ct_code *out, const struct ct_trampoline_spec *spec, struct detail *detail)
{
  uint32_t texts_bytes = spec->outs != 0 ? (uint32_t)sizeof(struct ct_detail_texts) : 0;
  emit_detail_head(out, sizeof(struct ct_detail_return) + texts_bytes,
                   spec->fn << CT_WORD_FN_SHIFT | CT_WORD_RETURN | (spec->outs != 0 ? CT_DETAIL_WORD_TEXTS : 0),
                   detail);
  emit_restore(out, CT_RAX);
  ct_emit_mov_store(out, ct_mem(CT_R10, offsetof(struct ct_detail_return, rax)), CT_RAX);
  emit_restore(out, CT_RDX);
  ct_emit_mov_store(out, ct_mem(CT_R10, offsetof(struct ct_detail_return, rdx)), CT_RDX);
  ct_emit_movq_store(out, ct_mem(CT_R10, offsetof(struct ct_detail_return, xmm0)), 0);
  ct_emit_movq_store(out, ct_mem(CT_R10, offsetof(struct ct_detail_return, xmm1)), 1);
  ct_emit_and_store_imm(out, ct_mem(CT_R10, offsetof(struct ct_detail_return, error)), 0);
  if (spec->errno_slot != 0) {
    emit_errno(out, spec->errno_slot);
  }
  if (spec->outs != 0) {
    emit_texts(out, spec, spec->outs);
  }
  emit_detail_link(out, detail);
}

/* r10 = address of the return address's byte in the table */
static void
emit_text_lookup(struct ct_code *out)
{
  ct_emit_mov_load(out, CT_R10, ct_mem(CT_RSP, 0));
  ct_emit_shr(out, CT_R10, CT_TABLE_SHIFT);
  ct_emit_add_load(out, CT_R10, ct_mem_gs(CT_GS_TABLE));
}

/* The arguments, which are recorded out of the way; as long where there are none. */
static void
emit_to_values(struct ct_code *out, const struct ct_trampoline_spec *spec, struct cold *cold)
{
  enum { WAY_BYTES = 12 };
  struct ct_code_label back = {0};
  if (ct_trampoline_enter_values(spec->form) == 0) {
    ct_emit_jmp_over(out, WAY_BYTES - 2);
    for (int i = 2; i < WAY_BYTES; i++) {
      ct_emit_int3(out);
    }
    return;
  }
  ct_emit_lea_label(out, CT_R10, &back);
  ct_emit_jmp_label(out, &cold->values);
  ct_code_label_bind(out, &back);
}

/* The event of an enter, and what belongs to it. */
static void
emit_enter_event(const struct ct_trampoline_spec *spec, struct ct_code *out, struct cold *cold)
{
  if (spec->values != CT_HOOK_VALUES_NONE) {
    emit_room_check(out, 1 + (spec->values == CT_HOOK_VALUES_FEW ? ct_trampoline_enter_values(spec->form) : 1),
                    &cold->slow_enter);
  }
  if (spec->values == CT_HOOK_VALUES_DETAIL) {
    emit_detail_enter(out, spec, CT_WORD_ENTER, &cold->enter);
  }
  emit_reserve(out, &cold->slow_enter);
  emit_event(out, spec->fn << CT_WORD_FN_SHIFT | CT_WORD_ENTER);
  if (spec->values == CT_HOOK_VALUES_FEW) {
    emit_to_values(out, spec, cold);
  }
}

static void
emit_return_event(const struct ct_trampoline_spec *spec, struct ct_code *out, struct cold *cold)
{
  if (spec->values == CT_HOOK_VALUES_DETAIL) {
    emit_save(out, CT_R10);
  }
  emit_stack_check(out, &cold->slow_return);
  if (spec->values != CT_HOOK_VALUES_NONE) {
    emit_room_check(out, 1 + (spec->values == CT_HOOK_VALUES_FEW ? ct_trampoline_return_values(spec->form) : 1),
                    &cold->slow_return);
  }
  if (spec->values == CT_HOOK_VALUES_DETAIL) {
    emit_clock(out);
    emit_keep_clock(out);
    emit_detail_return(out, spec, &cold->leave);
    emit_restore(out, CT_R10); /* the slow path saves it */
    emit_kept_clock(out);
    emit_take_entry(out, &cold->slow_return);
  } else {
    if (spec->values == CT_HOOK_VALUES_FEW) {
      ct_trampoline_emit_return_values(spec, out);
    }
    emit_reserve(out, &cold->slow_return);
  }
  emit_event(out, spec->fn << CT_WORD_FN_SHIFT | CT_WORD_RETURN);
}

static void
emit_full(const struct ct_trampoline_spec *spec, struct ct_code *out, struct ct_hook_desc *desc, struct cold *cold,
          struct ct_trampoline_layout *layout)
{
  size_t start = out->length;
  struct ct_code_label relocated = {0};
  emit_save(out, CT_RAX);
  emit_save(out, CT_RDX);
  emit_save(out, CT_R11);
  emit_save(out, CT_R10);
  emit_stack_check(out, &cold->slow_enter);
  emit_text_lookup(out);
  ct_emit_cmp8_store_imm(out, ct_mem(CT_R10, 0), CT_TEXT_MODULE);
  ct_emit_jcc_label(out, CT_JNE, &cold->other);
  emit_enter_event(spec, out, cold);
  emit_restore(out, CT_RAX);
  emit_restore(out, CT_RDX);
  emit_restore(out, CT_R10);
  ct_emit_movabs(out, CT_R11, (uint64_t)spec->store_delta);
  ct_emit_pop_store(out, ct_mem_index(CT_RSP, CT_R11, -8)); /* the address is computed with the new rsp */
  layout->popped = out->length - start;
  ct_emit_mov_load(out, CT_R11, ct_mem(CT_RSP, -32)); /* saved 8 bytes further up than rsp is now */
  ct_emit_call_label(out, &relocated);
  desc->ret_point = ct_code_pc(out);
  ct_emit_lea(out, CT_RSP, ct_mem(CT_RSP, -8));
  layout->adjusted = out->length - start;
  desc->ret = ct_code_pc(out);
  emit_save(out, CT_RAX);
  emit_save(out, CT_RDX);
  emit_save(out, CT_R11);
  emit_return_event(spec, out, cold);
  desc->ret_done = ct_code_pc(out);
  emit_restore(out, CT_RAX);
  emit_restore(out, CT_RDX);
  ct_emit_movabs(out, CT_R11, (uint64_t)spec->store_delta);
  ct_emit_mov_load(out, CT_R11, ct_mem_index(CT_RSP, CT_R11, 0));
  ct_emit_mov_store(out, ct_mem(CT_RSP, 0), CT_R11);
  layout->restored = out->length - start;
  emit_restore(out, CT_R11);
  ct_emit_ret(out);
  desc->return_end = (uint16_t)(ct_code_pc(out) - desc->enter);
  if (cold->gate.at != 0) {
    ct_trampoline_emit_counting(spec, out, &cold->gate);
  }
  ct_code_label_bind(out, &relocated);
}

static void
emit_enter_only(const struct ct_trampoline_spec *spec, struct ct_code *out, struct cold *cold)
{
  emit_save(out, CT_RAX);
  emit_save(out, CT_RDX);
  emit_save(out, CT_R11);
  emit_save(out, CT_R10);
  emit_stack_check(out, &cold->slow_enter);
  emit_text_lookup(out);
  ct_emit_cmp8_store_imm(out, ct_mem(CT_R10, 0), CT_TEXT_TRAMPOLINE);
  ct_emit_jcc_label(out, CT_JE, &cold->other);
  emit_reserve(out, &cold->slow_enter);
  emit_event(out, (spec->fn | CT_FN_POINT_BIT) << CT_WORD_FN_SHIFT);
  emit_restore(out, CT_RAX);
  emit_restore(out, CT_RDX);
  emit_restore(out, CT_R11);
  emit_restore(out, CT_R10);
}

/* What a call that sampling passes over runs through, down to the displaced instructions: one or two cache lines. */
static void
emit_sampled(struct ct_code *out, struct cold *cold)
{
  ct_emit_cmp_store_imm(out, ct_mem_gs(CT_GS_COUNTDOWN), 1); /* 1, and SAMPLE 0 */
  ct_emit_jcc_label(out, CT_JE, &cold->every);
  ct_emit_dec32_store(out, ct_mem_gs(CT_GS_COUNTDOWN)); /* one instruction, as the xadd */
  ct_emit_jcc_label(out, CT_JLE, &cold->other);
}

/* The same with all that the agent's stubs expect to be saved. */
static void
emit_stub(struct ct_code *out, const struct ct_trampoline_spec *spec, size_t head_field)
{
  emit_save(out, CT_RAX);
  emit_save(out, CT_RDX);
  emit_save(out, CT_R11);
  emit_save(out, CT_R10);
  emit_cold(out, spec, head_field);
}

/* After the displaced instructions: the event without sampling, and the stubs. */
static void
emit_sampled_rest(const struct ct_trampoline_spec *spec, struct ct_code *out, struct cold *cold,
                  const struct ct_hook_desc *desc)
{
  ct_code_label_bind(out, &cold->every);
  emit_save(out, CT_RAX);
  emit_save(out, CT_RDX);
  emit_save(out, CT_R11);
  emit_stack_check(out, &cold->slow_enter);
  emit_reserve(out, &cold->slow_enter);
  emit_event(out, (spec->fn | 1u << CT_FN_WEIGHT_SHIFT | CT_FN_POINT_BIT) << CT_WORD_FN_SHIFT);
  emit_restore(out, CT_RAX);
  emit_restore(out, CT_RDX);
  emit_restore(out, CT_R11);
  ct_emit_jmp(out, desc->relocated);
  ct_code_label_bind(out, &cold->slow_enter);
  emit_save(out, CT_R10); /* the slow path expects it there */
  emit_cold(out, spec, offsetof(struct ct_region_head, slow_enter));
  ct_code_label_bind(out, &cold->other);
  emit_save(out, CT_RAX);
  emit_save(out, CT_RDX);
  emit_save(out, CT_R11);
  emit_save(out, CT_R10);
  emit_cold(out, spec, offsetof(struct ct_region_head, sample_due));
}

static void
emit_passthrough(const struct ct_trampoline_spec *spec, struct ct_code *out, struct cold *cold)
{
  emit_save(out, CT_R11);
  emit_save(out, CT_R10);
  ct_emit_mov_load(out, CT_R10, ct_mem(CT_RSP, 0));
  ct_emit_shr(out, CT_R10, CT_TABLE_SHIFT);
  ct_emit_movabs(out, CT_R11, spec->table);
  ct_emit_cmp8_store_imm(out, ct_mem_index(CT_R10, CT_R11, 0), CT_TEXT_TRAMPOLINE);
  ct_emit_jcc_label(out, CT_JE, &cold->other);
  emit_restore(out, CT_R11);
  emit_restore(out, CT_R10);
}

/*
 * memcpy and the like: most copies are not of the part of the caller's stack that may have trampolines' addresses, or
 * are shorter than an address, and go on at once. After all code, in `copy`: the others, and all but short ones of a
 * thread that has copied such a part before.
 */
static void
emit_copy_check(struct ct_code *out, struct ct_code_label *copy)
{
  struct ct_code_label pass = {0};
  ct_emit_cmp_imm(out, CT_RDX, sizeof(uint64_t));
  ct_emit_jcc_label(out, CT_JB, &pass);
  ct_emit_cmp32_store_imm(out, ct_mem_gs(CT_GS_COPIES), 0);
  ct_emit_jcc_label(out, CT_JNE, copy);
  emit_save(out, CT_R11);
  ct_emit_mov(out, CT_R11, CT_RSI);
  ct_emit_sub_load(out, CT_R11, ct_mem_gs(CT_GS_HOOKED_LO));
  ct_emit_cmp_load(out, CT_R11, ct_mem_gs(CT_GS_HOOKED_LEN));
  emit_restore(out, CT_R11);
  ct_emit_jcc_label(out, CT_JB, copy);
  ct_code_label_bind(out, &pass);
}

static void
emit_callout(const struct ct_trampoline_spec *spec, struct ct_code *out, struct cold *cold)
{
  static const size_t fields[CT_CALLOUT_KINDS] = {
#define X(name, entry) [CT_CALLOUT_##name] = offsetof(struct ct_region_head, callout_##entry),
      CT_CALLOUTS(X)
#undef X
  };
  if (spec->callout == CT_CALLOUT_COPY) {
    emit_copy_check(out, &cold->copy);
  } else if (spec->callout != CT_CALLOUT_NONE) {
    emit_stub(out, spec, fields[spec->callout]);
  }
}

static void
emit_detail_full(const struct ct_trampoline_spec *spec, struct ct_code *out, struct detail *detail)
{
  ct_code_label_bind(out, &detail->full);
  ct_emit_lea(out, CT_RAX, ct_mem_rip(detail->again));
  ct_emit_lea(out, CT_RDX, ct_mem_rip(detail->done));
  emit_cold(out, spec, offsetof(struct ct_region_head, detail_full));
}

/* The record of a call that has come by a tail jump: the agent sends it here, and writes its event. Where there is no
 * room. */
static void
emit_detail_cold(const struct ct_trampoline_spec *spec, struct ct_code *out, struct cold *cold,
                 struct ct_hook_desc *desc)
{
  desc->detail_tail = (uint16_t)(ct_code_pc(out) - desc->enter);
  emit_detail_enter(out, spec, CT_WORD_TAIL, &cold->tail);
  emit_cold(out, spec, offsetof(struct ct_region_head, detail_tail));
  emit_detail_full(spec, out, &cold->enter);
  emit_detail_full(spec, out, &cold->leave);
  emit_detail_full(spec, out, &cold->tail);
}

static void
emit_all_cold(const struct ct_trampoline_spec *spec, struct ct_code *out, struct cold *cold, struct ct_hook_desc *desc)
{
  if (spec->callout == CT_CALLOUT_COPY) {
    ct_code_label_bind(out, &cold->copy);
    emit_stub(out, spec, offsetof(struct ct_region_head, callout_copy));
  }
  if (spec->mode == CT_HOOK_SAMPLED) {
    emit_sampled_rest(spec, out, cold, desc);
    return;
  }
  if (spec->mode == CT_HOOK_PASSTHROUGH) {
    ct_code_label_bind(out, &cold->other);
    emit_save(out, CT_RAX);
    emit_save(out, CT_RDX);
    emit_cold(out, spec, offsetof(struct ct_region_head, restore_passthrough));
    return;
  }
  ct_code_label_bind(out, &cold->slow_enter);
  emit_cold(out, spec, offsetof(struct ct_region_head, slow_enter));
  if (ct_code_label_is_used(&cold->other)) {
    ct_code_label_bind(out, &cold->other);
    emit_cold(out, spec,
              spec->mode == CT_HOOK_FULL ? offsetof(struct ct_region_head, not_module)
                                         : offsetof(struct ct_region_head, restore_ra_slot));
  }
  if (spec->mode == CT_HOOK_FULL) {
    ct_code_label_bind(out, &cold->slow_return);
    emit_cold(out, spec, offsetof(struct ct_region_head, slow_return));
  }
  if (spec->mode == CT_HOOK_FULL && spec->values == CT_HOOK_VALUES_DETAIL) {
    emit_detail_cold(spec, out, cold, desc);
  }
  if (ct_code_label_is_used(&cold->values)) {
    desc->detail_tail = (uint16_t)(ct_code_pc(out) - desc->enter);
    ct_code_label_bind(out, &cold->values);
    ct_trampoline_emit_enter_values(spec, out);
  }
}

static void
emit_stackless(const struct ct_trampoline_spec *spec, struct ct_code *out, struct cold *cold)
{
  emit_save(out, CT_RAX);
  emit_save(out, CT_RDX);
  emit_save(out, CT_R11);
  emit_save(out, CT_R10); /* the slow path expects it there */
  emit_reserve(out, &cold->slow_enter);
  emit_event(out, (spec->fn | CT_FN_POINT_BIT) << CT_WORD_FN_SHIFT);
  emit_restore(out, CT_RAX);
  emit_restore(out, CT_RDX);
  emit_restore(out, CT_R11);
}

/* The displaced instructions, and what comes before them. */
static enum ct_window_refusal
emit_relocated(const struct ct_trampoline_spec *spec, struct ct_code *out, struct ct_hook_desc *desc, struct cold *cold)
{
  struct ct_relocation_map map = {0};
  desc->relocated = ct_code_pc(out);
  emit_callout(spec, out, cold);
  desc->after_callout = ct_code_pc(out);
  enum ct_window_refusal refusal = ct_window_relocate(spec->code, spec->function, spec->window, out, &map);
  desc->relocated_end = ct_code_pc(out);
  desc->map_count = map.count;
  memcpy(desc->map_new, map.to, sizeof(desc->map_new));
  memcpy(desc->map_old, map.from, sizeof(desc->map_old));
  return refusal;
}

/* From the trampoline's first instruction to the jump into the body. */
static enum ct_window_refusal
emit_ways(const struct ct_trampoline_spec *spec, struct ct_code *out, struct ct_hook_desc *desc, struct cold *cold)
{
  struct ct_trampoline_layout layout;
  if (spec->mode == CT_HOOK_STACKLESS && spec->event_last) {
    struct ct_window window = *spec->window;
    window.terminated = 1; /* no jump yet */
    enum ct_window_refusal refusal = ct_window_relocate(spec->code, spec->function, &window, out, NULL);
    emit_stackless(spec, out, cold);
    desc->relocated = ct_code_pc(out);
    emit_callout(spec, out, cold);
    desc->after_callout = ct_code_pc(out);
    ct_emit_jmp(out, spec->function + window.length);
    desc->relocated_end = ct_code_pc(out);
    return refusal;
  }
  switch (spec->mode) {
  case CT_HOOK_FULL:
    emit_full(spec, out, desc, cold, &layout);
    break;
  case CT_HOOK_STACKLESS:
    emit_stackless(spec, out, cold);
    break;
  case CT_HOOK_PASSTHROUGH:
    emit_passthrough(spec, out, cold);
    break;
  case CT_HOOK_SAMPLED:
    emit_sampled(out, cold);
    break;
  default:
    emit_enter_only(spec, out, cold);
    break;
  }
  return emit_relocated(spec, out, desc, cold);
}

enum ct_window_refusal
ct_trampoline_emit(const struct ct_trampoline_spec *spec, struct ct_code *out, struct ct_hook_desc *result)
{
  struct ct_code saved = *out;
  struct ct_hook_desc desc = {.fn = spec->fn,
                              .mode = spec->mode,
                              .callout = spec->callout,
                              .itrace = spec->itrace,
                              .self_branch = spec->self_branch,
                              .values = spec->values,
                              .outs = spec->outs};
  struct cold cold = {0};
  desc.function = spec->function;
  if (spec->has_gate && spec->mode == CT_HOOK_FULL) {
    ct_trampoline_emit_level(spec, out, &cold.gate);
  }
  desc.start = ct_code_pc(out);
  if (cold.gate.at != 0) {
    ct_trampoline_emit_gate(out, &cold.gate);
  }
  desc.enter = ct_code_pc(out);
  enum ct_window_refusal refusal = emit_ways(spec, out, &desc, &cold);
  emit_all_cold(spec, out, &cold, &desc);
  if (cold.gate.at != 0) {
    ct_trampoline_emit_gate_cold(spec, out, &cold.gate, desc.enter);
  }
  if (refusal == CT_WINDOW_OK && out->overflow) {
    refusal = CT_WINDOW_UNREACHABLE;
  }
  if (refusal != CT_WINDOW_OK) {
    *out = saved;
    return refusal;
  }
  *result = desc;
  return CT_WINDOW_OK;
}

bool
ct_trampoline_returns_at(const uint8_t *code)
{
  uint8_t expected[CT_RETURN_POINT_BYTES];
  struct ct_code call = {.bytes = expected, .capacity = sizeof(expected)};
  ct_emit_call(&call, 0);
  ct_emit_lea(&call, CT_RSP, ct_mem(CT_RSP, -8));
  return code[0] == expected[0] &&
         memcmp(code + CT_JUMP_BYTES, expected + CT_JUMP_BYTES, sizeof(expected) - CT_JUMP_BYTES) == 0;
}

void
ct_trampoline_layout(uint8_t values, struct ct_detail_form detail, struct ct_trampoline_layout *layout)
{
  uint8_t buffer[CT_TRAMPOLINE_BYTES_MAX];
  struct ct_code out = {.bytes = buffer, .capacity = sizeof(buffer), .address = 0x10000};
  struct ct_trampoline_spec spec = {
      .mode = CT_HOOK_FULL, .values = values, .detail = detail, .head = 0x10000, .desc = 0x10000};
  struct ct_hook_desc desc;
  struct cold cold = {0};
  emit_full(&spec, &out, &desc, &cold, layout);
}
