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
 *   relocated:  [callout] the displaced instructions, jump behind them
 *   cold:       three stubs: r11 = descriptor, jump through the region head
 *
 * With values (spec->values): the first check looks whether there is room for three events, and behind that of the
 * enter two more say what is in rdi and rsi; the return half has one, before its own, of what is in rax. Each takes its
 * place by itself. Should a signal handler take the last of them in between, the value is not recorded.
 *
 * Nothing but flags is changed on either way: at a function's entry and behind its return no compiled code
 * has live flags; functions that have are refused by the planner. The layout up to `relocated` is the same for
 * all functions, so that one unwind table serves them all (ct_trampoline_unwind).
 *
 * Enter-only (CT_HOOK_ENTER): checks 1 and 3, event, then straight on into the displaced
 * instructions. It also looks whether the slot holds a trampoline's address (restore_slot). CT_HOOK_LOOSE
 * has check 3 only, which fails too where a thread has no segment yet. With event_last the order is: the displaced
 * instructions, which branch away or have no effect yet; the event; on into the body.
 *
 * Light (CT_HOOK_LIGHT): enter only by choice, and sampled. First a compare tells whether every call is recorded. If
 * not, the call is counted down and, unless it is due, goes straight on into the displaced instructions, which
 * follow at once; of one that is due the agent writes the event (light_due). What records every call comes behind them:
 * checks 1 and 3, event, and back; the slot is not looked at, and may hold what it likes. A page that several threads
 * share is only read that far: its countdown is 1.
 *
 * Quiet (CT_HOOK_QUIET): an excluded function that needs a trampoline. It only looks whether the slot holds a
 * trampoline's address (restore_quiet), through the table's address itself: the thread's gs is not looked at, so there
 * is nothing to check first.
 */
#include "x86/trampoline.h"

struct layout {
  size_t popped;   /* behind pop: rsp = S+8, address in the store */
  size_t adjusted; /* behind lea at ret_point: rsp = S, address in the store */
  size_t restored; /* behind the store to the slot: rsp = S, address in the slot */
};

/* Displacements are made against cold stubs at fixed distances; patched when these are emitted. */
struct fixups {
  size_t slow_enter[3];
  size_t slow_return[3];
  size_t other; /* not_module or restore_slot; of a light hook: this call is due */
  size_t every; /* of a light hook: every call is recorded */
};

static size_t
emit_jcc_later(struct ct_code *out, uint8_t opcode)
{
  ct_emit_u8(out, 0x0f);
  ct_emit_u8(out, opcode);
  ct_emit_u32(out, 0);
  return out->length - 4;
}

static void
fix(struct ct_code *out, size_t at)
{
  if (!out->overflow) {
    int32_t distance = (int32_t)(out->length - (at + 4));
    memcpy(out->bytes + at, &distance, sizeof(distance));
  }
}

static void
emit_stack_check(struct ct_code *out, size_t *fixup)
{
  ct_emit_bytes(out, "\x49\x89\xe3", 3); /* mov %rsp, %r11 */
  ct_emit_gs64(out, 0x2b, CT_R11, CT_GS_STACK_LO);
  ct_emit_gs64(out, 0x3b, CT_R11, CT_GS_STACK_LEN);
  *fixup = emit_jcc_later(out, 0x83); /* jae */
}

/*
 * rdx:rax free. Reads the clock, then reserves; the event's address is in r11, clock in rax, tag in edx. Place and tag
 * come out of one instruction, and whether the place is one is seen from its address: a signal handler that comes in
 * between may fill the segment and begin another, what has been reserved stays valid.
 */
static void
emit_reserve(struct ct_code *out, size_t *fixup)
{
  ct_emit_bytes(out, "\x0f\x31", 2);                 /* rdtsc */
  ct_emit_bytes(out, "\x48\xc1\xe2\x20", 4);         /* shl $32, %rdx */
  ct_emit_bytes(out, "\x48\x09\xd0", 3);             /* or %rdx, %rax */
  ct_emit_bytes(out, "\x41\xbb\x10\x00\x00\x00", 6); /* mov $16, %r11d */
  ct_emit_bytes(out, "\x65\x4c\x0f\xc1\x1c\x25", 6); /* xadd %r11, %gs:CURSOR: one instruction, so that a handler */
  ct_emit_u32(out, CT_GS_CURSOR);                    /* that interrupts takes the next place */
  ct_emit_bytes(out, "\x41\xf7\xc3", 3);             /* test $CT_CURSOR_VALID, %r11d */
  ct_emit_u32(out, CT_CURSOR_VALID);
  *fixup = emit_jcc_later(out, 0x84);        /* jz */
  ct_emit_bytes(out, "\x44\x89\xda", 3);     /* mov %r11d, %edx */
  ct_emit_bytes(out, "\x83\xe2\x03", 3);     /* and $CT_WORD_TAG_MASK, %edx */
  ct_emit_bytes(out, "\x49\x83\xe3\xfc", 4); /* and $~CT_WORD_TAG_MASK, %r11 */
}

