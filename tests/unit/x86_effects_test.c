/* SPDX-License-Identifier: MIT */
/*
 * What ct_effects_of says of single instructions, what ct_emulate makes of states selected by hand, and that neither is
 * upset by any bytes or any state. That the emulator is right is shown by the processor:
 * tests/differential/emulated.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../differential/random.h"
#include "x86/disassemble.h"
#include "x86/emulate.h"

#define R(name) (1u << CT_##name)
#define SIX     CT_FLAGS_SIX

static struct ct_effects
effects_of(const char *code, size_t size)
{
  struct ct_effects e;
  assert_true(ct_effects_of((const uint8_t *)code, size, &e));
  assert_int_equal(e.length, size);
  return e;
}

#define EFFECTS(code) effects_of(code, sizeof(code) - 1)

/* ---- effects ---- */

static void
registers_and_flags(void **state)
{
  static const struct {
    const char *code;
    size_t size;
    uint16_t reads, writes, flags_read, flags_written, flags_undefined, flags_kept;
    bool derivable;
  } cases[] = {
#define I(code) code, sizeof(code) - 1
      {I("\x48\x89\xd8"), R(RBX), R(RAX), 0, 0, 0, 0, true},                                      /* mov %rbx, %rax */
      {I("\x88\xd8"), R(RBX) | R(RAX), R(RAX), 0, 0, 0, 0, true},                                 /* mov %bl, %al */
      {I("\x88\xdc"), R(RBX) | R(RAX), R(RAX), 0, 0, 0, 0, true},                                 /* mov %bl, %ah */
      {I("\x01\xd8"), R(RBX) | R(RAX), R(RAX), 0, SIX, 0, 0, true},                               /* add %ebx, %eax */
      {I("\x11\xd8"), R(RBX) | R(RAX), R(RAX), CT_FLAG_CF, SIX, 0, 0, true},                      /* adc %ebx, %eax */
      {I("\x39\xd8"), R(RBX) | R(RAX), 0, 0, SIX, 0, 0, true},                                    /* cmp %ebx, %eax */
      {I("\x31\xd8"), R(RBX) | R(RAX), R(RAX), 0, SIX, CT_FLAG_AF, 0, true},                      /* xor %ebx, %eax */
      {I("\xff\xc0"), R(RAX), R(RAX), 0, SIX & ~CT_FLAG_CF, 0, 0, true},                          /* inc %eax */
      {I("\x48\x0f\x44\xc3"), R(RAX) | R(RBX), R(RAX), CT_FLAG_ZF, 0, 0, 0, true},                /* cmove %rbx, %rax */
      {I("\xc1\xe0\x01"), R(RAX), R(RAX), 0, SIX, CT_FLAG_AF, 0, true},                           /* shl $1, %eax */
      {I("\xc1\xe0\x05"), R(RAX), R(RAX), 0, SIX, CT_FLAG_AF | CT_FLAG_OF, 0, true},              /* shl $5, %eax */
      {I("\xc1\xe0\x20"), R(RAX), R(RAX), 0, 0, 0, 0, true},                                      /* shl $32, %eax */
      {I("\xd3\xf8"), R(RAX) | R(RCX), R(RAX), 0, SIX, CT_FLAG_AF | CT_FLAG_OF, SIX, true},       /* sar %cl, %eax */
      {I("\x48\xf7\xf3"), R(RAX) | R(RDX) | R(RBX), R(RAX) | R(RDX), 0, SIX, SIX, 0, true},       /* div %rbx */
      {I("\x50"), R(RAX) | R(RSP), R(RSP), 0, 0, 0, 0, true},                                     /* push %rax */
      {I("\xc9"), R(RBP), R(RBP) | R(RSP), 0, 0, 0, 0, true},                                     /* leave */
      {I("\x0f\xbc\xc3"), R(RAX) | R(RBX), R(RAX), 0, SIX, SIX & ~CT_FLAG_ZF, 0, false},          /* bsf %ebx, %eax */
      {I("\xf3\x0f\xbc\xc3"), R(RBX), R(RAX), 0, SIX, SIX & ~(CT_FLAG_ZF | CT_FLAG_CF), 0, true}, /* tzcnt */
      {I("\x0f\x2f\xc1"), 0, 0, 0, SIX, 0, 0, false},                         /* comiss %xmm1, %xmm0 */
      {I("\x0f\x50\xc1"), 0, R(RAX), 0, 0, 0, 0, false},                      /* movmskps %xmm1, %eax */
      {I("\x0f\x58\xc1"), 0, 0, 0, 0, 0, 0, true},                            /* addps %xmm1, %xmm0 */
      {I("\x0f\x1f\x00"), R(RAX), 0, 0, 0, 0, 0, true},                       /* nop (%rax) */
      {I("\xf3\x49\x90"), R(RAX) | R(R8), R(RAX) | R(R8), 0, 0, 0, 0, false}, /* pause? xchg %rax, %r8 */
#undef I
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    struct ct_effects e = effects_of(cases[i].code, cases[i].size);
    bool stack = e.store != CT_OPERAND_NONE || cases[i].code[0] == '\xc9';
    if ((e.reads & ~(stack ? R(RSP) : 0)) != (cases[i].reads & ~(stack ? R(RSP) : 0)) || e.writes != cases[i].writes ||
        e.flags_read != cases[i].flags_read || e.flags_written != cases[i].flags_written ||
        e.flags_undefined != cases[i].flags_undefined || e.flags_kept != cases[i].flags_kept ||
        e.derivable != cases[i].derivable) {
      fail_msg("case %zu: reads %x writes %x flags %x %x %x %x derivable %d", i, e.reads, e.writes, e.flags_read,
               e.flags_written, e.flags_undefined, e.flags_kept, e.derivable);
    }
  }
}

