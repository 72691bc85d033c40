/* SPDX-License-Identifier: MIT */
/*
 * Trampolines are emitted into this process and called through, with a control page at gs, a byte table, a segment,
 * a return store and a region head whose stubs count and go on as the agent does when it records nothing.
 *
 * Every register is patterned before the call and found again by the function (general, x87, mxcsr, vectors up to
 * zmm and the masks as the machine has them); the function patterns them anew and the caller must find that. All but
 * the flags must survive both ways.
 */
#ifndef CT_TESTS_TRAMPOLINE_H
#define CT_TESTS_TRAMPOLINE_H

#include <assert.h>
#include <cpuid.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "x86/trampoline.h"

enum { STATE_BYTES = 4096, STACK_BYTES = 65536 };
#define STATE_MASK "0xe7" /* x87, sse, avx, avx-512 */

/* Offsets are the harness's: rax rcx rdx rbx rsp rbp rsi rdi r8..r15, then the xsave image. */
struct state {
  uint64_t reg[16];
  uint64_t pad[8];
  uint8_t vectors[STATE_BYTES];
};
static_assert(offsetof(struct state, vectors) == 192, "harness");

/* All four 64-byte aligned; the harness and the function use them by name. */
extern struct state tramp_before, tramp_inside, tramp_answer, tramp_after;
extern uint64_t tramp_target, tramp_flags, tramp_inside_return;
extern uint64_t tramp_slow_enter_count, tramp_slow_return_count, tramp_not_module_count, tramp_restore_count;
extern uint64_t tramp_callout_count, tramp_stub_desc, tramp_stub_r10, tramp_stub_sp;
extern const char tramp_call_returns[], tramp_body[];
void tramp_call(void);
void tramp_slow_enter(void);
void tramp_slow_return(void);
void tramp_not_module(void);
void tramp_restore(void);
void tramp_callout(void);

#define SAVE_REGISTERS(to)                                                                                             \
  "  mov %rax, " #to "+0(%rip)\n  mov %rcx, " #to "+8(%rip)\n  mov %rdx, " #to "+16(%rip)\n"                           \
  "  mov %rbx, " #to "+24(%rip)\n  mov %rsp, " #to "+32(%rip)\n  mov %rbp, " #to "+40(%rip)\n"                         \
  "  mov %rsi, " #to "+48(%rip)\n  mov %rdi, " #to "+56(%rip)\n  mov %r8, " #to "+64(%rip)\n"                          \
  "  mov %r9, " #to "+72(%rip)\n  mov %r10, " #to "+80(%rip)\n  mov %r11, " #to "+88(%rip)\n"                          \
  "  mov %r12, " #to "+96(%rip)\n  mov %r13, " #to "+104(%rip)\n  mov %r14, " #to "+112(%rip)\n"                       \
  "  mov %r15, " #to "+120(%rip)\n"                                                                                    \
  "  mov $" STATE_MASK ", %eax\n  xor %edx, %edx\n"                                                                    \
  "  lea " #to "+192(%rip), %rcx\n"                                                                                    \
  "  xsave64 (%rcx)\n"
#define LOAD_REGISTERS(from) /* but rsp */                                                                             \
  "  mov $" STATE_MASK ", %eax\n  xor %edx, %edx\n"                                                                    \
  "  lea " #from "+192(%rip), %rcx\n"                                                                                  \
  "  xrstor64 (%rcx)\n"                                                                                                \
  "  mov " #from "+0(%rip), %rax\n  mov " #from "+8(%rip), %rcx\n  mov " #from "+16(%rip), %rdx\n"                     \
  "  mov " #from "+24(%rip), %rbx\n  mov " #from "+40(%rip), %rbp\n  mov " #from "+48(%rip), %rsi\n"                   \
  "  mov " #from "+56(%rip), %rdi\n  mov " #from "+64(%rip), %r8\n  mov " #from "+72(%rip), %r9\n"                     \
  "  mov " #from "+80(%rip), %r10\n  mov " #from "+88(%rip), %r11\n  mov " #from "+96(%rip), %r12\n"                   \
  "  mov " #from "+104(%rip), %r13\n  mov " #from "+112(%rip), %r14\n  mov " #from "+120(%rip), %r15\n"
