/* SPDX-License-Identifier: MIT */
/*
 * The fast decoder may know nothing, but what it knows must be what Zydis says. Compared over all opcodes of the
 * two maps with every ModRM, many SIBs and prefixes; over random bytes; and over the functions of this program and of
 * libc, of which it must know nearly all. bench/decode_bench.c does the last for any number of files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rounds.h"
#include "target/elf.h"
#include "target/functions.h"
#include "x86/decode.h"
#include "xorshift.h"

/* What op does not say has no meaning. */
static bool
same(const struct ct_insn *a, const struct ct_insn *b)
{
  enum ct_op op = ct_insn_op(a);
  bool with_rm = op == CT_OP_ADD_IMM || op == CT_OP_SUB_IMM || op == CT_OP_MOV_IMM || op == CT_OP_WRITE_RM;
  bool with_value = (with_rm && op != CT_OP_WRITE_RM) || op == CT_OP_BRANCH || op == CT_OP_JUMP || op == CT_OP_CALL;
  bool memory = (a->kind & CT_INSN_MEMORY) != 0;
  return a->length == b->length && op == ct_insn_op(b) && ct_insn_traits(a) == ct_insn_traits(b) &&
         memory == ((b->kind & CT_INSN_MEMORY) != 0) && ct_insn_base(a) == ct_insn_base(b) &&
         (!memory || ct_insn_disp(a) == ct_insn_disp(b)) && (!with_value || ct_insn_value(a) == ct_insn_value(b)) &&
         (!with_rm || ct_insn_rm(a) == ct_insn_rm(b)) && (op != CT_OP_LEA || ct_insn_reg(a) == ct_insn_reg(b));
}

static void
fail_at(const uint8_t *code, const struct ct_insn *fast, const struct ct_insn *full)
{
  char text[64];
  for (int i = 0; i < 15; i++) {
    sprintf(text + 3 * i, "%02x ", code[i]);
  }
  fail_msg("%s: fast length %u op %u traits %u; Zydis length %u op %u traits %u", text, fast->length, ct_insn_op(fast),
           ct_insn_traits(fast), full->length, ct_insn_op(full), ct_insn_traits(full));
}

/* Compares the two at code, of which size bytes may be read. True when the fast one knows the instruction. */
static bool
compare(const uint8_t *code, size_t size)
{
  struct ct_insn fast, full = {0};
  if (!ct_decode_fast(code, size, &fast)) {
    return false;
  }
  if (!ct_decode_full(code, size, &full) || !same(&fast, &full)) {
    fail_at(code, &fast, &full);
  }
  return true;
}

static const struct {
  const char *bytes;
  size_t count;
} prefix_sets[] = {
    {"", 0},         {"\x66", 1},         {"\xf2", 1},         {"\xf3", 1},     {"\x2e", 1},     {"\x3e", 1},
    {"\x64", 1},     {"\x65", 1},         {"\x67", 1},         {"\xf0", 1},     {"\x66\x66", 2}, {"\x66\xf2", 2},
    {"\xf3\x66", 2}, {"\xf3\xf3", 2},     {"\xf2\xf3", 2},     {"\x66\x2e", 2}, {"\x65\x64", 2}, {"\x64\x65", 2},
    {"\x66\xf0", 2}, {"\x66\x66\x2e", 3}, {"\x26\x36\x66", 3},
};

/* One opcode after prefixes and REX, with every ModRM; returns how many forms the fast decoder knows. */
static size_t
compare_opcode(const uint8_t *head, size_t head_bytes, const uint8_t *opcode, size_t opcode_bytes)
{
  static const uint8_t sibs[] = {0x24, 0x25, 0x65, 0x0d, 0xe4};
  static const uint8_t tail[] = {0x81, 0x72, 0x53, 0x94, 0x25, 0x16, 0x87, 0xf8, 0x39, 0x1a, 0x9b, 0x2c};
  size_t known = 0;
  for (unsigned modrm = 0; modrm < 256; modrm++) {
    bool has_sib = (modrm & 7) == 4 && modrm < 0xc0;
    for (size_t s = 0; s < (has_sib ? sizeof(sibs) : 1); s++) {
      uint8_t code[48] = {0};
      size_t at = head_bytes;
      memcpy(code, head, head_bytes);
      memcpy(code + at, opcode, opcode_bytes);
      at += opcode_bytes;
      code[at++] = (uint8_t)modrm;
      code[at++] = has_sib ? sibs[s] : 0xf8;
      memcpy(code + at, tail, sizeof(tail));
      known += compare(code, sizeof(code));
    }
  }
  return known;
}