/* Stores the event: the word last, in one store. */
static void
emit_event(struct ct_code *out, uint32_t word)
{
  ct_emit_bytes(out, "\x49\x89\x03", 3); /* mov %rax, (%r11) */
  ct_emit_bytes(out, "\x89\xe0", 2);     /* mov %esp, %eax */
  ct_emit_bytes(out, "\x48\xc1\xe0\x20", 4);
  if (word < 0x80000000u) {
    ct_emit_bytes(out, "\x48\x8d\x84\x10", 4); /* lea word(%rax,%rdx), %rax */
    ct_emit_u32(out, word);
  } else {
    ct_emit_bytes(out, "\x8d\x92", 2); /* lea word(%rdx), %edx: zero-extends, unlike the form above */
    ct_emit_u32(out, word);
    ct_emit_bytes(out, "\x48\x09\xd0", 3); /* or %rdx, %rax */
  }
  ct_emit_bytes(out, "\x49\x89\x43\x08", 4); /* mov %rax, 8(%r11) */
}

/* Is there room for so many events? r11 is free. */
static void
emit_room_check(struct ct_code *out, uint8_t events, size_t *fixup)
{
  ct_emit_gs64(out, 0x8b, CT_R11, CT_GS_CURSOR);
  ct_emit_bytes(out, "\x49\x83\xc3", 3); /* add $(events - 1) * 16, %r11 */
  ct_emit_u8(out, (uint8_t)((events - 1) * CT_EVENT_BYTES));
  ct_emit_bytes(out, "\x41\xf7\xc3", 3); /* test $CT_CURSOR_VALID, %r11d */
  ct_emit_u32(out, CT_CURSOR_VALID);
  *fixup = emit_jcc_later(out, 0x84); /* jz */
}

/* An event with the value of rdi, rsi or rax (what it was before the hook) in place of the clock. rax, rdx, r11 are
 * free. */
static void
emit_value(struct ct_code *out, uint32_t word)
{
  static const char places[][5] = {"\x49\x89\x3b", "\x49\x89\x33"}; /* mov %rdi, (%r11); mov %rsi, (%r11) */
  ct_emit_bytes(out, "\x41\xbb\x10\x00\x00\x00", 6);                /* mov $16, %r11d */
  ct_emit_bytes(out, "\x65\x4c\x0f\xc1\x1c\x25", 6);                /* xadd %r11, %gs:CURSOR */
  ct_emit_u32(out, CT_GS_CURSOR);
  ct_emit_bytes(out, "\x41\xf7\xc3", 3); /* test $CT_CURSOR_VALID, %r11d */
  ct_emit_u32(out, CT_CURSOR_VALID);
  size_t none = emit_jcc_later(out, 0x84);   /* jz */
  ct_emit_bytes(out, "\x44\x89\xda", 3);     /* mov %r11d, %edx */
  ct_emit_bytes(out, "\x83\xe2\x03", 3);     /* and $CT_WORD_TAG_MASK, %edx */
  ct_emit_bytes(out, "\x49\x83\xe3\xfc", 4); /* and $~CT_WORD_TAG_MASK, %r11 */
  if (word == CT_WORD_RESULT) {
    ct_emit_load_sp(out, CT_RAX, -8);
    ct_emit_bytes(out, "\x49\x89\x03", 3); /* mov %rax, (%r11) */
  } else {
    ct_emit_bytes(out, places[word == CT_WORD_ARG_2], 3);
  }
  ct_emit_bytes(out, "\x89\xe0", 2); /* mov %esp, %eax */
  ct_emit_bytes(out, "\x48\xc1\xe0\x20", 4);
  ct_emit_bytes(out, "\x48\x8d\x84\x10", 4); /* lea word(%rax,%rdx), %rax */
  ct_emit_u32(out, word);
  ct_emit_bytes(out, "\x49\x89\x43\x08", 4); /* mov %rax, 8(%r11) */
  fix(out, none);
}

