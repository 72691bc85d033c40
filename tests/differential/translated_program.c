/* SPDX-License-Identifier: MIT */
/* See translated_program.h. */
#include "translated_program.h"

#include "classes.h"

#include "x86/decode.h"

#include <sys/mman.h>

enum { ROOM = 160, STARTS_MAX = 4096, PAGE = 4096, REACH_BEGIN = 512, REACH_BYTES = 1024, CHANGES_MAX = 64 };
#define BELOW_CODE (1900ull << 20) /* from the data to the first area, and from that to the second */

enum { CALLS_FIRST = 0x10000, CALLS = 0x10000 }; /* numbers of system calls that there are none of */
/* Alignment checks would end what looks at the program; those of nested tasks and of cpuid a handler's return leaves
 * on. */
#define FLAGS_THAT_STAY 0x244000ull
#define TRAP_FLAG       0x100ull
enum { FREE, START, INSIDE }; /* what a byte of an area is */

struct program program;

static struct {
  uint8_t kind[PROGRAM_AREAS][PROGRAM_AREA_BYTES];
  uint8_t made[PROGRAM_AREAS][PROGRAM_AREA_BYTES]; /* the bytes as they were made */
  uint64_t starts[STARTS_MAX];
  size_t start_count;
  uint64_t indirect[STARTS_MAX]; /* targets of indirect branches and returns */
  size_t indirect_count;
  uint64_t changeable[CHANGES_MAX]; /* immediates of the program's instructions that it may write to */
  size_t changeable_count;
} maker;

/* ---- memory ---- */

