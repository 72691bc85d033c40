/* SPDX-License-Identifier: MIT */
/*
 * Trampolines are emitted into this process and called through, with a control page at gs, a byte table, a segment,
 * a return store and a region head whose stubs count and go on as the agent does when it records nothing.
 *
 * Every register is patterned before the call and found again by the function (general, x87, mxcsr, vectors up to
 * zmm and the masks as the machine has them); the function patterns them anew and the caller must find that. All but
 * the flags must survive both ways.
 *
 * The rows of the unwind template are held against the truth at every single instruction: the trap flag is on
 * during a call, and at each stop inside the trampoline the rows must give the caller's rsp and return address.
 *
 * Longer than others: all cases go through one caller, with one control page and one set of patterns.
 */
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
_Static_assert(offsetof(struct state, vectors) == 192, "harness");

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

__asm__(
    ".text\n"
    ".globl tramp_call, tramp_call_returns, tramp_body\n"
    "tramp_call:\n"
    "  push %rbx\n  push %rbp\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, tramp_sp(%rip)\n"
    "  sub $64, %rsp\n"
    "  mov $" STATE_MASK ", %eax\n  xor %edx, %edx\n"
    "  lea tramp_host+192(%rip), %rcx\n"
    "  xsave64 (%rcx)\n" LOAD_REGISTERS(
        tramp_before) "  mov tramp_before+32(%rip), %rsp\n"
                      "  pushq tramp_flags(%rip)\n"
                      "  popfq\n"
                      "  call *tramp_target(%rip)\n"
                      "tramp_call_returns:\n" SAVE_REGISTERS(
                          tramp_after) "  mov tramp_sp(%rip), %rsp\n"
                                       "  pushq $0x202\n"
                                       "  popfq\n"
                                       "  mov $" STATE_MASK ", %eax\n  xor %edx, %edx\n"
                                       "  lea tramp_host+192(%rip), %rcx\n"
                                       "  xrstor64 (%rcx)\n"
                                       "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbp\n  pop %rbx\n"
                                       "  ret\n"
                                       /* The function called: after its displaced instructions. */
                                       "tramp_body:\n" SAVE_REGISTERS(
                                           tramp_inside) "  mov (%rsp), %rax\n"
                                                         "  mov %rax, tramp_inside_return(%rip)\n" LOAD_REGISTERS(
                                                             tramp_answer) "  ret\n"
                                                                           ".globl tramp_slow_enter, "
                                                                           "tramp_slow_return, tramp_not_module, "
                                                                           "tramp_restore, tramp_callout\n"
                                                                           "tramp_slow_enter:\n" STUB(tramp_slow_enter_count) GO_ON(8) "tramp_slow_return:\n" STUB(
                                                                               tramp_slow_return_count) "  mov "
                                                                                                        "24(%r11), "
                                                                                                        "%r11\n  jmp "
                                                                                                        "*%r11\n"
                                                                                                        "tramp_not_"
                                                                                                        "module:"
                                                                                                        "\n" STUB(tramp_not_module_count) GO_ON(8) "tramp_restore:\n" STUB(
                                                                                                            tramp_restore_count) GO_ON(8) "tramp_callout:\n" STUB(tramp_callout_count)
                                                                                                            GO_ON(
                                                                                                                64) ".b"
                                                                                                                    "ss"
                                                                                                                    "\n"
                                                                                                                    ".b"
                                                                                                                    "al"
                                                                                                                    "ig"
                                                                                                                    "n "
                                                                                                                    "64"
                                                                                                                    "\n" CELL(tramp_before, 4288) CELL(
                                                                                                                        tramp_inside,
                                                                                                                        4288) CELL(tramp_answer,
                                                                                                                                   4288)
                                                                                                                        CELL(tramp_after, 4288) "tramp_host: .skip 4288\n" CELL(
                                                                                                                            tramp_target,
                                                                                                                            8) CELL(tramp_flags,
                                                                                                                                    8)
                                                                                                                            CELL(
                                                                                                                                tramp_inside_return,
                                                                                                                                8) CELL(tramp_slow_enter_count,
                                                                                                                                        8)
                                                                                                                                CELL(
                                                                                                                                    tramp_slow_return_count,
                                                                                                                                    8) CELL(tramp_not_module_count,
                                                                                                                                            8)
                                                                                                                                    CELL(
                                                                                                                                        tramp_restore_count,
                                                                                                                                        8) CELL(tramp_callout_count,
                                                                                                                                                8)
                                                                                                                                        CELL(
                                                                                                                                            tramp_stub_desc,
                                                                                                                                            8) CELL(tramp_stub_r10,
                                                                                                                                                    8)
                                                                                                                                            CELL(
                                                                                                                                                tramp_stub_sp,
                                                                                                                                                8) "tramp_sp: .skip 8\n"
                                                                                                                                                   "tramp_next: .skip 8\n"
                                                                                                                                                   ".text\n");

/* No room for a detail record: goes on without it. */
extern uint64_t tramp_detail_full_count;
void tramp_detail_full(void);
__asm__(".text\n"
        ".globl tramp_detail_full\n"
        "tramp_detail_full:\n" STUB(tramp_detail_full_count) "  mov %rdx, tramp_next(%rip)\n"
                                                             "  mov -8(%rsp), %rax\n  mov -16(%rsp), %rdx\n  mov "
                                                             "-24(%rsp), %r11\n  mov -32(%rsp), %r10\n"
                                                             "  jmp *tramp_next(%rip)\n"
                                                             ".bss\n" CELL(tramp_detail_full_count, 8) ".text\n");

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

static uint64_t
state_components(void)
{
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & bit_OSXSAVE) == 0) {
    return 0;
  }
  __asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return eax & 0xe7;
}

static void
component(unsigned index, unsigned *offset, unsigned *bytes)
{
  unsigned ecx, edx;
  __cpuid_count(0xd, index, *bytes, *offset, ecx, edx);
}

static void
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

static void
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

static void
mark_text(uint64_t address, uint8_t kind)
{
  table[address >> CT_TABLE_SHIFT] = kind;
}

static struct ct_trampoline_spec
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

static void
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
static void
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
static void
leave_room(size_t events)
{
  first = CT_SEGMENT_EVENTS - events;
  arena->control.cursor = (uint64_t)(segment + first) | tag;
}

static void
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

static uint64_t
ra_slot_address(void)
{
  return (uint64_t)(stack + STACK_BYTES / 2) - 8; /* of the call's return address */
}

/* Calls through the trampoline; all registers must survive, and the function be reached exactly once. */
static void
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

static void
assert_event(size_t index, enum ct_kind kind, uint32_t fn, uint64_t not_before, uint64_t not_after)
{
  const struct ct_ring_event *event = &segment[first + index];
  assert_int_equal(event->word >> 32, (uint32_t)ra_slot_address());
  assert_int_equal((uint32_t)event->word, fn << CT_WORD_FN_SHIFT | (uint32_t)kind << CT_WORD_KIND_SHIFT | tag);
  assert_in_range(event->tsc, not_before, not_after);
}