/* r10 = address of the return address's byte in the table */
static void
emit_text_lookup(struct ct_code *out)
{
  ct_emit_bytes(out, "\x4c\x8b\x14\x24", 4); /* mov (%rsp), %r10 */
  ct_emit_bytes(out, "\x49\xc1\xea\x10", 4); /* shr $16, %r10 */
  ct_emit_gs64(out, 0x03, CT_R10, CT_GS_TABLE);
}

static void
emit_cold(struct ct_code *out, const struct ct_trampoline_spec *spec, size_t head_field)
{
  ct_emit_lea_r11(out, spec->desc);
  ct_emit_jmp_mem(out, spec->head + head_field);
}

static void
emit_full(const struct ct_trampoline_spec *spec, struct ct_code *out, struct ct_hook_desc *desc, struct fixups *fixups,
          struct layout *layout)
{
  size_t start = out->length;
  ct_emit_store_sp(out, CT_RAX, -8);
  ct_emit_store_sp(out, CT_RDX, -16);
  ct_emit_store_sp(out, CT_R11, -24);
  ct_emit_store_sp(out, CT_R10, -32);
  emit_stack_check(out, &fixups->slow_enter[0]);
  emit_text_lookup(out);
  ct_emit_bytes(out, "\x41\x80\x3a\x01", 4); /* cmpb $CT_TEXT_MODULE, (%r10) */
  fixups->other = emit_jcc_later(out, 0x85);
  if (spec->values) {
    emit_room_check(out, 3, &fixups->slow_enter[2]);
  }
  emit_reserve(out, &fixups->slow_enter[1]);
  emit_event(out, spec->fn << CT_WORD_FN_SHIFT | CT_WORD_ENTER);
  if (spec->values) {
    emit_value(out, CT_WORD_ARG_1);
    emit_value(out, CT_WORD_ARG_2);
  }
  ct_emit_load_sp(out, CT_RAX, -8);
  ct_emit_load_sp(out, CT_RDX, -16);
  ct_emit_load_sp(out, CT_R10, -32);
  ct_emit_movabs_r11(out, (uint64_t)spec->store_delta);
  ct_emit_bytes(out, "\x42\x8f\x44\x1c\xf8", 5); /* pop -8(%rsp,%r11): the address is computed with the new rsp */
  layout->popped = out->length - start;
  ct_emit_load_sp(out, CT_R11, -32);
  ct_emit_u8(out, 0xe8); /* call relocated */
  size_t call = out->length;
  ct_emit_u32(out, 0);
  desc->ret_point = ct_code_pc(out);
  ct_emit_bytes(out, "\x48\x8d\x64\x24\xf8", 5); /* lea -8(%rsp), %rsp */
  layout->adjusted = out->length - start;
  desc->ret = ct_code_pc(out);
  ct_emit_store_sp(out, CT_RAX, -8);
  ct_emit_store_sp(out, CT_RDX, -16);
  ct_emit_store_sp(out, CT_R11, -24);
  emit_stack_check(out, &fixups->slow_return[0]);
  if (spec->values) {
    emit_room_check(out, 2, &fixups->slow_return[2]);
    emit_value(out, CT_WORD_RESULT);
  }
  emit_reserve(out, &fixups->slow_return[1]);
  emit_event(out, spec->fn << CT_WORD_FN_SHIFT | CT_WORD_RETURN);
  desc->ret_done = ct_code_pc(out);
  ct_emit_load_sp(out, CT_RAX, -8);
  ct_emit_load_sp(out, CT_RDX, -16);
  ct_emit_movabs_r11(out, (uint64_t)spec->store_delta);
  ct_emit_bytes(out, "\x4e\x8b\x1c\x1c", 4); /* mov (%rsp,%r11), %r11 */
  ct_emit_bytes(out, "\x4c\x89\x1c\x24", 4); /* mov %r11, (%rsp) */
  layout->restored = out->length - start;
  ct_emit_load_sp(out, CT_R11, -24);
  ct_emit_u8(out, 0xc3);
  fix(out, call);
}

