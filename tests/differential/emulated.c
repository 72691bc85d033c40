/* SPDX-License-Identifier: MIT */
/*
 * See emulated.h. The code page, in the lowest 2 GiB as the data page, so that all kinds of addresses can be made to
 * reach it:
 *
 *   ... instruction | jmp out_next | jmp out_taken
 *                   ^ fell_through ^ taken: where branches, calls and returns are made to go
 *
 * The memory in reach is the middle of the data page; what is before and after it is compared, too.
 */
#include "emulated.h"

#include "x86/decode.h"
#include "x86/emulate_internal.h"

#include <asm/prctl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, STEPS = 16, DATA_BYTES = 2048, REACH_BEGIN = 512, REACH_BYTES = 1024, SLOT_END = 64 };
enum { REP_MAX = 12, DISP32_BYTES = 4 };
#define COMPARED ((uint64_t)CT_FLAGS_SIX | CT_FLAG_DF)

/* By name in the assembly below. */
struct native {
  uint64_t reg[16];
  uint64_t flags;
};
extern struct native emulated_in, emulated_out;
extern uint64_t emulated_start, emulated_host_sp, emulated_way;
extern const char emulated_next[], emulated_taken[], emulated_fault[];
struct native emulated_in, emulated_out;
uint64_t emulated_start, emulated_host_sp, emulated_way;
void emulated_run(void);
enum { WAY_NEXT, WAY_TAKEN, WAY_FAULT };

/* clang-format off */
__asm__(".text\n"
        ".globl emulated_run, emulated_next, emulated_taken, emulated_fault\n"
        ".type emulated_run, @function\n"
        "emulated_run:\n"
        "  push %rbx\n  push %rbp\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, emulated_host_sp(%rip)\n"
        "  pushq emulated_in+128(%rip)\n  popfq\n"
        "  mov emulated_in+0(%rip), %rax\n  mov emulated_in+8(%rip), %rcx\n  mov emulated_in+16(%rip), %rdx\n"
        "  mov emulated_in+24(%rip), %rbx\n  mov emulated_in+32(%rip), %rsp\n  mov emulated_in+40(%rip), %rbp\n"
        "  mov emulated_in+48(%rip), %rsi\n  mov emulated_in+56(%rip), %rdi\n  mov emulated_in+64(%rip), %r8\n"
        "  mov emulated_in+72(%rip), %r9\n  mov emulated_in+80(%rip), %r10\n  mov emulated_in+88(%rip), %r11\n"
        "  mov emulated_in+96(%rip), %r12\n  mov emulated_in+104(%rip), %r13\n  mov emulated_in+112(%rip), %r14\n"
        "  mov emulated_in+120(%rip), %r15\n"
        "  jmp *emulated_start(%rip)\n"
        "emulated_next:\n  movq $0, emulated_way(%rip)\n  jmp 1f\n"
        "emulated_taken:\n  movq $1, emulated_way(%rip)\n  jmp 1f\n"
        "emulated_fault:\n  movq $2, emulated_way(%rip)\n"
        "1:\n"
        "  mov %rax, emulated_out+0(%rip)\n  mov %rcx, emulated_out+8(%rip)\n  mov %rdx, emulated_out+16(%rip)\n"
        "  mov %rbx, emulated_out+24(%rip)\n  mov %rsp, emulated_out+32(%rip)\n  mov %rbp, emulated_out+40(%rip)\n"
        "  mov %rsi, emulated_out+48(%rip)\n  mov %rdi, emulated_out+56(%rip)\n  mov %r8, emulated_out+64(%rip)\n"
        "  mov %r9, emulated_out+72(%rip)\n  mov %r10, emulated_out+80(%rip)\n  mov %r11, emulated_out+88(%rip)\n"
        "  mov %r12, emulated_out+96(%rip)\n  mov %r13, emulated_out+104(%rip)\n  mov %r14, emulated_out+112(%rip)\n"
        "  mov %r15, emulated_out+120(%rip)\n"
        "  mov emulated_host_sp(%rip), %rsp\n"
        "  pushfq\n  popq emulated_out+128(%rip)\n  cld\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbp\n  pop %rbx\n"
        "  ret\n"
        ".size emulated_run, .-emulated_run\n");
/* clang-format on */

