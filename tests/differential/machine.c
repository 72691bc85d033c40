/* SPDX-License-Identifier: MIT */
/*
 * See machine.h. The way of a run:
 *
 *   machine_run: int3 -> handler: keeps the frame as it is (the host), fills it with the state to begin with
 *   return from the handler: the code runs one instruction -> trap -> handler: look? ... fault or end:
 *   the frame becomes the state that is handed back, then the host's again -> after the int3
 *
 * The handler has a stack of its own. A fault that is not of a run is let through to kill the process.
 */
#include "machine.h"

#include <assert.h>
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { LEGACY_BYTES = 416, HEADER = 512, SW_RESERVED = 464, MXCSR = 24, ST = 32, XMM = 160 };
enum { PART_AVX = 2, PART_MASKS = 5, PART_ZMM_HIGH = 6, PART_ZMM_MORE = 7 };
#define FEATURES      0xe7ull /* x87, SSE, AVX, and the three of AVX-512 */
#define TRAP_FLAG     0x100ull
#define XSTATE_MAGIC1 0x46505853u

enum phase { PHASE_HOST, PHASE_BEGIN, PHASE_RUNS, PHASE_CALLS };

extern const char machine_call_out[];

static struct {
  volatile enum phase phase;
  uint64_t features;
  unsigned offset[8], bytes[8];
  const struct machine *begin;
  struct machine *end;
  struct ending *ending;
  machine_look *look;
  void *context;
  uint64_t redirect, flags;
  bool is_replaced;
  greg_t replacement[NGREG];
  greg_t host[NGREG];
  uint8_t host_extended[MACHINE_EXTENDED_BYTES];
  size_t frame_bytes;
  const uint8_t *frame; /* of a look; NULL: there is none */
  const struct machine *rests;
} engine;