static void
check_access(const struct ct_access *access, unsigned base, unsigned index, int64_t disp, unsigned size, unsigned how)
{
  assert_int_equal(access->base, base);
  assert_int_equal(access->index, index);
  assert_int_equal(access->disp, disp);
  assert_int_equal(access->size, size);
  assert_int_equal(access->how, how);
}

static void
accesses(void **state)
{
  enum { RD = CT_ACCESS_READ, WR = CT_ACCESS_WRITE };
  struct ct_effects e = EFFECTS("\x83\x45\xf8\x01"); /* addl $1, -8(%rbp) */
  assert_int_equal(e.access_count, 1);
  check_access(&e.access[0], CT_RBP, CT_NO_REG, -8, 4, RD | WR);
  assert_true(e.uses_loaded && e.store == 0 && e.loaded_reg == CT_NO_REG);
  e = EFFECTS("\x4a\x8b\x04\xe5\x10\x00\x00\x00"); /* mov 16(, %r12, 8), %rax */
  check_access(&e.access[0], CT_NO_REG, CT_R12, 16, 8, RD);
  assert_true(e.access[0].scale == 3 && e.loaded_reg == CT_RAX && e.store == CT_OPERAND_NONE);
  e = EFFECTS("\xff\x74\x24\x08"); /* push 8(%rsp) */
  assert_int_equal(e.access_count, 2);
  check_access(&e.access[0], CT_RSP, CT_NO_REG, 8, 8, RD);
  check_access(&e.access[1], CT_RSP, CT_NO_REG, -8, 8, WR);
  e = EFFECTS("\x8f\x44\x24\x08"); /* pop 8(%rsp) */
  check_access(&e.access[0], CT_RSP, CT_NO_REG, 16, 8, WR);
  check_access(&e.access[1], CT_RSP, CT_NO_REG, 0, 8, RD);
  e = EFFECTS("\x66\x0f\x38\xf8\x65\x08"); /* movdir64b 8(%rbp), %rsp: to where rsp points, and pushes nothing */
  assert_int_equal(e.access_count, 2);
  check_access(&e.access[0], CT_RBP, CT_NO_REG, 8, 64, RD);
  check_access(&e.access[1], CT_RSP, CT_NO_REG, 0, 64, WR);
  e = EFFECTS("\x64\x48\x8b\x04\x25\x28\x00\x00\x00"); /* mov %fs:40, %rax */
  check_access(&e.access[0], CT_NO_REG, CT_NO_REG, 40, 8, RD);
  assert_int_equal(e.access[0].segment, CT_SEGMENT_FS);
  e = EFFECTS("\x48\x8d\x05\x10\x00\x00\x00"); /* lea 16(%rip), %rax */
  check_access(&e.access[0], CT_NO_REG, CT_NO_REG, 16, 0, CT_ACCESS_RIP);
  e = EFFECTS("\x48\x0f\xab\x03"); /* bts %rax, (%rbx) */
  check_access(&e.access[0], CT_RBX, CT_NO_REG, 0, 8, RD | WR);
  assert_int_equal(e.access[0].bits_reg, CT_RAX);
  e = EFFECTS("\xf3\x48\xab"); /* rep stosq */
  check_access(&e.access[0], CT_RDI, CT_NO_REG, 0, 8, WR | CT_ACCESS_REPEATED);
  assert_true(e.derivable && !e.uses_loaded);
  e = EFFECTS("\xc5\xfd\x7f\x07"); /* vmovdqa %ymm0, (%rdi) */
  check_access(&e.access[0], CT_RDI, CT_NO_REG, 0, 32, WR);
  e = EFFECTS("\x62\xf2\x7d\x49\xa2\x04\x8f"); /* vscatterdps %zmm0, (%rdi, %zmm1, 4){%k1} */
  assert_int_equal(e.access[0].how, WR | CT_ACCESS_VECTOR | CT_ACCESS_PART);
}

