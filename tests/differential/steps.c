/* SPDX-License-Identifier: MIT */
/*
 * See steps.h. A program runs to its n-th system call, as its start is the same in all of them, then by single steps.
 * Not compared: steps in which a signal came; system calls; rounds of a string instruction, each of which is a step;
 * and what the processor and its host do in one step: some step over the instruction after cpuid as well.
 */
#include "steps.h"
#include "trials.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CACHE_BITS = 16, WORDS_MAX = 4 };

struct program {
  const char *words[WORDS_MAX];
  unsigned calls; /* stops at system calls before the first step */
};

static const struct program programs[] = {
    {{"ls", "-l", "/usr"}, 60},
    {{"sh", "-c", "i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); done"}, 20},
    {{"sort", "-n", "/proc/self/maps"}, 30},
    {{"python3", "-c", "print(sum(x * x % 7 / 3 for x in range(99999)))"}, 300},
    {{"gzip", "-c", "/proc/self/exe"}, 15},
};

struct known {
  uint64_t rip;
  struct ct_effects effects;
  uint8_t code[CT_INSN_BYTES_MAX];
};

static struct known cache[1 << CACHE_BITS];

static size_t
peek(pid_t pid, uint64_t at, void *out, size_t size)
{
  struct iovec here = {out, size}, there = {(void *)at, size};
  ssize_t n = process_vm_readv(pid, &here, 1, &there, 1, 0);
  return n < 0 ? 0 : (size_t)n;
}

static bool
take_registers(pid_t pid, struct ct_cpu *cpu)
{
  struct user_regs_struct r;
  if (ptrace(PTRACE_GETREGS, pid, NULL, &r) != 0) {
    return false;
  }
  *cpu = (struct ct_cpu){.reg = {r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
                                 r.r12, r.r13, r.r14, r.r15},
                         .rip = r.rip,
                         .flags = r.eflags & ~0x100ull, /* of the steps */
                         .fs_base = r.fs_base,
                         .gs_base = r.gs_base};
  return true;
}

/* The instruction at rip; code may have changed since it was last there. */
static const struct known *
known_at(pid_t pid, uint64_t rip)
{
  struct known *known = &cache[rip * 0x9e3779b97f4a7c15ull >> (64 - CACHE_BITS)];
  uint8_t code[CT_INSN_BYTES_MAX] = {0};
  size_t size = peek(pid, rip, code, sizeof(code));
  if (size == 0) { /* near the end of a mapping */
    size = peek(pid, rip, code, 4096 - rip % 4096);
  }
  if (known->rip != rip || memcmp(known->code, code, known->effects.length) != 0) {
    if (!ct_effects_of(code, size, &known->effects)) {
      known->rip = 0;
      return NULL;
    }
    known->rip = rip;
    memcpy(known->code, code, sizeof(code));
  }
  return known;
}

static uint64_t
load(pid_t pid, const struct ct_effects *e, const struct ct_cpu *cpu)
{
  uint64_t loaded = 0xa5a5a5a5a5a5a5a5ull;
  for (unsigned i = 0; e->uses_loaded && i < e->access_count; i++) {
    if ((e->access[i].how & CT_ACCESS_READ) != 0 && e->access[i].size <= sizeof(loaded)) {
      peek(pid, ct_address(e, &e->access[i], cpu), &loaded, e->access[i].size);
      break;
    }
  }
  return loaded;
}

static bool
stores_are_there(pid_t pid, const struct trial *t)
{
  for (unsigned i = 0; i < t->store_count; i++) {
    uint64_t value = 0;
    const struct ct_mem_store *s = &t->stores[i];
    if (s->known && s->count == 1 && t->effects.op != CT_DO_PUSHF && /* which has the steps' flag in it */
        (peek(pid, s->address, &value, s->size) != s->size || value != s->value)) {
      return false;
    }
  }
  return true;
}