/* What every stub of the fake region head does first: r11 is the descriptor. Only flags change. */
#define STUB(count)                                                                                                    \
  "  incq " #count "(%rip)\n"                                                                                          \
  "  mov %r11, tramp_stub_desc(%rip)\n  mov %r10, tramp_stub_r10(%rip)\n  mov %rsp, tramp_stub_sp(%rip)\n"
#define GO_ON(field)                                                                                                   \
  "  mov " #field "(%r11), %rax\n  mov %rax, tramp_next(%rip)\n"                                                       \
  "  mov -8(%rsp), %rax\n  mov -16(%rsp), %rdx\n  mov -24(%rsp), %r11\n  mov -32(%rsp), %r10\n"                        \
  "  jmp *tramp_next(%rip)\n"
#define CELL(name, bytes) ".globl " #name "\n" #name ": .skip " #bytes "\n"

/* clang-format off */
__asm__(
    ".text\n"
    ".globl tramp_call, tramp_call_returns, tramp_body\n"
    "tramp_call:\n"
    "  push %rbx\n  push %rbp\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, tramp_sp(%rip)\n"
    "  sub $64, %rsp\n"
    "  mov $" STATE_MASK ", %eax\n  xor %edx, %edx\n"
    "  lea tramp_host+192(%rip), %rcx\n"
    "  xsave64 (%rcx)\n"
    LOAD_REGISTERS(tramp_before)
    "  mov tramp_before+32(%rip), %rsp\n"
    "  pushq tramp_flags(%rip)\n"
    "  popfq\n"
    "  call *tramp_target(%rip)\n"
    "tramp_call_returns:\n"
    SAVE_REGISTERS(tramp_after)
    "  mov tramp_sp(%rip), %rsp\n"
    "  pushq $0x202\n"
    "  popfq\n"
    "  mov $" STATE_MASK ", %eax\n  xor %edx, %edx\n"
    "  lea tramp_host+192(%rip), %rcx\n"
    "  xrstor64 (%rcx)\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbp\n  pop %rbx\n"
    "  ret\n"
    /* The function called: after its displaced instructions. */
    "tramp_body:\n"
    SAVE_REGISTERS(tramp_inside)
    "  mov (%rsp), %rax\n"
    "  mov %rax, tramp_inside_return(%rip)\n"
    LOAD_REGISTERS(tramp_answer)
    "  ret\n"
    ".globl tramp_slow_enter, tramp_slow_return, tramp_not_module, tramp_restore, tramp_callout\n"
    "tramp_slow_enter:\n" STUB(tramp_slow_enter_count) GO_ON(8)
    "tramp_slow_return:\n" STUB(tramp_slow_return_count) "  mov 24(%r11), %r11\n  jmp *%r11\n"
    "tramp_not_module:\n" STUB(tramp_not_module_count) GO_ON(8)
    "tramp_restore:\n" STUB(tramp_restore_count) GO_ON(8)
    "tramp_callout:\n" STUB(tramp_callout_count) GO_ON(64)
    ".bss\n"
    ".balign 64\n"
    CELL(tramp_before, 4288) CELL(tramp_inside, 4288) CELL(tramp_answer, 4288) CELL(tramp_after, 4288)
    "tramp_host: .skip 4288\n"
    CELL(tramp_target, 8) CELL(tramp_flags, 8) CELL(tramp_inside_return, 8)
    CELL(tramp_slow_enter_count, 8) CELL(tramp_slow_return_count, 8) CELL(tramp_not_module_count, 8)
    CELL(tramp_restore_count, 8) CELL(tramp_callout_count, 8)
    CELL(tramp_stub_desc, 8) CELL(tramp_stub_r10, 8) CELL(tramp_stub_sp, 8)
    "tramp_sp: .skip 8\n"
    "tramp_next: .skip 8\n"
    ".text\n");