/* A SIB byte of no base, with REX.B, which is about nothing then: Zydis 4.0 says r13d. */
static void
no_base(void **state)
{
  char text[64];
  static const char lea[] = "\x67\x4d\x8d\x24\x0d\xfa\x1c\xb8\x2f";          /* lea 0x2fb81cfa(, %ecx), %r12 */
  struct ct_effects e = EFFECTS("\xf3\x67\x4f\xf7\x34\xd5\x44\xc1\x7e\x80"); /* div 0x807ec144(, %r10d, 8) */
  assert_int_equal(e.reads & R(R13), 0);
  assert_int_equal(e.access[0].base, CT_NO_REG);
  assert_int_equal(e.access[0].index, CT_R10);
  assert_int_equal(e.access[0].disp, (int32_t)0x807ec144);
  assert_true(ct_disassemble((const uint8_t *)lea, sizeof(lea) - 1, 0, CT_SYNTAX_ATT, text, sizeof(text)));
  assert_non_null(strstr(text, "0x2fb81cfa(,%ecx,1)"));
  e = EFFECTS("\x67\x4d\x8d\x64\x0d\x10"); /* lea 0x10(%r13d, %ecx), %r12 */
  assert_int_equal(e.access[0].base, CT_R13);
  (void)state;
}

static void
vectors(void **state)
{
  struct ct_effects e = EFFECTS("\x0f\x58\xc1"); /* addps %xmm1, %xmm0 */
  assert_true(e.vectors_read == 3 && e.vectors_written == 1 && e.vector_size == 16);
  assert_int_equal(e.traits & CT_EFFECT_VECTOR_ZEROES, 0);
  e = EFFECTS("\xc5\xf4\x58\xc2"); /* vaddps %ymm2, %ymm1, %ymm0 */
  assert_true(e.vectors_read == 6 && e.vectors_written == 1 && e.vector_size == 32);
  assert_int_not_equal(e.traits & CT_EFFECT_VECTOR_ZEROES, 0);
  e = EFFECTS("\x62\xf1\x74\x49\xc2\xca\x00"); /* vcmpeqps %zmm2, %zmm1, %k1{%k1} */
  assert_true(e.vectors_read == 6 && e.masks_read == 2 && e.masks_written == 2 && e.vectors_written == 0);
  e = EFFECTS("\xc5\xf8\x77"); /* vzeroupper */
  assert_true(e.vectors_written == 0xffff && e.vector_size == 16 && (e.traits & CT_EFFECT_VECTOR_ZEROES) != 0);
  e = EFFECTS("\x62\xf2\x7f\x48\x68\xe9"); /* vp2intersectd %zmm1, %zmm0, %k5: and %k4 */
  assert_int_equal(e.masks_written, 3 << 4);
  e = EFFECTS("\xc4\xe2\x7d\x17\xc1"); /* vptest %ymm1, %ymm0 */
  assert_true(e.flags_written == SIX && !e.derivable);
  e = EFFECTS("\x0f\x6f\xc1"); /* movq %mm1, %mm0 */
  assert_int_not_equal(e.traits & CT_EFFECT_X87, 0);
}