static struct {
  uint8_t *code, *data; /* a page each */
  uint64_t fell_through, taken;
  uint64_t fs_base;
  int signal; /* of the last fault */
  volatile bool runs;
  uint8_t before[DATA_BYTES];
} engine;

/* What is run, and what has come of it. */
struct trial {
  uint8_t code[CT_INSN_BYTES_MAX];
  struct ct_effects effects;
  uint64_t loaded;
  struct ct_cpu cpu; /* before it; the emulator's after it */
  struct ct_mem_store stores[2];
  unsigned store_count;
  enum ct_emulated result;
};

static void
on_fault(int number, siginfo_t *info, void *context)
{
  ucontext_t *uc = context;
  if (!engine.runs) {
    signal(number, SIG_DFL); /* it comes again when this returns */
    return;
  }
  engine.signal = number;
  uc->uc_mcontext.gregs[REG_RIP] = (greg_t)emulated_fault;
  uc->uc_mcontext.gregs[REG_RSP] = (greg_t)emulated_host_sp; /* the other may be no address at all */
  uc->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)CT_FLAG_DF;
}

static void
emit_exit(uint8_t *at, uint8_t *literal, const char *target)
{
  uint64_t address = (uint64_t)target;
  int32_t distance = (int32_t)(literal - (at + 6));
  memcpy(literal, &address, sizeof(address));
  at[0] = 0xff;
  at[1] = 0x25;
  memcpy(at + 2, &distance, sizeof(distance));
}

int
emulated_set_up(void)
{
  static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  uint8_t *pages = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  engine.code = pages;
  engine.data = pages + 2 * PAGE;
  if (pages == MAP_FAILED || mprotect(engine.code, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) != 0 ||
      mprotect(engine.data, PAGE, PROT_READ | PROT_WRITE) != 0 ||
      syscall(SYS_arch_prctl, ARCH_GET_FS, &engine.fs_base) != 0) {
    return -1;
  }
  memset(engine.code, 0xcc, PAGE);
  engine.fell_through = (uint64_t)engine.code + SLOT_END;
  engine.taken = engine.fell_through + 16;
  emit_exit(engine.code + SLOT_END, engine.code + 128, emulated_next);
  emit_exit(engine.code + SLOT_END + 16, engine.code + 136, emulated_taken);
  for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
    if (sigaction(signals[i], &action, NULL) != 0) { /* on machine.c's stack */
      return -1;
    }
  }
  return 0;
}

/* ---- instructions ---- */

static uint8_t
random_opcode_0f(struct rng *rng)
{
  static const uint8_t often[] = {0xa2, 0xa3, 0xa4, 0xa5, 0xab, 0xac, 0xad, 0xaf, 0xb0, 0xb1, 0xb3, 0xb6,
                                  0xb7, 0xb8, 0xb8, 0xba, 0xba, 0xbb, 0xbc, 0xbc, 0xbd, 0xbd, 0xbe, 0xbf,
                                  0xc0, 0xc1, 0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf, 0xc3, 0x1e};
  switch (rng_below(rng, 4)) {
  case 0:
    return (uint8_t)rng_next(rng);
  case 1:
    return (uint8_t)((rng_chance(rng, 40) ? 0x40 : rng_chance(rng, 50) ? 0x80 : 0x90) + rng_below(rng, 16));
  default:
    return often[rng_below(rng, sizeof(often))];
  }
}

/* One of the general registers' instructions with VEX: bytes up to the opcode. */
static void
random_vex(struct rng *rng, uint8_t *at)
{
  static const uint8_t opcodes[] = {0xf2, 0xf3, 0xf3, 0xf5, 0xf6, 0xf7};
  bool map3 = rng_chance(rng, 10);
  at[0] = 0xc4;
  at[1] = (uint8_t)((rng_next(rng) & 0xe0) | (map3 ? 3 : 2));
  at[2] = (uint8_t)((rng_next(rng) & 0xf8) | rng_below(rng, 4)); /* L is 0 */
  at[2] &= 0xfb;
  if (map3) {
    at[2] |= 0x78;
    at[2] |= 3;
  }
  at[3] = map3 ? 0xf0 : opcodes[rng_below(rng, sizeof(opcodes))];
}