/* clang-format on */

/* No room for a detail record: goes on without it. */
extern uint64_t tramp_detail_full_count;
void tramp_detail_full(void);
/* clang-format off */
__asm__(
    ".text\n"
    ".globl tramp_detail_full\n"
    "tramp_detail_full:\n" STUB(tramp_detail_full_count)
    "  mov %rdx, tramp_next(%rip)\n"
    "  mov -8(%rsp), %rax\n  mov -16(%rsp), %rdx\n  mov -24(%rsp), %r11\n  mov -32(%rsp), %r10\n"
    "  jmp *tramp_next(%rip)\n"
    ".bss\n" CELL(tramp_detail_full_count, 8)
    ".text\n");
/* clang-format on */

/* One mapping: the region head, descriptor, trampoline, function, control page and segment within reach. */
struct arena {
  struct ct_region_head head;
  struct ct_hook_desc desc;
  _Alignas(4096) uint8_t code[4096];
  _Alignas(4096) uint8_t function[4096];
  _Alignas(4096) struct ct_control_page control;
};

static struct arena *arena;
static struct ct_ring_event *segment; /* CT_SEGMENT_EVENTS of them */
static uint8_t *details;              /* likewise, of the detail lane; and as many bytes after it */
static size_t first;                  /* where the thread's next event goes, at the beginning of a test */
static uint8_t *table;                /* CT_TABLE_BYTES, lazily there */
static uint8_t *stack, *store;
static bool have_xsave;

static inline uint64_t
state_components(void)
{
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & bit_OSXSAVE) == 0) {
    return 0;
  }
  __asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return eax & 0xe7;
}

static inline void
component(unsigned index, unsigned *offset, unsigned *bytes)
{
  unsigned ecx, edx;
  __cpuid_count(0xd, index, *bytes, *offset, ecx, edx);
}

static inline void
fill_pattern(struct state *state, uint8_t seed)
{
  memset(state, 0, sizeof(*state));
  for (unsigned r = 0; r < 16; r++) {
    state->reg[r] = 0x0101010101010101ull * (uint8_t)(seed + r) ^ (uint64_t)r << 60;
  }
  uint8_t *v = state->vectors;
  uint16_t control_word = seed % 2 != 0 ? 0x0f7f : 0x027f; /* precision and rounding */
  uint16_t status_word = seed % 2 != 0 ? 0x1800 : 0x3000;  /* top of stack */
  uint32_t mxcsr = seed % 2 != 0 ? 0x7fa0 : 0x3f80;        /* rounding, masks, a sticky flag */
  memcpy(v, &control_word, 2);
  memcpy(v + 2, &status_word, 2);
  v[4] = 0xff; /* all eight in use */
  memcpy(v + 24, &mxcsr, 4);
  for (unsigned r = 0; r < 8; r++) {
    for (unsigned i = 0; i < 10; i++) {
      v[32 + r * 16 + i] = (uint8_t)(seed * 3 + r * 16 + i + 1);
    }
  }
  for (unsigned i = 0; i < 256; i++) {
    v[160 + i] = (uint8_t)(seed * 5 + i);
  }
  uint64_t components = state_components();
  memcpy(v + 512, &components, 8);
  for (unsigned c = 2; c < 8; c++) {
    unsigned offset, bytes;
    if ((components >> c & 1) == 0) {
      continue;
    }
    component(c, &offset, &bytes);
    assert_true(offset + bytes <= STATE_BYTES);
    for (unsigned i = 0; i < bytes; i++) {
      v[offset + i] = (uint8_t)(seed * 7 + c * 31 + i);
    }
  }
}

