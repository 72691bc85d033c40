/* SPDX-License-Identifier: MIT */
/*
 * Relocated instructions are run, and must do there what they did at their own address: every general register,
 * the flags, a vector register, the stack, the data and the way out are compared for several inputs. What a run
 * cannot show (refusals, the ends of windows, padding) is compared with what is expected.
 *
 * The arena, one mapping, everything in it within reach of everything else:
 *
 *   CODE    the bytes under test, filled with exits: after the window and at the branch's target
 *   MOVED   where they are relocated to
 *   DATA    what rip-relative operands name
 *   STACK   the stack they run on
 *
 * An exit is `movl $id, cell(%rip); jmp *out(%rip)`: neither flags nor a register changes on the way out.
 */
#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "x86/relocate.h"

enum { PAGE = 4096, CODE = 0, MOVED = 16 * PAGE, DATA = 32 * PAGE, STACK = 48 * PAGE, ARENA = 64 * PAGE };
enum { STACK_TOP = STACK + 2 * PAGE, ENTRY = 256, TARGET = ENTRY + 0x60, FAR_TARGET = ENTRY + 3 * PAGE };
enum { EXIT_BEHIND = 1, EXIT_TARGET = 2, EXIT_FAR = 3 };

/* What goes into a run and comes out of it. The harness below knows the offsets. */
struct machine {
  uint64_t reg[16]; /* rax rcx rdx rbx rsp rbp rsi rdi r8..r15 */
  uint64_t flags;
  uint64_t code;
  uint8_t xmm3[16];
};
static_assert(offsetof(struct machine, flags) == 128 && offsetof(struct machine, xmm3) == 144, "harness");

void relocate_harness(struct machine *machine);
extern const char relocate_harness_out[]; /* where exits jump to */

__asm__(".text\n"
        ".globl relocate_harness\n"
        ".type relocate_harness, @function\n"
        "relocate_harness:\n"
        "  push %rbx\n  push %rbp\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rdi, 1f(%rip)\n"
        "  mov %rsp, 2f(%rip)\n"
        "  mov 136(%rdi), %rax\n"
        "  mov %rax, 3f(%rip)\n"
        "  movdqu 144(%rdi), %xmm3\n"
        "  pushq 128(%rdi)\n"
        "  popfq\n"
        "  mov 0(%rdi), %rax\n  mov 8(%rdi), %rcx\n  mov 16(%rdi), %rdx\n  mov 24(%rdi), %rbx\n"
        "  mov 32(%rdi), %rsp\n  mov 40(%rdi), %rbp\n  mov 48(%rdi), %rsi\n"
        "  mov 64(%rdi), %r8\n  mov 72(%rdi), %r9\n  mov 80(%rdi), %r10\n  mov 88(%rdi), %r11\n"
        "  mov 96(%rdi), %r12\n  mov 104(%rdi), %r13\n  mov 112(%rdi), %r14\n  mov 120(%rdi), %r15\n"
        "  mov 56(%rdi), %rdi\n"
        "  jmp *3f(%rip)\n"
        ".globl relocate_harness_out\n"
        "relocate_harness_out:\n"
        "  mov %rdi, 4f(%rip)\n"
        "  mov 1f(%rip), %rdi\n"
        "  mov %rax, 0(%rdi)\n  mov %rcx, 8(%rdi)\n  mov %rdx, 16(%rdi)\n  mov %rbx, 24(%rdi)\n"
        "  mov %rsp, 32(%rdi)\n  mov %rbp, 40(%rdi)\n  mov %rsi, 48(%rdi)\n"
        "  mov %r8, 64(%rdi)\n  mov %r9, 72(%rdi)\n  mov %r10, 80(%rdi)\n  mov %r11, 88(%rdi)\n"
        "  mov %r12, 96(%rdi)\n  mov %r13, 104(%rdi)\n  mov %r14, 112(%rdi)\n  mov %r15, 120(%rdi)\n"
        "  mov 4f(%rip), %rax\n"
        "  mov %rax, 56(%rdi)\n"
        "  mov 2f(%rip), %rsp\n"
        "  pushfq\n"
        "  popq 128(%rdi)\n"
        "  movdqu %xmm3, 144(%rdi)\n"
        "  cld\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbp\n  pop %rbx\n"
        "  ret\n"
        ".size relocate_harness, .-relocate_harness\n"
        ".bss\n"
        ".balign 8\n"
        "1: .quad 0\n"
        "2: .quad 0\n"
        "3: .quad 0\n"
        "4: .quad 0\n"
        ".text\n");

static uint8_t *arena;

static void
emit_exit(uint8_t *at, uint32_t id)
{
  struct ct_code out = {.bytes = at, .capacity = 64, .address = (uint64_t)at};
  /* Through the arena's last page: the program itself may lie further away than 2 GiB. */
  uint64_t cells = (uint64_t)(arena + ARENA - PAGE);
  ct_emit_bytes(&out, "\xc7\x05", 2); /* movl $id, cell(%rip): the displacement counts from after the immediate */
  ct_emit_u32(&out, (uint32_t)(cells + 8 - ((uint64_t)at + 10)));
  ct_emit_u32(&out, id);
  ct_emit_jmp_load(&out, ct_mem_rip(cells));
}

/* One run: the machine as it came out, the stack, the data, the exit. */
struct outcome {
  struct machine machine;
  uint8_t stack[4 * PAGE];
  uint8_t data[PAGE];
  uint32_t exit;
};

static void
fill_memory(uint64_t first_word_on_stack)
{
  for (size_t i = 0; i < PAGE; i++) {
    arena[DATA + i] = (uint8_t)(i * 7 + 3);
  }
  memset(arena + STACK, 0x5e, 4 * PAGE);
  memcpy(arena + STACK_TOP, &first_word_on_stack, 8);
}

