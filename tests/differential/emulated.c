/* SPDX-License-Identifier: MIT */
/*
 * See emulated.h. A run: emulated_run loads the registers and jumps to the instruction; what follows it, and where it
 * may branch to, jumps back to the assembly here, which saves them. A fault goes on there, too.
 */
#include "emulated.h"
#include "trials.h"

#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

enum { STEPS = 16 };

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
  int signal; /* of the last fault */
  volatile bool runs;
  uint8_t before[DATA_BYTES];
} engine;

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

int
emulated_set_up(void)
{
  static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  if (trials_set_up(emulated_next, emulated_taken) != 0) {
    return -1;
  }
  for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
    if (sigaction(signals[i], &action, NULL) != 0) { /* on machine.c's stack */
      return -1;
    }
  }
  return 0;
}

/* ---- both of them ---- */

static void
run_native(const struct trial *t)
{
  memcpy(engine.before, trials.data, DATA_BYTES);
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
    uint64_t at = ct_address(e, &e->access[i], cpu) - (uint64_t)trials.data;
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
    uint64_t at = s->address - (uint64_t)trials.data;
    for (uint64_t n = 0; n < s->count && at + s->size <= DATA_BYTES; n++, at += s->size) {
      if (s->known && s->size <= 8) {
        memcpy(engine.before + at, &s->value, s->size);
      } else {
        memcpy(engine.before + at, trials.data + at, s->size);
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
  uint64_t rip = emulated_way == WAY_TAKEN ? trials.taken : trials.fell_through;
  if (t->result == CT_EMULATED && t->cpu.rip != rip) {
    snprintf(text, size, "goes on at %#llx, emulated %#llx", (unsigned long long)rip, (unsigned long long)t->cpu.rip);
    return text;
  }
  store(t);
  if (memcmp(engine.before, trials.data, DATA_BYTES) != 0) {
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
  struct trial t;
  char why_text[160];
  trial_begin(&rng, &t);
  for (unsigned step = 0; step < STEPS; step++) {
    unsigned tries = 0;
    while (!trial_make(&rng, &t)) {
      if (++tries == 10000) {
        snprintf(text, size, "no instruction can be made\n");
        return true;
      }
    }
    struct trial begun = t;
    run_native(&t);
    const char *why = judge(&rng, &t, count, why_text, sizeof(why_text));
    if (why != NULL) {
      trial_describe(&t, &begun.cpu, why, text, size);
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
