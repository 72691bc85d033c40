/* SPDX-License-Identifier: MIT */
/* See trials.h. */
#include "trials.h"

#include "x86/decode.h"

#include <asm/prctl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, REACH_BEGIN = 512, REACH_BYTES = 1024, SLOT_END = 64, EXITS_APART = 16, LITERALS = 128 };
enum { REP_MAX = 12, DISP32_BYTES = 4 };

#define USUAL_PLACE 0x50000000ull /* so that a case is the same again */

struct trials trials;

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
trials_set_up(const char *next, const char *taken)
{
  if (trials.code == NULL) {
    uint8_t *pages = mmap((void *)USUAL_PLACE, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) != 0 ||
        mprotect(pages + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE) != 0 ||
        syscall(SYS_arch_prctl, ARCH_GET_FS, &trials.fs_base) != 0) {
      return -1;
    }
    trials.code = pages;
    trials.data = pages + 2 * PAGE;
    trials.fell_through = (uint64_t)trials.code + SLOT_END;
    trials.taken = trials.fell_through + EXITS_APART;
  }
  memset(trials.code, 0xcc, PAGE);
  emit_exit(trials.code + SLOT_END, trials.code + LITERALS, next);
  emit_exit(trials.code + SLOT_END + EXITS_APART, trials.code + LITERALS + 8, taken);
  return 0;
}

/* ---- instructions ---- */

static uint8_t
random_opcode_0f(struct rng *rng)
{
  static const uint8_t often[] = {0xa2, 0xa3, 0xa4, 0xa5, 0xab, 0xac, 0xad, 0xaf, 0xb0, 0xb1, 0xb3, 0xb6, 0xb7,
                                  0xb8, 0xb8, 0xba, 0xba, 0xbb, 0xbc, 0xbc, 0xbd, 0xbd, 0xbe, 0xbf, 0xc0, 0xc1,
                                  0xc7, 0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf, 0xc3, 0x1e};
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
  static const uint8_t prefixes[] = {0x66, 0x66, 0x66, 0xf3, 0xf3, 0xf2, 0x67, 0x64, 0x65, 0xf0};
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
    code[n++] = rng_chance(rng, 60)
                    ? 0xf6
                    : (uint8_t)(rng_chance(rng, 60) ? 0xf0 + rng_below(rng, 2) : 0xf8 + rng_below(rng, 2));
  } else {
    code[n++] = rng_chance(rng, 30) ? random_group_opcode(rng) : (uint8_t)rng_next(rng);
  }
  if (rng_chance(rng, 5)) { /* disp8(%rsp), where there is a ModRM */
    code[n] = (uint8_t)(0x44 | (code[n] & 0x38));
    code[n + 1] = 0x24;
  }
}

