/* SPDX-License-Identifier: MIT */
/* Signals that come at any place, and what programs do in handlers; `signals CASE`, played by tests/itrace.py. */
#include "../fixtures/check.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

static volatile sig_atomic_t came;
static volatile uint64_t sink;

static void catch (int signal, void (*handler)(int), int flags)
{
  struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
  sigaction(signal, &action, NULL);
}

static void
timer(long us)
{
  struct itimerval every = {{0, us}, {0, us}};
  setitimer(ITIMER_REAL, &every, NULL);
}

/* ---- all registers and flags, while signals come ---- */

/* Everything that a handler may change but for what the kernel gives back. */
static void
spoil(int signal)
{
  (void)signal;
  came++;
  __asm__ volatile(
      "pxor %%xmm0, %%xmm0\n movdqa %%xmm0, %%xmm7\n fldpi\n fstp %%st\n stc\n mov $-1, %%rax\n mov %%rax, %%rcx\n"
      "mov %%rax, %%rdx\n mov %%rax, %%rsi\n mov %%rax, %%rdi\n mov %%rax, %%r8\n mov %%rax, %%r9\n"
      "mov %%rax, %%r10\n mov %%rax, %%r11\n" ::
          : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm7", "memory", "cc");
}

struct state {
  uint64_t regs[14]; /* rax rbx rcx rdx rsi rdi rbp r8 .. r14 */
  uint64_t flags;
  double stack[2];
  uint8_t vectors[3][16];
};

/*
 * Loads the state at rdi, goes through jumps, calls, returns and indirect branches that change nothing, stores the
 * state to rsi. r15 counts.
 */
__asm__(
    ".pushsection .text\n"
    ".globl through\n.type through, @function\nthrough:\n"
    " push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rsi\n"
    " fldl 120(%rdi)\n fldl 128(%rdi)\n movdqu 136(%rdi), %xmm0\n movdqu 152(%rdi), %xmm7\n movdqu 168(%rdi), %xmm15\n"
    " pushq 112(%rdi)\n mov (%rdi), %rax\n mov 8(%rdi), %rbx\n mov 16(%rdi), %rcx\n mov 24(%rdi), %rdx\n"
    " mov 32(%rdi), %rsi\n mov 48(%rdi), %rbp\n mov 56(%rdi), %r8\n mov 64(%rdi), %r9\n mov 72(%rdi), %r10\n"
    " mov 80(%rdi), %r11\n mov 88(%rdi), %r12\n mov 96(%rdi), %r13\n mov 104(%rdi), %r14\n mov 40(%rdi), %rdi\n"
    " mov $3000, %r15d\n popf\n"
    "1: call 10f\n jc 2f\n2: jmp *jump_table(%rip)\n"
    "3: call *call_table(%rip)\n jo 4f\n lea -128(%rsp), %rsp\n jmp 5f\n4: lea -128(%rsp), %rsp\n"
    "5: mov %r15, 64(%rsp)\n mov 64(%rsp), %r15\n lea 128(%rsp), %rsp\n push %rcx\n lea 6f(%rip), %rcx\n"
    " push %rcx\n ret\n"
    "6: pop %rcx\n pushf\n popf\n call 11f\n"
    " lea -1(%r15), %r15\n push %rcx\n mov %r15, %rcx\n jrcxz 7f\n pop %rcx\n jmp 1b\n"
    "7: pop %rcx\n"
    " pushf\n push %rdi\n mov 16(%rsp), %rdi\n mov %rax, (%rdi)\n mov %rbx, 8(%rdi)\n mov %rcx, 16(%rdi)\n"
    " mov %rdx, 24(%rdi)\n mov %rsi, 32(%rdi)\n mov %rbp, 48(%rdi)\n mov %r8, 56(%rdi)\n mov %r9, 64(%rdi)\n"
    " mov %r10, 72(%rdi)\n mov %r11, 80(%rdi)\n mov %r12, 88(%rdi)\n mov %r13, 96(%rdi)\n mov %r14, 104(%rdi)\n"
    " popq 40(%rdi)\n popq 112(%rdi)\n fstpl 128(%rdi)\n fstpl 120(%rdi)\n movdqu %xmm0, 136(%rdi)\n"
    " movdqu %xmm7, 152(%rdi)\n movdqu %xmm15, 168(%rdi)\n cld\n"
    " pop %rsi\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n"
    "10: ret\n11: push %rax\n push %rdx\n lea 12f(%rip), %rax\n xchg %rax, 8(%rsp)\n xchg %rax, (%rsp)\n xchg %rax, "
    "%rdx\n xchg %rax, (%rsp)\n"
    " xchg %rax, (%rsp)\n pop %rax\n xchg %rax, %rdx\n ret\n12: ret\n"
    ".size through, . - through\n.popsection\n"
    ".pushsection .data.rel, \"aw\"\njump_table: .quad 3b\ncall_table: .quad 10b\n.popsection\n");
void through(const struct state *in, struct state *out);

static void
check_state(uint64_t seed)
{
  struct state in, out;
  memset(&out, 0, sizeof(out));
  for (int i = 0; i < 14; i++) {
    in.regs[i] = (seed + (uint64_t)i + 1) * 0x9e3779b97f4a7c15ull;
  }
  in.flags = (in.regs[3] & 0xcd5) | 0x202; /* DF too */
  in.stack[0] = (double)seed + 0.25;
  in.stack[1] = (double)seed * 3;
  memset(in.vectors[0], (int)(seed & 0xff), 16);
  memset(in.vectors[1], (int)(~seed & 0xff), 16);
  memset(in.vectors[2], (int)(seed >> 3 & 0xff), 16);
  through(&in, &out);
  CHECK(memcmp(in.regs, out.regs, sizeof(in.regs)) == 0);
  CHECK(((in.flags ^ out.flags) & 0xcd5) == 0);
  CHECK(memcmp(in.stack, out.stack, sizeof(in.stack)) == 0);
  CHECK(memcmp(in.vectors, out.vectors, sizeof(in.vectors)) == 0);
}

/* Once, a little later: signals that came faster than they are delivered would let nothing go on. */
static void
later(uint64_t seed)
{
  struct itimerval once = {{0, 0}, {0, (long)(20 + seed * 7919 % 300)}};
  setitimer(ITIMER_REAL, &once, NULL);
}

static void
registers(int signals)
{
  catch (SIGALRM, spoil, SA_RESTART);
  for (uint64_t seed = 0; came < signals; seed++) {
    later(seed);
    check_state(seed);
  }
}

/* ---- strings that are interrupted ---- */

static void
strings(int signals)
{
  static uint8_t memory[2][1 + (1 << 16)], *const from = memory[0] + 1, *const to = memory[1] + 1;
  const size_t size = sizeof(memory[0]) - 1;
  catch (SIGALRM, spoil, SA_RESTART);
  for (unsigned turn = 0; came < signals; turn++) {
    void *source = from, *target = to;
    size_t count = size;
    later(turn);
    memset(from, (int)turn, size);
    from[turn % size] ^= 0x80;
    if (turn % 2 == 0) {
      __asm__ volatile("rep movsb" : "+S"(source), "+D"(target), "+c"(count)::"memory");
      CHECK(source == from + size && target == to + size && count == 0);
    } else {
      source = from + size - 1;
      target = to + size - 1;
      __asm__ volatile("std\n rep movsb\n cld" : "+S"(source), "+D"(target), "+c"(count)::"memory");
      CHECK(source == from - 1 && target == to - 1 && count == 0);
    }
    CHECK(memcmp(from, to, size) == 0);
    source = from;
    target = to;
    count = size;
    to[turn % size] ^= 1;
    uint8_t same;
    __asm__ volatile("repe cmpsb\n sete %3" : "+S"(source), "+D"(target), "+c"(count), "=q"(same)::"memory", "cc");
    CHECK(!same && count == size - 1 - turn % size);
  }
}

/* ---- nested, on another stack, with jumps ---- */

static sigjmp_buf back;
static volatile int depth, deepest; /* raise does not look as if it called back */

static void
nest(int signal)
{
  came++;
  depth++;
  deepest = depth > deepest ? depth : deepest;
  if (depth < 20) {
    raise(signal == SIGUSR1 ? SIGUSR2 : SIGUSR1);
  }
  depth--;
}

static void
jump(int signal)
{
  came++;
  siglongjmp(back, signal);
}

static void
nested(int signals)
{
  catch (SIGUSR1, nest, SA_NODEFER);
  catch (SIGUSR2, nest, SA_NODEFER);
  raise(SIGUSR1);
  printf("nested %d, %d deep\n", (int)came, deepest);
  came = 0;
  catch (SIGALRM, jump, 0);
  while (came < signals) {
    if (sigsetjmp(back, 1) == 0) {
      later((uint64_t)came);
      for (volatile int i = 0;; i++) {
        sink += (uint64_t)snprintf(NULL, 0, "%d", i);
      }
    }
  }
  printf("jumped\n");
  came = 0;
  catch (SIGSEGV, jump, 0);
  for (volatile int i = 0; i < 100; i++) {
    if (sigsetjmp(back, 1) == 0) {
      *(volatile int *)(uintptr_t)(16 + i) = 1;
    }
  }
  printf("faulted %d\n", (int)came);
}

static int frames;

OPAQUE int
recurse(int n)
{
  volatile char room[512];
  room[n % 512] = (char)n;
  frames++;
  return (n < 0 ? 0 : recurse(n + 1)) + room[n % 512];
}

static void
overflow(void)
{
  stack_t stack = {.ss_size = 65536};
  stack.ss_sp = malloc(stack.ss_size);
  sigaltstack(&stack, NULL);
  catch (SIGSEGV, jump, SA_ONSTACK);
  for (int i = 0; i < 3; i++) {
    frames = 0;
    if (sigsetjmp(back, 1) == 0) {
      recurse(0);
    }
    CHECK(frames > 1000);
  }
  printf("overflowed %d\n", (int)came);
}

/* ---- system calls that are interrupted ---- */

static void
count(int signal)
{
  (void)signal;
  came++;
}

static void
write_late(int fd, int late_us)
{
  if (fork() == 0) {
    usleep((useconds_t)late_us);
    _exit(write(fd, "x", 1) != 1);
  }
}

static void
calls(void)
{
  int fds[2];
  char byte;
  if (pipe(fds) != 0) {
    return;
  }
  catch (SIGALRM, count, 0);
  timer(3000); /* not once: it may come before the read */
  while (came < 20) {
    ssize_t got = read(fds[0], &byte, 1);
    CHECK(got == -1 && errno == EINTR);
  }
  timer(0);
  printf("interrupted\n");
  came = 0;
  catch (SIGALRM, count, SA_RESTART);
  write_late(fds[1], 60000);
  timer(2000);
  ssize_t got = read(fds[0], &byte, 1);
  timer(0);
  CHECK(got == 1 && byte == 'x' && came > 5);
  wait(NULL);
  printf("restarted\n");
  /* One that the kernel goes on with by restart_syscall, and one that is ignored. */
  signal(SIGALRM, SIG_IGN);
  struct timespec start, end, pause = {0, 30000000}, rest = {9, 9};
  clock_gettime(CLOCK_MONOTONIC, &start);
  timer(1000);
  CHECK(nanosleep(&pause, &rest) == 0);
  clock_gettime(CLOCK_MONOTONIC, &end);
  CHECK((end.tv_sec - start.tv_sec) * 1000000000 + end.tv_nsec - start.tv_nsec >= 30000000);
  timer(0);
  catch (SIGALRM, count, SA_RESTART);
  came = 0;
  sigset_t block, old;
  sigemptyset(&block);
  sigaddset(&block, SIGALRM);
  sigprocmask(SIG_BLOCK, &block, &old);
  timer(500);
  while (came < 100) {
    int before = came;
    int code = sigsuspend(&old);
    CHECK(code == -1 && errno == EINTR && came > before);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &block) == 0 && sigismember(&block, SIGALRM) == 1);
  }
  timer(0);
  printf("suspended\n");
  struct timespec second = {1, 0};
  siginfo_t info;
  sigaddset(&block, SIGUSR1);
  sigprocmask(SIG_BLOCK, &block, NULL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  union sigval value = {.sival_int = 77};
  sigqueue(getpid(), SIGUSR1, value);
  CHECK(sigtimedwait(&one, &info, &second) == SIGUSR1 && info.si_value.sival_int == 77);
  printf("waited\n");
}