static inline void
assert_same_state(const char *where, const struct state *got, const struct state *expected, uint64_t rsp)
{
  for (unsigned r = 0; r < 16; r++) {
    uint64_t want = r == 4 ? rsp : expected->reg[r];
    if (got->reg[r] != want) {
      fail_msg("%s: register %u is %#llx, not %#llx", where, r, (unsigned long long)got->reg[r],
               (unsigned long long)want);
    }
  }
  if (memcmp(got->vectors, expected->vectors, 5) != 0) {
    fail_msg("%s: x87 control, status or tags", where);
  }
  if (memcmp(got->vectors + 24, expected->vectors + 24, 4) != 0) {
    fail_msg("%s: mxcsr", where);
  }
  for (unsigned r = 0; r < 8; r++) {
    if (memcmp(got->vectors + 32 + r * 16, expected->vectors + 32 + r * 16, 10) != 0) {
      fail_msg("%s: st(%u)", where, r);
    }
  }
  if (memcmp(got->vectors + 160, expected->vectors + 160, 256) != 0) {
    fail_msg("%s: xmm registers", where);
  }
  for (unsigned c = 2; c < 8; c++) {
    unsigned offset, bytes;
    if ((state_components() >> c & 1) == 0) {
      continue;
    }
    component(c, &offset, &bytes);
    if (memcmp(got->vectors + offset, expected->vectors + offset, bytes) != 0) {
      fail_msg("%s: vector component %u", where, c);
    }
  }
}

static inline void
mark_text(uint64_t address, uint8_t kind)
{
  table[address >> CT_TABLE_SHIFT] = kind;
}

static inline struct ct_trampoline_spec
spec_of(uint32_t fn, uint8_t mode, uint8_t callout, struct ct_window *window)
{
  /* push %rbx; mov 16(%rsp), %rbx; pop %rbx, then on to the body: the displaced ones move rsp and come back. */
  static const uint8_t bytes[] = {0x53, 0x48, 0x8b, 0x5c, 0x24, 0x10, 0x5b, 0xff, 0x25, 0, 0, 0, 0};
  uint64_t body = (uint64_t)tramp_body;
  memset(arena->function, 0xcc, sizeof(arena->function));
  memcpy(arena->function, bytes, sizeof(bytes));
  memcpy(arena->function + sizeof(bytes), &body, 8);
  assert_int_equal(ct_window_find(arena->function, sizeof(bytes), (uint64_t)arena->function, 5, window), CT_WINDOW_OK);
  return (struct ct_trampoline_spec){.fn = fn,
                                     .mode = mode,
                                     .callout = callout,
                                     .store_delta = (int64_t)(store - stack),
                                     .table = (uint64_t)table,
                                     .function = (uint64_t)arena->function,
                                     .head = (uint64_t)&arena->head,
                                     .desc = (uint64_t)&arena->desc,
                                     .code = arena->function,
                                     .window = window};
}

static inline void
emit(uint32_t fn, uint8_t mode, uint8_t callout)
{
  struct ct_window window;
  struct ct_trampoline_spec spec = spec_of(fn, mode, callout, &window);
  memset(arena->code, 0xcc, sizeof(arena->code));
  struct ct_code out = {.bytes = arena->code, .capacity = CT_TRAMPOLINE_BYTES_MAX, .address = (uint64_t)arena->code};
  assert_int_equal(ct_trampoline_emit(&spec, &out, &arena->desc), CT_WINDOW_OK);
  assert_false(out.overflow);
  assert_int_equal(arena->code[out.length], 0xcc);
  const struct ct_hook_desc *desc = &arena->desc;
  assert_int_equal(desc->enter, (uint64_t)arena->code);
  assert_int_equal(desc->function, (uint64_t)arena->function);
  assert_int_equal(desc->fn, fn);
  assert_int_equal(desc->mode, mode);
  assert_int_equal(desc->callout, callout);
  assert_int_equal(desc->map_count, 2); /* push, mov */
  assert_true(desc->enter < desc->relocated && desc->relocated <= desc->after_callout);
  assert_int_equal(desc->relocated == desc->after_callout, callout == CT_CALLOUT_NONE);
  assert_true(desc->after_callout < desc->relocated_end);
}