static void
assert_reserved(size_t events)
{
  assert_int_equal(arena->control.cursor, (uint64_t)(segment + first + events) | tag);
}

static void
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

static uint64_t
clock_now(void)
{
  return __builtin_ia32_rdtsc();
}

#define NEED_XSAVE                                                                                                     \
  do {                                                                                                                 \
    if (!have_xsave)                                                                                                   \
      skip();                                                                                                          \
  } while (0)

static void
a_full_hook_records_both(void **state)
{
  static const uint32_t ids[] = {0, 1, 0x123456, CT_FN_MAX};
  NEED_XSAVE;
  for (size_t i = 0; i < 12; i++) {
    uint32_t fn = ids[i % 4];
    emit(fn, CT_HOOK_FULL, CT_CALLOUT_NONE);
    prepare();
    uint64_t begin = clock_now();
    call_through((uint8_t)(i * 2));
    uint64_t end = clock_now();
    assert_stubs(0, 0, 0, 0, 0);
    assert_reserved(2);
    assert_event(0, CT_KIND_ENTER, fn, begin, end);
    assert_event(1, CT_KIND_RETURN, fn, segment[first + 0].tsc, end);
    assert_int_equal(segment[first + 2].word, 0);
    /* The body returned to the trampoline, the truth was in the store, and nothing else of it was written. */
    assert_int_equal(tramp_inside_return, arena->desc.ret_point);
    uint64_t kept;
    size_t offset = ra_slot_address() - (uint64_t)stack;
    memcpy(&kept, store + offset, 8);
    assert_int_equal(kept, (uint64_t)tramp_call_returns);
    for (size_t at = 0; at < STACK_BYTES; at++) {
      if (at < offset || at >= offset + 8) {
        assert_int_equal(store[at], 0x33);
      }
    }
  }
}

static void
assert_value(size_t index, enum ct_other which, uint64_t value)
{
  const struct ct_ring_event *event = &segment[first + index];
  assert_int_equal(event->word >> 32, (uint32_t)ra_slot_address());
  assert_int_equal((uint32_t)event->word, (uint32_t)which << CT_WORD_FN_SHIFT | tag);
  assert_int_equal(event->tsc, value);
}

/* Two arguments after the enter, the result before the return; or, without room for all of either, the agent is asked
 * before anything is taken. */
static void
a_full_hook_records_values(void **state)
{
  NEED_XSAVE;
  for (size_t room = 0; room < 8; room++) {
    emit_values(0x4321, CT_HOOK_VALUES_FEW);
    prepare();
    leave_room(room);
    uint64_t begin = clock_now();
    call_through((uint8_t)(180 + room));
    uint64_t end = clock_now();
    assert_stubs(room < 3, room >= 3 && room < 5, 0, 0, 0);
    assert_reserved(room < 3 ? 0 : room < 5 ? 3 : 5);
    if (room >= 3) {
      assert_event(0, CT_KIND_ENTER, 0x4321, begin, end);
      assert_value(1, CT_OTHER_ARG_1, tramp_before.reg[7]);
      assert_value(2, CT_OTHER_ARG_2, tramp_before.reg[6]);
    }
    if (room >= 5) {
      assert_value(3, CT_OTHER_RESULT, tramp_answer.reg[0]);
      assert_event(4, CT_KIND_RETURN, 0x4321, segment[first].tsc, end);
    }
    size_t written = room < 3 ? 0 : room < 5 ? 3 : 5;
    for (size_t i = first + written; i < CT_SEGMENT_EVENTS; i++) {
      assert_int_equal(segment[i].word | segment[i].tsc, 0);
    }
  }
}

static void
assert_further(size_t index, uint32_t which, const void *value)
{
  uint64_t number;
  memcpy(&number, value, sizeof(number));
  assert_value(index, (enum ct_other)(CT_OTHER_VALUE | which << 4), number);
}

/* Those of values_form in their order; gives how many. */
static size_t
assert_arguments(size_t at, bool has_stack)
{
  static const unsigned order[6] = {7, 6, 2, 1, 8, 9}; /* in struct state */
  size_t begin = at;
  for (uint32_t i = 0; i < 6; i++) {
    if ((values_form.integers >> i & 1) != 0 && i < 2) {
      assert_value(at++, i == 0 ? CT_OTHER_ARG_1 : CT_OTHER_ARG_2, tramp_before.reg[order[i]]);
    } else if ((values_form.integers >> i & 1) != 0) {
      assert_further(at++, CT_RING_VALUE_INTEGER + i, &tramp_before.reg[order[i]]);
    }
  }
  for (uint32_t i = 0; i < 8; i++) {
    if ((values_form.vectors >> i & 1) != 0) {
      assert_further(at++, CT_RING_VALUE_VECTOR + i, tramp_before.vectors + 160 + i * 16);
    }
  }
  for (uint32_t i = 0; has_stack && i < CT_VALUES_STACK_WORDS; i++) {
    if ((values_form.stack >> i & 1) == 0) {
      continue;
    }
    assert_further(at++, CT_RING_VALUE_STACK + i, (const uint8_t *)ra_slot_address() + 8 + i * 8);
  }
  return at - begin;
}

static size_t
assert_results(size_t at)
{
  size_t begin = at;
  if ((values_form.results & CT_VALUES_RAX) != 0) {
    assert_value(at++, CT_OTHER_RESULT, tramp_answer.reg[0]);
  }
  if ((values_form.results & CT_VALUES_RDX) != 0) {
    assert_further(at++, CT_RING_VALUE_RESULT_2, &tramp_answer.reg[2]);
  }
  if ((values_form.results & CT_VALUES_XMM0) != 0) {
    assert_further(at++, CT_RING_VALUE_XMM0, tramp_answer.vectors + 160);
  }
  if ((values_form.results & CT_VALUES_XMM1) != 0) {
    assert_further(at++, CT_RING_VALUE_XMM1, tramp_answer.vectors + 176);
  }
  return at - begin;
}

/* What a function takes and gives, and nothing else; of the stack what is before its end. */
static void
a_full_hook_records_what_the_function_takes(void **state)
{
  NEED_XSAVE;
  for (uint32_t turn = 0; turn < 200; turn++) {
    uint32_t random = (turn + 1) * 2654435761u;
    values_form = (struct ct_values_form){.integers = turn == 0 ? 0x3f : random & 0x3f,
                                          .vectors = turn == 0 ? 0xff : random >> 8 & random >> 16 & 0xff,
                                          .stack = turn == 0 ? 0xaaaaaaaa : random & random >> 5 & random >> 11,
                                          .results = turn == 0 ? 15 : random >> 20 & 15};
    bool has_stack = turn % 3 != 1;
    emit_values(0x4321, CT_HOOK_VALUES_FEW);
    prepare();
    memset((uint8_t *)ra_slot_address() + 8, (int)(turn + 3), CT_VALUES_STACK_WORDS * 8);
    unsigned words = values_form.stack != 0 ? 32 - (unsigned)__builtin_clz(values_form.stack) : 0;
    uint64_t below_end = 8 + words * 8u - (has_stack ? 0 : 1);
    arena->control.stack_len = ra_slot_address() + below_end - (uint64_t)stack;
    uint64_t begin = clock_now();
    call_through((uint8_t)turn);
    uint64_t end = clock_now();
    assert_stubs(0, 0, 0, 0, 0);
    assert_event(0, CT_KIND_ENTER, 0x4321, begin, end);
    size_t count = 1 + assert_arguments(1, has_stack);
    count += assert_results(count);
    assert_event(count, CT_KIND_RETURN, 0x4321, segment[first].tsc, end);
    assert_reserved(count + 1);
  }
  values_form = (struct ct_values_form){.integers = 3, .results = CT_VALUES_RAX};
}