/* NULL: the emulator's state is the processor's. */
static const char *
differs(pid_t pid, const struct trial *t, const struct ct_cpu *begin, const struct ct_cpu *real)
{
  const struct ct_effects *e = &t->effects;
  uint64_t flags = (begin->flags ^ real->flags) & CT_FLAGS_SIX & ~(uint64_t)e->flags_written;
  if (t->result == CT_EMULATED) {
    if (memcmp(t->cpu.reg, real->reg, sizeof(real->reg)) != 0 || t->cpu.rip != real->rip) {
      return "registers";
    }
    flags = (t->cpu.flags ^ real->flags) & COMPARED & ~t->cpu.unknown;
    return flags != 0 ? "flags" : stores_are_there(pid, t) ? NULL : "stores";
  }
  if (t->result != CT_EMULATED_NOT_DERIVABLE) {
    return t->result == CT_EMULATED_FAULT ? "a fault" : "it reads unknown flags";
  }
  for (unsigned r = 0; r < 16; r++) {
    if ((e->writes >> r & 1) == 0 && begin->reg[r] != real->reg[r]) {
      return "a register that it is not said to write";
    }
  }
  return flags != 0 ? "flags that it is not said to write" : NULL;
}

/* One step of both. STEP_DIFFERS: text says how. STEP_STOPPED: a signal came, or the like. */
enum { STEP_SAME, STEP_DIFFERS, STEP_STOPPED, STEP_GONE };

static int
step(pid_t pid, struct ct_cpu *cpu, struct steps_count *count, char *text, size_t size)
{
  int status;
  struct trial t = {.cpu = *cpu};
  const struct ct_cpu begin = *cpu;
  const struct known *known = known_at(pid, cpu->rip);
  if (known == NULL) {
    return STEP_STOPPED;
  }
  t.effects = known->effects;
  memcpy(t.code, known->code, sizeof(t.code));
  t.loaded = load(pid, &t.effects, &t.cpu);
  t.result = ct_emulate(&t.effects, &t.cpu, t.loaded, t.stores, &t.store_count);
  if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
    return STEP_GONE;
  }
  if (WSTOPSIG(status) != SIGTRAP || !take_registers(pid, cpu)) {
    return STEP_STOPPED;
  }
  bool rounds = (t.effects.traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) != 0;
  bool odd = t.result != CT_EMULATED && cpu->rip != begin.rip + t.effects.length;
  if (rounds || odd || t.effects.flow == CT_INSN_FLOW_SYSCALL) {
    return STEP_SAME;
  }
  uint64_t unknown = t.result == CT_EMULATED ? t.cpu.unknown : begin.unknown & ~(uint64_t)t.effects.flags_written;
  const char *why = differs(pid, &t, &begin, cpu);
  cpu->unknown = unknown;
  count->steps++;
  count->derivable += t.result == CT_EMULATED;
  count->loads += t.result == CT_EMULATED && t.effects.uses_loaded;
  count->stores += t.store_count;
  if (why != NULL) {
    trial_describe(&t, &begin, why, text, size);
  }
  return why != NULL ? STEP_DIFFERS : STEP_SAME;
}

/* Stopped where its steps begin; -1 when it does not get there. */
static pid_t
start(const struct program *program)
{
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) {
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    execvp(program->words[0], (char *const *)program->words);
    _exit(127);
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
    return -1;
  }
  ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
  for (unsigned i = 0; i < 2 * program->calls;) { /* entered and left */
    if (ptrace(PTRACE_SYSCALL, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
      return -1;
    }
    i += WSTOPSIG(status) == (SIGTRAP | 0x80);
  }
  return pid;
}

int64_t
steps_run(uint64_t steps_each, struct steps_count *count, char *text, size_t size)
{
  char other[1024];
  int64_t bad = 0;
  size_t used = 0;
  text[0] = 0;
  for (size_t p = 0; p < sizeof(programs) / sizeof(programs[0]); p++) {
    struct ct_cpu cpu;
    int result = STEP_SAME, status;
    int64_t bad_here = 0;
    pid_t pid = start(&programs[p]);
    if (pid < 0) {
      continue;
    }
    memset(cache, 0, sizeof(cache));
    for (uint64_t i = 0; i < steps_each && result <= STEP_DIFFERS && (i != 0 || take_registers(pid, &cpu)); i++) {
      bool first = bad_here == 0;
      result = step(pid, &cpu, count, first ? text + used : other, first ? size - used : sizeof(other));
      bad_here += result == STEP_DIFFERS;
    }
    used += strlen(text + used);
    bad += bad_here;
    count->programs++;
    if (result != STEP_GONE) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
    }
  }
  return count->steps == 0 ? -1 : bad;
}