static bool
map_area(uint64_t at)
{
  void *got = mmap((void *)at, PROGRAM_AREA_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  return got == (void *)at;
}

int
program_set_up(void)
{
  if (trials_set_up((const char *)0, (const char *)0) != 0) {
    return -1;
  }
  program.area[0] = ((uint64_t)trials.data + BELOW_CODE) & ~0xffffull;
  program.apart[0] = program.area[0] + BELOW_CODE;
  program.apart[1] = program.area[0] + (1ull << 32);
  return map_area(program.area[0]) && map_area(program.apart[0]) && map_area(program.apart[1]) ? 0 : -1;
}

void
program_tear_down(void)
{
  munmap((void *)program.area[0], PROGRAM_AREA_BYTES);
  munmap((void *)program.apart[0], PROGRAM_AREA_BYTES);
  munmap((void *)program.apart[1], PROGRAM_AREA_BYTES);
}

static bool
find(uint64_t pc, unsigned *area, size_t *at)
{
  for (unsigned a = 0; a < program.areas; a++) {
    if (pc - program.area[a] < PROGRAM_AREA_BYTES) {
      *area = a;
      *at = pc - program.area[a];
      return true;
    }
  }
  return false;
}

static bool
has_room(uint64_t pc, size_t bytes)
{
  unsigned area;
  size_t at;
  if (!find(pc, &area, &at) || at + bytes > PROGRAM_AREA_BYTES) {
    return false;
  }
  for (size_t i = 0; i < bytes; i++) {
    if (maker.kind[area][at + i] != FREE) {
      return false;
    }
  }
  return true;
}

static bool
is_start(uint64_t pc)
{
  unsigned area;
  size_t at;
  return find(pc, &area, &at) && maker.kind[area][at] == START;
}

void
program_begin(struct rng *rng, unsigned areas, bool may_change)
{
  program.areas = areas;
  program.area[1] = program.apart[rng_below(rng, 2)];
  program.may_change = may_change;
  program.is_straight = rng_chance(rng, 20);
  for (unsigned a = 0; a < areas; a++) {
    memset(maker.kind[a], FREE, PROGRAM_AREA_BYTES);
    memset(maker.made[a], rng_chance(rng, 50) ? 0xcc : 0x90, PROGRAM_AREA_BYTES);
  }
  maker.start_count = maker.changeable_count = maker.indirect_count = 0;
  program_again();
}

void
program_again(void)
{
  for (unsigned a = 0; a < program.areas; a++) {
    memcpy((void *)program.area[a], maker.made[a], PROGRAM_AREA_BYTES);
  }
}

size_t
program_read(uint64_t pc, uint8_t *bytes, size_t size)
{
  unsigned area;
  size_t at;
  if (!find(pc, &area, &at)) {
    return 0;
  }
  size = size < PROGRAM_AREA_BYTES - at ? size : PROGRAM_AREA_BYTES - at;
  memcpy(bytes, (const void *)pc, size);
  return size;
}

/* ---- pieces of code ---- */

/* What is being made, instruction by instruction. */
struct maker_code {
  struct rng *rng;
  struct ct_cpu cpu; /* as it is where the code begins, changed by what is loaded into registers */
  uint64_t at;
};

static void
put_bytes(struct maker_code *m, const void *bytes, size_t size)
{
  unsigned area;
  size_t at;
  if (!find(m->at, &area, &at)) {
    return;
  }
  memcpy(maker.made[area] + at, bytes, size);
  memcpy((void *)m->at, bytes, size);
  memset(maker.kind[area] + at, INSIDE, size);
  maker.kind[area][at] = START;
  if (maker.start_count < STARTS_MAX) {
    maker.starts[maker.start_count++] = m->at;
  }
  m->at += size;
}

static void
put_code(struct maker_code *m, const struct ct_code *code)
{
  put_bytes(m, code->bytes, code->length);
}

static struct ct_code
open_code(const struct maker_code *m, uint8_t bytes[32])
{
  return (struct ct_code){.bytes = bytes, .capacity = 32, .address = m->at};
}

static void
load(struct maker_code *m, unsigned reg, uint64_t value)
{
  uint8_t bytes[32];
  struct ct_code code = open_code(m, bytes);
  ct_emit_u8(&code, (uint8_t)(0x48 | reg >> 3));
  ct_emit_u8(&code, (uint8_t)(0xb8 | (reg & 7)));
  ct_emit_u64(&code, value);
  put_code(m, &code);
  m->cpu.reg[reg] = value;
}

static unsigned
any_register(struct maker_code *m)
{
  unsigned reg = (unsigned)rng_below(m->rng, 16);
  return rng_chance(m->rng, 20) ? CT_RCX : reg == CT_RSP ? CT_RAX : reg;
}

/* Of an operand of 8 bytes, in reach. */
static uint64_t
any_slot(struct maker_code *m)
{
  return (uint64_t)trials.data + REACH_BEGIN + rng_below(m->rng, REACH_BYTES - 16);
}

static void
want_stack(struct maker_code *m)
{
  uint64_t at = m->cpu.reg[CT_RSP] - ((uint64_t)trials.data + REACH_BEGIN);
  if (at < 64 || at > REACH_BYTES - 64) {
    load(m, CT_RSP, (uint64_t)trials.data + REACH_BEGIN + 64 + rng_below(m->rng, REACH_BYTES - 128));
  }
}

/* Are there addresses in both areas that have the same low 32 bits? */
static bool
has_twins(void)
{
  return program.areas == 2 && program.area[1] == program.apart[1];
}

/* Often with the low 16 or 32 bits of one that is known to the table. */
static uint64_t
free_target(struct maker_code *m)
{
  uint64_t at = program.area[rng_below(m->rng, program.areas)] + rng_below(m->rng, PROGRAM_AREA_BYTES - ROOM);
  uint64_t apart = rng_chance(m->rng, has_twins() ? 10 : 90) ? 0x10000 : 1ull << 32;
  if (maker.indirect_count != 0 && rng_chance(m->rng, has_twins() ? 70 : 35)) {
    at = maker.indirect[rng_below(m->rng, maker.indirect_count)] + (rng_chance(m->rng, 50) ? apart : -apart);
  } else if (rng_chance(m->rng, 40)) {
    at = m->at + ROOM + rng_below(m->rng, 2000);
  }
  return at;
}

/* Somewhere free, or an instruction that has been made; is_direct: in reach. */
static uint64_t
any_target(struct maker_code *m, unsigned back, bool is_direct)
{
  bool goes_back = maker.start_count != 0 && rng_chance(m->rng, back);
  for (unsigned tries = 0; tries < 100; tries++) {
    uint64_t at = goes_back ? maker.starts[rng_below(m->rng, maker.start_count)] : free_target(m);
    if ((!is_direct || at - m->at + (2040ull << 20) < 4080ull << 20) && (goes_back || has_room(at, ROOM))) {
      if (!is_direct && maker.indirect_count < STARTS_MAX) {
        maker.indirect[maker.indirect_count++] = at;
      }
      return at;
    }
  }
  return m->at;
}

/* Within 127 bytes after, or anything before that has been made. 0: none. */
static uint64_t
near_target(struct maker_code *m, size_t length, unsigned back)
{
  uint64_t from = m->at + length;
  for (unsigned tries = 0; tries < 20; tries++) {
    uint64_t at = from + rng_below(m->rng, 128);
    if (rng_chance(m->rng, back) && maker.start_count != 0) {
      size_t last = maker.start_count < 20 ? maker.start_count : 20;
      at = maker.starts[maker.start_count - 1 - rng_below(m->rng, last)];
    }
    int64_t distance = (int64_t)(at - from);
    if (distance == (int8_t)distance && (is_start(at) || (at >= from && has_room(at, ROOM)))) {
      return at;
    }
  }
  return 0;
}

/* ---- kinds of instructions ---- */

/* cpuid, rdtsc, rdrand and the like. Of the last group only cmpxchg8b and cmpxchg16b, of memory, are. */
static bool
varies(const uint8_t *code, unsigned left)
{
  bool is_pair = left > 2 && code[2] >> 6 != 3 && (code[2] >> 3 & 7) == 1;
  return code[0] == 0x0f && (code[1] == 0xa2 || code[1] == 0x31 || (code[1] == 0xc7 && !is_pair) || code[1] == 0x00);
}

/* The same twice. */
static bool
is_steady(const struct trial *t)
{
  for (unsigned i = 0; i + 1 < t->effects.length; i++) {
    if (varies(t->code + i, t->effects.length - i)) {
      return false;
    }
  }
  return true;
}

static bool
is_rip(const struct ct_effects *e)
{
  return e->access_count != 0 && (e->access[0].how & CT_ACCESS_RIP) != 0;
}

static bool
reaches_data(uint64_t pc)
{
  return pc - program.area[0] < PROGRAM_AREA_BYTES;
}

typedef bool make_function(struct rng *rng, struct trial *t);

/* One of the kinds that hardly come by themselves, or none. */
static uint32_t
wanted_classes(struct maker_code *m)
{
  bool may_reach = reaches_data(m->at);
  if (may_reach && rng_chance(m->rng, 20)) {
    return 1u << CLASS_RIP;
  }
  uint32_t class =
      (uint32_t)rng_below(m->rng, rng_chance(m->rng, 35) ? CLASSES : 1); /* VEX of two bytes comes by itself */
  return class == 0 || (class == CLASS_RIP && !may_reach) ? 0 : 1u << class;
}

static make_function *
maker_of(struct maker_code *m, uint32_t wanted)
{
  bool is_vector = (wanted & (1u << CLASS_VEX2 | 1u << CLASS_VEX3 | 1u << CLASS_EVEX)) != 0;
  if (is_vector || (wanted == 0 && rng_chance(m->rng, 10))) {
    return trial_make_vector;
  }
  bool is_x87 = (wanted & 1u << CLASS_X87) != 0 || (wanted == 0 && rng_chance(m->rng, 5));
  return is_x87 ? trial_make_x87 : trial_make;
}

static bool
make_trial(struct maker_code *m, struct trial *t)
{
  uint32_t wanted = wanted_classes(m);
  make_function *make = maker_of(m, wanted);
  uint8_t before[DATA_BYTES];
  memcpy(before, trials.data, sizeof(before));
  for (unsigned tries = 0; tries < 3000; tries++) {
    *t = (struct trial){.cpu = m->cpu};
    if (!make(m->rng, t)) {
      continue;
    }
    if (t->effects.flow != CT_INSN_FLOW_NEXT) { /* these write to memory */
      memcpy(trials.data, before, sizeof(before));
      continue;
    }
    bool gathers = t->effects.access_count != 0 && (t->effects.access[0].how & CT_ACCESS_VECTOR) != 0;
    if (is_steady(t) && !gathers && (!is_rip(&t->effects) || reaches_data(m->at)) &&
        ((classes_of(t->code, &t->effects) & wanted) == wanted || tries > 1000)) {
      return true;
    }
  }
  return false;
}

/* One of trials.c, after loads of the registers that it needs. */
static void
make_plain(struct maker_code *m)
{
  struct trial t;
  struct ct_insn in;
  uint16_t addresses = 0;
  trials.fell_through = m->at;
  if (!make_trial(m, &t)) {
    return;
  }
  const struct ct_effects *e = &t.effects;
  for (unsigned i = 0; i < e->access_count; i++) {
    addresses |= e->access[i].base != CT_NO_REG ? (uint16_t)(1u << e->access[i].base) : 0;
    addresses |= e->access[i].index != CT_NO_REG ? (uint16_t)(1u << e->access[i].index) : 0;
  }
  unsigned wild = e->access_count != 0 && rng_chance(m->rng, 1) ? e->access[0].base : CT_NO_REG;
  for (unsigned r = 0; r < 16; r++) {
    if (r == wild) {
      load(m, r, t.cpu.reg[r] + PAGE);
    } else if (t.cpu.reg[r] != m->cpu.reg[r] || ((addresses >> r & 1) != 0 && rng_chance(m->rng, 40))) {
      load(m, r, t.cpu.reg[r]);
    }
  }
  if (is_rip(e) && ct_decode_full(t.code, e->length, &in)) {
    uint32_t disp;
    uint8_t *field = t.code + e->length - in.imm_bytes - 4;
    memcpy(&disp, field, sizeof(disp));
    disp += (uint32_t)(trials.fell_through - (m->at + e->length));
    memcpy(field, &disp, sizeof(disp));
  }
  put_bytes(m, t.code, e->length);
}

static void
make_jump(struct maker_code *m)
{
  uint8_t bytes[32];
  struct ct_code code = open_code(m, bytes);
  uint64_t near = rng_chance(m->rng, 30) ? near_target(m, 2, 10) : 0;
  if (near != 0) {
    ct_emit_u8(&code, 0xeb);
    ct_emit_u8(&code, (uint8_t)(near - (m->at + 2)));
  } else {
    ct_emit_jmp(&code, any_target(m, 8, true));
  }
  put_code(m, &code);
}

static void
make_branch(struct maker_code *m)
{
  uint8_t bytes[32];
  struct ct_code code = open_code(m, bytes);
  unsigned cond = (unsigned)rng_below(m->rng, 16);
  uint64_t near = rng_chance(m->rng, 50) ? near_target(m, 2, 40) : 0;
  if (near != 0) {
    ct_emit_u8(&code, (uint8_t)(0x70 | cond));
    ct_emit_u8(&code, (uint8_t)(near - (m->at + 2)));
  } else {
    ct_emit_jcc(&code, (enum ct_cond)cond, any_target(m, 40, true));
  }
  put_code(m, &code);
}

static void
make_loop(struct maker_code *m)
{
  uint8_t bytes[32];
  bool is_narrow = rng_chance(m->rng, 30);
  if (rng_chance(m->rng, 50)) {
    load(m, CT_RCX, rng_below(m->rng, 4) | (rng_chance(m->rng, 30) ? 1ull << 32 : 0));
  }
  struct ct_code code = open_code(m, bytes);
  uint64_t target = near_target(m, is_narrow ? 3 : 2, 60);
  if (target == 0) {
    return;
  }
  if (is_narrow) {
    ct_emit_u8(&code, 0x67);
  }
  ct_emit_u8(&code, (uint8_t)(0xe0 + rng_below(m->rng, 4)));
  ct_emit_u8(&code, (uint8_t)(target - (m->at + code.length + 1)));
  put_code(m, &code);
}

static void
make_call(struct maker_code *m)
{
  uint8_t bytes[32];
  want_stack(m);
  struct ct_code code = open_code(m, bytes);
  ct_emit_call(&code, any_target(m, 10, true));
  put_code(m, &code);
}

static void
make_return(struct maker_code *m)
{
  uint8_t bytes[32];
  uint64_t top = 0;
  want_stack(m);
  memcpy(&top, (const void *)m->cpu.reg[CT_RSP], sizeof(top));
  if (!is_start(top) && !has_room(top, ROOM)) {
    unsigned reg = any_register(m);
    load(m, reg, any_target(m, 15, false));
    struct ct_code code = open_code(m, bytes);
    ct_emit_push(&code, (enum ct_reg)reg);
    put_code(m, &code);
  }
  struct ct_code code = open_code(m, bytes);
  if (rng_chance(m->rng, 20)) { /* rep ret */
    ct_emit_u8(&code, 0xf3);
  }
  if (rng_chance(m->rng, 30)) {
    uint64_t bytes_off = rng_chance(m->rng, 10) ? rng_next(m->rng) : rng_below(m->rng, 64);
    ct_emit_u8(&code, 0xc2);
    ct_emit_u8(&code, (uint8_t)bytes_off);
    ct_emit_u8(&code, (uint8_t)(bytes_off >> 8));
  } else {
    ct_emit_u8(&code, 0xc3);
  }
  put_code(m, &code);
}

/* modrm and what follows it, of an operand in memory at slot, by base and disp32 */
static void
emit_by_base(struct ct_code *code, unsigned field, unsigned base, uint64_t disp)
{
  ct_emit_u8(code, (uint8_t)(0x80 | field << 3 | (base & 7)));
  if ((base & 7) == 4) {
    ct_emit_u8(code, 0x24);
  }
  ct_emit_u32(code, (uint32_t)disp);
}

static void
emit_by_index(struct ct_code *code, unsigned field, unsigned base, unsigned index, unsigned scale, uint64_t disp)
{
  ct_emit_u8(code, (uint8_t)(0x84 | field << 3));
  ct_emit_u8(code, (uint8_t)(scale << 6 | (index & 7) << 3 | (base & 7)));
  ct_emit_u32(code, (uint32_t)disp);
}

/* By a slot in memory: the target is stored there, then it is jumped to or called. */
static void
make_by_memory(struct maker_code *m, unsigned field, uint64_t target)
{
  uint8_t bytes[32];
  uint64_t slot = any_slot(m), disp = rng_next(m->rng) % 4096 - 2048;
  unsigned value = any_register(m), base = any_register(m), index = any_register(m);
  unsigned scale = (unsigned)rng_below(m->rng, 4);
  bool by_rip = reaches_data(m->at) && rng_chance(m->rng, 35), by_index = rng_chance(m->rng, 40) && index != CT_RSP;
  bool by_gs = rng_chance(m->rng, 20), by_fs = !by_gs && !by_rip && rng_chance(m->rng, 25);
  base = base == index ? (index == CT_RBX ? CT_RSI : CT_RBX) : base;
  value = value == base ? (base == CT_R8 ? CT_RDX : CT_R8) : value;
  load(m, value, target);
  load(m, base, slot);
  struct ct_code code = open_code(m, bytes);
  ct_emit_u8(&code, (uint8_t)(0x48 | (value >> 3) << 2 | base >> 3)); /* mov value, disp(base) */
  ct_emit_u8(&code, 0x89);
  emit_by_base(&code, value & 7, base, 0);
  put_code(m, &code);
  uint64_t address = slot - disp - (by_fs ? trials.fs_base : by_gs ? PROGRAM_GS_BASE : 0);
  if (!by_rip && by_index) {
    uint64_t there = rng_next(m->rng) >> 8;
    load(m, index, there);
    address -= there << scale;
  }
  if (!by_rip) {
    load(m, base, address);
  }
  code = open_code(m, bytes);
  if (by_fs || by_gs) {
    ct_emit_u8(&code, by_fs ? 0x64 : 0x65);
  } else if (rng_chance(m->rng, 15)) {
    ct_emit_u8(&code, 0x3e); /* notrack */
  }
  if (by_rip) {
    ct_emit_u8(&code, 0xff);
    ct_emit_u8(&code, (uint8_t)(field << 3 | 5));
    ct_emit_u32(&code, (uint32_t)(slot - (by_gs ? PROGRAM_GS_BASE : 0) - (m->at + code.length + 4)));
  } else {
    ct_emit_u8(&code, (uint8_t)(0x40 | base >> 3 | (by_index ? (index >> 3) << 1 : 0)));
    ct_emit_u8(&code, 0xff);
    if (by_index) {
      emit_by_index(&code, field, base, index, scale, disp);
    } else {
      emit_by_base(&code, field, base, disp);
    }
  }
  put_code(m, &code);
}

static void
make_indirect(struct maker_code *m)
{
  uint8_t bytes[32];
  bool is_call = rng_chance(m->rng, 50);
  unsigned field = is_call ? 2 : 4;
  uint64_t target = any_target(m, 15, false);
  if (is_call) {
    want_stack(m);
  }
  if (rng_chance(m->rng, 60)) {
    make_by_memory(m, field, target);
    return;
  }
  unsigned reg = any_register(m);
  load(m, reg, target);
  struct ct_code code = open_code(m, bytes);
  ct_emit_u8(&code, (uint8_t)(0x40 | reg >> 3));
  ct_emit_u8(&code, 0xff);
  ct_emit_u8(&code, (uint8_t)(0xc0 | field << 3 | (reg & 7)));
  put_code(m, &code);
}

/* A system call that there is not, which the tracer may want to see or not. What is stepped over with it is a nop. */
static void
make_system_call(struct maker_code *m)
{
  load(m, CT_RAX, CALLS_FIRST + rng_below(m->rng, CALLS));
  put_bytes(m, "\x0f\x05", 2);
  put_bytes(m, "\x90", 1);
}

/* Flags from the stack, of either size. */
static void
make_flags(struct maker_code *m)
{
  uint8_t bytes[32];
  unsigned reg = any_register(m);
  want_stack(m);
  load(m, reg, rng_next(m->rng) & ~(FLAGS_THAT_STAY | (rng_chance(m->rng, 70) ? TRAP_FLAG : 0)));
  struct ct_code code = open_code(m, bytes);
  ct_emit_push(&code, (enum ct_reg)reg);
  put_code(m, &code);
  if (rng_chance(m->rng, 30)) {
    put_bytes(m, "\x66\x9d", 2);
  } else {
    put_bytes(m, "\x9d", 1);
  }
}

/* Of an address by rip, anywhere, to a register of any width. */
static void
make_address(struct maker_code *m)
{
  uint8_t bytes[32];
  struct ct_code code = open_code(m, bytes);
  unsigned reg = any_register(m);
  if (rng_chance(m->rng, 30)) {
    ct_emit_u8(&code, 0x66);
  }
  ct_emit_u8(&code, (uint8_t)(0x40 | (reg >> 3) << 2 | (rng_chance(m->rng, 50) ? 8 : 0)));
  ct_emit_u8(&code, 0x8d);
  ct_emit_u8(&code, (uint8_t)((reg & 7) << 3 | 5));
  ct_emit_u32(&code, (uint32_t)rng_next(m->rng));
  put_code(m, &code);
}

/* It ends there, by a fault. */
static void
make_stop(struct maker_code *m)
{
  if (rng_chance(m->rng, 50)) {
    put_bytes(m, "\x0f\x0b", 2); /* ud2 */
  } else {
    put_bytes(m, "\xf4", 1); /* hlt */
  }
}

/* The program writes into an immediate of an instruction of its own, and goes there. */
static void
make_change(struct maker_code *m)
{
  uint8_t bytes[32];
  if (maker.changeable_count == 0 || rng_chance(m->rng, 40)) {
    if (maker.changeable_count < CHANGES_MAX) {
      maker.changeable[maker.changeable_count++] = m->at;
    }
    load(m, any_register(m), rng_next(m->rng));
    return;
  }
  uint64_t start = maker.changeable[rng_below(m->rng, maker.changeable_count)];
  if (start - m->at + (1ull << 30) >= 2ull << 30) { /* no jump gets there */
    return;
  }
  unsigned base = any_register(m);
  load(m, base, start + 2);
  struct ct_code code = open_code(m, bytes);
  ct_emit_u8(&code, (uint8_t)(0x40 | base >> 3)); /* movl $random, (base) */
  ct_emit_u8(&code, 0xc7);
  emit_by_base(&code, 0, base, rng_below(m->rng, 5));
  ct_emit_u32(&code, (uint32_t)rng_next(m->rng));
  put_code(m, &code);
  code = open_code(m, bytes);
  ct_emit_jmp(&code, start);
  put_code(m, &code);
}

/* ---- the program ---- */

static void
make(struct rng *rng, const struct ct_cpu *cpu)
{
  struct maker_code m = {.rng = rng, .cpu = *cpu, .at = cpu->rip};
  unsigned kind = (unsigned)rng_below(rng, 100);
  if (program.may_change && rng_chance(rng, 6)) {
    make_change(&m);
  } else if (rng_below(rng, 300) == 0) {
    make_stop(&m);
  } else if (has_twins() && rng_chance(rng, 20)) {
    make_indirect(&m);
  } else if (rng_chance(rng, 2)) {
    make_address(&m);
  } else if (kind < 62 || (program.is_straight && rng_chance(rng, 90))) {
    make_plain(&m);
  } else if (kind < 66) {
    make_jump(&m);
  } else if (kind < 76) {
    make_branch(&m);
  } else if (kind < 80) {
    make_loop(&m);
  } else if (kind < 85) {
    make_call(&m);
  } else if (kind < 91) {
    make_return(&m);
  } else if (kind < 97) {
    make_indirect(&m);
  } else if (kind < 99) {
    make_flags(&m);
  } else {
    make_system_call(&m);
  }
  if (m.at == cpu->rip) { /* nothing could be made of that kind */
    put_bytes(&m, "\x90", 1);
  }
}

static bool
is_changeable(uint64_t address)
{
  for (size_t i = 0; i < maker.changeable_count; i++) {
    if (address - (maker.changeable[i] + 2) <= 4) {
      return true;
    }
  }
  return false;
}

/* Its reads and writes are in reach, or all of them where nothing is mapped. */
static bool
may_touch(const struct ct_cpu *cpu, const struct ct_effects *e)
{
  for (unsigned i = 0; i < e->access_count; i++) {
    const struct ct_access *access = &e->access[i];
    uint64_t times = (access->how & CT_ACCESS_REPEATED) != 0 ? cpu->reg[CT_RCX] : 1;
    uint64_t address = ct_address(e, access, cpu), at = address - (uint64_t)trials.data;
    if ((access->how & (CT_ACCESS_READ | CT_ACCESS_WRITE)) == 0) {
      continue;
    }
    if (access->size == 0 || access->size > 64 || (access->how & CT_ACCESS_VECTOR) != 0 || times > 64) {
      return false;
    }
    bool is_missing = at >= PAGE + 64 && at < 2 * PAGE - 64 && times == 1; /* the page after it */
    bool is_code = access->size == 4 && times == 1 && is_changeable(address) && ((const uint8_t *)cpu->rip)[1] == 0xc7;
    bool is_inside = at >= 128 && at < DATA_BYTES && at + times * access->size <= DATA_BYTES - 128 &&
                     ((cpu->flags & CT_FLAG_DF) == 0 || at >= times * access->size);
    if (!is_inside && !is_missing && !is_code) {
      return false;
    }
  }
  return true;
}

/*
 * Not one that there is: a jump may lead to the instruction with any number in rax. setfsgid, for one, returns what the
 * run before has left, and others would do worse.
 */
static bool
may_call(const struct ct_cpu *cpu, const struct ct_effects *e)
{
  return e->flow != CT_INSN_FLOW_SYSCALL || (uint32_t)cpu->reg[CT_RAX] - CALLS_FIRST < CALLS;
}

static bool
may_go(const struct ct_cpu *cpu, const struct ct_effects *e)
{
  uint64_t target = 0;
  if (e->flow == CT_INSN_FLOW_RET ||
      ((e->flow == CT_INSN_FLOW_JUMP_INDIRECT || e->flow == CT_INSN_FLOW_CALL_INDIRECT) && e->in >= 16)) {
    uint64_t at = ct_address(e, &e->access[0], cpu);
    if (at - (uint64_t)trials.data > DATA_BYTES - 8) {
      return false;
    }
    memcpy(&target, (const void *)at, sizeof(target));
  } else if (e->flow == CT_INSN_FLOW_JUMP_INDIRECT || e->flow == CT_INSN_FLOW_CALL_INDIRECT) {
    target = cpu->reg[e->in];
  } else {
    const uint8_t first = *(const uint8_t *)cpu->rip; /* of int3 and int1 the trap is no fault */
    return e->flow != CT_INSN_FLOW_OTHER && (e->flow != CT_INSN_FLOW_TRAP || first == 0x0f || first == 0xf4);
  }
  return is_start(target) || has_room(target, ROOM);
}

/* It may come to popf with anything on the stack. */
static bool
may_pop_flags(const struct ct_cpu *cpu, const struct ct_effects *e)
{
  const uint8_t *code = (const uint8_t *)cpu->rip;
  uint64_t flags = 0, at = cpu->reg[CT_RSP] - (uint64_t)trials.data;
  if (code[e->length - 1] != 0x9d || e->derivable) {
    return true;
  }
  if (at > DATA_BYTES - 8) {
    return false;
  }
  memcpy(&flags, trials.data + at, sizeof(flags));
  return (flags & FLAGS_THAT_STAY) == 0;
}

bool
program_goes_on(struct rng *rng, const struct ct_cpu *cpu, struct ct_effects *effects)
{
  if (has_room(cpu->rip, ROOM)) {
    make(rng, cpu);
  } else if (has_room(cpu->rip, 5)) {
    struct maker_code m = {.rng = rng, .cpu = *cpu, .at = cpu->rip};
    make_jump(&m);
  }
  return is_start(cpu->rip) && ct_effects_of((const uint8_t *)cpu->rip, CT_INSN_BYTES_MAX, effects) &&
         (effects->traits & CT_EFFECT_BASES) == 0 && may_touch(cpu, effects) && may_call(cpu, effects) &&
         may_go(cpu, effects) && may_pop_flags(cpu, effects);
}
