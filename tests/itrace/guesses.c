/* SPDX-License-Identifier: MIT */
/*
 * For a tracer that goes on after returns and indirect branches without looking (src/x86/translate_block.c): programs
 * whose returns go elsewhere than to after their calls, and whose indirect branches change their ways, when they have
 * gone one way for long. Each way in turn; what it prints is the same however it is run.
 *
 *   guesses [WAY]...
 */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define N __attribute__((noinline, noclone))

enum { TURNS = 600000 };

/*
 * long hijack_NAME(long by): calls a function which changes its return address by `by` bytes, by the code given: to
 * after the call (by = 0; the result is 1) or further (SECOND; the result is 16). rax: 0, and stays so; rdi: by; rsi,
 * rdx, rcx, r8, xmm0 and xmm1 are free. The callee's stack pointer is as at its entry when it returns.
 */
#define HIJACK(name, code)                                                                                             \
  __asm__(".text\n.p2align 4\n.type hijack_" #name ", @function\nhijack_" #name ":\n"                                  \
          "  push %rbx\n  xor %eax, %eax\n  call hijacker_" #name "\n"                                                 \
          "  add $1, %rax\n  jmp 9f\n  add $16, %rax\n  jmp 9f\n9:\n  pop %rbx\n  ret\n"                               \
          ".p2align 4\nhijacker_" #name ":\n" code "\n  ret\n.size hijack_" #name ", . - hijack_" #name "\n");         \
  long hijack_##name(long by)

HIJACK(add, "  add %rdi, (%rsp)");
HIJACK(lea, "  mov %rsp, %rsi\n  add %rdi, (%rsi)");
HIJACK(store, "  mov (%rsp), %rsi\n  add %rdi, %rsi\n  mov %rsi, (%rsp)");
HIJACK(above, "  sub $24, %rsp\n  add %rdi, 24(%rsp)\n  add $24, %rsp");
HIJACK(half, "  add %dil, (%rsp)");
HIJACK(
    before,
    "  mov (%rsp), %rsi\n  add %rdi, %rsi\n  mov %rsi, %rdx\n  shl $32, %rsi\n  mov %rsi, -4(%rsp)\n  shr $32, %rdx\n"
    "  mov %edx, 4(%rsp)");
HIJACK(pushed, "  pop %rsi\n  add %rdi, %rsi\n  push %rsi");
HIJACK(pushed_over,
       "  push %rbx\n  mov 8(%rsp), %rsi\n  add %rdi, %rsi\n  add $16, %rsp\n  push %rsi\n  sub $8, %rsp\n  pop %rbx");
HIJACK(popped, "  push %rbx\n  mov 8(%rsp), %rsi\n  add %rdi, %rsi\n  push %rsi\n  popq 8(%rsp)\n  pop %rbx");
HIJACK(exchanged, "  mov (%rsp), %rsi\n  add %rdi, %rsi\n  xchg %rsi, (%rsp)");
HIJACK(compared, "  mov (%rsp), %rax\n  lea (%rax, %rdi), %rsi\n  lock cmpxchg %rsi, (%rsp)\n  mov $0, %eax");
HIJACK(vector, "  mov (%rsp), %rsi\n  add %rdi, %rsi\n  movq %rsi, %xmm0\n  movq %xmm0, (%rsp)");
HIJACK(wide, "  mov (%rsp), %rsi\n  add %rdi, %rsi\n  movq %rsi, %xmm0\n  movq -8(%rsp), %xmm1\n  punpcklqdq %xmm0, "
             "%xmm1\n  movups %xmm1, -8(%rsp)");
HIJACK(string, "  mov (%rsp), %rax\n  add %rdi, %rax\n  mov %rsp, %rdi\n  stosq\n  xor %eax, %eax");
HIJACK(x87, "  mov (%rsp), %rsi\n  add %rdi, %rsi\n  mov %rsi, -16(%rsp)\n  fildll -16(%rsp)\n  fistpll (%rsp)");
HIJACK(nested, "  call 1f\n  ret\n1:\n  add %rdi, 8(%rsp)");
HIJACK(twice, "  call 1f\n  call 1f\n  ret\n1:\n  mov %rdi, %rsi\n  sar $1, %rsi\n  add %rsi, 8(%rsp)");
HIJACK(frame, "  push %rbp\n  mov %rsp, %rbp\n  add %rdi, 8(%rbp)\n  leave");
HIJACK(entered, "  enter $16, $0\n  add %rdi, 8(%rbp)\n  leave");
HIJACK(stack, "  lea -4096(%rsp), %rsi\n  mov (%rsp), %rdx\n  add %rdi, %rdx\n  mov %rdx, (%rsi)\n  mov %rsp, %rcx\n  "
              "mov %rsi, %rsp\n  ret $4096");
HIJACK(indexed, "  mov $4, %esi\n  add %rdi, -32(%rsp, %rsi, 8)");
HIJACK(bits, "  mov (%rsp), %rsi\n  add %rdi, %rsi\n  xor (%rsp), %rsi\n  xor %edx, %edx\n1:\n  bt %rdx, %rsi\n  jnc "
             "2f\n  btc %rdx, (%rsp)\n2:\n"
             "  inc %edx\n  cmp $64, %edx\n  jb 1b");
HIJACK(short_operand, "  add %di, (%rsp)");

static const struct {
  const char *name;
  long (*call)(long by);
} hijacks[] = {
#define H(name)                                                                                                        \
  {                                                                                                                    \
    #name, hijack_##name                                                                                               \
  }
    H(add),    H(lea),       H(store),    H(above),  H(half),    H(before), H(pushed),        H(pushed_over),
    H(popped), H(exchanged), H(compared), H(vector), H(wide),    H(string), H(x87),           H(nested),
    H(twice),  H(frame),     H(entered),  H(stack),  H(indexed), H(bits),   H(short_operand),
};

/* Bytes from after the call to the second addition: add $1 (4) and jmp (2). */
enum { SECOND = 6 };

static void
returns(void)
{
  for (size_t k = 0; k < sizeof(hijacks) / sizeof(hijacks[0]); k++) {
    long sum = 0, odd = 0;
    for (long i = 0; i < TURNS / 8; i++) {
      long by = i > TURNS / 16 && i % 97 == 0 ? SECOND : 0, got = hijacks[k].call(by);
      sum += got;
      odd += got != (by == 0 ? 1 : 16);
    }
    printf("  %s %ld, %ld wrong\n", hijacks[k].name, sum, odd);
  }
}

/* ---- indirect branches that change their ways ---- */

struct shape {
  long (*area)(const struct shape *, long);
  long size;
};
N static long
square(const struct shape *s, long x)
{
  return s->size * s->size + x;
}
N static long
circle(const struct shape *s, long x)
{
  return s->size * 3 - x;
}
N static long
line(const struct shape *s, long x)
{
  (void)s;
  return x ^ 5;
}

static void
tables(void)
{
  static long (*const ways[])(const struct shape *, long) = {square, circle, line};
  struct shape shapes[4] = {{square, 1}, {square, 2}, {square, 3}, {square, 4}};
  long sum = 0;
  for (long i = 0; i < TURNS * 2; i++) {
    const volatile struct shape *s = &shapes[i & 3];
    sum += s->area((const struct shape *)s, i);
    if (i > TURNS && i % 1009 == 0) { /* the table is written anew */
      shapes[i % 4].area = ways[i / 1009 % 3];
    }
    if (i % 50021 == 0) {
      for (int k = 0; k < 4; k++) {
        shapes[k].area = ways[i / 50021 % 3];
      }
    }
  }
  printf("  %ld\n", sum);
}

static long
interpret(const unsigned char *code, long n)
{
  static const void *const labels[] = {&&add, &&twice, &&down, &&loop, &&done};
  long a = 1, count = n;
  const unsigned char *at = code;
#define NEXT goto *labels[*at++]
  NEXT;
add:
  a += 3;
  NEXT;
twice:
  a = (a * 2) & 0xffffff;
  NEXT;
down:
  a ^= 0x5a;
  NEXT;
loop:
  if (--count > 0) {
    at = code;
  }
  NEXT;
done:
  return a;
}

static void
jumps(void)
{
  unsigned char code[8] = {0, 1, 0, 2, 0, 3, 4};
  long sum = interpret(code, TURNS);
  code[2] = 2;
  sum += interpret(code, 5);
  code[2] = 1;
  code[0] = 1;
  sum += interpret(code, TURNS / 4);
  printf("  %ld\n", sum);
}

/* ---- frames that are left by other ways ---- */

static jmp_buf out;
N static long
deep(long n, long jumps)
{
  if (n == 0) {
    if (jumps) {
      longjmp(out, 1);
    }
    return 1;
  }
  return deep(n - 1, jumps) + n;
}

static void
longjumps(void)
{
  volatile long sum = 0;
  for (volatile long i = 0; i < TURNS / 8; i++) {
    if (setjmp(out) == 0) {
      sum += deep(6, i > 5000 && i % 101 == 0);
    } else {
      sum += 7;
    }
  }
  printf("  %ld\n", sum);
}

static ucontext_t main_context, fibers[2];
static volatile long fiber_sum;
N static void
step(int which)
{
  fiber_sum += which + 1;
  swapcontext(&fibers[which], &main_context);
  fiber_sum ^= 3;
}
static void
fiber(int which)
{
  for (;;) {
    step(which);
  }
}

static void
contexts(void)
{
  static char stacks[2][65536];
  fiber_sum = 0;
  for (int k = 0; k < 2; k++) {
    getcontext(&fibers[k]);
    fibers[k].uc_stack.ss_sp = stacks[k];
    fibers[k].uc_stack.ss_size = sizeof(stacks[k]);
    makecontext(&fibers[k], (void (*)(void))fiber, 1, k);
  }
  for (long i = 0; i < TURNS / 15; i++) {
    swapcontext(&main_context, &fibers[i % 7 == 0]);
  }
  printf("  %ld\n", (long)fiber_sum);
}

/* Coroutines by instructions of their own: a return to another stack. */
__asm__(".text\n.p2align 4\n.type change, @function\nchange:\n  push %rbx\n  push %rbp\n  mov %rsp, (%rdi)\n  mov "
        "%rsi, %rsp\n  pop %rbp\n  pop "
        "%rbx\n  ret\n.size change, . - change\n");
void change(void **from, void *to);
static void *own, *theirs;
static volatile long turns_there;
N static void
hop(void)
{
  change(&theirs, own);
}
static void
there(void)
{
  for (;;) {
    turns_there++;
    hop();
  }
}

static void
stacks(void)
{
  static _Alignas(16) void *room[1024];
  room[1000] = room[1001] = NULL;
  room[1002] = (void *)there;
  theirs = &room[1000];
  turns_there = 0;
  for (long i = 0; i < TURNS; i++) {
    change(&own, theirs);
  }
  printf("  %ld\n", (long)turns_there);
}

/* ---- signals ---- */

static volatile sig_atomic_t ticks, hijacked;
__asm__(".text\n.p2align 4\n.type leaf, @function\nleaf:\n  mov $20, %ecx\n1:\n  dec %ecx\n  jnz 1b\n  mov $1, "
        "%eax\nleaf_ret:\n  ret\nleaf_end:\n"
        ".type call_leaf, @function\ncall_leaf:\n  call leaf\n  add $1, %rax\n  ret\n  mov $1, %eax\n  add $1, %rax\n  "
        "ret\n");
extern char leaf[], leaf_end[];
long call_leaf(void);

static void
ticked(int number, siginfo_t *info, void *context)
{
  greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
  uint64_t rip = (uint64_t)regs[REG_RIP];
  (void)number;
  (void)info;
  ticks++;
  if (rip >= (uint64_t)leaf && rip < (uint64_t)leaf_end &&
      *(uint64_t *)regs[REG_RSP] == (uint64_t)call_leaf + 5) { /* it returns elsewhere, to the same effect */
    *(uint64_t *)regs[REG_RSP] += 5;
    hijacked++;
  }
}

static void
signals(void)
{
  struct sigaction action = {.sa_sigaction = ticked, .sa_flags = SA_SIGINFO | SA_RESTART};
  struct itimerval timer = {{0, 700}, {0, 700}};
  long sum = 0, i = 0;
  ticks = hijacked = 0;
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &timer, NULL);
  for (; ticks < 100; i++) {
    sum += call_leaf();
  }
  timer = (struct itimerval){{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &timer, NULL);
  printf("  %s\n", sum == 2 * i ? "all right" : "wrong");
}

/* ---- code that goes, and other code in its place ---- */

static sigjmp_buf after_fault;
static void *fault_at;
static void
faulted(int number, siginfo_t *info, void *context)
{
  (void)number;
  fault_at = info->si_addr;
  fault_at = (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] == fault_at ? fault_at : NULL;
  siglongjmp(after_fault, 1);
}

static const unsigned char add_one[] = {0x48, 0x8d, 0x47, 0x01, 0xc3}, add_two[] = {0x48, 0x8d, 0x47, 0x02, 0xc3},
                           times[] = {0x48, 0x6b, 0xc7, 0x03, 0xc3};

static void *
code_file(const unsigned char *code, size_t size, void *at)
{
  char path[] = "/tmp/guessesXXXXXX";
  int fd = mkstemp(path);
  unlink(path);
  if (write(fd, code, size) != (ssize_t)size) {
    exit(3);
  }
  void *got = mmap(at, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | (at != NULL ? MAP_FIXED : 0), fd, 0);
  close(fd);
  return got;
}

N static long
use(long (*volatile *f)(long), long n)
{
  long sum = 0;
  for (long i = 0; i < n; i++) {
    sum += (*f)(i);
  }
  return sum;
}

static void
unmapped(void)
{
  struct sigaction action = {.sa_sigaction = faulted, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, NULL);
  void *place = code_file(add_one, sizeof(add_one), NULL);
  long (*volatile f)(long) = (long (*)(long))place;
  printf("  %ld", use(&f, TURNS));
  code_file(times, sizeof(times), place);
  printf(" %ld", use(&f, TURNS));
  munmap(place, 4096);
  if (sigsetjmp(after_fault, 1) == 0) {
    printf(" %ld\n", use(&f, 1));
  } else {
    printf(" fault there: %d", fault_at == place);
  }
  code_file(add_two, sizeof(add_two), place);
  printf(" %ld", use(&f, TURNS));
  mprotect(place, 4096, PROT_READ);
  if (sigsetjmp(after_fault, 1) == 0) {
    printf(" %ld\n", use(&f, 1));
  } else {
    printf(" and: %d", fault_at == place);
  }
  mprotect(place, 4096, PROT_READ | PROT_WRITE);
  memcpy(place, times, sizeof(times));
  mprotect(place, 4096, PROT_READ | PROT_EXEC);
  printf(" %ld\n", use(&f, TURNS));
  signal(SIGSEGV, SIG_DFL);
}

/* Code that is written to while it is executable: a return address into it, and what is at a target. */
static void
rewritten(void)
{
  unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  long (*volatile f)(long) = (long (*)(long))page;
  long sum = 0;
  memcpy(page, add_one, sizeof(add_one));
  for (long i = 0; i < 900; i++) {
    sum += use(&f, 1000);
    page[3] = (unsigned char)(i & 31);
    if (i % 50 == 49) {
      memcpy(page + 512, i % 100 == 99 ? add_two : times, 5);
      f = (long (*)(long))(i % 100 == 99 ? page : page + 512);
    }
  }
  printf("  %ld\n", sum);
}

/* A call in code that changes, to code that does not: what comes after the call is other code later. */
N static long
constant(void)
{
  return 5;
}
static void
returned_to(void)
{
  unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned char code[] = {0x48, 0x83, 0xec, 0x08, 0x48, 0xb8, 0,    0,    0,    0,    0,    0,   0,
                          0,    0xff, 0xd0, 0x48, 0x83, 0xc0, 0x07, 0x48, 0x83, 0xc4, 0x08, 0xc3};
  long (*way)(void) = constant, (*f)(void) = (long (*)(void))page, sum = 0;
  memcpy(code + 6, &way, 8);
  memcpy(page, code, sizeof(code));
  for (long i = 0; i < TURNS; i++) {
    sum += f();
    if (i > TURNS / 2 && i % 1000 == 0) {
      page[19] = (unsigned char)(i / 1000 & 63); /* what is added after the call */
    }
  }
  printf("  %ld\n", sum);
}

int
main(int argc, char **argv)
{
  static const struct {
    const char *name;
    void (*play)(void);
  } ways[] = {{"returns", returns},     {"tables", tables},          {"jumps", jumps},     {"longjumps", longjumps},
              {"contexts", contexts},   {"stacks", stacks},          {"signals", signals}, {"unmapped", unmapped},
              {"rewritten", rewritten}, {"returned_to", returned_to}};
  for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
    int wanted = argc < 2;
    for (int i = 1; i < argc; i++) {
      wanted |= strcmp(argv[i], ways[k].name) == 0;
    }
    if (wanted) {
      printf("%s\n", ways[k].name);
      fflush(stdout);
      ways[k].play();
      fflush(stdout);
    }
  }
  return 0;
}