/* What the record of an enter at so many bytes into the segment says, and of a return. */
static void
assert_detail_enter(size_t at, uint32_t fn, uint64_t stack_bytes)
{
  static const unsigned order[8] = {7, 6, 2, 1, 8, 9, 0, 10}; /* in struct state */
  struct ct_detail_enter enter;
  memcpy(&enter, details + at, sizeof(enter));
  assert_int_equal(enter.record.word, ra_slot_address() << 32 | fn << CT_WORD_FN_SHIFT | CT_WORD_ENTER);
  assert_int_equal(enter.record.sp, ra_slot_address());
  assert_int_equal(enter.record.bp, tramp_before.reg[5]);
  assert_int_equal(enter.return_address, (uint64_t)tramp_call_returns);
  for (unsigned i = 0; i < 8; i++) {
    assert_int_equal(enter.registers[i], tramp_before.reg[order[i]]);
  }
  const uint8_t *next = details + at + sizeof(enter);
  for (unsigned i = 0; form.vectors != 0 && i < CT_DETAIL_VECTORS; i++, next += 8) {
    assert_memory_equal(next, tramp_before.vectors + 160 + i * 16, 8);
  }
  if (form.stack != 0) {
    uint64_t got, returns = (uint64_t)tramp_call_returns;
    memcpy(&got, next, 8);
    assert_int_equal(got, stack_bytes);
    next += 8;
    assert_memory_equal(next, &returns, 8);
    for (size_t i = 8; i < stack_bytes; i++) {
      assert_int_equal(next[i], 0x44);
    }
    next += stack_bytes;
  }
  for (; next < details + at + ct_detail_enter_bytes(form); next++) {
    assert_int_equal(*next, 0x55);
  }
}

static void
assert_detail_return(size_t at, uint32_t fn)
{
  struct ct_detail_return leave;
  memcpy(&leave, details + at, sizeof(leave));
  assert_int_equal(leave.record.word, ra_slot_address() << 32 | fn << CT_WORD_FN_SHIFT | CT_WORD_RETURN);
  assert_int_equal(leave.record.sp, ra_slot_address());
  assert_int_equal(leave.rax, tramp_answer.reg[0]);
  assert_int_equal(leave.rdx, tramp_answer.reg[2]);
  assert_memory_equal(&leave.xmm0, tramp_answer.vectors + 160, 8);
  assert_memory_equal(&leave.xmm1, tramp_answer.vectors + 176, 8);
}

/* A record for each way, and events that say where they are; of the stack as much as there is. */
static void
a_full_hook_records_detail(void **state)
{
  static const struct ct_detail_form forms[] = {{0, 0}, {0, 1}, {8, 0}, {128, 0}, {128, 1}, {512, 0}, {512, 1}};
  static const uint64_t until_end[] = {8, 16, 60, 120, 128, 4096};
  NEED_XSAVE;
  for (size_t i = 0; i < 42; i++) {
    form = forms[i / 6];
    uint64_t end_of_stack = until_end[i % 6];
    emit_values(CT_FN_MAX - 3, CT_HOOK_VALUES_DETAIL);
    prepare();
    arena->control.stack_len = ra_slot_address() + end_of_stack - (uint64_t)stack;
    uint64_t begin = clock_now();
    call_through((uint8_t)(60 + i));
    uint64_t end = clock_now();
    assert_stubs(0, 0, 0, 0, 0);
    assert_int_equal(tramp_detail_full_count, 0);
    assert_reserved(4);
    size_t bytes = ct_detail_enter_bytes(form);
    assert_value(0, CT_OTHER_DETAIL, (uint64_t)details);
    assert_event(1, CT_KIND_ENTER, CT_FN_MAX - 3, begin, end);
    assert_value(2, CT_OTHER_DETAIL, (uint64_t)details + bytes);
    assert_event(3, CT_KIND_RETURN, CT_FN_MAX - 3, segment[first + 1].tsc, end);
    uint64_t stack_bytes = form.stack < end_of_stack ? form.stack : end_of_stack & ~7ull;
    assert_detail_enter(0, CT_FN_MAX - 3, stack_bytes);
    assert_detail_return(bytes, CT_FN_MAX - 3);
    assert_int_equal(arena->control.detail_cursor, (uint64_t)details + bytes + sizeof(struct ct_detail_return));
    for (size_t at = bytes + sizeof(struct ct_detail_return); at < CT_SEGMENT_STRIDE; at++) {
      assert_int_equal(details[at], 0x55);
    }
  }
  form = (struct ct_detail_form){.stack = 128};
}

/* In the ring, in the detail segment: without room for what belongs together the agent is asked, and nothing is lost
 * but the record. */
static void
a_full_hook_without_room_for_detail(void **state)
{
  size_t bytes = ct_detail_enter_bytes(form);
  NEED_XSAVE;
  for (size_t i = 0; i < 15; i++) {
    size_t room = i % 5, free_bytes = i / 5 == 0 ? 0 : i / 5 == 1 ? 16 : bytes + 16;
    emit_values(77, CT_HOOK_VALUES_DETAIL);
    prepare();
    leave_room(room);
    arena->control.detail_cursor = (uint64_t)details + CT_SEGMENT_BYTES - free_bytes;
    uint64_t begin = clock_now();
    call_through((uint8_t)(100 + i));
    uint64_t end = clock_now();
    /* Without a record there is the enter or return alone. */
    size_t entered = room < 2 ? 0 : free_bytes == 0 ? 1 : 2;
    size_t returned = room - entered < 2 || room < 2 ? 0 : free_bytes <= bytes ? 1 : 2;
    assert_stubs(entered == 0, entered != 0 && returned == 0, 0, 0, 0);
    assert_int_equal(tramp_detail_full_count, (entered == 1) + (returned == 1));
    assert_reserved(entered + returned);
    if (entered != 0) {
      assert_event(entered - 1, CT_KIND_ENTER, 77, begin, end);
    }
    if (entered == 2) { /* it may end after the segment */
      assert_value(0, CT_OTHER_DETAIL, (uint64_t)details + CT_SEGMENT_BYTES - free_bytes);
      assert_detail_enter(CT_SEGMENT_BYTES - free_bytes, 77, 128);
    }
    if (returned != 0) {
      assert_event(entered + returned - 1, CT_KIND_RETURN, 77, begin, end);
    }
    if (returned == 2) {
      assert_detail_return(CT_SEGMENT_BYTES - 16, 77);
    }
  }
}