/* ---- handlers that change what they return to ---- */

static uint64_t reported[4];

static void
move(int signal, siginfo_t *info, void *context)
{
  ucontext_t *state = context;
  (void)signal;
  (void)info;
  came++;
  state->uc_mcontext.gregs[REG_R12] = 0x1212 + came;
  state->uc_mcontext.gregs[REG_EFL] ^= 1; /* carry */
  state->uc_mcontext.gregs[REG_RIP] += 2;
  ((uint8_t *)state->uc_mcontext.fpregs)[160] = 0x42; /* xmm0 */
}

static void
changes(void)
{
  struct sigaction action = {.sa_sigaction = move, .sa_flags = SA_SIGINFO};
  sigaction(SIGILL, &action, NULL);
  for (int i = 0; i < 50; i++) {
    uint64_t r12, carry = 0, low;
    __asm__ volatile("pxor %%xmm0, %%xmm0\n clc\n ud2\n mov %%r12, %0\n adc $0, %1\n movq %%xmm0, %2"
                     : "=r"(r12), "+r"(carry), "=r"(low)::"r12", "xmm0", "cc");
    CHECK(r12 == 0x1212u + (unsigned)came && carry == 1 && low == 0x42);
  }
  printf("changed %d\n", (int)came);
  sink = reported[0];
}