/* Not what leaves the code, changes what this program lives on, or writes elsewhere. */
static bool
may_run(const uint8_t *code, const struct ct_effects *e, uint16_t barred)
{
  const uint8_t *end = code + e->length;
  if (e->flow == CT_INSN_FLOW_OTHER || e->flow == CT_INSN_FLOW_SYSCALL || e->flow == CT_INSN_FLOW_TRAP ||
      (e->traits & barred) != 0) {
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
  if (e->flow == CT_INSN_FLOW_JUMP || e->flow == CT_INSN_FLOW_BRANCH || e->flow == CT_INSN_FLOW_LOOP ||
      e->flow == CT_INSN_FLOW_CALL) {
    put_bytes(t, 0, trials.taken - trials.fell_through, in.imm_bytes);
  }
  for (unsigned i = 0; i < e->access_count; i++) {
    const struct ct_access *access = &e->access[i];
    uint64_t target = (uint64_t)trials.data + REACH_BEGIN + rng_below(rng, REACH_BYTES - 64);
    if (access->base != CT_NO_REG || access->index != CT_NO_REG) {
      continue;
    }
    target -= access->segment == CT_SEGMENT_FS ? trials.fs_base : 0;
    target -= access->segment == CT_SEGMENT_GS ? t->cpu.gs_base : 0;
    target -= (access->how & CT_ACCESS_RIP) != 0 ? trials.fell_through : 0;
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
  uint64_t target = (uint64_t)trials.data + REACH_BEGIN + REP_MAX * 8 + rng_below(rng, REACH_BYTES - 256);
  if (access->size >= 16 && rng_chance(rng, 70)) { /* some must be aligned */
    target &= ~(uint64_t)(access->size - 1);
  }
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
  uint64_t at = ct_address(&t->effects, access, cpu) - ((uint64_t)trials.data + REACH_BEGIN);
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
  if ((e->flow == CT_INSN_FLOW_JUMP_INDIRECT || e->flow == CT_INSN_FLOW_CALL_INDIRECT) && e->in < 16) {
    cpu->reg[e->in] = trials.taken;
  }
}

/* Where control goes next is ours. */
static bool
target_is_right(const struct trial *t, const struct ct_cpu *cpu)
{
  const struct ct_effects *e = &t->effects;
  switch (e->flow) {
  case CT_INSN_FLOW_JUMP_INDIRECT:
  case CT_INSN_FLOW_CALL_INDIRECT:
    if (e->in < 16) {
      return cpu->reg[e->in] == trials.taken;
    }
    __attribute__((fallthrough));
  case CT_INSN_FLOW_RET:
    memcpy((void *)ct_address(e, &e->access[0], cpu), &trials.taken, 8);
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
  cpu->rip = trials.fell_through - e->length;
  if (rng_chance(rng, 50)) {
    cpu->reg[rng_below(rng, 16)] = random_value(rng);
  }
  if ((e->traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) != 0) {
    cpu->reg[CT_RCX] = rng_below(rng, REP_MAX + 1);
  }
  if (e->flow == CT_INSN_FLOW_LOOP && rng_chance(rng, 50)) {
    cpu->reg[CT_RCX] = (cpu->reg[CT_RCX] & ~0xffffffffull) | rng_below(rng, 3);
  }
  put_dividend(rng, e, cpu);
  put_target(t, cpu);
  for (unsigned i = 0; i < e->access_count; i++) {
    if ((e->access[i].how & (CT_ACCESS_READ | CT_ACCESS_WRITE)) != 0) {
      if (e->access[i].size == 0) {
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

/* ---- all of it ---- */

void
trial_begin(struct rng *rng, struct trial *t)
{
  *t = (struct trial){.cpu = {.fs_base = trials.fs_base}};
  for (unsigned r = 0; r < 16; r++) {
    t->cpu.reg[r] = random_value(rng);
  }
  t->cpu.flags = 0x202 | (rng_next(rng) & COMPARED);
  rng_fill(rng, trials.data, DATA_BYTES);
}

static bool
place(struct rng *rng, struct trial *t, uint16_t barred)
{
  return ct_effects_of(t->code, sizeof(t->code), &t->effects) && may_run(t->code, &t->effects, barred) &&
         put_constants(rng, t) && may_run(t->code, &t->effects, barred) && put_state(rng, t);
}

/* What writes, reads or moves masks: few encodings are valid, so that hardly any would come by chance. */
static void
random_mask_bytes(struct rng *rng, uint8_t *code)
{
  static const uint8_t among_masks[] = {0x41, 0x42, 0x44, 0x45, 0x46, 0x47, 0x4a,
                                        0x4b, 0x90, 0x91, 0x92, 0x93, 0x98, 0x99};
  static const uint8_t to_masks[][2] = {{1, 0x64}, {1, 0x65}, {1, 0x66}, {1, 0x74}, {1, 0x75}, {1, 0x76}, {1, 0xc2},
                                        {2, 0x26}, {2, 0x27}, {2, 0x28}, {2, 0x29}, {2, 0x2a}, {2, 0x38}, {2, 0x39},
                                        {2, 0x3a}, {2, 0x68}, {2, 0x68}, {2, 0x68}, {2, 0x8f}, {3, 0x1e}, {3, 0x1f},
                                        {3, 0x3e}, {3, 0x3f}, {3, 0x66}, {3, 0x67}, {3, 0xc2}};
  bool shifts = rng_chance(rng, 20);
  if (rng_chance(rng, 50)) {
    code[0] = 0xc4;
    code[1] = (uint8_t)(0xe0 | (shifts ? 3 : 1));
    code[2] = (uint8_t)(code[2] | (rng_chance(rng, 50) ? 0x78 : 0x40));
    code[3] = shifts ? (uint8_t)(0x30 + rng_below(rng, 4)) : among_masks[rng_below(rng, sizeof(among_masks))];
  } else {
    const uint8_t *chosen = to_masks[rng_below(rng, sizeof(to_masks) / sizeof(to_masks[0]))];
    bool moves = (chosen[1] & 0xe8) == 0x28; /* between a mask and a vector register: without any other operand */
    code[0] = 0x62;
    code[1] = (uint8_t)((code[1] & 0x60) | 0x90 | chosen[0]);
    code[2] = (uint8_t)(code[2] | 4 | (moves ? 0x78 : 0));
    code[3] = (uint8_t)((code[3] & 0x7f) | 8); /* no zeroing */
    code[3] &= moves ? 0xe8 : chosen[1] == 0x68 ? 0xf8 : 0xff;
    code[4] = chosen[1];
  }
}

/* Legacy, VEX or EVEX, any opcode of the maps that have vector instructions. */
static void
random_vector_bytes(struct rng *rng, uint8_t *code)
{
  static const uint8_t prefixes[] = {0x66, 0xf2, 0xf3};
  size_t n = 0;
  rng_fill(rng, code, CT_INSN_BYTES_MAX);
  if (rng_chance(rng, 15)) {
    random_mask_bytes(rng, code);
    return;
  }
  switch (rng_below(rng, 4)) {
  case 0:
    if (rng_chance(rng, 70)) {
      code[n++] = prefixes[rng_below(rng, sizeof(prefixes))];
    }
    if (rng_chance(rng, 50)) {
      code[n++] = (uint8_t)(0x40 | rng_below(rng, 16));
    }
    code[n++] = 0x0f;
    if (rng_chance(rng, 40)) {
      code[n++] = rng_chance(rng, 60) ? 0x38 : 0x3a;
    }
    break;
  case 1:
    if (rng_chance(rng, 40)) {
      code[n++] = 0xc5;
      code[n] |= rng_chance(rng, 60) ? 0x78 : 0;
      break;
    }
    code[n++] = 0xc4;
    code[n] = (uint8_t)((code[n] & 0xe0) | (1 + rng_below(rng, 3)));
    code[n + 1] |= rng_chance(rng, 60) ? 0x78 : 0;
    break;
  default:
    code[n++] = 0x62;
    code[n] = (uint8_t)((code[n] & 0xf0) | (1 + rng_below(rng, 3)));
    code[n + 1] |= 4 | (rng_chance(rng, 50) ? 0x78 : 0);
    code[n + 2] |= rng_chance(rng, 50) ? 8 : 0;
  }
}

bool
trial_make_vector(struct rng *rng, struct trial *t)
{
  random_vector_bytes(rng, t->code);
  return place(rng, t, CT_EFFECT_BASES | CT_EFFECT_MORE_STORES);
}

bool
trial_make_x87(struct rng *rng, struct trial *t)
{
  enum { OPERAND_MAX = 10 };
  size_t n = 0;
  rng_fill(rng, t->code, CT_INSN_BYTES_MAX);
  if (rng_chance(rng, 50)) {
    t->code[n++] = (uint8_t)(0x40 | rng_below(rng, 16));
  }
  t->code[n] = (uint8_t)(0xd8 + rng_below(rng, 8));
  return place(rng, t, CT_EFFECT_BASES | CT_EFFECT_MORE_STORES) &&
         (t->effects.access_count == 0 || t->effects.access[0].size <= OPERAND_MAX);
}

bool
trial_make(struct rng *rng, struct trial *t)
{
  random_bytes(rng, t->code);
  return place(rng, t, CT_EFFECT_BASES | CT_EFFECT_X87 | CT_EFFECT_MXCSR | CT_EFFECT_MORE_STORES);
}

void
trial_describe(const struct trial *t, const struct ct_cpu *begin, const char *why, char *text, size_t size)
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