/* The function field of an enter-only event; a sampled hook's stands for one call. */
static uint32_t
point_of(uint32_t fn, uint8_t mode)
{
  return fn | CT_FN_POINT_BIT | (mode == CT_HOOK_SAMPLED ? 1u << CT_FN_WEIGHT_SHIFT : 0);
}

static void
enter_only_hooks_record_one(void **state)
{
  static const uint8_t modes[] = {CT_HOOK_ENTER, CT_HOOK_SAMPLED, CT_HOOK_STACKLESS};
  static const uint32_t ids[] = {0, 5, CT_FN_MAX};
  static const uint8_t texts[] = {CT_TEXT_OTHER, CT_TEXT_MODULE};
  NEED_XSAVE;
  for (size_t i = 0; i < 18; i++) {
    emit(ids[i % 3], modes[i / 3 % 3], CT_CALLOUT_NONE);
    prepare();
    mark_text((uint64_t)tramp_call_returns, texts[i / 9]);
    uint64_t begin = clock_now();
    call_through((uint8_t)(i * 3));
    assert_stubs(0, 0, 0, 0, 0);
    assert_reserved(1);
    assert_event(0, CT_KIND_OTHER, point_of(ids[i % 3], modes[i / 3 % 3]), begin, clock_now());
    assert_int_equal(tramp_inside_return, (uint64_t)tramp_call_returns);
    for (size_t at = 0; at < STACK_BYTES; at++) {
      assert_int_equal(store[at], 0x33);
    }
  }
}

static void
outside_the_stack_range_the_agent_is_asked(void **state)
{
  static const uint8_t modes[] = {CT_HOOK_FULL, CT_HOOK_ENTER, CT_HOOK_SAMPLED};
  NEED_XSAVE;
  for (size_t m = 0; m < 3; m++) {
    emit(7, modes[m], CT_CALLOUT_NONE);
    bool full = modes[m] == CT_HOOK_FULL;
    for (int k = 0; k < 6; k++) {
      static const struct {
        int64_t lo, length; /* relative to the return-address slot */
        bool inside;
      } ranges[] = {{0, 1, true},  {0, 0, false},       {-8, 8, false},
                    {-8, 9, true}, {8, 1 << 20, false}, {INT64_MIN, 64, false}};
      prepare();
      arena->control.stack_lo = ranges[k].lo == INT64_MIN ? 0 : ra_slot_address() + (uint64_t)ranges[k].lo;
      arena->control.stack_len = (uint64_t)ranges[k].length;
      call_through((uint8_t)k);
      assert_stubs(!ranges[k].inside, 0, 0, 0, 0);
      assert_reserved(ranges[k].inside ? (full ? 2 : 1) : 0);
      assert_int_equal(tramp_inside_return,
                       full && ranges[k].inside ? arena->desc.ret_point : (uint64_t)tramp_call_returns);
    }
  }
}

static const struct {
  int32_t countdown;
  uint32_t log2;
} passed[] = {{2, 0}, {2, 1}, {3, 0}, {257, 8}, {INT32_MAX, 8}}, due[] = {{1, 1}, {1, 8}, {0, 0}, {0, 3}, {-4, 0}};

/* Under sampling: not an event, and nothing written but the countdown; the red zone is the displaced push's alone. */
static void
a_sampled_hook_passes_calls_over(void **state)
{
  NEED_XSAVE;
  for (size_t i = 0; i < 10; i++) {
    emit(5, CT_HOOK_SAMPLED, CT_CALLOUT_NONE);
    prepare();
    arena->control.countdown = passed[i % 5].countdown;
    arena->control.sample_log2 = passed[i % 5].log2;
    if (i >= 5) {
      arena->control.stack_len = 0; /* as of a thread that is not registered: nothing of the page is looked at */
    }
    struct ct_control_page expected = arena->control;
    expected.countdown--;
    call_through((uint8_t)(160 + i));
    assert_stubs(0, 0, 0, 0, 0);
    assert_memory_equal(&arena->control, &expected, sizeof(expected));
    assert_int_equal(segment[first].word | segment[first].tsc, 0);
    for (size_t at = 0; at < STACK_BYTES / 2 - 16; at++) {
      assert_int_equal(stack[at], 0x44);
    }
  }
}

static void
a_sampled_hook_is_due(void **state)
{
  NEED_XSAVE;
  struct ct_region_head good = arena->head;
  memset(&arena->head, 0, sizeof(arena->head)); /* any other field is a jump to 0 */
  arena->head.sample_due = good.restore_ra_slot;
  for (size_t i = 0; i < 5; i++) {
    emit(5, CT_HOOK_SAMPLED, CT_CALLOUT_NONE);
    prepare();
    arena->control.countdown = due[i].countdown;
    arena->control.sample_log2 = due[i].log2;
    struct ct_control_page expected = arena->control;
    expected.countdown--;
    call_through((uint8_t)(170 + i));
    assert_stubs(0, 0, 0, 1, 0);
    assert_memory_equal(&arena->control, &expected, sizeof(expected));
    uint64_t saved[4];
    memcpy(saved, (const void *)(ra_slot_address() - 32), sizeof(saved));
    assert_int_equal(saved[0], tramp_before.reg[10]); /* where the agent looks for them */
    assert_int_equal(saved[1], tramp_before.reg[11]);
    assert_int_equal(saved[2], tramp_before.reg[2]);
  }
  arena->head = good;
}

/* On whatever stack; only for room the agent is asked. */
static void
a_stackless_hook_looks_at_no_stack(void **state)
{
  NEED_XSAVE;
  emit(7, CT_HOOK_STACKLESS, CT_CALLOUT_NONE);
  for (uint64_t room = 0; room < 2; room++) {
    prepare();
    arena->control.stack_len = 0;
    leave_room(room);
    mark_text((uint64_t)tramp_call_returns, CT_TEXT_TRAMPOLINE);
    uint64_t begin = clock_now();
    call_through((uint8_t)(60 + room));
    assert_stubs(room == 0, 0, 0, 0, 0);
    if (room != 0) {
      assert_event(0, CT_KIND_OTHER, 7 | CT_FN_POINT_BIT, begin, clock_now());
    }
  }
}