static uint8_t
random_group_opcode(struct rng *rng)
{
  static const uint8_t opcodes[] = {0xf6, 0xf7, 0xf7, 0xd0, 0xd1, 0xd2, 0xd3, 0xd3, 0xc0, 0xc1, 0xfe, 0xff, 0x80,
                                    0x81, 0x83, 0xe0, 0xe1, 0xe2, 0xe3, 0xe8, 0xe9, 0xc2, 0xc3, 0xa4, 0x8f};
  return opcodes[rng_below(rng, sizeof(opcodes))];
}

static void
random_bytes(struct rng *rng, uint8_t code[CT_INSN_BYTES_MAX])
{
  static const uint8_t prefixes[] = {0x66, 0x66, 0x66, 0xf3, 0xf3, 0xf2, 0x67, 0x64, 0xf0};
  size_t n = 0;
  rng_fill(rng, code, CT_INSN_BYTES_MAX);
  if (rng_chance(rng, 12)) {
    random_vex(rng, code);
    return;
  }
  while (rng_chance(rng, 30) && n < 3) {
    code[n++] = prefixes[rng_below(rng, sizeof(prefixes))];
  }
  if (rng_chance(rng, 65)) {
    code[n++] = (uint8_t)(0x40 | rng_below(rng, 16) | (rng_chance(rng, 40) ? 8 : 0));
  }
  unsigned kind = (unsigned)rng_below(rng, 100);
  if (kind < 35) {
    code[n++] = 0x0f;
    code[n++] = random_opcode_0f(rng);
  } else if (kind < 40) {
    code[n++] = 0x0f;
    code[n++] = 0x38;
    code[n++] = rng_chance(rng, 60) ? 0xf6 : (uint8_t)(0xf0 + rng_below(rng, 2));
  } else {
    code[n++] = rng_chance(rng, 30) ? random_group_opcode(rng) : (uint8_t)rng_next(rng);
  }
  if (rng_chance(rng, 5)) { /* disp8(%rsp), where there is a ModRM */
    code[n] = (uint8_t)(0x44 | (code[n] & 0x38));
    code[n + 1] = 0x24;
  }
}

/* What must not run here: it leaves the code, changes what this program lives on, or writes elsewhere. */
static bool
may_run(const uint8_t *code, const struct ct_effects *e)
{
  static const uint16_t barred = CT_EFFECT_BASES | CT_EFFECT_X87 | CT_EFFECT_MXCSR | CT_EFFECT_MORE_STORES;
  const uint8_t *end = code + e->length;
  if (e->flow == CT_FLOW_OTHER || e->flow == CT_FLOW_SYSCALL || e->flow == CT_FLOW_TRAP || (e->traits & barred) != 0) {
    return false;
  }
  for (const uint8_t *at = code; at + 1 < end; at++) {
    if (at[0] == 0x0f && at[1] == 0x01) {
      return false; /* monitors, protection keys and so on */
    }
  }
  return e->derivable || (e->traits & CT_EFFECT_WRITES_DF) == 0; /* popf sets the trap flag, too */
}

static void
put_bytes(struct trial *t, size_t from_end, uint64_t value, size_t bytes)
{
  memcpy(t->code + t->effects.length - from_end - bytes, &value, bytes);
}

/* The one that was made fits; branches go to `taken`, addresses without registers into reach. */
static bool
put_constants(struct rng *rng, struct trial *t)
{
  struct ct_insn in;
  struct ct_effects *e = &t->effects;
  if (!ct_decode_full(t->code, e->length, &in)) {
    return false;
  }
  if (e->flow == CT_FLOW_JUMP || e->flow == CT_FLOW_BRANCH || e->flow == CT_FLOW_LOOP || e->flow == CT_FLOW_CALL) {
    put_bytes(t, 0, engine.taken - engine.fell_through, in.imm_bytes);
  }
  for (unsigned i = 0; i < e->access_count; i++) {
    const struct ct_access *access = &e->access[i];
    uint64_t target = (uint64_t)engine.data + REACH_BEGIN + rng_below(rng, REACH_BYTES - 64);
    if (access->base != CT_NO_REG || access->index != CT_NO_REG) {
      continue;
    }
    target -= access->segment == CT_SEGMENT_FS ? engine.fs_base : 0;
    target -= (access->how & CT_ACCESS_RIP) != 0 ? engine.fell_through : 0;
    if ((in.word & CT_INSN_NO_MODRM) != 0) {
      put_bytes(t, 0, target, (access->how & CT_ACCESS_ADDRESS32) != 0 ? 4 : 8); /* mov of al, ax .. */
    } else if (in.disp_bytes == DISP32_BYTES && (uint64_t)(int32_t)target == target) {
      put_bytes(t, in.imm_bytes, target, DISP32_BYTES);
    }
  }
  return ct_effects_of(t->code, e->length, e);
}