static void
run(struct machine machine, uint64_t code, uint64_t first_word_on_stack, struct outcome *outcome)
{
  fill_memory(first_word_on_stack);
  machine.code = code;
  machine.reg[4] = (uint64_t)(arena + STACK_TOP);
  relocate_harness(&machine);
  machine.code = 0;
  outcome->machine = machine;
  memcpy(outcome->stack, arena + STACK, sizeof(outcome->stack));
  memcpy(outcome->data, arena + DATA, sizeof(outcome->data));
  memcpy(&outcome->exit, arena + ARENA - PAGE + 8, 4);
}

#define ARITHMETIC_FLAGS 0xcd5ull /* OF DF SF ZF AF PF CF */

static const struct {
  uint64_t rcx, flags;
} inputs[] = {
    {0, 0x202},           {1, 0x202},       {2, 0x202 | 0x40},  {0x100000000, 0x202 | 0x40}, /* ecx 0, rcx not; ZF */
    {0x100000001, 0x202}, {1, 0xad7},       {0, 0x202 | 0x1},   {5, 0x202 | 0x80},
    {3, 0x202 | 0x800},   {7, 0x202 | 0x4}, {2, 0x202 | 0x880}, {1, 0x202 | 0x840},
};

enum { NO_DISP = -1 };

/* A form: its bytes; where they hold a displacement, or the distance of a branch, that the test fills in. */
struct form {
  const char *name;
  const char *bytes;
  uint8_t length;    /* of the instruction that is filled in: the displacement counts from its end */
  uint8_t total;     /* all bytes; what is missing to five is filled with nops */
  int8_t disp;       /* offset of a disp32 to DATA, or NO_DISP */
  int8_t rel;        /* offset of a rel8 or rel32 to the target, or NO_DISP */
  uint8_t rel_bytes; /* 1 or 4 */
  uint8_t need_avx;  /* 1 avx, 2 avx512vl */
  uint16_t exits;    /* bits: the exits that must have been seen over all inputs */
};

#define BEHIND (1u << EXIT_BEHIND)
#define TAKEN  (1u << EXIT_TARGET)
#define FAR    (1u << EXIT_FAR)
#define RIP(name, bytes, disp)                                                                                         \
  {                                                                                                                    \
    name, bytes, sizeof(bytes) - 1, sizeof(bytes) - 1, disp, NO_DISP, 0, 0, BEHIND                                     \
  }
#define VRIP(name, bytes, disp, avx)                                                                                   \
  {                                                                                                                    \
    name, bytes, sizeof(bytes) - 1, sizeof(bytes) - 1, disp, NO_DISP, 0, avx, BEHIND                                   \
  }
#define REL(name, bytes, rel, rel_bytes, exits)                                                                        \
  {                                                                                                                    \
    name, bytes, sizeof(bytes) - 1, sizeof(bytes) - 1, NO_DISP, rel, rel_bytes, 0, exits                               \
  }
#define PLAIN(name, bytes)                                                                                             \
  {                                                                                                                    \
    name, bytes, sizeof(bytes) - 1, sizeof(bytes) - 1, NO_DISP, NO_DISP, 0, 0, BEHIND                                  \
  }