/* ---- the program stops, and goes on ---- */

static void
continue_late(pid_t pid)
{
  if (fork() == 0) {
    usleep(20000);
    kill(pid, SIGCONT);
    _exit(0);
  }
}

static void
stops(void)
{
  static const int signals[] = {SIGSTOP, SIGTSTP, SIGTTIN};
  catch (SIGCONT, count, SA_RESTART);
  for (int i = 0; i < 3; i++) {
    pid_t child = fork();
    if (child == 0) { /* one that looks on, as a shell does */
      _exit(0);
    }
    waitpid(child, NULL, 0);
    came = 0;
    continue_late(getpid());
    raise(signals[i]);
    for (int w = 0; w < 1000 && came == 0; w++) {
      usleep(1000);
    }
    CHECK(came == 1);
    while (wait(NULL) > 0) {
    }
    printf("went on after %d\n", signals[i]);
  }
}

/* ---- the trap flag of the program's own ---- */

static volatile uint64_t trapped[64];

static void
trap(int signal, siginfo_t *info, void *context)
{
  ucontext_t *state = context;
  (void)signal;
  trapped[came++ & 63] = (uint64_t)state->uc_mcontext.gregs[REG_RIP];
  reported[0] |= (uint64_t)info->si_code;
}

__asm__(
    ".pushsection .text\n.type alone, @function\nalone:\n pushf\n orl $0x100, (%rsp)\n popf\n"
    "alone_1: nop\nalone_2: lea 1(%rax), %rax\nalone_3: jmp alone_4\n nop\nalone_4: call alone_5\nalone_6: pushf\n"
    "alone_7: andl $~0x100, (%rsp)\nalone_8: popf\nalone_9: ret\nalone_5: ret\n.size alone, . - alone\n.popsection\n");