/* ---- states ---- */

static uint64_t
random_value(struct rng *rng)
{
  static const uint64_t edges[] = {0,      1,      2,          ~0ull,      0x7f,       0x80,
                                   0x7fff, 0x8000, 0x7fffffff, 0x80000000, 1ull << 63, (1ull << 63) - 1};
  switch (rng_below(rng, 8)) {
  case 0:
    return edges[rng_below(rng, sizeof(edges) / sizeof(edges[0]))];
  case 1:
    return rng_below(rng, 256);
  case 2:
    return rng_next(rng) << rng_below(rng, 64);
  default:
    return rng_next(rng) >> (rng_chance(rng, 30) ? rng_below(rng, 64) : 0);
  }
}

/* Its registers become such that the access is somewhere in reach, if that can be. */
static void
put_in_reach(struct rng *rng, const struct trial *t, const struct ct_access *access, struct ct_cpu *cpu)
{
  uint64_t target = (uint64_t)engine.data + REACH_BEGIN + REP_MAX * 8 + rng_below(rng, REACH_BYTES - 256);
  if (access->bits_reg != CT_NO_REG) {
    cpu->reg[access->bits_reg] = (cpu->reg[access->bits_reg] & ~0xffffull) | rng_below(rng, 512);
  }
  uint64_t missing = target - ct_address(&t->effects, access, cpu);
  if (access->base != CT_NO_REG) {
    cpu->reg[access->base] += missing;
  } else if (access->index != CT_NO_REG) {
    cpu->reg[access->index] += (uint64_t)((int64_t)missing >> access->scale);
  }
}

static bool
is_in_reach(const struct trial *t, const struct ct_access *access, const struct ct_cpu *cpu)
{
  uint64_t times = (access->how & CT_ACCESS_REPEATED) != 0 ? cpu->reg[CT_RCX] : 1;
  uint64_t at = ct_address(&t->effects, access, cpu) - ((uint64_t)engine.data + REACH_BEGIN);
  uint64_t bytes = times * access->size;
  return times <= REP_MAX && at < REACH_BYTES && at + bytes <= REACH_BYTES &&
         ((cpu->flags & CT_FLAG_DF) == 0 || at >= bytes);
}

/* A division that does not fault, mostly. */
static void
put_dividend(struct rng *rng, const struct ct_effects *e, struct ct_cpu *cpu)
{
  if ((e->op != CT_DO_DIV && e->op != CT_DO_IDIV) || rng_chance(rng, 20)) {
    return;
  }
  if (e->size == 1) {
    cpu->reg[CT_RAX] &= ~0xff00ull;
  } else if (e->op == CT_DO_DIV) {
    cpu->reg[CT_RDX] = rng_below(rng, 3);
  } else {
    cpu->reg[CT_RDX] = -(extend(cpu->reg[CT_RAX], e->size) >> 63);
  }
}

static void
put_target(const struct trial *t, struct ct_cpu *cpu)
{
  const struct ct_effects *e = &t->effects;
  if ((e->flow == CT_FLOW_JUMP_INDIRECT || e->flow == CT_FLOW_CALL_INDIRECT) && e->in < 16) {
    cpu->reg[e->in] = engine.taken;
  }
}

/* Where control goes next is ours. */
static bool
target_is_right(const struct trial *t, const struct ct_cpu *cpu)
{
  const struct ct_effects *e = &t->effects;
  switch (e->flow) {
  case CT_FLOW_JUMP_INDIRECT:
  case CT_FLOW_CALL_INDIRECT:
    if (e->in < 16) {
      return cpu->reg[e->in] == engine.taken;
    }
    __attribute__((fallthrough));
  case CT_FLOW_RET:
    memcpy((void *)ct_address(e, &e->access[0], cpu), &engine.taken, 8);
    return true;
  default:
    return true;
  }
}