static const struct form forms[] = {
    RIP("mov rip, rax", "\x48\x8b\x05\0\0\0\0", 3),
    RIP("mov rip, r15d", "\x44\x8b\x3d\0\0\0\0", 3),
    RIP("mov rax, rip", "\x48\x89\x05\0\0\0\0", 3),
    RIP("lea rip, r11", "\x4c\x8d\x1d\0\0\0\0", 3),
    RIP("lea rip, edi", "\x8d\x3d\0\0\0\0", 2),
    RIP("data16 lea rip, rdi (TLS)", "\x66\x48\x8d\x3d\0\0\0\0", 4),
    RIP("cmpb imm8, rip", "\x80\x3d\0\0\0\0\x0a", 2),
    RIP("testb imm8, rip", "\xf6\x05\0\0\0\0\x11", 2),
    RIP("cmpl imm8, rip", "\x83\x3d\0\0\0\0\xf0", 2),
    RIP("addl imm32, rip", "\x81\x05\0\0\0\0\x78\x56\x34\x12", 2),
    RIP("movb imm8, rip", "\xc6\x05\0\0\0\0\x77", 2),
    RIP("movw imm16, rip", "\x66\xc7\x05\0\0\0\0\x34\x12", 3),
    RIP("movq imm32, rip", "\x48\xc7\x05\0\0\0\0\x01\x02\x03\x84", 3),
    RIP("imul imm32, rip, eax", "\x69\x05\0\0\0\0\x10\x27\0\0", 2),
    RIP("btq imm8, rip", "\x48\x0f\xba\x25\0\0\0\0\x05", 4),
    RIP("shld imm8, rax, rip", "\x48\x0f\xa4\x05\0\0\0\0\x09", 4),
    RIP("lock xadd rax, rip", "\xf0\x48\x0f\xc1\x05\0\0\0\0", 5),
    RIP("movzbl rip, ecx", "\x0f\xb6\x0d\0\0\0\0", 3),
    RIP("push rip", "\xff\x35\0\0\0\0", 2),
    RIP("pop rip", "\x8f\x05\0\0\0\0", 2),
    RIP("movsd rip, xmm3", "\xf2\x0f\x10\x1d\0\0\0\0", 4),
    RIP("pshufd imm8, rip, xmm3", "\x66\x0f\x70\x1d\0\0\0\0\x1b", 4),
    RIP("pextrd imm8, xmm3, rip", "\x66\x0f\x3a\x16\x1d\0\0\0\0\x02", 5),
    RIP("crc32 rip, rax", "\xf2\x48\x0f\x38\xf1\x05\0\0\0\0", 6),
    VRIP("vmovups rip, xmm3 (VEX2)", "\xc5\xf8\x10\x1d\0\0\0\0", 4, 1),
    VRIP("vpermilps imm8, rip, xmm3 (VEX3)", "\xc4\xe3\x79\x04\x1d\0\0\0\0\x4e", 5, 1),
    VRIP("vpaddd rip, xmm3, xmm3 (EVEX)", "\x62\xf1\x65\x08\xfe\x1d\0\0\0\0", 6, 2),
    VRIP("vpternlogd imm8, rip, xmm3, xmm3 (EVEX)", "\x62\xf3\x65\x08\x25\x1d\0\0\0\0\x96", 6, 2),
    VRIP("vpaddd rip broadcast, xmm3, xmm3 (EVEX)", "\x62\xf1\x65\x18\xfe\x1d\0\0\0\0", 6, 2),
    RIP("fifteen bytes", "\x2e\x2e\x2e\x2e\x48\xc7\x05\0\0\0\0\x01\x02\x03\x04", 7),
    RIP("fifteen bytes, add", "\x3e\x3e\x3e\x66\x48\x81\x05\0\0\0\0\xff\xff\xff\x7f", 7),
    REL("jmp short", "\xeb\0", 1, 1, TAKEN),
    REL("jmp near", "\xe9\0\0\0\0", 1, 4, FAR),
    REL("bnd jmp near", "\xf2\xe9\0\0\0\0", 2, 4, FAR),
    REL("jo short", "\x70\0", 1, 1, TAKEN | BEHIND),
    REL("jno short", "\x71\0", 1, 1, TAKEN | BEHIND),
    REL("jb short", "\x72\0", 1, 1, TAKEN | BEHIND),
    REL("jae short", "\x73\0", 1, 1, TAKEN | BEHIND),
    REL("je short", "\x74\0", 1, 1, TAKEN | BEHIND),
    REL("jne short", "\x75\0", 1, 1, TAKEN | BEHIND),
    REL("jbe short", "\x76\0", 1, 1, TAKEN | BEHIND),
    REL("ja short", "\x77\0", 1, 1, TAKEN | BEHIND),
    REL("js short", "\x78\0", 1, 1, TAKEN | BEHIND),
    REL("jns short", "\x79\0", 1, 1, TAKEN | BEHIND),
    REL("jp short", "\x7a\0", 1, 1, TAKEN | BEHIND),
    REL("jnp short", "\x7b\0", 1, 1, TAKEN | BEHIND),
    REL("jl short", "\x7c\0", 1, 1, TAKEN | BEHIND),
    REL("jge short", "\x7d\0", 1, 1, TAKEN | BEHIND),
    REL("jle short", "\x7e\0", 1, 1, TAKEN | BEHIND),
    REL("jg short", "\x7f\0", 1, 1, TAKEN | BEHIND),
    REL("je short, hinted", "\x3e\x74\0", 2, 1, TAKEN | BEHIND),
    REL("jo near", "\x0f\x80\0\0\0\0", 2, 4, FAR | BEHIND),
    REL("je near", "\x0f\x84\0\0\0\0", 2, 4, FAR | BEHIND),
    REL("jne near", "\x0f\x85\0\0\0\0", 2, 4, FAR | BEHIND),
    REL("jg near", "\x0f\x8f\0\0\0\0", 2, 4, FAR | BEHIND),
    REL("ja near, hinted", "\x2e\x0f\x87\0\0\0\0", 3, 4, FAR | BEHIND),
    REL("loop", "\xe2\0", 1, 1, TAKEN | BEHIND),
    REL("loope", "\xe1\0", 1, 1, TAKEN | BEHIND),
    REL("loopne", "\xe0\0", 1, 1, TAKEN | BEHIND),
    REL("jrcxz", "\xe3\0", 1, 1, TAKEN | BEHIND),
    REL("jecxz", "\x67\xe3\0", 2, 1, TAKEN | BEHIND),
    REL("loop on ecx", "\x67\xe2\0", 2, 1, TAKEN | BEHIND),
    REL("loope on ecx", "\x67\xe1\0", 2, 1, TAKEN | BEHIND),
    REL("call", "\xe8\0\0\0\0", 1, 4, FAR),
    REL("call, padded as for __tls_get_addr", "\x66\x66\x48\xe8\0\0\0\0", 4, 4, FAR),
    REL("addr32 call, as relaxed by the linker", "\x67\xe8\0\0\0\0", 2, 4, FAR),
    PLAIN("ret", "\xc3"),
    PLAIN("ret imm16", "\xc2\x10\x00"),
    PLAIN("repz ret", "\xf3\xc3"),
    PLAIN("endbr64", "\xf3\x0f\x1e\xfa"),
    PLAIN("push, mov", "\x55\x48\x89\xe5"),
    PLAIN("sub, push", "\x48\x83\xec\x18\x53\x41\x57"),
    PLAIN("mov disp8(rsp)", "\x48\x8b\x44\x24\x00"),
    PLAIN("xor, inc", "\x31\xc0\xff\xc1\x90"),
    PLAIN("67 lea disp32(ebx)", "\x67\x8d\x83\x00\x01\x00\x00"),
    PLAIN("67 lea absolute", "\x67\x48\x8d\x04\x25\x00\x10\x00\x00"),
    PLAIN("movabs imm64", "\x48\xb8\x01\x02\x03\x04\x05\x06\x07\x08"),
};