/* The displaced branch is taken: no call yet. It is not taken: one call, then on after it. */
static void
an_event_after_the_displaced_instructions(void **state)
{
  static const uint8_t modes[] = {CT_CALLOUT_NONE, CT_CALLOUT_PARK};
  NEED_XSAVE;
  struct ct_region_head good = arena->head;
  for (size_t k = 0; k < 4; k++) {
    /* cmp %rsp, %rsp; jb or jae to the second of two jumps to the body */
    uint8_t bytes[] = {0x48, 0x39, 0xe4, 0x72, 14, 0xff, 0x25, 0, 0, 0, 0};
    bool taken = k % 2 != 0;
    bytes[3] = taken ? 0x73 : 0x72;
    uint64_t body = (uint64_t)tramp_body, stub = (uint64_t)tramp_callout;
    struct ct_window window;
    struct ct_trampoline_spec spec = spec_of(21, CT_HOOK_STACKLESS, modes[k / 2], &window);
    memset(arena->function, 0xcc, sizeof(arena->function));
    memcpy(arena->function, bytes, sizeof(bytes));
    memcpy(arena->function + 11, &body, 8);
    memcpy(arena->function + 19, bytes + 5, 6);
    memcpy(arena->function + 25, &body, 8);
    memcpy((uint8_t *)&arena->head + offsetof(struct ct_region_head, callout_park), &stub, 8);
    assert_int_equal(ct_window_find(arena->function, 19, (uint64_t)arena->function, 5, &window), CT_WINDOW_OK);
    spec.event_last = 1;
    struct ct_code out = {.bytes = arena->code, .capacity = CT_TRAMPOLINE_BYTES_MAX, .address = (uint64_t)arena->code};
    assert_int_equal(ct_trampoline_emit(&spec, &out, &arena->desc), CT_WINDOW_OK);
    assert_true(arena->desc.relocated > arena->desc.enter);
    if (taken) {
      memset(arena->function + 5, 0xcc, 14); /* not that way */
    } else {
      memset(arena->function + 19, 0xcc, 14);
    }
    prepare();
    uint64_t begin = clock_now();
    call_through((uint8_t)(70 + k));
    assert_stubs(0, 0, 0, 0, !taken && modes[k / 2] == CT_CALLOUT_PARK);
    assert_reserved(taken ? 0 : 1);
    if (!taken) {
      assert_event(0, CT_KIND_OTHER, 21 | CT_FN_POINT_BIT, begin, clock_now());
    }
  }
  arena->head = good;
}

static void
a_full_segment_asks_the_agent(void **state)
{
  NEED_XSAVE;
  for (size_t room = 0; room < 3; room++) {
    emit(9, CT_HOOK_FULL, CT_CALLOUT_NONE);
    prepare();
    leave_room(room);
    uint64_t begin = clock_now();
    call_through((uint8_t)(40 + room));
    assert_stubs(room == 0, room == 1, 0, 0, 0);
    assert_reserved(room == 0 ? 1 : 2); /* the cursor runs past the limit */
    if (room > 0) {
      assert_event(0, CT_KIND_ENTER, 9, begin, clock_now());
    }
    for (size_t i = 0; i < first; i++) {
      assert_int_equal(segment[i].word | segment[i].tsc, 0);
    }
    assert_int_equal(tramp_inside_return, room == 0 ? (uint64_t)tramp_call_returns : arena->desc.ret_point);
  }
  for (size_t m = 0; m < 2; m++) {
    emit(9, m == 0 ? CT_HOOK_ENTER : CT_HOOK_SAMPLED, CT_CALLOUT_NONE);
    prepare();
    arena->control.cursor = 0; /* no segment at all */
    call_through((uint8_t)(50 + m));
    assert_stubs(1, 0, 0, 0, 0);
    assert_int_equal(segment[first + 0].word, 0);
  }
}

static void
who_calls_decides(void **state)
{
  NEED_XSAVE;
  uint64_t byte = (uint64_t)(table + ((uint64_t)tramp_call_returns >> CT_TABLE_SHIFT));
  static const uint8_t kinds[] = {CT_TEXT_OTHER, CT_TEXT_TRAMPOLINE, 3, 0xff};
  for (size_t k = 0; k < 4; k++) {
    emit(11, CT_HOOK_FULL, CT_CALLOUT_NONE);
    prepare();
    mark_text((uint64_t)tramp_call_returns, kinds[k]);
    call_through((uint8_t)(60 + k));
    assert_stubs(0, 0, 1, 0, 0);
    assert_reserved(0);
    assert_int_equal(tramp_stub_r10, byte);
    assert_int_equal(tramp_inside_return, (uint64_t)tramp_call_returns); /* not called through */
  }
  for (size_t k = 0; k < 4; k++) {
    emit(11, CT_HOOK_ENTER, CT_CALLOUT_NONE);
    prepare();
    mark_text((uint64_t)tramp_call_returns, kinds[k]);
    call_through((uint8_t)(70 + k));
    assert_stubs(0, 0, 0, kinds[k] == CT_TEXT_TRAMPOLINE, 0);
    assert_reserved(kinds[k] != CT_TEXT_TRAMPOLINE);
  }
  emit(11, CT_HOOK_SAMPLED, CT_CALLOUT_NONE);
  prepare();
  mark_text((uint64_t)tramp_call_returns, CT_TEXT_TRAMPOLINE);
  call_through(80);
  assert_stubs(0, 0, 0, 0, 0);
  assert_reserved(1);
}

/* An excluded function: no event, and the thread's control page is not looked at. */
static void
a_passthrough_trampoline(void **state)
{
  static const uint8_t kinds[] = {CT_TEXT_OTHER, CT_TEXT_MODULE, CT_TEXT_TRAMPOLINE, 3, 0xff};
  NEED_XSAVE;
  struct ct_region_head good = arena->head;
  memset(&arena->head, 0, sizeof(arena->head)); /* any other field is a jump to 0 */
  arena->head.restore_passthrough = good.restore_passthrough;
  arena->head.callout_seccomp = good.callout_seccomp;
  for (size_t k = 0; k < 10; k++) {
    uint8_t callout = k < 5 ? CT_CALLOUT_NONE : CT_CALLOUT_SECCOMP;
    emit(0, CT_HOOK_PASSTHROUGH, callout);
    prepare();
    memset(&arena->control, 0, sizeof(arena->control)); /* as of a thread that nobody knows yet */
    mark_text((uint64_t)tramp_call_returns, kinds[k % 5]);
    call_through((uint8_t)(110 + k));
    assert_stubs(0, 0, 0, kinds[k % 5] == CT_TEXT_TRAMPOLINE, k >= 5);
    assert_int_equal(arena->control.cursor, 0);
    assert_int_equal(segment[first + 0].word, 0);
    assert_int_equal(tramp_inside_return, (uint64_t)tramp_call_returns);
    for (size_t at = 0; at < STACK_BYTES; at++) {
      assert_int_equal(store[at], 0x33);
    }
  }
  arena->head = good;
}