static struct ct_detail_form form = {.stack = 128};
static struct ct_values_form values_form = {.integers = 3, .results = CT_VALUES_RAX};

/* A call-through trampoline that records arguments and result. */
static inline void
emit_values(uint32_t fn, uint8_t values)
{
  struct ct_window window;
  struct ct_trampoline_spec spec = spec_of(fn, CT_HOOK_FULL, CT_CALLOUT_NONE, &window);
  spec.values = values;
  spec.detail = form;
  spec.form = values_form;
  memset(arena->code, 0xcc, sizeof(arena->code));
  struct ct_code out = {.bytes = arena->code, .capacity = CT_TRAMPOLINE_BYTES_MAX, .address = (uint64_t)arena->code};
  assert_int_equal(ct_trampoline_emit(&spec, &out, &arena->desc), CT_WINDOW_OK);
  assert_int_equal(arena->desc.values, values);
  if (values == CT_HOOK_VALUES_FEW) {
    struct ct_hook_desc desc;
    uint8_t buffer[CT_TRAMPOLINE_BYTES_MAX];
    struct ct_code plain = {.bytes = buffer, .capacity = sizeof(buffer), .address = (uint64_t)arena->code};
    spec.values = CT_HOOK_VALUES_NONE;
    assert_int_equal(ct_trampoline_emit(&spec, &plain, &desc), CT_WINDOW_OK);
    assert_in_range(out.length, plain.length, plain.length + ct_trampoline_values_bytes(values_form));
  }
}

static uint64_t tag;

/* The segment has room for so many events. */
static inline void
leave_room(size_t events)
{
  first = CT_SEGMENT_EVENTS - events;
  arena->control.cursor = (uint64_t)(segment + first) | tag;
}

static inline void
prepare(void)
{
  memset(&arena->control, 0, sizeof(arena->control));
  memset(segment, 0, CT_SEGMENT_BYTES);
  memset(store, 0x33, STACK_BYTES);
  tag = tag % 3 + 1;
  leave_room(CT_SEGMENT_EVENTS);
  arena->control.stack_lo = (uint64_t)stack;
  arena->control.stack_len = STACK_BYTES;
  arena->control.stack_hi = (uint64_t)stack + STACK_BYTES;
  arena->control.detail_cursor = (uint64_t)details;
  memset(details, 0x55, CT_SEGMENT_STRIDE);
  tramp_detail_full_count = 0;
  arena->control.table = (uint64_t)table;
  arena->control.countdown = 1;
  mark_text((uint64_t)tramp_call_returns, CT_TEXT_MODULE);
  tramp_slow_enter_count = tramp_slow_return_count = tramp_not_module_count = tramp_restore_count = 0;
  tramp_callout_count = tramp_stub_desc = tramp_stub_r10 = tramp_stub_sp = 0;
  tramp_target = (uint64_t)arena->code;
  tramp_flags = 0x202;
}

static inline uint64_t
ra_slot_address(void)
{
  return (uint64_t)(stack + STACK_BYTES / 2) - 8; /* of the call's return address */
}

/* Calls through the trampoline; all registers must survive, and the function be reached exactly once. */
static inline void
call_through(uint8_t seed)
{
  fill_pattern(&tramp_before, seed);
  fill_pattern(&tramp_answer, (uint8_t)(seed + 1));
  tramp_before.reg[4] = (uint64_t)(stack + STACK_BYTES / 2);
  memset(&tramp_inside, 0, sizeof(tramp_inside));
  memset(&tramp_after, 0, sizeof(tramp_after));
  memset(stack, 0x44, STACK_BYTES);
  tramp_call();
  assert_same_state("in the function", &tramp_inside, &tramp_before, ra_slot_address());
  assert_same_state("after the call", &tramp_after, &tramp_answer, ra_slot_address() + 8);
  for (size_t i = STACK_BYTES / 2; i < STACK_BYTES; i++) {
    assert_int_equal(stack[i], 0x44); /* nothing above the return-address slot is touched */
  }
}