static bool
cpu_runs(const struct form *form)
{
  switch (form->need_avx) {
  case 1:
    return __builtin_cpu_supports("avx");
  case 2:
    return __builtin_cpu_supports("avx512vl");
  default:
    return true;
  }
}

/* Puts the form at the entry with an exit after its window and at the targets. */
static void
place(const struct form *form, struct ct_window *window)
{
  uint8_t *entry = arena + CODE + ENTRY;
  memset(arena + CODE, 0xcc, 8 * PAGE);
  memset(arena + MOVED, 0xcc, PAGE);
  memcpy(entry, form->bytes, form->total);
  memset(entry + form->total, 0x90, 8);
  if (form->disp != NO_DISP) {
    int32_t distance = (int32_t)(arena + DATA + 64 - (entry + form->length));
    memcpy(entry + form->disp, &distance, 4);
  }
  if (form->rel != NO_DISP) {
    const uint8_t *target = arena + CODE + (form->rel_bytes == 1 ? TARGET : FAR_TARGET);
    int32_t distance = (int32_t)(target - (entry + form->length));
    memcpy(entry + form->rel, &distance, form->rel_bytes);
  }
  emit_exit(arena + CODE + TARGET, EXIT_TARGET);
  emit_exit(arena + CODE + FAR_TARGET, EXIT_FAR);
  assert_int_equal(ct_window_find(entry, 64, (uint64_t)entry, CT_JUMP_BYTES, window), CT_WINDOW_OK);
  emit_exit(entry + window->length, EXIT_BEHIND);
}

static struct machine
machine_of(size_t input)
{
  struct machine machine = {.flags = inputs[input].flags};
  for (unsigned r = 0; r < 16; r++) {
    machine.reg[r] = 0x1111111111111111ull * r + input;
  }
  machine.reg[1] = inputs[input].rcx;
  for (unsigned i = 0; i < 16; i++) {
    machine.xmm3[i] = (uint8_t)(i * 17 + input);
  }
  return machine;
}

static void
compare(const char *name, size_t input, const struct outcome *there, const struct outcome *here)
{
  static const char *const names[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                      "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
  if (there->exit != here->exit) {
    fail_msg("%s, input %zu: goes on at exit %u, not %u", name, input, there->exit, here->exit);
  }
  for (unsigned r = 0; r < 16; r++) {
    if (there->machine.reg[r] != here->machine.reg[r]) {
      fail_msg("%s, input %zu: %s is %#llx, not %#llx", name, input, names[r],
               (unsigned long long)there->machine.reg[r], (unsigned long long)here->machine.reg[r]);
    }
  }
  if ((there->machine.flags & ARITHMETIC_FLAGS) != (here->machine.flags & ARITHMETIC_FLAGS)) {
    fail_msg("%s, input %zu: flags are %#llx, not %#llx", name, input, (unsigned long long)there->machine.flags,
             (unsigned long long)here->machine.flags);
  }
  if (memcmp(there->machine.xmm3, here->machine.xmm3, 16) != 0) {
    fail_msg("%s, input %zu: xmm3 differs", name, input);
  }
  if (memcmp(there->stack, here->stack, sizeof(here->stack)) != 0) {
    fail_msg("%s, input %zu: the stack differs", name, input);
  }
  if (memcmp(there->data, here->data, sizeof(here->data)) != 0) {
    fail_msg("%s, input %zu: the data differ", name, input);
  }
}

static void
every_form_does_what_it_did(void **state)
{
  static struct outcome here, there;
  for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
    const struct form *form = &forms[f];
    if (!cpu_runs(form)) {
      continue;
    }
    struct ct_window window;
    place(form, &window);
    struct ct_code out = {.bytes = arena + MOVED, .capacity = PAGE, .address = (uint64_t)(arena + MOVED)};
    enum ct_window_refusal refusal =
        ct_window_relocate(arena + CODE + ENTRY, (uint64_t)(arena + CODE + ENTRY), &window, &out, NULL);
    if (refusal != CT_WINDOW_OK) {
      fail_msg("%s: refused, %d", form->name, refusal);
    }
    uint16_t seen = 0;
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
      struct machine machine = machine_of(i);
      uint64_t on_stack = (uint64_t)(arena + CODE + ENTRY + window.length); /* where a ret goes */
      run(machine, (uint64_t)(arena + CODE + ENTRY), on_stack, &here);
      run(machine, (uint64_t)(arena + MOVED), on_stack, &there);
      compare(form->name, i, &there, &here);
      seen |= (uint16_t)(1u << here.exit);
    }
    if (seen != form->exits) {
      fail_msg("%s: the inputs lead to exits %#x, not %#x", form->name, seen, form->exits);
    }
  }
}

/* A call's return address must be the original one, whole, for code below and above 2 and 4 GiB. */
static void
a_call_pushes_where_it_stood(void **state)
{
  static const uint64_t places[] = {0x401000, 0x7fffff00, 0x80000001, 0xffffff80, 0x100000000, 0x7f12f4567890};
  for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
    uint8_t code[] = {0x55, 0xe8, 0x10, 0, 0, 0}, buffer[64];
    struct ct_window window;
    assert_int_equal(ct_window_find(code, sizeof(code), places[i], 5, &window), CT_WINDOW_OK);
    struct ct_code out = {.bytes = buffer, .capacity = sizeof(buffer), .address = places[i] + 0x10000};
    struct ct_relocation_map map;
    assert_int_equal(ct_window_relocate(code, places[i], &window, &out, &map), CT_WINDOW_OK);
    assert_int_equal(map.count, 2);
    assert_int_equal(map.to[1], 1);
    assert_int_equal(buffer[0], 0x55);
    uint64_t constant;
    int32_t distance;
    assert_memory_equal(buffer + 1, "\xe8\x0d\0\0\0", 5);
    memcpy(&constant, buffer + 11, 8);
    assert_int_equal(constant, places[i] + 6);
    assert_memory_equal(buffer + 19, "\x48\x8d\x64\x24\x08\xff\x35\xed\xff\xff\xff\xe9", 12);
    memcpy(&distance, buffer + 31, 4);
    assert_int_equal(out.address + 35 + (uint64_t)distance, places[i] + 6 + 0x10);
  }
}