static void
emit_enter_only(const struct ct_trampoline_spec *spec, struct ct_code *out, struct fixups *fixups)
{
  ct_emit_store_sp(out, CT_RAX, -8);
  ct_emit_store_sp(out, CT_RDX, -16);
  ct_emit_store_sp(out, CT_R11, -24);
  ct_emit_store_sp(out, CT_R10, -32);
  emit_stack_check(out, &fixups->slow_enter[0]);
  emit_text_lookup(out);
  ct_emit_bytes(out, "\x41\x80\x3a\x02", 4); /* cmpb $CT_TEXT_TRAMPOLINE, (%r10) */
  fixups->other = emit_jcc_later(out, 0x84);
  emit_reserve(out, &fixups->slow_enter[1]);
  emit_event(out, (spec->fn | CT_FN_POINT_BIT) << CT_WORD_FN_SHIFT);
  ct_emit_load_sp(out, CT_RAX, -8);
  ct_emit_load_sp(out, CT_RDX, -16);
  ct_emit_load_sp(out, CT_R11, -24);
  ct_emit_load_sp(out, CT_R10, -32);
}

/* What a call that sampling passes over runs through, down to the displaced instructions: one or two cache lines. */
static void
emit_light(struct ct_code *out, struct fixups *fixups)
{
  ct_emit_bytes(out, "\x65\x48\x83\x3c\x25", 5); /* cmpq $1, %gs:COUNTDOWN: 1, and SAMPLE 0 */
  ct_emit_u32(out, CT_GS_COUNTDOWN);
  ct_emit_u8(out, 1);
  fixups->every = emit_jcc_later(out, 0x84); /* je */
  ct_emit_bytes(out, "\x65\xff\x0c\x25", 4); /* decl %gs:COUNTDOWN: one instruction, as the xadd */
  ct_emit_u32(out, CT_GS_COUNTDOWN);
  fixups->other = emit_jcc_later(out, 0x8e); /* jle */
}

/* Behind the displaced instructions: the event without sampling, and the stubs. */
static void
emit_light_rest(const struct ct_trampoline_spec *spec, struct ct_code *out, struct fixups *fixups,
                const struct ct_hook_desc *desc)
{
  fix(out, fixups->every);
  ct_emit_store_sp(out, CT_RAX, -8);
  ct_emit_store_sp(out, CT_RDX, -16);
  ct_emit_store_sp(out, CT_R11, -24);
  emit_stack_check(out, &fixups->slow_enter[0]);
  emit_reserve(out, &fixups->slow_enter[1]);
  emit_event(out, (spec->fn | 1u << CT_FN_WEIGHT_SHIFT | CT_FN_POINT_BIT) << CT_WORD_FN_SHIFT);
  ct_emit_load_sp(out, CT_RAX, -8);
  ct_emit_load_sp(out, CT_RDX, -16);
  ct_emit_load_sp(out, CT_R11, -24);
  ct_emit_jmp(out, desc->relocated);
  fix(out, fixups->slow_enter[0]);
  fix(out, fixups->slow_enter[1]);
  ct_emit_store_sp(out, CT_R10, -32); /* the slow path expects it there */
  emit_cold(out, spec, offsetof(struct ct_region_head, slow_enter));
  fix(out, fixups->other);
  ct_emit_store_sp(out, CT_RAX, -8);
  ct_emit_store_sp(out, CT_RDX, -16);
  ct_emit_store_sp(out, CT_R11, -24);
  ct_emit_store_sp(out, CT_R10, -32);
  emit_cold(out, spec, offsetof(struct ct_region_head, light_due));
}

static void
emit_quiet(const struct ct_trampoline_spec *spec, struct ct_code *out, struct fixups *fixups)
{
  ct_emit_store_sp(out, CT_R11, -24);
  ct_emit_store_sp(out, CT_R10, -32);
  ct_emit_bytes(out, "\x4c\x8b\x14\x24", 4); /* mov (%rsp), %r10 */
  ct_emit_bytes(out, "\x49\xc1\xea\x10", 4); /* shr $16, %r10 */
  ct_emit_movabs_r11(out, spec->table);
  ct_emit_bytes(out, "\x43\x80\x3c\x1a\x02", 5); /* cmpb $CT_TEXT_TRAMPOLINE, (%r10,%r11) */
  fixups->other = emit_jcc_later(out, 0x84);
  ct_emit_load_sp(out, CT_R11, -24);
  ct_emit_load_sp(out, CT_R10, -32);
}