static size_t
compare_prefixes(size_t set, unsigned rex)
{
  uint8_t head[8];
  size_t head_bytes = prefix_sets[set].count, known = 0;
  memcpy(head, prefix_sets[set].bytes, head_bytes);
  if (rex != 0) {
    head[head_bytes++] = (uint8_t)rex;
  }
  for (unsigned byte = 0; byte < 256; byte++) {
    uint8_t opcode[2] = {0x0f, (uint8_t)byte};
    if (byte != 0x0f) {
      known += compare_opcode(head, head_bytes, opcode + 1, 1);
    }
    known += compare_opcode(head, head_bytes, opcode, 2);
  }
  return known;
}

static void
test_every_form(void **state)
{
  static const uint8_t rexes[] = {0, 0x40, 0x41, 0x42, 0x44, 0x48, 0x4f};
  (void)state;
  for (size_t set = 0; set < sizeof(prefix_sets) / sizeof(prefix_sets[0]); set++) {
    for (size_t r = 0; r < sizeof(rexes); r++) {
      if (set > 3 && r > 1 && rexes[r] != 0x48) {
        continue; /* the many together are not more than each of them */
      }
      size_t known = compare_prefixes(set, rexes[r]);
      if (set == 0) {
        assert_true(known > 100000);
      }
    }
  }
}

/* VEX and EVEX: every map and opcode, with what is around it by chance, but often enough what instructions have. */
static void
test_vector_forms(void **state)
{
  static const uint8_t firsts[] = {0xc5, 0xc4, 0x62};
  const unsigned share = (unsigned)rounds(1, 2), turns[] = {50 * share, 100 * share, 250 * share};
  uint64_t seed = 88172645463325252ull;
  size_t known[3] = {0};
  (void)state;
  for (size_t f = 0; f < sizeof(firsts); f++) {
    for (unsigned n = 0; n < (f == 0 ? 1u : 8u) * 256 * turns[f]; n++) {
      uint8_t code[48];
      for (size_t i = 0; i < sizeof(code); i += 8) {
        memcpy(code + i, &(uint64_t){xorshift(&seed)}, 8);
      }
      size_t head = f == 0 ? 2 : f == 1 ? 3 : 4, second = f == 0 ? 1 : 2;
      unsigned opcode = n / turns[f] % 256, map = n / turns[f] / 256, chance = code[40];
      code[0] = firsts[f];
      code[1] = f == 0 ? code[1] : (uint8_t)((code[1] & (chance & 1 ? 0xf0 : 0xf8)) | map);
      code[second] |= (chance & 2) != 0 ? 0x78 : 0; /* no register in vvvv */
      code[2] |= f == 2 && (chance & 0x1c) != 0 ? 4 : 0;
      if (f == 1) {
        code[1] &= (chance & 0x1c) != 0 ? 0xef : 0xff;
      }
      if (f == 2) {
        code[1] &= (chance & 0x1c) != 0 ? 0xf7 : 0xff;
        code[3] &= (chance & 0x60) != 0 ? 0x6f : 0xff; /* neither z nor b */
        code[3] &= (chance & 0x80) != 0 ? 0xf8 : 0xff; /* no mask */
        code[3] |= (chance & 2) != 0 ? 8 : 0;
      }
      code[head] = (uint8_t)opcode;
      known[f] += compare(code, sizeof(code));
    }
  }
  assert_true(known[0] > 1500 * share && known[1] > 4000 * share && known[2] > 6000 * share);
}

static void
test_random_bytes(void **state)
{
  (void)state;
  uint64_t seed = 0x9e3779b97f4a7c15ull;
  uint8_t code[48];
  for (uint64_t n = rounds(150000, 400000); n > 0; n--) {
    for (size_t i = 0; i < sizeof(code); i += 8) {
      memcpy(code + i, &(uint64_t){xorshift(&seed)}, 8);
    }
    compare(code, sizeof(code));
  }
}