/* Jump through memory: followed for real, with the pointer among the data. */
static void
an_indirect_jump_reads_its_own_pointer(void **state)
{
  static struct outcome outcome;
  static const char *const kinds[] = {"\xff\x25", "\xf2\xff\x25", "\x3e\xff\x25"};
  for (size_t k = 0; k < 3; k++) {
    size_t prefix = strlen(kinds[k]), length = prefix + 4;
    uint8_t *entry = arena + CODE + ENTRY;
    memset(arena + CODE, 0xcc, 8 * PAGE);
    memcpy(entry, kinds[k], prefix);
    int32_t distance = (int32_t)(arena + DATA + PAGE - (entry + length));
    memcpy(entry + prefix, &distance, 4);
    uint64_t target = (uint64_t)(arena + CODE + FAR_TARGET);
    memcpy(arena + DATA + PAGE, &target, 8);
    emit_exit(arena + CODE + FAR_TARGET, EXIT_FAR);
    struct ct_window window;
    assert_int_equal(ct_window_find(entry, 64, (uint64_t)entry, 5, &window), CT_WINDOW_OK);
    assert_int_equal(window.length, length);
    assert_int_equal(window.terminated, 1);
    struct ct_code out = {.bytes = arena + MOVED, .capacity = PAGE, .address = (uint64_t)(arena + MOVED)};
    assert_int_equal(ct_window_relocate(entry, (uint64_t)entry, &window, &out, NULL), CT_WINDOW_OK);
    assert_int_equal(out.length, length); /* nothing after a jump */
    run(machine_of(1), (uint64_t)(arena + MOVED), 0, &outcome);
    assert_int_equal(outcome.exit, EXIT_FAR);
  }
}

/* Several instructions at once: the map tells where each of them went. */
static void
a_window_of_several(void **state)
{
  static struct outcome here, there;
  uint8_t *entry = arena + CODE + ENTRY;
  memset(arena + CODE, 0xcc, 8 * PAGE);
  memcpy(entry, "\x53\x74\x5d\x48\x8d\x05\0\0\0\0", 10); /* push rbx; je TARGET; lea rip, rax */
  int32_t distance = (int32_t)(arena + DATA - (entry + 10));
  memcpy(entry + 6, &distance, 4);
  emit_exit(entry + 10, EXIT_BEHIND);
  emit_exit(arena + CODE + TARGET, EXIT_TARGET);
  struct ct_window window;
  assert_int_equal(ct_window_find(entry, 64, (uint64_t)entry, 5, &window), CT_WINDOW_OK);
  assert_int_equal(window.count, 3);
  assert_int_equal(window.length, 10);
  struct ct_code out = {.bytes = arena + MOVED, .capacity = PAGE, .address = (uint64_t)(arena + MOVED)};
  ct_emit_u8(&out, 0xcc); /* offsets of the map count from the start of this window */
  struct ct_relocation_map map;
  assert_int_equal(ct_window_relocate(entry, (uint64_t)entry, &window, &out, &map), CT_WINDOW_OK);
  assert_int_equal(map.count, 3);
  assert_memory_equal(map.from, "\x00\x01\x03", 3);
  assert_memory_equal(map.to, "\x00\x01\x07", 3); /* a short jump has become a near one */
  assert_int_equal(out.length, 1 + 1 + 6 + 7 + 5);
  for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
    run(machine_of(i), (uint64_t)entry, 0, &here);
    run(machine_of(i), (uint64_t)(arena + MOVED + 1), 0, &there);
    compare("push, je, lea", i, &there, &here);
  }
}

static enum ct_window_refusal
find(const char *bytes, size_t size, size_t need, struct ct_window *window)
{
  uint8_t *copy = malloc(size + 1); /* exact, so that a sanitizer sees every byte too many */
  assert_non_null(copy);
  uint8_t *exact = realloc(copy, size == 0 ? 1 : size);
  memcpy(exact, bytes, size);
  enum ct_window_refusal refusal = ct_window_find(exact, size, 0x1000, need, window);
  free(exact);
  return refusal;
}

#define FIND(bytes, need, window) find(bytes, sizeof(bytes) - 1, need, window)