static void
emit_callout(const struct ct_trampoline_spec *spec, struct ct_code *out)
{
  size_t field;
  switch (spec->callout) {
  case CT_CALLOUT_PARK:
    field = offsetof(struct ct_region_head, callout_park);
    break;
  case CT_CALLOUT_EXEC:
  case CT_CALLOUT_RENDEZVOUS:
    field = offsetof(struct ct_region_head, callout_request);
    break;
  case CT_CALLOUT_FIND_FDE:
    field = offsetof(struct ct_region_head, callout_find_fde);
    break;
  case CT_CALLOUT_LONGJMP:
    field = offsetof(struct ct_region_head, callout_longjmp);
    break;
  case CT_CALLOUT_MODULES:
    field = offsetof(struct ct_region_head, callout_modules);
    break;
  case CT_CALLOUT_FIND_OBJECT:
    field = offsetof(struct ct_region_head, callout_find_object);
    break;
  case CT_CALLOUT_MLOCKALL:
    field = offsetof(struct ct_region_head, callout_mlockall);
    break;
  case CT_CALLOUT_SYSCALL:
    field = offsetof(struct ct_region_head, callout_syscall);
    break;
  case CT_CALLOUT_GO_SYSCALL:
    field = offsetof(struct ct_region_head, callout_go_syscall);
    break;
  case CT_CALLOUT_SIGACTION:
    field = offsetof(struct ct_region_head, callout_sigaction);
    break;
  case CT_CALLOUT_WRITE:
    field = offsetof(struct ct_region_head, callout_write);
    break;
  case CT_CALLOUT_WRITEV:
    field = offsetof(struct ct_region_head, callout_writev);
    break;
  case CT_CALLOUT_SECCOMP:
    field = offsetof(struct ct_region_head, callout_seccomp);
    break;
  default:
    return;
  }
  ct_emit_store_sp(out, CT_RAX, -8);
  ct_emit_store_sp(out, CT_RDX, -16);
  ct_emit_store_sp(out, CT_R11, -24);
  ct_emit_store_sp(out, CT_R10, -32);
  emit_cold(out, spec, field);
}

static void
emit_all_cold(const struct ct_trampoline_spec *spec, struct ct_code *out, struct fixups *fixups,
              const struct ct_hook_desc *desc)
{
  if (spec->mode == CT_HOOK_LIGHT) {
    emit_light_rest(spec, out, fixups, desc);
    return;
  }
  if (spec->mode == CT_HOOK_QUIET) {
    fix(out, fixups->other);
    ct_emit_store_sp(out, CT_RAX, -8);
    ct_emit_store_sp(out, CT_RDX, -16);
    emit_cold(out, spec, offsetof(struct ct_region_head, restore_quiet));
    return;
  }
  if (fixups->slow_enter[0] != 0) {
    fix(out, fixups->slow_enter[0]);
  }
  fix(out, fixups->slow_enter[1]);
  if (fixups->slow_enter[2] != 0) {
    fix(out, fixups->slow_enter[2]);
  }
  emit_cold(out, spec, offsetof(struct ct_region_head, slow_enter));
  if (fixups->other != 0) {
    fix(out, fixups->other);
    emit_cold(out, spec,
              spec->mode == CT_HOOK_FULL ? offsetof(struct ct_region_head, not_module)
                                         : offsetof(struct ct_region_head, restore_slot));
  }
  if (spec->mode == CT_HOOK_FULL) {
    fix(out, fixups->slow_return[0]);
    fix(out, fixups->slow_return[1]);
    if (fixups->slow_return[2] != 0) {
      fix(out, fixups->slow_return[2]);
    }
    emit_cold(out, spec, offsetof(struct ct_region_head, slow_return));
  }
}

static void
emit_loose(const struct ct_trampoline_spec *spec, struct ct_code *out, struct fixups *fixups)
{
  ct_emit_store_sp(out, CT_RAX, -8);
  ct_emit_store_sp(out, CT_RDX, -16);
  ct_emit_store_sp(out, CT_R11, -24);
  ct_emit_store_sp(out, CT_R10, -32); /* the slow path expects it there */
  emit_reserve(out, &fixups->slow_enter[1]);
  emit_event(out, (spec->fn | CT_FN_POINT_BIT) << CT_WORD_FN_SHIFT);
  ct_emit_load_sp(out, CT_RAX, -8);
  ct_emit_load_sp(out, CT_RDX, -16);
  ct_emit_load_sp(out, CT_R11, -24);
}