/* An instruction is not known from fewer bytes than it has, and from no more than it has. */
static void
test_ends(void **state)
{
  static const uint8_t forms[][16] = {
      "\x48\x8d\x65\xf0",                     /* lea -16(%rbp), %rsp */
      "\xe8\x11\x22\x33\x44",                 /* call */
      "\x48\xb8\x01\x02\x03\x04\x05\x06\x07", /* movabs, its last byte is 0 */
      "\xf3\x0f\x1e\xfa",                     /* endbr64 */
      "\x66\x2e\x0f\x1f\x84\x24\x01\x02\x03\x04",
      "\x48\xc7\x84\x24\x01\x02\x03\x04\x05\x06\x07\x08",
      "\xc3",
      "\xc4\xe3\x75\x46\x84\x24\x01\x02\x03\x04\x20", /* vperm2i128 */
      "\x62\xf1\x7c\x48\x10\x44\x24\x01",
      "\xc5\xf8\x77",
  };
  static const uint8_t lengths[] = {4, 5, 10, 4, 10, 12, 1, 11, 8, 3};
  (void)state;
  for (size_t f = 0; f < sizeof(lengths); f++) {
    struct ct_insn in;
    for (size_t size = 0; size <= 16; size++) {
      uint8_t *exact = malloc(size + 1); /* so that a sanitizer sees a read beyond */
      memcpy(exact, forms[f], size);
      bool known = size != 0 && ct_decode_fast(exact, size, &in);
      assert_int_equal(known, size >= lengths[f]);
      assert_true(!known || (in.length == lengths[f] && in.code == exact));
      free(exact);
    }
    uint8_t long_enough[64] = {0};
    memcpy(long_enough, forms[f], 16);
    assert_true(ct_decode_fast(long_enough, sizeof(long_enough), &in));
    assert_int_equal(in.length, lengths[f]);
    assert_false(ct_decode(long_enough, lengths[f] - 1u, sizeof(long_enough), &in));
    assert_true(ct_decode(long_enough, lengths[f], sizeof(long_enough), &in));
  }
}

struct expected {
  const char *bytes;
  size_t count;
  enum ct_op op;
  unsigned traits;
  uint8_t base;
  int32_t disp, value;
  int reg, rm;
};

static void
check(const struct expected *expected, const struct ct_insn *in)
{
  assert_int_equal(in->length, expected->count);
  assert_int_equal(ct_insn_op(in), expected->op);
  assert_int_equal(ct_insn_traits(in), expected->traits);
  assert_int_equal(ct_insn_base(in), expected->base);
  if (expected->base != CT_BASE_NONE) {
    assert_int_equal(ct_insn_disp(in), expected->disp);
  }
  assert_int_equal(ct_insn_value(in), expected->value);
  if (expected->reg >= 0) {
    assert_int_equal(ct_insn_reg(in), expected->reg);
  }
  if (expected->rm >= -1) {
    assert_int_equal(ct_insn_rm(in), expected->rm);
  }
}

#define READS CT_TRAIT_READS_FLAGS
#define SETS  CT_TRAIT_SETS_FLAGS
#define ANY   (-2)