static void
windows(void **state)
{
  struct ct_window w;
  assert_int_equal(FIND("\x90\x90\x90\x90\x90", 5, &w), CT_WINDOW_OK);
  assert_int_equal(w.length, 5);
  assert_int_equal(w.count, 5);
  assert_int_equal(w.terminated, 0);
  assert_memory_equal(w.offset, "\0\1\2\3\4\5", 6);
  assert_int_equal(FIND("\x90\x90\x90\x90", 5, &w), CT_WINDOW_TOO_SHORT);
  assert_int_equal(FIND("", 5, &w), CT_WINDOW_TOO_SHORT);
  assert_int_equal(FIND("\x90", 0, &w), CT_WINDOW_OK);
  assert_int_equal(w.length, 0);
  /* Eight instructions are kept, not nine. */
  assert_int_equal(FIND("\x90\x90\x90\x90\x90\x90\x90\x90\x90", 8, &w), CT_WINDOW_OK);
  assert_int_equal(w.count, 8);
  assert_int_equal(FIND("\x90\x90\x90\x90\x90\x90\x90\x90\x90", 9, &w), CT_WINDOW_TOO_SHORT);
  /* The longest: four bytes, then fifteen. */
  assert_int_equal(FIND("\x48\x89\xe5\x55\x2e\x2e\x2e\x2e\x48\xc7\x05\0\0\0\0\1\2\3\4", 5, &w), CT_WINDOW_OK);
  assert_int_equal(w.length, 19);
  /* An instruction cut off by the end. */
  assert_int_equal(FIND("\x90\x90\x48\xb8\1\2\3\4\5\6\7", 5, &w), CT_WINDOW_UNDECODABLE);
  assert_int_equal(FIND("\x06\x90\x90\x90\x90", 5, &w), CT_WINDOW_UNDECODABLE);
  assert_int_equal(FIND("\x90\x0f\xff\x90\x90\x06", 5, &w) != CT_WINDOW_TOO_SHORT, 1);
  /* What ends the code early. */
  static const char *const ends[] = {"\xc3", "\xeb\xfe", "\xff\xe0"};
  for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
    char bytes[8] = "\x90\x90\x90\x90\x90\x90\x90";
    memcpy(bytes + 1, ends[i], strlen(ends[i]));
    assert_int_equal(find(bytes, 7, 5, &w), CT_WINDOW_OK);
    assert_true(w.length == 1 + strlen(ends[i]) && w.terminated);
    assert_int_equal(w.count, 2);
  }
  /* A trap goes on, as after a handler has stepped over it, but for where nothing follows that could. */
  assert_int_equal(FIND("\x0f\x0b\x8d\x47\x02\xc3", 5, &w), CT_WINDOW_OK);
  assert_true(w.length == 5 && !w.terminated);
  assert_int_equal(FIND("\x90\x0f\x0b\x06\x90\x90", 5, &w), CT_WINDOW_OK);
  assert_true(w.length == 3 && w.terminated);
  /* A terminator that ends just at, and after, the jump. */
  assert_int_equal(FIND("\x90\x90\x90\x90\xc3", 5, &w), CT_WINDOW_OK);
  assert_true(w.length == 5 && w.terminated);
  assert_int_equal(FIND("\x90\x90\x90\x90\xc2\x08\x00", 5, &w), CT_WINDOW_OK);
  assert_int_equal(w.length, 7);
  /* int3 goes on, jcc goes on. */
  assert_int_equal(FIND("\xcc\x74\x00\x90\x90", 5, &w), CT_WINDOW_OK);
  assert_int_equal(w.terminated, 0);
  /* Calls: a direct one anywhere; an indirect one not when it returns into the window. */
  assert_int_equal(FIND("\xe8\0\0\0\0", 5, &w), CT_WINDOW_OK);
  assert_int_equal(w.terminated, 0);
  assert_int_equal(FIND("\xff\xd0\x90\x90\x90", 5, &w), CT_WINDOW_INDIRECT_CALL);
  assert_int_equal(FIND("\x90\x90\xff\xd0\x90\x90", 5, &w), CT_WINDOW_INDIRECT_CALL);
  assert_int_equal(FIND("\x90\x41\xff\xd3\x90\x90", 5, &w), CT_WINDOW_INDIRECT_CALL);
}

static enum ct_window_refusal
relocate_at(const void *bytes, size_t size, uint64_t from, uint64_t to, size_t capacity, size_t *length)
{
  struct ct_window window;
  assert_int_equal(ct_window_find(bytes, size, from, 5, &window), CT_WINDOW_OK);
  uint8_t *buffer = malloc(capacity + 1);
  assert_non_null(buffer);
  buffer[capacity] = 0x77;
  struct ct_code out = {.bytes = buffer, .capacity = capacity, .address = to};
  enum ct_window_refusal refusal = ct_window_relocate(bytes, from, &window, &out, NULL);
  assert_int_equal(buffer[capacity], 0x77);
  assert_true(out.length <= capacity);
  free(buffer);
  if (length != NULL) {
    *length = out.length;
  }
  return refusal;
}

static void
what_does_not_reach_is_refused(void **state)
{
  const uint64_t from = 0x7f0000000000;
  static const struct {
    const char *bytes;
    size_t size;
  } cases[] = {
      {"\x48\x8b\x05\x00\x01\x00\x00", 7},
      {"\xe9\x00\x01\x00\x00", 5},
      {"\x0f\x84\x00\x01\x00\x00", 6},
      {"\xe8\x00\x01\x00\x00", 5},
      {"\xe2\x10\x90\x90\x90", 5},
      {"\x90\x90\x90\x90\x90", 5},
      {"\x66\xc7\x05\x00\x01\x00\x00\x34\x12", 9},
      {"\xeb\x10", 2},
      {"\xff\x25\x00\x01\x00\x00", 6},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    assert_int_equal(relocate_at(cases[i].bytes, cases[i].size, from, from + 0x70000000, 64, NULL), CT_WINDOW_OK);
    assert_int_equal(relocate_at(cases[i].bytes, cases[i].size, from, from - 0x70000000, 64, NULL), CT_WINDOW_OK);
    assert_int_equal(relocate_at(cases[i].bytes, cases[i].size, from, from + 0x80001000, 64, NULL),
                     CT_WINDOW_UNREACHABLE);
    assert_int_equal(relocate_at(cases[i].bytes, cases[i].size, from, from - 0x80001000, 64, NULL),
                     CT_WINDOW_UNREACHABLE);
    assert_int_equal(relocate_at(cases[i].bytes, cases[i].size, from, from ^ 1ull << 40, 64, NULL),
                     CT_WINDOW_UNREACHABLE);
  }
  /* eip-relative: the address would be cut to 32 bits. */
  assert_int_equal(relocate_at("\x67\x48\x8b\x05\0\1\0\0", 8, from, from + 0x1000, 64, NULL), CT_WINDOW_UNREACHABLE);
}

