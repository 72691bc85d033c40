/* SPDX-License-Identifier: MIT */
/* What operations make of an instruction (x86/gist.h) is what executing it as a whole makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../differential/random.h"
#include "steps/machine.h"
#include "x86/gist.h"

enum { PC = 0x401000, RECORD_BYTES = 256 };

static bool
stores_byte(const struct ct_steps_did *did, uint64_t address)
{
  bool stores = false;
  for (unsigned i = 0; i < did->store_count; i++) {
    stores |= address - did->stores[i].address < ct_mem_store_bytes(&did->stores[i]);
  }
  return stores;
}

static void
expect_byte(const struct ct_gist *ops, const struct ct_cpu *before, const uint8_t *values,
            const struct ct_steps_did *did, uint64_t address)
{
  struct ct_cpu cpu = *before;
  int hit = -1;
  ct_gist_run(ops, &cpu, values, (struct ct_gist_bytes){address, 1}, &hit);
  assert_int_equal(hit, stores_byte(did, address) ? 7 : -1);
}

/* False: it is one that the caller executes. */
static bool
check(const struct ct_steps_insn *insn, struct rng *rng)
{
  struct ct_gist ops[CT_GIST_MAX + 1];
  struct ct_steps_state state = {.cpu = {.rip = PC}};
  struct ct_steps_did did = {0};
  uint8_t values[RECORD_BYTES];
  int hit = -1;
  unsigned count = ct_gist_of(&insn->effects, insn->values, insn->value_count, insn->is_emulated, false, PC, 0, 7, ops);
  assert_true(count <= CT_GIST_MAX);
  ops[count].kind = CT_GIST_END;
  if (count != 0 && ops[0].kind == CT_GIST_WHOLE) {
    assert_int_equal(count, 1);
    assert_int_equal(ops[0].nth, 7);
    return false;
  }
  rng_fill(rng, values, sizeof(values));
  rng_fill(rng, state.cpu.reg, sizeof(state.cpu.reg));
  state.cpu.fs_base = rng_next(rng);
  state.cpu.flags = rng_next(rng) & CT_FLAGS_SIX;
  struct ct_cpu before = state.cpu, after = before;
  ct_steps_execute(&state, insn, values, false, 0, &did);
  assert_ptr_equal(ct_gist_run(ops, &after, values, (struct ct_gist_bytes){0, 1}, &hit), &ops[count]);
  assert_int_equal(state.unknown, 0);
  assert_memory_equal(after.reg, state.cpu.reg, sizeof(after.reg));
  for (unsigned i = 0; i < did.store_count; i++) {
    uint64_t address = did.stores[i].address, bytes = ct_mem_store_bytes(&did.stores[i]);
    assert_int_not_equal(bytes, 0);
    expect_byte(ops, &before, values, &did, address - 1);
    expect_byte(ops, &before, values, &did, address);
    expect_byte(ops, &before, values, &did, address + bytes - 1);
    expect_byte(ops, &before, values, &did, address + bytes);
  }
  return true;
}

/* Instructions that programs consist of are of few operations, none of them the caller's. */
static void
usual_instructions(void **unused)
{
  static const struct {
    const char *code;
    size_t size;
  } cases[] = {
#define I(code) {code, sizeof(code) - 1}
      I("\x48\x89\xd8"),                         /* mov %rbx, %rax */
      I("\x89\xd8"),                             /* mov %ebx, %eax */
      I("\x48\x8b\x43\x08"),                     /* mov 8(%rbx), %rax */
      I("\x89\x44\x8b\x10"),                     /* mov %eax, 16(%rbx, %rcx, 4) */
      I("\x88\x05\x10\x00\x00\x00"),             /* mov %al, 16(%rip) */
      I("\x64\x48\x89\x04\x25\x28\x00\x00\x00"), /* mov %rax, %fs:40 */
      I("\xc7\x00\x01\x00\x00\x00"),             /* movl $1, (%rax) */
      I("\x0f\xb6\x07"),                         /* movzbl (%rdi), %eax */
      I("\x48\x63\xd0"),                         /* movslq %eax, %rdx */
      I("\x48\x0f\xbe\x10"),                     /* movsbq (%rax), %rdx */
      I("\x48\x8d\x44\x8b\xf0"),                 /* lea -16(%rbx, %rcx, 4), %rax */
      I("\x53"),                                 /* push %rbx */
      I("\x5b"),                                 /* pop %rbx */
      I("\xc9"),                                 /* leave */
      I("\xe8\x00\x01\x00\x00"),                 /* call */
      I("\xff\xd0"),                             /* call *%rax */
      I("\xc3"),                                 /* ret */
      I("\x75\x10"),                             /* jne */
      I("\x48\x83\xc0\x08"),                     /* add $8, %rax */
      I("\x01\xd8"),                             /* add %ebx, %eax */
      I("\x48\x03\x07"),                         /* add (%rdi), %rax */
      I("\x48\x01\x07"),                         /* add %rax, (%rdi) */
      I("\x48\x29\xd8"),                         /* sub %rbx, %rax */
      I("\x2b\x47\x04"),                         /* sub 4(%rdi), %eax */
      I("\x83\xe0\x0f"),                         /* and $15, %eax */
      I("\x48\x31\xd8"),                         /* xor %rbx, %rax */
      I("\x31\xc0"),                             /* xor %eax, %eax */
      I("\x48\xff\xc8"),                         /* dec %rax */
      I("\x48\xf7\xd8"),                         /* neg %rax */
      I("\xf7\xd0"),                             /* not %eax */
      I("\x48\xc1\xe0\x05"),                     /* shl $5, %rax */
      I("\xc1\xf8\x1f"),                         /* sar $31, %eax */
      I("\x48\xc1\xe8\x3f"),                     /* shr $63, %rax */
      I("\x48\x0f\xaf\xc3"),                     /* imul %rbx, %rax */
      I("\x48\xf7\xe3"),                         /* mul %rbx */
      I("\x48\x98"),                             /* cltq */
      I("\x48\x99"),                             /* cqto */
      I("\x39\xd8"),                             /* cmp %ebx, %eax */
      I("\x0f\x29\x04\x24"),                     /* movaps %xmm0, (%rsp) */
      I("\x66\x48\x0f\x7e\xc0"),                 /* movq %xmm0, %rax */
#undef I
  };
  struct rng rng = rng_of(15, 0);
  (void)unused;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    struct ct_steps_insn insn = {0};
    assert_true(ct_steps_insn_of((const uint8_t *)cases[i].code, cases[i].size, PC, true, &insn));
    for (int turn = 0; turn < 20; turn++) {
      if (!check(&insn, &rng)) {
        fail_msg("case %zu is left to the caller", i);
      }
    }
  }
}