static void
control_flow(void **state)
{
  static const struct {
    const char *code;
    size_t size;
    enum ct_insn_flow flow;
    bool derivable;
  } cases[] = {
#define I(code) code, sizeof(code) - 1
      {I("\xeb\x10"), CT_INSN_FLOW_JUMP, true},
      {I("\x74\x10"), CT_INSN_FLOW_BRANCH, true},
      {I("\xe2\x10"), CT_INSN_FLOW_LOOP, true},
      {I("\xf3\xe1\x10"), CT_INSN_FLOW_OTHER, false}, /* loope with a prefix that AMD's take for loope and loopne */
      {I("\xe8\x10\x00\x00\x00"), CT_INSN_FLOW_CALL, true},
      {I("\xff\xe0"), CT_INSN_FLOW_JUMP_INDIRECT, true},
      {I("\x3e\xff\xe0"), CT_INSN_FLOW_JUMP_INDIRECT, true}, /* notrack */
      {I("\xff\x10"), CT_INSN_FLOW_CALL_INDIRECT, true},
      {I("\xc3"), CT_INSN_FLOW_RET, true},
      {I("\xf2\xc3"), CT_INSN_FLOW_RET, true}, /* bnd */
      {I("\xc2\x08\x00"), CT_INSN_FLOW_RET, true},
      {I("\xcb"), CT_INSN_FLOW_OTHER, false},
      {I("\x66\xc3"), CT_INSN_FLOW_OTHER, false},
      {I("\x66\xe8\x10\x00\x00\x00"), CT_INSN_FLOW_OTHER, false},
      {I("\x66\x66\x48\xe8\x10\x00\x00\x00"), CT_INSN_FLOW_CALL, true}, /* of thread-local variables */
      {I("\x0f\x05"), CT_INSN_FLOW_SYSCALL, false},
      {I("\xcd\x80"), CT_INSN_FLOW_OTHER, false},
      {I("\xcc"), CT_INSN_FLOW_TRAP, false},
      {I("\x0f\x0b"), CT_INSN_FLOW_TRAP, false},
      {I("\xc7\xf8\x10\x00\x00\x00"), CT_INSN_FLOW_OTHER, false}, /* xbegin */
      {I("\xf3\x0f\x1e\xfa"), CT_INSN_FLOW_NEXT, true},           /* endbr64 */
#undef I
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    struct ct_effects e = effects_of(cases[i].code, cases[i].size);
    if (e.flow != cases[i].flow || e.derivable != cases[i].derivable) {
      fail_msg("case %zu: flow %u derivable %d", i, e.flow, e.derivable);
    }
  }
  struct ct_effects e = EFFECTS("\x74\xf0");
  assert_int_equal(ct_effects_target(&e, 0x1000), 0xff2);
}

static void
locked(void **state)
{
  struct ct_effects e = EFFECTS("\xf0\x01\x03"); /* lock add %eax, (%rbx) */
  assert_false(e.derivable);
  assert_true((e.traits & CT_EFFECT_LOCKED) != 0 && e.flags_written == SIX && e.writes == 0);
  e = EFFECTS("\xf0\x0f\xc1\x03"); /* lock xadd %eax, (%rbx): eax has the old value then */
  assert_true(e.derivable && e.loaded_reg == CT_RAX);
  e = EFFECTS("\xf0\x0f\xb1\x0b"); /* lock cmpxchg %ecx, (%rbx) */
  assert_true(e.derivable && e.loaded_reg == CT_RAX);
  e = EFFECTS("\x87\x0b"); /* xchg %ecx, (%rbx) */
  assert_true(e.derivable && e.loaded_reg == CT_RCX && (e.traits & CT_EFFECT_LOCKED) != 0);
  e = EFFECTS("\x86\x23"); /* xchg %ah, (%rbx): not in the low bits of a register */
  assert_false(e.derivable);
}

static void
no_instruction(void **state)
{
  struct ct_effects e = {.length = 99};
  assert_false(ct_effects_of((const uint8_t *)"\x06", 1, &e));
  assert_false(ct_effects_of((const uint8_t *)"\x48\x8b", 2, &e)); /* cut off */
  assert_int_equal(e.length, 99);
}