static void
test_by_hand(void **state)
{
  static const struct expected cases[] = {
      {"\x48\x8d\x65\xf0", 4, CT_OP_LEA, 0, CT_BASE_RBP, -16, 0, 4, -1},
      {"\x4c\x8d\x25\x10\x00\x00\x00", 7, CT_OP_LEA, 0, CT_BASE_RIP, 16, 0, 12, -1},
      {"\x48\x83\xec\x18", 4, CT_OP_SUB_IMM, SETS, CT_BASE_NONE, 0, 24, ANY, 4},
      {"\x48\x81\xc4\x88\x00\x00\x00", 7, CT_OP_ADD_IMM, SETS, CT_BASE_NONE, 0, 136, ANY, 4},
      {"\x49\x83\xec\x18", 4, CT_OP_SUB_IMM, SETS, CT_BASE_NONE, 0, 24, ANY, 12},
      {"\xb8\x3b\x00\x00\x00", 5, CT_OP_MOV_IMM, 0, CT_BASE_NONE, 0, 59, ANY, 0},
      {"\x41\xb8\x3b\x00\x00\x00", 6, CT_OP_MOV_IMM, 0, CT_BASE_NONE, 0, 59, ANY, 8},
      {"\x48\xc7\xc0\x0f\x00\x00\x00", 7, CT_OP_MOV_IMM, 0, CT_BASE_NONE, 0, 15, ANY, 0},
      {"\x48\x89\x44\x24\xf8", 5, CT_OP_WRITE_RM, 0, CT_BASE_RSP, -8, 0, ANY, -1},
      {"\x48\x8b\x44\x0c\x08", 5, CT_OP_OTHER, 0, CT_BASE_NONE, 0, 0, ANY, -1}, /* with an index */
      {"\x49\x8b\x44\x24\x08", 5, CT_OP_OTHER, 0, CT_BASE_NONE, 0, 0, ANY, -1}, /* r12 */
      {"\x49\x8b\x45\x08", 4, CT_OP_OTHER, 0, CT_BASE_NONE, 0, 0, ANY, -1},     /* r13 */
      {"\x48\x8b\x04\x25\x00\x10\x00\x00", 8, CT_OP_OTHER, 0, CT_BASE_NONE, 0, 0, ANY, -1},
      {"\x64\x48\x8b\x04\x25\x28\x00\x00\x00", 9, CT_OP_OTHER, 0, CT_BASE_NONE, 0, 0, ANY, -1},
      {"\x0f\x84\x00\x01\x00\x00", 6, CT_OP_BRANCH, READS, CT_BASE_NONE, 0, 256, ANY, ANY},
      {"\x75\xfe", 2, CT_OP_BRANCH, READS, CT_BASE_NONE, 0, -2, ANY, ANY},
      {"\xeb\x02", 2, CT_OP_JUMP, 0, CT_BASE_NONE, 0, 2, ANY, ANY},
      {"\xe8\xfb\xff\xff\xff", 5, CT_OP_CALL, 0, CT_BASE_NONE, 0, -5, ANY, ANY},
      {"\x48\x11\xc8", 3, CT_OP_OTHER, READS | SETS, CT_BASE_NONE, 0, 0, ANY, 0},
      {"\xf7\x44\x24\x04\x01\x00\x00\x00", 8, CT_OP_OTHER, SETS, CT_BASE_RSP, 4, 1, ANY, -1}, /* test */
      {"\xf7\x54\x24\x04", 4, CT_OP_OTHER, 0, CT_BASE_RSP, 4, 0, ANY, -1},                    /* not */
      {"\x66\x0f\x1f\x44\x00\x00", 6, CT_OP_NOP, 0, CT_BASE_NONE, 0, 0, ANY, -1},
      {"\xff\x25\x00\x00\x00\x00", 6, CT_OP_JUMP_INDIRECT, 0, CT_BASE_RIP, 0, 0, ANY, -1},
      {"\xff\xd0", 2, CT_OP_CALL_INDIRECT, 0, CT_BASE_NONE, 0, 0, ANY, 0},
      {"\xc2\x08\x00", 3, CT_OP_RET_IMM, 0, CT_BASE_NONE, 0, 8, ANY, ANY},
      {"\xf3\xc3", 2, CT_OP_RET, 0, CT_BASE_NONE, 0, 0, ANY, ANY},
      {"\x0f\x05", 2, CT_OP_SYSCALL, SETS, CT_BASE_NONE, 0, 0, ANY, ANY},
      {"\xf3\x0f\x10\x44\x24\x0c", 6, CT_OP_OTHER, 0, CT_BASE_RSP, 12, 0, ANY, -1},                  /* movss */
      {"\xc5\xf8\x10\x44\x24\x10", 6, CT_OP_OTHER, 0, CT_BASE_RSP, 16, 0, ANY, -1},                  /* vmovups */
      {"\xc4\xc1\x78\x10\x44\x24\x10", 7, CT_OP_OTHER, 0, CT_BASE_NONE, 0, 0, ANY, -1},              /* of r12 */
      {"\x62\xf1\x7c\x48\x10\x44\x24\x01", 8, CT_OP_OTHER, 0, CT_BASE_RSP, 1, 0, ANY, -1},           /* EVEX */
      {"\xc5\xf8\x77", 3, CT_OP_OTHER, 0, CT_BASE_NONE, 0, 0, ANY, ANY},                             /* vzeroupper */
      {"\xc5\xf9\x2e\x45\xe8", 5, CT_OP_OTHER, SETS, CT_BASE_RBP, -24, 0, ANY, -1},                  /* vucomisd */
      {"\xc4\xe3\x75\x46\xc2\x20", 6, CT_OP_OTHER, 0, CT_BASE_NONE, 0, 32, ANY, 2},                  /* vperm2i128 */
      {"\xc4\xe2\x78\xf3\xcb", 5, CT_OP_OTHER, SETS, CT_BASE_NONE, 0, 0, ANY, 3},                    /* blsr */
      {"\x62\xf1\x75\x48\x74\x05\x10\x00\x00\x00", 10, CT_OP_OTHER, 0, CT_BASE_RIP, 16, 0, ANY, -1}, /* to k0 */
  };
  (void)state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    uint8_t code[48] = {0};
    struct ct_insn in;
    memcpy(code, cases[i].bytes, cases[i].count);
    assert_true(ct_decode_fast(code, sizeof(code), &in));
    check(&cases[i], &in);
    assert_true(ct_decode_full(code, sizeof(code), &in));
    check(&cases[i], &in);
  }
}