/* Each callout goes through its own field of the head, before the displaced instructions, events as ever. */
static void
callouts(void **state)
{
  static const struct {
    uint8_t callout;
    size_t field;
  } kinds[] = {{CT_CALLOUT_PARK, offsetof(struct ct_region_head, callout_park)},
               {CT_CALLOUT_EXEC, offsetof(struct ct_region_head, callout_request)},
               {CT_CALLOUT_RENDEZVOUS, offsetof(struct ct_region_head, callout_request)},
               {CT_CALLOUT_FIND_FDE, offsetof(struct ct_region_head, callout_find_fde)},
               {CT_CALLOUT_SECCOMP, offsetof(struct ct_region_head, callout_seccomp)},
               {CT_CALLOUT_MLOCKALL, offsetof(struct ct_region_head, callout_mlockall)},
               {CT_CALLOUT_SYSCALL, offsetof(struct ct_region_head, callout_syscall)},
               {CT_CALLOUT_GO_SYSCALL, offsetof(struct ct_region_head, callout_go_syscall)},
               {CT_CALLOUT_SIGACTION, offsetof(struct ct_region_head, callout_sigaction)},
               {CT_CALLOUT_FIND_OBJECT, offsetof(struct ct_region_head, callout_find_object)},
               {CT_CALLOUT_GS, offsetof(struct ct_region_head, callout_gs)},
               {CT_CALLOUT_ARCH_PRCTL, offsetof(struct ct_region_head, callout_arch_prctl)},
               {CT_CALLOUT_FRAMES, offsetof(struct ct_region_head, callout_frames)},
               {CT_CALLOUT_COUNT, offsetof(struct ct_region_head, callout_count)},
               {CT_CALLOUT_WRITE, offsetof(struct ct_region_head, callout_write)},
               {CT_CALLOUT_WRITEV, offsetof(struct ct_region_head, callout_writev)}};
  static const uint8_t modes[] = {CT_HOOK_FULL, CT_HOOK_ENTER, CT_HOOK_SAMPLED};
  NEED_XSAVE;
  struct ct_region_head good = arena->head;
  for (size_t k = 0; k < 3 * sizeof(kinds) / sizeof(kinds[0]); k++) {
    uint64_t stub = (uint64_t)tramp_callout;
    memset(&arena->head, 0, sizeof(arena->head)); /* any other field is a jump to 0 */
    memcpy((uint8_t *)&arena->head + kinds[k / 3].field, &stub, 8);
    emit(13, modes[k % 3], kinds[k / 3].callout);
    prepare();
    uint64_t begin = clock_now();
    call_through((uint8_t)(90 + k));
    assert_stubs(0, 0, 0, 0, 1);
    assert_reserved(modes[k % 3] == CT_HOOK_FULL ? 2 : 1);
    if (modes[k % 3] == CT_HOOK_FULL) {
      assert_event(0, CT_KIND_ENTER, 13, begin, clock_now());
    } else {
      assert_event(0, CT_KIND_OTHER, point_of(13, modes[k % 3]), begin, clock_now());
    }
  }
  arena->head = good;
}

/* The low half of the return-address slot's address has any value, its sign bit among them. */
static void
stacks_in_either_half_of_four_gigabytes(void **state)
{
  static const uint64_t hints[] = {0x2a0000000000 + 0x7ffe0000, 0x2a0000000000 + 0x90000000, 0x2a00ffff0000,
                                   0x2a0200000000};
  NEED_XSAVE;
  uint8_t *usual = stack;
  for (size_t i = 0; i < 4; i++) {
    uint8_t *mapped = mmap((void *)hints[i], STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped != (uint8_t *)hints[i]) {
      continue;
    }
    stack = mapped;
    emit(CT_FN_MAX, CT_HOOK_FULL, CT_CALLOUT_NONE);
    prepare();
    uint64_t begin = clock_now();
    call_through((uint8_t)(120 + i));
    assert_reserved(2);
    assert_event(0, CT_KIND_ENTER, CT_FN_MAX, begin, clock_now());
    assert_event(1, CT_KIND_RETURN, CT_FN_MAX, begin, clock_now());
    emit(CT_FN_MAX, CT_HOOK_SAMPLED, CT_CALLOUT_NONE);
    prepare();
    call_through((uint8_t)(130 + i));
    assert_event(0, CT_KIND_OTHER, point_of(CT_FN_MAX, CT_HOOK_SAMPLED), begin, clock_now());
    munmap(mapped, STACK_BYTES);
  }
  stack = usual;
}

static void
a_refusal_leaves_everything(void **state)
{
  static const uint8_t modes[] = {CT_HOOK_FULL, CT_HOOK_ENTER, CT_HOOK_SAMPLED, CT_HOOK_PASSTHROUGH};
  for (size_t m = 0; m < 4; m++) {
    struct ct_window window;
    struct ct_trampoline_spec spec = spec_of(3, modes[m], CT_CALLOUT_PARK, &window);
    uint8_t whole[CT_TRAMPOLINE_BYTES_MAX];
    struct ct_code out = {.bytes = whole, .capacity = sizeof(whole), .address = (uint64_t)arena->code};
    struct ct_hook_desc desc, untouched;
    assert_int_equal(ct_trampoline_emit(&spec, &out, &desc), CT_WINDOW_OK);
    size_t length = out.length;
    memset(&untouched, 0x5a, sizeof(untouched));
    for (size_t capacity = 0; capacity < length; capacity++) {
      uint8_t *exact = malloc(capacity + 1);
      assert_non_null(exact);
      exact[capacity] = 0x77;
      memset(&desc, 0x5a, sizeof(desc));
      out = (struct ct_code){.bytes = exact, .capacity = capacity, .address = (uint64_t)arena->code};
      assert_int_equal(ct_trampoline_emit(&spec, &out, &desc), CT_WINDOW_UNREACHABLE);
      assert_int_equal(exact[capacity], 0x77);
      assert_int_equal(out.length, 0);
      assert_false(out.overflow);
      assert_memory_equal(&desc, &untouched, sizeof(desc));
      free(exact);
    }
    /* The head, the descriptor, the function: each out of reach. */
    for (int far = 0; far < 3; far++) {
      struct ct_trampoline_spec distant = spec;
      *(far == 0 ? &distant.head : far == 1 ? &distant.desc : &distant.function) += 1ull << 33;
      memset(&desc, 0x5a, sizeof(desc));
      out = (struct ct_code){.bytes = whole, .capacity = sizeof(whole), .address = (uint64_t)arena->code};
      assert_int_equal(ct_trampoline_emit(&distant, &out, &desc), CT_WINDOW_UNREACHABLE);
      assert_int_equal(out.length, 0);
      assert_memory_equal(&desc, &untouched, sizeof(desc));
    }
  }
}

/* The largest that the planner can ask for fits the size that regions are laid out by. */
static void
the_largest_fits(void **state)
{
  static const char *const windows[] = {"\x48\x89\xe5\x55\x2e\x2e\x2e\x2e\x48\xc7\x05\0\0\0\0\1\2\3\4",
                                        "\xe2\x7f\xe2\x7d\xe2\x7b", "\x90\x90\x90\x90\xe8\0\0\0\0", "\xe8\0\0\0\0"};
  static const uint8_t sizes[] = {19, 6, 9, 5};
  for (size_t i = 0; i < 4; i++) {
    struct ct_window window;
    assert_int_equal(ct_window_find((const uint8_t *)windows[i], sizes[i], 0x401000, 5, &window), CT_WINDOW_OK);
    uint8_t buffer[CT_TRAMPOLINE_BYTES_MAX];
    struct ct_trampoline_spec spec = {.fn = CT_FN_MAX,
                                      .mode = CT_HOOK_FULL,
                                      .values = CT_HOOK_VALUES_DETAIL,
                                      .detail = {CT_DETAIL_STACK_MAX, 1},
                                      .callout = CT_CALLOUT_PARK,
                                      .store_delta = -(1ll << 46),
                                      .function = 0x401000,
                                      .head = 0x500000,
                                      .desc = 0x500100,
                                      .code = (const uint8_t *)windows[i],
                                      .window = &window};
    struct ct_code out = {.bytes = buffer, .capacity = sizeof(buffer), .address = 0x501000};
    struct ct_hook_desc desc;
    assert_int_equal(ct_trampoline_emit(&spec, &out, &desc), CT_WINDOW_OK);
  }
}

