/* SPDX-License-Identifier: MIT */
/*
 * Each form of the emitter with every register, and displacements and constants at the borders of their sizes, against
 * the bytes that the system's assembler makes of the same text. Labels, and what does not fit, apart.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "x86/emit.h"
#include "x86/emit_vector.h"
#include "x86/patch.h"
#include "x86/trampoline.h"

#define BASE 0x1000u /* of the emitted code: the assembler's text begins there too */

static char text[4 << 20];
static size_t text_length;
static uint8_t emitted[1 << 20];
static struct ct_code code = {.bytes = emitted, .capacity = sizeof(emitted), .address = BASE};
static size_t starts[65536], texts[65536], count; /* of each instruction, in the code and in the text */

static const char *const names[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                    "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
static const char *const names32[] = {"eax", "ecx", "edx",  "ebx",  "esp",  "ebp",  "esi",  "edi",
                                      "r8d", "r9d", "r10d", "r11d", "r12d", "r13d", "r14d", "r15d"};
static const char *const names16[] = {"ax",  "cx",  "dx",   "bx",   "sp",   "bp",   "si",   "di",
                                      "r8w", "r9w", "r10w", "r11w", "r12w", "r13w", "r14w", "r15w"};
static const char *const names8[] = {"al",  "cl",  "dl",   "bl",   "spl",  "bpl",  "sil",  "dil",
                                     "r8b", "r9b", "r10b", "r11b", "r12b", "r13b", "r14b", "r15b"};
static const int32_t displacements[] = {0, 8, -8, 127, -128, 128, -129, 0x12345678, INT32_MIN};
static const int32_t constants[] = {0, 1, -4, 127, -128, 128, -129, 0x12345678, INT32_MIN};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* One line for the assembler; the form that is emitted next is its. */
static void __attribute__((format(printf, 1, 2))) line(const char *format, ...)
{
  va_list arguments;
  assert_true(count < COUNT(starts) && text_length + 200 < sizeof(text));
  starts[count] = code.length;
  texts[count++] = text_length;
  va_start(arguments, format);
  text_length += (size_t)vsprintf(text + text_length, format, arguments);
  va_end(arguments);
  text[text_length++] = '\n';
}

/* Operands in memory, one after the other: false after the last. */
static bool
nth_mem(size_t n, struct ct_mem *mem, char operand[64])
{
  size_t with_base = COUNT(names) * COUNT(displacements);
  if (n < with_base) {
    enum ct_reg base = (enum ct_reg)(n / COUNT(displacements));
    int32_t disp = displacements[n % COUNT(displacements)];
    *mem = ct_mem(base, disp);
    sprintf(operand, "%" PRId32 "(%%%s)", disp, names[base]);
    return true;
  }
  n -= with_base;
  if (n < 256) {
    enum ct_reg base = (enum ct_reg)(n / 16), index = (enum ct_reg)(n % 16);
    int32_t disp = displacements[n % COUNT(displacements)];
    index = index == CT_RSP ? CT_R12 : index;
    *mem = ct_mem_index(base, index, disp);
    sprintf(operand, "%" PRId32 "(%%%s,%%%s)", disp, names[base], names[index]);
    return true;
  }
  n -= 256;
  if (n < 3) {
    uint32_t offset = n == 0 ? 0 : n == 1 ? 8 : 0x1234;
    *mem = ct_mem_gs(offset);
    sprintf(operand, "%%gs:0x%" PRIx32, offset);
    return true;
  }
  n -= 3;
  if (n < 16) {
    *mem = ct_mem_fs((enum ct_reg)n);
    sprintf(operand, "%%fs:(%%%s)", names[n]);
    return true;
  }
  n -= 16;
  if (n < 2) {
    uint64_t target = n == 0 ? BASE + 0x20000 : 0x10;
    *mem = ct_mem_rip(target);
    sprintf(operand, "base%+" PRId64 "(%%rip)", (int64_t)(target - BASE));
    return true;
  }
  return false;
}

static void
all_registers(void)
{
  for (unsigned a = 0; a < 16; a++) {
    enum ct_reg to = (enum ct_reg)a;
    for (unsigned b = 0; b < 16; b++) {
      enum ct_reg from = (enum ct_reg)b;
#define PAIR(name, size, registers)                                                                                    \
  line(#name "%s %%%s, %%%s", size, registers[from], registers[to]);                                                   \
  ct_emit_##name
      PAIR(mov, "q", names)(&code, to, from);
      line("movl %%%s, %%%s", names32[from], names32[to]);
      ct_emit_mov32(&code, to, from);
      line("cmovb %%%s, %%%s", names[from], names[to]);
      ct_emit_cmovb(&code, to, from);
      line("movzbl %%%s, %%%s", names8[from], names32[to]);
      ct_emit_movzx8(&code, to, from);
      line("movzwl %%%s, %%%s", names16[from], names32[to]);
      ct_emit_movzx16(&code, to, from);
      line("rorx $14, %%%s, %%%s", names[from], names[to]);
      ct_emit_rorx(&code, to, from, 14);
#define ALU(name)                                                                                                      \
  PAIR(name, "q", names)(&code, to, from);                                                                             \
  line(#name "l %%%s, %%%s", names32[from], names32[to]);                                                              \
  ct_emit_##name##32(&code, to, from);
      ALU(add) ALU(or) ALU(and) ALU(sub) ALU(xor) ALU(cmp)
#undef ALU
    }
    line("push %%%s", names[to]);
    ct_emit_push(&code, to);
    line("jmp *%%%s", names[to]);
    ct_emit_jmp_reg(&code, to);
    line("pop %%%s", names[to]);
    ct_emit_pop(&code, to);
    line("decq %%%s", names[to]);
    ct_emit_dec(&code, to);
    line("shl $32, %%%s", names[to]);
    ct_emit_shl(&code, to, 32);
    line("shr $16, %%%s", names[to]);
    ct_emit_shr(&code, to, 16);
    line("shrq %%%s", names[to]);
    ct_emit_shr_once(&code, to);
    line("movl $0x89abcdef, %%%s", names32[to]);
    ct_emit_mov32_imm(&code, to, 0x89abcdef);
    line("movabs $0x123456789abcdef0, %%%s", names[to]);
    ct_emit_movabs(&code, to, 0x123456789abcdef0u);
    line("testl $0x10000, %%%s", names32[to]);
    ct_emit_test32_imm(&code, to, 0x10000);
    for (size_t i = 0; i < COUNT(constants); i++) {
#define ALU(name)                                                                                                      \
  line(#name "q $%" PRId32 ", %%%s", constants[i], names[to]);                                                         \
  ct_emit_##name##_imm(&code, to, constants[i]);                                                                       \
  line(#name "l $%" PRId32 ", %%%s", constants[i], names32[to]);                                                       \
  ct_emit_##name##32_imm(&code, to, constants[i]);
      ALU(add) ALU(or) ALU(and) ALU(sub) ALU(xor) ALU(cmp)
#undef ALU
    }
  }
}

/* Where a prefix stands before another. The assembler puts those of segments in another order. */
static void
all_small_stores(size_t n, struct ct_mem mem, const char *operand)
{
  enum ct_reg reg = (enum ct_reg)(n * 7 % 16);
  int32_t value = constants[n % COUNT(constants)];
  if (mem.kind == CT_MEM_GS || mem.kind == CT_MEM_FS) {
    return;
  }
  line("movq %%xmm%zu, %s", n % 8, operand);
  ct_emit_movq_store(&code, mem, (unsigned)(n % 8));
  line("movups %%xmm%zu, %s", n % 16, operand);
  ct_emit_movups_store(&code, mem, (unsigned)(n % 16));
  line("movw %%%s, %s", names16[reg], operand);
  ct_emit_mov16_store(&code, mem, reg);
  line("movb %%%s, %s", names8[reg], operand);
  ct_emit_mov8_store(&code, mem, reg);
  line("movb $%d, %s", (int8_t)value, operand);
  ct_emit_mov8_store_imm(&code, mem, (uint8_t)value);
}

static void
all_memory(void)
{
  struct ct_mem mem;
  char operand[64];
  for (size_t n = 0; nth_mem(n, &mem, operand); n++) {
    enum ct_reg reg = (enum ct_reg)(n * 7 % 16);
    int32_t value = constants[n % COUNT(constants)];
    line("movq %s, %%%s", operand, names[reg]);
    ct_emit_mov_load(&code, reg, mem);
    line("movl %s, %%%s", operand, names32[reg]);
    ct_emit_mov32_load(&code, reg, mem);
    line("movq %%%s, %s", names[reg], operand);
    ct_emit_mov_store(&code, mem, reg);
    line("movl %%%s, %s", names32[reg], operand);
    ct_emit_mov32_store(&code, mem, reg);
    line("movl $0x89abcdef, %s", operand);
    ct_emit_mov32_store_imm(&code, mem, 0x89abcdef);
    line("movzbl %s, %%%s", operand, names32[reg]);
    ct_emit_movzx8_load(&code, reg, mem);
    line("movzwl %s, %%%s", operand, names32[reg]);
    ct_emit_movzx16_load(&code, reg, mem);
    if (mem.kind != CT_MEM_GS &&
        mem.kind != CT_MEM_FS) { /* a segment is of no meaning there, and the assembler says so */
      line("leaq %s, %%%s", operand, names[reg]);
      ct_emit_lea(&code, reg, mem);
      line("leal %s, %%%s", operand, names32[reg]);
      ct_emit_lea32(&code, reg, mem);
    }
    all_small_stores(n, mem, operand);
    line("pushq %s", operand);
    ct_emit_push_load(&code, mem);
    line("popq %s", operand);
    ct_emit_pop_store(&code, mem);
    line("xaddq %%%s, %s", names[reg], operand);
    ct_emit_xadd_store(&code, mem, reg);
    line("decl %s", operand);
    ct_emit_dec32_store(&code, mem);
    line("incq %s", operand);
    ct_emit_inc_store(&code, mem);
    line("incl %s", operand);
    ct_emit_inc32_store(&code, mem);
    line("cmpxchgl %%%s, %s", names32[reg], operand);
    ct_emit_cmpxchg32_store(&code, mem, reg);
    line("andl %s, %%%s", operand, names32[reg]);
    ct_emit_and32_load(&code, reg, mem);
    line("jmp *%s", operand);
    ct_emit_jmp_load(&code, mem);
#define ALU(name)                                                                                                      \
  line(#name "q %s, %%%s", operand, names[reg]);                                                                       \
  ct_emit_##name##_load(&code, reg, mem);                                                                              \
  line(#name "q $%" PRId32 ", %s", value, operand);                                                                    \
  ct_emit_##name##_store_imm(&code, mem, value);                                                                       \
  line(#name "l $%" PRId32 ", %s", value, operand);                                                                    \
  ct_emit_##name##32_store_imm(&code, mem, value);                                                                     \
  line(#name "b $%d, %s", (int8_t)value, operand);                                                                     \
  ct_emit_##name##8_store_imm(&code, mem, (uint8_t)value);
    ALU(add) ALU(or) ALU(and) ALU(sub) ALU(xor) ALU(cmp)
#undef ALU
  }
  line("{disp32} leaq 16(%%rax,%%rdx), %%rax");
  ct_emit_lea(&code, CT_RAX, ct_mem_wide(ct_mem_index(CT_RAX, CT_RDX, 16)));
  line("{disp32} leal 0(%%rdx), %%edx");
  ct_emit_lea32(&code, CT_RDX, ct_mem_wide(ct_mem(CT_RDX, 0)));
}

/* Vector and mask registers, to memory with four bytes of displacement. */
static void
all_vectors(void)
{
  for (unsigned base = 0; base < 16; base++) {
    struct ct_mem mem = ct_mem((enum ct_reg)base, 0x1234);
    for (unsigned reg = 0; reg < 32; reg++) {
      if (reg < 16) {
        line("{disp32} vmovups %%xmm%u, 0x1234(%%%s)", reg, names[base]);
        ct_emit_vmovups_store(&code, mem, reg, 16);
        line("{disp32} vmovups %%ymm%u, 0x1234(%%%s)", reg, names[base]);
        ct_emit_vmovups_store(&code, mem, reg, 32);
      }
      line("{evex} {disp32} vmovups %%xmm%u, 0x1234(%%%s)", reg, names[base]);
      ct_emit_vmovups_wide_store(&code, mem, reg, 16);
      line("{evex} {disp32} vmovups %%ymm%u, 0x1234(%%%s)", reg, names[base]);
      ct_emit_vmovups_wide_store(&code, mem, reg, 32);
      line("{disp32} vmovups %%zmm%u, 0x1234(%%%s)", reg, names[base]);
      ct_emit_vmovups_wide_store(&code, mem, reg, 64);
    }
    for (unsigned reg = 0; reg < 8; reg++) {
      line("{disp32} kmovq %%k%u, 0x1234(%%%s)", reg, names[base]);
      ct_emit_kmovq_store(&code, mem, reg);
    }
  }
}

static void
all_others(void)
{
  static const char *const conditions[] = {"o", "no", "b", "ae", "e", "ne", "be", "a",
                                           "s", "ns", "p", "np", "l", "ge", "le", "g"};
  line("rdtsc");
  ct_emit_rdtsc(&code);
  line("syscall");
  ct_emit_syscall(&code);
  line("lahf");
  ct_emit_lahf(&code);
  line("sahf");
  ct_emit_sahf(&code);
  line("seto %%al");
  ct_emit_seto_al(&code);
  line("add $0x7f, %%al");
  ct_emit_set_of_from_al(&code);
  line("movabs %%rax, 0x123456789abcdef0");
  ct_emit_movabs_store_rax(&code, 0x123456789abcdef0u);
  line("popfq");
  ct_emit_popfq(&code);
  line("ret");
  ct_emit_ret(&code);
  line("int3");
  ct_emit_int3(&code);
  line(".balign 8, 0xcc");
  ct_emit_align8(&code);
  line("{disp8} nopl 0(%%rax,%%rax)");
  ct_emit_nop5(&code);
  line("{disp32} jmp base+0x40000");
  ct_emit_jmp(&code, BASE + 0x40000);
  line("call base+0x40000");
  ct_emit_call(&code, BASE + 0x40000);
  line("xbegin base+0x40000");
  ct_emit_xbegin(&code, BASE + 0x40000);
  line("jrcxz . + 7");
  ct_emit_jrcxz_over(&code, 5);
  line("jmp . + 7");
  ct_emit_jmp_over(&code, 5);
  for (unsigned i = 0; i < 16; i++) {
    line("{disp32} j%s base-0x100", conditions[i]);
    ct_emit_jcc(&code, (enum ct_cond)i, BASE - 0x100);
  }
}

/* Prefixes, each with a form; only forms of memory have a meaning with these. */
static void
all_prefixes(void)
{
  for (unsigned i = 0; i < 16; i++) {
    enum ct_reg reg = (enum ct_reg)i;
    line("lock incl 8(%%%s)", names[reg]);
    ct_emit_lock(&code);
    ct_emit_inc32_store(&code, ct_mem(reg, 8));
    line("movq %%fs:8(%%%s), %%rdx", names[reg]);
    ct_emit_fs(&code);
    ct_emit_mov_load(&code, CT_RDX, ct_mem(reg, 8));
    line("movq %%gs:8(%%%s), %%rdx", names[reg]);
    ct_emit_gs(&code);
    ct_emit_mov_load(&code, CT_RDX, ct_mem(reg, 8));
  }
}

/* The operand of an indirect jump, loaded into each register. */
static void
all_operands(void)
{
  struct ct_mem mem;
  char operand[64];
  for (size_t n = 0; nth_mem(n, &mem, operand); n++) {
    uint8_t bytes[16];
    struct ct_code jump = {.bytes = bytes, .capacity = sizeof(bytes)};
    if (mem.kind == CT_MEM_RIP || mem.kind == CT_MEM_GS || mem.kind == CT_MEM_FS) {
      continue;
    }
    enum ct_reg to = (enum ct_reg)(n % 16);
    ct_emit_jmp_load(&jump, mem);
    unsigned rex = (bytes[0] & 0xf0) == 0x40 ? bytes[0] : 0;
    size_t modrm = rex == 0 ? 1 : 2;
    line("movq %s, %%%s", operand, names[to]);
    ct_emit_mov_load_operand(&code, to, rex, bytes + modrm, jump.length - modrm);
  }
}

/* Branches to labels, before and after them, and what lies there. */
static void
all_labels(void)
{
  for (int round = 0; round < 2; round++) {
    struct ct_code_label label = {.count = 0};
    const char *to = round == 0 ? "1f" : "1b";
    if (round == 1) {
      line("1: int3");
      ct_code_label_bind(&code, &label);
      ct_emit_int3(&code);
    }
    line("{disp32} jmp %s", to);
    ct_emit_jmp_label(&code, &label);
    line("jmp *%s(%%rip)", to);
    ct_emit_jmp_load_label(&code, &label);
    line("pushq %s(%%rip)", to);
    ct_emit_push_load_label(&code, &label);
    line("{disp32} jo %s", to);
    ct_emit_jcc_label(&code, CT_JO, &label);
    if (round == 0) {
      line("1: int3");
      ct_code_label_bind(&code, &label);
      ct_emit_int3(&code);
    }
  }
  struct ct_code_label label = {.count = 0};
  line("2: int3");
  ct_code_label_bind(&code, &label);
  ct_emit_int3(&code);
  line("call 2b");
  ct_emit_call_label(&code, &label);
  for (unsigned i = 0; i < 16; i++) {
    line("lea 2b(%%rip), %%%s", names[i]);
    ct_emit_lea_label(&code, (enum ct_reg)i, &label);
  }
}

/* What the assembler makes of the text. */
static size_t
assemble(uint8_t *out, size_t size)
{
  char folder[] = "/tmp/contrail-emit-XXXXXX", path[64], command[400];
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof(path), "%s/a.s", folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, ".text\nbase = .\n");
  assert_int_equal(fwrite(text, 1, text_length, file), text_length);
  assert_int_equal(fclose(file), 0);
  snprintf(command, sizeof(command),
           "cd %s && as -o a.o a.s && ld -e 0 -Ttext=0x%x -o a.elf a.o && objcopy -O binary -j .text a.elf a.bin",
           folder, BASE);
  int status = system(command);
  snprintf(path, sizeof(path), "%s/a.bin", folder);
  file = fopen(path, "r");
  size_t length = status == 0 && file != NULL ? fread(out, 1, size, file) : 0;
  if (file != NULL) {
    fclose(file);
  }
  snprintf(command, sizeof(command), "rm -r %s", folder);
  assert_int_equal(system(command), 0);
  assert_int_equal(status, 0);
  return length;
}

static void
as_the_assembler(void **state)
{
  static uint8_t expected[sizeof(emitted)];
  all_registers();
  all_memory();
  all_vectors();
  all_others();
  all_prefixes();
  all_operands();
  all_labels();
  assert_false(code.overflow);
  size_t length = assemble(expected, sizeof(expected));
  for (size_t i = 0; i < count; i++) {
    size_t end = i + 1 < count ? starts[i + 1] : code.length;
    if (end > length || memcmp(emitted + starts[i], expected + starts[i], end - starts[i]) != 0) {
      char bytes[2][64];
      for (size_t k = 0; k < 16; k++) {
        sprintf(bytes[0] + 3 * k, "%02x ", emitted[starts[i] + k]);
        sprintf(bytes[1] + 3 * k, "%02x ", expected[starts[i] + k]);
      }
      fail_msg("%.*s: %zu bytes of %s, but %s", (int)strcspn(text + texts[i], "\n"), text + texts[i], end - starts[i],
               bytes[0], bytes[1]);
    }
  }
  assert_int_equal(length, code.length);
  assert_true(count > 10000);
}

static void
labels_before_and_after(void **state)
{
  static const uint8_t expected[] = {0x0f, 0x84, 5,    0,    0,    0,           /* je 1f */
                                     0xe8, 0,    0,    0,    0,                 /* call 1f */
                                     0xcc,                                      /* 1: int3 */
                                     0x0f, 0x85, 0xf9, 0xff, 0xff, 0xff,        /* jne 1b */
                                     0x4c, 0x8d, 0x1d, 0xf2, 0xff, 0xff, 0xff}; /* lea 1b(%rip), %r11 */
  uint8_t bytes[sizeof(expected)];
  struct ct_code out = {.bytes = bytes, .capacity = sizeof(bytes)};
  struct ct_code_label label = {0};
  assert_false(ct_code_label_is_used(&label));
  ct_emit_jcc_label(&out, CT_JE, &label);
  ct_emit_call_label(&out, &label);
  ct_code_label_bind(&out, &label);
  ct_emit_int3(&out);
  ct_emit_jcc_label(&out, CT_JNE, &label);
  ct_emit_lea_label(&out, CT_R11, &label);
  assert_true(ct_code_label_is_used(&label));
  assert_false(out.overflow);
  assert_int_equal(out.length, sizeof(expected));
  assert_memory_equal(bytes, expected, sizeof(expected));
}

static void
what_does_not_fit(void **state)
{
  uint8_t bytes[64];
  for (size_t capacity = 0; capacity < 40; capacity++) {
    memset(bytes, 0xa5, sizeof(bytes));
    struct ct_code out = {.bytes = bytes, .capacity = capacity};
    struct ct_code_label label = {0};
    ct_emit_add_store_imm(&out, ct_mem_gs(8), 0x12345678); /* 13 bytes */
    ct_emit_movabs(&out, CT_R11, 1);                       /* 10 */
    ct_emit_jcc_label(&out, CT_JE, &label);                /* 6 */
    ct_code_label_bind(&out, &label);
    assert_int_equal(out.overflow, capacity < 29);
    for (size_t i = capacity; i < sizeof(bytes); i++) {
      assert_int_equal(bytes[i], 0xa5);
    }
  }
  struct ct_code far = {.bytes = bytes, .capacity = sizeof(bytes), .address = 0x1000};
  ct_emit_jmp(&far, 0x1000ull + INT32_MAX + 5);
  assert_false(far.overflow);
  far.length = 0;
  ct_emit_jmp(&far, 0x1000ull + INT32_MAX + 6);
  assert_true(far.overflow);
  struct ct_code out = {.bytes = bytes, .capacity = sizeof(bytes)};
  struct ct_code_label label = {0};
  for (int i = 0; i <= CT_CODE_LABEL_USES; i++) {
    assert_false(out.overflow);
    ct_emit_call_label(&out, &label);
  }
  assert_true(out.overflow);
}

static void
patches(void **state)
{
  uint8_t bytes[CT_STUB_BYTES];
  assert_int_equal(ct_short_jump_bytes(0x1000, 0x1002 + 127, bytes), 0);
  assert_memory_equal(bytes, ((const uint8_t[]){0xeb, 127}), 2);
  assert_int_equal(ct_short_jump_bytes(0x1000, 0x1002 + 128, bytes), -1);
  assert_int_equal(ct_short_jump_bytes(0x1000, 0x1002 - 128, bytes), 0);
  assert_int_equal(ct_short_jump_bytes(0x1000, 0x1002 - 129, bytes), -1);
  assert_int_equal(ct_jump_bytes(0x1000, 0x1005 + 0x12345678, bytes), 0);
  assert_memory_equal(bytes, ((const uint8_t[]){0xe9, 0x78, 0x56, 0x34, 0x12}), 5);
  assert_int_equal(ct_jump_bytes(0x1000, 0x1005 + (1ull << 31), bytes), -1);
  ct_stub_bytes(0x1122334455667788, bytes);
  assert_memory_equal(bytes,
                      ((const uint8_t[]){0xff, 0x25, 0, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}),
                      CT_STUB_BYTES);
  uint8_t point[] = {0xe8, 1, 2, 3, 4, 0x48, 0x8d, 0x64, 0x24, 0xf8};
  assert_int_equal(sizeof(point), CT_RETURN_POINT_BYTES);
  assert_true(ct_trampoline_returns_at(point));
  point[9] = 0xf0;
  assert_false(ct_trampoline_returns_at(point));
  assert_true(ct_is_endbr((const uint8_t *)"\xf3\x0f\x1e\xfa", 4));
  assert_false(ct_is_endbr((const uint8_t *)"\xf3\x0f\x1e\xfa", 3));
  assert_false(ct_is_endbr((const uint8_t *)"\xf3\x0f\x1e\xfb", 4));
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_the_assembler),
      cmocka_unit_test(labels_before_and_after),
      cmocka_unit_test(what_does_not_fit),
      cmocka_unit_test(patches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