/* A state in which it can run; false when none was found. */
static bool
put_state(struct rng *rng, struct trial *t)
{
  struct ct_cpu *cpu = &t->cpu;
  const struct ct_effects *e = &t->effects;
  cpu->rip = engine.fell_through - e->length;
  if (rng_chance(rng, 50)) {
    cpu->reg[rng_below(rng, 16)] = random_value(rng);
  }
  if ((e->traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) != 0) {
    cpu->reg[CT_RCX] = rng_below(rng, REP_MAX + 1);
  }
  if (e->flow == CT_FLOW_LOOP && rng_chance(rng, 50)) {
    cpu->reg[CT_RCX] = (cpu->reg[CT_RCX] & ~0xffffffffull) | rng_below(rng, 3);
  }
  put_dividend(rng, e, cpu);
  put_target(t, cpu);
  for (unsigned i = 0; i < e->access_count; i++) {
    if ((e->access[i].how & (CT_ACCESS_READ | CT_ACCESS_WRITE)) != 0) {
      if ((e->access[i].how & CT_ACCESS_VECTOR) != 0 || e->access[i].size == 0) {
        return false;
      }
      put_in_reach(rng, t, &e->access[i], cpu);
    }
  }
  for (unsigned i = 0; i < e->access_count; i++) {
    if ((e->access[i].how & (CT_ACCESS_READ | CT_ACCESS_WRITE)) != 0 && !is_in_reach(t, &e->access[i], cpu)) {
      return false;
    }
  }
  return target_is_right(t, cpu);
}

static bool
make(struct rng *rng, struct trial *t)
{
  random_bytes(rng, t->code);
  if (!ct_effects_of(t->code, sizeof(t->code), &t->effects) || !may_run(t->code, &t->effects)) {
    return false;
  }
  return put_constants(rng, t) && may_run(t->code, &t->effects) && put_state(rng, t);
}

/* ---- both of them ---- */

static void
run_native(const struct trial *t)
{
  memcpy(engine.before, engine.data, DATA_BYTES);
  memcpy((void *)t->cpu.rip, t->code, t->effects.length);
  memcpy(emulated_in.reg, t->cpu.reg, sizeof(emulated_in.reg));
  emulated_in.flags = t->cpu.flags;
  emulated_start = t->cpu.rip;
  engine.signal = 0;
  engine.runs = true;
  emulated_run();
  engine.runs = false;
}

/* The bits above the value's are anything. */
static uint64_t
loaded_of(struct rng *rng, const struct ct_effects *e, const struct ct_cpu *cpu)
{
  uint64_t loaded = rng_next(rng);
  for (unsigned i = 0; i < e->access_count; i++) {
    uint64_t at = ct_address(e, &e->access[i], cpu) - (uint64_t)engine.data;
    if ((e->access[i].how & CT_ACCESS_READ) != 0 && e->access[i].size <= 8 && at < DATA_BYTES - 8) {
      memcpy(&loaded, engine.before + at, e->access[i].size);
      break;
    }
  }
  return loaded;
}

/* Memory as it was, with the emulator's stores; those of unknown values as the processor has them. */
static void
store(const struct trial *t)
{
  for (unsigned i = 0; i < t->store_count; i++) {
    const struct ct_mem_store *s = &t->stores[i];
    uint64_t at = s->address - (uint64_t)engine.data;
    for (uint64_t n = 0; n < s->count && at + s->size <= DATA_BYTES; n++, at += s->size) {
      if (s->known && s->size <= 8) {
        memcpy(engine.before + at, &s->value, s->size);
      } else {
        memcpy(engine.before + at, engine.data + at, s->size);
      }
    }
  }
}

static const char *
compare_registers(const struct trial *t, const struct ct_cpu *begin, char *text, size_t size)
{
  for (unsigned r = 0; r < 16; r++) {
    if (t->result == CT_EMULATED && t->cpu.reg[r] != emulated_out.reg[r]) {
      snprintf(text, size, "register %u is %#llx, emulated %#llx", r, (unsigned long long)emulated_out.reg[r],
               (unsigned long long)t->cpu.reg[r]);
      return text;
    }
    if ((t->effects.writes >> r & 1) == 0 && emulated_out.reg[r] != begin->reg[r]) {
      snprintf(text, size, "register %u is written", r);
      return text;
    }
  }
  return NULL;
}