/* From the trampoline's first instruction to the jump into the body. */
static enum ct_window_refusal
emit_ways(const struct ct_trampoline_spec *spec, struct ct_code *out, struct ct_hook_desc *desc, struct fixups *fixups)
{
  enum ct_window_refusal refusal;
  struct ct_relocation_map map = {0};
  struct layout layout;
  if (spec->mode == CT_HOOK_LOOSE && spec->event_last) {
    struct ct_window window = *spec->window;
    window.terminated = 1; /* no jump yet */
    refusal = ct_window_relocate(spec->code, spec->function, &window, out, NULL);
    emit_loose(spec, out, fixups);
    desc->relocated = ct_code_pc(out);
    emit_callout(spec, out);
    desc->after_callout = ct_code_pc(out);
    ct_emit_jmp(out, spec->function + window.length);
    return refusal;
  }
  switch (spec->mode) {
  case CT_HOOK_FULL:
    emit_full(spec, out, desc, fixups, &layout);
    break;
  case CT_HOOK_LOOSE:
    emit_loose(spec, out, fixups);
    break;
  case CT_HOOK_QUIET:
    emit_quiet(spec, out, fixups);
    break;
  case CT_HOOK_LIGHT:
    emit_light(out, fixups);
    break;
  default:
    emit_enter_only(spec, out, fixups);
    break;
  }
  desc->relocated = ct_code_pc(out);
  emit_callout(spec, out);
  desc->after_callout = ct_code_pc(out);
  refusal = ct_window_relocate(spec->code, spec->function, spec->window, out, &map);
  desc->map_count = map.count;
  memcpy(desc->map_new, map.to, sizeof(desc->map_new));
  memcpy(desc->map_old, map.from, sizeof(desc->map_old));
  return refusal;
}