/* Whatever the bytes are; the first ones are often prefixes and opcodes of one byte. */
static void
random_instructions(void **unused)
{
  static const uint8_t prefixes[] = {0x48, 0x48, 0x4c, 0x49, 0x41, 0x40, 0x66, 0x64, 0x67, 0x0f, 0x0f, 0xf3};
  unsigned made = 0, left = 0; /* to the caller */
  (void)unused;
  for (unsigned i = 0; i < 60000; i++) {
    struct rng rng = rng_of(16, i);
    struct ct_steps_insn insn = {0};
    uint8_t code[15];
    rng_fill(&rng, code, sizeof(code));
    for (unsigned at = 0; at < 3 && rng_chance(&rng, 50); at++) {
      code[at] = prefixes[rng_below(&rng, sizeof(prefixes))];
    }
    if (ct_steps_insn_of(code, sizeof(code), PC, rng_chance(&rng, 50), &insn)) {
      bool is_made = check(&insn, &rng);
      made += is_made;
      left += !is_made;
    }
  }
  assert_true(made > left);
}

/* The size of a store and of what is asked for, where addresses go round. */
static void
stores_at_the_end(void **unused)
{
  struct ct_gist ops[] = {{.kind = CT_GIST_STORE, .base = CT_RAX, .index = CT_GIST_ZERO, .size = 8, .nth = 3},
                          {.kind = CT_GIST_END}};
  static const struct {
    uint64_t at, first, size;
    bool meets;
  } cases[] = {{0, 0, 1, true},
               {0, 7, 1, true},
               {0, 8, 1, false},
               {8, 0, 8, false},
               {7, 0, 8, true},
               {UINT64_MAX - 3, 0, 4, false},
               {UINT64_MAX - 3, 4, 4, false},
               {UINT64_MAX - 7, UINT64_MAX - 8, 1, false},
               {UINT64_MAX - 7, UINT64_MAX - 8, 2, true},
               {100, 0, 4096, true},
               {5000, 0, 4096, false}};
  (void)unused;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    struct ct_cpu cpu = {.reg = {[CT_RAX] = cases[i].at}};
    int hit = -1;
    ct_gist_run(ops, &cpu, NULL, (struct ct_gist_bytes){cases[i].first, cases[i].size}, &hit);
    assert_int_equal(hit, cases[i].meets ? 3 : -1);
  }
}

/* An address relative to a place at the end of what is signed, as a damaged file may have it (UBSan looks). */
static void
places_at_the_end(void **unused)
{
  static const uint8_t code[] = {0x88, 0x05, 0x10, 0, 0, 0}; /* mov %al, 16(%rip) */
  uint64_t pc = INT64_MAX - sizeof(code);
  struct ct_steps_insn insn = {0};
  struct ct_gist ops[CT_GIST_MAX];
  (void)unused;
  assert_true(ct_steps_insn_of(code, sizeof(code), pc, true, &insn));
  assert_int_equal(ct_gist_of(&insn.effects, insn.values, insn.value_count, insn.is_emulated, false, pc, 0, 0, ops), 1);
  assert_int_equal(ops[0].kind, CT_GIST_STORE);
  assert_true((uint64_t)ops[0].disp == (uint64_t)INT64_MAX + 16);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(usual_instructions),
      cmocka_unit_test(random_instructions),
      cmocka_unit_test(stores_at_the_end),
      cmocka_unit_test(places_at_the_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