static const char *
compare_flags(const struct trial *t, const struct ct_cpu *begin, char *text, size_t size)
{
  const struct ct_effects *e = &t->effects;
  uint64_t written = e->flags_written | ((e->traits & CT_EFFECT_WRITES_DF) != 0 ? CT_FLAG_DF : 0);
  uint64_t changed = (emulated_out.flags ^ begin->flags) & COMPARED;
  if ((changed & ~written) != 0) {
    snprintf(text, size, "flags %#llx are written", (unsigned long long)(changed & ~written));
    return text;
  }
  if (t->result != CT_EMULATED) {
    return NULL;
  }
  if ((t->cpu.unknown & ~begin->unknown & ~(uint64_t)e->flags_undefined) != 0) {
    snprintf(text, size, "flags %#llx are unknown", (unsigned long long)t->cpu.unknown);
    return text;
  }
  if (((emulated_out.flags ^ t->cpu.flags) & COMPARED & ~t->cpu.unknown) != 0) {
    snprintf(text, size, "flags are %#llx, emulated %#llx, unknown %#llx",
             (unsigned long long)(emulated_out.flags & COMPARED), (unsigned long long)(t->cpu.flags & COMPARED),
             (unsigned long long)t->cpu.unknown);
    return text;
  }
  return NULL;
}

static const char *
compare(const struct trial *t, const struct ct_cpu *begin, char *text, size_t size)
{
  const struct ct_effects *e = &t->effects;
  if (e->loaded_reg != CT_NO_REG && t->result == CT_EMULATED) {
    uint64_t mask = mask_of(e->access[e->op == CT_DO_POP ? e->access_count - 1u : 0].size);
    if (((emulated_out.reg[e->loaded_reg] ^ t->loaded) & mask) != 0) {
      return "loaded_reg does not have what was loaded";
    }
  }
  uint64_t rip = emulated_way == WAY_TAKEN ? engine.taken : engine.fell_through;
  if (t->result == CT_EMULATED && t->cpu.rip != rip) {
    snprintf(text, size, "goes on at %#llx, emulated %#llx", (unsigned long long)rip, (unsigned long long)t->cpu.rip);
    return text;
  }
  store(t);
  if (memcmp(engine.before, engine.data, DATA_BYTES) != 0) {
    return "memory differs";
  }
  const char *why = compare_registers(t, begin, text, size);
  return why != NULL ? why : compare_flags(t, begin, text, size);
}

/* What is not in `reads` and `flags_read` must not matter. */
static const char *
check_reads(struct rng *rng, const struct trial *t, const struct ct_cpu *begin)
{
  const struct ct_effects *e = &t->effects;
  struct ct_cpu other = *begin;
  struct ct_mem_store stores[2];
  unsigned store_count = 0;
  uint64_t free_flags = COMPARED & ~(uint64_t)e->flags_read;
  free_flags &= (e->traits & CT_EFFECT_READS_DF) != 0 ? ~(uint64_t)CT_FLAG_DF : ~0ull;
  for (unsigned r = 0; r < 16; r++) {
    other.reg[r] = (e->reads >> r & 1) != 0 ? other.reg[r] : rng_next(rng);
  }
  other.flags ^= rng_next(rng) & free_flags;
  if (ct_emulate(e, &other, t->loaded, stores, &store_count) != CT_EMULATED || other.rip != t->cpu.rip ||
      store_count != t->store_count) {
    return "it depends on what it does not read";
  }
  for (unsigned r = 0; r < 16; r++) {
    if ((e->writes >> r & 1) != 0 && other.reg[r] != t->cpu.reg[r]) {
      return "a register depends on what is not read";
    }
  }
  uint64_t mask = e->flags_written & ~e->flags_kept & ~(t->cpu.unknown | other.unknown);
  if (((other.flags ^ t->cpu.flags) & mask) != 0) {
    return "a flag depends on what is not read";
  }
  for (unsigned i = 0; i < store_count; i++) {
    if (stores[i].address != t->stores[i].address || stores[i].value != t->stores[i].value) {
      return "a store depends on what is not read";
    }
  }
  return NULL;
}