/* The last address that reaches, and the first that does not, for an operand and for a jump back. */
static void
reach_is_exact(void **state)
{
  const uint64_t from = 0x7f0000000000;
  /* lea 0(%rip): target = from + 7. At to the displacement is from - to. */
  const char lea[] = "\x48\x8d\x05\0\0\0\0\xc3"; /* the window is the lea alone */
  assert_int_equal(relocate_at(lea, 7, from, from + 0x80000000 - 32, 64, NULL), CT_WINDOW_OK);
  assert_int_equal(relocate_at(lea, 7, from, from + 0x80000001, 64, NULL), CT_WINDOW_UNREACHABLE);
  const char ret_pad[] = "\x90\x90\xc3"; /* nothing that needs to reach: anywhere */
  assert_int_equal(relocate_at(ret_pad, 3, from, 0x1000, 64, NULL), CT_WINDOW_OK);
}

static void
a_small_buffer_is_no_overflow(void **state)
{
  const uint64_t from = 0x401000;
  static const struct {
    const char *bytes;
    size_t size;
  } cases[] = {{"\x55\xe8\x10\0\0\0", 6},
               {"\xe2\x10\x48\x8d\x05\0\0\0\0", 9},
               {"\x2e\x2e\x2e\x2e\x48\xc7\x05\0\0\0\0\1\2\3\4", 15},
               {"\x74\x10\x75\x10\x90", 5}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    size_t whole;
    assert_int_equal(relocate_at(cases[i].bytes, cases[i].size, from, from + 0x10000, 200, &whole), CT_WINDOW_OK);
    assert_true(whole < 100);
    for (size_t capacity = 0; capacity < whole; capacity++) {
      assert_int_equal(relocate_at(cases[i].bytes, cases[i].size, from, from + 0x10000, capacity, NULL),
                       CT_WINDOW_UNREACHABLE);
    }
    assert_int_equal(relocate_at(cases[i].bytes, cases[i].size, from, from + 0x10000, whole, NULL), CT_WINDOW_OK);
  }
}

/*
 * An indirect call whose end is the window's: it returns after the window, so the return address must be the one it
 * pushed in its place (the callee's hook looks at it, and so do unwinders), or it must be refused.
 */
static void
an_indirect_call_pushes_where_it_stood(void **state)
{
  static struct outcome here, there;
  static const struct {
    const char *name, *bytes;
    uint8_t length, disp;
  } calls[] = {{"call *rip", "\xff\x15\0\0\0\0", 6, 2},
               {"sub, call *rip", "\x48\x83\xec\x08\xff\x15\0\0\0\0", 10, 6},
               {"push, lea, call *rax", "\x53\x48\x8d\x05\0\0\0\0\xff\x10", 10, 0},
               {"sub, call *r12", "\x48\x83\xec\x08\x41\xff\xd4", 7, 0},
               {"sub, call *16(rsp)", "\x48\x83\xec\x08\xff\x54\x24\x08", 8, 0},
               {"call *disp32(rsi)", "\xff\x96\0\0\0\0", 6, 0}};
  for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
    uint8_t *entry = arena + CODE + ENTRY;
    uint64_t target = (uint64_t)(arena + CODE + FAR_TARGET), pointer = (uint64_t)(arena + DATA + PAGE);
    memset(arena + CODE, 0xcc, 8 * PAGE);
    memcpy(entry, calls[c].bytes, calls[c].length);
    int32_t distance = (int32_t)(pointer - (uint64_t)(entry + calls[c].length));
    if (calls[c].disp != 0) {
      memcpy(entry + calls[c].disp, &distance, 4);
    }
    memcpy(arena + DATA + PAGE, &target, 8);
    emit_exit(arena + CODE + FAR_TARGET, EXIT_FAR);
    struct ct_window window;
    enum ct_window_refusal refusal = ct_window_find(entry, 64, (uint64_t)entry, 5, &window);
    struct ct_code out = {.bytes = arena + MOVED, .capacity = PAGE, .address = (uint64_t)(arena + MOVED)};
    if (refusal == CT_WINDOW_OK && window.length == calls[c].length) {
      refusal = ct_window_relocate(entry, (uint64_t)entry, &window, &out, NULL);
    }
    if (refusal == CT_WINDOW_INDIRECT_CALL) {
      continue;
    }
    assert_int_equal(refusal, CT_WINDOW_OK);
    if (strstr(calls[c].name, "lea") != NULL) { /* the window ends before the call */
      assert_int_equal(window.length, 8);
      continue;
    }
    struct machine machine = machine_of(c);
    machine.reg[6] = pointer;
    machine.reg[12] = target;
    run(machine, (uint64_t)entry, target, &here);
    run(machine, (uint64_t)(arena + MOVED), target, &there);
    assert_int_equal(here.exit, EXIT_FAR);
    compare(calls[c].name, c, &there, &here);
  }
}

/*
 * xbegin has a relative target, but is no conditional jump: refused, or moved as an xbegin with the same target. Not
 * run: few machines have it.
 */