static void
jump_bytes(void **state)
{
  uint8_t bytes[CT_JUMP_BYTES];
  assert_int_equal(ct_jump_bytes(0x1000, 0x1005, bytes), 0);
  assert_memory_equal(bytes, "\xe9\0\0\0\0", 5);
  assert_int_equal(ct_jump_bytes(0x1000, 0x1000, bytes), 0);
  assert_memory_equal(bytes, "\xe9\xfb\xff\xff\xff", 5);
  assert_int_equal(ct_jump_bytes(0x7f0000000000, 0x7f0000000005 + 0x7fffffff, bytes), 0);
  assert_memory_equal(bytes, "\xe9\xff\xff\xff\x7f", 5);
  assert_int_equal(ct_jump_bytes(0x7f0000000000, 0x7f0000000005 - 0x80000000, bytes), 0);
  assert_memory_equal(bytes, "\xe9\0\0\0\x80", 5);
  memset(bytes, 0x11, sizeof(bytes));
  assert_int_equal(ct_jump_bytes(0x7f0000000000, 0x7f0000000005 + 0x80000000, bytes), -1);
  assert_int_equal(ct_jump_bytes(0x7f0000000000, 0x7f0000000005 - 0x80000001, bytes), -1);
  assert_memory_equal(bytes, "\x11\x11\x11\x11\x11", 5);
}

/* ---- unwinding ---- */

/* One row, as far as the template uses the language: CFA = rsp + cfa, the rules of rsp and of the return address. */
struct row {
  size_t at;
  int64_t cfa;
  bool rsp_by_expression; /* rsp = rsp + rsp_offset, else the CFA */
  int64_t rsp_offset;
  bool ra_by_expression; /* at rsp + ra_offset, else at CFA + ra_offset */
  int64_t ra_offset;
};

static int64_t
read_leb(const uint8_t **at, bool is_signed)
{
  uint64_t value = 0;
  unsigned shift = 0;
  uint8_t byte;
  do {
    byte = *(*at)++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    shift += 7;
  } while ((byte & 0x80) != 0);
  if (is_signed && shift < 64 && (byte & 0x40) != 0) {
    value |= ~0ull << shift;
  }
  return (int64_t)value;
}

/* DW_OP_breg7 OFFSET and nothing else. */
static int64_t
read_breg7(const uint8_t **at)
{
  size_t length = (size_t)read_leb(at, false);
  const uint8_t *begin = *at;
  assert_int_equal(*(*at)++, 0x77);
  int64_t offset = read_leb(at, true);
  assert_int_equal(*at - begin, length);
  return offset;
}

static size_t
run_cfa(const uint8_t *at, const uint8_t *end, struct row *rows, size_t count, const struct row *initial)
{
  struct row *row = &rows[count - 1];
  while (at < end) {
    uint8_t op = *at++;
    switch (op) {
    case 0x00:
      break;
    case 0x03: /* advance_loc2 */
      rows[count] = *row;
      row = &rows[count++];
      row->at += (size_t)(at[0] | at[1] << 8);
      at += 2;
      break;
    case 0x0c: /* def_cfa */
      assert_int_equal(*at++, 7);
      row->cfa = read_leb(&at, false);
      break;
    case 0x10: /* expression */
      assert_int_equal(*at++, 16);
      row->ra_by_expression = true;
      row->ra_offset = read_breg7(&at);
      break;
    case 0x16: /* val_expression */
      assert_int_equal(*at++, 7);
      row->rsp_by_expression = true;
      row->rsp_offset = read_breg7(&at);
      break;
    case 0x80 | 16: /* offset */
      row->ra_by_expression = false;
      row->ra_offset = -8 * read_leb(&at, false);
      break;
    case 0xc0 | 7: /* restore */
      row->rsp_by_expression = initial->rsp_by_expression;
      break;
    default:
      fail_msg("call frame instruction %#x", op);
    }
  }
  assert_ptr_equal(at, end);
  return count;
}

static size_t
read_fde(const uint8_t *base, uint64_t address, uint64_t fde_address, struct row *rows)
{
  const uint8_t *fde = base + (fde_address - address), *cie;
  uint32_t length, distance, cie_length;
  uint64_t start, range;
  memcpy(&length, fde, 4);
  memcpy(&distance, fde + 4, 4);
  memcpy(&start, fde + 8, 8);
  memcpy(&range, fde + 16, 8);
  cie = fde + 4 - distance;
  memcpy(&cie_length, cie, 4);
  assert_int_equal((fde_address + 4 + length) % 4, address % 4);
  assert_int_equal(start, 0);
  assert_true(range >= CT_TRAMPOLINE_BYTES_MAX);
  assert_int_equal(*(const uint32_t *)(cie + 4), 0);
  assert_memory_equal(cie + 8, "\x01zR\0\x01\x78\x10\x01\x00", 9);
  memset(rows, 0, sizeof(*rows));
  struct row initial = {0};
  run_cfa(cie + 17, cie + 4 + cie_length, rows, 1, &initial);
  initial = rows[0];
  assert_int_equal(fde[24], 0);
  return run_cfa(fde + 25, fde + 4 + length, rows, 1, &initial);
}

static struct row step_rows[8];
static size_t step_row_count;
static size_t steps, step_failures, first_failure;
static uint32_t step_rows_seen;

static void
on_step(int number, siginfo_t *info, void *context)
{
  const greg_t *regs = ((const ucontext_t *)context)->uc_mcontext.gregs;
  uint64_t pc = (uint64_t)regs[REG_RIP], rsp = (uint64_t)regs[REG_RSP];
  bool inside = pc >= arena->desc.enter && pc < (uint64_t)arena->code + sizeof(arena->code);
  if (!inside || (pc >= arena->desc.relocated && pc < arena->desc.relocated_end)) {
    return; /* the displaced instructions have rows of their own */
  }
  size_t offset = pc - arena->desc.enter, r = 0;
  while (r + 1 < step_row_count && step_rows[r + 1].at <= offset) {
    r++;
  }
  const struct row *row = &step_rows[r];
  uint64_t cfa = rsp + (uint64_t)row->cfa;
  uint64_t caller = row->rsp_by_expression ? rsp + (uint64_t)row->rsp_offset : cfa;
  uint64_t at = (row->ra_by_expression ? rsp : cfa) + (uint64_t)row->ra_offset;
  uint64_t address;
  memcpy(&address, (const void *)at, 8);
  steps++;
  step_rows_seen |= 1u << r;
  if (address != (uint64_t)tramp_call_returns || caller != ra_slot_address() + 8) {
    if (step_failures++ == 0) {
      first_failure = offset;
    }
  }
}

static void
step_through(uint8_t seed)
{
  steps = step_failures = 0;
  step_rows_seen = 0;
  prepare();
  fill_pattern(&tramp_before, seed);
  fill_pattern(&tramp_answer, (uint8_t)(seed + 1));
  tramp_before.reg[4] = (uint64_t)(stack + STACK_BYTES / 2);
  tramp_flags = 0x302; /* the trap flag */
  tramp_call();
  assert_same_state("stepped", &tramp_after, &tramp_answer, ra_slot_address() + 8);
  if (step_failures != 0) {
    fail_msg("%zu of %zu instructions have a wrong row, the first at +%zu", step_failures, steps, first_failure);
  }
}