static inline void
assert_event(size_t index, enum ct_kind kind, uint32_t fn, uint64_t not_before, uint64_t not_after)
{
  const struct ct_ring_event *event = &segment[first + index];
  assert_int_equal(event->word >> 32, (uint32_t)ra_slot_address());
  assert_int_equal((uint32_t)event->word, fn << CT_WORD_FN_SHIFT | (uint32_t)kind << CT_WORD_KIND_SHIFT | tag);
  assert_in_range(event->tsc, not_before, not_after);
}

static inline void
assert_reserved(size_t events)
{
  assert_int_equal(arena->control.cursor, (uint64_t)(segment + first + events) | tag);
}

static inline void
assert_stubs(uint64_t enter, uint64_t back, uint64_t not_module, uint64_t restore, uint64_t callout)
{
  assert_int_equal(tramp_slow_enter_count, enter);
  assert_int_equal(tramp_slow_return_count, back);
  assert_int_equal(tramp_not_module_count, not_module);
  assert_int_equal(tramp_restore_count, restore);
  assert_int_equal(tramp_callout_count, callout);
  if (enter + back + not_module + restore + callout != 0) {
    assert_int_equal(tramp_stub_desc, (uint64_t)&arena->desc);
    assert_int_equal(tramp_stub_sp, ra_slot_address());
  }
}

static inline uint64_t
clock_now(void)
{
  return __builtin_ia32_rdtsc();
}

#define NEED_XSAVE                                                                                                     \
  do {                                                                                                                 \
    if (!have_xsave)                                                                                                   \
      skip();                                                                                                          \
  } while (0)

static inline void
assert_value(size_t index, enum ct_other which, uint64_t value)
{
  const struct ct_ring_event *event = &segment[first + index];
  assert_int_equal(event->word >> 32, (uint32_t)ra_slot_address());
  assert_int_equal((uint32_t)event->word, (uint32_t)which << CT_WORD_FN_SHIFT | tag);
  assert_int_equal(event->tsc, value);
}

static uint64_t old_gs;

static inline int
set_up(void **state)
{
  have_xsave = state_components() != 0;
  arena = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  table = mmap(NULL, CT_TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  store = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  /* Its address has CT_CURSOR_VALID; after it lies nothing. */
  segment = mmap((void *)0x7e9000010000, CT_SEGMENT_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  details = mmap((void *)0x7e9000030000, CT_SEGMENT_STRIDE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (details == MAP_FAILED) {
    return -1;
  }
  if (arena == MAP_FAILED || table == MAP_FAILED || stack == MAP_FAILED || store == MAP_FAILED ||
      segment == MAP_FAILED) {
    return -1;
  }
  arena->head = (struct ct_region_head){.slow_enter = (uint64_t)tramp_slow_enter,
                                        .slow_return = (uint64_t)tramp_slow_return,
                                        .not_module = (uint64_t)tramp_not_module,
                                        .callout_park = (uint64_t)tramp_callout,
                                        .callout_request = (uint64_t)tramp_callout,
                                        .callout_find_fde = (uint64_t)tramp_callout,
                                        .callout_seccomp = (uint64_t)tramp_callout,
                                        .callout_mlockall = (uint64_t)tramp_callout,
                                        .detail_full = (uint64_t)tramp_detail_full,
                                        .restore_ra_slot = (uint64_t)tramp_restore,
                                        .restore_passthrough = (uint64_t)tramp_restore};
  syscall(SYS_arch_prctl, 0x1004 /* ARCH_GET_GS */, &old_gs);
  return (int)syscall(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, &arena->control);
}

static inline int
tear_down(void **state)
{
  int code = (int)syscall(SYS_arch_prctl, 0x1001, old_gs);
  munmap(segment, CT_SEGMENT_BYTES);
  munmap(details, CT_SEGMENT_STRIDE);
  munmap(arena, sizeof(*arena));
  munmap(table, CT_TABLE_BYTES);
  munmap(stack, STACK_BYTES);
  munmap(store, STACK_BYTES);
  return code;
}

#endif
