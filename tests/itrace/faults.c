/* SPDX-License-Identifier: MIT */
/*
 * Signals at instructions whose place and registers are known: what the handler is told is printed, and changes. Played
 * by tests/itrace.py with and without translated code; the output must be the same, and rip what the label says.
 */
#include "../fixtures/check.h"

#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <ucontext.h>

/*
 * A function NAME that sets all registers, runs BEFORE, and gets a signal at the instruction INSN, which is at NAME_at.
 * The handler goes on at NAME_next, with rbx changed. `saved` is the stack pointer before.
 */
#define PROBE(name, before, insn)                                                                                      \
  __asm__(".pushsection .text\n.globl " #name ", " #name "_at, " #name "_next\n.type " #name ", @function\n" #name     \
          ":\n push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push $0x5a5a\n"                 \
          " mov %rsp, saved(%rip)\n"                                                                                   \
          " mov $0x2222222222222222, %rbx\n mov $0x33, %ecx\n mov $0x4444444444444444, %rdx\n"                         \
          " mov bad(%rip), %rsi\n mov good(%rip), %rdi\n mov $0x7777777777777777, %rbp\n"                              \
          " mov $0x8888888888888888, %r8\n mov bad(%rip), %r9\n mov $0xaaaaaaaaaaaaaaaa, %r10\n"                       \
          " mov $0xbbbbbbbbbbbbbbbb, %r11\n mov $0xcccccccccccccccc, %r12\n mov $0xdddddddddddddddd, %r13\n"           \
          " mov $0xeeeeeeeeeeeeeeee, %r14\n mov $0xffffffffffffffff, %r15\n"                                           \
          " mov $0x7fffffff, %eax\n add $1, %eax\n stc\n mov $16, %eax\n " before "\n" #name "_at: " insn "\n" #name   \
          "_next:\n mov saved(%rip), %rsp\n cld\n mov %rbx, left(%rip)\n pop %r15\n pop %r15\n pop %r14\n"             \
          " pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n.size " #name ", . - " #name "\n.popsection\n");          \
  extern char name##_at[], name##_next[];                                                                              \
  void name(void);

uint64_t saved, left, bad, good, callee = 8;
uint32_t zero;

PROBE(load, "", "mov (%rax), %rbx")
PROBE(load_rip, "", "mov (%r9), %rbx")
PROBE(store, "", "movb $1, 8(%r9)")
PROBE(store_vector, "", "movups %xmm0, (%r9)")
PROBE(illegal, "", "ud2")
PROBE(illegal_long, "", "ud1 8(%rdi), %eax")
PROBE(breakpoint, "", "int3")
PROBE(breakpoint_long, "", ".byte 0xcd, 3")
PROBE(step_trap, "", ".byte 0xf1")
PROBE(halt, "", "hlt")
PROBE(divide, "mov $0, %edx", "divl zero(%rip)")
PROBE(divide_register, "mov $0, %ecx", "div %rcx")
PROBE(call_memory, "", "call *(%rax)")
PROBE(call_based, "", "call *8(%r9)")
PROBE(call_stack, "", "call *-8(%r9, %r8)")
PROBE(jump_memory, "", "jmp *8(%rax)")
PROBE(jump_null, "xor %eax, %eax", "jmp *%rax")
PROBE(call_null, "xor %eax, %eax", "call *%rax")
PROBE(call_low, "", "call *callee(%rip)")

PROBE(jump_data, "", "jmp *good(%rip)")
PROBE(return_bad, "mov %r9, %rsp", "ret")
PROBE(push_bad, "lea 64(%r9), %rsp", "push %rax")
PROBE(call_pushes_bad, "lea 64(%r9), %rsp", "call call_pushes_bad_next")
PROBE(call_indirect_pushes_bad, "lea 64(%r9), %rsp\n lea call_indirect_pushes_bad_next(%rip), %rcx", "call *%rcx")
PROBE(pop_bad, "mov %r9, %rsp", "pop %rcx")
PROBE(copy_in, "lea -0x13(%rsi), %rsi", "rep movsb")
PROBE(copy_out, "mov %rsi, %rax\n mov %rdi, %rsi\n lea -0x13(%rax), %rdi", "rep movsb")
PROBE(fill, "lea -0x10(%rsi), %rdi\n mov $0x40, %ecx", "rep stosl")
PROBE(fill_down, "lea 0x18(%r9), %rdi\n add $0x1000, %rdi\n mov $0x40, %ecx\n std", "rep stosq")
PROBE(scan, "lea -4(%rsi), %rdi\n mov $0x55, %al\n mov $0x55, %ecx", "repe scasb")
PROBE(unaligned, "", "movaps 1(%rdi), %xmm0")
PROBE(system_call, "mov $107, %eax", "syscall\n ud2") /* geteuid */
PROBE(locked, "", "lock incq (%r9)")
PROBE(compare, "", "cmpxchg %rcx, (%r9)")
PROBE(leave_bad, "mov %r9, %rbp", "leave")
PROBE(no_privilege, "", "cli")
PROBE(port, "", "inb $0x80, %al")

uint64_t own;

static struct {
  greg_t regs[23];
  int signal, code;
  void *address, *next;
} seen;
static void *next_at;

static void
handler(int signal, siginfo_t *info, void *context)
{
  ucontext_t *state = context;
  memcpy(seen.regs, state->uc_mcontext.gregs, sizeof(seen.regs));
  seen.signal = signal;
  seen.code = info->si_code;
  seen.address = info->si_code > 0 ? info->si_addr : NULL;
  seen.next = NULL;
  uint64_t rsp = (uint64_t)state->uc_mcontext.gregs[REG_RSP];
  if (rsp > saved - 4096 && rsp < saved + 4096) {
    seen.next = *(void **)rsp; /* a return address, after a call */
  }
  state->uc_mcontext.gregs[REG_RIP] = (greg_t)next_at;
  state->uc_mcontext.gregs[REG_RBX] = 0x1234;
}

/* As an offset from what it may be near to. */
static void
place(const char *name, uint64_t value, const char *at)
{
  if (value - (uint64_t)at + 64 < 128) {
    printf(" %s=at%+d", name, (int)(value - (uint64_t)at));
  } else if (value - bad + 4096 < 16384) {
    printf(" %s=bad%+d", name, (int)(value - bad));
  } else if (value - good < 4096) {
    printf(" %s=good%+d", name, (int)(value - good));
  } else if (value - saved + 4096 < 8192) {
    printf(" %s=saved%+d", name, (int)(value - saved));
  } else {
    printf(" %s=%llx", name, (unsigned long long)value);
  }
}

static void
play(const char *name, void (*probe)(void), char *at, char *next)
{
  static const char *const names[] = {"r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15",
                                      "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp"};
  for (int turn = 0; turn < 2; turn++) { /* the second time it is translated already */
    memset(&seen, 0, sizeof(seen));
    memset((void *)good, 0x55, 4096);
    memset((void *)(bad - 4096), 0x55, 4096);
    next_at = next;
    probe();
    printf("%s: signal %d code %d left %llx flags %llx", name, seen.signal, seen.code, (unsigned long long)left,
           (unsigned long long)seen.regs[REG_EFL]);
    place("addr", (uint64_t)seen.address, at);
    place("rip", (uint64_t)seen.regs[REG_RIP], at);
    place("top", (uint64_t)seen.next, at);
    for (int i = 0; i <= REG_RSP; i++) {
      place(names[i], (uint64_t)seen.regs[i], at);
    }
    printf(" trap %llx\n", (unsigned long long)seen.regs[REG_TRAPNO]);
  }
}

#define PLAY(name) play(#name, name, name##_at, name##_next)

static void
all(void)
{
  PLAY(load);
  PLAY(load_rip);
  PLAY(store);
  PLAY(store_vector);
  PLAY(illegal);
  PLAY(illegal_long);
  PLAY(breakpoint);
  PLAY(breakpoint_long);
  PLAY(step_trap);
  PLAY(halt);
  PLAY(divide);
  PLAY(divide_register);
  PLAY(call_memory);
  PLAY(call_based);
  PLAY(call_stack);
  PLAY(jump_memory);
  PLAY(jump_null);
  PLAY(call_null);
  PLAY(call_low);
  PLAY(jump_data);
  PLAY(return_bad);
  PLAY(push_bad);
  PLAY(call_pushes_bad);
  PLAY(call_indirect_pushes_bad);
  PLAY(pop_bad);
  PLAY(copy_in);
  PLAY(copy_out);
  PLAY(fill);
  PLAY(fill_down);
  PLAY(scan);
  PLAY(unaligned);
  PLAY(system_call);
  PLAY(locked);
  PLAY(compare);
  PLAY(leave_bad);
  PLAY(no_privilege);
  PLAY(port);
}

int
main(void)
{
  static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGUSR1};
  stack_t stack = {.ss_size = 65536};
  stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  sigaltstack(&stack, NULL);
  for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(signals[i], &action, NULL);
  }
  own = (uint64_t)getpid();
  char *area = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  good = (uint64_t)area;
  bad = (uint64_t)area + 3 * 4096;
  mprotect((void *)bad, 4096, PROT_NONE);
  all();
  return 0;
}
