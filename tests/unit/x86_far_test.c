/* SPDX-License-Identifier: MIT */
/* Far returns (x86/far.h): what is said of them is what the processor does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "../differential/random.h"
#include "x86/far.h"

enum {
  STACK_WORDS = 512,
  MIDDLE = 256,
  SETTABLE = 0xcd5,
  TF = 0x100,
  NT = 0x4000,
  RF = 0x10000,

  ID = 0x200000
};

struct seen {
  uint64_t rsp, flags;
};

/* Goes to code with that stack and those flags; back by far_landing, where it stores what it finds. */
void far_run(const void *code, uint64_t *stack, uint64_t flags, struct seen *seen);
extern const char far_landing[];
__asm__(
    ".pushsection .text\n.globl far_run\n.type far_run, @function\nfar_run:\n"
    " push %rbx\n push %rbp\n mov %rsp, %rbx\n mov %rcx, %rbp\n push %rdx\n popfq\n mov %rsi, %rsp\n jmp *%rdi\n"
    "far_landing:\n mov %rsp, (%rbp)\n pushfq\n pop %rax\n mov %rbx, %rsp\n push $0x202\n popfq\n mov %rax, 8(%rbp)\n"
    " pop %rbp\n pop %rbx\n ret\n.size far_run, . - far_run\n.popsection\n");

static const uint8_t lretq[] = {0x48, 0xcb}, lretq_bytes[] = {0x48, 0xca, 24, 0}, iretq[] = {0x48, 0xcf};

static struct ct_far_state
state_now(uint64_t *stack, uint64_t flags)
{
  struct ct_far_state state = {.rip = 1, .rsp = (uint64_t)stack, .flags = flags};
  __asm__("mov %%cs, %k0\n mov %%ss, %k1" : "=r"(state.cs), "=r"(state.ss));
  return state;
}

static void
compare(const uint8_t *code, size_t size, uint8_t kind, uint16_t drops, uint8_t *page)
{
  struct rng rng = {.state = 7};
  struct ct_far far = ct_far_of(code, size);
  assert_int_equal(far.kind, kind);
  assert_int_equal(far.drops, drops);
  memcpy(page, code, size);
  for (int turn = 0; turn < 1000; turn++) {
    uint64_t stack[STACK_WORDS] = {0}, *top = stack + MIDDLE;
    uint64_t flags = 0x202 | (rng_next(&rng) & SETTABLE), popped = 0x2 | (rng_next(&rng) & SETTABLE);
    struct ct_far_state state = state_now(top, flags);
    const uint64_t words[CT_FAR_WORDS] = {(uint64_t)far_landing, (rng_next(&rng) << 16) | state.cs, popped,
                                          (uint64_t)(top + rng_below(&rng, 100)), (rng_next(&rng) << 16) | state.ss};
    struct seen seen;
    memcpy(top, words, sizeof(words));
    assert_true(ct_far_return(&far, words, &state));
    far_run(page, top, flags, &seen);
    assert_int_equal(state.rip, (uint64_t)far_landing);
    assert_int_equal(state.rsp, seen.rsp);
    assert_int_equal(state.flags, seen.flags);
  }
}

static void
test_as_processor(void **context)
{
  uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  (void)context;
  assert_ptr_not_equal(page, MAP_FAILED);
  compare(lretq, sizeof(lretq), CT_FAR_RETURN, 0, page);
  compare(lretq_bytes, sizeof(lretq_bytes), CT_FAR_RETURN, 24, page);
  compare(iretq, sizeof(iretq), CT_FAR_INTERRUPT_RETURN, 0, page);
  munmap(page, 4096);
}

/* What only the processor can, or what faults: nothing is changed. */
static void
test_left_alone(void **context)
{
  static const struct {
    unsigned word;
    uint64_t changed;
    bool is_of_both;
  } wrong[] = {{0, 1ull << 63, true}, {0, 1ull << 47, true}, {1, 3, true},  {2, TF, false},        {2, NT, false},
               {2, RF, false},        {2, ID, false},        {4, 3, false}, {3, 1ull << 62, false}};
  uint64_t stack[STACK_WORDS];
  struct ct_far_state begin = state_now(stack, 0x202);
  (void)context;
  for (int kind = CT_FAR_RETURN; kind <= CT_FAR_INTERRUPT_RETURN; kind++) {
    struct ct_far far = {.kind = (uint8_t)kind};
    const uint64_t words[CT_FAR_WORDS] = {0x401000, begin.cs, 0x202, 0x7000, begin.ss};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
      uint64_t other[CT_FAR_WORDS];
      struct ct_far_state state = begin;
      memcpy(other, words, sizeof(other));
      other[wrong[i].word] ^= wrong[i].changed;
      bool is_made = ct_far_return(&far, other, &state);
      assert_int_equal(is_made, kind == CT_FAR_RETURN && !wrong[i].is_of_both);
      assert_true(is_made || memcmp(&state, &begin, sizeof(state)) == 0);
    }
    struct ct_far_state nested = begin, steps = begin;
    nested.flags |= NT;
    steps.flags |= TF;
    assert_false(ct_far_return(&far, words, &nested));
    assert_false(ct_far_return(&far, words, &steps));
  }
}

static void
test_kinds(void **context)
{
  static const uint8_t call[] = {0xcd, 0x80}, other[] = {0xcd, 0x03}, near[] = {0xc3}, narrow[] = {0xcb},
                       iretd[] = {0xcf};
  (void)context;
  assert_int_equal(ct_far_of(call, sizeof(call)).kind, CT_FAR_CALL);
  assert_int_equal(ct_far_of(call, 1).kind, CT_FAR_NOT);
  assert_int_equal(ct_far_of(other, sizeof(other)).kind, CT_FAR_NOT);
  assert_int_equal(ct_far_of(near, sizeof(near)).kind, CT_FAR_NOT);
  assert_int_equal(ct_far_of(narrow, sizeof(narrow)).kind, CT_FAR_NOT);
  assert_int_equal(ct_far_of(iretd, sizeof(iretd)).kind, CT_FAR_NOT);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_processor), cmocka_unit_test(test_left_alone),
                                     cmocka_unit_test(test_kinds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