enum ct_window_refusal
ct_trampoline_emit(const struct ct_trampoline_spec *spec, struct ct_code *out, struct ct_hook_desc *result)
{
  struct ct_code saved = *out;
  struct ct_hook_desc desc = {.fn = spec->fn,
                              .mode = spec->mode,
                              .callout = spec->callout,
                              .self_branch = spec->self_branch,
                              .values = spec->values};
  struct fixups fixups = {0};
  desc.enter = ct_code_pc(out);
  desc.function = spec->function;
  enum ct_window_refusal refusal = emit_ways(spec, out, &desc, &fixups);
  desc.relocated_end = ct_code_pc(out);
  emit_all_cold(spec, out, &fixups, &desc);
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

int
ct_jump_bytes(uint64_t function, uint64_t trampoline, uint8_t bytes[CT_JUMP_BYTES])
{
  int64_t distance = (int64_t)(trampoline - (function + CT_JUMP_BYTES));
  if (distance != (int32_t)distance) {
    return -1;
  }
  int32_t narrow = (int32_t)distance;
  bytes[0] = 0xe9;
  memcpy(bytes + 1, &narrow, sizeof(narrow));
  return 0;
}

/* DWARF call frame instructions and expressions used below; DWARF 5, section 6.4.2 and 7.7. */
enum {
  DW_CFA_advance_loc2 = 0x03,
  DW_CFA_def_cfa = 0x0c,
  DW_CFA_expression = 0x10,
  DW_CFA_val_expression = 0x16,
  DW_CFA_offset = 0x80,
  DW_CFA_restore = 0xc0,
  DW_OP_breg7 = 0x77,
  REG_RSP = 7,
  REG_RA = 16,
};

static size_t
sleb128(int64_t value, uint8_t *out)
{
  size_t count = 0;
  for (;;) {
    uint8_t byte = value & 0x7f;
    value >>= 7;
    bool last = (value == 0 && (byte & 0x40) == 0) || (value == -1 && (byte & 0x40) != 0);
    out[count++] = last ? byte : byte | 0x80;
    if (last) {
      return count;
    }
  }
}

static void
emit_advance(struct ct_code *out, size_t delta)
{
  ct_emit_u8(out, DW_CFA_advance_loc2);
  ct_emit_u8(out, (uint8_t)delta);
  ct_emit_u8(out, (uint8_t)(delta >> 8));
}

static void
emit_ra_at_rsp(struct ct_code *out, int64_t offset)
{
  uint8_t expression[12];
  expression[0] = DW_OP_breg7;
  size_t length = 1 + sleb128(offset, expression + 1);
  ct_emit_u8(out, DW_CFA_expression);
  ct_emit_u8(out, REG_RA);
  ct_emit_u8(out, (uint8_t)length);
  ct_emit_bytes(out, expression, length);
}

static void
finish_entry(struct ct_code *out, size_t start)
{
  while (!out->overflow && (out->length - start) % 8 != 0) {
    ct_emit_u8(out, 0); /* DW_CFA_nop */
  }
  if (!out->overflow) {
    uint32_t length = (uint32_t)(out->length - start - 4);
    memcpy(out->bytes + start, &length, sizeof(length));
  }
}

static size_t
begin_fde(struct ct_code *out, size_t cie)
{
  size_t start = out->length;
  ct_emit_u32(out, 0);
  ct_emit_u32(out, (uint32_t)(start + 4 - cie));
  ct_emit_u64(out, 0);    /* start: the unwinder goes by bases->func */
  ct_emit_u64(out, 4096); /* length */
  ct_emit_u8(out, 0);
  return start;
}

/* The offsets within the fixed part of a call-through trampoline, from emitting one. */
static void
full_layout(bool values, struct layout *layout)
{
  uint8_t buffer[CT_TRAMPOLINE_BYTES_MAX];
  struct ct_code out = {.bytes = buffer, .capacity = sizeof(buffer), .address = 0x10000};
  struct ct_trampoline_spec spec = {.mode = CT_HOOK_FULL, .values = values, .head = 0x10000, .desc = 0x10000};
  struct ct_hook_desc desc;
  struct fixups fixups = {0};
  emit_full(&spec, &out, &desc, &fixups, layout);
}

/* The FDE of call-through trampolines with these offsets. */
static void
emit_full_fde(struct ct_code *out, size_t cie, const struct layout *layout, int64_t store_delta)
{
  size_t start = begin_fde(out, cie);
  emit_advance(out, layout->popped);
  /* CFA = rsp + 1: odd, so that it is no other frame's; the caller's rsp is ours. */
  ct_emit_bytes(out, (uint8_t[]){DW_CFA_def_cfa, REG_RSP, 1, DW_CFA_val_expression, REG_RSP, 2, DW_OP_breg7, 0}, 8);
  emit_ra_at_rsp(out, store_delta - 8);
  emit_advance(out, layout->adjusted - layout->popped);
  ct_emit_bytes(out, (uint8_t[]){DW_CFA_def_cfa, REG_RSP, 8, DW_CFA_restore | REG_RSP}, 4);
  emit_ra_at_rsp(out, store_delta);
  emit_advance(out, layout->restored - layout->adjusted);
  ct_emit_bytes(out, (uint8_t[]){DW_CFA_offset | REG_RA, 1}, 2);
  finish_entry(out, start);
}

size_t
ct_trampoline_unwind(int64_t store_delta, uint8_t *buffer, size_t size, uint64_t address,
                     struct ct_trampoline_rows *rows)
{
  struct ct_code out = {.bytes = buffer, .capacity = size, .address = address};
  struct layout plain, values;
  full_layout(false, &plain);
  full_layout(true, &values);
  size_t cie = out.length;
  ct_emit_u32(&out, 0);
  ct_emit_u32(&out, 0);
  ct_emit_bytes(&out, "\x01zR\0\x01\x78\x10\x01\x00",
                9); /* version 1, code align 1, data align -8, RA column 16, absptr */
  ct_emit_bytes(&out, (uint8_t[]){DW_CFA_def_cfa, REG_RSP, 8, DW_CFA_offset | REG_RA, 1}, 5);
  finish_entry(&out, cie);
  size_t full = out.length;
  emit_full_fde(&out, cie, &plain, store_delta);
  size_t with_values = out.length;
  emit_full_fde(&out, cie, &values, store_delta);
  size_t enter = begin_fde(&out, cie);
  finish_entry(&out, enter);
  ct_emit_u32(&out, 0);
  if (out.overflow) {
    return 0;
  }
  *rows =
      (struct ct_trampoline_rows){.full = address + full, .values = address + with_values, .enter = address + enter};
  return out.length;
}