/* ---- the emulator ---- */

static struct ct_mem_store stores[2];
static unsigned store_count;

static enum ct_emulated
run(struct ct_effects e, struct ct_cpu *cpu, uint64_t loaded)
{
  store_count = 0;
  return ct_emulate(&e, cpu, loaded, stores, &store_count);
}

static void
calls_and_returns(void **state)
{
  struct ct_cpu cpu = {.rip = 0x1000, .reg[CT_RSP] = 0x8000};
  assert_int_equal(run(EFFECTS("\xe8\x10\x00\x00\x00"), &cpu, 0), CT_EMULATED);
  assert_true(cpu.rip == 0x1015 && cpu.reg[CT_RSP] == 0x7ff8 && store_count == 1);
  assert_true(stores[0].address == 0x7ff8 && stores[0].value == 0x1005 && stores[0].size == 8 && stores[0].known);
  assert_int_equal(run(EFFECTS("\xc2\x10\x00"), &cpu, 0x1005), CT_EMULATED);
  assert_true(cpu.rip == 0x1005 && cpu.reg[CT_RSP] == 0x8010 && store_count == 0);
}

static void
unknown_flags(void **state)
{
  struct ct_cpu cpu = {.rip = 0x1000, .reg[CT_RAX] = 6, .reg[CT_RBX] = 7, .flags = 0x202 | CT_FLAG_ZF};
  assert_int_equal(run(EFFECTS("\x0f\xaf\xc3"), &cpu, 0), CT_EMULATED); /* imul %ebx, %eax */
  assert_true(cpu.reg[CT_RAX] == 42 && cpu.unknown == (CT_FLAG_SF | CT_FLAG_ZF | CT_FLAG_AF | CT_FLAG_PF));
  struct ct_cpu before = cpu;
  assert_int_equal(run(EFFECTS("\x74\x10"), &cpu, 0), CT_EMULATED_UNKNOWN_FLAG); /* je */
  assert_memory_equal(&cpu, &before, sizeof(cpu));
  assert_int_equal(run(EFFECTS("\x72\x10"), &cpu, 0), CT_EMULATED); /* jb */
  assert_int_equal(run(EFFECTS("\x9c"), &cpu, 0), CT_EMULATED);     /* pushfq */
  assert_false(stores[0].known);
  assert_int_equal(run(EFFECTS("\xd3\xe0"), &cpu, 0), CT_EMULATED); /* shl %cl, %eax; cl is 0: they stay unknown */
  assert_int_equal(cpu.unknown, before.unknown);
  cpu.reg[CT_RCX] = 1;
  assert_int_equal(run(EFFECTS("\xd3\xe0"), &cpu, 0), CT_EMULATED);
  assert_true(cpu.reg[CT_RAX] == 84 && cpu.unknown == CT_FLAG_AF && (cpu.flags & CT_FLAG_ZF) == 0);
  cpu.unknown = 0;
  assert_int_equal(run(EFFECTS("\x74\x10"), &cpu, 0), CT_EMULATED);
}

static void
divisions(void **state)
{
  struct ct_effects idiv = EFFECTS("\x48\xf7\xfb"); /* idiv %rbx */
  struct ct_cpu cpu = {.reg = {[CT_RAX] = -7ull, [CT_RDX] = -1ull, [CT_RBX] = 2}};
  assert_int_equal(run(idiv, &cpu, 0), CT_EMULATED);
  assert_true(cpu.reg[CT_RAX] == -3ull && cpu.reg[CT_RDX] == -1ull && cpu.unknown == SIX);
  struct ct_cpu least = {.reg = {[CT_RAX] = 0, [CT_RDX] = 1ull << 63, [CT_RBX] = -1ull}}; /* -2^127 / -1 */
  assert_int_equal(run(idiv, &least, 0), CT_EMULATED_FAULT);
  struct ct_cpu zero = {.reg = {[CT_RAX] = 1}};
  assert_int_equal(run(idiv, &zero, 0), CT_EMULATED_FAULT);
  assert_int_equal(zero.rip, 0);
}