static const int reg_places[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static const unsigned parts[] = {PART_AVX, PART_MASKS, PART_ZMM_HIGH, PART_ZMM_MORE};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

static bool
has(unsigned part)
{
  return (engine.features >> part & 1) != 0;
}

/* The frame's image becomes ours: parts that are as after a reset may be missing in it. */
static void
take_extended(const uint8_t *frame, uint8_t *out)
{
  uint64_t present;
  memset(out, 0, MACHINE_EXTENDED_BYTES);
  memcpy(&present, frame + HEADER, sizeof(present));
  memcpy(out, frame, LEGACY_BYTES);
  memset(out + 6, 0, 18); /* last instruction and operand of x87: addresses */
  memset(out + 28, 0, 4); /* mask of mxcsr */
  if ((present & 1) == 0) {
    memset(out, 0, 24);
    memset(out + ST, 0, XMM - ST);
    memcpy(out, "\x7f\x03", 2);
  }
  for (unsigned r = 0; r < 8; r++) {
    memset(out + ST + 16 * r + 10, 0, 6);
  }
  if ((present & 2) == 0) {
    memset(out + XMM, 0, LEGACY_BYTES - XMM);
  }
  for (unsigned i = 0; i < PARTS; i++) {
    if (has(parts[i]) && (present >> parts[i] & 1) != 0) {
      memcpy(out + engine.offset[parts[i]], frame + engine.offset[parts[i]], engine.bytes[parts[i]]);
    }
  }
}

static void
give_extended(uint8_t *frame, const uint8_t *in)
{
  uint64_t present;
  uint32_t mask;
  memcpy(&present, frame + HEADER, sizeof(present));
  present |= engine.features;
  memcpy(&mask, frame + 28, sizeof(mask));
  memcpy(frame, in, LEGACY_BYTES);
  memcpy(frame + 28, &mask, sizeof(mask));
  memcpy(frame + HEADER, &present, sizeof(present));
  for (unsigned i = 0; i < PARTS; i++) {
    if (has(parts[i])) {
      memcpy(frame + engine.offset[parts[i]], in + engine.offset[parts[i]], engine.bytes[parts[i]]);
    }
  }
}

static void
take(const ucontext_t *uc, struct machine *out)
{
  const greg_t *gregs = uc->uc_mcontext.gregs;
  for (unsigned r = 0; r < 16; r++) {
    out->reg[r] = (uint64_t)gregs[reg_places[r]];
  }
  out->rip = (uint64_t)gregs[REG_RIP];
  out->flags = (uint64_t)gregs[REG_EFL] & MACHINE_FLAGS;
  take_extended((const uint8_t *)uc->uc_mcontext.fpregs, out->extended);
}

static void
note_fault(const ucontext_t *uc, int signal, const siginfo_t *info)
{
  struct ending *ending = engine.ending;
  ending->signal = signal;
  ending->code = info->si_code;
  ending->address = signal == SIGSEGV || signal == SIGBUS ? (uint64_t)info->si_addr : 0;
  ending->error = (uint64_t)uc->uc_mcontext.gregs[REG_ERR];
}

static void
finish(ucontext_t *uc, int signal, const siginfo_t *info)
{
  take(uc, engine.end);
  engine.frame = NULL;
  engine.rests = engine.end;
  if (signal != 0) {
    note_fault(uc, signal, info);
  }
  memcpy(uc->uc_mcontext.gregs, engine.host, sizeof(engine.host));
  memcpy(uc->uc_mcontext.fpregs, engine.host_extended, engine.frame_bytes);
  engine.phase = PHASE_HOST;
}

/* Asks the caller; the registers are handed over as instructions number them. */
static bool
goes_on(const ucontext_t *uc)
{
  uint64_t reg[16];
  for (unsigned r = 0; r < 16; r++) {
    reg[r] = (uint64_t)uc->uc_mcontext.gregs[reg_places[r]];
  }
  return engine.ending->steps <= MACHINE_STEPS_MAX &&
         engine.look(engine.context, reg, (uint64_t)uc->uc_mcontext.gregs[REG_RIP]);
}

/* Of 48 bits. */
static bool
is_canonical(uint64_t address)
{
  return (uint64_t)((int64_t)(address << 16) >> 16) == address;
}

static void
begin(ucontext_t *uc)
{
  greg_t *gregs = uc->uc_mcontext.gregs;
  memcpy(engine.host, gregs, sizeof(engine.host));
  memcpy(engine.host_extended, uc->uc_mcontext.fpregs, engine.frame_bytes);
  for (unsigned r = 0; r < 16; r++) {
    gregs[reg_places[r]] = (greg_t)engine.begin->reg[r];
  }
  gregs[REG_RIP] = (greg_t)engine.begin->rip;
  gregs[REG_EFL] = (greg_t)(0x202 | TRAP_FLAG | (engine.begin->flags & MACHINE_FLAGS));
  give_extended((uint8_t *)uc->uc_mcontext.fpregs, engine.begin->extended);
  engine.phase = PHASE_RUNS;
}

static void
on_signal(int number, siginfo_t *info, void *context)
{
  ucontext_t *uc = context;
  switch (engine.phase) {
  case PHASE_BEGIN:
    begin(uc);
    return;
  case PHASE_RUNS:
    if (number != SIGTRAP) {
      finish(uc, number, info);
      return;
    }
    engine.ending->steps++;
    engine.redirect = 0;
    engine.is_replaced = false;
    engine.flags = (uint64_t)uc->uc_mcontext.gregs[REG_EFL];
    engine.frame = (const uint8_t *)uc->uc_mcontext.fpregs;
    uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG; /* popf may have cleared it */
    memcpy(engine.replacement, uc->uc_mcontext.gregs, sizeof(engine.replacement));
    if (!goes_on(uc)) {
      finish(uc, 0, info);
    } else if (!is_canonical((uint64_t)uc->uc_mcontext.gregs[REG_RSP])) {
      finish(uc, 0, info);
      engine.ending->no_step = true;
    } else if (engine.redirect != 0) {
      uc->uc_mcontext.gregs[REG_RIP] = (greg_t)engine.redirect;
    } else if (engine.is_replaced) {
      memcpy(uc->uc_mcontext.gregs, engine.replacement, sizeof(engine.replacement));
    }
    return;
  case PHASE_CALLS:
    take(uc, engine.end);
    note_fault(uc, number, info);
    uc->uc_mcontext.gregs[REG_RIP] = (greg_t)machine_call_out;
    engine.phase = PHASE_HOST;
    return;
  case PHASE_HOST:
    signal(number, SIG_DFL); /* it comes again when this returns */
    return;
  }
}

void
machine_redirect(uint64_t rip)
{
  engine.redirect = rip;
}

uint64_t
machine_flags(void)
{
  return engine.flags;
}

void
machine_rests(const struct machine *machine)
{
  engine.rests = machine;
}

void
machine_now(struct machine *machine)
{
  if (engine.frame != NULL) {
    take_extended(engine.frame, machine->extended);
  } else {
    memcpy(machine->extended, engine.rests->extended, MACHINE_EXTENDED_BYTES);
  }
}

void
machine_picture(uint8_t *bytes)
{
  static struct machine now;
  machine_now(&now);
  memcpy(bytes, now.extended, MACHINE_EXTENDED_BYTES);
  memcpy(bytes + HEADER, &engine.features, sizeof(engine.features));
}

void
machine_replace(const uint64_t reg[16], uint64_t rip, uint64_t flags)
{
  for (unsigned r = 0; r < 16; r++) {
    engine.replacement[reg_places[r]] = (greg_t)reg[r];
  }
  engine.replacement[REG_RIP] = (greg_t)rip;
  engine.replacement[REG_EFL] = (greg_t)(TRAP_FLAG | (engine.flags & ~MACHINE_FLAGS) | (flags & MACHINE_FLAGS));
  engine.is_replaced = true;
}

void
machine_run(const struct machine *from, machine_look *look, void *context, struct machine *end, struct ending *ending)
{
  memset(ending, 0, sizeof(*ending));
  engine.begin = from;
  engine.end = end;
  engine.ending = ending;
  engine.look = look;
  engine.context = context;
  engine.phase = PHASE_BEGIN;
  __asm__ volatile("int3" ::: "memory");
}

/* Fills in what the kernel's frames are like here. */
static void
on_probe(int number, siginfo_t *info, void *context)
{
  const ucontext_t *uc = context;
  const uint8_t *frame = (const uint8_t *)uc->uc_mcontext.fpregs;
  uint32_t magic, bytes;
  uint64_t features;
  memcpy(&magic, frame + SW_RESERVED, sizeof(magic));
  memcpy(&features, frame + SW_RESERVED + 8, sizeof(features));
  memcpy(&bytes, frame + SW_RESERVED + 16, sizeof(bytes));
  if (magic == XSTATE_MAGIC1) {
    engine.features = features & FEATURES;
    engine.frame_bytes = bytes;
  }
}

int
machine_set_up(void)
{
  enum { STACK_BYTES = 256 << 10 };
  static const int signals[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  stack_t stack = {.ss_size = STACK_BYTES};
  struct sigaction action = {.sa_sigaction = on_probe, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  stack.ss_sp = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack.ss_sp == MAP_FAILED || sigaltstack(&stack, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0) {
    return -1;
  }
  raise(SIGUSR1);
  if (engine.frame_bytes == 0 || engine.frame_bytes > 3 * MACHINE_EXTENDED_BYTES) {
    return -1;
  }
  for (unsigned i = 0; i < PARTS; i++) {
    unsigned p = parts[i], c, d;
    __cpuid_count(0xd, p, engine.bytes[p], engine.offset[p], c, d);
    if (has(p) && engine.offset[p] + engine.bytes[p] > MACHINE_EXTENDED_BYTES) {
      return -1;
    }
  }
  engine.frame_bytes = engine.frame_bytes < MACHINE_EXTENDED_BYTES ? engine.frame_bytes : MACHINE_EXTENDED_BYTES;
  action.sa_sigaction = on_signal;
  for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
    if (sigaction(signals[i], &action, NULL) != 0) {
      return -1;
    }
  }
  return 0;
}

/* ---- states ---- */

unsigned
machine_vector_parts(void)
{
  return has(PART_ZMM_HIGH) ? 4 : has(PART_AVX) ? 2 : 1;
}

unsigned
machine_vector_count(void)
{
  return has(PART_ZMM_MORE) ? 32 : 16;
}

uint8_t *
machine_vector(struct machine *machine, unsigned n, unsigned part)
{
  uint8_t *at = machine->extended;
  if (n >= 16) {
    return at + engine.offset[PART_ZMM_MORE] + 64 * (n - 16) + 16 * part;
  }
  if (part == 0) {
    return at + XMM + 16 * n;
  }
  return part == 1 ? at + engine.offset[PART_AVX] + 16 * n
                   : at + engine.offset[PART_ZMM_HIGH] + 32 * n + 16 * (part - 2);
}

uint8_t *
machine_mask(struct machine *machine, unsigned n)
{
  return has(PART_MASKS) ? machine->extended + engine.offset[PART_MASKS] + 8 * n : NULL;
}

/* All exceptions masked, usually; any rounding. */
static void
random_control(struct machine *machine, struct rng *rng)
{
  uint16_t control = 0x37f, status = 0;
  uint32_t mxcsr = 0x1f80;
  if (rng_chance(rng, 30)) {
    control = (uint16_t)(0x7f | rng_below(rng, 4) << 10 | (rng_below(rng, 2) + 2) << 8);
  }
  if (rng_chance(rng, 30)) {
    status = (uint16_t)(rng_below(rng, 8) << 11 | (rng_next(rng) & 0x4700));
  }
  if (rng_chance(rng, 30)) {
    mxcsr |= (uint32_t)(rng_next(rng) & 0xe040);
  }
  if (rng_chance(rng, 3)) {
    mxcsr &= ~(uint32_t)(rng_next(rng) & 0x1f80);
  }
  memcpy(machine->extended, &control, 2);
  memcpy(machine->extended + 2, &status, 2);
  machine->extended[4] = rng_chance(rng, 50) ? 0 : (uint8_t)rng_next(rng);
  memcpy(machine->extended + MXCSR, &mxcsr, 4);
}

void
machine_random(struct machine *machine, struct rng *rng)
{
  memset(machine, 0, sizeof(*machine));
  for (unsigned r = 0; r < 16; r++) {
    machine->reg[r] = rng_next(rng);
  }
  machine->flags = rng_next(rng) & (rng_chance(rng, 20) ? MACHINE_FLAGS : MACHINE_FLAGS & ~0x400ull);
  random_control(machine, rng);
  for (unsigned r = 0; r < 8; r++) {
    rng_fill(rng, machine->extended + ST + 16 * r, 10);
  }
  rng_fill(rng, machine->extended + XMM, LEGACY_BYTES - XMM);
  for (unsigned i = 0; i < PARTS; i++) {
    if (has(parts[i])) {
      rng_fill(rng, machine->extended + engine.offset[parts[i]], engine.bytes[parts[i]]);
    }
  }
}

static void
name_of(size_t offset, char *text, size_t size)
{
  if (offset < ST) {
    snprintf(text, size, "x87 and mxcsr control, byte %zu", offset);
  } else if (offset < XMM) {
    snprintf(text, size, "st%zu", (offset - ST) / 16);
  } else if (offset < LEGACY_BYTES) {
    snprintf(text, size, "xmm%zu", (offset - XMM) / 16);
  } else if (has(PART_AVX) && offset - engine.offset[PART_AVX] < engine.bytes[PART_AVX]) {
    snprintf(text, size, "ymm%zu's upper half", (offset - engine.offset[PART_AVX]) / 16);
  } else if (has(PART_MASKS) && offset - engine.offset[PART_MASKS] < engine.bytes[PART_MASKS]) {
    snprintf(text, size, "k%zu", (offset - engine.offset[PART_MASKS]) / 8);
  } else if (has(PART_ZMM_HIGH) && offset - engine.offset[PART_ZMM_HIGH] < engine.bytes[PART_ZMM_HIGH]) {
    snprintf(text, size, "zmm%zu's upper half", (offset - engine.offset[PART_ZMM_HIGH]) / 32);
  } else {
    snprintf(text, size, "zmm%zu", 16 + (offset - engine.offset[PART_ZMM_MORE]) / 64);
  }
}

static const char *const names[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                    "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

bool
machine_differs(const struct machine *a, const struct machine *b, uint64_t flags, char *text, size_t size)
{
  for (unsigned r = 0; r < 16; r++) {
    if (a->reg[r] != b->reg[r]) {
      snprintf(text, size, "%s is %#llx, not %#llx", names[r], (unsigned long long)b->reg[r],
               (unsigned long long)a->reg[r]);
      return true;
    }
  }
  if (((a->flags ^ b->flags) & flags) != 0) {
    snprintf(text, size, "flags are %#llx, not %#llx", (unsigned long long)b->flags, (unsigned long long)a->flags);
    return true;
  }
  for (size_t i = 0; i < MACHINE_EXTENDED_BYTES; i++) {
    if (a->extended[i] != b->extended[i]) {
      name_of(i, text, size);
      strncat(text, " differs", size - strlen(text) - 1);
      return true;
    }
  }
  return false;
}

/* A copy in which what the function has changed, and is no result, is as it was. */
static void
without_leftovers(const struct machine *begin, const struct machine *plain, unsigned results, unsigned result_words,
                  struct machine *m)
{
  static const uint8_t scratch[] = {RAX, RDX, RCX, RSI, RDI, R8, R9, R10, R11};
  for (size_t i = results; i < sizeof(scratch); i++) {
    if (plain->reg[scratch[i]] != begin->reg[scratch[i]]) {
      m->reg[scratch[i]] = begin->reg[scratch[i]];
    }
  }
  for (unsigned n = 0; n < machine_vector_count(); n++) {
    for (unsigned word = n < 2 ? result_words : 0; word < 2 * machine_vector_parts(); word++) {
      size_t at = (size_t)(machine_vector(m, n, word / 2) - m->extended) + 8 * (word % 2);
      if (memcmp(plain->extended + at, begin->extended + at, 8) != 0) {
        memcpy(m->extended + at, begin->extended + at, 8);
      }
    }
  }
  for (unsigned k = 0; has(PART_MASKS) && k < 8; k++) {
    size_t at = engine.offset[PART_MASKS] + 8 * k;
    if (memcmp(plain->extended + at, begin->extended + at, 8) != 0) {
      memcpy(m->extended + at, begin->extended + at, 8);
    }
  }
}

bool
machine_results_differ(const struct machine *begin, const struct machine *a, const struct machine *b, unsigned results,
                       unsigned result_words, char *text, size_t size)
{
  static struct machine x, y;
  x = *a;
  y = *b;
  without_leftovers(begin, a, results, result_words, &x);
  without_leftovers(begin, a, results, result_words, &y);
  return machine_differs(&x, &y, 0, text, size);
}

/* ---- calls ---- */

/* The two by name in the assembly below. */
struct machine machine_call_begin, machine_call_end;
extern struct machine machine_call_host;
struct machine machine_call_host;
extern uint64_t machine_call_target, machine_call_sp;
uint64_t machine_call_target, machine_call_sp;
void machine_call_raw(void);

__asm__(".text\n"
        ".globl machine_call_raw, machine_call_returns\n"
        ".type machine_call_raw, @function\n"
        "machine_call_raw:\n"
        "  push %rbx\n  push %rbp\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, machine_call_sp(%rip)\n"
        "  mov $0xe7, %eax\n  xor %edx, %edx\n"
        "  lea machine_call_host+192(%rip), %rcx\n"
        "  xsave64 (%rcx)\n"
        "  lea machine_call_begin+192(%rip), %rcx\n"
        "  xrstor64 (%rcx)\n"
        "  lea machine_call_begin(%rip), %rax\n"
        "  mov 8(%rax), %rcx\n  mov 16(%rax), %rdx\n  mov 24(%rax), %rbx\n  mov 32(%rax), %rsp\n"
        "  mov 40(%rax), %rbp\n  mov 48(%rax), %rsi\n  mov 56(%rax), %rdi\n  mov 64(%rax), %r8\n"
        "  mov 72(%rax), %r9\n  mov 80(%rax), %r10\n  mov 88(%rax), %r11\n  mov 96(%rax), %r12\n"
        "  mov 104(%rax), %r13\n  mov 112(%rax), %r14\n  mov 120(%rax), %r15\n"
        "  mov 0(%rax), %rax\n"
        "  call *machine_call_target(%rip)\n"
        "machine_call_returns:\n"
        "  mov %rax, machine_call_end+0(%rip)\n"
        "  lea machine_call_end(%rip), %rax\n"
        "  mov %rcx, 8(%rax)\n  mov %rdx, 16(%rax)\n  mov %rbx, 24(%rax)\n  mov %rsp, 32(%rax)\n"
        "  mov %rbp, 40(%rax)\n  mov %rsi, 48(%rax)\n  mov %rdi, 56(%rax)\n  mov %r8, 64(%rax)\n"
        "  mov %r9, 72(%rax)\n  mov %r10, 80(%rax)\n  mov %r11, 88(%rax)\n  mov %r12, 96(%rax)\n"
        "  mov %r13, 104(%rax)\n  mov %r14, 112(%rax)\n  mov %r15, 120(%rax)\n"
        "  mov $0xe7, %eax\n  xor %edx, %edx\n"
        "  lea machine_call_end+192(%rip), %rcx\n"
        "  xsave64 (%rcx)\n"
        ".globl machine_call_out\n"
        "machine_call_out:\n"
        "  mov machine_call_sp(%rip), %rsp\n"
        "  mov $0xe7, %eax\n  xor %edx, %edx\n"
        "  lea machine_call_host+192(%rip), %rcx\n"
        "  xrstor64 (%rcx)\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbp\n  pop %rbx\n"
        "  cld\n"
        "  ret\n"
        ".size machine_call_raw, .-machine_call_raw\n");
static_assert(offsetof(struct machine, extended) == 192, "assembly");

void
machine_call(const struct machine *from, uint64_t code, struct machine *end, struct ending *ending)
{
  uint64_t features = engine.features;
  machine_call_begin = *from;
  memcpy(machine_call_begin.extended + HEADER, &features, sizeof(features));
  memset(machine_call_end.extended, 0, MACHINE_EXTENDED_BYTES);
  memset(machine_call_host.extended, 0, MACHINE_EXTENDED_BYTES);
  memset(ending, 0, sizeof(*ending));
  machine_call_target = code;
  engine.end = end;
  engine.ending = ending;
  engine.phase = PHASE_CALLS;
  machine_call_raw();
  engine.phase = PHASE_HOST;
  if (ending->signal != 0) {
    return;
  }
  memcpy(end->reg, machine_call_end.reg, sizeof(end->reg));
  end->rip = end->flags = 0;
  take_extended(machine_call_end.extended, end->extended);
}