static void
rows_hold_at_every_instruction(void **state)
{
  NEED_XSAVE;
  struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO}, before;
  uint8_t buffer[512];
  struct ct_trampoline_rows rows;
  size_t size = ct_trampoline_unwind((int64_t)(store - stack), form, buffer, sizeof(buffer), 0x10000, &rows);
  assert_true(size > 4 && size <= sizeof(buffer));
  assert_memory_equal(buffer + size - 4, "\0\0\0\0", 4);
  assert_int_equal(sigaction(SIGTRAP, &action, &before), 0);

  emit(2, CT_HOOK_FULL, CT_CALLOUT_NONE);
  for (uint8_t values = CT_HOOK_VALUES_NONE; values <= CT_HOOK_VALUES_DETAIL; values++) {
    const uint64_t fdes[] = {rows.full, rows.values, rows.detail};
    if (values != CT_HOOK_VALUES_NONE) {
      emit_values(2, values);
    }
    step_row_count = read_fde(buffer, 0x10000, fdes[values], step_rows);
    assert_int_equal(step_row_count, 4); /* slot; popped; adjusted; restored */
    assert_int_equal(step_rows[1].cfa % 2, 1);
    assert_true(step_rows[1].rsp_by_expression && step_rows[1].rsp_offset == 0);
    assert_int_equal(step_rows[2].at, arena->desc.ret - arena->desc.enter);
    step_through((uint8_t)(150 + values * 8));
    assert_true(steps > (values != 0 ? 80u : 50u));
    assert_int_equal(step_rows_seen, 0xf);
  }

  emit(2, CT_HOOK_ENTER, CT_CALLOUT_NONE);
  step_row_count = read_fde(buffer, 0x10000, rows.enter, step_rows);
  assert_int_equal(step_row_count, 1);
  step_through(152);
  assert_true(steps > 15);
  emit(2, CT_HOOK_SAMPLED, CT_CALLOUT_NONE);
  step_through(154);
  assert_true(steps > 10);
  emit(0, CT_HOOK_PASSTHROUGH, CT_CALLOUT_NONE);
  step_through(156);
  assert_true(steps > 5);
  assert_int_equal(sigaction(SIGTRAP, &before, NULL), 0);
}

/* The template for the distances that are chosen for real, and others. */
static void
the_template_for_other_distances(void **state)
{
  static const int64_t deltas[] = {-(1ll << 46), 1ll << 46, -(1ll << 40), 0x123456789000, -4096, 0};
  for (size_t i = 0; i < 2 * sizeof(deltas) / sizeof(deltas[0]); i++) {
    int64_t delta = deltas[i / 2];
    uint8_t buffer[512];
    struct ct_trampoline_rows at;
    struct row rows[8];
    size_t size =
        ct_trampoline_unwind(delta, (struct ct_detail_form){.stack = 128}, buffer, sizeof(buffer), 0x7f0000001000, &at);
    assert_true(size != 0);
    assert_int_equal(read_fde(buffer, 0x7f0000001000, i % 2 == 0 ? at.full : at.values, rows), 4);
    assert_int_equal(read_fde(buffer, 0x7f0000001000, at.detail, rows), 4);
    assert_false(rows[0].ra_by_expression);
    assert_int_equal(rows[0].ra_offset, -8);
    assert_true(rows[1].ra_by_expression);
    assert_int_equal(rows[1].ra_offset, delta - 8);
    assert_int_equal(rows[1].cfa, 1);
    assert_true(rows[2].ra_by_expression);
    assert_int_equal(rows[2].ra_offset, delta);
    assert_int_equal(rows[2].cfa, 8);
    assert_false(rows[2].rsp_by_expression);
    assert_false(rows[3].ra_by_expression);
    assert_int_equal(rows[3].ra_offset, -8);
    assert_int_equal(read_fde(buffer, 0x7f0000001000, at.enter, rows), 1);
    assert_int_equal(rows[0].cfa, 8);
  }
}

static sigjmp_buf too_long;

static void
on_alarm(int number)
{
  siglongjmp(too_long, 1);
}

/* The answer is 0, in time, and nothing is written past the end. */
static void
the_template_in_a_small_buffer(void **state)
{
  uint8_t whole[512];
  struct ct_trampoline_rows rows;
  size_t size =
      ct_trampoline_unwind(-(1ll << 46), (struct ct_detail_form){.stack = 128}, whole, sizeof(whole), 0x1000, &rows);
  volatile size_t capacity = 0;
  struct sigaction action = {.sa_handler = on_alarm}, before;
  assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
  if (sigsetjmp(too_long, 1) != 0) {
    fail_msg("does not come to an end with %zu bytes", capacity);
  }
  for (; capacity < size; capacity++) {
    uint8_t *exact = malloc(capacity + 1);
    assert_non_null(exact);
    exact[capacity] = 0x77;
    rows = (struct ct_trampoline_rows){1, 1, 1, 1};
    alarm(5);
    assert_int_equal(
        ct_trampoline_unwind(-(1ll << 46), (struct ct_detail_form){.stack = 128}, exact, capacity, 0x1000, &rows), 0);
    alarm(0);
    assert_int_equal(exact[capacity], 0x77);
    assert_int_equal(rows.full + rows.values + rows.detail + rows.enter, 4);
    free(exact);
  }
  assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
}

static uint64_t old_gs;

static int
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

static int
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

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_full_hook_records_both),
      cmocka_unit_test(a_full_hook_records_values),
      cmocka_unit_test(a_full_hook_records_what_the_function_takes),
      cmocka_unit_test(a_full_hook_records_detail),
      cmocka_unit_test(a_full_hook_without_room_for_detail),
      cmocka_unit_test(enter_only_hooks_record_one),
      cmocka_unit_test(outside_the_stack_range_the_agent_is_asked),
      cmocka_unit_test(a_sampled_hook_passes_calls_over),
      cmocka_unit_test(a_sampled_hook_is_due),
      cmocka_unit_test(a_stackless_hook_looks_at_no_stack),
      cmocka_unit_test(an_event_after_the_displaced_instructions),
      cmocka_unit_test(a_full_segment_asks_the_agent),
      cmocka_unit_test(who_calls_decides),
      cmocka_unit_test(a_passthrough_trampoline),
      cmocka_unit_test(callouts),
      cmocka_unit_test(stacks_in_either_half_of_four_gigabytes),
      cmocka_unit_test(a_refusal_leaves_everything),
      cmocka_unit_test(the_largest_fits),
      cmocka_unit_test(jump_bytes),
      cmocka_unit_test(rows_hold_at_every_instruction),
      cmocka_unit_test(the_template_for_other_distances),
      cmocka_unit_test(the_template_in_a_small_buffer),
  };
  return cmocka_run_group_tests_name("trampoline", tests, set_up, tear_down);
}