static void
describe(const struct trial *t, const struct ct_cpu *begin, const char *why, char *text, size_t size)
{
  int n = 0;
  for (unsigned i = 0; i < t->effects.length; i++) {
    n += snprintf(text + n, size - (size_t)n, "%02x ", t->code[i]);
  }
  n +=
      snprintf(text + n, size - (size_t)n, "(op %u size %u): %s\n  flags %#llx unknown %#llx, registers", t->effects.op,
               t->effects.size, why, (unsigned long long)begin->flags, (unsigned long long)begin->unknown);
  for (unsigned r = 0; r < 16; r++) {
    n += snprintf(text + n, size - (size_t)n, " %llx", (unsigned long long)begin->reg[r]);
  }
  snprintf(text + n, size - (size_t)n, "\n");
}

/* Runs the emulator after the processor, compares; NULL when all is the same. */
static const char *
judge(struct rng *rng, struct trial *t, struct emulated_count *count, char *text, size_t size)
{
  const struct ct_cpu begin = t->cpu;
  t->loaded = loaded_of(rng, &t->effects, &t->cpu);
  t->result = ct_emulate(&t->effects, &t->cpu, t->loaded, t->stores, &t->store_count);
  if (emulated_way == WAY_FAULT) {
    count->faults++;
    bool divides = engine.signal == SIGFPE;
    return divides != (t->result == CT_EMULATED_FAULT) ? "one of the two faults at a division" : NULL;
  }
  if (t->result == CT_EMULATED_FAULT) {
    return "only the emulator faults";
  }
  if (t->result != CT_EMULATED) {
    t->store_count = ct_mem_stores(&t->effects, &begin, t->stores);
    count->refused += t->result == CT_EMULATED_UNKNOWN_FLAG;
    count->recorded += t->result == CT_EMULATED_NOT_DERIVABLE;
  } else {
    count->emulated++;
    count->by_op[t->effects.op]++;
    const char *why = rng_chance(rng, 25) ? check_reads(rng, t, &begin) : NULL;
    if (why != NULL) {
      return why;
    }
  }
  return compare(t, &begin, text, size);
}

/* The next instruction's state: all known, or what is unknown turned round, so that it does not matter. */
static void
go_on(struct rng *rng, struct trial *t)
{
  bool stays = t->result == CT_EMULATED && emulated_way != WAY_FAULT && rng_chance(rng, 50);
  uint64_t unknown = stays ? t->cpu.unknown : 0;
  if (emulated_way != WAY_FAULT) {
    memcpy(t->cpu.reg, emulated_out.reg, sizeof(t->cpu.reg));
    t->cpu.flags = 0x202 | (emulated_out.flags & COMPARED);
  }
  t->cpu.flags ^= unknown;
  t->cpu.unknown = unknown;
}

bool
emulated_case(uint64_t seed, uint64_t number, struct emulated_count *count, char *text, size_t size)
{
  struct rng rng = rng_of(seed, number);
  struct trial t = {.cpu = {.fs_base = engine.fs_base}};
  char why_text[160];
  for (unsigned r = 0; r < 16; r++) {
    t.cpu.reg[r] = random_value(&rng);
  }
  t.cpu.flags = 0x202 | (rng_next(&rng) & COMPARED);
  rng_fill(&rng, engine.data, DATA_BYTES);
  for (unsigned step = 0; step < STEPS; step++) {
    unsigned tries = 0;
    while (!make(&rng, &t)) {
      if (++tries == 10000) {
        snprintf(text, size, "no instruction can be made\n");
        return true;
      }
    }
    struct trial begun = t;
    run_native(&t);
    const char *why = judge(&rng, &t, count, why_text, sizeof(why_text));
    if (why != NULL) {
      describe(&t, &begun.cpu, why, text, size);
      return true;
    }
    go_on(&rng, &t);
  }
  return false;
}

int
emulated_missed(const struct emulated_count *count, uint64_t at_least)
{
  for (int op = CT_DO_NOTHING; op < CT_DO_COUNT; op++) {
    bool may_fault = op == CT_DO_RDBASE || op == CT_DO_WRBASE; /* where the kernel does not allow them; see may_run */
    if (count->by_op[op] < at_least && !may_fault) {
      return op;
    }
  }
  return -1;
}