/* What only Zydis knows, and what is no instruction at all. */
static void
test_left_to_zydis(void **state)
{
  static const struct expected cases[] = {
      {"\x65\x48\x8b\x04\x25\x10\x00\x00\x00", 9, CT_OP_OTHER, CT_TRAIT_GS, CT_BASE_NONE, 0, 0, ANY, -1},
      {"\xf0\x48\x0f\xb1\x4c\x24\x08", 7, CT_OP_OTHER, SETS, CT_BASE_RSP, 8, 0, ANY, -1},
      {"\xc4\xe2\x69\x90\x04\x0c", 6, CT_OP_OTHER, 0, CT_BASE_NONE, 0, 0, ANY, -1},         /* vpgatherdd */
      {"\xc5\xf8\x90\xc8", 4, CT_OP_OTHER, 0, CT_BASE_NONE, 0, 0, ANY, 0},                  /* kmovw %k0, %k1 */
      {"\x62\xf5\x7c\x48\x58\xc1", 6, CT_OP_OTHER, 0, CT_BASE_NONE, 0, 0, ANY, 1},          /* vaddph */
      {"\xf3\x48\x0f\xae\xd8", 5, CT_OP_OTHER, CT_TRAIT_GS, CT_BASE_NONE, 0, 0, ANY, ANY},  /* wrgsbase */
      {"\xc7\xf8\x10\x00\x00\x00", 6, CT_OP_BRANCH, 0, CT_BASE_NONE, 0, 16, ANY, ANY},      /* xbegin */
      {"\x0f\x01\xd5", 3, CT_OP_CALL_INDIRECT, 0, CT_BASE_NONE, 0, 0, ANY, ANY},            /* xend */
      {"\x67\xe8\x10\x00\x00\x00", 6, CT_OP_CALL, 0, CT_BASE_NONE, 0, 16, ANY, ANY},        /* addr32 call */
      {"\x67\x8d\x44\x24\x10", 5, CT_OP_LEA, 0, CT_BASE_RSP, 16, 0, 0, -1},                 /* of esp */
      {"\x66\x0f\x3a\x0f\x44\x24\x10\x08", 8, CT_OP_OTHER, 0, CT_BASE_RSP, 16, 8, ANY, -1}, /* palignr */
  };
  (void)state;
  struct ct_insn in;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    uint8_t code[48] = {0};
    memcpy(code, cases[i].bytes, cases[i].count);
    assert_false(ct_decode_fast(code, sizeof(code), &in));
    assert_true(ct_decode(code, sizeof(code), sizeof(code), &in));
    check(&cases[i], &in);
  }
  static const uint8_t none[][48] = {{0x06}, {0xf0, 0x90}, {0xff, 0xff}, {0x0f, 0xff}, {0xc7, 0xc8}};
  for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
    if (ct_decode_full(none[i], sizeof(none[i]), &in)) {
      continue; /* a later Zydis knows it */
    }
    assert_false(ct_decode(none[i], sizeof(none[i]), sizeof(none[i]), &in));
  }
}

static void
compare_file(const char *path)
{
  struct ct_elf *elf;
  const struct ct_function *functions;
  size_t count, instructions = 0, known = 0;
  struct ct_diag diag;
  assert_int_equal(ct_elf_open(path, &elf, &diag), 0);
  assert_int_equal(ct_elf_functions(elf, &functions, &count, &diag), 0);
  for (size_t i = 0; i < count; i++) {
    size_t left = ct_elf_bytes_left(elf, functions[i].address);
    size_t size = functions[i].size < left ? functions[i].size : left;
    const uint8_t *code = size != 0 ? ct_elf_bytes(elf, functions[i].address, left) : NULL;
    for (size_t at = 0; code != NULL && at < size;) {
      struct ct_insn in;
      known += compare(code + at, left - at);
      instructions++;
      at += ct_decode_full(code + at, size - at, &in) ? in.length : 1;
    }
  }
  ct_elf_close(elf);
  assert_true(instructions > 1000);
  assert_true(known * 100 > instructions * 95);
}

static void
test_real_code(void **state)
{
  (void)state;
  compare_file("/proc/self/exe");
  compare_file("/lib/x86_64-linux-gnu/libc.so.6");
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_form), cmocka_unit_test(test_vector_forms), cmocka_unit_test(test_random_bytes),
      cmocka_unit_test(test_ends),       cmocka_unit_test(test_by_hand),      cmocka_unit_test(test_left_to_zydis),
      cmocka_unit_test(test_real_code),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