static void
xbegin_stays_xbegin(void **state)
{
  uint8_t code[] = {0xc7, 0xf8, 0x20, 0, 0, 0, 0xc3}, buffer[64] = {0};
  struct ct_window window;
  enum ct_window_refusal refusal = ct_window_find(code, sizeof(code), 0x1000, 5, &window);
  if (refusal != CT_WINDOW_OK) {
    return;
  }
  struct ct_code out = {.bytes = buffer, .capacity = sizeof(buffer), .address = 0x9000};
  if (ct_window_relocate(code, 0x1000, &window, &out, NULL) != CT_WINDOW_OK) {
    return;
  }
  int32_t distance;
  assert_memory_equal(buffer, "\xc7\xf8", 2);
  memcpy(&distance, buffer + 2, 4);
  assert_int_equal(0x9006 + distance, 0x1026);
}

/* Zydis knows the branches of Knights Corner, which are invalid elsewhere: they must not become a jcc. */
static void
branches_on_masks_are_refused(void **state)
{
  const uint8_t codes[][8] = {{0xc5, 0xf8, 0x84, 0, 1, 0, 0, 0xc3}, {0xc5, 0x78, 0x85, 0, 1, 0, 0, 0xc3}};
  uint8_t buffer[64];
  for (size_t i = 0; i < 2; i++) {
    struct ct_window window;
    struct ct_code out = {.bytes = buffer, .capacity = sizeof(buffer), .address = 0x9000};
    enum ct_window_refusal refusal = ct_window_find(codes[i], sizeof(codes[i]), 0x1000, 5, &window);
    if (refusal == CT_WINDOW_OK) {
      refusal = ct_window_relocate(codes[i], 0x1000, &window, &out, NULL);
    }
    assert_int_equal(refusal, CT_WINDOW_UNDECODABLE);
  }
}

/* The operand of a move to or from a control register is a register whatever mod says: there is nothing to fill in. */
static void
control_registers_have_no_displacement(void **state)
{
  const uint8_t code[] = {0x0f, 0x20, 0x05, 0x0f, 0x22, 0x05, 0xc3};
  uint8_t buffer[64] = {0};
  struct ct_window window;
  assert_int_equal(ct_window_find(code, sizeof(code), 0x1000, 5, &window), CT_WINDOW_OK);
  struct ct_code out = {.bytes = buffer, .capacity = sizeof(buffer), .address = 0x9000};
  assert_int_equal(ct_window_relocate(code, 0x1000, &window, &out, NULL), CT_WINDOW_OK);
  assert_int_equal(out.length, 6 + CT_JUMP_BYTES);
  assert_memory_equal(buffer, code, 6);
}

static int
padding(const char *bytes, size_t all, size_t size)
{
  uint8_t *exact = malloc(all);
  assert_non_null(exact);
  memcpy(exact, bytes, all);
  int is = ct_is_padding(exact, size, all);
  free(exact);
  return is;
}

#define PADDING(bytes, size) padding(bytes, sizeof(bytes) - 1, size)

static void
what_counts_as_padding(void **state)
{
  assert_true(PADDING("\xcc\xcc\xcc\xcc", 4));
  assert_true(PADDING("\x90\x90\x90\x90", 4));
  assert_true(PADDING("\xcc\x90\x66\x90", 4));
  assert_true(PADDING("\x0f\x1f\x00\xcc", 4));
  assert_true(PADDING("\x0f\x1f\x40\x00", 4));
  assert_true(PADDING("\x0f\x1f\x44\x00\x00", 4)); /* reaches beyond */
  assert_true(PADDING("\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00", 4));
  assert_true(PADDING("\x66\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00", 4));
  assert_true(PADDING("\x48\x90\x90\x90", 4)); /* rex.w nop */
  assert_true(PADDING("\xc3", 0));
  assert_false(PADDING("\xcc\xcc\xcc\xc3", 4));
  assert_false(PADDING("\xc3\xcc\xcc\xcc", 4));
  assert_false(PADDING("\x0f\x1f\x44\x00", 4)); /* cut off by the end of what can be read */
  assert_false(PADDING("\x00\x00\x00\x00", 4)); /* add %al, (%rax) */
  assert_false(PADDING("\xf3\x0f\x1e\xfa", 4)); /* endbr64: a place to go to */
  assert_false(PADDING("\x90\x06\x90\x90", 4));
  assert_false(PADDING("\x87\xdb\x90\x90", 4)); /* xchg %ebx, %ebx clears the upper half */
}

/* rex.b makes 0x90 an exchange of r8 with rax: code. */
static void
an_exchange_is_no_padding(void **state)
{
  assert_false(PADDING("\x41\x90\x90\x90", 4));
  assert_false(PADDING("\x49\x90\x90\x90", 4));
}

static int
set_up(void **state)
{
  arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (arena == MAP_FAILED) {
    return -1;
  }
  uint64_t out = (uint64_t)relocate_harness_out; /* see emit_exit */
  memcpy(arena + ARENA - PAGE, &out, 8);
  return 0;
}

static int
tear_down(void **state)
{
  return munmap(arena, ARENA);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_form_does_what_it_did),
      cmocka_unit_test(a_call_pushes_where_it_stood),
      cmocka_unit_test(an_indirect_jump_reads_its_own_pointer),
      cmocka_unit_test(a_window_of_several),
      cmocka_unit_test(windows),
      cmocka_unit_test(what_does_not_reach_is_refused),
      cmocka_unit_test(reach_is_exact),
      cmocka_unit_test(a_small_buffer_is_no_overflow),
      cmocka_unit_test(what_counts_as_padding),
      cmocka_unit_test(an_indirect_call_pushes_where_it_stood),
      cmocka_unit_test(xbegin_stays_xbegin),
      cmocka_unit_test(control_registers_have_no_displacement),
      cmocka_unit_test(branches_on_masks_are_refused),
      cmocka_unit_test(an_exchange_is_no_padding),
  };
  return cmocka_run_group_tests_name("relocate", tests, set_up, tear_down);
}