void alone(void);
extern char alone_1[];

static void
own_steps(void)
{
  struct sigaction action = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
  sigaction(SIGTRAP, &action, NULL);
  for (int turn = 0; turn < 2; turn++) {
    came = 0;
    alone();
    printf("%d traps, code %d:", (int)came, (int)reported[0]);
    for (int i = 0; i < came && i < 64; i++) {
      printf(" %d", (int)(trapped[i] - (uint64_t)alone_1));
    }
    printf("\n");
  }
}

/* ---- SIGTRAP blocked, where instructions are executed by steps ---- */

static void
on_own_trap(int signal)
{
  (void)signal;
  came++;
}

static void
masked(void)
{
  static char area[512] __attribute__((aligned(64)));
  struct sigaction now;
  sigset_t most, mask;
  catch (SIGTRAP, on_own_trap, SA_RESTART);
  catch (SIGUSR1, on_own_trap, SA_RESTART);
  sigfillset(&most);
  sigdelset(&most, SIGUSR1);
  sigprocmask(SIG_SETMASK, &most, NULL);
  for (int turn = 0; turn < 3; turn++) {
    __asm__ volatile("fxsave (%0); fxrstor (%0); pushf; popf" : : "r"(area) : "memory", "cc");
    raise(SIGUSR1);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    sigaction(SIGTRAP, NULL, &now);
    CHECK(sigismember(&mask, SIGTRAP) == 1 && now.sa_handler == on_own_trap && (now.sa_flags & SA_RESTART) != 0);
  }
  CHECK(came == 3);
  raise(SIGTRAP);
  CHECK(came == 3);
  sigprocmask(SIG_UNBLOCK, &most, NULL);
  CHECK(came == 4);
}

int
main(int argc, char **argv)
{
  const char *name = argc > 1 ? argv[1] : "";
  int number = argc > 2 ? atoi(argv[2]) : 500;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(name, "registers") == 0) {
    registers(number);
  } else if (strcmp(name, "strings") == 0) {
    strings(number);
  } else if (strcmp(name, "nested") == 0) {
    nested(argc > 2 ? number : 300);
  } else if (strcmp(name, "overflow") == 0) {
    overflow();
  } else if (strcmp(name, "calls") == 0) {
    calls();
  } else if (strcmp(name, "changes") == 0) {
    changes();
  } else if (strcmp(name, "stops") == 0) {
    stops();
  } else if (strcmp(name, "own_steps") == 0) {
    own_steps();
  } else if (strcmp(name, "masked") == 0) {
    masked();
  } else if (strcmp(name, "abort") == 0) {
    abort();
  } else if (strcmp(name, "kill") == 0) {
    raise(number);
  } else {
    CHECK(!"a case");
  }
  return check_done(name);
}