static void
strings(void **state)
{
  struct ct_cpu cpu = {.reg = {[CT_RAX] = 0x55, [CT_RCX] = 10, [CT_RDI] = 0x9000, [CT_RSI] = 0x7000}};
  assert_int_equal(run(EFFECTS("\xf3\xaa"), &cpu, 0), CT_EMULATED); /* rep stosb */
  assert_true(cpu.reg[CT_RDI] == 0x900a && cpu.reg[CT_RCX] == 0 && store_count == 1);
  assert_true(stores[0].address == 0x9000 && stores[0].count == 10 && stores[0].size == 1 && stores[0].known &&
              stores[0].value == 0x55);
  cpu.reg[CT_RCX] = 2;
  cpu.flags = CT_FLAG_DF;
  assert_int_equal(run(EFFECTS("\xf3\x48\xa5"), &cpu, 0), CT_EMULATED); /* rep movsq, downwards */
  assert_true(cpu.reg[CT_RDI] == 0x900a - 16 && cpu.reg[CT_RSI] == 0x7000 - 16);
  assert_true(stores[0].address == 0x900a - 8 && stores[0].count == 2 && !stores[0].known);
  assert_int_equal(run(EFFECTS("\xf3\x48\xa5"), &cpu, 0), CT_EMULATED); /* rcx is 0 */
  assert_int_equal(store_count, 0);
}

static void
stores_of_others(void **state)
{
  struct ct_cpu cpu = {.rip = 0x1000, .reg[CT_RDI] = 0x9000, .fs_base = 0x100000};
  assert_int_equal(run(EFFECTS("\xc5\xfd\x7f\x07"), &cpu, 0), CT_EMULATED); /* vmovdqa %ymm0, (%rdi) */
  assert_true(store_count == 1 && stores[0].address == 0x9000 && stores[0].size == 32 && !stores[0].known);
  struct ct_effects e = EFFECTS("\xf0\x64\xff\x47\x08"); /* lock incl %fs:8(%rdi) */
  assert_int_equal(run(e, &cpu, 0), CT_EMULATED_NOT_DERIVABLE);
  assert_int_equal(ct_mem_stores(&e, &cpu, stores), 1);
  assert_true(stores[0].address == 0x109008 && stores[0].size == 4 && !stores[0].known);
}

/* Any bytes: what is emulated writes only what it says, and never more than two stores. */
static void
any_bytes(void **state)
{
  struct rng rng = rng_of(15, 0);
  uint64_t derivable = 0;
  for (unsigned i = 0; i < 200000; i++) {
    uint8_t code[15];
    struct ct_effects e;
    struct ct_cpu cpu, before;
    rng_fill(&rng, code, sizeof(code));
    if (!ct_effects_of(code, 1 + rng_below(&rng, sizeof(code)), &e)) {
      continue;
    }
    rng_fill(&rng, &cpu, sizeof(cpu));
    cpu.unknown = 0;
    before = cpu;
    store_count = ct_mem_stores(&e, &cpu, stores);
    assert_true(store_count <= 2 && e.access_count <= 2);
    enum ct_emulated result = ct_emulate(&e, &cpu, rng_next(&rng), stores, &store_count);
    assert_true((result == CT_EMULATED_NOT_DERIVABLE) == !e.derivable);
    derivable += result == CT_EMULATED;
    for (unsigned r = 0; r < 16; r++) {
      assert_true(cpu.reg[r] == before.reg[r] || (result == CT_EMULATED && (e.writes >> r & 1) != 0));
    }
    uint64_t may_change = e.flags_written | ((e.traits & CT_EFFECT_WRITES_DF) != 0 ? CT_FLAG_DF : 0);
    assert_int_equal((cpu.flags ^ before.flags) & ~may_change, 0);
    assert_int_equal(cpu.unknown & ~(uint64_t)e.flags_undefined, 0);
  }
  assert_true(derivable > 50000);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(registers_and_flags),
      cmocka_unit_test(accesses),
      cmocka_unit_test(no_base),
      cmocka_unit_test(vectors),
      cmocka_unit_test(control_flow),
      cmocka_unit_test(locked),
      cmocka_unit_test(no_instruction),
      cmocka_unit_test(calls_and_returns),
      cmocka_unit_test(unknown_flags),
      cmocka_unit_test(divisions),
      cmocka_unit_test(strings),
      cmocka_unit_test(stores_of_others),
      cmocka_unit_test(any_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
